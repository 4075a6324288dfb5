"""Linear -> LLVM IR -> PTX text, through the NVPTX target of llvmlite. Needs no GPU.

Owns: which PTX version and architecture the text is for. Does not own: the IR (backends/llvm).

Arithmetic is IEEE as it stands in the IR: without fast-math flags LLVM prints div.rn and sqrt.rn,
keeps denormals (no .ftz), and writes .rn on every add and mul, which also forbids ptxas to contract
them. Source: PTX ISA, "Floating Point Instructions": add and mul "with no rounding modifier ... may
be optimized to use fused-multiply-add".
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from proofgrad.backends.llvm.emit import emit as emit_llvm
from proofgrad.backends.llvm.held import UNROLLED
from proofgrad.backends.ptx.dialect import PTXDialect
from proofgrad.core.compile.machine.target import CompileError, DeviceError, Source
from proofgrad.core.ir.uop import UOp

TRIPLE = "nvptx64-nvidia-cuda"
DEFAULT_ARCHITECTURE = 70
COPIES_AHEAD = 80  # from here on cp.async. Source: PTX ISA, "cp.async", target ISA notes
# The lowest PTX version that knows each architecture, so that the oldest driver that can run the
# GPU reads the text. Source: PTX ISA, "Release Notes", table of supported targets.
PTX_VERSIONS = {70: 60, 75: 63, 80: 70, 86: 71, 89: 78, 90: 78, 100: 86, 120: 87}


def known_architecture(capability: int) -> int:
    """The newest architecture in PTX_VERSIONS that a GPU of this compute capability runs.

    Raises: DeviceError for a GPU older than all of them.
    """
    older = [architecture for architecture in PTX_VERSIONS if architecture <= capability]
    if not older:
        raise DeviceError(
            f"a GPU of compute capability {capability / 10} is too old;"
            f" PTX is printed for {min(PTX_VERSIONS) / 10} and newer"
        )
    return max(older)


def emit(linear: UOp, name: str, architecture: int = DEFAULT_ARCHITECTURE) -> Source:
    """The PTX of a program. Raises: CompileError, with the IR that LLVM refused."""
    source = emit_llvm(linear, name, PTXDialect(architecture >= COPIES_AHEAD))
    return replace(source, text=ptx_of_llvm(source.text, architecture))


def ptx_of_llvm(text: str, architecture: int) -> str:
    """LLVM IR for NVPTX as PTX. Raises: CompileError."""
    from llvmlite import binding

    machine = _target_machine(architecture)
    try:
        module = binding.parse_assembly(f'target triple = "{TRIPLE}"\n\n{text}')
        module.verify()
        _simplify(module, machine, UNROLLED in text or " = alloca " in text)
    except RuntimeError as error:
        raise CompileError(f"LLVM refused the kernel: {error}\n{text}") from None
    return str(machine.emit_assembly(module)).strip() + "\n"


def _simplify(module: Any, machine: Any, keeps: bool) -> None:
    """Instructions are combined, as the many that take vectors apart and put them together: what is left is printed in a third of the time.

    `keeps`: an item keeps something. Loops that ask for it are first written out, so that each position in that is a number, and it becomes registers.
    """
    from llvmlite import binding

    builder = binding.create_pass_builder(machine, binding.create_pipeline_tuning_options())
    passes = binding.create_new_function_pass_manager()
    if keeps:
        passes.add_loop_unroll_pass()
        passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)


@functools.cache
def _target_machine(architecture: int) -> Any:
    from llvmlite import binding

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    features = f"+ptx{PTX_VERSIONS[architecture]}"
    target = binding.Target.from_triple(TRIPLE)
    return target.create_target_machine(cpu=f"sm_{architecture}", features=features, opt=2)
