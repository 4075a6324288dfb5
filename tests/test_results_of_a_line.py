"""Results of one line of memory that no tile has side by side, as windows of a weight's gradient, are computed by one item, one after the other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from convolution_gradients import gradient_kernel
from tactics import choose_axes
from test_kernel_proof import prove
from test_tile_costs import ONE_THREAD, simplified_body
from test_tiles import matmul

from proofgrad import Tensor
from proofgrad.core.compile.nests.kernel_schedule import Tile
from proofgrad.core.compile.nests.loops import output_loops, size_of
from proofgrad.core.compile.schedule.contraction import Contraction, contractions
from proofgrad.core.compile.schedule.items import beside_in_an_item
from proofgrad.core.ir.uop import AxisRole, UOp


def gradient_of_weights(channels: int, filters: int, window: tuple[int, int] = (3, 3)) -> UOp:
    return gradient_kernel(channels, filters, window, of_weights=True)


def channels_by_filters(kernel: UOp) -> Contraction:
    """The way whose tile is some channels by vectors of filters."""
    ways = contractions(kernel)
    return next(way for way in ways if (way.row_count, way.column_count) == (64, 128))


def test_windows_lie_in_lines_of_the_gradient_of_weights_and_rows_of_a_product_do_not() -> None:
    way = channels_by_filters(simplified_body(gradient_of_weights(64, 128)))
    assert [size_of(x) for x in way.beside] == [3, 3]
    wide = channels_by_filters(simplified_body(gradient_of_weights(64, 128, (2, 8))))
    assert [size_of(x) for x in wide.beside] == [2, 8]  # 16 of float32 are a line
    column = channels_by_filters(simplified_body(gradient_of_weights(64, 128, (2, 9))))
    assert [size_of(x) for x in column.beside] == [18]  # of one column, as one loop
    assert not any(way.beside for way in contractions(simplified_body(matmul(64, 64, 64, batch=3))))


@pytest.mark.parametrize("threads, inside", [(1, [3, 3]), (2, [3, 3]), (40, [3]), (400, [])])
def test_an_item_goes_through_windows_where_there_are_items_enough(
    threads: int, inside: list[int]
) -> None:
    way = channels_by_filters(simplified_body(gradient_of_weights(64, 128)))
    found = beside_in_an_item(way, Tile(4, 1, 16), replace(ONE_THREAD, threads=threads))
    assert [size_of(x) for x in found] == inside


@pytest.mark.heuristics
def test_windows_are_the_inner_loops_around_a_tile() -> None:
    kernel = simplified_body(gradient_of_weights(64, 128))
    tiled = choose_axes(kernel, ONE_THREAD)
    around = [
        size_of(x) for x in output_loops(tiled) if x.arg[1] in (AxisRole.LOOP, AxisRole.THREAD)
    ]
    assert around[-2:] == [3, 3]


@pytest.mark.parametrize(
    "channels, filters, window",
    [(5, 20, (3, 3)), (7, 17, (1, 5)), (3, 33, (4, 2)), (1, 16, (7, 7))],
)
@pytest.mark.parametrize("choice", ["tile=3x1x8", "tile=2x2x4 packed=on staged=none", "tile=4x1x16 staged=columns blocks=2x1"])  # fmt: skip
def test_values(
    channels: int, filters: int, window: tuple[int, int], choice: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setenv("CHOICES", f"tiled=on {choice}")
    rng = np.random.default_rng(0)
    high, wide = 10 - window[0], 10 - window[1]
    x = rng.integers(-9, 9, (2, channels, 9, 9)).astype(np.float32)
    above = rng.integers(-9, 9, (2, filters, high, wide)).astype(np.float32)
    weights = Tensor.zeros(filters, channels, *window).contiguous().realize()
    found = Tensor(x).conv2d(weights).gradient(weights, gradient=Tensor(above))[0].numpy()
    windows = np.lib.stride_tricks.sliding_window_view(x, (high, wide), (2, 3))
    assert np.array_equal(found, np.einsum("ncijyx,nfyx->fcij", windows, above))


@pytest.mark.parametrize("choice", ["staged=none packed=on", "staged=columns", "staged=none packed=off"])  # fmt: skip
def test_it_is_proven(choice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHOICES", f"tiled=on tile=3x1x16 {choice}")
    count = prove(gradient_of_weights(7, 20), replace(ONE_THREAD, threads=2)).count
    assert count.unknown == 0
