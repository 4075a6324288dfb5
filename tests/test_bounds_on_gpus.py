"""A float that is brought to a bound: one instruction of a GPU where it gives the same, for zeros and NaN too."""

from __future__ import annotations

import math

import numpy as np
import pytest
from planted.gpu_faults import DEVICE, emulated

from proofgrad import Tensor
from proofgrad.backends.ptx.emit import emit
from proofgrad.core.compile.lowering.linearize import linearize
from proofgrad.core.compile.text.reader import read_nest

EDGES = [0.0, -0.0, 2.0, -2.0, 1.5, -1.5, 2.5, -2.5, math.inf, -math.inf, math.nan, 1e-45, -1e-45]
CHOICE = """program, indices i32
  out: f32[64] = param 0
  a: f32[64] = param 1
  for r1 < 64 as global
    let t0 = a[r1]
    out[r1] = where({choice})
"""


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        ("t0 < 2.0, 2.0, t0", "max.NaN.f32"),
        ("2.0 < t0, 2.0, t0", "min.NaN.f32"),
        ("t0 < 0.0, 0.0, t0", "selp"),  # of -0, which stays
        ("t0 < 2.0, t0, 2.0", "min.f32"),  # of a NaN 2
        ("t0 < 2.0, 3.0, t0", "selp"),
    ],
)
def test_a_choice_of_the_larger_or_smaller_is_one_instruction(choice: str, wanted: str) -> None:
    linear = linearize(read_nest(CHOICE.format(choice=choice)))
    text = emit(linear, "kernel", 90).text
    assert wanted in text
    assert (".NaN" in text) is (".NaN" in wanted)
    assert ".NaN" not in emit(linear, "kernel", 75).text


@pytest.mark.parametrize("bound", [2.0, -2.0, 0.0, -0.0, math.inf, -math.inf])
def test_what_is_brought_to_a_bound_is_numpys_to_the_sign(
    bound: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, c = np.array(EDGES, "float32"), np.float32(bound)
    with emulated(monkeypatch):
        t = Tensor(x, device=DEVICE).realize()
        found = [(t < bound).where(bound, t), (t > bound).where(bound, t)]
        values = [y.numpy() for y in found]
    for value, wanted in zip(values, (np.where(x < c, c, x), np.where(x > c, c, x)), strict=True):
        np.testing.assert_array_equal(value, wanted)
        numbers = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(value)[numbers], np.signbit(wanted)[numbers])
