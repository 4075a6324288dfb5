"""The count of rules that fired while tests ran."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from rule_coverage import Coverage, brings_rules
from rules_from_text import rules_from

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.engine import Rewriter
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.journal import Journal
from proofgrad.core.rewrite.match import Matcher, RuleSet
from proofgrad.uop.ops import PatternMatcher, UPat, graph_rewrite

RULES = rules_from("ruleset t over index\nrule one: x * 1 => x\nrule zero: x + 0 => x\n")
BOUNDS = rules_from("ruleset b over index\nbounds neg: -x in [-hi(x), -lo(x)]\n")
ROOT = Path(__file__).parent.parent
LIBRARY = ("t.one", "t.zero", "b.neg")


@pytest.fixture
def coverage(monkeypatch: pytest.MonkeyPatch) -> Coverage:
    """One that counts until the test ends."""
    monkeypatch.setattr(Journal, "record", Journal.record)
    monkeypatch.setattr(Matcher, "interval", Matcher.interval)
    monkeypatch.setattr(Matcher, "divisor", Matcher.divisor)
    monkeypatch.setattr(Matcher, "holds", Matcher.holds)
    coverage = Coverage()
    coverage.start()
    return coverage


def fire_one(rules: RuleSet) -> None:
    Rewriter([rules], Facts(BOUNDS)).rewrite(UOp.range(3, 0) * 1)


def test_nothing_fired_yet(coverage: Coverage) -> None:
    assert coverage.report(LIBRARY, with_names=True) == [
        "0 of 3 rules fired with evidence",
        "0 rewrite applications, of them 0 proven (100 %), 0 without a proof",
        "3 never: b.neg, t.one, t.zero",
    ]


def test_rules_with_and_without_evidence_are_told_apart(coverage: Coverage) -> None:
    fire_one(RULES)
    assert coverage.report(LIBRARY, with_names=True)[1:] == [
        "1 rewrite applications, of them 0 proven (0 %), 1 without a proof: t.one",
        "1 only without: t.one",
        "2 never: b.neg, t.zero",
    ]
    fire_one(RuleSet("t", RULES.rules, proven=True))
    assert coverage.report(LIBRARY, with_names=True) == [
        "1 of 3 rules fired with evidence",
        "2 rewrite applications, of them 1 proven (50 %), 1 without a proof: t.one",
        "2 never: b.neg, t.zero",
    ]


def test_bounds_count_when_they_are_asked(coverage: Coverage) -> None:
    assert Facts(BOUNDS).interval(-UOp.range(3, 0)) == (-2, 0)
    assert coverage.used == {"b.neg": 1}


def test_lines_about_finite_values_count_when_they_are_asked(coverage: Coverage) -> None:
    lines = rules_from("ruleset finite over float\nfact neg: finite(-x) where finite(x)\n")
    bools = rules_from("ruleset finite over float\nfact of_bool: finite(cast(x: bool, T))\n")
    whole = UOp.range(3, 0).cast(dtypes.float32)
    mask = (UOp.range(3, 0) < 1).cast(dtypes.float32)
    assert not Facts(BOUNDS, lines).finite(-whole)
    assert not coverage.used
    assert Facts(BOUNDS, bools).finite(mask)
    assert coverage.used == {"finite.of_bool": 1}


def test_what_fires_meanwhile_does_not_count(coverage: Coverage) -> None:
    with coverage.paused():
        fire_one(RULES)
        Facts(BOUNDS).interval(-UOp.range(3, 0))
    assert not coverage.used and not coverage.without_evidence
    fire_one(RULES)
    assert coverage.without_evidence == {"t.one": 1}


def test_rules_that_need_not_fire_are_not_named(coverage: Coverage) -> None:
    lines = coverage.report(LIBRARY, with_names=True, expected={"t.one", "t.zero"})
    assert lines[2:] == ["1 never: b.neg", "2 never, as never_fired.txt says"]
    assert coverage.never_fired(LIBRARY) == ["b.neg", "t.one", "t.zero"]


def test_the_fraction_is_never_rounded_up(coverage: Coverage) -> None:
    journal = Journal()
    for _ in range(19_999):
        journal.record("t.one", proven=True)
    assert "19999 proven (100 %), 0 without a proof" in coverage.applications()
    journal.record("t.zero", proven=False)
    assert coverage.applications().endswith("19999 proven (99.99 %), 1 without a proof: t.zero")


def test_own_rules_and_own_functions_do_not_count_as_the_compilers(coverage: Coverage) -> None:
    with coverage.with_own_rules():
        fire_one(RULES)
        fire_one(RuleSet("t", RULES.rules, proven=True))
    journal = Journal()
    matcher = PatternMatcher([(UPat.var("x") * 1, lambda x: x)])
    graph_rewrite(UOp.range(3, 0) * 1, matcher, journal=journal)
    assert journal.unproven == 1
    assert coverage.applications().startswith("0 rewrite applications")


def test_a_module_that_takes_rules_from_text_is_told_from_others() -> None:
    assert brings_rules(sys.modules[__name__])
    assert not brings_rules(ModuleType("plain"))
    assert not brings_rules(None)


def test_the_option_judges_no_run_of_a_part() -> None:
    command = [sys.executable, "-m", "pytest", "--all-rules-fire", "tests/test_sizes.py", "-k once"]
    told = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert told.returncode == 0, told.stdout
    assert "rules never fired" not in told.stdout
