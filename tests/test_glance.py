"""A glance is a condition that every match meets, and that most nodes which do not match fail."""

from __future__ import annotations

import pytest
from small_kernels import graphs

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.match import Matcher
from proofgrad.rules.library import load_library
from proofgrad.rules.pipeline import FACTS

INT, BOOL = dtypes.int64, dtypes.bool
MEMORY = UOp(Ops.PARAM, INT, (), (0, 100))
LIBRARY = load_library()


def _load(position: UOp, *mask: UOp) -> UOp:
    return UOp(Ops.LOAD, INT, (UOp(Ops.INDEX, INT, (MEMORY, position, *mask)),))


LOOP = UOp.range(9, 0)
X, Y, Z = [_load(UOp.range(9, k)) for k in range(3)]


def _facts() -> Facts:
    return Facts(*[LIBRARY[name] for name in FACTS])


def _matchers(name: str, node: UOp) -> list[Matcher]:
    """Those of a rule that the key of a node lets through."""
    found = LIBRARY[name.partition(".")[0]].candidates(node)
    return [matcher for matcher in found if matcher.rule.full_name == name]


def _passes(name: str, node: UOp) -> bool:
    return any([m.glance is None or m.glance(node) for m in _matchers(name, node)])


# A rule, what it matches, and what has the same key and fails the glance.
PAIRS = [
    ("algebra.add_same_in_sum", (Y + X) + X, (Y + X) + Z),
    ("algebra.add_same_in_sum", (X + Y) + X, (X + Y) + Z),
    ("algebra.add_same_in_sum", X + (Y + X), Z + (Y + X)),
    ("algebra.cancel_negated_in_sum", (Y + -X) + X, (Y + -X) + Z),
    ("algebra.add_scaled_in_sum", (Y + X * 3) + X, (Y + X * 3) + Z),
    ("algebra.constant_outwards", (X + 3) + Y, (X + Z) + Y),
    ("where.closed_gate", _load(LOOP, UOp.const(BOOL, False)), _load(LOOP)),
]


@pytest.mark.parametrize(("name", "like", "unlike"), PAIRS)
def test_a_glance_tells_what_a_rule_may_match(name: str, like: UOp, unlike: UOp) -> None:
    results = [matcher.apply(like, _facts()) for matcher in _matchers(name, like)]
    assert any([made is not None for made in results])
    assert _passes(name, like)
    assert _matchers(name, unlike)  # it would be tried
    assert not _passes(name, unlike)


def test_where_operands_may_be_exchanged_a_constant_is_found_on_either_side() -> None:
    exchanged = UOp(Ops.ADD, INT, (UOp.const(INT, 3), X)) + Y
    assert _passes("algebra.constant_outwards", exchanged)


def test_no_rule_matches_what_fails_its_glance() -> None:
    """All rules of the library, on every node of some small kernels and of what the rules make of it."""
    facts, failed = _facts(), 0
    nodes = dict.fromkeys([n for _, graph in graphs()[::23] for n in toposort((graph,))])
    for node in nodes:
        for ruleset in LIBRARY.values():
            for matcher in ruleset.candidates(node):
                if matcher.glance is not None and not matcher.glance(node):
                    failed += 1
                    assert matcher.bind(node, facts) is None, matcher.rule.full_name
    assert failed > 100
