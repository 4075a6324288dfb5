"""The numbers of loops that something runs itself: those that several stores share get others in each store, and reductions that differ in
them alone become one.

    g(sum[i](f(i)), sum[j](f(j)))   =   g(s, s) where s = sum[i](f(i))

    i: 0  1     j: 0  1         i: 0  1
       f0 f1       f0 f1           f0 f1

The number of a loop that something runs itself is a name alone. Reductions over one loop run in one loop of the program; of other
names each has its own, and so its registers to itself.
"""

from __future__ import annotations

from proofgrad.core.compile.nests.loops import BINDERS, fresh_number
from proofgrad.core.compile.nests.strides import loops_of
from proofgrad.core.compile.steps.local_buffer import same_function
from proofgrad.core.compile.steps.loop_nest import LoopNest, require, require_in, step
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort


@step("sum[i](f(i)) = sum[j](f(j)), in each of several stores")
def own_loops(nest: LoopNest, shared: tuple[UOp, ...] = ()) -> UOp:
    """Each store but the first has loops of its own, but for those that are `shared`.

    Then each loop of a reduction becomes one of the program:

        out[0] = sum[i](f(i)); out[1] = sum[i](g(i))   =   out[0] = sum[i](f(i)); out[1] = sum[j](g(j))

        i: 0        1                                      i: 0 1    j: 0 1
           f0 g0    f1 g1                                     f0 f1     g0 g1
    """
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


@step("sum[j](f(j)) = sum[i](f(i)), if that is there")
def one_reduction(nest: LoopNest, node: UOp, same: UOp) -> UOp:
    """A reduction that combines what another one does, in loops of other numbers, is that one."""
    for reduction in (node, same):
        require_in(nest.graph, reduction)
        require(reduction.op is Ops.REDUCE, "no reduction", reduction)
    require(is_alike(node, same), "it combines something else", node, same)
    return nest.graph.substitute({node: same})


def is_alike(node: UOp, same: UOp) -> bool:
    """Whether two reductions are the same function of their loops, combined in the same way."""
    how = node.arg, node.dtype, [loop.arg[1] for loop in node.src[1:]]
    return how == (same.arg, same.dtype, [loop.arg[1] for loop in same.src[1:]]) and same_function(
        (node.src[0], node.src[1:]), (same.src[0], same.src[1:])
    )
