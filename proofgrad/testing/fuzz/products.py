"""Products of matrices, losses and attention: draws and meanings."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from proofgrad.testing.fuzz.choosing import positions
from proofgrad.testing.fuzz.elementwise import softplus
from proofgrad.testing.fuzz.operation import (
    Drawing,
    Drawn,
    Operation,
    Rounding,
    as_float,
    common_type,
    pair,
    pair_of_floats,
)
from proofgrad.testing.fuzz.reductions import log_softmax, softmax
from proofgrad.testing.fuzz.values import Array

CLOSE, SUM = Rounding.CLOSE, Rounding.SUM
SIZES = (1, 2, 3, 4, 5, 7, 8, 13, 17)


# -- draws ----------------------------------------------------------------------------------------


def _other_factor(d: Drawing, x: Any) -> tuple[Any, Any]:
    shape = d.value(x).shape
    columns = d.random.choice(SIZES)
    dtype = d.value(x).dtype
    if d.random.random() < 0.15:
        return x, d.leaf(dtype, (shape[-1],))
    if len(shape) > 1 and d.random.random() < 0.2:
        return x, d.step("transpose", x, -1, -2)
    front = shape[:-2] if len(shape) > 2 and d.random.random() < 0.5 else ()
    return x, d.like(x, (*front, shape[-1], columns)) if d.random.random() < 0.3 else d.leaf(
        dtype, (*front, shape[-1], columns)
    )


def _dot(d: Drawing) -> Drawn:
    return _other_factor(d, d.any("int", "float", rank=1, most=200)), {}


def _gram(d: Drawing) -> Drawn:
    """A matrix with itself, turned."""
    x = d.any("int", "float", rank=2, most=120)
    shape = d.value(x).shape
    letters = "abcdfg"[: len(shape)]
    left, right = letters, letters[:-2] + letters[-1] + "e"
    if shape[-1] != shape[-2]:
        right = letters[:-2] + "e" + letters[-1]
    return (f"{left},{right}->{letters[:-1]}e", x, x), {}


def _einsum(d: Drawing) -> Drawn:
    if d.random.random() < 0.3:
        return _gram(d)
    x = d.any("int", "float", rank=2, most=120)
    value = d.value(x)
    n, m = value.shape[-2:]
    front = "uvwx"[: len(value.shape) - 2]
    k = d.random.choice(SIZES)
    formula, shape = d.random.choice(
        [(f"{front}ij,jk->{front}ik", (m, k)), (f"{front}ij,ki->{front}jk", (k, n)), (f"{front}ij,j->i{front}", (m,)),
         (f"{front}ij,ij->{front}", (n, m)), (f"{front}ij,k->{front}kj", (k,)), (f"{front}ij->j{front}", ())]
    )  # fmt: skip
    return ((formula, x, d.leaf(value.dtype, shape)) if "," in formula else (formula, x)), {}


def _einsum_types(types: list[Any], options: dict[str, Any]) -> tuple[str | None, str]:
    found = common_type(types[1:])
    return found, found


def _linear(d: Drawing) -> Drawn:
    x = d.any("float", rank=1, most=200)
    value = d.value(x)
    columns = d.random.choice(SIZES)
    weight = d.leaf(value.dtype, (value.shape[-1], columns))
    return (
        (x, weight, d.leaf(value.dtype, (columns,))) if d.random.random() < 0.6 else (x, weight)
    ), {}


def _attention(d: Drawing) -> Drawn:
    x = d.any("float", rank=2, most=120)
    value = d.value(x)
    keys = d.random.choice([value.shape[-2], 1, 3, 6]) or 1
    front = value.shape[:-2]
    size = value.shape[-1]
    key, values = d.leaf(value.dtype, (*front, keys, size)), d.leaf(value.dtype, (*front, keys, 3))
    match d.random.randrange(3):
        case 0:
            return (x, key, values), {"is_causal": True}
        case 1:
            return (x, key, values, d.leaf(value.dtype, (value.shape[-2], keys))), {}
    return (x, key, values), {}


REDUCTIONS = ("mean", "sum", "none")


def _labels(d: Drawing) -> Drawn:
    x = d.any("float", rank=2, most=200)
    shape = d.value(x).shape
    labels = positions(d, shape[1], (*shape[:1], *shape[2:]), is_signed=False)
    return (x, labels), {"reduction": d.random.choice(REDUCTIONS)}


def _last_labels(d: Drawing) -> Drawn:
    x = d.any("float", rank=1, most=200)
    shape = d.value(x).shape
    return (x, positions(d, shape[-1], shape[:-1], is_signed=False)), {
        "reduction": d.random.choice(REDUCTIONS)
    }


def _smooth_labels(d: Drawing) -> Drawn:
    operands, options = _labels(d)
    if d.random.random() < 0.4:
        options["label_smoothing"] = 0.25
    return operands, options


def _scores(d: Drawing) -> Drawn:
    x = d.any("float")
    target = d.leaf(d.value(x).dtype, d.value(x).shape, "unit")
    return (x, target), {"reduction": d.random.choice(REDUCTIONS)}


def _chances(d: Drawing) -> Drawn:
    shape = d.value(d.any("float")).shape
    x, target = d.leaf("float32", shape, "unit"), d.leaf("float32", shape, "unit")
    return (x, target), {"reduction": d.random.choice(REDUCTIONS)}


# -- meanings -------------------------------------------------------------------------------------


def einsum(formula: str, *operands: Array) -> Array:
    """`Tensor.einsum`, by numpy."""
    result: Array = np.einsum(formula, *operands)
    return result


def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """`Tensor.linear`: x @ weight + bias."""
    y = x @ weight
    return y if bias is None else y + bias


def attention(
    q: Array, k: Array, v: Array, mask: Array | None = None, is_causal: bool = False
) -> Array:
    """`Tensor.scaled_dot_product_attention`, with a mask that is added to the scores."""
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=np.bool_), scores, -np.inf)
    if mask is not None:
        scores = scores + mask
    return softmax(scores, -1) @ v


def reduced(losses: Array, reduction: str) -> Array:
    """The losses themselves ("none"), their mean or their sum."""
    if reduction == "none":
        return losses
    result: Array = np.divide(losses.sum(), losses.size) if reduction == "mean" else losses.sum()
    return result


def _picked(scores: Array, labels: Array) -> Array:
    return np.take_along_axis(scores, np.expand_dims(labels, 1).astype(np.int64), 1).squeeze(1)


def cross_entropy(x: Array, labels: Array, reduction: str, label_smoothing: float = 0.0) -> Array:
    """`Tensor.cross_entropy`: classes in axis 1."""
    scores = log_softmax(x, 1)
    losses = -_picked(scores, labels) * (1 - label_smoothing) - scores.mean(1) * label_smoothing
    return reduced(losses, reduction)


def sparse_cross_entropy(x: Array, labels: Array, reduction: str) -> Array:
    """`Tensor.sparse_categorical_crossentropy`: classes in the last axis."""
    scores = log_softmax(x, -1)
    return reduced(
        -np.take_along_axis(scores, labels[..., None].astype(np.int64), -1)[..., 0], reduction
    )


def nll_loss(x: Array, labels: Array, reduction: str) -> Array:
    """`Tensor.nll_loss`: x is the logarithm of probabilities, classes in axis 1."""
    return reduced(-_picked(x, labels), reduction)


def binary_logits(x: Array, y: Array, reduction: str) -> Array:
    """`Tensor.binary_crossentropy_logits`, without overflow."""
    return reduced(y * softplus(-x) + (1 - y) * softplus(x), reduction)


def binary(x: Array, y: Array, reduction: str) -> Array:
    """`Tensor.binary_crossentropy`: x is a probability; logarithms are at least -100."""
    return reduced(
        -(y * np.maximum(np.log(x), -100) + (1 - y) * np.maximum(np.log1p(-x), -100)), reduction
    )


def squared(x: Array, y: Array, reduction: str) -> Array:
    """`Tensor.mse_loss`: the square of the difference."""
    return reduced((x - y) ** 2, reduction)


def distance(x: Array, y: Array, reduction: str) -> Array:
    """`Tensor.l1_loss`: the distance."""
    return reduced(np.abs(x - y), reduction)


def huber(x: Array, y: Array, reduction: str, delta: float = 1.0) -> Array:
    """`Tensor.huber_loss`: half of the square up to `delta`, a line beyond."""
    far = np.abs(x - y)
    return reduced(
        np.where(far < delta, far**2 / 2, (far - delta / 2) * delta).astype(far.dtype), reduction
    )


def smooth_distance(x: Array, y: Array, reduction: str, beta: float = 1.0) -> Array:
    """`Tensor.smooth_l1_loss`: huber over its delta, the distance where that is 0."""
    return distance(x, y, reduction) if beta == 0 else huber(x, y, reduction, beta) / beta


def divergence(x: Array, y: Array, reduction: str) -> Array:
    """`Tensor.kl_div`: x is the logarithm of probabilities, y are probabilities."""
    nothing = y == 0
    costs = np.where(nothing, 0, y * (np.log(np.where(nothing, 1, y)) - x))
    return reduced(costs.astype(x.dtype), reduction)


def _with_knee(d: Drawing, name: str, values: tuple[float, ...]) -> Drawn:
    """Scores, and where the square of a distance becomes a line."""
    arguments, options = _scores(d)
    return arguments, {**options, name: d.random.choice(values)}


def _huber(d: Drawing) -> Drawn:
    return _with_knee(d, "delta", (0.25, 1.0, 2.5))


def _smooth_distance(d: Drawing) -> Drawn:
    return _with_knee(d, "beta", (0.0, 0.25, 1.0, 2.5))


def _loss(name: str, draw: Callable[[Drawing], Drawn], f: Any, data: int = 1) -> Operation:
    return Operation(
        name,
        draw,
        f,
        pair_of_floats if data == 2 else as_float,
        CLOSE,
        data=data,
        noise=12,
        inner=1.0,
    )


OPERATIONS = [
    Operation("dot", _dot, np.matmul, pair, SUM, data=2),
    Operation("matmul", _dot, np.matmul, pair, SUM, data=2),
    Operation("__matmul__", _dot, np.matmul, pair, SUM, data=2, takes_variables=True),
    Operation("einsum", _einsum, einsum, _einsum_types, SUM, data=3, first=1),
    Operation("linear", _linear, linear, pair, CLOSE, data=3),
    Operation("scaled_dot_product_attention", _attention, attention, pair, CLOSE, data=4, noise=20),
    _loss("cross_entropy", _smooth_labels, cross_entropy),
    _loss("sparse_categorical_crossentropy", _last_labels, sparse_cross_entropy),
    _loss("nll_loss", _labels, nll_loss),
    _loss("binary_crossentropy_logits", _scores, binary_logits, 2),
    _loss("binary_crossentropy", _chances, binary, 2),
    _loss("mse_loss", _scores, squared, 2),
    _loss("l1_loss", _scores, distance, 2),
    _loss("huber_loss", _huber, huber, 2),
    _loss("smooth_l1_loss", _smooth_distance, smooth_distance, 2),
    _loss("kl_div", _scores, divergence, 2),
]
