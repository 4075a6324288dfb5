"""AMD GPUs: kernels as the machine's own instructions and as ELF files, printed anywhere. None is run: there is no runtime.

dialect.py: how a kernel begins.  emit.py: Linear -> LLVM IR -> assembly and ELF, and what a kernel needs.
"""

from __future__ import annotations

from proofgrad.backends.amdgpu.emit import ARCHITECTURES, DEFAULT_ARCHITECTURE, elf_of, emit
from proofgrad.backends.printed import PrintedBackend
from proofgrad.core.compile.machine.target import Binary, Source, Target
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.uop import UOp

WIDE_BYTES = 16  # of the widest load of an item
REGISTERS = 96  # of an item, of 4 bytes, for a tile
GROUP_ITEMS = 256
LOCAL_BYTES = 64 << 10
UNITS = {"gfx942": 304, "gfx1100": 96}  # of an MI300X, of an RX 7900 XTX
MISSING = (
    "proofgrad has no runtime for AMD GPUs: use OpenCL, which AMD's drivers have (device CL), or take the text and the ELF"
    " file from proofgrad.backends.amdgpu.emit"
)


class AMDBackend(PrintedBackend):
    """The compiler of AMD GPUs."""

    name, missing = "AMD", MISSING

    def __init__(self, architecture: str = DEFAULT_ARCHITECTURE) -> None:
        self.architecture = architecture
        self.target = Target(
            "AMD",
            vector_bytes=WIDE_BYTES,
            vector_registers=REGISTERS * 4 // WIDE_BYTES,
            work_items=True,
            group_items=GROUP_ITEMS,
            local_bytes=LOCAL_BYTES,
            units=UNITS[architecture],
            lockstep=ARCHITECTURES[architecture],
            index_dtype=dtypes.int32,
            runs=False,
        )

    def emit(self, linear: UOp, name: str) -> Source:
        return emit(linear, name, self.architecture)

    def compile(self, source: Source) -> Binary:
        return Binary(source.entry, elf_of(source), source)


def backend() -> AMDBackend:
    """The compiler of AMD GPUs, which runs nothing."""
    return AMDBackend()
