"""Writing by Tensors of indices: the last value for a position counts, and the memory is written where it is named alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from proofgrad import Context, Tensor, TinyJit
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.schedule.scatters import WORTH_RESULTS_OF_ITEMS, pays_overwriting
from proofgrad.core.tensor.runtime.memory import buffer_of, memory_of

SIZE = 70_001
LARGE = 2_000_003  # too large for a run that is known, which writes over no input


def address(tensor: Tensor) -> int:
    """Where the elements of a realised Tensor are."""
    return memory_of(buffer_of(tensor.uop)).address


def numbers(*shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = np.arange(np.prod(shape)) * 7919 % 251 - 100
    return found.reshape(shape).astype(dtype)


def at(count: int, size: int) -> np.ndarray[Any, Any]:
    """Positions, some of them twice, some from the end."""
    return np.array([(k * 37 + k % 3) % min(size, 61) - k % 2 * size for k in range(count)]) % (
        2 * size
    ) - np.where(np.arange(count) >= 0, size, 0)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "int64", "bool"])
@pytest.mark.parametrize("count", [1, 2, 10, 200])
def test_the_last_value_of_a_position_counts(dtype: str, count: int) -> None:
    for size in (1, 7, 1000, SIZE):
        x, values = numbers(size, dtype=dtype), numbers(count + 3, dtype=dtype)[3:]
        t, indices = Tensor(x).contiguous().realize(), at(count, size)
        for kind in ("int32", "int64"):
            t[Tensor(indices.astype(kind))] = Tensor(values)
            x[indices] = values
            assert t.numpy().tobytes() == x.tobytes(), (size, kind)
        t[Tensor(indices)] = True
        x[indices] = True
        assert t.numpy().tobytes() == x.tobytes(), size


@pytest.mark.parametrize("shape", [(1, 5), (50, 7), (2003, 17), (3, 20011), (9000, 8)])
def test_rows_columns_and_pairs_are_written_as_numpy_writes_them(shape: tuple[int, int]) -> None:
    x = numbers(*shape)
    t, count = Tensor(x).contiguous().realize(), 23
    i, j = at(count, shape[0]), at(count, shape[1])
    rows, columns = numbers(count, shape[1]) + 1, numbers(shape[0], count) + 2
    cases: list[tuple[Any, Any]] = [
        (i, rows), (i, rows[0]), ((i, j), rows[:, 0]), ((slice(None), j), columns), ((slice(None), j), 4.0),
        (i.reshape(1, -1), rows), (i[:1], rows[:1]), (i[:0], 1.0),
    ]  # fmt: skip
    for index, value in cases:
        parts = index if isinstance(index, tuple) else (index,)
        given = tuple([Tensor(p) if isinstance(p, np.ndarray) else p for p in parts])
        t[given] = Tensor(value) if isinstance(value, np.ndarray) else value
        x[index] = value
        assert np.array_equal(t.realize().numpy(), x), (shape, parts)
    t[Tensor(i)] += Tensor(rows)
    x[i] += rows
    t[Tensor(i)] = t[Tensor(i)] * 2 + t[0]
    x[i] = x[i] * 2 + x[0]
    assert np.array_equal(t.numpy(), x)


def test_memory_is_written_over_where_it_is_named(no_known_runs: None) -> None:
    t = Tensor(numbers(LARGE)).contiguous().realize()
    index, values = Tensor(at(10, LARGE)).realize(), Tensor(numbers(10)).realize()
    places = [address(t)]
    for value in (values, 3.0):
        t[index] = value
        t.realize()
        places.append(address(t))
    t[index] += values
    t.realize()
    assert [*places, address(t)] == places[:1] * 4


def test_who_reads_what_was_there_keeps_it() -> None:
    x = numbers(SIZE)
    t = Tensor(x).contiguous().realize()
    other, reader, view = t.detach(), t + 1, t[5:9]
    t[Tensor([3, 6, 3])] = Tensor([1.0, 2.0, 3.0])
    t.realize()
    changed = x.copy()
    changed[[3, 6, 3]] = 1, 2, 3
    assert np.array_equal(t.numpy(), changed)
    assert np.array_equal(view.numpy(), x[5:9])
    assert np.array_equal(reader.numpy(), x + 1)
    assert np.array_equal(other.numpy(), x)


def test_a_recorded_function_writes_at_other_positions() -> None:
    x = numbers(SIZE)
    t = Tensor(x).contiguous().realize()

    @TinyJit
    def put(table: Tensor, index: Tensor, values: Tensor) -> Tensor:
        table[index] = values
        return table.realize()

    for k in range(5):
        index, values = at(20, SIZE) // (k + 1), numbers(20) + k
        put(t, Tensor(index).realize(), Tensor(values).realize())
        x[index] = values
        assert np.array_equal(t.numpy(), x), k


@pytest.mark.parametrize("check", [1, 2])
def test_checks_read_what_is_written_value_by_value(check: int) -> None:
    x = numbers(5003)
    with Context(CHECK=check):
        t = Tensor(x).contiguous().realize()
        for values in (numbers(50), numbers(50) + 1):
            t[Tensor(at(50, 5003)).realize()] = Tensor(values).realize()
            x[at(50, 5003)] = values
            assert np.array_equal(t.realize().numpy(), x)


def test_values_go_one_by_one_where_that_is_less() -> None:
    target = Target("of no machine")
    places = WORTH_RESULTS_OF_ITEMS // 2
    assert pays_overwriting(places, 10, 1, True, True, target)
    assert pays_overwriting(places, 10, 1, True, False, target)
    assert pays_overwriting(1000, 50, 64, True, True, target)
    assert not pays_overwriting(8, 1000, 1_000_000, True, True, target)  # all rows, many times
    assert not pays_overwriting(5, 1000, 1, True, True, target)
