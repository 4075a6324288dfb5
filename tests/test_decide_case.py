"""One case of a rule: counterexamples that count, limits in steps, texts, need of conditions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from proofgrad.core.rewrite.rule import Rule, RuleKind, rule_from_json
from proofgrad.rules.library import ledger_file, library_names
from proofgrad.verify.audit.obligations import case_of
from proofgrad.verify.commands.crosscheck import library_entries
from proofgrad.verify.commands.prove import solver_versions
from proofgrad.verify.dsl.parser import parse_rules
from proofgrad.verify.encode.facts import containment
from proofgrad.verify.encode.fresh_terms import fresh_terms
from proofgrad.verify.encode.goal import Bits, Goal, equality
from proofgrad.verify.encode.opaque import without_products
from proofgrad.verify.encode.semantics import NoMeaning
from proofgrad.verify.encode.types import Case, cases
from proofgrad.verify.prove.case import Attempt, _try, decide, digest_of, texts_of
from proofgrad.verify.prove.ledger import entry_of, old_entries
from proofgrad.verify.prove.needed import NEEDED, UNDECIDED, UNNEEDED, is_needed
from proofgrad.verify.prove.portfolio import attempts
from proofgrad.verify.prove.portfolio_fits import may_divide, may_hide, may_split
from proofgrad.verify.prove.portfolio_splits import split_values
from proofgrad.verify.prove.rules import prove_rules
from proofgrad.verify.prove.solve import OPEN, PROVED, REFUTED, ask, ask_each, forget_answers
from proofgrad.verify.sample.rules import refute_by_sampling

PRODUCT = """(declare-fun x () Int)(declare-fun y () Int)(declare-fun z () Int)
(assert (and (> x 2) (> y 2) (> z 2) (= (+ (* x x x) (* y y y)) (* z z z))))"""


def rule(text: str, domain: str = "uint8") -> Rule:
    return parse_rules(f"ruleset t over {domain}\nrule r: {text}\n", check_order=False).rules[0]


def case_and_attempt(text: str, method: str) -> tuple[Case, Attempt]:
    case = next(cases(rule(text)))
    return case, next(a for a in attempts(case) if a.method == method)


# -- counterexamples of the solver ------------------------------------------------------------------


def test_values_of_a_split_goal_are_numbers() -> None:
    case, attempt = case_and_attempt(
        "(x // c) >> d => x >> {log2_exact(c) + d + 1} where is_power_of_two(c), d >= 0",
        "bits by cases",
    )
    found = _try(case, attempt)
    assert found.verdict == REFUTED
    assert found.outcome is not None and found.outcome.differs
    assert {type(value) for value in found.outcome.values.values()} == {int}


def test_bounds_of_the_solver_are_tried() -> None:
    case, attempt = case_and_attempt("x % 4 => 0 where lo(x) + 200 < hi(x)", "integers")
    found = _try(case, attempt)
    assert found.verdict == REFUTED
    assert found.outcome is not None
    low, high = found.outcome.bounds["x"]
    assert low + 200 < high


# -- limits -----------------------------------------------------------------------------------------


def test_a_limit_in_steps_ends_a_search_at_the_same_step_each_time() -> None:
    first, second = ask(PRODUCT, 20_000), ask(PRODUCT + "\n", 20_000)
    assert first.verdict == second.verdict == OPEN
    assert first.steps == second.steps > 0


def test_what_is_found_before_the_limit_does_not_depend_on_it() -> None:
    text = "(declare-fun x () Int)(assert (> x (+ x 1)))"
    assert ask(text, 10_000) == ask(text, 20_000)
    assert ask(text, 10_000).verdict == PROVED


@pytest.mark.parametrize(
    "text, method",
    [
        ("(x // c) >> d => x >> {log2_exact(c) + d} where is_power_of_two(c), d >= 0", "bits"),
        ("x % c => x where 0 <= x, x < c", "integers"),
    ],
)
def test_steps_do_not_depend_on_what_was_asked_before(text: str, method: str) -> None:
    case, attempt = case_and_attempt(text, method)
    first = _try(case, attempt)
    forget_answers()
    ask(PRODUCT, 20_000)
    kept = case_and_attempt("x * y => y * x", "bits, opaque")  # noqa: F841
    second = _try(case, attempt)
    assert (first.verdict, first.steps, first.goals) == (PROVED, second.steps, second.goals)
    assert first.steps > 0


def test_each_text_has_the_whole_limit_to_itself() -> None:
    """A context counts all steps that are taken in it."""
    with fresh_terms():
        first = ask_each((PRODUCT,), 20_000)
        again = ask_each((PRODUCT + "\n",), 20_000)
        proved = ask_each(("(assert false)", PRODUCT), 20_000)
    assert first.verdict == again.verdict == proved.verdict == OPEN
    assert again.steps > first.steps / 2
    assert (first.position, proved.position) == (0, 1)


# -- texts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ruleset", ["bounds", "divmod"])
def test_texts_do_not_depend_on_what_was_made_before(ruleset: str) -> None:
    entries = library_entries([ruleset])
    for name, entry in reversed(entries):
        law = rule_from_json(entry["rule"])
        for obligation in entry["obligations"][-2:]:
            case = case_of(law, obligation)
            method = obligation["method"].removeprefix("z3: ")
            attempt = next(a for a in attempts(case) if a.method == method)
            assert digest_of(texts_of(case, attempt)) == obligation["goals"], name


def test_cases_with_the_same_goals_are_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    law = rule("x % c => x where 0 <= x, x < c", "index")
    (result,) = prove_rules([law], processes=1)
    entry = entry_of(result, "other meanings", solver_versions())
    monkeypatch.setattr("proofgrad.verify.prove.rules.decide", lambda *_: pytest.fail("asked"))
    (again,) = prove_rules([law], processes=1, before={law.full_name: entry})
    assert again.verdict == "proved"
    assert entry_of(again, "other meanings", solver_versions()) == entry


def test_cases_with_other_goals_are_asked_again() -> None:
    law = rule("x % c => x where 0 <= x, x < c", "index")
    (result,) = prove_rules([law], processes=1)
    entry = entry_of(result, "other meanings", solver_versions())
    wrong = rule("x % c => 0 where 0 <= x, x < c", "index")
    (again,) = prove_rules([wrong], processes=1, before={wrong.full_name: entry})
    assert again.verdict == "refuted"


def test_entries_of_other_solvers_or_with_a_broken_seal_are_not_taken_over(tmp_path: Path) -> None:
    file = ledger_file("ranges")
    rules = [rule_from_json(entry["rule"]) for _, entry in library_entries(["ranges"])]
    by_whom = json.loads(file.read_bytes())["solvers"]  # not by the version that is installed here
    assert len(old_entries(file, rules, by_whom)) == len(rules)
    assert old_entries(file, rules, {"z3": "0"}) == {}
    edited = json.loads(file.read_bytes())
    edited["rules"][0]["obligations"][0]["method"] = "by hand"
    (tmp_path / "ranges.json").write_text(json.dumps(edited))
    assert old_entries(tmp_path / "ranges.json", rules, by_whom) == {}


# -- which ways are tried ---------------------------------------------------------------------------


def test_a_way_without_a_goal_is_not_tried_again_with_more_steps() -> None:
    tried: list[str] = []

    def plan(case: Case) -> list[Goal]:
        tried.append("asked")
        raise NoMeaning("no goal")

    ways = [Attempt("none", plan, steps, exact=True) for steps in (10, 20)]
    assert decide(next(cases(rule("x + 0 => x"))), ways).reason == "none: no goal"
    assert tried == ["asked"]


def test_values_that_few_draws_miss_are_found_when_no_way_proves() -> None:
    case = next(cases(rule("max(x, 200) => x", "uint8")))
    assert refute_by_sampling(case, 0) is None
    found = decide(case, [])
    assert (found.verdict, found.method) == (REFUTED, "sampling")


@pytest.mark.parametrize(
    "may, ways",
    [(may_split, {"bits by cases"}), (may_divide, {"lemmas"}), (may_hide, {"bits, opaque"})],
)
def test_a_way_with_nothing_to_do_is_never_the_one_that_proved(
    may: Callable[[Case], bool], ways: set[str]
) -> None:
    seen = set()
    for _, entry in library_entries(library_names()):
        law = rule_from_json(entry["rule"])
        for obligation in entry["obligations"][:2]:
            if obligation["method"].removeprefix("z3: ") in ways:
                assert may(case_of(law, obligation)), case_of(law, obligation)
                seen.add(law.full_name)
    assert seen


@pytest.mark.parametrize("number", range(0, 60, 3))
def test_what_may_not_be_split_or_hidden_is_not_there(number: int) -> None:
    entries = [e for _, e in library_entries(["bounds", "cast"]) if "z3: bits" in str(e)]
    law = rule_from_json(entries[number]["rule"])
    case = next(cases(law))
    with fresh_terms():
        goal = {RuleKind.REWRITE: equality, RuleKind.BOUNDS: containment}[law.kind](case, Bits())
        if not may_hide(case):
            with pytest.raises(NoMeaning, match="nothing to hide"):
                without_products(goal)
        if not may_split(case):
            with pytest.raises(NoMeaning, match="nothing to split"):
                split_values(case, goal)


# -- conditions -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, domain, verdict",
    [
        ("x % c => x where 0 <= x, x < c", "index", NEEDED),
        ("x % c => x where x < c, 0 <= x, c > 0", "index", UNNEEDED),
        ("x // c => x >> {log2_exact(c)} where is_power_of_two(c)", "int", NEEDED),
    ],
)
def test_the_last_condition(text: str, domain: str, verdict: str) -> None:
    law = rule(text, domain)
    assert is_needed(law, len(law.where) - 1).verdict == verdict


def test_a_rule_with_a_condition_that_it_does_not_need_is_refused() -> None:
    (result,) = prove_rules([rule("x + 0 => x where 0 <= x", "index")], processes=1)
    assert result.verdict == "unknown"
    assert result.reason == (
        "condition `0 <= lo(x)` is not needed for soundness: drop it or mark it `when`"
    )


def test_a_condition_of_which_nothing_is_found_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    law = rule("x % c % d => x % d where divides(d, c)", "index")
    monkeypatch.setattr("proofgrad.verify.prove.needed.DRAWS", 0)
    monkeypatch.setattr("proofgrad.verify.prove.needed.MORE_DRAWS", 0)
    monkeypatch.setattr("proofgrad.verify.prove.needed.attempts", lambda _: [])
    monkeypatch.setattr("proofgrad.verify.prove.case.DRAWS", 0)
    monkeypatch.setattr("proofgrad.verify.prove.case.FIRST_DRAWS", 0)
    assert is_needed(law, 0).verdict == UNDECIDED


def test_of_each_condition_in_the_library_it_is_known_that_it_is_needed() -> None:
    opened = [
        (name, condition["condition"])
        for name, entry in library_entries(library_names())
        for condition in entry["conditions"]
        if condition["verdict"] != NEEDED
    ]
    assert not opened


def test_relations_of_types_are_needed_for_the_types_they_exclude() -> None:
    text = (
        "ruleset t over cast\nrule r (A in int, B in int): cast(cast(x: A, B), A) => x where {}\n"
    )
    (law,) = parse_rules(text.format("lossless(A, B)")).rules
    assert is_needed(law, 0).verdict == NEEDED
    assert decide(next(cases(law)), attempts(next(cases(law)))).verdict == PROVED
