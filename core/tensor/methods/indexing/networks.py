"""Sorting networks: integers put in order by comparators, many lines side by side.

Owns: the network (Batcher, Sorting networks and their applications, 1968, with all comparators in one direction), and which of its layers
are one kernel. Does not own: what is compared (sorting.py).

A level makes sorted blocks of twice the length: its first layer compares each element with its mirror image in the block, each other
layer with one half as far away as the layer before. Some layers in a row only ever compare 16 elements with each other: a
kernel reads those, compares them in registers, and writes them. The elements beside them, other lines or neighbours, are lanes.

    level 3, n = 8:   0 1 2 3 4 5 6 7
                      a b c d d c b a     compared: the smaller to the left
                      a b a b c d c d
                      a a b b c c d d

Fewer lines than lanes are cut into columns, which are lines until each of them is sorted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import at_least, is_plain
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.nodes import broadcast_node, reshape_node
from proofgrad.core.tensor.methods.reduction.reduce import Reduction

# Of a kernel, at most: 16 elements fit the registers of any vector machine.
LAYERS = 4
# Levels before the last to which a length is rounded up at once, by less than a 16th of it.
ROUNDED = 5
# Side by side: as many as one vector has lanes, or two.
LEAST_LINES = 16
# To rank so few elements takes less time than Python needs to make the graph of a network.
RANKED_COMPARISONS = 1 << 22
_T = TypeVar("_T", bound=Reduction)


def sort_lines(x: _T) -> _T:
    """Each row of a matrix of integers in order."""
    rows, size = x.shape
    levels = (size - 1).bit_length()
    apart = 0  # levels at the end for which a row is one line, and no longer columns
    while is_plain((rows,)) and apart < levels and rows << apart < LEAST_LINES:
        apart += 1
    length = 1 << levels - apart if apart else size + -size % (1 << max(0, levels - ROUNDED))
    columns = _rounded(x, length).reshape((-1, length)).permute((1, 0)).contiguous()
    lines = columns.shape[1]
    sorted_ = columns.reshape((1, length, lines))
    for level in _levels(0, levels - apart):
        sorted_ = _sorted_by(sorted_, level)
    back = sorted_._cut(1, 0, size if not apart else length).reshape((-1, lines)).permute((1, 0))
    if not apart:
        return back
    whole = back.contiguous().reshape((rows, -1, 1))
    for level in _levels(levels - apart, levels):
        whole = _sorted_by(whole, level)
    return whole.reshape((rows, -1))._cut(1, 0, size)


def least_of_lines(x: _T, count: int) -> _T:
    """The first so many of each row of a matrix of integers in order.

    Sorted blocks of at least so many: of two blocks the smaller of each element and its mirror image in the other are the
    least half, and go up and down once, so that the other layers of a level sort them.
    """
    rows, size = x.shape
    if at_least(RANKED_COMPARISONS, rows * size * size):
        return _ranked(x, count)
    step = max(2, (count - 1).bit_length())
    width = 1 << step
    columns = 1
    while is_plain((rows,)) and rows * columns < LEAST_LINES and size >= 4 * columns * width:
        columns *= 2
    if columns > 1:
        parts = _rounded(x, columns).reshape((rows * columns, -1))
        return least_of_lines(least_of_lines(parts, width).reshape((rows, -1)), count)
    if size <= 2 * width:
        return sort_lines(x)._cut(1, 0, count)
    lines = _rounded(x, width).permute((1, 0)).contiguous()
    blocks = lines.reshape((1, -1, rows))
    for level in _levels(0, step):
        blocks = _sorted_by(blocks, level)
    while blocks.shape[1] > width:
        pairs = _rounded(blocks, 2 * width).reshape((-1, 2, width, rows))
        least = pairs._cut(1, 0, 1).minimum(pairs._cut(1, 1, 2).flip(2))
        blocks = _merged(least.reshape((1, -1, rows)), step, False)
    return blocks.reshape((width, rows))._cut(0, 0, count).permute((1, 0))


def _ranked(x: _T, count: int) -> _T:
    """The first so many of each row in order, each found by its rank: how many come before it."""
    size = x.shape[1]
    line = x._iota(size)
    other, own = x.unsqueeze(1), x.unsqueeze(2)
    before = (other < own) | (other.eq(own) & (line < line.reshape((size, 1))))
    ranks = before.sum(-1).contiguous()
    hits = ranks.unsqueeze(1).eq(x._iota(count).reshape((count, 1)))
    return hits.where(other, 0).sum(-1, dtype=x.dtype)


def _rounded(x: _T, multiple: int) -> _T:
    """Axis 1 with the largest number behind it, up to a multiple of so many."""
    rest = -x.shape[1] % multiple
    around = [(0, rest if k == 1 else 0) for k in range(x.ndim)]
    return x._pad_value(around, dtypes.max(x.dtype)).contiguous() if rest else x


def _levels(first: int, end: int) -> list[range]:
    """The levels above `first` up to `end`, each a range; the first few, in blocks of 16, together."""
    if first:
        return [range(level, level + 1) for level in range(first + 1, end + 1)]
    together = min(LAYERS, end)
    return [range(1, together + 1)] * bool(together) + _levels(together, end) if end else []


def _sorted_by(x: _T, levels: range) -> _T:
    """The middle axis, whose blocks the levels before have sorted, behind these levels."""
    high = levels[-1]
    x = _rounded(x, 1 << high)
    if len(levels) > 1:
        layers = [pair for level in levels for pair in _layers(high, level, level, True)]
        return _kernel(x, 1 << high, 1, layers, False)
    return _merged(x, high, True)


def _merged(x: _T, level: int, mirrored: bool) -> _T:
    """The middle axis behind the layers of a level, whose first one compares mirror images, or does not."""
    high, kernels = level, -(-level // LAYERS)
    for kernel in range(kernels):
        count = -(-high // (kernels - kernel))
        is_mirrored = mirrored and high == level
        layers = _layers(count, count, count, is_mirrored)
        x = _kernel(x, 1 << count, 1 << high - count, layers, is_mirrored)
        high -= count
    return x


def _layers(width: int, level: int, count: int, mirrored: bool) -> list[tuple[int, int]]:
    """The comparators among 2**width elements of the first layers of a level, in the order in which they are taken."""
    found = []
    for step in range(level, level - count, -1):
        other = (1 << step) - 1 if mirrored and step == level else 1 << step - 1
        found += [(k, k ^ other) for k in range(1 << width) if k < k ^ other]
    return found


def _kernel(
    x: _T, width: int, apart: int, comparators: Iterable[tuple[int, int]], mirrored: bool
) -> _T:
    """Every `width` elements that lie so far apart behind the comparators; mirrored: those of the second half, in the other order."""
    outer, size, lanes = x.shape
    view = (outer * size // (width * apart), width, apart, lanes)
    parts = _turned(_parts(x.reshape(view)._uop), mirrored and apart > 1)
    for first, second in comparators:
        pair = (parts[first], parts[second])
        parts[first], parts[second] = [UOp(op, x.dtype, pair) for op in (Ops.MIN, Ops.MAX)]
    parts = _turned(parts, mirrored and apart > 1)
    return x._with(_joined(parts, view)).contiguous().reshape(x.shape)


def _parts(node: UOp) -> list[UOp]:
    """The elements of axis 1, which stays as an axis of 1."""
    cuts = [(0, size) for size in node.shape]
    return [
        UOp(Ops.SHRINK, node.dtype, (node,), (cuts[0], (k, k + 1), *cuts[2:]))
        for k in range(node.shape[1])
    ]


def _turned(parts: list[UOp], mirrored: bool) -> list[UOp]:
    """The second half of the parts with axis 2 the other way round."""
    if not mirrored:
        return parts
    half = len(parts) // 2
    flips = (False, False, True, False)
    return parts[:half] + [UOp(Ops.FLIP, part.dtype, (part,), flips) for part in parts[half:]]


def _joined(parts: Sequence[UOp], shape: tuple[int, ...]) -> UOp:
    """The parts side by side along axis 1: nothing but the counter of that axis chooses, so that it can be written out."""
    line = reshape_node(UOp(Ops.IOTA, dtypes.int32, (), shape[1]), (1, shape[1], 1, 1))
    wide = [broadcast_node(part, shape) for part in parts]

    def chosen(first: int, end: int) -> UOp:
        if end - first == 1:
            return wide[first]
        middle = (first + end) // 2
        limit = broadcast_node(UOp.const(dtypes.int32, middle), line.shape)
        is_before = broadcast_node(UOp(Ops.CMPLT, dtypes.bool, (line, limit)), shape)
        sources = (is_before, chosen(first, middle), chosen(middle, end))
        return UOp(Ops.WHERE, wide[first].dtype, sources)

    return chosen(0, len(parts))
