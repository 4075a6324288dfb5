"""Which operands of a contraction are copied into tables, or summed with block by block.

Owns: the choice, a heuristic. Does not own: what stays in a cache (cost_model.py), what tables cost (table_cycles.py), whether rows want one (row_cycles.py), the layout of a
table (tactics/pack_operands.py), the kernels of blocks (tactics/block_reductions.py).
"""

from __future__ import annotations

from math import ceil, inf, isfinite, log2

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import AUTOMATIC, Schedule, Staged, Tile
from proofgrad.core.compile.nests.loops import size_of
from proofgrad.core.compile.nests.strides import coefficient
from proofgrad.core.compile.nests.sums_of_products import below_conversions
from proofgrad.core.compile.schedule.cache_sets import lines_that_stay
from proofgrad.core.compile.schedule.contraction import (
    LARGEST_GROWTH,
    MOST_STEPS,
    Contraction,
    load_steps,
    once_a_tile,
    table_elements,
    tiles_along,
    tiles_of,
)
from proofgrad.core.compile.schedule.cost_model import (
    TILE_CYCLES,
    columns_are_large,
    cycles_in_place,
    cycles_to_pack,
    goes_along_rows,
    pays_packing,
    pays_to_move,
    transposes_columns,
    waits_of_orders,
)
from proofgrad.core.compile.schedule.divisors import largest_divisor
from proofgrad.core.compile.schedule.items import (
    beside_in_an_item,
    others_of_an_item,
    sizes_of,
    wanted_items,
)
from proofgrad.core.compile.schedule.row_cycles import rows_may_be_a_table, rows_want_a_table
from proofgrad.core.compile.schedule.table_cycles import cycles_of_tables, rows_worth_a_table
from proofgrad.core.ir.op_names import LOAD

# Where an override asks for a table, it may have so many elements at most: a quarter of a gigabyte of float32.
LARGEST_ASKED_TABLE = 1 << 26
# Steps of the sum in a block, in pages that a processor foresees the reading of at once: each step is a row of the
# columns' operand. With twice the rows to use a block for, going through the sums half as often is worth it (measured).
FEW_ROWS, PAGES_OF_FEW, LEAST_PAGES = 48, 1, 1 / 2
# Where tiles ask for the next columns in time, adding to the sums shows, and a block has as many steps as the columns of a wide tile take half of what stays in the
# first cache (measured, 16 pages: 32 rows by 4096 x 4096 take 21 ms in blocks of 32 steps, 17 of 64 to 512; told of 32 pages: 16 and 13).
ENOUGH_STEPS, SHARE_OF_NEAR = 32, 2
# So many blocks that reading and writing the sums counts little, and a mask of the last one (measured: 3 do not pay, 5 do).
FEWEST_BLOCKS = 4
# Pages that the second buffer of translations has (1536 or 2048 since Skylake, 2048 and more since Zen 2).
TRANSLATED_LATER = 2048
# Of a matrix in no more pages, whose lines do not push each other out of the second cache, so many times fewer rows are multiplied in
# blocks, for any order is as fast; if it is shorter than so many of these caches, none where its rows are whole lines. Of one whose vectors lie
# across lines fewer, too, but for those that are neither short nor far. Of one with more rows than those pages half as many rows again are
# (measured: 300 matrices by 5 to 60 rows).
NEAR, NEAR_CACHES, ACROSS_LINES, FAR = 4, 2, 2.5, 1.5
# The columns of a wide tile, whose steps of a block are packed, are as many vectors as one in so many registers, and take one of so many parts of half
# of the second cache (measured: 1000 steps are faster than 500 or 250, of 5000 and more, and of 4000 where rows lie so far apart that they push
# each other out; of fewer, tables are. With 16 registers and a cache of 256 KB 500 are, of 4000 and more, and none of 1000).
REGISTERS_A_WIDE_VECTOR, SHARE_OF_ROOM = 8, 4
# And the rows that all columns take beside a block are two second caches long at most, or as long as a core's share of the last cache is at least, which cores with
# small second caches have 2 MB of and more: with none to 8 MB, and with one to four second caches, the same is chosen in 275 drawn cases
# (measured with 1 MB, two threads: 256 to 1024 rows by 4096 and 8192 steps take 0.8 to 1.02 times as long in blocks of 512, 1500 to 3072 rows 1.02 to 1.3 times).
CACHES_OF_ROWS, SHARE_OF_LAST_CACHE = 2, 2 << 20
# Of the products of a block loading and storing its sums may take so much, where they lie apart (measured: 20 to 100 rows of a transposed
# matrix are multiplied 1.4 to 2.2 times as fast in blocks of 250 steps as of 25 to 125).
SHARE_OF_SUMS = 1 / 10
# Types of fewer bytes are summed in wider registers; memory would round them at each block.
LEAST_ITEMSIZE = 4


def planned_staging(
    contraction: Contraction, tile: Tile, target: Target, override: Schedule = AUTOMATIC
) -> Staged:
    """Which operands of a contraction get tables."""
    if not may_stage(contraction, target, override):
        return Staged(False, False)
    return choose_staged(contraction, tile, target, override)


def may_stage(contraction: Contraction, target: Target, override: Schedule) -> bool:
    """Whether there is enough to multiply, or an override asks for tables."""
    if override.staged is not None:
        return override.staged.rows or override.staged.columns
    return contraction.pays_tables(target)


def choose_staged(
    contraction: Contraction, tile: Tile, target: Target, override: Schedule = AUTOMATIC
) -> Staged:
    """Which operands are read often enough by the tiles, and are not much longer as a table.

    None that a variable may end: its table would be filled for the largest value. Items pack the columns of a tile instead, for so many tiles as there are (measured, 1024 x 64 by
    64 x 1024 to 2048 x 128 by 128 x 2048, all rows and columns that there may be: with AVX-512 0.5 to 1.2 times as long as with a table, with AVX2 0.4 to 1, with SSE 0.5 to 1).
    """
    one, other = contraction.row_factor, contraction.column_factor
    if (wanted := override.staged) is not None:
        short = [table_elements(factor) <= LARGEST_ASKED_TABLE for factor in (one, other)]
        return Staged(wanted.rows and short[0], wanted.columns and short[1])
    if tile.lanes == 1:  # both are read along the sum
        return Staged(False, not (contraction.lies_along_sum or contraction.sums_words))
    may_be_table = (
        contraction.readers_of_columns(tile) >= 2
        and contraction.growth_of_columns <= LARGEST_GROWTH
        and not contraction.has_ended_columns
    )
    columns = may_be_table and (
        contraction.columns_lie_apart
        or _pays_order(contraction, tile, target)
        or (
            columns_are_large(contraction, target)
            and not contraction.blocks
            and not _stay_near(contraction, tile, target)
        )
    )
    return Staged(
        rows_want_a_table(contraction, tile, target),
        columns and not packs_columns(contraction, tile, target, override),
    )


def _stay_near(contraction: Contraction, tile: Tile, target: Target) -> bool:
    """Whether few tiles of rows read columns of a matrix, whole lines, which stay in the second cache from one to the next."""
    width = tile.columns * contraction.itemsize
    nbytes = contraction.depth * width
    return (
        contraction.column_factor.op is LOAD
        and contraction.depth <= lines_that_stay(_row_bytes(contraction), target)
        and width >= target.first_cache.line_bytes
        and contraction.growth_of_columns <= 1
        and not pays_to_move(tile, contraction.readers_of_columns(tile), contraction, target)
        and nbytes <= target.room_bytes
    )


@once_a_tile
def _pays_order(contraction: Contraction, tile: Tile, target: Target) -> bool:
    """Whether a table of all columns takes less than to pack those of a tile, or to read them where they lie, as tiles that go by
    along rows write their results from end to end.
    """
    if contraction.readers_of_columns(tile) < 2 or not contraction.pays_tables(target):
        return False
    if contraction.has_ended_columns:
        return False
    along_rows, along_columns = waits_of_orders(tile, contraction, target, are_copied=True)
    table = cycles_of_tables(contraction, Staged(False, True), tile, target)
    cycles = table + tiles_of(contraction, tile) * along_rows
    return cycles < _without_table(contraction, tile, target, along_columns)


def _without_table(
    contraction: Contraction, tile: Tile, target: Target, along_columns: float
) -> float:
    """The cycles that columns take which get no table: of packing them, or across lines, and what tiles wait for in the better order.

    `along_columns`: what a tile waits for of packed ones.
    """
    tiles = tiles_of(contraction, tile)
    packed = _packing(contraction, tile, target) + tiles * along_columns
    if contraction.columns_lie_apart:
        return packed
    in_place = min(waits_of_orders(tile, contraction, target))
    return min(packed, tiles * (in_place + cycles_in_place(tile, contraction, target)))


def packs_columns(
    contraction: Contraction, tile: Tile, target: Target, override: Schedule = AUTOMATIC
) -> bool:
    """Whether each item copies the columns of a tile before its tiles of rows read them.

    They must lie side by side, or along the sum. It pays where they reach over the ends of lines, or if an item has many tiles of rows,
    as its rows stay in the second cache, and the columns of a tile do not stay in the first as they lie.
    """
    if override.packed is False or not _can_pack(contraction, tile, target):
        return False
    if override.packed:
        return True
    if override.staged is not None and override.staged.columns:
        return False
    is_transposed = transposes_columns(tile, contraction, target)
    # Where none may be a table, the way without is to gather them.
    if is_transposed and (contraction.has_ended_columns or override.staged is not None):
        return True
    pays = _pays_transposing if is_transposed else _pays_rows_of_an_item
    if not pays(contraction, tile, target):
        return False
    return override.staged is not None or not _pays_order(contraction, tile, target)


def _can_pack(contraction: Contraction, tile: Tile, target: Target) -> bool:
    """Whether the columns of a tile have room beside it, and lie side by side or are transposed in registers."""
    factor = contraction.column_factor
    nbytes = contraction.depth * tile.columns * contraction.itemsize
    if nbytes > target.scratch_bytes or below_conversions(factor).op is not LOAD:
        return False
    lie_side_by_side = load_steps(factor, contraction.columns) == [1]
    return lie_side_by_side or transposes_columns(tile, contraction, target)


@once_a_tile
def _pays_rows_of_an_item(contraction: Contraction, tile: Tile, target: Target) -> bool:
    """Whether an item has so many tiles of rows that packing the columns which lie side by side, once for all of them, takes less."""
    row_bytes = contraction.row_count * contraction.depth * contraction.itemsize
    is_far = row_bytes > target.cache_bytes * 3 // 4 and not contraction.blocks
    if is_far or contraction.growth_of_columns > 1:
        return False
    readers = row_tiles_of_an_item(contraction, tile, target)
    return pays_packing(tile, readers, contraction, target) or (
        contraction.pays_tables(target)
        and not goes_along_rows(tile, contraction, target)
        and pays_to_move(tile, readers, contraction, target)
    )


@once_a_tile
def _pays_transposing(contraction: Contraction, tile: Tile, target: Target) -> bool:
    """Whether items that pack columns, each for its tiles of rows, take less time than a table of them, if there can be one."""
    may_be_table = contraction.pays_tables(target) and contraction.readers_of_columns(tile) >= 2
    if not may_be_table or contraction.growth_of_columns > LARGEST_GROWTH:
        return True
    table = cycles_of_tables(contraction, Staged(False, True), tile, target)
    return _packing(contraction, tile, target) < table


@once_a_tile
def _packing(contraction: Contraction, tile: Tile, target: Target) -> float:
    """Cycles in which all items pack their columns."""
    tiles = tiles_of(contraction, tile)
    inside = sizes_of(
        others_of_an_item(contraction, tile, target) or beside_in_an_item(contraction, tile, target)
    )
    readers = inside * row_tiles_of_an_item(contraction, tile, target, inside)
    return tiles * cycles_to_pack(tile, contraction, target) / readers


def row_tiles_of_an_item(
    contraction: Contraction, tile: Tile, target: Target, inside: int | None = None
) -> int:
    """So many tiles of rows has an item that packs the columns of a tile for them.

    `inside`: iterations of `others_of_an_item`, where they are known. Fewer tiles keep threads busy and their rows in the second cache, and pack the same columns again. All threads
    together take at most what they would if all had as much to do, and one item more (R. L. Graham, Bounds for certain multiprocessing anomalies, 1966): the least of that.
    """
    row_tiles, column_tiles = tiles_along(contraction, tile)
    others = inside or sizes_of(
        others_of_an_item(contraction, tile, target) or beside_in_an_item(contraction, tile, target)
    )
    columns = contraction.other_tiles // others * column_tiles
    packing = cycles_to_pack(tile, contraction, target)
    products = tile.rows * tile.vectors * contraction.depth / target.core.multiply_adds_a_cycle
    most = most_row_tiles(contraction, tile, target)
    waiting = _wait_for_far_rows(contraction, tile, target)
    least = 1 if isfinite(waiting) else -(-row_tiles // most)
    parts = max(-(-row_tiles // most), -(-wanted_items(target) // columns))

    def cycles(height: int) -> float:
        # Tiles beyond the last are computed, too.
        each = products + TILE_CYCLES + (waiting if height > most else 0.0)
        item = packing + others * height * each
        return (columns * -(-row_tiles // height) / target.threads + (target.threads > 1)) * item

    heights = {-(-row_tiles // part) for part in range(least, parts + 1)}
    return min(heights, key=cycles)


def _wait_for_far_rows(contraction: Contraction, tile: Tile, target: Target) -> float:
    """Cycles that a tile waits for rows which the second cache does not hold: they come from memory for each tile of columns. Without end where nothing
    foresees them. (Measured: 197 x 3072 by the transpose of 768 x 3072, of one item in place of three 6.7 ms in place of 8.4.)
    """
    core = target.core
    if not (
        contraction.rows_lie_along_depth and tile.rows <= core.foreseen_pages / 2
    ) and not rows_want_a_table(contraction, tile, target):
        return inf
    step = tile.rows * tile.vectors / core.multiply_adds_a_cycle
    moved = tile.rows * contraction.itemsize / core.memory_bytes_a_cycle
    return contraction.depth * moved * min(1.0, moved / step)


def most_row_tiles(contraction: Contraction, tile: Tile, target: Target) -> int:
    """All tiles of rows, or so many that what they read fits half of the second cache."""
    row_tiles, _ = tiles_along(contraction, tile)
    nbytes = tile.rows * contraction.depth * contraction.itemsize
    if row_tiles * nbytes <= target.cache_bytes * 3 // 4:
        return row_tiles
    return min(row_tiles, max(1, target.room_bytes // max(1, nbytes)))


def choose_reduction_block(
    contraction: Contraction, target: Target, override: Schedule = AUTOMATIC
) -> int:
    """Steps of the sum in a block of a contraction; 0: it is not summed in blocks."""
    loops, factor = contraction.reduction.src[1:], contraction.column_factor
    itemsize = contraction.itemsize
    if (
        override.reduction_block == 0
        or target.work_items
        or len(loops) != 1
        or contraction.blocks
        or itemsize < LEAST_ITEMSIZE
    ):
        return 0
    if override.reduction_block is None and override.staged is not None and override.staged.columns:
        return 0
    if (
        override.reduction_block is None
        and contraction.sums_words
        and contraction.may_sum_lanes(target)
    ):
        return 0  # both are read along it, and their products taken in pairs
    load = below_conversions(factor)
    lies_in_rows = load.op is LOAD and len(load.src[0].src) == 2
    lies_in_rows = lies_in_rows and coefficient(load.src[0].src[1], contraction.columns) == 1
    if not lies_in_rows and not contraction.columns_lie_along_sum:
        return 0
    if override.reduction_block is not None:
        return _block(size_of(loops[0]), override.reduction_block, override.reduction_block // 2)
    rows = contraction.row_count
    if not _is_long(contraction, target):
        return 0
    if not lies_in_rows or rows > _most_rows(contraction, target):
        return _deep_block(contraction, target)
    foreseen = target.core.foreseen_pages
    pages = PAGES_OF_FEW * 2 ** max(0, ceil(log2(rows / FEW_ROWS)))
    at_most, at_least = [int(n * foreseen) for n in (pages, LEAST_PAGES)]
    in_pages = foreseen * target.page_bytes // max(1, _row_bytes(contraction))
    at_most = max(at_most, min(ENOUGH_STEPS, in_pages))  # several steps lie in a page
    if _may_ask_ahead(contraction, target):
        near = target.near_bytes // (SHARE_OF_NEAR * _bytes_of_wide_columns(target))
        # Of float64 longer blocks are taken in tiles of transposed results, which takes longer (measured: 12 ms in place of 7).
        at_most = max(at_most, near if contraction.itemsize == LEAST_ITEMSIZE else ENOUGH_STEPS)
    if contraction.is_apart and (least := _steps_beside_sums(contraction, target)) > at_most:
        is_deep = contraction.depth >= FEWEST_BLOCKS * least
        return _block(contraction.depth, least, least // 2) if is_deep else 0
    return _block(size_of(loops[0]), at_most, at_least)


def _steps_beside_sums(contraction: Contraction, target: Target) -> int:
    """Steps of a block beside which it counts little that sums which lie apart are loaded and stored for each: it takes a
    small part of the products, or what memory leaves of them.
    """
    core, rows = target.core, contraction.row_count
    lanes = target.lanes(contraction.reduction.dtype)
    each = core.transposed_cycles if contraction.is_transposed else core.scatter_cycles
    products = rows / core.multiply_adds_a_cycle
    memory = lanes * contraction.itemsize / core.memory_bytes_a_cycle
    return ceil(2 * each * rows * lanes / max(SHARE_OF_SUMS * products, memory - products))


def _may_ask_ahead(contraction: Contraction, target: Target) -> bool:
    """Whether columns come from memory, and to multiply them takes clearly longer than to bring the next ones, which the tiles ask for.

    Then any number of pages is read as fast (measured, 12 bytes a cycle: 13 rows by 1000 x 4001 take .6 times as long, 8 by 2551 x 2150 1.2 times).
    """
    core = target.core
    products = contraction.row_count / core.multiply_adds_a_cycle
    is_far = _column_bytes(contraction) > target.room_bytes
    return is_far and products >= 2 * target.vector_bytes / core.memory_bytes_a_cycle


def _bytes_of_wide_columns(target: Target) -> int:
    """Of the columns of a wide tile in a step."""
    return target.vector_registers // REGISTERS_A_WIDE_VECTOR * target.vector_bytes


def _deep_block(contraction: Contraction, target: Target) -> int:
    """Steps of a long sum whose operands for a tile take a part of the second cache; 0: all of them find room."""
    most = target.room_bytes // (SHARE_OF_ROOM * _bytes_of_wide_columns(target))
    step, *_ = load_steps(contraction.row_factor, contraction.rows)
    stay = lines_that_stay((step or 0) * contraction.itemsize, target)
    least = FEWEST_BLOCKS + (contraction.row_count <= stay)
    rows_bytes = contraction.row_count * most * contraction.itemsize
    is_near = rows_bytes <= max(CACHES_OF_ROWS * target.cache_bytes, SHARE_OF_LAST_CACHE)
    is_deep = most >= target.core.foreseen_pages and contraction.depth >= least * most and is_near
    return _block(contraction.depth, most, most // 2) if is_deep else 0


def _is_long(contraction: Contraction, target: Target) -> bool:
    """Whether the columns do not stay in the second cache: where they do, adding up in memory takes longer than to read them in any order.

    (Measured: matrices of half a megabyte to two, of which 10 to 48 rows are multiplied, are 1.0 to 2.6 times as fast without blocks.)
    """
    return _column_bytes(contraction) >= target.cache_bytes


def _column_bytes(contraction: Contraction) -> int:
    return contraction.columns_at_once * contraction.itemsize


def _row_bytes(contraction: Contraction) -> int:
    """From an element of the columns' operand to that of the next step of the sum."""
    step, *_ = load_steps(contraction.column_factor, contraction.reduction.src[-1])
    return (step or 0) * contraction.itemsize


def _most_rows(contraction: Contraction, target: Target) -> float:
    """With more rows a table of the columns is read often enough, or they are better read where they lie."""
    most, row_bytes = rows_worth_a_table(target, contraction.itemsize), _row_bytes(contraction)
    is_near = _column_bytes(contraction) < TRANSLATED_LATER * target.page_bytes
    if contraction.depth > TRANSLATED_LATER and not is_near:
        return FAR * most
    in_lines = row_bytes > 0 and row_bytes % target.first_cache.line_bytes == 0
    if is_near and contraction.depth <= lines_that_stay(row_bytes, target):
        most, nbytes = most // NEAR, _column_bytes(contraction)
        is_short = nbytes < NEAR_CACHES * target.cache_bytes
        if in_lines or not (is_short or 2 * nbytes < TRANSLATED_LATER * target.page_bytes):
            return 0 if is_short else most
    return most if in_lines else most / ACROSS_LINES


def _block(depth: int, at_most: int, at_least: int) -> int:
    """So many steps that there is more than one block; equally long ones, or else the last has a mask; 0: there are none."""
    steps, blocks = largest_divisor(depth, at_most), -(-depth // at_most)
    if steps < at_least and blocks >= FEWEST_BLOCKS:
        steps = -(-depth // blocks)
        if at_most > ENOUGH_STEPS:  # the sum is unrolled, where that divides its steps
            steps = min(at_most, -(-steps // MOST_STEPS) * MOST_STEPS)
    return steps if at_least <= steps < depth else 0


def filling(
    contraction: Contraction, tile: Tile, target: Target, override: Schedule = AUTOMATIC
) -> float:
    """Cycles that it takes to fill the tables of a contraction, or to pack columns, or to take them where they lie; and that tiles wait in their order.

    Rows that may be a table count as one, also where they are read in place because that takes less: tiles that are chosen by what it takes
    are slower (measured, two threads: 7 of 38 products whose rows lie across the sum by a tenth and more).
    """
    staged = planned_staging(contraction, tile, target, override)
    if may_stage(contraction, target, override) and override.staged is None and tile.lanes > 1:
        staged = Staged(rows_may_be_a_table(contraction, tile, target), staged.columns)
    if staged.columns and choose_reduction_block(contraction, target, override):
        staged = Staged(staged.rows, False)
    cycles = cycles_of_tables(contraction, staged, tile, target)
    if tile.lanes == 1:
        return cycles
    tiles = tiles_of(contraction, tile)
    if staged.columns:
        return cycles + tiles * min(waits_of_orders(tile, contraction, target, are_copied=True))
    if packs_columns(contraction, tile, target, override):
        _, wait = waits_of_orders(tile, contraction, target, are_copied=True)
        return cycles + _packing(contraction, tile, target) + tiles * wait
    each = min(waits_of_orders(tile, contraction, target))
    each += cycles_in_place(tile, contraction, target)
    may_be_copied = contraction.readers_of_columns(tile) >= 2  # the tile counts on it
    if override.staged is not None and contraction.columns_lie_apart and may_be_copied:
        each += contraction.depth * tile.columns * target.core.gather_cycles
    return cycles + tiles * each
