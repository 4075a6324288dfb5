"""Convolutions, pools, interpolation: draws and meanings, element by element."""

from __future__ import annotations

from itertools import product
from types import EllipsisType
from typing import Any, TypeAlias

import numpy as np

from proofgrad.testing.fuzz.movement import factors
from proofgrad.testing.fuzz.operation import (
    Drawing,
    Drawn,
    NothingFits,
    Operation,
    Rounding,
    as_float,
    pair,
    same,
)
from proofgrad.testing.fuzz.program import Ref
from proofgrad.testing.fuzz.values import Array

CLOSE, SUM = Rounding.CLOSE, Rounding.SUM
Index: TypeAlias = tuple[int | slice | EllipsisType, ...]


# -- draws ----------------------------------------------------------------------------------------


def _image(d: Drawing, *kinds: str) -> tuple[Ref, tuple[int, ...]]:
    """Three or four axes: a value that has them or is given them, or a new one of small sizes."""
    if d.random.random() < 0.35:
        x = d.any(*kinds, most=600)
        if d.value(x).size:
            shape = (1, *factors(d, d.value(x).size))
            shape = shape if len(shape) > 2 else (*shape, 1)
            return d.step("reshape", x, shape), shape
    for _ in range(3):
        x = d.any(*kinds, rank=3, most=600)
        shape = d.value(x).shape
        if 3 <= len(shape) <= 4 and 0 not in shape:
            return x, shape
    sizes = tuple([d.random.choice([1, 2, 3, 4, 5, 7]) for _ in range(d.random.choice([1, 2, 2]))])
    shape = (d.random.choice([1, 2, 3]), d.random.choice([1, 2, 3, 4]), *sizes)
    return d.leaf(
        d.random.choice(["float32", "float32", "float64", "int32"])
        if "int" in kinds
        else "float32",
        shape,
    ), shape


def _conv(d: Drawing) -> Drawn:
    x, shape = _image(d, "int", "float")
    axes = len(shape) - 2
    padding = tuple([d.random.choice([0, 0, 1, 1, 2, 3]) for _ in range(axes)])
    dilation = tuple([d.random.choice([1, 1, 1, 2]) for _ in range(axes)])
    kernel = []
    for size, pad, hole in zip(shape[2:], padding, dilation):
        most = (size + 2 * pad - 1) // hole + 1
        kernel.append(d.random.randint(1, min(d.random.choice([3, 3, 5]), most)))
    groups = d.random.choice([g for g in (1, 1, 2, 3) if shape[1] % g == 0])
    out = groups * d.random.choice([1, 2, 3, 4, 8, 16])
    dtype = d.value(x).dtype
    weight = d.leaf(dtype, (out, shape[1] // groups, *kernel))
    options: dict[str, Any] = {
        "groups": groups,
        "stride": tuple([d.random.choice([1, 1, 2, 3]) for _ in range(axes)]),
    }
    options |= {"dilation": dilation, "padding": padding}
    return ((x, weight, d.leaf(dtype, (out,))) if d.random.random() < 0.3 else (x, weight)), options


def _transposed(d: Drawing) -> Drawn:
    x, shape = _image(d, "float")
    axes = len(shape) - 2
    kernel = tuple([d.random.randint(1, 3) for _ in range(axes)])
    stride = tuple([d.random.choice([1, 2]) for _ in range(axes)])
    dtype = d.value(x).dtype
    weight = d.leaf(dtype, (shape[1], d.random.randint(1, 3), *kernel))
    padding = tuple([d.random.randint(0, k - 1) for k in kernel])
    if any((n - 1) * s + k - 2 * p < 1 for n, s, k, p in zip(shape[2:], stride, kernel, padding)):
        raise NothingFits
    return (x, weight), {"stride": stride, "padding": padding}


def _pool(d: Drawing, *kinds: str) -> Drawn:
    x, shape = _image(d, *kinds)
    axes = len(shape) - 2
    kernel = tuple([d.random.randint(1, min(3, n)) for n in shape[2:]])
    options: dict[str, Any] = {}
    if d.random.random() < 0.6:
        options["stride"] = tuple([d.random.choice([1, 2, 3]) for _ in range(axes)])
    if d.random.random() < 0.5:
        options["padding"] = tuple([d.random.randint(0, k // 2) for k in kernel])
    return (x, kernel), options


def _max_pool(d: Drawing) -> Drawn:
    return _pool(d, "int", "float")


def _avg_pool(d: Drawing) -> Drawn:
    operands, options = _pool(d, "float")
    if d.random.random() < 0.3:
        options["count_include_pad"] = False
    return operands, options


def _interpolate(d: Drawing) -> Drawn:
    x = d.any("float", rank=1, most=100)
    shape = d.value(x).shape
    axes = d.random.randint(1, min(2, len(shape)))
    if 0 in shape:
        raise NothingFits
    sizes = tuple([d.random.choice([1, 2, 3, 5, 7]) for _ in range(axes)])
    mode = d.random.choice(["linear", "nearest", "nearest-exact"])
    options: dict[str, Any] = {"mode": mode}
    if mode == "linear" and d.random.random() < 0.4:
        options["align_corners"] = True
    return (x, sizes), options


def _unpool(d: Drawing) -> Drawn:
    n, c = d.random.randint(1, 2), d.random.randint(1, 2)
    height, width = d.random.randint(1, 3), d.random.randint(1, 3)
    x = d.leaf(d.random.choice(["float32", "int32"]), (n, c, height, width))
    indices = d.leaf("int32", (n, c, height, width), f"distinct {4 * height * width}")
    return (x, indices), {"kernel_size": (2, 2)}


# -- meanings -------------------------------------------------------------------------------------


def _placed(x: Array, padding: Any, value: Any) -> Array:
    pads = [(0, 0)] * (x.ndim - len(padding)) + [(p, p) for p in padding]
    return np.pad(x, pads, constant_values=value)


def _windows(x: Array, kernel: Any, stride: Any, dilation: Any) -> Array:
    """The last axes as positions of windows, and behind them the positions inside."""
    axes = len(kernel)
    sizes = x.shape[x.ndim - axes :]
    counts = [(n - h * (k - 1) - 1) // s + 1 for n, k, s, h in zip(sizes, kernel, stride, dilation)]
    taps = []
    for position in product(*[range(k) for k in kernel]):
        part: Index = (
            ...,
            *[
                slice(p * h, p * h + (c - 1) * s + 1, s)
                for p, h, c, s in zip(position, dilation, counts, stride)
            ],
        )
        taps.append(x[part])
    return np.stack(taps, -1).reshape((*taps[0].shape, *kernel))


def convolution(
    x: Array, weight: Array, bias: Array | None = None, groups: int = 1, stride: Any = (), dilation: Any = (),
    padding: Any = (),
) -> Array:  # fmt: skip
    """`Tensor.conv2d` with any number of axes: x (batch, channels, ...), weight (out, channels / groups, ...)."""
    axes = x.ndim - 2
    windows = _windows(_placed(x, padding, 0), weight.shape[2:], stride, dilation)
    inside = tuple(range(-axes, 0))
    per_in, per_out = x.shape[1] // groups, weight.shape[0] // groups
    lines = []
    for out in range(weight.shape[0]):
        first = out // per_out * per_in
        products = windows[:, first : first + per_in] * weight[out].reshape(
            (1, per_in, *(1,) * axes, *weight.shape[2:])
        )
        lines.append(products.sum((1, *inside), dtype=x.dtype))
    y = np.stack(lines, 1)
    return y if bias is None else y + bias.reshape((1, -1, *(1,) * axes))


def transposed(x: Array, weight: Array, stride: Any, padding: Any) -> Array:
    """`Tensor.conv_transpose2d`: each element adds the weights times itself to a window of the result."""
    axes = x.ndim - 2
    sizes = [(n - 1) * s + k for n, s, k in zip(x.shape[2:], stride, weight.shape[2:])]
    result = np.zeros((x.shape[0], weight.shape[1], *sizes), x.dtype)
    for position in product(*[range(k) for k in weight.shape[2:]]):
        part: Index = (
            ...,
            *[slice(p, p + (n - 1) * s + 1, s) for p, n, s in zip(position, x.shape[2:], stride)],
        )
        tap: Index = (slice(None), slice(None), *position)
        result[part] += np.moveaxis(np.tensordot(x, weight[tap], (1, 0)), -1, 1)
    inner: Index = (..., *[slice(p, n - p) for p, n in zip(padding, sizes)])
    return result[inner] if axes else result


def _options(kernel: Any, stride: Any, padding: Any) -> tuple[Any, Any, Any]:
    return stride or kernel, padding or (0,) * len(kernel), (1,) * len(kernel)


def max_pool(x: Array, kernel: Any, stride: Any = None, padding: Any = None) -> Array:
    """`Tensor.max_pool2d`: padding is below every element."""
    steps, pads, holes = _options(kernel, stride, padding)
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    windows = _windows(_placed(x, pads, least), kernel, steps, holes)
    result: Array = windows.max(tuple(range(-len(kernel), 0)))
    return result


def avg_pool(
    x: Array, kernel: Any, stride: Any = None, padding: Any = None, count_include_pad: bool = True
) -> Array:
    """`Tensor.avg_pool2d`; without `count_include_pad`, over the elements inside of x alone."""
    steps, pads, holes = _options(kernel, stride, padding)
    inside = tuple(range(-len(kernel), 0))
    windows = _windows(_placed(x, pads, 0), kernel, steps, holes)
    if count_include_pad:
        result: Array = windows.mean(inside)
        return result
    counted = _windows(_placed(np.ones(x.shape), pads, 0), kernel, steps, holes)
    result = windows.sum(inside) / counted.sum(inside)
    return result


def interpolate(x: Array, sizes: Any, mode: str, align_corners: bool = False) -> Array:
    """`Tensor.interpolate` of the last axes, one after the other."""
    for axis, wanted in enumerate(sizes, x.ndim - len(sizes)):
        size, line = x.shape[axis], np.arange(wanted)
        if mode == "nearest":
            x = np.take(x, line * size // wanted, axis)
            continue
        if mode == "nearest-exact":
            x = np.take(x, (2 * line + 1) * size // (2 * wanted), axis)
            continue
        position = (
            line * (size - 1) / max(1, wanted - 1)
            if align_corners
            else (line + 0.5) * size / wanted - 0.5
        )
        position = np.clip(position, 0, size - 1)
        position = np.where(abs(position - np.rint(position)) < 1e-9, np.rint(position), position)
        low, high = np.floor(position).astype(int), np.ceil(position).astype(int)
        share = (position - low).reshape((wanted,) + (1,) * (x.ndim - axis - 1))
        first, second = np.take(x, low, axis), np.take(x, high, axis)
        x = first + (second - first) * share
    return x


def unpool(x: Array, indices: Array, kernel_size: Any) -> Array:
    """`Tensor.max_unpool2d` for windows of 2 x 2: each element at its index in its image, zeros elsewhere."""
    n, c, height, width = x.shape
    result = np.zeros((n, c, 4 * height * width), x.dtype)
    np.put_along_axis(result, indices.reshape(n, c, -1).astype(np.int64), x.reshape(n, c, -1), 2)
    return result.reshape(n, c, 2 * height, 2 * width)


OPERATIONS = [
    Operation("conv2d", _conv, convolution, pair, SUM, data=3),
    Operation("conv_transpose2d", _transposed, transposed, pair, SUM, data=2),
    Operation("max_pool2d", _max_pool, max_pool, same),
    Operation("avg_pool2d", _avg_pool, avg_pool, as_float, CLOSE),
    Operation("interpolate", _interpolate, interpolate, same, CLOSE),
    Operation("max_unpool2d", _unpool, unpool, same),
]
