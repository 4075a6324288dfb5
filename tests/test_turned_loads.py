"""Transposes on a CPU: vectors read along memory, four elements of each lane at a time, and transposed in registers."""

from __future__ import annotations

import numpy as np
import pytest
from tensors import assert_same
from test_windows import AVX512, schedules

from proofgrad import Tensor

LANES = 16  # of the widest vector


def text_of(x: Tensor) -> str:
    (item,) = x.schedule()
    assert item.source is not None
    return item.source.text


@pytest.mark.heuristics
def test_rows_of_four_are_loaded_where_elements_would_be_gathered() -> None:
    x = Tensor(np.zeros((2 * LANES, 20), np.float32)).realize()
    rest = Tensor(np.zeros((2 * LANES + 1, 21), np.float32)).realize()
    large = Tensor.empty(1 << 10, 1 << 12).realize()
    for turned in (x.T, x.T + 1, x.T.pad(((0, 3), (0, 0))), rest.T, large.T):
        text = text_of(turned.contiguous())
        assert "load <4 x float>" in text and "gather" not in text


@pytest.mark.heuristics
def test_what_is_gathered_as_before() -> None:
    """Other sizes of elements, rows shorter than four."""
    for shape, dtype in [((LANES, 20), "int64"), ((LANES, 3), "float32")]:
        x = Tensor(np.zeros(shape, dtype)).realize()
        assert "load <4 x" not in text_of(x.T.contiguous())


@pytest.mark.heuristics
@pytest.mark.parametrize("dtype", ["uint8", "float16", "int8"])
def test_narrow_elements_are_taken_from_few_lines_at_a_time(dtype: str) -> None:
    """A register has 32 or 64 of them: so many lines leave the first cache before their next elements are taken."""
    for shape in ((640, 300), (641, 303)):
        (chosen,) = schedules(Tensor.empty(*shape, dtype=dtype).realize().T.contiguous(), AVX512)
        assert [(one.lanes, one.at_once) for one in chosen.vectors or ()] == [(16, 1)]


@pytest.mark.parametrize("dtype", ["uint8", "float16", "bool"])
@pytest.mark.parametrize("shape", [(640, 300), (17, 65), (3, 129), (129, 3)])
def test_narrow_values(dtype: str, shape: tuple[int, ...]) -> None:
    a = np.random.default_rng(0).integers(0, 99, shape).astype(dtype)
    assert_same(Tensor(a).realize().T.contiguous(), a.T)


@pytest.mark.parametrize("rows", [4, 16, 48, 50, 62])
@pytest.mark.parametrize("columns", [1, 4, 7, 33])
def test_values(rows: int, columns: int) -> None:
    x = np.arange(rows * columns, dtype=np.int32).reshape(rows, columns)
    for kind in ("int32", "float32"):
        y = Tensor(x.astype(kind)).realize()
        assert_same(y.T.contiguous(), x.T.astype(kind))
        padded = np.pad(x, ((0, 0), (0, 2))).T.astype(kind) * 2 + 1
        assert_same(y.pad(((0, 0), (0, 2))).T * 2 + 1, padded)
    assert_same(y[:, ::-1].T + y.T, (x[:, ::-1] + x).T.astype(kind))
    assert_same(
        y.reshape(2, -1, columns).permute(0, 2, 1),
        x.reshape(2, -1, columns).swapaxes(1, 2).astype(kind),
    )


def test_a_matrix_becomes_its_transpose() -> None:
    x = np.arange(LANES * LANES, dtype=np.float32).reshape(LANES, LANES)
    y = Tensor(x).realize()
    y.assign(y.T + 0.5).realize()
    assert_same(y, x.T + np.float32(0.5))


@pytest.mark.parametrize("check", ["CHECK", "PROVE"])
def test_kernels_are_checked_and_proved(check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(check, "1")
    x = np.arange(LANES * 6, dtype=np.float32).reshape(LANES, 6)
    assert_same(Tensor(x).T + 1, x.T + 1)
