"""How index terms change with one loop, and which loops they depend on."""

from __future__ import annotations

import gc
from weakref import ref

import pytest

from proofgrad.core.compile.nests.strides import MOST_STEPS, coefficient, loops_below
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp

I, J, K = UOp.range(4, 0), UOp.range(5, 1), UOp.range(6, 2)


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (I, 1),
        (J * 3 + 7, 0),
        (J * 3 - (I * 4 + 2) * 5, -20),
        (UOp.index(6) * (I + J) + -I, 5),
        (I - I, 0),
        (J // 2 + I, 1),
        (I // 2 + I, None),
        (I * J, None),
        (J * K + I * 2, 2),
    ],
)
def test_coefficient_is_how_a_sum_grows_with_a_loop(term: UOp, expected: int | None) -> None:
    assert coefficient(term, I) == expected


def test_a_sum_that_doubles_at_every_step_is_given_up() -> None:
    term = I
    for _ in range(MOST_STEPS.bit_length() + 40):
        term = term + term
    assert coefficient(term, I) is None


def loaded_at(index: UOp) -> UOp:
    memory = UOp(Ops.PARAM, dtypes.index, (), (0, 100))
    return UOp(Ops.LOAD, dtypes.index, (UOp(Ops.INDEX, dtypes.index, (memory, index)),))


@pytest.mark.parametrize("first", [False, True])
def test_what_is_kept_of_a_term_is_kept_for_each_question(first: bool) -> None:
    term = I * 3 + J * (8 + first) + loaded_at(I)
    expected = {False: None, True: 3}
    for beside_loads in (first, not first, first):
        assert coefficient(term, I, beside_loads) == expected[beside_loads]
        assert coefficient(term, J, beside_loads) == 8 + first


def test_a_term_that_was_asked_is_held_by_nobody() -> None:
    loop = UOp.range(123_457, 45)
    term = loop * 3 + J
    assert (coefficient(loop, loop), coefficient(term, loop), coefficient(term, J)) == (1, 3, 1)
    gc.collect()
    gc.disable()
    try:
        nodes = ref(loop), ref(term)
        del loop, term
        assert [node() for node in nodes] == [None, None]
    finally:
        gc.enable()


def test_a_reduction_hides_its_own_loops() -> None:
    total = UOp(Ops.REDUCE, dtypes.index, (I * J + K, J), Ops.ADD)
    found = loops_below(total + J)
    assert found[total] == {I, K}
    assert found[I * J] == {I, J}
    assert found[total + J] == {I, J, K}
