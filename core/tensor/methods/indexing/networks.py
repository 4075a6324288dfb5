"""Sorting networks: numbers put in order by comparators, many lines side by side.

Owns: the networks (Batcher, Sorting networks and their applications, 1968, with all comparators in one direction), and which of their layers
are one kernel. Does not own: what is compared (sorting.py).

Short blocks, of any size that registers hold, are sorted by merge exchange in one kernel. A level makes sorted blocks of twice the length:
its first layer compares each element with its mirror image in the block, each other layer with one half as far away as the layer before, down
to the short blocks. Those are bitonic then: they go up and down once, or would if their ends were joined. A kernel that holds a short block
sorts it. Some other layers in a row only ever compare 16 elements with each other: a kernel reads those, compares them in registers, and
writes them. The elements beside them, other lines or neighbours, are lanes.

    level 2, short blocks of 2:   0 1 2 3 4 5 6 7
                                  a b c d d c b a     compared: the smaller to the left
                                  a b a b c d c d
                                  a a b b c c d d     the short blocks

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
from proofgrad.core.tensor.data.arguments import Whole
from proofgrad.core.tensor.data.nodes import broadcast_node, reshape_node, stacked_node
from proofgrad.core.tensor.methods.movement.room import shrunk
from proofgrad.core.tensor.methods.reduction.reduce import Reduction
from proofgrad.core.tensor.runtime.device import Device

# Layers of a kernel, at most, but for those of short blocks.
LAYERS = 4
# Bytes of vectors that a core compares in one place, and whose bits it takes together in two (A. Fog, Instruction tables: Intel's AVX-512).
COMPARED_IN_ONE_PLACE = 64
# Elements of a whole row that one kernel sorts, and of a short block of machines with 16 registers: all of them are in registers, or near.
SHORT, LEAST_SHORT = 24, 16
# Of a row the first few are found in blocks of so many elements, at least.
LEAST_OF_BLOCKS = 4
# To read an element and to write it takes as long as so many comparators of vectors (both measured in a second cache).
MOVED = 3
# Side by side: as many as one vector has lanes, or two.
LEAST_LINES = 16
# Elements of lanes that are empty, which are sorted, too: so many take longer than the kernels of another network, of few rows.
WORTH_A_NETWORK = 1 << 12
# To rank so few elements takes two or three kernels, which are made in a tenth of the time that those of a network take.
RANKED_COMPARISONS = 1 << 17
# Kernels that ranks take, and that a network takes for the blocks of few rows and each time that it leaves half of them, at least.
KERNELS_OF_RANKS, KERNELS_OF_A_HALVING = 2, 3
# Cycles to compare a vector of numbers with one, and to keep the least of those that come behind it.
CYCLES_OF_A_LOOK = 2
# What is read and written at once, in one piece if it begins at a multiple: a line of the cache, or the widest vector.
LINE_BYTES = 64
_T = TypeVar("_T", bound=Reduction)


def sort_lines(x: _T) -> _T:
    """Each row of a matrix of integers in order, or of floats of which none is NaN."""
    rows, size = x.shape
    if filled := _rows_of_whole_vectors(x):
        parts = x._cut(0, 0, filled), x._cut(0, filled, rows)
        return sort_lines(parts[0]).contiguous().cat(sort_lines(parts[1]).contiguous(), dim=0)
    blocks = _blocks(rows, size, _short(x))
    columns = _rounded(x, blocks.short << blocks.levels).reshape((-1, blocks.length))
    count = columns.shape[0]
    sorted_ = _in_sorted_blocks(_side_by_side(columns), blocks.short, blocks.levels - blocks.apart)
    if not blocks.apart:
        return _as_rows(sorted_, count, size)
    whole = _as_rows(sorted_, count, blocks.length).contiguous().reshape((rows, -1, 1))
    for level in range(blocks.levels - blocks.apart + 1, blocks.levels + 1):
        whole = _merged(whole, blocks.short, level, True)
    return whole.reshape((rows, -1))._cut(1, 0, size)


def _rows_of_whole_vectors(x: _T) -> int:
    """How many rows fill whole vectors, where the others are worth a network of their own; else 0."""
    rows, size = x.shape
    if not is_plain((rows,)) or rows < (lanes := _lanes(x)):
        return 0
    empty = -rows % lanes
    return rows - rows % lanes if empty * size >= WORTH_A_NETWORK and 8 * empty > rows else 0


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Rows of short * 2**levels elements, each cut into 2**apart columns, which are lines until each of them is sorted."""

    short: int
    levels: int
    apart: int

    @property
    def length(self) -> int:
        """Elements of a line."""
        return self.short << self.levels - self.apart

    def cost(self, rows: int) -> int:
        """Comparators, of the elements beside the rows and behind them too, and what takes as long."""
        of_short = MOVED * self.short + len(_merge_exchange(self.short))
        for level in range(1, self.levels + 1):
            kernels = -(-level // LAYERS) + 1
            of_short += MOVED * self.short * kernels + level * self.short // 2
            of_short += len(_bitonic_sorter(self.short))
        lines = -(-(rows << self.apart) // LEAST_LINES) * LEAST_LINES
        return lines * of_short << self.levels - self.apart


@lru_cache(maxsize=1024)
def _blocks(rows: Whole, size: int, most: int) -> _Blocks:
    """How rows are cut into short blocks of at most so many elements, so that the least is read, written and compared."""
    found = []
    for short in [size] if size <= SHORT else range(1, most + 1):
        levels = (-(-size // short) - 1).bit_length()
        apart = levels if is_plain((rows,)) else 0
        few = [n for n in range(apart + 1) if n == 0 or rows << n - 1 < LEAST_LINES]
        found += [_Blocks(short, levels, n) for n in few]
    known = rows if is_plain((rows,)) else LEAST_LINES
    return min(found, key=lambda blocks: blocks.cost(known))


def _short(x: _T) -> int:
    """Elements of a short block, at most: three of four registers hold them."""
    return max(LEAST_SHORT, Device[x.device].target.vector_registers * 3 // 4)


def first_of_lines(x: _T, count: int) -> _T:
    """The first so many of each row of a matrix in order, whose numbers differ from each other but for the largest one of their type."""
    return _one_by_one(x, count) if _is_found_one_by_one(x, count) else least_of_lines(x, count)


def least_of_lines(x: _T, count: int) -> _T:
    """The first so many of each row of a matrix of integers in order, or of floats of which none is NaN.

    Sorted blocks of at least so many: of two blocks the smaller of each element and its mirror image in the other are the
    least half, and go up and down once, so that the other layers of a level sort them. Blocks of few rows are lines of their own.
    """
    rows, size = x.shape
    if at_least(RANKED_COMPARISONS, rows * size * size):
        return _ranked(x, count)
    blocks = _blocks_of(count, _short(x))
    width = blocks.length
    if size <= 2 * width:
        return sort_lines(x)._cut(1, 0, count)
    if is_plain((rows,)) and rows < LEAST_LINES:
        return _least_of_few_lines(x, blocks)._cut(1, 0, count)
    lanes = -(-rows // _lanes(x)) * _lanes(x) if is_plain((rows,)) else rows
    least = _in_sorted_blocks(_side_by_side(_rounded(x, width), lanes), blocks.short, blocks.levels)
    while (
        least.shape[1] > width
    ):  # of an odd number of blocks each line lacks one: all lines are lanes of one vector
        pairs = _rounded(least, 2 * width).reshape((-1, 2, width, lanes))
        ends = pairs._cut(1, 0, 1), pairs._cut(1, 1, 2).flip(2)
        least = _least_of_pairs(*ends).reshape((1, -1, lanes))
        least = _merged(least, blocks.short, blocks.levels, False)
    return _as_rows(least, rows, count)


def _blocks_of(count: int, most: int) -> _Blocks:
    """The shortest blocks of at least so many elements; of equal ones those of the fewest levels."""
    shorts = range(most, LEAST_OF_BLOCKS - 1, -1)
    found = [_Blocks(short, (-(-count // short) - 1).bit_length(), 0) for short in shorts]
    return min(found, key=lambda blocks: blocks.length)


def _least_of_few_lines(x: _T, blocks: _Blocks) -> _T:
    """As many of each row as a block has: all blocks are lines, until each of them is sorted."""
    rows, width = x.shape[0], blocks.length
    lines = _rounded(x, width).reshape((-1, width))
    least = sort_lines(lines).contiguous().reshape((rows, -1, width))
    while (count := least.shape[1]) > 1:
        half = count // 2
        ends = least._cut(1, 0, half), least._cut(1, count - half, count).flip(2)
        parts = _least_of_pairs(*ends), least._cut(1, half, count - half)
        whole = parts[0].cat(parts[1], dim=1) if count > 2 * half else parts[0]
        merged = _merged(whole.reshape((-1, width, 1)), blocks.short, blocks.levels, False)
        least = merged.reshape((rows, -1, width))
    return least.reshape((rows, width))


def _least_of_pairs(one: _T, other: _T) -> _T:
    """The smaller of each two numbers."""
    return one._with(_compared(one._uop, other._uop, False)[0])


def _side_by_side(x: _T, lanes: Whole | None = None) -> _T:
    """The rows of a matrix as columns, so many of them behind those before, or as a vector has; the last ones with columns of zeros."""
    rows, size = x.shape
    if lanes is None:
        lanes = _lanes(x) if is_plain((rows,)) else rows
    empty = -rows % lanes if is_plain((rows,)) else 0
    groups = x._pad_zeros([(0, empty), (0, 0)]).reshape((-1, lanes, size))
    return groups.permute((0, 2, 1)).contiguous()


def _as_rows(x: _T, rows: Whole, size: int) -> _T:
    """The first columns as the rows of a matrix, so many elements of each; those of a vector that has empty lanes apart."""
    groups, _, lanes = x.shape
    lines = x._cut(1, 0, size).permute((0, 2, 1))
    if not is_plain((rows,)) or rows == groups * lanes:
        return lines.reshape((-1, size))
    full = rows // lanes
    last = lines._cut(0, full, groups)._cut(1, 0, rows - full * lanes).reshape((-1, size))
    return lines._cut(0, 0, full).reshape((-1, size)).cat(last, dim=0) if full else last


def _lanes(x: _T) -> int:
    """Elements of a line of the cache, or of the widest vector."""
    return LINE_BYTES // x.dtype.itemsize


def _ranked(x: _T, count: int) -> _T:
    """The first so many of each row in order, each found by its rank: how many come before it."""
    size = x.shape[1]
    line = x._iota(size)
    other, own = x.unsqueeze(1), x.unsqueeze(2)
    before = (other < own) | (other.eq(own) & (line < line.reshape((size, 1))))
    ranks = before.sum(-1).contiguous()
    hits = ranks.unsqueeze(1).eq(x._iota(count).reshape((count, 1)))
    return hits.where(other, 0).sum(-1, dtype=x.dtype)


def _is_found_one_by_one(x: _T, count: int) -> bool:
    """Whether to look at all of each row once for each that is found takes fewer cycles than to rank them, or than a network."""
    (rows, size), target = x.shape, Device[x.device].target
    if target.work_items or not target.vector_bytes or not is_plain((rows,)):
        return False
    vectors, launch = rows * -(-size // target.lanes(x.dtype)), target.core.launch_cycles
    one_by_one = count * (launch + vectors * CYCLES_OF_A_LOOK)
    if at_least(RANKED_COMPARISONS, rows * size * size):
        return one_by_one < KERNELS_OF_RANKS * launch + vectors * size * CYCLES_OF_A_LOOK
    halvings = (-(-size // _blocks_of(count, _short(x)).length) - 1).bit_length()
    return rows < LEAST_LINES and one_by_one < KERNELS_OF_A_HALVING * (1 + halvings) * launch


def _one_by_one(x: _T, count: int) -> _T:
    """The first so many of each row in order: the least, the least of those beyond it, and so on."""
    found = [x.min(-1, keepdim=True)]
    for _ in range(count - 1):
        beyond = (found[-1] < x).where(x, dtypes.max(x.dtype))
        found.append(beyond.min(-1, keepdim=True))
    return found[0].cat(*found[1:], dim=1)


def _rounded(x: _T, multiple: int) -> _T:
    """Axis 1 with the largest number behind it, up to a multiple of so many."""
    rest = -x.shape[1] % multiple
    around = [(0, rest if k == 1 else 0) for k in range(x.ndim)]
    return x._pad_value(around, dtypes.max(x.dtype)) if rest else x


def _in_sorted_blocks(x: _T, short: int, levels: int) -> _T:
    """The middle axis in blocks of short * 2**levels, each of them sorted."""
    x = _compared_in_blocks(x, short, _merge_exchange(short))
    for level in range(1, levels + 1):
        x = _merged(x, short, level, True)
    return x


def _merged(x: _T, short: int, level: int, mirrored: bool) -> _T:
    """The middle axis behind the layers of a level, whose first one compares mirror images, or does not."""
    high = level
    for count in _layers_of_kernels(level, Device[x.device].target.vector_registers):
        layers = _layers(count, mirrored and high == level)
        x = _kernel(x, count, short << high - count, layers)
        high -= count
    return _compared_in_blocks(x, short, _bitonic_sorter(short))


def _layers_of_kernels(level: int, registers: int) -> list[int]:
    """How many layers of a level each kernel takes, in turn; as few kernels as can be, whose elements fit half of the registers.

    The first one takes what others leave, so that the others are the same for all levels.
    """
    if not level:
        return []
    kernels = -(-level // LAYERS)
    usual = LAYERS if registers >= 2 << LAYERS else LAYERS - 1
    first = min(LAYERS, level - usual * (kernels - 1))
    full = level - first - usual * (kernels - 1)
    return [first, *[LAYERS] * full, *[usual] * (kernels - 1 - full)]


@dataclass(frozen=True, slots=True)
class _Layer:
    """Elements whose numbers differ in a digit are compared: those that differ in it alone, or in all digits below too."""

    digit: int  # of two values; 0 is the last
    mirrored: bool


def _layers(count: int, mirrored: bool) -> list[_Layer]:
    """So many layers in the order in which they are taken; `mirrored`: the first one is."""
    return [_Layer(digit, mirrored and digit == count - 1) for digit in range(count - 1, -1, -1)]


def _kernel(x: _T, digits: int, apart: int, layers: Iterable[_Layer]) -> _T:
    """Every 2**digits elements that lie so far apart behind the layers.

    Each digit of an element's number is an axis, so that the other one of a pair is itself with axes the other way round.
    """
    outer, size, lanes = x.shape
    view = (outer * size // (apart << digits), *[2] * digits, apart, lanes)
    first = [_is_first(axis, view) for axis in range(digits, 0, -1)]
    node, in_one_place = reshape_node(x._uop, view), _compares_in_one_place(x)
    for layer in layers:
        flipped = {digits - layer.digit}
        if layer.mirrored:
            flipped.update(range(digits - layer.digit, digits + 2))
        flips = tuple([axis in flipped for axis in range(len(view))])
        ends = _compared(node, UOp(Ops.FLIP, x.dtype, (node,), flips), in_one_place)
        node = UOp(Ops.WHERE, x.dtype, (first[layer.digit], *ends))
    return x._with(node).contiguous().reshape(x.shape)


def _compares_in_one_place(x: _T) -> bool:
    return Device[x.device].target.vector_bytes >= COMPARED_IN_ONE_PLACE


def has_least_of_doubles_alone(device: str) -> bool:
    """Whether vectors have an instruction for the smaller of two float64, and none for that of two int64, as up to AVX2."""
    target = Device[device].target
    is_narrow = 0 < target.vector_bytes < COMPARED_IN_ONE_PLACE and not target.work_items
    return is_narrow and dtypes.float64 in target.arithmetic


def _compared(one: UOp, other: UOp, in_one_place: bool) -> tuple[UOp, UOp]:
    """The smaller of two numbers and the larger; of integers it has the bits of both but for those of the smaller one.

    Floats, of which none is NaN, are chosen by one comparison: that is what the instruction does.
    """
    if one.dtype.is_float:
        is_in_order = UOp(Ops.CMPLT, dtypes.bool, (one, other))
        smaller = UOp(Ops.WHERE, one.dtype, (is_in_order, one, other))
        return smaller, UOp(Ops.WHERE, one.dtype, (is_in_order, other, one))
    smaller = UOp(Ops.MIN, one.dtype, (one, other))
    if not in_one_place:
        return smaller, UOp(Ops.MAX, one.dtype, (one, other))
    return smaller, UOp(Ops.XOR, one.dtype, (UOp(Ops.XOR, one.dtype, (one, other)), smaller))


def _compared_in_blocks(x: _T, size: int, comparators: Iterable[tuple[int, int]]) -> _T:
    """The middle axis in blocks of any size, whose elements are compared in this order: all comparators are written out."""
    outer, length, lanes = x.shape
    if lanes == 1:  # neighbours in memory: beside them lie those of other blocks
        blocks = x.reshape((-1, size))
        turned = _compared_in_blocks(_side_by_side(blocks), size, comparators)
        return _as_rows(turned, *blocks.shape).contiguous().reshape(x.shape)
    view = (outer * length // size, size, lanes)
    node, (count, _, _) = reshape_node(x._uop, view), view
    cuts = [((0, count), (k, k + 1), (0, lanes)) for k in range(size)]
    parts, in_one_place = [shrunk(node, cut) for cut in cuts], _compares_in_one_place(x)
    for k, other in comparators:
        parts[k], parts[other] = _compared(parts[k], parts[other], in_one_place)
    stacked = stacked_node(parts, 1)
    return x._with(stacked).contiguous().reshape(x.shape)


@lru_cache(maxsize=64)
def _merge_exchange(size: int) -> tuple[tuple[int, int], ...]:
    """The comparators that sort so many elements, any number of them (Knuth, The Art of Computer Programming 3, 5.2.2, Algorithm M)."""
    found: list[tuple[int, int]] = []
    top = 1 << max(0, (size - 1).bit_length() - 1)
    step = top
    while step:
        apart, rest, until = step, 0, top
        while True:
            found += [(k, k + apart) for k in range(size - apart) if k & step == rest]
            if until == step:
                break
            apart, rest, until = until - step, step, until // 2
        step //= 2
    return tuple(found)


@lru_cache(maxsize=64)
def _bitonic_sorter(size: int) -> tuple[tuple[int, int], ...]:
    """The comparators that sort so many elements if they are bitonic, in any turn of the circle.

    Of p * m elements each p that lie m apart are sorted: then, of zeros and ones, whose ones are neighbours on the circle, all p blocks of m but
    one are of one kind, in order, and that one is bitonic again.
    """
    ways = next((p for p in range(2, size) if size % p == 0), size)
    apart = size // ways
    if apart == 1:
        return _merge_exchange(size)
    columns = [
        (k * apart + i, n * apart + i) for i in range(apart) for k, n in _merge_exchange(ways)
    ]
    block = _bitonic_sorter(apart)
    rest = [(way * apart + k, way * apart + n) for way in range(ways) for k, n in block]
    return (*columns, *rest)


@lru_cache(maxsize=1024)
def _is_first(axis: int, shape: tuple[int, ...]) -> UOp:
    """Whether the number along an axis of two is 0."""
    one = broadcast_node(UOp.const(dtypes.int32, 1), (2,))
    is_first = UOp(Ops.CMPLT, dtypes.bool, (UOp(Ops.IOTA, dtypes.int32, (), 2), one))
    line = [2 if k == axis else 1 for k in range(len(shape))]
    return broadcast_node(reshape_node(is_first, tuple(line)), shape)
