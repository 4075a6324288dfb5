"""A loop runs inside of the loops that it stood around, or around those that it stood in.

    for a < m: for b < n: f(a, b)   =   for b < n: for a < m: f(a, b)

    a: 0     1             b: 0   1   2
    b: 0 1 2 0 1 2         a: 0 1 0 1 0 1

Output loops and those of a reduction are in the order of their numbers; so a loop that gets another number runs elsewhere.
No two iterations of output loops write one position, and the order of a reduction is not specified.
"""

from __future__ import annotations

from proofgrad.core.compile.nests.loops import size_of
from proofgrad.core.compile.nests.strides import loops_of
from proofgrad.core.compile.steps.bijection import Bijection, NewLoop, reindex
from proofgrad.core.compile.steps.loop_nest import LoopNest, require, require_fixed, step
from proofgrad.core.ir.uop import UOp

RENUMBER = Bijection(
    parameters=("n",),
    before=lambda n: (n,),
    after=lambda n: (n,),
    old=lambda i, n: (i,),
    new=lambda i, n: (i,),
    in_order=True,
)


@step("for a < m, b < n: f(a, b) = for b < n, a < m: f(a, b)")
def reorder(nest: LoopNest, loop: UOp, number: int) -> UOp:
    """The output loop with another number."""
    require_fixed([loop])
    require(loop in loops_of(nest.graph), "no output loop", loop)
    return reindex(nest, RENUMBER, (size_of(loop),), (loop,), (NewLoop(number, loop.arg[1]),))
