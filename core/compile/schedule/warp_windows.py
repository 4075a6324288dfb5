"""Whether a group of warps keeps the window of an image that its tile reads, once for all steps of the sum, and which window.

Owns: the choice, by the cost of the tile with and without. Does not own: that cost, the tile (warp_tiles.py), copies of images with the
channels of a pixel side by side (warp_tables.py), the steps (tactics/warp_windows.py).

    out[o, p] = sum[a, b, c](w[o, a, b, c] * image[p + 58 * a + b, c])

Block by block of the sum a group copies what its pixels read for some channels of one tap (a, b): the same pixels for 9 taps. What all taps
read of the image are its pixels and some lines behind: copied once, they are as many bytes as some blocks are, and only the weights are
copied in each. From 227 KB of a group that pays where the lines are not much longer than the tile, and pixels not read in steps.
"""

from __future__ import annotations

from math import gcd, prod

from proofgrad.core.compile.machine.target import MatrixUnit, Target
from proofgrad.core.compile.nests.kernel_schedule import Schedule, WarpTile
from proofgrad.core.compile.nests.loops import size_of
from proofgrad.core.compile.nests.strides import coefficient, loops_of
from proofgrad.core.compile.schedule.shared_tiles import GroupProduct, find_product
from proofgrad.core.compile.schedule.warp_tables import overlaps
from proofgrad.core.compile.schedule.warp_tiles import (
    Lies,
    Window,
    cycles_of_tile,
    held_steps,
    operands_of,
    tile_sizes,
    unit_of,
)
from proofgrad.core.compile.steps.keep_window import MOST_TOLD_APART
from proofgrad.core.compile.steps.mma import read_by_unit
from proofgrad.core.ir.fragments import QUARTERS
from proofgrad.core.ir.uop import UOp


def choose_window(kernel: UOp, way: WarpTile, target: Target, override: Schedule) -> Window | None:
    """The window that a group keeps in this tile; None: it copies what it reads block by block."""
    product = find_product(kernel)
    unit = None if product is None else unit_of(product, target)
    if product is None or unit is None or override.windows is False:
        return None
    window = window_of(product, way, unit, target)
    if window is None or override.windows:
        return window
    by_element = [x.is_by_element for x in operands_of(product, unit, target)]
    kept, copied = [
        cycles_of_tile(way, unit, product, by_element, target, one) for one in (window, None)
    ]
    return window if kept < copied else None


def window_of(
    product: GroupProduct, way: WarpTile, unit: MatrixUnit, target: Target
) -> Window | None:
    """The window of the factor of columns, or of rows, for which a group has room beside a block of the other one."""
    for number in (1, 0):
        window = _window(product, number, way, unit, target)
        if window is not None:
            other = tile_sizes(way, unit)[1 - number] * QUARTERS * held_steps(unit, target)
            nbytes = window.nbytes + other * unit.factor.itemsize
            return window if nbytes <= target.local_bytes else None
    return None


def _window(
    product: GroupProduct, number: int, way: WarpTile, unit: MatrixUnit, target: Target
) -> Window | None:
    """The same of one of the factors, rows (0) or columns (1), whatever room there is."""
    factor, side = ((product.row_factor, product.rows), (product.column_factor, product.columns))[
        number
    ]
    value, steps = read_by_unit(factor, unit), product.reduction.src[1:]
    lanes, operand = target.lanes(value.dtype), operands_of(product, unit, target)[number]
    is_copied = operand.lies is Lies.ALONG and operand.width == lanes > 1
    is_whole = product.sizes[3] % (QUARTERS * held_steps(unit, target)) == 0
    if not (unit.word and is_copied and is_whole and len(steps) > 1 and overlaps(value)):
        return None
    index, masks, channel = value.src[0].src[1], value.src[0].src[2:], steps[-1]
    strides = {x: coefficient(index, x) or 0 for x in (*side, *steps) if x in loops_of(index)}
    pixel = gcd(*[stride for x, stride in strides.items() if x is not channel])
    if masks or min(strides.values()) <= 0 or pixel < size_of(channel) or pixel % lanes:
        return None
    length = _length(side, strides, tile_sizes(way, unit)[number])
    if length is None:
        return None
    taps = sum([strides[x] * (size_of(x) - 1) for x in steps[:-1] if x in strides])
    pieces = size_of(channel) // lanes
    row = (pieces + 1 - pieces % 2) * lanes  # of an odd number, so that rows begin at other banks
    return Window(number, (length + taps) // pixel + 1, pixel, row, row * value.dtype.itemsize)


def _length(side: tuple[UOp, ...], strides: dict[UOp, int], high: int) -> int | None:
    """From the first to the last position of a tile's rows along a side, at most; None: they go back, or lines overlap, or there are too many tiles."""
    inner = 0  # where the next line would begin, if it were one with this
    for loop in reversed(side):
        if strides.get(loop, 0) < inner:
            return None
        inner = strides.get(loop, 0) * size_of(loop)
    count = prod([size_of(x) for x in side])
    firsts = range(0, count, high)
    if len(firsts) > MOST_TOLD_APART:
        return None
    ends = [(first, min(first + high, count) - 1) for first in firsts]
    return max(
        [_position(last, side, strides) - _position(first, side, strides) for first, last in ends]
    )


def _position(number: int, side: tuple[UOp, ...], strides: dict[UOp, int]) -> int:
    """Of a row by its number along a side."""
    position = 0
    for loop in reversed(side):
        number, digit = divmod(number, size_of(loop))
        position += digit * strides.get(loop, 0)
    return position
