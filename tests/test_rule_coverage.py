"""The count of rules that fired while tests ran."""

from __future__ import annotations

import pytest
from rule_coverage import Coverage
from rules_from_text import rules_from

from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.engine import Rewriter
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.journal import Journal
from proofgrad.core.rewrite.match import Matcher, RuleSet

RULES = rules_from("ruleset t over index\nrule one: x * 1 => x\nrule zero: x + 0 => x\n")
BOUNDS = rules_from("ruleset b over index\nbounds neg: -x in [-hi(x), -lo(x)]\n")
LIBRARY = ("t.one", "t.zero", "b.neg")


@pytest.fixture
def coverage(monkeypatch: pytest.MonkeyPatch) -> Coverage:
    """One that counts until the test ends."""
    monkeypatch.setattr(Journal, "record", Journal.record)
    monkeypatch.setattr(Matcher, "interval", Matcher.interval)
    coverage = Coverage()
    coverage.start()
    return coverage


def fire_one(rules: RuleSet) -> None:
    Rewriter([rules], Facts(BOUNDS)).rewrite(UOp.range(3, 0) * 1)


def test_nothing_fired_yet(coverage: Coverage) -> None:
    assert coverage.report(LIBRARY, with_names=True) == [
        "0 of 3 rules fired with evidence",
        "3 never: b.neg, t.one, t.zero",
    ]


def test_rules_with_and_without_evidence_are_told_apart(coverage: Coverage) -> None:
    fire_one(RULES)
    assert coverage.report(LIBRARY, with_names=True)[1:] == [
        "1 only without: t.one",
        "2 never: b.neg, t.zero",
    ]
    fire_one(RuleSet("t", RULES.rules, proven=True))
    assert coverage.report(LIBRARY, with_names=True) == [
        "1 of 3 rules fired with evidence",
        "2 never: b.neg, t.zero",
    ]


def test_bounds_count_when_they_are_asked(coverage: Coverage) -> None:
    assert Facts(BOUNDS).interval(-UOp.range(3, 0)) == (-2, 0)
    assert coverage.used == {"b.neg": 1}


def test_what_fires_meanwhile_does_not_count(coverage: Coverage) -> None:
    with coverage.paused():
        fire_one(RULES)
        Facts(BOUNDS).interval(-UOp.range(3, 0))
    assert not coverage.used and not coverage.without_evidence
    fire_one(RULES)
    assert coverage.without_evidence == {"t.one": 1}
