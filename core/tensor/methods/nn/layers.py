"""Activations, linear layers, dropout.

Owns: the formulas, as the papers and tinygrad name them. Does not own: exponentials and the like
(elementwise/functions.py), softmax (reduction/reduce.py), layers that hold weights (proofgrad/nn).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.tensor.data.arguments import Real, refuses, takes_numbers
from proofgrad.core.tensor.data.errors import ArgumentError
from proofgrad.core.tensor.data.promotion import accumulation_dtype, promote
from proofgrad.core.tensor.methods.base import describe
from proofgrad.core.tensor.methods.creation.random import Creation
from proofgrad.core.tensor.methods.elementwise.functions import Elementwise, in_float32_or_wider
from proofgrad.core.tensor.methods.elementwise.series import NORMAL_ENDS_FLOAT32
from proofgrad.core.tensor.methods.elementwise.slopes import (
    slope_of_mish_share,
    slope_of_normal_gelu,
    slope_of_sigmoid,
    slope_of_softplus,
    with_slope,
)
from proofgrad.core.tensor.methods.linalg.matrices import LinearAlgebra
from proofgrad.core.tensor.methods.made_once import made_once
from proofgrad.core.tensor.methods.nn.modes import note_mode

_GELU_SLOPE = math.sqrt(8 / math.pi)
_GELU_ENDS = 30.0  # beyond, gelu is x or 0 in every type
_MISH_ENDS = 40.0  # beyond, mish is x
_T = TypeVar("_T", bound=Elementwise)


def with_bias(y: _T, bias: _T | None, result: DType) -> _T:
    """A sum that runs in a wider type, plus the bias, rounded once to `result`."""
    if bias is None:
        return y._in_type(result)
    if promote(result, bias.dtype) is not result:
        return y._in_type(result) + bias
    return (y + bias._in_type(y.dtype))._in_type(result)


class Layers(LinearAlgebra, Creation):
    """Activations and simple layers."""

    __slots__ = ()

    @made_once
    def relu(self) -> Self:
        """0 where x <= 0: NaN stays NaN, and the gradient at 0 is 0."""
        return (self <= 0).where(0, self)

    def relu6(self) -> Self:
        """min(relu(x), 6)."""
        return self.hardtanh(0, 6)

    @refuses(negative_slope="it is called neg_slope=")
    def leaky_relu(self, neg_slope: Real = 0.01) -> Self:
        """x, or x * neg_slope where x < 0."""
        return (self < 0).where(self * neg_slope, self)

    @in_float32_or_wider
    @made_once
    def elu(self, alpha: Real = 1.0) -> Self:
        """x, or alpha (e**x - 1) where x < 0."""
        positive = self > 0
        return positive.where(self, positive.where(0, self).expm1() * alpha)

    @in_float32_or_wider
    @made_once
    def celu(self, alpha: Real = 1.0) -> Self:
        """x, or alpha (e**(x / alpha) - 1) where x < 0."""
        positive = self > 0
        return positive.where(self, (positive.where(0, self) / alpha).expm1() * alpha)

    @in_float32_or_wider
    @made_once
    def selu(self, alpha: Real = 1.67326, gamma: Real = 1.0507) -> Self:
        """gamma x, or gamma alpha (e**x - 1) where x < 0."""
        return self.elu(alpha) * gamma

    @in_float32_or_wider
    @made_once
    def sigmoid(self) -> Self:
        """1 / (1 + exp(-x)), by an exponential that never overflows."""
        negative = self < 0
        small = negative.where(self, -self).exp()
        return with_slope(negative.where(small, 1) / (small + 1), self, slope_of_sigmoid)

    @refuses(threshold="leave it out: softplus does not overflow")
    @in_float32_or_wider
    @made_once
    def softplus(self, beta: Real = 1.0) -> Self:
        """log(1 + exp(beta x)) / beta, by an exponential that never overflows."""
        x = self if beta == 1 else self * beta
        negative = x < 0
        value = negative.where(0, x) + negative.where(x, -x).exp().log1p()
        result = with_slope(value, x, slope_of_softplus)
        return result if beta == 1 else result / beta

    @in_float32_or_wider
    @made_once
    def logsigmoid(self) -> Self:
        """log(sigmoid(x))."""
        return -(-self).softplus()

    @in_float32_or_wider
    @made_once
    def silu(self) -> Self:
        """x sigmoid(x)."""
        return self * self.sigmoid()

    def swish(self) -> Self:
        """As silu."""
        return self.silu()

    @in_float32_or_wider
    @made_once
    def gelu(self, approximate: str = "tanh") -> Self:
        """x times the chance that a normal number is below x.

        `approximate`: "tanh" for the formula of Hendrycks and Gimpel (2016), "none" for erf.
        """
        match approximate:
            case "tanh":
                x = self.maximum(-_GELU_ENDS).minimum(_GELU_ENDS)  # its square does not overflow
                inner = x * x.square()._multiply_add(0.044715 * _GELU_SLOPE, _GELU_SLOPE)
                return self * inner.sigmoid()  # (1 + tanh(y)) / 2 = sigmoid(2 y), without a series
            case "none":
                return self._normal_gelu()
            case _:
                raise ArgumentError(f"approximate is 'tanh' or 'none', not {approximate!r}")

    def _normal_gelu(self) -> Self:
        """That by erf: of float32 the larger of x and 0, less |x| times the chance that a normal number is beyond |x|."""
        if self.dtype is dtypes.float64:
            return self * 0.5 * ((self * math.sqrt(0.5)).erf() + 1)
        x = self.detach()
        size = x._size(NORMAL_ENDS_FLOAT32)
        value = (-size)._multiply_add(size._beyond(), (x < 0).where(0, x))
        return with_slope(value, self, slope_of_normal_gelu)

    @in_float32_or_wider
    @made_once
    def quick_gelu(self) -> Self:
        """x sigmoid(1.702 x)."""
        return self * (self * 1.702).sigmoid()

    @in_float32_or_wider
    @made_once
    def mish(self) -> Self:
        """x tanh(softplus(x)), where tanh(softplus(x)) is n / (n + 2) with n = e (e + 2), e = exp(x)."""
        x = self.minimum(_MISH_ENDS)
        power = x.exp()
        rest = power * (power + 2)
        return self * with_slope(rest / (rest + 2), x, slope_of_mish_share)

    @in_float32_or_wider
    @made_once
    def softsign(self) -> Self:
        """x / (1 + |x|); 1 - 1 / (1 + x) where x is large, whose slope keeps its digits."""
        negative = self < 0
        whole = negative.where(-self, self) + 1
        far = 1 - whole.reciprocal()
        return self._within(1).where(self / whole, negative.where(-far, far))

    @in_float32_or_wider
    @made_once
    def hardsigmoid(self, alpha: Real = 1 / 6, beta: Real = 0.5) -> Self:
        """alpha x + beta, not below 0, not above 1."""
        return (self * alpha + beta).hardtanh(0, 1)

    @in_float32_or_wider
    @made_once
    def hardswish(self) -> Self:
        """x relu6(x + 3) / 6."""
        share = (self <= -3).where(0, (self >= 3).where(6, self + 3))
        return self * (share / 6)

    @made_once
    def hardtanh(self, min_val: Real = -1, max_val: Real = 1) -> Self:
        """Not below `min_val`, not above `max_val`; at and beyond them the slope is 0, as in torch."""
        return (self <= min_val).where(min_val, (self >= max_val).where(max_val, self))

    # -- layers --------------------------------------------------------------------------------------

    def linear(
        self, weight: Self, bias: Self | None = None, dtype: DType | str | None = None
    ) -> Self:
        """x @ weight + bias, rounded once; weight has the shape (in, out), or (in,) to scale.

        `dtype`: all three are cast to it first.
        """
        weight = self._given("weight", weight)
        bias = None if bias is None else self._given("bias", bias)
        if dtype is not None:
            added = None if bias is None else bias.cast(dtype)
            return self.cast(dtype).linear(weight.cast(dtype), added)
        return self._affine(weight, bias)

    @made_once
    def _affine(self, weight: Self, bias: Self | None) -> Self:
        result = promote(self.dtype, weight.dtype)
        wide = accumulation_dtype(result)
        is_scale = weight.ndim == 1
        y = self.cast(wide) * weight.cast(wide) if is_scale else self.dot(weight, wide)
        return with_bias(y, bias, result)

    def sequential(self, ll: Sequence[Callable[[Any], Any]]) -> Self:
        """The layers one after the other."""
        result = self
        for layer in ll:
            result = layer(result)
        return result

    @takes_numbers
    def dropout(self, p: Real = 0.5) -> Self:
        """While `Tensor.training`: each element 0 with probability p, the others over 1 - p."""
        if not isinstance(p, (int, float)):
            raise TypeError(f"dropout takes a probability, a number, not {describe(p)}")
        if not 0 <= p <= 1:
            raise ArgumentError(f"dropout needs a probability, not {p}")
        if p:
            note_mode("Dropout", type(self).training)
        if not type(self).training or p == 0:
            return self._value()
        if p == 1:
            return self.zeros_like()
        kept = type(self).rand(self.shape, device=self.device, dtype=dtypes.float32) >= p
        return kept.where(self / (1 - p), 0)
