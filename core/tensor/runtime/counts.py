"""Counts of rows as variables: what reduces the first rows of some more is one graph for all counts, and so one kernel.

Owns: which sizes and numbers of a graph follow such a count, the nodes in their place. Does not own: which rows are computed
(first_rows.py), positions (positions.py), what a variable is to a kernel (core/compile).

A mask chooses another number of elements each time, and to compile a kernel takes a hundred times as long as to run it. Each node that
is exchanged has the value that it had, for the variable is that count.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from proofgrad.core.compile.plan.bounded_cache import Newest
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.op_names import (
    ADD,
    CAST,
    CONST,
    CONTIGUOUS,
    FDIV,
    MUL,
    RESHAPE,
    SINK,
    VARIABLE,
)
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.shapes import Shape, ShapeError, is_plain, sizes
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.nodes import broadcast_node, reshape_node
from proofgrad.core.tensor.runtime.first_rows import cut_of

EXPAND, PAD, REDUCE_AXIS = Ops.EXPAND, Ops.PAD, Ops.REDUCE_AXIS
# What a mean and a variance divide by is so much less than a number of elements.
_CORRECTIONS = (0, 1)
_MOST_ELEMENTS = 1 << 31  # that int32 counts
_WITH_COUNTS: Newest[UOp, tuple[UOp, dict[str, int]]] = Newest(256)


def counts_as_variables(graph: UOp) -> tuple[UOp, dict[str, int]]:
    """A graph as it is compiled with variables for the counts of rows that it reduces, and their values. As it is, if it does none of that."""
    known = _WITH_COUNTS.get(graph)
    if known is None:
        order = graph.toposort()
        cuts = [node for node in order if cut_of(node) is not None]
        known = _Counts(cuts).found(order) if cuts else (graph, {})
        _WITH_COUNTS[graph] = known
    return known


class _Counts:
    """The nodes that follow counts: their shapes, and those of their arguments that change."""

    def __init__(self, cuts: Sequence[UOp]) -> None:
        self.values: dict[str, int] = {}
        self._shapes: dict[UOp, Shape] = {}  # with variables
        self._arguments: dict[UOp, Any] = {}
        self._totals: dict[int, Shape] = {}  # numbers of elements: of what shape
        # Of a gradient, which is put among zeros: rows and zeros behind them, the same of variables.
        self._frames: dict[tuple[int, int], tuple[Any, Any]] = {}
        numbers: dict[tuple[int, int], int] = {}
        for cut in cuts:
            rows, most = cut.shape[0], cut.src[0].shape[0]
            name = f"[rows {numbers.setdefault((rows, most), len(numbers))}]"  # no user's
            variable: Any = UOp(VARIABLE, dtypes.index, (), (name, 1, most))
            self.values[name] = rows
            self._arguments[cut] = ((0, variable), *cut.arg[1:])
            self._shapes[cut] = (variable, *cut.shape[1:])
            self._totals.update({rows: (variable,), prod(cut.shape): self._shapes[cut]})
            self._frames[rows, most - rows] = variable, sizes().difference(most, variable)

    def found(self, order: Sequence[UOp]) -> tuple[UOp, dict[str, int]]:
        """The graph of these nodes with variables. As it is where a node that reads what follows a count does not."""
        graph = order[-1]
        for node in order:
            is_above = not self._shapes.keys().isdisjoint(node.src)
            if node.op is PAD:
                follows = self._frame(node) or not is_above
            else:
                follows = not is_above or node in self._shapes or self._follow(node)
            if not follows:
                return graph, {}
        done: dict[UOp, UOp] = self._divisors(order)
        try:
            for node in order:
                if node not in done:
                    src = tuple([done[source] for source in node.src])
                    done[node] = UOp(node.op, node.dtype, src, self._arguments.get(node, node.arg))
        except ShapeError:  # a constant is as long as what follows and what does not
            return graph, {}
        return done[graph], self.values

    def _frame(self, pad: UOp) -> bool:
        """Note what puts so many rows among zeros as there are behind them; False for another PAD, and where what it puts there cannot be as long."""
        (before, behind), *others = pad.arg
        rows, *rest = pad.src[0].shape
        variable, zeros = self._frames.get((rows, behind), (None, None))
        if before or variable is None or not self._repeat(pad.src[0], (variable, *rest)):
            return False
        self._arguments[pad] = ((0, zeros), *others)
        return True

    def _follow(self, node: UOp) -> bool:
        """Note the shape of a node that reads what follows a count; False if it cannot follow."""
        shape = next(self._shapes[source] for source in node.src if source in self._shapes)
        op = node.op
        if op in ELEMENTWISE or op is CONTIGUOUS:
            self._shapes[node] = shape
            return all([self._repeat(source, shape) for source in node.src])
        if op is REDUCE_AXIS:
            _, axes = node.arg
            return self._note(node, [1 if k in axes else n for k, n in enumerate(shape)])
        if op is SINK:
            return True
        if op is Ops.PERMUTE:
            return self._note(node, [shape[k] for k in node.arg])
        wanted: list[Any] | None = None
        if op is EXPAND:
            wanted = [n if type(own) is int else own for own, n in zip(shape, node.arg)]
        elif op is RESHAPE:
            wanted = _reshaped(shape, node.src[0].shape, node.arg)
        if wanted is None:
            return False
        self._arguments[node] = tuple(wanted)
        return self._note(node, wanted)

    def _note(self, node: UOp, shape: Sequence[Any]) -> bool:
        if not is_plain(shape):
            self._shapes[node] = tuple(shape)
        return True

    def _repeat(self, node: UOp, shape: Shape) -> bool:
        """Whether a node has this shape, or is a value that can be repeated as often."""
        if node.op is EXPAND and node not in self._shapes:
            self._arguments[node] = self._shapes[node] = shape
        if node in self._shapes:
            return self._shapes[node] == shape
        if node.op not in ELEMENTWISE or not node.src:
            return False
        self._shapes[node] = shape
        return all([self._repeat(source, shape) for source in node.src])

    def _divisors(self, order: Sequence[UOp]) -> dict[UOp, UOp]:
        """Constants that something is divided by, and are numbers of elements: what has that value for all counts."""
        found: dict[UOp, UOp] = {}
        for node in [node.src[1] for node in order if node.op is FDIV]:
            while node.op is RESHAPE or node.op is EXPAND or node.op is CAST:
                node = node.src[0]
            for less in _CORRECTIONS if node.op is CONST else ():
                count = int(node.arg) + less if float(node.arg).is_integer() else 0
                if 0 < count < _MOST_ELEMENTS and count in self._totals:
                    found.setdefault(node, _number_of(self._totals[count], less, node.dtype))
        return found


def _reshaped(shape: Shape, before: Shape, after: Shape) -> list[Any] | None:
    """The shape after a RESHAPE of what has a count as one size of its shape; None if it has it nowhere."""
    (axis, *more) = [k for k, size in enumerate(shape) if type(size) is not int]
    behind = prod(before[axis + 1 :])
    for k, size in enumerate(after):
        if not more and size == before[axis] and prod(after[k + 1 :]) == behind:
            return [*after[:k], shape[axis], *after[k + 1 :]]
    return None


def _number_of(shape: Shape, less: int, dtype: DType) -> UOp:
    """The number of elements of a shape with a variable, less a correction: so many ones, added."""
    kind = dtypes.int32
    ones = broadcast_node(UOp.const(kind, 1), shape[:1])
    rows = reshape_node(UOp(REDUCE_AXIS, kind, (ones,), (ADD, (0,))), ())
    total = UOp(MUL, kind, (rows, UOp.const(kind, prod(shape[1:]))))
    return UOp(ADD, kind, (total, UOp.const(kind, -less))).cast(dtype)
