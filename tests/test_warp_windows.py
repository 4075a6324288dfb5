"""Windows of images that groups keep once for all taps of a filter: right for any convolution, chosen where they save bytes, read by whole warps."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted.gpu_faults import DEVICE
from test_ptx_backend import PTXAS, assemble
from test_warp_tables import memory
from test_warp_tiles import EMITTED, Warps, nothing_emitted, on, values, whole

from proofgrad import Context, ScheduleError, Tensor, dtypes, schedule
from proofgrad.backends.llvm.copies import copies_of
from proofgrad.backends.ptx.emit import emit as emit_ptx
from proofgrad.core.compile.lowering.waits import waits
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import Schedule, WarpTile
from proofgrad.core.compile.schedule.choose_schedule import choose_schedule
from proofgrad.core.compile.schedule.warp_windows import choose_window
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.tactics import warp_tiles
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp
from proofgrad.core.tensor.runtime.realize import compile_only
from proofgrad.verify.kernels.waiting import what_races

__all__ = ["nothing_emitted"]  # before each test

WINDOWS = "windows=on staged=rows+columns"


@pytest.fixture(autouse=True)
def no_blocks_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that is chosen is kept: no step of it is refused."""

    def refused(nest: LoopNest, schedule: Schedule, target: Target) -> LoopNest:
        assert not schedule.windows, "a step of a window was refused"
        return by_blocks(nest, schedule, target)

    by_blocks = warp_tiles._from_blocks
    monkeypatch.setattr(warp_tiles, "_from_blocks", refused)


# -- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [dtypes.bfloat16, dtypes.float16])
@pytest.mark.parametrize(
    ("image", "weights", "options"),
    [
        ((1, 32, 11, 13), (16, 32, 3, 3), {}),
        ((1, 32, 15, 17), (16, 32, 3, 3), {"stride": 2}),
        ((1, 32, 13, 13), (9, 32, 3, 2), {"dilation": 2}),
        ((2, 64, 9, 10), (32, 32, 3, 3), {"groups": 2}),
        ((3, 32, 4, 5), (8, 32, 2, 2), {}),  # pixels of several images in one tile
        ((1, 32, 3, 97), (16, 32, 1, 5), {}),  # one line of pixels
        ((1, 96, 6, 19), (16, 96, 2, 3), {}),  # rows of 13 loads
        ((1, 32, 9, 70), (16, 32, 3, 3), {"stride": (1, 3), "dilation": (2, 1)}),
    ],
)
def test_convolutions_from_a_window_are_exact(
    image: tuple[int, ...],
    weights: tuple[int, ...],
    options: dict[str, Any],
    dtype: DType,
    gpu: None,
) -> None:
    x, w = whole(*image), whole(*weights)
    on_gpu = [on(DEVICE, array, dtype) for array in (x, w)]
    with schedule(WINDOWS):
        got = on_gpu[0].conv2d(on_gpu[1], **options).realize()
    wanted = Tensor(x, device="CPU").conv2d(Tensor(w, device="CPU"), **options)
    np.testing.assert_array_equal(values(got), values(wanted.cast(dtype)))


def test_a_padded_image_is_read_from_a_window(gpu: None) -> None:
    """It is stored with its zeros first."""
    x, w, half = whole(2, 32, 7, 9), whole(17, 32, 3, 3), dtypes.bfloat16
    with Context(CHOICES=WINDOWS):
        got = on(DEVICE, x, half).conv2d(on(DEVICE, w, half), padding=1).realize()
    wanted = Tensor(x, device="CPU").conv2d(Tensor(w, device="CPU"), padding=1)
    np.testing.assert_array_equal(values(got), values(wanted.cast(half)))


@pytest.mark.parametrize("warps", ["1x1x1x1", "1x2x1x2", "2x1x1x4", "1x4x2x1"])
@pytest.mark.parametrize("ahead", ["off", "on", "3"])
def test_any_tile_reads_its_window(warps: str, ahead: str, gpu: None) -> None:
    x, w, half = whole(2, 32, 9, 11), whole(20, 32, 3, 3), dtypes.bfloat16
    image, filters = on(DEVICE, x, half), on(DEVICE, w, half)
    with schedule(f"{WINDOWS} warps={warps} ahead={ahead}"):
        got = image.conv2d(filters).realize()
    wanted = Tensor(x, device="CPU").conv2d(Tensor(w, device="CPU"))
    np.testing.assert_array_equal(values(got), values(wanted.cast(half)))


@pytest.mark.parametrize("dtype", [dtypes.int8, dtypes.uint8])
def test_bytes_are_read_from_a_window(dtype: DType, gpu: None) -> None:
    x, w = np.abs(whole(1, 64, 8, 9)), np.abs(whole(16, 64, 3, 3))
    image, filters = on(DEVICE, x, dtype), on(DEVICE, w, dtype)
    with schedule(WINDOWS):
        got = image.conv2d(filters, dtype=dtypes.int32).realize()
    wanted = Tensor(x, device="CPU").conv2d(Tensor(w, device="CPU"))
    np.testing.assert_array_equal(values(got), wanted.numpy())


def test_what_lies_behind_the_last_image_is_not_read(gpu: None) -> None:
    """The window of the last tile reaches beyond the memory; on the emulated GPU an access there is a fault."""
    x, w, half = whole(1, 32, 5, 30), whole(16, 32, 3, 3), dtypes.float16
    image, filters = on(DEVICE, x, half), on(DEVICE, w, half)
    with schedule(f"{WINDOWS} warps=1x1x1x2"):
        got = image.conv2d(filters).realize()
    wanted = Tensor(x, device="CPU").conv2d(Tensor(w, device="CPU"))
    np.testing.assert_array_equal(values(got), values(wanted.cast(half)))


# -- what is chosen -------------------------------------------------------------------------------


def convolution(channels: int = 32, size: int = 30, taps: int = 3, **options: Any) -> Tensor:
    half = dtypes.bfloat16
    image = memory(4, channels, size, size, dtype=half)
    return image.conv2d(memory(64, channels, taps, taps, dtype=half), **options)


def last_kernel(asked: str, **sizes: Any) -> UOp:
    """What is emitted for the product."""
    made = convolution(**sizes)
    EMITTED.clear()
    with schedule(asked), compile_only():
        made.realize()
    return EMITTED[-1]


@pytest.mark.parametrize(
    "sizes",
    [
        {"taps": 1},  # nothing is read twice
        {"channels": 12},  # no whole loads
        {"channels": 36},  # the last load of a pixel would reach into the next one
        {"channels": 256, "size": 60},  # no room
        {"size": 1100, "stride": 16, "taps": 17},  # tiles that are too many to be told apart
    ],
)
def test_where_there_is_no_window_none_is_kept(sizes: dict[str, int]) -> None:
    made = convolution(**sizes)
    with pytest.raises(ScheduleError, match="windows=on"), schedule("windows=on"), compile_only():
        made.realize()


def test_lines_that_begin_before_the_last_would_go_on_are_kept_in_no_window() -> None:
    """7 pixels of every second of 13: the place of a pixel is twice its number, less its line."""
    image, weights = memory(1, 32, 9, 13), memory(16, 32, 3, 1)
    made = image.conv2d(weights, stride=2)
    with pytest.raises(ScheduleError, match="windows=on"), schedule("windows=on"), compile_only():
        made.realize()


def test_a_window_is_as_long_as_what_a_tile_reads() -> None:
    """Of 28 x 28 pixels a tile of 64 has 36 in the third line at most: 3 lines of 30, then 2 lines and 2 pixels more."""
    kernels, made = list[UOp](), convolution()
    with pytest.MonkeyPatch.context() as patch, compile_only():

        def told(kernel: UOp, *others: Any) -> Any:
            kernels.append(kernel)
            return choose_window(kernel, *others)

        patch.setattr("proofgrad.core.compile.schedule.choose_schedule.choose_window", told)
        with schedule("staged=rows+columns"):
            made.realize()
    way, asked = WarpTile(1, 1, 1, 8), Schedule(windows=True)
    window = choose_window(kernels[-1], way, Warps.target, asked)
    assert window is not None
    pixels = [28 * (p // 28) + p % 28 + 2 * (p // 28) for p in range(784)]
    longest = max([pixels[min(p + 63, 783)] - pixels[p] for p in range(0, 784, 64)])
    assert window.size == longest + 2 * 30 + 2 + 1
    assert (window.stride, window.row) == (32, 40)
    assert choose_schedule(kernels[-1], Warps.target, Schedule(windows=False)).windows is None


def test_no_window_is_kept_where_none_is_asked_for() -> None:
    kept = [n for n in last_kernel("windows=off staged=rows+columns").src if n.op is Ops.FILLED]
    assert all([n.src[1].arg[1] is AxisRole.AHEAD for n in kept]) or len(kept) == 2


# -- text -----------------------------------------------------------------------------------------


def test_a_window_is_filled_outside_of_the_sum_and_nothing_races() -> None:
    linear = last_kernel(f"{WINDOWS} warps=1x1x1x2 ahead=2")
    window, ahead = sorted(
        [n for n in linear.src if n.op is Ops.FILLED],
        key=lambda n: n.src[1].arg[1] is AxisRole.AHEAD,
    )
    (sum_loop,) = [n for n in linear.src if n.op is Ops.RANGE and n.arg[1] is AxisRole.REDUCE and n.src[0].arg == 9]  # fmt: skip
    assert linear.src.index(window) < linear.src.index(sum_loop) < linear.src.index(ahead)
    copied = copies_of(linear)
    assert {window.src[0], ahead.src[0]} == set(copied.values())
    assert copies_of(linear, {window.src[0].src[0].src[0]}).keys() == {ahead.src[0].src[1]}
    assert what_races(linear, waits(linear)) is None
    assert waits(linear)[window] == 0 and what_races(linear, {}) is not None


@pytest.mark.parametrize(("channels", "size"), [(32, 30), (32, 27), (96, 10), (64, 9)])
def test_rows_of_a_window_are_read_together_and_copied_by_themselves(
    channels: int, size: int
) -> None:
    linear = last_kernel(f"{WINDOWS} warps=1x1x1x2 ahead=2", channels=channels, size=size)
    text = emit_ptx(linear, "c", 90).text
    assert not re.search(r"ld\.global|ld\.shared|st\.shared", text)
    assert text.count("ldmatrix") == 2 * (
        1 + 1
    )  # for two tiles of columns, and halves of one of rows
    assert re.search(r"cp\.async\.wait_all;\s+bar\.sync", text)


@pytest.mark.skipif(PTXAS is None, reason="ptxas, of the CUDA toolkit, is not on the PATH")
def test_a_window_assembles(tmp_path: Path) -> None:
    text = emit_ptx(last_kernel(f"{WINDOWS} warps=1x1x2x4"), "c", 90).text
    assert assemble(text, tmp_path) == ""
