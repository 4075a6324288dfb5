"""Methods that combine elements along axes, and running ones: draws and meanings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from proofgrad.testing.fuzz.elementwise import maximum, minimum
from proofgrad.testing.fuzz.operation import (
    Drawing,
    Drawn,
    NothingFits,
    Operation,
    Rounding,
    Types,
    as_bool,
    as_float,
    as_int32,
    same,
    summed,
)
from proofgrad.testing.fuzz.values import Array

CLOSE, SUM = Rounding.CLOSE, Rounding.SUM


# -- draws ----------------------------------------------------------------------------------------


def axes_of(d: Drawing, rank: int) -> Any:
    """None, one axis or several."""
    if not rank or d.random.random() < 0.2:
        return None
    if rank > 1 and d.random.random() < 0.3:
        return tuple(sorted(d.random.sample(range(rank), d.random.randint(1, rank))))
    return d.random.randrange(-rank, rank)


def _count(shape: tuple[int, ...], axis: Any) -> int:
    axes = range(len(shape)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    return int(np.prod([shape[k] for k in axes], dtype=np.int64))


def over_axes(*kinds: str, least: int = 0) -> Callable[[Drawing], Drawn]:
    """Over any axes that have `least` elements together."""

    def draw(d: Drawing) -> Drawn:
        x = d.any(*kinds)
        shape = d.value(x).shape
        axis = axes_of(d, len(shape))
        if _count(shape, axis) < least:
            raise NothingFits
        options = {"axis": axis}
        if d.random.random() < 0.4:
            options["keepdim"] = True
        return (x,), options

    return draw


def along(
    *kinds: str, least: int = 0, name: str = "axis", rank: int = 1
) -> Callable[[Drawing], Drawn]:
    """Along one axis of `least` elements or more."""

    def draw(d: Drawing) -> Drawn:
        x = d.any(*kinds, rank=rank)
        shape = d.value(x).shape
        fitting = [k for k in range(len(shape)) if shape[k] >= least]
        if not fitting:
            raise NothingFits
        axis = d.random.choice(fitting)
        return (x,), {name: axis - len(shape) if d.random.random() < 0.3 else axis}

    return draw


def _sum(d: Drawing) -> Drawn:
    operands, options = over_axes("bool", "int", "float")(d)
    dtype = d.value(operands[0]).dtype
    if d.random.random() < 0.2 and dtype not in ("float16", "bfloat16"):
        options["dtype"] = "float64" if dtype.startswith("float") else "int64"
    return operands, options


def _variance(d: Drawing) -> Drawn:
    operands, options = over_axes("float", least=2)(d)
    options["correction"] = d.random.choice([0, 1])
    return operands, options


def _extreme_position(d: Drawing) -> Drawn:
    operands, options = over_axes("int", "float", least=1)(d)
    if isinstance(options["axis"], tuple):
        options["axis"] = options["axis"][0]
    if options["axis"] is None and options.get("keepdim"):
        raise NothingFits
    return operands, options


def _topk(d: Drawing) -> Drawn:
    (x,), options = along("int", "float", least=1, name="dim")(d)
    count = d.value(x).shape[options["dim"]]
    options["largest"] = d.random.random() < 0.5
    return (x, d.random.randint(1, count)), options


def _sort(d: Drawing) -> Drawn:
    operands, options = along("int", "float", name="dim")(d)
    if d.random.random() < 0.5:
        options["descending"] = True
    return operands, options


def _normalize(d: Drawing) -> Drawn:
    (x,), options = along("float", least=1, name="dim")(d)
    return (x,), {"p": d.random.choice([1, 2, 2, 3]), **options}


def _batchnorm(d: Drawing) -> Drawn:
    x = d.any("float", rank=2)
    value = d.value(x)
    lines = [d.leaf(value.dtype, (value.shape[1],)) for _ in range(4)]
    return (x, *lines), {}


# -- meanings -------------------------------------------------------------------------------------


def over(function: Callable[..., Array]) -> Callable[..., Array]:
    """A numpy reduction under the names of arguments that Tensor has."""
    return lambda x, axis=None, keepdim=False: function(x, axis=axis, keepdims=keepdim)


def total(x: Array, axis: Any = None, keepdim: bool = False) -> Array:
    """`Tensor.sum`, in the type of x."""
    result: Array = x.sum(axis, keepdims=keepdim, dtype=x.dtype)
    return result


def product(x: Array, axis: Any = None, keepdim: bool = False) -> Array:
    """`Tensor.prod`, in the type of x."""
    result: Array = x.prod(axis, keepdims=keepdim, dtype=x.dtype)
    return result


def extreme(larger: bool) -> Callable[..., Array]:
    """`Tensor.max` or `Tensor.min`: NaN if any element is, and -0.0 below 0.0."""

    def meaning(x: Array, axis: Any = None, keepdim: bool = False) -> Array:
        if x.dtype.kind != "f":
            result: Array = (x.max if larger else x.min)(axis, keepdims=keepdim)
            return result
        axes = (
            tuple(range(x.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
        )
        result = x
        for one in axes:
            result = (maximum if larger else minimum).reduce(result, one)  # type: ignore[attr-defined]
        return result if keepdim else result.reshape(x.max(axis).shape)

    return meaning


def _folded(f: Callable[[Array, Array], Array]) -> Callable[[Array, int], Array]:
    def reduce(x: Array, axis: int) -> Array:
        lines = np.moveaxis(x, axis, 0)
        result = lines[0]
        for line in lines[1:]:
            result = f(result, line)
        return np.expand_dims(result, axis)

    return reduce


maximum.reduce, minimum.reduce = _folded(maximum), _folded(minimum)  # type: ignore[attr-defined]


def mean(x: Array, axis: Any = None, keepdim: bool = False) -> Array:
    """`Tensor.mean`; NaN of no elements."""
    shape = x.sum(axis, keepdims=keepdim)
    result: Array = shape / _count(x.shape, axis) if _count(x.shape, axis) else shape * np.nan
    return result


def variance(x: Array, axis: Any = None, keepdim: bool = False, correction: int = 1) -> Array:
    """`Tensor.var`: `correction` is taken off the number of elements."""
    result: Array = x.var(axis, keepdims=keepdim, ddof=correction)
    return result


def deviation(x: Array, **options: Any) -> Array:
    """`Tensor.std`: the root of `variance`."""
    return np.sqrt(variance(x, **options))


def with_mean(function: Callable[..., Array]) -> Callable[..., tuple[Array, Array]]:
    """`Tensor.var_mean` or `Tensor.std_mean`, by `function`: it and the mean."""

    def meaning(x: Array, axis: Any = None, keepdim: bool = False, correction: int = 1) -> Any:
        first = function(x, axis=axis, keepdim=keepdim, correction=correction)
        return first, mean(x, axis, keepdim)

    return meaning


def softmax(x: Array, axis: int = -1) -> Array:
    """`Tensor.softmax`, of x without its maximum."""
    powers = np.exp(x - x.max(axis, keepdims=True, initial=-np.inf))
    result: Array = powers / powers.sum(axis, keepdims=True)
    return result


def log_softmax(x: Array, axis: int = -1) -> Array:
    """`Tensor.log_softmax`, of x without its maximum."""
    moved = x - x.max(axis, keepdims=True, initial=-np.inf)
    result: Array = moved - np.log(np.exp(moved).sum(axis, keepdims=True))
    return result


def logsumexp(x: Array, axis: Any = None, keepdim: bool = False) -> Array:
    """`Tensor.logsumexp`, of x without its maximum."""
    largest = x.max(axis, keepdims=True)
    found = np.log(np.exp(x - largest).sum(axis, keepdims=True)) + largest
    result: Array = found if keepdim else found.reshape(x.sum(axis).shape)
    return result


def logcumsumexp(x: Array, axis: int = 0) -> Array:
    """`Tensor.logcumsumexp`, by numpy's `logaddexp`."""
    return np.logaddexp.accumulate(x, axis=axis)


def layernorm(x: Array, axis: Any = -1) -> Array:
    """`Tensor.layernorm` with eps 1e-5, without weights."""
    centered = x - x.mean(axis, keepdims=True)
    result: Array = centered / np.sqrt((centered**2).mean(axis, keepdims=True) + 1e-5)
    return result


def normalize(x: Array, p: float = 2, dim: int = 1) -> Array:
    """`Tensor.normalize`: over the p-norm along `dim`, which counts as 1e-12 at least."""
    norm = (np.abs(x) ** p).sum(dim, keepdims=True) ** (1 / p)
    result: Array = x / np.maximum(norm, 1e-12)
    return result


def norm(x: Array, p: float = 2, dim: int = 1) -> Array:
    """`Tensor.norm` along one axis."""
    result: Array = (np.abs(x) ** p).sum(dim) ** (1 / p)
    return result


def batchnorm(x: Array, weight: Array, bias: Array, mean: Array, invstd: Array) -> Array:
    """`Tensor.batchnorm` by given statistics: one number a channel, axis 1."""
    line = (1, -1) + (1,) * (x.ndim - 2)
    w, b, m, s = [part.reshape(line) for part in (weight, bias, mean, invstd)]
    return (x - m) * s * w + b


def running_extreme(larger: bool) -> Callable[..., tuple[Array, Array]]:
    """`Tensor.cummax` or `Tensor.cummin`: values, and int32 positions; the first NaN stays."""

    def meaning(x: Array, axis: int = 0) -> tuple[Array, Array]:
        lines = np.moveaxis(x, axis, 0)
        best, positions = lines.copy(), np.zeros(lines.shape, np.int32)
        for k in range(1, len(lines)):
            better = lines[k] > best[k - 1] if larger else lines[k] < best[k - 1]
            better |= (lines[k] != lines[k]) & (best[k - 1] == best[k - 1])  # the first NaN stays
            better &= best[k - 1] == best[k - 1]
            best[k] = np.where(better, lines[k], best[k - 1])
            positions[k] = np.where(better, k, positions[k - 1])
        return np.moveaxis(best, 0, axis), np.moveaxis(positions, 0, axis)

    return meaning


def position_of(larger: bool) -> Callable[..., Array]:
    """`Tensor.argmax` or `Tensor.argmin`: the first of equal elements."""

    def meaning(x: Array, axis: Any = None, keepdim: bool = False) -> Array:
        function = np.argmax if larger else np.argmin
        if axis is None:
            return np.asarray(function(x))
        result: Array = function(x, axis=axis, keepdims=keepdim)
        return result

    return meaning


def order(x: Array, dim: int = -1, descending: bool = False) -> Array:
    """`Tensor.argsort`, int32; equal elements stay in order, in both directions."""
    if not descending:
        return np.argsort(x, axis=dim, kind="stable").astype(np.int32)
    _, ranks = np.unique(x, return_inverse=True)
    return np.argsort(-ranks.reshape(x.shape), axis=dim, kind="stable").astype(np.int32)


def ordered_with_positions(
    x: Array, dim: int = -1, descending: bool = False
) -> tuple[Array, Array]:
    """`Tensor.sort`: values, and int32 positions."""
    positions = order(x, dim, descending)
    return np.take_along_axis(x, positions, dim), positions


def first_of_order(x: Array, k: int, dim: int = -1, largest: bool = True) -> tuple[Array, Array]:
    """`Tensor.topk`: values, and int32 positions."""
    positions = np.take(order(x, dim, largest), range(k), dim)
    return np.take_along_axis(x, positions, dim), positions


ANY, NUMBERS = ("bool", "int", "float"), ("int", "float")


def _over(
    name: str, f: Any, kinds: tuple[str, ...], types: Types, rounding: Rounding, **more: Any
) -> Operation:
    least = more.pop("least", 0)
    draw = more.pop("draw", over_axes(*kinds, least=least))
    return Operation(name, draw, f, types, rounding, **more)


OPERATIONS = [
    _over("sum", total, ANY, summed, SUM, draw=_sum, takes_variables=True),
    _over("prod", product, ANY, summed, CLOSE),
    _over("mean", mean, NUMBERS, as_float, CLOSE, least=1, takes_variables=True),
    _over("max", extreme(True), ANY, same, Rounding.EXACT, least=1, takes_variables=True),
    _over("min", extreme(False), ANY, same, Rounding.EXACT, least=1, takes_variables=True),
    _over("any", over(np.any), ANY, as_bool, Rounding.EXACT),
    _over("all", over(np.all), ANY, as_bool, Rounding.EXACT),
    _over("var", variance, (), as_float, CLOSE, draw=_variance),
    _over("std", deviation, (), as_float, CLOSE, draw=_variance),
    _over("var_mean", with_mean(variance), (), as_float, CLOSE, draw=_variance, results=2),
    _over("std_mean", with_mean(deviation), (), as_float, CLOSE, draw=_variance, results=2),
    _over("logsumexp", logsumexp, ("float",), as_float, CLOSE, least=1, inner=4.0),
    _over("argmax", position_of(True), (), as_int32, Rounding.EXACT, draw=_extreme_position),
    _over("argmin", position_of(False), (), as_int32, Rounding.EXACT, draw=_extreme_position),
    Operation("softmax", along("float", least=1), softmax, as_float, CLOSE, takes_variables=True),
    Operation(
        "softmin", along("float", least=1), lambda x, axis: softmax(-x, axis), as_float, CLOSE
    ),
    Operation("log_softmax", along("float", least=1), log_softmax, as_float, CLOSE, inner=1.0),
    Operation("layernorm", along("float", least=2), layernorm, as_float, CLOSE),
    Operation("normalize", _normalize, normalize, as_float, CLOSE),
    Operation("norm", _normalize, norm, as_float, CLOSE),
    Operation("batchnorm", _batchnorm, batchnorm, same, CLOSE, data=5),
    Operation("cumsum", along(*ANY), lambda x, axis: x.cumsum(axis, dtype=x.dtype), summed, SUM),
    Operation(
        "cumprod", along(*NUMBERS), lambda x, axis: x.cumprod(axis, dtype=x.dtype), summed, CLOSE
    ),
    Operation(
        "cummax", along(*NUMBERS, least=1), running_extreme(True), same, results=2, positions=(1,)
    ),
    Operation(
        "cummin", along(*NUMBERS, least=1), running_extreme(False), same, results=2, positions=(1,)
    ),
    Operation("logcumsumexp", along("float", least=1), logcumsumexp, as_float, CLOSE, inner=4.0),
    Operation("sort", _sort, ordered_with_positions, same, results=2, positions=(1,)),
    Operation("argsort", _sort, order, as_int32),
    Operation("topk", _topk, first_of_order, same, results=2, positions=(1,)),
]
