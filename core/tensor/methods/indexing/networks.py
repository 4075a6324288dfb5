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

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import at_least, is_plain
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.nodes import broadcast_node, reshape_node
from proofgrad.core.tensor.methods.reduction.reduce import Reduction

# Of a kernel, at most: 16 elements fit the registers of any vector machine.
LAYERS = 4
# Levels of the first kernel: each of its layers doubles the views that it reads an element through, until they are written out.
TOGETHER = 3
# Levels before the last to which a length is rounded up at once, by less than a 16th of it.
ROUNDED = 5
# Side by side: as many as one vector has lanes, or two.
LEAST_LINES = 16
# To rank so few elements takes less time than Python needs to make the graph of a network.
RANKED_COMPARISONS = 1 << 17
# What is read and written at once, in one piece if it begins at a multiple: a line of the cache, or the widest vector.
LINE_BYTES = 64
_T = TypeVar("_T", bound=Reduction)


def sort_lines(x: _T) -> _T:
    """Each row of a matrix of integers in order."""
    rows, size = x.shape
    levels = (size - 1).bit_length()
    # levels at the end for which a row is one line, and no longer columns
    apart = _levels_apart(rows, size) if is_plain((rows,)) else 0
    length = _length_of_lines(size, apart)
    columns = _rounded(x, length).reshape((-1, length))
    count = columns.shape[0]
    sorted_ = _side_by_side(columns).reshape((1, length, -1))
    for level in _levels(0, levels - apart):
        sorted_ = _sorted_by(sorted_, level)
    back = sorted_._cut(1, 0, size if not apart else length)._cut(2, 0, count)
    back = back.reshape((-1, count)).permute((1, 0))
    if not apart:
        return back
    whole = back.contiguous().reshape((rows, -1, 1))
    for level in _levels(levels - apart, levels):
        whole = _sorted_by(whole, level)
    return whole.reshape((rows, -1))._cut(1, 0, size)


def _levels_apart(rows: int, size: int) -> int:
    """So many that the fewest elements are sorted, those beside the rows and behind them among them; of lanes that are not filled."""
    most = max(0, (size - 1).bit_length() - 1)
    few = [n for n in range(most + 1) if n == 0 or rows << n - 1 < LEAST_LINES]

    def sorted_elements(apart: int) -> int:
        return -(-(rows << apart) // LEAST_LINES) * LEAST_LINES * _length_of_lines(size, apart)

    return min(few, key=sorted_elements)


def _length_of_lines(size: int, apart: int) -> int:
    """How long a line is, where a row is cut into 2**apart."""
    levels = (size - 1).bit_length()
    return 1 << levels - apart if apart else size + -size % (1 << max(0, levels - ROUNDED))


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
    lines = _side_by_side(_rounded(x, width))
    blocks = lines.reshape((1, *lines.shape))
    for level in _levels(0, step):
        blocks = _sorted_by(blocks, level)
    while blocks.shape[1] > width:
        pairs = _rounded(blocks, 2 * width).reshape((-1, 2, width, lines.shape[1]))
        least = pairs._cut(1, 0, 1).minimum(pairs._cut(1, 1, 2).flip(2))
        blocks = _merged(least.reshape((1, -1, lines.shape[1])), step, False)
    return blocks.reshape(blocks.shape[1:])._cut(0, 0, count)._cut(1, 0, rows).permute((1, 0))


def _side_by_side(x: _T) -> _T:
    """The rows of a matrix as columns; more of them, where that many vectors are not full, so that each begins where a vector may."""
    rows, size = x.shape
    rest = -rows % (LINE_BYTES // x.dtype.itemsize) if is_plain((rows,)) else 0
    return x._pad_zeros([(0, rest), (0, 0)]).permute((1, 0)).contiguous()


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
    return x._pad_value(around, dtypes.max(x.dtype)) if rest else x


def _levels(first: int, end: int) -> list[range]:
    """The levels above `first` up to `end`, each a range; the first few, in blocks of 8, together."""
    if first:
        return [range(level, level + 1) for level in range(first + 1, end + 1)]
    together = min(TOGETHER, end)
    return [range(1, together + 1)] * bool(together) + _levels(together, end) if end else []


def _sorted_by(x: _T, levels: range) -> _T:
    """The middle axis, whose blocks the levels before have sorted, behind these levels."""
    high = levels[-1]
    x = _rounded(x, 1 << high)
    if len(levels) == 1:
        return _merged(x, high, True)
    layers = [layer for level in levels for layer in _layers(level, level, True)]
    return _kernel(x, high, 1, layers)


def _merged(x: _T, level: int, mirrored: bool) -> _T:
    """The middle axis behind the layers of a level, whose first one compares mirror images, or does not."""
    high, kernels = level, -(-level // LAYERS)
    for kernel in range(kernels):
        count = -(-high // (kernels - kernel))
        layers = _layers(count, count, mirrored and high == level)
        x = _kernel(x, count, 1 << high - count, layers)
        high -= count
    return x


@dataclass(frozen=True, slots=True)
class _Layer:
    """Elements whose numbers differ in a digit are compared: those that differ in it alone, or in all digits below too."""

    digit: int  # of two values; 0 is the last
    mirrored: bool


def _layers(level: int, count: int, mirrored: bool) -> list[_Layer]:
    """The first layers of a level, in the order in which they are taken."""
    digits = range(level - 1, level - count - 1, -1)
    return [_Layer(digit, mirrored and digit == level - 1) for digit in digits]


def _kernel(x: _T, digits: int, apart: int, layers: Iterable[_Layer]) -> _T:
    """Every 2**digits elements that lie so far apart behind the layers.

    Each digit of an element's number is an axis, so that the other one of a pair is itself with axes the other way round.
    """
    outer, size, lanes = x.shape
    if apart * lanes == 1:  # neighbours in memory: beside them lie those of other blocks
        blocks = x.reshape((-1, 1 << digits))
        turned = _kernel(_side_by_side(blocks).reshape((1, 1 << digits, -1)), digits, 1, layers)
        turned = turned._cut(2, 0, blocks.shape[0]).reshape((1 << digits, -1))
        return turned.permute((1, 0)).contiguous().reshape(x.shape)
    view = (outer * size // (apart << digits), *[2] * digits, apart, lanes)
    first = [_is_first(axis, view) for axis in range(digits, 0, -1)]
    node = reshape_node(x._uop, view)
    for layer in layers:
        flipped = {digits - layer.digit}
        if layer.mirrored:
            flipped.update(range(digits - layer.digit, digits + 2))
        flips = tuple([axis in flipped for axis in range(len(view))])
        pair = (node, UOp(Ops.FLIP, x.dtype, (node,), flips))
        ends = [UOp(op, x.dtype, pair) for op in (Ops.MIN, Ops.MAX)]
        node = UOp(Ops.WHERE, x.dtype, (first[layer.digit], *ends))
    return x._with(node).contiguous().reshape(x.shape)


@lru_cache(maxsize=1024)
def _is_first(axis: int, shape: tuple[int, ...]) -> UOp:
    """Whether the number along an axis of two is 0."""
    one = broadcast_node(UOp.const(dtypes.int32, 1), (2,))
    is_first = UOp(Ops.CMPLT, dtypes.bool, (UOp(Ops.IOTA, dtypes.int32, (), 2), one))
    line = [2 if k == axis else 1 for k in range(len(shape))]
    return broadcast_node(reshape_node(is_first, tuple(line)), shape)
