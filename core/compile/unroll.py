"""Tactic: loops of the role UPCAST are written out.

Does not own: the law (steps/unroll.py), which loops (axes.py).
"""

from __future__ import annotations

from proofgrad.core.compile.context import Context
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.steps.unroll import unroll
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, toposort


def unroll_upcasts(nest: LoopNest, context: Context) -> LoopNest:
    """Each UPCAST loop is written out: copies of the stores, or of what a reduction combines."""
    loops = [n for n in toposort((nest.graph,)) if n.op is Ops.RANGE]
    upcast = frozenset([loop for loop in loops if loop.arg[1] is AxisRole.UPCAST])
    return unroll(nest, upcast) if upcast else nest
