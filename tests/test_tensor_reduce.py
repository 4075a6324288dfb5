"""Reductions and what is built from them, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tensors import assert_close, assert_same, machine, numbers

from proofgrad import Tensor

__all__ = ["machine"]
AXES: list[Any] = [None, 0, 1, -1, (0, 2), (0, 1, 2), ()]


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("keepdim", [False, True])
def test_float_reductions_agree_with_numpy(machine: str, axis: Any, keepdim: bool) -> None:
    x = numbers(2, 3, 4)
    t, wide = Tensor(x), x.astype(np.float64)
    assert_close(t.sum(axis, keepdim), wide.sum(axis, keepdims=keepdim))
    assert_close(t.mean(axis, keepdim), wide.mean(axis, keepdims=keepdim))
    assert_close(t.prod(axis, keepdim), wide.prod(axis, keepdims=keepdim))
    assert_same(t.max(axis, keepdim), x.max(axis, keepdims=keepdim))
    assert_same(t.min(axis, keepdim), x.min(axis, keepdims=keepdim))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64", "bool"])
def test_integer_reductions_agree_with_numpy(machine: str, dtype: str) -> None:
    x = np.array([[1, 100, 120], [0, 3, 127]]).astype(dtype)
    t = Tensor(x)
    assert t.sum().item() == int(x.astype("int64").sum())
    assert t.sum(0).tolist() == x.astype("int64").sum(0).tolist()
    assert_same(t.max(1), x.max(1))
    assert_same(t.min(0), x.min(0))


def test_int32_sum_wraps(machine: str) -> None:
    assert Tensor([2**30] * 3).sum().item() == 3 * 2**30 - 2**32


def test_extremes_pass_nan_on(machine: str) -> None:
    x = np.array([[1.0, np.nan], [-np.inf, 3.0]], "f")
    assert_same(Tensor(x).max(1), x.max(1))
    assert_same(Tensor(x).min(1), x.min(1))


def test_reductions_over_nothing_give_the_identity(machine: str) -> None:
    t = Tensor.zeros(0, 2)
    assert t.sum(0).tolist() == [0.0, 0.0]
    assert t.prod(0).tolist() == [1.0, 1.0]
    assert t.any(0).tolist() == [False, False]
    assert t.all(0).tolist() == [True, True]


@pytest.mark.parametrize("equation, shapes", [
    ("ij,ki->jk", ((0, 4), (1, 0))),
    ("ij,jk->ik", ((1, 0), (0, 1))),
    ("ij,jk->ik", ((3, 0), (0, 5))),
    ("bij,bjk->bik", ((2, 1, 0), (2, 0, 7))),
    ("i,i->", ((0,), (0,))),
])  # fmt: skip
def test_sums_of_products_over_nothing_read_nothing(
    machine: str, equation: str, shapes: tuple[tuple[int, ...], ...]
) -> None:
    """An operand that does not change along the sum has no element to read all the same."""
    operands = [np.ones(shape, "f") for shape in shapes]
    got = Tensor.einsum(equation, *map(Tensor, operands))
    assert_same(got, np.einsum(equation, *operands))


def test_any_and_all_agree_with_numpy(machine: str) -> None:
    x = np.array([[0, 0, 2], [1, 1, 1], [0, 0, 0]], "f")
    for axis in (None, 0, 1):
        assert_same(Tensor(x).any(axis), np.asarray(x.any(axis)))
        assert_same(Tensor(x).all(axis), np.asarray(x.all(axis)))


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8", "bool"])
def test_argmax_and_argmin_give_the_first_position(machine: str, axis: Any, dtype: str) -> None:
    x = np.array([[1, 3, 3, 0], [2, 2, 0, 0], [0, 0, 0, 9]]).astype(dtype)
    assert Tensor(x).argmax(axis).tolist() == x.argmax(axis).tolist()
    assert Tensor(x).argmin(axis).tolist() == x.argmin(axis).tolist()


def test_argmax_finds_nan_as_numpy_does(machine: str) -> None:
    x = np.array([1.0, np.nan, 5.0, np.nan], "f")
    assert Tensor(x).argmax().item() == 1
    assert Tensor(x).argmin().item() == 1


def test_integer_argmin_survives_the_smallest_integer(machine: str) -> None:
    assert Tensor([5, -(2**31), 3]).argmin().item() == 1


@pytest.mark.parametrize("axis", [None, 0, (0, 1)])
@pytest.mark.parametrize("correction", [0, 1])
def test_variance_agrees_with_numpy(machine: str, axis: Any, correction: int) -> None:
    x = numbers(4, 5)
    wide = x.astype(np.float64)
    assert_close(Tensor(x).var(axis, correction=correction), wide.var(axis, ddof=correction))
    assert_close(Tensor(x).std(axis, correction=correction), wide.std(axis, ddof=correction))


def softmax(x: Any, axis: int) -> Any:
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


@pytest.mark.parametrize("axis", [0, -1])
def test_softmax_family_agrees_with_numpy(machine: str, axis: int) -> None:
    x = numbers(3, 5, low=-5, high=5)
    wide = x.astype(np.float64)
    assert_close(Tensor(x).softmax(axis), softmax(wide, axis))
    assert_close(Tensor(x).log_softmax(axis), np.log(softmax(wide, axis)))
    assert_close(Tensor(x).logsumexp(axis), np.log(np.exp(wide).sum(axis)))


def test_softmax_of_huge_scores_does_not_overflow(machine: str) -> None:
    x = Tensor([[1e4, 0.0, -1e4]])
    assert x.softmax().tolist() == [[1.0, 0.0, 0.0]]
    assert x.log_softmax().tolist() == [[0.0, -1e4, -2e4]]
    assert x.logsumexp(1).tolist() == [1e4]
    assert Tensor([-np.inf, -np.inf]).logsumexp().item() == -np.inf


def test_layernorm_gives_mean_zero_and_variance_one(machine: str) -> None:
    x = numbers(4, 8)
    wide = x.astype(np.float64)
    expected = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    assert_close(Tensor(x).layernorm(), expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_small_float_over_an_axis_as_long_as_a_vector(dtype: str) -> None:
    x = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4)).cast(dtype).realize()
    assert x.max(1).tolist() == [3, 7, 11]
    assert x.sum(1, dtype=dtype).tolist() == [6, 22, 38]
