"""How long the rows are in which memory that windows read in steps is copied apart.

Owns: the choice, a heuristic. Does not own: the copy (steps/deinterleave.py), which loads (vector_loops.py, tactics/pack_operands.py).

    out[i, j] = sum[a, b](w[a, b] * x[23 * (3 * i + a) + 3 * j + b]): in memory as one row the remainder by 3 is that of 2 * a + b,
    in rows of 23 that of b: known where its few steps are written out
"""

from __future__ import annotations

from math import gcd

from proofgrad.core.compile.nests.strides import coefficient, loops_of
from proofgrad.core.compile.steps.deinterleave import reads_in_rows
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.ir.uop import UOp


def row_length_of(load: UOp, loop: UOp, nest: LoopNest) -> int | None:
    """The shortest rows that loops with longer steps alone go between, if the step along `loop` does not divide these; None: all memory is one."""
    memory, index, *_ = load.src[0].src
    step = coefficient(index, loop)
    found = [coefficient(index, x) for x in loops_of(index)]
    steps = [s for s in found if s is not None and s > 0]
    if step is None or len(steps) < len(found):
        return None
    for shortest in sorted({s for s in steps if s > step}):
        length = gcd(*[s for s in steps if s >= shortest])
        if step < length < memory.arg[1] and reads_in_rows(index, loop, length, nest.facts):
            return length if length % step else None
    return None
