"""Bounds, bits, divisors, finiteness and independence of nodes (core/rewrite/facts.py)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from rules_from_text import rules_from, unproven_facts, unproven_library

from proofgrad.core.ir.dtypes import DType, Kind, dtypes
from proofgrad.core.ir.evaluate import evaluate, from_bits
from proofgrad.core.ir.ops import COMPARE, ELEMENTS, ELEMENTWISE, Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.functions import DOMAIN_TYPES
from proofgrad.core.rewrite.rule import Node, Rule
from proofgrad.rules.pipeline import FACTS
from proofgrad.verify.dsl.types import OP_KINDS

R0, R1 = UOp.range(4, 0), UOp.range(5, 1)


def facts() -> Facts:
    return unproven_facts()


def value(dtype: DType) -> UOp:
    memory = UOp(Ops.PARAM, dtype, (), (0, 1))
    return UOp(Ops.LOAD, dtype, (UOp(Ops.INDEX, dtype, (memory, UOp.index(0))),))


@pytest.mark.parametrize(
    ("term", "bounds"),
    [
        (UOp.index(7), (7, 7)),
        (R0, (0, 3)),
        (UOp.range(0, 2), (0, 1)),  # it has no value; it is not pinned to one
        (R0 * 5 + R1, (0, 19)),
        (R0 - R1, (-4, 3)),
        ((R0 * 5 + R1) // 3, (0, 6)),
        ((R0 * 5 + R1) % 7, (0, 6)),
        (R0.maximum(R1), (0, 4)),
        ((R0 < 2).where(R0, R1 + 10), (0, 14)),
        (R0 < R1, (0, 1)),
        (UOp.const(dtypes.bool, True), (1, 1)),
        (value(dtypes.int8), (-128, 127)),
        (value(dtypes.float32), (-math.inf, math.inf)),
        (value(dtypes.index), (None, None)),
    ],
)
def test_bounds_of_terms(term: UOp, bounds: tuple[int | None, int | None]) -> None:
    assert facts().interval(term) == bounds


def test_a_machine_integer_that_may_have_wrapped_has_the_bounds_of_its_type() -> None:
    small = value(dtypes.uint8) % 100
    assert facts().interval(small + 100) == (100, 199)
    assert facts().interval(small + 200) == (0, 255)


def test_one_side_of_an_index_term_may_be_known_alone() -> None:
    unknown = value(dtypes.index)
    assert facts().interval(unknown.maximum(UOp.index(3)))[1] is None


def test_bounds_come_from_the_rules_that_were_given() -> None:
    none = Facts(rules_from("ruleset bounds over index bounds neg: -x in [-hi(x), -lo(x)]"))
    assert none.interval(-R0) == (-3, 0)
    assert none.interval(R0 + R1) == (None, None)


def test_bounds_hold_in_every_lane() -> None:
    lanes = UOp(Ops.CONST, dtypes.int32.vec(4), (), (5, 2, 9, 2))
    assert facts().interval(lanes) == (2, 9)
    repeated = UOp(Ops.BROADCAST, dtypes.int32.vec(4), (UOp.const(dtypes.int32, 3),))
    assert facts().interval(lanes.alu(Ops.ADD, repeated)) == (5, 12)


def test_bounds_of_a_chain_of_50000_nodes() -> None:
    term = R0
    for _ in range(50_000):
        term = term + 1
    assert facts().interval(term) == (50_000, 50_003)


X = value(dtypes.float32)
SMALL = value(dtypes.int8).cast(dtypes.float32)
RELU = X.alu(Ops.MAX, UOp.const(dtypes.float32, 0.0))


def half(number: float) -> UOp:
    return UOp.const(dtypes.float16, number)


def single(number: float) -> UOp:
    return UOp.const(dtypes.float32, number)


@pytest.mark.parametrize(
    ("term", "finite", "not_nan"),
    [
        (single(1.5), True, True),
        (single(math.inf), False, True),
        (single(math.nan), False, False),
        (X, False, False),
        (RELU, False, False),
        (value(dtypes.int32), True, True),
        (value(dtypes.int32).cast(dtypes.float32), True, True),
        (value(dtypes.int8).cast(dtypes.float16), True, True),
        (value(dtypes.int32).cast(dtypes.float16), False, True),
        ((value(dtypes.int32) % 1000).cast(dtypes.float16), True, True),
        (-value(dtypes.int8).cast(dtypes.float16), True, True),
        (SMALL.alu(Ops.MUL, single(3e38)), False, True),
        (SMALL.alu(Ops.MUL, single(3.0)), True, True),
        (SMALL.alu(Ops.ADD, SMALL), True, True),
        (SMALL.alu(Ops.SIN), True, True),
        (SMALL.alu(Ops.COS), True, True),
        (SMALL.alu(Ops.EXP2), False, True),
        (SMALL.alu(Ops.EXP), False, True),
        (SMALL.alu(Ops.SQRT), False, False),
        (SMALL.alu(Ops.MAX, single(0.0)).alu(Ops.SQRT), True, True),
        (SMALL.alu(Ops.FDIV, SMALL), False, False),
        (SMALL.alu(Ops.FDIV, single(2.0)), False, True),
        (SMALL.cast(dtypes.float16), False, True),
        (SMALL.cast(dtypes.float64), True, True),
        (SMALL.cast(dtypes.bfloat16), True, True),
        (X.cast(dtypes.float64), False, False),
        (UOp(Ops.BROADCAST, dtypes.float32.vec(4), (SMALL,)), True, True),
        (UOp(Ops.CONST, dtypes.float32.vec(2), (), (1.0, math.nan)), False, False),
    ],
)
def test_finite_and_not_nan_are_said_only_where_they_are_sure(
    term: UOp, finite: bool, not_nan: bool
) -> None:
    assert (facts().finite(term), facts().not_nan(term)) == (finite, not_nan)


@pytest.mark.parametrize(
    ("term", "bounds"),
    [
        (RELU, (0, math.inf)),
        (RELU.alu(Ops.MIN, single(6.0)), (0, 6)),
        (-RELU, (-math.inf, 0)),
        (SMALL, (-128, 127)),
        (X.alu(Ops.SQRT), (0, math.inf)),
        (X.alu(Ops.EXP2), (0, math.inf)),
        (X.alu(Ops.EXP), (0, math.inf)),
        (X.alu(Ops.MUL, X), (0, math.inf)),
        (RELU.alu(Ops.ADD, RELU.alu(Ops.MUL, RELU)), (0, math.inf)),
        (RELU.cast(dtypes.int8), (0, 127)),
        (RELU.cast(dtypes.float16), (0, math.inf)),
        (X.cast(dtypes.int8), (-128, 127)),
        (RELU.alu(Ops.CMPLT, single(0.0)), (0, 0)),
        (SMALL.alu(Ops.CMPLT, single(128.0)), (1, 1)),
        (RELU.alu(Ops.CMPLT, single(-1.0)), (0, 0)),
        (single(-1.0).alu(Ops.CMPLT, RELU), (0, 1)),  # unless it is NaN
        (single(math.nan), (-math.inf, math.inf)),
        (value(dtypes.uint16).cast(dtypes.float32), (0, 65535)),
        (value(dtypes.uint32).cast(dtypes.float32), (0, math.inf)),
    ],
)
def test_bounds_of_floats_hold_unless_they_are_nan(term: UOp, bounds: tuple[float, float]) -> None:
    assert facts().interval(term) == bounds


BYTE, WORD = value(dtypes.uint8), value(dtypes.int32)


@pytest.mark.parametrize(
    ("term", "ones", "may"),
    [
        (UOp.const(dtypes.int8, -2), -2, -2),
        (BYTE, 0, 255),
        (WORD, 0, -1),
        (WORD % 100, 0, 127),
        (BYTE & 0x3C, 0, 0x3C),
        ((BYTE & 0x3C) | 5, 5, 0x3D),
        (~((BYTE & 0x3C) | 5), 0xC2, 0xFA),
        (WORD & -8, 0, -8),
        ((WORD | 1) << 3, 8, -8),
        (BYTE << 3, 0, 0xF8),
        ((BYTE | 0x80) >> 3, 0x10, 0x1F),
        ((WORD & -16) >> 2, 0, -4),
        (BYTE * 4, 0, 0xFC),
        ((WORD & -8) + 4, 4, -4),
        ((WORD & -8) + (WORD & -16), 0, -8),
        (-(WORD & -8), 0, -8),
        (BYTE.cast(dtypes.int32), 0, 255),
        ((WORD | 1).cast(dtypes.uint8), 1, 255),
        ((WORD & -256).cast(dtypes.uint8), 0, 0),
        (value(dtypes.int8).cast(dtypes.int16), 0, -1),
        (value(dtypes.bool).cast(dtypes.uint8), 0, 1),
        ((WORD | 3) % 4, 3, 3),
        ((value(dtypes.bool)).where(BYTE & 3, BYTE & 8), 0, 11),
        ((BYTE & 3) ^ 9, 8, 11),
        (UOp(Ops.CONST, dtypes.int32.vec(2), (), (5, 6)), 4, 7),
    ],
)
def test_bits_of_terms(term: UOp, ones: int, may: int) -> None:
    assert facts().bits(term) == (ones, may)


def test_what_is_no_machine_integer_has_no_bits() -> None:
    assert facts().bits(R0) == facts().bits(X) == facts().bits(R0 < 2) == (None, None)


EIGHTS = (R0 < 2).where(R0 * 8, R1 * 16)
NIBBLE = WORD & 15


@pytest.mark.parametrize(
    ("term", "divisor"),
    [
        (UOp.index(-12), 12),
        (UOp.index(0), 0),
        (R0, 1),
        (value(dtypes.index), 1),
        (R0 * 12 + R1 * 18 + 24, 6),
        (-(R0 * 12), 12),
        (R0 * 4 * (R1 * 6), 24),
        (EIGHTS, 8),
        (EIGHTS.maximum(UOp.index(0)), 8),
        (EIGHTS.minimum(R1 * 12), 4),
        (EIGHTS % 12, 4),
        (EIGHTS // 4, 2),
        (EIGHTS // 16, 1),
        ((EIGHTS // 2).alu(Ops.TRUNCDIV, UOp.index(2)), 2),
        ((EIGHTS * 3).alu(Ops.TRUNCMOD, UOp.index(36)), 12),
        ((EIGHTS * 3).cast(dtypes.int32), 24),
        ((value(dtypes.index) * 12).cast(dtypes.int32), 4),
        ((WORD * 12).cast(dtypes.index), 4),
        ((NIBBLE * 12).cast(dtypes.index), 12),
        ((NIBBLE * 12).cast(dtypes.uint8).cast(dtypes.int64), 12),
        ((NIBBLE * 24).cast(dtypes.uint8), 8),
        ((NIBBLE * 12).bitcast(dtypes.uint32), 12),
        (-(NIBBLE * 12), 12),
        (-(NIBBLE * 12).cast(dtypes.uint32), 4),
        (NIBBLE * 12 + NIBBLE * 18, 6),
        (WORD * 12 + WORD * 18, 2),
        (WORD & -8, 8),
        ((WORD & -8) << 2, 32),
        (WORD.alu(Ops.MULACC, WORD * 4, WORD * 12), 4),
        (WORD * 0, 0),
        (UOp(Ops.CONST, dtypes.int32.vec(2), (), (12, 18)), 6),
        (UOp(Ops.BROADCAST, dtypes.int32.vec(4), (NIBBLE * 12,)), 12),
    ],
)
def test_divisors_of_terms(term: UOp, divisor: int) -> None:
    assert facts().divisor(term) == divisor


def test_what_is_no_integer_has_no_divisor() -> None:
    assert facts().divisor(X) is facts().divisor(R0 < 2) is None


def test_facts_of_a_chain_of_20000_nodes() -> None:
    word, small, multiple = WORD & -8, SMALL, EIGHTS
    for _ in range(20_000):
        word, small, multiple = word & -4, -small, multiple + 24
    assert facts().bits(word) == (0, -8)
    assert facts().divisor(multiple) == 8
    assert facts().finite(small)


# -- every operation in every domain has a line, or a reason why it has none ------------------------

FLOAT = "float"
ANY_BITS = "bits of floats as ints and back: any value"
FULL_RANGE = {
    **{(op.name, FLOAT): row.no_bounds for op, row in ELEMENTS.items() if row.no_bounds},
    ("XOR", "bool"): "false and true, unless both are known, and then it is folded",
    ("CMPEQ", "bool"): "false and true, unless both are known, and then it is folded",
    ("BITCAST", FLOAT): ANY_BITS,
    ("BITCAST", "int"): "of floats any value; of ints there is a line",
    ("CAST", "bool"): "false and true",
    (
        "DOT",
        "int",
    ): "of words with two numbers each: steps put it in place of sums that were simplified before",
}


def test_every_operation_has_bounds_or_a_reason_to_have_none() -> None:
    have = _have_lines("bounds")
    missing = {(op, kind) for op, kind in _legal_operations() if (op, kind) not in have}
    assert missing == {pair for pair in FULL_RANGE if pair not in have}
    assert set(FULL_RANGE) - missing == {("BITCAST", "int")}


BY_BITS = "powers of two by its bits (divisor.of_bits); of an odd factor nothing is left"
ANY_MULTIPLE = {
    **{(op, "int"): BY_BITS for op in ("AND", "OR", "XOR", "NOT", "SHL", "SHR")},
    ("DOT", "int"): FULL_RANGE["DOT", "int"],
}


def test_every_operation_on_integers_has_divisors_or_a_reason_to_have_none() -> None:
    have = _have_lines("divisor")
    legal = {(o, k) for o, k in _legal_operations() if k in ("int", "index")}
    legal -= {(op.name, kind) for op in COMPARE for _, kind in legal}  # their results are bools
    assert legal - have == set(ANY_MULTIPLE)


def _have_lines(kind: str) -> set[tuple[str, str]]:
    """The operations and domains that lines of a kind are about, but for those about any term."""
    rules = unproven_library()[kind].rules
    return {pair for rule in rules if isinstance(rule.left, Node) for pair in _claims(rule)}


def _claims(rule: Rule) -> Iterator[tuple[str, str]]:
    """The operation of a line and the domains of its result; comparisons: of what is compared."""
    assert isinstance(rule.left, Node)
    op = Ops[rule.left.op]
    about = rule.left.src[0].type if op in COMPARE else rule.left.type
    classes = dict(rule.types)
    names = rule.domains if classes.get(about) == "domain" else (classes.get(about, about),)
    for name in names:
        for dtype in DOMAIN_TYPES[name]:
            yield op.name, dtype.kind.value.replace("unsigned", "int").replace("signed", "int")


def _legal_operations() -> Iterator[tuple[str, str]]:
    kinds = {Kind.BOOL: "bool", Kind.SIGNED: "int", Kind.INDEX: "index", Kind.FLOAT: FLOAT}
    for op in ELEMENTWISE:
        for kind, name in kinds.items():
            if op in (Ops.CAST, Ops.BITCAST):
                if op is Ops.CAST or name in ("int", FLOAT):
                    yield op.name, name
            elif op in COMPARE or op is Ops.WHERE or kind in OP_KINDS[op.name]:
                yield op.name, name


def test_lines_of_one_kind_stand_in_the_file_of_that_name() -> None:
    for name in FACTS:
        assert {rule.kind.value for rule in unproven_library()[name].rules} == {name}


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16], ids=repr)
@pytest.mark.parametrize("op", [Ops.EXP2, Ops.EXP, Ops.LOG2, Ops.SIN, Ops.COS])
def test_functions_keep_the_promise_that_facts_take(op: Ops, dtype: DType) -> None:
    """Of the reference interpreter; tests/test_numerics.py compares the machines with it."""
    for pattern in range(1 << 16):
        x = from_bits(pattern, dtype)
        y = evaluate(op, dtype, (x,))
        match op:
            case Ops.EXP2 | Ops.EXP:
                assert math.isnan(y) == math.isnan(x)
                assert math.isnan(y) or math.copysign(1.0, y) > 0
            case Ops.LOG2:
                assert math.isnan(y) == (math.isnan(x) or x < 0)
            case _:
                assert math.isfinite(y) == math.isfinite(x)
                assert not math.isinf(y)


def test_a_term_depends_on_the_loops_below_it_but_for_those_it_runs_itself() -> None:
    known = facts()
    total = UOp(Ops.REDUCE, dtypes.int32, ((R0 + R1).cast(dtypes.int32), R0), Ops.ADD)
    assert known.loops(R0 * 5 + R1) == {R0, R1}
    assert known.loops(total) == {R1}
    assert known.independent(total, (R0,))
    assert not known.independent(total, (R0, R1))
    assert known.independent(UOp.index(3), (R0, R1))
