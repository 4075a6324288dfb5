"""Windows over the last axes: convolutions, pools, interpolation.

Owns: how each is made of movement, multiplication and reductions. There is no convolution op: the
scheduler finds the loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Self, TypeAlias

from proofgrad.core import settings
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.shapes import Shape, ShapeError, at_least, is_plain, show
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.arguments import (
    Flag,
    Whole,
    checked_shape,
    refuses,
    several,
    takes_numbers,
    whole_quotient,
)
from proofgrad.core.tensor.data.errors import ArgumentError, BroadcastError, ModeError
from proofgrad.core.tensor.data.nodes import constant_node
from proofgrad.core.tensor.data.promotion import accumulation_dtype, as_dtype, least_float, promote
from proofgrad.core.tensor.methods.base import check_same_device
from proofgrad.core.tensor.methods.indexing.take import take
from proofgrad.core.tensor.methods.linalg.matrices import LinearAlgebra
from proofgrad.core.tensor.methods.linalg.products import sum_of_products
from proofgrad.core.tensor.methods.linalg.rounding import (
    are_rounded,
    rounded,
    with_rounded_gradient,
)
from proofgrad.core.tensor.methods.made_once import made_once
from proofgrad.core.tensor.methods.nn.layers import with_bias
from proofgrad.core.tensor.methods.nn.pools import with_gradient_of_pool
from proofgrad.core.tensor.methods.nn.strided import (
    transposed_with_gradient,
    with_gradient_by_phases,
)
from proofgrad.core.tensor.methods.nn.winograd import correlated_by_law, takes_winograd

Sizes: TypeAlias = Whole | Sequence[int]


@dataclass(frozen=True, slots=True)
class _Pool:
    """The windows of a pool: their sizes, and padding of all axes, as asked and with the ceiling."""

    kernels: tuple[int, ...]
    steps: tuple[int, ...]
    holes: tuple[int, ...]
    asked: list[tuple[int, int]]
    padded: list[tuple[int, int]]

    @property
    def axes(self) -> Whole:
        return len(self.kernels)

    @staticmethod
    def of(
        shape: Shape,
        kernel_size: Sizes,
        stride: Sizes | None,
        dilation: Sizes,
        padding: Sizes,
        ceil_mode: Flag = False,
        axes: Whole | None = None,
    ) -> _Pool:
        """As the arguments of a pool say; `axes`, if not 2 or as many as there are kernel sizes."""
        if axes is None:
            given = several("kernel_size", kernel_size)
            axes = 2 if isinstance(kernel_size, (int, UOp)) else len(given)
        if len(shape) < axes:
            raise ShapeError(f"cannot pool over {axes} axes of a Tensor that has {len(shape)}")
        kernels = each(kernel_size, axes, "kernel_size")
        steps = kernels if stride is None else each(stride, axes, "stride")
        holes = each(dilation, axes, "dilation")
        if not all(at_least(number, 1) for number in (*kernels, *steps, *holes)):
            raise ShapeError(
                f"kernel_size {kernels}, stride {steps} and dilation {holes} must be 1 or more"
            )
        outer = [(0, 0)] * (len(shape) - axes)
        asked = padding_pairs(padding, axes)
        padded = asked
        if ceil_mode:
            sizes = zip(shape[len(outer) :], kernels, steps, holes, asked)
            padded = [
                (around[0], _to_ceiling(size, kernel, step, hole, around))
                for size, kernel, step, hole, around in sizes
            ]
        return _Pool(kernels, steps, holes, outer + asked, outer + padded)


def _to_ceiling(
    size: Whole, kernel: Whole, step: Whole, hole: Whole, around: tuple[int, int]
) -> Whole:
    """Padding behind an axis with which its last elements are in a window too.

    No window begins behind the elements and the padding in front (Dumoulin and Visin, 2016, 5.1).
    """
    before, after = around
    reach = hole * (kernel - 1) + 1
    count = -(-(size + before + after - reach) // step) + 1
    if (count - 1) * step >= size + before:
        count -= 1
    return (count - 1) * step + reach - size - before


class Windows(LinearAlgebra):
    """Functions of neighbouring elements."""

    __slots__ = ()

    @takes_numbers
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

        With WINO=1 windows of 3x3, one apart, are taken by Winograd's law where that saves half of
        the multiplications: not exact to the bit (docs/numerics.md).
        """
        weight = self._given("weight", weight)
        bias = None if bias is None else self._given("bias", bias)
        self._check_convolution(weight, bias, groups)
        axes = self.ndim - 2
        result = promote(self.dtype, weight.dtype) if dtype is None else as_dtype(dtype)
        wide = accumulation_dtype(result)
        around = [(0, 0), (0, 0), *padding_pairs(padding, axes)]
        x = self._pad_zeros(around).cast(wide)  # units and pairs take what is narrow
        w = weight.cast(wide)
        steps, holes = each(stride, axes, "stride"), each(dilation, axes, "dilation")
        if settings.wants_winograd() and {*steps, *holes} == {1} and takes_winograd(x, w):
            y = correlated_by_law(x, w, groups)
        elif are_rounded(wide, self.dtype, weight.dtype):
            y = rounded(x)._correlated(rounded(w), groups, steps, holes)
            y = with_rounded_gradient(y)
        else:
            y = x._correlated(w, groups, steps, holes)
        line = None if bias is None else bias.reshape((1, -1) + (1,) * axes)
        return with_bias(y, line, result)

    @made_once
    def _correlated(
        self, w: Self, groups: Whole, steps: Sequence[int], holes: Sequence[int]
    ) -> Self:
        """The sum over each window of a padded image times weights of the same type."""
        y = self._of_windows(w.shape, groups, steps, holes)._weighted(w, groups)
        is_fixed = is_plain(self.shape) and all(self.shape + w.shape)
        if max(steps) == 1 or not (is_fixed and y.dtype.is_float):
            return y
        whole: Self = with_gradient_by_phases(y, self, w, groups, steps, holes)
        return whole

    def _of_windows(
        self, kernel: Shape, groups: Whole, steps: Sequence[int], holes: Sequence[int]
    ) -> Self:
        """The windows of an image under weights of the shape `kernel`: (n, groups, 1, *position, in, *inside)."""
        x, axes = self, self.ndim - 2
        for k in range(axes):  # axis 2 + 2k: position of the window; 3 + 2k: position inside of it
            x = x._windows(2 + 2 * k, kernel[2 + k], steps[k], holes[k])
        return x._positions_first(groups)

    def _reached(
        self, kernel: Shape, groups: Whole, holes: Sequence[int], sizes: Sequence[int]
    ) -> Self:
        """What each tap takes to each of `sizes` results: x[q - hole * k], zeros beyond, the last tap first; as `_of_windows`."""
        reach = [hole * (taps - 1) for hole, taps in zip(holes, kernel[2:])]
        own = zip(sizes, self.shape[2:], reach)
        around = [(before, size - n) for size, n, before in own]
        x = self._pad_zeros([(0, 0), (0, 0), *around])
        return x._of_windows(kernel, groups, [1] * len(holes), holes)

    def _positions_first(self, groups: Whole) -> Self:
        """(n, channels, position, inside, ...) as (n, groups, 1, *position, in, *inside)."""
        axes = (self.ndim - 2) // 2
        x = self.reshape((self.shape[0], groups, 1, self.shape[1] // groups) + self.shape[2:])
        positions, inside = [4 + 2 * k for k in range(axes)], [5 + 2 * k for k in range(axes)]
        return x.permute((0, 1, 2, *positions, 3, *inside))

    def _weighted(self, w: Self, groups: Whole) -> Self:
        """The sum of windows, as `_of_windows` gives them, times weights (out, in / groups, *kernel)."""
        axes, channels = w.ndim - 2, w.shape[0]
        rows = w.reshape((1, groups, channels // groups) + (1,) * axes + w.shape[1:])
        y = sum_of_products(self, rows, self.dtype, tuple(range(-1 - axes, 0)))
        return y.reshape((self.shape[0], channels) + self.shape[3 : 3 + axes])

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
            raise BroadcastError(f"conv2d bias {show(bias.shape)} must be ({weight.shape[0]},)")

    @takes_numbers
    def conv_transpose2d(
        self,
        weight: Self,
        bias: Self | None = None,
        groups: Whole = 1,
        stride: Sizes = 1,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
    ) -> Self:
        """The transposed convolution: the gradient of conv2d with respect to its input.

        Shapes: self (n, in, *size), weight (in, out / groups, *kernel), bias (out,).
        """
        weight = self._given("weight", weight)
        bias = None if bias is None else self._given("bias", bias)
        axes = self.ndim - 2
        if axes < 1 or weight.ndim != self.ndim or weight.shape[0] != self.shape[1]:
            raise ShapeError(
                f"conv_transpose2d needs an input (n, in, *size) and a weight (in, out / groups,"
                f" *kernel), not {show(self.shape)} and {show(weight.shape)}"
            )
        if groups < 1 or weight.shape[0] % groups:
            raise ShapeError(f"{weight.shape[0]} channels do not split into {groups} groups")
        steps, holes = each(stride, axes, "stride"), each(dilation, axes, "dilation")
        if not all(at_least(number, 1) for number in (*steps, *holes)):
            raise ShapeError(f"stride {steps} and dilation {holes} must be 1 or more")
        extra = each(output_padding, axes, "output_padding")
        if max(steps) > 1 and is_plain(self.shape) and all(self.shape + weight.shape):
            return self._transposed_by_phases(weight, bias, groups, (steps, holes), padding, extra)
        x = self
        for k, step in enumerate(steps):
            x = x._zeros_between(2 + k, step)
        turned = weight.unflatten(0, (groups, -1)).transpose(1, 2)
        turned = turned.flip(tuple(range(3, 3 + axes))).flatten(0, 1)
        around: list[int] = []
        for k in reversed(range(axes)):
            before, after = padding_pairs(padding, axes)[k]
            reach = holes[k] * (weight.shape[2 + k] - 1)
            around += [reach - before, reach - after + extra[k]]
        return x.conv2d(turned, bias, groups, 1, dilation, around)

    def _transposed_by_phases(
        self,
        weight: Self,
        bias: Self | None,
        groups: Whole,
        apart: tuple[Sequence[int], Sequence[int]],
        padding: Sizes,
        extra: Sequence[int],
    ) -> Self:
        """As `conv_transpose2d`, by products of elements alone; `apart`: its strides and dilation."""
        if bias is not None and bias.shape != (groups * weight.shape[1],):
            raise BroadcastError(
                f"conv_transpose2d bias {show(bias.shape)} must be ({groups * weight.shape[1]},)"
            )
        (steps, holes), axes = apart, self.ndim - 2
        result = promote(self.dtype, weight.dtype)
        wide = accumulation_dtype(result)
        x, w = self.cast(wide), weight.cast(wide)
        if are_rounded(wide, self.dtype, weight.dtype):
            whole: Self = transposed_with_gradient(rounded(x), rounded(w), groups, steps, holes)
            y: Self = with_rounded_gradient(whole)
        else:
            y = transposed_with_gradient(x, w, groups, steps, holes)
        around = []
        for k, (before, after) in enumerate(padding_pairs(padding, axes)):
            reach = (self.shape[2 + k] - 1) * steps[k] + holes[k] * (weight.shape[2 + k] - 1) + 1
            around.append((-before, reach - after + extra[k] - y.shape[2 + k]))
        y = y._pad_zeros([(0, 0), (0, 0), *around])
        line = None if bias is None else bias.reshape((1, -1) + (1,) * axes)
        return with_bias(y, line, result)

    def _zeros_between(self, axis: Whole, step: Whole) -> Self:
        """Zeros between the elements of an axis, so that they are `step` apart."""
        if step == 1:
            return self
        size = self.shape[axis]
        outer = [(0, 0)] * (self.ndim + 1)
        outer[axis + 1] = (0, step - 1)
        x = self.unsqueeze(axis + 1)._pad_zeros(outer)
        x = x.reshape((*self.shape[:axis], size * step, *self.shape[axis + 1 :]))
        return x._cut(axis, 0, max(0, (size - 1) * step + 1))

    @takes_numbers
    @made_once
    def max_pool2d(
        self,
        kernel_size: Sizes = (2, 2),
        stride: Sizes | None = None,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        ceil_mode: Flag = False,
        return_indices: Flag = False,
    ) -> Any:
        """The largest of each window over the last axes; `stride` defaults to the window.

        `ceil_mode`: a last window may reach over the end. `return_indices`: also where the largest
        is first found, as a position in the flattened last axes.
        """
        pool = _Pool.of(self.shape, kernel_size, stride, dilation, padding, ceil_mode)
        inside = tuple(range(-2 * pool.axes + 1, 0, 2))
        around = self._pad_value(pool.padded, dtypes.min(self.dtype))
        windows = around._pooled(pool)
        if not return_indices:
            largest_of: Self = _with_gradient(windows.max(inside), around, pool, "max")
            return largest_of
        largest = windows.max(inside, keepdim=True)
        hits = windows.eq(largest) | windows.isnan()
        sizes = self.shape[self.ndim - pool.axes :]
        count = prod(sizes)
        back = (count - self._iota(count)).reshape(sizes)
        back = back._pad_value(pool.padded[self.ndim - pool.axes :], 0)._pooled(pool)
        return windows.max(inside), count - hits.where(back, 0).max(inside)

    @takes_numbers
    def max_unpool2d(
        self,
        indices: Self,
        kernel_size: Sizes = (2, 2),
        stride: Sizes | None = None,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        output_size: Sequence[int] | None = None,
    ) -> Self:
        """The elements back at the positions that max_pool2d returned, zeros elsewhere."""
        indices = self._given("indices", indices)
        if self.ndim < 3 or indices.shape != self.shape:
            raise ShapeError(
                f"max_unpool2d of {show(self.shape)} with positions {show(indices.shape)}"
            )
        sizes = self.shape[2:]
        pool = _Pool.of(self.shape, kernel_size, stride, dilation, padding, axes=len(sizes))
        if output_size is None:
            wanted = [
                (n - 1) * step - before - after + hole * (kernel - 1) + 1
                for n, step, hole, kernel, (before, after) in zip(
                    sizes, pool.steps, pool.holes, pool.kernels, pool.asked[2:]
                )
            ]
        else:
            wanted = list(output_size)[-pool.axes :]
        outer = self.shape[:2]
        empty = self._with(constant_node(0, self.dtype, (*outer, prod(wanted))))
        flat = empty.scatter_reduce(2, indices.flatten(2), self.flatten(2), "sum")
        return flat.reshape((*outer, *wanted))

    @takes_numbers
    @made_once
    def avg_pool2d(
        self,
        kernel_size: Sizes = (2, 2),
        stride: Sizes | None = None,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        ceil_mode: Flag = False,
        count_include_pad: Flag = True,
    ) -> Self:
        """The mean of each window over the last axes; `stride` defaults to the window.

        What `ceil_mode` adds behind the end counts never, padding only with `count_include_pad`.
        """
        pool = _Pool.of(self.shape, kernel_size, stride, dilation, padding, ceil_mode)
        inside = tuple(range(-2 * pool.axes + 1, 0, 2))
        around = self._as_float()._pad_zeros(pool.padded)
        x = around._pooled(pool)
        if count_include_pad and not ceil_mode:
            mean: Self = _with_gradient(x.mean(inside), around, pool, "mean")
            return mean
        counted = self._with(constant_node(1, dtypes.float32, self.shape))
        if count_include_pad:
            counted = counted._pad_value(pool.asked, 1)
            ceiling = [(0, a - b) for (_, a), (_, b) in zip(pool.padded, pool.asked)]
            counted = counted._pad_zeros(ceiling)
        else:
            counted = counted._pad_zeros(pool.padded)
        total: Self = _with_gradient(x.sum(inside), around, pool, "sum")
        return total / counted._pooled(pool).sum(inside).cast(x.dtype)

    def _pooled(self, pool: _Pool) -> Self:
        """Each of the last axes as two: the position of a window, the position inside of it."""
        x, first = self, self.ndim - pool.axes
        for k in range(pool.axes):
            x = x._tiles(first + 2 * k, pool.kernels[k], pool.steps[k], pool.holes[k])
        return x

    def _tiles(self, axis: Whole, kernel: Whole, stride: Whole, dilation: Whole) -> Self:
        """As _windows; windows that do not overlap are only a reshape."""
        size = self.shape[axis]
        if kernel != stride or dilation != 1 or not at_least(size, kernel):
            return self._windows(axis, kernel, stride, dilation)
        count = size // kernel if isinstance(kernel, int) else whole_quotient(size, kernel)
        if count is None:
            raise ShapeError(
                f"windows of {kernel} elements on axis {axis} of {show(self.shape)} are not the same number for"
                f" all values of the variables"
            )
        x = self._cut(axis, 0, count * kernel)
        return x.reshape(x.shape[:axis] + (count, kernel) + x.shape[axis + 1 :])

    @refuses(scale_factor="give the size: [int(n * factor) for n in x.shape[2:]]")
    @takes_numbers
    @made_once
    def interpolate(
        self, size: Sequence[int], mode: str = "linear", align_corners: Flag = False
    ) -> Self:
        """The last axes stretched or shrunk to the given sizes.

        `mode`: "linear", "nearest" (the element at or before) or "nearest-exact". `align_corners`,
        for "linear" only: the first and the last elements keep their positions. Where a position is that of an
        element, the element is taken as it is: a NaN beside it does not show.
        """
        if mode not in ("linear", "nearest", "nearest-exact"):
            raise ModeError(
                f"mode is 'linear' (along each axis: bilinear of two, trilinear of three), 'nearest' or"
                f" 'nearest-exact', not {mode!r}"
            )
        if align_corners and mode != "linear":
            raise ArgumentError(f"align_corners is for mode 'linear', not {mode!r}")
        if not isinstance(size, (tuple, list)):
            raise TypeError(f"interpolate takes a size for each of the last axes, not {size!r}")
        sizes = checked_shape(tuple(size))
        if not 0 < len(sizes) <= self.ndim or 0 in self.shape[self.ndim - len(sizes) :]:
            raise ShapeError(f"cannot interpolate {show(self.shape)} to sizes {sizes}")
        linear = mode == "linear"
        x = self._as_float().cast(accumulation_dtype(least_float(self.dtype))) if linear else self
        for axis, wanted in enumerate(sizes, self.ndim - len(sizes)):
            x = x._stretched(axis, wanted, mode, align_corners)
        is_between = linear and self.dtype.is_int  # of integers the nearest, halves go up
        return ((x + 0.5).floor() if is_between else x).cast(self.dtype)

    def _stretched(self, axis: Whole, wanted: Whole, mode: str, align_corners: Flag) -> Self:
        size = self.shape[axis]
        is_fixed = is_plain((size, wanted)) and size > 0 and wanted > 0
        if mode.startswith("nearest") and is_fixed and wanted % size == 0:
            return self.repeat_interleave(wanted // size, axis)
        if mode.startswith("nearest") and is_fixed and size % wanted == 0:
            step = size // wanted
            first = step // 2 if mode == "nearest-exact" else 0
            return self._cut(axis, first, size)._every(axis, step)._value()
        line = self._iota(wanted, dtypes.int64 if size * wanted > 2**28 else dtypes.int32)
        if mode == "nearest":
            return take(self, axis, line * size // wanted)
        if mode == "nearest-exact":
            return take(self, axis, (line * 2 + 1) * size // (wanted * 2))
        if align_corners:
            position, unit = line * (size - 1), max(1, wanted - 1)
        else:
            position, unit = (line * 2 + 1) * size - wanted, wanted * 2
        position = position.clamp(0, (size - 1) * unit)
        share = (position % unit).cast(self.dtype) / unit
        share = share.reshape((wanted,) + (1,) * (self.ndim - axis - 1))
        low, high = (
            take(self, axis, position // unit),
            take(self, axis, (position + unit - 1) // unit),
        )
        return low + (high - low) * share


def _with_gradient(y: Any, x: Any, pool: _Pool, kind: str) -> Any:
    """`y`, which a pool made of the padded x, with the gradient of windows that begin apart."""
    is_near = set(pool.holes) == {1}
    return with_gradient_of_pool(y, x, pool.kernels, pool.steps, kind) if is_near else y


def each(value: Sizes, axes: Whole, name: str) -> tuple[int, ...]:
    """One number for each axis."""
    values = (value,) * axes if isinstance(value, (int, UOp)) else several(name, value)
    if len(values) != axes:
        raise ShapeError(f"{name} {values} needs one entry, or one for each of {axes} axes")
    return values


def padding_pairs(padding: Sizes, axes: Whole) -> list[tuple[int, int]]:
    """As torch: one number, one an axis, or (before, after) pairs with the last axis first."""
    if isinstance(padding, str):
        raise TypeError(f"padding is numbers here, not {padding!r}; nn.Conv2d takes 'same'")
    if not isinstance(padding, int) and len(padding) == 2 * axes and axes > 0:
        flat = tuple(padding)
        return [(flat[k], flat[k + 1]) for k in range(0, 2 * axes, 2)][::-1]
    return [(p, p) for p in each(padding, axes, "padding")]
