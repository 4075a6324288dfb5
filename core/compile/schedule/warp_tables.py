"""Which factors of a product by matrix units are first copied into tables, where their steps lie side by side in whole loads.

Owns: the choice, by the cost of tiles with and without. Does not own: that cost, how factors lie (warp_tiles.py), filling the tables
(tactics/warp_tables.py).

What lies so goes to memory of a group 16 bytes at a time, while other steps are multiplied. Rows of an odd number of elements, bytes that lie
across the steps, and what is computed do not: a group waits for each of its elements. A table is filled once, and read by as
many groups as the other side has tiles.

A table of the windows of an image has each of its elements as often as windows overlap. A copy of the image in which the channels of
a pixel lie side by side has it once, and is read in whole loads as well: the windows are taken from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product as product_of
from math import gcd, prod

from proofgrad.core.compile.machine.target import MatrixUnit, Target
from proofgrad.core.compile.nests.kernel_schedule import Schedule, Staged, WarpTile
from proofgrad.core.compile.nests.loops import size_of
from proofgrad.core.compile.nests.strides import at_start, coefficient, loops_of
from proofgrad.core.compile.schedule.shared_tiles import GROUPS_AT_ONCE, GroupProduct, find_product
from proofgrad.core.compile.schedule.warp_tiles import (
    FAR_BYTES,
    FIRST_CYCLES,
    WORD_BYTES,
    cycles_of_tile,
    operands_of,
    tiles_that_fit,
    unit_of,
)
from proofgrad.core.compile.steps.collapse import MOST_LOOPS
from proofgrad.core.compile.steps.mma import read_by_unit
from proofgrad.core.compile.steps.split import MOST_PARTS
from proofgrad.core.compile.steps.stage import LARGEST_TABLE, MOST_DIGITS
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort

NO_TABLES = Staged(False, False)


@dataclass(frozen=True, slots=True)
class Channels:
    """How windows of images are read: by a loop of the sum over channels, from images of so many elements."""

    loop: UOp
    image: int


def choose_tables(kernel: UOp, way: WarpTile, target: Target, override: Schedule) -> Staged:
    """The factors that get a table, of a product that warps multiply, in this tile if none does."""
    product = find_product(kernel)
    unit = None if product is None else unit_of(product, target)
    assert product is not None and unit is not None
    factors = [read_by_unit(x, unit) for x in (product.row_factor, product.column_factor)]
    by_element = [x.is_by_element for x in operands_of(product, unit, target)]
    images = images_of(product, unit, target)
    is_copied = [not x for x in get_tables(product, unit, target)]
    may = [
        copied or image is not None or _may_be_table(value, product, target)
        for value, image, copied in zip(factors, images, is_copied)
    ]
    if (asked := override.staged) is not None:
        return Staged(asked.rows and may[0], asked.columns and may[1])
    ways = tiles_that_fit(unit, target) if override.warps is None else [way]
    filled = [
        0.0
        if copied
        else _cycles_to_fill(_memory(value) if image else _length(value), value, target)
        for value, image, copied in zip(factors, images, is_copied)
    ]

    def cycles(tables: Sequence[bool]) -> float:
        left = [waits and not is_table for waits, is_table in zip(by_element, tables)]
        tiles = [cycles_of_tile(one, unit, product, left, target) for one in ways]
        return min(tiles) + sum([cost for cost, is_table in zip(filled, tables) if is_table])

    sides = [
        (True,) if copied else (False, True) if waits and allowed else (False,)
        for copied, waits, allowed in zip(is_copied, by_element, may)
    ]
    return Staged(*min(product_of(*sides), key=cycles))


def get_tables(product: GroupProduct, unit: MatrixUnit, target: Target) -> tuple[bool, bool]:
    """Whether the factors of rows and of columns get a table where one is asked for: windows that are read in whole loads, as those of a copy, get none."""
    rows, columns = [
        operand.is_by_element or not overlaps(read_by_unit(factor, unit))
        for factor, operand in zip(
            (product.row_factor, product.column_factor), operands_of(product, unit, target)
        )
    ]
    return rows, columns


def images_of(
    product: GroupProduct, unit: MatrixUnit, target: Target
) -> tuple[Channels | None, Channels | None]:
    """Which factor, of rows and of columns, is copied as the images whose windows it reads element by element; one of them at most."""
    steps = product.reduction.src[1:]
    row, column = [
        _channels_of(read_by_unit(factor, unit), steps, target) if operand.is_by_element else None
        for factor, operand in zip(
            (product.row_factor, product.column_factor), operands_of(product, unit, target)
        )
    ]
    return (row, None) if column is None else (None, column)


def _channels_of(value: UOp, steps: Sequence[UOp], target: Target) -> Channels | None:
    """How a factor reads windows of images, if these overlap, and a copy with channels innermost is read in copies that go on by themselves."""
    if not overlaps(value) or len(steps) > 1 + MOST_PARTS or _memory(value) > LARGEST_TABLE:
        return None
    index = value.src[0].src[1]
    is_of_loops = all([n.src or n.op is Ops.CONST for n in toposort((index,))])
    strides = {x: coefficient(index, x) or 0 for x in loops_of(index)}
    is_upward = min(strides.values(), default=0) > 0 and at_start(index) >= 0
    if not is_of_loops or not is_upward or strides.keys().isdisjoint(steps):
        return None
    loop = max([x for x in steps if x in strides], key=lambda x: strides[x])
    step, size = strides[loop], size_of(loop)
    within = [x for x, stride in strides.items() if stride < step]
    last = at_start(index) + sum([strides[x] * (size_of(x) - 1) for x in within])
    others = [stride for x, stride in strides.items() if stride >= step and x is not loop]
    image = gcd(*others) if others else _memory(value)
    if last >= step or image % step or step * size > image:
        return None
    width = gcd(target.lanes(value.dtype), size, image // step)
    return Channels(loop, image) if width * value.dtype.itemsize >= WORD_BYTES else None


def overlaps(value: UOp) -> bool:
    """Whether a factor is a load that reads what lies in memory more than once."""
    is_load = value.op is Ops.LOAD and value.src[0].src[0].op is Ops.PARAM
    return is_load and _memory(value) < _length(value)


def _memory(value: UOp) -> int:
    """Elements of the memory that a load reads."""
    length: int = value.src[0].src[0].arg[1]
    return length


def _length(value: UOp) -> int:
    """Elements of a table of all that a factor reads."""
    return prod([size_of(x) for x in loops_of(value)])


def _may_be_table(value: UOp, product: GroupProduct, target: Target) -> bool:
    """Whether there is such a table, and the factor moves with all steps of the sum."""
    loops, steps = loops_of(value), product.reduction.src[1:]
    is_short = _length(value) + target.lanes(value.dtype) <= LARGEST_TABLE
    return (
        set(steps) <= loops and len(steps) <= MOST_LOOPS and len(loops) < MOST_DIGITS and is_short
    )


def _cycles_to_fill(length: int, value: UOp, target: Target) -> float:
    """Of a unit, to read what so many elements of a table get and to store it, and to begin one more kernel and wait for what it reads."""
    nbytes = 2 * length * value.dtype.itemsize
    units = target.units or GROUPS_AT_ONCE
    return nbytes / (units * FAR_BYTES) + target.core.launch_cycles + FIRST_CYCLES
