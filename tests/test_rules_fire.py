"""Every rule of the library fires on a graph it was written for."""

from __future__ import annotations

from random import Random

import pytest
from instances import Instance
from rules_from_text import unproven_facts, unproven_library

from proofgrad.core.ir.shapes import ShapeError
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.engine import Rewriter
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.match import RuleSet
from proofgrad.core.rewrite.rule import FACT_KINDS, Rule, RuleKind
from proofgrad.rules.library import WINOGRAD, library_names
from proofgrad.rules.pipeline import KERNEL_STAGES
from proofgrad.verify.dsl.parser import read_example

ATTEMPTS = 4_000
(SIMPLIFY,) = {s.step.names for s in KERNEL_STAGES if s.name == "simplify index terms"}


def fires(rule: Rule, node: UOp, facts: Facts) -> bool:
    """Whether `rule` alone applies to `node`; its result must have the type and shape of it."""
    for matcher in RuleSet("one", [rule]).candidates(node):
        if rule.kind in (RuleKind.BOUNDS, RuleKind.BITS):
            found_pair = matcher.interval(node, facts)
            return found_pair is not None and None not in found_pair
        if rule.kind is RuleKind.DIVISOR:
            return matcher.divisor(node, facts) is not None
        if rule.kind in FACT_KINDS:
            return matcher.holds(node, facts)
        if rule.kind is RuleKind.COTANGENT:
            found = matcher.cotangents(node, facts, node)
            pairs = [(f, s) for f, s in zip(found or (), node.src) if f is not None]
            assert all(f.shape == s.shape for f, s in pairs)
            return found is not None
        result = matcher.apply(node, facts)
        if result is not None and result is not node:
            assert (result.dtype, result.shape) == (node.dtype, node.shape)
            return True
    return False


# Nothing matches Winograd's law: conv2d reads its matrices (tests/test_winograd.py).
MATCHED = [name for name in library_names() if name != WINOGRAD]


@pytest.mark.parametrize("name", MATCHED)
def test_every_rule_fires_on_an_instance_of_its_left_side(name: str) -> None:
    facts = unproven_facts()
    at_work = Rewriter([unproven_library()[used] for used in SIMPLIFY], facts)
    at_work.rewrite(UOp.range(2, 0) + 1)
    facts.narrowing = at_work.narrowing
    silent = [r.full_name for r in unproven_library()[name].rules if not _fires_once(r, facts)]
    assert silent == []


def _fires_once(rule: Rule, facts: Facts) -> bool:
    """In its own example, or in one of many graphs made from its left side at random."""
    random = Random(rule.full_name)
    graphs = [read_example(text)[0] for text in rule.examples]
    if any(fires(rule, node, facts) for graph in graphs for node in graph.toposort()):
        return True
    for _ in range(ATTEMPTS):
        instance = Instance(rule, random)
        try:
            node = instance.build(rule.left)
        except (OverflowError, ShapeError):
            continue
        if fires(rule, node, facts):
            return True
    return False
