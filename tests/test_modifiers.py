"""Magnitudes and opposites that PTX instructions make of an operand: fewer instructions, the same values."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from planted.gpu_faults import DEVICE, emulated
from test_warp_tiles import EMITTED, Warps

from proofgrad import Device, Tensor, dtypes
from proofgrad.backends.llvm.modifiers import magnitude_below, opposite_of
from proofgrad.backends.ptx.emit import emit
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compile_only, compiler

BOUND = np.float32(2.5)
EDGES = [
    0.0,
    1.0,
    2.5,
    np.nextafter(BOUND, np.float32(9)),
    np.nextafter(BOUND, np.float32(0)),
    np.inf,
    1e-45,
    3e38,
]
VALUES = np.array([*EDGES, *[-x for x in EDGES], np.nan], np.float32)
_FIRST = UOp(Ops.INDEX, dtypes.float32, (UOp(Ops.PARAM, dtypes.float32, (), (0, 4)), UOp.index(0)))
X = UOp(Ops.LOAD, dtypes.float32, (_FIRST,))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("PLANS", "0")
    with emulated(monkeypatch):
        yield
    compiler().forget()
    EMITTED.clear()


def between_and_opposite(x: Tensor) -> Tensor:
    """1 between -2.5 and 2.5, and a product and its opposite, which do not cancel in one of three operations."""
    inside = (x < 2.5) & (-2.5 < x)
    return inside.where(x * 1.7, x * -1.7 + 1.0)


@pytest.mark.usefixtures("gpu")
def test_values_are_those_of_two_comparisons_and_of_two_products() -> None:
    got = between_and_opposite(Tensor(VALUES, device=DEVICE)).numpy()
    inside = (VALUES < BOUND) & (-BOUND < VALUES)
    with np.errstate(all="ignore"):
        factor = np.float32(1.7)
        wanted = np.where(inside, VALUES * factor, VALUES * -factor + np.float32(1))
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.usefixtures("gpu")
def test_a_magnitude_is_compared_once_and_a_product_is_computed_once() -> None:
    assert isinstance(Device["WARPS"], Warps)
    EMITTED.clear()
    with compile_only():
        between_and_opposite(Tensor.ones(64, device="WARPS").contiguous()).realize()
    text = emit(EMITTED[-1], "both", 90).text
    assert "abs.f32" in text and text.count("mul.rn.f32") == text.count("abs.f32")
    assert text.count("setp.lt.f32") + text.count("setp.gt.f32") == text.count("abs.f32")


def test_other_comparisons_and_products_are_no_such_forms() -> None:
    one, low = UOp.const(dtypes.float32, 1.0), UOp.const(dtypes.float32, -1.0)
    assert magnitude_below((X < one) & (low < X)) == (X, one)
    others = [(X < one) & (low < one), (X < one) & (one < X), (X < one) | (low < X), X < one]
    assert not any([magnitude_below(node) for node in others])
    assert opposite_of(X * low) is X * one
    assert [opposite_of(node) for node in (X * one, X + low, X * 0.0, X * X)] == [None] * 4
