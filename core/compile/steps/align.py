"""A loop begins earlier, where a line of memory does.

    for i < n: f(i)   =   for j < n + k - 1: if s % k <= j < s % k + n: f(j - s % k)

    n = 5, k = 4, s = 6:    s + i:            6 7 8 9 10
                            s - s % k + j:    4 5 6 7  8 9 10 11
                                              - -           -

s is where a row of a memory begins, another number for each value of the other loops: then s + i is s - s % k + j, and every k
iterations of j are one line of k elements, in each of the rows. Loops of the results may run in any order, and what is masked is
not stored.
"""

from __future__ import annotations

from functools import cache

from proofgrad.core.compile.nests.loops import BINDERS, size_of
from proofgrad.core.compile.nests.strides import loops_of
from proofgrad.core.compile.steps.bijection import Bijection, NewLoop, exchanged, new_counters
from proofgrad.core.compile.steps.bounds import lies_between
from proofgrad.core.compile.steps.loop_nest import (
    LoopNest,
    require,
    require_fixed,
    require_in,
    step,
)
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort


@cache
def align_law() -> Bijection:
    """i < n as those of j < n + k - 1 from s % k on, so many of them."""
    return Bijection(
        parameters=("n", "k", "s"),
        before=lambda n, k, s: (n,),
        after=lambda n, k, s: (n + (k - 1),),
        old=lambda j, n, k, s: (j + s // k * k - s,),
        new=lambda i, n, k, s: (s % k + i,),
        inside=lambda j, n, k, s: ~(j < s % k) & (j < s % k + n),
        least=0,
        given=lambda n, k, s: 0 < k,
    )


@step("for i < n: f(i) = for j < n + k - 1 where s % k <= j < s % k + n: f(j - s % k)")
def align(nest: LoopNest, loop: UOp, start: UOp, length: int) -> UOp:
    """The loop of the results, so much earlier that it begins at a multiple of `length` behind `start`."""
    require_in(nest.graph, loop)
    require_fixed([loop])
    require(loop.arg[1] is AxisRole.LOOP, "no loop of the results", loop)
    require(length > 0, "lines of no elements", length)
    nodes, around = toposort((nest.graph,)), loops_of(start)
    is_term = start.dtype is dtypes.index and loop not in around
    require(is_term and not any([n.op is Ops.LOAD for n in toposort((start,))]), "no start", start)
    require(lies_between(start, 0, nest.facts.hi(start), nest.facts), "a start below 0", start)
    bound = {x for n in nodes if n.op in _BINDS for x in n.src[1:]}
    require(bound.isdisjoint((loop, *around)), "a loop that is not of the results alone", loop)
    stores = [loops_of(store) for store in nest.graph.src]
    others = [x for x in stores if loop in x and not around <= x]
    require(not others, "a store that does not change with the start", start)
    law, parameters = align_law(), (size_of(loop), length, start)
    counters = new_counters(nest.graph, law, parameters, (loop,), (NewLoop(*loop.arg),))
    assert law.inside is not None  # what it is for
    (value,), inside = law.old(*counters, *parameters), law.inside(*counters, *parameters)
    return exchanged(nest.graph, {loop: value}, counters, inside)


_BINDS = frozenset({*BINDERS, Ops.STORE, Ops.MMA})
