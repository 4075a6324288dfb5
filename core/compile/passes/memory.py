"""What a kernel reads: a BUFFER, or SHRINK(BUFFER), the part of one that begins inside of it.

Owns: taking the two apart. Does not own: which slices are parts (steps/read_parts.py), handles to memory (the backends).
"""

from __future__ import annotations

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp


def memory_below(source: UOp) -> UOp:
    """The BUFFER that a source of a CALL is, or is a part of."""
    return source.src[0] if source.op is Ops.SHRINK else source


def first_element(source: UOp) -> int:
    """Where in its BUFFER a source of a CALL begins."""
    begin: int = source.arg[0][0] if source.op is Ops.SHRINK else 0
    return begin
