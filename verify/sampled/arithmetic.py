"""Every operation on arrays of values, as the reference computes them one by one.

Owns: the value of each elementwise operation on numpy arrays, each equal to the bit to what
core/ir/evaluate.py gives (a test compares them), reductions of an axis. Does not own: what values
stand for (sampled/tensor.py, sampled/linear.py), how far they may be off (sampled/freedom.py).

Values of bfloat16 and of the 8-bit floats are kept as float32, in which they are exact; an index is
an int64. What numpy does not compute in this way is asked of the reference, element by element.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy

from proofgrad.core.ir.dtypes import DType, Kind, dtypes
from proofgrad.core.ir.evaluate import evaluate, identity
from proofgrad.core.ir.ops import ELEMENTS, Ops, Precision

Values = Any  # numpy.ndarray

_KEPT_AS: dict[DType, Any] = {
    dtypes.index: numpy.int64,
    dtypes.bfloat16: numpy.float32,
    **dict.fromkeys(dtypes.fp8s, numpy.float32),
}


@functools.cache
def kept_as(dtype: DType) -> Any:
    """The type of the arrays that hold values of a scalar type."""
    return numpy.dtype(_KEPT_AS.get(dtype) or dtype.name)


def constant(dtype: DType, value: Any) -> Values:
    """One value, as an array of no axes."""
    return numpy.array(value, kept_as(dtype))


def compute(op: Ops, dtype: DType, args: Sequence[Values], sources: Sequence[DType]) -> Values:
    """What `op` gives of scalar type `dtype` for values of the types `sources`, element by element."""
    return operation(op, dtype, tuple(sources))(*args)


@functools.cache
def operation(op: Ops, dtype: DType, sources: tuple[DType, ...]) -> Callable[..., Values]:
    """The function of arrays that `op` is, of these types, or of their lanes."""
    dtype, sources = dtype.scalar, tuple([source.scalar for source in sources])
    if op is Ops.CAST:
        return conversion(sources[0], dtype)
    if op is Ops.BITCAST and not (sources[0].is_code or dtype.is_code):
        return lambda values: _from_bits(_bits(values, sources[0]), dtype)
    if op is Ops.WHERE:
        return numpy.where
    kind = sources[0]
    if kind.is_code:  # never computed with
        return lambda *args: _one_by_one(op, dtype, args, sources)
    table = _BOOL if kind.is_bool else _INT if kind.is_int else _FLOAT
    meaning = table.get(op)
    if meaning is None:
        return lambda *args: _one_by_one(op, dtype, args, sources)
    if op in _DIRECT and dtype is not dtypes.bfloat16 and not kind.is_bool:
        return _DIRECT[op]
    return lambda *args: in_type(meaning(dtype, *args), dtype)


def in_type(values: Values, dtype: DType) -> Values:
    """Values computed in the arrays of a type, rounded to the type."""
    values = numpy.asarray(values, kept_as(dtype))
    return _to_bfloat16(values) if dtype is dtypes.bfloat16 else values


def _one_by_one(op: Ops, dtype: DType, args: Sequence[Values], sources: Sequence[DType]) -> Values:
    """By the reference; equal operands are asked for once."""
    shape = _shape_together([numpy.shape(a) for a in args])
    lists = [numpy.broadcast_to(a, shape).ravel().tolist() for a in args]
    known: dict[tuple[Any, ...], Any] = {}
    found = []
    for operands in zip(*lists):
        key = tuple([o.hex() if isinstance(o, float) else o for o in operands])
        if key not in known:
            known[key] = evaluate(op, dtype, operands, sources)
        found.append(known[key])
    return numpy.array(found, kept_as(dtype)).reshape(shape)


def _shape_together(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape of arrays together, which `numpy.broadcast_shapes` finds of 32 axes at most, and sums in sums have more."""
    rank = max(map(len, shapes))
    columns = zip(*[(1,) * (rank - len(shape)) + shape for shape in shapes])
    return tuple([next((size for size in column if size != 1), 1) for column in columns])


# -- conversions ------------------------------------------------------------------------------------


def cast(values: Values, source: DType, dtype: DType) -> Values:
    """By the meaning of CAST."""
    return values if source is dtype else conversion(source, dtype)(values)


@functools.cache
def conversion(source: DType, dtype: DType) -> Callable[[Values], Values]:
    """The function of arrays that CAST is."""
    kept = kept_as(dtype)
    if source is dtype:
        return lambda values: values
    if dtype.is_bool:
        return lambda values: values != 0
    if dtype.is_int:
        if source.is_float or source.is_code:
            return lambda values: _saturated(values, dtype)
        return lambda values: values.astype(kept)
    if dtype.is_code or (
        dtype is dtypes.bfloat16 and source not in (dtypes.float16, dtypes.float32)
    ):
        return lambda values: _one_by_one(Ops.CAST, dtype, (values,), (source,))
    if dtype is dtypes.float16 and source.is_int and source.bits > 16:
        # Beyond 2**24 all are infinite.
        low = 0 if source.is_unsigned else -(1 << 20)
        return lambda values: numpy.clip(values, low, 1 << 20).astype(kept)
    if dtype is dtypes.bfloat16:
        return lambda values: _to_bfloat16(values.astype(kept))
    return lambda values: values.astype(kept)


def _saturated(values: Values, dtype: DType) -> Values:
    """Floats as integers: towards zero, cut at the ends of the type, NaN is 0."""
    low, high = (dtype.lo, dtype.hi) if dtype.lo is not None else (-(1 << 63), (1 << 63) - 1)
    assert low is not None and high is not None
    whole = numpy.trunc(values.astype(numpy.float64))
    above, below = whole >= float(high + 1), whole < float(low)
    inside = numpy.where(above | below | numpy.isnan(whole), 0.0, whole)
    found = inside.astype(numpy.uint64 if dtype.is_unsigned else numpy.int64)
    found = numpy.where(above, found.dtype.type(high), found)
    return numpy.where(below, found.dtype.type(low), found).astype(kept_as(dtype))


def _to_bfloat16(values: Values) -> Values:
    """float32 rounded to the nearest value of 16 bits, even ones at ties; a NaN stays one."""
    bits = values.view(numpy.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & numpy.uint32(0xFFFF0000)
    return numpy.where(numpy.isnan(values), values, rounded.view(numpy.float32))


def _bits(values: Values, dtype: DType) -> Values:
    """The bits of values, as unsigned numbers of the width."""
    if dtype is dtypes.bfloat16:
        return (numpy.asarray(values).view(numpy.uint32) >> 16).astype(numpy.uint16)
    return numpy.asarray(values).view(f"u{dtype.itemsize}")


def _from_bits(bits: Values, dtype: DType) -> Values:
    if dtype is dtypes.bfloat16:
        return (bits.astype(numpy.uint32) << 16).view(numpy.float32)
    return bits != 0 if dtype.is_bool else bits.view(kept_as(dtype))


# -- tables -----------------------------------------------------------------------------------------


def _in_double(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` in double, rounded once more to the type, as the reference does."""
    return lambda dtype, x: cast(function(x.astype(numpy.float64)), dtypes.float64, dtype)


def _sine(x: Values) -> Values:
    return numpy.sin(numpy.where(numpy.isinf(x), numpy.nan, x))


def _cosine(x: Values) -> Values:
    return numpy.cos(numpy.where(numpy.isinf(x), numpy.nan, x))


def _power(dtype: DType, x: Values, y: Values) -> Values:
    x, y = numpy.broadcast_arrays(x, y)
    # Copies: by one exponent of 1/2 for all elements numpy takes roots, of which that of -0.0 is -0.0.
    base, exponent = [numpy.array(each, numpy.float64, ndmin=1) for each in (x, y)]
    found = numpy.power(base, exponent).reshape(x.shape)
    return cast(found, dtypes.float64, dtype)


def _larger(_: DType, x: Values, y: Values) -> Values:
    found = numpy.maximum(x, y)
    if found.all():
        return found
    return numpy.where(x == y, numpy.where(numpy.signbit(x), y, x), found)


def _smaller(_: DType, x: Values, y: Values) -> Values:
    found = numpy.minimum(x, y)
    if found.all():
        return found
    return numpy.where(x == y, numpy.where(numpy.signbit(x), x, y), found)


def _fma(dtype: DType, x: Values, y: Values, z: Values) -> Values:
    """Rounded once: a product of two floats of 24 bits is exact in a double, and its sum is rounded to odd.

    Source: Boldo and Melquiond, "Emulation of FMA", 2008.
    """
    if dtype is dtypes.float64:
        return _fma_of_doubles(x, y, z)
    product, z = x.astype(numpy.float64) * y.astype(numpy.float64), z.astype(numpy.float64)
    return cast(_sum_to_odd(product, z), dtypes.float64, dtype)


# Products of doubles within these bounds have an error that is a double, and so have their sums with what is no larger.
_LEAST_PRODUCT, _LARGEST = 2.0**-900, 2.0**990


def _fma_of_doubles(x: Values, y: Values, z: Values) -> Values:
    """The product as two doubles; their sum with z in three, of which the last two are rounded to odd.

    Where a product or sum would leave the range, by the reference. Source: Boldo and Melquiond, 2008; Dekker, 1971.
    """
    shape = _shape_together([numpy.shape(each) for each in (x, y, z)])
    x, y, z = [numpy.broadcast_to(each, shape) for each in (x, y, z)]
    product = x * y
    inside = (numpy.abs(product) > _LEAST_PRODUCT) & (numpy.abs(product) < _LARGEST)
    for each in (x, y, z):
        inside &= numpy.abs(each) < _LARGEST
    (x_high, x_low), (y_high, y_low) = _halves(x), _halves(y)
    error = x_low * y_low - (((product - x_high * y_high) - x_low * y_high) - x_high * y_low)
    low, lowest = _sum_and_error(z, error)
    high, low = _sum_and_error(product, low)
    # Nothing is rounded in a product with 0; one with an infinity or NaN, or a sum with a NaN, says what it is.
    plain = (x == 0) | (y == 0) | numpy.isnan(z) | ~numpy.isfinite(x) | ~numpy.isfinite(y)
    found = numpy.where(inside, high + _sum_to_odd(low, lowest), product + z)
    if not (known := inside | plain).all():
        found[~known] = _one_by_one(
            Ops.FMA, dtypes.float64, [each[~known] for each in (x, y, z)], (dtypes.float64,) * 3
        )
    return found


def _halves(x: Values) -> tuple[Values, Values]:
    """A double as two of 26 bits."""
    most = x * float((1 << 27) + 1)
    high = most - (most - x)
    return high, x - high


def _sum_and_error(x: Values, y: Values) -> tuple[Values, Values]:
    """A sum of doubles, and what its rounding misses."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def _sum_to_odd(x: Values, y: Values) -> Values:
    """A sum of doubles: exact, or the one of its two neighbours whose last bit is 1."""
    total, error = _sum_and_error(x, y)
    is_even = numpy.asarray(total).view(numpy.int64) % 2 == 0
    odd = numpy.nextafter(total, numpy.where(error > 0, numpy.inf, -numpy.inf))
    off = numpy.isfinite(total) & (error != 0) & is_even
    return numpy.where(off, odd, total)


def _mulacc(dtype: DType, x: Values, y: Values, z: Values) -> Values:
    return in_type(x * y, dtype) + z


def _to_tf32(dtype: DType, x: Values) -> Values:
    """By an addition to the bits, which carries into the exponent; a NaN stays one."""
    lost = dtypes.finfo(dtype)[1] - 10
    if lost <= 0:
        return x
    bits = numpy.asarray(x).view(f"u{dtype.itemsize}")
    half = bits.dtype.type(1 << (lost - 1))
    with numpy.errstate(over="ignore"):  # of a NaN
        rounded = (bits + half) >> bits.dtype.type(lost) << bits.dtype.type(lost)
    return numpy.where(numpy.isnan(x), x, rounded.view(x.dtype))


# What numpy's own function gives in the type of its arguments, of floats and integers alike.
_DIRECT: dict[Ops, Callable[..., Values]] = {
    **{
        op: getattr(numpy, row.numpy)
        for op, row in ELEMENTS.items()
        if row.numpy and row.precision is not Precision.PUBLISHED
    },
    Ops.NOT: numpy.invert,
    Ops.AND: numpy.bitwise_and,
    Ops.OR: numpy.bitwise_or,
    Ops.XOR: numpy.bitwise_xor,
}


def _without_type(function: Callable[..., Values]) -> Callable[..., Values]:
    return lambda _, *args: function(*args)


_FLOAT: dict[Ops, Callable[..., Values]] = {
    **{
        op: _without_type(_DIRECT[op])
        for op, row in ELEMENTS.items()
        if row.numpy and op in _DIRECT
    },
    Ops.EXP2: _in_double(numpy.exp2),
    Ops.EXP: _in_double(numpy.exp),
    Ops.LOG2: _in_double(numpy.log2),
    Ops.SIN: _in_double(_sine),
    Ops.COS: _in_double(_cosine),
    Ops.POW: _power,
    Ops.MAX: _larger,
    Ops.MIN: _smaller,
    Ops.MULACC: _mulacc,
    Ops.FMA: _fma,
    Ops.TF32: _to_tf32,
}


def _by_zero_is_zero(divide: Callable[[Values, Values], Values]) -> Callable[..., Values]:
    def total(_: DType, x: Values, y: Values) -> Values:
        if y.all():
            return divide(x, y)
        return numpy.where(y == 0, 0, divide(x, numpy.where(y == 0, numpy.ones_like(y), y)))

    return total


def _truncated(x: Values, y: Values) -> Values:
    quotient = x // y
    goes_up = ((x < 0) != (y < 0)) & (x % y != 0)
    return quotient + goes_up.astype(quotient.dtype)


def _truncated_rest(x: Values, y: Values) -> Values:
    return x - _truncated(x, y) * y


def _amount(y: Values, dtype: DType) -> tuple[Values, Values]:
    """How far a shift goes, within the width, and whether all bits are gone."""
    unsigned = numpy.asarray(y).astype(numpy.uint64 if y.dtype.kind == "u" else numpy.int64)
    gone = (unsigned < 0) | (unsigned >= dtype.bits)
    return numpy.where(gone, dtype.bits - 1, y).astype(y.dtype), gone


def _is_within(y: Values, dtype: DType) -> bool:
    """Whether it is one amount, within the width."""
    return y.ndim == 0 and 0 <= int(y) < dtype.bits


def _left(dtype: DType, x: Values, y: Values) -> Values:
    if _is_within(y, dtype):
        return numpy.left_shift(x, y)
    amount, gone = _amount(y, dtype)
    return numpy.where(gone, 0, numpy.left_shift(x, amount))


def _right(dtype: DType, x: Values, y: Values) -> Values:
    if _is_within(y, dtype):
        return numpy.right_shift(x, y)
    amount, gone = _amount(y, dtype)
    moved = numpy.right_shift(x, amount)
    return numpy.where(gone, 0, moved) if dtype.is_unsigned else moved


def _dot(dtype: DType, x: Values, y: Values) -> Values:
    half = numpy.dtype(f"{x.dtype.kind}{x.dtype.itemsize}").type(dtype.bits // 2)
    lower = [numpy.right_shift(numpy.left_shift(word, half), half) for word in (x, y)]
    upper = [numpy.right_shift(word, half) for word in (x, y)]
    return lower[0] * lower[1] + upper[0] * upper[1]


_INT: dict[Ops, Callable[..., Values]] = {
    Ops.NEG: lambda _, x: numpy.negative(x),
    Ops.NOT: lambda _, x: numpy.invert(x),
    Ops.ADD: lambda _, x, y: x + y,
    Ops.MUL: lambda _, x, y: x * y,
    Ops.FLOORDIV: _by_zero_is_zero(numpy.floor_divide),
    Ops.MOD: _by_zero_is_zero(numpy.mod),
    Ops.TRUNCDIV: _by_zero_is_zero(_truncated),
    Ops.TRUNCMOD: _by_zero_is_zero(_truncated_rest),
    Ops.MAX: lambda _, x, y: numpy.maximum(x, y),
    Ops.MIN: lambda _, x, y: numpy.minimum(x, y),
    Ops.AND: lambda _, x, y: x & y,
    Ops.OR: lambda _, x, y: x | y,
    Ops.XOR: lambda _, x, y: x ^ y,
    Ops.SHL: _left,
    Ops.SHR: _right,
    Ops.CMPLT: lambda _, x, y: x < y,
    Ops.CMPEQ: lambda _, x, y: x == y,
    Ops.MULACC: lambda _, x, y, z: x * y + z,
    Ops.DOT: _dot,
}

_BOOL: dict[Ops, Callable[..., Values]] = {
    Ops.NOT: lambda _, x: ~x,
    Ops.AND: lambda _, x, y: x & y,
    Ops.OR: lambda _, x, y: x | y,
    Ops.XOR: lambda _, x, y: x ^ y,
    Ops.CMPLT: lambda _, x, y: ~x & y,
    Ops.CMPEQ: lambda _, x, y: x == y,
}


_EXTREMES = frozenset({Ops.MAX, Ops.MIN})

# -- reductions -------------------------------------------------------------------------------------


def reduce_first(op: Ops, dtype: DType, values: Values, terms: int) -> Values:
    """The `terms` values along the first axis combined; a sum of floats is rounded once, from double.

    Where the values do not depend on the axis it is 1 long, or missing.
    """
    if values.shape[:1] != (terms,):
        values = numpy.broadcast_to(values, (terms, *values.shape[1:]))
    if op in _EXTREMES:
        start = constant(dtype, identity(op, dtype))
        found = (
            _extreme(op, dtype, values) if terms else numpy.broadcast_to(start, values.shape[1:])
        )
        return compute(op, dtype, (start, numpy.asarray(found, kept_as(dtype))), (dtype, dtype))
    combine = numpy.add if op is Ops.ADD else numpy.multiply
    if not dtype.is_float:
        return combine.reduce(values, axis=0, dtype=kept_as(dtype))
    total = combine.reduce(numpy.asarray(values, numpy.float64), axis=0)
    if op is Ops.ADD:
        total = total + 0.0
    return cast(numpy.asarray(total), dtypes.float64, dtype)


def _extreme(op: Ops, dtype: DType, values: Values) -> Values:
    """The largest or smallest value; of zeros the one with the sign that the operation asks for."""
    largest = op is Ops.MAX
    found = values.max(axis=0) if largest else values.min(axis=0)
    if dtype.is_int or dtype.is_bool or found.all():
        return found
    signs = numpy.signbit(values) & (values == 0)
    is_zero = found == 0
    if largest:  # -0.0 only where no zero is 0.0
        zero = numpy.where(((values == 0) & ~signs).any(axis=0), 0.0, -0.0)
    else:
        zero = numpy.where(signs.any(axis=0), -0.0, 0.0)
    return numpy.where(is_zero, zero, found)


def same_bits(x: Values, y: Values, dtype: DType) -> Values:
    """Equal to the bit; any NaN equals any NaN."""
    if dtype.kind not in (Kind.FLOAT, Kind.CODE):
        return x == y
    both_nan = numpy.isnan(x) & numpy.isnan(y)
    return both_nan | ((x == y) & (numpy.signbit(x) == numpy.signbit(y)))
