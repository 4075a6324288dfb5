"""Vectors under masks of which a part is off whatever a kernel is given."""

from __future__ import annotations

import numpy as np
import pytest
from test_cpu_target import cpu

from proofgrad import Context, Tensor, dtypes
from proofgrad.backends.cpu.absent import AbsentCpu
from proofgrad.backends.llvm.lanes_off import known_lanes, plain_pieces
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp


def test_lanes_are_off_where_a_part_of_a_mask_is_known_to_be() -> None:
    line = UOp(Ops.CONST, dtypes.int64.vec(4), (), (0, 1, 2, 3))
    limit = UOp(Ops.BROADCAST, dtypes.int64.vec(4), (UOp.const(dtypes.int64, 2),))
    below = UOp(Ops.CMPLT, dtypes.bool.vec(4), (line, limit))
    loop = UOp(Ops.RANGE, dtypes.int64, (UOp.const(dtypes.int64, 9),), (0, None))
    given = UOp(Ops.CMPLT, dtypes.bool, (UOp.const(dtypes.int64, 0), loop))
    both = UOp(Ops.AND, below.dtype, (UOp(Ops.BROADCAST, below.dtype, (given,)), below))
    assert known_lanes(below, {}) == known_lanes(both, {loop: 1}) == (True, True, False, False)
    assert known_lanes(both, {}) == (None, None, False, False)
    assert known_lanes(UOp(Ops.BROADCAST, below.dtype, (given,)), {}) == (None,) * 4


@pytest.mark.parametrize("count", range(1, 33))
@pytest.mark.parametrize("first", [0, 3])
def test_plain_pieces_are_all_lanes_that_are_on_and_no_other(first: int, count: int) -> None:
    known = [first <= lane < first + count for lane in range(35)]
    pieces = plain_pieces(known)
    assert 1 <= len(pieces) <= 2 and all(n & (n - 1) == 0 for _, n in pieces)
    assert {lane for at, n in pieces for lane in range(at, at + n)} == set(
        range(first, first + count)
    )


@pytest.mark.parametrize("known", [(False, False), (True, None), (True, False, True), (None,), ()])
def test_lanes_that_are_unknown_or_not_in_a_row_have_no_pieces(
    known: tuple[bool | None, ...],
) -> None:
    assert plain_pieces(known) == ()


@pytest.mark.parametrize("around", [(0, 2), (4, 0), (3, 4), (4, 1)], ids=str)
@pytest.mark.parametrize("kind", ["float64", "int32"])
def test_rows_in_vectors_of_two_registers_are_right(kind: str, around: tuple[int, int]) -> None:
    """LLVM 22 loads the half that no lane of is on, and what it found there was a result."""
    lanes = 64 // np.dtype(kind).itemsize
    x = np.arange(1, 5 * 11 * (lanes // 2) + 1).reshape(5, 11, -1).astype(kind)
    padding = ((0, 0), (1, 0), around)
    with cpu("haswell") as machine:
        if isinstance(machine, AbsentCpu):
            pytest.skip(f"no kernels for it run here: {machine.target.name}")
        with Context(CHOICES=f"vectors=*x{lanes}x1"):
            padded = Tensor(x).realize().pad(padding).numpy()
    np.testing.assert_array_equal(padded, np.pad(x, padding))


@pytest.mark.parametrize("name", ["native", "haswell"])
@pytest.mark.parametrize(
    ("kind", "narrow"), [("int32", "int8"), ("int16", "uint8"), ("int64", "int32")]
)
def test_a_single_element_behind_whole_vectors_is_stored_by_itself(
    name: str, kind: str, narrow: str
) -> None:
    """LLVM 22 stores it in its type of before, over what lies behind it."""
    with cpu(name) as machine:
        if isinstance(machine, AbsentCpu):
            pytest.skip(f"no kernels for it run here: {machine.target.name}")
        for size in (9, 17, 33, 65):
            x = np.arange(1, size + 1).astype(kind)
            memory = np.full(size + 20, 7, narrow)
            there = Tensor(memory).realize()
            there[5 : 5 + size].assign(Tensor(x).realize().cast(narrow)).realize()
            memory[5 : 5 + size] = x
            np.testing.assert_array_equal(there.numpy(), memory)
            rows = Tensor(np.tile(x, (3, 1))).realize().cumsum(0).cast(narrow)
            np.testing.assert_array_equal(rows.numpy(), np.cumsum([x] * 3, 0).astype(narrow))
