"""Indices, gather, scatter, masks: draws and meanings."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofgrad.testing.fuzz.elementwise import maximum, minimum
from proofgrad.testing.fuzz.operation import (
    Drawing,
    Drawn,
    NothingFits,
    Operation,
    Rounding,
    as_int32,
    same,
)
from proofgrad.testing.fuzz.program import Ref
from proofgrad.testing.fuzz.values import Array

ANY = ("bool", "int", "float")


# -- indices --------------------------------------------------------------------------------------


def basic_index(d: Drawing, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Ints, slices with any step, None and one Ellipsis."""
    parts: list[Any] = []
    for size in shape[: d.random.randint(0, len(shape))]:
        bound = [None, None, *range(-size - 1, size + 2)]
        match d.random.randrange(5):
            case 0 if size:
                parts.append(d.random.randrange(-size, size))
            case 1:
                parts.append(slice(None))
            case 2:
                parts.append(
                    slice(
                        d.random.choice(bound),
                        d.random.choice(bound),
                        d.random.choice([2, 3, -1, -2]),
                    )
                )
            case _:
                begin = d.random.randint(0, max(0, size - 1))
                parts.append(slice(begin, d.random.randint(min(begin + 1, size), size)))
        if d.random.random() < 0.1:
            parts.append(None)
    if d.random.random() < 0.2:
        parts.append(Ellipsis)
    return tuple(parts)


def positions(d: Drawing, size: int, shape: tuple[int, ...], is_signed: bool = True) -> Ref:
    """A new Tensor of positions on an axis of `size` elements."""
    if not size:
        raise NothingFits
    return d.leaf(
        d.random.choice(["int32", "int32", "int64"]),
        shape,
        f"positions {size if is_signed else -size}",
    )


def _index(d: Drawing) -> Drawn:
    x = d.any(*ANY, rank=1)
    shape = d.value(x).shape
    if d.random.random() < 0.6:
        return (x, basic_index(d, shape)), {}
    if d.random.random() < 0.25:
        mask = d.leaf("bool", shape[: d.random.randint(1, len(shape))])
        return (x, (mask,)), {}
    axis = d.random.randrange(len(shape))
    before: list[Any] = [d.random.choice([slice(None), slice(0, n)]) for n in shape[:axis]]
    chosen = d.random.choice([(3,), (2, 2), (1,), (5,), ()])
    parts: list[Any] = [*before, positions(d, shape[axis], chosen)]
    if axis + 1 < len(shape) and d.random.random() < 0.4:
        parts.append(positions(d, shape[axis + 1], chosen))
    elif d.random.random() < 0.2 and shape[axis]:
        parts[-1] = [d.random.randrange(-shape[axis], shape[axis]) for _ in range(3)]
    return (x, tuple(parts)), {}


def _index_meaning(x: Array, index: tuple[Any, ...]) -> Array:
    result: Array = x[
        tuple([np.asarray(part) if isinstance(part, list) else part for part in index])
    ]
    return result


# -- gather and scatter ---------------------------------------------------------------------------


def _positions_like(d: Drawing, shape: tuple[int, ...], axis: int) -> tuple[Ref, tuple[int, ...]]:
    count = d.random.randint(1, 4)
    wanted = tuple(
        [count if k == axis else d.random.randint(min(1, n), n) for k, n in enumerate(shape)]
    )
    return positions(d, shape[axis], wanted, is_signed=False), wanted


def _gather(d: Drawing) -> Drawn:
    x = d.any(*ANY, rank=1)
    shape = d.value(x).shape
    axis = d.random.randrange(len(shape))
    index, _ = _positions_like(d, shape, axis)
    return (x, axis, index), {}


def _scatter(d: Drawing) -> Drawn:
    x = d.any("int", "float", rank=1, most=120)
    value = d.value(x)
    axis = d.random.randrange(len(value.shape))
    index, wanted = _positions_like(d, value.shape, axis)
    if d.random.random() < 0.4:
        options = d.random.choice([{}, {"reduce": "add"}, {"reduce": "multiply"}])
        return (x, axis, index, d.number(value.dtype)), options
    return (x, axis, index, d.leaf(value.dtype, wanted)), {}


def _scatter_reduce(d: Drawing) -> Drawn:
    x = d.any("int", "float", rank=1, most=120)
    value = d.value(x)
    axis = d.random.randrange(len(value.shape))
    index, wanted = _positions_like(d, value.shape, axis)
    options: dict[str, Any] = {"reduce": d.random.choice(["sum", "prod", "amax", "amin", "sum"])}
    if d.random.random() < 0.4:
        options["include_self"] = False
    return (x, axis, index, d.leaf(value.dtype, wanted)), options


def gather(x: Array, dim: int, index: Array) -> Array:
    """`Tensor.gather`: elements of x along `dim`; the other axes of x may be longer than those of `index`."""
    part = x[tuple(slice(None) if k == dim else slice(0, n) for k, n in enumerate(index.shape))]
    return np.take_along_axis(part, index, dim)


def _scattered(
    x: Array, dim: int, index: Array, src: Any, combine: Any, include_self: bool
) -> Array:
    """One source after the other, in row-major order."""
    result = x.copy()
    seen = np.full(x.shape, include_self)
    values = np.broadcast_to(np.asarray(src, x.dtype), index.shape) if np.ndim(src) == 0 else src
    for position in np.ndindex(index.shape):
        target = (*position[:dim], int(index[position]), *position[dim + 1 :])
        new = values[position]
        is_joined = combine is not None and seen[target]
        result[target] = combine(result[target], new) if is_joined else new
        seen[target] = True
    return result


_COMBINE = {
    "add": np.add, "sum": np.add, "multiply": np.multiply, "prod": np.multiply,
    "amax": lambda a, b: maximum(np.asarray(a), np.asarray(b)),
    "amin": lambda a, b: minimum(np.asarray(a), np.asarray(b)),
}  # fmt: skip


def scatter(x: Array, dim: int, index: Array, src: Any, reduce: str | None = None) -> Array:
    """`Tensor.scatter`: a copy of x with `src` written, or combined by `reduce`, in row-major order."""
    return _scattered(
        x, dim, index, src, None if reduce is None else _COMBINE[reduce], reduce is not None
    )


def scatter_reduce(
    x: Array, dim: int, index: Array, src: Array, reduce: str = "sum", include_self: bool = True
) -> Array:
    """`Tensor.scatter_reduce`; without `include_self`, x stays only where nothing is scattered."""
    return _scattered(x, dim, index, src, _COMBINE[reduce], include_self)


# -- masks and classes ----------------------------------------------------------------------------


def _masked_select(d: Drawing) -> Drawn:
    x = d.any(*ANY)
    value = d.value(x)
    mask = d.leaf("bool", value.shape)
    if d.random.random() < 0.5:
        return (x, mask), {}
    return (x, mask), {
        "size": d.random.randint(1, value.size + 2),
        "fill_value": d.number(value.dtype),
    }


def masked_select(x: Array, mask: Array, size: int | None = None, fill_value: Any = 0) -> Array:
    """`Tensor.masked_select`; with `size`, cut off or filled up to that many elements."""
    chosen = x[mask]
    if size is None:
        return chosen
    result = np.full((size,), fill_value, x.dtype)
    result[: len(chosen)] = chosen[:size]
    return result


def _nonzero(d: Drawing) -> Drawn:
    x = d.any(*ANY, rank=1)
    if d.random.random() < 0.5:
        return (x,), {}
    return (x,), {"size": d.random.randint(1, d.value(x).size + 2)}


def nonzero(x: Array, size: int | None = None) -> Array:
    """`Tensor.nonzero`: int32, shape (count, ndim); with `size`, cut off or filled up with zeros."""
    rows = np.argwhere(x != 0).astype(np.int32)
    if size is None:
        return rows
    result = np.zeros((size, x.ndim), np.int32)
    result[: len(rows)] = rows[:size]
    return result


def _one_hot(d: Drawing) -> Drawn:
    shape = d.value(d.any(*ANY, most=40)).shape
    count = d.random.choice([1, 3, 5])
    return (positions(d, count, shape, is_signed=False), count), {}


def one_hot(x: Array, count: int) -> Array:
    """`Tensor.one_hot`: int32, one more axis of `count` classes; a row of zeros for a class beyond them."""
    result: Array = (x[..., None] == np.arange(count)).astype(np.int32)
    return result


OPERATIONS = [
    Operation("__getitem__", _index, _index_meaning, same, is_view=True, takes_variables=True),
    Operation("gather", _gather, gather, same),
    Operation("scatter", _scatter, scatter, same, Rounding.CLOSE),
    Operation("scatter_reduce", _scatter_reduce, scatter_reduce, same, Rounding.CLOSE),
    Operation("masked_select", _masked_select, masked_select, same),
    Operation("nonzero", _nonzero, nonzero, as_int32),
    Operation("one_hot", _one_hot, one_hot, as_int32),
]
