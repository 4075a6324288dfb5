"""Lanes that lie a few elements apart are picked out of whole vectors on OpenCL, and windows run along their results."""

from __future__ import annotations

import numpy as np
import pytest
from devices import opened
from test_opencl_text import texts

from proofgrad import Tensor, dtypes
from proofgrad.backends.opencl.strided import is_read_whole, picked, step_of


@pytest.mark.parametrize("step", [-3, -1, 2, 3, 4])
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_lanes_that_are_picked_are_those_that_are_wanted_and_none_outside_is_read(
    step: int, lanes: int
) -> None:
    body = picked(step, lanes, "T", "P")
    *reads, result = body.replace("  return (T)(", "").rstrip(");").splitlines()
    starts = [int(line.split("p + ")[1].split("))")[0]) for line in reads]
    found = []
    for part in result.split(", "):
        vector, lane = part.split(".s")
        found.append(starts[int(vector[1:])] + int(lane, 16))
    wanted = [step * k for k in range(lanes)]
    assert found == wanted
    assert min(starts) == min(wanted)
    assert max(starts) + lanes - 1 == max(wanted)


def test_steps_that_differ_or_leave_one_lane_a_vector_are_read_one_by_one() -> None:
    assert step_of((0, 2, 4, 6)) == 2
    assert step_of((0, 2, 4, 7)) == step_of(()) == 0
    assert not is_read_whole(0, 8)
    assert is_read_whole(2, 4)
    assert not is_read_whole(3, 4)


@pytest.mark.parametrize("kind", ["float32", "float16", "int8", "bool", "int64"])
@pytest.mark.parametrize("columns", [1, 7, 64, 131])
def test_values_are_those_of_single_elements(kind: str, columns: int) -> None:
    numbers = np.arange(3 * columns).reshape(3, columns) * 37 % 101
    wanted = numbers % 2 if kind == "bool" else numbers
    x = Tensor(wanted.astype(np.int32), device=opened("CL")).cast(kind).realize()
    for step in (-1, 2, -2, 3, -4):
        read = (x[:, ::step].cast(dtypes.int32) * 2).numpy()
        np.testing.assert_array_equal(read, wanted[:, ::step] * 2)


@pytest.mark.parametrize("window, stride, padding", [((2, 7), 3, 0), (3, 2, 1), ((7, 5), 2, 2)])
def test_a_window_runs_along_its_results(
    monkeypatch: pytest.MonkeyPatch, window: object, stride: int, padding: int
) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 29, 37)).astype(np.float32)
    given = Tensor(x, device=opened("CL")).realize()
    made = given.max_pool2d(window, stride, 1, padding)
    wanted = Tensor(x, device="CPU").max_pool2d(window, stride, 1, padding).numpy()
    text = texts(monkeypatch, made)[-1]
    assert f"_by_{stride}(" in text
    assert ".lo" not in text.split("kernel void")[1]  # no lanes of a result are joined
    np.testing.assert_array_equal(made.numpy(), wanted)


def test_a_scalar_is_rounded_once_by_the_instruction_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = Tensor(np.linspace(-3, 3, 30, dtype=np.float32), device=opened("CL")).realize()
    (text,) = texts(monkeypatch, x.exp(), "vectors=none")
    body = text.split("kernel void")[1]
    assert "fma_float(" in body
    assert " fma(" not in body
    assert "__builtin_fmaf(x, y, z)" in text
