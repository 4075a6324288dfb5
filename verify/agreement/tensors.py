"""The elements of tensor graphs by the meaning of each operation, one element after the other.

Owns: movement operations, reductions over axes. Does not own: elementwise operations (interpreter.py).
Elements are in row-major order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from math import prod
from random import Random
from typing import Any

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.evaluate import cast, evaluate, from_bits, identity
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.shapes import row_major_strides
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.verify.agreement.interpreter import Column, elementwise
from proofgrad.verify.agreement.points import SUMMED, corners

Index = tuple[int, ...]
_SAME_ELEMENTS = frozenset({Ops.RESHAPE, Ops.CONTIGUOUS, Ops.DETACH, Ops.COPY})


class TensorValues:
    """The elements of each node, given those of each BUFFER."""

    def __init__(self, contents: dict[UOp, Column], as_reals: bool = False) -> None:
        self._known = dict(contents)
        self._as_reals = as_reals

    def of(self, node: UOp) -> Column:
        """All elements of a node."""
        found = self._known.get(node)
        if found is None:
            found = self._known[node] = self._find(node)
        return found

    def _find(self, node: UOp) -> Column:
        op = node.op
        if op is Ops.CONST:
            return [node.arg]
        if op is Ops.IOTA:
            return [cast(k, node.dtype) for k in range(node.arg)]
        sources = [self.of(source) for source in node.src]
        if op in ELEMENTWISE:
            return elementwise(node, sources, self._as_reals)
        if op in _SAME_ELEMENTS:
            return sources[0]
        if op is Ops.REDUCE_AXIS:
            return self._reduced(node, sources[0])
        shape = node.src[0].shape
        strides, zero = row_major_strides(shape), from_bits(0, node.dtype)
        found = []
        for index in product(*[range(size) for size in node.shape]):
            position = _position(node, index)
            inside = all([0 <= i < size for i, size in zip(position, shape)])
            found.append(
                sources[0][sum([i * s for i, s in zip(position, strides)])] if inside else zero
            )
        return found

    def _reduced(self, node: UOp, elements: Column) -> Column:
        op, axes = node.arg
        dtype = dtypes.float64 if self._as_reals and node.dtype.is_float else node.dtype
        start = identity(op, node.dtype)
        totals = dict.fromkeys(product(*[range(size) for size in node.shape]), start)
        positions = product(*[range(size) for size in node.src[0].shape])
        for index, value in zip(positions, elements):
            kept = tuple([0 if axis in axes else i for axis, i in enumerate(index)])
            totals[kept] = evaluate(op, dtype, (totals[kept], value))
        return list(totals.values())


def _position(node: UOp, index: Index) -> Index:
    """Where an element of a movement operation lies in its source, perhaps outside of it."""
    arg, shape = node.arg, node.src[0].shape
    match node.op:
        case Ops.PERMUTE:
            position = [0] * len(index)
            for k, axis in enumerate(arg):
                position[axis] = index[k]
            return tuple(position)
        case Ops.EXPAND:
            return tuple([i if size == new else 0 for i, size, new in zip(index, shape, arg)])
        case Ops.PAD:
            return tuple([i - before for i, (before, _) in zip(index, arg)])
        case Ops.SHRINK:
            return tuple([i + begin for i, (begin, _) in zip(index, arg)])
        case Ops.FLIP:
            return tuple([n - 1 - i if turned else i for i, n, turned in zip(index, shape, arg)])
        case Ops.SKEW:
            axis, by, step, _ = arg
            return tuple([i + step * index[by] if k == axis else i for k, i in enumerate(index)])
        case _:
            raise ValueError(f"{node.op.name} has no value in a tensor graph")


def tensor_values(roots: Iterable[UOp], random: Random) -> Iterator[TensorValues]:
    """A few choices of the elements of all buffers: all different, and corners."""
    nodes = toposort(roots)
    buffers = [node for node in nodes if node.op is Ops.BUFFER]
    is_summed = any([node.op is Ops.REDUCE_AXIS for node in nodes])
    for k in range(3):
        yield TensorValues({b: _elements(b, k, random, is_summed) for b in buffers})


def _elements(buffer: UOp, k: int, random: Random, is_summed: bool) -> Column:
    dtype, size = buffer.dtype, prod(buffer.shape)
    if k == 0 and not dtype.is_bool and not dtype.is_code:
        return [cast(number + 1, dtype) for number in range(size)]
    values = _values(dtype, is_summed)
    return [random.choice(values) for _ in range(size)]


def _values(dtype: DType, is_summed: bool) -> Sequence[Any]:
    return SUMMED if is_summed and dtype.is_float else corners(dtype)
