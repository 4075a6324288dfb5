"""The SMT meaning of every operation: what a rule is proven about.

Owns: z3 terms for the total semantics that core/ir/ops.py states in words, on booleans,
bit-vectors, mathematical integers and IEEE floats. Shares no code with core/ir/evaluate.py; a test
compares the two by brute force. Does not own: rules and conditions (encode/goal.py), solving (solve.py).

Terms are built as written; nothing is simplified here, so the exported text is the rule itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, assert_never

import z3

from proofgrad.core.ir.dtypes import DType, Kind, round_float
from proofgrad.core.ir.ops import Ops
from proofgrad.verify.encode.codes import (
    ONES,
    code_of_float,
    code_of_rounded,
    number_of_code,
    sort_of_numbers,
)

Term = Any  # z3.ExprRef; z3 ships no types

EXPONENT_AND_PRECISION = {
    "float16": (5, 11),
    "bfloat16": (8, 8),
    "float32": (8, 24),
    "float64": (11, 53),
}


class NoMeaning(ValueError):
    """The operation is not defined on this type, or not in this arithmetic."""


class IllFormed(NoMeaning):
    """There is no such term: operands of other types, or a variable out of its scope."""


def sort_of(dtype: DType) -> Any:
    """The SMT sort of the values of a scalar type."""
    match dtype.kind:
        case Kind.BOOL:
            return z3.BoolSort()
        case Kind.SIGNED | Kind.UNSIGNED:
            return z3.BitVecSort(dtype.bits)
        case Kind.INDEX:
            return z3.IntSort()
        case Kind.FLOAT:
            return z3.FPSort(*EXPONENT_AND_PRECISION[dtype.name])
        case Kind.CODE:  # a value is its 8 bits, so that there are two NaNs or more
            return z3.BitVecSort(8)
        case Kind.VOID:
            raise NoMeaning("void has no values")
        case _:
            assert_never(dtype.kind)


def constant(dtype: DType, value: float | bool) -> Term:
    """The SMT constant of a Python value. Raises: NoMeaning if an integer does not fit."""
    match dtype.kind:
        case Kind.BOOL:
            return z3.BoolVal(bool(value))
        case Kind.INDEX:
            return z3.IntVal(int(value))
        case Kind.SIGNED | Kind.UNSIGNED:
            if isinstance(value, float) and not value.is_integer():
                raise NoMeaning(f"{value} is not an integer, so not a value of {dtype.name}")
            assert dtype.lo is not None and dtype.hi is not None
            if not dtype.lo <= value <= dtype.hi:
                raise NoMeaning(f"{value} does not fit {dtype.name}")
            return z3.BitVecVal(int(value), dtype.bits)
        case Kind.FLOAT:
            return _float_constant(float(value), dtype)
        case _:
            raise NoMeaning(f"no constants of {dtype.name}")


def meaning(op: Ops, dtype: DType, args: Sequence[Term], src_dtypes: Sequence[DType]) -> Term:
    """The value of `op` on `args` (of the scalar types `src_dtypes`), as a value of `dtype`."""
    if op is Ops.WHERE:
        return z3.If(*args)
    if op is Ops.CAST:
        return cast(args[0], src_dtypes[0], dtype)
    if op is Ops.BITCAST:
        return bitcast(args[0], src_dtypes[0], dtype)
    operand = src_dtypes[0]
    match operand.kind:
        case Kind.BOOL:
            return _look_up(_ON_BOOLS, op, operand)(*args)
        case Kind.SIGNED:
            return _look_up(_ON_SIGNED, op, operand)(*args)
        case Kind.UNSIGNED:
            return _look_up(_ON_UNSIGNED, op, operand)(*args)
        case Kind.INDEX:
            return _look_up(ON_INTEGERS, op, operand)(*args)
        case Kind.FLOAT:
            return _look_up(_ON_FLOATS, op, operand)(*args)
        case _:
            raise NoMeaning(f"{op.name} is not defined on {operand.name}")


def same(left: Term, right: Term) -> Term:
    """Same bits, and any NaN is any NaN: in SMT-LIB a float sort has one NaN and two zeros."""
    return left == right


def same_but_for_zeros(left: Term, right: Term) -> Term:
    """The same, or two zeros."""
    if not z3.is_fp(left):
        return same(left, right)
    return z3.Or(same(left, right), z3.And(z3.fpIsZero(left), z3.fpIsZero(right)))


def number(value: Term, dtype: DType) -> Term:
    """The mathematical integer that a bool, machine integer or index value stands for."""
    match dtype.kind:
        case Kind.BOOL:
            return z3.If(value, z3.IntVal(1), z3.IntVal(0))
        case Kind.INDEX:
            return value
        case Kind.SIGNED | Kind.UNSIGNED:
            return z3.BV2Int(value, is_signed=dtype.kind is Kind.SIGNED)
        case _:
            raise NoMeaning(f"a {dtype.name} is not an integer")


def _look_up(table: dict[Ops, Callable[..., Term]], op: Ops, dtype: DType) -> Callable[..., Term]:
    found = table.get(op)
    if found is None:
        raise NoMeaning(f"{op.name} is not defined on {dtype.name}")
    return found


# -- mathematical integers ------------------------------------------------------------------------
# z3's `div` on Int rounds so that the remainder is not negative; for a positive divisor that is the
# floor. `mod` is the matching remainder.


def floor_quotient(x: Term, y: Term) -> Term:
    """x // y of mathematical integers, rounded down; 0 where y is 0."""
    return z3.If(y > 0, x / y, z3.If(y < 0, (-x) / (-y), z3.IntVal(0)))


def floor_remainder(x: Term, y: Term) -> Term:
    """x - y * (x // y), which has the sign of y; 0 where y is 0."""
    return z3.If(y > 0, x % y, z3.If(y < 0, -((-x) % (-y)), z3.IntVal(0)))


def truncated_quotient(x: Term, y: Term) -> Term:
    """x / y of mathematical integers, rounded towards 0; 0 where y is 0."""
    of_positive = z3.If(y > 0, x / y, -(x / (-y)))
    of_negative = z3.If(y > 0, -((-x) / y), (-x) / (-y))
    return z3.If(y == 0, z3.IntVal(0), z3.If(x >= 0, of_positive, of_negative))


def truncated_remainder(x: Term, y: Term) -> Term:
    """The remainder of the truncated quotient, which has the sign of x; 0 where y is 0."""
    size = z3.If(y > 0, y, -y)
    return z3.If(y == 0, z3.IntVal(0), z3.If(x >= 0, x % size, -((-x) % size)))


ON_INTEGERS: dict[Ops, Callable[..., Term]] = {
    Ops.NEG: lambda x: -x,
    Ops.ADD: lambda x, y: x + y,
    Ops.MUL: lambda x, y: x * y,
    Ops.MULACC: lambda x, y, z: x * y + z,
    Ops.FLOORDIV: floor_quotient,
    Ops.MOD: floor_remainder,
    Ops.TRUNCDIV: truncated_quotient,
    Ops.TRUNCMOD: truncated_remainder,
    Ops.MAX: lambda x, y: z3.If(x < y, y, x),
    Ops.MIN: lambda x, y: z3.If(x < y, x, y),
    Ops.CMPLT: lambda x, y: x < y,
    Ops.CMPEQ: lambda x, y: x == y,
}


# -- booleans -------------------------------------------------------------------------------------

_ON_BOOLS: dict[Ops, Callable[..., Term]] = {
    Ops.NOT: z3.Not,
    Ops.AND: z3.And,
    Ops.OR: z3.Or,
    Ops.XOR: z3.Xor,
    Ops.CMPLT: lambda x, y: z3.And(z3.Not(x), y),
    Ops.CMPEQ: lambda x, y: x == y,
}


# -- machine integers: two's complement -------------------------------------------------------------


def _or_zero(y: Term, value: Term) -> Term:
    """`value`, a division by `y`; 0 where y is 0."""
    return z3.If(y == 0, z3.BitVecVal(0, y.size()), value)


def _signed_floor_quotient(x: Term, y: Term) -> Term:
    # bvsdiv rounds towards zero; the floor is one below where the signs differ and it is not exact.
    inexact = z3.And(z3.SRem(x, y) != 0, (x < 0) != (y < 0))
    return _or_zero(y, z3.If(inexact, x / y - 1, x / y))


def _signed_floor_remainder(x: Term, y: Term) -> Term:
    remainder = z3.SRem(x, y)
    wrong_sign = z3.And(remainder != 0, (x < 0) != (y < 0))
    return _or_zero(y, z3.If(wrong_sign, remainder + y, remainder))


def _dot(extend: Callable[[int, Term], Term], x: Term, y: Term) -> Term:
    """The dot product of two words of two numbers each, which are extended to the width of the words."""
    half = x.size() // 2
    lower = [extend(half, z3.Extract(half - 1, 0, word)) for word in (x, y)]
    upper = [extend(half, z3.Extract(2 * half - 1, half, word)) for word in (x, y)]
    return lower[0] * lower[1] + upper[0] * upper[1]


_ON_EITHER: dict[Ops, Callable[..., Term]] = {
    Ops.NEG: lambda x: -x,
    Ops.NOT: lambda x: ~x,
    Ops.ADD: lambda x, y: x + y,
    Ops.MUL: lambda x, y: x * y,
    Ops.MULACC: lambda x, y, z: x * y + z,
    Ops.AND: lambda x, y: x & y,
    Ops.OR: lambda x, y: x | y,
    Ops.XOR: lambda x, y: x ^ y,
    # bvshl, bvlshr and bvashr read the amount as unsigned and are total: 0, 0, copies of the sign.
    Ops.SHL: lambda x, y: x << y,
    Ops.CMPEQ: lambda x, y: x == y,
}

_ON_SIGNED: dict[Ops, Callable[..., Term]] = {
    **_ON_EITHER,
    Ops.FLOORDIV: _signed_floor_quotient,
    Ops.MOD: _signed_floor_remainder,
    Ops.TRUNCDIV: lambda x, y: _or_zero(y, x / y),
    Ops.TRUNCMOD: lambda x, y: _or_zero(y, z3.SRem(x, y)),
    Ops.MAX: lambda x, y: z3.If(x < y, y, x),
    Ops.MIN: lambda x, y: z3.If(x < y, x, y),
    Ops.SHR: lambda x, y: x >> y,
    Ops.CMPLT: lambda x, y: x < y,
    Ops.DOT: lambda x, y: _dot(z3.SignExt, x, y),
}

_ON_UNSIGNED: dict[Ops, Callable[..., Term]] = {
    **_ON_EITHER,
    Ops.FLOORDIV: lambda x, y: _or_zero(y, z3.UDiv(x, y)),
    Ops.MOD: lambda x, y: _or_zero(y, z3.URem(x, y)),
    Ops.TRUNCDIV: lambda x, y: _or_zero(y, z3.UDiv(x, y)),
    Ops.TRUNCMOD: lambda x, y: _or_zero(y, z3.URem(x, y)),
    Ops.MAX: lambda x, y: z3.If(z3.ULT(x, y), y, x),
    Ops.MIN: lambda x, y: z3.If(z3.ULT(x, y), x, y),
    Ops.SHR: z3.LShR,
    Ops.CMPLT: z3.ULT,
    Ops.DOT: lambda x, y: _dot(z3.ZeroExt, x, y),
}


# -- floats: IEEE 754, to nearest even --------------------------------------------------------------


def _float_constant(value: float, dtype: DType) -> Term:
    sort = sort_of(dtype)
    value = round_float(value, dtype)
    if math.isnan(value):
        return z3.fpNaN(sort)
    if math.isinf(value):
        return z3.fpPlusInfinity(sort) if value > 0 else z3.fpMinusInfinity(sort)
    if value == 0.0:
        return z3.fpZero(sort, math.copysign(1.0, value) < 0)
    return z3.FPVal(value, sort)


def _extreme(x: Term, y: Term, x_wins: Term, negative_wins: bool) -> Term:
    """NaN if either is NaN; else x where it wins, y where it loses; of two zeros by sign."""
    of_equals = z3.If(z3.fpIsNegative(x) if negative_wins else z3.fpIsPositive(x), x, y)
    number = z3.If(x_wins, x, z3.If(z3.fpEQ(x, y), of_equals, y))
    return z3.If(z3.Or(z3.fpIsNaN(x), z3.fpIsNaN(y)), z3.fpNaN(x.sort()), number)


def _uninterpreted(name: str) -> Callable[..., Term]:
    """A function known only to be one: equal arguments give equal results."""

    def apply(*args: Term) -> Term:
        sort = args[0].sort()
        kinds = [sort] * (len(args) + 1)
        return z3.Function(f"{name}_{sort.ebits()}_{sort.sbits()}", *kinds)(*args)

    return apply


def _truncated_float_remainder(x: Term, y: Term) -> Term:
    """C's fmod from IEEE's remainder of the sizes, which is of the quotient rounded to nearest."""
    nearest = z3.fpRem(z3.fpAbs(x), z3.fpAbs(y))
    is_above = z3.fpLT(nearest, z3.fpPlusZero(x.sort()))
    size = z3.fpAbs(z3.If(is_above, z3.fpAdd(z3.RNE(), nearest, z3.fpAbs(y)), nearest))
    return z3.If(z3.fpIsNegative(x), z3.fpNeg(size), size)


def _to_tf32(x: Term) -> Term:
    """Through the format of as many exponents and 11 digits; one of no more digits has them all."""
    sort = x.sort()
    if sort.sbits() <= 11:
        return x
    short = z3.fpToFP(z3.RNA(), x, z3.FPSort(sort.ebits(), 11))
    return z3.fpToFP(z3.RNE(), short, sort)


_ON_FLOATS: dict[Ops, Callable[..., Term]] = {
    Ops.NEG: z3.fpNeg,
    Ops.ADD: lambda x, y: z3.fpAdd(z3.RNE(), x, y),
    Ops.MUL: lambda x, y: z3.fpMul(z3.RNE(), x, y),
    Ops.FDIV: lambda x, y: z3.fpDiv(z3.RNE(), x, y),
    Ops.FMOD: lambda x, y: _truncated_float_remainder(x, y),
    Ops.POW: _uninterpreted("pow"),
    Ops.SQRT: lambda x: z3.fpSqrt(z3.RNE(), x),
    Ops.TRUNC: lambda x: z3.fpRoundToIntegral(z3.RTZ(), x),
    Ops.TF32: lambda x: _to_tf32(x),
    Ops.FMA: lambda x, y, z: z3.fpFMA(z3.RNE(), x, y, z),
    Ops.EXP2: _uninterpreted("exp2"),
    Ops.EXP: _uninterpreted("exp"),
    Ops.LOG2: _uninterpreted("log2"),
    Ops.SIN: _uninterpreted("sin"),
    Ops.COS: _uninterpreted("cos"),
    Ops.MAX: lambda x, y: _extreme(x, y, z3.fpGT(x, y), negative_wins=False),
    Ops.MIN: lambda x, y: _extreme(x, y, z3.fpLT(x, y), negative_wins=True),
    Ops.CMPLT: z3.fpLT,
    Ops.CMPEQ: z3.fpEQ,
}


# What docs/numerics.md promises of functions whose values are not proven. Only lines of facts assume
# it, and say so in docs/trust.md; every backend is tested for it.
PUBLISHED: dict[Ops, Callable[[Term, Term], list[Term]]] = {
    Ops.EXP2: lambda x, y: _power_of_a_number(x, y),
    Ops.EXP: lambda x, y: _power_of_a_number(x, y),
    Ops.LOG2: lambda x, y: [
        z3.fpIsNaN(y) == z3.Or(z3.fpIsNaN(x), z3.fpLT(x, z3.fpPlusZero(x.sort())))
    ],
    Ops.SIN: lambda x, y: _number_of_a_number(x, y),
    Ops.COS: lambda x, y: _number_of_a_number(x, y),
}


def _power_of_a_number(x: Term, y: Term) -> list[Term]:
    return [z3.fpIsNaN(y) == z3.fpIsNaN(x), z3.Not(z3.fpIsNegative(y))]


def _number_of_a_number(x: Term, y: Term) -> list[Term]:
    return [z3.fpIsNaN(y) == z3.Or(z3.fpIsNaN(x), z3.fpIsInf(x)), z3.Not(z3.fpIsInf(y))]


# -- casts ------------------------------------------------------------------------------------------


def cast(x: Term, source: DType, target: DType) -> Term:
    """The value `x` of type `source` as a value of `target`, by the rules of Ops.CAST."""
    if target is source:
        return x
    if Kind.CODE in (source.kind, target.kind):
        return _to_code(x, source, target) if target.is_code else _from_code(x, source, target)
    if target.kind is Kind.BOOL:
        return z3.Not(z3.fpIsZero(x)) if source.is_float else x != 0
    match source.kind:
        case Kind.BOOL:
            return z3.If(x, constant(target, 1), constant(target, 0))
        case Kind.FLOAT:
            return (
                z3.fpFPToFP(z3.RNE(), x, sort_of(target)) if target.is_float else _to_int(x, target)
            )
        case Kind.SIGNED | Kind.UNSIGNED:
            return _from_machine_int(x, source, target)
        case Kind.INDEX:
            if target.is_float:
                return z3.fpToFP(z3.RNE(), z3.ToReal(x), sort_of(target))
            return z3.Int2BV(x, target.bits)
        case _:
            raise NoMeaning(f"no cast from {source.name} to {target.name}")


def _from_machine_int(x: Term, source: DType, target: DType) -> Term:
    signed = source.kind is Kind.SIGNED
    match target.kind:
        case Kind.FLOAT:
            convert = z3.fpSignedToFP if signed else z3.fpUnsignedToFP
            return convert(z3.RNE(), x, sort_of(target))
        case Kind.INDEX:
            return z3.BV2Int(x, is_signed=signed)
        case _:
            if target.bits <= source.bits:
                return z3.Extract(target.bits - 1, 0, x)
            extend = z3.SignExt if signed else z3.ZeroExt
            return extend(target.bits - source.bits, x)


def _to_int(x: Term, target: DType) -> Term:
    """Towards zero, saturating at the ends of the type, NaN gives 0."""
    if target.kind is Kind.INDEX:
        raise NoMeaning("no cast from a float to index")
    assert target.lo is not None and target.hi is not None
    sort, bits = x.sort(), target.bits
    signed = target.kind is Kind.SIGNED
    # one above `hi` and `lo` are powers of two (or 0), so exact, or infinite in a small format
    too_high = z3.fpGEQ(x, z3.fpToFP(z3.RNE(), z3.RealVal(target.hi + 1), sort))
    too_low = z3.fpLEQ(x, z3.fpToFP(z3.RNE(), z3.RealVal(target.lo), sort))
    convert = z3.fpToSBV if signed else z3.fpToUBV
    inside = convert(z3.RTZ(), x, z3.BitVecSort(bits))
    high, low = z3.BitVecVal(target.hi, bits), z3.BitVecVal(target.lo, bits)
    saturated = z3.If(too_high, high, z3.If(too_low, low, inside))
    return z3.If(z3.fpIsNaN(x), z3.BitVecVal(0, bits), saturated)


# Of the 8-bit floats see codes.py.


def _to_code(x: Term, source: DType, target: DType) -> Term:
    """Rounded to nearest even, once."""
    if source.kind is Kind.BOOL:
        return z3.If(x, z3.BitVecVal(ONES[target.name], 8), z3.BitVecVal(0, 8))
    if source.kind is Kind.INDEX:
        raise NoMeaning(f"no cast from {source.name} to {target.name}")
    if source.is_code:
        number = number_of_code(x, source)
        return code_of_float(z3.fpFPToFP(z3.RNE(), number, z3.Float32()), target)
    if source.kind is Kind.FLOAT:
        return code_of_float(x, target)
    convert = z3.fpSignedToFP if source.kind is Kind.SIGNED else z3.fpUnsignedToFP
    extend = z3.SignExt if source.kind is Kind.SIGNED else z3.ZeroExt
    wide = extend(8, x) if source.bits == 8 else x  # of 8 bits cvc5 gives other numbers than z3
    rounded = convert(z3.RNE(), wide, sort_of_numbers(target))
    return z3.If(x == 0, z3.BitVecVal(0, 8), code_of_rounded(rounded, target))


def _from_code(x: Term, source: DType, target: DType) -> Term:
    value = number_of_code(x, source)
    if target.kind is Kind.BOOL:
        return z3.Not(z3.fpIsZero(value))
    if target.kind is Kind.FLOAT:
        return z3.fpFPToFP(z3.RNE(), value, sort_of(target))
    return _to_int(value, target)


def bitcast(x: Term, source: DType, target: DType) -> Term:
    """The same bits; a NaN has some NaN's bits (one choice for each width)."""
    if source is target:
        return x
    if source.bits != target.bits or Kind.BOOL in (source.kind, target.kind):
        raise NoMeaning(f"no bitcast from {source.name} to {target.name}")
    as_bits = z3.fpToIEEEBV(x) if source.is_float else x
    return z3.fpBVToFP(as_bits, sort_of(target)) if target.is_float else as_bits
