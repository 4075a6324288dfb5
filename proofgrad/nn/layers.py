"""Layers: parameters, and what they do to an input.

Owns: initial values of parameters, running statistics. Does not own: the operations (core/tensor).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from proofgrad import Tensor, dtypes

Sizes = int | Sequence[int]


def _filled(shape: tuple[int, ...], value: float, requires_grad: bool | None = None) -> Tensor:
    """Data of its own, unlike Tensor.full, whose equal constants are one value."""
    return Tensor([value] * prod(shape)).reshape(shape).requires_grad_(requires_grad)


class Linear:
    """x @ weight.T + bias. Shapes: (.., in_features) to (.., out_features)."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        bound = in_features**-0.5
        self.weight = Tensor.uniform(out_features, in_features, low=-bound, high=bound)
        self.bias = Tensor.uniform(out_features, low=-bound, high=bound) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        return x.linear(self.weight.transpose(), self.bias)


class Conv2d:
    """Cross-correlation. Shapes: (n, in_channels, h, w) to (n, out_channels, h', w')."""

    axes = 2

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Sizes,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        kernel = self._each(kernel_size)
        self.stride, self.groups, self.dilation = stride, groups, self._each(dilation)
        self.padding = self._padding(padding, kernel)
        shape = (out_channels, in_channels // groups, *kernel)
        bound = prod(shape[1:]) ** -0.5
        self.weight = Tensor.uniform(*shape, low=-bound, high=bound)
        self.bias = Tensor.uniform(out_channels, low=-bound, high=bound) if bias else None

    def _each(self, sizes: Sizes) -> tuple[int, ...]:
        return (sizes,) * self.axes if isinstance(sizes, int) else tuple(sizes)

    def _padding(self, padding: Sizes | str, kernel: tuple[int, ...]) -> Sizes:
        """ "same" keeps the size at stride 1: amounts for conv2d, last axis first."""
        if not isinstance(padding, str):
            return padding
        if padding != "same":
            raise ValueError(f"padding is 'same' or sizes, not {padding!r}")
        totals = [d * (k - 1) for d, k in zip(self.dilation, kernel)][::-1]
        return [amount for total in totals for amount in (total // 2, total - total // 2)]

    def __call__(self, x: Tensor) -> Tensor:
        return x.conv2d(
            self.weight, self.bias, self.groups, self.stride, self.dilation, self.padding
        )


class Conv1d(Conv2d):
    """As Conv2d, over one axis."""

    axes = 1


class BatchNorm:
    """Each channel (axis 1) to mean 0 and variance 1 of the batch; outside of training, to those seen.

    `Tensor.training` says which. Source: Ioffe and Szegedy, 2015.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        affine: bool = True,
        track_running_stats: bool = True,
        momentum: float = 0.1,
    ) -> None:
        self.eps, self.momentum, self.track_running_stats = eps, momentum, track_running_stats
        shape = (num_features,)
        self.weight = _filled(shape, 1.0) if affine else None
        self.bias = _filled(shape, 0.0) if affine else None
        self.running_mean = _filled(shape, 0.0, requires_grad=False)
        self.running_var = _filled(shape, 1.0, requires_grad=False)
        self.num_batches_tracked = Tensor([0], dtype=dtypes.int64, requires_grad=False)

    def __call__(self, x: Tensor) -> Tensor:
        mean, variance = self._statistics(x)
        return x.batchnorm(self.weight, self.bias, mean, (variance + self.eps).rsqrt())

    def _statistics(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if not Tensor.training and self.track_running_stats:
            return self.running_mean, self.running_var
        axes = tuple([axis for axis in range(x.ndim) if axis != 1])
        mean = x.mean(axes)
        line = (1, -1) + (1,) * (x.ndim - 2)
        variance = (x - mean.reshape(line)).square().mean(axes)
        if Tensor.training and self.track_running_stats:
            self._remember(mean, variance, x.numel() // x.shape[1])
        return mean, variance

    def _remember(self, mean: Tensor, variance: Tensor, count: int) -> None:
        unbiased = variance * (count / max(1, count - 1))
        keep = 1 - self.momentum
        self.running_mean.assign(self.running_mean * keep + mean.detach() * self.momentum)
        self.running_var.assign(self.running_var * keep + unbiased.detach() * self.momentum)
        self.num_batches_tracked.assign(self.num_batches_tracked + 1)


BatchNorm2d = BatchNorm


class LayerNorm:
    """The last axes to mean 0 and variance 1, scaled and shifted (Ba et al., 2016)."""

    def __init__(
        self, normalized_shape: Sizes, eps: float = 1e-5, elementwise_affine: bool = True
    ) -> None:
        sizes = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
        self.normalized_shape = tuple(sizes)
        self.eps = eps
        self.weight = _filled(self.normalized_shape, 1.0) if elementwise_affine else None
        self.bias = _filled(self.normalized_shape, 0.0) if elementwise_affine else None

    def __call__(self, x: Tensor) -> Tensor:
        if x.shape[-len(self.normalized_shape) :] != self.normalized_shape:
            raise ValueError(f"LayerNorm of {self.normalized_shape} on a Tensor of {x.shape}")
        y = x.layernorm(tuple(range(-len(self.normalized_shape), 0)), self.eps)
        return y if self.weight is None or self.bias is None else y * self.weight + self.bias


class RMSNorm:
    """The last axis divided by its root mean square, scaled (Zhang and Sennrich, 2019)."""

    def __init__(self, dim: int, eps: float = 1e-6) -> None:
        self.eps = eps
        self.weight = _filled((dim,), 1.0)

    def __call__(self, x: Tensor) -> Tensor:
        return x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt() * self.weight


class Embedding:
    """Row i of a table for each number i."""

    def __init__(self, vocab_size: int, embed_size: int) -> None:
        self.weight = Tensor.glorot_uniform(vocab_size, embed_size)

    def __call__(self, index: Tensor) -> Tensor:
        return self.weight[index]
