"""Of what rows that lie apart in memory an axis is made.

Owns: their length, and where an axis begins within one. Does not own: how a reduction is split (split_reductions.py).

    x[:, :73].reshape(-1).sum()        x: 1111 x 87        rows of 73 elements, 14 elements apart

A block of whole rows is read row by row. In one that begins within a row and ends within another, the row and the column of each element
would be divided out, one element at a time.
"""

from __future__ import annotations

from collections.abc import Container
from math import prod
from typing import NamedTuple

from proofgrad.core.compile.fusion.work import MOST_NODES
from proofgrad.core.compile.schedule.divisors import largest_divisor
from proofgrad.core.ir.op_names import DETACH, EXPAND, PERMUTE, RESHAPE, SHRINK
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.shapes import is_plain
from proofgrad.core.ir.uop import UOp

_CUTS = frozenset({Ops.SHRINK, Ops.PAD})
_APART = frozenset({Ops.PAD, Ops.SHRINK, Ops.PERMUTE, Ops.FLIP, Ops.SKEW})
_LOOKED_THROUGH = ELEMENTWISE | _APART | {Ops.RESHAPE, Ops.EXPAND, Ops.DETACH}


class JoinedRows(NamedTuple):
    """The lengths of rows, of one or more axes, of which an axis is made, and how many elements behind the beginning of one of each it begins."""

    lengths: tuple[int, ...]
    offset: int


def length_of_joined_rows(value: UOp, axis: int, longest: int) -> int:
    """As many elements of an axis, at most `longest`, as make whole rows, or an even part of one; 1: no rows are joined to it, or nothing is known."""
    found = joined_rows(value, axis)
    lengths = [n for n in found.lengths if found.offset % n == 0] if found else []
    if not lengths:
        return 1
    part = largest_divisor(min(lengths), longest)
    return max([n for n in lengths if n <= longest], default=part)


def joined_rows(value: UOp, axis: int, stored: Container[UOp] = ()) -> JoinedRows | None:
    """The rows that lie apart in memory of which an axis is made; None: of none, as far as is known."""
    waiting = [(value, axis, 0)]
    seen = set(waiting)
    while waiting and len(seen) < MOST_NODES:
        node, axis, offset = waiting.pop()
        if node in stored:
            continue
        if node.op is RESHAPE:
            lengths = _rows_joined(node, axis)
            if lengths and _lies_apart(node.src[0], stored):
                return JoinedRows(tuple(lengths), offset)
        more = [(source, below, offset + moved) for source, below, moved in _below(node, axis)]
        waiting += [one for one in more if one not in seen]
        seen.update(more)
    return None


def _below(node: UOp, axis: int) -> list[tuple[UOp, int, int]]:
    """The sources in which an axis is one axis of the same elements, which of theirs, and so many behind its first one the first of `node` is."""
    if node.op in ELEMENTWISE or node.op is DETACH:
        return [(source, axis, 0) for source in node.src if len(source.shape) == len(node.shape)]
    if node.op is PERMUTE:
        return [(node.src[0], node.arg[axis], 0)]
    if node.op is RESHAPE:
        before, size = node.src[0].shape, node.shape[axis]
        outer = prod(node.shape[:axis])
        same = [a for a, n in enumerate(before) if n == size and prod(before[:a]) == outer]
        return [(node.src[0], same[0], 0)] if same else []
    if node.op in _CUTS and is_plain(node.arg[axis]):
        first, _ = node.arg[axis]
        return [(node.src[0], axis, first if node.op is SHRINK else -first)]
    if node.op in _APART or node.op is EXPAND:
        source = node.src[0]
        return [(source, axis, 0)] if source.shape[axis] == node.shape[axis] else []
    return []


def _rows_joined(reshape: UOp, axis: int) -> list[int]:
    """The lengths of rows, of one or more axes, of which so many as are whole make an axis behind it."""
    before, size = reshape.src[0].shape, reshape.shape[axis]
    if not is_plain(before) or not is_plain(reshape.shape):
        return []
    step = prod(reshape.shape[axis + 1 :])
    if not step:
        return []
    lengths = [prod(before[a:]) for a in range(1, len(before))]
    return [
        n // step
        for n in lengths
        if n % step == 0 and step < n < size * step and size * step % n == 0
    ]


def _lies_apart(end: UOp, stored: Container[UOp]) -> bool:
    """Whether some elements of a value do not lie in memory as they do in it."""
    waiting, seen = [end], {end}
    while waiting and len(seen) < MOST_NODES:
        node = waiting.pop()
        if node in stored:
            continue
        copies = node.op is Ops.EXPAND and any([n != 1 for n in node.src[0].shape])
        if node.op in _APART or copies:
            return True
        if node.op in _LOOKED_THROUGH:
            waiting += [source for source in node.src if source not in seen]
            seen.update(node.src)
    return False
