"""What a tile reads of vectors whose lanes lie apart and whose rows are neighbours: four rows at a time, transposed in registers."""

from __future__ import annotations

import numpy as np
import pytest
from test_register_transpose import linear_of

from proofgrad import Tensor
from proofgrad.backends.llvm.dialect import Dialect
from proofgrad.backends.llvm.emit import emit
from proofgrad.backends.llvm.rows_together import loads_of_rows, positions_of_followers
from proofgrad.core.ir.ops import Ops

# rows, steps of the sum, columns: whole and broken groups of four rows, of vectors, of tiles
SIZES = [
    (128, 64, 128),
    (64, 5, 61),
    (61, 64, 45),
    (13, 3, 130),
    (33, 17, 64),
    (4, 2, 16),
    (1, 9, 7),
]


def with_other(rows: int, steps: int, columns: int, dtype: str) -> tuple[list[np.ndarray], Tensor]:
    """A product and what is added to it, which lies across."""
    random = np.random.default_rng(rows * columns)
    shapes = (rows, steps), (steps, columns), (columns, rows)
    arrays = [random.integers(-9, 9, shape).astype(dtype) for shape in shapes]
    x, y, z = [Tensor(array).realize() for array in arrays]
    return arrays, x @ y + z.T


@pytest.mark.heuristics
def test_four_rows_of_each_lane_are_one_load() -> None:
    _, result = with_other(128, 64, 128, "float32")
    linear = linear_of(result)
    rows, text = loads_of_rows(linear, ()), emit(linear, "kernel", Dialect()).text
    (lanes,) = {first.dtype.lanes for first in rows}
    assert rows and text.count("load <4 x float>") == lanes * len(rows)
    assert len(positions_of_followers(linear, rows)) == 3 * len(rows)
    for first, made in rows.items():
        order = [node for node in linear.src if node in made.loads]
        assert order[0] is first is made.loads[made.first] and len(order) == 4


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_a_product_and_what_lies_across_are_added(sizes: tuple[int, int, int], dtype: str) -> None:
    (x, y, z), result = with_other(*sizes, dtype)
    np.testing.assert_array_equal(result.numpy(), x @ y + z.T)


@pytest.mark.parametrize("size", [16, 61, 128])
def test_what_is_written_over_is_read_row_by_row(size: int) -> None:
    """Results that go where the rows lie: an element may be written before the next row is read."""
    (x, y, z), _ = with_other(size, 8, size, "float32")
    memory = Tensor(z).realize()
    memory.assign(memory.T + Tensor(x) @ Tensor(y)).realize()
    np.testing.assert_array_equal(memory.numpy(), z.T + x @ y)


@pytest.mark.heuristics
def test_loads_of_memory_that_is_written_are_left_alone() -> None:
    _, result = with_other(128, 64, 128, "float32")
    linear = linear_of(result)
    read = next(iter(loads_of_rows(linear, ()))).src[0].src[0]
    (out,) = {
        n.src[0].src[0] for n in linear.src if n.op is Ops.STORE and n.src[0].src[0].arg[0] == 0
    }
    assert not loads_of_rows(linear.substitute({read: out}), ())


@pytest.mark.parametrize("size", [5, 16, 40, 61])
def test_rows_that_a_mask_leaves_out_are_zeros(size: int) -> None:
    """Padded: lanes beyond an edge, which are the same for all rows, and rows beyond another."""
    (x, y, z), _ = with_other(64, 8, size, "float32")
    for edges in ((0, 3), (3, 0), (2, 5)):
        wide = np.pad(z[:, : 64 - sum(edges)], ((0, 0), edges))
        padded = Tensor(z[:, : 64 - sum(edges)]).realize().pad(((0, 0), edges))
        np.testing.assert_array_equal((Tensor(x) @ Tensor(y) + padded.T).numpy(), x @ y + wide.T)
        high = np.pad(z[: size - 2], ((1, 1), (0, 0)))
        padded = Tensor(z[: size - 2]).realize().pad(((1, 1), (0, 0)))
        np.testing.assert_array_equal((Tensor(x) @ Tensor(y) + padded.T).numpy(), x @ y + high.T)


@pytest.mark.heuristics
@pytest.mark.parametrize("lies_apart", [5, 40])
def test_lanes_a_few_elements_apart_are_picked_out_of_whole_vectors(lies_apart: int) -> None:
    x = Tensor.empty(256, lies_apart).realize()
    linear = linear_of(x[:, 0] * x[:, 1] + x[:, 2] * x[:, 3])
    rows = emit(linear, "kernel", Dialect()).text.count("load <4 x float>")
    assert loads_of_rows(linear, ()) and bool(rows) == (lies_apart == 40)
