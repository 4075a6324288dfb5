"""What a work item of a contraction goes through: which of the loops outside of a tile run inside of it.

Owns: the choice, a heuristic; how many items are wanted. Does not own: how many tiles an item has (tiles.py, operands.py), the order of the
loops (tactics/axes.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import Tile
from proofgrad.core.compile.nests.loops import size_of
from proofgrad.core.compile.nests.strides import loops_of
from proofgrad.core.compile.schedule.contraction import Contraction, tiles_along
from proofgrad.core.compile.schedule.cost_model import transposes_columns
from proofgrad.core.compile.schedule.table_cycles import TRANSPOSED_ROWS
from proofgrad.core.ir.uop import UOp

# Items to share out: more even out the threads, fewer count less.
ITEMS_A_THREAD = 8


def wanted_items(target: Target) -> int:
    """Items to share out; one thread takes all as one."""
    return ITEMS_A_THREAD * target.threads if target.threads > 1 else 1


def beside_in_an_item(contraction: Contraction, tile: Tile, target: Target) -> tuple[UOp, ...]:
    """The loops along which results of one line lie that an item goes through for each tile, as the gradient of a convolution's weights
    has its windows: each line is complete before it leaves the cache. Outer ones are shared out where else there were too few items.
    """
    if contraction.blocks or target.work_items:
        return ()
    free = loops_of(contraction.column_factor)
    inside = [x for x in contraction.beside if x not in free]  # which read the same columns
    items = contraction.other_tiles * prod(tiles_along(contraction, tile)) // sizes_of(inside)
    while inside and items < wanted_items(target):
        items *= size_of(inside.pop(0))
    return tuple(inside)


def others_of_an_item(contraction: Contraction, tile: Tile, target: Target) -> tuple[UOp, ...]:
    """The loops outside of a tile that an item goes through with the columns that it has transposed, as they read the same: of
    a convolution those over images and their lines. Outer ones are shared out where else there were too few items.
    """
    is_whole = contraction.depth % TRANSPOSED_ROWS == 0  # several tiles are packed without a mask
    if contraction.blocks or not is_whole or not transposes_columns(tile, contraction, target):
        return ()
    free = loops_of(contraction.column_factor)
    beside = beside_in_an_item(contraction, tile, target)
    inside = [x for x in contraction.others if x not in free and x not in beside]
    _, column_tiles = tiles_along(contraction, tile)
    items = column_tiles * contraction.other_tiles // sizes_of((*inside, *beside))
    while inside and items < wanted_items(target):
        items *= size_of(inside.pop(0))
    return (*inside, *beside)


def sizes_of(loops: Iterable[UOp]) -> int:
    """How many iterations the loops have together."""
    return prod([size_of(x) for x in loops])
