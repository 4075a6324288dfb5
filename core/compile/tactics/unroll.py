"""Tactic: loops of the role UPCAST are written out.

Does not own: the law (steps/unroll.py), which loops (axes.py).
"""

from __future__ import annotations

from proofgrad.core.compile.nests.loops import BINDERS, output_loops
from proofgrad.core.compile.nests.strides import loops_below
from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.steps.loop_nest import LoopNest, StepRefused
from proofgrad.core.compile.steps.run_as import run_as
from proofgrad.core.compile.steps.unroll import unroll
from proofgrad.core.ir.op_names import RANGE
from proofgrad.core.ir.ops import COMPARE
from proofgrad.core.ir.uop import AxisRole, UOp, toposort


def unroll_blocks(nest: LoopNest, context: Context) -> LoopNest:
    """Where loops that are written out decide together which of many values an element is, the outer ones go first.

    In each block few of the values are left, once that is simplified: of n values the copies are not n * n.
    """
    nodes = toposort((nest.graph,))
    if not _upcast(nodes) or not any([n.op in COMPARE for n in nodes]):
        return nest
    free, outputs = loops_below(nest.graph), output_loops(nest.graph)
    copied = {loop for loop in outputs if loop.arg[1] is AxisRole.UPCAST}
    asked = [free[n] for n in free if n.op in COMPARE and len(free[n]) > 1 and free[n] <= copied]
    first = frozenset([min(loops, key=outputs.index) for loops in asked])
    return unroll(nest, first) if first else nest


def unroll_upcasts(nest: LoopNest, context: Context) -> LoopNest:
    """Each UPCAST loop is written out: copies of the stores, or of what a reduction combines."""
    nodes = toposort((nest.graph,))
    upcast = _upcast(nodes)
    if not upcast:
        return nest
    try:
        return unroll(nest, frozenset(upcast))
    except StepRefused:  # as with too many copies: loops that count
        own = {loop for n in nodes if n.op in BINDERS for loop in n.src[1:]}
        return run_as(nest, {x: AxisRole.REDUCE if x in own else AxisRole.LOOP for x in upcast})


def _upcast(nodes: list[UOp]) -> list[UOp]:
    return [n for n in nodes if n.op is RANGE and n.arg[1] is AxisRole.UPCAST]
