"""Reductions over axes, and what is built from them: means, softmax, normalisation, cumulative functions.

Owns: the types sums are taken in (float16 and bfloat16 sum in float32, small integers in 32 bits), which
are those that everything made of sums is computed in: a result is rounded to 16 bits once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from math import prod
from typing import Self, TypeAlias

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.op_names import ADD
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import show
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.arguments import (
    Flag,
    Real,
    Whole,
    resolve_axes,
    resolve_axis,
    takes_axis,
    takes_dim,
)
from proofgrad.core.tensor.data.errors import ArgumentError, AxisError
from proofgrad.core.tensor.data.nodes import reshape_node
from proofgrad.core.tensor.data.promotion import (
    accumulation_dtype,
    as_dtype,
    computed_dtype,
    least_float,
    promote,
    sum_dtype,
)
from proofgrad.core.tensor.methods.elementwise.functions import Elementwise
from proofgrad.core.tensor.methods.made_once import made_once
from proofgrad.core.tensor.methods.movement.joining import Movement
from proofgrad.core.tensor.methods.reduction.scan import (
    LOG_SUM_EXP,
    SUM,
    running_extreme,
    running_product,
    scan,
)

REDUCE_AXIS = Ops.REDUCE_AXIS
Axes: TypeAlias = Whole | Sequence[int] | None


class Reduction(Movement, Elementwise):
    """Methods that combine elements along axes. `axis=None` means all of them."""

    __slots__ = ()

    def _reduce(self, op: Ops, axis: Axes, keepdim: Flag) -> Self:
        node = self._uop
        dtype, shape = node.dtype, node.shape
        axes = resolve_axes(axis, len(shape))
        node = node.cast(computed_dtype(dtype))
        if axes:
            node = UOp(REDUCE_AXIS, node.dtype, (node,), (op, axes)).cast(dtype)
        if not keepdim:
            node = reshape_node(node, tuple([n for k, n in enumerate(shape) if k not in axes]))
        found = self._with(node)
        return found if axes else found._value()

    @takes_axis
    def sum(
        self, axis: Axes = None, keepdim: Flag = False, dtype: DType | str | None = None
    ) -> Self:
        """The sum; `dtype` says in which type it is taken and given."""
        result = sum_dtype(self._uop.dtype) if dtype is None else as_dtype(dtype)
        wide = accumulation_dtype(result) if dtype is None else computed_dtype(result)
        return self._in_type(wide)._reduce(ADD, axis, keepdim)._in_type(result)

    @takes_axis
    def prod(
        self, axis: Axes = None, keepdim: Flag = False, dtype: DType | str | None = None
    ) -> Self:
        """The product; `dtype` as for sum."""
        result = sum_dtype(self.dtype) if dtype is None else as_dtype(dtype)
        wide = accumulation_dtype(result) if dtype is None else computed_dtype(result)
        return self._in_type(wide)._reduce(Ops.MUL, axis, keepdim)._in_type(result)

    @takes_axis
    def max(self, axis: Axes = None, keepdim: Flag = False) -> Self:
        """The largest; NaN if any is NaN. Raises: ShapeError over no elements."""
        return self._extreme(Ops.MAX, axis, keepdim)

    @takes_axis
    def min(self, axis: Axes = None, keepdim: Flag = False) -> Self:
        """The smallest; NaN if any is NaN. Raises: ShapeError over no elements."""
        return self._extreme(Ops.MIN, axis, keepdim)

    def _extreme(self, op: Ops, axis: Axes, keepdim: Flag) -> Self:
        if not prod(self.shape[k] for k in resolve_axes(axis, self.ndim)):
            raise AxisError(f"the {op.name.lower()} over no elements of {show(self.shape)}")
        if self._uop.dtype is dtypes.bool:
            return self.cast(dtypes.uint8)._reduce(op, axis, keepdim).bool()
        # Nothing is rounded on the way: to hold the largest so far in a type that is computed in another one would be a conversion each time.
        wide = accumulation_dtype(self.dtype) if self.dtype.is_float else self.dtype
        return self._in_type(wide)._reduce(op, axis, keepdim)._in_type(self.dtype)

    @made_once
    @takes_axis
    def any(self, axis: Axes = None, keepdim: Flag = False) -> Self:
        """Is an element true (not zero)?"""
        return self.bool().cast(dtypes.uint8)._reduce(Ops.MAX, axis, keepdim).bool()

    @made_once
    @takes_axis
    def all(self, axis: Axes = None, keepdim: Flag = False) -> Self:
        """Are all elements true (not zero)?"""
        return self.bool().cast(dtypes.uint8)._reduce(Ops.MIN, axis, keepdim).bool()

    def _count(self, axis: Axes) -> Whole:
        return prod(self.shape[k] for k in resolve_axes(axis, self.ndim))

    def _wide(self) -> Self:
        """As a float of the type that sums are taken in: float32 for float16 and bfloat16.

        What has several steps takes them there, and is rounded once: squares of float16 overflow
        from 256 on, and a count that divides them from 65,520 on.
        """
        return self._in_type(accumulation_dtype(least_float(self.dtype)))

    @takes_axis
    def mean(self, axis: Axes = None, keepdim: Flag = False) -> Self:
        """The sum over the count; integers give floats."""
        return self._wide_mean(axis, keepdim)._in_type(least_float(self.dtype))

    def _wide_mean(self, axis: Axes, keepdim: Flag) -> Self:
        return self._wide()._average(resolve_axes(axis, self.ndim), keepdim)

    @made_once
    def _average(self, axes: tuple[int, ...], keepdim: Flag) -> Self:
        return self._reduce(Ops.ADD, axes, keepdim) / self._count(axes)

    @takes_axis
    def var(self, axis: Axes = None, keepdim: Flag = False, correction: Whole = 1) -> Self:
        """The variance, with the sum of squares divided by n - correction."""
        return self._wide_variance(axis, keepdim, correction)._in_type(least_float(self.dtype))

    def _wide_variance(self, axis: Axes, keepdim: Flag, correction: Whole) -> Self:
        return self._wide()._mean_square(resolve_axes(axis, self.ndim), keepdim, correction)

    @made_once
    def _mean_square(self, axes: tuple[int, ...], keepdim: Flag, correction: Whole) -> Self:
        deviation = self - self._average(axes, True)
        total = deviation.square()._reduce(Ops.ADD, axes, keepdim)
        count = self._count(axes) - correction
        if isinstance(count, int):
            return total / max(0, count)
        return total / type(self)(count, self.device).maximum(0)

    @takes_axis
    def std(self, axis: Axes = None, keepdim: Flag = False, correction: Whole = 1) -> Self:
        """The standard deviation: see var. Elements that are all equal get the gradient 0."""
        variance = self._wide_variance(axis, keepdim, correction)
        return variance._length()._in_type(least_float(self.dtype))

    def _length(self) -> Self:
        """The square root of a sum of squares. Its gradient at 0, where it has none, is 0."""
        nothing = self.eq(0)
        return nothing.where(0, nothing.where(1, self).sqrt())

    def var_mean(
        self, axis: Axes = None, keepdim: Flag = False, correction: Whole = 1
    ) -> tuple[Self, Self]:
        """The variance and the mean."""
        return self.var(axis, keepdim, correction), self.mean(axis, keepdim)

    def std_mean(
        self, axis: Axes = None, keepdim: Flag = False, correction: Whole = 1
    ) -> tuple[Self, Self]:
        """The deviation and the mean."""
        return self.std(axis, keepdim, correction), self.mean(axis, keepdim)

    @takes_dim
    def normalize(self, p: Real = 2.0, dim: Whole = 1, eps: Real = 1e-12) -> Self:
        """Divided by the p-norm along `dim`, which counts as `eps` at least."""
        x = self._wide()
        return (x / x._norm(p, dim, True).maximum(eps))._in_type(least_float(self.dtype))

    @takes_dim
    def norm(self, p: Real | str = 2.0, dim: Axes = None, keepdim: Flag = False) -> Self:
        """The p-norm over the axes, by default of all elements: (sum |x|^p)^(1/p), as torch.Tensor.norm.

        `p`: 2 ("fro" is the same), 1, infinity for the largest size, -infinity for the smallest, 0 for the number of elements that are
        not 0, or another number. Its gradient where the norm is 0 is 0.

        Example:
            Tensor([3.0, -4.0]).norm().item()  # 5.0
        """
        if isinstance(p, str) and p != "fro":
            raise ArgumentError(
                f"p of norm is a number or 'fro', not {p!r}; for 'nuc' sum svd()[1]"
            )
        power = 2.0 if isinstance(p, str) else p
        return self._wide()._norm(power, dim, keepdim)._in_type(least_float(self.dtype))

    @made_once
    def _norm(self, p: Real, dim: Axes, keepdim: Flag) -> Self:
        match p:
            case 0:
                return self.ne(0).sum(dim, keepdim).cast(self.dtype)
            case 1:
                return self.abs().sum(dim, keepdim)
            case 2:
                return self.square().sum(dim, keepdim)._length()
            case math.inf:
                return self.abs().max(dim, keepdim)
            case _ if p == -math.inf:
                return self.abs().min(dim, keepdim)
            case _ if p < 0:  # infinite where an element is 0, and so 0 in the end
                return self.abs().pow(p).sum(dim, keepdim).pow(1 / p)
        total = self.abs()._power_but_of_zero(p).sum(dim, keepdim)
        return total._power_but_of_zero(1 / p)

    def _power_but_of_zero(self, exponent: Real) -> Self:
        """A power of what is not negative; 0 stays 0, with gradient 0."""
        nothing = self.eq(0)
        return nothing.where(0, nothing.where(1, self).pow(exponent))

    @takes_axis
    def argmax(self, axis: Whole | None = None, keepdim: Flag = False) -> Self:
        """Where the largest element (a NaN, if there is one) is first found."""
        return self._first_extreme("argmax", axis, keepdim)

    def _first_extreme(self, name: str, axis: Whole | None, keepdim: Flag) -> Self:
        position = 0 if axis is None else resolve_axis(axis, self.ndim)
        if not self._count(axis):
            raise AxisError(f"the {name} over no elements of {show(self.shape)}")
        if axis is None or not self.ndim:
            return self.flatten()._where_first(0, False)
        return self._where_first(position, keepdim)

    @made_once
    def _where_first(self, position: Whole, keepdim: Flag) -> Self:
        size = self.shape[position]
        hits = self == self.max(position, keepdim=True)
        if self.is_floating_point():
            hits = hits | self.isnan()
        line = (1,) * position + (size,) + (1,) * (self.ndim - position - 1)
        back = size - self._iota(size).reshape(line)
        return size - hits.where(back, 0).max(position, keepdim)

    @takes_axis
    def argmin(self, axis: Whole | None = None, keepdim: Flag = False) -> Self:
        """Where the smallest element (a NaN, if there is one) is first found."""
        turned = -self if self.is_floating_point() else ~self
        return turned._first_extreme("argmin", axis, keepdim)

    @takes_axis
    def softmax(self, axis: Whole = -1, dtype: DType | str | None = None) -> Self:
        """exp(x) / sum(exp(x)), shifted by the largest so that nothing overflows."""
        x = self._as_float() if dtype is None else self.cast(dtype)
        resolve_axes(axis, self.ndim)
        if not x.numel():  # over no elements there is no largest one, and nothing to give
            return x._value()
        return x._wide()._shares(axis)._in_type(x.dtype)

    @made_once
    def _shares(self, axis: Whole) -> Self:
        powers = (self - self.max(axis, keepdim=True).detach()).exp()
        return powers * powers.sum(axis, keepdim=True).reciprocal()

    def softmin(self, axis: Whole = -1, dtype: DType | str | None = None) -> Self:
        """softmax of -x."""
        return (-self._as_float()).softmax(axis, dtype)

    @takes_axis
    def log_softmax(self, axis: Whole = -1, dtype: DType | str | None = None) -> Self:
        """log(softmax(x)), which keeps its digits where softmax underflows."""
        x = self._as_float() if dtype is None else self.cast(dtype)
        resolve_axes(axis, self.ndim)
        if not x.numel():
            return x._value()
        return x._wide()._log_shares(axis)._in_type(x.dtype)

    @made_once
    def _log_shares(self, axis: Whole) -> Self:
        shifted = self - self.max(axis, keepdim=True).detach()
        return shifted - shifted.exp().sum(axis, keepdim=True).log()

    @takes_axis
    def logsumexp(self, axis: Axes = None, keepdim: Flag = False) -> Self:
        """log(sum(exp(x))), shifted by the largest so that nothing overflows."""
        x = self._wide()
        if not self._count(axis):
            return x.sum(axis, keepdim).log()._in_type(least_float(self.dtype))
        found = x._log_of_powers(resolve_axes(axis, self.ndim), keepdim)
        return found._in_type(least_float(self.dtype))

    @made_once
    def _log_of_powers(self, axes: tuple[int, ...], keepdim: Flag) -> Self:
        largest = self.max(axes, keepdim=True).detach()
        shift = largest.isfinite().where(largest, 0)
        total = (self - shift).exp().sum(axes, keepdim=True).log() + shift
        return total if keepdim else total._without(axes)

    def _without(self, axis: Axes) -> Self:
        axes = resolve_axes(axis, self.ndim)
        return self.reshape(tuple([n for k, n in enumerate(self.shape) if k not in axes]))

    def layernorm(self, axis: Axes = -1, eps: Real = 1e-5) -> Self:
        """Mean 0 and variance 1 over the axes (population variance)."""
        found = self._wide()._standardized(resolve_axes(axis, self.ndim), eps)
        return found._in_type(least_float(self.dtype))

    @made_once
    def _standardized(self, axes: tuple[int, ...], eps: Real) -> Self:
        centered = self - self._average(axes, True)
        variance = centered.square()._average(axes, True)
        return centered * (variance + eps).rsqrt()

    @made_once
    def batchnorm(
        self, weight: Self | None, bias: Self | None, mean: Self, invstd: Self, axis: Axes = 1
    ) -> Self:
        """(x - mean) * invstd * weight + bias, each a line along `axis`."""
        mean, invstd = self._given("mean", mean), self._given("invstd", invstd)
        weight = None if weight is None else self._given("weight", weight)
        bias = None if bias is None else self._given("bias", bias)
        kept = resolve_axes(axis, self.ndim)
        line = tuple([n if k in kept else 1 for k, n in enumerate(self.shape)])
        kinds = [part.dtype for part in (mean, invstd, weight, bias) if part is not None]
        kind = functools.reduce(promote, kinds, least_float(self.dtype))
        scale = invstd._wide() if weight is None else invstd._wide() * weight
        result = (self._wide() - mean.reshape(line)) * scale.reshape(line)
        return (result if bias is None else result + bias.reshape(line))._in_type(kind)

    def allclose(
        self, other: Self, rtol: Real = 1e-5, atol: Real = 1e-8, equal_nan: Flag = False
    ) -> Self:
        """Are all elements close? See isclose."""
        return self.isclose(other, rtol, atol, equal_nan).all()

    # -- cumulative -----------------------------------------------------------------------------------

    @made_once
    @takes_axis
    def cumsum(self, axis: Whole = 0) -> Self:
        """The sum of the elements up to each; types as for sum.

        Example:
            Tensor([1, 2, 3]).cumsum()  # [1, 3, 6]
        """
        result = sum_dtype(self.dtype)
        return scan(self._in_type(accumulation_dtype(result)), axis, SUM).cast(result)

    @made_once
    @takes_axis
    def cumprod(self, axis: Whole) -> Self:
        """The product of the elements up to each; types as for prod."""
        result = sum_dtype(self.dtype)
        return running_product(self._in_type(accumulation_dtype(result)), axis).cast(result)

    @made_once
    @takes_axis
    def cummax(self, axis: Whole = 0) -> tuple[Self, Self]:
        """The largest element up to each, and where it is first found; NaN is the largest."""
        return running_extreme(self, axis, Ops.MAX)

    @made_once
    @takes_axis
    def cummin(self, axis: Whole = 0) -> tuple[Self, Self]:
        """The smallest element up to each, and where it is first found; NaN is the smallest."""
        return running_extreme(self, axis, Ops.MIN)

    @made_once
    @takes_axis
    def logcumsumexp(self, axis: Whole = 0) -> Self:
        """log(cumsum(exp(x))), shifted so that nothing overflows and nothing is lost."""
        x = self._as_float()
        return scan(x._in_type(accumulation_dtype(x.dtype)), axis, LOG_SUM_EXP).cast(x.dtype)
