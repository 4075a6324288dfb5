"""What differs between the languages that the printer of OpenCL C speaks: signatures, pointers, the head of a text.

Owns: the differences as values, those of OpenCL C itself. Does not own: the printer (emit.py), the other languages (backends/c,
backends/metal).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from proofgrad.backends.opencl import subgroups
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp


@dataclass(frozen=True, slots=True)
class Dialect:
    """What differs between the languages that this printer speaks."""

    language: str
    signature: str  # with {name}, {arguments} and, of a language that has them, {attributes}
    read_pointer: str  # with {type}
    written_pointer: str
    between_arguments: str
    contracts: bool  # a function may say that its product and sum are rounded once or twice
    finish: Callable[[Sequence[UOp], str, str], str]  # nodes, name, functions and kernel: the text
    native: Mapping[Ops, str] = field(default_factory=dict)  # functions of float32 that it has
    exchanges: bool = False  # items of a warp, which are a subgroup, read what others of it hold


def _with_head(nodes: Sequence[UOp], name: str, text: str) -> str:
    """The text of an OpenCL kernel below what it needs."""
    sizes = [n.src[0].arg for n in nodes if n.op is Ops.RANGE and n.arg[1] is AxisRole.GLOBAL]
    work = f"{sizes[0]} work items" if sizes else "one work item"
    lines = [f"// {name}: {work}", "#pragma OPENCL FP_CONTRACT OFF"]
    if any(n.dtype.scalar is dtypes.float64 for n in nodes):
        lines.append("#pragma OPENCL EXTENSION cl_khr_fp64 : enable")
    if subgroups.ATTRIBUTE in text:
        lines.append(subgroups.EXTENSION)
    return "\n".join(lines) + "\n\n" + text


OPENCL = Dialect(
    language="opencl",
    signature="{attributes}kernel void {name}(\n    {arguments})",
    read_pointer="global const {type} *",
    written_pointer="global {type} *",
    between_arguments=",\n    ",
    contracts=True,
    finish=_with_head,
)
WITH_SUBGROUPS = replace(OPENCL, exchanges=True)
