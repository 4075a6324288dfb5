"""Positions that are written to or read one after the other: one kernel for all, and the values of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tensors import machine

from proofgrad import Context, Tensor, TinyJit, Variable
from proofgrad.core.tensor.runtime import positions
from proofgrad.core.tensor.runtime.realize import compiler

__all__ = ["machine"]

ROWS, COLUMNS = 7, 5  # no multiple of anything


def data(*shape: int, seed: int = 0) -> tuple[Tensor, np.ndarray]:
    values = np.random.default_rng(seed).integers(-9, 9, shape).astype(np.float32)
    return Tensor(values).realize(), values.copy()


def plans_of(work: Callable[[], Any]) -> tuple[int, int]:
    """The kernels and the plans that are made for it."""
    made = compiler()
    kernels, plans = made.kernels_compiled, len(made._plans)
    work()
    return made.kernels_compiled - kernels, len(made._plans) - plans


def set_row(x: Any, i: int, row: Any, column: Any) -> None:
    x[i] = row


def set_column(x: Any, i: int, row: Any, column: Any) -> None:
    x[:, i % COLUMNS] = column


def set_element(x: Any, i: int, row: Any, column: Any) -> None:
    x[i, i % COLUMNS] = row[0]


def set_last(x: Any, i: int, row: Any, column: Any) -> None:
    x[-1 - i] = row * 2


def set_part(x: Any, i: int, row: Any, column: Any) -> None:
    x[i, 1:4] = row[:3]


def add_row(x: Any, i: int, row: Any, column: Any) -> None:
    x[i] += row


def change_column(x: Any, i: int, row: Any, column: Any) -> None:
    x[:, i % COLUMNS] = x[:, i % COLUMNS] * 2 + column


def copy_row(x: Any, i: int, row: Any, column: Any) -> None:
    x[i] = x[ROWS - 1 - i] + row


WRITES = [set_row, set_column, set_element, set_last, set_part, add_row, change_column, copy_row]


@pytest.mark.parametrize("write", WRITES)
def test_a_loop_that_writes_compiles_once(write: Any, machine: str) -> None:
    (x, expected), (row, row_values) = data(ROWS, COLUMNS), data(COLUMNS, seed=1)
    column, column_values = data(ROWS, seed=2)

    def steps(numbers: range) -> None:
        for i in numbers:
            write(x, i, row, column)
            write(expected, i, row_values, column_values)
            assert np.array_equal(x.realize().numpy(), expected), i

    steps(range(2))
    found = plans_of(lambda: steps(range(2, ROWS)))
    if machine != "ORACLE":
        most = 1 if write is copy_row else 0  # the row that is written may be the one that is read
        assert max(found) <= most


READS: list[Callable[[Any, int], Any]] = [
    lambda x, i: x[i] + 1,
    lambda x, i: x[:, i % COLUMNS] + 1,
    lambda x, i: x[i, i % COLUMNS] * 2,
    lambda x, i: x[:, i % COLUMNS].sum(0),
    lambda x, i: x[:, i % COLUMNS].T * x[ROWS - 1 - i, 0],
    lambda x, i: x.T[i % COLUMNS] - x[0, 0],
    lambda x, i: x[:, :, None][:, i % COLUMNS],
    lambda x, i: x[::-1][:, i % COLUMNS],
]


@pytest.mark.parametrize("read", READS)
def test_a_loop_that_reads_compiles_once(read: Any, machine: str) -> None:
    x, values = data(ROWS, COLUMNS)

    def steps(numbers: range) -> None:
        for i in numbers:
            found = read(x, i).contiguous().realize()
            assert np.array_equal(found.numpy(), read(values, i)), i

    steps(range(3))
    found = plans_of(lambda: steps(range(3, ROWS)))
    assert machine == "ORACLE" or max(found) <= 1


def test_positions_of_axes_of_other_sizes_are_others(machine: str) -> None:
    (a, left), (b, right) = data(3, 4), data(6, 4, seed=1)
    for i, j in ((0, 0), (2, 2), (1, 5), (2, 0), (0, 5)):
        found = (a.T[:, i] * b.T[:, j] + b.T[:, i]).realize()
        assert np.array_equal(found.numpy(), left.T[:, i] * right.T[:, j] + right.T[:, i])


def test_what_many_positions_are_read_at_knows_them(machine: str) -> None:
    x, values = data(ROWS, COLUMNS)
    total = sum([x[:, k] * k for k in range(COLUMNS)])
    assert np.array_equal(total.numpy(), sum(values[:, k] * k for k in range(COLUMNS)))
    for k in range(COLUMNS):
        x[:, k] = float(k)
    assert np.array_equal(x.numpy(), np.tile(np.arange(COLUMNS, dtype=np.float32), (ROWS, 1)))


def test_variables_of_a_user_are_beside_them() -> None:
    x, values = data(ROWS, COLUMNS)
    n = Variable("n", 1, 4)
    for i, size in ((0, 2), (3, 4), (4, 1)):
        found = (x[: n.bind(size), i] * x[i, 0]).sum().item()
        assert found == (values[:size, i] * values[i, 0]).sum()


def test_a_run_that_fails_leaves_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    (x, expected), (column, values) = data(ROWS, COLUMNS), data(ROWS, seed=1)
    n = Variable("n", 1, 4)

    def fails(*_: Any, **__: Any) -> None:
        raise MemoryError

    x[:, 3] = column
    part = x[: n.bind(3), 1] + 1
    with monkeypatch.context() as patch:
        patch.setattr("proofgrad.core.tensor.runtime.realize.execute", fails)
        for one in (x, part):
            with pytest.raises(MemoryError):
                one.realize()
    expected[:, 3] = values
    assert np.array_equal(x.numpy(), expected)
    assert part.sum().item() == (expected[:3, 1] + 1).sum()


def test_a_recorded_function_has_the_position_of_its_recording() -> None:
    x, values = data(ROWS, COLUMNS)
    cache, expected = data(ROWS, COLUMNS, seed=1)

    @TinyJit
    def step(x: Tensor) -> Tensor:
        cache[:, 2] = x[:, 3] * 2
        return x[:, 1] + cache[:, 2]

    for k in range(4):
        x, values = data(ROWS, COLUMNS, seed=k)
        expected[:, 2] = values[:, 3] * 2
        assert np.array_equal(step(x).numpy(), values[:, 1] + expected[:, 2])
        assert np.array_equal(cache.numpy(), expected)


def test_kernels_with_positions_are_proved() -> None:
    (x, expected), (column, values) = data(9, 3), data(9, seed=1)
    with Context(PROVE=1):
        for i in range(3):
            x[:, i] = column + x[:, 2 - i]
            expected[:, i] = values + expected[:, 2 - i]
            assert np.array_equal(x.realize().numpy(), expected)


def test_a_cut_of_what_is_computed_keeps_its_number() -> None:
    x, _ = data(ROWS, COLUMNS)
    values: dict[str, int] = {}
    node = (x + 1)[:, 2]._uop
    found = positions.cuts_and_places(node.toposort(), [node], {})
    assert not positions.positions_as_variables(found, frozenset(), {}, values)
    assert not values
