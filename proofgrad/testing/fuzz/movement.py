"""Methods that only move elements: draws and meanings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from string import ascii_lowercase
from typing import Any

import numpy as np

from proofgrad.testing.fuzz.operation import Drawing, Drawn, NothingFits, Operation, same
from proofgrad.testing.fuzz.values import Array

ANY = ("bool", "int", "float", "code")


def factors(d: Drawing, count: int, most: int = 3) -> tuple[int, ...]:
    """Sizes that multiply to `count`."""
    if not count:
        return (0, d.random.randint(1, 3))
    sizes: list[int] = []
    while len(sizes) < most and (count > 1 or d.random.random() < 0.2):
        size = d.random.choice([n for n in range(1, count + 1) if count % n == 0])
        sizes.append(size)
        count //= size
    shape = [*sizes, count] if count > 1 or not sizes else sizes
    d.random.shuffle(shape)
    return tuple(shape)


# -- draws ----------------------------------------------------------------------------------------


def _reshape(d: Drawing) -> Drawn:
    x = d.any(*ANY)
    return (x, factors(d, d.value(x).size)), {}


def _permute(d: Drawing) -> Drawn:
    x = d.any(*ANY)
    order = list(range(len(d.value(x).shape)))
    d.random.shuffle(order)
    return (x, tuple(order)), {}


def _transpose(d: Drawing) -> Drawn:
    x = d.any(*ANY, rank=2)
    rank = len(d.value(x).shape)
    return (x, d.random.randrange(-rank, rank), d.random.randrange(rank)), {}


def _expand(d: Drawing) -> Drawn:
    x = d.any(*ANY, most=60)
    shape = d.value(x).shape
    wide = [d.random.choice([1, 2, 3, 5]) if n == 1 else n for n in shape]
    front = [d.random.choice([1, 2, 3])] if d.random.random() < 0.4 else []
    return (x, tuple(front + wide)), {}


def _expand_as(d: Drawing) -> Drawn:
    x = d.any(*ANY, most=60)
    shape = tuple([d.random.choice([1, 2, 3]) if n == 1 else n for n in d.value(x).shape])
    return (x, d.leaf("int32", shape)), {}


def cuts(d: Drawing, shape: Sequence[int]) -> list[tuple[int, int]]:
    """A begin and an end for each axis, the whole axis included."""
    found = []
    for size in shape:
        begin = d.random.randint(0, max(0, size - 1)) if d.random.random() < 0.5 else 0
        end = d.random.randint(begin + (size > begin), size) if d.random.random() < 0.6 else size
        found.append((begin, end))
    return found


def _shrink(d: Drawing) -> Drawn:
    x = d.any(*ANY, rank=1)
    return (x, tuple(cuts(d, d.value(x).shape))), {}


def _shrink_to(d: Drawing) -> Drawn:
    x = d.any(*ANY, rank=1)
    return (x, tuple([d.random.randint(min(1, n), n) for n in d.value(x).shape])), {}


def _flip(d: Drawing) -> Drawn:
    x = d.any(*ANY, rank=1)
    rank = len(d.value(x).shape)
    return (x, tuple(sorted(d.random.sample(range(rank), d.random.randint(1, rank))))), {}


def _one_axis(name: str, rank: int = 1) -> Callable[[Drawing], Drawn]:
    def draw(d: Drawing) -> Drawn:
        x = d.any(*ANY, rank=rank)
        return (x,), {name: d.random.randrange(len(d.value(x).shape))}

    return draw


def _squeeze(d: Drawing) -> Drawn:
    x = d.any(*ANY)
    rank = len(d.value(x).shape)
    return (
        ((x,), {"dim": d.random.randrange(rank)})
        if rank and d.random.random() < 0.5
        else ((x,), {})
    )


def _unsqueeze(d: Drawing) -> Drawn:
    x = d.any(*ANY)
    rank = len(d.value(x).shape)
    return (x, d.random.randint(-rank - 1, rank)), {}


def _flatten(d: Drawing) -> Drawn:
    x = d.any(*ANY)
    rank = len(d.value(x).shape)
    if not rank or d.random.random() < 0.4:
        return (x,), {}
    begin = d.random.randrange(rank)
    return (x, begin, d.random.randrange(begin, rank)), {}


def _unflatten(d: Drawing) -> Drawn:
    x = d.any(*ANY, rank=1)
    shape = d.value(x).shape
    axis = d.random.randrange(len(shape))
    return (x, axis, factors(d, shape[axis], 2)), {}


def _split(d: Drawing) -> Drawn:
    (x,), options = _one_axis("dim")(d)
    size = d.value(x).shape[options["dim"]]
    parts = d.random.randint(1, max(1, size))
    if d.random.random() < 0.4 and size:
        cut = d.random.randint(0, size)
        return (x, (cut, size - cut)), options
    return (x, parts), options


def _chunk(d: Drawing) -> Drawn:
    (x,), options = _one_axis("dim")(d)
    return (x, d.random.randint(1, 4)), options


def _meshgrid(d: Drawing) -> Drawn:
    x = d.any("int", "float", rank=1, most=20)
    if len(d.value(x).shape) != 1:
        raise NothingFits
    return (x, d.leaf("int32", (d.random.randint(1, 4),))), {
        "indexing": d.random.choice(["ij", "xy"])
    }


def _diag(d: Drawing) -> Drawn:
    x = d.any("int", "float", rank=1, most=16)
    if len(d.value(x).shape) != 1:
        raise NothingFits
    return (x,), {}


def _diagonal(d: Drawing) -> Drawn:
    x = d.any(*ANY, rank=2)
    rank = len(d.value(x).shape)
    first, second = d.random.sample(range(rank), 2)
    return (x, d.random.randint(-2, 2), first, second), {}


def _unfold(d: Drawing) -> Drawn:
    x = d.any(*ANY, rank=1, most=120)
    shape = d.value(x).shape
    axis = d.random.randrange(len(shape))
    if not shape[axis]:
        raise NothingFits
    return (x, axis, d.random.randint(1, min(4, shape[axis])), d.random.randint(1, 3)), {}


def _rearrange(d: Drawing) -> Drawn:
    x = d.any(*ANY, rank=2)
    shape = d.value(x).shape
    names = list(ascii_lowercase[: len(shape)])
    right = names[:]
    d.random.shuffle(right)
    if d.random.random() < 0.5:
        right = [f"({' '.join(right[:2])})", *right[2:]]
    return (x, f"{' '.join(names)} -> {' '.join(right)}"), {}


def one(d: Drawing) -> Drawn:
    """A draw of one Tensor of any kind."""
    return (d.any(*ANY),), {}


# -- meanings -------------------------------------------------------------------------------------


def shrink(x: Array, arg: Any) -> Array:
    """`Tensor.shrink`: from `begin` on and before `end` of each axis."""
    return x[tuple(slice(b, e) for b, e in arg)]


def squeeze(x: Array, dim: int | None = None) -> Array:
    """`Tensor.squeeze`: without axes of size 1, or without `dim` if it is one."""
    if dim is None:
        return x.squeeze()
    return x.squeeze(dim) if x.shape[dim] == 1 else x


def flatten(x: Array, start: int = 0, end: int = -1) -> Array:
    """`Tensor.flatten`: axes from `start` to `end` become one; a scalar becomes one element."""
    if not x.ndim:
        return x.reshape(1)
    end %= x.ndim
    return x.reshape(
        (*x.shape[:start], int(np.prod(x.shape[start : end + 1])), *x.shape[end + 1 :])
    )


def unflatten(x: Array, axis: int, sizes: Any) -> Array:
    """`Tensor.unflatten`: one axis becomes several."""
    return x.reshape((*x.shape[:axis], *sizes, *x.shape[axis + 1 :]))


def split(x: Array, sizes: Any, dim: int = 0) -> list[Array]:
    """`Tensor.split`: parts of these sizes, or of one size and what is left."""
    total = x.shape[dim]
    parts = list(sizes) if isinstance(sizes, tuple) else None
    if parts is None:
        parts = [min(sizes, total - k) for k in range(0, max(1, total), sizes)]
    return np.split(x, np.cumsum(parts)[:-1], dim)


def chunk(x: Array, count: int, dim: int = 0) -> list[Array]:
    """`Tensor.chunk`: at most `count` parts, all but the last of one size."""
    return split(x, max(1, -(-x.shape[dim] // count)), dim)


def unfold(x: Array, axis: int, size: int, step: int) -> Array:
    """`Tensor.unfold`: windows along an axis, their elements in a last axis."""
    return np.lib.stride_tricks.sliding_window_view(x, size, axis)[
        tuple(slice(None, None, step if k == axis else None) for k in range(x.ndim))
    ]


def rearrange(x: Array, formula: str) -> Array:
    """`Tensor.rearrange` for a permutation of axes, where the first two may become one."""
    left, right = formula.split(" -> ")
    names = left.split()
    order = [names.index(c) for c in right if c.isalpha()]
    turned = x.transpose(order)
    if "(" not in right:
        return turned
    return turned.reshape((turned.shape[0] * turned.shape[1], *turned.shape[2:]))


def _view(name: str, draw: Any, meaning: Any, **more: Any) -> Operation:
    return Operation(name, draw, meaning, same, is_view=True, **more)


def _plain(name: str, draw: Any, meaning: Any, **more: Any) -> Operation:
    return Operation(name, draw, meaning, same, **more)


OPERATIONS = [
    _view("reshape", _reshape, np.reshape),
    _view("view", _reshape, np.reshape),
    _view("permute", _permute, np.transpose, takes_variables=True),
    _view("transpose", _transpose, np.swapaxes, takes_variables=True),
    _view("T", one, np.transpose),
    _view("shrink", _shrink, shrink),
    _view("shrink_to", _shrink_to, lambda x, sizes: shrink(x, [(0, n) for n in sizes])),
    _view("flip", _flip, np.flip, takes_variables=True),
    _view("squeeze", _squeeze, squeeze),
    _view("unsqueeze", _unsqueeze, np.expand_dims, takes_variables=True),
    _view("flatten", _flatten, flatten),
    _view("unflatten", _unflatten, unflatten),
    _view("split", _split, split, results=-1),
    _view("chunk", _chunk, chunk, results=-1),
    _view("rearrange", _rearrange, rearrange),
    _view("detach", one, lambda x: x, is_smooth=False),
    # These repeat elements or may: a write is refused or goes to a copy, so none is drawn.
    _plain("diagonal", _diagonal, np.diagonal, is_plain=False),
    _plain("expand", _expand, np.broadcast_to, is_plain=False),
    _plain("expand_as", _expand_as, lambda x, y: np.broadcast_to(x, y.shape), is_plain=False),
    _plain("unfold", _unfold, unfold, is_plain=False),
    _plain("meshgrid", _meshgrid, lambda *x, indexing: np.meshgrid(*x, indexing=indexing), is_plain=False,
           results=2, positions=(1,)),
    _plain("diag", _diag, np.diag, is_plain=False),
    _plain("contiguous", one, lambda x: x, is_plain=False),
    _plain("contiguous_backward", one, lambda x: x, is_plain=False),
    _plain("clone", one, lambda x: x),
]  # fmt: skip
