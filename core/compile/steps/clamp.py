"""Loads under a mask read the nearest position inside, without asking.

    where(g, f(x[p]), 0) = where(g, f(x[p']), 0)   if p' = p where g holds

    where((-1 < i - k) & (i - k < n), x[i - k] * y, 0) = where(..., x[max(0, min(i - k, n - 1))] * y, 0)

    i - k:   -1  0  1  2  3      n = 3
    reads:    0  0  1  2  2
    counts:   -  +  +  +  -

Where the mask holds both read the same; elsewhere the product is not used. The position on the right is inside of its memory
whatever the loops are, which the facts show, and is known before the loops that it does not depend on: a mask would
be asked for each load in each step.
"""

from __future__ import annotations

from typing import Any

from proofgrad.core.compile.nests.strides import coefficient, loops_of
from proofgrad.core.compile.nests.sums_of_products import is_masked
from proofgrad.core.compile.steps.bounds import is_inside
from proofgrad.core.compile.steps.loop_nest import LoopNest, require, require_in, step
from proofgrad.core.ir.op_names import CONST
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.core.rewrite.masks import conjuncts, parts_of


@step(
    "where(g, x[p], 0) = where(g, x[max(low, min(p, high))], 0) if g implies low <= p <= high",
    makes_loops=False,
)
def read_inside(nest: LoopNest, reduction: UOp) -> UOp:
    """Loads of a masked sum without masks, where their positions can be brought inside."""
    graph, facts = nest.graph, nest.facts
    require_in(graph, reduction)
    require(reduction.op is Ops.REDUCE and is_masked(reduction.src[0]), "no masked sum", reduction)
    mask, product, _ = reduction.src[0].src
    inside, changes = _brought_inside(mask), {}
    for load in [n for n in toposort((product,)) if n.op is Ops.LOAD and len(n.src[0].src) > 2]:
        memory, index, own = load.src[0].src
        form = facts.forms.read(index.substitute(inside))
        if form is None or not conjuncts(own) <= conjuncts(mask):
            continue
        position = facts.forms.written(form)
        if is_inside(position, memory, facts):
            changes[load] = load.with_src((load.src[0].with_src((memory, position)),))
    if not changes:
        return graph
    brought = product.substitute(changes)
    term = reduction.src[0].with_src((mask, brought, reduction.src[0].src[2]))
    return graph.substitute({reduction: reduction.with_src((term, *reduction.src[1:]))})


def _brought_inside(mask: UOp) -> dict[UOp, UOp]:
    """For loops that a mask bounds, in terms with others: what they are where it holds, and elsewhere the nearest."""
    found: dict[UOp, UOp] = {}
    for term, (low, high) in _bounded(mask).items():
        for loop in sorted(loops_of(term), key=lambda loop: loop.arg[0]):
            if loop not in found and coefficient(term, loop) == 1:
                found[loop] = brought(loop, term, low, high)
                break
    return found


def brought(loop: Any, term: Any, low: Any, high: Any) -> Any:
    """`loop` where `term`, in which it stands once, lies from low to high; elsewhere what brings the term there."""
    nearest = term
    if high is not None:
        nearest = nearest.minimum(high)
    if low is not None:
        nearest = nearest.maximum(low)
    return nearest + (loop - term)


def _bounded(mask: UOp) -> dict[UOp, tuple[int | None, int | None]]:
    """The terms that a mask compares with numbers, and their least and largest values where it holds."""
    found: dict[UOp, tuple[int | None, int | None]] = {}
    for part in parts_of(mask):
        if part.op is not Ops.CMPLT:
            continue
        first, second = part.src
        if first.op is CONST:
            found[second] = (first.arg + 1, found.get(second, (None, None))[1])
        elif second.op is CONST:
            found[first] = (found.get(first, (None, None))[0], second.arg - 1)
    return found
