"""Extremes of float16 and bfloat16 are held in float32 while they are taken, and are the same bit by bit."""

from __future__ import annotations

import numpy as np
import pytest

from proofgrad import Tensor, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.tensor.data.bodies import without_bodies

ROWS = np.random.default_rng(0).integers(-9, 9, (7, 41)).astype(np.float32)
ROWS[1, 3], ROWS[2, 5], ROWS[3, :] = np.nan, -np.inf, -0.0
ROWS[3, 7], ROWS[4, :] = 0.0, np.inf
NARROW = ["float16", "bfloat16"]


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("name", ["max", "min", "cummax", "cummin"])
def test_reductions_to_an_extreme_are_of_float32(dtype: str, name: str) -> None:
    found = getattr(Tensor(ROWS).cast(dtype).realize(), name)(1)
    value = found[0] if isinstance(found, tuple) else found
    nodes = without_bodies(value._uop).toposort()
    extremes = [n.dtype for n in nodes if n.op is Ops.REDUCE_AXIS]
    assert value.dtype.name == dtype and set(extremes) == {dtypes.float32}


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("axis", [0, 1])
def test_extremes_of_narrow_floats_are_those_of_numpy(dtype: str, axis: int) -> None:
    x = Tensor(ROWS).cast(dtype).realize()  # of numbers that both types have
    pairs = [
        (x.max(axis), np.max(ROWS, axis)),
        (x.min(axis), np.min(ROWS, axis)),
        (x.cummax(axis)[0], np.maximum.accumulate(ROWS, axis)),
        (x.cummin(axis)[0], np.minimum.accumulate(ROWS, axis)),
    ]
    for found, expected in pairs:
        np.testing.assert_array_equal(found.float().numpy(), expected)


@pytest.mark.parametrize("dtype", NARROW)
def test_the_larger_zero_is_the_positive_one(dtype: str) -> None:
    x = Tensor([-0.0, 0.0, -0.0]).cast(dtype).realize()
    assert np.signbit([x.max().item(), x.min().item()]).tolist() == [False, True]


@pytest.mark.parametrize("dtype", NARROW)
def test_gradient_of_an_extreme_goes_to_where_it_is(dtype: str) -> None:
    x = Tensor([[1.0, 5.0, 2.0], [4.0, 0.5, -3.0]]).cast(dtype).realize()
    (gradient,) = (x.max(1) * Tensor([2.0, 3.0]).cast(dtype)).sum().gradient(x)
    assert gradient.dtype.name == dtype
    assert gradient.tolist() == [[0, 2, 0], [3, 0, 0]]
