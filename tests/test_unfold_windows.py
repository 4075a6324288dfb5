"""Windows along an axis: their elements, their gradients, and how much work those are."""

from __future__ import annotations

import numpy as np
import pytest

from proofgrad import GlobalCounters, ShapeError, Tensor

# The length of the axis, the size of a window, the step: whole blocks, cut ones, gaps, and none that fit.
WINDOWS = [
    (10, 4, 2),
    (11, 5, 2),
    (10, 5, 2),
    (9, 2, 3),
    (8, 2, 4),
    (7, 2, 4),
    (12, 6, 4),
    (9, 9, 5),
    (9, 3, 3),
]


@pytest.mark.parametrize(("length", "size", "step"), WINDOWS)
@pytest.mark.parametrize("axis", [0, 1])
def test_windows_and_their_gradient_are_numpys(
    length: int, size: int, step: int, axis: int
) -> None:
    data = np.arange(3 * length, dtype=np.float32).reshape((3, length) if axis else (length, 3))
    x = Tensor(data, requires_grad=True)
    found = x.unfold(axis, size, step)
    every = (slice(None),) * axis + (slice(None, None, step),)
    want = np.lib.stride_tricks.sliding_window_view(data, size, axis)[every]
    assert found.tolist() == want.tolist()
    weights = np.arange(1, 1 + want.size, dtype=np.float32).reshape(want.shape)
    (gradient,) = (found * Tensor(weights)).sum().gradient(x)
    sums = np.zeros_like(data)
    for k in range(want.shape[axis]):
        window = (slice(None),) * axis + (slice(k * step, k * step + size),)
        sums[window] += np.moveaxis(weights.take(k, axis), -1, axis)
    assert gradient.tolist() == sums.tolist()


def test_windows_many_steps_apart_are_views() -> None:
    assert Tensor.ones(40).contiguous().realize().unfold(0, 10, 4).view_info() is not None


def test_gradient_of_windows_many_steps_apart_looks_at_the_windows_that_hold_an_element() -> None:
    x = Tensor.ones(1600, requires_grad=True).contiguous().realize()
    weights = Tensor.ones(38, 100).contiguous().realize()
    (gradient,) = (x.unfold(0, 100, 40) * weights).sum().gradient(x)
    before = GlobalCounters.global_ops
    gradient.realize()
    assert GlobalCounters.global_ops - before < 100 * x.numel()


@pytest.mark.parametrize("step", [1, 2, 3, 5])
@pytest.mark.parametrize("length", [0, 1, 3])
def test_windows_of_no_elements_are_as_many_as_torch_has(length: int, step: int) -> None:
    torch = pytest.importorskip("torch")
    for axis in (1, -1):
        shape = (2, length, 4) if axis == 1 else (2, 4, length)
        x = Tensor.rand(*shape, requires_grad=True)
        found = x.unfold(axis, 0, step)
        assert (
            found.shape
            == found.numpy().shape
            == tuple(torch.ones(shape).unfold(axis, 0, step).shape)
        )
        (gradient,) = found.sum().gradient(x)
        assert gradient.tolist() == np.zeros(shape).tolist()


@pytest.mark.parametrize(("size", "step"), [(-1, 1), (2, 0), (0, 0), (2, -1)])
def test_unfold_of_impossible_windows_is_refused_in_its_own_words(size: int, step: int) -> None:
    with pytest.raises(ShapeError, match=f"unfold takes .* not {size} and {step}"):
        Tensor.ones(3).unfold(0, size, step)
