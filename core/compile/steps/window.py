"""A loop that masks leave only a window of runs over the window, wherever that begins.

    for i < n: if first <= i < first + w: f(i)   =   for j < w: f(first + j)        0 <= first, first + w <= n

    n = 7, w = 3, first = 2:   i: - - 2 3 4 - -         j: 0 1 2

The window has a known size. It begins at a number, or at one that variables say: one kernel serves all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from proofgrad.core.compile.nests.loops import size_of
from proofgrad.core.compile.nests.strides import coefficient
from proofgrad.core.compile.steps.bijection import Bijection, exchanged
from proofgrad.core.compile.steps.bounds import lies_between
from proofgrad.core.compile.steps.extend import masks_around
from proofgrad.core.compile.steps.loop_nest import LoopNest, StepRefused, require_fixed, step
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import sizes
from proofgrad.core.ir.uop import AxisRole, UOp
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.masks import parts_of


class Window(NamedTuple):
    """The iterations of a loop from `first` on, so many of them."""

    first: UOp
    size: int


@cache
def window_law() -> Bijection:
    """j < w as those of i < n that are in the window; read from right to left."""
    return Bijection(
        parameters=("w", "n", "first"),
        before=lambda w, n, first: (w,),
        after=lambda w, n, first: (n,),
        old=lambda i, w, n, first: (i - first,),
        new=lambda j, w, n, first: (first + j,),
        inside=lambda i, w, n, first: ~(i < first) & (i < first + w),
        least=0,
        given=lambda w, n, first: first + w <= n,
    )


@step("for i < n: f(i) = for j < w: f(a + j), if f(i) is masked where not a <= i < a + w")
def window(nest: LoopNest, loop: UOp) -> UOp:
    """The loop over the window that masks leave of all that it stores, or that its reduction takes in."""
    require_fixed([loop])
    found = window_of(nest.graph, loop, nest.facts)
    if found is None:
        raise StepRefused(f"no window that masks leave of a loop: r{loop.arg[0]}")
    first, size = found
    counter = UOp.range(size, *loop.arg) if size != 1 else UOp.index(0)
    (place,) = window_law().new(counter, size, size_of(loop), first)
    return exchanged(nest.graph, {loop: place}, [counter], None, window_law().in_order)


def window_of(graph: UOp, loop: UOp, facts: Facts) -> Window | None:
    """The smallest window inside of the loop outside of which masks are off; None: there is none but all of it."""
    if loop.arg[1] not in (AxisRole.LOOP, AxisRole.REDUCE):
        return None  # the number of lanes, threads and copies is known
    windows = [set(_windows(masks, loop, facts)) for masks in masks_around(graph, loop)]
    common = set.intersection(*windows) if windows else set()
    inside = [one for one in common if lies_between(one.first, 0, size_of(loop) - one.size, facts)]
    return min(inside, key=lambda one: one.size, default=None)


def _windows(truths: list[UOp], loop: UOp, facts: Facts) -> Iterator[Window]:
    """Windows that begin and end where some of these truths are off before and behind, or the loop itself does."""
    firsts, ends = [UOp.index(0)], [UOp.index(size_of(loop))]
    for part in truths:
        first, end = ends_of(part, loop)
        firsts += [] if first is None else [first]
        ends += [] if end is None else [end]
    read, written = facts.forms.read, facts.forms.written
    for first in firsts:
        for end in ends:
            form, begin = read(end - first), read(first)
            if form is None or begin is None:
                continue
            size = written(form)
            if size.op is Ops.CONST and 0 < size.arg < size_of(loop):
                yield Window(written(begin), size.arg)


def ends_of(truth: UOp, loop: UOp) -> tuple[UOp | None, UOp | None]:
    """The first iteration of a loop where a comparison may hold, and the one behind the last; None: it says nothing.

    i + a < b ends at b - a, a - i < b begins behind a - b, and i + a == b does both around b - a.
    """
    if truth.op not in (Ops.CMPLT, Ops.CMPEQ):
        return None, None
    left, right = truth.src
    of_left, of_right = coefficient(left, loop), coefficient(right, loop)
    if of_left is None or of_right is None or abs(of_left - of_right) != 1:
        return None, None
    start = {loop: UOp.index(0)}
    one, other = left.substitute(start), right.substitute(start)
    if not all(map(sizes().is_size_or_number, (one, other))):  # else computed, or another loop's
        return None, None
    counts_up = of_left > of_right
    return bounds_by(truth.op is Ops.CMPEQ, counts_up, one, other)


def iterations_of(load: UOp, loop: UOp) -> tuple[int, int]:
    """The first iteration of a loop, and the one behind the last, outside of which the mask of a load is off for any values of other loops."""
    size = size_of(loop)
    first, last = 0, size
    for part in [part for mask in load.src[0].src[2:] for part in parts_of(mask)]:
        begin, end = ends_of(part, loop)
        if begin is not None and begin.vmin == begin.vmax:
            first = max(first, min(begin.vmin, size))
        if end is not None and end.vmin == end.vmax:
            last = min(last, max(end.vmin, 0))
    return first, max(first, last)


def bounds_by(
    is_equation: bool, counts_up: bool, one: Any, other: Any
) -> tuple[Any | None, Any | None]:
    """The first iteration and the one behind the last where i + one < other, or == other; if it counts down, one - i."""
    border = other - one if counts_up else one - other
    if is_equation:
        return border, border + 1
    return (None, border) if counts_up else (border + 1, None)
