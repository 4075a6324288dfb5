"""Mathematical numbers in conditions and computed constants, as SMT terms.

Owns: the SMT meaning of every function of core/rewrite/functions.py on numbers. A number is an Int
term or, where it comes from machine integers, a bit-vector wide enough that nothing wraps: solvers
decide those much faster. Does not own: which number a name stands for (encode/goal.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import z3

from proofgrad.core.ir.dtypes import DType, Kind
from proofgrad.core.rewrite.functions import MOST_SHIFT
from proofgrad.verify.encode.fresh_terms import Function
from proofgrad.verify.encode.semantics import NoMeaning, floor_quotient, floor_remainder, sort_of

Term = Any
WIDEST = 1024  # bits; a condition that needs more is refused


@dataclass(frozen=True, slots=True)
class Wide:
    """A signed bit-vector that holds every integer from `lo` to `hi`, and whose value is one.

    `known`: where it is a number; a shift by a negative amount is none, nor is one by more than MOST_SHIFT. None: everywhere.
    """

    bits: Term
    lo: int
    hi: int
    known: Term | None = None


Number = Wide | Term


def of_value(value: Term, dtype: DType) -> Number:
    """The number that a value of a bool or integer type stands for."""
    match dtype.kind:
        case Kind.BOOL:
            return Wide(z3.If(value, z3.BitVecVal(1, 2), z3.BitVecVal(0, 2)), 0, 1)
        case Kind.SIGNED:
            assert dtype.lo is not None and dtype.hi is not None
            return Wide(value, dtype.lo, dtype.hi)
        case Kind.UNSIGNED:
            assert dtype.hi is not None
            return Wide(z3.ZeroExt(1, value), 0, dtype.hi)
        case Kind.INDEX:
            return value
        case Kind.FLOAT:
            return value
        case _:
            raise NoMeaning(f"a {dtype.name} is not a number")


def literal(value: float | bool, like: str) -> Number:
    """A number written in a rule; `like` is "wide", "int" or "float"."""
    if isinstance(value, bool):
        return z3.BoolVal(value)
    if like == "float" or isinstance(value, float):
        return z3.FPVal(value, z3.Float64())
    if like == "int":
        return z3.IntVal(value)
    return Wide(z3.BitVecVal(value, _bits_for(value, value)), value, value)


def to_value(value: Number, dtype: DType) -> tuple[Term, Term]:
    """The number as a value of `dtype`, and the condition that it is one exactly.

    A number has one zero: of a float it is 0.0.
    """
    result, fits = _exact_value(value, dtype)
    if isinstance(value, Wide) and value.known is not None:
        fits = z3.And(fits, value.known)
    return (_with_one_zero(result) if dtype.is_float else result), fits


def _with_one_zero(value: Term) -> Term:
    return z3.If(z3.fpIsZero(value), z3.fpPlusZero(value.sort()), value)


def _exact_value(value: Number, dtype: DType) -> tuple[Term, Term]:
    if isinstance(value, Wide):
        if dtype.kind is Kind.INDEX:
            return as_int(value), z3.BoolVal(True)
        return _from_wide(value, dtype)
    if z3.is_fp(value) and value.sort() == sort_of(dtype):
        return value, z3.BoolVal(True)
    if z3.is_fp(value):
        value = _at_sort(value, z3.Float64())
        narrow = z3.fpFPToFP(z3.RNE(), value, sort_of(dtype))
        return narrow, z3.fpFPToFP(z3.RNE(), narrow, z3.Float64()) == value
    if z3.is_bool(value):
        return value, z3.BoolVal(True)
    if dtype.kind is Kind.INDEX:
        return value, z3.BoolVal(True)
    raise NoMeaning(f"an unbounded number as a constant of {dtype.name}")


def apply(function: str, args: list[Number]) -> Number:
    """The function of the closed set called `function`. Raises: NoMeaning."""
    if function in _LOGIC:
        return _LOGIC[function](*args)
    if any(z3.is_fp(a) for a in args if not isinstance(a, Wide)):
        return _look_up(_ON_FLOATS, function)(*_on_one_sort(args))
    if all(isinstance(a, Wide) for a in args):
        return _look_up(_ON_WIDE, function)(*args)
    return _look_up(_ON_INTS, function)(*[as_int(a) for a in args])


def as_int(value: Number) -> Term:
    """A number as an Int term."""
    return z3.BV2Int(value.bits, is_signed=True) if isinstance(value, Wide) else value


def fresh_between(name: str, dtype: DType) -> tuple[Number, list[Term]]:
    """An unknown number in the range of `dtype` (any integer for index), and what says so.

    For a float it is any value of its type but NaN.
    """
    if dtype.kind is Kind.INDEX:
        return z3.Int(name), []
    if dtype.is_float:
        bound = z3.FP(name, sort_of(dtype))
        return bound, [z3.Not(z3.fpIsNaN(bound))]
    if dtype.lo is None or dtype.hi is None:
        raise NoMeaning(f"no bounds of a {dtype.name}")
    width = _bits_for(dtype.lo, dtype.hi)
    bits = z3.BitVec(name, width)
    return Wide(bits, dtype.lo, dtype.hi), [bits >= dtype.lo, bits <= dtype.hi]


def is_finite(value: Term) -> Term:
    """Whether a float is neither infinite nor NaN."""
    return z3.Not(z3.Or(z3.fpIsNaN(value), z3.fpIsInf(value)))


def _look_up(table: dict[str, Callable[..., Number]], function: str) -> Callable[..., Number]:
    found = table.get(function)
    if found is None:
        raise NoMeaning(f"{function} has no meaning on these numbers")
    return found


_LOGIC: dict[str, Callable[..., Term]] = {
    "and": lambda *args: z3.And(*args),
    "or": lambda *args: z3.Or(*args),
    "not": z3.Not,
}


# -- wide bit-vectors -------------------------------------------------------------------------------


def _bits_for(lo: int, hi: int) -> int:
    """Bits of a signed number that holds lo .. hi."""
    return 1 + max(hi.bit_length() if hi > 0 else 0, (-lo - 1).bit_length() if lo < 0 else 0)


def _resize(value: Term, width: int) -> Term:
    size = value.size()
    if width > WIDEST:
        raise NoMeaning(f"a condition needs {width} bits; at most {WIDEST} are supported")
    if width >= size:
        return z3.SignExt(width - size, value) if width > size else value
    return z3.Extract(width - 1, 0, value)


def _wide(operation: Callable[..., Term], lo: int, hi: int, *args: Wide) -> Wide:
    """`operation` done at a width that holds the arguments and every result lo .. hi."""
    width = max(_bits_for(lo, hi), *[a.bits.size() for a in args]) + 1
    result = operation(*[_resize(a.bits, width) for a in args])
    return Wide(_resize(result, _bits_for(lo, hi)), lo, hi, _known(*args))


def _known(*args: Wide) -> Term | None:
    """Where all of these are numbers."""
    conditions = [a.known for a in args if a.known is not None]
    return z3.And(*conditions) if conditions else None


def _corners(function: Callable[[int, int], int], a: Wide, b: Wide) -> tuple[int, int]:
    values = [function(x, y) for x in (a.lo, a.hi) for y in (b.lo, b.hi)]
    return min(values), max(values)


def _wide_add(a: Wide, b: Wide) -> Wide:
    return _wide(lambda x, y: x + y, a.lo + b.lo, a.hi + b.hi, a, b)


def _wide_sub(a: Wide, b: Wide) -> Wide:
    return _wide(lambda x, y: x - y, a.lo - b.hi, a.hi - b.lo, a, b)


def _wide_mul(a: Wide, b: Wide) -> Wide:
    return _wide(lambda x, y: x * y, *_corners(lambda x, y: x * y, a, b), a, b)


def _wide_floordiv(a: Wide, b: Wide) -> Wide:
    size = max(abs(a.lo), abs(a.hi), 1)
    return _wide(_floor_quotient, -size, size, a, b)


def _wide_mod(a: Wide, b: Wide) -> Wide:
    size = max(abs(b.lo), abs(b.hi))
    return _wide(_floor_remainder, -size, size, a, b)


def _floor_quotient(x: Term, y: Term) -> Term:
    inexact = z3.And(z3.SRem(x, y) != 0, (x < 0) != (y < 0))
    return z3.If(y == 0, z3.BitVecVal(0, y.size()), z3.If(inexact, x / y - 1, x / y))


def _floor_remainder(x: Term, y: Term) -> Term:
    rest = z3.SRem(x, y)
    moved = z3.If(z3.And(rest != 0, (x < 0) != (y < 0)), rest + y, rest)
    return z3.If(y == 0, z3.BitVecVal(0, y.size()), moved)


def _wide_neg(a: Wide) -> Wide:
    return _wide(lambda x: -x, -a.hi, -a.lo, a)


def _wide_min(a: Wide, b: Wide) -> Wide:
    return _wide(lambda x, y: z3.If(x < y, x, y), min(a.lo, b.lo), min(a.hi, b.hi), a, b)


def _wide_max(a: Wide, b: Wide) -> Wide:
    return _wide(lambda x, y: z3.If(x < y, y, x), max(a.lo, b.lo), max(a.hi, b.hi), a, b)


def _wide_abs(a: Wide) -> Wide:
    return _wide(lambda x: z3.If(x < 0, -x, x), 0, max(abs(a.lo), abs(a.hi)), a)


def _wide_compare(operation: Callable[[Term, Term], Term]) -> Callable[[Wide, Wide], Term]:
    def compare(a: Wide, b: Wide) -> Term:
        width = max(a.bits.size(), b.bits.size())
        return operation(_resize(a.bits, width), _resize(b.bits, width))

    return compare


def _wide_divides(a: Wide, b: Wide) -> Term:
    width = max(a.bits.size(), b.bits.size())
    x, y = _resize(a.bits, width), _resize(b.bits, width)
    return z3.If(x == 0, y == 0, z3.SRem(y, x) == 0)


def _wide_is_power_of_two(a: Wide) -> Term:
    return z3.And(a.bits > 0, a.bits & (a.bits - 1) == 0)


def _wide_log2_exact(a: Wide) -> Wide:
    """The position of the highest bit; 0 for numbers below 1."""
    highest = max(a.hi, 1).bit_length() - 1
    width = _bits_for(0, highest)
    result = z3.BitVecVal(0, width)
    for position in range(1, highest + 1):
        result = z3.If(a.bits >= (1 << position), z3.BitVecVal(position, width), result)
    return Wide(result, 0, highest, a.known)


# Bits of numbers: a negative one begins with ones without end, as its sign extension does.


def _all_of(width: int) -> tuple[int, int]:
    """The range of signed numbers of `width` bits."""
    return -(1 << (width - 1)), (1 << (width - 1)) - 1


def _wide_and(a: Wide, b: Wide) -> Wide:
    low, high = _all_of(max(a.bits.size(), b.bits.size()))
    tops = [side.hi for side in (a, b) if side.lo >= 0]
    low, high = (0, min(tops)) if tops else (low, high)
    return _wide(lambda x, y: x & y, low, high, a, b)


def _wide_or(a: Wide, b: Wide) -> Wide:
    return _wide(lambda x, y: x | y, *_range_of_either(a, b), a, b)


def _wide_xor(a: Wide, b: Wide) -> Wide:
    return _wide(lambda x, y: x ^ y, *_range_of_either(a, b), a, b)


def _range_of_either(a: Wide, b: Wide) -> tuple[int, int]:
    low, high = _all_of(max(a.bits.size(), b.bits.size()))
    return (0, high) if a.lo >= 0 and b.lo >= 0 else (low, high)


def _wide_flipped(a: Wide) -> Wide:
    return _wide(lambda x: ~x, -1 - a.hi, -1 - a.lo, a)


def _wide_shift_left(a: Wide, k: Wide) -> Wide:
    """A number where k is 0 .. MOST_SHIFT; elsewhere the bits are any."""
    most = max(min(k.hi, MOST_SHIFT), 0)
    low, high = min(a.lo, a.lo << most), max(a.hi, a.hi << most)
    width = max(_bits_for(low, high), a.bits.size(), k.bits.size()) + 1
    amount = _resize(k.bits, width)
    is_amount = z3.And(amount >= 0, amount <= most)
    shifted = _resize(a.bits, width) << z3.If(is_amount, amount, z3.BitVecVal(0, width))
    known = _known(a, k, replace(k, known=is_amount))
    return Wide(_resize(shifted, _bits_for(low, high)), low, high, known)


def _wide_shift_right(a: Wide, k: Wide) -> Wide:
    """A number where k is not negative; elsewhere the bits are any."""
    low, high = min(a.lo, 0), max(a.hi, -1, 0)
    shifted = _wide(lambda x, y: x >> y, low, high, a, k)
    return replace(shifted, known=_known(a, k, replace(k, known=k.bits >= 0)))


def _wide_fill(a: Wide) -> Wide:
    """Every bit below the highest of a set; -1 for a negative number."""
    width = a.bits.size()
    result, step = a.bits, 1
    while step < width:
        result, step = result | z3.LShR(result, step), 2 * step
    low, high = min(a.lo, 0), (1 << max(a.hi, 0).bit_length()) - 1
    filled = z3.If(a.bits < 0, z3.BitVecVal(-1, width), result)
    return Wide(filled, max(low, -1), max(high, 0), a.known)


def wrapped(value: Number, dtype: DType) -> Number:
    """The number of the type that differs from `value` by a multiple of 2**bits."""
    if not isinstance(value, Wide) or dtype.kind not in (Kind.SIGNED, Kind.UNSIGNED):
        raise NoMeaning(f"wrapped has no meaning on these numbers, or at {dtype.name}")
    return replace(of_value(_resize(value.bits, dtype.bits), dtype), known=value.known)


_ON_WIDE: dict[str, Callable[..., Number]] = {
    "+": _wide_add,
    "-": _wide_sub,
    "*": _wide_mul,
    "//": _wide_floordiv,
    "%": _wide_mod,
    "neg": _wide_neg,
    "min": _wide_min,
    "max": _wide_max,
    "abs": _wide_abs,
    "<": _wide_compare(lambda x, y: x < y),
    "<=": _wide_compare(lambda x, y: x <= y),
    ">": _wide_compare(lambda x, y: x > y),
    ">=": _wide_compare(lambda x, y: x >= y),
    "==": _wide_compare(lambda x, y: x == y),
    "!=": _wide_compare(lambda x, y: x != y),
    "divides": _wide_divides,
    "is_power_of_two": _wide_is_power_of_two,
    "log2_exact": _wide_log2_exact,
    "&": _wide_and,
    "|": _wide_or,
    "^": _wide_xor,
    "<<": _wide_shift_left,
    ">>": _wide_shift_right,
    "without": lambda a, b: _wide_and(a, _wide_flipped(b)),
    "fill": _wide_fill,
}


def _from_wide(value: Wide, dtype: DType) -> tuple[Term, Term]:
    if dtype.is_float:
        exact = z3.fpToFP(z3.RNE(), z3.ToReal(as_int(value)), sort_of(dtype))
        return exact, z3.fpToReal(exact) == z3.ToReal(as_int(value))
    if dtype.is_bool:
        return value.bits != 0, z3.And(value.bits >= 0, value.bits <= 1)
    assert dtype.lo is not None and dtype.hi is not None
    width = max(value.bits.size(), dtype.bits + 1)
    bits = _resize(value.bits, width)
    fits = z3.And(bits >= dtype.lo, bits <= dtype.hi)
    return z3.Extract(dtype.bits - 1, 0, bits), fits


# -- unbounded integers -----------------------------------------------------------------------------

_IS_POWER = Function("is_power_of_two", z3.IntSort, z3.BoolSort)
_LOG2 = Function("log2_exact", z3.IntSort, z3.IntSort)

_ON_INTS: dict[str, Callable[..., Number]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": floor_quotient,
    "%": floor_remainder,
    "neg": lambda a: -a,
    "min": lambda a, b: z3.If(a < b, a, b),
    "max": lambda a, b: z3.If(a < b, b, a),
    "abs": lambda a: z3.If(a < 0, -a, a),
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "divides": lambda a, b: z3.If(a == 0, b == 0, b == a * floor_quotient(b, a)),
    # known only to be functions: what follows from less holds for the real ones
    "is_power_of_two": lambda a: z3.And(a >= 1, _IS_POWER(a)),
    "log2_exact": lambda a: _LOG2(a),
}


# -- floats: of one format, or compared exactly in float64, of which every format is a part ----------


def _on_one_sort(values: list[Number]) -> list[Term]:
    """The numbers as floats of one format in which all of them are exact."""
    formats = {v.sort() for v in values if not isinstance(v, Wide) and _is_variable_float(v)}
    if len(formats) == 1:
        (sort,) = formats
        exact = [_exact_at(value, sort) for value in values]
        if None not in exact:
            return exact
    exact = [_exact_at(value, z3.Float64()) for value in values]
    if None in exact:
        raise NoMeaning("a float and an integer that float64 may not hold in one condition")
    return exact


def _is_variable_float(value: Term) -> bool:
    return z3.is_fp(value) and not z3.is_fp_value(value)


def _exact_at(value: Number, sort: Any) -> Term | None:
    """The number as a float of the format `sort`; None if it may not be exact there."""
    if isinstance(value, Wide):
        if max(-value.lo, value.hi) > 1 << sort.sbits():
            return None
        if value.lo == value.hi:
            return z3.FPVal(float(value.lo), sort)
        return z3.fpSignedToFP(z3.RNE(), value.bits, sort)
    if z3.is_int_value(value):
        value = z3.FPVal(float(value.as_long()), z3.Float64())
    if not z3.is_fp(value):
        return None
    if value.sort() == sort:
        return value
    if z3.is_fp_value(value):
        narrow = z3.simplify(_at_sort(value, sort))
        back = z3.simplify(_at_sort(narrow, value.sort()))
        return narrow if back.eq(z3.simplify(value)) else None
    wider = sort.ebits() >= value.sort().ebits() and sort.sbits() >= value.sort().sbits()
    return _at_sort(value, sort) if wider else None


def _at_sort(value: Term, sort: Any) -> Term:
    return value if value.sort() == sort else z3.fpFPToFP(z3.RNE(), value, sort)


_ON_FLOATS: dict[str, Callable[..., Number]] = {
    # of numbers that are not NaN; a condition on NaN is false here, and unknown to the engine
    "min": lambda a, b: z3.If(z3.fpLT(a, b), a, b),
    "max": lambda a, b: z3.If(z3.fpLT(a, b), b, a),
    "neg": z3.fpNeg,
    "abs": z3.fpAbs,
    "<": z3.fpLT,
    "<=": z3.fpLEQ,
    ">": z3.fpGT,
    ">=": z3.fpGEQ,
    "==": z3.fpEQ,
    "!=": lambda a, b: z3.Not(z3.fpEQ(a, b)),
}
