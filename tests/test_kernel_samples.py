"""Claims about memory at values drawn: wrong ones fall, and none that the solver proves does."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import z3
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp
from proofgrad.verify.kernels import questions
from proofgrad.verify.kernels.match import Matcher
from proofgrad.verify.kernels.questions import Questions, Verdict
from proofgrad.verify.kernels.samples import Samples
from proofgrad.verify.kernels.terms import Terms, loop_name, loops_of

LOOP, OTHER = UOp.range(6, 0), UOp.range(4, 1)


def load(index: UOp, dtype=dtypes.uint32, slot: int = 1, *mask: UOp) -> UOp:
    memory = UOp(Ops.PARAM, dtype, (), (slot, 64))
    return UOp(Ops.LOAD, dtype, (UOp(Ops.INDEX, dtype, (memory, index, *mask)),))


def fails(claim: UOp, *conditions: UOp) -> bool:
    loops = loops_of((claim, *conditions))
    return Samples(Terms()).failing(claim, conditions, loops) is not None


def equal(one: UOp, other: UOp) -> UOp:
    return UOp(Ops.CMPEQ, dtypes.bool, (one, other))


def test_another_element_of_memory_differs_in_a_sample() -> None:
    assert fails(equal(load(LOOP), load(LOOP + 1)))
    assert fails(equal(load(LOOP), load(LOOP, slot=2)))
    assert not fails(equal(load(LOOP + 1), load(LOOP + 1)))


def test_sum_that_wraps_is_the_same_in_any_order() -> None:
    a, b, c = load(LOOP), load(OTHER), LOOP.cast(dtypes.uint32)
    assert not fails(equal((a + b) + c, a + (c + b)))
    assert fails(equal((a + b) + c, (a + a) + c))


def test_element_that_a_mask_turns_off_is_zero() -> None:
    off = load(LOOP, dtypes.float32, 1, LOOP < 0)
    chosen = off < UOp.const(dtypes.float32, 0.0)
    assert not fails(equal(chosen, UOp.const(dtypes.float32, 0.0) < UOp.const(dtypes.float32, 0.0)))
    assert fails(equal(chosen, load(LOOP, dtypes.float32) < UOp.const(dtypes.float32, 0.0)))


def test_conditions_over_memory_rule_samples_out() -> None:
    position = load(OTHER, dtypes.int32)
    inside = ~(position < 0) & (position < 4)
    assert fails(position < 4)
    assert not fails(position < 4, inside)
    assert fails(equal(position, OTHER.cast(dtypes.int32)), inside)


@st.composite
def terms(draw: st.DrawFn) -> UOp:
    """Sums, products, remainders and choices of loops and elements of memory, of 32 bits."""
    found = [load(LOOP), load(OTHER, slot=2), LOOP.cast(dtypes.uint32), UOp.const(dtypes.uint32, 7)]
    for _ in range(draw(st.integers(1, 5))):
        one, other = draw(st.sampled_from(found)), draw(st.sampled_from(found))
        op = draw(st.sampled_from([Ops.ADD, Ops.MUL, Ops.FLOORDIV, Ops.MOD, Ops.MAX, Ops.WHERE]))
        made = (one < other).where(other, one) if op is Ops.WHERE else one.alu(op, other)
        found.append(made)
    return found[-1]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(terms(), terms(), st.booleans())
def test_what_falls_in_a_sample_has_a_counterexample_for_the_solver(
    one: UOp, other: UOp, same: bool
) -> None:
    claim = equal(one + other, other + one) if same else equal(one, other)
    questions = Questions(most_steps=200_000)
    known, solver = questions.terms, z3.SimpleSolver()
    solver.set(rlimit=200_000)
    solver.add(*known.constraints((claim,)), z3.Not(known.term(claim)))
    said = str(solver.check())
    if fails(claim):
        assert said != "unsat"
        assert questions.seems(claim).verdict is Verdict.REFUTED
    if same:
        assert not fails(claim)


# -- the solver's answers -------------------------------------------------------------------------


def _numbers(*sizes: int) -> list[UOp]:
    """Loops of machine integers, too long to try every value."""
    return [
        UOp(Ops.RANGE, dtypes.int32, (UOp.const(dtypes.int32, size),), (k, AxisRole.LOOP))
        for k, size in enumerate(sizes)
    ]


@pytest.mark.parametrize("mask", [1, 7, 6, 8, 0b101, 0b1011000])
def test_bits_that_a_constant_masks_are_known_to_the_solver(mask: int) -> None:
    (a,) = _numbers(1 << 30)
    parts = [(a >> k & 1) * (1 << k) for k in range(8) if mask >> k & 1]
    claim = (a & mask).eq(sum(parts[1:], parts[0]))
    assert Questions().holds(claim).verdict is Verdict.PROVED
    assert Questions().holds((a & mask).eq(a)).verdict is Verdict.REFUTED


def test_a_point_at_which_a_claim_holds_does_not_refute_it() -> None:
    """The solver knows nothing of the bits that two numbers have in common, and so may say that they are more than one has."""
    a, b = _numbers(1 << 30, 1 << 30)
    assert Questions().holds((a & b) < a + 1).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("sizes", [(), (5,), (3, 4, 5), (2, 3, 2, 7)])
@pytest.mark.parametrize("at_once", [1, 2, 7, 20, 1000])
def test_all_values_are_tried_once_in_order_however_many_at_once(
    sizes: tuple[int, ...], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "_CHUNK", at_once)
    tried = list[tuple[int, ...]]()
    loops = [UOp.range(size, k) for k, size in enumerate(sizes)]
    names = [loop_name(loop) for loop in loops]
    for grid in questions.every_grid(loops):
        some = [column.ravel() for column in np.broadcast_arrays(*[grid[name] for name in names])]
        assert all([len(column) <= at_once for column in some])
        tried += zip(*some) if some else [()]
    assert tried == list(itertools.product(*map(range, sizes)))


def test_the_first_values_that_refute_are_told() -> None:
    loops = [UOp.range(size, k) for k, size in enumerate((3, 4, 5))]
    i, j, k = loops
    decision = Questions()._enumerate((i * 20 + j * 5 + k) < 27, (), loops)
    assert list(decision.point.values()) == [1, 1, 2]


@pytest.mark.parametrize("dtype", [dtypes.uint64, dtypes.int64, dtypes.uint32], ids=str)
def test_what_wraps_to_more_than_numpy_counts_is_no_sample(dtype: DType) -> None:
    """18446744073709551610 is the uint64 of -6, and no int64."""
    loop = UOp.range(8, 0)
    negative = loop.cast(dtype).alu(Ops.NEG)
    assert Terms().is_computable(negative) is (dtype is not dtypes.uint64)
    claim = negative.eq(negative)
    assert Samples(Terms()).failing(claim, (), [loop]) is None
    assert Questions().holds(claim).verdict is Verdict.PROVED


def test_operands_that_are_turned_round_at_every_level_are_not_compared_in_both_orders() -> None:
    """A sorting network took time that grew with the square of its comparisons, nearly all for wrong pairs."""

    def network(first: int, count: int, is_turned: bool) -> UOp:
        if count == 1:
            return load(LOOP + first, dtypes.int)
        halves = [network(first + k, count // 2, is_turned) for k in (0, count // 2)]
        op = Ops.MAX if count % 4 else Ops.MIN
        return UOp(op, dtypes.int, tuple(halves[::-1] if is_turned else halves))

    asked = Questions()
    whole, turned = network(0, 32, False), network(0, 32, True)
    matcher = Matcher(asked)
    assert matcher.value(whole, turned) is None
    assert len(matcher._known) <= 64  # a pair for each part
    assert matcher.value(whole, network(1, 32, True)) is not None
