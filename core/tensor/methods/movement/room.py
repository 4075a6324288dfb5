"""Cuts and frames of variable size: what is cut fits now, and may be more than there is for other values of the variables.

Owns: how many zeros stand around an axis, so that all values are one program. The zeros are never seen: that a cut fits for
the values that variables have now is asked at each call, and of each replay. Does not own: cuts (views.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import ShapeError, at_least, is_plain, names_variables, show, sizes
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.arguments import normal_size, split_amount
from proofgrad.core.tensor.runtime.once import copy_data_once
from proofgrad.core.tensor.runtime.recording import at_least_now

PAD, SHRINK = Ops.PAD, Ops.SHRINK

Cut = tuple[Any, Any]
SHRINK = SHRINK


def shrunk(node: UOp, cuts: Sequence[Cut]) -> UOp:
    """The elements begin <= i < end of each axis of `node`. Raises: ShapeError."""
    if list(cuts) == [(0, size) for size in node.shape]:
        return node
    copy_data_once(node)
    if is_plain(node.shape) and not names_variables(cuts):
        return UOp(SHRINK, node.dtype, (node,), tuple(cuts))
    found = [_around(size, *cut) for size, cut in zip(node.shape, cuts)]
    node = _framed(node, [around for around, _ in found])
    return UOp(SHRINK, node.dtype, (node,), tuple([cut for _, cut in found]))


def padded(node: UOp, amounts: Sequence[Cut]) -> UOp:
    """`node` with zeros around; negative amounts cut."""
    if all([type(n) is int and n >= 0 for pair in amounts for n in pair]):
        return _framed(node, amounts)
    of_axes = [(added_and_cut(before), added_and_cut(after)) for before, after in amounts]
    frames = [(before[0], after[0]) for before, after in of_axes]
    cuts = [(before[1], after[1]) for before, after in of_axes]
    if any(0 not in pair for axis in of_axes for pair in axis):  # what is added is cut again
        return _without(_framed(node, frames), cuts)
    return _framed(_without(node, cuts), frames)


def _framed(node: UOp, frames: Sequence[Cut]) -> UOp:
    if all([frame == (0, 0) for frame in frames]):
        return node
    return UOp(PAD, node.dtype, (node,), tuple(frames))


def _without(node: UOp, cuts: Sequence[Cut]) -> UOp:
    """`node` without so many elements at both ends of each axis."""
    ends = [(before, normal_size(n - after)) for (before, after), n in zip(cuts, node.shape)]
    return shrunk(node, ends)


def _around(size: Any, begin: Any, end: Any) -> tuple[tuple[int, int], Cut]:
    """Zeros before and after an axis, and the cut of what that gives. Raises: ShapeError."""
    of = sizes()
    if not (at_least(end, begin) and at_least_now(begin, 0) and at_least_now(size, end)):
        raise ShapeError(
            f"shrink to {of.show_size(begin)} .. {of.show_size(end)} of an axis of {show((size,))[1:-2]} must"
            f" keep 0 <= begin <= end <= size, for the values that the variables are bound to, and"
            f" begin <= end for all between their bounds"
        )
    before, after = max(0, -of.smallest(begin)), max(0, of.largest(of.difference(end, size)))
    return (before, after), (normal_size(begin + before), normal_size(end + before))


def added_and_cut(amount: Any) -> tuple[Any, Any]:
    """What an amount around an axis adds to it, and what is cut of that then.

    An amount that adds or cuts, by the values of its variables, adds first as much as it may cut.
    """
    if at_least(amount, 0) or at_least(0, amount):
        return split_amount(amount)
    most = -sizes().smallest(amount)
    return normal_size(amount + most), most
