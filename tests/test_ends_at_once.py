"""Kernels all of whose stores are under a truth that memory holds: they ask it once, and end where it does not hold."""

from __future__ import annotations

import re

import numpy as np
import pytest
from test_tile_units import EMITTED, of_bfloat16

from proofgrad import Context, dtypes
from proofgrad.backends.llvm.dialect import Dialect
from proofgrad.backends.llvm.emit import emit
from proofgrad.backends.llvm.skipping import truths_of_all
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compile_only, compiler
from proofgrad.verify.kernels.readback import stores_of
from proofgrad.verify.kernels.truths import by_truths


@pytest.fixture(scope="module")
def kernels() -> list[UOp]:
    """Those of a product of bfloat16: two look, two fill tables, two multiply."""
    compiler().forget()
    x, y = of_bfloat16(np.ones((32, 32)), "TILES"), of_bfloat16(np.ones((32, 32)), "TILES")
    EMITTED.clear()
    with Context(CHOICES="matrices=1x1", PLANS=0), compile_only():
        x.matmul(y, dtype=dtypes.float32).realize()
    return list(EMITTED)


def test_the_kernels_that_multiply_are_under_truths_and_the_others_under_none(
    kernels: list[UOp],
) -> None:
    asked = [bool(truths_of_all(linear)) for linear in kernels]
    assert asked == [False] * 4 + [True] * 2


def test_a_kernel_asks_before_its_first_loop_and_no_more(kernels: list[UOp]) -> None:
    text = emit(kernels[-1], "kernel", Dialect()).text
    body = text.split("\nentry:\n")[1]
    before, behind = re.split(r"br label %loop", body, maxsplit=1)
    assert re.search(r"br i1 %v\d+, label %asked\d+, label %exit", before)
    assert "label %exit" not in behind.split("br label %exit")[0]
    assert "@llvm.masked.store" not in behind


def test_a_mask_that_a_loop_changes_is_not_asked_at_the_beginning() -> None:
    compiler().forget()
    EMITTED.clear()
    x = of_bfloat16(np.ones((9, 7)), "TILES")
    with Context(CHOICES="tile=2x1x4", PLANS=0), compile_only():
        (x @ x.T).realize()
    assert EMITTED and not any([truths_of_all(linear) for linear in EMITTED])


# -- what the proof reads of them -----------------------------------------------------------------


def store_under(mask: UOp) -> UOp:
    """out[r] = 1 under a mask."""
    out, loop = UOp(Ops.PARAM, dtypes.int32, (), (0, 4)), UOp.range(4, 0)
    index = UOp(Ops.INDEX, dtypes.int32, (out, loop, mask))
    return UOp(Ops.STORE, dtypes.void, (index, UOp.const(dtypes.int32, 1)))


def held(number: int) -> UOp:
    """Whether a number that memory holds is above 0."""
    memory = UOp(Ops.PARAM, dtypes.int32, (), (number, 1))
    index = UOp(Ops.INDEX, dtypes.int32, (memory, UOp.index(0)))
    return UOp.const(dtypes.int32, 0) < UOp(Ops.LOAD, dtypes.int32, (index,))


def counts(*masks: UOp) -> set[int]:
    """How many stores there are, in each case."""
    stores = stores_of(UOp.sink(*[store_under(mask) for mask in masks]))
    return {len(case) for case in by_truths(stores)}


def test_one_of_two_stores_runs_where_one_is_under_what_the_other_is_not() -> None:
    one, other = held(1), held(2)
    both = one & other
    assert counts(both, ~both) == {1}
    assert counts(one | other, ~(one | other)) == {1}


def test_stores_under_truths_that_do_not_exclude_each_other_run_both_or_not_at_all() -> None:
    one, other = held(1), held(2)
    assert counts(one, one) == {0, 2}
    assert counts(one, ~other) == {0, 1, 2}
    assert counts(one & other, ~one) == {0, 1}


def test_what_a_loop_changes_is_left_in_the_mask() -> None:
    inside = UOp.range(4, 0) < 3
    (case, empty) = by_truths(stores_of(UOp.sink(store_under(held(1) & inside))))
    assert not empty
    assert case[0].store.src[0].src[2] is inside
