"""Products, convolutions, pooling and losses against plain numpy loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from tensors import assert_close, assert_same, machine, numbers

from proofgrad import DtypeError, ShapeError, Tensor
from proofgrad.core.tensor.methods.nn import losses

__all__ = ["machine"]
Array = np.ndarray[Any, Any]


@pytest.mark.parametrize(
    ("left", "right"),
    [((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)),
     ((5, 2, 3), (5, 3, 4)), ((2, 1, 2, 3), (4, 3, 2)), ((3,), (5, 3, 4)), ((1, 1), (1, 1))],
)  # fmt: skip
def test_matmul_agrees_with_numpy(machine: str, left: Any, right: Any) -> None:
    a, b = numbers(*left), numbers(*right, seed=1)
    assert_close(Tensor(a) @ Tensor(b), a.astype(np.float64) @ b.astype(np.float64))
    assert_close(Tensor(a).dot(Tensor(b)), a.astype(np.float64) @ b)


def test_integer_matmul_is_exact(machine: str) -> None:
    a, b = np.arange(6).reshape(2, 3), np.arange(12).reshape(3, 4)
    assert_same(Tensor(a) @ Tensor(b), a @ b)
    assert (np.ones((2, 2), "f") @ Tensor([[1.0, 2], [3, 4]])).tolist() == [[4, 6], [4, 6]]


def test_matmul_of_unequal_inner_sizes_is_refused_with_both() -> None:
    with pytest.raises(ShapeError, match=r"\(2, 3\) @ \(4, 5\): axis -1 of the first has 3"):
        Tensor.ones(2, 3) @ Tensor.ones(4, 5)


def convolution(x: Array, w: Array, groups: int, stride: Any, dilation: Any, padding: Any) -> Array:
    """By the definition: one loop an axis."""
    x = np.pad(x, ((0, 0), (0, 0), *[(p, p) for p in padding])).astype(np.float64)
    size = [
        (n - d * (k - 1) - 1) // s + 1
        for n, k, s, d in zip(x.shape[2:], w.shape[2:], stride, dilation)
    ]
    y = np.zeros((x.shape[0], w.shape[0], *size))
    per_group = w.shape[0] // groups
    for channel, position in product(range(w.shape[0]), product(*map(range, size))):
        first = channel // per_group * w.shape[1]
        window = tuple(
            slice(i * s, i * s + d * (k - 1) + 1, d)
            for i, s, d, k in zip(position, stride, dilation, w.shape[2:])
        )
        part = x[(slice(None), slice(first, first + w.shape[1]), *window)]
        y[(slice(None), channel, *position)] = (part * w[channel]).sum(tuple(range(1, part.ndim)))
    return y


@pytest.mark.parametrize(
    ("x", "w", "groups", "stride", "dilation", "padding"),
    [
        ((2, 3, 7, 6), (4, 3, 3, 3), 1, (1, 1), (1, 1), (0, 0)),
        ((2, 3, 7, 6), (4, 3, 3, 2), 1, (2, 1), (1, 1), (1, 0)),
        ((1, 4, 9, 9), (6, 2, 3, 3), 2, (2, 2), (2, 2), (2, 2)),
        ((1, 4, 5, 5), (4, 1, 3, 3), 4, (1, 1), (1, 1), (1, 1)),
        ((1, 2, 5, 5), (3, 2, 1, 1), 1, (3, 2), (1, 1), (0, 0)),
        ((1, 1, 3, 3), (1, 1, 3, 3), 1, (1, 1), (1, 1), (0, 0)),
        ((2, 3, 10), (4, 3, 4), 1, (3,), (2,), (1,)),
        ((1, 2, 4, 5, 4), (2, 2, 2, 2, 3), 1, (1, 2, 1), (1, 1, 1), (0, 1, 0)),
    ],
)
def test_convolution_agrees_with_its_definition(
    machine: str, x: Any, w: Any, groups: int, stride: Any, dilation: Any, padding: Any
) -> None:
    a, b, c = numbers(*x), numbers(*w, seed=1), numbers(w[0], seed=2)
    found = Tensor(a).conv2d(Tensor(b), Tensor(c), groups, stride, dilation, padding)
    expected = convolution(a, b, groups, stride, dilation, padding)
    assert_close(found, expected + c.reshape((-1,) + (1,) * (len(x) - 2)), rtol=1e-4, atol=1e-5)


def test_convolution_takes_torch_padding_of_four_sides(machine: str) -> None:
    x, w = numbers(1, 1, 4, 4), numbers(1, 1, 2, 2, seed=1)
    found = Tensor(x).conv2d(Tensor(w), padding=(1, 0, 0, 2))  # left, right, top, bottom
    padded = np.pad(x, ((0, 0), (0, 0), (0, 2), (1, 0)))
    assert_close(found, convolution(padded, w, 1, (1, 1), (1, 1), (0, 0)))


def test_convolution_of_wrong_channels_is_refused_with_counts() -> None:
    with pytest.raises(ShapeError, match="the input has 3 channels, the weight takes 1 x 4"):
        Tensor.ones(1, 3, 5, 5).conv2d(Tensor.ones(2, 4, 3, 3))
    with pytest.raises(ShapeError, match="spans 3, more than axis"):
        Tensor.ones(1, 1, 2, 2).conv2d(Tensor.ones(1, 1, 3, 3))


def pooled(x: Array, kernel: int, stride: int, padding: int, fill: float) -> Array:
    """Windows of the last two axes: shape (.., h, w, kernel, kernel)."""
    x = np.pad(x, ((0, 0), (0, 0), (padding,) * 2, (padding,) * 2), constant_values=fill)
    view = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), (2, 3))
    return view[:, :, ::stride, ::stride]


@pytest.mark.parametrize(
    ("kernel", "stride", "padding"), [(2, 2, 0), (3, 3, 0), (3, 1, 1), (2, 1, 0), (3, 2, 1)]
)
def test_pooling_agrees_with_windows(machine: str, kernel: int, stride: int, padding: int) -> None:
    x = numbers(2, 2, 7, 8)
    t = Tensor(x)
    largest = pooled(x, kernel, stride, padding, -np.inf).max((-2, -1))
    mean = pooled(x.astype(np.float64), kernel, stride, padding, 0).mean((-2, -1))
    assert_same(t.max_pool2d(kernel, stride, padding=padding), largest)
    assert_close(t.avg_pool2d(kernel, stride, padding=padding), mean)


def test_max_pool_of_integers_pads_with_the_smallest(machine: str) -> None:
    x = -np.ones((1, 1, 2, 2), "int8")
    assert Tensor(x).max_pool2d(2, 1, padding=1).numpy().max() == -1


def log_softmax(x: Array) -> Array:
    x = x.astype(np.float64)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def test_sparse_cross_entropy_agrees_with_its_definition(machine: str) -> None:
    scores, labels = numbers(5, 4), np.array([0, 3, 1, 1, 2])
    picked = -log_softmax(scores)[np.arange(5), labels]
    t, y = Tensor(scores), Tensor(labels, dtype="int32")
    assert_close(t.sparse_categorical_crossentropy(y), picked.mean())
    assert_close(t.sparse_categorical_crossentropy(y, reduction="none"), picked)
    assert_close(t.cross_entropy(y), picked.mean())
    assert_close(t.cross_entropy(y.one_hot(4)), picked.mean())
    assert_close(t.log_softmax().nll_loss(y), picked.mean())


def test_sparse_cross_entropy_ignores_the_ignored_label(machine: str) -> None:
    scores, labels = numbers(3, 4), np.array([1, -1, 2])
    picked = -log_softmax(scores)[[0, 2], [1, 2]]
    found = Tensor(scores).sparse_categorical_crossentropy(Tensor(labels, dtype="int32"))
    assert_close(found, picked.mean())


def test_label_smoothing_mixes_in_all_classes(machine: str) -> None:
    scores, labels = numbers(3, 4), np.array([1, 0, 2])
    logs = log_softmax(scores)
    expected = -(0.9 * logs[np.arange(3), labels] + 0.1 * logs.mean(-1)).mean()
    t, y = Tensor(scores), Tensor(labels, dtype="int32")
    assert_close(t.sparse_categorical_crossentropy(y, label_smoothing=0.1), expected)
    assert_close(t.cross_entropy(y, label_smoothing=0.1), expected)


def test_binary_cross_entropy_agrees_with_and_without_logits(machine: str) -> None:
    scores, labels = numbers(6), np.array([0, 1, 1, 0, 1, 0], "f")
    p = 1 / (1 + np.exp(-scores.astype(np.float64)))
    expected = -(labels * np.log(p) + (1 - labels) * np.log(1 - p)).mean()
    assert_close(Tensor(scores).sigmoid().binary_crossentropy(Tensor(labels)), expected)
    assert_close(Tensor(scores).binary_crossentropy_logits(Tensor(labels)), expected)


def test_labels_of_the_wrong_kind_are_refused() -> None:
    with pytest.raises(DtypeError, match="labels are integers"):
        Tensor.ones(2, 3).sparse_categorical_crossentropy(Tensor([1.0, 2.0]))
    with pytest.raises(ShapeError, match=r"labels \(3,\) for scores \(2, 3\)"):
        Tensor.ones(2, 3).sparse_categorical_crossentropy(Tensor([1, 2, 0]))


def test_attention_agrees_with_its_definition(machine: str) -> None:
    q, k, v = (numbers(2, 3, 4, seed=s) for s in range(3))
    scores = q.astype(np.float64) @ k.transpose(0, 2, 1) / 2
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    found = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v))
    assert_close(found, weights @ v)
    causal = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), is_causal=True)
    np.testing.assert_allclose(causal.numpy()[:, 0], v[:, 0], rtol=1e-5)


@pytest.mark.parametrize(("queries", "keys"), [(9, 9), (8, 8), (17, 5), (7, 12)])
def test_causal_attention_in_parts_is_that_of_a_mask(
    queries: int, keys: int, monkeypatch: pytest.MonkeyPatch, machine: str
) -> None:
    monkeypatch.setattr(losses, "CAUSAL_ROWS", 2)
    q, *kv = [Tensor(numbers(2, n, 4, seed=n + k)) for k, n in enumerate((queries, keys, keys))]
    mask = Tensor(np.tri(queries, keys, dtype=bool))
    whole = q.scaled_dot_product_attention(*kv, attn_mask=mask)
    parts = q.scaled_dot_product_attention(*kv, is_causal=True)
    assert_close(parts, whole.numpy())
    slopes = [(y * y).sum().gradient(q, *kv) for y in (parts, whole)]
    for found, expected in zip(*slopes):
        assert_close(found, expected.numpy(), atol=1e-5)


def test_sequential_and_linear_apply_in_order(machine: str) -> None:
    x, w, b = numbers(2, 3), numbers(3, 4, seed=1), numbers(4, seed=2)
    found = Tensor(x).sequential([lambda t: t.linear(Tensor(w), Tensor(b)), Tensor.relu])
    assert_close(found, np.maximum(x.astype(np.float64) @ w + b, 0))


MASKED = [[1.0, -math.inf, 2.0], [0.5, 0.0, -math.inf]]
OTHER_LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    "labels": lambda x: x.cross_entropy(Tensor([0, 1])),
    "distribution": lambda x: x.cross_entropy(Tensor([[0.25, 0.0, 0.75], [1.0, 0.0, 0.0]])),
    "categorical": lambda x: x.sparse_categorical_crossentropy(Tensor([2, 0])),
    "nll_loss": lambda x: x.log_softmax().nll_loss(Tensor([2, 0])),
}


@pytest.mark.parametrize("name", OTHER_LOSSES)
def test_class_that_cannot_be_costs_nothing_and_gets_no_gradient(machine: str, name: str) -> None:
    """The same as a score so low that its exponential is 0."""
    masked, low = Tensor(MASKED), Tensor(MASKED).maximum(-1e4)
    loss, expected = OTHER_LOSSES[name](masked), OTHER_LOSSES[name](low)
    assert_close(loss, expected.numpy())
    (gradient,), (other,) = loss.gradient(masked), expected.gradient(low)
    assert_close(gradient, other.numpy())


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("label", [0.0, 0.25, 1.0])
def test_binary_cross_entropy_of_logits_loses_no_digits(kind: str, label: float) -> None:
    size = np.concatenate([np.linspace(0, 20, 81), np.linspace(20, 80, 13)])
    x = Tensor(np.concatenate([-size, size])).cast(kind)
    y = Tensor.full(x.shape, label, dtype=kind)
    found = x.binary_crossentropy_logits(y, "none").double().numpy()
    (gradient,) = x.binary_crossentropy_logits(y, "sum").gradient(x)
    scores = x.double().numpy().astype(np.longdouble)
    exact = label * np.logaddexp(0, -scores) + (1 - label) * np.logaddexp(0, scores)
    slope = (1 - label) / (1 + np.exp(-scores)) - label / (1 + np.exp(scores))
    ulp = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}[kind]
    least = 2.0**-25 if kind == "float16" else 0.0
    assert np.all(np.abs(found - exact) <= 3 * ulp * exact + least)
    # A label of 1/4 has a root of the slope, near which it cancels.
    scale = np.abs(slope) if label in (0.0, 1.0) else 1.0
    assert np.all(np.abs(gradient.double().numpy() - slope) <= 4 * ulp * scale + least)
