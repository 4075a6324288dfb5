"""Sums beside the maximum of their own loop end where masks hide all that is behind.

    sum[o < m](e(b(o), max[o < m](b(o))) * p(o))  =  sum[o < n](e(b(o), max[o < n](b(o))) * p(o))      if b(o) = -inf where not o < n

    e(x, m) = exp2((x - m) * c), c > 0        a block of rows r < 2, blocks of keys o < 4, key <= row, blocks of 2 rows and of 1 key

                                              r = 0: b(0), b(1), -inf, -inf      n = 2
                                              r = 1: b(0), b(1), b(2), b(3)      n = 4

The end is a term of loops around, as of blocks of rows. A score is hidden where a mask says so, for all rows of the block and all keys of
the other; what is kept of scores is hidden where all of it is. A power of -inf is 0, and 0 times anything is 0: a law of the reals.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from math import inf
from typing import Any

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
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.sums import add, interval, scale


@step(
    "sum[o < m](e(b(o), max[o < m](b(o))) * p(o)) = sum[o < n](e(b(o), max[o < n](b(o))) * p(o)), of reals, if b(o) = -inf"
    " where not o < n"
)
def end_before_hidden(nest: LoopNest, loop: UOp, around: tuple[UOp, ...]) -> UOp:
    """The loop of sums beside their maximum to where masks hide what is left, for each iteration of loops around."""
    require(is_asked_for(), "a law of the reals, which FASTMATH does not name")
    require_fixed([loop, *around])
    end = end_by_hiding(nest.graph, loop, around, nest.facts)
    if end is None:
        raise StepRefused(f"no mask that hides blocks behind an end: r{loop.arg[0]}")
    shorter = UOp.range(end, *loop.arg)
    return exchanged(nest.graph, {loop: shorter}, [shorter], None, True)


def end_by_hiding(graph: UOp, loop: UOp, around: tuple[UOp, ...], facts: Facts) -> UOp | None:
    """Where the loop of sums beside maxima may end, as a term of loops around; None: it runs to its end, or has other sums."""
    nodes = toposort((graph,))
    bound = {own for n in nodes if n.op in BINDERS for own in n.src[1:]}
    sums = [n for n in nodes if n.op in BINDERS and loop in n.src[1:]]
    maxima = [n for n in sums if n.arg is Ops.MAX]
    are_beside = {own_maximum(n) for n in sums if n not in maxima} == set(maxima)
    if not sums or not are_beside or not bound.isdisjoint(around):
        return None
    found = [_end_of(maximum, around, facts) for maximum in maxima]
    ends = [one for one in found if one is not None]
    if len(ends) < len(maxima):
        return None
    end: UOp = inside_of_loop(reduce(UOp.maximum, ends), size_of(loop))
    return end if all([loops_of(end) <= loops_of(n) for n in sums]) else None


def _end_of(maximum: UOp, around: tuple[UOp, ...], facts: Facts) -> UOp | None:
    """Where all that a maximum takes in is hidden, the earliest such iteration."""
    value, loop = maximum.src
    ends = [end for end in _hidden_from(value, loop, around, facts) if loops_of(end)]
    return reduce(UOp.minimum, ends) if ends else None


def inside_of_loop(end: Any, size: Any) -> Any:
    """An end that is one of the loop, and not before its first iteration: what runs ahead of it is there."""
    return end.maximum(1).minimum(size)


def _hidden_from(value: UOp, loop: UOp, around: tuple[UOp, ...], facts: Facts) -> Iterator[UOp]:
    """Iterations from which on a value is -inf, whatever the loops are that are not around."""
    match value.op:
        case Ops.REDUCE if value.arg is Ops.MAX:
            yield from _hidden_from(value.src[0], loop, around, facts)
        case Ops.LOAD if len(value.src[0].src) == 2:
            memory = value.src[0].src[0]
            if memory.op is Ops.LOCAL_BUFFER:
                yield from _hidden_from(memory.src[0], loop, around, facts)
        case Ops.WHERE:
            for truth in (True, False):
                shown, hidden = value.src[1:] if truth else value.src[:0:-1]
                if hidden.op is Ops.CONST and hidden.arg == -inf:
                    for comparison, holds in needed(value.src[0], truth):
                        if (end := _end_by(comparison, holds, loop, around, facts)) is not None:
                            yield end
                    yield from _hidden_from(shown, loop, around, facts)


def _end_by(
    comparison: UOp, holds: bool, loop: UOp, around: tuple[UOp, ...], facts: Facts
) -> UOp | None:
    """From which iteration on a comparison, or what is not one, never holds."""
    low, high = comparison.src if holds else comparison.src[::-1]  # low < high, or low <= high
    if low.dtype is not dtypes.index:
        return None
    forms = facts.forms
    first, second = forms.read(low), forms.read(high)
    if first is None or second is None:
        return None
    terms, constant = add(first, scale(second, -1))
    times = terms.get(forms.wrapped(loop), 0)
    own = {atom: loops_of(forms.written(({atom: 1}, 0))) for atom in terms}
    if times < 1 or any([loop in own[atom] for atom in terms if atom is not forms.wrapped(loop)]):
        return None
    kept = {atom: k for atom, k in terms.items() if own[atom] and own[atom] <= set(around)}
    rest = {atom: k for atom, k in terms.items() if atom not in kept and loop not in own[atom]}
    least, _ = interval((rest, constant))
    if least is None:
        return None
    most = forms.written(scale((kept, 0), -1))  # times * loop + least is below it, or is it
    end: UOp = quotient_up(end_of_mask(most, least, not holds), times)
    return end


def end_of_mask(most: Any, least: Any, takes_end: Any) -> Any:
    """The n of i * times + rest < n, where i * times + least + rest < most, or <= with `takes_end`."""
    return most - least + (1 if takes_end else 0)
