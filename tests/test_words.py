"""Few rows of small integers by the transpose of a matrix: both lie along the sum, and products are taken in pairs from memory."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from test_cpu_target import cpu, running, texts
from test_small_types import exact, extremes

from proofgrad import Context, Tensor, dtypes

TARGETS = ("native", "skylake-avx512", "haswell", "x86-64-v2")
# Of vectors and words, less and more than one; odd ones, whose last word has one number, of rows that end in memory and that do not.
SHAPES = (
    *((1, 64, 70), (1, 2047, 9), (1, 31, 600), (1, 33, 129), (1, 16, 64), (1, 2, 50), (1, 1, 50)),
    *((2, 130, 67), (3, 17, 600), (4, 77, 131), (5, 1001, 11), (8, 255, 40), (12, 96, 101)),
)  # fmt: skip


def product(a: Any, b: Any) -> Any:
    return a.matmul(b.T, dtype=dtypes.int32)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("int8", "int8"),
        ("uint8", "int8"),
        ("uint8", "uint8"),
        ("int16", "int8"),
        ("int16", "int16"),
    ],
)
def test_sums_along_memory_are_exact_on_each_processor(name: str, one: str, other: str) -> None:
    with running(name):
        for rows, depth, columns in SHAPES:
            a, b = extremes(one, rows, depth), extremes(other, columns, depth)
            got = product(Tensor(a), Tensor(b)).numpy()
            np.testing.assert_array_equal(got, exact(a, b.T), f"{rows}x{depth}x{columns}")


@pytest.mark.parametrize("name", TARGETS)
def test_rows_that_begin_anywhere_are_read_there(name: str) -> None:
    """Parts of a matrix: rows begin at odd positions, and what lies behind their ends is memory of the next one."""
    a, b = extremes("int8", 3, 203), extremes("int8", 71, 203)
    with running(name):
        for start, end in ((1, 202), (3, 100), (0, 203), (7, 8)):
            for rows in (1, 3):
                x, w = Tensor(a).realize()[:rows, start:end], Tensor(b).realize()[:, start:end]
                expected = exact(a[:rows, start:end], b[:, start:end].T)
                np.testing.assert_array_equal(product(x, w).numpy(), expected)


def test_a_matrix_by_itself_reads_the_same_words_twice() -> None:
    a = extremes("int8", 5, 99)
    x = Tensor(a).realize()
    np.testing.assert_array_equal(product(x, x).numpy(), exact(a, a.T))
    np.testing.assert_array_equal(
        (x.cast("int32") * x.cast("int32")).sum(1).numpy(), exact(a, a.T).diagonal()
    )


def test_threads_share_the_rows() -> None:
    a, b = extremes("int8", 1, 1027), extremes("int8", 515, 1027)
    with Context(CHOICES="threads=on"):
        np.testing.assert_array_equal(product(Tensor(a), Tensor(b)).numpy(), exact(a, b.T))


@pytest.mark.parametrize("shape", [(1, 66, 40), (1, 35, 9), (3, 65, 40), (1, 300, 3), (2, 290, 1)])
def test_kernels_are_shown_to_compute_their_graphs(shape: tuple[int, int, int]) -> None:
    rows, depth, columns = shape
    a, b = extremes("int8", rows, depth), extremes("int8", columns, depth)
    with Context(CHECK=2, PROVE=1, PLANS=0):
        np.testing.assert_array_equal(product(Tensor(a), Tensor(b)).numpy(), exact(a, b.T))


@pytest.mark.parametrize("depth", [512, 511])
@pytest.mark.parametrize("rows", [1, 4])
def test_words_are_loaded_whole(rows: int, depth: int) -> None:
    """No lane of bytes is picked out, and no vector of words is multiplied but in pairs."""
    with cpu("skylake-avx512") as machine:
        a, b = extremes("int8", rows, depth), extremes("int8", 300, depth)
        text = "\n".join(texts(product(Tensor(a), Tensor(b)), machine))
        assert re.search(r"\tvpmovsxbw\t.*%zmm", text)
        assert re.search(r"\tvpmaddwd\t.*%zmm", text)
        assert not re.search(r"\tvpmulld\t|\tvpmovsxbd\t|\tvpgather", text)
