"""Operands whose rows evict each other from the first cache: read from a copy with room between rows, and still right."""

from __future__ import annotations

import numpy as np
import pytest
from proven import fully_proved

from proofgrad import Context, Tensor
from proofgrad.core.compile.machine.machine import FirstCache

CASES = [
    # channels, images' sizes, kernel, padding: each channel is a power of two long, but for the last
    (16, (32, 32), (3, 3), 1),
    (17, (32, 32), (5, 3), (0, 0, 2, 2)),
    (16, (16, 64), (3, 3), (1, 0, 0, 2)),
    (20, (1024,), (5,), 2),
    (16, (8, 8, 16), (3, 1, 3), 1),
    (16, (31, 33), (3, 3), 1),
]


def gradients(
    case: tuple[int, tuple[int, ...], tuple[int, ...], object], dtype: str
) -> list[np.ndarray]:
    """Of a convolution, for its input and its weights, of small whole numbers: sums of them are exact."""
    channels, sizes, kernel, padding = case
    rng = np.random.default_rng(sum(sizes))
    x = Tensor(rng.integers(-4, 5, (2, channels, *sizes)).astype(dtype), requires_grad=True)
    w = Tensor(rng.integers(-4, 5, (16, channels, *kernel)).astype(dtype), requires_grad=True)
    y = x.conv2d(w, padding=padding)
    cotangent = Tensor(rng.integers(-4, 5, y.shape).astype(dtype)).realize()
    return [g.numpy() for g in y.gradient(x, w, gradient=cotangent)]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_of_convolutions_over_images_of_a_power_of_two_are_right(
    case: tuple[int, tuple[int, ...], tuple[int, ...], object], dtype: str
) -> None:
    with Context(NOOPT=1):
        expected = gradients(case, dtype)
    for environment in ({}, {"CHECK": 1}, {"NUM_THREADS": 2}):
        with Context(**environment):
            for got, wanted in zip(gradients(case, dtype), expected):
                np.testing.assert_array_equal(got, wanted)


def test_a_kernel_that_reads_padded_rows_is_proved(capfd: pytest.CaptureFixture[str]) -> None:
    with fully_proved(capfd):
        gradients((16, (32, 32), (3, 3), 1), "float32")


def test_one_line_spreads_rows_over_the_sets_of_the_cache() -> None:
    cache = FirstCache(32 << 10, 8, 64)
    rows = [row * (4096 + cache.line_bytes) // cache.line_bytes for row in range(64)]
    assert len({line % (cache.way_bytes // cache.line_bytes) for line in rows}) == 64
