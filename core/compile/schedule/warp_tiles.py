"""Whether the warps of a group multiply a tile of a product by matrix units, and which tile.

Owns: the choice, a heuristic from what the machine has. Does not own: the steps (tactics/warp_tiles.py), products and their operands
(shared_tiles.py), the units (target.py).

A warp has some tiles of a unit along the rows and along the columns, and keeps their sums in registers: each element that it reads
from memory of the group goes into as many products as there are tiles along the other side. Warps of a group share
what it keeps.
"""

from __future__ import annotations

from collections.abc import Iterator

from proofgrad.core.compile.machine.target import MatrixUnit, Target
from proofgrad.core.compile.nests.kernel_schedule import NO_WARP_TILE, Schedule, WarpTile
from proofgrad.core.compile.schedule.shared_tiles import (
    GROUPS_AT_ONCE,
    GroupProduct,
    copies_ahead,
    find_product,
)
from proofgrad.core.compile.steps.mma import taken_by_unit, unit_for
from proofgrad.core.ir.fragments import COLUMNS_EACH, GROUPS, QUARTERS, WARP
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp

WARPS = ((2, 4), (4, 2), (2, 2), (1, 4), (4, 1), (2, 1), (1, 2), (1, 1))
TILES = (8, 4, 2, 1)
# Registers of an item beside its sums, and what it reads at once: addresses, counters, what is copied.
OTHER_REGISTERS = 40
MOST_REGISTERS = 255  # that a unit's instructions name
WORD_BYTES = 4
# Cost of a byte, in multiply-adds of a unit (measured on none: a multiprocessor has 2048 for 16-bit factors, 128 bytes of local
# memory and 16 bytes of far memory a cycle).
LOCAL_COST, FAR_COST = 16.0, 128.0
WARPS_AT_ONCE = 8  # of a multiprocessor, with which its units have something to do


def unit_of(product: GroupProduct, target: Target) -> MatrixUnit | None:
    """The unit that multiplies the factors of a product, and adds as it does."""
    factors = product.row_factor, product.column_factor
    return unit_for(target.matrix_units, factors, product.reduction.dtype)


def held_steps(unit: MatrixUnit, target: Target) -> int:
    """Neighbours along the sum that an item holds: a whole load of them, or what one instruction takes."""
    lanes = max(2, target.lanes(unit.factor))
    return -(-lanes // unit.steps) * unit.steps


def choose_warps(kernel: UOp, target: Target, override: Schedule) -> WarpTile | None:
    """The tile of warps that multiply by units; None: no unit is used."""
    if not target.matrix_units or not target.group_items or target.lockstep != WARP:
        return None
    product = find_product(kernel)
    if product is None or override.warps == NO_WARP_TILE or override.tiled is False:
        return None
    unit = unit_of(product, target)
    if unit is None or not _may_be_unmasked(product, unit, target):
        return None
    if override.warps is not None:
        return override.warps if _fits(override.warps, unit, target) else None
    asked = override.shared, override.tile, override.tiled
    _, rows, columns, steps = product.sizes
    is_small = min(rows, columns) < GROUPS // 2 or steps < QUARTERS * unit.steps // 2
    if is_small or any([x is not None for x in asked]):
        return None
    ways = [way for way in _ways() if _fits(way, unit, target)]
    return min(ways, key=lambda way: _cost(way, unit, product, target), default=None)


def ways_of_warps(kernel: UOp, target: Target) -> list[WarpTile]:
    """Every tile that may be tried for a kernel."""
    if choose_warps(kernel, target, Schedule()) is None:
        return []
    product = find_product(kernel)
    unit = None if product is None else unit_of(product, target)
    return [] if unit is None else [way for way in _ways() if _fits(way, unit, target)]


def _ways() -> Iterator[WarpTile]:
    for warps in WARPS:
        for rows in TILES:
            for columns in TILES:
                yield WarpTile(*warps, rows, columns)


def _may_be_unmasked(product: GroupProduct, unit: MatrixUnit, target: Target) -> bool:
    """Whether steps beyond the end of the sum add nothing: there are none, or loads are 0 there."""
    factors = product.row_factor, product.column_factor
    is_whole = product.sizes[3] % (QUARTERS * held_steps(unit, target)) == 0
    return is_whole or all([taken_by_unit(x, unit).op is Ops.LOAD for x in factors])


def _fits(way: WarpTile, unit: MatrixUnit, target: Target) -> bool:
    """Whether registers, memory of the group, items and loops are enough."""
    steps = held_steps(unit, target)
    sums = way.row_tiles * way.column_tiles * unit.halves * COLUMNS_EACH * unit.total.itemsize
    held = (way.row_tiles * unit.halves + 1) * steps * unit.factor.itemsize
    registers = (sums + held) // WORD_BYTES + OTHER_REGISTERS
    return (
        registers <= MOST_REGISTERS
        and way.warps * WARP <= target.group_items
        and _bytes(way, unit, target) <= target.local_bytes
    )


def _bytes(way: WarpTile, unit: MatrixUnit, target: Target) -> int:
    """Local memory that a group needs."""
    return sum(tile_sizes(way, unit)) * QUARTERS * held_steps(unit, target) * unit.factor.itemsize


def warps_ahead(kernel: UOp, way: WarpTile, target: Target, override: Schedule) -> int | None:
    """Of how many of the next blocks of steps the operands are copied while one is multiplied."""
    product = find_product(kernel)
    unit = None if product is None else unit_of(product, target)
    assert product is not None and unit is not None
    blocks = -(-product.sizes[3] // (QUARTERS * held_steps(unit, target)))
    return copies_ahead(_bytes(way, unit, target), blocks, target, override)


def tile_sizes(way: WarpTile, unit: MatrixUnit) -> tuple[int, int]:
    """Rows and columns of a group."""
    high = way.row_warps * way.row_tiles * unit.halves * GROUPS
    return high, way.column_warps * way.column_tiles * GROUPS


def _cost(way: WarpTile, unit: MatrixUnit, product: GroupProduct, target: Target) -> float:
    """Of all groups, as far as they run one after the other, in multiply-adds of a unit."""
    batch, rows, columns, _ = product.sizes
    high, wide = tile_sizes(way, unit)
    groups = batch * -(-rows // high) * -(-columns // wide)
    nbytes = unit.factor.itemsize
    row, column = way.row_tiles * unit.halves * GROUPS, way.column_tiles * GROUPS
    local = nbytes * (1 / row + 1 / column)
    far = nbytes * (1 / high + 1 / wide)
    work = high * wide * (1 + LOCAL_COST * local + FAR_COST * far)
    turns = max(1.0, groups / GROUPS_AT_ONCE)
    busy = min(1.0, turns * way.warps / WARPS_AT_ONCE)
    return work * turns / busy
