"""Of what rows that lie apart in memory an axis is made.

Owns: their length. Does not own: how a reduction is split (split_reductions.py).

    x[:, :73].reshape(-1).sum()        x: 1111 x 87        rows of 73 elements, 14 elements apart

A block of whole rows is read row by row. In one that begins within a row and ends within another, the row and the column of each element
would be divided out, one element at a time.
"""

from __future__ import annotations

from math import prod

from proofgrad.core.compile.fusion.work import MOST_NODES
from proofgrad.core.compile.schedule.divisors import largest_divisor
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.shapes import is_plain
from proofgrad.core.ir.uop import UOp

_APART = frozenset({Ops.PAD, Ops.SHRINK, Ops.PERMUTE, Ops.FLIP, Ops.SKEW})
_LOOKED_THROUGH = ELEMENTWISE | _APART | {Ops.RESHAPE, Ops.EXPAND, Ops.DETACH}


def length_of_joined_rows(value: UOp, axis: int, longest: int) -> int:
    """As many elements of an axis, at most `longest`, as make whole rows, or an even part of one; 1: no rows are joined to it, or nothing is known."""
    waiting = [(value, axis)]
    seen = set(waiting)
    while waiting and len(seen) < MOST_NODES:
        node, axis = waiting.pop()
        if node.op is Ops.RESHAPE:
            lengths = _rows_joined(node, axis)
            if lengths and _lies_apart(node.src[0]):
                part = largest_divisor(min(lengths), longest)
                return max([n for n in lengths if n <= longest], default=part)
        more = _below(node, axis)
        waiting += [one for one in more if one not in seen]
        seen.update(more)
    return 1


def _below(node: UOp, axis: int) -> list[tuple[UOp, int]]:
    """The sources in which an axis is one axis, of the same elements."""
    if node.op in ELEMENTWISE or node.op is Ops.DETACH:
        return [(source, axis) for source in node.src if len(source.shape) == len(node.shape)]
    if node.op is Ops.PERMUTE:
        return [(node.src[0], node.arg[axis])]
    if node.op is Ops.RESHAPE:
        before, size = node.src[0].shape, node.shape[axis]
        outer = prod(node.shape[:axis])
        same = [a for a, n in enumerate(before) if n == size and prod(before[:a]) == outer]
        return [(node.src[0], same[0])] if same else []
    if node.op in _APART or node.op is Ops.EXPAND:
        source = node.src[0]
        return [(source, axis)] if source.shape[axis] == node.shape[axis] else []
    return []


def _rows_joined(reshape: UOp, axis: int) -> list[int]:
    """The lengths of rows, of one or more axes, of which so many as are whole make an axis behind it."""
    before, size = reshape.src[0].shape, reshape.shape[axis]
    if not is_plain(before) or not is_plain(reshape.shape):
        return []
    step = prod(reshape.shape[axis + 1 :])
    lengths = [prod(before[a:]) for a in range(1, len(before))]
    return [
        n // step
        for n in lengths
        if n % step == 0 and step < n < size * step and size * step % n == 0
    ]


def _lies_apart(end: UOp) -> bool:
    """Whether some elements of a value do not lie in memory as they do in it."""
    waiting, seen = [end], {end}
    while waiting and len(seen) < MOST_NODES:
        node = waiting.pop()
        copies = node.op is Ops.EXPAND and any([n != 1 for n in node.src[0].shape])
        if node.op in _APART or copies:
            return True
        if node.op in _LOOKED_THROUGH:
            waiting += [source for source in node.src if source not in seen]
            seen.update(node.src)
    return False
