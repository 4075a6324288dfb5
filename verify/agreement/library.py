"""The rules of the library as they stand in their files, for the facts that instances have.

Owns: that they are read once. Whether they are proven is asked elsewhere: of facts that are wrong the
instances of their own lines tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.engine import Rewriter
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.journal import Journal
from proofgrad.core.rewrite.match import RuleSet
from proofgrad.core.rewrite.rule import FACT_KINDS, Rule
from proofgrad.rules.library import RULES, rule_file
from proofgrad.rules.pipeline import FACTS, KERNEL_STAGES
from proofgrad.verify.dsl.parser import parse_rules


class Uncounted(Journal):
    """Counts nothing: to try a rule is no use of it."""

    def record(self, full_name: str, proven: bool) -> None:
        """Nothing."""


_RULES = RULES  # the library's own, whatever rules are asked about
_SIMPLIFY = "simplify index terms"


@cache
def rules_in(name: str) -> Sequence[Rule]:
    """The rules of a file of the library."""
    text = (_RULES / rule_file(name).name).read_text()
    return tuple(parse_rules(text, name, check_order=False).rules)


@cache
def _set(name: str) -> RuleSet:
    return RuleSet(name, rules_in(name))


def read_facts() -> None:
    """Read the lines of facts now, for processes that begin here to share them."""
    for name in FACTS:
        _set(name)


def facts_for(rule: Rule) -> Facts:
    """Facts by the lines of the library; a line that is asked about comes before all others."""
    sets = {name: _set(name) for name in FACTS}
    if rule.kind in FACT_KINDS:
        name = rule.kind.value
        sets[name] = RuleSet(name, (rule, *rules_in(name)))
    return Facts(*sets.values())


def narrowing_for(facts: Facts) -> Rewriter:
    """A rewriter by the rules that simplify kernels, by which `facts` narrows what masks read."""
    names = next(s.step.names for s in KERNEL_STAGES if s.name == _SIMPLIFY)  # type: ignore[union-attr]
    at_work = Rewriter([_set(name) for name in names], facts, Uncounted())
    at_work.rewrite(UOp.range(2, 0) + 1)
    facts.narrowing = at_work.narrowing
    return at_work
