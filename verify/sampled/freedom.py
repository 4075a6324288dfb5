"""How far a right kernel may be from a value: what the design leaves free, as a bound on the error.

Owns: for each operation of a tensor graph, on values that may be off by so much, how far its result
may be off. Does not own: the values (sampled/arithmetic.py).

Free are the order of a sum or product of floats and the rounding of a product inside of a sum, and
EXP2, LOG2 and SIN within bounds. All else is exact: an error of None says so, and the values must then be
equal to the bit. An infinite error says that nothing is known, as of a comparison of two sums that are nearly equal.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import APPROXIMATED, COMPARE, ELEMENTS, Ops
from proofgrad.verify.sampled.arithmetic import Values, cast, operation, reduce_first, same_bits

# How far EXP2, EXP, LOG2 and SIN may be off, in units in the last place: what docs/numerics.md publishes (at most 0.94 in
# float32, 1.2 in float64), the reference's own half a unit, and as much again.
FUNCTION_ULP = 4.0
LEAST = 2.0**-1074  # the smallest number above 0 in which an error can be said
# A sum of whole numbers is exact in every order if its terms together stay so far below the digits of its type. Each
# term is so small that a product that was rounded is hardly whole by chance.
_WHOLE_TERM = {dtypes.float32: 2.0**10, dtypes.float64: 2.0**20}


@dataclass(slots=True)
class Estimate:
    """Values, and how far a right kernel may be from each; None: not at all.

    Integers that are the bits of floats say so in `bits_of`: their error is that of the floats. Products of finite numbers that
    are infinite, or 0 of numbers that are not, are `out_of_range`: a sum may add them without rounding, and then they are neither.
    """

    values: Values
    error: Values | None = None
    bits_of: DType | None = None
    out_of_range: Values | None = None

    def agrees(self, other: Values, dtype: DType) -> Values:
        """Whether other values are what this allows."""
        if self.bits_of is not None:
            one, bits = self.as_floats(dtype), operation(Ops.BITCAST, self.bits_of, (dtype,))
            return one.agrees(bits(other), self.bits_of)
        same = same_bits(self.values, other, dtype)
        if self.error is None:
            return same
        if not dtype.is_float:
            return same | (self.error > 0)
        with numpy.errstate(all="ignore"):
            distance = numpy.abs(_wide(self.values) - _wide(other))
            return same | ((self.error > 0) & (distance <= self.error)) | numpy.isinf(self.error)

    def as_floats(self, dtype: DType) -> Estimate:
        """The floats whose bits these are, of an integer type."""
        assert self.bits_of is not None
        return Estimate(operation(Ops.BITCAST, self.bits_of, (dtype,))(self.values), self.error)

    def less_sure(self, other: Estimate) -> Estimate:
        """These values, off by as much more as others are."""
        if other.error is None:
            return self
        if self.error is None:
            return replace(other, values=self.values)
        error, alike = self.error + other.error, self.bits_of is other.bits_of
        return replace(self, error=error if alike else _unknown(error))

    def is_known(self) -> Values:
        """Where anything is known of the values."""
        if self.error is None:
            return numpy.ones(numpy.shape(self.values), bool)
        return ~numpy.isinf(self.error)


def estimate(op: Ops, dtype: DType, args: Sequence[Estimate], sources: Sequence[DType]) -> Estimate:
    """What an elementwise operation makes of values and their errors."""
    return estimation(op, dtype, tuple(sources))(*args)


@functools.cache
def estimation(op: Ops, dtype: DType, sources: tuple[DType, ...]) -> Callable[..., Estimate]:
    """The function of estimates that an elementwise operation is, of these types."""
    value = operation(op, dtype, sources)
    is_product = op is Ops.MUL and dtype.is_float
    is_exact = op not in APPROXIMATED and not (op is Ops.BITCAST and sources[0].is_float)

    def estimated(*args: Estimate) -> Estimate:
        values = value(*[a.values for a in args])
        if is_exact and not any([a.error is not None for a in args]):
            found = Estimate(values)
        else:
            found = _with_error(op, dtype, values, args, sources)
        if is_product:
            found.out_of_range = _out_of_range(values, args[0].values, args[1].values)
        elif op is Ops.WHERE and any([a.out_of_range is not None for a in args[1:]]):
            lost = [False if a.out_of_range is None else a.out_of_range for a in args[1:]]
            found.out_of_range = numpy.where(args[0].values, *lost)
        return found

    return estimated


def _with_error(
    op: Ops, dtype: DType, values: Values, args: Sequence[Estimate], sources: Sequence[DType]
) -> Estimate:
    if op is Ops.BITCAST and sources[0].is_float:  # of a NaN any bits
        unsure = _or_unknown(args[0], numpy.isnan(args[0].values))
        return Estimate(values, unsure, None if unsure is None else sources[0])
    if op is Ops.BITCAST and args[0].bits_of is dtype:
        return args[0].as_floats(sources[0])
    error = _error(op, dtype, values, args, sources)
    if not error.any():
        return Estimate(values)
    if op is Ops.WHERE:
        read_as = {a.bits_of for a in args[1:] if a.error is not None}
        if len(read_as) == 1:
            return Estimate(values, error, *read_as)
        error = _unknown(error)
    return Estimate(values, error)


def _out_of_range(values: Values, one: Values, other: Values) -> Values | None:
    """Where a product of finite numbers is infinite, or 0 of numbers that are not."""
    is_zero, is_infinite = values == 0, numpy.isinf(values)
    if not (is_zero | is_infinite).any():
        return None
    finite = numpy.isfinite(one) & numpy.isfinite(other)
    return (is_infinite & finite) | (is_zero & (one != 0) & (other != 0) & finite)


def _unknown(error: Values) -> Values:
    """Nothing is known of what is off at all."""
    return numpy.where(error > 0, numpy.inf, 0.0)


def _or_unknown(one: Estimate, where: Values) -> Values | None:
    if not where.any():
        return one.error
    return numpy.where(where, numpy.inf, 0.0 if one.error is None else one.error)


def _wide(values: Values) -> Values:
    return numpy.asarray(values, numpy.float64)


def unit(dtype: DType) -> float:
    """The distance between 1 and the next value."""
    return float(2.0 ** -dtypes.finfo(dtype)[1])


def smallest(dtype: DType) -> float:
    """The smallest number above 0."""
    exponent, fraction = dtypes.finfo(dtype)
    return float(2.0 ** max(2 - (1 << (exponent - 1)) - fraction, -1074))


def largest(dtype: DType) -> float:
    """The largest finite number."""
    exponent, _ = dtypes.finfo(dtype)
    return float((2.0 - unit(dtype)) * 2.0 ** ((1 << (exponent - 1)) - 1))


def _error(
    op: Ops, dtype: DType, values: Values, args: Sequence[Estimate], sources: Sequence[DType]
) -> Values:
    errors = [numpy.zeros(()) if a.error is None else a.error for a in args]
    terms = [a.values for a in args]
    touched = numpy.zeros(numpy.shape(values), bool)
    for e in errors:
        touched = touched | (e > 0)
    with numpy.errstate(all="ignore"):
        if op is Ops.WHERE:
            chosen = numpy.where(terms[0], errors[1], errors[2])
            return numpy.where(errors[0] > 0, numpy.inf, chosen)
        if op is Ops.CAST and sources[0].is_float and not dtype.is_float:
            return _of_cast(terms[0], errors[0], sources[0], dtype)
        if op in COMPARE and sources[0].is_float:
            apart = numpy.abs(_wide(terms[0]) - _wide(terms[1])) > errors[0] + errors[1]
            return numpy.where(touched & ~apart, numpy.inf, 0.0)
        if op in (Ops.AND, Ops.OR) and dtype.is_bool:
            decides = op is Ops.OR
            settled = [(t == decides) & (e == 0) for t, e in zip(terms, errors)]
            return numpy.where(touched & ~(settled[0] | settled[1]), numpy.inf, 0.0)
        bound = _BOUNDS.get(op)
        if bound is None or not dtype.is_float or not sources[0].is_float:
            return numpy.where(touched, numpy.inf, 0.0)
        error = _settled(bound(dtype, values, terms, errors), values, dtype, touched)
        if op not in APPROXIMATED:
            error = numpy.where(touched, error, 0.0)
        if touched.any() and not numpy.isfinite(values).all():
            error = numpy.where(_is_settled(op, values, terms, errors), 0.0, error)
        return error


def _is_settled(
    op: Ops, values: Values, terms: Sequence[Values], errors: Sequence[Values]
) -> Values:
    """Where a result is NaN since an operand is, or infinite since what is added is, however far others are off."""
    known = [~numpy.isinf(e) for e in errors]
    found = numpy.zeros(numpy.shape(values), bool)
    if op is not Ops.POW:  # whose power 0, and whose base 1, take NaN
        for x, is_known in zip(terms, known):
            found = found | (numpy.isnan(x) & is_known)
    if op is Ops.ADD:
        ends = [numpy.isinf(x) & (e == 0) for x, e in zip(terms, errors)]
        near = [numpy.isfinite(x) & is_known for x, is_known in zip(terms, known)]
        found = found | (ends[0] & near[1]) | (ends[1] & near[0])
    return found


def _settled(error: Values, values: Values, dtype: DType, touched: Values) -> Values:
    """Rounded once more; unknown near infinity, and where it cannot be said."""
    error = error + numpy.where(
        error > 0, unit(dtype) * numpy.abs(_wide(values)) + smallest(dtype), 0.0
    )
    unsure = numpy.isnan(error) | (numpy.abs(_wide(values)) + error >= largest(dtype))
    wild = ~numpy.isfinite(values)
    return numpy.where(
        wild, numpy.where(touched, numpy.inf, 0.0), numpy.where(unsure, numpy.inf, error)
    )


def _of_cast(x: Values, error: Values, source: DType, dtype: DType) -> Values:
    """Unknown unless all that the value may be become one; NaN, whose ends become 0, may be anything where it is off."""
    wide = numpy.where(numpy.isinf(error), 0.0, _wide(x))
    low, high = [cast(end, dtypes.float64, dtype) for end in (wide - error, wide + error)]
    if dtype.is_bool:  # 0 lies between the ends
        return numpy.where((error > 0) & (numpy.abs(wide) <= error), numpy.inf, 0.0)
    return numpy.where((error > 0) & (low != high), numpy.inf, 0.0)


def _product(_: DType, __: Values, x: Sequence[Values], e: Sequence[Values]) -> Values:
    one, other = [numpy.abs(_wide(each)) for each in x[:2]]
    is_off = ((e[1] > 0) & (one + e[0] > 0)) | ((e[0] > 0) & (other + e[1] > 0))
    return _not_lost(one * e[1] + other * e[0] + e[0] * e[1], is_off)


def _quotient(_: DType, value: Values, x: Sequence[Values], e: Sequence[Values]) -> Values:
    below = numpy.abs(_wide(x[1])) - e[1]
    is_off = (e[0] > 0) | ((e[1] > 0) & (x[0] != 0))
    found = _not_lost((e[0] + numpy.abs(_wide(value)) * e[1]) / below, is_off)
    return numpy.where(
        below <= numpy.abs(_wide(x[1])) / 2, numpy.where(e[0] + e[1] > 0, numpy.inf, 0.0), found
    )


def _not_lost(error: Values, is_off: Values) -> Values:
    """An error that is above 0 where there is one, though it be less than the smallest number."""
    return numpy.where(is_off, numpy.maximum(error, LEAST), error)


def _root(_: DType, __: Values, x: Sequence[Values], e: Sequence[Values]) -> Values:
    wide = _wide(x[0])
    found = numpy.sqrt(wide + e[0]) - numpy.sqrt(numpy.maximum(wide - e[0], 0.0))
    return numpy.where((e[0] > 0) & (wide - e[0] < 0), numpy.inf, found)


def _function(dtype: DType, value: Values, is_exact: Values) -> Values:
    """Of a function that is approximated; `is_exact`: where it is not, as docs/numerics.md promises, signs of zeros too."""
    bound = FUNCTION_ULP * (unit(dtype) * numpy.abs(_wide(value)) + smallest(dtype))
    return numpy.where(is_exact | ~numpy.isfinite(value), 0.0, bound)


def _power(base: Callable[[Values], Values]) -> Callable[..., Values]:
    def off(dtype: DType, value: Values, x: Sequence[Values], e: Sequence[Values]) -> Values:
        grown = numpy.abs(_wide(value)) * (base(e[0]) - 1.0)
        is_exact = (x[0] == 0) | numpy.isinf(x[0])
        return numpy.where(e[0] > 0, grown, 0.0) + _function(dtype, value, is_exact)

    return off


def _logarithm(dtype: DType, value: Values, x: Sequence[Values], e: Sequence[Values]) -> Values:
    below = _wide(x[0]) - e[0]
    found = e[0] / below * 1.4427
    unsure = (e[0] > 0) & (below <= _wide(x[0]) / 2)
    is_power_of_two = numpy.frexp(_wide(x[0]))[0] == 0.5
    return numpy.where(unsure, numpy.inf, numpy.where(e[0] > 0, found, 0.0)) + _function(
        dtype, value, is_power_of_two
    )


def _sine(dtype: DType, value: Values, x: Sequence[Values], e: Sequence[Values]) -> Values:
    return numpy.minimum(e[0], 2.0) + _function(dtype, value, x[0] == 0)


def _any_power(dtype: DType, value: Values, x: Sequence[Values], e: Sequence[Values]) -> Values:
    base, exponent = x
    is_exact = (base == 0) | (numpy.abs(base) == 1) | numpy.isinf(base)
    is_exact = is_exact | (exponent == 0) | numpy.isinf(exponent)
    return numpy.where(e[0] + e[1] > 0, numpy.inf, 0.0) + _function(dtype, value, is_exact)


def _to_tf32(_: DType, __: Values, x: Sequence[Values], e: Sequence[Values]) -> Values:
    """Both ends of what x may be are rounded by as much as half a unit of 11 digits."""
    return e[0] + 2.0**-10 * (numpy.abs(_wide(x[0])) + e[0])


def _step(function: Callable[[Values], Values]) -> Callable[..., Values]:
    """Of a step that never goes down: exact where both ends of what x may be are on one level."""

    def off(_: DType, __: Values, x: Sequence[Values], e: Sequence[Values]) -> Values:
        wide = _wide(x[0])
        return numpy.where(function(wide - e[0]) == function(wide + e[0]), 0.0, numpy.inf)

    return off


def _multiplied_and_added(
    dtype: DType, value: Values, x: Sequence[Values], e: Sequence[Values]
) -> Values:
    return _product(dtype, value, x, e) + e[2]


_BOUNDS: dict[Ops, Callable[[DType, Values, Sequence[Values], Sequence[Values]], Values]] = {
    **{
        op: _step(getattr(numpy, row.numpy))
        for op, row in ELEMENTS.items()
        if row.is_step and row.arity == 1
    },
    Ops.ADD: lambda _, __, x, e: e[0] + e[1],
    Ops.NEG: lambda _, __, x, e: e[0],
    Ops.CAST: lambda _, __, x, e: e[0],
    Ops.MAX: lambda _, __, x, e: numpy.maximum(e[0], e[1]),
    Ops.MIN: lambda _, __, x, e: numpy.maximum(e[0], e[1]),
    Ops.MUL: _product,
    Ops.FDIV: _quotient,
    Ops.SQRT: _root,
    Ops.EXP2: _power(numpy.exp2),
    Ops.EXP: _power(numpy.exp),
    Ops.LOG2: _logarithm,
    Ops.SIN: _sine,
    Ops.COS: _sine,
    Ops.POW: _any_power,
    Ops.MULACC: _multiplied_and_added,
    Ops.FMA: _multiplied_and_added,
    Ops.TF32: _to_tf32,
}


# -- reductions -------------------------------------------------------------------------------------


def estimate_reduction(op: Ops, dtype: DType, each: Estimate, terms: int) -> Estimate:
    """The values along the first axis combined in an order that is not specified."""
    values = reduce_first(op, dtype, each.values, terms)
    if not dtype.is_float:
        return _of_integers(op, each, values, terms)
    wide = _wide(numpy.broadcast_to(each.values, (terms, *each.values.shape[1:])))
    if op in (Ops.MAX, Ops.MIN):
        error = None if each.error is None else _along(each.error, terms, values)
        return Estimate(values, error)
    with numpy.errstate(all="ignore"):
        error = (_of_sum if op is Ops.ADD else _of_product)(dtype, wide, each.error, values, terms)
    if op is Ops.ADD and each.out_of_range is not None:
        lost = numpy.broadcast_to(each.out_of_range, wide.shape)
        unsure = (lost & numpy.isinf(wide)).any(axis=0) & (terms > 1)
        below = terms * smallest(dtype) * (lost & (wide == 0)).any(axis=0)
        error = numpy.where(unsure, numpy.inf, numpy.maximum(error, below))
    return Estimate(values, error if error.any() else None)


def _of_integers(op: Ops, each: Estimate, values: Values, terms: int) -> Estimate:
    """Exact; or bits of floats of which at most one is not 0: a choice, off as far as what is chosen."""
    if each.error is None:
        return Estimate(values)
    error = _along(each.error, terms, values)
    if each.bits_of is None:
        return Estimate(values, error)
    may_count = numpy.broadcast_to((each.values != 0) | (each.error > 0), (terms, *values.shape))
    is_choice = (may_count.sum(axis=0) <= 1) & (op is Ops.ADD)
    return Estimate(values, numpy.where(is_choice, error, _unknown(error)), each.bits_of)


def _along(error: Values, terms: int, values: Values) -> Values:
    """The largest error along the first axis."""
    found = error.max(axis=0) if terms else numpy.zeros(())
    return numpy.broadcast_to(found, values.shape)


def _of_sum(dtype: DType, wide: Values, error: Values | None, values: Values, terms: int) -> Values:
    """Each of the additions rounds once, each product once more or not at all."""
    finite = numpy.where(numpy.isfinite(wide), wide, 0.0)
    total = numpy.abs(finite).sum(axis=0)
    bound = (terms + 2) * unit(dtype) * total + terms * smallest(dtype)
    own = 0.0
    if error is not None:
        own = numpy.broadcast_to(error, wide.shape).sum(axis=0)
    wild = ~numpy.isfinite(wide).all(axis=0)
    is_far = total + own + bound >= largest(dtype)
    unsure = is_far | (wild & (own > 0))
    limit = _WHOLE_TERM.get(dtype, 0.0)
    is_whole = (finite == numpy.rint(finite)) & (numpy.abs(finite) <= limit)
    exact = is_whole.all(axis=0) & (total < 1 / unit(dtype)) & (own == 0)
    exact = exact | ((terms <= 1) & (own == 0))
    found = numpy.where(exact, 0.0, bound + own)
    found = numpy.where(wild, numpy.where(own > 0, numpy.inf, 0.0), found)
    found = numpy.where(unsure, numpy.inf, found)
    if error is not None and wild.any():
        is_nan, is_infinite = _ends_of_sum(wide, error)
        found = numpy.where(is_nan | (is_infinite & ~is_far), 0.0, found)
    return found


def _ends_of_sum(wide: Values, error: Values) -> tuple[Values, Values]:
    """Where a term is NaN, and where some are infinite and no other may be, however far all are off."""
    known = numpy.broadcast_to(~numpy.isinf(error), wide.shape)
    is_nan = (numpy.isnan(wide) & known).any(axis=0)
    ends = numpy.isinf(wide) & numpy.broadcast_to(error == 0, wide.shape)
    others = (ends | (numpy.isfinite(wide) & known)).all(axis=0)
    return is_nan, others & ends.any(axis=0)


def _of_product(
    dtype: DType, wide: Values, error: Values | None, values: Values, terms: int
) -> Values:
    size = numpy.abs(wide)
    parts = numpy.where((size > 0) & numpy.isfinite(size), size, 1.0)
    above = numpy.maximum(parts, 1.0).prod(axis=0)
    below = numpy.minimum(parts, 1.0).prod(axis=0)
    bound = (terms + 1) * unit(dtype) * numpy.abs(_wide(values))
    unsure = (above >= largest(dtype)) | (below <= smallest(dtype) / unit(dtype) * 2)
    if error is not None:
        unsure = unsure | (numpy.broadcast_to(error, wide.shape) > 0).any(axis=0)
    exact = (terms <= 1) & ~unsure
    found = numpy.where(exact | ~numpy.isfinite(values), 0.0, bound)
    return numpy.where(unsure, numpy.inf, found)
