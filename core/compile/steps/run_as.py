"""A loop runs another way: in threads, as lanes of vectors, written out.

    for i < n: f(i)   =   for i < n, at once: f(i)

No two iterations of an output loop write one place, and none reads what another writes; the order of a reduction is not
specified. So the iterations may run in any order, and at once. Loops that run in order, whose STORE reads
what an earlier iteration left, stay as they are.
"""

from __future__ import annotations

from proofgrad.core.compile.linear_terms import loops_below
from proofgrad.core.compile.loops import BINDERS, is_fixed
from proofgrad.core.compile.steps.loop_nest import LoopNest, require, step
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort

# Roles that only output loops may have.
_OF_OUTPUTS = (AxisRole.THREAD, AxisRole.GLOBAL)


@step("for i < n: f(i) = for i < n, at once: f(i)")
def run_as(nest: LoopNest, changes: dict[UOp, AxisRole]) -> UOp:
    """Each loop with the role that `changes` has for it."""
    nodes = toposort((nest.graph,))
    in_order = {loop for store in nest.graph.src for loop in store.src[2:]}
    own = {loop for node in nodes if node.op in BINDERS for loop in node.src[1:]}
    made: dict[UOp, UOp] = {}
    for loop, role in changes.items():
        require(loop.op is Ops.RANGE and is_fixed(loop), "no loop of known size", loop)
        require(loop not in in_order, "a loop that runs in order", loop)
        require(role not in _OF_OUTPUTS or loop not in own, "a loop of a reduction", loop)
        made[loop] = loop.replace(arg=(loop.arg[0], role))
    changed = nest.graph.substitute(made)
    if AxisRole.VECTOR in changes.values():
        require_one_vector_each(changed)
    return changed


def require_one_vector_each(graph: UOp) -> None:
    """Raises: StepRefused where a value changes with, or sums over, two loops of lanes."""
    for node, free in loops_below(graph).items():
        around = free.union(node.src[1:]) if node.op in BINDERS else free
        lanes = [loop for loop in around if loop.arg[1] is AxisRole.VECTOR]
        require(len(lanes) < 2, "lanes of two loops at once", *lanes)
