"""Whether attention by matrix units has the keys go by once, beside a running maximum, and in which tile.

Owns: the choice, from what items and groups have room for. Does not own: finding such nests, and how they run where keys go by
for each reduction (warp_rows.py), the steps (tactics/warp_blocks.py).

An item holds the scores of its rows and of a block of keys, then their powers, beside its sums. To steps these are memory of the group.
"""

from __future__ import annotations

from math import prod

from proofgrad.core.compile.machine.target import MatrixUnit, Target
from proofgrad.core.compile.nests.kernel_schedule import NO_WARP_TILE, Schedule, WarpTile
from proofgrad.core.compile.nests.loops import is_fixed, size_of
from proofgrad.core.compile.nests.weighted_sums import loops_over_row
from proofgrad.core.compile.schedule.occupancy import GroupShape
from proofgrad.core.compile.schedule.row_products import Sizes
from proofgrad.core.compile.schedule.warp_row_cycles import Pass, cycles_of_rows
from proofgrad.core.compile.schedule.warp_rows import (
    WarpRows,
    bytes_found,
    bytes_of_blocks,
    bytes_of_scores,
    find_warp_rows,
    fits,
    has_registers,
    held_words,
    is_tile,
    room_ahead,
    rows_of_group,
    tile_of_warps,
    tiles_for,
)
from proofgrad.core.compile.steps.rescale_blocks import is_asked_for
from proofgrad.core.ir.fragments import GROUPS, QUARTERS, WARP
from proofgrad.core.ir.uop import UOp

# The largest score and the sum of the powers of each row.
FOUND = 2


def choose_warp_rows(kernel: UOp, target: Target, override: Schedule) -> WarpTile | None:
    """The tile of such a nest; None: it is none, or shall not run so."""
    if override.warps == NO_WARP_TILE or override.tiled is False:
        return None
    if (rows := find_warp_rows(kernel, target)) is None:
        return None
    sizes, reductions, asked = rows.found.sizes, len(rows.along), override.warps
    if asked is not None and (
        is_one_pass(rows, asked, target)
        or fits(asked, sizes, rows.unit, reductions, target, target.local_bytes)
    ):
        return asked
    return _tile_of_pass(rows, target) or tile_of_warps(
        sizes, rows.unit, reductions, target, _matrices(rows)
    )


def rows_ahead(kernel: UOp, tile: WarpTile, target: Target, override: Schedule) -> int | None:
    """Of how many of the next blocks keys and values are copied while one is multiplied: there is room for all of them.

    None: nothing asks for it, neither the machine nor an override.
    """
    if override.ahead is None and not target.copies_ahead:
        return None
    rows = find_warp_rows(kernel, target)
    assert rows is not None
    wanted = 1 if override.ahead is None else override.ahead
    if is_one_pass(rows, tile, target):
        held = _bytes_held(tile, rows.unit) + _bytes_told(tile, rows.unit)
        return room_ahead(rows, tile, wanted, held, 0, target)
    reductions = len(rows.along)
    found = bytes_found(tile, rows.unit, reductions)
    return room_ahead(rows, tile, wanted, found, reductions, target)


def is_one_pass(rows: WarpRows, tile: WarpTile, target: Target) -> bool:
    """Whether keys go by once: in several blocks, for which there is room, and a law of the reals is asked for."""
    sizes = rows.found.sizes
    has_blocks = sizes.keys > tile.column_tiles * GROUPS
    is_weighted = is_asked_for() and bool(loops_over_row(rows.found.total))
    return is_weighted and has_blocks and _fits(tile, sizes, rows.unit, target)


def _tile_of_pass(rows: WarpRows, target: Target) -> WarpTile | None:
    """The tile that takes fewest cycles, of those in which keys go by once."""
    sizes, unit, matrices = rows.found.sizes, rows.unit, _matrices(rows)

    def cycles(tile: WarpTile) -> float:
        kept = _bytes_kept(tile, sizes, unit, target)
        shape = GroupShape(tile.warps * WARP, held_words(tile, sizes, unit, FOUND), kept)
        return cycles_of_rows(tile, shape, matrices, sizes, unit, Pass(0, 1, tells=True), target)

    tiles = [x for x in tiles_for(sizes, unit) if is_one_pass(rows, x, target)]
    return min(tiles, key=cycles, default=None)


def _matrices(rows: WarpRows) -> int:
    """Products side by side; as one where their number is a variable."""
    return prod([size_of(x) for x in rows.found.around if is_fixed(x)])


def _fits(tile: WarpTile, sizes: Sizes, unit: MatrixUnit, target: Target) -> bool:
    """Whether registers of items and memory of the group have room, this also for what items hold, as steps count it."""
    return (
        is_tile(tile, unit, target)
        and bytes_of_scores(tile, unit) <= target.score_bytes
        and has_registers(tile, sizes, unit, FOUND)
        and _bytes_held(tile, unit) + _bytes_kept(tile, sizes, unit, target) <= target.local_bytes
    )


def _bytes_held(tile: WarpTile, unit: MatrixUnit) -> int:
    """Of all items, as steps count it: scores, powers, and weights, which then are each item's own."""
    scores = tile.warps * WARP * bytes_of_scores(tile, unit)
    return 2 * scores + scores // unit.total.itemsize * unit.factor.itemsize


def _bytes_told(tile: WarpTile, unit: MatrixUnit) -> int:
    """Of each row what the items that have it tell each other."""
    return FOUND * rows_of_group(tile, unit) * QUARTERS * unit.total.itemsize


def _bytes_kept(tile: WarpTile, sizes: Sizes, unit: MatrixUnit, target: Target) -> int:
    """Memory of the group: keys and values of a block, what items find of their rows."""
    return bytes_of_blocks(tile, sizes, unit, 0, target) + _bytes_told(tile, unit)
