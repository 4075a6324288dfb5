"""The node type and patterns for direct use: proofgrad.uop."""

from __future__ import annotations

import pytest

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.rewrite.engine import RewriteError
from proofgrad.core.rewrite.journal import Journal
from proofgrad.uop import Ops, UOp
from proofgrad.uop.ops import PatternMatcher, UPat, graph_rewrite

A = UOp(Ops.CONST, dtypes.int, arg=2)
B = UOp(Ops.CONST, dtypes.int, arg=2)

WRITTEN_OUT = PatternMatcher(
    [
        (
            UPat(Ops.ADD, src=(UPat(Ops.CONST, name="c1"), UPat(Ops.CONST, name="c2"))),
            lambda c1, c2: UOp(Ops.CONST, dtype=c1.dtype, arg=c1.arg + c2.arg),
        )
    ]
)
SHORT = PatternMatcher(
    [(UPat.cvar("c1") + UPat.cvar("c2"), lambda c1, c2: c1.const_like(c1.arg + c2.arg))]
)


def test_equal_parts_are_the_same_object() -> None:
    assert A is B


def test_both_ways_of_writing_a_pattern_fold_to_the_same_object() -> None:
    folded = graph_rewrite(A + B, WRITTEN_OUT)
    assert repr(folded) == "UOp(Ops.CONST, dtypes.int, arg=4, src=())"
    assert folded is graph_rewrite(A + B, SHORT)


def test_every_application_counts_as_unproven() -> None:
    journal = Journal()
    graph_rewrite((A + B) + (A + B), SHORT, journal=journal)
    assert journal.unproven == 2


def test_operators_of_commutative_operations_match_in_any_order() -> None:
    x = UOp.range(4, 0)
    drop_zero = PatternMatcher([(UPat.var("x") + 0, lambda x: x)])
    assert graph_rewrite(UOp.index(0) + x, drop_zero) is x
    assert graph_rewrite(x + 0, drop_zero) is x


def test_a_name_given_twice_is_one_node() -> None:
    x, y = UOp.range(4, 0), UOp.range(4, 1)
    same = PatternMatcher([(UPat.var("x").alu(Ops.MAX, UPat.var("x")), lambda x: x)])
    assert graph_rewrite(x.maximum(x), same) is x
    assert graph_rewrite(x.maximum(y), same) is x.maximum(y)


def test_the_context_is_passed_to_functions_that_ask_for_it() -> None:
    seen: list[UOp] = []

    def collect(ctx: list[UOp], c: UOp) -> None:
        ctx.append(c)

    graph_rewrite(A + UOp.const(dtypes.int, 3), PatternMatcher([(UPat.cvar("c"), collect)]), seen)
    assert [node.arg for node in seen] == [2, 3]


def test_patterns_without_end_are_an_error() -> None:
    turn = PatternMatcher(
        [(UPat(Ops.ADD, src=(UPat.var("x"), UPat.var("y"))), lambda x, y: y.alu(Ops.ADD, x))]
    )
    with pytest.raises(RewriteError, match="does not end"):
        graph_rewrite(UOp.range(4, 0) + UOp.range(4, 1), turn)
