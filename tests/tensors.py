"""Machines for tests of Tensors: devices, and numpy in their place.

Owns: the fixture `machine`, by which a test runs once through tests/oracle.py and once through each
device. Import it into a test module to use it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import oracle
import pytest

from proofgrad import Device, Tensor
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime import reading
from proofgrad.core.tensor.runtime import realize as running
from proofgrad.core.tensor.runtime.canonical import COMPUTED, computed
from proofgrad.core.tensor.runtime.memory import is_view, memory_of
from proofgrad.core.tensor.runtime.table import new_buffer

Array = np.ndarray[Any, Any]

# Sums and transcendentals: a few units in the last place of float32, times the terms of a test.
CLOSE = {"rtol": 2e-5, "atol": 2e-6}


# Others by name: TEST_DEVICES=CPU,CL pytest tests/test_tensor_*.py
DEVICES = os.environ.get("TEST_DEVICES", "CPU").split(",")


@pytest.fixture(params=["ORACLE", *DEVICES])
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Runs a test on numpy and on each device of the list."""
    monkeypatch.setattr(Device, "_chosen", "CPU" if request.param == "ORACLE" else request.param)
    if request.param == "ORACLE":
        monkeypatch.setattr(running, "realize", _realize_by_numpy)
        for again in ("run_again", "run_together_again"):  # runs of other tests that are known
            monkeypatch.setattr(running, again, lambda *_, **__: None)
        monkeypatch.setattr(reading, "read_into", _read_by_numpy)
    yield request.param


def _elements(buffer: UOp) -> Array:
    return oracle.from_bytes(bytes(memory_of(buffer)), buffer.dtype)


def _read_by_numpy(room: object, uop: UOp, device: str) -> bytearray:
    return bytearray(oracle.to_bytes(oracle.evaluate_tensor(uop, _elements), uop.dtype))


def _realize_by_numpy(roots: Sequence[UOp], device: str, *_: Any) -> list[UOp]:
    return [_computed_by_numpy(root, device) for root in roots]


def _computed_by_numpy(root: UOp, device: str) -> UOp:
    if computed(root) is root and not is_view(root):
        data = bytes(_read_by_numpy(bytes, root, device))
        size = len(data) // root.dtype.itemsize
        buffer = new_buffer(root.dtype, size, device, data)
        flat = root.shape == buffer.shape
        result = buffer if flat else UOp(Ops.RESHAPE, root.dtype, (buffer,), root.shape)
        COMPUTED[root] = result
    return computed(root)


def numbers(*shape: int, low: float = -2.0, high: float = 2.0, seed: int = 0) -> Array:
    """float32 numbers of a fixed seed."""
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def assert_same(tensor: Tensor, expected: Any) -> None:
    """Equal in shape, type and every bit of every value (any NaN is any NaN)."""
    wanted = np.asarray(expected)
    found = tensor.numpy()
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)
    if found.dtype.kind == "f":
        np.testing.assert_array_equal(
            np.signbit(found) & (found == 0), np.signbit(wanted) & (wanted == 0)
        )


def assert_close(tensor: Tensor, expected: Any, **tolerance: float) -> None:
    """Equal in shape, close in value."""
    wanted = np.asarray(expected)
    assert tensor.shape == wanted.shape
    np.testing.assert_allclose(tensor.numpy(), wanted, **{**CLOSE, **tolerance})
