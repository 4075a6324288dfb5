"""Which item of a warp holds which element of small matrices that the warp multiplies together, and the parts of an MMA node.

    C[8 * h, 8]  =  A[8 * h, 4 * n] * B[4 * n, 8]

Item 4 * g + q of a warp, g < 8, q < 4, holds n elements of each of h rows of A, n of one column of B, and of C two
columns of each of its rows. Here for h = 1, n = 2, by items:

    A: 0 0 1 1 2 2 3 3      B: 0 4  8 12 16 20 24 28      C: 0 0 1 1 2 2 3 3
       4 4 5 5 6 6 7 7         0 4  8 12 16 20 24 28         4 4 5 5 6 6 7 7
       ...                     1 5  9 ...                    ...

Functions take numbers or terms. Each says where an element of an item stands, or which item holds it as which of its elements. That they are
one to one is proved (verify/steps/fragments.py). Does not own: the registers of an instruction (backends/ptx/matrix_units.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from proofgrad.core.ir.uop import UOp

WARP, GROUPS, QUARTERS = 32, 8, 4  # items, of which so many have rows, and steps, of their own
COLUMNS_EACH = 2  # of the result


def row_element(item: Any, half: Any, k: Any, steps: Any) -> tuple[Any, Any]:
    """Row and step of element k of a half of the rows."""
    return item // QUARTERS % GROUPS + GROUPS * half, item % QUARTERS * steps + k


def row_holder(row: Any, step: Any, steps: Any) -> tuple[Any, Any, Any]:
    """The item of a warp, the half, the element of it."""
    return row % GROUPS * QUARTERS + step // steps, row // GROUPS, step % steps


def column_element(item: Any, k: Any, steps: Any) -> tuple[Any, Any]:
    """Step and column of element k."""
    return item % QUARTERS * steps + k, item // QUARTERS % GROUPS


def column_holder(step: Any, column: Any, steps: Any) -> tuple[Any, Any]:
    """The item of a warp, the element of it."""
    return column * QUARTERS + step // steps, step % steps


def result_element(item: Any, register: Any) -> tuple[Any, Any]:
    """Row and column of a result."""
    row = item // QUARTERS % GROUPS + GROUPS * (register // COLUMNS_EACH)
    return row, item % QUARTERS * COLUMNS_EACH + register % COLUMNS_EACH


def result_holder(row: Any, column: Any) -> tuple[Any, Any]:
    """The item of a warp, the register of it."""
    item = row % GROUPS * QUARTERS + column // COLUMNS_EACH
    return item, row // GROUPS * COLUMNS_EACH + column % COLUMNS_EACH


@dataclass(frozen=True, slots=True)
class Fragments:
    """The parts of an MMA node. A loop that became lanes is None."""

    item: UOp
    before: UOp
    column: UOp
    rows: tuple[UOp, ...]
    register: UOp | None
    step: UOp | None
    steps: int


def fragments_of(mma: UOp) -> Fragments:
    """What an MMA multiplies, and its loops."""
    halves, steps = mma.arg
    item, before, column, *rest = mma.src
    rows, loops = tuple(rest[:halves]), rest[halves:]
    register = loops[0] if mma.dtype.lanes == 1 else None
    step = loops[-1] if column.dtype.lanes == 1 else None
    return Fragments(item, before, column, rows, register, step, steps)


def own_loops(mma: UOp) -> tuple[UOp, ...]:
    """The loop that an MMA has of its own: over what an item holds of its factors."""
    step = fragments_of(mma).step
    return () if step is None else (step,)
