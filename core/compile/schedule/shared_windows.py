"""What copies of an iteration have in common of the windows that they reduce.

    out[y, x] = sum[u, v](image[y + u, x + v] * filter[u, v])

The windows of neighbouring rows y overlap. Where copies of rows run side by side, and what they add up is written out, an element that
several of them read is loaded once. So a short reduction is written out; of a longer one the loop along which windows of copies overlap, here u: for
each v 8 rows of 7 x 7 windows load 14 vectors of the image and 7 elements of the filter for their 56 products.

Owns: how much copies load, the loop that is written out beside them. Does not own: of which loop there are copies, and how many (copies.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from proofgrad.core.compile.nests.loops import is_fixed, size_of, unshared_reductions
from proofgrad.core.compile.nests.strides import coefficient
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort

# Terms of all copies together: more are long to compile, and share hardly more.
MOST_TERMS = 80


def loads_of(reduction: UOp) -> list[UOp]:
    """What is loaded to be reduced."""
    return [n for n in toposort((reduction.src[0],)) if n.op is Ops.LOAD]


def elements_of_copies(load: UOp, written: Sequence[UOp], loop: UOp, count: int) -> int:
    """How many elements so many iterations of a loop load, beside each other and all iterations of `written`."""
    index, found = load.src[0].src[1], {0}
    loops = [*[(x, size_of(x)) for x in written], (loop, count)]
    for counter, size in loops:
        step = coefficient(index, counter)
        if step is None:
            return prod([size for _, size in loops])
        found = {element + step * k for element in found for k in range(size)}
    return len(found)


def window_loop(reduction: UOp, loop: UOp, at_most: int) -> UOp | None:
    """The loop of a reduction along which the windows of neighbouring iterations of `loop` overlap, if it is no longer than `at_most`."""
    own = [x for x in reduction.src[1:] if x.arg[1] is AxisRole.REDUCE and is_fixed(x)]
    loads = loads_of(reduction)
    for own_loop in own if len(reduction.src) > 2 else ():
        size = size_of(own_loop)
        if 1 < size <= at_most and any([_overlap(n, (own_loop,), loop) for n in loads]):
            return own_loop
    return None


def written_beside(reduction: UOp, loop: UOp, at_most: int, is_short: bool) -> tuple[UOp, ...]:
    """The loops of a reduction that are written out where copies of `loop` run side by side: all of one that is short."""
    if is_short:
        return tuple(reduction.src[1:])
    window = window_loop(reduction, loop, at_most)
    return () if window is None else (window,)


def overlaps(reduction: UOp, written: Sequence[UOp], loop: UOp) -> bool:
    """Whether two iterations of a loop load an element of a window both."""
    return any([_overlap(n, written, loop) for n in loads_of(reduction)])


def _overlap(load: UOp, written: Sequence[UOp], loop: UOp) -> bool:
    if not coefficient(load.src[0].src[1], loop):
        return False
    # Not of the terms: a value that changes along no loop of the window is read for all of them by one iteration alone.
    of_one = elements_of_copies(load, written, loop, 1)
    return elements_of_copies(load, written, loop, 2) < 2 * of_one


def windows_beside_copies(kernel: UOp, loop: UOp, at_most: int) -> dict[UOp, tuple[UOp, ...]]:
    """The loops of reductions that are written out, and overlap, where copies of `loop` run side by side."""
    groups = [set(group) for group in unshared_reductions(kernel)]
    sums = [n for n in toposort((kernel,)) if n.op is Ops.REDUCE and set(n.src[1:]) in groups]
    found = {}
    for reduction in sums:
        is_short = prod([size_of(x) for x in reduction.src[1:]]) <= at_most
        written = written_beside(reduction, loop, at_most, is_short)
        if overlaps(reduction, written, loop):
            found[reduction] = written
    return found
