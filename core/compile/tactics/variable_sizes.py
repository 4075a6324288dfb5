"""Tactics: loops that variables bound get the largest bound, so that they can be cut in parts; then they end where masks do.

So one kernel serves all sizes, with lanes, threads and tiles. Does not own: the steps (steps/extend.py).
"""

from __future__ import annotations

from proofgrad.core.compile.nests.loops import is_fixed, size_of
from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.steps.extend import end_by_masks, extend, shorten
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.ir.op_names import RANGE
from proofgrad.core.ir.uop import UOp, toposort


def extend_loops(nest: LoopNest, context: Context) -> LoopNest:
    """Each loop that a variable bounds, and that is not run in order, to its largest bound."""
    in_order = {loop for store in nest.graph.src for loop in store.src[2:]}
    for loop in _loops(nest.graph):
        if not is_fixed(loop) and size_of(loop) > 0 and loop not in in_order:
            nest = extend(nest, loop)
    return nest


def shorten_loops(nest: LoopNest, context: Context) -> LoopNest:
    """Each loop of which masks leave out the last iterations, by a variable, ends there."""
    for loop in _loops(nest.graph):
        if is_fixed(loop) and end_by_masks(nest.graph, loop, nest.facts) is not None:
            nest = shorten(nest, loop)
    return nest


def _loops(graph: UOp) -> list[UOp]:
    found = {n for n in toposort((graph,)) if n.op is RANGE}
    return sorted(found, key=lambda loop: loop.arg[0])
