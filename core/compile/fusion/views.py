"""Values that one kernel computes several times, for it reads them through several views.

Owns: which of them get a buffer. Does not own: the other limits on what one kernel computes (limits.py).

A view is the chain of moves between a value and what its kernel stores. A value is computed once for each, under the masks of that view:
where the states of a loop are joined, each state for itself and for all later ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from proofgrad.core.compile.fusion.work import below_movement, cycles_of_work
from proofgrad.core.ir.ops import COMPARE, ELEMENTWISE, MOVEMENT, Ops
from proofgrad.core.ir.uop import UOp

# Views through which one kernel reads a value that it computes; it computes it for each of them.
MOST_VIEWS = 64
# Cycles of a vector that one kernel spends on computing a value for views beyond the first.
MOST_CYCLES_AGAIN = 48
# So many reductions over what one value computes run in loops that share it.
FEW_REDUCTIONS = 4
# Of so many views no more are counted.
ENOUGH_VIEWS = 256
# Values in their places among others, of which one is made that is put into its place itself.
MOST_PLACED = 16
# Moves by which a value is read at other elements.
_ELSEWHERE = frozenset({Ops.PAD, Ops.SHRINK, Ops.SKEW, Ops.FLIP, Ops.PERMUTE})
_NONE: frozenset[UOp] = frozenset()


def joined_again(nodes: Sequence[UOp], stored: set[UOp]) -> set[UOp]:
    """What many values are joined in, and is then put into its place itself: a kernel of both would ask at each element for all of them."""
    added: set[UOp] = set()
    placed: dict[UOp, frozenset[UOp]] = {}
    for node in nodes:
        found = _some([placed[source] for source in node.src])
        if node.op is Ops.PAD:
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


def _some(sets: Sequence[frozenset[UOp]]) -> frozenset[UOp]:
    """Of all sets together, as many as matter."""
    found = max(sets, key=len, default=_NONE)
    return found if len(found) >= MOST_PLACED else found.union(*sets)


def computed_for_views(
    nodes: Sequence[UOp], consumers: Mapping[UOp, list[UOp]], stored: set[UOp]
) -> set[UOp]:
    """Values that one kernel would spend too many cycles on to compute them again.

    As with kernels, a buffer is worth while where the views part. Reductions have loops of their own for what they read.
    """
    added: set[UOp] = set()
    views: dict[UOp, frozenset[_View]] = {}
    known: dict[tuple[UOp, _View], _View] = {}
    for node in reversed(nodes):
        parts = [_views_by(user, views, known) for user in consumers[node]]
        every = parts[0] if len(parts) == 1 else _together(parts)
        if len(parts) > 1 and node.op in ELEMENTWISE and node not in stored:
            again = _beyond_first(every, stored)
            if again > max([_beyond_first(part, stored) for part in parts]) and (
                again * cycles_of_work(node, stored | added) > MOST_CYCLES_AGAIN
            ):
                added.add(node)
        is_end = not every or node in stored or node in added
        views[node] = frozenset({_View(node, 0)}) if is_end else every
    return added


class _View(NamedTuple):
    """A way from a value to the end of its kernel, or to a reduction in it: that end, and a number that is 0 where nothing is moved."""

    end: UOp
    number: int


def _views_by(
    user: UOp, views: Mapping[UOp, frozenset[_View]], known: dict[tuple[UOp, _View], _View]
) -> frozenset[_View]:
    """The views of what a node reads."""
    if user.op is Ops.REDUCE_AXIS:
        return frozenset({_View(user, 0)})
    if user.op not in _ELSEWHERE:
        return views[user]
    return frozenset(
        [known.setdefault((user, v), _View(v.end, len(known) + 1)) for v in views[user]]
    )


def _together(parts: Sequence[frozenset[_View]]) -> frozenset[_View]:
    """The views of all parts: as many as matter."""
    found = max(parts, key=len, default=frozenset[_View]())
    return found if len(found) > ENOUGH_VIEWS else found.union(*parts)


def _beyond_first(views: frozenset[_View], stored: set[UOp]) -> int:
    """How many of the views are not the first one of their kernel, or of a reduction of a few that are in one."""
    ends = {view.end for view in views}
    reductions = [end for end in ends if end.op is Ops.REDUCE_AXIS and end not in stored]
    return len(views) - len(ends) + max(0, len(reductions) - FEW_REDUCTIONS)


def read_through_many_views(
    nodes: Sequence[UOp], consumers: Mapping[UOp, list[UOp]], stored: set[UOp]
) -> set[UOp]:
    """Values that one kernel would compute for more views than are allowed.

    A view is the chain of movements and reductions between a value and what its kernel stores: the
    first of them and the view of that one, as a number.
    """
    added: set[UOp] = set()
    numbers: dict[tuple[UOp, int], int] = {}
    views: dict[UOp, set[int]] = {}
    for node in reversed(nodes):
        found: set[int] = set()
        for user in consumers[node]:
            if user.op in MOVEMENT or user.op is Ops.REDUCE_AXIS:
                for view in views[user]:
                    found.add(numbers.setdefault((user, view), len(numbers) + 1))
            else:
                found |= views[user]
        is_computed = node.op in ELEMENTWISE and not _asks_a_counter(node)
        if len(found) > MOST_VIEWS and is_computed and node not in stored:
            added.add(node)
        views[node] = {0} if node in stored or node in added or not found else found
    return added


def _asks_a_counter(node: UOp) -> bool:
    """Whether a value compares a counter with a constant, which costs less than to read what was found once."""
    leaves = {below_movement(source) for source in node.src}
    return node.op in COMPARE and {leaf.op for leaf in leaves} <= {Ops.IOTA, Ops.CONST}
