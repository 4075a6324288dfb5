"""Views: searches, their contracts, and the check that makes a wrong search harmless."""

from __future__ import annotations

import random
from typing import Any

import pytest
from rules_from_text import rules_from, unproven_library

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite import views
from proofgrad.core.rewrite.engine import Rewriter
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.linear import linear_form, to_term

I, J, K = UOp.range(4, 0), UOp.range(5, 1), UOp.range(6, 2)
SPLIT = (
    "ruleset t over index\nrule split: x // c => q + r // c where c > 0 let (q, r) = split(x, c)"
)


def facts() -> Facts:
    return Facts(unproven_library()["bounds"])


def agrees(view: str, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> bool:
    contract = views.CONTRACTS[view]
    names = [name for name, _ in (*contract.inputs, *contract.outputs)]
    return views.holds(contract, dict(zip(names, (*inputs, *outputs), strict=True)))


def test_a_linear_form_collects_like_terms() -> None:
    form = linear_form(I * 3 - J + 4 - (I * 2 - 1) + UOp.index(2) * J)
    assert form is not None
    assert (form.terms, form.constant) == ({I: 1, J: 1}, 5)


def test_a_term_too_large_to_look_at_has_no_linear_form() -> None:
    term = I
    for k in range(1_000):
        term = term + UOp.range(9, k + 10)
    assert linear_form(term) is None


def test_sums_are_written_in_one_order() -> None:
    for a, b in ((I * 2 + J, J + I * 2), (I + 3 + J, J + I + 3)):
        forms = linear_form(a), linear_form(b)
        assert forms[0] is not None
        assert forms[1] is not None
        assert to_term(forms[0], facts()) is to_term(forms[1], facts())


def test_split_takes_whole_multiples() -> None:
    assert views.split(I * 12 + J * 5 + 7, 6, facts()) == (I * 2 + 1, J * 5 + 1)
    assert views.split(I + J, 6, facts()) is None


def test_residue_reduces_every_coefficient() -> None:
    assert views.residue(I * 13 - J, 6, facts()) == (-J + I * 2, I + J * 5)


def test_gcd_split_leaves_a_rest_below_the_factor() -> None:
    assert views.gcd_split(I * 8 + J * 6 + (K % 2), 4, facts()) == (2, I * 4 + J * 3, K % 2, 2)
    assert views.gcd_split(I * 8 + K, 4, facts()) is None


def test_common_factor_of_all_terms() -> None:
    assert views.common(I * 8 + J * 12 + 4, facts()) == (4, I * 2 + J * 3 + 1)
    assert views.common(I * 8 + 3, facts()) is None


def test_recombine_finds_quotient_and_remainder_of_one_value() -> None:
    found = views.recombine((I % 3) * 2 + J + ((I + J * 3) // 3) * 6, facts())
    assert found == (J, 2, I, I + J * 3, 3, J)


@pytest.mark.parametrize("seed", range(3))
def test_every_search_keeps_its_contract(seed: int) -> None:
    rng = random.Random(seed)
    known = facts()
    for _ in range(200):
        atoms = [I, J, K, I // 3, I % 3, (I + J) % 4, (J + I) // 4]
        x = UOp.index(rng.randint(-9, 9))
        for atom in rng.sample(atoms, 4):
            x = x + atom * rng.randint(-12, 12)
        c = rng.choice([1, 2, 3, 4, 6, 12])
        for name in ("split", "residue", "gcd_split"):
            found = views.SEARCHES[name](x, c, known)
            assert found is None or agrees(name, (x, c), found)
        for name in ("common", "tidy", "recombine"):
            found = views.SEARCHES[name](x, known)
            assert found is None or agrees(name, (x,), found)


@pytest.mark.parametrize(
    "wrong", [(I, J), (I * 3 + 1, J), (I * 3, J + 1), (I * 3, J * 2), (J, I * 12)]
)
def test_a_wrong_answer_breaks_the_contract(wrong: tuple[UOp, UOp]) -> None:
    assert agrees("split", (I * 12 + J, 4), (I * 3, J))
    assert not agrees("split", (I * 12 + J, 4), wrong)


def test_a_wrong_search_keeps_its_rule_from_firing(monkeypatch: pytest.MonkeyPatch) -> None:
    term = (J + I * 12) // 4
    assert Rewriter([rules_from(SPLIT)], facts()).rewrite(term) is I * 3 + J // 4
    for wrong in ((I, J), (I * 3, J + 1), (I * 12, UOp.index(0)), None):
        monkeypatch.setitem(views.SEARCHES, "split", lambda x, c, known, answer=wrong: answer)
        assert Rewriter([rules_from(SPLIT)], facts()).rewrite(term) is term


def test_views_are_not_used_on_machine_integers() -> None:
    memory = UOp(Ops.PARAM, dtypes.int8, (), (0, 1))
    x = UOp(Ops.LOAD, dtypes.int8, (UOp(Ops.INDEX, dtypes.int8, (memory, UOp.index(0))),))
    term = (x * 12 + 8) // 4
    rules = rules_from(SPLIT.replace("over index", "over int"))
    assert Rewriter([rules], facts()).rewrite(term) is term
