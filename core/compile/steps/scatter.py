"""What a mask of a reduction addresses among the results goes to its address, source by source.

    for r: out[r] = sum[j](where(p(j) == r, v(j), 0))
        =   for r: out[r] = 0;   for j, in order: if 0 <= p(j) < n: out[p(j)] += v(j)

    p: 2 0 2               r = 0:  -  v1  -        j = 0: out[2] += v0
                           r = 1:  -  -   -        j = 1: out[0] += v1
                           r = 2:  v0 -   v2       j = 2: out[2] += v2

Each address takes the values that are left in the same order, and a reduction starts from its identity, which combined with
anything leaves it as it is (a sum that started from 0.0 is never -0.0): the same bit by bit, for every operation that
a reduction may have. Other loops of the results stay around, and the values of j go to one address of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from proofgrad.core.compile.nests.loops import is_fixed, size_of
from proofgrad.core.compile.nests.strides import loops_below, loops_of
from proofgrad.core.compile.steps.bounds import fits
from proofgrad.core.compile.steps.loop_nest import LoopNest, fission, require
from proofgrad.core.compile.steps.tables import filled
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.evaluate import identity
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.masks import solution


@dataclass(frozen=True, slots=True)
class Placed:
    """A reduction in which each value of its loops goes to one address of its results."""

    reduction: UOp
    loops: tuple[UOp, ...]  # that its results run over, in order of their numbers
    addresses: dict[UOp, UOp]  # of the loops that the mask determines: as what, inside the loop
    mask: UOp  # where the value goes anywhere
    value: UOp


@fission(
    "out[r] = sum[j](where(p(j) == r, v(j), 0)) is out = 0; for j, in order: out[p(j)] += v(j)"
)
def scatter(nest: LoopNest) -> tuple[UOp, UOp]:
    """The graph that fills the results with what the reduction starts from, and the one that combines the values."""
    require(len(nest.graph.src) == 1 and len(nest.graph.src[0].src) == 2, "more than one store")
    address, reduction = nest.graph.src[0].src
    free = loops_below(nest.graph)
    found = placed(reduction, free[reduction], nest.facts) if reduction in free else None
    require(found is not None, "no reduction whose mask names an address", reduction)
    assert found is not None
    require(set(found.loops) == free[nest.graph], "results that not every loop tells apart")
    require(len(address.src) == 2, "a store that is masked")
    memory, position = address.src
    results = prod([size_of(loop) for loop in found.loops])
    require(results > 0, "no results, and so no address to bring one inside")
    require(results == memory.arg[1], "memory that is not all written", results, memory.arg[1])
    return filled(memory, reduction.arg), _combined(found, memory, position)


def _combined(found: Placed, memory: UOp, position: UOp) -> UOp:
    """The graph that combines each value with what is at its address."""
    op, inner = found.reduction.arg, found.reduction.src[1:]
    order: list[UOp] = []  # the loops of the values stand where the first loop of addresses stood
    for loop in found.loops:
        if loop not in found.addresses:
            order.append(loop)
        elif inner[0] not in order:
            order += inner
    fresh = {
        loop: UOp.range(size_of(loop), k, AxisRole.REDUCE if loop in inner else AxisRole.LOOP)
        for k, loop in enumerate(order)
    }
    at, mask, value = [
        term.substitute(fresh)
        for term in (position.substitute(found.addresses), found.mask, found.value)
    ]
    address = UOp(Ops.INDEX, memory.dtype, (memory, at, mask))
    loops = [fresh[loop] for loop in inner]
    return UOp.sink(UOp(Ops.STORE, dtypes.void, (address, value, *loops), op))


def placed(reduction: UOp, free: frozenset[UOp], facts: Facts) -> Placed | None:
    """What the mask of a reduction says of the loops of its results; None: of none of them."""
    if reduction.op is not Ops.REDUCE or not all(map(is_fixed, (*free, *reduction.src[1:]))):
        return None
    term, inner = reduction.src[0], reduction.src[1:]
    neutral = identity(reduction.arg, reduction.dtype)
    masked = _masked(term, neutral)
    if masked is None or any(n.op is Ops.REDUCE for n in toposort((term,))):
        return None
    mask, value = masked
    loops = tuple(sorted(free, key=lambda loop: loop.arg[0]))
    addresses: dict[UOp, UOp] = {}
    for loop in loops:
        solved = solution("solve", mask, loop, facts)
        if solved is None or loops_of(solved[0]).isdisjoint(inner):
            continue
        address, rest = solved[:2]
        term, offset = _without_offset(address)
        if not fits(term, dtypes.int64, facts):  # it is computed before it is brought inside
            continue
        first, last = UOp.index(-offset), UOp.index(size_of(loop) - 1 - offset)
        here = {loop: nearest_between(term, first, last) + offset}
        addresses = {x: at.substitute(here) for x, at in addresses.items()} | here
        mask = rest.substitute(here) & ~(term < first) & ~(last < term)
        value = value.substitute(here)
    return Placed(reduction, loops, addresses, mask, _behind(mask, value)) if addresses else None


def _masked(term: UOp, neutral: Any) -> tuple[UOp, UOp] | None:
    """The mask outside of which a term is `neutral`, and the term inside; loads lose their masks."""
    match term.op:
        case Ops.WHERE if term.src[2].op is Ops.CONST and term.src[2].arg == neutral:
            mask, value = term.src[:2]
            inside = _masked(value, neutral)
            return (mask, value) if inside is None else (mask & inside[0], inside[1])
        case Ops.LOAD if len(term.src[0].src) > 2 and neutral == 0:
            memory, index, mask = term.src[0].src
            return mask, term.with_src((term.src[0].with_src((memory, index)),))
        case Ops.CAST if neutral == 0 and term.src[0].dtype.is_bool:
            return term.src[0], UOp.const(term.dtype, 1)
        case Ops.CAST if neutral == 0:
            inside = _masked(term.src[0], 0)
            return None if inside is None else (inside[0], inside[1].cast(term.dtype))
    return None


def _behind(mask: UOp, value: UOp) -> UOp:
    """A load that lost its mask behind the new one, so that it stays inside of its buffer."""
    if value.op is Ops.CAST:
        return value.with_src((_behind(mask, value.src[0]),))
    if value.op is Ops.LOAD and len(value.src[0].src) == 2:
        return value.with_src((value.src[0].with_src((*value.src[0].src, mask)),))
    return value


def _without_offset(address: UOp) -> tuple[UOp, int]:
    """`address` as a term and a number: a term that fits an int64 may not fit it with the number added."""
    if address.op is Ops.ADD:
        for term, offset in (address.src, address.src[::-1]):
            if offset.op is Ops.CONST:
                return term, offset.arg
    return address, 0


def nearest_between(term: Any, first: Any, last: Any) -> Any:
    """The term itself where it lies from `first` to `last`, else one of them."""
    return term.minimum(last).maximum(first)
