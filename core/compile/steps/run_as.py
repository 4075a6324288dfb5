"""A loop runs another way: in threads, as lanes of vectors, written out.

    for i < n: f(i)   =   for i < n, at once: f(i)

    i: 0 1 2 3             i: 0 2   (one worker)
                              1 3   (the other)

No two iterations of an output loop write one position, and none reads what another writes; the order of a reduction is not
specified. So the iterations may run in any order, and at once. Loops that run in order, whose STORE reads
what an earlier iteration left, stay as they are. Which roles go together, running.py says.
"""

from __future__ import annotations

from proofgrad.core.compile.steps.loop_nest import (
    LoopNest,
    require,
    require_fixed,
    require_in,
    step,
)
from proofgrad.core.ir.uop import AxisRole, UOp


@step("for i < n: f(i) = for i < n, at once: f(i)")
def run_as(nest: LoopNest, changes: dict[UOp, AxisRole]) -> UOp:
    """Each loop with the role that `changes` has for it."""
    in_order = {loop for store in nest.graph.src for loop in store.src[2:]}
    require_fixed(changes)
    require_in(nest.graph, *changes)
    require(in_order.isdisjoint(changes), "a loop that runs in order", *changes)
    made = {loop: loop.replace(arg=(loop.arg[0], role)) for loop, role in changes.items()}
    return nest.graph.substitute(made)
