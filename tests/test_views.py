"""Views: searches, their contracts, and the check that makes a wrong search harmless."""

from __future__ import annotations

import random
from typing import Any

import pytest
from rules_from_text import rules_from, unproven_library

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite import searches, views
from proofgrad.core.rewrite.engine import Rewriter
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.linear import linear_form, to_term
from proofgrad.core.rewrite.view_check import holds

R0, R1, R2 = UOp.range(4, 0), UOp.range(5, 1), UOp.range(6, 2)
SPLIT = (
    "ruleset t over index\nrule split: x // c => q + r // c where c > 0 let (q, r) = split(x, c)"
)


def facts() -> Facts:
    return Facts(unproven_library()["bounds"])


def agrees(view: str, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> bool:
    contract = views.CONTRACTS[view]
    names = [name for name, _ in (*contract.inputs, *contract.outputs)]
    return holds(contract, dict(zip(names, (*inputs, *outputs), strict=True)), facts())


def test_a_linear_form_collects_like_terms() -> None:
    form = linear_form(R0 * 3 - R1 + 4 - (R0 * 2 - 1) + UOp.index(2) * R1)
    assert form is not None
    assert (form.terms, form.constant) == ({R0: 1, R1: 1}, 5)


def test_a_term_too_large_to_look_at_has_no_linear_form() -> None:
    term = R0
    for k in range(1_000):
        term = term + UOp.range(9, k + 10)
    assert linear_form(term) is None


def test_sums_are_written_in_one_order() -> None:
    for a, b in ((R0 * 2 + R1, R1 + R0 * 2), (R0 + 3 + R1, R1 + R0 + 3)):
        forms = linear_form(a), linear_form(b)
        assert forms[0] is not None
        assert forms[1] is not None
        assert to_term(forms[0], facts()) is to_term(forms[1], facts())


def test_split_takes_whole_multiples() -> None:
    assert searches.split(R0 * 12 + R1 * 5 + 7, 6, facts()) == (R0 * 2 + 1, R1 * 5 + 1)
    assert searches.split(R0 + R1, 6, facts()) is None


def test_residue_reduces_every_coefficient() -> None:
    assert searches.residue(R0 * 13 - R1, 6, facts()) == (-R1 + R0 * 2, R0 + R1 * 5)


def test_gcd_split_leaves_a_rest_below_the_factor() -> None:
    assert searches.gcd_split(R0 * 8 + R1 * 6 + (R2 % 2), 4, facts()) == (
        2,
        R0 * 4 + R1 * 3,
        R2 % 2,
        2,
    )
    assert searches.gcd_split(R0 * 8 + R2, 4, facts()) is None


def test_common_factor_of_all_terms() -> None:
    assert searches.common(R0 * 8 + R1 * 12 + 4, facts()) == (4, R0 * 2 + R1 * 3 + 1)
    assert searches.common(R0 * 8 + 3, facts()) is None


NONE = (0, UOp.index(0), 1, 0)  # no remainder counted as its dividend
ZERO = UOp.index(0)


def test_residue_looks_for_one_period_first() -> None:
    a, b = UOp.range(2, 0), UOp.range(2, 1)
    assert searches.residue(a * 5 + b * 3 + 1, 4, facts()) == (a + b, a + -b + 1)
    assert searches.residue(R0 * 5 + 8, 4, facts()) == (R0 + 2, R0)


def test_recombine_finds_quotient_and_remainder_of_one_value() -> None:
    x = (R0 % 3) * 2 + R1 + ((R0 + R1 * 3) // 3) * 6
    expected = (R1, 2, R0, 3, R0, 1, ZERO, R0 + R1 * 3, R1, *NONE, R0 + R1 * 3)
    assert searches.recombine(x, facts()) == expected


def test_recombine_sees_through_quotients_and_remainders() -> None:
    known = facts()
    for x, t in (
        (R0 // 2 % 3 + R0 // 6 * 3, R0 // 2),
        ((R1 * 8 + R0) % 32 + (R1 % 4 * 8 + R0) // 32 * 32, R1 % 4 * 8 + R0),
    ):
        found = searches.recombine(x, known)
        assert found is not None
        assert known.form(found[-1]) == known.form(t)
        assert agrees("recombine", (x,), found)


def test_recombine_modulo_joins_digits() -> None:
    known = facts()
    for x, t in (
        (R2 % 2 + R2 // 2 % 3 * 2, R2 % 6),
        (R2 % 2 * 5 + (R2 // 2 + 1) % 3 * 10, (R2 + 2) % 6),
        (R2 // 3 % 2 + R2 // 6 % 3 * 2, R2 // 3 % 6),
    ):
        found = searches.recombine_modulo(x, known)
        assert found is not None
        assert found[-1] is t
        assert agrees("recombine_modulo", (x,), found)


@pytest.mark.parametrize("seed", range(3))
def test_every_search_keeps_its_contract(seed: int) -> None:
    rng = random.Random(seed)
    known = facts()
    for _ in range(200):
        atoms = [R0, R1, R2, R0 // 3, R0 % 3, (R0 + R1) % 4, (R1 + R0) // 4]
        x = UOp.index(rng.randint(-9, 9))
        for atom in rng.sample(atoms, 4):
            x = x + atom * rng.randint(-12, 12)
        c = rng.choice([1, 2, 3, 4, 6, 12])
        for name in ("split", "residue", "gcd_split"):
            found = searches.SEARCHES[name](x, c, known)
            assert found is None or agrees(name, (x, c), found)
        found = searches.remainder_in_sum(x, c, known)
        assert found is None or agrees("remainder_in_sum", (x, c), found)
        for name in ("common", "tidy", "recombine", "recombine_modulo", "quotient_in_sum"):
            found = searches.SEARCHES[name](x, known)
            assert found is None or agrees(name, (x,), found)


@pytest.mark.parametrize(
    "wrong", [(R0, R1), (R0 * 3 + 1, R1), (R0 * 3, R1 + 1), (R0 * 3, R1 * 2), (R1, R0 * 12)]
)
def test_a_wrong_answer_breaks_the_contract(wrong: tuple[UOp, UOp]) -> None:
    assert agrees("split", (R0 * 12 + R1, 4), (R0 * 3, R1))
    assert not agrees("split", (R0 * 12 + R1, 4), wrong)


def test_a_wrong_search_keeps_its_rule_from_firing(monkeypatch: pytest.MonkeyPatch) -> None:
    term = (R1 + R0 * 12) // 4
    assert Rewriter([rules_from(SPLIT)], facts()).rewrite(term) is R0 * 3 + R1 // 4
    for wrong in ((R0, R1), (R0 * 3, R1 + 1), (R0 * 12, UOp.index(0)), None):
        monkeypatch.setitem(searches.SEARCHES, "split", lambda x, c, known, answer=wrong: answer)
        assert Rewriter([rules_from(SPLIT)], facts()).rewrite(term) is term


def test_views_are_not_used_on_machine_integers() -> None:
    memory = UOp(Ops.PARAM, dtypes.int8, (), (0, 1))
    x = UOp(Ops.LOAD, dtypes.int8, (UOp(Ops.INDEX, dtypes.int8, (memory, UOp.index(0))),))
    term = (x * 12 + 8) // 4
    rules = rules_from(SPLIT.replace("over index", "over int"))
    assert Rewriter([rules], facts()).rewrite(term) is term
