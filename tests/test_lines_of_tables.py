"""A table of weights is filled line by line: what lies in one line of memory is read once, for all windows."""

from __future__ import annotations

import numpy as np
import pytest
from convolution_gradients import gradient_kernel
from tactics import stage_operands
from test_kernel_proof import prove
from test_tile_costs import ONE_THREAD, simplified_body

from proofgrad import Tensor
from proofgrad.core.compile.nests.kernel_schedule import Schedule, Staged, Tile
from proofgrad.core.compile.nests.loops import output_loops, size_of
from proofgrad.core.ir.uop import UOp


def gradient_of_images(channels: int, filters: int, window: tuple[int, int]) -> UOp:
    return gradient_kernel(channels, filters, window, of_weights=False)


def test_windows_of_weights_are_the_inner_loops_of_a_table() -> None:
    kernel = simplified_body(gradient_of_images(40, 24, (3, 2)))
    forced = Schedule(
        tiled=True, tile=Tile(4, 1, 16), rows=3, columns=1, staged=Staged(False, True)
    )
    table, _ = stage_operands(kernel, ONE_THREAD, override=forced).src
    # 40 channels in 3 tiles, 24 filters, 3 x 2 windows that lie side by side, the channels of a tile.
    assert [size_of(x) for x in output_loops(table)] == [3, 24, 3, 2, 16]


@pytest.mark.parametrize("channels, filters, window", [(20, 5, (3, 3)), (17, 7, (1, 5)), (33, 3, (4, 2)), (16, 1, (7, 7))])  # fmt: skip
def test_values(
    channels: int, filters: int, window: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHOICES", "tiled=on tile=3x1x16 staged=columns")
    rng = np.random.default_rng(0)
    high, wide = 10 - window[0], 10 - window[1]
    weights = rng.integers(-9, 9, (filters, channels, *window)).astype(np.float32)
    above = rng.integers(-9, 9, (2, filters, high, wide)).astype(np.float32)
    x = Tensor.zeros(2, channels, 9, 9).contiguous().realize()
    found = x.conv2d(Tensor(weights)).gradient(x, gradient=Tensor(above))[0].numpy()
    expected = np.zeros((2, channels, 9, 9), np.float32)
    for i in range(window[0]):
        for j in range(window[1]):
            part = np.einsum("nfyx,fc->ncyx", above, weights[:, :, i, j])
            expected[:, :, i : i + high, j : j + wide] += part
    assert np.array_equal(found, expected)


def test_it_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHOICES", "tiled=on tile=3x1x16 staged=columns")
    assert prove(gradient_of_images(20, 7, (3, 2)), ONE_THREAD).count.unknown == 0
