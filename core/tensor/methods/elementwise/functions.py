"""Functions of elements that are made of operators: rounding, powers, exponentials, angles, hyperbolas.

Owns: the formulas, chosen so that no intermediate overflows and small results keep their digits. Whole
constant powers multiply, log goes through base 2; accuracy: docs/numerics.md. Does not own: POW
(core/compile/math/power.py), activations (nn/layers.py).

A branch that is not taken must not spoil the gradient of the one that is: 0 times the infinity of an
overflow is NaN. So a formula of limited range gets a harmless operand outside of it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.arguments import Flag, Operand, Real, Whole, refuses
from proofgrad.core.tensor.data.errors import ArgumentError, DtypeError
from proofgrad.core.tensor.data.nodes import constant_node
from proofgrad.core.tensor.data.promotion import accumulation_dtype, promote_scalar
from proofgrad.core.tensor.methods.elementwise import series
from proofgrad.core.tensor.methods.elementwise.operators import Operators
from proofgrad.core.tensor.methods.elementwise.slopes import (
    slope_of_atan,
    slope_of_erf,
    slope_of_expm1,
    slope_of_steps,
    slope_of_tan,
    slope_of_tanh,
    with_slope,
)
from proofgrad.core.tensor.methods.made_once import made_once

_LOG2_E = 1 / math.log(2)
_LN_2 = math.log(2)
_LOG10_2 = math.log10(2)
_TANH_IS_ONE_FROM = 20.0
_WIDE = frozenset({dtypes.float32, dtypes.float64})
_LONG = 10  # coefficients: one step waits for the one before

_T = TypeVar("_T", bound="Elementwise")


def in_float32_or_wider(function: Callable[..., _T]) -> Callable[..., _T]:
    """The method on float16 and bfloat16 runs in float32 and is rounded once; ints become floats."""

    @functools.wraps(function)
    def method(self: _T, *args: Any, **options: Any) -> _T:
        if self._uop.dtype in _WIDE:
            return function(self, *args, **options)
        x = self._as_float()
        if x.dtype.bits < 32:
            return function(x.float(), *args, **options).cast(x.dtype)
        return function(x, *args, **options)

    return method


class Elementwise(Operators):
    """Powers, and functions of one real number."""

    __slots__ = ()

    # -- whole numbers ----------------------------------------------------------------------------

    @refuses(decimals="write (x * 10**n).round() / 10**n")
    def round(self) -> Self:
        """To the nearest integer; halves to the even one, as numpy does."""
        return self._rounded_to_even() if self.is_floating_point() else self._value()

    @in_float32_or_wider
    @made_once
    def _rounded_to_even(self) -> Self:
        """Beside `whole` floats are one apart, so that a sum of both is rounded as it should be."""
        least = 2.0 ** series.growth(self.dtype).fraction_bits
        size, whole = self._size(), self._with(constant_node(least, self.dtype, self.shape))
        is_small = size < whole
        shifted = is_small.where(size + whole, size)
        value = self._signed(shifted - is_small.where(whole, 0.0))
        return with_slope(value, self, slope_of_steps)

    # -- powers -----------------------------------------------------------------------------------

    def pow(self, x: Operand, reverse: Flag = False) -> Self:
        """`self ** x`. Whole constant exponents multiply; negative bases stay exact there.

        The constant 0.5 is the square root, which at -0.0 and minus infinity is -0.0 and NaN.
        """
        if not reverse and isinstance(x, (bool, int, float)):
            if float(x).is_integer() and abs(x) <= 64:
                whole = promote_scalar(self.dtype, x)
                # What has more than one step is rounded to 16 bits once.
                wide = whole if 0 <= x <= 2 else accumulation_dtype(whole)
                return self._in_type(wide)._whole_power(math.trunc(x))._in_type(whole)
            if x == 0.5:
                return self.sqrt()  # as numpy and torch do for this constant
        a, b = self._pair("**", x)
        first, second = (b, a) if reverse else (a, b)
        left, right = self._with(first), self._with(second)
        if not a.dtype.is_float:
            return left._int_power(right)
        wide = accumulation_dtype(a.dtype)  # for the slope, whose factors overflow in float16
        power = UOp(Ops.POW, wide, (first.cast(wide), second.cast(wide)))
        return self._rounded(power.cast(a.dtype), x)

    def _whole_power(self, exponent: Whole) -> Self:
        if exponent < 0:
            if not self.dtype.is_float:
                raise ArgumentError(
                    f"integers to a negative power ({exponent}) are no integers; use x.float()"
                )
            return self.reciprocal()._whole_power(-exponent)
        result: Self | None = None
        square = self
        while exponent:
            if exponent & 1:
                result = square if result is None else result * square
            exponent >>= 1
            square = square * square if exponent else square
        one = self._with(constant_node(1, self.dtype, self.shape))
        return one if result is None else result._value()

    def _int_power(self, exponent: Self) -> Self:
        """By squaring, one bit of the exponent after the other; negative exponents give 0."""
        if self.dtype.is_bool:
            raise DtypeError("cannot raise bools to a power; cast them first")
        one = self._with(constant_node(1, self.dtype, self.shape))
        result, square = one, self
        for bit in range(self.dtype.bits - (not self.dtype.is_unsigned)):
            result = (exponent >> bit & 1).eq(1).where(result * square, result)
            square = square * square
        return result if self.dtype.is_unsigned else (exponent < 0).where(0, result)

    def __pow__(self, other: Operand) -> Self:
        return self.pow(other)

    def __rpow__(self, other: Operand) -> Self:
        return self.pow(other, True)

    def square(self) -> Self:
        """`self * self`."""
        return self * self

    # -- exponentials and logarithms --------------------------------------------------------------

    def exp(self) -> Self:
        """e ** x."""
        return self._as_float()._unary(Ops.EXP)

    @in_float32_or_wider
    @made_once
    def expm1(self) -> Self:
        """e ** x - 1, with all its digits where x is small."""
        form = series.growth(self.dtype)
        x = (self < form.lowest).where(form.lowest, self)
        x = (x > form.highest).where(form.highest, x)
        value = self.eq(0).where(self, x._growth())
        return with_slope(value, self, slope_of_expm1)

    def _growth(self) -> Self:
        """e ** x - 1 = 2**n (q + 1) - 1 with q = e ** r - 1, where x = n ln 2 + r; 0 at -0.0. No gradient passes.

        The sum of x / ln 2 and a large number has n in its last bits, plus the bias of an exponent. Above the largest
        exponent q is 1 or more, and the power overflows.
        """
        form = series.growth(self.dtype)
        most = form.magic + form.most_exponent
        shifted = self._multiply_add(_LOG2_E, form.magic)
        shifted = (shifted > most).where(most, shifted)
        n = shifted - form.magic
        r = n._multiply_add(-form.ln_2_rest, n._multiply_add(-form.ln_2, self))
        q = r.square()._multiply_add(r._polynomial(form.tail), r)
        bits = shifted.bitcast(f"int{self.dtype.bits}") << form.fraction_bits
        power = bits.bitcast(self.dtype)
        return q._multiply_add(power, power - 1)

    @in_float32_or_wider
    def log(self) -> Self:
        """The natural logarithm; NaN below 0, -inf at 0."""
        return self.log2() * _LN_2

    @in_float32_or_wider
    def log10(self) -> Self:
        """The logarithm to base 10."""
        return self.log2() * _LOG10_2

    @in_float32_or_wider
    def rsqrt(self) -> Self:
        """`1 / sqrt(self)`."""
        return self.sqrt().reciprocal()

    @in_float32_or_wider
    @made_once
    def log1p(self) -> Self:
        """log(1 + x), with all its digits where x is small."""
        whole = self + 1
        lost = (self - (whole - 1)).detach()  # what the sum has rounded off
        kept = ((self > -0.5) & (self < 1)).where(lost / whole.detach(), 0)
        return self._with_sign_of_zero(whole.log() + kept)

    def logaddexp(self, other: Operand) -> Self:
        """log(exp(self) + exp(other)), which does not overflow."""
        a, b = self._pair("logaddexp", other)
        x, y = self._with(a)._as_float(), self._with(b)._as_float()
        apart = x.eq(y).where(0, x - y)
        found = x.maximum(y) + (apart < 0).where(apart, -apart).exp().log1p()
        return self._rounded(found._uop, other)

    # -- angles -----------------------------------------------------------------------------------

    def sin(self) -> Self:
        """The sine of radians; NaN at infinities."""
        return self._as_float()._unary(Ops.SIN)

    def cos(self) -> Self:
        """The cosine of radians; NaN at infinities."""
        return self._as_float()._unary(Ops.COS)

    @in_float32_or_wider
    def tan(self) -> Self:
        """The tangent of radians; NaN at infinities."""
        size, form = self._size(), series.tangent(self.dtype)
        near = self._times_sign(size._tangent_of_near())
        far = self.detach()
        value = (size < form.near).where(near, far.sin() / far.cos())
        return with_slope(value, self, slope_of_tan)

    def _tangent_of_near(self) -> Self:
        """That of the rest r of quarter turns, or -1 / tan(r) where they are odd, of a number that is not negative. No gradient passes.

        The rest has a part beyond its last bit. x less k times the first part of pi / 2 is exact, and so is what the second rounds off.
        """
        form = series.tangent(self.dtype)
        first, second, third = form.half_pi
        shifted = self._multiply_add(2 / math.pi, form.magic)
        k = shifted - form.magic
        main = k.fma(-first, self)
        rest = k._multiply_add(-second, main)
        lost = k._multiply_add(-third, k._multiply_add(-second, main - rest))
        square = rest.square()
        tail = (rest * square)._multiply_add(
            square._polynomial(form.tail), lost._multiply_add(square, lost)
        )
        tangent = rest + tail
        is_odd = (shifted.bitcast(f"int{self.dtype.bits}") & 1).eq(1)
        return is_odd.where(-tangent.reciprocal(), tangent)

    @in_float32_or_wider
    @made_once
    def atan(self) -> Self:
        """The angle with this tangent: a polynomial of it, or of its reciprocal, whichever is small."""
        size = self._size()
        far = size > 1
        angle = (far.where(1, size) / far.where(size, 1))._angle()
        angle = far.where(math.pi / 2 - angle, angle)
        return with_slope(self._signed(angle), self, slope_of_atan)

    def _angle(self) -> Self:
        """The angle whose tangent this is, from -1 to 1; 0 at -0.0."""
        square = self.square()
        angle = (self * square)._multiply_add(square._polynomial(series.atan(self.dtype)), self)
        return with_slope(angle, self, slope_of_atan)

    @in_float32_or_wider
    @made_once
    def asin(self) -> Self:
        """The angle with this sine; NaN outside of -1 .. 1."""
        half = self / (self._other_leg() + 1)
        return self._with_sign_of_zero(half._angle() * 2)

    def _other_leg(self) -> Self:
        """The root of 1 - x**2, rounded once below it, so that nothing cancels near 1."""
        return (-self).fma(self, 1.0).sqrt()

    @in_float32_or_wider
    @made_once
    def acos(self) -> Self:
        """The angle with this cosine; NaN outside of -1 .. 1."""
        negative = self < 0
        half = self._other_leg() / (negative.where(-self, self) + 1)
        angle = half._angle() * 2
        return negative.where(math.pi - angle, angle)

    # -- hyperbolas -------------------------------------------------------------------------------

    @in_float32_or_wider
    @made_once
    def sinh(self) -> Self:
        """(e**x - e**-x) / 2."""
        small = self._within(1)
        near = small.where(self, 0)._odd_polynomial(series.sinh(self.dtype))
        negative = self < 0
        root = (negative.where(-self, self) * 0.5).exp()
        size = root * 0.5 * root - 0.5 / root / root
        return small.where(near, negative.where(-size, size))

    @in_float32_or_wider
    @made_once
    def cosh(self) -> Self:
        """(e**x + e**-x) / 2; 1 + 2 sinh(x / 2)**2 where x is small, whose slope keeps its digits."""
        small = self._within(1)
        half = (small.where(self, 0) * 0.5)._odd_polynomial(series.sinh(self.dtype))
        root = ((self < 0).where(-self, self) * 0.5).exp()
        return small.where(half._multiply_add(half * 2, 1.0), root * 0.5 * root + 0.5 / root / root)

    @in_float32_or_wider
    @made_once
    def tanh(self) -> Self:
        """-g / (g + 2) with g = exp(-2 |x|) - 1, and the sign of x."""
        growth = (self._size(_TANH_IS_ONE_FROM) * -2)._growth()
        return with_slope(self._signed(growth / (growth + 2)), self, slope_of_tanh)

    @in_float32_or_wider
    @made_once
    def asinh(self) -> Self:
        """log(x + sqrt(x**2 + 1)), with the sign of x."""
        negative = self < 0
        size = negative.where(-self, self)
        far = size > series.far(self.dtype)
        near = far.where(0, size)
        square = near * near
        angle = (near + square / ((square + 1).sqrt() + 1)).log1p()
        angle = far.where(far.where(size, 1).log() + _LN_2, angle)
        return self._with_sign_of_zero(negative.where(-angle, angle))

    @in_float32_or_wider
    @made_once
    def acosh(self) -> Self:
        """log(x + sqrt(x**2 - 1)); NaN below 1, where the slope is that of the formula, as in torch."""
        negative = self < 0
        size = negative.where(-self, self)
        far = size > series.far(self.dtype)
        above = far.where(1, size - 1)
        angle = (above + above.sqrt() * (above + 2).sqrt()).log1p()
        angle = far.where(far.where(size, 1).log() + _LN_2, angle)
        nothing = self._with(constant_node(math.nan, self.dtype, self.shape))
        return negative.where(-angle, angle) + (self < 1).where(nothing, 0)

    @in_float32_or_wider
    @made_once
    def atanh(self) -> Self:
        """log((1 + x) / (1 - x)) / 2; NaN outside of -1 .. 1."""
        return self._with_sign_of_zero((self.log1p() - (-self).log1p()) * 0.5)

    @in_float32_or_wider
    @made_once
    def erf(self) -> Self:
        """The error function, 1 - exp(log erfc(|x|)) with the sign of x."""
        form = series.log_erfc(self.dtype)
        size = self._size(form.end)
        first, *others = form.coefficients
        log = size._multiply_add(first, size * size._polynomial(others))
        return with_slope(self._signed(log._growth()), self, slope_of_erf)

    def _beyond(self) -> Self:
        """The chance that a normal number is beyond a float32 that is not negative: 2**n 2**r. No gradient passes."""
        logarithm, slope = series.beyond()
        power = self * self._polynomial(logarithm)
        magic = series.growth(self.dtype).magic - 1  # a power of half the size
        shifted = power + magic
        r = power - (shifted - magic)
        half = (shifted.bitcast("int32") << 23).bitcast(self.dtype)
        inside = self < series.NORMAL_ENDS_FLOAT32
        return inside.where(r._multiply_add(r._polynomial(slope), 1.0) * half, 0)

    def lerp(self, end: Self, weight: Operand) -> Self:
        """`self + (end - self) * weight`."""
        return self + (end - self).mul(weight)

    # -- shared by the formulas -------------------------------------------------------------------

    def _within(self, size: Real) -> Self:
        """Is |x| at most `size`?"""
        return (self <= size) & (self >= -size)

    def _size(self, most: Real = math.inf) -> Self:
        """|x|, at most `most`; NaN of NaN. No gradient passes."""
        bits = self.detach().bitcast(f"int{self.dtype.bits}")
        size = (bits & (1 << (self.dtype.bits - 1)) - 1).bitcast(self.dtype)
        return size if most == math.inf else (size > most).where(most, size)

    def _signed(self, size: Self) -> Self:
        """The size of a number with the sign of this. No gradient passes."""
        sign = -1 << (self.dtype.bits - 1)
        own, other = [x.detach().bitcast(f"int{self.dtype.bits}") for x in (self, size)]
        return ((own & sign) | (other & ~sign)).bitcast(self.dtype)

    def _times_sign(self, value: Self) -> Self:
        """A number, or its opposite where the sign of this is negative. No gradient passes."""
        sign = -1 << (self.dtype.bits - 1)
        own, other = [x.detach().bitcast(f"int{self.dtype.bits}") for x in (self, value)]
        return ((own & sign) ^ other).bitcast(self.dtype)

    def _polynomial(self, coefficients: Sequence[float]) -> Self:
        """The polynomial with these coefficients, lowest power first (Horner).

        A long one is E(x**2) + x O(x**2): two chains of half as many steps, which run beside each other.
        """
        if len(coefficients) > _LONG:
            square = self.square()
            even, odd = [square._horner(coefficients[k::2]) for k in (0, 1)]
            return odd._multiply_add(self, even)
        return self._horner(coefficients)

    def _horner(self, coefficients: Sequence[float]) -> Self:
        result = self._with(constant_node(coefficients[-1], self.dtype, self.shape))
        for coefficient in reversed(coefficients[:-1]):
            result = result._multiply_add(self, coefficient)
        return result

    def _odd_polynomial(self, coefficients: Sequence[float]) -> Self:
        """x P(x**2): keeps the sign of zero."""
        return self * (self * self)._polynomial(coefficients)

    def _with_sign_of_zero(self, result: Self) -> Self:
        """`result`, an odd function of this with slope 1 at 0, with -0.0 at -0.0."""
        is_zero: Self = self.eq(0)
        return is_zero.where(self, result)
