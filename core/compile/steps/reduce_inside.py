"""Some loops of a reduction become a reduction of their own inside of it.

    reduce[a, b](v(a, b))   =   reduce[a](reduce[b](v(a, b)))

    a: 0 0 0 1 1 1          a: 0             1
    b: 0 1 2 0 1 2          b: 0 1 2         0 1 2
                               (v0 + v1 + v2) + (v3 + v4 + v5)

for any operation `+` of a reduction, whose order is not specified. What is inside can be kept, each part of it by another item.
"""

from __future__ import annotations

from proofgrad.core.compile.steps.loop_nest import LoopNest, require, require_in, step
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp


@step("reduce[a, b](v(a, b)) = reduce[a](reduce[b](v(a, b)))")
def reduce_inside(nest: LoopNest, reduction: UOp, inner: tuple[UOp, ...]) -> UOp:
    """The reduction over its other loops, of what it is over the loops `inner`."""
    require_in(nest.graph, reduction)
    require(reduction.op is Ops.REDUCE, "no reduction", reduction)
    value, *loops = reduction.src
    require(0 < len(inner) == len(set(inner)), "no loops, or one twice", *inner)
    require(set(inner) < set(loops), "not some of the loops of the reduction", *inner)
    outer = [loop for loop in loops if loop not in inner]
    part = UOp(Ops.REDUCE, reduction.dtype, (value, *inner), reduction.arg)
    whole = UOp(Ops.REDUCE, reduction.dtype, (part, *outer), reduction.arg)
    return nest.graph.substitute({reduction: whole})
