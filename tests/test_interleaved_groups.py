"""Results that lie between each other in memory are interleaved in registers, and stored as whole vectors."""

from __future__ import annotations

import re

import numpy as np
import pytest
from test_cpu_target import cpu
from test_gathers import text_of

from proofgrad import Tensor, dtypes

MACHINES = ["sapphirerapids", "haswell", "x86-64-v2", "cortex-a72"]
KINDS = ["float32", "float64", "float16", "bfloat16", "int8", "uint16", "int64", "bool"]
APART = r"scatter|extractelement .*, i64 [1-9]"


def numbers(kind: str, *shape: int) -> tuple[Tensor, np.ndarray]:
    """Numbers that each type has, and the same in numpy."""
    wanted = np.arange(np.prod(shape)).reshape(shape) * 37 % (2 if kind == "bool" else 101)
    return Tensor(wanted.astype(np.int32)).cast(kind).realize(), wanted


def same(found: Tensor, wanted: np.ndarray) -> None:
    np.testing.assert_array_equal(found.cast(dtypes.int32).numpy(), wanted)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [2, 3, 4, 5, 6, 7, 8, 9])
def test_columns_become_rows(kind: str, rows: int) -> None:
    for columns in (0, 1, 3, 16, 17, 64, 129):
        x, wanted = numbers(kind, 2, rows, columns)
        same(x.permute(0, 2, 1).contiguous(), wanted.transpose(0, 2, 1))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_stacked_repeated_or_shuffled(kind: str) -> None:
    for columns in (1, 5, 33, 64, 131):
        x, wanted = numbers(kind, 3, columns)
        y = x.flip(1)
        same(Tensor.stack(x, y, x, dim=-1), np.stack([wanted, wanted[:, ::-1], wanted], -1))
        for times in (2, 3, 5, 7):
            same(x.repeat_interleave(times, 1), wanted.repeat(times, 1))
    x, wanted = numbers(kind, 2, 18, 5, 7)
    shuffled = x.reshape(2, 2, 3, 3, 5, 7).permute(0, 1, 4, 2, 5, 3).reshape(2, 2, 15, 21)
    numpys = wanted.reshape(2, 2, 3, 3, 5, 7).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 15, 21)
    same(shuffled.contiguous(), numpys)


@pytest.mark.parametrize("kind", ["float32", "int8", "bool"])
def test_slices_between_which_something_stays(kind: str) -> None:
    """Of four columns three are written: no whole vector of memory is."""
    x, wanted = numbers(kind, 67, 3)
    target = Tensor(np.ones((67, 4), np.int32)).cast(kind).realize()
    target[:, :3] = x
    same(target, np.concatenate([wanted, np.ones((67, 1), np.int32)], 1))


def test_numbers_with_signs_and_without_a_value() -> None:
    """Nothing is computed: bits stay what they are."""
    x = np.array([-0.0, np.nan, np.inf, -np.inf, 1e-42, 3.4e38, 0.0] * 5, np.float32)
    found = Tensor.stack(Tensor(x), -Tensor(x), dim=-1).numpy()
    np.testing.assert_array_equal(found.view(np.uint32), np.stack([x, -x], -1).view(np.uint32))


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("kind", KINDS)
def test_no_lane_is_stored_by_itself(name: str, kind: str) -> None:
    with cpu(name):
        x = numbers(kind, 3, 4, 256)[0]
        for count in (2, 3):
            text = text_of(x[:, :count].permute(0, 2, 1).contiguous())
            assert "shufflevector" in text and re.search(APART, text) is None, count


@pytest.mark.parametrize("name", MACHINES)
def test_programs_that_interleave(name: str) -> None:
    with cpu(name):
        x = numbers("float32", 8, 256)[0]
        even, odd = x[:, ::2], x[:, 1::2]
        rotated = Tensor.stack(even * 0.6 - odd * 0.8, even * 0.8 + odd * 0.6, dim=-1)
        larger = numbers("float32", 1, 12, 16, 32)[0].reshape(1, 3, 2, 2, 16, 32)
        larger = larger.permute(0, 1, 4, 2, 5, 3).reshape(1, 3, 32, 64).contiguous()
        for result in (rotated, x.repeat_interleave(2, 1), x.repeat_interleave(3, 1), larger):
            assert re.search(APART, text_of(result)) is None


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("kind", ["int8", "bfloat16", "bool"])
@pytest.mark.parametrize("rows", [9, 13, 31])
def test_short_rows_of_narrow_elements_are_stored_whole(name: str, kind: str, rows: int) -> None:
    """No instruction scatters them: lanes of many rows were stored one by one."""
    with cpu(name):
        text = text_of(numbers(kind, 2, rows, 257)[0].permute(0, 2, 1).contiguous())
        assert re.search(r"store <\d+ x |masked.store.v\d+", text)
