"""Operations on each element, and the broadcasting of their operands.

Owns: promotion and broadcasting of operands, operators, functions of one value built from the ops
of the IR. There is no op for subtraction, exp or log: `x - y` is `x + -y`, exp and log go through
base 2 (accuracy: docs/numerics.md).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Self, TypeAlias

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import COMPARE, Ops
from proofgrad.core.ir.shapes import Shape
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.base import TensorBase, check_same_device, describe
from proofgrad.core.tensor.errors import DtypeError
from proofgrad.core.tensor.movement import Movement, broadcast_node, broadcast_shapes
from proofgrad.core.tensor.promotion import (
    as_dtype,
    least_float,
    promote,
    promote_scalar,
    scalar_dtype,
)

Scalar: TypeAlias = bool | int | float
# The class below has methods of these names.
Flag: TypeAlias = bool
Whole: TypeAlias = int
Real: TypeAlias = float
Operand: TypeAlias = Any  # a Tensor, a Python scalar, a list or a numpy array

# On bools these stand for the bitwise ops, as in numpy.
_ON_BOOLS = {Ops.ADD: Ops.OR, Ops.MUL: Ops.AND, Ops.MAX: Ops.OR, Ops.MIN: Ops.AND}
_INTS_ONLY = frozenset({Ops.FLOORDIV, Ops.MOD, Ops.TRUNCDIV, Ops.TRUNCMOD, Ops.SHL, Ops.SHR})
_BITWISE = frozenset({Ops.AND, Ops.OR, Ops.XOR})


def constant_node(value: Scalar, dtype: DType, shape: Shape) -> UOp:
    """CONST -> RESHAPE -> EXPAND. Raises: OverflowError if `value` does not fit `dtype`."""
    if value:
        return _constant_node(value, dtype, shape)
    return broadcast_node(UOp.const(dtype, value), shape)  # 0.0 == -0.0 would share an entry


@lru_cache(maxsize=1024, typed=True)
def _constant_node(value: Scalar, dtype: DType, shape: Shape) -> UOp:
    return broadcast_node(UOp.const(dtype, value), shape)


class Elementwise(Movement):
    """Arithmetic, comparisons, selection, and functions of one element."""

    __slots__ = ()

    # -- operands -------------------------------------------------------------------------------

    def _as_tensor(self, value: Operand) -> TensorBase:
        """`value` as a Tensor on this device: numpy arrays, numpy scalars and lists."""
        if not isinstance(value, (list, tuple)) and not hasattr(value, "__array__"):
            raise TypeError(
                f"cannot combine a Tensor with {describe(value)};"
                f" expected a Tensor, a number, a list or an array"
            )
        return type(self)(value, device=self.device)  # type: ignore[call-arg]

    def _pair(self, name: str, other: Operand) -> tuple[UOp, UOp]:
        """The nodes of both operands with one type and one shape."""
        node = self._uop
        if isinstance(other, (bool, int, float)):
            dtype = promote_scalar(node.dtype, other)
            return node.cast(dtype), constant_node(other, dtype, node.shape)
        if not isinstance(other, TensorBase):
            other = self._as_tensor(other)
        if other.device != self.device:
            check_same_device(name, self, other)
        second = other._uop
        if node.dtype is not second.dtype:
            dtype = promote(node.dtype, second.dtype)
            node, second = node.cast(dtype), second.cast(dtype)
        if node.shape != second.shape:
            shape = broadcast_shapes(name, node.shape, second.shape)
            node, second = broadcast_node(node, shape), broadcast_node(second, shape)
        return node, second

    def _binary(self, op: Ops, name: str, other: Operand, swap: bool = False) -> Self:
        a, b = self._pair(name, other)
        if a.dtype.is_bool:
            op = _ON_BOOLS.get(op, op)
        _check_dtype(op, name, a.dtype)
        src = (b, a) if swap else (a, b)
        return self._with(UOp(op, dtypes.bool if op in COMPARE else a.dtype, src))

    def _unary(self, op: Ops) -> Self:
        return self._with(UOp(op, self.dtype, (self._uop,)))

    def _as_float(self) -> Self:
        return self.cast(least_float(self.dtype))

    def _in_bool(self, name: str) -> Self:
        if not self.dtype.is_bool:
            raise DtypeError(f"{name} takes bools, not {self.dtype}; compare first, as in (x > 0)")
        return self

    # -- types ----------------------------------------------------------------------------------

    def cast(self, dtype: DType | str) -> Self:
        """The values in another type: see Ops.CAST for rounding and saturation."""
        target = as_dtype(dtype)
        return self if self.dtype is target else self._with(self._uop.cast(target))

    def detach(self) -> Self:
        """The same values; no gradient passes."""
        return self._unary(Ops.DETACH)

    def bitcast(self, dtype: DType | str) -> Self:
        """The same bits read as another type of the same width."""
        target = as_dtype(dtype)
        if target.itemsize != self.dtype.itemsize or target.is_bool or self.dtype.is_bool:
            raise DtypeError(f"bitcast needs types of one width, not {self.dtype} and {target}")
        return self._with(self._uop.bitcast(target))

    def float(self) -> Self:
        return self.cast(dtypes.float32)

    def half(self) -> Self:
        return self.cast(dtypes.float16)

    def bfloat16(self) -> Self:
        return self.cast(dtypes.bfloat16)

    def double(self) -> Self:
        return self.cast(dtypes.float64)

    def int(self) -> Self:
        return self.cast(dtypes.int32)

    def short(self) -> Self:
        return self.cast(dtypes.int16)

    def long(self) -> Self:
        return self.cast(dtypes.int64)

    def bool(self) -> Self:
        return self.cast(dtypes.bool)

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

    __and__ = __rand__ = bitwise_and
    __or__ = __ror__ = bitwise_or
    __xor__ = __rxor__ = bitwise_xor
    __invert__ = bitwise_not
    __lshift__ = lshift
    __rshift__ = rshift

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

    def __eq__(self, other: Operand) -> Self:  # type: ignore[override]
        return self._binary(Ops.CMPEQ, "==", other)

    def __ne__(self, other: Operand) -> Self:  # type: ignore[override]
        return self._binary(Ops.CMPEQ, "!=", other)._unary(Ops.NOT)

    __hash__ = TensorBase.__hash__
    lt, gt, le, ge, eq, ne = __lt__, __gt__, __le__, __ge__, __eq__, __ne__

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

    # -- functions of one value -------------------------------------------------------------------

    def sqrt(self) -> Self:
        return self._as_float()._unary(Ops.SQRT)

    def rsqrt(self) -> Self:
        return self.sqrt().reciprocal()

    def reciprocal(self) -> Self:
        return self._divide(1, True)

    def square(self) -> Self:
        return self * self

    def exp2(self) -> Self:
        return self._as_float()._unary(Ops.EXP2)

    def log2(self) -> Self:
        return self._as_float()._unary(Ops.LOG2)

    def exp(self) -> Self:
        """e ** x, as 2 ** (x / ln 2) times 1 + what the rounding of x / ln 2 has lost."""
        x = self._as_float()
        if x.dtype.bits < 32:
            return x.float().exp().cast(x.dtype)
        power = x * _LOG2_E
        lost = x.detach()._lost_in_power(power.detach())
        return power.exp2() * (lost * _LN_2 + 1)

    def _lost_in_power(self, power: Self) -> Self:
        """The exact self / ln 2, minus `power`; by products of half as many digits (Dekker 1971)."""
        is_double = self.dtype is dtypes.float64
        integer, low_bits = (dtypes.int64, 27) if is_double else (dtypes.int32, 12)
        upper, lower = _LOG2_E_FLOAT64 if is_double else _LOG2_E_FLOAT32
        high = (self.bitcast(integer) & -(1 << low_bits)).bitcast(self.dtype)
        lost = ((high * upper - power) + (self - high) * upper) + self * lower
        return ((power < 2048) & (power > -2048)).where(lost, 0)  # beyond, 2 ** power is 0 or inf

    def log(self) -> Self:
        return self._by_log2(_LN_2)

    def log10(self) -> Self:
        return self._by_log2(_LOG10_2)

    def _by_log2(self, factor: Real) -> Self:
        x = self._as_float()
        if x.dtype.bits < 32:
            return x.float()._by_log2(factor).cast(x.dtype)
        return x.log2() * factor

    def sin(self) -> Self:
        return self._as_float()._unary(Ops.SIN)

    def cos(self) -> Self:
        """1 - 2 sin(x / 2)**2: x / 2 is exact, so that a large x is as good as a small one."""
        x = self._as_float()
        if x.dtype.bits < 32:
            return x.float().cos().cast(x.dtype)
        return 1 - (x * 0.5).sin().square() * 2

    def tan(self) -> Self:
        return self.sin() / self.cos()

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

    def isclose(
        self,
        other: Operand,
        rtol: Real = 1e-5,
        atol: Real = 1e-8,
    ) -> Self:
        """|self - other| <= atol + rtol |other|; infinities of one sign are close."""
        a, b = self._pair("isclose", other)
        x, y = self._with(a), self._with(b)
        near = (x - y).abs() <= y.abs() * rtol + atol
        return x.eq(y) | (near & y.isfinite())

    def lerp(self, end: Self, weight: Operand) -> Self:
        return self + (end - self) * weight

    # -- activations ------------------------------------------------------------------------------

    def relu(self) -> Self:
        """0 where x <= 0: NaN stays NaN, and the gradient at 0 is 0."""
        return (self <= 0).where(0, self)

    def relu6(self) -> Self:
        return self.relu().minimum(6)

    def leaky_relu(self, neg_slope: Real = 0.01) -> Self:
        return (self < 0).where(self * neg_slope, self)

    def elu(self, alpha: Real = 1.0) -> Self:
        return (self > 0).where(self, (self.minimum(0).exp() - 1) * alpha)

    def sigmoid(self) -> Self:
        """1 / (1 + exp(-x)), by an exponential that never overflows."""
        x = self._as_float()
        negative = x < 0
        small = negative.where(x, -x).exp()
        return negative.where(small, 1) / (small + 1)

    def tanh(self) -> Self:
        """(1 - e) / (1 + e) with e = exp(-2 |x|), and the sign of x."""
        x = self._as_float()
        negative = x < 0
        small = (negative.where(x, -x) * 2).exp()
        size = (1 - small) / (1 + small)
        return negative.where(-size, size)

    def sinh(self) -> Self:
        return (self.exp() - (-self._as_float()).exp()) / 2

    def cosh(self) -> Self:
        return (self.exp() + (-self._as_float()).exp()) / 2

    def softplus(self) -> Self:
        """log(1 + exp(x)), by an exponential that never overflows."""
        x = self._as_float()
        negative = x < 0
        return negative.where(0, x) + (negative.where(x, -x).exp() + 1).log()

    def logsigmoid(self) -> Self:
        return -(-self._as_float()).softplus()

    def silu(self) -> Self:
        return self * self.sigmoid()

    swish = silu

    def gelu(self) -> Self:
        """The approximation by tanh (Hendrycks and Gimpel, 2016)."""
        x = self._as_float()
        inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
        return x * 0.5 * (inner.tanh() + 1)

    def quick_gelu(self) -> Self:
        return self * (self * 1.702).sigmoid()

    def mish(self) -> Self:
        return self * self.softplus().tanh()

    def softsign(self) -> Self:
        return self / (self.abs() + 1)

    def hardsigmoid(self) -> Self:
        return ((self + 3) / 6).clamp(0, 1)

    def hardswish(self) -> Self:
        return self * (self + 3).relu6() / 6

    def hardtanh(self) -> Self:
        return self.clamp(-1, 1)

    def erf(self) -> Self:
        """Within 1.5e-7 (Abramowitz and Stegun, 1964, 7.1.26)."""
        x = self._as_float()
        t = (x.abs() * 0.3275911 + 1).reciprocal()
        series = x._with(constant_node(0.0, x.dtype, x.shape))
        for coefficient in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
            series = series * t + coefficient
        size = 1 - series * t * (-(x * x)).exp()
        return (x < 0).where(-size, size)


_LOG2_E = 1 / math.log(2)
_LN_2 = math.log(2)
_LOG10_2 = math.log10(2)
# 1 / ln 2 in two parts; products of the first with half the digits of a float are exact.
_LOG2_E_FLOAT32 = (float.fromhex("0x1.714p+0"), float.fromhex("0x1.47652b82fe177p-12"))
_LOG2_E_FLOAT64 = (float.fromhex("0x1.715476p+0"), float.fromhex("0x1.4ae0bf85ddf44p-26"))


def _at_most(a: UOp, b: UOp) -> UOp:
    """a <= b. For floats not `not b < a`, which NaN would make true."""
    if not a.dtype.is_float:
        return b.alu(Ops.CMPLT, a).alu(Ops.NOT)
    return a.alu(Ops.CMPLT, b).alu(Ops.OR, a.alu(Ops.CMPEQ, b))


def _check_dtype(op: Ops, name: str, dtype: DType) -> None:
    if op in _INTS_ONLY and not dtype.is_int:
        raise DtypeError(f"{name} takes integers, not {dtype}")
    if op in _BITWISE and dtype.is_float:
        raise DtypeError(f"{name} takes bools and integers, not {dtype}; cast with .int() first")
