"""Which item of a warp holds which element of small matrices that the warp multiplies together, and the parts of an MMA node.

    C[8 * h, 8]  =  A[8 * h, 4 * n] * B[4 * n, 8]

Item 4 * g + q of a warp, g < 8, q < 4, holds n elements of each of h rows of A, n of one column of B, and of C two
columns of each of its rows. Here for h = 1, n = 2, by items:

    A: 0 0 1 1 2 2 3 3      B: 0 4  8 12 16 20 24 28      C: 0 0 1 1 2 2 3 3
       4 4 5 5 6 6 7 7         0 4  8 12 16 20 24 28         4 4 5 5 6 6 7 7
       ...                     1 5  9 ...                    ...

Or one item holds all of them, C[s, s] = A[s, p * g] * B[p * g, s]: A and C row by row, and of B g rows at a time, column by column.
Here B for s = 3, p = 2, g = 2, by the element's number:

    0 2 4
    1 3 5
    6 8 10
    7 9 11

Functions take numbers or terms. Each says where an element of an item stands, or which item holds it as which of its elements. That they are
one to one is proved (verify/steps/fragments.py). Does not own: the registers of an instruction (backends/ptx/matrix_units.py,
backends/llvm/tiles.py).
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
class Square:
    """Matrices of `side` rows and columns, and `groups` * `group` steps between, that one item holds."""

    side: Any
    groups: Any
    group: Any

    @property
    def steps(self) -> Any:
        """Of the sum."""
        return self.groups * self.group

    @property
    def elements(self) -> Any:
        """Of each factor."""
        return self.side * self.steps

    def row_element(self, k: Any) -> tuple[Any, Any]:
        """Row and step of element k of A."""
        return k // self.steps, k % self.steps

    def row_holder(self, row: Any, step: Any) -> Any:
        """The number of the element."""
        return row * self.steps + step

    def column_element(self, k: Any) -> tuple[Any, Any]:
        """Step and column of element k of B."""
        inside, part = k // self.group, k % self.group
        return inside // self.side * self.group + part, inside % self.side

    def column_holder(self, step: Any, column: Any) -> Any:
        """The number of the element."""
        return (step // self.group * self.side + column) * self.group + step % self.group

    def result_element(self, register: Any) -> tuple[Any, Any]:
        """Row and column of a result."""
        return register // self.side, register % self.side

    def result_holder(self, row: Any, column: Any) -> Any:
        """The number of the result."""
        return row * self.side + column


@dataclass(frozen=True, slots=True)
class Fragments:
    """The parts of an MMA node. A loop that became lanes is None. `square`: one item holds all; `steps`: that an item holds of a row."""

    item: UOp
    before: UOp
    column: UOp
    rows: tuple[UOp, ...]
    register: UOp | None
    step: UOp | None
    steps: int
    square: Square | None = None


def square_of(mma: UOp) -> Square | None:
    """The matrices of an MMA that one item holds; None: the items of a warp hold them."""
    return Square(*mma.arg) if len(mma.arg) == 3 else None


def fragments_of(mma: UOp) -> Fragments:
    """What an MMA multiplies, and its loops."""
    square = square_of(mma)
    halves, steps = mma.arg if square is None else (1, square.steps)
    item, before, column, *rest = mma.src
    rows, loops = tuple(rest[:halves]), rest[halves:]
    register = loops[0] if mma.dtype.lanes == 1 else None
    step = loops[-1] if column.dtype.lanes == 1 else None
    return Fragments(item, before, column, rows, register, step, steps, square)


def own_loops(mma: UOp) -> tuple[UOp, ...]:
    """The loop that an MMA has of its own: over what an item holds of its factors."""
    step = fragments_of(mma).step
    return () if step is None else (step,)
