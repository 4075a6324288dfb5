"""What compilers of OpenCL C make slow is not in the text of kernels: functions of vectors, vectors of indices, scalars of vectors."""

from __future__ import annotations

import re

import numpy as np
import pytest
from devices import opened
from linear_kernels import differences, map_kernel, operand_rows, row_sum_kernel, vector_map_kernel

from proofgrad import Context, Device, Tensor, schedule
from proofgrad.backends.opencl.emit import emit
from proofgrad.backends.opencl.runtime import OpenCLBackend
from proofgrad.core.compile.machine.target import Source
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops

FLOATS = (dtypes.float32,) * 3
SIZES = [(1, 8, 12, 30), (10, 8, 3, 3)]
HINT = "__attribute__((vec_type_hint(float16)))\nkernel void"


def texts(monkeypatch: pytest.MonkeyPatch, made: Tensor, asked: str = "") -> list[str]:
    """The kernels that are compiled for a Tensor on CL."""
    found: list[str] = []
    usual = OpenCLBackend.compile

    def compile_(self: OpenCLBackend, source: Source) -> object:
        found.append(source.text)
        return usual(self, source)

    monkeypatch.setattr(OpenCLBackend, "compile", compile_)
    with schedule(asked) if asked else Context(), Context(PLANS=0):
        made.realize()
    return found


def test_kernel_of_vectors_says_that_it_is_one_and_others_do_not() -> None:
    vectors = emit(vector_map_kernel([(Ops.ADD, dtypes.float32)], FLOATS[:2], 4), "k").text
    assert re.search(r"^__attribute__\(\(vec_type_hint\(\w+4\)\)\)$", vectors, re.M)
    assert "vec_type_hint" not in emit(row_sum_kernel(70, 9), "row_sum").text


def test_widest_vector_is_named_whatever_else_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    x = Tensor(np.arange(64, dtype=np.int8), device=opened("CL")).realize()
    (text,) = texts(monkeypatch, (x.cast("float32") * 2) < 5, "vectors=0x16x1")
    assert HINT in text


@pytest.mark.parametrize("op", [Ops.WHERE, Ops.MAX, Ops.SHL, Ops.SHR], ids=lambda op: op.name)
def test_vectors_are_chosen_from_without_a_function(op: Ops) -> None:
    for dtype in (dtypes.float32, dtypes.int32, dtypes.uint32):
        sources = (dtypes.bool, dtype, dtype) if op is Ops.WHERE else (dtype, dtype)
        if dtype.is_float and op in (Ops.SHL, Ops.SHR):
            continue
        text = emit(vector_map_kernel([(op, dtype)], sources, 4), "k").text
        assert "select(" not in text


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=lambda d: d.name)
def test_fma_of_vectors_is_an_instruction_or_the_function_and_rounds_once(dtype: DType) -> None:
    device = Device[opened("CL")]
    if dtype not in device.target.arithmetic:
        pytest.skip(f"the device has no {dtype.name}")
    kernel = vector_map_kernel([(Ops.FMA, dtype)], (dtype,) * 3, 4)
    text = emit(kernel, "k").text
    builtin = "__builtin_fmaf" if dtype is dtypes.float32 else "__builtin_fma"
    assert re.search(rf"#ifdef __FMA__\n  return .*{builtin}\(x.s0, y.s0, z.s0\)", text)
    assert "#else\n  return fma(x, y, z);\n#endif" in text
    rows = operand_rows((dtype,) * 3)
    for made in (map_kernel, vector_map_kernel):
        assert differences(device, [(Ops.FMA, dtype)], (dtype,) * 3, rows, made)[:5] == []


def test_lanes_of_a_gathered_vector_are_read_beside_a_scalar(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = np.random.default_rng(1).random((48, 33), dtype=np.float32)
    turned = Tensor(x, device=opened("CL")).realize().T.contiguous()
    (text,) = texts(monkeypatch, turned, "vectors=1x16x1")
    np.testing.assert_array_equal(turned.numpy(), x.T)
    assert re.search(r"data1\[\(int\)\(\(uint\)\w+ \+ 33u\)\]", text)
    assert not re.search(r"data1\[\w+\.s", text)


def test_lanes_stored_apart_are_beside_a_scalar(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(2).random((33, 48), dtype=np.float32)
    turned = Tensor(x, device=opened("CL")).realize().T.contiguous()
    (text,) = texts(monkeypatch, turned, "vectors=0x16x1")
    np.testing.assert_array_equal(turned.numpy(), x.T)
    assert re.search(r"data0\[\(int\)\(\(uint\)\w+ \+ 33u\)\] = ", text)


def test_lanes_of_a_mask_that_is_known_are_read_without_asking(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of rows of 28 the second vector has 12 elements: PoCL keeps no sum in a register while it calls a function for them."""
    x, w = [np.random.default_rng(0).standard_normal(s).astype(np.float32) for s in SIZES]
    given = [Tensor(a, device=opened("CL")).realize() for a in (x, w)]
    made = given[0].conv2d(given[1])
    text = texts(monkeypatch, made, "tile=5x2x16")[-1]
    assert not re.findall(r"load_global|\ball\(|\bany\(", text)
    wanted = Tensor(x, device="CPU").conv2d(Tensor(w, device="CPU")).numpy()
    np.testing.assert_allclose(made.numpy(), wanted, atol=1e-4)


def test_lanes_of_other_masks_ask_for_no_function_of_the_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = Tensor(np.arange(61, dtype=np.float32), device=opened("CL")).realize()
    made = x.pad(((3, 5),)) + 1
    text = texts(monkeypatch, made, "vectors=0x16x1")[-1]
    assert "every_char16(m)" in text
    assert not re.findall(r"\ball\(|\bany\(", text)
    np.testing.assert_array_equal(made.numpy(), np.pad(np.arange(61.0), (3, 5)) + 1)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint16", "bfloat16", "float64"])
@pytest.mark.parametrize(("rows", "columns"), [(3, 19), (2, 17), (5, 33), (7, 18)])
def test_lanes_that_stay_masked_in_a_loop_are_left_out_of_a_whole_load_where_memory_goes_on(
    rows: int, columns: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Column sums: the lanes behind the last column are elements of the next row, and behind the last row no memory."""
    device = opened("CL")
    machine = Device[device]
    assert isinstance(machine, OpenCLBackend)
    if dtype == "float64" and dtypes.float64 not in machine.target.storage:
        pytest.skip("no float64 here")
    given = np.random.default_rng(rows).integers(0, 9, (rows, columns)).astype(np.int8)
    x = Tensor(given, device=device).cast(dtype).contiguous().realize()
    total = "int32" if "int" in dtype else "float32"
    asked = "group=0 vectors=0x16x1 copies=none unroll=0"
    (text,) = texts(monkeypatch, made := x.cast(total).sum(0), asked)
    assert np.array_equal(made.numpy(), given.astype(np.int64).sum(0))
    last = rows * columns - 16
    assert ("load_inside_global" in text) == (last >= 0)
    assert f"<= {last})" in text or last < 0


def test_lanes_that_are_masked_in_some_turns_of_a_loop_are_asked_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = Tensor(np.ones((3, 50), np.float32), device=opened("CL")).realize()
    found = texts(monkeypatch, made := x.softmax(), "group=0")
    assert not any("load_inside" in text for text in found)
    np.testing.assert_allclose(made.numpy(), np.full((3, 50), 0.02), rtol=1e-6)


def test_convolution_whose_rows_end_inside_of_a_vector_is_right_at_the_end_of_memory() -> None:
    device, rng = opened("CL"), np.random.default_rng(3)
    x = rng.standard_normal((2, 3, 11, 17)).astype(np.float32)
    weight = rng.standard_normal((9, 1, 3, 5)).astype(np.float32)
    given = Tensor(x, device=device), Tensor(weight, device=device)
    found = given[0].conv2d(given[1], groups=3, padding=(2, 2, 0, 0)).numpy()
    padded = np.pad(x, ((0, 0), (0, 0), (0, 0), (2, 2)))
    expected = np.zeros((2, 9, 9, 17), np.float64)
    for o in range(9):
        for i in range(3):
            for j in range(5):
                expected[:, o] += weight[o, 0, i, j] * padded[:, o // 3, i : i + 9, j : j + 17]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
