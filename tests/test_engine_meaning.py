"""Rewriting by the whole library keeps the value of random terms, and ends in normal forms."""

from __future__ import annotations

import pytest
from random_terms import TermMaker, same, value_of
from rules_from_text import unproven_facts, unproven_library

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.rewrite.engine import Rewriter
from proofgrad.core.rewrite.match import RuleSet

SIMPLIFY = ("algebra", "compare", "where", "cast", "divmod", "ranges", "reduce")
LEGALISE = ("legalise", "algebra", "compare", "where", "cast")
TERMS = 60
POINTS = 12

INDEX = (dtypes.index,) * 4
SIGNED = (dtypes.int8, dtypes.int8, dtypes.int8, dtypes.uint8)
UNSIGNED = (dtypes.uint8, dtypes.uint8, dtypes.int32, dtypes.bool)
WIDE = (dtypes.int64, dtypes.int64, dtypes.int16, dtypes.float32)
FLOATS = (dtypes.float32, dtypes.float32, dtypes.float16, dtypes.int8)
HALVES = (dtypes.bfloat16, dtypes.bfloat16, dtypes.float64, dtypes.bool)


def sets(names: tuple[str, ...]) -> list[RuleSet]:
    return [unproven_library()[name] for name in names]


@pytest.mark.parametrize("names", [SIMPLIFY, LEGALISE], ids=["simplify", "legalise"])
@pytest.mark.parametrize("leaves", [INDEX, SIGNED, UNSIGNED, WIDE, FLOATS, HALVES])
@pytest.mark.parametrize("seed", [1, 2])
def test_rewriting_keeps_the_value_and_the_bounds(
    names: tuple[str, ...], leaves: tuple[DType, ...], seed: int
) -> None:
    facts = unproven_facts()
    for k in range(TERMS):
        maker = TermMaker(1000 * seed + k, leaves)
        term = maker.term(maker.random.choice([leaves[0], dtypes.bool]), 1 + k % 6)
        result = Rewriter(sets(names), facts).rewrite(term)
        low, high = facts.interval(term)
        for _ in range(POINTS):
            given = maker.leaf_values()
            before, after = value_of(term, given), value_of(result, given)
            assert same(before, after), f"{before} became {after} at {given}\n{term}\n{result}"
            assert before != before or low is None or low <= before
            assert before != before or high is None or before <= high


@pytest.mark.parametrize("leaves", [INDEX, SIGNED, FLOATS])
def test_rewriting_a_result_changes_nothing(leaves: tuple[DType, ...]) -> None:
    facts = unproven_facts()
    for k in range(TERMS):
        maker = TermMaker(k, leaves)
        result = Rewriter(sets(SIMPLIFY), facts).rewrite(maker.term(leaves[0], 1 + k % 6))
        assert Rewriter(sets(SIMPLIFY), facts).rewrite(result) is result
