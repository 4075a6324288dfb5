"""Random orders: all numbers once, for every count; as random as orders drawn in another way."""

from __future__ import annotations

import math

import numpy as np
import pytest

from proofgrad import Tensor, TinyJit
from proofgrad.core.tensor.methods.creation.random import MOST_SORTED


@pytest.mark.parametrize("count", (0, 1, 2, 3, MOST_SORTED, MOST_SORTED + 1, 361, 362, 400, 1023, 1025, 4097, 65537))  # fmt: skip
def test_randperm_of_any_count_has_each_number_once(count: int) -> None:
    for _ in range(2):
        assert sorted(Tensor.randperm(count).tolist()) == list(range(count))


@pytest.mark.parametrize("count", (MOST_SORTED + 1, 400))
def test_randperm_is_as_random_as_orders_can_be(count: int) -> None:
    Tensor.manual_seed(3)
    draws = 2000
    orders = np.stack([Tensor.randperm(count).numpy() for _ in range(draws)])
    fixed = (orders == np.arange(count)).sum(1)  # Poisson, of mean 1
    assert abs(fixed.mean() - 1) < 5 / math.sqrt(draws) and abs(fixed.var() - 1) < 0.25
    rises = (orders[:, 1:] > orders[:, :-1]).sum(1)
    assert abs(rises.mean() - (count - 1) / 2) < 5 * math.sqrt(count / 12 / draws)
    assert 0.85 < rises.var() / ((count + 1) / 12) < 1.15
    steps = np.bincount(((orders[:, 1:] - orders[:, :-1]) % count).ravel(), minlength=count)[1:]
    expected = draws  # of each difference, as many as orders
    squares = ((steps - expected) ** 2 / expected).sum()
    assert abs(squares - (count - 2)) < 6 * math.sqrt(2 * count)


def test_randperm_within_a_recorded_function_is_another_one_at_each_call() -> None:
    draw = TinyJit(lambda: Tensor.randperm(1000).realize())
    orders = {tuple(draw().tolist()) for _ in range(5)}
    assert len(orders) == 5 and all(sorted(order) == list(range(1000)) for order in orders)


@pytest.mark.parametrize(("count", "dtype"), ((300, "uint8"), (129, "int8"), (40000, "int16")))
def test_randperm_of_more_numbers_than_a_type_holds_is_refused(count: int, dtype: str) -> None:
    with pytest.raises(OverflowError, match=f"randperm of {count}"):
        Tensor.randperm(count, dtype=dtype)
    assert Tensor.randperm(100, dtype=dtype).max().item() == 99


def test_randperm_of_a_count_below_0_is_refused() -> None:
    with pytest.raises(ValueError, match="0 or more, not -1"):
        Tensor.randperm(-1)


def test_randint_beyond_its_type_is_refused() -> None:
    with pytest.raises(OverflowError, match="int8 holds -128 to 127"):
        Tensor.randint(3, high=1000, dtype="int8")
    assert Tensor.randint(3, low=127, high=128, dtype="int8").tolist() == [127] * 3


@pytest.mark.parametrize(
    "name",
    ("randn", "normal", "uniform", "scaled_uniform", "glorot_uniform", "kaiming_uniform", "kaiming_normal"),
)  # fmt: skip
def test_an_option_that_a_factory_does_not_take_is_refused_in_its_name(name: str) -> None:
    with pytest.raises(TypeError, match=rf"^{name}\(\) takes no 'seed'; .*device"):
        getattr(Tensor, name)(3, seed=1)
    for like in ("rand_like", "randn_like"):
        with pytest.raises(TypeError, match=rf"^{like}\(\) takes no 'seed'"):
            getattr(Tensor.ones(3), like)(seed=1)
    assert getattr(Tensor, name)(3, requires_grad=True).requires_grad
