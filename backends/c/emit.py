"""Linear -> C11: `void name(float *restrict data0, const float *restrict data1)`.

Owns: what differs from OpenCL C: the signature and the head of the file. Does not own: statements and
expressions (backends/opencl).
"""

from __future__ import annotations

from collections.abc import Sequence

from proofgrad.backends.c.prelude import prelude_of
from proofgrad.backends.opencl import emit as opencl
from proofgrad.backends.opencl.dialect import Dialect
from proofgrad.core.compile.machine.target import Source
from proofgrad.core.ir.uop import UOp


def emit(linear: UOp, name: str) -> Source:
    """The kernel as C. The program must be for `backends.c.TARGET`. Raises: CompileError."""
    return opencl.emit(linear, name, has_fma=False, dialect=_C)


def _with_prelude(_: Sequence[UOp], name: str, text: str) -> str:
    return f"// {name}: compile with -std=c11 -ffp-contract=off -lm\n{prelude_of(text)}{text}"


_C = Dialect(
    language="c",
    signature="void {name}({arguments})",
    read_pointer="const {type} *restrict ",
    written_pointer="{type} *restrict ",
    between_arguments=", ",
    contracts=False,
    finish=_with_prelude,
)
