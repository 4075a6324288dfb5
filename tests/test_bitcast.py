"""Bits read as another type, wider or narrower: as numpy's views, also to write through."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from proofgrad import DtypeError, ShapeError, Tensor, TinyJit, Variable

NAMES = ("uint8", "int8", "uint16", "int16", "float16", "uint32", "int32", "float32", "int64", "uint64", "float64")  # fmt: skip
SHAPES = [(8,), (3, 8), (2, 1, 16), (0,), (3, 0), (24,)]


def drawn(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Any bits at all."""
    size = np.dtype(dtype).itemsize
    bits = np.random.default_rng(size).integers(0, 256, (*shape[:-1], shape[-1] * size), np.uint8)
    return bits.view(dtype)


def same_bits(found: np.ndarray, wanted: np.ndarray) -> bool:
    return found.shape == wanted.shape and bool((found.view(np.uint8) == wanted.view(np.uint8)).all())  # fmt: skip


@pytest.mark.parametrize("before", NAMES)
def test_every_width_reads_as_numpy_views_it(before: str) -> None:
    for after, shape in itertools.product(NAMES, SHAPES):
        x = drawn(before, shape)
        assert same_bits(Tensor(x).bitcast(after).numpy(), x.view(after)), (after, shape)


@pytest.mark.parametrize("before", NAMES)
def test_what_is_written_to_bits_of_another_width_is_written_to_the_tensor(before: str) -> None:
    for after in NAMES:
        x = drawn(before, (3, 8))
        t = Tensor(x.copy()).realize()
        t.bitcast(after)[1:, 1::2] = 3
        x.view(after)[1:, 1::2] = 3
        assert same_bits(t.numpy(), x), after
        t[1:].bitcast(after).assign(Tensor(np.ones_like(x[1:].view(after)))).realize()
        x[1:].view(after)[:] = 1
        assert same_bits(t.numpy(), x), after


def test_a_recorded_function_reads_and_writes_other_widths() -> None:
    x = Tensor([1.0, 2.0]).realize()

    @TinyJit
    def flip(t: Tensor) -> Tensor:
        return t.bitcast("uint8").reshape(-1, 4).flip(1).flatten().bitcast("float32").realize()

    for _ in range(4):
        assert flip(x).numpy().tobytes() == x.numpy().astype(">f4").tobytes()


def test_sizes_that_vary_come_apart() -> None:
    n = Variable("n", 1, 8).bind(3)
    x = Tensor.arange(8).contiguous().realize()[:n]
    assert x.bitcast("uint16").sum().item() == 0 + 1 + 2


REFUSED: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "no whole number": (lambda: Tensor([1, 2, 3], dtype="uint8").bitcast("int32"), DtypeError, "3 elements of 1 byte"),
    "no axis": (lambda: Tensor(1.0).bitcast("uint8"), ShapeError, r"reshape to \(1,\)"),
    "of bools": (lambda: Tensor([True]).bitcast("uint8"), DtypeError, "cast instead"),
    "to bools": (lambda: Tensor([1], dtype="uint8").bitcast("bool"), DtypeError, "cast instead"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_such_bits_is_refused(case: str) -> None:
    ask, error, said = REFUSED[case]
    with pytest.raises(error, match=said):
        ask()
