"""A loop counts down.

    for i < n: f(i)   =   for i < n: f(n - 1 - i)

    i:         0 1 2 3
    n - 1 - i: 3 2 1 0

No two iterations of output loops write one position, and the order of a reduction is not specified.
"""

from __future__ import annotations

from proofgrad.core.compile.nests.loops import size_of
from proofgrad.core.compile.steps.bijection import Bijection, NewLoop, reindex
from proofgrad.core.compile.steps.loop_nest import LoopNest, require_fixed, step
from proofgrad.core.ir.uop import UOp

BACKWARDS = Bijection(
    parameters=("n",),
    before=lambda n: (n,),
    after=lambda n: (n,),
    old=lambda i, n: (n - 1 - i,),
    new=lambda i, n: (n - 1 - i,),
)


@step("for i < n: f(i) = for i < n: f(n - 1 - i)")
def reverse(nest: LoopNest, loop: UOp) -> UOp:
    """The loop, of the output or of a reduction, from its last iteration to its first."""
    require_fixed([loop])
    return reindex(nest, BACKWARDS, (size_of(loop),), (loop,), (NewLoop(*loop.arg),))
