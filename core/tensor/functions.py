"""Functions of one element that are made of others: exponentials, logarithms, activations.

Owns: the formulas, chosen so that no intermediate overflows. exp and log go through base 2; accuracy:
docs/numerics.md.
"""

from __future__ import annotations

import math
from typing import Self

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.tensor.elementwise import Elementwise
from proofgrad.core.tensor.operands import Operand, Real, constant_node

_LOG2_E = 1 / math.log(2)
_LN_2 = math.log(2)
_LOG10_2 = math.log10(2)
# 1 / ln 2 in two parts; products of the first with half the digits of a float are exact.
_LOG2_E_FLOAT32 = (float.fromhex("0x1.714p+0"), float.fromhex("0x1.47652b82fe177p-12"))
_LOG2_E_FLOAT64 = (float.fromhex("0x1.715476p+0"), float.fromhex("0x1.4ae0bf85ddf44p-26"))


class Functions(Elementwise):
    """Functions and activations."""

    __slots__ = ()

    def rsqrt(self) -> Self:
        return self.sqrt().reciprocal()

    def square(self) -> Self:
        return self * self

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
        return self + (end - self).mul(weight)

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
