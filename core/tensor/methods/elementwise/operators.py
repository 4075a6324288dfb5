"""Operations on each element: operators, comparisons, and the functions that are ops of the IR.

There is no op for subtraction: `x - y` is `x + -y`. Does not own: operands and their types
(operands.py), powers and functions made of others (functions.py).
"""

from __future__ import annotations

import math
from math import inf
from typing import Any, Self

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.op_names import ADD, AND, CONST, FDIV, FLOORDIV, MOD, MUL, NEG, WHERE
from proofgrad.core.ir.ops import ALU, Ops
from proofgrad.core.ir.shapes import Shape
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.arguments import Flag, Operand, Real, takes_bounds
from proofgrad.core.tensor.data.errors import ArgumentError, DtypeError
from proofgrad.core.tensor.data.nodes import broadcast_node, broadcast_shapes, constant_node
from proofgrad.core.tensor.data.promotion import least_float, promote, promote_scalar, scalar_dtype
from proofgrad.core.tensor.methods.base import TensorBase, check_same_device
from proofgrad.core.tensor.methods.elementwise.operands import Operands
from proofgrad.core.tensor.methods.elementwise.slopes import slope_of_clamp, with_slope
from proofgrad.core.tensor.methods.made_once import made_once
from proofgrad.core.tensor.runtime.device import Device

CMPLT, CMPEQ, SQRT, NOT = Ops.CMPLT, Ops.CMPEQ, Ops.SQRT, Ops.NOT


class Operators(Operands):
    """Arithmetic, comparisons, selection, rounding."""

    __slots__ = ()

    # -- arithmetic -----------------------------------------------------------------------------

    def add(self, x: Operand, reverse: Flag = False) -> Self:
        """`self + x`; of bools the logical or."""
        return self._binary(ADD, "+", x, swap=reverse)

    def mul(self, x: Operand, reverse: Flag = False) -> Self:
        """`self * x`; of bools the logical and."""
        return self._binary(MUL, "*", x, swap=reverse)

    def neg(self) -> Self:
        """`-self`."""
        if self._uop.dtype is dtypes.bool:
            raise DtypeError("cannot negate bools; use ~x for the logical not")
        return self._unary(NEG)

    def sub(self, x: Operand, reverse: Flag = False) -> Self:
        """`self - x`; with `reverse`, `x - self`."""
        a, b = self._pair("-", x)
        if reverse:
            a, b = b, a
        if a.dtype is dtypes.bool:
            raise DtypeError("cannot subtract bools; use ^ for the exclusive or")
        return self._rounded(UOp(ADD, a.dtype, (a, UOp(NEG, b.dtype, (b,)))), x)

    def div(self, x: Operand, reverse: Flag = False, rounding_mode: str | None = None) -> Self:
        """Division; integers give floats unless rounding_mode is "trunc" or "floor"."""
        match rounding_mode:
            case None:
                return self._divide(x, reverse)
            case "floor":
                return self.floordiv(x, reverse)
            case "trunc":
                return self._truncated(x, reverse)
            case _:
                raise ArgumentError(
                    f"rounding_mode is None, 'trunc' or 'floor', not {rounding_mode!r}"
                )

    def _divide(self, x: Operand, reverse: Flag) -> Self:
        a, b = self._pair("/", x)
        dtype = least_float(a.dtype)
        a, b = a.cast(dtype), b.cast(dtype)
        return self._rounded(UOp(FDIV, dtype, (b, a) if reverse else (a, b)), x)

    def _truncated(self, x: Operand, reverse: Flag) -> Self:
        a, _ = self._pair("div", x)
        if a.dtype.is_float:
            return self._divide(x, reverse).trunc()
        return self._binary(Ops.TRUNCDIV, "div", x, swap=reverse)

    def floordiv(self, x: Operand, reverse: Flag = False) -> Self:
        """Rounded towards minus infinity, as in Python; x // 0 is 0 for integers."""
        a, b = self._pair("//", x)
        if a.dtype.is_float:
            first, second = (b, a) if reverse else (a, b)
            found = self._with(first)._float_quotient(self._with(second))
            return self._rounded(found._uop, x)
        return self._binary(FLOORDIV, "//", x, swap=reverse)

    def mod(self, x: Operand, reverse: Flag = False) -> Self:
        """The remainder with the sign of the divisor, as in Python; x % 0 is 0 for integers."""
        a, b = self._pair("%", x)
        if not a.dtype.is_float:
            return self._binary(MOD, "%", x, swap=reverse)
        first, second = (b, a) if reverse else (a, b)
        return self._rounded(self._with(first)._float_remainder(self._with(second))._uop, x)

    def fmod(self, x: Operand) -> Self:
        """The remainder with the sign of the dividend, as in C: exact. Integers by 0 give 0."""
        a, _ = self._pair("fmod", x)
        return self._binary(Ops.FMOD if a.dtype.is_float else Ops.TRUNCMOD, "fmod", x)

    @made_once
    def _float_quotient(self, divisor: Self) -> Self:
        return self._float_division(divisor)[0]

    @made_once
    def _float_remainder(self, divisor: Self) -> Self:
        return self._float_division(divisor)[1]

    def _float_division(self, divisor: Self) -> tuple[Self, Self]:
        """Quotient and remainder of floats as numpy has them, step by step (npy_divmod)."""
        wide = dtypes.float64 if self.dtype is dtypes.float64 else dtypes.float32
        x, y = self.cast(wide), divisor.cast(wide)
        rest, ratio = x.fmod(y), x / y
        negative = y < 0
        apart = rest.ne(0) & (rest < 0).ne(negative)
        # A remainder of 0 has the sign of y: of either zero the sum with 0.0 is 0.0.
        signed = negative.where(-(-rest + 0.0), rest + 0.0)
        remainder = apart.where(rest + y, signed)
        whole = (x - rest) / y
        whole = apart.where(whole - 1, whole)
        below = whole.floor()
        quotient = (whole - below > 0.5).where(below + 1, below)
        quotient = whole.eq(0).where(self._zero_with_sign_of(ratio), quotient)
        return y.eq(0).where(ratio.detach(), quotient).cast(self.dtype), remainder.cast(self.dtype)

    def _zero_with_sign_of(self, x: Self) -> Self:
        return x._is_negative().where(-0.0, 0.0).cast(x.dtype)

    def _is_negative(self) -> Self:
        """Is the sign bit of these floats set, that of -0.0 and of NaN included?"""
        return self.bitcast(f"int{self.dtype.bits}") < 0

    def maximum(self, x: Operand) -> Self:
        """The larger; NaN if either is NaN."""
        return self._binary(Ops.MAX, "maximum", x)

    def minimum(self, x: Operand) -> Self:
        """The smaller; NaN if either is NaN."""
        return self._binary(Ops.MIN, "minimum", x)

    def __neg__(self) -> Self:
        return self.neg()

    def __pos__(self) -> Self:
        return self._value()

    def __abs__(self) -> Self:
        return self.abs()

    def __add__(self, other: Operand) -> Self:
        return self._binary(ADD, "+", other)

    def __radd__(self, other: Operand) -> Self:
        return self._binary(ADD, "+", other, swap=True)

    def __sub__(self, other: Operand) -> Self:
        return self.sub(other)

    def __rsub__(self, other: Operand) -> Self:
        return self.sub(other, True)

    def __mul__(self, other: Operand) -> Self:
        return self._binary(MUL, "*", other)

    def __rmul__(self, other: Operand) -> Self:
        return self._binary(MUL, "*", other, swap=True)

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

    # -- bits and logic ---------------------------------------------------------------------------

    def bitwise_and(self, x: Operand, reverse: Flag = False) -> Self:
        """`self & x` of bools or integers."""
        return self._binary(AND, "&", x, swap=reverse)

    def bitwise_or(self, x: Operand, reverse: Flag = False) -> Self:
        """`self | x` of bools or integers."""
        return self._binary(Ops.OR, "|", x, swap=reverse)

    def bitwise_xor(self, x: Operand, reverse: Flag = False) -> Self:
        """`self ^ x` of bools or integers."""
        return self._binary(Ops.XOR, "^", x, swap=reverse)

    def bitwise_not(self) -> Self:
        """`~self`: every bit flipped; of bools the logical not."""
        if self.is_floating_point():
            raise DtypeError(f"~ takes bools and integers, not {self.dtype}")
        return self._unary(NOT)

    def logical_not(self) -> Self:
        """True where an element is 0 (false)."""
        return self.bool()._unary(NOT)

    def lshift(self, x: Operand, reverse: Flag = False) -> Self:
        """`self << x`; 0 if x is the width of the type or more."""
        return self._binary(Ops.SHL, "<<", x, swap=reverse)

    def rshift(self, x: Operand, reverse: Flag = False) -> Self:
        """`self >> x`, which copies the sign."""
        return self._binary(Ops.SHR, ">>", x, swap=reverse)

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
        """`self < other`; false if either is NaN."""
        return self._binary(CMPLT, "<", other)

    def __gt__(self, other: Operand) -> Self:
        """`self > other`; false if either is NaN."""
        return self._binary(CMPLT, ">", other, swap=True)

    def __le__(self, other: Operand) -> Self:
        """`self <= other`; false if either is NaN."""
        return self._at_most("<=", other)

    def __ge__(self, other: Operand) -> Self:
        """`self >= other`; false if either is NaN."""
        return self._at_most(">=", other)

    def _at_most(self, name: str, other: Operand) -> Self:
        decided = self._decided(name, other) if type(other) is int else None
        if decided is not None:
            return decided
        a, b = self._pair(name, other)
        return self._with(_at_most(a, b) if name == "<=" else _at_most(b, a))

    def eq(self, x: Operand) -> Self:
        """Equal; false if either is NaN."""
        return self._binary(CMPEQ, "==", x)

    def ne(self, x: Operand) -> Self:
        """Not equal; true if either is NaN."""
        return self._binary(CMPEQ, "!=", x)._unary(NOT)

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
            (Tensor([-1, 2]) > 0).where(7, 0)  # [0, 7]
        """
        if not self.dtype.is_bool:
            raise DtypeError(
                f"where is asked of a condition, and this Tensor has type {self.dtype};"
                f" write (x > 0).where(x, y), with the condition in front"
            )
        a, b = self._choices(x, y)
        shape = broadcast_shapes("where", self.shape, a.shape, b.shape)
        src = tuple([_expanded(node, shape) for node in (self._uop, a, b)])
        return self._with(UOp(WHERE, a.dtype, src))

    def _choices(self, x: Operand, y: Operand) -> tuple[UOp, UOp]:
        """Two operands as nodes of one type, which scalars take from the other."""
        scalars = (bool, int, float)
        if isinstance(x, scalars) and isinstance(y, scalars):
            dtype = promote(scalar_dtype(x), scalar_dtype(y))
            return constant_node(x, dtype, ()), constant_node(y, dtype, ())
        if isinstance(x, scalars):
            b, a = self._choices(y, x)
            return a, b
        beside = y if isinstance(y, Operands) else self
        tensor: Any = x if isinstance(x, Operands) else beside._as_tensor(x)
        check_same_device("where", self, tensor)
        if isinstance(y, scalars):
            dtype = tensor.dtype if tensor.dtype.is_code else promote_scalar(tensor.dtype, y)
            return tensor._uop.cast(dtype), constant_node(y, dtype, ())
        beside = x if isinstance(x, Operands) else self
        other = y if isinstance(y, Operands) else beside._as_tensor(y)
        check_same_device("where", self, other)
        dtype = tensor._common_type(other)
        return tensor._uop.cast(dtype), other._uop.cast(dtype)

    def masked_fill(self, mask: Self, value: Operand) -> Self:
        """`value` where the mask is true."""
        return self._given("mask", mask).where(value, self)

    def fma(self, factor: Operand, term: Operand) -> Self:
        """`self * factor + term`, rounded once: IEEE's fusedMultiplyAdd. Integers become floats.

        Example:
            Tensor([3.0]).fma(2.0, 1.0)  # [7.0]
        """
        x, y = self._as_float()._pair("fma", factor)
        x, z = self._with(x)._pair("fma", term)
        shape = broadcast_shapes("fma", x.shape, y.shape)
        src = tuple([broadcast_node(node.cast(z.dtype), shape) for node in (x, y, z)])
        return self._rounded(UOp(Ops.FMA, z.dtype, src), term)

    def _multiply_add(self, factor: Operand, term: Operand) -> Self:
        """The same where two roundings are good enough: a product and a sum on machines that call a function for one."""
        if not Device[self.device].target.calls_fma:
            return self.fma(factor, term)
        total: Self = self * factor + term
        return total

    def copysign(self, other: Operand) -> Self:
        """The size of this with the sign of the other, that of -0.0 and of NaN included."""
        a, b = self._pair("copysign", other)
        dtype = least_float(a.dtype)
        size = self._with(a).cast(dtype).abs()
        found = self._with(b).cast(dtype)._is_negative().where(-size, size)
        return self._rounded(found._uop, other)

    def isclose(
        self, other: Operand, rtol: Real = 1e-5, atol: Real = 1e-8, equal_nan: Flag = False
    ) -> Self:
        """|self - other| <= atol + rtol |other|; infinities of one sign are close."""
        a, b = self._pair("isclose", other)
        dtype = least_float(a.dtype)
        x, y = self._with(a).cast(dtype), self._with(b).cast(dtype)
        near = (x - y).abs() <= y.abs() * rtol + atol
        close = x.eq(y) | (near & x.isfinite() & y.isfinite())
        return close | (x.isnan() & y.isnan()) if equal_nan else close

    # -- by the name of an op ---------------------------------------------------------------------

    def alu(self, op: Ops, *src: Self) -> Self:
        """The op of the IR on this Tensor and others of the same type and shape.

        Example:
            Tensor([1]).alu(Ops.ADD, Tensor([2]))  # [3]
        """
        if op not in ALU:
            raise ArgumentError(f"alu takes an op of elements, not {op}; there are {sorted(ALU)}")
        nodes = [self._uop, *[part._uop for part in src]]
        for part in src:
            check_same_device("alu", self, part)
        for node in nodes[op is WHERE :]:
            if node.dtype is not nodes[-1].dtype:
                raise DtypeError(f"alu {op} of {node.dtype} and {nodes[-1].dtype}; cast one first")
            if node.dtype.is_code and op is not WHERE:
                raise DtypeError(f"alu {op} of {node.dtype}, which is only stored; cast it first")
        shape = broadcast_shapes("alu", *[node.shape for node in nodes])
        whole = [broadcast_node(node, shape) for node in nodes]
        return self._with(whole[0].alu(op, *whole[1:]))

    def usum(self, *uops: Operand) -> Self:
        """The sum of this and the others."""
        result = self._value()
        for part in uops:
            result = result + part
        return result

    def uprod(self, *uops: Operand) -> Self:
        """The product of this and the others."""
        result = self._value()
        for part in uops:
            result = result * part
        return result

    def ufix(self, x: Operand) -> Self:
        """`x` as a Tensor: a number gets the type that it would have beside this one."""
        if isinstance(x, TensorBase):
            return self._with(x._uop)
        if isinstance(x, (bool, int, float)):
            return self._with(constant_node(x, promote_scalar(self.dtype, x), ()))
        return self._with(self._as_tensor(x)._uop)

    @takes_bounds
    def clamp(self, min_: Operand | None = None, max_: Operand | None = None) -> Self:
        """Not below `min_`, not above `max_`. Where a value is a bound that is a number, its slope is 1; of two Tensors it is shared."""
        if min_ is None and max_ is None:
            raise ArgumentError("clip needs a lower or an upper bound")
        raised = self if min_ is None else self.maximum(min_)
        clamped = raised if max_ is None else raised.minimum(max_)
        bounds = -inf if min_ is None else min_, inf if max_ is None else max_
        is_within_numbers = all([type(bound) in (int, float) for bound in bounds])
        if not self.dtype.is_float or clamped.shape != self.shape or not is_within_numbers:
            return clamped
        return with_slope(clamped, self, slope_of_clamp(*bounds))

    clip = clamp
    # -- functions of one value that are ops, and rounding ------------------------------------------

    def sqrt(self) -> Self:
        """The square root, correctly rounded; NaN below 0."""
        return self._as_float()._unary(SQRT)

    def reciprocal(self) -> Self:
        """`1 / self`."""
        return self._divide(1, True)

    def exp2(self) -> Self:
        """`2 ** self`."""
        return self._as_float()._unary(Ops.EXP2)

    def log2(self) -> Self:
        """The logarithm to base 2; NaN below 0, -inf at 0."""
        return self._as_float()._unary(Ops.LOG2)

    def trunc(self) -> Self:
        """Rounded towards 0."""
        return self._unary(Ops.TRUNC) if self.is_floating_point() else self._value()

    def floor(self) -> Self:
        """Rounded towards minus infinity."""
        whole = self.trunc()
        return (self < whole).where(whole - 1, whole) if self.is_floating_point() else whole

    def ceil(self) -> Self:
        """Rounded towards infinity."""
        whole = self.trunc()
        return (whole < self).where(whole + 1, whole) if self.is_floating_point() else whole

    def abs(self) -> Self:
        """The size without the sign; the gradient at 0 is 0."""
        if self.dtype.is_bool or self.dtype.is_unsigned:
            return self._value()
        return self.maximum(-self)

    def sign(self) -> Self:
        """-1, 0 or 1; NaN of NaN."""
        if self.dtype.is_bool:
            return self._value()
        negative = (self < 0).where(-1, self) if not self.dtype.is_unsigned else self
        return self.eq(0).where(0, (self > 0).where(1, negative))

    def isnan(self) -> Self:
        """Is the element NaN?"""
        return self._binary(CMPEQ, "isnan", self)._unary(NOT)

    def isinf(self, detect_positive: Flag = True, detect_negative: Flag = True) -> Self:
        """Is the element infinite? Of the signs asked for."""
        if not self.is_floating_point() or not (detect_positive or detect_negative):
            return self.ne(self) & False
        above, below = self.eq(math.inf), self.eq(-math.inf)
        if not detect_negative:
            return above
        return above | below if detect_positive else below

    def isfinite(self) -> Self:
        """Is the element neither infinite nor NaN?"""
        return ~(self.isinf() | self.isnan())


def _expanded(node: UOp, shape: Shape) -> UOp:
    return (
        constant_node(node.arg, node.dtype, shape)
        if node.op is CONST
        else broadcast_node(node, shape)
    )


def _at_most(a: UOp, b: UOp) -> UOp:
    """a <= b. For floats not `not b < a`, which NaN would make true."""
    if not a.dtype.is_float:
        return b.alu(CMPLT, a).alu(NOT)
    return a.alu(CMPLT, b).alu(Ops.OR, a.alu(CMPEQ, b))
