"""numpy's operators and functions of Tensors: what gives a Tensor, what an array, and that no write is lost."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from proofgrad import JitError, Tensor, TinyJit

ARRAY = np.array([[1.0, 2.0, -4.0], [0.5, 3.0, 7.0]], np.float32)
OTHER = np.array([[3.0, -2.0, 0.5], [0.25, 1.0, 2.0]], np.float32)
FLOATS = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.lt,
    operator.le, operator.gt, operator.ge, operator.eq, operator.ne,
]  # fmt: skip
INTS = [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]


@pytest.mark.parametrize("asked", FLOATS)
def test_an_operator_between_an_array_and_a_tensor_gives_a_tensor(asked: Any) -> None:
    for left, right in [(ARRAY, OTHER), (np.float32(3), OTHER), (ARRAY, np.float32(0.5))]:
        wanted = asked(left, right)
        beside = asked(Tensor(left), right), asked(left, Tensor(right))
        for found in beside:
            assert isinstance(found, Tensor)
            np.testing.assert_array_equal(found.numpy(), wanted)


@pytest.mark.parametrize("asked", INTS)
def test_an_operator_of_bits_between_an_array_and_a_tensor_gives_a_tensor(asked: Any) -> None:
    left, right = np.array([5, 6, 7], np.int32), np.array([3, 1, 2], np.int32)
    for found in (asked(Tensor(left), right), asked(left, Tensor(right))):
        assert isinstance(found, Tensor)
        np.testing.assert_array_equal(found.numpy(), asked(left, right))


def test_products_and_powers_beside_an_array_give_tensors_with_gradients() -> None:
    x = Tensor(ARRAY, requires_grad=True)
    found = (OTHER.T @ x) ** 2
    np.testing.assert_allclose(found.numpy(), (OTHER.T @ ARRAY) ** 2, rtol=1e-6)
    (gradient,) = found.sum().gradient(x)
    np.testing.assert_allclose(gradient.numpy(), OTHER @ (2 * (OTHER.T @ ARRAY)), rtol=1e-6)
    assert (2.0 ** Tensor([1.0, 3.0])).tolist() == (np.float32(2) ** Tensor([1.0, 3.0])).tolist()


REDUCTIONS = [np.sum, np.mean, np.max, np.std, np.prod, np.any, np.all, np.median, np.linalg.norm]


@pytest.mark.parametrize("function", REDUCTIONS, ids=lambda f: f.__name__)
def test_a_reduction_of_numpy_takes_the_values(function: Callable[..., Any]) -> None:
    for settings in ({}, {"axis": 0}, {"axis": 1, "keepdims": True}):
        found, wanted = function(Tensor(ARRAY), **settings), function(ARRAY, **settings)
        assert type(found) is type(wanted)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("function", [np.exp, np.abs, np.sqrt, np.isnan, np.sign, np.negative])
def test_a_function_of_elements_takes_the_values(function: Any) -> None:
    with np.errstate(invalid="ignore"):
        found, wanted = function(Tensor(ARRAY)), function(ARRAY)
    assert type(found) is np.ndarray
    np.testing.assert_array_equal(found, wanted)


def test_tensors_within_lists_and_among_arrays_are_values() -> None:
    x = Tensor(ARRAY)
    np.testing.assert_array_equal(np.concatenate([x, OTHER]), np.concatenate([ARRAY, OTHER]))
    np.testing.assert_array_equal(np.stack((x, x), axis=1), np.stack((ARRAY, ARRAY), axis=1))
    np.testing.assert_array_equal(np.where(x > 1, x, OTHER), np.where(ARRAY > 1, ARRAY, OTHER))
    np.testing.assert_array_equal(np.maximum(x, OTHER), np.maximum(ARRAY, OTHER))
    np.testing.assert_array_equal(np.add.reduce(x), ARRAY.sum(0))
    quotient, rest = np.divmod(OTHER, x)
    np.testing.assert_array_equal(quotient, OTHER // ARRAY)
    np.testing.assert_array_equal(rest, OTHER % ARRAY)


def test_an_array_stays_one_where_a_tensor_is_added_in_place() -> None:
    array = ARRAY.copy()
    array += Tensor(OTHER)
    assert type(array) is np.ndarray
    np.testing.assert_array_equal(array, ARRAY + OTHER)
    tensor = Tensor(ARRAY)
    tensor += OTHER
    assert isinstance(tensor, Tensor)
    np.testing.assert_array_equal(tensor.numpy(), ARRAY + OTHER)


def test_what_numpy_would_write_to_a_tensor_is_refused() -> None:
    """It would write to a copy, and the Tensor would not see it."""
    x = Tensor(ARRAY)
    for write in (
        lambda: np.copyto(x, OTHER),
        lambda: np.add(ARRAY, OTHER, out=x),
        lambda: np.add.at(x, 0, 1.0),
        lambda: np.fill_diagonal(x, 0.0),
    ):
        with pytest.raises(ValueError, match="read-only"):
            write()
    np.testing.assert_array_equal(x.numpy(), ARRAY)


def test_a_function_of_numpy_cannot_be_recorded() -> None:
    record = TinyJit(lambda x: x * float(np.sum(x)))
    record(Tensor(ARRAY).realize())
    with pytest.raises(JitError, match="read"):
        record(Tensor(ARRAY).realize())
