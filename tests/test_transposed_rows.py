"""Transposes of rows that share sets of the cache: no more of them at once than it holds a line of."""

from __future__ import annotations

import numpy as np
import pytest
from test_copies import of_last, zeros

from proofgrad import Tensor, dtypes
from proofgrad.core.compile.machine.machine import FirstCache
from proofgrad.core.compile.schedule.cache_sets import rows_that_stay
from proofgrad.core.ir.dtypes import DType

CACHE = FirstCache(32 << 10, ways=8)


@pytest.mark.parametrize(
    ("nbytes", "rows"),
    [(4096, 8), (8192, 8), (2048, 16), (4100, 8), (4160, 64), (64, 64), (4000, 64)],
)
def test_a_set_holds_as_many_rows_as_it_has_ways(nbytes: int, rows: int) -> None:
    """Rows of 4100 bytes lie in one set until they are a line further, as the seventeenth is."""
    assert rows_that_stay(nbytes, 64, CACHE) == rows


@pytest.mark.parametrize(("columns", "at_once"), [(1000, 4), (4096, 1)])
def test_rows_that_share_a_set_are_read_one_vector_at_a_time(columns: int, at_once: int) -> None:
    vectors, _ = of_last(zeros(64, columns).T.contiguous())
    assert vectors.at_once == at_once


def test_narrow_elements_of_rows_that_share_a_set_have_fewer_lanes() -> None:
    near, _ = of_last(zeros(64, 1000, dtype=dtypes.uint8).T.contiguous())
    far, _ = of_last(zeros(64, 8192, dtype=dtypes.uint8).T.contiguous())
    assert far.lanes < near.lanes


@pytest.mark.parametrize("dtype", [dtypes.uint8, dtypes.float16, dtypes.int32, dtypes.float64])
@pytest.mark.parametrize(
    "shape", [(64, 1024), (17, 2048), (100, 4096), (33, 1025), (1, 4096), (0, 1024)]
)
def test_transposes_of_rows_that_share_sets_have_the_values_of_numpy(
    dtype: DType, shape: tuple[int, ...]
) -> None:
    x = np.random.default_rng(0).integers(0, 100, shape)
    found = Tensor(x).cast(dtype).realize().T.contiguous().cast(dtypes.int64).numpy()
    np.testing.assert_array_equal(found, x.T)
