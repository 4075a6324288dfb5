"""Tactic: a kernel that writes over its own input writes only the window of it that changes.

So to assign a slice costs what the slice costs, however large the memory is, and wherever in it a variable says that it begins.
Does not own: the laws (steps/leave.py, steps/window.py), which kernel writes over what it reads (plan/reuse.py).
"""

from __future__ import annotations

from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.steps.leave import around_changes, leave
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.steps.window import window, window_of
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort


def write_windows(nest: LoopNest, context: Context) -> LoopNest:
    """The loops of a store over the window outside of which it writes what is there; else the nest as it was."""
    if len(nest.graph.src) > 1 or len(nest.graph.src[0].src) > 2:
        return nest
    mask = around_changes(nest.graph.src[0], nest.facts)
    if mask is None:
        return nest
    changed, is_smaller = leave(nest, mask), False
    for number in [loop.arg[0] for loop in _loops(nest.graph)]:
        loop = next(x for x in _loops(changed.graph) if x.arg[0] == number)
        if window_of(changed.graph, loop, nest.facts) is not None:
            changed, is_smaller = window(changed, loop), True
    return changed if is_smaller else nest


def _loops(graph: UOp) -> list[UOp]:
    return sorted(
        [n for n in toposort((graph,)) if n.op is Ops.RANGE], key=lambda loop: loop.arg[0]
    )
