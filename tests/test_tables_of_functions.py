"""Functions of positions, as cosines of transforms and powers of decays, that many results read: computed once."""

from __future__ import annotations

import math

import numpy as np
import pytest
from test_cpu_target import cpu

from proofgrad import GlobalCounters, Tensor, explain


def cosines(count: int) -> Tensor:
    line = Tensor.arange(count)
    return ((line.reshape(-1, 1) + 0.5) * line * (math.pi / count)).cos()


def kernels(value: Tensor) -> int:
    """As the first word of an explanation says."""
    return int(explain(value).split()[0])


@pytest.mark.heuristics
@pytest.mark.parametrize(("rows", "count"), [(101, 63), (1, 64), (2, 8)])
def test_a_transform_by_cosines(rows: int, count: int) -> None:
    x = np.random.default_rng(rows).standard_normal((rows, count)).astype(np.float32)
    line = np.arange(count)
    table = np.cos((line[:, None] + 0.5) * line * (math.pi / count))
    with cpu("haswell"):
        found = Tensor(x).realize() @ cosines(count)
        assert kernels(found) == (2 if rows > 2 else 1)
        np.testing.assert_allclose(found.numpy(), x @ table, rtol=1e-4, atol=1e-4)


@pytest.mark.heuristics
def test_a_decay_is_raised_to_its_powers_once() -> None:
    steps, batch, width = 47, 9, 31
    x = np.random.default_rng(1).standard_normal((batch, steps, width)).astype(np.float32)
    line = np.arange(steps)
    powers = np.tril(0.97 ** (line[:, None] - line).astype(np.float64))
    with cpu("haswell"):
        back = (Tensor.arange(steps).reshape(-1, 1) - Tensor.arange(steps)).float()
        found = (0.97**back).tril() @ Tensor(x).realize()
        GlobalCounters.reset()
        np.testing.assert_allclose(found.numpy(), powers @ x, rtol=1e-4, atol=1e-4)
        products = 2 * batch * steps * steps * width
        assert GlobalCounters.global_ops < 1.5 * products
