"""The SMT meaning of every operation agrees with the reference interpreter, by brute force.

verify/encode/semantics.py and core/ir/evaluate.py share no code. Every binary operation on integers is
compared on all pairs of 8-bit values, and everything on floats and casts on edge values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import z3

from proofgrad.core.ir.dtypes import DType, Kind, dtypes, round_float
from proofgrad.core.ir.evaluate import evaluate, from_bits, to_bits
from proofgrad.core.ir.ops import ALU, APPROXIMATED, BINARY, COMPARE, TERNARY, UNARY, Ops
from proofgrad.verify.encode import semantics
from proofgrad.verify.encode.integers import Integers, Quotients

ON_INTS = sorted(BINARY - {Ops.FDIV, Ops.FMOD, Ops.POW})
ON_FLOATS = (Ops.ADD, Ops.MUL, Ops.FDIV, Ops.FMOD, Ops.MAX, Ops.MIN, Ops.CMPLT, Ops.CMPEQ)
ON_BOOLS = (Ops.AND, Ops.OR, Ops.XOR, Ops.CMPLT, Ops.CMPEQ)
INDEX_OPS = (
    Ops.ADD, Ops.MUL, Ops.FLOORDIV, Ops.MOD, Ops.TRUNCDIV, Ops.TRUNCMOD, Ops.MAX, Ops.MIN,
    Ops.CMPLT, Ops.CMPEQ,
)  # fmt: skip


def values_of(dtype: DType) -> list[Any]:
    """Every value of a small type, edge values of a large one."""
    if dtype.is_bool:
        return [False, True]
    if dtype.is_float:
        return float_edges(dtype)
    assert dtype.lo is not None and dtype.hi is not None
    if dtype.bits == 8:
        return list(range(dtype.lo, dtype.hi + 1))
    powers = [1 << k for k in range(0, dtype.bits, 3)] + [1 << 24, 1 << 53, 1 << 11]
    near = [s * p + d for p in powers for s in (1, -1) for d in (-1, 0, 1)]
    return sorted({v for v in [dtype.lo, dtype.hi, *near] if dtype.lo <= v <= dtype.hi})


def float_edges(dtype: DType) -> list[float]:
    """Zeros, the smallest and largest numbers, neighbours of integers and of the ends of ints."""
    exponents = [
        -149,
        -133,
        -126,
        -25,
        -24,
        -14,
        -1,
        0,
        1,
        7,
        8,
        10,
        15,
        16,
        31,
        32,
        62,
        63,
        64,
        127,
    ]
    sizes = [math.ldexp(m, e) for e in exponents for m in (1.0, 1.0 + 2.0**-10, 2.0 - 2.0**-7)]
    sizes += [0.0, 0.1, 1.5, 2.5, 127.5, 255.0, 65504.0, 1e-320, 1e300, 5e-324, math.inf]
    rounded = {round_float(sign * size, dtype) for size in sizes for sign in (1.0, -1.0)}
    return [*sorted(rounded), -0.0, math.nan]


def bits_of(term: Any, dtype: DType) -> Any:
    """A value as a bit-vector, every NaN as one."""
    if dtype.is_bool:
        return z3.If(term, z3.BitVecVal(1, 8), z3.BitVecVal(0, 8))
    if not dtype.is_float:
        return term
    nan = z3.BitVecVal(to_bits(math.nan, dtype), dtype.bits)
    return z3.If(z3.fpIsNaN(term), nan, z3.fpToIEEEBV(term))


def expected_bits(value: Any, dtype: DType) -> int:
    if isinstance(value, float) and math.isnan(value):
        return to_bits(math.nan, dtype)
    return to_bits(value, dtype)


def agree_on_rows(
    name: str,
    row_dtype: DType,
    rows: Sequence[Any],
    results: Callable[[Any], list[tuple[Any, DType]]],
    expected: Callable[[Any], list[Any]],
) -> None:
    """Compare one row at a time: z3 evaluates all results for a row in one term."""
    x = z3.Const("x", semantics.sort_of(row_dtype))
    terms = results(x)
    packed = z3.Concat(*[bits_of(t, d) for t, d in terms], z3.BitVecVal(0, 1))
    for row in rows:
        value = z3.simplify(z3.substitute(packed, (x, semantics.constant(row_dtype, row))))
        wanted = 0
        for result, (_, dtype) in zip(expected(row), terms):
            wanted = wanted << max(dtype.bits, 8) | expected_bits(result, dtype)
        assert value.as_long() == wanted << 1, f"{name} differs in the row of {row!r}"


def agree_on_pairs(op: Ops, dtype: DType, values: Sequence[Any]) -> None:
    result = dtypes.bool if op in COMPARE else dtype
    constants = [semantics.constant(dtype, v) for v in values]
    agree_on_rows(
        f"{op.name} on {dtype.name}",
        dtype,
        values,
        lambda x: [(semantics.meaning(op, result, [x, y], [dtype] * 2), result) for y in constants],
        lambda row: [evaluate(op, result, (row, y), (dtype, dtype)) for y in values],
    )


@pytest.mark.parametrize("op", ON_INTS, ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8], ids=lambda d: d.name)
def test_binary_operations_agree_on_all_pairs_of_8_bit_values(op: Ops, dtype: DType) -> None:
    agree_on_pairs(op, dtype, values_of(dtype))


@pytest.mark.parametrize("op", ON_FLOATS, ids=lambda op: op.name)
@pytest.mark.parametrize("dtype", dtypes.floats, ids=lambda d: d.name)
def test_binary_float_operations_agree_on_edge_values(op: Ops, dtype: DType) -> None:
    agree_on_pairs(op, dtype, float_edges(dtype)[::2] + [-0.0, 0.0, math.nan])


@pytest.mark.parametrize("op", ON_BOOLS, ids=lambda op: op.name)
def test_binary_bool_operations_agree(op: Ops) -> None:
    agree_on_pairs(op, dtypes.bool, [False, True])


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda d: d.name)
def test_unary_operations_agree(dtype: DType) -> None:
    ops = [op for op in sorted(UNARY - APPROXIMATED) if _is_defined(op, dtype)]
    assert ops
    agree_on_rows(
        f"unary on {dtype.name}",
        dtype,
        values_of(dtype),
        lambda x: [(semantics.meaning(op, dtype, [x], [dtype]), dtype) for op in ops],
        lambda row: [evaluate(op, dtype, (row,), (dtype,)) for op in ops],
    )


@pytest.mark.parametrize("source", dtypes.all, ids=lambda d: d.name)
def test_casts_agree_on_edge_values(source: DType) -> None:
    targets = dtypes.all
    agree_on_rows(
        f"casts from {source.name}",
        source,
        values_of(source),
        lambda x: [(semantics.meaning(Ops.CAST, t, [x], [source]), t) for t in targets],
        lambda row: [evaluate(Ops.CAST, t, (row,), (source,)) for t in targets],
    )


@pytest.mark.parametrize("dtype", (dtypes.bool, *dtypes.ints), ids=lambda d: d.name)
def test_casts_to_and_from_index_agree(dtype: DType) -> None:
    for value in values_of(dtype):
        given = semantics.constant(dtype, value)
        number = semantics.meaning(Ops.CAST, dtypes.index, [given], [dtype])
        assert z3.simplify(number).as_long() == int(value)
    for number in (0, 1, -1, 127, 128, -129, 2**31, 2**63, -(2**64) - 3):
        result = semantics.meaning(Ops.CAST, dtype, [z3.IntVal(number)], [dtypes.index])
        wanted = evaluate(Ops.CAST, dtype, (number,), (dtypes.index,))
        assert z3.simplify(bits_of(result, dtype)).as_long() == expected_bits(wanted, dtype)


@pytest.mark.parametrize("source", (*dtypes.ints, *dtypes.floats), ids=lambda d: d.name)
def test_bitcasts_agree(source: DType) -> None:
    targets = [t for t in (*dtypes.ints, *dtypes.floats) if t.bits == source.bits]
    rows = [v for v in values_of(source) if not _is_nan_in(v, source, targets)]
    agree_on_rows(
        f"bitcasts from {source.name}",
        source,
        rows,
        lambda x: [(semantics.meaning(Ops.BITCAST, t, [x], [source]), t) for t in targets],
        lambda row: [evaluate(Ops.BITCAST, t, (row,), (source,)) for t in targets],
    )


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8], ids=lambda d: d.name)
def test_multiply_accumulate_wraps(dtype: DType) -> None:
    few = values_of(dtype)[::17]
    pairs = [(y, z) for y in few for z in few]
    constants = [[semantics.constant(dtype, v) for v in pair] for pair in pairs]
    agree_on_rows(
        "MULACC",
        dtype,
        few,
        lambda x: [
            (semantics.meaning(Ops.MULACC, dtype, [x, *pair], [dtype] * 3), dtype)
            for pair in constants
        ],
        lambda row: [evaluate(Ops.MULACC, dtype, (row, *pair), [dtype] * 3) for pair in pairs],
    )


@pytest.mark.parametrize("dtype", dtypes.floats, ids=lambda d: d.name)
def test_fused_multiply_add_agrees(dtype: DType) -> None:
    values = values_of(dtype)
    few = values[:: len(values) // 12 + 1]
    pairs = [(y, z) for y in few for z in few]
    constants = [[semantics.constant(dtype, v) for v in pair] for pair in pairs]
    agree_on_rows(
        "FMA",
        dtype,
        [*values[::5], -0.0, math.nan],
        lambda x: [
            (semantics.meaning(Ops.FMA, dtype, [x, *pair], [dtype] * 3), dtype)
            for pair in constants
        ],
        lambda row: [evaluate(Ops.FMA, dtype, (row, *pair), [dtype] * 3) for pair in pairs],
    )


@pytest.mark.parametrize("op", INDEX_OPS, ids=lambda op: op.name)
def test_index_operations_agree_with_python_integers(op: Ops) -> None:
    values = [*range(-9, 10), 100, -100, 2**70, -(2**70)]
    result = dtypes.bool if op in COMPARE else dtypes.index
    for x in values:
        for y in values:
            args = [z3.IntVal(x), z3.IntVal(y)]
            term = z3.simplify(semantics.meaning(op, result, args, [dtypes.index] * 2))
            found = z3.is_true(term) if op in COMPARE else term.as_long()
            assert found == evaluate(op, result, (x, y), [dtypes.index] * 2), (op, x, y)


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8], ids=lambda d: d.name)
@pytest.mark.parametrize("quotients", [Quotients.SOLVER, Quotients.FRESH], ids=lambda q: q.name)
def test_the_encoding_by_integers_agrees_with_bits(dtype: DType, quotients: Quotients) -> None:
    apart = 13 if quotients is Quotients.SOLVER else 29  # fresh quotients ask the solver each time
    values = values_of(dtype)[::apart] + [dtype.lo, dtype.hi, 0, 1, 2, 7]
    for op in INDEX_OPS:
        result = dtypes.bool if op in COMPARE else dtype
        for x in values:
            for y in values:
                wanted = evaluate(op, result, (x, y), [dtype] * 2)
                assert _only_value(op, dtype, result, x, y, quotients) in (wanted, None), (op, x, y)


def _only_value(
    op: Ops, dtype: DType, result: DType, x: int, y: int, quotients: Quotients
) -> int | bool | None:
    """The value that the encoding gives; None where it does not pin one down by itself."""
    arithmetic = Integers(quotients)
    try:
        term = arithmetic.meaning(op, result, [z3.IntVal(x), z3.IntVal(y)], [dtype] * 2)
    except semantics.NoMeaning:
        return None
    if not arithmetic.known:
        term = z3.simplify(term)
        if op in COMPARE:
            return z3.is_true(term)
        return term.as_long() if z3.is_int_value(term) else None
    solver = z3.Solver()
    solver.add(*arithmetic.known)
    assert solver.check() == z3.sat
    value = solver.model().eval(term, model_completion=True)
    solver.add(term != value)
    assert solver.check() == z3.unsat
    return z3.is_true(value) if op in COMPARE else value.as_long()


def test_every_operation_on_values_has_a_meaning() -> None:
    for op in sorted(ALU):
        dtype = dtypes.bool if _is_defined(op, dtypes.bool) else dtypes.int32
        dtype = dtype if _is_defined(op, dtype) else dtypes.float32
        assert _is_defined(op, dtype), op


def _is_defined(op: Ops, dtype: DType) -> bool:
    count = 1 if op in UNARY else 3 if op in TERNARY else 2
    args = [z3.Const(f"a{k}", semantics.sort_of(dtype)) for k in range(count)]
    if op is Ops.WHERE:
        args[0] = z3.Bool("a0")
    try:
        semantics.meaning(op, dtypes.bool if op in COMPARE else dtype, args, [dtype] * count)
    except semantics.NoMeaning:
        return False
    return True


def _is_nan_in(value: Any, source: DType, targets: Sequence[DType]) -> bool:
    """Whether the bits of a value are a NaN anywhere: which bits a NaN has is not said."""
    bits = to_bits(value, source)
    readings = [from_bits(bits, t) for t in (source, *targets) if t.kind is Kind.FLOAT]
    return any(math.isnan(reading) for reading in readings)
