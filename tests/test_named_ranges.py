"""Rules that name one range of a reduction: substitution, proofs, and what they make of kernels."""

from __future__ import annotations

from random import Random

import pytest
from kernel_interpreter import run_kernel
from rules_from_text import unproven_library

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp
from proofgrad.core.rewrite.engine import Rewriter
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.instances import instance
from proofgrad.core.rewrite.masks import agrees, solution
from proofgrad.verify.dsl.parser import parse_rules
from proofgrad.verify.dsl.show import show_file, show_rule
from proofgrad.verify.prove.rules import prove_rules

OUT, OTHER = UOp.range(5, 0), UOp.range(3, 1)
LOOP, INNER = UOp.range(4, 2, AxisRole.REDUCE), UOp.range(3, 3, AxisRole.REDUCE)
SIMPLIFY = ("algebra", "compare", "where", "cast", "divmod", "ranges", "reduce")
TRUE = UOp.const(dtypes.bool, True)
INDICES = [3, 0, -1, 4, 2]  # the fourth and the fifth are outside of LOOP


def facts() -> Facts:
    return Facts(unproven_library()["bounds"])


def buffer(slot: int, size: int, dtype: DType = dtypes.int32) -> UOp:
    return UOp(Ops.PARAM, dtype, (), (slot, size))


def load(memory: UOp, position: UOp) -> UOp:
    return UOp(Ops.LOAD, memory.dtype, (UOp(Ops.INDEX, memory.dtype, (memory, position)),))


def reduced(op: Ops, body: UOp, *loops: UOp) -> UOp:
    return UOp(Ops.REDUCE, body.dtype, (body, *loops), op)


def kernel(value: UOp) -> UOp:
    """Stores `value` for each of OUT."""
    position = UOp(Ops.INDEX, value.dtype, (buffer(0, 5, value.dtype), OUT))
    return UOp.sink(UOp(Ops.STORE, dtypes.void, (position, value)))


INDEX = load(buffer(1, 5), OUT)
TABLE = load(buffer(2, 20), LOOP * 5 + OUT)
HIT = LOOP.cast(dtypes.int32).eq(INDEX)


# -- substitution -------------------------------------------------------------------------------


def test_an_instance_has_the_value_for_the_range() -> None:
    assert instance(LOOP * 2 + OUT, LOOP, OUT + 1, facts()) is (OUT + 1) * 2 + OUT


def test_an_instance_leaves_loops_over_the_same_range_alone() -> None:
    closed = reduced(Ops.ADD, TABLE, LOOP)
    found = instance(closed + TABLE, LOOP, OUT, facts())
    assert found is closed + load(buffer(2, 20), OUT * 5 + OUT)


def test_no_instance_where_an_inner_loop_would_catch_the_value() -> None:
    inner = reduced(Ops.ADD, load(buffer(2, 20), LOOP * 5 + INNER), INNER)
    assert instance(inner, LOOP, INNER + 1, facts()) is None
    assert instance(inner, LOOP, OUT, facts()) is not None


# -- what a mask says of a range ----------------------------------------------------------------


def test_a_mask_is_solved_for_its_range() -> None:
    other = INNER < 2
    mask = other & (OUT + 2).eq(LOOP * -1 + OTHER)
    assert solution("solve", mask, LOOP, facts()) == (
        (OTHER - OUT) + -2,
        other,
        OUT + 2,
        LOOP * -1 + OTHER,
        1,
    )
    assert solution("solve", (LOOP * 2).eq(OUT), LOOP, facts()) is None
    assert solution("solve", LOOP.eq(LOOP % 2), LOOP, facts()) is None
    assert solution("solve", LOOP < OUT, LOOP, facts()) is None
    assert solution("solve_less", LOOP < OUT + 1, LOOP, facts()) == (
        OUT + 1,
        TRUE,
        LOOP,
        OUT + 1,
        1,
    )
    assert solution("solve_less", OUT < LOOP, LOOP, facts()) == (OUT, TRUE, OUT, LOOP, -1)


def test_a_wrong_solution_breaks_the_contract() -> None:
    mask, other = LOOP.eq(OUT) & (OTHER < 2), OTHER < 2
    right = (OUT, other, LOOP, OUT, 1)
    assert agrees("solve", mask, LOOP, right, facts())
    for wrong in (
        (OUT + 1, other, LOOP, OUT, 1),
        (OUT, TRUE, LOOP, OUT, 1),
        (OUT, OTHER < 3, LOOP, OUT, 1),
        (OUT, other & (OUT < 1), LOOP, OUT, 1),
        (OUT, other, LOOP + 1, OUT + 1, 1),
        (OUT, other, LOOP, OUT, -1),
        (OUT * 2, other, LOOP, OUT, 2),
        (INDEX, other, LOOP, OUT, 1),
    ):
        assert not agrees("solve", mask, LOOP, wrong, facts())
    assert not agrees("solve", (LOOP < OUT) & other, LOOP, right, facts())


# -- what the rules make of loops ---------------------------------------------------------------


def zero_unless(mask: UOp, value: UOp) -> UOp:
    return mask.where(value, value.const_like(0))


AS_FLOAT = TABLE.cast(dtypes.float32) * 0.5
LEAST = UOp.const(dtypes.int32, -(2**31))
COLLAPSING = {
    "gather": reduced(Ops.ADD, zero_unless(HIT, TABLE), LOOP),
    "turned": reduced(Ops.ADD, zero_unless(INDEX.eq(LOOP.cast(dtypes.int32)), TABLE), LOOP),
    "counts from an offset": reduced(
        Ops.ADD, zero_unless((LOOP + 1).eq(INDEX.cast(dtypes.index)), TABLE), LOOP
    ),
    "counts down": reduced(
        Ops.ADD, zero_unless((LOOP * -1 + 3).eq(INDEX.cast(dtypes.index)), TABLE), LOOP
    ),
    "floats": reduced(Ops.ADD, zero_unless(HIT, AS_FLOAT), LOOP),
    "more masks": reduced(Ops.ADD, zero_unless(HIT & (LOOP < 3) & (OUT < 4), TABLE + 1), LOOP),
    "hits": reduced(Ops.ADD, HIT.cast(dtypes.int32), LOOP),
    "a product": reduced(Ops.ADD, HIT.cast(dtypes.int32) * TABLE, LOOP),
    "any": reduced(Ops.MAX, (HIT & (TABLE < 9)).cast(dtypes.uint8), LOOP),
    "largest": reduced(Ops.MAX, HIT.where(TABLE, LEAST), LOOP),
    "two loops": reduced(
        Ops.ADD,
        zero_unless(HIT & INNER.eq(load(buffer(3, 5), OUT).cast(dtypes.index)), TABLE * 2 + 1),
        LOOP,
        INNER,
    ),
    "the same": reduced(Ops.ADD, load(buffer(2, 20), OUT), LOOP),
    "below": reduced(
        Ops.ADD, zero_unless(LOOP < INDEX.cast(dtypes.index), load(buffer(2, 20), OUT) * 3), LOOP
    ),
    "above": reduced(
        Ops.ADD, zero_unless(INDEX.cast(dtypes.index) < LOOP, load(buffer(2, 20), OUT) * 3), LOOP
    ),
    "running count": reduced(Ops.ADD, (LOOP < OUT + 1).cast(dtypes.int32), LOOP),
}


@pytest.mark.parametrize("name", COLLAPSING)
def test_the_loop_is_gone_and_the_values_are_the_same(name: str) -> None:
    before = kernel(COLLAPSING[name])
    after = Rewriter([unproven_library()[n] for n in SIMPLIFY], facts()).rewrite(before)
    random = Random(name)
    memory = {1: INDICES, 2: [random.randint(-9, 99) for _ in range(20)], 3: [2, 1, 0, -1, 7]}
    assert run_kernel(after, memory) == run_kernel(before, memory)
    assert not [node for node in after.toposort() if node.op is Ops.REDUCE]


def test_the_other_loop_of_a_sum_stays() -> None:
    value = reduced(Ops.ADD, zero_unless(HIT, TABLE) + INNER.cast(dtypes.int32) * 0, LOOP, INNER)
    after = Rewriter([unproven_library()[n] for n in SIMPLIFY], facts()).rewrite(kernel(value))
    loops = [node.src[1:] for node in after.toposort() if node.op is Ops.REDUCE]
    assert loops == []  # three times the same: a product
    memory = {1: INDICES, 2: list(range(20))}
    assert run_kernel(after, memory) == run_kernel(kernel(value), memory)


def test_a_counter_that_wraps_in_its_type_is_not_collapsed() -> None:
    long = UOp.range(300, 2, AxisRole.REDUCE)
    hit = long.cast(dtypes.uint8).eq(load(buffer(1, 5, dtypes.uint8), OUT))
    value = reduced(Ops.ADD, hit.cast(dtypes.int32), long)
    after = Rewriter([unproven_library()[n] for n in SIMPLIFY], facts()).rewrite(kernel(value))
    assert [node.op for node in after.toposort()].count(Ops.REDUCE) == 1


def test_a_float_that_may_be_infinite_is_not_multiplied_by_a_hit() -> None:
    table = load(buffer(2, 20, dtypes.float32), LOOP * 5 + OUT)
    value = reduced(Ops.ADD, HIT.cast(dtypes.float32) * table, LOOP)
    after = Rewriter([unproven_library()[n] for n in SIMPLIFY], facts()).rewrite(kernel(value))
    assert [node.op for node in after.toposort()].count(Ops.REDUCE) == 1


# -- proofs -------------------------------------------------------------------------------------


def verdict(line: str) -> str:
    (rule,) = parse_rules(f"ruleset t over loop\nrule a {line}", check_order=False).rules
    (result,) = prove_rules([rule], processes=1)
    return result.verdict


CLAMPED = "max(min(i, {count(r) - 1}), 0)"
SOLVED = "let (i, p, a, b, s) = solve(g, r)"


def test_the_selected_value_is_proved() -> None:
    right = (
        f"sum[R](where(p[r := {CLAMPED}] & (0 <= i) & (i < {{count(r)}}), v[r := {CLAMPED}], 0))"
    )
    where = "where independent(i, r), 0 < count(r)"
    assert (
        verdict(f"(T in uint8): sum[r, R](where(g, v, 0)) => {right} {SOLVED} {where}") == "proved"
    )


@pytest.mark.parametrize(
    ("right", "where"),
    [
        (
            f"where(p[r := {CLAMPED}], v[r := {CLAMPED}], 0)",
            "where independent(i, r), 0 < count(r)",
        ),
        ("where((0 <= i) & (i < {count(r)}), v[r := i], 0)", "where independent(i, r)"),
        ("where(p[r := i] & (0 <= i), v[r := i], 0)", "where independent(i, r), 0 < count(r)"),
        ("where(p[r := 0], v[r := 0], 0)", "where independent(i, r), 0 < count(r)"),
        ("v[r := i]", "where independent(i, r), 0 < count(r)"),
    ],
)
def test_a_wrong_selection_is_not_proved(right: str, where: str) -> None:
    claim = f"(T in uint8): sum[r, R](where(g, v, 0)) => sum[R]({right}) {SOLVED} {where}"
    assert verdict(claim) == "refuted"


@pytest.mark.parametrize(
    ("claim", "expected"),
    [
        ("(T in int8): sum[r, R](x) => sum[R](x * cast({count(r)}: index, T)) where independent(x, r)", "proved"),
        ("(T in int8): sum[r, R](x) => sum[R](x * cast({count(r) + 1}: index, T)) where independent(x, r)", "refuted"),
        # right for at most two iterations
        ("(T in int8): sum[r, R](x) => sum[R](x * cast({min(count(r), 2)}: index, T)) where independent(x, r)", "refuted"),
        # x may depend on the counter
        ("(T in int8): sum[r, R](x) => sum[R](x * cast({count(r)}: index, T))", "refuted"),
        ("(T in float16): max[r, R](x) => max[R](x) where independent(x, r)", "refuted"),
        ("(T in float16): max[r, R](x) => max[R](x) where independent(x, r), 0 < count(r)", "proved"),
        # right in one order of the additions; it has to be right in the order that runs too
        ("(T in float16): sum[r, R](x) => sum[R](x * 2.0) where independent(x, r), count(r) == 2", "proved"),
        ("(T in float16): sum[r, R](x) => sum[R](x) where independent(x, r), 0 < count(r)", "refuted"),
    ],
)  # fmt: skip
def test_laws_of_what_does_not_change(claim: str, expected: str) -> None:
    assert verdict(claim) == expected


def test_an_instance_is_shown_as_it_is_read() -> None:
    text = "ruleset t over loop\nrule a (T in int): sum[r, R](x + v) => sum[R](v[r := {count(r)}])"
    rules = parse_rules(text, check_order=False).rules
    assert "v[r := {count(r)}]" in show_rule(rules[0])
    assert parse_rules(show_file("t", ("loop",), rules), check_order=False).rules == rules
