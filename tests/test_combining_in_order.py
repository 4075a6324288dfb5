"""Kernels that combine values with memory, step by step: which of them run in vectors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_windows import AVX512, schedules

from proofgrad import Schedule, Tensor
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import read_schedule

AVX2 = replace(AVX512, vector_bytes=32, vector_registers=16)
ROWS = np.random.default_rng(0).integers(0, 997, (641, 301))
COLUMNS = np.random.default_rng(1).integers(0, 641, (301, 997))


def added(index: np.ndarray, axis: int, dtype: str = "float32") -> Tensor:
    """Zeros to which as many ones are added along an axis, each at a position of its own."""
    source = Tensor.ones(*index.shape, dtype=dtype).contiguous().realize()
    return Tensor.zeros(641, 997, dtype=dtype).scatter_reduce(
        axis, Tensor(index).realize(), source, "sum"
    )


def combining(tensor: Tensor, target: Target, override: Schedule | None = None) -> list[Schedule]:
    """The schedules behind that of the kernel that fills the results."""
    return schedules(tensor, target, override)[1:2]


@pytest.mark.parametrize("target", [AVX2, AVX512])
@pytest.mark.parametrize(("index", "axis"), [(ROWS, 1), (COLUMNS, 0)])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_values_that_are_added_at_positions_that_lie_apart_are_added_one_by_one(
    target: Target, index: np.ndarray, axis: int, dtype: str
) -> None:
    assert [chosen.vectors for chosen in combining(added(index, axis, dtype), target)] == [()]


def test_rows_that_are_added_at_a_position_are_added_in_vectors() -> None:
    x = Tensor.zeros(5003, 307).contiguous().realize().requires_grad_(True)
    rows = x[Tensor(ROWS.reshape(-1)[:2011]).realize()]
    (gradient,) = (rows * Tensor.ones(2011, 307).contiguous().realize()).sum().gradient(x)
    vectors = [chosen.vectors for chosen in combining(gradient, AVX512)]
    assert len(vectors) == 1 and vectors[0]


def test_vectors_that_are_asked_for_are_taken_as_well() -> None:
    (chosen,) = combining(added(ROWS, 1), AVX512, read_schedule("vectors=0x8x1"))
    assert chosen.vectors is not None and [v.lanes for v in chosen.vectors] == [8]


@pytest.mark.parametrize(("index", "axis"), [(ROWS, 1), (COLUMNS, 0)])
def test_what_is_added_one_by_one_is_what_numpy_adds(index: np.ndarray, axis: int) -> None:
    expected = np.zeros((641, 997), np.float32)
    where = np.indices(index.shape)
    np.add.at(expected, (index, where[1]) if axis == 0 else (where[0], index), 1)
    np.testing.assert_array_equal(added(index, axis).numpy(), expected)
