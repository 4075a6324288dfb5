"""Powers: by multiplying for whole constants, else through base 2.

Owns: which way an exponent goes, and the special values of IEEE 754 pow.
"""

from __future__ import annotations

import math
from typing import Self

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.tensor.elementwise import Elementwise
from proofgrad.core.tensor.errors import DtypeError
from proofgrad.core.tensor.operands import Flag, Operand, Whole, constant_node
from proofgrad.core.tensor.promotion import promote_scalar

# 2 ** (y log2 x) multiplies the relative error of log2 x by y log2 x, which is up to 1024.
_COMPUTED_IN = {
    dtypes.float16: dtypes.float32,
    dtypes.bfloat16: dtypes.float32,
    dtypes.float32: dtypes.float64,
}


class Powers(Elementwise):
    """`**` and what it is made of."""

    __slots__ = ()

    def pow(self, x: Operand, reverse: Flag = False) -> Self:
        """`self ** x`. Whole constant exponents multiply; negative bases stay exact there."""
        if not reverse and isinstance(x, (bool, int, float)):
            if float(x).is_integer() and abs(x) <= 64:
                whole = promote_scalar(self.dtype, x)
                return self.cast(whole)._whole_power(math.trunc(x))
            if x == 0.5:
                return self.sqrt()
        a, b = self._pair("**", x)
        first, second = (b, a) if reverse else (a, b)
        left, right = self._with(first), self._with(second)
        if not a.dtype.is_float:
            return left._int_power(right)
        wide = _COMPUTED_IN.get(a.dtype, a.dtype)
        return left.cast(wide)._float_power(right.cast(wide)).cast(a.dtype)

    def _whole_power(self, exponent: Whole) -> Self:
        if exponent < 0:
            if not self.dtype.is_float:
                raise ValueError(
                    f"integers to a negative power ({exponent}) are no integers; use x.float()"
                )
            return self._whole_power(-exponent).reciprocal()
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

    def _float_power(self, exponent: Self) -> Self:
        """2 ** (y log2 |x|), with the signs and the special values of IEEE 754 pow."""
        x, y = self, exponent
        whole = y.trunc() == y
        odd = whole & ((y * 0.5).trunc() * 2 != y)
        zero, one = x.eq(0), y.eq(0)
        safe = zero.where(1.0, x).abs()
        size = (y * safe.log2()).exp2()
        at_zero = (y < 0).where(math.inf, (y > 0).where(0.0, y))
        size = zero.where(at_zero, size)
        signed = (x._is_negative() & odd).where(-size, size)
        real = ((x < 0) & ~whole & x.ne(-math.inf)).where(math.nan, signed)
        return (one | x.eq(1) | (x.eq(-1) & y.isinf())).where(1.0, real)

    def __pow__(self, other: Operand) -> Self:
        return self.pow(other)

    def __rpow__(self, other: Operand) -> Self:
        return self.pow(other, True)

    def square(self) -> Self:
        """`self * self`."""
        return self * self

    def rsqrt(self) -> Self:
        """`1 / sqrt(self)`."""
        return self.sqrt().reciprocal()
