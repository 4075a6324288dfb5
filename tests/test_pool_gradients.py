"""The gradient of pools whose windows begin apart, by phases: the same as by the laws of movement."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tensors import assert_close, numbers

from proofgrad import Tensor
from proofgrad.core.tensor.methods.nn import pools

# shape of the last axes, window, stride, padding, up to the ceiling
CASES: list[tuple[Any, ...]] = [
    ((9, 11), (3, 3), 2, 0, False),
    ((9, 11), (5, 2), (2, 3), (2, 1), False),
    ((8, 8), (2, 2), 3, 0, False),
    ((10, 7), (3, 3), 2, 1, True),
    ((17,), (4,), 3, 1, False),
    ((5, 6, 7), (3, 2, 3), (2, 1, 2), (1, 0, 1), False),
    ((4, 3), (4, 3), 5, 0, False),
    ((7, 1), (7, 1), (2, 3), 0, False),
]


def gradients(
    x: Tensor, case: tuple[Any, ...], kind: str, weights: np.ndarray[Any, Any]
) -> list[Tensor]:
    """Of the weighted sum of a pool for its input, and of the sum of the squares of that once more."""
    _, kernel, stride, padding, ceil = case
    options = {"stride": stride, "padding": padding, "ceil_mode": ceil}
    pool = x.max_pool2d if kind == "max" else x.avg_pool2d
    y = pool(kernel, **options).reshape(-1)
    first = (y * y * Tensor(weights[: y.shape[0]])).sum().gradient(x)[0]
    return [first, first.square().sum().gradient(x)[0]]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("kind", ["max", "avg"])
def test_phases_give_what_the_laws_of_movement_give(
    case: tuple[Any, ...], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = numbers(400)
    x = Tensor(numbers(2, 2, *case[0]), requires_grad=True)
    found = gradients(x, case, kind, weights)
    monkeypatch.setattr(pools, "MOST_WINDOWS", 0)
    for got, expected in zip(found, gradients(x, case, kind, weights)):
        assert_close(got, expected.numpy())


def test_equal_largest_elements_share_the_cotangent() -> None:
    x = Tensor([[[1.0, 3.0, 3.0, 0.0, 3.0]]], requires_grad=True)
    y = x.max_pool2d((3,), stride=2)
    assert y.gradient(x, gradient=Tensor([[[1.0, 4.0]]]))[0].tolist() == [[[0, 0.5, 2.5, 0, 2]]]


def test_elements_that_no_window_reads_get_nothing() -> None:
    x = Tensor.arange(6).float().reshape(1, 1, 6)
    x.requires_grad = True
    assert x.max_pool2d((2,), stride=3).sum().gradient(x)[0].tolist() == [[[0, 1, 0, 0, 1, 0]]]
    assert x.avg_pool2d((2,), stride=3).sum().gradient(x)[0].tolist() == [[[0.5, 0.5, 0] * 2]]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_types_keep_their_type(dtype: str) -> None:
    x = Tensor(numbers(1, 2, 9), dtype=dtype, requires_grad=True)
    for y in (x.max_pool2d((3,), stride=2), x.avg_pool2d((3,), stride=2)):
        found = y.sum().gradient(x)[0]
        assert found.dtype == x.dtype
        assert abs(found.float().sum().item() - 8) < 0.1


def test_an_element_in_many_windows_has_no_part_for_each() -> None:
    x = Tensor(numbers(1, 1, 90), requires_grad=True)
    assert_close(x.avg_pool2d((80,), stride=2).sum().gradient(x)[0].sum(), np.float32(6.0))


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_windows_with_a_nan_give_nan_to_their_elements(stride: int) -> None:
    x = Tensor([[[1.0, 3.0, 2.0, math.nan, 0.0, 0.0, 5.0, 4.0, 1.0]]], requires_grad=True)
    found = x.max_pool2d((3,), stride=stride).sum().gradient(x)[0].numpy()[0, 0]
    begins = range(0, 7, stride)
    read = {k + i for k in begins if k <= 3 < k + 3 for i in range(3)}
    assert set(np.flatnonzero(np.isnan(found))) == read
    assert np.isfinite(found[[0, 6, 7]]).all() and found[6] >= 1
