"""Functions of a driver are given vectors of no more bytes than its compiler compiles for: wider ones go in parts."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from devices import opened
from linear_kernels import (
    differences,
    edge_values,
    operand_rows,
    ops_by_operands,
    vector_map_kernel,
)

from proofgrad import Device, Tensor
from proofgrad.backends.opencl import runtime
from proofgrad.backends.opencl.emit import emit
from proofgrad.backends.opencl.runtime import OpenCLBackend, _target
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops

HALF = 16  # bytes: of the 32 that four float64 have
SMALL_FLOATS = (dtypes.float16, dtypes.bfloat16, *dtypes.fp8s)
WHOLE = r"\b(sqrt|trunc|fabs|rint|floor|max|min|fma|convert_\w+4\w*)\(v\d+\b(?!\.)"


def device(monkeypatch: pytest.MonkeyPatch, called_bytes: int) -> OpenCLBackend:
    found = Device[opened("CL")]
    assert isinstance(found, OpenCLBackend)
    monkeypatch.setattr(found, "called_bytes", called_bytes)
    return found


@pytest.mark.parametrize("dtype", [dtypes.float64, dtypes.int64, dtypes.float32], ids=str)
def test_vectors_in_parts_are_bitwise_the_reference(
    monkeypatch: pytest.MonkeyPatch, dtype: DType
) -> None:
    machine, wrong = device(monkeypatch, HALF if dtype.bits == 64 else HALF // 2), []
    if dtype not in machine.target.arithmetic:
        pytest.skip(f"the device has no {dtype.name}")
    for sources, results in ops_by_operands(dtype).items():
        wrong += differences(machine, results, sources, operand_rows(sources), vector_map_kernel)
    assert wrong[:5] == []


@pytest.mark.parametrize("dtype", [dtypes.float64, dtypes.uint64, dtypes.bool], ids=str)
def test_casts_of_parts_are_bitwise_the_reference(
    monkeypatch: pytest.MonkeyPatch, dtype: DType
) -> None:
    machine = device(monkeypatch, HALF)
    casts = [(Ops.CAST, target) for target in dtypes.all if target in machine.target.storage]
    rows = [(value,) for value in edge_values(dtype)]
    assert differences(machine, casts, (dtype,), rows, vector_map_kernel)[:5] == []


def test_no_function_is_given_a_wider_vector() -> None:
    for dtype in (dtypes.float64, dtypes.int64):
        for sources, results in ops_by_operands(dtype).items():
            kernel = vector_map_kernel([*results], sources, 6)
            assert not re.search(WHOLE, emit(kernel, "k", called_bytes=HALF).text)
    casts = [(Ops.CAST, to) for to in dtypes.all if to not in (*SMALL_FLOATS, dtypes.int64)]
    text = emit(vector_map_kernel(casts, (dtypes.int64,), 6), "k", called_bytes=HALF).text
    assert not re.search(WHOLE, text)
    assert re.search(r"convert_double2\((v\d+)\.lo\), convert_double2\(\1\.hi\)", text)


def test_vectors_that_fit_are_whole() -> None:
    kernel = vector_map_kernel([(Ops.SQRT, dtypes.float32)], (dtypes.float32,), 6)
    assert emit(kernel, "k", called_bytes=HALF).text == emit(kernel, "k").text


def test_quotient_by_float64_counts_the_bytes_of_that() -> None:
    kernel = vector_map_kernel([(Ops.SQRT, dtypes.float32)], (dtypes.float32,), 6)
    text = emit(kernel, "k", divides_in_double=True, called_bytes=HALF).text
    assert re.search(r"convert_float2\(sqrt\(convert_double2\(v\d+\.lo\)\)\)", text)


@pytest.mark.parametrize(
    ("called_bytes", "expected"), [(0, (64, 16)), (32, (32, 8)), (16, (16, 4)), (64, (64, 16))]
)
def test_vectors_are_no_longer_than_the_functions_take(
    called_bytes: int, expected: tuple[int, int]
) -> None:
    cl = SimpleNamespace(
        device_type=SimpleNamespace(GPU=4), device_fp_config=SimpleNamespace(FMA=32)
    )
    claimed = SimpleNamespace(
        type=2, extensions="cl_khr_fp64", native_vector_width_float=16, max_work_group_size=4096,
        local_mem_size=1 << 20, max_compute_units=2, single_fp_config=63,
    )  # fmt: skip
    target = _target(cl, claimed, False, called_bytes)
    assert (target.vector_bytes, target.most_lanes) == expected


@pytest.mark.parametrize("called_bytes", [0, 32])
def test_device_says_how_wide_vectors_of_its_functions_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], called_bytes: int
) -> None:
    opened("CL")
    monkeypatch.setenv("DEBUG", "1")
    found = replace(runtime.choose_device(runtime._import_pyopencl()), called_bytes=called_bytes)
    monkeypatch.setattr(runtime, "choose_device", lambda *_: found)
    machine, told = OpenCLBackend(), "functions of vectors of 32 bytes"
    is_narrow = called_bytes > 0
    assert [told in machine.identity, told in capsys.readouterr().err] == [is_narrow] * 2


def test_wide_values_beside_narrow_ones_are_right() -> None:
    drawn = np.random.default_rng(5).normal(size=(37, 65)).astype(np.float32) * np.float32(1e6)
    x = Tensor(drawn, device=opened("CL"))
    assert (x.cast("int64").numpy() == drawn.astype(np.int64)).all()
    assert np.abs(x.sin().numpy() - np.sin(drawn.astype(np.float64))).max() < 1e-6
