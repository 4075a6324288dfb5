"""Which factors of a product by matrix units are first copied into tables, where their steps lie side by side in whole loads.

Owns: the choice, by the cost of tiles with and without. Does not own: that cost, how factors lie (warp_tiles.py), filling the tables
(tactics/warp_tables.py).

What lies so goes to memory of a group 16 bytes at a time, while other steps are multiplied. Rows of an odd number of elements, bytes that lie
across the steps, and what is computed do not: a group waits for each of its elements. A table is filled once, and read by as
many groups as the other side has tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as product_of
from math import prod

from proofgrad.core.compile.machine.target import MatrixUnit, Target
from proofgrad.core.compile.nests.kernel_schedule import Schedule, Staged, WarpTile
from proofgrad.core.compile.nests.loops import size_of
from proofgrad.core.compile.nests.strides import loops_of
from proofgrad.core.compile.schedule.shared_tiles import GROUPS_AT_ONCE, GroupProduct, find_product
from proofgrad.core.compile.schedule.warp_tiles import (
    FAR_BYTES,
    FIRST_CYCLES,
    cycles_of_tile,
    operands_of,
    tiles_that_fit,
    unit_of,
)
from proofgrad.core.compile.steps.collapse import MOST_LOOPS
from proofgrad.core.compile.steps.mma import read_by_unit
from proofgrad.core.compile.steps.stage import LARGEST_TABLE, MOST_DIGITS
from proofgrad.core.ir.uop import UOp

NO_TABLES = Staged(False, False)


def choose_tables(kernel: UOp, way: WarpTile, target: Target, override: Schedule) -> Staged:
    """The factors that get a table, of a product that warps multiply, in this tile if none does."""
    product = find_product(kernel)
    unit = None if product is None else unit_of(product, target)
    assert product is not None and unit is not None
    factors = [read_by_unit(x, unit) for x in (product.row_factor, product.column_factor)]
    may = [_may_be_table(value, product, unit, target) for value in factors]
    if (asked := override.staged) is not None:
        return Staged(asked.rows and may[0], asked.columns and may[1])
    by_element = [x.is_by_element for x in operands_of(product, unit, target)]
    ways = tiles_that_fit(unit, target) if override.warps is None else [way]

    def cycles(tables: Sequence[bool]) -> float:
        left = [waits and not is_table for waits, is_table in zip(by_element, tables)]
        tiles = [cycles_of_tile(one, unit, product, left, target) for one in ways]
        filled = [_cycles_to_fill(x, target) for x, is_table in zip(factors, tables) if is_table]
        return min(tiles) + sum(filled)

    sides = [(False, True) if a and b else (False,) for a, b in zip(by_element, may)]
    return Staged(*min(product_of(*sides), key=cycles))


def _may_be_table(value: UOp, product: GroupProduct, unit: MatrixUnit, target: Target) -> bool:
    """Whether there is such a table, and the factor moves with all steps of the sum."""
    loops, steps = loops_of(value), product.reduction.src[1:]
    is_short = prod([size_of(x) for x in loops]) + target.lanes(value.dtype) <= LARGEST_TABLE
    return (
        set(steps) <= loops and len(steps) <= MOST_LOOPS and len(loops) < MOST_DIGITS and is_short
    )


def _cycles_to_fill(value: UOp, target: Target) -> float:
    """Of a unit, to read what a table gets and to store it, and to begin one more kernel and wait for what it reads."""
    nbytes = 2 * prod([size_of(x) for x in loops_of(value)]) * value.dtype.itemsize
    units = target.units or GROUPS_AT_ONCE
    return nbytes / (units * FAR_BYTES) + target.core.launch_cycles + FIRST_CYCLES
