"""Numbers that change from run to run, in arithmetic and in cuts: a few kernels for all of them, and the values of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tensors import machine

from proofgrad import Context, Tensor
from proofgrad.core.tensor.runtime import changing
from proofgrad.core.tensor.runtime.known_runs import _Runs
from proofgrad.core.tensor.runtime.realize import compiler
from proofgrad.core.tensor.runtime.table import NUMBERS

__all__ = ["machine"]

SIZE, PART = 11, 4
Step = Callable[[Any, Any, int], Any]


def scaled(x: Any, _: Any, k: int) -> Any:
    return x * np.float32(k / 3).item() + 1


def divided_sum(x: Any, _: Any, k: int) -> Any:
    return x.sum(0) / (k + 1.5)


def filled(x: Any, _: Any, k: int) -> Any:
    return (x < 0).where(k - 2.5, x) if isinstance(x, Tensor) else np.where(x < 0, k - 2.5, x)


def crop(x: Any, _: Any, k: int) -> Any:
    return x[k : k + PART, SIZE - PART - k : SIZE - k] - 1


def turned_crop(x: Any, _: Any, k: int) -> Any:
    turned = x.flip(1) if isinstance(x, Tensor) else x[:, ::-1]
    return turned[1 : 1 + PART, k : k + PART] * 2


def crop_of_padded(x: Any, _: Any, k: int) -> Any:
    padded = x.pad((3, 3, 3, 3)) if isinstance(x, Tensor) else np.pad(x, 3)
    return padded[k : k + SIZE, 6 - k : 6 - k + SIZE] * 2


def crop_of_sums(x: Any, y: Any, k: int) -> Any:
    return ((x + 1) @ y)[k : k + PART, 2:5] + y[1 : 1 + PART, k : k + 3]


def put(x: Any, y: Any, k: int) -> Any:
    x[k : k + PART, 2:5] = y[:PART, :3]
    return x


def added(x: Any, y: Any, k: int) -> Any:
    x[1:5, k : k + PART] += y[k : k + PART, :PART] * 2
    return x


STEPS = [
    scaled, divided_sum, filled, crop, turned_crop, crop_of_padded, crop_of_sums, put, added,
]  # fmt: skip


def data(seed: int) -> tuple[Tensor, np.ndarray]:
    values = np.random.default_rng(seed).integers(-9, 9, (SIZE, SIZE)).astype(np.float32)
    return Tensor(values).realize(), values.copy()


def check(step: Step, numbers: range) -> None:
    (x, x_values), (y, y_values) = data(0), data(1)
    for k in numbers:
        expected = np.asarray(step(x_values, y_values, k), np.float32)
        assert np.allclose(step(x, y, k).realize().numpy(), expected, rtol=1e-6, atol=0), k


@pytest.mark.parametrize("step", STEPS)
def test_numbers_that_changed_twice_compile_no_more(step: Step, machine: str) -> None:
    check(step, range(changing.MOST_OWN + 1))
    kernels = compiler().kernels_compiled
    check(step, range(changing.MOST_OWN, 7))
    assert compiler().kernels_compiled == kernels


@pytest.mark.parametrize("step", STEPS)
def test_numbers_that_change_are_right_with_checks(step: Step, checked_runs: _Runs) -> None:
    check(step, range(7))


@pytest.mark.parametrize("step", [scaled, crop_of_padded, added])
def test_a_kernel_for_all_numbers_is_proved(step: Step) -> None:
    with Context(PROVE=1):
        check(step, range(changing.MOST_OWN + 2))


def test_a_run_with_another_number_is_known(fresh_runs: _Runs, monkeypatch: Any) -> None:
    x, values = data(0)
    for k in range(changing.MOST_OWN + 1):
        (x * (k + 0.3)).realize()
    monkeypatch.setattr(compiler(), "plan", None)
    assert np.array_equal((x * 7.25).numpy(), values * np.float32(7.25))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "uint8"])
def test_a_known_run_reads_each_number_of_its_type(
    dtype: str, machine: str, checked_runs: _Runs
) -> None:
    x = Tensor([0, 1, 2, 3], dtype=dtype).realize()
    for k in (*range(1, 9), 3, 3, 0, 60):
        assert ((x * k) + (k + 1)).tolist() == [k * n + k + 1 for n in range(4)]


def test_two_numbers_that_are_one_are_both_read(checked_runs: _Runs) -> None:
    x, values = data(0)
    pairs = [(k + 0.25, k + 0.5) for k in range(5)]
    for a, b in [*pairs, (7.5, 7.5), (0.25, 8.5), (8.5, 0.25)]:
        assert np.allclose(((x * a + 1) * b).numpy(), (values * np.float32(a) + 1) * np.float32(b))


def test_a_known_run_with_another_number_makes_no_buffer(
    fresh_runs: _Runs, monkeypatch: Any
) -> None:
    monkeypatch.setenv("CHECK", "0")  # which looks at memory by its nodes
    x, values = data(0)
    for k in range(changing.MOST_OWN + 3):
        (x * (k + 0.3)).realize()
    before = len(NUMBERS)
    for k in range(100, 110):
        assert np.array_equal((x * (k + 0.3)).numpy(), values * np.float32(k + 0.3))
    assert len(NUMBERS) == before


def test_two_numbers_have_kernels_that_know_them() -> None:
    x, values = data(0)
    for _ in range(3):
        for number in (1.0, 2.0):
            assert not changing.SEEN or len(next(iter(changing.SEEN.values()))[0]) <= 2
            assert np.array_equal((x * number + 0.5).numpy(), values * number + 0.5)


def test_a_number_that_changes_is_not_written_over() -> None:
    x = Tensor([0]).realize()
    for k in range(6):
        y = (x * 0 + k).realize()
        y += 100
        assert y.realize().item() == k + 100
        assert (x * 0 + k).item() == k


def test_what_was_written_before_has_no_positions_once_it_is_computed(machine: str) -> None:
    x, expected = data(0)
    y, values = data(1)
    kernels = 0
    for k in range(7):
        added(x, y, k)
        added(expected, values, k)
        assert np.array_equal(x.numpy(), expected)  # and x is not realised
        kernels = kernels if k > changing.MOST_OWN + 1 else compiler().kernels_compiled
    assert compiler().kernels_compiled == kernels
