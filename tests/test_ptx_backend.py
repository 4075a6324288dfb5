"""PTX: printed for every op and type, accepted by ptxas, IEEE."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from linear_kernels import (
    constants_kernel,
    edge_values,
    fibonacci_kernel,
    map_kernel,
    ops_by_operands,
    product_and_sum_kernel,
    row_sum_kernel,
)

from proofgrad.backends.ptx import backend
from proofgrad.backends.ptx.emit import PTX_VERSIONS, emit, known_architecture, ptx_of_llvm
from proofgrad.backends.ptx.runtime import PTXBackend
from proofgrad.core.compile.machine.target import CompileError, DeviceError
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp

GOLDEN = Path(__file__).parent / "golden"
PTXAS = shutil.which("ptxas")
INEXACT = re.compile(r"\b(?:\w+\.)+(?:ftz|approx|full)\b\S*|\b(?:add|sub|mul|mad)\.f(?:32|64)\b")
CONTRACTED = re.compile(r"\bfma\.")


def kernels_of(dtype: DType) -> list[UOp]:
    """Kernels with every op, cast and edge constant of `dtype`."""
    kernels = [map_kernel([(Ops.CAST, target) for target in dtypes.all], (dtype,), 1000)]
    kernels.append(constants_kernel(edge_values(dtype), dtype))
    if dtype not in (dtypes.float16, dtypes.bfloat16):
        groups = ops_by_operands(dtype).items()
        kernels += [map_kernel(results, sources, 1000) for sources, results in groups]
    return kernels


def assemble(text: str, folder: Path) -> str:
    """What ptxas says against the text; nothing if it takes it."""
    path = folder / "kernel.ptx"
    path.write_text(text)
    command = ["ptxas", "-arch=sm_90", str(path), "-o", str(folder / "kernel.cubin")]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


@pytest.mark.parametrize(("architecture", "count"), [(75, 0), (80, 1), (90, 1)])
def test_bfloat16_is_rounded_by_an_instruction_where_there_is_one(
    architecture: int, count: int
) -> None:
    kernel = map_kernel([(Ops.CAST, dtypes.bfloat16)], (dtypes.float32,), 1000)
    assert emit(kernel, "kernel_0", architecture).text.count("cvt.rn.bf16.f32") == count


@pytest.mark.skipif(PTXAS is None, reason="ptxas, of the CUDA toolkit, is not on the PATH")
@pytest.mark.parametrize("architecture", [70, 80, 90])
@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda d: d.name)
def test_every_op_assembles(dtype: DType, architecture: int, tmp_path: Path) -> None:
    texts = [emit(kernel, "kernel_0", architecture).text for kernel in kernels_of(dtype)]
    assert [assemble(text, tmp_path) for text in texts] == [""] * len(texts)


@pytest.mark.skipif(PTXAS is None, reason="ptxas, of the CUDA toolkit, is not on the PATH")
def test_loops_and_accumulators_assemble(tmp_path: Path) -> None:
    for kernel in (row_sum_kernel(70, 9), fibonacci_kernel(10)):
        assert assemble(emit(kernel, "kernel_0").text, tmp_path) == ""


@pytest.mark.parametrize("architecture", PTX_VERSIONS)
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64], ids=lambda d: d.name)
def test_float_arithmetic_is_ieee_and_calls_nothing(dtype: DType, architecture: int) -> None:
    for kernel in kernels_of(dtype):
        text = emit(kernel, "kernel_0", architecture).text
        assert INEXACT.findall(text) == []
        assert ".extern" not in text


def test_product_and_sum_are_not_contracted() -> None:
    text = emit(product_and_sum_kernel(100), "kernel_0").text
    assert CONTRACTED.findall(text) == []
    assert "mul.rn.f32" in text and "add.rn.f32" in text


def test_kernel_text_is_the_golden_file() -> None:
    text = emit(row_sum_kernel(70, 9), "row_sum").text
    assert text == (GOLDEN / "row_sum.ptx").read_text()


@pytest.mark.parametrize("capability, architecture", [(70, 70), (72, 70), (87, 86), (999, 120)])
def test_architecture_is_the_newest_that_the_gpu_runs(capability: int, architecture: int) -> None:
    assert known_architecture(capability) == architecture


def test_gpu_older_than_every_architecture_is_refused() -> None:
    with pytest.raises(DeviceError, match="capability 6.1 is too old"):
        known_architecture(61)


def test_text_that_llvm_refuses_is_shown() -> None:
    with pytest.raises(CompileError, match="LLVM refused the kernel: (?s:.)*define nonsense"):
        ptx_of_llvm("define nonsense", 70)


def test_machine_without_a_gpu_compiles_and_refuses_to_give_values() -> None:
    machine = PTXBackend(None, "no NVIDIA driver")
    binary = machine.compile(machine.emit(fibonacci_kernel(3), "fibonacci"))
    out = machine.alloc(4)
    machine.load(binary)([out])
    machine.synchronize()
    assert not machine.target.runs
    with pytest.raises(DeviceError, match="no value was computed: no NVIDIA driver"):
        machine.copyout(memoryview(bytearray(4)), out)


def test_missing_cuda_bindings_is_a_warning_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cuda", None)
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.warns(UserWarning, match=r'pip install "proofgrad\[cuda\]"; PTX is printed'):
        assert not backend().target.runs
