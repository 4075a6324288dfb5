"""Factors of a product by matrix units that are first copied into tables: which, right for any size, copied while others are multiplied."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from planted.gpu_faults import DEVICE
from test_occupancy import chosen, kernel
from test_warp_tiles import (
    EMITTED,
    Warps,
    kernel_of,
    multiplied,
    nothing_emitted,
    on,
    values,
    whole,
)

from proofgrad import Tensor, dtypes, schedule
from proofgrad.backends.ptx.emit import emit as emit_ptx
from proofgrad.core.compile.nests.kernel_schedule import Schedule, Staged
from proofgrad.core.compile.schedule.choose_schedule import choose_schedule
from proofgrad.core.compile.schedule.warp_tables import NO_TABLES, choose_tables
from proofgrad.core.compile.schedule.warp_tiles import choose_warps
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.ops import Ops
from proofgrad.core.tensor.runtime.realize import compile_only

__all__ = ["nothing_emitted"]  # before each test


def memory(*shape: int, dtype: DType = dtypes.float16) -> Tensor:
    """On the reference machine, of any size: nothing is computed."""
    with compile_only():
        return Tensor.empty(*shape, dtype=dtype, device="WARPS").realize()


def tables_of(make: Callable[[], Tensor]) -> Staged:
    body = kernel_of(make)
    way = choose_warps(body, Warps.target, Schedule())
    assert way is not None
    return choose_tables(body, way, Warps.target, Schedule())


# -- what is chosen -------------------------------------------------------------------------------


def test_rows_of_an_odd_length_get_a_table_where_many_groups_read_them() -> None:
    square, odd = memory(2048, 2048), memory(2048, 2047)
    assert tables_of(lambda: square @ odd) == Staged(False, True)
    assert tables_of(lambda: odd.T @ square) == Staged(True, False)
    assert tables_of(lambda: odd.T @ odd) == Staged(True, True)


def test_bytes_across_the_steps_get_a_table_and_those_along_them_none() -> None:
    x, y = [memory(2048, 2048, dtype=dtypes.int8) for _ in range(2)]
    assert tables_of(lambda: multiplied(x, y)) == Staged(False, True)
    assert tables_of(lambda: multiplied(x, y.T)) == NO_TABLES


def test_what_lies_in_whole_loads_gets_none() -> None:
    x = memory(2048, 2048)
    assert tables_of(lambda: x @ x) == tables_of(lambda: x.T @ x.T) == NO_TABLES


def test_a_short_product_starts_no_further_kernels() -> None:
    assert chosen(kernel(33, 47, 29, dtypes.bfloat16)).staged is None
    assert chosen(kernel(1023, 1023, 1023, dtypes.bfloat16)).staged == Staged(True, True)


def test_a_schedule_says_which_factors_get_one() -> None:
    x, odd = memory(64, 64), memory(2048, 2047)
    body = kernel_of(lambda: x @ x)
    asked = Schedule(staged=Staged(True, False))
    assert choose_schedule(body, Warps.target, asked).staged == Staged(True, False)
    body = kernel_of(lambda: odd.T @ odd)
    asked = Schedule(staged=NO_TABLES)
    assert choose_schedule(body, Warps.target, asked).staged == NO_TABLES


# -- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("tables", ["rows", "columns", "rows+columns"])
@pytest.mark.parametrize(
    ("dtype", "sizes", "second"),
    [
        (dtypes.bfloat16, (33, 45, 65), False),
        (dtypes.float16, (17, 40, 30), True),
        (dtypes.int8, (33, 45, 65), False),
        (dtypes.float64, (9, 31, 10), False),
    ],
)
def test_products_from_tables_are_exact(
    dtype: DType, sizes: tuple[int, int, int], second: bool, tables: str, gpu: None
) -> None:
    rows, steps, columns = sizes
    a, b = whole(rows, steps), whole(steps, columns)
    x, y = on(DEVICE, a, dtype), on(DEVICE, b.T.copy() if second else b, dtype)
    with schedule(f"staged={tables}"):
        product = multiplied(x, y.T if second else y).realize()
    np.testing.assert_array_equal(values(product), a @ b)


def test_a_table_of_a_factor_that_all_matrices_share_is_exact(gpu: None) -> None:
    a, b = whole(3, 19, 35), whole(35, 21)
    x, y = on(DEVICE, a, dtypes.float16), on(DEVICE, b, dtypes.float16)
    with schedule("staged=rows+columns"):
        product = (x.unsqueeze(1) @ y).realize()
    np.testing.assert_array_equal(values(product)[:, 0], a @ b)


def test_a_convolution_from_tables_is_exact(gpu: None) -> None:
    x, w, half = whole(2, 3, 9, 7), whole(16, 3, 3, 3), dtypes.float16
    image, weights = on(DEVICE, x, half), on(DEVICE, w, half)
    with schedule("staged=rows+columns"):
        got = image.conv2d(weights).realize()
    wanted = Tensor(x, device="CPU").conv2d(Tensor(w, device="CPU")).numpy()
    np.testing.assert_array_equal(values(got), wanted)


def test_tables_are_0_beyond_the_steps_whatever_memory_has_there(gpu: None) -> None:
    a, b = np.ones((16, 40), "float32"), np.ones((40, 16), "float32")
    a[:, 35:], b[35:] = np.inf, np.nan
    x, y = on(DEVICE, a, dtypes.float16)[:, :35], on(DEVICE, b, dtypes.float16)[:35]
    with schedule("staged=rows+columns"):
        product = (x @ y).realize()
    np.testing.assert_array_equal(values(product), np.full((16, 16), 35.0))


# -- text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("tables", ["rows", "columns", "rows+columns"])
@pytest.mark.parametrize("dtype", [dtypes.bfloat16, dtypes.int8])
def test_what_lies_in_a_table_is_copied_by_16_bytes(dtype: DType, tables: str) -> None:
    """77 steps are 80 in both; what has no table is loaded, or copied under a mask of whole rows."""
    x, y = memory(64, 80, dtype=dtype)[:, :77], memory(77, 64, dtype=dtype)
    with schedule(f"staged={tables} warps=1x1x2x2 ahead=1"), compile_only():
        multiplied(x, y).realize()
    text = emit_ptx(EMITTED[-1], "product", 90).text
    assert re.search(r"cp\.async\.cg", text)
    if tables == "rows+columns":
        assert not re.search(r"ld\.global", text)


# -- windows of images ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("image", "weights", "options"),
    [
        ((2, 8, 7, 9), (9, 8, 3, 3), {}),
        ((1, 16, 9, 6), (8, 16, 2, 3), {"stride": 2}),
        ((2, 6, 9, 8), (8, 6, 3, 3), {"dilation": 2}),  # 4 bytes of channels at once
        ((2, 16, 6, 7), (16, 8, 3, 3), {"groups": 2}),
        ((1, 10, 4, 31), (8, 10, 1, 5), {}),
        ((1, 5, 6, 7), (8, 5, 3, 3), {}),  # no whole words of channels: a table of windows
        ((2, 8, 7, 7), (8, 8, 3, 3), {"padding": 1, "stride": 2}),
    ],
)
def test_windows_of_a_copied_image_are_exact(
    image: tuple[int, ...], weights: tuple[int, ...], options: dict[str, int], gpu: None
) -> None:
    x, w = whole(*image), whole(*weights)
    on_gpu = [on(DEVICE, array, dtypes.bfloat16) for array in (x, w)]
    with schedule("staged=columns"):
        got = on_gpu[0].conv2d(on_gpu[1], **options).realize()
    wanted = Tensor(x, device="CPU").conv2d(Tensor(w, device="CPU"), **options)
    np.testing.assert_array_equal(values(got), values(wanted.cast(dtypes.bfloat16)))


def test_an_image_whose_windows_overlap_is_copied_once_and_they_are_read_in_whole_loads() -> None:
    image, weights = memory(4, 64, 30, 30), memory(64, 64, 3, 3)
    EMITTED.clear()
    with compile_only():
        image.conv2d(weights).realize()
    *filling, last = EMITTED
    stored = [n.src[0].src[0].arg[1] for linear in filling for n in linear.src if n.op is Ops.STORE]
    assert 4 * 64 * 30 * 30 in stored and max(stored) == 4 * 64 * 30 * 30
    loads = [n for n in last.src if n.op is Ops.LOAD and n.src[0].src[0].op is Ops.PARAM]
    assert {n.dtype.lanes for n in loads} == {8}
