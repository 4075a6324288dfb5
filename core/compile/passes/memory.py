"""What a kernel reads: a BUFFER, or SHRINK(BUFFER), the part of one that begins inside of it; what it changes some elements of.

Owns: taking the two apart, seeing the latter. Does not own: which slices are parts (steps/read_parts.py), handles to memory (the backends).
"""

from __future__ import annotations

from proofgrad.core.ir.op_names import BUFFER, PARAM, RESHAPE, SHRINK, WHERE
from proofgrad.core.ir.uop import UOp


def memory_below(source: UOp) -> UOp:
    """The BUFFER that a source of a CALL is, or is a part of."""
    return source.src[0] if source.op is SHRINK else source


def first_element(source: UOp) -> int:
    """Where in its BUFFER a source of a CALL begins."""
    begin: int = source.arg[0][0] if source.op is SHRINK else 0
    return begin


def changed_in_part(value: UOp) -> UOp | None:
    """The memory, a BUFFER or PARAM, of which a value has the elements but for some that are chosen; None: there is none."""
    below, has_choices = value, False
    while (op := below.op) is WHERE or op is RESHAPE:
        has_choices = has_choices or op is WHERE
        below = below.src[-1]
    return below if has_choices and (op is BUFFER or op is PARAM) else None
