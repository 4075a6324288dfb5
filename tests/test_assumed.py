"""Inside of a selection its condition is true in the first branch, and false in the second."""

from __future__ import annotations

import pytest
from kernel_interpreter import element
from rules_from_text import unproven_library

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite import facts as facts_module
from proofgrad.core.rewrite.engine import Rewriter
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.instances import MOST_STEPS, assumed

INT, BOOL = dtypes.int32, dtypes.bool
TRUE, FALSE = UOp.const(BOOL, True), UOp.const(BOOL, False)


FACTS = Facts(unproven_library()["bounds"])


def loaded(slot: int, dtype: object = INT, *mask: UOp) -> UOp:
    memory = UOp(Ops.PARAM, dtype, (), (slot, 1))  # type: ignore[arg-type]
    return UOp(
        Ops.LOAD, memory.dtype, (UOp(Ops.INDEX, memory.dtype, (memory, UOp.index(0), *mask)),)
    )


X, Y, Z = [loaded(slot) for slot in range(1, 4)]
P, Q = [loaded(slot, BOOL) for slot in range(4, 6)]


def simplified(term: UOp) -> UOp:
    names = ("algebra", "compare", "where", "cast")
    return Rewriter(
        [unproven_library()[n] for n in names], Facts(unproven_library()["bounds"])
    ).rewrite(term)


CASES = {
    "first branch": (P.where(P.where(X, Y) * 3 + Y, Z), P.where(X * 3 + Y, Z)),
    "second branch": (P.where(X, P.where(Y, Z) * 3 + X), P.where(X, Z * 3 + X)),
    "negated": (P.where((~P).where(X, Y) * 3 + Y, Z), P.where(Y * 3 + Y, Z)),
    "part of a conjunction": ((P & Q).where(Q.where(X, Y) * 3, Z), (P & Q).where(X * 3, Z)),
    "part of a disjunction": ((P | Q).where(Z, Q.where(X, Y) * 3), (P | Q).where(Z, Y * 3)),
    "in a conjunction": (P & P.where(X, Y).eq(Z), P & X.eq(Z)),
    "in a disjunction": (P | P.where(X, Y).eq(Z), P | Y.eq(Z)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_condition_is_known_at_any_depth(name: str) -> None:
    term, expected = CASES[name]
    result = simplified(term)
    assert result is simplified(expected)
    for p in (False, True):
        for q in (False, True):
            memory = {1: [5], 2: [7], 3: [15], 4: [p], 5: [q]}
            assert element(result, {}, memory) == element(term, {}, memory)


def test_accesses_keep_their_masks() -> None:
    masked = loaded(1, INT, P)
    term = P.where(masked * 3 + Y, Y)
    assert masked in simplified(term).toposort()


def test_nothing_is_assumed_in_reductions_and_of_constants() -> None:
    loop = UOp.range(4, 0)
    total = UOp(Ops.REDUCE, INT, (P.where(X, Y), loop), Ops.ADD)
    assert assumed(total + 1, P, TRUE, FACTS) is total + 1
    assert assumed(TRUE.where(X, Y), TRUE, FALSE, FACTS) is TRUE.where(X, Y)


def test_nothing_is_assumed_in_a_term_that_is_too_large() -> None:
    small = P.where(X, Y)
    large = small
    for k in range(MOST_STEPS):
        large = large * Z + k
    assert assumed(small * Z, P, TRUE, FACTS) is TRUE.where(X, Y) * Z
    assert assumed(large, P, TRUE, FACTS) is large


@pytest.mark.parametrize("told_apart", [1024, 1])
def test_a_chain_of_choices_is_not_walked_for_each_of_them(
    monkeypatch: pytest.MonkeyPatch, told_apart: int
) -> None:
    monkeypatch.setattr(facts_module, "DIFFERENT_TRUTHS", told_apart)
    asked, facts = 0, Facts(unproven_library()["bounds"])
    truths = [X < k for k in range(40)]
    assert all([facts.may_hold(truth, truth) for truth in truths])
    chain = Y
    for truth in truths:
        assert assumed(chain, truth, TRUE, facts) is chain
        asked += facts.may_hold(chain, truth)
        chain = truth.where(chain * 3, chain + Z)
    assert asked == (0 if told_apart > 1 else len(truths) - 1)
    assert all(facts.may_hold(chain, truth) for truth in truths)
    assert assumed(truths[0].where(X, Y), truths[0], TRUE, facts) is TRUE.where(X, Y)
    assert not facts.may_hold(loaded(1, INT, P), P)  # an access keeps its mask


def test_a_costly_function_is_not_computed_once_for_each_branch() -> None:
    x = UOp(Ops.CAST, dtypes.float32, (X,))
    size = UOp(Ops.EXP2, dtypes.float32, (P.where(x, -x),))
    assert assumed(size + 1.0, P, TRUE, FACTS) is size + 1.0
    beside = P.where(x, -x) * size  # what is cheap beside it stays too: it is shared with it
    assert assumed(beside, P, TRUE, FACTS) is beside
