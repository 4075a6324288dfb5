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
from proofgrad.core.tensor.methods.nn.modes import note_mode
from proofgrad.nn.layers import check_last_axis, parameter
from proofgrad.nn.shown import Shown


class BatchNorm(Shown):
    """Each channel (axis 1) to mean 0 and variance 1 of the batch; outside of training, to those seen.

    `Tensor.training` says which. Without `track_running_stats` it is the batch always. Shapes:
    (n, sz, ..) to the same. Source: Ioffe and Szegedy, 2015.
    """

    def __init__(
        self,
        sz: int,
        eps: float = 1e-5,
        affine: bool = True,
        track_running_stats: bool = True,
        momentum: float = 0.1,
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
            mean, variance = self.running_mean, widened(self.running_var)
            y = x.batchnorm(self.weight, self.bias, mean, (variance + self.eps).rsqrt())
            return y.cast(promote(mean.dtype, result_dtype(x, self.weight)))
        mean, variance = self._statistics(widened(x))
        y = x.batchnorm(self.weight, self.bias, mean, (variance + self.eps).rsqrt())
        return y.cast(result_dtype(x, self.weight))

    def _statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        axes = tuple([axis for axis in range(x.ndim) if axis != 1])
        mean = x.mean(axes)
        line = (1, -1) + (1,) * (x.ndim - 2)
        variance = (x - mean.reshape(line)).square().mean(axes)
        if Tensor.training and self.track_running_stats:
            self._remember(mean, variance, x.numel() // x.shape[1])
        return mean, variance

    def _remember(self, mean: Tensor, variance: Tensor, count: Any) -> None:
        """`count`: of the elements of a channel, an int or made of variables."""
        if isinstance(count, int):
            unbiased = variance * (count / max(1, count - 1))
        else:
            unbiased = variance * Tensor(count) / Tensor(count - 1).maximum(1)
        for kept, new in ((self.running_mean, mean), (self.running_var, unbiased)):
            seen = new.detach().cast(kept.dtype) * self.momentum
            kept.assign(kept * (1 - self.momentum) + seen)
        self.num_batches_tracked.assign(self.num_batches_tracked + 1)


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
        groups = x.unflatten(1, (self.num_groups, -1)).flatten(2)
        y = widened(groups).layernorm(eps=self.eps).reshape(x.shape)
        if self.weight is not None and self.bias is not None:
            line = (1, -1) + (1,) * (x.ndim - 2)
            y = y * self.weight.reshape(line) + self.bias.reshape(line)
        return y.cast(result_dtype(x, self.weight))


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
        y = widened(x).layernorm(tuple(range(-len(self.normalized_shape), 0)), self.eps)
        if self.weight is not None and self.bias is not None:
            y = y * self.weight + self.bias
        return y.cast(result_dtype(x, self.weight))


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
        wide = widened(x)
        y = wide * (wide.square().mean(-1, keepdim=True) + self.eps).rsqrt()
        return (y if self.weight is None else y * self.weight).cast(result_dtype(x, self.weight))


def widened(x: Tensor) -> Tensor:
    """In float32 or wider: a layer rounds to float16 or bfloat16 once, at its end."""
    return x if x.dtype is dtypes.float64 else x.float()


def result_dtype(x: Tensor, weight: Tensor | None) -> DType:
    """The type of what a layer gives: that of its input beside its weights."""
    kind = least_float(x.dtype)
    return kind if weight is None else promote(kind, weight.dtype)
