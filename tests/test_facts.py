"""Bounds, finiteness and independence of nodes (core/rewrite/facts.py)."""

from __future__ import annotations

import math

import pytest
from rules_from_text import rules_from, unproven_library

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.facts import Facts

R0, R1 = UOp.range(4, 0), UOp.range(5, 1)


def facts() -> Facts:
    return Facts(unproven_library()["bounds"])


def value(dtype: DType) -> UOp:
    memory = UOp(Ops.PARAM, dtype, (), (0, 1))
    return UOp(Ops.LOAD, dtype, (UOp(Ops.INDEX, dtype, (memory, UOp.index(0))),))


@pytest.mark.parametrize(
    ("term", "bounds"),
    [
        (UOp.index(7), (7, 7)),
        (R0, (0, 3)),
        (UOp.range(0, 2), (0, -1)),
        (R0 * 5 + R1, (0, 19)),
        (R0 - R1, (-4, 3)),
        ((R0 * 5 + R1) // 3, (0, 6)),
        ((R0 * 5 + R1) % 7, (0, 6)),
        (R0.maximum(R1), (0, 4)),
        ((R0 < 2).where(R0, R1 + 10), (0, 14)),
        (R0 < R1, (0, 1)),
        (UOp.const(dtypes.bool, True), (1, 1)),
        (value(dtypes.int8), (-128, 127)),
        (value(dtypes.float32), (None, None)),
        (value(dtypes.index), (None, None)),
    ],
)
def test_bounds_of_terms(term: UOp, bounds: tuple[int | None, int | None]) -> None:
    assert facts().interval(term) == bounds


def test_a_machine_integer_that_may_have_wrapped_has_the_bounds_of_its_type() -> None:
    small = value(dtypes.uint8) % 100
    assert facts().interval(small + 100) == (100, 199)
    assert facts().interval(small + 200) == (0, 255)


def test_one_side_of_an_index_term_may_be_known_alone() -> None:
    unknown = value(dtypes.index)
    assert facts().interval(unknown.maximum(UOp.index(3)))[1] is None


def test_bounds_come_from_the_rules_that_were_given() -> None:
    none = Facts(rules_from("ruleset bounds over index bounds neg: -x in [-hi(x), -lo(x)]"))
    assert none.interval(-R0) == (-3, 0)
    assert none.interval(R0 + R1) == (None, None)


def test_bounds_hold_in_every_lane() -> None:
    lanes = UOp(Ops.CONST, dtypes.int32.vec(4), (), (5, 2, 9, 2))
    assert facts().interval(lanes) == (2, 9)
    repeated = UOp(Ops.BROADCAST, dtypes.int32.vec(4), (UOp.const(dtypes.int32, 3),))
    assert facts().interval(lanes.alu(Ops.ADD, repeated)) == (5, 12)


def test_bounds_of_a_chain_of_50000_nodes() -> None:
    term = R0
    for _ in range(50_000):
        term = term + 1
    assert facts().interval(term) == (50_000, 50_003)


@pytest.mark.parametrize(
    ("term", "finite"),
    [
        (UOp.const(dtypes.float32, 1.5), True),
        (UOp.const(dtypes.float32, math.inf), False),
        (UOp.const(dtypes.float32, math.nan), False),
        (value(dtypes.float32), False),
        (value(dtypes.int32), True),
        (value(dtypes.int32).cast(dtypes.float32), True),
        (value(dtypes.int8).cast(dtypes.float16), True),
        (value(dtypes.int32).cast(dtypes.float16), False),
        (-value(dtypes.int8).cast(dtypes.float16), True),
        (value(dtypes.int8).cast(dtypes.float32) * UOp.const(dtypes.float32, 3e38), False),
    ],
)
def test_finite_is_said_only_where_it_is_sure(term: UOp, finite: bool) -> None:
    assert facts().finite(term) is finite


def test_a_term_depends_on_the_loops_below_it_but_for_those_it_runs_itself() -> None:
    known = facts()
    total = UOp(Ops.REDUCE, dtypes.int32, ((R0 + R1).cast(dtypes.int32), R0), Ops.ADD)
    assert known.loops(R0 * 5 + R1) == {R0, R1}
    assert known.loops(total) == {R1}
    assert known.independent(total, (R0,))
    assert not known.independent(total, (R0, R1))
    assert known.independent(UOp.index(3), (R0, R1))
