"""The values of kernel terms at many points at once, by the reference meaning of each operation.

Owns: loops, reductions, memory and its masks. Does not own: the value of an operation
(core/ir/evaluate.py), tensors (tensors.py), which points are tried (points.py).

A column is the list of values of one node, one a point. What reads outside of its buffer, or is
computed from that, is OUTSIDE: both branches of a selection are computed, whatever its condition is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.evaluate import evaluate, from_bits, identity, to_bits
from proofgrad.core.ir.ops import APPROXIMATED, CONVERSIONS, ELEMENTWISE, Ops
from proofgrad.core.ir.uop import UOp

Column = list[Any]
COUNTERS = frozenset({Ops.RANGE, Ops.VARIABLE})


class _Outside:
    """The value of what reads outside of its buffer."""

    def __repr__(self) -> str:
        return "outside of the buffer"


OUTSIDE = _Outside()


class Values:
    """The value of each node at `count` points.

    `counters`: values of free loops and variables; `memory`: contents of each PARAM.
    `as_reals`: floats are not rounded to their types, and constants of reals are what they stand for.
    `by_parts`: what the first loop of a reduction combines is combined by itself, then that of the next.
    """

    def __init__(
        self,
        count: int,
        counters: dict[UOp, Column],
        memory: dict[UOp, list[Sequence[Any]]],
        as_reals: bool = False,
        by_parts: bool = False,
    ) -> None:
        self.count = count
        self._counters = counters
        self._memory = memory
        self._as_reals = as_reals
        self._by_parts = by_parts
        self._known: dict[UOp, Column] = {}

    def with_reals(self) -> Values:
        """The same points, where floats are reals."""
        return Values(self.count, self._counters, self._memory, as_reals=True)

    def summed_by_parts(self) -> Values:
        """The same points, where each loop of a reduction is combined by itself, the first one first."""
        return Values(self.count, self._counters, self._memory, self._as_reals, by_parts=True)

    def at(self, k: int) -> Iterator[tuple[UOp, Any]]:
        """What loops, variables and memory are at point `k`."""
        for node, column in (*self._counters.items(), *self._memory.items()):
            yield node, column[k]

    def of(self, node: UOp) -> Column:
        """The column of a node."""
        found = self._known.get(node)
        if found is None:
            found = self._known[node] = self._find(node)
        return found

    def _find(self, node: UOp) -> Column:
        op = node.op
        if op is Ops.CONST:
            return [node.arg] * self.count
        if op in ELEMENTWISE:
            return elementwise(node, [self.of(source) for source in node.src], self._as_reals)
        if op in COUNTERS:
            return self._counters[node]
        if op is Ops.LOAD:
            return self._load(node.src[0])
        if op is Ops.INDEX:
            return self._load(node)
        if op is Ops.REDUCE:
            return self._reduction(node)
        raise ValueError(f"{op.name} has no value in a kernel term")

    def _load(self, position: UOp) -> Column:
        """What is at a position; a false mask gives zero, and reads nothing."""
        indices, contents = self.of(position.src[1]), self._memory[position.src[0]]
        masks = self.of(position.src[2]) if len(position.src) > 2 else [True] * self.count
        zero = from_bits(0, position.src[0].dtype)
        return [
            OUTSIDE
            if index is OUTSIDE or mask is OUTSIDE
            else zero
            if not mask
            else held[index]
            if 0 <= index < len(held)
            else OUTSIDE
            for index, mask, held in zip(indices, masks, contents)
        ]

    def _reduction(self, node: UOp) -> Column:
        """The body combined over the loops in order, from what the operation starts from."""
        body, *loops = node.src
        sizes = [loop.src[0].arg for loop in loops]
        turns = list(product(*[range(size) for size in sizes]))
        dtype, op = node.dtype, node.arg
        start = identity(op, dtype)
        if not turns:
            return [start] * self.count
        times = len(turns)
        counters = {c: _repeated(column, times) for c, column in self._counters.items()}
        for position, loop in enumerate(loops):
            counters[loop] = [turn[position] for turn in turns] * self.count
        memory = {buffer: _repeated(held, times) for buffer, held in self._memory.items()}
        inner = Values(self.count * times, counters, memory, self._as_reals, self._by_parts)
        values = inner.of(body)
        rounded = dtypes.float64 if self._as_reals and dtype.is_float else dtype
        parts = [values[k * times : (k + 1) * times] for k in range(self.count)]
        if self._by_parts:
            parts = [_combined(op, rounded, part, sizes) for part in parts]
        return [_folded(op, rounded, start, part) for part in parts]


def _repeated(column: Sequence[Any], times: int) -> list[Any]:
    return [value for value in column for _ in range(times)]


def _folded(op: Ops, dtype: DType, total: Any, values: Column) -> Any:
    if total is OUTSIDE:
        return OUTSIDE
    for value in values:
        if value is OUTSIDE:
            return OUTSIDE
        total = evaluate(op, dtype, (total, value))
    return total


def _combined(op: Ops, dtype: DType, values: Column, sizes: Sequence[int]) -> Column:
    """One value for all, in row-major order of loops of these sizes: the loops by themselves in turn."""
    for size in sizes:
        step = len(values) // size
        lines = [values[position::step] for position in range(step)]
        values = [_folded(op, dtype, line[0], line[1:]) for line in lines]
    return values


# -- elementwise ------------------------------------------------------------------------------------


def elementwise(node: UOp, sources: Sequence[Column], as_reals: bool = False) -> Column:
    """The column of an elementwise node, given those of its sources."""
    value = _meaning(node, as_reals)
    if any([OUTSIDE in column for column in sources]):
        return [OUTSIDE if OUTSIDE in args else value(*args) for args in zip(*sources)]
    return list(map(value, *sources))


def _meaning(node: UOp, as_reals: bool) -> Callable[..., Any]:
    """The operation of a node as a function of its arguments."""
    op, dtype, types = node.op, node.dtype, [source.dtype for source in node.src]
    if op is Ops.WHERE:
        return lambda truth, first, second: first if truth else second
    if as_reals and dtype.is_float:
        if op in CONVERSIONS and types[0].is_float:
            return lambda value: value
        dtype = dtypes.float64
    if op in APPROXIMATED and not as_reals:  # machines compute these in their own way
        return lambda *args: _moved(evaluate(op, dtype, args), dtype)
    return lambda *args: evaluate(op, dtype, args, types)


def _moved(value: float, dtype: DType) -> float:
    """Another value within the error bound of an operation that machines approximate."""
    if not math.isfinite(value) or value == 0.0:
        return value
    moved = from_bits(to_bits(value, dtype) + 1, dtype)
    return float(moved) if math.isfinite(moved) else value
