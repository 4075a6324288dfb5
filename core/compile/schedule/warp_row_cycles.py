"""What attention by the warps of groups takes, in cycles of a unit of the machine: which of its tiles is best.

Owns: the estimate. Does not own: which tiles there is room for (warp_rows.py, warp_blocks.py).

For each block of keys a warp reads all keys and values from memory of the group, whatever rows it has: with more rows it reads less often. What
it multiplies and computes of each score does not depend on that, and of warps with fewer registers more are on a unit, which hide behind each other.
"""

from __future__ import annotations

from dataclasses import dataclass

from proofgrad.core.compile.machine.target import MatrixUnit, Target
from proofgrad.core.compile.nests.kernel_schedule import WarpTile
from proofgrad.core.compile.schedule.occupancy import GroupShape, groups_of_unit
from proofgrad.core.compile.schedule.row_products import Sizes
from proofgrad.core.compile.schedule.shared_tiles import GROUPS_AT_ONCE
from proofgrad.core.compile.schedule.warp_tiles import (
    LOCAL_BYTES,
    MULTIPLY_ADDS,
    SCHEDULERS,
    WORD_BYTES,
    held_steps,
)
from proofgrad.core.ir.fragments import COLUMNS_EACH, GROUPS, QUARTERS, WARP
from proofgrad.core.ir.ops import Ops

# Instructions of an item for a power that is computed, or is one instruction; for what else is done to a score. Counted in PTX.
POWER, NATIVE_POWER, OTHERS = 19.0, 4.0, 6.0
# For an element of the result in a block of keys: it is scaled, and added to. Powers by which each row of an item is scaled, each in both columns.
OF_RESULT, SCALES = 2.0, 2 * COLUMNS_EACH
# Of a block of keys, each time that it goes by and whatever it has: addresses, copies, waits.
OF_BLOCK = 60.0
# With how many warps more of a unit what is waited for is hidden: two for each scheduler are nearly enough, of which one
# multiplies while the other computes. Source: T. Dao, FlashAttention-2, 2023, 3.3, has 4 or 8 warps.
MORE_WARPS = 2.0
# Words that an item reads of others for each of its rows, of each of the two that it is told: of so many items each.
TOLD = 3 * QUARTERS


@dataclass(frozen=True, slots=True)
class Pass:
    """How often the keys go by before they do with the values, powers that are taken of a score in all of that, whether items tell each other of each block."""

    before: int
    powers: int
    tells: bool


def cycles_of_rows(
    tile: WarpTile,
    shape: GroupShape,
    matrices: int,
    sizes: Sizes,
    unit: MatrixUnit,
    keys_go_by: Pass,
    target: Target,
) -> float:
    """Of a unit, for all groups that it has; `shape`: what a group of this tile needs, `matrices`: products side by side."""
    halves, keys = tile.row_tiles * unit.halves, tile.column_tiles * GROUPS
    rows = halves * GROUPS
    groups = matrices * -(-sizes.rows // (tile.row_warps * rows))
    of_unit = -(-groups // (target.units or GROUPS_AT_ONCE))
    warps = tile.warps * min(of_unit, groups_of_unit(shape, target))
    along = (keys_go_by.before + 1) * sizes.depth + sizes.columns
    read = keys * along * unit.factor.itemsize * (1 + 1 / tile.warps)
    told = halves * TOLD * WARP * WORD_BYTES if keys_go_by.tells else 0
    multiplied = rows * keys * along / MULTIPLY_ADDS[unit.factor.itemsize]
    each = NATIVE_POWER if Ops.EXP2 in target.approximate else POWER
    products = along / (QUARTERS * unit.steps * COLUMNS_EACH * unit.halves)
    scaled = OF_RESULT * rows * sizes.columns / WARP + SCALES * halves * each
    of_scores = (keys_go_by.powers * each + OTHERS + products) * rows * keys / WARP
    held = held_steps(unit, target)
    at_once = held if tile.column_tiles * COLUMNS_EACH >= held else 1
    loads = keys * sizes.columns / (WARP * at_once)
    issued = of_scores + loads + OF_BLOCK * (keys_go_by.before + 1)
    issued += scaled if keys_go_by.tells else 0
    of_block = max((read + told) / LOCAL_BYTES, multiplied, issued / SCHEDULERS)
    waits = max(1.0, SCHEDULERS / warps) + MORE_WARPS / warps
    return of_unit * tile.warps * -(-sizes.keys // keys) * of_block * waits
