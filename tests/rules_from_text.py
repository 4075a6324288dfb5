"""Rule sets straight from the text of rule files, for tests of the engine. No evidence is asked for.

Owns: that short cut, which exists in tests only. Does not own: the gate (core/rewrite/ledger.py).
"""

from __future__ import annotations

from functools import cache

from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.match import RuleSet
from proofgrad.rules.library import library_names, rule_file
from proofgrad.rules.pipeline import FACTS
from proofgrad.verify.dsl.parser import parse_rules


def rules_from(text: str) -> RuleSet:
    """The rules of `text` as a set without evidence; they may even be endless."""
    parsed = parse_rules(text, check_order=False)
    return RuleSet(parsed.ruleset, parsed.rules)


@cache
def unproven_library() -> dict[str, RuleSet]:
    """Every set of the library as it stands in its file."""
    return {name: rules_from(rule_file(name).read_text()) for name in library_names()}


def unproven_facts() -> Facts:
    """Facts by all lines of the library as they stand in their files."""
    return Facts(*[unproven_library()[name] for name in FACTS])
