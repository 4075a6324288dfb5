"""Products of small matrices in chosen iterations: what an item takes in is computed in the items that hold it.

Owns: the terms of an MMA at each of its steps. Does not own: their values (sampled/linear.py), the same for the solver
(kernels/matrices.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


def product_of(mma: UOp, lane: int) -> Product:
    """The parts of an MMA of vectors; `lane` tells those apart that are asked for other results."""
    halves, held = mma.arg
    item, before, column, *rows = mma.src
    kind = item.dtype
    step = UOp(Ops.RANGE, kind, (UOp.const(kind, 4 * held),), (SUMMED, AxisRole.REDUCE))
    register = UOp(Ops.RANGE, kind, (UOp.const(kind, 2 * halves),), (HELD + lane, AxisRole.REDUCE))
    first, part = item // 32 * 32, step // held
    of_rows = first + item // 4 % 8 * 4 + part
    of_column = first + (item % 4 * 2 + register % 2) * 4 + part
    return Product(before, column, tuple(rows), item, step, register, of_rows, of_column, held)


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
