"""Long results are stored as whole lines, wherever their rows begin: values beside numpy, and checks of the kernels."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from proofgrad import Device, Tensor, explain
from proofgrad.core.tensor.runtime.realize import compiler


@pytest.fixture(autouse=True)
def past_caches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This host, as if its caches held nothing, with vectors of whole lines."""
    opened = Device["CPU"]
    target = replace(opened.target, past_caches_bytes=1, vector_bytes=64)
    monkeypatch.setattr(opened, "target", target)
    monkeypatch.setattr(opened.dialect, "target", target)
    monkeypatch.setenv("PLANS", "0")
    compiler().forget()
    yield
    compiler().forget()


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return (np.arange(np.prod(shape)) % 251).reshape(shape).astype(dtype)


CASES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[np.ndarray], np.ndarray]]] = {
    "transposed": (lambda x: x.permute(1, 0).contiguous(), lambda a: a.T),
    "flipped": (lambda x: x.flip(1).contiguous(), lambda a: a[:, ::-1]),
    "cut": (lambda x: (x[1:, 3:]).contiguous(), lambda a: a[1:, 3:]),
    "padded": (lambda x: x.pad(((0, 1), (2, 0))).contiguous(), lambda a: np.pad(a, ((0, 1), (2, 0)))),
    "by a row": (lambda x: x + x[0:1].contiguous(), lambda a: a + a[0:1]),
    "turned twice": (
        lambda x: x.reshape(1, *x.shape).permute(2, 0, 1).contiguous(),
        lambda a: a.reshape(1, *a.shape).transpose(2, 0, 1),
    ),
}  # fmt: skip
SHAPES = [(131, 129), (7, 1031), (1031, 7), (160, 128)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_values(
    case: tuple[Callable[[Tensor], Tensor], Callable[[np.ndarray], np.ndarray]],
    dtype: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CHECK", "1")
    ours, theirs = case
    for shape in SHAPES:
        a = numbers(shape, dtype)
        np.testing.assert_array_equal(ours(Tensor(a).realize()).numpy(), theirs(a))


@pytest.mark.heuristics
def test_rows_between_lines_are_written_in_three_parts() -> None:
    x = Tensor(numbers((131, 259), "float32")).realize()
    (names,) = re.findall(r"^kernel 1: (.+) on ", explain(x.permute(1, 0).contiguous()), re.M)
    assert len(names.split(", ")) == 3


@pytest.mark.heuristics
def test_rows_whose_lines_evict_each_other_are_written_as_they_are() -> None:
    x = Tensor(numbers((131, 2048), "float32")).realize()
    (names,) = re.findall(r"^kernel 1: (.+) on ", explain(x.permute(1, 0).contiguous()), re.M)
    assert len(names.split(", ")) == 1


def test_parts_are_proved(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PROVE", "1")
    Tensor(numbers((131, 133), "float32")).realize().permute(1, 0).contiguous().realize()
    assert "none unknown" in capfd.readouterr().err
