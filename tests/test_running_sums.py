"""Running sums that a register carries: every way to run the small ones stores what they store."""

from __future__ import annotations

import os
import time

import pytest
from programs_of_kernels import Programs
from small_kernels import (
    X,
    inner_loops,
    load,
    loops,
    neutral,
    reduce,
    row_major,
    running_sums,
    small_kernels,
    store,
)
from test_shared_loops import VECTORS

from proofgrad.core.compile.steps.loop_nest import lowered
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compiler

STRIDE = 6  # of the kernels of the family, so many days for all of them


def tried(*stores: UOp) -> Programs:
    """Every way to run the kernels. Raises: WrongStep for one that stores something else."""
    found = Programs()
    for small in small_kernels([("running", UOp.sink(one)) for one in stores]):
        found.try_all(small, lowered(small.graph, compiler().library.facts(), VECTORS))
    return found


@pytest.mark.parametrize("op", [Ops.ADD, Ops.MAX])
def test_a_register_that_starts_as_a_vector_is_one(op: Ops) -> None:
    """Of one result along the axis, all but nothing is taken in before the loop."""
    (b,), (a,), (r,) = loops(2, first=4), loops(1, first=2), inner_loops(1, first=8)
    value = load(X, row_major(b, r), dtype=dtypes.uint8)
    mask = ~(a < r - 1)
    taken = reduce(op, mask.where(value, neutral(op, dtypes.uint8)), r)
    assert tried(store(row_major(b, a), taken)).made["carry"] == 1


def test_a_sum_that_never_takes_anything_in_reads_nothing() -> None:
    """Its memory may have no element, so none may be read in place of those that are masked away."""
    (b,), (a,), (r,) = loops(2, first=4), loops(1, first=2), inner_loops(3, first=8)
    nothing = reduce(Ops.ADD, load(X, row_major(b, r), r < a - 1), r) * 2
    found = tried(store(row_major(b, a), nothing))
    assert not found.made["carry"] and found.refused["carry"]


@pytest.mark.long
def test_running_sums_of_the_day_are_right() -> None:
    """Of two output loops either way, of masks from both ends, of one operation and another."""
    today = int(os.environ.get("STEPS_SEED", time.strftime("%Y%m%d")))
    found = tried(*list(running_sums())[today % STRIDE :: STRIDE])
    assert found.made["carry"] > 100 and found.made["lanes"] > 100, f"STEPS_SEED={today}"
