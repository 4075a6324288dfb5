"""Which tile of the output a contraction computes at once, and how its loops are blocked.

Owns: choosing the loops and the sizes of a tile from the target: a heuristic, which can make a kernel slow
and never wrong. Does not own: what a contraction is (contraction.py), the changes of the iteration space
(axes.py), the tables that operands are staged into (operands.py, staging.py).

Each step of a tile's loop loads one element a row and one vector for each `lanes` columns, and multiplies
every row with every column into registers.
"""

from __future__ import annotations

from math import prod

from proofgrad.core.compile.contraction import (
    LARGEST_GROWTH,
    Contraction,
    contractions,
    tiles_along,
)
from proofgrad.core.compile.kernel_schedule import AUTOMATIC, Blocks, Schedule, Tile
from proofgrad.core.compile.loops import size_of
from proofgrad.core.compile.operands import WORTH_A_TABLE, filling, lie_near
from proofgrad.core.compile.target import FirstCache, Target
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.uop import UOp

# Registers beside the accumulators and one step's vectors: a broadcast element and room to move.
SPARE_REGISTERS = 3
# What the second cache, and what is behind it, give to a loop that streams from them; most of the
# former is hidden behind the multiplications (measured: tiles whose columns stay in the first are 3 % faster).
CACHE_BYTES_A_CYCLE = 256
MEMORY_BYTES_A_CYCLE = 6
LINE_CYCLES, MEMORY_LINE_CYCLES = 0.5, 40
# Registers of masks that multiply-adds can take; more are fetched in each step.
MASKS = 7
# Multiply-adds of vectors in one iteration of a tile; more make code that takes long to compile.
MOST_PRODUCTS_AT_ONCE = 112
# Items to share out: more even out the threads, fewer count less.
ITEMS_A_THREAD, ITEMS_A_THREAD_OF_SLABS = 8, 2
# Cycles to store one element of a vector whose elements lie apart; of several rows, turned in registers.
SCATTER_CYCLES, TURNED_CYCLES, TURNED_ROWS = 1.5, 0.4, 4
# Cycles to load one, from a line of its own, into a vector.
GATHER_CYCLES = 1.5
# Rows and vectors of columns in a tile, at most: more vectors leave few rows to share them.
MOST_ROWS, MOST_VECTORS = 16, 8


def find_contraction(
    kernel: UOp, target: Target, asked: Schedule = AUTOMATIC
) -> tuple[Contraction, Tile] | None:
    """The one sum of products of a kernel with one store, and its best tile; None: nothing to tile."""
    if asked.tiled is False:
        return None
    ways = [(contraction, _best(tiles, contraction, target))
            for contraction in contractions(kernel, asked)
            if (tiles := _tiles(contraction, target, asked))]  # fmt: skip
    if len(ways) == 1:
        return ways[0]
    ways.sort(key=lambda way: _cost(way[1], way[0], target) + filling(*way, target, asked))
    return ways[min(asked.along or 0, len(ways) - 1)] if ways else None


def _best(tiles: list[Tile], contraction: Contraction, target: Target) -> Tile:
    if len(tiles) == 1:
        return tiles[0]
    return min(tiles, key=lambda tile: _cost(tile, contraction, target))


def _cycles_of_lines(tile: Tile, contraction: Contraction, cache: FirstCache) -> float:
    """Cycles to get the lines that a step reads for the rows of a tile, where they get no table."""
    read, is_near = contraction.readers_of_rows(tile), lie_near(contraction, tile, cache)
    if read >= (2 if is_near else WORTH_A_TABLE) and contraction.rows_fit_a_table:
        return 0.0
    lines = float(tile.rows)
    elements = cache.line_bytes // contraction.reduction.dtype.itemsize
    if is_near:
        lines /= min(elements, size_of(contraction.reduction.src[-1]))
    if contraction.rows_lie_side_by_side:
        lines /= min(elements, tile.rows)
    # From memory, where nothing foresees it; windows, which overlap, are read again.
    is_far = read * contraction.growth_of_rows < 2 and not contraction.rows_lie_along_depth
    return lines * (MEMORY_LINE_CYCLES if is_far else LINE_CYCLES)


def _tiles(contraction: Contraction, target: Target, asked: Schedule) -> list[Tile]:
    """The tiles that fit the registers, large ones first."""
    if asked.tile is not None:
        return [asked.tile] if target.vector_bytes else []
    lanes = _lanes(size_of(contraction.columns), target, contraction.reduction.dtype)
    if lanes < 2:
        return []
    sizes = [(rows, vectors) for rows in range(2, MOST_ROWS + 1) for vectors in range(1, MOST_VECTORS + 1)
             if rows * vectors + vectors + SPARE_REGISTERS <= target.vector_registers]  # fmt: skip
    return [Tile(*size, lanes) for size in sorted(sizes, key=lambda size: -size[0] * size[1])]


def _lanes(columns: int, target: Target, dtype: DType) -> int:
    """A full vector, or a shorter one for few columns."""
    lanes = target.lanes(dtype)
    while lanes > 1 and lanes >= 2 * columns:
        lanes //= 2
    return lanes


def _cost(tile: Tile, contraction: Contraction, target: Target) -> float:
    """Cycles of the multipliers, the load ports or a cache, whichever is busiest; all of the kernel."""
    depth, itemsize = contraction.depth, contraction.reduction.dtype.itemsize
    tiles = prod(tiles_along(contraction, tile), start=contraction.other_tiles)
    products, loads = tile.rows * tile.vectors, _loads(tile, contraction)
    # What each tile of the same columns reads again; windows over an image overlap.
    panel = depth * tile.columns * itemsize / max(1.0, contraction.growth_of_columns)
    moved = (tile.rows + tile.columns) * itemsize  # bytes of one step
    # Two multiply-adds and two loads a cycle; a multiply-add takes 4 cycles, so fewer than 8 of them
    # wait for each other. Loads, and what comes from the second cache, are not hidden whole.
    step = max(products / 2, loads / 2, 4.0) + loads / 8
    if panel > target.cache_bytes // 2:
        step = max(step, tile.columns * itemsize / MEMORY_BYTES_A_CYCLE)
    elif panel > target.first_cache.nbytes // 2:
        step += moved / CACHE_BYTES_A_CYCLE
    if contraction.has_gated_rows and tile.rows > MASKS:  # each row has a mask of its own
        step += tile.rows
    step += _cycles_of_lines(tile, contraction, target.first_cache)
    has_table = contraction.readers_of_columns(tile) >= 2
    if contraction.columns_stay_apart or (contraction.columns_lie_apart and not has_table):
        step += tile.columns * GATHER_CYCLES
    return tiles * (step * depth + _stores(tile, contraction))


def _stores(tile: Tile, contraction: Contraction) -> float:
    """Cycles to store what a tile has computed, where that is not over in no time."""
    if not contraction.is_apart:
        return 0.0
    turned = tile.rows // TURNED_ROWS * TURNED_ROWS if contraction.is_turned else 0
    return tile.columns * (turned * TURNED_CYCLES + (tile.rows - turned) * SCATTER_CYCLES)


def _loads(tile: Tile, contraction: Contraction) -> float:
    """Loads in a step: one for each row and for each vector of columns, two where it lies across lines.

    Windows of neighbouring rows share what they read in steps that run at once.
    """
    rows, apart = float(tile.rows), contraction.window_step
    at_once = choose_depth(contraction.reduction.src[-1], tile)
    if 0 < apart < at_once:
        rows = (apart * (tile.rows - 1) + at_once) / at_once
    is_windows = contraction.growth_of_columns > LARGEST_GROWTH
    return rows + tile.vectors * (1 + is_windows)


def choose_depth(loop: UOp, tile: Tile, asked: Schedule = AUTOMATIC) -> int:
    """How many steps of the innermost loop of the sum run at once: less counting, and windows share loads."""
    size = size_of(loop)
    if asked.depth is not None:
        return size if size <= asked.depth else asked.depth if size % asked.depth == 0 else 1
    most = MOST_PRODUCTS_AT_ONCE // (tile.rows * tile.vectors)
    if size <= most:
        return size
    return next((n for n in (4, 2) if n <= most and size % n == 0), 1)


def choose_blocks(
    contraction: Contraction, tile: Tile, target: Target, asked: Schedule = AUTOMATIC
) -> Blocks:
    """Rows of an item fit half of the second cache; enough items for every thread."""
    row_tiles, column_tiles = tiles_along(contraction, tile)
    if (wish := asked.blocks) is not None:
        return Blocks(min(wish.row_tiles, row_tiles), min(wish.column_tiles, column_tiles))
    if contraction.slabs:
        return Blocks(row_tiles, _width_of_slabs(contraction, tile, target))
    others = prod(size_of(x) for x in contraction.others)
    row_bytes = tile.rows * contraction.depth * contraction.reduction.dtype.itemsize
    height = _block(row_tiles, max(1, target.cache_bytes // 2 // max(1, row_bytes)))
    if row_tiles * row_bytes <= target.cache_bytes * 3 // 4:
        height = row_tiles
    width = column_tiles
    if contraction.shares_large_columns(target.cache_bytes):
        column_bytes = tile.columns * contraction.depth * contraction.reduction.dtype.itemsize
        width = _block(column_tiles, max(1, target.cache_bytes // 2 // column_bytes))
    wanted = ITEMS_A_THREAD * target.threads

    def items() -> int:
        return others * -(-row_tiles // height) * -(-column_tiles // width)

    while width > 1 and items() < wanted:
        width = _block(column_tiles, width // 2)
    while height > 1 and items() < wanted:
        height = _block(row_tiles, height // 2)
    return Blocks(height, width)


def _width_of_slabs(contraction: Contraction, tile: Tile, target: Target) -> int:
    """Tiles of columns of an item: sums of all rows and a slab fit half of the second cache.

    As wide as that, for memory is read best in long pieces.
    """
    row_tiles, column_tiles = tiles_along(contraction, tile)
    bytes_a_tile = (row_tiles * tile.rows + contraction.depth) * tile.columns
    bytes_a_tile *= contraction.reduction.dtype.itemsize
    items = prod(size_of(x) for x in contraction.others)
    shared = -(-ITEMS_A_THREAD_OF_SLABS * target.threads // items)
    return max(1, min(target.cache_bytes // 2 // bytes_a_tile, -(-column_tiles // shared)))


def _block(tiles: int, at_most: int) -> int:
    """Tiles a block, about as many as allowed, so that whole blocks reach little beyond the tiles."""
    at_most = min(tiles, at_most)
    sizes = range(max(1, at_most // 2), at_most + 1)
    return min(sizes, key=lambda size: (-(-tiles // size) * size / tiles + 1 / (8 * size), -size))
