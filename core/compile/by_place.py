"""Kernel -> Kernels: what is combined by place in memory goes to its places, source by source.

Owns: which reductions these are, whether it pays, the kernels. Does not own: the memory of a table (the
plan's, compiler.py), how loops in order run (accumulate.py, linearize.py).

    out[r, d] = sum[j](where(place[j] == r, value[j, d], 0))

lets every r look at every j. The same in two kernels: `out` is filled with 0; then, for j in order,
value[j, d] is added to out[place[j], d], where that is inside. It is the same bit by bit: a reduction
starts from its identity, which combined with anything leaves it as it is (a sum that started from 0.0
is never -0.0), and each place takes the values that are left in the same order. So for every operation
that a reduction may have. The gradient of `x[place]` and of an embedding, scatter_reduce and counts are of
this form. A reduction that is only a part of its kernel fills a table, which the kernel reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from proofgrad.core.compile.contraction import is_fixed, output_loops, size_of
from proofgrad.core.compile.linear_terms import loops_below, loops_of
from proofgrad.core.compile.merging import merge_loops
from proofgrad.core.compile.tables import filled, loaded, table_over
from proofgrad.core.compile.target import Target
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.evaluate import identity
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.gates import solution

# Steps of the one loop nest from which more kernels pay, and how many times fewer they must be after:
# comparing runs in vectors, a store to a computed place does not.
WORTH_STEPS = 1 << 18
WORTH_GAIN = 16
# On machines with work items the loop in order runs in one item for each of the other results, and waits for
# memory at each step: so many results have to be worth it.
WORTH_RESULTS_OF_ITEMS = 1 << 23


@dataclass(frozen=True, slots=True)
class ByPlace:
    """A reduction in which each value of its loops goes to one place of its results."""

    reduction: UOp
    loops: tuple[UOp, ...]  # that its results run over, in order of their numbers
    places: dict[UOp, UOp]  # those of them that the gate determines, and as what: inside the loop
    gate: UOp  # where the value goes anywhere
    value: UOp

    @property
    def results(self) -> int:
        return prod(size_of(loop) for loop in self.loops)

    def pays(self, target: Target) -> bool:
        """Whether filling and combining is much less than letting each result look at every value."""
        values = prod(size_of(loop) for loop in self.reduction.src[1:])
        others = prod(size_of(loop) for loop in self.loops if loop not in self.places)
        before, after = self.results * values, self.results + others * values
        if target.work_items and self.results < WORTH_RESULTS_OF_ITEMS:
            return False
        return before >= max(WORTH_STEPS, WORTH_GAIN * after)


def reduce_by_place(kernel: UOp, target: Target, bounds: Facts) -> UOp:
    """Combine values one by one at their places, where each place would look at all; the kernels, in order."""
    parts: list[UOp] = []
    while (found := _first(kernel, target, bounds)) is not None:
        store = kernel.src[0]
        if found.reduction is store.src[1] and set(found.loops) == set(output_loops(kernel)):
            return UOp.sink(*parts, *_kernels(found, *store.src[0].src))
        memory, position = table_over((kernel, *parts), found.reduction.dtype, found.loops)
        parts += _kernels(found, memory, position)
        kernel = kernel.substitute({found.reduction: loaded(memory, position)})
    return UOp.sink(*parts, merge_loops(kernel)) if parts else kernel


def _first(kernel: UOp, target: Target, bounds: Facts) -> ByPlace | None:
    """The first reduction of a kernel that is one by place, and pays."""
    free = loops_below(kernel)
    for node in toposort((kernel,)):
        if node.op is Ops.REDUCE and all(map(is_fixed, (*free[node], *node.src[1:]))):
            found = _by_place(node, free[node], bounds)
            if found is not None and found.pays(target):
                return found
    return None


def _by_place(reduction: UOp, free: frozenset[UOp], bounds: Facts) -> ByPlace | None:
    """What the gate of a reduction says of the loops of its results; None: of none of them."""
    term, inner = reduction.src[0], reduction.src[1:]
    neutral = identity(reduction.arg, reduction.dtype)
    gated = _gated(term, neutral)
    if gated is None or any(n.op is Ops.REDUCE for n in toposort((term,))):
        return None
    gate, value = gated
    loops = tuple(sorted(free, key=lambda loop: loop.arg[0]))
    places: dict[UOp, UOp] = {}
    for loop in loops:
        solved = solution("solve", gate, loop, bounds)
        if solved is None or loops_of(solved[0]).isdisjoint(inner):
            continue
        place, rest = solved[:2]
        term, offset = _without_offset(place)
        if not _fits(term, bounds):
            continue
        first, last = UOp.index(-offset), UOp.index(size_of(loop) - 1 - offset)
        here = {loop: _between(term, first, last) + offset}
        places = {x: at.substitute(here) for x, at in places.items()} | here
        gate = rest.substitute(here) & ~(term < first) & ~(last < term)
        value = value.substitute(here)
    return ByPlace(reduction, loops, places, gate, _behind(gate, value)) if places else None


def _gated(term: UOp, neutral: Any) -> tuple[UOp, UOp] | None:
    """The gate outside of which a term is `neutral`, and the term inside; loads lose their gates."""
    match term.op:
        case Ops.WHERE if term.src[2].op is Ops.CONST and term.src[2].arg == neutral:
            gate, value = term.src[:2]
            inside = _gated(value, neutral)
            return (gate, value) if inside is None else (gate & inside[0], inside[1])
        case Ops.LOAD if len(term.src[0].src) > 2 and neutral == 0:
            memory, index, gate = term.src[0].src
            return gate, term.with_src((term.src[0].with_src((memory, index)),))
        case Ops.CAST if neutral == 0 and term.src[0].dtype.is_bool:
            return term.src[0], UOp.const(term.dtype, 1)
        case Ops.CAST if neutral == 0:
            inside = _gated(term.src[0], 0)
            return None if inside is None else (inside[0], inside[1].cast(term.dtype))
    return None


def _behind(gate: UOp, value: UOp) -> UOp:
    """A load that lost its gate behind the new one, so that it stays inside of its buffer."""
    if value.op is Ops.CAST:
        return value.with_src((_behind(gate, value.src[0]),))
    if value.op is Ops.LOAD and len(value.src[0].src) == 2:
        return value.with_src((value.src[0].with_src((*value.src[0].src, gate)),))
    return value


def _without_offset(place: UOp) -> tuple[UOp, int]:
    """`place` as a term and a number: a term that fits an int64 may not fit it with the number added."""
    if place.op is Ops.ADD:
        for term, offset in (place.src, place.src[::-1]):
            if offset.op is Ops.CONST:
                return term, offset.arg
    return place, 0


def _fits(term: UOp, bounds: Facts) -> bool:
    """Whether a place can be asked for as it is, before it is brought into the axis."""
    low, high, widest = bounds.lo(term), bounds.hi(term), dtypes.int64
    assert widest.lo is not None and widest.hi is not None
    return low is not None and high is not None and widest.lo <= low and high <= widest.hi


def _between(term: UOp, first: UOp, last: UOp) -> UOp:
    """The term itself where it lies from `first` to `last`, else one of them."""
    below = UOp(Ops.MIN, dtypes.index, (term, last))
    return UOp(Ops.MAX, dtypes.index, (below, first))


def _kernels(found: ByPlace, memory: UOp, position: UOp) -> tuple[UOp, UOp]:
    """One that fills memory with what a reduction starts from, one that combines the values with it."""
    op, inner = found.reduction.arg, found.reduction.src[1:]
    order: list[UOp] = []  # the loops of the values stand where the first loop of places stood
    for loop in found.loops:
        if loop not in found.places:
            order.append(loop)
        elif inner[0] not in order:
            order += inner
    fresh = {
        loop: UOp.range(size_of(loop), k, AxisRole.REDUCE if loop in inner else AxisRole.LOOP)
        for k, loop in enumerate(order)
    }
    at, gate, value = [
        term.substitute(fresh)
        for term in (position.substitute(found.places), found.gate, found.value)
    ]
    place = UOp(Ops.INDEX, memory.dtype, (memory, at, gate))
    loops = [fresh[loop] for loop in inner]
    combine = UOp(Ops.STORE, dtypes.void, (place, value, *loops), op)
    return filled(memory, op), UOp.sink(combine)
