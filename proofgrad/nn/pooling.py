"""Windows over the last axes as layers, by torch's names and arguments.

Owns: windows of one size, and windows that follow from the size of the result (adaptive). Does not own: the sums and extremes,
which are methods of Tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proofgrad import ShapeError, Tensor, dtypes
from proofgrad.core.tensor.data.arguments import takes_numbers
from proofgrad.nn.functions import Function

Sizes = int | Sequence[int]


class _Pool(Function):
    """Arguments of a window; `stride` None is the window's size."""

    axes = 2

    @takes_numbers
    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
    ) -> None:
        if not isinstance(kernel_size, int) and len(kernel_size) != self.axes:
            raise ShapeError(
                f"{type(self).__name__} has windows of {self.axes} axes, not {tuple(kernel_size)}"
            )
        self.kernel_size = (
            (kernel_size,) * self.axes if isinstance(kernel_size, int) else tuple(kernel_size)
        )
        self.stride, self.padding, self.ceil_mode = stride, padding, ceil_mode


class _MaxPool(_Pool):
    @takes_numbers
    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode)
        self.dilation, self.return_indices = dilation, return_indices

    def __call__(self, x: Tensor) -> Any:
        """The largest; with `return_indices` also where each is, as `Tensor.max_pool2d` says it."""
        return x.max_pool2d(
            self.kernel_size,
            self.stride,
            self.dilation,
            self.padding,
            self.ceil_mode,
            self.return_indices,
        )


class _AvgPool(_Pool):
    @takes_numbers
    def __init__(
        self,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(kernel_size, stride, padding, ceil_mode)
        self.count_include_pad = count_include_pad

    def __call__(self, x: Tensor) -> Tensor:
        return x.avg_pool2d(
            self.kernel_size,
            self.stride,
            padding=self.padding,
            ceil_mode=self.ceil_mode,
            count_include_pad=self.count_include_pad,
        )


class MaxPool1d(_MaxPool):
    """The largest of each window of the last axis. Shapes: (.., l) to (.., l'). `stride` None is the window's size."""

    axes = 1


class MaxPool2d(_MaxPool):
    """The largest of each window of the last two axes. Shapes: (.., h, w) to (.., h', w'). `stride` None is the window's size."""


class MaxPool3d(_MaxPool):
    """The largest of each window of the last three axes. `stride` None is the window's size."""

    axes = 3


class AvgPool1d(_AvgPool):
    """The mean of each window of the last axis, padding counted. `stride` None is the window's size."""

    axes = 1


class AvgPool2d(_AvgPool):
    """The mean of each window of the last two axes, padding counted. Shapes: (.., h, w) to (.., h', w').

    `stride` None is the window's size.
    """


class AvgPool3d(_AvgPool):
    """The mean of each window of the last three axes, padding counted. `stride` None is the window's size."""

    axes = 3


class _Adaptive(Function):
    """Windows that share an axis of n among m: window k is from floor(k n / m) to ceil((k + 1) n / m), as torch has it."""

    axes = 2

    @takes_numbers
    def __init__(self, output_size: int | Sequence[int | None]) -> None:
        sizes: tuple[int | None, ...] = (
            (output_size,) * self.axes if isinstance(output_size, int) else tuple(output_size)
        )
        if len(sizes) != self.axes or any([size is not None and size < 1 for size in sizes]):
            raise ShapeError(
                f"{type(self).__name__} takes {self.axes} sizes of 1 or more, not {output_size}"
            )
        self.output_size = sizes

    def __call__(self, x: Tensor) -> Tensor:
        if x.ndim < self.axes + 1 or 0 in x.shape[-self.axes :]:
            raise ShapeError(f"{type(self).__name__} takes (.., channels, sizes), not {x.shape}")
        for axis, size in enumerate(self.output_size, x.ndim - self.axes):
            if size is not None and size != x.shape[axis]:
                x = self._shared(x.transpose(axis, -1), size).transpose(axis, -1)
        return x

    def _shared(self, x: Tensor, size: int) -> Tensor:
        """The last axis (.., n) as one number of each of `size` windows: (.., size)."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it makes of a window")


class _AdaptiveAvgPool(_Adaptive):
    def _shared(self, x: Tensor, size: int) -> Tensor:
        length = x.shape[-1]
        if length % size == 0:
            return x.reshape((*x.shape[:-1], size, length // size)).mean(-1)
        is_in = _is_in(x, size)
        return is_in.where(x.unsqueeze(-2), 0).sum(-1) / is_in.sum(-1).cast(x.dtype)


class _AdaptiveMaxPool(_Adaptive):
    def _shared(self, x: Tensor, size: int) -> Tensor:
        length = x.shape[-1]
        if length % size == 0:
            return x.reshape((*x.shape[:-1], size, length // size)).max(-1)
        return _is_in(x, size).where(x.unsqueeze(-2), dtypes.min(x.dtype)).max(-1)


def _is_in(x: Tensor, size: int) -> Tensor:
    """Which elements (n) of the last axis are in which window (m): (m, n)."""
    length = x.shape[-1]
    window = Tensor.arange(size, device=x.device).unsqueeze(-1)
    position = Tensor.arange(length, device=x.device)
    start, end = window * length // size, ((window + 1) * length + size - 1) // size
    return (position >= start) & (position < end)


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """The mean of each of `output_size` windows of the last axis. Shapes: (.., c, n) to (.., c, m)."""

    axes = 1


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """The mean of each of `output_size` windows of the last two axes; None keeps an axis. Shapes: (.., c, h, w) to (.., c, *output_size)."""


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The largest of each of `output_size` windows of the last axis. Shapes: (.., c, n) to (.., c, m)."""

    axes = 1


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The largest of each of `output_size` windows of the last two axes; None keeps an axis."""
