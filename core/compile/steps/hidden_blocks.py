"""Sums beside the maximum of their own loop end where masks hide all that is behind, and begin behind what they hide before.

    sum[o < m](e(b(o), max[o < m](b(o))) * p(o))  =  sum[o < n](e(b(o), max[o < n](b(o))) * p(o))      if b(o) = -inf where not o < n
                                                  =  sum[j < n - f](... (f + j) ...)                   if also where o < f

    e(x, m) = exp2((x - m) * c), c > 0        a block of rows r < 2, blocks of keys o < 4, key <= row, blocks of 2 rows and of 1 key

                                              r = 0: b(0), b(1), -inf, -inf      n = 2
                                              r = 1: b(0), b(1), b(2), b(3)      n = 4

Ends are terms of loops around, as of blocks of rows. A score is hidden where a mask says so, for all rows of the block and all keys of
the other, or where -inf is added to it; what is kept of scores is hidden where all of it is. A power of -inf is 0, 0 times anything is 0,
and -inf plus anything is -inf: laws of the reals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from math import inf
from typing import Any, NamedTuple, TypeAlias

from proofgrad.core.compile.nests.loops import BINDERS, size_of
from proofgrad.core.compile.nests.strides import loops_of
from proofgrad.core.compile.nests.weighted_sums import own_maximum
from proofgrad.core.compile.steps.bijection import exchanged
from proofgrad.core.compile.steps.extend import quotient_up
from proofgrad.core.compile.steps.loop_nest import (
    LoopNest,
    StepRefused,
    require,
    require_fixed,
    step,
)
from proofgrad.core.compile.steps.prefixes import needed
from proofgrad.core.compile.steps.rescale_blocks import is_asked_for
from proofgrad.core.compile.steps.window import window_law
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.sums import Sum, add, interval, scale


@step(
    "sum[o < m](e(b(o), max[o < m](b(o))) * p(o)) = sum[o < n](e(b(o), max[o < n](b(o))) * p(o)), of reals, if b(o) = -inf"
    " where not o < n"
)
def end_before_hidden(nest: LoopNest, loop: UOp, around: tuple[UOp, ...]) -> UOp:
    """The loop of sums beside their maximum to where masks hide what is left, for each iteration of loops around.

        for r < 2, o < 4: b(o) = -inf where o > 2 * r + 1     ->     for r < 2, o < 2 * r + 2

    One iteration is left at least.
    """
    require(is_asked_for(), "a law of the reals, which FASTMATH does not name")
    require_fixed([loop, *around])
    end = end_by_hiding(nest.graph, loop, around, nest.facts)
    if end is None:
        raise StepRefused(f"no mask that hides blocks behind an end: r{loop.arg[0]}")
    shorter = UOp.range(end, *loop.arg)
    return exchanged(nest.graph, {loop: shorter}, [shorter], None, True)


@step(
    "sum[o < n](e(b(o), max[o < n](b(o))) * p(o)) = sum[j < n - f](e(b(f + j), max[j < n - f](b(f + j))) * p(f + j)), of reals,"
    " if b(o) = -inf where o < f"
)
def begin_after_hidden(nest: LoopNest, loop: UOp, around: tuple[UOp, ...]) -> UOp:
    """The loop of sums beside their maximum from where masks hide nothing on, for each iteration of loops around.

        for r < 2, o < 4: b(o) = -inf where o < 2 * r         ->     for r < 2, j < 4 - 2 * r, o = 2 * r + j

    One iteration is left at least.
    """
    require(is_asked_for(), "a law of the reals, which FASTMATH does not name")
    require(loop.op is Ops.RANGE, "no loop", loop)
    require_fixed([*around])
    first = begin_by_hiding(nest.graph, loop, around, nest.facts)
    if first is None:
        raise StepRefused(f"no mask that hides blocks before a first one: r{loop.arg[0]}")
    size = loop.src[0]
    shorter = UOp.range(size - first, *loop.arg)
    (place,) = window_law().new(shorter, size - first, size, first)
    return exchanged(nest.graph, {loop: place}, [shorter], None, True)


def end_by_hiding(graph: UOp, loop: UOp, around: tuple[UOp, ...], facts: Facts) -> UOp | None:
    """Where the loop of sums beside maxima may end, as a term of loops around; None: it runs to its end, or has other sums."""
    ends = _bounds(graph, loop, around, facts, _end_by, UOp.minimum)
    if not ends:
        return None
    end: UOp = inside_of_loop(reduce(UOp.maximum, ends), size_of(loop))
    return end if _changes_with_sums(end, graph, loop) else None


def begin_by_hiding(graph: UOp, loop: UOp, around: tuple[UOp, ...], facts: Facts) -> UOp | None:
    """The same of where it may begin."""
    firsts = _bounds(graph, loop, around, facts, _begin_by, UOp.maximum)
    if not firsts:
        return None
    first: UOp = before_the_end(reduce(UOp.minimum, firsts), loop.src[0])
    return first if _changes_with_sums(first, graph, loop) else None


def _changes_with_sums(bound: UOp, graph: UOp, loop: UOp) -> bool:
    """Whether all sums over a loop run in the loops that a bound of it changes with."""
    return all([loops_of(bound) <= loops_of(n) for n in _sums_over(graph, loop)])


def _sums_over(graph: UOp, loop: UOp) -> list[UOp]:
    return [n for n in toposort((graph,)) if n.op in BINDERS and loop in n.src[1:]]


# Where a comparison, or what is not one, begins or ceases to hold along a loop.
_BoundBy: TypeAlias = Callable[[UOp, bool, UOp, tuple[UOp, ...], Facts], UOp | None]


def _bounds(
    graph: UOp,
    loop: UOp,
    around: tuple[UOp, ...],
    facts: Facts,
    by: _BoundBy,
    nearest: Callable[[UOp, UOp], UOp],
) -> list[UOp]:
    """Of each maximum over the loop, where what it takes in begins or ceases to be hidden; none if one is not, or other sums are over it."""
    bound = {own for n in toposort((graph,)) if n.op in BINDERS for own in n.src[1:]}
    sums = _sums_over(graph, loop)
    maxima = [n for n in sums if n.arg is Ops.MAX]
    are_beside = {own_maximum(n) for n in sums if n not in maxima} == set(maxima)
    if not sums or not are_beside or not bound.isdisjoint(around):
        return []
    found = [
        [x for x in _bounds_of(maximum.src[0], loop, around, facts, by) if loops_of(x)]
        for maximum in maxima
    ]
    return [reduce(nearest, bounds) for bounds in found] if all(found) else []


def inside_of_loop(end: Any, size: Any) -> Any:
    """An end that is one of the loop, and not before its first iteration: what runs ahead of it is there."""
    return end.maximum(1).minimum(size)


def before_the_end(first: Any, size: Any) -> Any:
    """A first iteration that is one of the loop."""
    return first.minimum(size - 1).maximum(0)


def _bounds_of(
    value: UOp, loop: UOp, around: tuple[UOp, ...], facts: Facts, by: _BoundBy
) -> Iterator[UOp]:
    """Iterations from which on, or before which, a value is -inf, whatever the loops are that are not around."""
    match value.op:
        case Ops.REDUCE if value.arg is Ops.MAX:
            yield from _bounds_of(value.src[0], loop, around, facts, by)
        case Ops.LOAD if len(value.src[0].src) == 2:
            memory = value.src[0].src[0]
            if memory.op is Ops.LOCAL_BUFFER:
                yield from _bounds_of(memory.src[0], loop, around, facts, by)
        case Ops.CAST if value.src[0].dtype.is_float:
            yield from _bounds_of(value.src[0], loop, around, facts, by)
        case Ops.ADD | Ops.MULACC:
            for source in value.src if value.op is Ops.ADD else value.src[2:]:
                yield from _bounds_of(source, loop, around, facts, by)
        case Ops.WHERE:
            for truth in (True, False):
                shown, hidden = value.src[1:] if truth else value.src[:0:-1]
                if hidden.op is Ops.CONST and hidden.arg == -inf:
                    for comparison, holds in needed(value.src[0], truth):
                        if (bound := by(comparison, holds, loop, around, facts)) is not None:
                            yield bound
                    yield from _bounds_of(shown, loop, around, facts, by)


def _end_by(
    comparison: UOp, holds: bool, loop: UOp, around: tuple[UOp, ...], facts: Facts
) -> UOp | None:
    """From which iteration on a comparison, or what is not one, never holds."""
    form = _form_along(comparison, holds, loop, around, facts)
    if form is None or form.times < 1:
        return None
    most = facts.forms.written(scale(form.kept, -1))
    end: UOp = quotient_up(end_of_mask(most, form.least, not holds), form.times)
    return end


def _begin_by(
    comparison: UOp, holds: bool, loop: UOp, around: tuple[UOp, ...], facts: Facts
) -> UOp | None:
    """Before which iteration it never holds."""
    form = _form_along(comparison, holds, loop, around, facts)
    if form is None or form.times > -1:
        return None
    kept = facts.forms.written(form.kept)
    first: UOp = quotient_up(begin_of_mask(kept, form.least, not holds), -form.times)
    return first


class _Form(NamedTuple):
    """A comparison as loop * times + kept + rest < 0, or <=: `kept` changes with loops around, `rest` is never below `least`."""

    times: int
    kept: Sum
    least: int


def _form_along(
    comparison: UOp, holds: bool, loop: UOp, around: tuple[UOp, ...], facts: Facts
) -> _Form | None:
    """The form of a comparison, or of what it is not, along a loop; None: it has none."""
    low, high = comparison.src if holds else comparison.src[::-1]  # low < high, or low <= high
    if low.dtype is not dtypes.index:
        return None
    forms = facts.forms
    first, second = forms.read(low), forms.read(high)
    if first is None or second is None:
        return None
    terms, constant = add(first, scale(second, -1))
    own = {atom: loops_of(forms.written(({atom: 1}, 0))) for atom in terms}
    if any([loop in own[atom] for atom in terms if atom is not forms.wrapped(loop)]):
        return None
    kept = {atom: k for atom, k in terms.items() if own[atom] and own[atom] <= set(around)}
    rest = {atom: k for atom, k in terms.items() if atom not in kept and loop not in own[atom]}
    least, _ = interval((rest, constant))
    times = terms.get(forms.wrapped(loop), 0)
    return None if least is None else _Form(times, (kept, 0), least)


def end_of_mask(most: Any, least: Any, takes_end: Any) -> Any:
    """The n of i * times + rest < n, where i * times + least + rest < most, or <= with `takes_end`."""
    return most - least + (1 if takes_end else 0)


def begin_of_mask(kept: Any, least: Any, takes_end: Any) -> Any:
    """The n of n <= i * times, where kept + least + rest < i * times, or <= with `takes_end`."""
    return kept + least + (0 if takes_end else 1)
