"""core/ir/evaluate.py against exact rational arithmetic, against numpy, and on written-out values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from linear_kernels import BY_RULES, edge_values, operand_rows, operand_types, ops_of, same

from proofgrad.core.compile.math.transcendental import EXPANSIONS
from proofgrad.core.ir.dtypes import DType, dtypes, round_float
from proofgrad.core.ir.evaluate import cast, evaluate, evaluate_lanes, from_bits, identity, to_bits
from proofgrad.core.ir.ops import ALU, ELEMENTS, MEANING, Ops, Precision
from proofgrad.core.rewrite.functions import PRECISION

NARROW_INTS = [dtypes.int8, dtypes.uint8]
NUMPY_FLOATS = [dtypes.float16, dtypes.float32, dtypes.float64]
NAN, INF = math.nan, math.inf


def signed(bits: int, dtype: DType) -> int:
    """`bits` modulo 2**width, written apart from wrap_int."""
    size = 2**dtype.bits
    rest = bits % size
    return rest - size if rest > dtype.hi else rest


def exact_quotient(x: int, y: int, round_: Callable[[Fraction], int]) -> int:
    return 0 if y == 0 else round_(Fraction(x, y))


def halves(word: int, dtype: DType) -> tuple[int, int]:
    """The numbers of which `word` is lower + 2**half * upper, each of the half bits."""
    size = 2 ** (dtype.bits // 2)
    least = 0 if dtype.is_unsigned else -size // 2
    lower = next(n for n in (word % size, word % size - size) if least <= n < least + size)
    return lower, word // size


# The words of ops.MEANING as exact arithmetic on mathematical integers.
INT_MEANING: dict[Ops, Callable[[int, int, DType], int]] = {
    Ops.ADD: lambda x, y, d: x + y,
    Ops.MUL: lambda x, y, d: x * y,
    Ops.FLOORDIV: lambda x, y, d: exact_quotient(x, y, math.floor),
    Ops.MOD: lambda x, y, d: 0 if y == 0 else x - exact_quotient(x, y, math.floor) * y,
    Ops.TRUNCDIV: lambda x, y, d: exact_quotient(x, y, math.trunc),
    Ops.TRUNCMOD: lambda x, y, d: 0 if y == 0 else x - exact_quotient(x, y, math.trunc) * y,
    Ops.MAX: lambda x, y, d: max(y, x),
    Ops.MIN: lambda x, y, d: min(y, x),
    Ops.SHL: lambda x, y, d: x * 2 ** (y % 2**d.bits),
    Ops.SHR: lambda x, y, d: math.floor(Fraction(x, 2 ** (y % 2**d.bits))),
    Ops.DOT: lambda x, y, d: sum(a * b for a, b in zip(halves(x, d), halves(y, d))),
}


@pytest.mark.parametrize("op", INT_MEANING, ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", NARROW_INTS, ids=lambda d: d.name)
def test_int_op_on_every_pair_of_8_bits_is_its_meaning(op: Ops, dtype: DType) -> None:
    values = range(dtype.lo, dtype.hi + 1)
    for x, y in itertools.product(values, values):
        want = signed(INT_MEANING[op](x, y, dtype), dtype)
        assert evaluate(op, dtype, (x, y)) == want, (x, y)


@pytest.mark.parametrize("dtype", dtypes.ints, ids=lambda d: d.name)
def test_int_op_on_edge_values_is_its_meaning(dtype: DType) -> None:
    values = edge_values(dtype)
    for (op, meaning), x, y in itertools.product(INT_MEANING.items(), values, values):
        if op in (Ops.SHL, Ops.SHR) and y % 2**dtype.bits > 4096:
            y = dtype.hi % 4096
        assert evaluate(op, dtype, (x, y)) == signed(meaning(x, y, dtype), dtype), (op, x, y)


@pytest.mark.parametrize("dtype", [*dtypes.ints, dtypes.bool], ids=lambda d: d.name)
def test_bitwise_op_is_numpys(dtype: DType) -> None:
    values = edge_values(dtype)
    for x, y in itertools.product(values, values):
        a, b = np.array([x], dtype.name), np.array([y], dtype.name)
        for op, ours in ((Ops.AND, a & b), (Ops.OR, a | b), (Ops.XOR, a ^ b), (Ops.NOT, ~a)):
            arguments = (x,) if op is Ops.NOT else (x, y)
            assert same(evaluate(op, dtype, arguments), ours[0].item()), (op, x, y)


# -- floats -----------------------------------------------------------------------------------------

NUMPY_OPS: dict[Ops, Callable[..., Any]] = {
    op: getattr(np, row.numpy)
    for op, row in ELEMENTS.items()
    if row.numpy and row.precision is not Precision.PUBLISHED
}


@pytest.mark.parametrize("dtype", NUMPY_FLOATS, ids=lambda d: d.name)
@pytest.mark.parametrize("op", NUMPY_OPS, ids=lambda op: op.name)
def test_float_op_on_edge_values_is_numpys(op: Ops, dtype: DType) -> None:
    rows = operand_rows((dtype,) * ELEMENTS[op].arity)
    with np.errstate(all="ignore"):
        columns = [np.array(column, dtype.name) for column in zip(*rows)]
        wanted = NUMPY_OPS[op](*columns).tolist()
    got = [evaluate(op, dtype, row) for row in rows]
    assert [(r, g, w) for r, g, w in zip(rows, got, wanted) if not same(g, w)] == []


def exactly_rounded(value: Fraction, dtype: DType) -> float:
    """The nearest float of a positive number, ties to even, found among all floats by bisection."""
    low, high = 0, to_bits(INF, dtype)  # the bits of positive floats are in their order
    while high - low > 1:
        middle = (low + high) // 2
        if Fraction(from_bits(middle, dtype)) <= value:
            low = middle
        else:
            high = middle
    below = Fraction(from_bits(low, dtype))
    step = below - Fraction(from_bits(low - 1, dtype)) if low else Fraction(0)
    above = below + step if high == to_bits(INF, dtype) else Fraction(from_bits(high, dtype))
    if value - below == above - value:
        return float(from_bits(low if low % 2 == 0 else high, dtype))
    return float(from_bits(low if value - below < above - value else high, dtype))


@pytest.mark.parametrize("dtype", dtypes.floats, ids=lambda d: d.name)
def test_float_arithmetic_is_rounded_once(dtype: DType) -> None:
    """Also of bfloat16, which numpy does not have; products and quotients may be denormal."""
    values = [v for v in edge_values(dtype) if 0.0 < v < INF]
    for x, y in itertools.product(values, values):
        exact = {Ops.ADD: Fraction(x) + Fraction(y), Ops.MUL: Fraction(x) * Fraction(y)}
        exact[Ops.FDIV] = Fraction(x) / Fraction(y)
        for op, value in exact.items():
            assert evaluate(op, dtype, (x, y)) == exactly_rounded(value, dtype), (op, x, y)


@pytest.mark.parametrize("dtype", dtypes.floats, ids=lambda d: d.name)
def test_fma_is_rounded_once(dtype: DType) -> None:
    """Also where the product is beyond the type, and where the sum is next to a middle of two floats."""
    values = [v for v in edge_values(dtype) if math.isfinite(v)]
    close = [1.0, -(2.0**-20), from_bits(1, dtype), 3.0]
    rows = [*itertools.product(values[::2], values[::3], values[::2]), *_near_middles(dtype)]
    for x, y, z in [*rows, *itertools.product(close, repeat=3)]:
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        if exact:
            size = exactly_rounded(abs(exact), dtype)
            got = evaluate(Ops.FMA, dtype, (x, y, z))
            assert same(got, size if exact > 0 else -size), (x, y, z)


def _near_middles(dtype: DType) -> list[tuple[float, float, float]]:
    """Products in the middle between two floats, and the least that can be added."""
    digits = PRECISION[dtype]
    factors = [(7.0, (1 << digits) // 7 + k) for k in range(1, 9)]
    middles = [(x, float(y)) for x, y in factors if round_float(float(y), dtype) == y]
    tiny = from_bits(1, dtype)
    return [(x, y, z) for x, y in middles for z in (tiny, -tiny, 0.0)]


def test_fma_of_infinities_nan_and_zeros() -> None:
    largest = from_bits(to_bits(INF, dtypes.float64) - 1, dtypes.float64)
    rows = [
        ((INF, 1.0, -INF), NAN), ((INF, 0.0, 1.0), NAN), ((1.0, NAN, 1.0), NAN), ((1.0, 1.0, NAN), NAN),
        ((largest, 2.0, -INF), -INF), ((largest, 2.0, -largest), largest), ((largest, 2.0, 0.0), INF),
        ((-largest, largest, largest), -INF), ((INF, -1.0, 3.0), -INF), ((2.0, 3.0, INF), INF),
        ((0.0, -1.0, 0.0), 0.0), ((0.0, -1.0, -0.0), -0.0), ((0.0, 1.0, -0.0), 0.0),
        ((2.0, 3.0, -6.0), 0.0), ((2.0**-600, -(2.0**-600), 0.0), -0.0),
    ]  # fmt: skip
    got = [(row, evaluate(Ops.FMA, dtypes.float64, row), want) for row, want in rows]
    assert [case for case in got if not same(case[1], case[2])] == []


@pytest.mark.parametrize("dtype", dtypes.floats, ids=lambda d: d.name)
def test_int_to_float_is_rounded_once(dtype: DType) -> None:
    centres = [2**k for k in (7, 8, 10, 11, 12, 15, 16, 24, 25, 53, 54, 62, 63)]
    parts = [(c >> 11) | (c >> 24) | 1 for c in centres]
    for centre, part, k, off in itertools.product(centres, parts, (1, 3, 5), (-1, 0, 1)):
        value = centre + k * part + off
        assert cast(value, dtype) == exactly_rounded(Fraction(value), dtype), value
        assert cast(-value, dtype) == -exactly_rounded(Fraction(value), dtype), value


def test_index_beyond_every_float_becomes_infinity() -> None:
    assert [cast(s * 10**400, d) for s in (1, -1) for d in dtypes.floats] == [INF] * 4 + [-INF] * 4


def test_double_to_bfloat16_beyond_its_range_is_infinity() -> None:
    assert cast(1.7e308, dtypes.bfloat16) == INF
    assert cast(-3.4e38, dtypes.bfloat16) == -INF
    assert cast(3.39e38, dtypes.bfloat16) == 3.3895313892515355e38


def test_float_to_int_saturates_and_nan_is_zero() -> None:
    values = [NAN, INF, -INF, 1e30, -1e30, -0.9, 127.9, 128.0, 255.0]
    assert [cast(v, dtypes.int8) for v in values] == [0, 127, -128, 127, -128, 0, 127, 127, 127]
    assert [cast(v, dtypes.uint8) for v in values] == [0, 255, 0, 255, 0, 0, 127, 128, 255]


def test_cast_to_bool_asks_for_not_zero() -> None:
    assert [cast(v, dtypes.bool) for v in (NAN, 0.0, -0.0, 1e-45, -3, 0, True)] == [
        True, False, False, True, True, False, True,
    ]  # fmt: skip


def test_max_and_min_keep_nan_and_order_the_zeros() -> None:
    pairs = [(NAN, 1.0), (1.0, NAN), (-0.0, 0.0), (0.0, -0.0), (-0.0, -0.0), (-INF, INF)]
    highest = [evaluate(Ops.MAX, dtypes.float32, pair) for pair in pairs]
    lowest = [evaluate(Ops.MIN, dtypes.float32, pair) for pair in pairs]
    assert all(map(same, highest, [NAN, NAN, 0.0, 0.0, -0.0, INF]))
    assert all(map(same, lowest, [NAN, NAN, -0.0, -0.0, -0.0, -INF]))


def test_transcendental_at_its_special_points() -> None:
    def value(op: Ops, x: float) -> float:
        return float(evaluate(op, dtypes.float64, (x,)))

    assert [value(Ops.EXP2, x) for x in (0.0, 3.0, INF, -INF, 2000.0)] == [1.0, 8.0, INF, 0.0, INF]
    assert [value(Ops.EXP, x) for x in (0.0, 1.0, INF, -INF, 2000.0)] == [
        1.0,
        math.e,
        INF,
        0.0,
        INF,
    ]
    assert [value(Ops.LOG2, x) for x in (1.0, 8.0, 0.0, -0.0, INF)] == [0.0, 3.0, -INF, -INF, INF]
    assert math.isnan(value(Ops.LOG2, -1.0))
    assert math.isnan(value(Ops.SIN, INF)) and math.isnan(value(Ops.COS, -INF))
    assert value(Ops.COS, -0.0) == 1.0
    assert same(value(Ops.SIN, -0.0), -0.0)


# -- bits, lanes, identities ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda d: d.name)
def test_bits_of_edge_values_come_back(dtype: DType) -> None:
    for value in edge_values(dtype):
        assert same(from_bits(to_bits(value, dtype), dtype), value)


def test_bits_of_known_numbers() -> None:
    known = [(1.0, dtypes.float16, 0x3C00), (-2.0, dtypes.bfloat16, 0xC000)]
    known += [(1.0, dtypes.float32, 0x3F800000), (-0.0, dtypes.float64, 1 << 63)]
    assert [to_bits(value, dtype) for value, dtype, _ in known] == [bits for *_, bits in known]


def test_lanes_are_evaluated_one_by_one() -> None:
    vector = dtypes.uint8.vec(3)
    assert evaluate_lanes(Ops.ADD, vector, ((250, 1, 2), (10, 1, 2))) == (4, 2, 4)
    chosen = evaluate_lanes(Ops.WHERE, vector, ((True, False, True), (1, 2, 3), (7, 8, 9)))
    assert chosen == (1, 8, 3)


def test_index_arithmetic_does_not_wrap() -> None:
    assert evaluate(Ops.MUL, dtypes.index, (2**63, 2**63)) == 2**126


def test_identity_of_a_reduction_changes_nothing() -> None:
    for dtype in (dtypes.int8, dtypes.uint16, dtypes.float32):
        for op in (Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN):
            for value in edge_values(dtype):
                got = evaluate(op, dtype, (identity(op, dtype), value))
                assert got == value or math.isnan(value)


def test_op_without_meaning_on_a_type_is_refused() -> None:
    with pytest.raises(ValueError, match="ADD has no meaning on a value of type bool"):
        evaluate(Ops.ADD, dtypes.bool, (True, True))
    with pytest.raises(ValueError, match="RESHAPE has no meaning"):
        evaluate(Ops.RESHAPE, dtypes.int32, (1,))


def test_every_arithmetic_op_has_words_and_a_value() -> None:
    evaluated = set(EXPANSIONS) | BY_RULES
    for dtype in dtypes.all:
        for op in ops_of(dtype):
            sources = operand_types(op, dtype)
            evaluate(op, dtype, [edge_values(source)[0] for source in sources])
            evaluated.add(op)
    assert evaluated == ALU
    assert set(MEANING) >= ALU


def test_mulacc_of_floats_rounds_the_product_first() -> None:
    x = round_float(0.1, dtypes.float32)
    want = round_float(round_float(x * x, dtypes.float32) + x, dtypes.float32)
    assert evaluate(Ops.MULACC, dtypes.float32, (x, x, x)) == want


@pytest.mark.parametrize("scalar", [*dtypes.all, *dtypes.fp8s, dtypes.index], ids=str)
def test_a_lane_of_a_vector_has_the_type_that_it_is_made_of(scalar: DType) -> None:
    assert scalar.vec(4).scalar is scalar
    assert scalar.vec(4).vec(1) is scalar
