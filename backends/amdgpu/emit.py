"""Linear -> LLVM IR -> AMD's assembly and ELF, through the AMDGPU target of llvmlite. Needs no GPU.

Owns: which architectures there are, what a kernel needs of one. Does not own: the IR (backends/llvm).
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace
from typing import Any

from proofgrad.backends.amdgpu.dialect import BLOCK_SIZE, AMDDialect
from proofgrad.backends.llvm.emit import emit as emit_llvm
from proofgrad.core.compile.machine.target import CompileError, Source
from proofgrad.core.ir.uop import UOp

TRIPLE = "amdgcn-amd-amdhsa"
# Work items that run in step: MI300 and Radeon RX 7900.
ARCHITECTURES = {"gfx942": 64, "gfx1100": 32}
DEFAULT_ARCHITECTURE = "gfx942"
_END = "; end of the IR"
_HEAD = "; LLVM IR for "  # before the IR, which the assembly keeps as comments, so that an ELF file can be made of it


@dataclass(frozen=True, slots=True)
class Needs:
    """What a kernel takes of a unit, as the assembler counts it."""

    vector_registers: int
    scalar_registers: int
    vector_spills: int
    scalar_spills: int
    local_bytes: int  # of a group
    private_bytes: int  # of an item, in memory


def emit(linear: UOp, name: str, architecture: str = DEFAULT_ARCHITECTURE) -> Source:
    """The assembly of a program. Raises: CompileError, with the IR that LLVM refused."""
    source = emit_llvm(linear, name, AMDDialect())
    text = str(_machine(architecture).emit_assembly(_parsed(source.text)))
    kept = "".join([f"; {line}\n" for line in source.text.splitlines()])
    group = source.group_size or (BLOCK_SIZE if source.global_size else None)
    return replace(
        source, text=f"{_HEAD}{architecture}\n{kept}{_END}\n{text.strip()}\n", group_size=group
    )


def elf_of(source: Source) -> bytes:
    """The ELF file of a kernel that `emit` printed. Raises: CompileError."""
    head, _, rest = source.text.partition("\n")
    lines = rest.partition(_END)[0].splitlines()
    if not head.startswith(_HEAD):
        raise CompileError(f"{source.entry} was not printed for an AMD GPU")
    module = _parsed("\n".join([line[2:] for line in lines]))
    return bytes(_machine(head.removeprefix(_HEAD)).emit_object(module))


def needs(source: Source) -> Needs:
    """What the assembler says that a kernel needs."""

    def number(key: str) -> int:
        found = re.search(rf"^\s*\.{key}:\s+(\d+)", source.text, re.MULTILINE)
        if found is None:
            raise CompileError(f"the assembly of {source.entry} does not say its {key}")
        return int(found.group(1))

    return Needs(
        number("vgpr_count"),
        number("sgpr_count"),
        number("vgpr_spill_count"),
        number("sgpr_spill_count"),
        number("group_segment_fixed_size"),
        number("private_segment_fixed_size"),
    )


def _parsed(text: str) -> Any:
    from llvmlite import binding

    try:
        module = binding.parse_assembly(f'target triple = "{TRIPLE}"\n\n{text}')
        module.verify()
    except RuntimeError as error:
        raise CompileError(f"LLVM refused the kernel: {error}\n{text}") from None
    return module


@functools.cache
def _machine(architecture: str) -> Any:
    from llvmlite import binding

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    target = binding.Target.from_triple(TRIPLE)
    return target.create_target_machine(cpu=architecture, opt=2)
