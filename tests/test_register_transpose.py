"""Columns that are stored apart while rows lie side by side: transposed in registers, four rows at a time."""

from __future__ import annotations

import numpy as np
import pytest
from test_tiles import AVX512, matmul

from proofgrad import Tensor
from proofgrad.backends.llvm.dialect import Dialect
from proofgrad.backends.llvm.emit import emit
from proofgrad.backends.llvm.register_transpose import transposed_stores
from proofgrad.core.compile.passes.stages import parts_of, run_stages
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compiler
from proofgrad.rules.pipeline import KERNEL_STAGES


def linear_of(result: Tensor) -> UOp:
    """The last kernel of a Tensor, for a machine with 32 registers of 16 floats."""
    graph = compiler().kernel_graph(UOp.sink(result.uop).replace(arg="CPU"))
    body = graph.src[-1].src[0]
    return parts_of(run_stages(KERNEL_STAGES, body, compiler().library, AVX512))[-1]


def images(*shape: int, dtype: str = "float32") -> Tensor:
    return Tensor.empty(*shape, dtype=dtype).realize()


def test_pixels_of_four_rows_are_stored_together() -> None:
    """A tile of 8 pixels times 32 filters, which lie apart."""
    linear = linear_of(images(1, 32, 16, 26).conv2d(images(32, 32, 3, 3)))
    stores = [node for node in linear.src if node.op is Ops.STORE]
    groups = transposed_stores(linear)
    assert stores and sorted(map(id, stores)) == sorted([id(s) for g in groups.values() for s in g])
    assert all(stores.index(last) == max(map(stores.index, rows)) for last, rows in groups.items())
    text = emit(linear, "kernel", Dialect()).text
    assert text.count("store <4 x float>") == 16 * len(groups) and "store float" not in text


def test_rows_beyond_the_edge_are_asked_for_before_they_are_stored_together() -> None:
    """A last tile of fewer filters: four rows are stored together where all of them are there."""
    linear = linear_of(images(1, 32, 16, 26).conv2d(images(107, 32, 3, 3)))
    masked = [
        rows
        for rows in transposed_stores(linear).values()
        if any(len(s.src[0].src) > 2 for s in rows)
    ]
    text = emit(linear, "kernel", Dialect()).text
    assert masked and text.count(".whole:") == text.count(".each:") == len(masked)


def test_rows_under_one_mask_are_stored_together_or_not_at_all() -> None:
    """The last block of tiles has fewer of them: of its four rows all are there, or none, so there is no way for each row."""
    linear = linear_of(images(4, 256, 4, 4).conv_transpose2d(images(256, 1024, 1, 1)))
    groups = transposed_stores(linear).values()
    masks = [{s.src[0].src[2:] for s in rows} for rows in groups]
    masked = [found for found in masks if found != {()}]
    assert all(len(found) == 1 for found in masked)
    text = emit(linear, "kernel", Dialect()).text
    assert masked and text.count(".whole:") == len(masked) and ".each:" not in text


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_sizes_are_stored_one_by_one(dtype: str) -> None:
    weights = images(32, 32, 3, 3, dtype=dtype)
    assert not transposed_stores(linear_of(images(1, 32, 16, 26, dtype=dtype).conv2d(weights)))


def test_columns_that_lie_side_by_side_are_stored_as_they_are() -> None:
    body = matmul(64, 64, 64, dtype=dtypes.float32)
    assert not transposed_stores(
        parts_of(run_stages(KERNEL_STAGES, body, compiler().library, AVX512))[-1]
    )


@pytest.mark.parametrize("columns", range(4))
@pytest.mark.parametrize("tile", ["4x2x16", "8x1x8", "6x2x4", "13x1x16", "5x3x16"])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_convolutions_of_any_tile_are_right(
    monkeypatch: pytest.MonkeyPatch, tile: str, columns: int, dtype: str
) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, (2, 3, 11, 17)).astype(dtype)
    weights = rng.integers(-9, 9, (33, 3, 3, 3)).astype(dtype)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    monkeypatch.setenv("CHOICES", f"tiled=on tile={tile} columns={columns}")
    got = Tensor(x).conv2d(Tensor(weights)).numpy()
    np.testing.assert_array_equal(got, np.einsum("bcyxij,fcij->bfyx", windows, weights))
