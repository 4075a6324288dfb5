"""A line by a matrix that lies as it is: parts of its sum are stored as they are read, whatever the number of rows is."""

from __future__ import annotations

import numpy as np
import pytest

from proofgrad import Tensor
from proofgrad.core.tensor.runtime.realize import compiler, graph_to_run

RNG = np.random.default_rng(0)


@pytest.mark.heuristics
@pytest.mark.parametrize("rows", [1021, 1020, 1009])
@pytest.mark.parametrize("lines", [(), (1,)])
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_parts_of_the_sum_are_stored_along_the_rows_that_are_read(
    rows: int, lines: tuple[int, ...], dtype: str
) -> None:
    """Of a number of rows that parts do not make up, a few are left out of these: that turns nothing around."""
    line, matrix = [
        Tensor.ones(*shape, dtype=dtype).contiguous().realize()
        for shape in ((*lines, rows), (rows, 1003))
    ]
    kernels = compiler().kernel_graph(graph_to_run([(line @ matrix).uop], "CPU"))
    (parts,) = kernels.src[0].src[0].src
    assert [size for size in parts.shape if size != 1][1:] == [1003]


@pytest.mark.parametrize("rows", [1021, 1020, 256, 257])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
def test_a_line_by_a_matrix_is_what_numpy_says(rows: int, dtype: str) -> None:
    line, matrix = [RNG.integers(0, 9, shape).astype(dtype) for shape in (rows, (rows, 251))]
    np.testing.assert_array_equal((Tensor(line) @ Tensor(matrix)).numpy(), line @ matrix)
