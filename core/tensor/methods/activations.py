"""Activations of neural networks.

Owns: the formulas, as the papers and tinygrad name them. Does not own: exponentials and the like
(functions.py), softmax (reduce.py).
"""

from __future__ import annotations

import math
from typing import Self

from proofgrad.core.tensor.methods.functions import Functions, in_float32_or_wider
from proofgrad.core.tensor.methods.operands import Real

_GELU_SLOPE = math.sqrt(8 / math.pi)
_GELU_ENDS = 30.0  # beyond, gelu is x or 0 in every type
_MISH_ENDS = 40.0  # beyond, mish is x


class Activations(Functions):
    """Functions of one element between layers."""

    __slots__ = ()

    def relu(self) -> Self:
        """0 where x <= 0: NaN stays NaN, and the gradient at 0 is 0."""
        return (self <= 0).where(0, self)

    def relu6(self) -> Self:
        """min(relu(x), 6)."""
        return self.hardtanh(0, 6)

    def leaky_relu(self, neg_slope: Real = 0.01) -> Self:
        """x, or x * neg_slope where x < 0."""
        return (self < 0).where(self * neg_slope, self)

    @in_float32_or_wider
    def elu(self, alpha: Real = 1.0) -> Self:
        """x, or alpha (e**x - 1) where x < 0."""
        positive = self > 0
        return positive.where(self, positive.where(0, self).expm1() * alpha)

    @in_float32_or_wider
    def celu(self, alpha: Real = 1.0) -> Self:
        """x, or alpha (e**(x / alpha) - 1) where x < 0."""
        positive = self > 0
        return positive.where(self, (positive.where(0, self) / alpha).expm1() * alpha)

    @in_float32_or_wider
    def selu(self, alpha: Real = 1.67326, gamma: Real = 1.0507) -> Self:
        """gamma x, or gamma alpha (e**x - 1) where x < 0."""
        return self.elu(alpha) * gamma

    @in_float32_or_wider
    def sigmoid(self) -> Self:
        """1 / (1 + exp(-x)), by an exponential that never overflows."""
        negative = self < 0
        small = negative.where(self, -self).exp()
        return negative.where(small, 1) / (small + 1)

    @in_float32_or_wider
    def softplus(self, beta: Real = 1.0) -> Self:
        """log(1 + exp(beta x)) / beta, by an exponential that never overflows."""
        x = self if beta == 1 else self * beta
        negative = x < 0
        result = negative.where(0, x) + negative.where(x, -x).exp().log1p()
        return result if beta == 1 else result / beta

    @in_float32_or_wider
    def logsigmoid(self) -> Self:
        """log(sigmoid(x))."""
        return -(-self).softplus()

    @in_float32_or_wider
    def silu(self) -> Self:
        """x sigmoid(x)."""
        return self * self.sigmoid()

    def swish(self) -> Self:
        """As silu."""
        return self.silu()

    @in_float32_or_wider
    def gelu(self, approximate: str = "tanh") -> Self:
        """x times the chance that a normal number is below x.

        `approximate`: "tanh" for the formula of Hendrycks and Gimpel (2016), "none" for erf.
        """
        match approximate:
            case "tanh":
                x = self.maximum(-_GELU_ENDS).minimum(_GELU_ENDS)  # its square does not overflow
                inner = x * x.square().fma(0.044715 * _GELU_SLOPE, _GELU_SLOPE)
                return self * inner.sigmoid()  # (1 + tanh(y)) / 2 = sigmoid(2 y), without a series
            case "none":
                return self * 0.5 * ((self * math.sqrt(0.5)).erf() + 1)
            case _:
                raise ValueError(f"approximate is 'tanh' or 'none', not {approximate!r}")

    @in_float32_or_wider
    def quick_gelu(self) -> Self:
        """x sigmoid(1.702 x)."""
        return self * (self * 1.702).sigmoid()

    @in_float32_or_wider
    def mish(self) -> Self:
        """x tanh(softplus(x))."""
        return self * self.minimum(_MISH_ENDS).softplus().tanh()

    @in_float32_or_wider
    def softsign(self) -> Self:
        """x / (1 + |x|); 1 - 1 / (1 + x) where x is large, whose slope keeps its digits."""
        negative = self < 0
        whole = negative.where(-self, self) + 1
        far = 1 - whole.reciprocal()
        return self._within(1).where(self / whole, negative.where(-far, far))

    @in_float32_or_wider
    def hardsigmoid(self, alpha: Real = 1 / 6, beta: Real = 0.5) -> Self:
        """alpha x + beta, not below 0, not above 1."""
        return (self * alpha + beta).hardtanh(0, 1)

    @in_float32_or_wider
    def hardswish(self) -> Self:
        """x relu6(x + 3) / 6."""
        share = (self <= -3).where(0, (self >= 3).where(6, self + 3))
        return self * (share / 6)

    def hardtanh(self, min_val: Real = -1, max_val: Real = 1) -> Self:
        """Not below `min_val`, not above `max_val`; at and beyond them the slope is 0, as in torch."""
        return (self <= min_val).where(min_val, (self >= max_val).where(max_val, self))
