"""Kernels with a table between, read through for PROVE=1: a load stands for what the filling store has written there."""

from __future__ import annotations

import pytest

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.verify.kernels.match import Difference
from proofgrad.verify.kernels.questions import Questions
from proofgrad.verify.kernels.tables import read_through

SIZE = 5
TABLE, RESULT = [UOp(Ops.BUFFER, dtypes.float32, (), (number, SIZE)) for number in range(2)]


def at(memory: UOp, loop: UOp, below: int) -> UOp:
    """A position of the memory, where the loop is below a number."""
    mask = () if below >= SIZE else (loop < below,)
    return UOp(Ops.INDEX, dtypes.float32, (memory, loop, *mask))


def kernel(place: UOp, value: UOp) -> UOp:
    return UOp.sink(UOp(Ops.STORE, dtypes.void, (place, value)))


def filled_and_copied(filled: int, read: int) -> tuple[UOp, UOp]:
    """One kernel fills the first elements of a table, another copies the first ones of it."""
    i, j = UOp.range(SIZE, 0), UOp.range(SIZE, 1)
    value = i.cast(dtypes.float32)
    copied = UOp(Ops.LOAD, dtypes.float32, (at(TABLE, j, read),))
    return kernel(at(TABLE, i, filled), value), kernel(at(RESULT, j, SIZE), copied)


@pytest.mark.parametrize(("filled", "read"), [(SIZE, SIZE), (SIZE, 2), (3, 3), (3, 2)])
def test_a_load_where_the_table_is_filled_is_what_fills_it(filled: int, read: int) -> None:
    whole = read_through(filled_and_copied(filled, read), Questions())
    assert isinstance(whole, UOp)
    j = UOp.range(SIZE, 1)
    value = j.cast(dtypes.float32)
    masked = value if read == SIZE else (j < read).where(value, UOp.const(dtypes.float32, 0))
    assert whole.src[0].src[1] is masked


@pytest.mark.parametrize(("filled", "read"), [(3, SIZE), (3, 4), (0, 1)])
def test_a_load_where_the_table_is_not_filled_is_refused(filled: int, read: int) -> None:
    assert isinstance(read_through(filled_and_copied(filled, read), Questions()), Difference)
