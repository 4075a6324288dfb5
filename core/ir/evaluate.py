"""The meaning of every arithmetic operation in plain Python: the reference interpreter's values.

Owns: the value of each ALU op, CAST and BITCAST on scalars and lanes, the bits of a value, the
identity of each reduction. Does not own: memory and loops (backends/reference), the same meanings
as SMT terms (verify/encode/semantics.py, which shares no code with this file).

A value is a bool, an int within the range of its type, or a double that is exact in its float type.
A NaN is any NaN: payload and sign of a NaN mean nothing.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from proofgrad.core.ir.dtypes import DType, Kind, dtypes, round_float, wrap_int
from proofgrad.core.ir.ops import Ops

Value = bool | int | float


def evaluate(
    op: Ops, dtype: DType, args: Sequence[Any], src_dtypes: Sequence[DType] = (), arg: Any = None
) -> Any:
    """The value of type `dtype` that `op` gives for the scalar values `args`.

    `src_dtypes` is needed by BITCAST only. Raises: ValueError for an op that is not elementwise.

    Example:
        evaluate(Ops.ADD, dtypes.uint8, (250, 10))  # 4
    """
    if op is Ops.CONST:
        return arg
    if op is Ops.CAST:
        return cast(args[0], dtype)
    if op is Ops.BITCAST:
        return from_bits(to_bits(args[0], src_dtypes[0]), dtype)
    if op is Ops.WHERE:
        return args[1] if args[0] else args[2]
    meaning = _table(args[0]).get(op)
    if meaning is None:
        raise ValueError(f"{op.name} has no meaning on a value of type {type(args[0]).__name__}")
    return meaning(dtype, *args)


def _table(value: Value) -> dict[Ops, Callable[..., Any]]:
    if isinstance(value, float):
        return _FLOAT
    return _BOOL if isinstance(value, bool) else _INT


def evaluate_lanes(
    op: Ops, dtype: DType, args: Sequence[Any], src_dtypes: Sequence[DType] = (), arg: Any = None
) -> Any:
    """As `evaluate`, lane by lane: an argument of a vector type is a tuple of its lanes.

    A scalar argument beside vectors (the condition of a WHERE) is used in every lane.
    """
    if dtype.lanes == 1:
        return evaluate(op, dtype, args, src_dtypes, arg)
    scalars = [d.scalar for d in src_dtypes]
    lanes = [a if isinstance(a, tuple) else (a,) * dtype.lanes for a in args]
    return tuple([evaluate(op, dtype.scalar, lane, scalars, arg) for lane in zip(*lanes)])


def identity(op: Ops, dtype: DType) -> Value:
    """What a reduction by `op` over nothing gives: 0, 1, the smallest, the largest value."""
    values: dict[Ops, Value] = {
        Ops.ADD: 0.0 if dtype.is_float else 0,
        Ops.MUL: 1.0 if dtype.is_float else 1,
        Ops.MAX: dtypes.min(dtype),
        Ops.MIN: dtypes.max(dtype),
    }
    if op not in values:
        raise ValueError(f"{op.name} is not a reduction; expected ADD, MUL, MAX or MIN")
    return values[op]


# -- conversions ------------------------------------------------------------------------------------


def cast(value: Value, dtype: DType) -> Value:
    """`value` in the scalar type `dtype`, by the meaning of CAST."""
    match dtype.kind:
        case Kind.BOOL:
            return value != 0
        case Kind.FLOAT | Kind.CODE if isinstance(value, float):
            return round_float(value, dtype)
        case Kind.FLOAT | Kind.CODE:
            return _int_to_float(int(value), dtype)
        case Kind.SIGNED | Kind.UNSIGNED if isinstance(value, float):
            return _saturate(value, dtype)
        case Kind.SIGNED | Kind.UNSIGNED:
            return wrap_int(int(value), dtype)
        case Kind.INDEX if not isinstance(value, float):
            return int(value)
        case _:
            raise ValueError(f"cannot cast {value!r} to {dtype!r}")


def _int_to_float(value: int, dtype: DType) -> float:
    """`value` rounded once to nearest even.

    More than 53 bits are cut to 53 with a sticky last one (round to odd), which the second rounding
    cannot tell from the exact number. Source: Boldo and Melquiond, "Emulation of FMA", 2008.
    """
    sign, magnitude = (-1.0, -value) if value < 0 else (1.0, value)
    spare = magnitude.bit_length() - 53
    if spare > 1024 - 53:  # 2**1024 or more
        return sign * math.inf
    if spare > 0 and dtype is not dtypes.float64:
        is_inexact = magnitude & ((1 << spare) - 1) != 0
        magnitude = (magnitude >> spare | is_inexact) << spare
    try:
        return round_float(sign * float(magnitude), dtype)
    except OverflowError:  # of a number that rounds up to 2**1024
        return sign * math.inf


def _saturate(value: float, dtype: DType) -> int:
    assert dtype.lo is not None and dtype.hi is not None
    if math.isnan(value):
        return 0
    if math.isinf(value):
        return dtype.hi if value > 0 else dtype.lo
    return min(max(math.trunc(value), dtype.lo), dtype.hi)


_NAN_CODE = 0x7F  # of the 8-bit floats of the OCP, which have others
_NAN_FNUZ = 0x80  # where -0.0 is in other formats
_FLOAT_CODES = {"float16": ("<e", "<H"), "float32": ("<f", "<I"), "float64": ("<d", "<Q")}


def to_bits(value: Value, dtype: DType) -> int:
    """The bits of a value of the scalar type `dtype`, as a number of 0 or more."""
    if dtype is dtypes.bfloat16:
        return to_bits(float(value), dtypes.float32) >> 16
    if dtype.is_code:
        return _code(float(value), dtype)
    if dtype.is_float:
        as_float, as_int = _FLOAT_CODES[dtype.name]
        return int(struct.unpack(as_int, struct.pack(as_float, value))[0])
    return int(value) & ((1 << dtype.bits) - 1)


def from_bits(bits: int, dtype: DType) -> Value:
    """The value of the scalar type `dtype` that has these bits."""
    if dtype is dtypes.bfloat16:
        return from_bits(bits << 16, dtypes.float32)
    if dtype.is_code:
        return _decoded(bits, dtype)
    if dtype.is_float:
        as_float, as_int = _FLOAT_CODES[dtype.name]
        return float(struct.unpack(as_float, struct.pack(as_int, bits))[0])
    return bits != 0 if dtype.is_bool else wrap_int(bits, dtype)


def _code(value: float, dtype: DType) -> int:
    """The 8 bits of a value of an 8-bit float: sign, exponent with its bias, fraction."""
    sign = 0x80 if math.copysign(1.0, value) < 0.0 else 0
    exponent_bits, fraction_bits = dtypes.finfo(dtype)
    bias = _bias(dtype)
    if math.isnan(value):
        return _NAN_FNUZ if dtype in dtypes.fp8_fnuz else _NAN_CODE
    if value == 0.0 and dtype in dtypes.fp8_fnuz:
        return 0
    if math.isinf(value):
        return sign | ((1 << exponent_bits) - 1) << fraction_bits
    exponent = max(math.frexp(value)[1] - 1, 1 - bias) if value else 1 - bias
    digits = int(math.ldexp(abs(value), fraction_bits - exponent))  # with the leading one, if any
    return sign | (((exponent + bias - 1) << fraction_bits) + digits)


def _bias(dtype: DType) -> int:
    """What is added to the exponent of an 8-bit float; one more in the formats named fnuz."""
    middle: int = 1 << (dtypes.finfo(dtype)[0] - 1)
    return middle if dtype in dtypes.fp8_fnuz else middle - 1


def _decoded(bits: int, dtype: DType) -> float:
    if bits == _NAN_FNUZ and dtype in dtypes.fp8_fnuz:
        return math.nan
    exponent_bits, fraction_bits = dtypes.finfo(dtype)
    size, ones = bits & 0x7F, (1 << fraction_bits) - 1
    exponent, fraction = size >> fraction_bits, size & ones
    sign = -1.0 if bits & 0x80 else 1.0
    if dtype is dtypes.fp8e4m3 and size == _NAN_CODE:
        return math.nan
    if dtype is dtypes.fp8e5m2 and exponent == (1 << exponent_bits) - 1:
        return math.nan if fraction else sign * math.inf
    digits = fraction + (ones + 1 if exponent else 0)
    least = 1 - _bias(dtype) - fraction_bits
    return math.copysign(math.ldexp(digits, max(exponent, 1) - 1 + least), sign)


# -- floats -----------------------------------------------------------------------------------------


def _rounded(function: Callable[..., float]) -> Callable[..., float]:
    """`function` computed in double and rounded once more to the type.

    For ADD, MUL, FDIV and SQRT of formats with at most 24 bits this gives the same as one rounding,
    since 53 >= 2 * 24 + 2. Source: Figueroa, "When is double rounding innocuous?", 1995.
    """
    return lambda dtype, *args: round_float(function(*args), dtype)


def _divide(x: float, y: float) -> float:
    if y != 0.0:
        return x / y
    if x == 0.0 or math.isnan(x):
        return math.nan
    return math.copysign(math.inf, x) * math.copysign(1.0, y)


def _sqrt(x: float) -> float:
    return math.nan if x < 0.0 else math.sqrt(x)


def _exp2(x: float) -> float:
    try:
        return math.exp2(x)
    except OverflowError:
        return math.inf


def _exp(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def _log2(x: float) -> float:
    if x == 0.0:
        return -math.inf
    return math.nan if x < 0.0 else math.log2(x)


def _sin(x: float) -> float:
    return math.nan if math.isinf(x) else math.sin(x)


def _cos(x: float) -> float:
    return math.nan if math.isinf(x) else math.cos(x)


def _fmod(_: DType, x: float, y: float) -> float:
    return math.nan if math.isinf(x) or y == 0.0 else math.fmod(x, y)


def _pow(x: float, y: float) -> float:
    is_odd = math.isfinite(y) and math.fmod(y, 2.0) in (1.0, -1.0)
    try:
        return math.pow(x, y)
    except OverflowError:
        return -math.inf if x < 0.0 and is_odd else math.inf
    except ValueError:  # of 0 to a power below 0, and where there is no real power
        return math.nan if x else math.copysign(math.inf, x) if is_odd else math.inf


def _trunc(_: DType, x: float) -> float:
    return math.copysign(float(math.trunc(x)), x) if math.isfinite(x) else x


def _to_tf32(dtype: DType, x: float) -> float:
    """11 binary digits, or as many as a denormal number has of these; the half goes away from 0."""
    if not math.isfinite(x) or x == 0.0:
        return x
    exponent, fraction = dtypes.finfo(dtype)
    least = 2 - (1 << (exponent - 1))
    last = max(math.frexp(x)[1] - 1, least) - min(fraction, 10)
    digits = math.floor(math.ldexp(abs(x), -last) + 0.5)
    try:
        return round_float(math.copysign(math.ldexp(digits, last), x), dtype)
    except OverflowError:
        return math.copysign(math.inf, x)


def _float_max(_: DType, x: float, y: float) -> float:
    if math.isnan(x) or math.isnan(y):
        return math.nan
    return (y if math.copysign(1.0, x) < 0.0 else x) if x == y else max(x, y)


def _float_min(_: DType, x: float, y: float) -> float:
    if math.isnan(x) or math.isnan(y):
        return math.nan
    return (x if math.copysign(1.0, x) < 0.0 else y) if x == y else min(x, y)


def _float_mulacc(dtype: DType, x: float, y: float, z: float) -> float:
    return round_float(round_float(x * y, dtype) + z, dtype)


def _fma(dtype: DType, x: float, y: float, z: float) -> float:
    if not math.isfinite(z) and math.isfinite(x) and math.isfinite(y):
        return z  # the product is no infinity, even where a double holds none so large
    if not (math.isfinite(x) and math.isfinite(y)):
        return x * y + z
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    # A sum of 0 is made of zeros, or of numbers whose product a double holds: it gives the sign.
    return _round_exact(exact, dtype) if exact else x * y + z


def _round_exact(value: Fraction, dtype: DType) -> float:
    """`value` rounded once; for the narrower types by way of a double, rounded to odd as above."""
    try:
        nearest = float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    if dtype is dtypes.float64:
        return nearest
    if nearest != value and to_bits(nearest, dtypes.float64) % 2 == 0:
        nearest = math.nextafter(nearest, math.inf if value > nearest else -math.inf)
    return round_float(nearest, dtype)


_FLOAT: dict[Ops, Callable[..., Any]] = {
    Ops.NEG: lambda _, x: -x,
    Ops.SQRT: _rounded(_sqrt),
    Ops.EXP2: _rounded(_exp2),
    Ops.EXP: _rounded(_exp),
    Ops.LOG2: _rounded(_log2),
    Ops.SIN: _rounded(_sin),
    Ops.COS: _rounded(_cos),
    Ops.TRUNC: _trunc,
    Ops.TF32: _to_tf32,
    Ops.ADD: _rounded(lambda x, y: x + y),
    Ops.MUL: _rounded(lambda x, y: x * y),
    Ops.FDIV: _rounded(_divide),
    Ops.FMOD: _fmod,
    Ops.POW: _rounded(_pow),
    Ops.MAX: _float_max,
    Ops.MIN: _float_min,
    Ops.CMPLT: lambda _, x, y: x < y,
    Ops.CMPEQ: lambda _, x, y: x == y,
    Ops.MULACC: _float_mulacc,
    Ops.FMA: _fma,
}

# -- ints -------------------------------------------------------------------------------------------


def _truncdiv(x: int, y: int) -> int:
    if y == 0:
        return 0
    quotient = abs(x) // abs(y)
    return quotient if (x < 0) == (y < 0) else -quotient


def _truncmod(x: int, y: int) -> int:
    return 0 if y == 0 else x - _truncdiv(x, y) * y


def _shift_amount(y: int, dtype: DType) -> int:
    """`y` read as unsigned, cut at the width, from where on all amounts do the same."""
    return min(y & ((1 << dtype.bits) - 1), dtype.bits)


def _shift_left(dtype: DType, x: int, y: int) -> int:
    return wrap_int(x << _shift_amount(y, dtype), dtype)


def _shift_right(dtype: DType, x: int, y: int) -> int:
    return x >> _shift_amount(y, dtype)


def _dot(dtype: DType, x: int, y: int) -> int:
    total = 0
    for number in (0, dtype.bits // 2):
        a, b = [_half(dtype, value >> number) for value in (x, y)]
        total += a * b
    return wrap_int(total, dtype)


def _half(dtype: DType, value: int) -> int:
    size = 1 << dtype.bits // 2
    rest = value % size
    return rest - size if not dtype.is_unsigned and rest >= size // 2 else rest


_INT: dict[Ops, Callable[..., Any]] = {
    Ops.NEG: lambda d, x: wrap_int(-x, d),
    Ops.NOT: lambda d, x: wrap_int(~x, d),
    Ops.ADD: lambda d, x, y: wrap_int(x + y, d),
    Ops.MUL: lambda d, x, y: wrap_int(x * y, d),
    Ops.FLOORDIV: lambda d, x, y: wrap_int(x // y, d) if y else 0,
    Ops.MOD: lambda d, x, y: x % y if y else 0,
    Ops.TRUNCDIV: lambda d, x, y: wrap_int(_truncdiv(x, y), d),
    Ops.TRUNCMOD: lambda d, x, y: _truncmod(x, y),
    Ops.MAX: lambda d, x, y: max(x, y),
    Ops.MIN: lambda d, x, y: min(x, y),
    Ops.AND: lambda d, x, y: x & y,
    Ops.OR: lambda d, x, y: x | y,
    Ops.XOR: lambda d, x, y: x ^ y,
    Ops.SHL: _shift_left,
    Ops.SHR: _shift_right,
    Ops.CMPLT: lambda _, x, y: x < y,
    Ops.CMPEQ: lambda _, x, y: x == y,
    Ops.MULACC: lambda d, x, y, z: wrap_int(x * y + z, d),
    Ops.DOT: _dot,
}

_BOOL: dict[Ops, Callable[..., Any]] = {
    Ops.NOT: lambda _, x: not x,
    Ops.AND: lambda _, x, y: x and y,
    Ops.OR: lambda _, x, y: x or y,
    Ops.XOR: lambda _, x, y: x != y,
    Ops.CMPLT: lambda _, x, y: (not x) and y,
    Ops.CMPEQ: lambda _, x, y: x == y,
}
