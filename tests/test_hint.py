"""What a refuted rule lacks: found, proved, and said in the language of rules."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import active_children

import pytest

from proofgrad.core.rewrite.rule import Rule
from proofgrad.verify.agreement.compare import Agreement
from proofgrad.verify.dsl.parser import parse_rules
from proofgrad.verify.explain import hint as hint_module
from proofgrad.verify.explain.hint import find_repair
from proofgrad.verify.explain.hint import hint as hint_in_time
from proofgrad.verify.prove.rules import Result, prove_rules

FOUND = "would be right with: "
SECONDS = 600.0  # however slow the machine is; a few are enough


def hint(result: Result) -> str:
    return hint_in_time(result, SECONDS)


def verdict(line: str, domain: str) -> Result:
    rules = parse_rules(f"ruleset wrong over {domain}\n{line}", check_order=False).rules
    (result,) = prove_rules(rules, processes=1)
    return result


@pytest.mark.parametrize(
    ("line", "domain", "lacking"),
    [
        ("rule a: x * c // c => x", "index", "where c != 0"),
        ("rule a: x // c // d => x // {c * d}", "index", "where d >= 0"),
        ("rule a: x * k // c => x * {k // c}", "index", "where divides(c, k)"),
        ("rule a: x + -x => 0.0", "float32", "where finite(x)"),
        ("rule a: max(min(x, y), y) => y", "float32", "where not_nan(x)"),
        ("rule a: max(x, y) => x", "index", "where y <= x"),
        ("rule a: x % c => x", "index", "where 0 <= x, x < c"),
        ("rule a: x + 1 == 0 => false", "uint64", "where x < largest(T)"),
        ("rule a: x + 1 == 0 => false", "int", "where 0 <= x, x < largest(T)"),
    ],
)
def test_the_weakest_missing_condition_is_found_and_proves_the_rule(
    line: str, domain: str, lacking: str
) -> None:
    assert hint(verdict(line, domain)) == FOUND + lacking
    assert verdict(f"{line} {lacking}", domain).verdict == "proved"


@pytest.mark.parametrize(
    ("line", "domain", "other"),
    [
        ("rule a: x * 0.5 * 2.0 => x", "float32", "over real, for FASTMATH=real"),
        ("rule a: x + 0.0 => x", "float16", "over nsz, for FASTMATH=nsz"),
        ("rule a: x + y < x + z => y < z", "uint8", "over index"),
        ("rule a: x + y < x + z => y < z", "signed", "over index"),
        ("rule a: x + y < x + z => y < z", "index, int", "over index"),
    ],
)
def test_another_domain_is_a_hint_for_rules_over_types_of_one(
    line: str, domain: str, other: str
) -> None:
    assert hint(verdict(line, domain)) == FOUND + other
    assert verdict(line, other.removeprefix("over ").split(",")[0]).verdict == "proved"


def test_conditions_that_are_there_stay() -> None:
    result = verdict("rule a: x % c % d => x % d where c > 0, d > 0", "index")
    assert hint(result) == FOUND + "where divides(d, c)"


def test_a_constant_that_has_to_fit_is_a_hint() -> None:
    line = "rule a: x // c // d => x // {wrap: c * d}"
    assert hint(verdict(line, "uint8")) == FOUND + "{c * d} in place of {wrap: c * d}"
    assert verdict(line.replace("wrap: ", ""), "uint8").verdict == "proved"


@pytest.mark.parametrize(
    ("line", "domain", "is_refused", "other"),
    [
        (
            "rule a: x * c // c => x",
            "index",
            lambda rule: len(rule.where) == 1,
            "where c != 0, 0 <= x",
        ),
        (
            "rule a: truncdiv(x, c) => x // c",
            "int",
            lambda rule: rule.domains == ("unsigned",),
            "where c >= 0, 0 <= x",
        ),
    ],
)
def test_what_the_engine_does_otherwise_is_no_hint(
    line: str,
    domain: str,
    is_refused: Callable[[Rule], bool],
    other: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def differs(rule: Rule) -> Agreement:
        return Agreement(1, 1, 1, "a difference" if is_refused(rule) else "")

    failed = verdict(line, domain).refutation
    assert failed is not None and failed.decision.outcome is not None
    monkeypatch.setattr(hint_module, "agreement", differs)
    found = find_repair(failed.case, failed.decision.outcome)
    assert found is not None and found.text == other


@pytest.mark.parametrize(
    ("line", "domain", "other"),
    [
        ("rule a: truncdiv(x, c) => x // c", "int", "unsigned"),
        ("rule a: x + 0.0 => x", "float", "nsz, for FASTMATH=nsz"),
        ("rule a: x * 0.0 => 0.0", "float", "real, for FASTMATH=real"),
    ],
)
def test_another_domain_is_a_hint(line: str, domain: str, other: str) -> None:
    assert hint(verdict(line, domain)) == f"{FOUND}over {other}"


def test_conditions_that_leave_one_value_are_no_hint() -> None:
    """Where x <= c and c <= x, as was hinted at, a rule about c + y would do."""
    result = verdict("rule a: (x + y) % c => x % c + y % c where c > 0", "index")
    assert hint(result).startswith("with none of the conditions")


def test_no_condition_makes_it_right() -> None:
    assert hint(verdict("rule a: x * 0.0 => 1.0", "float32")).startswith(
        "with none of the conditions"
    )


def test_the_search_gives_up_when_time_is_up_and_leaves_no_process() -> None:
    result = verdict("rule a: x % c => x", "index")
    before = active_children()
    assert "the search gave up" in hint_in_time(result, seconds=0.0)
    assert active_children() == before


def test_a_proved_rule_has_no_hint() -> None:
    assert hint(verdict("rule a: x + 0 => x", "index")) == ""
