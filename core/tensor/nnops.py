"""Operations of neural networks: products, convolutions, pooling, losses, joining.

Owns: how each is made of movement, multiplication and sums. There is no matmul or convolution op:
the scheduler finds the loops.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeAlias, TypeVar

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.shapes import ShapeError, show
from proofgrad.core.tensor.base import check_same_device
from proofgrad.core.tensor.errors import DtypeError
from proofgrad.core.tensor.movement import broadcast_shapes
from proofgrad.core.tensor.operands import Flag, Operand, Real, Whole
from proofgrad.core.tensor.promotion import accumulation_dtype, as_dtype, promote
from proofgrad.core.tensor.random import Random

Sizes: TypeAlias = Whole | Sequence[int]


_T = TypeVar("_T", bound="NeuralOps")


class NeuralOps(Random):
    """Products, windows, losses."""

    __slots__ = ()

    # -- products ---------------------------------------------------------------------------------

    def dot(self, other: Operand, dtype: DType | str | None = None) -> Self:
        """The matrix product: last axis of this Tensor with the last but one of the other."""
        if isinstance(other, (bool, int, float)):
            raise ShapeError(f"@ takes Tensors with axes, not the number {other}; use *")
        if not isinstance(other, NeuralOps):
            other = self._as_tensor(other)
        check_same_device("@", self, other)
        if not self.ndim or not other.ndim:
            raise ShapeError(f"@ needs 1 axis or more: {show(self.shape)} @ {show(other.shape)}")
        inner = -2 if other.ndim > 1 else -1
        if self.shape[-1] != other.shape[inner]:
            raise ShapeError(
                f"cannot multiply {show(self.shape)} @ {show(other.shape)}: axis -1 of the first"
                f" has {self.shape[-1]} elements, axis {inner} of the second {other.shape[inner]}"
            )
        result = promote(self.dtype, other.dtype) if dtype is None else as_dtype(dtype)
        wide = accumulation_dtype(result)
        x = self.cast(wide)
        w: Self = other.cast(wide)
        if self.ndim > 1 and other.ndim > 1:
            x = x.unsqueeze(-2)
            w = w.transpose(-1, -2).unsqueeze(-3)
        elif other.ndim > 1:
            w = w.transpose(-1, -2)
        return _sum_of_products(x, w, wide, (-1,)).cast(result)

    def matmul(
        self, other: Operand, reverse: Flag = False, dtype: DType | str | None = None
    ) -> Self:
        if not reverse:
            return self.dot(other, dtype)
        first = other if isinstance(other, NeuralOps) else self._as_tensor(other)
        return first.dot(self, dtype)  # type: ignore[attr-defined, no-any-return]

    def __matmul__(self, other: Operand) -> Self:
        return self.dot(other)

    def __rmatmul__(self, other: Operand) -> Self:
        return self.matmul(other, reverse=True)

    def linear(self, weight: Self, bias: Self | None = None) -> Self:
        """x @ weight + bias; weight has the shape (in, out), or (in,) to scale."""
        result = self * weight if weight.ndim == 1 else self.dot(weight)
        return result if bias is None else result + bias

    def sequential(self, layers: Sequence[Callable[[Any], Any]]) -> Self:
        """The layers one after the other."""
        result = self
        for layer in layers:
            result = layer(result)
        return result

    # -- convolution and pooling ------------------------------------------------------------------

    def conv2d(
        self,
        weight: Self,
        bias: Self | None = None,
        groups: Whole = 1,
        stride: Sizes = 1,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        dtype: DType | str | None = None,
    ) -> Self:
        """Cross-correlation over the axes after (batch, channels); any number of them.

        Shapes: self (n, in, *size), weight (out, in / groups, *kernel), bias (out,).
        """
        self._check_convolution(weight, bias, groups)
        axes = self.ndim - 2
        n, channels_out = self.shape[0], weight.shape[0]
        result = promote(self.dtype, weight.dtype) if dtype is None else as_dtype(dtype)
        wide = accumulation_dtype(result)
        x = self.cast(wide)._pad_zeros([(0, 0), (0, 0), *_padding_pairs(padding, axes)])
        steps, holes = _each(stride, axes, "stride"), _each(dilation, axes, "dilation")
        for k in range(axes):  # axis 2 + 2k: place of the window; 3 + 2k: place inside of it
            x = x._windows(2 + 2 * k, weight.shape[2 + k], steps[k], holes[k])
        sizes = x.shape[2::2]
        inner = (weight.shape[1], *weight.shape[2:])
        x = x.reshape((n, groups, 1, weight.shape[1]) + x.shape[2:])
        places, windows = [4 + 2 * k for k in range(axes)], [5 + 2 * k for k in range(axes)]
        x = x.permute((0, 1, 2, *places, 3, *windows))
        w = weight.cast(wide).reshape((1, groups, channels_out // groups) + (1,) * axes + inner)
        summed = tuple(range(-1 - axes, 0))
        y = _sum_of_products(x, w, wide, summed).reshape((n, channels_out) + sizes).cast(result)
        return y if bias is None else y + bias.reshape((1, -1) + (1,) * axes)

    def _check_convolution(self, weight: Self, bias: Self | None, groups: Whole) -> None:
        check_same_device("conv2d", self, weight)
        if self.ndim < 3 or weight.ndim != self.ndim:
            raise ShapeError(
                f"conv2d needs an input (n, channels, *size) and a weight (out, in, *kernel), not"
                f" {show(self.shape)} and {show(weight.shape)}"
            )
        if self.shape[1] != groups * weight.shape[1] or weight.shape[0] % groups:
            raise ShapeError(
                f"conv2d of {show(self.shape)} with weight {show(weight.shape)}, groups={groups}:"
                f" the input has {self.shape[1]} channels, the weight takes"
                f" {groups} x {weight.shape[1]}, and its {weight.shape[0]} must split into groups"
            )
        if bias is not None and bias.shape != (weight.shape[0],):
            raise ShapeError(f"conv2d bias {show(bias.shape)} must be ({weight.shape[0]},)")

    def max_pool2d(
        self,
        kernel_size: Sizes = (2, 2),
        stride: Sizes | None = None,
        dilation: Sizes = 1,
        padding: Sizes = 0,
    ) -> Self:
        """The largest of each window over the last axes; `stride` defaults to the window."""
        axes = 2 if isinstance(kernel_size, int) else len(kernel_size)
        least = dtypes.min(self.dtype)
        padded = self.pad(_pool_padding(self.ndim, padding, axes), value=least)
        x = padded._pooled(kernel_size, stride, dilation, axes)
        return x.max(tuple(range(-2 * axes + 1, 0, 2)))

    def avg_pool2d(
        self,
        kernel_size: Sizes = (2, 2),
        stride: Sizes | None = None,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        count_include_pad: Flag = True,
    ) -> Self:
        """The mean of each window over the last axes; `stride` defaults to the window."""
        axes = 2 if isinstance(kernel_size, int) else len(kernel_size)
        around = _pool_padding(self.ndim, padding, axes)
        inside = tuple(range(-2 * axes + 1, 0, 2))
        x = self._as_float()._pad_zeros(around)._pooled(kernel_size, stride, dilation, axes)
        if count_include_pad:
            return x.mean(inside)
        ones = self.ones_like(dtype=dtypes.float32)._pad_zeros(around)
        return x.sum(inside) / ones._pooled(kernel_size, stride, dilation, axes).sum(inside)

    def _pooled(self, kernel: Sizes, stride: Sizes | None, dilation: Sizes, axes: Whole) -> Self:
        """Each of the last axes as two: the position of a window, the place inside of it."""
        kernels = _each(kernel, axes, "kernel_size")
        steps = kernels if stride is None else _each(stride, axes, "stride")
        holes = _each(dilation, axes, "dilation")
        x, first = self, self.ndim - axes
        for k in range(axes):
            x = x._tiles(first + 2 * k, kernels[k], steps[k], holes[k])
        return x

    def _tiles(self, axis: Whole, kernel: Whole, stride: Whole, dilation: Whole) -> Self:
        """As _windows; windows that do not overlap are only a reshape."""
        if kernel != stride or dilation != 1 or self.shape[axis] < kernel:
            return self._windows(axis, kernel, stride, dilation)
        count = self.shape[axis] // kernel
        x = self._cut(axis, 0, count * kernel)
        return x.reshape(x.shape[:axis] + (count, kernel) + x.shape[axis + 1 :])

    # -- losses -----------------------------------------------------------------------------------

    def _hits(self, labels: Self) -> Self:
        """Where the last axis is the class that `labels` names."""
        if not labels.dtype.is_int:
            raise DtypeError(f"class labels are integers, not {labels.dtype}")
        if labels.shape != self.shape[:-1]:
            raise ShapeError(
                f"labels {show(labels.shape)} for scores {show(self.shape)}: expected"
                f" {show(self.shape[:-1])}, one label for each row of scores"
            )
        return labels.unsqueeze(-1) == self._iota(self.shape[-1], labels.dtype)

    def sparse_categorical_crossentropy(
        self,
        Y: Self,
        ignore_index: Whole = -1,
        label_smoothing: Real = 0.0,
        reduction: str = "mean",
    ) -> Self:
        """Cross-entropy of scores (.., classes) with integer labels; `ignore_index` counts not."""
        hits, scores = self._hits(Y), self.log_softmax()
        possible = dtypes.min(Y.dtype) <= ignore_index <= dtypes.max(Y.dtype)
        counted = Y.ne(ignore_index) if possible else Y.ones_like(dtype=dtypes.bool)
        picked = hits.where(scores, 0).sum(-1)
        if label_smoothing:
            picked = picked * (1 - label_smoothing) + scores.mean(-1) * label_smoothing
        losses = counted.where(-picked, 0)
        if reduction == "mean":
            return losses.sum() / counted.sum()
        return _reduced(losses, reduction)

    def cross_entropy(
        self,
        Y: Self,
        reduction: str = "mean",
        label_smoothing: Real = 0.0,
    ) -> Self:
        """Cross-entropy with class labels, or with a distribution of the shape of the scores.

        Classes are axis 1, as in torch; axis 0 is the batch.
        """
        axis = 0 if self.ndim == 1 else 1
        scores = self.log_softmax(axis)
        if Y.ndim == self.ndim:
            target = Y.cast(scores.dtype)
        else:
            order = [k for k in range(self.ndim) if k != axis] + [axis]
            hits = self.permute(order)._hits(Y).cast(scores.dtype)
            target = hits.permute([order.index(k) for k in range(self.ndim)])
        if label_smoothing:
            target = target * (1 - label_smoothing) + label_smoothing / self.shape[axis]
        return _reduced(-(scores * target).sum(axis), reduction)

    def binary_crossentropy(self, Y: Self, reduction: str = "mean") -> Self:
        """Of probabilities with labels 0 .. 1."""
        return _reduced(-(Y * self.log() + (1 - Y) * (1 - self).log()), reduction)

    def binary_crossentropy_logits(self, Y: Self, reduction: str = "mean") -> Self:
        """Of scores, through a sigmoid that never overflows, with labels 0 .. 1."""
        return _reduced(self.softplus() - Y * self, reduction)

    def nll_loss(self, Y: Self, reduction: str = "mean") -> Self:
        """Minus the score of the labelled class; scores are log-probabilities (n, classes)."""
        return _reduced(-self._hits(Y).where(self, 0).sum(-1), reduction)

    def mse_loss(self, target: Self, reduction: str = "mean") -> Self:
        """The mean of the squared differences."""
        return _reduced((self - target).square(), reduction)

    def scaled_dot_product_attention(
        self, key: Self, value: Self, attn_mask: Self | None = None, is_causal: Flag = False
    ) -> Self:
        """softmax(q k^T / sqrt(d)) v over the last two axes."""
        scores = self @ key.transpose(-2, -1) / math.sqrt(self.shape[-1])
        if is_causal:
            allowed = scores.ones_like(dtype=dtypes.bool).tril()
            scores = allowed.where(scores, -math.inf)
        if attn_mask is not None:
            hides = attn_mask.dtype.is_bool
            scores = attn_mask.where(scores, -math.inf) if hides else scores + attn_mask
        return scores.softmax(-1) @ value


def _sum_of_products(x: _T, w: _T, dtype: DType, axes: tuple[int, ...]) -> _T:
    """(x * w) summed over the axes; bools are the any of ands."""
    broadcast_shapes("a product", x.shape, w.shape)
    return (x * w).any(axes) if dtype.is_bool else (x * w).sum(axes, dtype=dtype)


def _reduced(losses: _T, reduction: str) -> _T:
    match reduction:
        case "mean":
            return losses.mean()
        case "sum":
            return losses.sum()
        case "none":
            return losses
        case _:
            raise ValueError(f"reduction is 'mean', 'sum' or 'none', not {reduction!r}")


def _each(value: Sizes, axes: Whole, name: str) -> tuple[int, ...]:
    """One number for each axis."""
    values = (value,) * axes if isinstance(value, int) else tuple(value)
    if len(values) != axes:
        raise ShapeError(f"{name} {values} needs one entry, or one for each of {axes} axes")
    return values


def _padding_pairs(padding: Sizes, axes: Whole) -> list[tuple[int, int]]:
    """As torch: one number, one an axis, or (before, after) pairs with the last axis first."""
    if not isinstance(padding, int) and len(padding) == 2 * axes and axes > 0:
        flat = tuple(padding)
        return [(flat[k], flat[k + 1]) for k in range(0, 2 * axes, 2)][::-1]
    return [(p, p) for p in _each(padding, axes, "padding")]


def _pool_padding(rank: Whole, padding: Sizes, axes: Whole) -> list[tuple[int, int]]:
    if rank < axes:
        raise ShapeError(f"cannot pool over {axes} axes of a Tensor that has {rank}")
    return [(0, 0)] * (rank - axes) + _padding_pairs(padding, axes)
