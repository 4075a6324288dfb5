"""The rewrite engine: matching, order, ends, gradients (core/rewrite/{match,terms,engine}.py)."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rules_from_text import rules_from, unproven_facts, unproven_library

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp
from proofgrad.core.rewrite.engine import NotDifferentiable, RewriteError, Rewriter, cotangents
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.journal import Journal
from proofgrad.core.rewrite.match import RuleSet

R0, R1, R2 = UOp.range(4, 0), UOp.range(5, 1), UOp.range(6, 2)


def value(name: int, dtype: DType) -> UOp:
    """A value that nothing is known of."""
    memory = UOp(Ops.PARAM, dtype, (), (name, 1))
    return UOp(Ops.LOAD, dtype, (UOp(Ops.INDEX, dtype, (memory, UOp.index(0))),))


def facts() -> Facts:
    return unproven_facts()


def rewrite(root: UOp, *rules: str | RuleSet, journal: Journal | None = None) -> UOp:
    """`root` under rules given as text or as sets."""
    sets = [rules_from(r) if isinstance(r, str) else r for r in rules]
    return Rewriter(sets, facts(), journal).rewrite(root)


def constant(node: UOp) -> int | float | bool:
    assert node.op is Ops.CONST
    result: int | float | bool = node.arg
    return result


# -- left sides ---------------------------------------------------------------------------------


@pytest.mark.parametrize("term", [R0.maximum(R0), R0.maximum(R1)])
def test_a_repeated_variable_is_one_node(term: UOp) -> None:
    result = rewrite(term, "ruleset t over index rule same: max(x, x) => x")
    assert result is (R0 if term.src[1] is R0 else term)


def test_operands_match_in_both_orders_at_every_level() -> None:
    rules = "ruleset t over index rule t: (x // c * c) + x % c => x where c > 0"
    quotient, remainder = R0 // 3, R0 % 3
    for left in (quotient * 3, UOp.index(3) * quotient):
        assert rewrite(left + remainder, rules) is R0
        assert rewrite(remainder + left, rules) is R0


def test_a_literal_matches_its_own_type_and_sign_only() -> None:
    x = value(0, dtypes.float32)
    rules = "ruleset t over float rule minus_zero: x + -0.0 => x"
    assert rewrite(x + UOp.const(dtypes.float32, -0.0), rules) is x
    plus_zero = x + UOp.const(dtypes.float32, 0.0)
    assert rewrite(plus_zero, rules) is plus_zero


@pytest.mark.parametrize(
    ("dtype", "fires"), [(dtypes.int8, True), (dtypes.uint8, False), (dtypes.index, False)]
)
def test_a_rule_fires_only_at_types_of_its_domain(dtype: DType, fires: bool) -> None:
    x = R0 if dtype is dtypes.index else value(0, dtype)
    result = rewrite(-x, "ruleset t over signed rule t: -x => x * -1")
    assert (result.op is Ops.MUL) is fires


def test_type_variables_are_bound_by_the_first_term_and_tested_by_the_next() -> None:
    rules = (
        "ruleset t over cast\n"
        "rule back (A in any, B in any): cast(cast(x: A, B), A) => x where lossless(A, B)"
    )
    x = value(0, dtypes.int8)
    assert rewrite(x.cast(dtypes.int32).cast(dtypes.int8), rules) is x
    other = x.cast(dtypes.int32).cast(dtypes.uint8)
    assert rewrite(other, rules) is other
    lossy = value(1, dtypes.int32).cast(dtypes.int8).cast(dtypes.int32)
    assert rewrite(lossy, rules) is lossy


def test_earlier_rules_and_sets_come_first() -> None:
    one = "ruleset one over index rule a: x % c => 1  rule b: x % c => 2"
    two = "ruleset two over index rule c: x % c => 3"
    assert constant(rewrite(R0 % 3, one, two)) == 1
    assert constant(rewrite(R0 % 3, two, one)) == 3


# -- conditions and computed constants -------------------------------------------------------------


def test_a_condition_on_an_unknown_bound_does_not_hold() -> None:
    unbounded = UOp(Ops.LOAD, dtypes.index, (UOp(Ops.INDEX, dtypes.index, (R0,)),))
    for rule in ("x % y => x where x < y", "x % y => x where not (y <= x)"):
        term = R0 % unbounded
        assert rewrite(term, f"ruleset t over index rule t: {rule}") is term


def test_strategy_conditions_are_tested_too() -> None:
    rules = "ruleset t over index rule t: x * c => x when c == 3"
    assert rewrite(R0 * 3, rules) is R0
    assert rewrite(R0 * 2, rules) is not R0


def test_an_exact_constant_that_does_not_fit_keeps_the_rule_from_firing() -> None:
    rules = "ruleset t over int rule t: x // c // d => x // {c * d} where c > 0, d > 0"
    x = value(0, dtypes.int8)
    assert rewrite(x // 10 // 5, rules) is x // 50
    too_much = x // 100 // 5
    assert rewrite(too_much, rules) is too_much


@pytest.mark.parametrize(
    ("factor", "fires"), [(0.5, True), (1e-45, False), (1e38, False), (float("inf"), False)]
)
def test_an_exact_float_constant_must_be_one_of_its_type(factor: float, fires: bool) -> None:
    rules = "ruleset t over float rule t: x * c => x * {c * c * 3} when c != 3"
    x = value(0, dtypes.float32)
    term = x * UOp.const(dtypes.float32, factor)
    matcher = rules_from(rules).candidates(term)[0]
    result = matcher.apply(term, facts())
    assert (result is not None) is fires
    assert result is None or constant(result.src[1]) == 0.75


def test_conditions_on_floats_do_not_round() -> None:
    rules = "ruleset t over float rule t: x * c1 * c2 => x where c1 + c2 == c1"
    x, one = value(0, dtypes.float64), UOp.const(dtypes.float64, 1.0)
    tiny = UOp.const(dtypes.float64, 1e-30)
    term = x * one * tiny
    assert rewrite(term, rules) is term


def test_a_wrapped_constant_wraps_at_its_type() -> None:
    rules = "ruleset t over int rule t: c1 + c2 => {wrap: c1 + c2}"
    assert constant(rewrite(UOp.const(dtypes.uint8, 250) + 10, rules)) == 4
    assert constant(rewrite(UOp.const(dtypes.int8, 100) + 100, rules)) == -56


def test_a_wrapped_float_is_rounded_at_its_type() -> None:
    rules = "ruleset t over float rule t: c1 + c2 => {wrap: c1 + c2}"
    large = UOp.const(dtypes.float16, 2048.0)
    assert constant(rewrite(large + UOp.const(dtypes.float16, 1.0), rules)) == 2048.0


def test_a_wrapped_comparison_of_bools_is_a_bool() -> None:
    rules = "ruleset t over bool rule t: c1 < c2 => {wrap: c1 < c2}"
    false, true = UOp.const(dtypes.bool, False), UOp.const(dtypes.bool, True)
    assert rewrite(false < true, rules) is true


# -- lanes and positions ---------------------------------------------------------------------------


def test_a_scalar_rule_holds_lane_by_lane() -> None:
    vector = UOp(Ops.BROADCAST, dtypes.int32.vec(4), (value(0, dtypes.int32),))
    rules = "ruleset t over int rule one: x * 1 => x  rule same: x ^ x => 0"
    assert rewrite(vector * 1, rules) is vector
    assert rewrite(vector ^ vector, rules) is vector.const_like(0)
    lanes = UOp(Ops.CONST, dtypes.int32.vec(4), (), (1, 1, 1, 1))
    assert rewrite(vector.alu(Ops.MUL, lanes), rules) is vector


def test_lanes_that_differ_are_no_constant() -> None:
    vector = UOp(Ops.BROADCAST, dtypes.int32.vec(2), (value(0, dtypes.int32),))
    term = vector.alu(Ops.MUL, UOp(Ops.CONST, dtypes.int32.vec(2), (), (1, 2)))
    assert rewrite(term, "ruleset t over int rule t: x * 1 => x") is term


def test_a_scalar_rule_holds_position_by_position_of_a_tensor() -> None:
    numbers = UOp(Ops.IOTA, dtypes.int32, (), 6)
    one = UOp(Ops.RESHAPE, dtypes.int32, (UOp.const(dtypes.int32, 1),), (1,))
    ones = UOp(Ops.EXPAND, dtypes.int32, (one,), (6,))
    rules = "ruleset t over int rule one: x * 1 => x  rule same: x ^ x => 0"
    assert rewrite(numbers.alu(Ops.MUL, ones), rules) is numbers
    zeros = rewrite(numbers ^ numbers, rules)
    assert (zeros.op, zeros.shape, zeros.src[0].src[0].arg) == (Ops.EXPAND, (6,), 0)


# -- other forms --------------------------------------------------------------------------------


def test_args_are_bound_computed_and_tested() -> None:
    movement = unproven_library()["movement"]
    table = UOp(Ops.RESHAPE, dtypes.int32, (UOp(Ops.IOTA, dtypes.int32, (), 24),), (2, 3, 4))
    turned = UOp(Ops.PERMUTE, dtypes.int32, (table,), (2, 0, 1))
    assert rewrite(UOp(Ops.PERMUTE, dtypes.int32, (turned,), (1, 2, 0)), movement) is table
    again = rewrite(UOp(Ops.PERMUTE, dtypes.int32, (turned,), (2, 0, 1)), movement)
    assert (again.src[0], again.arg) == (table, (1, 2, 0))


def test_a_condition_leaves_a_sum_only_if_it_is_independent_of_its_loops() -> None:
    reduce = unproven_library()["reduce"]
    x, zero = (R0 + R2).cast(dtypes.int32), UOp.const(dtypes.int32, 0)
    inner = UOp(Ops.REDUCE, dtypes.int32, ((R0 < 2).where(x, zero), R0), Ops.ADD)
    assert rewrite(inner, reduce) is inner
    outer = UOp(Ops.REDUCE, dtypes.int32, ((R1 < 2).where(x, zero), R0, R2), Ops.ADD)
    moved = rewrite(outer, reduce)
    assert moved is (R1 < 2).where(UOp(Ops.REDUCE, dtypes.int32, (x, R0, R2), Ops.ADD), zero)


def test_a_loop_that_runs_once_leaves_its_reduction() -> None:
    once = UOp.range(1, 7, AxisRole.REDUCE)
    total = UOp(Ops.REDUCE, dtypes.int32, ((R0 + once).cast(dtypes.int32), once), Ops.ADD)
    library = unproven_library()
    sets = [library[name] for name in ("algebra", "ranges", "reduce")]
    assert rewrite(total, *sets) is R0.cast(dtypes.int32)


# -- order, memory, ends ---------------------------------------------------------------------------


def test_constants_stand_right_and_other_operands_in_one_order() -> None:
    nothing = RuleSet("nothing", ())
    assert rewrite(UOp.index(3) + R0, nothing) is R0 + 3
    assert rewrite(R1 + R0, nothing) is rewrite(R0 + R1, nothing)
    assert rewrite(R0 - R1, nothing) is rewrite(-R1 + R0, nothing)


ORDER_PROGRAM = """
import math
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.order import StableOrder
nodes = [UOp.range(4, n) for n in range(3)]
nodes += [n * k for n in nodes for k in (-2, -1, 3)] + [n.cast(dtypes.float32) for n in nodes]
nodes += [UOp.const(dtypes.float32, v) for v in (0.0, -0.0, math.nan, math.inf)]
nodes += [UOp(Ops.DEVICE, arg=name) for name in ("CPU", "CL")]
print([StableOrder().key(node) for node in nodes])
"""


def test_the_order_of_operands_is_the_same_in_every_process() -> None:
    printed = {
        subprocess.run(
            [sys.executable, "-c", "'moved'\n" * k + ORDER_PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": str(k)},
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for k in (1, 2)
    }
    assert len(printed) == 1


def test_different_nodes_have_different_keys() -> None:
    order = facts().order
    terms = [R0, R1, R0 * -1, R0 * -2, R1 * -1, R0 + 1, R0 % 3, R0 // 3, (R0 * -1) % 3]
    terms += [UOp.const(dtypes.float32, v) for v in (0.0, -0.0, 1.0)]
    assert len({order.key(term) for term in terms}) == len(terms)


def test_a_chain_of_100000_nodes_is_rewritten() -> None:
    node = value(0, dtypes.int32)
    for k in range(100_000):
        node = node + (k % 5)
    result = rewrite(
        node,
        "ruleset t over int\n"
        "rule zero: x + 0 => x\n"
        "rule constants: (x + c1) + c2 => x + {wrap: c1 + c2}",
    )
    assert (result.src[0], constant(result.src[1])) == (value(0, dtypes.int32), 200_000)


def test_results_are_normal_and_remembered() -> None:
    journal = Journal()
    rewriter = Rewriter([unproven_library()["algebra"]], facts(), journal)
    result = rewriter.rewrite((R0 + 1) * 2 + 3)
    applications = journal.total
    assert rewriter.rewrite(result) is result
    assert rewriter.rewrite((R0 + 1) * 2 + 3) is result
    assert journal.total == applications


def test_the_journal_counts_rules_sets_and_missing_evidence() -> None:
    journal = Journal()
    text = "ruleset t over index rule zero: x + 0 => x  rule one: x * 1 => x"
    parsed = rules_from(text)
    rewrite((R0 + 0) * 1, parsed, journal=journal)
    assert journal.applied == {"t.zero": 1, "t.one": 1}
    assert (journal.by_set(), journal.unproven) == ({"t": 2}, 2)
    proven = Journal()
    rewrite((R0 + 0) * 1, RuleSet("t", parsed.rules, proven=True), journal=proven)
    assert (proven.total, proven.unproven) == (2, 0)


@pytest.mark.parametrize(("first", "taken"), [(0, "t.zero"), (4, "t.one")])
def test_the_way_that_a_constant_condition_does_not_take_is_not_looked_at(
    first: int, taken: str
) -> None:
    """As what a part of a loop over joined memories does not read."""
    rules = """ruleset t over int32 rule below: x < 4 => true where hi(x) < 4
    rule not_below: x < 4 => false where 4 <= lo(x)
    rule yes: where(true, x, y) => x   rule no: where(false, x, y) => y
    rule zero: x + 0 => x   rule one: x * 1 => x"""
    journal = Journal()
    condition = UOp(Ops.CAST, dtypes.int32, (R0 + first if first else R0,)) < 4
    x, y = value(0, dtypes.int32), value(1, dtypes.int32)
    found = rewrite(condition.where(x + 0, y * 1), rules, journal=journal)
    assert found is (x if taken == "t.zero" else y)
    assert journal.applied.keys() & {"t.zero", "t.one"} == {taken}


def test_rules_that_undo_each_other_are_an_error_that_names_them() -> None:
    rules = (
        "ruleset t over index rule there: max(x, y) => min(x, y)  rule back: min(x, y) => max(x, y)"
    )
    with pytest.raises(RewriteError, match=r"does not end; the last rules were t\.there, t\.back"):
        rewrite(R0.maximum(R1), rules)


def test_a_rule_that_grows_without_end_is_an_error_that_names_it() -> None:
    with pytest.raises(RewriteError, match=r"does not end; the last rules were t\.grow"):
        rewrite(R0 % 3, "ruleset t over index rule grow: x % c => (x + 1) % c")


# -- gradients ----------------------------------------------------------------------------------


def gradients(node: UOp, g: UOp) -> tuple[UOp | None, ...]:
    return cotangents(unproven_library()["cotangent"], node, g)


def tensor(number: int, *shape: int) -> UOp:
    unique, device = UOp(Ops.UNIQUE, arg=number), UOp(Ops.DEVICE, arg="CPU")
    size = 1
    for axis in shape:
        size *= axis
    memory = UOp(Ops.BUFFER, dtypes.float32, (unique, device), size)
    return UOp(Ops.RESHAPE, dtypes.float32, (memory,), shape)


def test_cotangents_of_a_product_and_a_sum() -> None:
    x, y, g = tensor(0, 2, 3), tensor(1, 2, 3), tensor(2, 2, 3)
    assert gradients(x + y, g) == (g, g)
    assert gradients(x * y, g) == (g * y, g * x)


def test_constants_of_cotangents_have_the_shape_of_their_node() -> None:
    x, g = tensor(0, 2, 3), tensor(2, 2, 3)
    (found,) = gradients(x.alu(Ops.SIN), g)
    assert found is not None
    assert found.shape == (2, 3)
    _, chosen, other = gradients((x < g).where(x, g), g)
    assert (chosen is not None and chosen.shape, other is not None and other.shape) == (
        (2, 3),
        (2, 3),
    )


def test_cotangents_of_movement_and_reductions_have_the_shape_of_their_source() -> None:
    x = tensor(0, 2, 1, 3)
    nodes = [
        UOp(Ops.RESHAPE, x.dtype, (x,), (3, 2)),
        UOp(Ops.PERMUTE, x.dtype, (x,), (2, 0, 1)),
        UOp(Ops.EXPAND, x.dtype, (x,), (2, 5, 3)),
        UOp(Ops.PAD, x.dtype, (x,), ((1, 0), (0, 2), (1, 1))),
        UOp(Ops.SHRINK, x.dtype, (x,), ((0, 1), (0, 1), (1, 3))),
        UOp(Ops.FLIP, x.dtype, (x,), (True, False, True)),
        UOp(Ops.REDUCE_AXIS, x.dtype, (x,), (Ops.ADD, (0, 2))),
        UOp(Ops.REDUCE_AXIS, x.dtype, (x,), (Ops.MAX, (2,))),
    ]
    for node in nodes:
        (found,) = gradients(node, tensor(5, *node.shape))
        assert found is not None
        assert found.shape == x.shape


def test_no_gradient_passes_where_none_can() -> None:
    x = tensor(0, 2)
    assert gradients(x < x, x) == (None, None)
    assert gradients(UOp(Ops.DETACH, x.dtype, (x,)), x) == (None,)


def test_an_operation_without_cotangent_is_an_error_that_names_it() -> None:
    with pytest.raises(NotDifferentiable, match="no gradient through add of dtypes.float"):
        cotangents(RuleSet("none", ()), tensor(0, 2) + tensor(1, 2), tensor(2, 2))


def test_an_observer_sees_each_rewrite_before_and_after() -> None:
    seen: list[tuple[str, UOp, UOp]] = []
    journal = Journal(lambda *step: seen.append(step))
    i = UOp.range(9, 0)
    rules = rules_from("ruleset a over index\nrule one: x * 1 => x\nrule zero: x % 1 => 0")
    Rewriter([rules], Facts(RuleSet("bounds", ())), journal).rewrite((i * 1) % 1)
    assert seen == [("a.one", i * 1, i), ("a.zero", i % 1, UOp.index(0))]


def test_a_rewriter_that_is_done_leaves_nothing_for_the_collector() -> None:
    sets = [unproven_library()[name] for name in ("algebra", "compare", "divmod", "ranges")]
    term = (UOp.range(9, 0) * 12 + UOp.range(7, 1)) // 5 % 3 < UOp.range(2, 2)
    Rewriter(sets, facts()).rewrite(term)  # matchers are made once
    gc.collect()
    gc.disable()
    try:
        Rewriter(sets, facts()).rewrite(term)
        assert gc.collect() == 0
    finally:
        gc.enable()
