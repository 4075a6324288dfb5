"""Powers: by multiplying for whole constants, else by an operation of the IR.

Owns: which way an exponent goes. Does not own: how POW is computed (core/compile/math/power.py).
"""

from __future__ import annotations

import math
from typing import Self

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.errors import DtypeError
from proofgrad.core.tensor.data.promotion import accumulation_dtype, promote_scalar
from proofgrad.core.tensor.methods.elementwise import Elementwise
from proofgrad.core.tensor.methods.operands import Flag, Operand, Whole, constant_node


class Powers(Elementwise):
    """`**` and what it is made of."""

    __slots__ = ()

    def pow(self, x: Operand, reverse: Flag = False) -> Self:
        """`self ** x`. Whole constant exponents multiply; negative bases stay exact there.

        The constant 0.5 is the square root, which at -0.0 and minus infinity is -0.0 and NaN.
        """
        if not reverse and isinstance(x, (bool, int, float)):
            if float(x).is_integer() and abs(x) <= 64:
                whole = promote_scalar(self.dtype, x)
                # What has more than one step is rounded to 16 bits once.
                wide = whole if 0 <= x <= 2 else accumulation_dtype(whole)
                return self.cast(wide)._whole_power(math.trunc(x)).cast(whole)
            if x == 0.5:
                return self.sqrt()  # as numpy and torch do for this constant
        a, b = self._pair("**", x)
        first, second = (b, a) if reverse else (a, b)
        left, right = self._with(first), self._with(second)
        if not a.dtype.is_float:
            return left._int_power(right)
        wide = accumulation_dtype(a.dtype)  # for the slope, whose factors overflow in float16
        power = UOp(Ops.POW, wide, (first.cast(wide), second.cast(wide)))
        return self._with(power.cast(a.dtype))

    def _whole_power(self, exponent: Whole) -> Self:
        if exponent < 0:
            if not self.dtype.is_float:
                raise ValueError(
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
