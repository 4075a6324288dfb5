"""Rows whose windows overlap run side by side and load what they have in common once; a lane that is left alone is part of a vector."""

from __future__ import annotations

import numpy as np
import pytest
from test_copies import depthwise, of_last, zeros

from proofgrad import Context, Tensor
from proofgrad.core.compile.schedule.shared_windows import elements_of_copies, overlaps, window_loop
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp

RNG = np.random.default_rng(0)
Floats = np.ndarray


def window(size: int) -> tuple[UOp, UOp, UOp]:
    """A load of image[y + u, x + v], rows of 100 elements; y and u < size."""
    y, x = UOp.range(65, 0), UOp.range(90, 1)
    u, v = UOp.range(size, 2, AxisRole.REDUCE), UOp.range(size, 3, AxisRole.REDUCE)
    image = UOp(Ops.PARAM, dtypes.float32, (), (0, 10_000))
    index = (y + u) * 100 + x + v
    load = UOp(Ops.LOAD, dtypes.float32, (UOp(Ops.INDEX, dtypes.float32, (image, index)),))
    return load, y, u


@pytest.mark.parametrize(("size", "count"), [(3, 2), (7, 8), (5, 1)])
def test_rows_side_by_side_load_the_rows_that_their_windows_cover(size: int, count: int) -> None:
    load, y, u = window(size)
    assert elements_of_copies(load, (u,), y, count) == size + count - 1


def test_windows_of_rows_overlap_along_the_rows_of_a_window_if_it_is_short_enough() -> None:
    load, y, u = window(7)
    v = UOp.range(7, 3, AxisRole.REDUCE)
    total = UOp(Ops.REDUCE, dtypes.float32, (load, u, v), Ops.ADD)
    assert window_loop(total, y, 16) is u
    assert window_loop(total, y, 6) is None
    assert window_loop(total, UOp.range(90, 1), 16) is v


def test_values_that_no_loop_of_a_window_changes_are_no_windows_that_overlap() -> None:
    """As the mean of a channel, subtracted in a pool: each iteration reads its own, for all terms."""
    y = UOp.range(65, 0)
    u, v = UOp.range(2, 2, AxisRole.REDUCE), UOp.range(2, 3, AxisRole.REDUCE)
    mean = UOp(Ops.PARAM, dtypes.float32, (), (1, 65))
    of_row = UOp(Ops.LOAD, dtypes.float32, (UOp(Ops.INDEX, dtypes.float32, (mean, y)),))
    image = UOp(Ops.PARAM, dtypes.float32, (), (0, 10_000))
    apart = UOp(Ops.INDEX, dtypes.float32, (image, (y * 2 + u) * 100 + v))
    load = UOp(Ops.LOAD, dtypes.float32, (apart,))
    total = UOp(Ops.REDUCE, dtypes.float32, (load + of_row, u, v), Ops.MAX)
    assert not overlaps(total, (u, v), y)
    assert window_loop(total, y, 16) is None


@pytest.mark.parametrize("shape", [(64, 32, 20), (16, 32, 12), (8, 16, 20)])
def test_channels_do_not_run_side_by_side_where_they_share_nothing(shape: tuple[int, ...]) -> None:
    """The gradient of the scale of a batch norm before a pool: a text of a megabyte wrote out 8 channels."""
    images, channels, side = shape
    x, mean = zeros(images, channels, side, side), zeros(channels)
    scale = Tensor.ones(channels).contiguous().realize()
    scaled = (x.relu() - mean.reshape(1, -1, 1, 1)) * scale.reshape(1, -1, 1, 1)
    of_pool = zeros(images, channels, side // 2, side // 2)
    loss = (scaled.max_pool2d((2, 2)) * of_pool).sum()
    _, copies = of_last(loss.gradient(scale)[0])
    assert copies.count == 1


@pytest.mark.parametrize("height", [7, 31, 56, 65])
def test_rows_of_long_windows_run_side_by_side(height: int) -> None:
    """Images were taken side by side, which share weights alone, and rows only where 8 divided them."""
    vectors, copies = of_last(depthwise(8, 16, height, 40, window=7, padding=3))
    assert copies.loop == 2 and copies.count > 4
    assert vectors.at_once == 1


def windows_of(x: Floats, size: tuple[int, int], stride: int, padding: int, fill: float) -> Floats:
    ends = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    wide = np.pad(x, ends, constant_values=fill)
    found = np.lib.stride_tricks.sliding_window_view(wide, size, axis=(2, 3))
    return found[:, :, ::stride, ::stride]


@pytest.mark.parametrize("size", [(3, 3), (5, 2), (7, 7), (1, 5)])
@pytest.mark.parametrize("width", [1, 7, 16, 17, 33, 49, 97])
@pytest.mark.parametrize("stride", [1, 2])
def test_windows_of_rows_of_any_length_have_the_values_of_each_window(
    size: tuple[int, int], width: int, stride: int
) -> None:
    """Depthwise convolutions, and pools, of images of 1, 13 and 16 rows, one of which has an infinity and a NaN."""
    for height in (1, 13, 16):
        padding = max(size) // 2
        x = RNG.standard_normal((3, 2, height, width)).astype(np.float32)
        x[1, 1, 0, -1], x[2, 0, -1, 0] = np.inf, np.nan
        weights = RNG.standard_normal((2, 1, *size)).astype(np.float32)
        own = windows_of(x, size, stride, padding, 0.0)
        with np.errstate(invalid="ignore"):
            wanted = np.einsum("bcyxuv,cuv->bcyx", own, weights[:, 0])
        found = Tensor(x).conv2d(Tensor(weights), groups=2, stride=stride, padding=padding)
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-4)
        inside = min(size) // 2
        if height + 2 * inside >= size[0] and width + 2 * inside >= size[1]:
            most = windows_of(x, size, stride, inside, -np.inf).max((4, 5))
            pool = Tensor(x).max_pool2d(size, stride=stride, padding=inside)
            np.testing.assert_array_equal(pool.numpy(), most)


@pytest.mark.parametrize("channels", [1, 2, 5])
@pytest.mark.parametrize("width", [17, 33, 97])
def test_a_tile_whose_last_vector_has_one_lane_has_the_values_of_a_product(
    channels: int, width: int
) -> None:
    """Of 97 columns the last of seven vectors of 16 has one, whose index under its mask is a number."""
    x = RNG.standard_normal((2, 3, 9, width)).astype(np.float32)
    weights = RNG.standard_normal((channels, 3, 3, 3)).astype(np.float32)
    own = windows_of(x, (3, 3), 1, 1, 0.0)
    wanted = np.einsum("bcyxuv,ocuv->boyx", own, weights)
    with Context(CHECK=1):
        found = Tensor(x).conv2d(Tensor(weights), padding=1).numpy()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
