"""How many cycles the tiles of a contraction take, and what stays in which cache.

Owns: the model. Does not own: what reading rows takes (row_cycles.py), what tables take (table_cycles.py), the numbers of a machine (machine.py), cycles of an operation (operation_cycles.py), sets of a cache (cache_sets.py), the choices that ask (tiles.py, operands.py,
tactics/local_buffers.py, fusion/kernels.py).
"""

from __future__ import annotations

from math import gcd, inf, log2

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import Tile
from proofgrad.core.compile.nests.loops import size_of
from proofgrad.core.compile.schedule.cache_sets import columns_collide, sets_of
from proofgrad.core.compile.schedule.contraction import (
    LARGEST_GROWTH,
    Contraction,
    lanes_of_sum,
    load_steps,
    table_elements,
    tiles_along,
    tiles_of,
)
from proofgrad.core.compile.schedule.masked_rows import masked_rows
from proofgrad.core.compile.schedule.operation_cycles import MEMORY_CYCLES
from proofgrad.core.compile.schedule.row_cycles import (
    SHOWN,
    TRANSLATION_CYCLES,
    cycles_of_lines,
    known_bytes,
    lie_near,
    panel_bytes,
)
from proofgrad.core.compile.schedule.table_cycles import (
    CACHES_OF_A_SHARE,
    PACKING_CYCLES,
    TRANSPOSED_ROWS,
    cycles_to_bring_apart,
    part_that_leaves,
)

# Of loads that are a part of a multiplication so much shows of what would.
SHOWN_OF_A_PART = 1 / 2
# Of second loads of vectors that lie across lines (measured: 0.2 to 0.5 cycles a vector between other loads, 0.9 where ports are busy).
SHOWN_OF_ACROSS = 1 / 2
# Of what comes from the second cache to the first, where that takes as long as the multiplications; where it takes half as long,
# half of that, for it is seldom in their way. (Measured: 4 rows of 5 vectors are a fifth slower than 8 of 3.)
SHOWN_OF_CACHE = 3 / 4
# Of the pages whose translations are at hand a tile's columns, one step of the sum a page, may take so many.
UNSTAGED_PAGES = 1 / 2

# Cycles more that a vector takes which lies in two lines (measured).
ACROSS_LINES_CYCLES = 0.7
# Times that a line of packed columns goes from one cache to the other, where they do not stay in the first: before it is written, then, and
# to be read.
FAR_MOVES = 3
# Cycles to find where a row begins, if the last tile has fewer, and to ask whether it is stored (measured; ten instructions).
CLAMP_CYCLES = 1
# Cycles to compare the numbers of a vector's lanes with where a loop ends, and more for each load where masks are vectors (measured).
MASK_CYCLES, MASKED_LOAD_CYCLES = 2, 1.5
# Registers of a tile that reads the last columns under a mask, beside sums and columns: the element of a row and the mask. Cycles until what was stored is
# loaded again [F: 7 to 8], and the store.
REGISTERS_BESIDE_SUMS, FORWARDED_CYCLES = 2, 9
# Vectors of bytes that are widened to words [F: a shuffle].
WIDENED_A_CYCLE = 1
# Multiply-adds of vectors in one iteration of a tile; more make code that takes long to compile.
MOST_PRODUCTS_AT_ONCE = 112
# Cycles of a tile but for its steps: sums begin anew, and loops end where it was not foreseen (measured).
TILE_CYCLES = 16


def cycles_of_tiles(tile: Tile, at_once: int, contraction: Contraction, target: Target) -> float:
    """Cycles of the multipliers, the load ports or a cache, whichever is busiest; all of the kernel.

    `at_once`: steps of the innermost loop of the sum.
    """
    if tile.lanes == 1:
        return _cycles_of_summed_lanes(tile, contraction, target)
    core, depth = target.core, contraction.depth
    tiles = tiles_of(contraction, tile)
    loads = _loads(tile, at_once, contraction)
    ports = core.loads_a_cycle * _of_a_whole_vector(tile, contraction, target)
    step = max(
        _multiplying(tile, contraction, target),
        loads / ports,
        float(core.multiply_add_cycles),  # in which each sum is added to once
    )
    step += SHOWN * _apart_from_products(tile, loads, contraction, target) / ports
    step += _cycles_of_masks(tile, contraction, target)
    step += cycles_of_lines(tile, contraction, target)
    is_copied = contraction.readers_of_columns(tile) >= 2 or transposes_columns(
        tile, contraction, target
    )
    if contraction.columns_stay_apart or (contraction.columns_lie_apart and not is_copied):
        each = core.gather_cycles + cycles_to_bring_apart(tile, contraction, target)
        step += tile.columns * each
    once = TILE_CYCLES + _stores(tile, contraction, target)
    if contraction.row_count % tile.rows:
        once += CLAMP_CYCLES * tile.rows
    return tiles * (step * depth + once)


def least_cycles(tile: Tile, contraction: Contraction, target: Target) -> float:
    """What multipliers and load ports take: no more than `cycles_of_tiles`, and found sooner."""
    core = target.core
    tiles = tiles_of(contraction, tile)
    if tile.lanes == 1:
        busy = tile.rows * tile.vectors / core.multiply_adds_a_cycle
        return tiles * busy * contraction.depth / lanes_of_sum(contraction, target)
    apart = tile.vectors + (0 if contraction.window.lag else SHOWN_OF_A_PART * tile.rows)
    busy = max(_multiplying(tile, contraction, target), float(core.multiply_add_cycles))
    ports = core.loads_a_cycle * _of_a_whole_vector(tile, contraction, target)
    step = busy + SHOWN * apart / ports
    return tiles * (step * contraction.depth + TILE_CYCLES)


def _multiplying(tile: Tile, contraction: Contraction, target: Target) -> float:
    """Cycles in which a step multiplies."""
    products = tile.rows * tile.vectors / target.core.multiply_adds_a_cycle
    return products / _of_a_whole_vector(tile, contraction, target)


def _of_a_whole_vector(tile: Tile, contraction: Contraction, target: Target) -> float:
    """So many vectors of a tile are multiplied, or loaded, while a whole one would be."""
    return target.of_a_whole_vector(tile.lanes * contraction.reduction.dtype.itemsize)


def _cycles_of_summed_lanes(tile: Tile, contraction: Contraction, target: Target) -> float:
    """The same of tiles whose elements are vectors along the sum: each step loads one for each row and column."""
    core, itemsize = target.core, contraction.itemsize
    if contraction.sums_words:
        itemsize = contraction.loaded_itemsize
    tiles = tiles_of(contraction, tile)
    lanes, inner = lanes_of_sum(contraction, target), size_of(contraction.reduction.src[-1])
    products, loads = tile.rows * tile.vectors, tile.rows + tile.vectors
    busiest = loads / core.loads_a_cycle
    widened = loads / WIDENED_A_CYCLE if contraction.sums_words and itemsize == 1 else 0.0
    step = max(products / core.multiply_adds_a_cycle, busiest, float(core.multiply_add_cycles))
    step = max(step, widened)
    step += SHOWN * busiest
    nbytes, far = lanes * itemsize, 0
    if table_elements(contraction.row_factor) * itemsize > target.near_bytes:
        far += tile.rows
    if contraction.column_count * contraction.depth * itemsize > target.near_bytes:
        far += tile.vectors
    waits = far * nbytes / core.cache_bytes_a_cycle
    step = max(step, waits) + SHOWN_OF_CACHE * waits * min(1.0, waits / step)
    if inner * itemsize % target.first_cache.line_bytes:
        across = min(1.0, nbytes / target.first_cache.line_bytes)
        step += ACROSS_LINES_CYCLES * across * loads / core.loads_a_cycle
    at_once = -(-inner // lanes)
    steps = contraction.depth // inner * at_once
    if inner % lanes:
        mask = MASKED_LOAD_CYCLES * loads if masks_are_vectors(target) else MASK_CYCLES
        step += mask / (at_once if at_once * products <= MOST_PRODUCTS_AT_ONCE else 1)
    # To add up lanes, half of them at a time: a shuffle in a cycle, and an addition beside it.
    once = TILE_CYCLES + products * log2(lanes) + _wait_for_short_rows(tile, contraction, target)
    if contraction.row_count % tile.rows:
        once += CLAMP_CYCLES * tile.rows
    return tiles * (step * steps + once)


def _wait_for_short_rows(tile: Tile, contraction: Contraction, target: Target) -> float:
    """Cycles that a tile of sums in lanes waits for rows shorter than a page, where no cache holds them: the more of them are read at once the fewer lines
    are foreseen (measured: 100,000 rows of 64 floats by 3 columns take 12, 17 and 24 cycles a line by 4, 6 and 8 rows)."""
    core, row_bytes = target.core, contraction.depth * contraction.itemsize
    if row_bytes >= target.page_bytes:
        return 0.0
    nbytes = table_elements(contraction.row_factor) * contraction.itemsize
    unforeseen = min(1.0, 2 * (tile.rows - 1) / core.foreseen_pages)
    lines = unforeseen * tile.rows * row_bytes / target.first_cache.line_bytes
    leaves = part_that_leaves(nbytes // CACHES_OF_A_SHARE, target)
    return leaves * lines * core.memory_line_cycles


def cycles_in_place(tile: Tile, contraction: Contraction, target: Target) -> float:
    """Cycles that a tile takes more as it reads its columns where they lie, and not packed: across lines, and under a mask at the end of a row."""
    across = cycles_across_lines(tile, contraction, target)
    return across + _cycles_of_ends(tile, contraction, target)


def _cycles_of_ends(tile: Tile, contraction: Contraction, target: Target) -> float:
    """Cycles that a tile takes more, on average, as the last vectors of columns have fewer lanes: where masks are vectors and sums fill all other registers,
    that mask takes the one of a sum, and each step adds to it in memory (measured: 422 x 68 by 68 x 43 in tiles of 4 x 3 56 us, packed 37)."""
    core, registers = target.core, target.vector_registers
    taken = (tile.rows + 1) * tile.vectors + REGISTERS_BESIDE_SUMS
    has_masks = contraction.column_count % tile.lanes and masks_are_vectors(target)
    if not has_masks or taken <= registers:
        return 0.0
    step = tile.rows * tile.vectors / core.multiply_adds_a_cycle
    in_memory = core.multiply_add_cycles + FORWARDED_CYCLES
    _, column_tiles = tiles_along(contraction, tile)
    return contraction.depth * max(0.0, in_memory - step) / column_tiles


def cycles_across_lines(tile: Tile, contraction: Contraction, target: Target) -> float:
    """Cycles that a tile takes more as vectors of its columns, where they lie in memory, reach over the ends of lines: each is two loads.

    Between many multiplications these find a free port; a tile of one vector has none left (measured: 8 x 3 take 4 % longer, 16 x 1 at least 11 %).
    """
    core = target.core
    products, loads = tile.rows * tile.vectors, tile.rows + tile.vectors
    more = tile.vectors * _part_across_lines(tile.lanes, contraction, target)

    def busiest(loads: float) -> float:
        multiplying = max(products / core.multiply_adds_a_cycle, float(core.multiply_add_cycles))
        return max(multiplying, loads / core.loads_a_cycle)

    shown = SHOWN_OF_ACROSS * more / core.loads_a_cycle
    return contraction.depth * (busiest(loads + more) - busiest(loads) + shown)


def _part_across_lines(columns: int, contraction: Contraction, target: Target) -> float:
    """Of pieces of so many neighbouring columns, where they lie in memory, those that are in one line more than their length asks for."""
    itemsize, line = contraction.itemsize, target.first_cache.line_bytes
    step, *_ = load_steps(contraction.column_factor, contraction.reduction.src[-1]) or [0]
    if step is None or contraction.columns_lie_apart or contraction.growth_of_columns > 1:
        return 0.0
    starts = range(0, line, gcd(step * itemsize, line) or line)
    end = columns * itemsize % line or line
    return sum(start + end > line for start in starts) / len(starts)


def pays_packing(tile: Tile, readers: int, contraction: Contraction, target: Target) -> bool:
    """Whether columns are packed sooner than the tiles of an item that read them, so many, take them across lines."""
    if readers < 2:
        return False
    packing = cycles_to_pack(tile, contraction, target) / readers
    packing += waits_of_orders(tile, contraction, target, are_copied=True)[1]
    in_place = min(waits_of_orders(tile, contraction, target))
    return packing < in_place + cycles_in_place(tile, contraction, target)


def pays_to_move(tile: Tile, readers: int, contraction: Contraction, target: Target) -> bool:
    """Whether columns of many pages, or of lines that push each other out of the first cache, are packed sooner than so many tiles of rows
    wait for them where they lie."""
    in_place = _waits_in_place(tile, contraction, target)
    if readers < 2 or not in_place:
        return False
    packing = cycles_to_pack(tile, contraction, target) / readers
    packing += waits_of_orders(tile, contraction, target, are_copied=True)[1]
    return packing < in_place + waits_of_orders(tile, contraction, target)[1]


def _waits_in_place(tile: Tile, contraction: Contraction, target: Target) -> float:
    """Cycles that a tile waits for columns which other tiles have read where they lie: for their pages, and for the second cache."""
    core, cycles = target.core, _cycles_of_pages(contraction, target)
    if columns_collide(contraction, target.first_cache):
        step = tile.rows * tile.vectors / core.multiply_adds_a_cycle
        moved = tile.columns * contraction.itemsize / core.cache_bytes_a_cycle
        cycles += SHOWN_OF_CACHE * moved * min(1.0, moved / step)
    return contraction.depth * cycles


def _cycles_of_pages(contraction: Contraction, target: Target) -> float:
    """Cycles that a step waits for columns where they lie, if they are in many pages: each step, or each few, goes to another one."""
    if not columns_are_large(contraction, target):
        return 0.0
    width = contraction.column_count * contraction.itemsize
    return SHOWN * TRANSLATION_CYCLES * min(1.0, width / target.page_bytes)


def transposes_columns(tile: Tile, contraction: Contraction, target: Target) -> bool:
    """Whether an item may pack the columns of a tile, which lie along the sum, by transposing them in registers."""
    return tile.lanes % TRANSPOSED_ROWS == 0 and contraction.may_transpose(tile.columns, target)


def cycles_to_pack(tile: Tile, contraction: Contraction, target: Target) -> float:
    """Cycles in which an item packs the columns of a tile. Transposed ones that do not stay in the first cache are moved from one to
    the other."""
    core = target.core
    if not contraction.columns_lie_apart:
        memory = _cycles_from_memory(tile, contraction, target)
        return max(float(PACKING_CYCLES * tile.vectors), memory) * contraction.depth
    each, nbytes = core.transposed_cycles * tile.columns, tile.columns * contraction.itemsize
    if panel_bytes(tile, contraction) > target.near_bytes:
        each += FAR_MOVES * nbytes / core.cache_bytes_a_cycle
    each += tile.columns * cycles_to_bring_apart(tile, contraction, target)
    return each * contraction.depth


def goes_along_rows(
    tile: Tile, contraction: Contraction, target: Target, are_copied: bool = False
) -> bool:
    """Whether the tiles that share rows should go by one after the other, rather than those that share columns."""
    along_rows, along_columns = waits_of_orders(tile, contraction, target, are_copied)
    return along_rows < along_columns


def waits_of_orders(
    tile: Tile, contraction: Contraction, target: Target, are_copied: bool = False
) -> tuple[float, float]:
    """Cycles that a tile waits if tiles go by along rows, and along columns. `are_copied`: columns, which are read from end to end then.

    Along rows the columns of a matrix come from the second cache for each tile. Along columns the rows do, and results are
    written to as many pages as there are rows, instead of from end to end of each: where they do not stay in the second cache, each line is
    waited for (measured: of 1000 x 154 by 154 x 1408 17 cycles a line).
    """
    core, itemsize, depth = target.core, contraction.itemsize, contraction.depth
    step = tile.rows * tile.vectors / core.multiply_adds_a_cycle
    line = target.first_cache.line_bytes

    def wait(nbytes: float) -> float:
        cycles = nbytes / core.cache_bytes_a_cycle
        return depth * SHOWN_OF_CACHE * cycles * min(1.0, cycles / step)

    row_bytes, column_bytes = tile.rows * itemsize, float(tile.columns * itemsize)
    if not are_copied:  # the line at one end is another tile's, too
        column_bytes += line * _part_across_lines(tile.columns, contraction, target)
        if tile.columns >= contraction.column_count:
            column_bytes = float(contraction.column_count * itemsize)
    panel = depth * column_bytes / max(1.0, contraction.growth_of_columns)
    leaves = _leaves_first_cache(panel, tile, contraction, target)
    is_far = (leaves and panel <= target.room_bytes) or (
        contraction.blocks and columns_collide(contraction, target.first_cache)
    )
    along_columns = wait(row_bytes + column_bytes) if is_far else 0.0
    if panel > target.room_bytes:  # the next tile of rows finds them no nearer than the first did
        along_columns = depth * max(0.0, column_bytes / core.memory_bytes_a_cycle - step)
    rows, columns = contraction.row_count, contraction.column_count
    all_columns = columns * depth * itemsize
    if max(contraction.growth_of_rows, contraction.growth_of_columns) > 1:  # windows
        return inf, along_columns + _wait_for_weights(tile, contraction, target)
    if not are_copied and panel <= target.room_bytes:
        tiles, cycles = -(-rows // tile.rows), _cycles_from_memory(tile, contraction, target)
        if contraction.blocks:  # the first of the tiles that share columns waits for them
            along_columns += depth * max(0.0, cycles - step) / tiles
        else:  # they are asked for while the tiles before multiply
            along_columns += depth * max(0.0, cycles / tiles - step)
        if not is_far and all_columns > target.near_bytes:
            along_columns += wait(column_bytes) / tiles
    if contraction.blocks or contraction.is_apart or target.work_items:
        return inf, along_columns
    if rows * depth * itemsize > target.near_bytes and not is_far:
        along_columns += wait(row_bytes)
    width = columns * itemsize
    nbytes = rows * width
    if nbytes > known_bytes(target):
        along_columns += TRANSLATION_CYCLES * tile.rows * min(1.0, width / target.page_bytes)
    ends = line if width % line else 0  # a line is in two tiles
    lines = tile.rows * (tile.columns * itemsize + ends)
    along_columns += (
        part_that_leaves(nbytes * contraction.other_tiles, target)
        * lines
        / core.memory_bytes_a_cycle
    )
    if all_columns > (target.cache_bytes if are_copied else target.room_bytes):
        return inf, along_columns
    along_rows = wait(column_bytes) if all_columns > target.near_bytes else 0.0
    if depth * row_bytes > target.near_bytes:
        along_rows += wait(row_bytes)
    if not are_copied:  # nothing asks for them before the first tile of rows does
        cycles = _cycles_from_memory(tile, contraction, target)
        along_rows += depth * max(0.0, cycles - step) / -(-rows // tile.rows)
        along_rows += depth * _cycles_of_pages(contraction, target)
    return along_rows, along_columns


def _wait_for_weights(tile: Tile, contraction: Contraction, target: Target) -> float:
    """Cycles that a tile of windows along its columns waits for rows, as weights are, which all images and lines of them read anew, from memory
    where the second cache does not hold them (measured: 291 x 3906 weights by lines of 7 take 1.8 times what they do from the first cache)."""
    nbytes = table_elements(contraction.row_factor) * contraction.itemsize
    tiles = -(-contraction.column_count // tile.columns)  # one after the other
    is_read_anew = contraction.readers_of_rows(tile) > tiles and contraction.growth_of_rows <= 1
    if not is_read_anew or nbytes <= target.cache_bytes:
        return 0.0
    row_bytes = tile.rows * contraction.depth * contraction.itemsize
    return row_bytes / tiles / target.core.memory_bytes_a_cycle


def _leaves_first_cache(panel: float, tile: Tile, contraction: Contraction, target: Target) -> bool:
    """Whether columns of so many bytes are gone when the next tile reads them: if they are all that there are, nothing else goes by but the rows of
    the last tile and its own (measured: 24 batches of 46 x 152 by 152 x 72 are 1.25 times as fast in tiles of 5 vectors as of one)."""
    if panel <= target.near_bytes or tile.columns < contraction.column_count:
        return panel > target.near_bytes
    rows = 2 * tile.rows * contraction.depth * contraction.itemsize
    return panel + rows > target.first_cache.nbytes


def _cycles_from_memory(tile: Tile, contraction: Contraction, target: Target) -> float:
    """Cycles to get a step's columns of a tile from memory, where the second cache does not hold the operand: its next row is in another page."""
    itemsize, core = contraction.itemsize, target.core
    if table_elements(contraction.column_factor) * itemsize <= target.cache_bytes:
        return 0.0
    pages = min(1.0, contraction.column_count * itemsize / target.page_bytes)
    return tile.columns * itemsize / core.memory_bytes_a_cycle + TRANSLATION_CYCLES * pages


def _cycles_of_masks(tile: Tile, contraction: Contraction, target: Target) -> float:
    """Cycles that a step takes for masks which change along a tile."""
    core, cycles = target.core, 0.0
    are_vectors = masks_are_vectors(target)
    # Each has its own mask, which chooses where it is loaded from; where that takes a register of sums, tiles of more rows are slower whichever ask (measured).
    of_tile = (
        tile.rows if are_vectors and contraction.has_masked_rows else masked_rows(contraction, tile)
    )
    is_short = of_tile <= core.mask_registers
    cycles += of_tile * (0 if is_short and not are_vectors else SHOWN if is_short else 1)
    if contraction.has_masked_columns and are_vectors:
        # A mask takes a vector's register, and the sum that was in it goes through memory each time (measured).
        cycles += tile.vectors * core.multiply_add_cycles
    return cycles


def masks_are_vectors(target: Target) -> bool:
    """Whether a mask of lanes takes a register of vectors, and a choice by it an instruction."""
    return target.core.mask_registers >= target.vector_registers


def _loads(tile: Tile, at_once: int, contraction: Contraction) -> float:
    """Loads in a step: one for each row and for each vector of columns, two where it lies across lines.

    Windows of neighbouring rows share what they read in steps that run at once.
    """
    rows = tile.rows - contraction.window.again(tile.rows, at_once) / at_once
    is_windows = contraction.growth_of_columns > LARGEST_GROWTH
    return rows + tile.vectors * (1 + is_windows)


def _apart_from_products(
    tile: Tile, loads: float, contraction: Contraction, target: Target
) -> float:
    """Of the loads of a step those that are instructions: with AVX-512 a product that takes an element of a row alone loads it itself.

    So it is in tiles of one vector. It shows where the rows are windows, which are in the first cache, and columns are a table, read
    from end to end. (Measured: 13 x 1 of a convolution take 6.6 cycles a step; 9 x 2
    take less than twice 9 x 1.)
    """
    is_of_windows = contraction.columns_lie_apart and contraction.growth_of_rows > LARGEST_GROWTH
    is_near = is_of_windows or lie_near(contraction, tile, target.first_cache)
    if tile.vectors > 1 or not is_near or masks_are_vectors(target):
        return loads
    return tile.vectors + SHOWN_OF_A_PART * (loads - tile.vectors)


def _stores(tile: Tile, contraction: Contraction, target: Target) -> float:
    """Cycles to store what a tile has computed, where that is not over in no time."""
    times = 2 if contraction.blocks else 1  # sums of blocks are loaded as well
    if not contraction.is_apart:
        return (times - 1) * MEMORY_CYCLES * tile.rows * tile.vectors
    core, transposed = (
        target.core,
        tile.rows // TRANSPOSED_ROWS * TRANSPOSED_ROWS if contraction.is_transposed else 0,
    )
    apart = tile.rows - transposed
    width = size_of(contraction.rows) * contraction.reduction.dtype.itemsize
    pages = 0.0
    if contraction.is_transposed and width * size_of(contraction.columns) > known_bytes(target):
        pages = tile.columns * min(1.0, width / target.page_bytes)
    cache, lines = target.first_cache, 0
    if contraction.is_transposed and tile.columns > cache.ways * sets_of(width, cache):
        lines = 2 * tile.columns  # from the second cache, where the last tile left them, and back
    each = transposed * core.transposed_cycles + apart * core.scatter_cycles
    moved = lines * cache.line_bytes / core.cache_bytes_a_cycle
    return moved + TRANSLATION_CYCLES * pages + times * tile.columns * each


def columns_are_large(contraction: Contraction, target: Target) -> bool:
    """Whether the columns, which a tile reads in steps of a whole row, lie in more pages than are at hand.

    As many as they may take of those whose translations the core holds, for one position of the loops outside of a tile.
    """
    pages = UNSTAGED_PAGES * target.core.translated_pages
    return contraction.columns_at_once * contraction.itemsize > pages * target.page_bytes
