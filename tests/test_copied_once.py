"""Data that the host gave, read by several runs: a large array is copied by the first of them alone, on the CPU where the Tensor is made."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from proofgrad import Tensor, TinyJit
from proofgrad.core.tensor.runtime.counters import GlobalCounters
from proofgrad.core.tensor.runtime.realize import compiler

LARGE = np.arange(200 * 300, dtype=np.float32).reshape(200, 300)  # more than 1 << 16 bytes


def _copies(x: Any) -> int:
    return [str(item).startswith("ScheduleItem(copy") for item in x.schedule()].count(True)


@pytest.mark.parametrize(("device", "copies"), [("CPU", 0), ("REFERENCE", 1)])
def test_large_data_is_copied_at_once_or_by_the_first_run_that_reads_it(
    device: str, copies: int
) -> None:
    x = Tensor(LARGE, device=device)
    first = x[3:5] + 1
    assert _copies(first) == copies
    assert np.array_equal(first.numpy(), LARGE[3:5] + 1)
    for k in (3, 7):
        again = x[k : k + 2] + 1
        assert _copies(again) == 0
        assert np.array_equal(again.numpy(), LARGE[k : k + 2] + 1)


@pytest.mark.parametrize(("device", "copies"), [("CPU", 0), ("REFERENCE", 1)])
def test_a_view_whose_data_nobody_else_holds_is_copied_once(device: str, copies: int) -> None:
    x = Tensor(LARGE, device=device).reshape(300, 200) / 2
    assert _copies(x[:2].sum(0)) == copies
    assert np.array_equal(x[0].numpy(), LARGE.reshape(300, 200)[0] / 2)
    assert _copies(x[5]) == 0


def test_small_data_that_is_read_in_parts_is_copied_once_and_needs_one_kernel() -> None:
    values = np.arange(35, dtype=np.float32).reshape(7, 5)
    x, made = Tensor(values), compiler()
    for k in range(7):
        assert np.array_equal((x[k] * 2).numpy(), values[k] * 2)
        assert _copies(x[k] * 2) == 0
        if k == 1:
            kernels, plans = made.kernels_compiled, len(made._plans)
    assert (kernels, plans) == (made.kernels_compiled, len(made._plans))


@pytest.mark.parametrize("dtype", ["float64", "float16", "uint8", "bool", "int64", ">f4"])
@pytest.mark.parametrize("order", ["as it lies", "turned", "every third", "backwards"])
def test_large_arrays_of_any_order_and_type_are_copied_as_they_were(dtype: str, order: str) -> None:
    """What is written to the array afterwards is not seen."""
    array = (np.arange(300 * 400) % 251).reshape(300, 400).astype(dtype)
    shown = {"turned": array.T, "every third": array[::3, 1:], "backwards": array[::-1, ::-1]}
    given = shown.get(order, array)
    x, before = Tensor(given), given.copy()
    array[:] = 0
    assert x.shape == given.shape
    assert np.array_equal(x.numpy(), before)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_large_bytes_are_copied_as_they_were(kind: Any) -> None:
    data = bytearray(LARGE.tobytes())
    x = Tensor(kind(data), dtype="float")
    data[:] = bytes(len(data))
    assert np.array_equal(x.numpy(), LARGE.reshape(-1))


@pytest.mark.parametrize("count", [600, 200_000])
def test_bytes_that_lie_apart_are_taken_in_order(count: int) -> None:
    data = np.arange(count, dtype=np.uint8)
    assert np.array_equal(Tensor(memoryview(data)[::2]).numpy(), data[::2])


def test_a_known_run_whose_data_are_new_keeps_them() -> None:
    for k in range(4):
        x = Tensor(LARGE + k)
        assert np.array_equal((x[0] * 2).numpy(), (LARGE[0] + k) * 2)
        assert _copies(x[1] * 2) == 0


def test_a_write_to_data_that_were_copied_is_not_seen_by_who_read_before() -> None:
    x = Tensor(LARGE)
    before = x + 1
    assert (x[0] * 2)[1].item() == 2
    x[0] = 7.0
    assert np.array_equal(before.numpy(), LARGE + 1)
    assert x[0, 0].item() == 7 and x[1, 0].item() == 300
    assert Tensor(LARGE)[0, 1].item() == 1


def test_the_memory_of_data_that_nobody_holds_is_free() -> None:
    gc.collect()
    before = GlobalCounters.mem_used
    x = Tensor(LARGE)
    assert x[0, 5].item() == 5
    assert x[2].sum().item() == LARGE[2].sum()
    del x
    gc.collect()
    assert GlobalCounters.mem_used - before < LARGE.nbytes


@pytest.mark.parametrize("is_argument", [False, True])
def test_a_recorded_function_reads_data_of_the_host(is_argument: bool) -> None:
    x, rows = Tensor(LARGE), [Tensor([k, k + 1]) for k in range(4)]

    @TinyJit
    def some(rows: Tensor, data: Tensor | None) -> Tensor:
        return ((x if data is None else data)[rows] + 1).realize()

    for k, row in enumerate(rows):
        assert np.array_equal(some(row, x if is_argument else None).numpy(), LARGE[k : k + 2] + 1)


def test_a_gradient_of_large_data_is_that_of_the_first_run_and_of_the_next() -> None:
    x, w = Tensor(LARGE, requires_grad=True), Tensor.ones(300).contiguous().realize()
    for k in (1, 2):
        (x[:k] * w).sum().backward()
    assert x.grad.sum(1)[:3].tolist() == [600.0, 300.0, 0.0]
