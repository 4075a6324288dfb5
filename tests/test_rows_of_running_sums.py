"""How many rows of running sums, products and extremes run side by side, where they do not lie side by side in memory."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from test_windows import AVX512, schedules

from proofgrad import Tensor
from proofgrad.core.compile.machine.machine import Core, FirstCache
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.tensor.methods.reduction import scan

ROWS = np.random.default_rng(0).integers(-9, 9, (37, 501))
AVX2 = replace(AVX512, vector_bytes=32, vector_registers=16)
SLOW = replace(AVX512, core=Core(multiply_add_cycles=6))


def rows_at_once(result: Tensor, target: Target = AVX512) -> int:
    (chosen,) = schedules(result, target)
    assert chosen.copies is not None and not chosen.vectors
    return chosen.copies.count


def given(dtype: str) -> Tensor:
    return Tensor(ROWS).cast(dtype).realize()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_floats_run_as_many_rows_as_additions_are_started_while_one_waits(dtype: str) -> None:
    for result in (given(dtype).cumsum(1), given(dtype).cumprod(1), given(dtype).cummax(1)[0]):
        assert [rows_at_once(result, x) for x in (AVX2, AVX512, SLOW)] == [8, 8, 12]


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8"])
def test_sums_of_integers_run_row_by_row_and_their_extremes_do_not(dtype: str) -> None:
    result = Tensor(ROWS.clip(0, 9)).cast(dtype).realize()
    assert rows_at_once(result.cumsum(1)) == 1
    assert rows_at_once(result.cummax(1)[0]) == 8


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
def test_running_values_of_rows_are_those_of_numpy(dtype: str) -> None:
    x = given(dtype)
    np.testing.assert_array_equal(x.cumsum(1).numpy(), ROWS.cumsum(1))
    np.testing.assert_array_equal(x.cummax(1)[0].numpy(), np.maximum.accumulate(ROWS, 1))


@pytest.mark.parametrize(
    ("width", "count"), [(1024, 4), (1536, 8), (1000, 8), (4096, 4), (1027, 4), (4099, 4)]
)
def test_rows_that_fall_into_one_set_of_a_cache_are_as_many_as_it_keeps(
    width: int, count: int
) -> None:
    """Rows a page apart: of 8 that are read and 8 that are written a cache of 8 ways keeps no line until its next element.

    So it is with 3 elements more, as of 1027: the first 6 rows begin in lines of one set.
    """
    target = replace(AVX512, first_cache=FirstCache(32 << 10, 8))
    assert rows_at_once(Tensor.empty(64, width).realize().cumsum(1), target) == count


@pytest.mark.parametrize(
    ("threads", "dtype", "block"),
    [(1, "int32", 40_003), (2, "int64", 40_003), (1, "float32", None), (8, "int32", None)],
)
def test_rows_of_integers_stay_whole_where_threads_are_few(
    threads: int, dtype: str, block: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = SimpleNamespace(target=replace(AVX512, threads=threads))
    monkeypatch.setattr(scan, "Device", {"CPU": machine})
    found = scan.SUM.block(Tensor.empty(40_003, dtype=dtype, device="CPU"), 0)
    assert found == block if block else found < 20_000


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64"])
@pytest.mark.parametrize("shape", [(40_003,), (3, 20_011)])
def test_running_values_of_long_rows_are_those_of_numpy(dtype: str, shape: tuple[int, ...]) -> None:
    a = np.random.default_rng(1).integers(0, 99, shape)
    x = Tensor(a).cast(dtype).realize()
    np.testing.assert_array_equal(x.cumsum(-1).numpy(), a.cumsum(-1))
    values, positions = x.cummax(-1)
    np.testing.assert_array_equal(values.numpy(), np.maximum.accumulate(a, -1))
    np.testing.assert_array_equal(np.take_along_axis(a, positions.numpy(), -1), values.numpy())
