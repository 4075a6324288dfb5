"""Elements that the same positions choose in many kernels: each reads the positions, and none a table of which is which."""

from __future__ import annotations

import numpy as np
import pytest
from test_cpu_target import cpu

from proofgrad import Tensor
from proofgrad.core.ir.uop import UOp

NODES, EDGES, WIDTH = 50, 210, 8
SHARE = 0.25  # of a sum over about four edges
RANDOM = np.random.default_rng(0)
FEATURES = RANDOM.normal(size=(NODES, WIDTH)).astype(np.float32)
SOURCES, TARGETS = RANDOM.integers(0, NODES, (2, EDGES)).astype(np.int32)


def tables(*values: Tensor) -> list[UOp]:
    """The kernels that store bools."""
    items = values[0].schedule(*values[1:])
    roots = [item.ast for item in items if not item.is_copy]
    return [root for root in roots if any([n.dtype.is_bool for n in (root, *root.src)])]


def messages(x: Tensor, layers: int) -> Tensor:
    """Each node takes the sum over its edges, layer after layer."""
    sources, targets = Tensor(SOURCES).realize(), Tensor(TARGETS).realize()
    places = targets.unsqueeze(1).expand(EDGES, WIDTH)
    for _ in range(layers):
        sums = Tensor.zeros(NODES, WIDTH).scatter_reduce(0, places, x[sources], reduce="sum")
        x = (sums * SHARE).sin()
    return x


def messages_and_gradient(layers: int) -> tuple[np.ndarray, np.ndarray]:
    """Expected values, and the gradient of their sum."""
    edges = np.zeros((NODES, NODES))
    np.add.at(edges, (TARGETS, SOURCES), 1.0)
    x, slopes = FEATURES.astype(np.float64), []
    for _ in range(layers):
        sums = SHARE * (edges @ x)
        x = np.sin(sums)
        slopes.append(SHARE * np.cos(sums))
    gradient = np.ones_like(x)
    for slope in reversed(slopes):
        gradient = edges.T @ (gradient * slope)
    return x, gradient


@pytest.mark.parametrize("layers", [3, 8, 40])
def test_positions_of_many_layers_are_read_by_each(layers: int) -> None:
    with cpu("haswell"):
        x = Tensor(FEATURES).realize()
        found = messages(x, layers)
        (gradient,) = found.sum().gradient(x)
        assert not tables(found, gradient)
    x = Tensor(FEATURES).realize()
    found = messages(x, layers)
    (gradient,) = found.sum().gradient(x)
    wanted, slope = messages_and_gradient(layers)
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-4)
    np.testing.assert_allclose(gradient.numpy(), slope, atol=1e-3 * np.abs(slope).max())


@pytest.mark.parametrize("steps", [2, 40])
@pytest.mark.parametrize("is_computed", [False, True])
def test_a_permutation_of_many_steps_is_read_by_each(steps: int, is_computed: bool) -> None:
    order = np.arange(NODES) * 7 % NODES
    chosen = Tensor.arange(NODES) * 7 % NODES
    positions = chosen.contiguous() if is_computed else Tensor(order.astype(np.int32)).realize()

    def turned(x: Tensor) -> Tensor:
        for _ in range(steps):
            x = (x[positions] * 0.5).contiguous()
        return x

    wanted = FEATURES
    for _ in range(steps):
        wanted = wanted[order] * np.float32(0.5)
    with cpu("haswell"):
        assert not tables(turned(Tensor(FEATURES).realize()))
    np.testing.assert_array_equal(turned(Tensor(FEATURES).realize()).numpy(), wanted)


def test_two_positions_of_an_element_in_many_steps_are_read_by_each() -> None:
    rows, columns = (SOURCES % 5).astype(np.int32), (TARGETS % WIDTH).astype(np.int32)
    first, second = Tensor(rows).realize(), Tensor(columns).realize()

    def summed(x: Tensor) -> Tensor:
        total = x[first, second]
        for k in range(2, 40):
            total = (total + (x * k)[first, second]).contiguous()
        return total

    with cpu("haswell"):
        assert not tables(summed(Tensor(FEATURES).realize()))
    wanted = FEATURES[rows, columns] * sum(range(1, 40))
    np.testing.assert_allclose(summed(Tensor(FEATURES).realize()).numpy(), wanted, rtol=1e-5)
