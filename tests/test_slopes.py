"""Functions of elements with a slope by a formula of its own: what the mark of such a function must not change."""

from __future__ import annotations

import numpy as np
import pytest

from proofgrad import Tensor, gradcheck

FUNCTIONS = ("expm1", "atan", "tanh", "erf", "sigmoid", "softplus", "mish")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_second_derivative_matches_differences(name: str) -> None:
    x = Tensor(np.array([-3.0, -0.4, 0.3, 1.7]))

    def slope(x: Tensor) -> Tensor:
        (found,) = getattr(x, name)().sum().gradient(x)
        return found

    assert gradcheck(slope, [x])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_equal_calls_are_one_node(name: str) -> None:
    x = Tensor.ones(4).contiguous()
    assert getattr(x, name)()._uop is getattr(x, name)()._uop


def test_no_gradient_passes_within_no_grad() -> None:
    x = Tensor([0.5, 1.0])
    with Tensor.no_grad():
        y = x.tanh()
    (slope,) = (y + x).sum().gradient(x)
    assert slope.tolist() == [1.0, 1.0]


def test_result_is_no_view() -> None:
    x = Tensor([0.0, 1.0]).realize()
    y = x.expm1()
    y += 1
    assert x.tolist() == [0.0, 1.0] and y.tolist() == pytest.approx([1.0, np.e])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_expm1_at_the_ends_of_its_range(dtype: type) -> None:
    largest = np.log(np.finfo(dtype).max)
    below, above = np.nextafter(largest, dtype(0)), np.nextafter(largest, dtype(1e4)) + dtype(0.01)
    tiny = np.finfo(dtype).smallest_subnormal
    x = np.array(
        [below, above, 1e30, np.inf, -100, -1e30, -np.inf, np.nan, tiny, -tiny, -0.0], dtype
    )
    found = Tensor(x).expm1().numpy()
    assert np.isfinite(found[0]) and (found[1:4] == np.inf).all() and (found[4:7] == -1).all()
    assert np.isnan(found[7]) and found[8:].tolist() == [tiny, -tiny, 0] and np.signbit(found[10])
