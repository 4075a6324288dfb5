"""Operations on each element: operators, comparisons, and the functions that are ops of the IR.

There is no op for subtraction: `x - y` is `x + -y`. Does not own: operands and their types
(operands.py), functions made of others (functions.py).
"""

from __future__ import annotations

import math
from typing import Self

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.base import TensorBase, check_same_device
from proofgrad.core.tensor.errors import DtypeError
from proofgrad.core.tensor.movement import broadcast_node, broadcast_shapes
from proofgrad.core.tensor.operands import Flag, Operand, Operands, Whole, constant_node
from proofgrad.core.tensor.promotion import least_float, promote, promote_scalar, scalar_dtype


class Elementwise(Operands):
    """Arithmetic, comparisons, selection, rounding."""

    __slots__ = ()

    # -- arithmetic -----------------------------------------------------------------------------

    def add(self, other: Operand, reverse: Flag = False) -> Self:
        return self._binary(Ops.ADD, "+", other, swap=reverse)

    def mul(self, other: Operand, reverse: Flag = False) -> Self:
        return self._binary(Ops.MUL, "*", other, swap=reverse)

    def neg(self) -> Self:
        if self.dtype.is_bool:
            raise DtypeError("cannot negate bools; use ~x for the logical not")
        return self._unary(Ops.NEG)

    def sub(self, other: Operand, reverse: Flag = False) -> Self:
        a, b = self._pair("-", other)
        if reverse:
            a, b = b, a
        if a.dtype.is_bool:
            raise DtypeError("cannot subtract bools; use ^ for the exclusive or")
        return self._with(UOp(Ops.ADD, a.dtype, (a, UOp(Ops.NEG, b.dtype, (b,)))))

    def div(
        self,
        other: Operand,
        reverse: Flag = False,
        rounding_mode: str | None = None,
    ) -> Self:
        """Division; integers give floats unless rounding_mode is "trunc" or "floor"."""
        match rounding_mode:
            case None:
                return self._divide(other, reverse)
            case "floor":
                return self.floordiv(other, reverse)
            case "trunc":
                return self._truncated(other, reverse)
            case _:
                raise ValueError(
                    f"rounding_mode is None, 'trunc' or 'floor', not {rounding_mode!r}"
                )

    def _divide(self, other: Operand, reverse: Flag) -> Self:
        a, b = self._pair("/", other)
        dtype = least_float(a.dtype)
        a, b = a.cast(dtype), b.cast(dtype)
        return self._with(UOp(Ops.FDIV, dtype, (b, a) if reverse else (a, b)))

    def _truncated(self, other: Operand, reverse: Flag) -> Self:
        a, _ = self._pair("div", other)
        if a.dtype.is_float:
            return self._divide(other, reverse).trunc()
        return self._binary(Ops.TRUNCDIV, "div", other, swap=reverse)

    def floordiv(self, other: Operand, reverse: Flag = False) -> Self:
        """Rounded towards minus infinity, as in Python; x // 0 is 0 for integers."""
        a, _ = self._pair("//", other)
        if a.dtype.is_float:
            return self._divide(other, reverse).floor()
        return self._binary(Ops.FLOORDIV, "//", other, swap=reverse)

    def mod(self, other: Operand, reverse: Flag = False) -> Self:
        """The remainder with the sign of the divisor, as in Python; x % 0 is 0 for integers."""
        a, b = self._pair("%", other)
        if not a.dtype.is_float:
            return self._binary(Ops.MOD, "%", other, swap=reverse)
        x, y = (self._with(b), self._with(a)) if reverse else (self._with(a), self._with(b))
        return x - x._divide(y, False).floor() * y

    def maximum(self, other: Operand) -> Self:
        """The larger; NaN if either is NaN."""
        return self._binary(Ops.MAX, "maximum", other)

    def minimum(self, other: Operand) -> Self:
        """The smaller; NaN if either is NaN."""
        return self._binary(Ops.MIN, "minimum", other)

    def pow(self, other: Operand, reverse: Flag = False) -> Self:
        """self ** other. Whole constant exponents multiply; negative bases stay exact there."""
        if not reverse and isinstance(other, (bool, int, float)):
            if float(other).is_integer() and abs(other) <= 64:
                whole = promote_scalar(self.dtype, other)
                return self.cast(whole)._whole_power(math.trunc(other))
            if other == 0.5:
                return self.sqrt()
        a, b = self._pair("**", other)
        x, y = (self._with(b), self._with(a)) if reverse else (self._with(a), self._with(b))
        return x._float_power(y) if a.dtype.is_float else x._int_power(y)

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
        return self._with(constant_node(1, self.dtype, self.shape)) if result is None else result

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
        at_zero = (y < 0).where(math.inf, 0.0)
        size = zero.where(at_zero, size)
        signed = ((x < 0) & odd).where(-size, size)
        real = ((x < 0) & ~whole & x.ne(-math.inf)).where(math.nan, signed)
        return (one | x.eq(1)).where(1.0, real)

    def __neg__(self) -> Self:
        return self.neg()

    def __add__(self, other: Operand) -> Self:
        return self._binary(Ops.ADD, "+", other)

    def __radd__(self, other: Operand) -> Self:
        return self._binary(Ops.ADD, "+", other, swap=True)

    def __sub__(self, other: Operand) -> Self:
        return self.sub(other)

    def __rsub__(self, other: Operand) -> Self:
        return self.sub(other, True)

    def __mul__(self, other: Operand) -> Self:
        return self._binary(Ops.MUL, "*", other)

    def __rmul__(self, other: Operand) -> Self:
        return self._binary(Ops.MUL, "*", other, swap=True)

    def __truediv__(self, other: Operand) -> Self:
        return self._divide(other, False)

    def __rtruediv__(self, other: Operand) -> Self:
        return self._divide(other, True)

    def __floordiv__(self, other: Operand) -> Self:
        return self.floordiv(other)

    def __rfloordiv__(self, other: Operand) -> Self:
        return self.floordiv(other, True)

    def __mod__(self, other: Operand) -> Self:
        return self.mod(other)

    def __rmod__(self, other: Operand) -> Self:
        return self.mod(other, True)

    def __pow__(self, other: Operand) -> Self:
        return self.pow(other)

    def __rpow__(self, other: Operand) -> Self:
        return self.pow(other, True)

    # -- bits and logic ---------------------------------------------------------------------------

    def bitwise_and(self, other: Operand) -> Self:
        return self._binary(Ops.AND, "&", other)

    def bitwise_or(self, other: Operand) -> Self:
        return self._binary(Ops.OR, "|", other)

    def bitwise_xor(self, other: Operand) -> Self:
        return self._binary(Ops.XOR, "^", other)

    def bitwise_not(self) -> Self:
        if self.dtype.is_float:
            raise DtypeError(f"~ takes bools and integers, not {self.dtype}")
        return self._unary(Ops.NOT)

    def logical_not(self) -> Self:
        return self.bool()._unary(Ops.NOT)

    def lshift(self, other: Operand, reverse: Flag = False) -> Self:
        return self._binary(Ops.SHL, "<<", other, swap=reverse)

    def rshift(self, other: Operand, reverse: Flag = False) -> Self:
        return self._binary(Ops.SHR, ">>", other, swap=reverse)

    __rand__ = bitwise_and
    __ror__ = bitwise_or
    __rxor__ = bitwise_xor
    __invert__ = bitwise_not
    __lshift__ = lshift
    __rshift__ = rshift

    def __and__(self, other: Operand) -> Self:
        return self.bitwise_and(other)

    def __or__(self, other: Operand) -> Self:
        return self.bitwise_or(other)

    def __xor__(self, other: Operand) -> Self:
        return self.bitwise_xor(other)

    def __rlshift__(self, other: Operand) -> Self:
        return self.lshift(other, True)

    def __rrshift__(self, other: Operand) -> Self:
        return self.rshift(other, True)

    # -- comparison and selection -----------------------------------------------------------------

    def __lt__(self, other: Operand) -> Self:
        return self._binary(Ops.CMPLT, "<", other)

    def __gt__(self, other: Operand) -> Self:
        return self._binary(Ops.CMPLT, ">", other, swap=True)

    def __le__(self, other: Operand) -> Self:
        a, b = self._pair("<=", other)
        return self._with(_at_most(a, b))

    def __ge__(self, other: Operand) -> Self:
        a, b = self._pair(">=", other)
        return self._with(_at_most(b, a))

    def eq(self, other: Operand) -> Self:
        """Equal; false if either is NaN."""
        return self._binary(Ops.CMPEQ, "==", other)

    def ne(self, other: Operand) -> Self:
        """Not equal; true if either is NaN."""
        return self._binary(Ops.CMPEQ, "!=", other)._unary(Ops.NOT)

    def __eq__(self, other: Operand) -> Self:  # type: ignore[override]
        return NotImplemented if other is None else self.eq(other)

    def __ne__(self, other: Operand) -> Self:  # type: ignore[override]
        return NotImplemented if other is None else self.ne(other)

    __hash__ = TensorBase.__hash__
    lt = __lt__
    gt = __gt__
    le = __le__
    ge = __ge__

    def where(self, x: Operand, y: Operand) -> Self:
        """`x` where this bool Tensor is true, else `y`.

        Example:
            (t > 0).where(t, 0)  # negative elements become 0
        """
        if not self.dtype.is_bool:
            raise DtypeError(
                f"where is asked of a condition, and this Tensor has type {self.dtype};"
                f" write (x > 0).where(x, y), with the condition in front"
            )
        a, b = self._choices(x, y)
        shape = broadcast_shapes("where", self.shape, a.shape, b.shape)
        src = tuple([broadcast_node(node, shape) for node in (self._uop, a, b)])
        return self._with(UOp(Ops.WHERE, a.dtype, src))

    def _choices(self, x: Operand, y: Operand) -> tuple[UOp, UOp]:
        """Two operands as nodes of one type, which scalars take from the other."""
        scalars = (bool, int, float)
        if isinstance(x, scalars) and isinstance(y, scalars):
            dtype = promote(scalar_dtype(x), scalar_dtype(y))
            return UOp.const(dtype, x), UOp.const(dtype, y)
        if isinstance(x, scalars):
            b, a = self._choices(y, x)
            return a, b
        tensor = x if isinstance(x, TensorBase) else self._as_tensor(x)
        check_same_device("where", self, tensor)
        if isinstance(y, scalars):
            dtype = promote_scalar(tensor.dtype, y)
            return tensor._uop.cast(dtype), UOp.const(dtype, y)
        other = y if isinstance(y, TensorBase) else self._as_tensor(y)
        check_same_device("where", self, other)
        dtype = promote(tensor.dtype, other.dtype)
        return tensor._uop.cast(dtype), other._uop.cast(dtype)

    def masked_fill(self, mask: Self, value: Operand) -> Self:
        """`value` where the mask is true."""
        return mask.where(value, self)

    def clamp(self, min_: Operand | None = None, max_: Operand | None = None) -> Self:
        """Not below `min_`, not above `max_`."""
        if min_ is None and max_ is None:
            raise ValueError("clip needs a lower or an upper bound")
        raised = self if min_ is None else self.maximum(min_)
        return raised if max_ is None else raised.minimum(max_)

    clip = clamp
    # -- functions of one value that are ops, and rounding ------------------------------------------

    def sqrt(self) -> Self:
        return self._as_float()._unary(Ops.SQRT)

    def reciprocal(self) -> Self:
        return self._divide(1, True)

    def exp2(self) -> Self:
        return self._as_float()._unary(Ops.EXP2)

    def log2(self) -> Self:
        return self._as_float()._unary(Ops.LOG2)

    def trunc(self) -> Self:
        return self._unary(Ops.TRUNC) if self.dtype.is_float else self

    def floor(self) -> Self:
        whole = self.trunc()
        return whole if whole is self else (self < whole).where(whole - 1, whole)

    def ceil(self) -> Self:
        whole = self.trunc()
        return whole if whole is self else (whole < self).where(whole + 1, whole)

    def round(self) -> Self:
        """To the nearest integer; halves to the even one, as numpy does."""
        whole = self.trunc()
        if whole is self:
            return self
        rest = (self - whole).abs()
        odd = (whole * 0.5).trunc() * 2 != whole
        away = (rest > 0.5) | (rest.eq(0.5) & odd)
        return away.where((self < 0).where(whole - 1, whole + 1), whole)

    def abs(self) -> Self:
        if self.dtype.is_bool or self.dtype.is_unsigned:
            return self
        return self.maximum(-self)

    def sign(self) -> Self:
        if self.dtype.is_bool:
            return self
        negative = (self < 0).where(-1, self) if not self.dtype.is_unsigned else self
        return self.eq(0).where(0, (self > 0).where(1, negative))

    def isnan(self) -> Self:
        return self._binary(Ops.CMPEQ, "isnan", self)._unary(Ops.NOT)

    def isinf(self) -> Self:
        if not self.dtype.is_float:
            return self.isnan()
        return self.eq(math.inf) | self.eq(-math.inf)

    def isfinite(self) -> Self:
        return ~(self.isinf() | self.isnan())


def _at_most(a: UOp, b: UOp) -> UOp:
    """a <= b. For floats not `not b < a`, which NaN would make true."""
    if not a.dtype.is_float:
        return b.alu(Ops.CMPLT, a).alu(Ops.NOT)
    return a.alu(Ops.CMPLT, b).alu(Ops.OR, a.alu(Ops.CMPEQ, b))
