"""Products of small matrices in chosen iterations: what an item takes in is computed in the items that hold it.

Owns: the terms of an MMA at each of its steps. Does not own: their values (sampled/linear.py), the same for the solver
(kernels/matrices.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from proofgrad.core.ir.op_names import CONST
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort

SUMMED, HELD = (1 << 30) + (1 << 20), (1 << 30) + (1 << 21)  # numbers of loops


@dataclass(frozen=True, slots=True)
class Product:
    """An MMA: the loops over its steps and over the results of an item, and the items that hold its factors there."""

    before: UOp
    column: UOp
    rows: tuple[UOp, ...]
    item: UOp
    step: UOp
    register: UOp
    of_rows: UOp
    of_column: UOp
    held: int
    steps: int
    square: tuple[int, int, int] | None = None  # whose elements the item itself holds

    def held_of_rows(self, register: Any, step: Any) -> Any:
        """Which of its elements the item that holds it has of the rows for a step of a result."""
        if self.square is None:
            return step % self.held
        return register // self.square[0] * self.steps + step

    def held_of_column(self, register: Any, step: Any) -> Any:
        """The same of the columns."""
        if self.square is None:
            return step % self.held
        side, _, group = self.square
        return (step // group * side + register % side) * group + step % group


def product_of(mma: UOp, lane: int) -> Product:
    """The parts of an MMA of vectors; `lane` tells those apart that are asked for other results."""
    item, before, column, *rows = mma.src
    kind, results = item.dtype, mma.dtype.lanes
    square = mma.arg if len(mma.arg) == 3 else None
    held = mma.arg[1] if square is None else column.dtype.lanes
    steps = 4 * held if square is None else square[1] * square[2]
    inside = len(
        [n for n in toposort((mma,)) if n.op is Ops.MMA]
    )  # so that no loop has one of its own name inside
    number = SUMMED + inside, AxisRole.REDUCE
    step = UOp(Ops.RANGE, kind, (UOp.const(kind, steps),), number)
    register = UOp(Ops.RANGE, kind, (UOp.const(kind, results),), (HELD + lane, AxisRole.REDUCE))
    if square is not None:
        return Product(
            before, column, tuple(rows), item, step, register, item, item, held, steps, square
        )
    first, part = item // 32 * 32, step // held
    of_rows = first + item // 4 % 8 * 4 + part
    of_column = first + (item % 4 * 2 + register % 2) * 4 + part
    return Product(
        before, column, tuple(rows), item, step, register, of_rows, of_column, held, steps
    )


def from_nothing(mma: UOp) -> UOp:
    """The same product, added to 0."""
    item, before, *rest = mma.src
    zero = UOp(CONST, before.dtype.scalar, (), 0.0)
    start = UOp(Ops.BROADCAST, before.dtype, (zero,)) if before.dtype.lanes > 1 else zero
    return mma.with_src((item, start, *rest))


def moved(terms: Sequence[UOp], loop: UOp, value: UOp) -> dict[UOp, UOp]:
    """Each node below some terms where a loop is at another value."""
    done = {loop: value}
    for node in toposort(terms):
        if node is not loop:
            done[node] = node.with_src(tuple([done[s] for s in node.src]))
    return done
