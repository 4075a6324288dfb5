"""Rules whose left side has more orders than are matched: no pass of the engine uses them.

Owns: their sides at points, both built from the rule. Winograd's law is one: a program reads its
matrices (core/rewrite/bilinear.py). Does not own: rules that are matched (agree.py).
"""

from __future__ import annotations

from math import prod
from random import Random
from zlib import crc32

from proofgrad.core.ir.shapes import ShapeError
from proofgrad.core.rewrite.patterns import commutes, is_constant
from proofgrad.core.rewrite.rule import Node, Rule, Term
from proofgrad.verify.agreement.compare import Agreement, Differs, compare
from proofgrad.verify.agreement.instances import About, Instance
from proofgrad.verify.encode.types import cases

INSTANCES = 8


def count_orders(term: Term) -> int:
    """In how many orders of operands a left side is matched."""
    if not isinstance(term, Node):
        return 1
    inner = prod([count_orders(source) for source in term.src])
    is_ordered = not commutes(term) or term.src[0] == term.src[1] or is_constant(term.src[1])
    return inner if is_ordered else 2 * inner


def unmatched_agreement(rule: Rule) -> Agreement:
    """Compare both sides as they stand, with numbers for its variables."""
    about, instances, points, fired = About(rule), 0, 0, 0
    (right,) = rule.right
    assert right is not None
    for case in cases(rule):
        before = instances
        for k in range(INSTANCES):
            random = Random((crc32(rule.full_name.encode()) << 20) + k)
            made = Instance(case, about, random)
            try:
                sides = made.build(rule.left), made.build(right)
                count = compare(case, *sides, random, INSTANCES)
            except (OverflowError, ShapeError):
                continue
            except Differs as error:
                return Agreement(instances, points, fired, f"{case}:\n{error}")
            points += count
            instances += count > 0
        fired += instances > before
    return Agreement(instances, points, fired)
