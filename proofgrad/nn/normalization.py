"""Layers that bring values to mean 0 and variance 1: over a batch, a group, an axis.

Owns: scale and shift of each layer, running statistics of batch norm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proofgrad import ShapeError, Tensor, dtypes
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.shapes import show
from proofgrad.core.tensor.data.arguments import takes_numbers
from proofgrad.core.tensor.data.promotion import least_float, promote
from proofgrad.core.tensor.methods.made_once import made_once
from proofgrad.core.tensor.methods.nn.modes import note_mode
from proofgrad.nn.layers import check_last_axis, parameter
from proofgrad.nn.shown import Shown


class BatchNorm(Shown):
    """Each channel (axis 1) to mean 0 and variance 1 of the batch; outside of training, to those seen.

    `Tensor.training` says which. Without `track_running_stats` it is the batch always. A `momentum` of
    None keeps the mean of all batches, as in torch. Shapes: (n, sz, ..) to the same. Source: Ioffe and Szegedy, 2015.
    """

    def __init__(
        self,
        sz: int,
        eps: float = 1e-5,
        affine: bool = True,
        track_running_stats: bool = True,
        momentum: float | None = 0.1,
    ) -> None:
        if not isinstance(affine, bool) or not isinstance(track_running_stats, bool):
            raise TypeError(
                f"affine and track_running_stats are True or False, not {affine!r} and {track_running_stats!r};"
                " torch's third argument, the momentum, is given by its name here"
            )
        self.eps, self.momentum, self.track_running_stats = eps, momentum, track_running_stats
        self.weight = parameter(1.0, sz) if affine else None
        self.bias = parameter(0.0, sz) if affine else None
        self.num_batches_tracked = Tensor(0, dtype=dtypes.int64, requires_grad=False)
        if track_running_stats:
            self.running_mean = parameter(0.0, sz).requires_grad_(False)
            self.running_var = parameter(1.0, sz).requires_grad_(False)
        self.channels = sz

    def __call__(self, x: Tensor) -> Tensor:
        if x.ndim < 2 or x.shape[1] != self.channels:
            raise ShapeError(
                f"BatchNorm({self.channels}) takes (n, {self.channels}, ..), not a Tensor of"
                f" {show(x.shape)}"
            )
        note_mode("BatchNorm", Tensor.training)
        if not Tensor.training and self.track_running_stats:
            mean, kind = self.running_mean, result_dtype(x, self.weight)
            kind = promote(mean.dtype, kind)
            return _scaled(x, mean, self.running_var, self.weight, self.bias, self.eps, kind)
        mean, variance = _statistics(x)
        if Tensor.training and self.track_running_stats:
            self._remember(mean, variance, x.numel() // x.shape[1])
        kind = result_dtype(x, self.weight)
        return _scaled(x, mean, variance, self.weight, self.bias, self.eps, kind)

    def _remember(self, mean: Tensor, variance: Tensor, count: Any) -> None:
        """`count`: of the elements of a channel, an int or made of variables. Of none nothing is learnt."""
        self.num_batches_tracked.assign(self.num_batches_tracked + 1)
        if isinstance(count, int):
            if not count:
                return
            unbiased = variance * (count / max(1, count - 1))
        else:
            unbiased = variance * Tensor(count) / Tensor(count - 1).maximum(1)
        for kept, new in ((self.running_mean, mean), (self.running_var, unbiased)):
            share: Tensor | float
            if self.momentum is None:
                share = 1 / self.num_batches_tracked.to(kept.device).cast(kept.dtype)
            else:
                share = self.momentum
            learnt = kept * (1 - share) + new.detach().cast(kept.dtype) * share
            kept.assign(
                learnt if isinstance(count, int) else (Tensor(count) > 0).where(learnt, kept)
            )


@made_once
def _statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of each channel; of no samples 0 and 1."""
    x = widened(x)
    axes = tuple([axis for axis in range(x.ndim) if axis != 1])
    if 0 in x.shape:
        return (nothing := x.sum(axes)), nothing + 1
    mean = x.mean(axes)
    line = (1, -1) + (1,) * (x.ndim - 2)
    return mean, (x - mean.reshape(line)).square().mean(axes)


@made_once
def _scaled(
    x: Tensor,
    mean: Tensor,
    variance: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    kind: DType,
) -> Tensor:
    """A batch brought to mean 0 and variance 1 by those of its channels, scaled and shifted."""
    return x.batchnorm(weight, bias, mean, (widened(variance) + eps).rsqrt()).cast(kind)


BatchNorm2d = BatchNorm3d = BatchNorm


class GroupNorm(Shown):
    """Channels in groups, each group of each sample to mean 0 and variance 1 (Wu and He, 2018).

    Shapes: (n, num_channels, ..) to the same. Raises: ShapeError if the groups are uneven.
    """

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True
    ) -> None:
        if num_channels % num_groups:
            raise ShapeError(f"{num_channels} channels do not split into {num_groups} groups")
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.weight = parameter(1.0, num_channels) if affine else None
        self.bias = parameter(0.0, num_channels) if affine else None

    def __call__(self, x: Tensor) -> Tensor:
        if x.ndim < 2 or x.shape[1] != self.num_channels:
            raise ShapeError(
                f"{type(self).__name__} takes (n, {self.num_channels}, ..), not a Tensor of"
                f" {show(x.shape)}"
            )
        return _by_groups(x, self.num_groups, self.eps, self.weight, self.bias)


@made_once
def _by_groups(
    x: Tensor, groups: int, eps: float, weight: Tensor | None, bias: Tensor | None
) -> Tensor:
    parts = x.unflatten(1, (groups, -1)).flatten(2)
    y = widened(parts).layernorm(eps=eps).reshape(x.shape)
    if weight is not None and bias is not None:
        line = (1, -1) + (1,) * (x.ndim - 2)
        y = y * weight.reshape(line) + bias.reshape(line)
    return y.cast(result_dtype(x, weight))


class InstanceNorm(GroupNorm):
    """Each channel of each sample to mean 0 and variance 1 (Ulyanov et al., 2016).

    Scaled and shifted unless `affine` is False, which is the default in torch.
    """

    def __init__(self, num_features: int, eps: float = 1e-5, affine: bool = True) -> None:
        super().__init__(num_features, num_features, eps, affine)
        self.num_features = num_features


class LayerNorm(Shown):
    """The last axes to mean 0 and variance 1, scaled and shifted (Ba et al., 2016)."""

    @takes_numbers
    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
    ) -> None:
        sizes = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
        self.normalized_shape = tuple(sizes)
        self.eps = eps
        self.weight = parameter(1.0, *self.normalized_shape) if elementwise_affine else None
        self.bias = parameter(0.0, *self.normalized_shape) if elementwise_affine else None

    def __call__(self, x: Tensor) -> Tensor:
        if x.shape[-len(self.normalized_shape) :] != self.normalized_shape:
            raise ShapeError(
                f"LayerNorm of {show(self.normalized_shape)} on a Tensor of {show(x.shape)}: the"
                " last axes must be equal"
            )
        return _by_rows(x, len(self.normalized_shape), self.eps, self.weight, self.bias)


@made_once
def _by_rows(
    x: Tensor, axes: int, eps: float, weight: Tensor | None, bias: Tensor | None
) -> Tensor:
    y = widened(x).layernorm(tuple(range(-axes, 0)), eps)
    if weight is not None and bias is not None:
        y = y * weight + bias
    return y.cast(result_dtype(x, weight))


class LayerNorm2d(LayerNorm):
    """LayerNorm of the channels of images. Shapes: (n, channels, h, w) to the same."""

    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x.permute((0, 2, 3, 1))).permute((0, 3, 1, 2))


class RMSNorm(Shown):
    """The last axis divided by its root mean square, scaled (Zhang and Sennrich, 2019)."""

    def __init__(self, dim: int, eps: float = 1e-6, elementwise_affine: bool = True) -> None:
        self.dim, self.eps = dim, eps
        self.weight = parameter(1.0, dim) if elementwise_affine else None

    def __call__(self, x: Tensor) -> Tensor:
        check_last_axis("RMSNorm", x, self.dim)
        return _by_root_mean_square(x, self.eps, self.weight)


@made_once
def _by_root_mean_square(x: Tensor, eps: float, weight: Tensor | None) -> Tensor:
    wide = widened(x)
    y = wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt()
    return (y if weight is None else y * weight).cast(result_dtype(x, weight))


def widened(x: Tensor) -> Tensor:
    """In float32 or wider: a layer rounds to float16 or bfloat16 once, at its end."""
    return x if x.dtype is dtypes.float64 else x.float()


def result_dtype(x: Tensor, weight: Tensor | None) -> DType:
    """The type of what a layer gives: that of its input beside its weights."""
    kind = least_float(x.dtype)
    return kind if weight is None else promote(kind, weight.dtype)
