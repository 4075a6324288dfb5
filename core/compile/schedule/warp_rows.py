"""Whether warps of a group multiply a product, and the product of what is made of its rows, by matrix units, and which tile.

Owns: the choice, a heuristic from what the machine has. Does not own: finding such nests (row_products.py), the steps
(tactics/warp_rows.py), products by themselves (warp_tiles.py).

    out[i, d] = sum[j](w(i, j) * v(j, d)),   w(i, j) made of s(i, 0), s(i, 1), ...,   s(i, j) = sum[k](q(i, k) * c(j, k))

A warp has the rows of one tile of a unit. Keys go by in blocks, once for each reduction of a row that w needs, and once more for the
last sum: each time the scores are multiplied anew, and no matrix of them is in memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from proofgrad.core.compile.machine.target import MatrixUnit, Target
from proofgrad.core.compile.nests.kernel_schedule import WarpTile
from proofgrad.core.compile.nests.loops import BINDERS, is_fixed, size_of
from proofgrad.core.compile.nests.sums_of_products import is_masked
from proofgrad.core.compile.schedule.occupancy import GroupShape
from proofgrad.core.compile.schedule.row_products import RowProducts, Sizes, row_products_of
from proofgrad.core.compile.schedule.warp_row_cycles import Pass, cycles_of_rows
from proofgrad.core.compile.schedule.warp_tiles import (
    MOST_REGISTERS,
    OTHER_REGISTERS,
    WORD_BYTES,
    held_steps,
)
from proofgrad.core.compile.steps.mma import read_by_unit, unit_for
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.fragments import COLUMNS_EACH, GROUPS, QUARTERS, WARP
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort

# Warps of a group; rows that each has, and keys of a block, in tiles of the unit.
WARPS = (8, 4, 2, 1)
ROW_TILES = (1, 2)
KEY_TILES = (8, 4, 2)
# Rows and keys below which tiles are mostly empty, and each product alone is soon done.
LEAST_ROWS = LEAST_KEYS = 32


@dataclass(frozen=True, slots=True)
class WarpRows:
    """Such a nest, the unit that multiplies in it, and the loops over keys of the reductions that its weights need, inner first."""

    found: RowProducts
    unit: MatrixUnit
    along: tuple[UOp, ...]


def units_of(types: tuple[DType, DType], is_rounded: bool, target: Target) -> MatrixUnit | None:
    """The unit that multiplies such factors, rounded to TF32 or not, and adds as both products do."""
    for unit in [x for x in target.matrix_units if isinstance(x, MatrixUnit)]:
        if (unit.factor, unit.total) == types and unit.rounds is is_rounded:
            return unit
    return None


def tile_of_warps(
    sizes: Sizes, unit: MatrixUnit, reductions: int, target: Target, matrices: int = 1
) -> WarpTile | None:
    """Warps, tiles of rows that each has, and of keys, as memory of a group, registers and items allow; None: one warp has no room.

    `matrices`: products side by side. Of what there is room for, what takes fewest cycles.
    """
    room = target.local_bytes_of(target.unit_groups)
    fitting = [
        x
        for x in tiles_for(sizes, unit)
        if has_registers(x, sizes, unit) and fits(x, sizes, unit, reductions, target, room)
    ]
    keys_go_by = Pass(reductions, reductions, tells=False)

    def cycles(tile: WarpTile) -> float:
        kept = _bytes(tile, sizes, unit, reductions, target)
        shape = GroupShape(tile.warps * WARP, held_words(tile, sizes, unit), kept)
        return cycles_of_rows(tile, shape, matrices, sizes, unit, keys_go_by, target)

    return min(fitting, key=cycles, default=None)


def tiles_for(sizes: Sizes, unit: MatrixUnit) -> list[WarpTile]:
    """Those of which not half the rows are empty, long blocks of keys first."""
    ways = [
        WarpTile(warps, 1, high, keys)
        for keys in KEY_TILES
        for warps in WARPS
        for high in ROW_TILES
    ]
    return [
        x for x in ways if x.warps == x.row_tiles == 1 or rows_of_group(x, unit) < 2 * sizes.rows
    ]


def has_registers(tile: WarpTile, sizes: Sizes, unit: MatrixUnit, found: int = 0) -> bool:
    """Whether an item has registers for what it holds: weights beside the scores that they are made of. `found`: numbers that it knows of each row.

    Where keys go by once queries are read anew for each block, before there are weights.
    """
    weights = bytes_of_scores(tile, unit) * unit.factor.itemsize // unit.total.itemsize
    if found:
        weights = max(0, weights - _queries(tile, sizes, unit))
    words = held_words(tile, sizes, unit, found) + weights // WORD_BYTES
    return words + OTHER_REGISTERS <= MOST_REGISTERS


def halves_of(tile: WarpTile, unit: MatrixUnit) -> int:
    """Rows that an item has of its warp's: of each tile of the unit as many as the unit says."""
    return tile.row_tiles * unit.halves


def rows_of_group(tile: WarpTile, unit: MatrixUnit) -> int:
    """Of all its warps."""
    return tile.row_warps * halves_of(tile, unit) * GROUPS


def held_words(tile: WarpTile, sizes: Sizes, unit: MatrixUnit, found: int = 0) -> int:
    """Of an item: its part of the rows of queries, its sums, what it knows of its rows, the scores of a block."""
    each = halves_of(tile, unit) * COLUMNS_EACH * unit.total.itemsize
    sums = (-(-sizes.columns // GROUPS) + found) * each
    return (_queries(tile, sizes, unit) + sums + bytes_of_scores(tile, unit)) // WORD_BYTES


def _queries(tile: WarpTile, sizes: Sizes, unit: MatrixUnit) -> int:
    """Bytes of an item, of the rows of queries."""
    return halves_of(tile, unit) * GROUPS * sizes.depth * unit.factor.itemsize // WARP


def bytes_of_scores(tile: WarpTile, unit: MatrixUnit) -> int:
    """Of an item, for a block of keys."""
    return tile.column_tiles * halves_of(tile, unit) * COLUMNS_EACH * unit.total.itemsize


def fits(
    tile: WarpTile, sizes: Sizes, unit: MatrixUnit, reductions: int, target: Target, room: int
) -> bool:
    """Whether items, so many bytes of memory of the group and whole steps of the unit allow a tile."""
    is_such = is_tile(tile, unit, target)
    return is_such and _bytes(tile, sizes, unit, reductions, target) <= room


def is_tile(tile: WarpTile, unit: MatrixUnit, target: Target) -> bool:
    """Whether items allow a tile, which has whole steps of the unit."""
    is_such = tile.column_warps == 1 and tile.warps * WARP <= target.group_items
    return is_such and tile.column_tiles * GROUPS % (QUARTERS * unit.steps) == 0


def steps_at_once(sizes: Sizes, unit: MatrixUnit, target: Target) -> int:
    """Steps of a score that the items of a warp hold in one wide load each, or all of them."""
    fewest = QUARTERS * max(2, unit.steps)  # an item holds two or more
    return min(QUARTERS * held_steps(unit, target), _whole(sizes.depth, fewest))


def _bytes(tile: WarpTile, sizes: Sizes, unit: MatrixUnit, reductions: int, target: Target) -> int:
    """What a group keeps: blocks of keys and values, of each row what its items found, and weights, which then are its items' own."""
    rows, keys = rows_of_group(tile, unit), tile.column_tiles * GROUPS
    weights = rows * keys * unit.factor.itemsize
    return (
        bytes_of_blocks(tile, sizes, unit, reductions, target)
        + bytes_found(tile, unit, reductions)
        + weights
    )


def bytes_found(tile: WarpTile, unit: MatrixUnit, reductions: int) -> int:
    """Of each row what its items found, and what that is together."""
    return reductions * rows_of_group(tile, unit) * (GROUPS + 1) * unit.total.itemsize


def bytes_of_blocks(
    tile: WarpTile, sizes: Sizes, unit: MatrixUnit, reductions: int, target: Target
) -> int:
    """Keys for each time that they go by, and values."""
    keys, columns = tile.column_tiles * GROUPS, _whole(sizes.columns, GROUPS)
    depth = _whole(sizes.depth, steps_at_once(sizes, unit, target))
    return ((reductions + 1) * keys * depth + keys * columns) * unit.factor.itemsize


def room_ahead(
    rows: WarpRows, tile: WarpTile, wanted: int, held: int, reductions: int, target: Target
) -> int:
    """Of how many of the next blocks keys and values are copied ahead: as many as wanted, if there are so many, and room beside what is held."""
    sizes = rows.found.sizes
    kept = (wanted + 1) * bytes_of_blocks(tile, sizes, rows.unit, reductions, target)
    blocks = -(-sizes.keys // (tile.column_tiles * GROUPS))
    return wanted if wanted < blocks and held + kept <= target.local_bytes else 0


def _whole(length: int, part: int) -> int:
    return -(-length // part) * part


def pays_in_warps(
    sizes: Sizes, types: tuple[DType, DType], is_rounded: bool, reductions: int, target: Target
) -> bool:
    """Whether such products, with so many reductions of a row between them, are one kernel of a machine with matrix units."""
    unit = units_of(types, is_rounded, target) if target.group_items else None
    if unit is None or sizes.rows < LEAST_ROWS or sizes.keys < LEAST_KEYS or sizes.depth < 2:
        return False
    return tile_of_warps(sizes, unit, reductions, target) is not None


def find_warp_rows(kernel: UOp, target: Target) -> WarpRows | None:
    """The products of a nest that a matrix unit multiplies, before anything is kept."""
    if not target.matrix_units or target.lockstep != WARP:
        return None
    if any([n.op is Ops.LOCAL_BUFFER for n in toposort((kernel,))]):
        return None
    found = row_products_of(kernel)
    if found is None or found.inside or found.total.src[0].op is not Ops.MUL:
        return None
    scores = sums_of_scores(found.weights)
    if not all([len(n.src) == 2 and is_fixed(n.src[1]) for n in scores]):
        return None
    units = [unit_for(target.matrix_units, n.src[0].src, n.dtype) for n in (*scores, found.total)]
    unit = units[0]
    if unit is None or any([one is not unit for one in units]):
        return None
    along = _loops_of_rows(found, scores)
    operands = [read_by_unit(x, unit) for n in scores for x in n.src[0].src]
    are_loads = all([x.op is Ops.LOAD for x in operands])
    return WarpRows(found, unit, along) if along is not None and are_loads else None


def sums_of_scores(kernel: UOp) -> list[UOp]:
    """The sums of products, masked or not, that have no reduction inside."""
    found = []
    for node in toposort((kernel,)):
        if node.op is Ops.REDUCE and node.arg is Ops.ADD:
            term = node.src[0].src[1] if is_masked(node.src[0]) else node.src[0]
            inside = [n.op for n in toposort((term,), lambda n: n.op is not Ops.LOCAL_BUFFER)]
            found += [node] if term.op is Ops.MUL and Ops.REDUCE not in inside else []
    return found


def _loops_of_rows(found: RowProducts, scores: list[UOp]) -> tuple[UOp, ...] | None:
    """The loops of the reductions of a row; None where one is not over a loop of as many keys, or has no scores of its own."""
    loops = []
    for node in toposort((found.weights,)):
        if node.op not in BINDERS or node in scores:
            continue
        inside = toposort((node.src[0],), lambda n: n.op is not Ops.REDUCE or n in scores)
        own = [n for n in inside if n in scores]
        if len(node.src) != 2 or not own or not is_fixed(node.src[1]):
            return None
        if size_of(node.src[1]) != size_of(found.keys):
            return None
        loops.append(node.src[1])
    return tuple(loops) if len(set(loops)) == len(loops) else None
