"""Sums of products whose factors both lie along them, of few columns: vectors along the sum, whose lanes are added up."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from tensors import assert_close, numbers
from test_cpu_target import running

from proofgrad import Tensor, TinyJit, dtypes, explain, schedule

# rows, steps of the sum, columns: one, one less and one more than vectors and tiles, primes
SIZES = [
    (2, 335, 823),
    (3, 16, 97),
    (2, 15, 1009),
    (8, 17, 64),
    (5, 31, 61),
    (7, 512, 13),
    (64, 784, 3),
    (127, 129, 8),
    (2, 4096, 2),
    (9, 33, 9),
    (1, 300, 7),
    (6, 1, 50),
    (2, 3, 5),
]


def tiles(value: Tensor) -> list[str]:
    """The tiles of the kernels of a value."""
    return re.findall(r"\btile=(\S+)", explain(value))


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_products_of_few_rows_by_a_transposed_matrix(
    size: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, steps, columns = size
    a, b = numbers(rows, steps), numbers(columns, steps)
    expected = a.astype(np.float64) @ b.T.astype(np.float64)
    most = steps * np.abs(a).max() * np.abs(b).max() * 1e-6
    np.testing.assert_allclose((Tensor(a) @ Tensor(b).T).numpy(), expected, atol=most)
    if 1 in size:
        return  # no loop to lay a tile over
    monkeypatch.setenv("CHOICES", "tiled=on tile=3x2x1")
    np.testing.assert_allclose((Tensor(a) @ Tensor(b).T).numpy(), expected, atol=most)
    np.testing.assert_allclose((Tensor(b) @ Tensor(a).T).numpy(), expected.T, atol=most)


@pytest.mark.heuristics
def test_few_columns_are_summed_in_lanes_and_many_are_not() -> None:
    def product(rows: int, columns: int) -> Tensor:
        return Tensor.ones(rows, 600).contiguous().realize() @ (
            Tensor.ones(columns, 600).contiguous().realize().T
        )

    assert tiles(product(500, 2))[-1].endswith("x1")
    assert tiles(product(2, 500))[-1].endswith("x1")
    assert not tiles(product(64, 500))[-1].endswith("x1")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32", "int8"])
def test_other_types(dtype: str) -> None:
    a, b = np.arange(3 * 77).reshape(3, 77) % 5 - 2, np.arange(41 * 77).reshape(41, 77) % 7 - 3
    found = Tensor(a, dtype=dtype) @ Tensor(b, dtype=dtype).T
    assert found.dtype == getattr(dtypes, dtype)
    assert found.int().tolist() == (a @ b.T).astype(np.int8 if dtype == "int8" else int).tolist()


def test_batches_bias_and_what_follows() -> None:
    x, w, bias = numbers(3, 4, 65), numbers(33, 65), numbers(33)
    expected = np.maximum(x @ w.T + bias, 0)
    assert_close((Tensor(x) @ Tensor(w).T + Tensor(bias)).relu(), expected)
    each = numbers(3, 33, 65)
    assert_close(Tensor(x) @ Tensor(each).transpose(1, 2), x @ each.transpose(0, 2, 1))
    assert_close((Tensor(x) @ Tensor(w).T).softmax(-1).sum(-1), np.ones((3, 4), np.float32))


def test_operands_that_are_computed_masked_or_shifted() -> None:
    a, b = numbers(3, 90), numbers(40, 90)
    masked = Tensor(a).pad(((0, 0), (2, 3))) @ Tensor(b).pad(((0, 0), (3, 2))).T
    assert_close(masked, np.pad(a, ((0, 0), (2, 3))) @ np.pad(b, ((0, 0), (3, 2))).T)
    assert_close(Tensor(a).exp() @ Tensor(b).abs().T, np.exp(a) @ np.abs(b).T)
    assert_close(Tensor(a)[:, 1:78] @ Tensor(b)[:, 13:].T, a[:, 1:78] @ b[:, 13:].T)
    assert_close(Tensor(a)[:, ::-1] @ Tensor(b).T, a[:, ::-1] @ b.T)


def test_what_lies_beyond_the_end_of_a_sum_is_not_multiplied() -> None:
    """Beyond a row lies the next one; beyond the last one memory of others."""
    a, b = numbers(4, 18), numbers(37, 18)
    a[1:, 0], b[1:, 0] = np.inf, np.nan
    with np.errstate(invalid="ignore"):
        expected = a @ b.T
    np.testing.assert_array_equal(np.isnan((Tensor(a) @ Tensor(b).T).numpy()), np.isnan(expected))
    assert np.isfinite((Tensor(a) @ Tensor(b).T).numpy()[0, 0])


CONVOLUTIONS: list[tuple[Any, ...]] = [
    # images, weights, stride, dilation, padding
    ((2, 3, 20, 17), (5, 3, 3, 3), 1, 1, 1),
    ((1, 1, 13, 29), (3, 1, 5, 5), 1, 1, 2),
    ((2, 6, 9, 16), (2, 6, 1, 1), 1, 1, 0),
    ((2, 4, 15, 16), (3, 4, 3, 3), 2, 1, 1),
    ((1, 2, 18, 33), (4, 2, 3, 2), 1, 2, 1),
    ((3, 2, 40), (6, 2, 3), 1, 1, 0),
]


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_gradients_of_weights_of_few_channels(case: tuple[Any, ...]) -> None:
    shape, weights, stride, dilation, padding = case
    x, w = numbers(*shape), numbers(*weights)

    def gradient(text: str) -> np.ndarray[Any, Any]:
        weight = Tensor(w, requires_grad=True)
        with schedule(text):
            y = Tensor(x).conv2d(weight, None, 1, stride, dilation, padding)
            seed = Tensor(numbers(*y.shape))
            return y.gradient(weight, gradient=seed)[0].numpy()

    np.testing.assert_allclose(gradient(""), gradient("tiled=off"), rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("name", ["haswell", "x86-64-v2"])
def test_other_processors(name: str) -> None:
    with running(name):
        for rows, steps, columns in ((2, 335, 83), (3, 64, 40), (2, 7, 31)):
            a, b = numbers(rows, steps), numbers(columns, steps)
            assert_close(Tensor(a) @ Tensor(b).T, a @ b.T)


def test_a_replay_multiplies_what_it_is_given() -> None:
    weight = numbers(61, 50)
    step = TinyJit(lambda x: (x @ Tensor(weight).T).realize())
    for k in range(4):
        x = numbers(2, 50) + k
        assert_close(step(Tensor(x).realize()), x @ weight.T, atol=5e-5)


# -- a matrix times a vector: results side by side share what they load of it -----------------------


@pytest.mark.parametrize("rows", [2, 3, 7, 8, 9, 17, 61, 1411])
@pytest.mark.parametrize("steps", [33, 64])
def test_any_number_of_rows_times_a_vector(rows: int, steps: int) -> None:
    a, x = numbers(rows, steps), numbers(steps)
    assert_close(Tensor(a) @ Tensor(x), a @ x, atol=2e-5)
    assert_close((Tensor(a) @ Tensor(x) - 1).relu(), np.maximum(a @ x - 1, 0), atol=2e-5)
    far = np.square(a - x).sum(1)  # what is summed need not be products
    assert_close((Tensor(a) - Tensor(x)).square().sum(1), far, atol=2e-5)


@pytest.mark.heuristics
@pytest.mark.parametrize(("rows", "copies"), [(1408, "0x8"), (1411, "0x8"), (25, "0x5")])
def test_as_many_rows_are_side_by_side_if_nothing_divides_them(rows: int, copies: str) -> None:
    matrix, x = Tensor.ones(rows, 96).contiguous().realize(), Tensor.ones(96).contiguous().realize()
    assert f"copies={copies}" in explain(matrix @ x)


@pytest.mark.parametrize("check", ["CHECK", "PROVE"])
def test_rows_beyond_the_last_are_stored_nowhere(
    check: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(check, "1")
    monkeypatch.setenv("CHOICES", "copies=0x4")
    a, x = numbers(29, 40), numbers(40)
    assert_close(Tensor(a) @ Tensor(x), a @ x, atol=2e-5)
    assert check != "PROVE" or "none unknown" in capfd.readouterr().err
