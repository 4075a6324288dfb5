"""Divisions of lanes: of 32 bits where dividend, divisor and result are known to fit them, else of the bits that they have."""

from __future__ import annotations

import re

import numpy as np
import pytest
from test_cpu_target import cpu
from test_gathers import text_of

from proofgrad import Tensor

WIDE = re.compile(r"(?:sdiv|srem) <\d+ x i64>")
NARROW = re.compile(r"(?:sdiv|srem) <\d+ x i32>")
RANDOM = np.random.default_rng(3)


@pytest.mark.parametrize("shape", [(3, 2, 11, 13), (2, 3, 16, 17), (1, 5, 7, 1)])
def test_elements_at_three_positions_around_an_axis_between_them(shape: tuple[int, ...]) -> None:
    """As of images whose channels lie between the number of the image and the row."""
    images = RANDOM.normal(size=shape).astype(np.float32)
    size = (shape[0], 150)
    rows = RANDOM.integers(-shape[2], shape[2], size).astype(np.int32)
    columns = RANDOM.integers(0, shape[3], size).astype(np.int32)
    numbers = np.arange(shape[0])[:, None]

    def picked() -> Tensor:
        at = Tensor(numbers.astype(np.int32)), Tensor(rows), Tensor(columns)
        return Tensor(images).permute(0, 2, 3, 1)[at].transpose(1, 2) * 2

    wanted = images.transpose(0, 2, 3, 1)[numbers, rows, columns].transpose(0, 2, 1) * 2
    np.testing.assert_array_equal(picked().numpy(), wanted)
    for name in ("haswell", "sapphirerapids"):
        with cpu(name):
            text = text_of(picked())
        assert "buffer" in text and not WIDE.search(text)


@pytest.mark.parametrize("divisor", [7, -13, 4097, -1])
@pytest.mark.parametrize("kind", ["int16", "uint16", "int32"])
def test_quotients_of_what_fits_32_bits_are_of_32_bits(kind: str, divisor: int) -> None:
    """The least number of 32 bits has a quotient of 33 by -1."""
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    x = np.array([low, low + 1, 0, 1, high, *RANDOM.integers(low, high, 96)]).astype(kind)

    def quotient() -> Tensor:
        return Tensor(x).realize().cast("int64").div(divisor, rounding_mode="trunc")

    wanted = np.trunc(x.astype(np.float64) / divisor).astype(np.int64)
    np.testing.assert_array_equal(quotient().numpy(), wanted)
    with cpu("haswell"):
        text = text_of(quotient())
    assert "i64" in text and (kind == "int32" or divisor == -1 or NARROW.search(text))


def test_quotients_of_what_may_be_large_keep_their_bits() -> None:
    ends = [-(2**63), 2**63 - 1, -(2**31) - 1, -(2**31), 2**31, 2**31 - 1, -1, 0, 1]
    x = np.array([*ends, *RANDOM.integers(-(2**62), 2**62, 92)])
    given = Tensor(x).realize()
    np.testing.assert_array_equal((given // 7).numpy(), x // 7)
    np.testing.assert_array_equal((given % 1_000_003).numpy(), x % 1_000_003)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(
            (given.clip(-(2**31), 2**31 - 1) // -1).numpy(), -x.clip(-(2**31), 2**31 - 1)
        )
    with cpu("haswell"):
        text = text_of(Tensor(x).realize() // 7)
    assert "i64" in text and not NARROW.search(text)
