"""Plain C: compiled by the C compiler of this machine, every op gives the bits of the reference."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from linear_kernels import differences, edge_values, operand_rows, ops_by_operands, unpack

from proofgrad import Tensor
from proofgrad.backends.c import TARGET
from proofgrad.backends.c.emit import emit
from proofgrad.core.compile.machine.target import Binary, Launch, Source
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp
from proofgrad.renderer.cstyle import CStyleLanguage

ARITHMETIC = (dtypes.bool, dtypes.int8, dtypes.uint16, dtypes.int32, dtypes.uint32, dtypes.int64,
              dtypes.uint64, dtypes.float32, dtypes.float64)  # fmt: skip
SMALL_FLOATS = (dtypes.float16, dtypes.bfloat16)


class CompiledC:
    """Kernels through a C compiler and ctypes, for these tests."""

    name, target = "C", TARGET

    def __init__(self, compiler: str, folder: Path) -> None:
        self._compiler, self._folder, self._made = compiler, folder, 0

    def emit(self, linear: UOp, name: str) -> Source:
        items = [n for n in linear.src if n.op is Ops.RANGE and n.arg[1] is AxisRole.GLOBAL]
        loops = {n: n.replace(arg=(n.arg[0], AxisRole.LOOP)) for n in items}
        return emit(linear.substitute(loops), name)

    def compile(self, source: Source) -> Binary:
        self._made += 1
        path = self._folder / f"kernel{self._made}.c"
        path.write_text(source.text)
        library = path.with_suffix(".so")
        command = [self._compiler, "-std=c11", "-O1", "-ffp-contract=off", "-shared", "-fPIC"]
        done = subprocess.run(
            [*command, str(path), "-o", str(library), "-lm"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr + source.text
        return Binary(source.entry, str(library).encode(), source)

    def load(self, binary: Binary) -> Launch:
        function = getattr(ctypes.CDLL(binary.data.decode()), binary.entry)

        def launch(buffers: Sequence[Any]) -> None:
            function(*[ctypes.byref(buffer) for buffer in buffers])

        return launch

    def alloc(self, nbytes: int) -> Any:
        return (ctypes.c_double * (nbytes // 8 + 1))()

    def copyin(self, handle: Any, data: memoryview) -> None:
        ctypes.memmove(handle, bytes(data), data.nbytes)

    def copyout(self, data: memoryview, handle: Any) -> None:
        data[:] = bytes(handle)[: data.nbytes]

    def synchronize(self) -> None:
        """Kernels have run when they return."""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> CompiledC:
    compiler = shutil.which("cc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("needs a C compiler")
    return CompiledC(compiler, tmp_path_factory.mktemp("c"))


@pytest.mark.parametrize("dtype", ARITHMETIC, ids=lambda d: d.name)
def test_every_op_on_edge_values_is_bitwise_the_reference(machine: CompiledC, dtype: DType) -> None:
    wrong = []
    for sources, results in ops_by_operands(dtype).items():
        wrong += differences(machine, results, sources, operand_rows(sources))
    assert wrong[:5] == []


@pytest.mark.parametrize("dtype", dtypes.all, ids=lambda d: d.name)
def test_cast_of_edge_values_is_bitwise_the_reference(machine: CompiledC, dtype: DType) -> None:
    rows = [(value,) for value in edge_values(dtype)]
    casts = [(Ops.CAST, target) for target in dtypes.all]
    assert differences(machine, casts, (dtype,), rows)[:5] == []


@pytest.mark.parametrize("dtype", SMALL_FLOATS, ids=lambda d: d.name)
def test_cast_of_every_small_float_is_bitwise_the_reference(
    machine: CompiledC, dtype: DType
) -> None:
    every = unpack(b"".join([n.to_bytes(2, "little") for n in range(2**16)]), dtype)
    rows = [(value,) for value in every]
    assert differences(machine, [(Ops.CAST, dtypes.float32)], (dtype,), rows)[:5] == []


def test_bitcast_keeps_the_bits(machine: CompiledC) -> None:
    for dtype, target in [
        (dtypes.float32, dtypes.uint32),
        (dtypes.int64, dtypes.float64),
        (dtypes.float16, dtypes.int16),
        (dtypes.uint32, dtypes.float32),
    ]:
        rows = [(value,) for value in edge_values(dtype) if value == value]
        assert differences(machine, [(Ops.BITCAST, target)], (dtype,), rows) == []


def test_text_of_a_kernel_can_be_read() -> None:
    text = CStyleLanguage().render_tensor(Tensor([1, 2, 3, 4]).realize() + 3 + 4)
    assert text == (
        "// E_4: compile with -std=c11 -ffp-contract=off -lm\n"
        "typedef unsigned int uint;\n"
        "\n"
        "void E_4(int *restrict data0, const int *restrict data1) {\n"
        "  for (int i0 = 0; i0 < 4; i0++) {\n"
        "    int v1 = data1[i0];\n"
        "    data0[i0] = (int)((uint)v1 + 7u);\n"
        "  }\n"
        "}\n"
    )


def test_nothing_to_render_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one Tensor"):
        CStyleLanguage().render_tensor()
