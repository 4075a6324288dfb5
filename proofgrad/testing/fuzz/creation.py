"""New Tensors by formula: draws and meanings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from proofgrad.testing.fuzz.operation import Drawing, Drawn, Operation, Rounding
from proofgrad.testing.fuzz.values import INTS, Array

DTYPES = ("bool", "int8", "uint8", "int32", "int64", "float16", "float32", "float64", "bfloat16")


def _given(default: str) -> Callable[[list[Any], dict[str, Any]], tuple[str | None, str]]:
    return lambda types, options: (None, options.get("dtype", default))


def _alike(types: list[Any], options: dict[str, Any]) -> tuple[str | None, str]:
    return None, options.get("dtype", types[0])


def _shape(d: Drawing) -> tuple[int, ...]:
    return tuple([d.random.choice([1, 2, 3, 4, 5, 7, 0]) for _ in range(d.random.randint(0, 3))])


def _dtype(d: Drawing) -> str:
    return str(d.random.choice(DTYPES))


def _filled(d: Drawing) -> Drawn:
    dtype = _dtype(d)
    return (_shape(d), d.number(dtype)), {"dtype": dtype}


def _constant(d: Drawing) -> Drawn:
    return (_shape(d),), {"dtype": _dtype(d)}


def _number(d: Drawing) -> Drawn:
    dtype = _dtype(d)
    return (d.number(dtype),), {"dtype": dtype}


def _arange(d: Drawing) -> Drawn:
    dtype = d.random.choice([t for t in INTS if not t.startswith("u")] + ["float32", "float64"])
    start, step = d.random.randint(-5, 5), d.random.choice([1, 1, 2, 3, -1, -2])
    return (start, start + step * d.random.randint(0, 9), step), {"dtype": dtype}


def _linspace(d: Drawing) -> Drawn:
    return (d.random.randint(-3, 0), d.random.randint(1, 4), d.random.choice([1, 2, 3, 5, 9])), {
        "dtype": "float32"
    }


def _eye(d: Drawing) -> Drawn:
    return (d.random.randint(1, 5), d.random.randint(1, 5)), {"dtype": _dtype(d)}


def _like(d: Drawing) -> Drawn:
    return (d.any("bool", "int", "float"),), (
        {} if d.random.random() < 0.5 else {"dtype": _dtype(d)}
    )


def _filled_like(d: Drawing) -> Drawn:
    x = d.any("bool", "int", "float")
    return (x, d.number(d.value(x).dtype)), {}


def _line(x: Any, y: Any, count: int) -> Array:
    return np.linspace(x, y, count)


OPERATIONS = [
    Operation("full", _filled, lambda shape, x: np.full(shape, x), _given("float32")),
    Operation("zeros", _constant, lambda shape: np.zeros(shape), _given("float32")),
    Operation("ones", _constant, lambda shape: np.ones(shape), _given("float32")),
    Operation("empty", _constant, lambda shape: np.zeros(shape), _given("float32")),
    Operation("const", _number, lambda x: np.asarray(x), _given("float32")),
    Operation("arange", _arange, np.arange, _given("int32")),
    Operation("linspace", _linspace, _line, _given("float32"), Rounding.CLOSE, data=0),
    Operation("eye", _eye, lambda n, m: np.eye(n, m), _given("float32")),
    Operation("zeros_like", _like, np.zeros_like, _alike),
    Operation("ones_like", _like, np.ones_like, _alike),
    Operation("empty_like", _like, np.zeros_like, _alike),
    Operation("full_like", _filled_like, lambda x, y: np.full(x.shape, y), _alike),
    Operation("const_like", _filled_like, lambda x, y: np.full(x.shape, y), _alike),
]
