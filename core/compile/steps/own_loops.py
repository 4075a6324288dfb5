"""Loops of reductions, and of what is kept, that several stores share get numbers of their own in each store.

    out[0] = sum[i](f(i)); out[1] = sum[i](g(i))   =   out[0] = sum[i](f(i)); out[1] = sum[j](g(j))

    i: 0        1                                      i: 0 1    j: 0 1
       f0 g0    f1 g1                                     f0 f1     g0 g1

The number of a loop that something runs itself is a name alone. Reductions over one loop run in one loop of the program; of other
names each has its own, and so its registers to itself.
"""

from __future__ import annotations

from proofgrad.core.compile.nests.loops import BINDERS, fresh_number
from proofgrad.core.compile.nests.strides import loops_of
from proofgrad.core.compile.steps.loop_nest import LoopNest, require, step
from proofgrad.core.ir.uop import UOp, toposort


@step("sum[i](f(i)) = sum[j](f(j)), in each of several stores")
def own_loops(nest: LoopNest, shared: tuple[UOp, ...] = ()) -> UOp:
    """Each store but the first has loops of its own, but for those that are `shared`."""
    first, *others = nest.graph.src
    require(bool(others), "one store alone")
    number, stores = fresh_number(nest.graph), [first]
    for store in others:
        own = {x: None for n in toposort((store,)) if n.op in BINDERS for x in n.src[1:]}
        require(own.keys().isdisjoint(loops_of(store)), "loops of results, too", *own)
        renamed = [loop for loop in own if loop not in shared]
        names = {
            loop: loop.replace(arg=(number + k, loop.arg[1])) for k, loop in enumerate(renamed)
        }
        stores.append(store.substitute(names))
        number += len(renamed)
    return UOp.sink(*stores)
