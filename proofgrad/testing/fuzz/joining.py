"""Methods that join Tensors, repeat them or lay something around: draws and meanings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from proofgrad.testing.fuzz.movement import ANY
from proofgrad.testing.fuzz.operation import (
    Drawing,
    Drawn,
    NothingFits,
    Operation,
    common_type,
    same,
)
from proofgrad.testing.fuzz.values import Array

# -- draws ----------------------------------------------------------------------------------------


def around(d: Drawing, shape: Sequence[int], low: int = -1, high: int = 3) -> list[tuple[int, int]]:
    """What to pad each axis by, before and after; negative amounts cut off, but never the whole axis."""
    found = []
    for size in shape:
        before, after = [d.random.choice([0, 0, d.random.randint(low, high)]) for _ in range(2)]
        if size + min(before, 0) + min(after, 0) < 1:
            before = after = 0
        found.append((before, after))
    return found


def _pad(d: Drawing) -> Drawn:
    x = d.any("bool", "int", "float", rank=1)
    value = d.value(x)
    mode = d.random.choice(["constant"] * 5 + ["reflect", "replicate", "circular"])
    if mode == "constant":
        pads = tuple(around(d, value.shape))
        if d.random.random() < 0.5 or value.dtype == "bool":
            return (x, pads), {}
        number = d.number(value.dtype)
        return (x, pads), {"value": number}
    pads = tuple(
        [
            (min(b, n - 1), min(a, n - 1))
            for (b, a), n in zip(around(d, value.shape, 0, 2), value.shape)
        ]
    )
    if 0 in value.shape:
        raise NothingFits
    return (x, pads), {"mode": mode}


def _pad_to(d: Drawing) -> Drawn:
    x = d.any("int", "float", rank=1)
    value = d.value(x)
    return (x, tuple([n + d.random.randint(0, 2) for n in value.shape])), {
        "value": d.number(value.dtype)
    }


def _repeat(d: Drawing) -> Drawn:
    x = d.any(*ANY, most=60)
    counts = [d.random.choice([1, 1, 2, 3]) for _ in d.value(x).shape]
    front = [2] if d.random.random() < 0.2 or not counts else []
    return (x, tuple(front + counts)), {}


def _repeat_interleave(d: Drawing) -> Drawn:
    x = d.any(*ANY, most=80)
    rank = len(d.value(x).shape)
    axis = d.random.randrange(rank) if rank and d.random.random() < 0.8 else None
    return (x, d.random.randint(1, 3)), {"dim": axis}


def _roll(d: Drawing) -> Drawn:
    x = d.any(*ANY, rank=1)
    rank = len(d.value(x).shape)
    match d.random.randrange(3):
        case 0:
            return (x, d.random.randint(-4, 4)), {}
        case 1:
            return (x, d.random.randint(-4, 4), d.random.randrange(rank)), {}
    axes = tuple(d.random.sample(range(rank), min(rank, 2)))
    return (x, tuple([d.random.randint(-3, 3) for _ in axes]), axes), {}


def _cat(d: Drawing) -> Drawn:
    x = d.any("bool", "int", "float", rank=1, most=150)
    shape = d.value(x).shape
    axis = d.random.randrange(len(shape))
    others = []
    for _ in range(d.random.randint(1, 2)):
        wanted = list(shape)
        wanted[axis] = d.random.choice([shape[axis], 1, 2, 3, 0])
        others.append(d.like(x, tuple(wanted)))
    return (x, *others), {"dim": axis}


def _stack(d: Drawing) -> Drawn:
    x = d.any("bool", "int", "float", most=150)
    others = [d.like(x) if d.random.random() < 0.7 else x for _ in range(d.random.randint(1, 2))]
    return (x, *others), {"dim": d.random.randint(0, len(d.value(x).shape))}


def _triangle(d: Drawing) -> Drawn:
    x = d.any("bool", "int", "float", rank=2)
    return (x, d.random.randint(-2, 2)), {}


# -- meanings -------------------------------------------------------------------------------------


def pad(x: Array, pads: Any, mode: str = "constant", value: Any = 0) -> Array:
    """`Tensor.pad`: pads grow by `mode`, negative ones cut off afterwards."""
    grown = [(max(0, b), max(0, a)) for b, a in pads]
    if mode == "constant":
        wide = np.pad(x, grown, constant_values=value) if x.ndim else x
    else:
        names: dict[str, Literal["reflect", "edge", "wrap"]] = {
            "reflect": "reflect",
            "replicate": "edge",
            "circular": "wrap",
        }
        wide = x
        for axis, amounts in enumerate(grown):
            only = [amounts if k == axis else (0, 0) for k in range(x.ndim)]
            wide = np.pad(wide, only, mode=names[mode]) if any(amounts) else wide
    return wide[tuple(slice(max(0, -b), n - max(0, -a)) for (b, a), n in zip(pads, wide.shape))]


def pad_to(x: Array, shape: Any, value: Any = 0) -> Array:
    """`Tensor.pad_to`: grown at the end of each axis up to `shape`."""
    return pad(x, [(0, m - n) for m, n in zip(shape, x.shape)], value=value)


def repeat(x: Array, counts: Any) -> Array:
    """`Tensor.repeat`: the whole, `counts` times along each axis."""
    return np.tile(x, counts)


def roll(x: Array, shifts: Any, dims: Any = None) -> Array:
    """`Tensor.roll`; without `dims`, of the flattened elements."""
    return np.roll(x, shifts, dims)


def cat(*parts: Array, dim: int = 0) -> Array:
    """`Tensor.cat`: joined along an axis that there is."""
    return np.concatenate(parts, dim)


def stack(*parts: Array, dim: int = 0) -> Array:
    """`Tensor.stack`: joined along a new axis."""
    return np.stack(parts, dim)


def _joined_types(types: list[Any], options: dict[str, Any]) -> tuple[str | None, str]:
    found = common_type(types)
    return found, found


OPERATIONS = [
    Operation("repeat", _repeat, repeat, same),
    Operation(
        "repeat_interleave", _repeat_interleave, lambda x, n, dim: np.repeat(x, n, dim), same
    ),
    Operation("roll", _roll, roll, same),
    Operation("pad", _pad, pad, same),
    Operation("pad_to", _pad_to, pad_to, same),
    Operation("triu", _triangle, np.triu, same),
    Operation("tril", _triangle, np.tril, same),
    Operation("cat", _cat, cat, _joined_types, data=4),
    Operation("stack", _stack, stack, _joined_types, data=4),
]
