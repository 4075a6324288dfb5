"""Machines whose kernels are printed here and run nowhere: AMD's assembler and a C++ compiler take the text; asking for values is refused."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
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

from proofgrad import Device, Tensor, dtypes
from proofgrad.backends.amdgpu.emit import ARCHITECTURES, elf_of, emit, needs
from proofgrad.backends.metal.emit import emit as emit_metal
from proofgrad.core.compile.machine.target import CompileError, DeviceError, Source
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compile_only

ELF = b"\x7fELF"
ELF_OF_AMD = 224  # e_machine. Source: ELF, "EM_AMDGPU"
CLANG = shutil.which("clang++")


def kernels_of(dtype: DType, kinds: list[DType]) -> list[UOp]:
    """Kernels with every op, cast and edge constant of `dtype`."""
    kernels = [map_kernel([(Ops.CAST, kind) for kind in kinds], (dtype,), 1000)]
    kernels.append(constants_kernel(edge_values(dtype), dtype))
    if dtype not in (dtypes.float16, dtypes.bfloat16):
        groups = ops_by_operands(dtype).items()
        kernels += [map_kernel(results, sources, 1000) for sources, results in groups]
    return kernels


# -- AMD ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda d: d.name)
def test_every_op_is_assembled_for_amd_without_spills(dtype: DType, architecture: str) -> None:
    for kernel in kernels_of(dtype, dtypes.all):
        source = emit(kernel, "kernel_0", architecture)
        file = elf_of(source)
        assert file[:4] == ELF and int.from_bytes(file[18:20], "little") == ELF_OF_AMD
        told = needs(source)
        assert (told.vector_spills, told.scalar_spills, told.private_bytes) == (0, 0, 0)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_product_and_sum_are_two_instructions_on_amd(architecture: str) -> None:
    text = emit(product_and_sum_kernel(100), "kernel_0", architecture).text
    assert "v_mul_f32" in text and "v_add_f32" in text
    assert "v_fma" not in text and "v_mac" not in text and "v_fmac" not in text


def test_denormal_numbers_are_kept_on_amd() -> None:
    text = emit(row_sum_kernel(70, 9), "row_sum").text
    assert ".amdhsa_float_denorm_mode_32 3" in text and ".amdhsa_float_denorm_mode_16_64 3" in text


def test_rows_of_amd_are_computed_by_groups_with_local_memory() -> None:
    with compile_only():
        sources = printed("AMD", Tensor.ones(64, 4096, device="AMD").contiguous().softmax())
    told = [needs(source) for source in sources]
    assert max(n.local_bytes for n in told) > 0
    assert sum(n.vector_spills + n.scalar_spills for n in told) == 0
    assert all("s_barrier" in s.text for s, n in zip(sources, told, strict=True) if n.local_bytes)
    assert not Device["AMD"].target.runs


def printed(device: str, result: Tensor) -> list[Source]:
    """The sources of the kernels of a Tensor."""
    machine, found = Device[device], []
    emit_one = machine.emit
    try:
        machine.emit = lambda linear, name: found.append(emit_one(linear, name)) or found[-1]  # type: ignore
        result.realize()
    finally:
        del machine.emit  # type: ignore
    return found


def test_text_that_is_not_of_amd_has_no_elf() -> None:
    with pytest.raises(CompileError, match="k was not printed for an AMD GPU"):
        elf_of(Source("amdgpu", "k", "nonsense", ()))


@pytest.mark.parametrize("name, runtime", [("AMD", "OpenCL"), ("METAL", "WebGPU")])
def test_value_of_a_machine_that_is_printed_only_is_refused(name: str, runtime: str) -> None:
    said = f"proofgrad has no runtime for .*use {runtime}"
    with pytest.raises(DeviceError, match=f"kernel E_2 was printed and not run: {said}"):
        (Tensor([1.0, 2.0], name) + 1).tolist()
    with pytest.raises(DeviceError, match=f"no value was computed: {said}"):
        Device[name].copyout(memoryview(bytearray(4)), Device[name].alloc(4))
    assert (Tensor([1.0]) + 1).tolist() == [2.0]


# -- Metal --------------------------------------------------------------------------------------

METAL_TYPES = [d for d in dtypes.all if d is not dtypes.float64]
# What of Metal's language a compiler of C++ does not know. `item` is an argument here as there.
SHIM = """#include <algorithm>
#include <cmath>
#include <cstring>
#include <sys/types.h>
#define kernel extern "C"
#define device
#define thread
#define threadgroup
typedef unsigned char uchar;
typedef __fp16 half;
template <class T, class F> T as_type(F x) { T y; static_assert(sizeof x == sizeof y); memcpy(&y, &x, sizeof y); return y; }
static int clz(unsigned long x) { return x ? __builtin_clzl(x) : 64; }
namespace precise { using std::sin; using std::cos; using std::pow; }
namespace metal { using std::max; using std::min; }
"""


def said_of_metal(source: Source, folder: Path, *options: str) -> str:
    """What a compiler of C++ says against the text; nothing if it takes it."""
    path = folder / "kernel.cpp"
    path.write_text(source.text.replace("#include <metal_stdlib>", SHIM))
    command = ["clang++", "-std=c++17", "-w", "-O1", "-ffp-contract=off", *options, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr[:2000]


def compiled_metal(source: Source, folder: Path) -> ctypes.CDLL:
    library = folder / f"{source.entry}.so"
    assert said_of_metal(source, folder, "-fPIC", "-shared", "-o", str(library)) == ""
    return ctypes.CDLL(str(library))


@pytest.mark.skipif(CLANG is None, reason="clang++, which stands for Apple's compiler, is not here")
@pytest.mark.parametrize("dtype", METAL_TYPES, ids=lambda d: d.name)
def test_metal_text_of_every_op_is_accepted(dtype: DType, tmp_path: Path) -> None:
    kernels = [*kernels_of(dtype, METAL_TYPES), fibonacci_kernel(10)]
    sources = [emit_metal(kernel, "kernel_0") for kernel in kernels]
    assert [said_of_metal(s, tmp_path, "-fsyntax-only") for s in sources] == [""] * len(sources)


@pytest.mark.skipif(CLANG is None, reason="clang++, which stands for Apple's compiler, is not here")
def test_metal_text_of_a_kernel_computes_its_rows(tmp_path: Path) -> None:
    library = compiled_metal(emit_metal(row_sum_kernel(70, 9), "row_sum"), tmp_path)
    given = np.arange(70 * 9, dtype=np.float32).reshape(70, 9) / 8
    found = np.zeros(70, np.float32)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (found, given)]
    for item in range(70):
        library.row_sum(*pointers, ctypes.c_uint(item))
    assert (found == (given[:, :5] ** 2).sum(1)).all()


def test_metal_names_each_buffer_and_the_item() -> None:
    text = emit_metal(row_sum_kernel(70, 9), "row_sum").text
    assert "device float *data0 [[buffer(0)]],\n" in text
    assert (
        "device const float *data1 [[buffer(1)]],\n    uint item [[thread_position_in_grid]]"
        in text
    )


def test_remainder_of_metal_is_exact(tmp_path: Path) -> None:
    source = emit_metal(map_kernel([(Ops.FMOD, dtypes.float32)], (dtypes.float32,) * 2, 5000), "k")
    if CLANG is None:
        pytest.skip("clang++, which stands for Apple's compiler, is not here")
    library = compiled_metal(source, tmp_path)
    bits = np.random.default_rng(0).integers(0, 2**32, (2, 5000), dtype=np.uint32).view(np.float32)
    found = np.zeros(5000, np.float32)
    for item in range(5000):
        arrays = (found, bits[0], bits[1])
        library.k(*[ctypes.c_void_p(a.ctypes.data) for a in arrays], ctypes.c_uint(item))
    with np.errstate(all="ignore"):
        exact = np.fmod(bits[0], bits[1])
    assert ((found == exact) | (np.isnan(found) & np.isnan(exact))).all()
