"""TRANSCENDENTAL=0: functions by the machine's own instructions, within what its manual states, and only where that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from planted.gpu_faults import emulated

from proofgrad import Context, Tensor
from proofgrad.backends.ptx.runtime import PTXBackend
from proofgrad.core.compile.machine.target import Source
from proofgrad.core.ir.uop import UOp

EDGES = np.array(
    [0, 1, -1, 0.5, 3.3, -126.5, -140, -149.9, -151, 127.9, 128, 200, np.inf, -np.inf, np.nan, 1e-40, -0.0],
    np.float32,
)  # fmt: skip
# Source: PTX ISA, "ex2": a relative error of at most 2**-22; "lg2": absolute from 1/2 to 2, else relative.
BOUND = 2.0**-22


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with emulated(monkeypatch):
        yield


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Of the kernels that are printed from now on."""
    printed: list[str] = []
    emit: Callable[[PTXBackend, UOp, str], Source] = PTXBackend.emit

    def recorded(machine: PTXBackend, linear: UOp, name: str) -> Source:
        source = emit(machine, linear, name)
        printed.append(source.text)
        return source

    monkeypatch.setattr(PTXBackend, "emit", recorded)
    return printed


def asked(x: NDArray[np.float32], name: str, dtype: str = "float32") -> NDArray[np.float64]:
    with Context(TRANSCENDENTAL=0):
        given = Tensor(x, device="CUDA").cast(dtype).contiguous().realize()
        return getattr(given, name)().cast("float64").numpy()


@pytest.mark.parametrize("name", ["exp2", "exp", "log2"])
@pytest.mark.parametrize("size", [1, 17, 300])
def test_values_are_within_the_bound(name: str, size: int) -> None:
    rng = np.random.default_rng(size)
    x = np.concatenate([EDGES, rng.uniform(-130, 130, size).astype(np.float32)])
    x = np.abs(x) if name == "log2" else x
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x.astype(np.float64)).astype(np.float32)
    found = asked(x, name)
    np.testing.assert_allclose(found, expected, rtol=2 * BOUND, atol=2 * BOUND if name == "log2" else 2e-45)  # fmt: skip


def test_small_floats_go_through_float32_and_wide_ones_as_ever() -> None:
    x = np.linspace(-3, 3, 33, dtype=np.float32)
    half = asked(x, "exp2", "float16")
    np.testing.assert_allclose(half, np.exp2(x.astype(np.float16).astype(np.float64)), rtol=2**-11)
    usual = Tensor(x, device="CUDA").double().exp2().numpy()
    assert (asked(x, "exp2", "float64") == usual).all()


def test_instructions_are_taken_where_they_are_asked_for(texts: list[str]) -> None:
    def instructions(dtype: str) -> set[str]:
        texts.clear()
        given = Tensor.ones(999, dtype=dtype, device="CUDA").contiguous().realize()
        given.exp2().realize()
        return {word for text in texts for word in text.split() if word.startswith("ex2")}

    assert instructions("float32") == set()
    with Context(TRANSCENDENTAL=0):
        assert instructions("float32") == instructions("bfloat16") == {"ex2.approx.f32"}
        assert instructions("float64") == set()
    assert instructions("float32") == set()


def test_a_machine_without_them_gives_the_same_bits() -> None:
    x = np.random.default_rng(0).uniform(-30, 30, 1001).astype(np.float32)
    usual = Tensor(x, device="CPU").exp2().numpy()
    with Context(TRANSCENDENTAL=0):
        assert (Tensor(x, device="CPU").exp2().numpy() == usual).all()


def test_a_softmax_that_asks_is_near_the_one_that_does_not() -> None:
    x = Tensor(np.random.default_rng(1).normal(0, 4, (37, 251)).astype(np.float32), device="CUDA")
    usual = x.softmax().numpy()
    with Context(TRANSCENDENTAL=0):
        np.testing.assert_allclose(x.softmax().numpy(), usual, rtol=1e-5)
