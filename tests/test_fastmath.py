"""FASTMATH: loose laws of floats, each proved in its own class, and used only where asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

import proofgrad
from proofgrad import Device, Tensor
from proofgrad.core import settings
from proofgrad.core.rewrite.rule import LOOSE_CLASSES
from proofgrad.core.tensor.runtime.realize import compiler
from proofgrad.rules.library import (
    LOOSE,
    WINOGRAD,
    asked_for_by,
    library_names,
    load_library,
    load_loose,
    rule_file,
)
from proofgrad.verify.dsl.parser import parse_rules
from proofgrad.verify.explain.steps_of_terms import explain_term
from proofgrad.verify.prove.rules import Result, prove_rules


def verdict(line: str, domain: str) -> Result:
    rules = parse_rules(f"ruleset loose over {domain}\nrule a: {line}", check_order=False).rules
    (result,) = prove_rules(rules, processes=1)
    return result


def ask_for(monkeypatch: pytest.MonkeyPatch, classes: str) -> None:
    monkeypatch.setenv("FASTMATH", classes)


# -- what each class claims ----------------------------------------------------------------------


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("line", "proved_in"),
    [
        ("x + -0.0 => x", {"float32", "nsz", "finite", "real"}),
        ("x + 0.0 => x", {"nsz", "real"}),
        ("x + -x => 0.0", {"finite", "real"}),
        ("x == x => true", {"finite", "real"}),
        ("x * 0.0 => 0.0", {"real"}),
        ("(y + x) + -x => y", {"real"}),
        ("x * c1 + x * c2 => x * {wrap: c1 + c2}", {"real"}),
        ("x + 1.0 => x", set()),
        ("x * y => x + y", set()),
        ("sqrt(x * x) => x", set()),
    ],
)
def test_a_law_is_proved_in_its_classes_and_refuted_in_the_others(
    line: str, proved_in: set[str]
) -> None:
    found = {domain: verdict(line, domain).verdict for domain in ("float32", *LOOSE_CLASSES)}
    assert {domain for domain, v in found.items() if v == "proved"} == proved_in
    assert {v for domain, v in found.items() if domain not in proved_in} <= {"refuted"}


def test_a_law_of_reals_brings_no_division_by_zero_and_no_root_of_what_may_be_negative() -> None:
    assert verdict("x * y / y => x", "real").verdict == "proved"
    assert verdict("x * y => x * y / y * y", "real").verdict == "refuted"
    assert verdict("x / y / z => x / (y * z)", "real").verdict == "proved"
    assert verdict("x * c => x / {wrap: 1.0 / c}", "real").verdict == "refuted"
    assert verdict("x * c => x / {wrap: 1.0 / c} where c != 0.0", "real").verdict == "proved"
    assert verdict("sqrt(x) * sqrt(y) => sqrt(x * y)", "real").verdict == "proved"
    assert verdict("max(x, 0.0) + x * 0.0 => max(x, sqrt(x) * 0.0)", "real").verdict == "refuted"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("exp2(x) * exp2(y) => exp2(x + y)", True),
        ("exp2(x) / exp2(y) => exp2(x + -y)", True),
        ("1.0 / exp2(x) => exp2(-x)", True),
        ("exp(x) * exp(y) => exp(x + y)", True),
        ("exp(x) / exp(y) => exp(x + -y)", True),
        ("1.0 / exp(x) => exp(-x)", True),
        ("exp2(log2(x)) => x", True),
        ("log2(exp2(x)) => x", True),
        ("exp2(x) * exp2(y) => exp2(x * y)", False),
        ("exp(x) * exp2(y) => exp(x + y)", False),
        ("exp(log2(x)) => x", False),
        ("log2(exp(x)) => x", False),
        ("exp2(x) + exp2(y) => exp2(x + y)", False),
        ("exp2(-x) => -exp2(x)", False),
        ("log2(x) + log2(y) => log2(x + y)", False),
        ("exp2(x) => exp2(log2(x))", False),
    ],
)
def test_powers_of_reals_are_what_they_are(line: str, expected: bool) -> None:
    assert (verdict(line, "real").verdict == "proved") == expected


def test_a_counterexample_is_one_of_its_class() -> None:
    outcome = verdict("where(x < y, y, x) => max(x, y)", "finite").refutation
    assert outcome is not None and outcome.decision.outcome is not None
    assert {str(v) for v in outcome.decision.outcome.values.values()} == {"0.0", "-0.0"}


# -- where they are used -------------------------------------------------------------------------


def test_the_sets_are_those_of_the_classes() -> None:
    assert settings.FASTMATH_CLASSES == LOOSE_CLASSES
    loose = [name for name in library_names() if name.startswith(LOOSE)]
    assert loose == sorted([f"{LOOSE}{name}" for name in LOOSE_CLASSES] + [WINOGRAD])
    for name in LOOSE_CLASSES:
        rules = load_loose(name)
        assert rules.proven and {rule.domains for rule in rules.rules} == {(name,)}


def test_no_loose_law_is_in_the_library_that_is_loaded() -> None:
    loaded = load_library()
    assert not [name for name in loaded if name.startswith(LOOSE)]
    domains = {d for rules in loaded.values() for rule in rules.rules for d in rule.domains}
    assert domains.isdisjoint(LOOSE_CLASSES)


def minus_zeros() -> Tensor:
    return Tensor([-0.0, 1.0]) + 0.0


def test_a_loose_law_changes_a_result_only_with_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    assert str(minus_zeros().tolist()) == "[0.0, 1.0]"
    ask_for(monkeypatch, "nsz")
    assert str(minus_zeros().tolist()) == "[-0.0, 1.0]"
    ask_for(monkeypatch, "finite")
    assert str(minus_zeros().tolist()) == "[0.0, 1.0]"
    monkeypatch.delenv("FASTMATH")
    assert str(minus_zeros().tolist()) == "[0.0, 1.0]"


@pytest.mark.parametrize(
    ("term", "classes", "rule"),
    [
        ("x * y + z", "real", "contract"),
        ("exp2(x) * exp2(y)", "real", "exp2_times_exp2"),
        ("x / 3.0", "real", "fdiv_constant"),
        ("x * (1.0 / y)", "real", "mul_reciprocal"),
        ("where(x < y, y, x)", "real", "is_max"),
        ("where(x == y, x, y)", "nsz", "equal_or_second"),
        ("(x < y) | (x == y)", "finite", "less_or_equal"),
    ],
)
def test_a_loose_law_is_named_by_explain(
    monkeypatch: pytest.MonkeyPatch, term: str, classes: str, rule: str
) -> None:
    assert "no rule fires" in explain_term(f"{term} over float32")
    ask_for(monkeypatch, classes)
    text = explain_term(f"{term} over float32")
    assert f"fastmath_{classes}.{rule}" in text
    assert "LOOSE, not exact to the bit" in text


def test_contraction_rounds_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the processor has an instruction for it; a product and a sum round twice."""

    def product_and_sum() -> float:
        x = Tensor([1.0 + 2.0**-12])
        return float((x * x + -(1.0 + 2.0**-11)).item())

    assert product_and_sum() == 0.0
    ask_for(monkeypatch, "real")
    assert product_and_sum() == (2.0**-24 if Device[Device.DEFAULT].target.has_fma else 0.0)


def test_loose_laws_are_counted_and_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert proofgrad.explain(minus_zeros()).splitlines()[0].endswith("0 unproven, 0 loose")
    ask_for(monkeypatch, "nsz,real")
    text = proofgrad.explain(minus_zeros())
    assert text.splitlines()[0].endswith(" 0 unproven, 1 loose")
    assert "  fastmath_nsz 1  LOOSE: add_zero 1" in text.splitlines()
    before = compiler().library.journal.by_set()["fastmath_nsz"]
    minus_zeros().realize()
    assert compiler().library.journal.by_set()["fastmath_nsz"] == before + 1


def test_explained_terms_mark_loose_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no rule fires" in explain_term("x + 0.0 over float32")
    ask_for(monkeypatch, "nsz")
    assert "LOOSE, not exact to the bit: proved over nsz (float32)" in explain_term(
        "x + 0.0 over float32"
    )


def test_a_class_that_is_none_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    ask_for(monkeypatch, "nsz, fast")
    with pytest.raises(ValueError, match=r"names fast; there are nsz, finite, real"):
        (Tensor([1.0]) + 2.0).realize()


@pytest.mark.parametrize(
    ("text", "classes"), [("", ()), ("0", ()), ("nsz", ("nsz",)), (" real ,nsz", ("nsz", "real"))]
)
def test_classes_are_read_in_one_order(
    monkeypatch: pytest.MonkeyPatch, text: str, classes: tuple[str, ...]
) -> None:
    ask_for(monkeypatch, text)
    assert settings.fastmath() == classes


def test_the_file_says_how_it_is_asked_for() -> None:
    for name in LOOSE_CLASSES:
        assert asked_for_by(f"{LOOSE}{name}") == f"FASTMATH={name}"
    for name in [name for name in library_names() if name.startswith(LOOSE)]:
        assert asked_for_by(name) in Path(rule_file(name)).read_text()
