"""Extractors: searches, their contracts, and the check that makes a wrong search harmless."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from rules_from_text import rules_from, unproven_facts, unproven_library

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite import extractors, searches
from proofgrad.core.rewrite.engine import Rewriter
from proofgrad.core.rewrite.extractor_check import check_of
from proofgrad.core.rewrite.extractors import TERM
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.sum_order import load_of
from proofgrad.core.rewrite.sums import Atom, Sum
from proofgrad.verify.dsl.promises import PROMISES

R0, R1, R2 = UOp.range(4, 0), UOp.range(5, 1), UOp.range(6, 2)
SPLIT = (
    "ruleset t over index\nrule split: x // c => q + r // c where c > 0 let (q, r) = split(x, c)"
)


def facts() -> Facts:
    return unproven_facts()


def found(extractor: str, *given: Any, known: Facts | None = None) -> tuple[Any, ...] | None:
    """What a search finds; terms are given and come back as terms."""
    known = facts() if known is None else known
    inputs = [known.forms.read(value) if isinstance(value, UOp) else value for value in given]
    outputs = searches.SEARCHES[extractor](*inputs, known.forms)
    if outputs is None:
        return None
    sorts = [sort for _, sort in extractors.CONTRACTS[extractor].outputs]
    assert len(sorts) == len(outputs)
    return tuple([known.forms.written(v) if sort == TERM else v for v, sort in zip(outputs, sorts)])


def ordered(term: UOp) -> UOp:
    """A sum with its operands in the order in which sums are written."""
    forms = (_known := facts()).forms
    form = forms.read(term)
    assert form is not None
    return forms.written(form)


def agrees(extractor: str, inputs: tuple[Any, ...], outputs: tuple[Any, ...]) -> bool:
    """Whether the contract of an extractor holds between terms and numbers."""
    forms = (_known := facts()).forms
    values = [forms.read(v) if isinstance(v, UOp) else v for v in (*inputs, *outputs)]
    return check_of(extractor)(forms, *values)


def test_split_takes_whole_multiples() -> None:
    assert found("split", R0 * 12 + R1 * 5 + 7, 6) == (R0 * 2 + 1, R1 * 5 + 1)
    assert found("split", R0 + R1, 6) is None


def test_residue_reduces_every_coefficient() -> None:
    assert found("residue", R0 * 13 - R1, 6) == (-R1 + R0 * 2, R0 + R1 * 5)


def test_gcd_split_leaves_a_rest_below_the_factor() -> None:
    x = R0 * 8 + R1 * 6 + (R2 % 2)
    assert found("gcd_split", x, 4) == (2, ordered(R0 * 4 + R1 * 3), R2 % 2, 2)
    assert found("gcd_split", R0 * 8 + R2, 4) is None
    beyond = R0 * 8 + R2 % 2 + 7  # 7 or 8 beside multiples of 8: in two periods
    assert found("gcd_split", beyond, 16) is None
    assert found("gcd_split", beyond - 1, 16) == (8, R0, R2 % 2 + 6, 2)
    assert found("gcd_split", beyond + 9, 16) == (8, R0 + 2, R2 % 2, 2)
    assert found("gcd_split", R0 * 8 + (R2 + 3), 16) is None
    assert found("gcd_split", R0 * 8 - R2 + 5, 16) == (8, R0, -R2 + 5, 2)
    assert found("gcd_split", R0 * 8 - R2 - 3, 16) == (8, R0 + -1, -R2 + 5, 2)


EIGHTS = (R0 < R1).where(R0 * 8, R1 * 16)


def test_multiples_are_what_facts_say_of_atoms() -> None:
    x = EIGHTS * 3 + R1 * 4 + 5
    assert found("multiples", x, 12) == (EIGHTS * 3, R1 * 4 + 5)
    assert found("multiples", x, 16) is None
    assert found("multiples", R0 * 12 + R1, 4) is None, "split and residue see that"


def test_gcd_multiples_leave_a_rest_below_the_factor() -> None:
    assert found("gcd_multiples", EIGHTS + R1 + 2, 48) == (8, EIGHTS, R1 + 2, 6)
    assert found("gcd_multiples", EIGHTS + R1 + 11, 48) == (8, EIGHTS + 8, R1 + 3, 6)
    assert found("gcd_multiples", EIGHTS + R1 * 2, 48) is None, "8 is within the rest"
    assert found("gcd_multiples", EIGHTS, 48) is None, "nothing is left to take out"


MULTIPLES = """ruleset t over index
rule mod: x % c => r % c where divides(c, divisor(q)) let (q, r) = multiples(x, c)"""


@pytest.mark.parametrize("sums", [False, True], ids=["as terms", "as sums"])
def test_a_search_that_takes_what_facts_do_not_know_keeps_its_rule_from_firing(
    sums: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    algebra = [unproven_library()["algebra"]] if sums else []
    sets, term = [rules_from(MULTIPLES), *algebra], (R2 + EIGHTS) % 8
    assert Rewriter(sets, facts()).rewrite(term) is R2 % 8

    def answer(x: Any, c: int, forms: Any) -> Any:
        return tuple([forms.read(part) for part in (R2, EIGHTS)])

    monkeypatch.setitem(searches.SEARCHES, "multiples", answer)
    assert Rewriter(sets, facts()).rewrite(term) is term


@pytest.mark.parametrize(
    ("term", "simplified"),
    [
        (EIGHTS % 8, UOp.index(0)),
        ((EIGHTS + R1) // 8, EIGHTS // 8),
        ((EIGHTS * 3 + R2 + 26) // 24, EIGHTS // 8 + 1),
        ((EIGHTS + R1 + 11) % 16, (EIGHTS + 8) % 16 + R1 + 3),
        ((EIGHTS.maximum(R2 * 12) + R0) % 4, R0),
        (EIGHTS // 8 * 24, EIGHTS * 3),
        ((EIGHTS + R1) // 8 * 8 + (EIGHTS + R1) % 8, EIGHTS + R1),
        ((EIGHTS + R1) // 8 % 4 * 8 + (EIGHTS + R1) % 8, EIGHTS % 32 + R1),
        ((R0 * R1 * 6 + (R0 * 8).cast(dtypes.int32).cast(dtypes.index)) % 2, UOp.index(0)),
    ],
)
def test_divisions_of_what_facts_know_multiples_of(term: UOp, simplified: UOp) -> None:
    sets = [unproven_library()[name] for name in ("algebra", "divmod", "ranges")]
    rewriter = Rewriter(sets, facts())
    assert rewriter.rewrite(term) is rewriter.rewrite(simplified)


def test_common_factor_of_all_terms() -> None:
    assert found("common", R0 * 8 + R1 * 12 + 4) == (4, R0 * 2 + R1 * 3 + 1)
    assert found("common", R0 * 8 + 3) is None


ZERO = UOp.index(0)
NONE = (0, ZERO, 1, 0)  # no remainder counted as its dividend


def test_residue_looks_for_one_period_first() -> None:
    a, b = UOp.range(2, 0), UOp.range(2, 1)
    assert found("residue", a * 5 + b * 3 + 1, 4) == (a + b, a + -b + 1)
    assert found("residue", R0 * 5 + 8, 4) == (R0 + 2, R0)


def test_recombine_finds_quotient_and_remainder_of_one_value() -> None:
    x = (R0 % 3) * 2 + R1 + ((R0 + R1 * 3) // 3) * 6
    expected = (R1, 2, R0, 3, R0, 1, ZERO, R0 + R1 * 3, R1, *NONE, R0 + R1 * 3)
    assert found("recombine", x) == expected


def test_recombine_sees_through_quotients_and_remainders() -> None:
    known = facts()
    for x, t in (
        (R0 // 2 % 3 + R0 // 6 * 3, R0 // 2),
        ((R1 * 8 + R0) % 32 + (R1 % 4 * 8 + R0) // 32 * 32, R1 % 4 * 8 + R0),
    ):
        outputs = found("recombine", x, known=known)
        assert outputs is not None
        assert known.forms.read(outputs[-1]) is known.forms.read(t)
        assert agrees("recombine", (x,), outputs)


def test_recombine_modulo_joins_digits() -> None:
    for x, t in (
        (R2 % 2 + R2 // 2 % 3 * 2, R2 % 6),
        (R2 % 2 * 5 + (R2 // 2 + 1) % 3 * 10, (R2 + 2) % 6),
        (R2 // 3 % 2 + R2 // 6 % 3 * 2, R2 // 3 % 6),
    ):
        outputs = found("recombine_modulo", x)
        assert outputs is not None
        assert outputs[-1] is t
        assert agrees("recombine_modulo", (x,), outputs)


def occurrences(form: Sum) -> Counter[Atom]:
    """How often each atom that is no quotient or remainder stands in a sum, in divisions too."""
    inside = [Counter({a: 1}) if a.kind is None else occurrences(a.form) for a in form[0]]
    return sum(inside, Counter())


def random_sum(rng: random.Random) -> UOp:
    """A sum of quotients, remainders and loops, in which some belong together."""
    atoms = [R0, R1, R2, R0 // 3, R0 % 3, (R0 + R1) % 4, (R1 + R0) // 4, EIGHTS]
    x = UOp.index(rng.randint(-9, 9))
    for atom in rng.sample(atoms, 4):
        x = x + atom * rng.randint(-12, 12)
    if rng.random() < 0.5:
        x = x + rng.choice([R2 % 2 + (R2 // 2) * 2, R1 % 2 * 3 + R1 // 2 % 3 * 6, R2 // 2])
    return x


@pytest.mark.parametrize("seed", range(3))
def test_every_search_keeps_its_contract(seed: int) -> None:
    rng = random.Random(seed)
    known = facts()
    answers = 0
    for _ in range(200):
        x = random_sum(rng)
        c = rng.choice([1, 2, 3, 4, 6, 12])
        for name in searches.SEARCHES:
            contract = extractors.CONTRACTS[name]
            if contract.inputs[0][1] != TERM:
                continue  # about numbers alone: tests/test_fast_division.py
            given = (x, c) if len(contract.inputs) == 2 else (x,)
            outputs = found(name, *given, known=known)
            answers += outputs is not None
            assert outputs is None or agrees(name, given, outputs)
    assert answers > 200


@pytest.mark.parametrize(
    "wrong", [(R0, R1), (R0 * 3 + 1, R1), (R0 * 3, R1 + 1), (R0 * 3, R1 * 2), (R1, R0 * 12)]
)
def test_a_wrong_answer_breaks_the_contract(wrong: tuple[UOp, UOp]) -> None:
    assert agrees("split", (R0 * 12 + R1, 4), (R0 * 3, R1))
    assert not agrees("split", (R0 * 12 + R1, 4), wrong)


@pytest.mark.parametrize("sums", [False, True], ids=["as terms", "as sums"])
def test_a_wrong_search_keeps_its_rule_from_firing(
    sums: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    term = (R1 + R0 * 12) // 4
    algebra = [unproven_library()["algebra"]] if sums else []
    sets = [rules_from(SPLIT), *algebra]
    assert Rewriter(sets, facts()).rewrite(term) is R0 * 3 + R1 // 4
    for wrong in ((R0, R1), (R0 * 3, R1 + 1), (R0 * 12, UOp.index(0)), None):

        def answer(x: Any, c: int, forms: Any, wrong: Any = wrong) -> Any:
            return wrong and tuple([forms.read(part) for part in wrong])

        monkeypatch.setitem(searches.SEARCHES, "split", answer)
        assert Rewriter(sets, facts()).rewrite(term) is term


def test_extractors_are_not_used_on_machine_integers() -> None:
    memory = UOp(Ops.PARAM, dtypes.int8, (), (0, 1))
    x = UOp(Ops.LOAD, dtypes.int8, (UOp(Ops.INDEX, dtypes.int8, (memory, UOp.index(0))),))
    term = (x * 12 + 8) // 4
    rules = rules_from(SPLIT.replace("over index", "over int"))
    assert Rewriter([rules], facts()).rewrite(term) is term


@pytest.mark.parametrize("seed", range(3))
def test_every_search_keeps_what_the_order_of_rules_takes_from_it(seed: int) -> None:
    source = random.Random(seed)
    tried: set[str] = set()
    for _ in range(300):
        known = facts()
        x, c = random_sum(source), source.choice([2, 3, 4, 6, 8, 12])
        form = known.forms.read(x)
        for extractor, promises in PROMISES.items():
            names = [name for name, _ in extractors.CONTRACTS[extractor].outputs]
            inputs = [sort for _, sort in extractors.CONTRACTS[extractor].inputs]
            if extractor not in searches.SEARCHES or inputs[0] != TERM:
                continue  # about masks (test_narrowing.py), or numbers alone
            results = searches.SEARCHES[extractor](*[form, c][: len(inputs)], known.forms)
            if results is None:
                continue
            tried.add(extractor)
            parts = dict(zip(names, results))
            for promise in promises:
                weights = [load_of(parts[n]) * times for n, times in promise.times.items()]
                assert sum(weights) + promise.less <= load_of(form), (extractor, x)
                found = sum([occurrences(parts[n]) for n in promise.times], Counter())
                assert found <= occurrences(form), (extractor, x)
    assert tried == set(searches.SEARCHES) - {"reciprocal"}
