"""Tactic: loops that no index tells apart become one, and so do short ones that choose among computed values.

Does not own: the laws (steps/merge.py, steps/collapse.py), how loops run (axes.py).
"""

from __future__ import annotations

from math import prod

from proofgrad.core.compile.nests.loops import is_fixed, output_loops, size_of, unshared_reductions
from proofgrad.core.compile.nests.strides import loops_below
from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.schedule.copies import MOST_CHOSEN
from proofgrad.core.compile.schedule.vector_loops import LEAST_LANES
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.collapse import collapse
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.steps.merge import merge, reads_as_one
from proofgrad.core.ir.ops import COMPARE, Ops
from proofgrad.core.ir.uop import AxisRole, UOp


def merge_loops(nest: LoopNest, context: Context) -> LoopNest:
    """Two loops a, b become one where every index needs only a * size(b) + b."""
    while (pair := _mergeable_pair(nest.graph)) is not None:
        nest = merge(nest, *pair)
    digits = _choosing_digits(nest.graph)
    return collapse(nest, digits, NewLoop(digits[0].arg[0])) if len(digits) > 1 else nest


def _mergeable_pair(kernel: UOp) -> tuple[UOp, UOp] | None:
    for group in (output_loops(kernel), *unshared_reductions(kernel)):
        for outer in group:
            for inner in group:
                if outer is not inner and reads_as_one(kernel, outer, inner):
                    return outer, inner
    return None


def _choosing_digits(kernel: UOp) -> tuple[UOp, ...]:
    """Output loops too short for vectors, each of which alone decides which of two computed values an element is.

    As one loop they are written out together: what an iteration computes, as the other end of a comparator, another one needs too.
    """
    free = loops_below(kernel)
    chosen = [n.src[0] for n in free if n.op is Ops.WHERE and free[n.src[1]] and free[n.src[2]]]
    alone = {next(iter(free[c])) for c in chosen if c.op in COMPARE and len(free[c]) == 1}
    loops = [x for x in output_loops(kernel) if x in alone and is_fixed(x)]
    short = [x for x in loops if x.arg[1] is AxisRole.LOOP and size_of(x) < LEAST_LANES]
    return tuple(short) if prod([size_of(x) for x in short]) <= MOST_CHOSEN else ()
