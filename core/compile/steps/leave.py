"""What memory holds already is not written again.

    m[i] = f(i)   =   if g(i): m[i] = f(i)        where f(i) is m[i] if not g(i)

    m: 5 6 7 8     f: 5 1 2 8     g: 0 1 1 0      writes: - 1 2 -

As where a few elements of a memory are assigned, and all others keep their values. No two iterations write one position, so what an
iteration reads from its own position is what was there before all of them.
"""

from __future__ import annotations

from proofgrad.core.compile.nests.strides import loops_of
from proofgrad.core.compile.steps.bijection import masked
from proofgrad.core.compile.steps.loop_nest import LoopNest, require, step
from proofgrad.core.compile.steps.window import ends_of
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.masks import claims_of, conjunction_of, conjuncts, parts_of


@step("m[i] = f(i) is if g(i): m[i] = f(i), where f(i) = m[i] if not g(i)", makes_loops=False)
def leave(nest: LoopNest, mask: UOp) -> UOp:
    """Each store where the mask holds alone: elsewhere it writes what is there."""
    require(mask.dtype is dtypes.bool, "no truth", mask)
    stores = []
    for store in nest.graph.src:
        position, value, *in_order = store.src
        require(not in_order and store.arg is None, "a store that combines with what is there")
        is_left = is_there(value, position, mask, nest.facts)
        require(is_left, "a value that is not there where the mask is off", value)
        stores.append(store.with_src((masked(position, mask), value)))
    return nest.graph.with_src(tuple(stores))


def is_there(value: UOp, position: UOp, mask: UOp, facts: Facts) -> bool:
    """Whether a value is the one that memory holds at this position, wherever the mask is off."""
    while value.op is Ops.WHERE:
        condition, chosen, other = value.src
        if not implies(condition, mask, facts) and not is_there(chosen, position, mask, facts):
            return False
        value = other
    return value.op is Ops.LOAD and value.src == (position,)


def implies(condition: UOp, mask: UOp, facts: Facts) -> bool:
    """Whether each part of a mask is one of a condition, or says of sums of index terms what the condition says of them."""
    known, said = conjuncts(condition), claims_of(condition, facts.forms)
    for part in parts_of(mask):
        claims = claims_of(part, facts.forms)
        if not conjuncts(part) <= known and not (claims and claims <= said):
            return False
    return True


def around_changes(store: UOp, facts: Facts) -> UOp | None:
    """Comparisons with output loops outside of which a store writes what is there; None if there are none."""
    position, value = store.src[:2]
    if value.op is not Ops.WHERE:
        return None
    loops = [x for x in loops_of(store) if x.arg[1] is AxisRole.LOOP]
    found = [
        part
        for part in parts_of(value.src[0])
        if any([_is_bounded(loop, part) for loop in loops])
        and is_there(value, position, part, facts)
    ]
    return conjunction_of(found) if found else None


def _is_bounded(loop: UOp, truth: UOp) -> bool:
    """Whether a comparison ends a loop, once what other loops are is known."""
    others = {x: UOp.index(0) for x in loops_of(truth) if x is not loop}
    return ends_of(truth.substitute(others), loop) != (None, None)
