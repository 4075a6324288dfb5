"""Values that one kernel computes several times, for it reads them through several views.

Owns: which of them get a buffer. Does not own: the other limits on what one kernel computes (limits.py).

A view is the chain of moves between a value and what its kernel stores. A value is computed once for each, under the masks of that view:
where the states of a loop are joined, each state for itself and for all later ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import NamedTuple

from proofgrad.core.compile.fusion.work import (
    below_movement,
    cycles_of_reductions,
    cycles_of_work,
    pays_a_buffer,
)
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.ir.op_names import EXPAND, PAD, REDUCE_AXIS
from proofgrad.core.ir.ops import COMPARE, ELEMENTWISE, Ops
from proofgrad.core.ir.shapes import elements, is_plain
from proofgrad.core.ir.uop import UOp

# Views through which one kernel reads a value that it computes; it computes it for each of them.
MOST_VIEWS = 64
# Cycles of a vector that one kernel spends on computing a value for views beyond the first: its instructions are compiled.
MOST_CYCLES_AGAIN = 48
# Of views that show few elements together it spends so many times as much, for a buffer would have them all.
MOST_TIMES_OF_FEW = 8
# So many reductions over what one value computes run in loops that share it.
FEW_REDUCTIONS = 4
# So many elements that are exchanged with each other are written out in one iteration.
MOST_BESIDE = 16
# Of so many views no more are counted.
ENOUGH_VIEWS = 256
# Values in their places among others, of which one is made that is put into its place itself.
MOST_PLACED = 16
# Moves by which a value is read at other elements.
_ELSEWHERE = frozenset({Ops.PAD, Ops.SHRINK, Ops.SKEW, Ops.FLIP, Ops.PERMUTE})
# Those that show the same elements.
_SAME_ELEMENTS = frozenset(
    {Ops.RESHAPE, Ops.PERMUTE, Ops.FLIP, Ops.EXPAND, Ops.DETACH, Ops.BITCAST}
)
_COMPUTED = ELEMENTWISE | {Ops.PAD, Ops.SHRINK, Ops.REDUCE_AXIS}
_NONE: frozenset[UOp] = frozenset()


def joined_again(nodes: Sequence[UOp], stored: set[UOp]) -> set[UOp]:
    """What many values are joined in, and is then put into its place itself: a kernel of both would ask at each element for all of them."""
    added: set[UOp] = set()
    placed: dict[UOp, frozenset[UOp]] = {}
    for node in nodes:
        found = some_of([placed[source] for source in node.src])
        if node.op is PAD:
            source = _below_shape(node.src[0])
            if len(found) >= MOST_PLACED and source.op in ELEMENTWISE:
                added.add(source)
                found = placed[source] = _NONE
            found |= {node}
        placed[node] = _NONE if node in stored else found
    return added


def _below_shape(node: UOp) -> UOp:
    while node.op is Ops.RESHAPE or node.op is Ops.DETACH:
        node = node.src[0]
    return node


def some_of(sets: Sequence[frozenset[UOp]]) -> frozenset[UOp]:
    """Of all sets of PADs together, as many as matter."""
    if len(sets) == 1:
        return sets[0]
    found = max(sets, key=len, default=_NONE)
    return found if len(found) >= MOST_PLACED else found.union(*sets)


def computed_again(
    nodes: Sequence[UOp], consumers: Mapping[UOp, list[UOp]], stored: set[UOp], target: Target
) -> set[UOp]:
    """Values that take longer to be computed for each view than to be kept in memory, or that kernels would be too long with.

    As with kernels, a buffer is worth while where the views part. Reductions have loops of their own for what they read.
    """
    ends = set(stored)
    views: dict[UOp, frozenset[_View]] = {}
    known: dict[tuple[UOp, _View], _View] = {}
    for node in reversed(nodes):
        parts = [_views_by(user, node, views, known) for user in consumers[node]]
        every = parts[0] if len(parts) == 1 else _together(parts)
        if len(parts) > 1 and _may_be_kept(source := as_computed(node), stored):
            again = _beyond_first(every, elements(node.shape), stored)
            if (
                again.views > 0
                and _views_part(again, parts, elements(node.shape), stored)
                and _is_worth_a_buffer(source, again, ends, target)
            ):
                ends.add(source)
        is_end = not every or node in ends
        views[node] = frozenset({_View(node, 0, elements(node.shape))}) if is_end else every
    return ends - stored


def _may_be_kept(source: UOp, stored: set[UOp]) -> bool:
    """Whether a value is computed, and more than a counter compared with a constant, which costs less than to read what was found once."""
    return source not in stored and source.op in _COMPUTED and not _asks_a_counter(source)


def _views_part(
    again: _Again, parts: Sequence[frozenset[_View]], size: int, stored: set[UOp]
) -> bool:
    """Whether none of the users of a value computes it again for as many views as all of them do."""
    return all([again.views > _beyond_first(part, size, stored).views for part in parts])


class _View(NamedTuple):
    """A way from a value to the end of its kernel, or to a reduction in it: that end, a number that is 0 where nothing is moved, how many
    elements it shows, and whether these are written out beside each other."""

    end: UOp
    number: int
    size: int
    is_beside: bool = False


class _Again(NamedTuple):
    """Views for which a value is computed again, elements that all views show, and how many of these are computed again."""

    views: int
    shown: int
    elements: int


def _views_by(
    user: UOp,
    node: UOp,
    views: Mapping[UOp, frozenset[_View]],
    known: dict[tuple[UOp, _View], _View],
) -> frozenset[_View]:
    """The views of `node` that one of its users has."""
    if user.op is REDUCE_AXIS:
        return frozenset({_View(user, 0, elements(node.shape))})
    if user.op is EXPAND:
        most = elements(node.shape)
        return frozenset([v._replace(size=min(v.size, most)) for v in views[user]])
    if user.op not in _ELSEWHERE:
        return views[user]
    most, is_beside = min(elements(user.shape), elements(node.shape)), _stays_beside(user)
    found = set()
    for v in views[user]:
        stays = is_beside and (v.is_beside or v.number == 0)
        view = _View(v.end, len(known) + 1, min(v.size, most), stays)
        found.add(known.setdefault((user, v), view))
    return frozenset(found)


def _stays_beside(move: UOp) -> bool:
    """Whether a kernel writes out what a move exchanges, as partners of a network that sorts: it computes each once for both."""
    if move.op is not Ops.FLIP or not is_plain(move.shape):
        return False
    return prod([n for n, is_flipped in zip(move.shape, move.arg) if is_flipped]) <= MOST_BESIDE


def _together(parts: Sequence[frozenset[_View]]) -> frozenset[_View]:
    """The views of all parts: as many as matter."""
    found = max(parts, key=len, default=frozenset[_View]())
    return found if len(found) > ENOUGH_VIEWS else found.union(*parts)


def as_computed(node: UOp) -> UOp:
    """What is computed of the elements that a node shows, each of them once."""
    while node.op in _SAME_ELEMENTS:
        node = node.src[0]
    return node


def _beyond_first(views: frozenset[_View], size: int, stored: set[UOp]) -> _Again:
    """What is beyond the elements of a value that each kernel has to compute, or that a few reductions in one share."""
    shown: dict[UOp, int] = {}
    shared: set[UOp] = set()
    for view in views:
        if view.end in stored or view.end.op is not Ops.REDUCE_AXIS:
            shown[view.end] = shown.get(view.end, 0) + view.size
        elif view.number == 0:
            shared.add(view.end)
    few = min(len(shared), FEW_REDUCTIONS)
    first = sum([min(size, each) for each in shown.values()]) + few * size
    total = sum([view.size for view in views])
    apart = sum([view.size for view in views if not view.is_beside])
    return _Again(len(views) - max(1, len(shown) + few), total, max(0, apart - max(first, size)))


def _is_worth_a_buffer(source: UOp, again: _Again, stored: set[UOp], target: Target) -> bool:
    """Whether a value that is computed again takes so long, or makes its kernel so long, that it is better kept."""
    if again.views > MOST_VIEWS:
        return True
    size = elements(source.shape)
    work = cycles_of_work(source, stored)
    cycles = work + cycles_of_reductions(source, stored)
    share = min(1.0, max(again.shown / max(1, size), 1 / MOST_TIMES_OF_FEW))
    if again.views * cycles * share > MOST_CYCLES_AGAIN:
        return True
    vectors = again.elements / target.lanes(source.dtype)
    cycles = work + cycles_of_reductions(source, stored, target)
    return not target.work_items and pays_a_buffer(source, cycles * vectors, 1, target)


def _asks_a_counter(node: UOp) -> bool:
    """Whether a value compares a counter with a constant."""
    leaves = {below_movement(source) for source in node.src}
    return node.op in COMPARE and {leaf.op for leaf in leaves} <= {Ops.IOTA, Ops.CONST}
