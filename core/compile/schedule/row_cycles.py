"""How many cycles it takes to read the rows of a tile from where they lie, and whether a table of them takes less.

Owns: the estimate, and that choice. Does not own: what filling a table takes (table_cycles.py), the whole of a tile (cost_model.py).
"""

from __future__ import annotations

from proofgrad.core.compile.machine.machine import FirstCache
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import Staged, Tile
from proofgrad.core.compile.nests.loops import size_of
from proofgrad.core.compile.schedule.cache_sets import sets_of
from proofgrad.core.compile.schedule.contraction import Contraction, table_elements, tiles_of
from proofgrad.core.compile.schedule.table_cycles import cycles_of_tables

# Of loads so much waits for the multiplications to end; the rest is hidden behind them (measured).
SHOWN = 1 / 4
# Of the ways of a set of the first cache the rows of a tile may take so many; columns go by in the others.
UNSTAGED_WAYS = 1 / 2
# So many tiles that read the same rows that a table of them is worth filling.
WORTH_A_TABLE = 4
# Cycles until the second buffer of translations has the position of a page [I: 7].
TRANSLATION_CYCLES = 7


def cycles_of_lines(tile: Tile, contraction: Contraction, target: Target) -> float:
    """Cycles to get the lines that a step reads for the rows of a tile, where they get no table."""
    is_near = lie_near(contraction, tile, target.first_cache)
    least = 2 if is_near else readers_worth_a_table(contraction, target)
    if contraction.readers_of_rows(tile) >= least and contraction.rows_fit_a_table:
        return 0.0
    return _cycles_of_rows_in_place(tile, contraction, target)


def rows_may_be_a_table(contraction: Contraction, tile: Tile, target: Target) -> bool:
    """Whether enough tiles read the same rows, which are computed, or do not stay in the first cache as they lie.

    Not where a variable says how many rows there are, for a table of the largest number of them would be filled.
    """
    if contraction.has_ended_rows:
        return False
    is_far = contraction.rows_are_computed or not lie_near(contraction, tile, target.first_cache)
    readers = readers_worth_a_table(contraction, target)
    is_read = contraction.readers_of_rows(tile) >= readers
    return is_far and is_read and contraction.rows_fit_a_table


def rows_want_a_table(contraction: Contraction, tile: Tile, target: Target) -> bool:
    """Whether such rows are computed, or take longer to read where they lie than a table takes to fill, for which all threads wait.

    (Measured: 20 products whose rows lie across the sum, of up to 86 million multiplications, take 0.7 to 1.1 times as long without, short ones 0.8 to 0.95.)
    """
    if not rows_may_be_a_table(contraction, tile, target):
        return False
    if contraction.rows_are_computed:
        return True
    in_place = _cycles_of_rows_in_place(tile, contraction, target) * contraction.depth
    table = cycles_of_tables(contraction, Staged(True, False), tile, target)
    return tiles_of(contraction, tile) * in_place > table


def _cycles_of_rows_in_place(tile: Tile, contraction: Contraction, target: Target) -> float:
    """Cycles to get the lines that a step reads for the rows of a tile from where they lie."""
    cache, core = target.first_cache, target.core
    read, is_near = contraction.readers_of_rows(tile), lie_near(contraction, tile, cache)
    lines = float(tile.rows)
    elements = cache.line_bytes // contraction.itemsize
    if is_near:
        lines /= min(elements, size_of(contraction.reduction.src[-1]))
    lines /= min(contraction.rows_of_a_line(elements), tile.rows)
    # From where they lie, which nothing foresees; windows, which overlap, are read again, from the first cache.
    is_far = read * contraction.growth_of_rows < 2 and not contraction.rows_lie_along_depth
    if contraction.rows_are_of_a_matrix:  # where the next tile finds them in the second cache, too
        is_far |= contraction.depth * lines * cache.line_bytes > target.near_bytes
    nbytes = table_elements(contraction.row_factor) * contraction.reduction.dtype.itemsize
    if contraction.rows_lie_along_depth and not lie_near(contraction, tile, cache, part=1):
        return lines * cache.line_bytes / core.cache_bytes_a_cycle  # each step takes each line anew
    if is_far and nbytes > target.cache_bytes:
        return lines * core.memory_line_cycles
    if not is_far:
        each = 1 / core.loads_a_cycle
        if contraction.growth_of_rows > 1 and panel_bytes(tile, contraction) > cache.nbytes:
            each = cache.line_bytes / core.cache_bytes_a_cycle  # columns push them out
        return lines * each + _cycles_of_first_reads(tile, contraction, target)
    cycles = cache.line_bytes / core.cache_bytes_a_cycle
    if contraction.rows_are_of_a_matrix and nbytes > known_bytes(target):
        # They begin anywhere in a line, and each step, or each few, goes to another page.
        lines += (tile.rows - 1) % elements / elements
        width = contraction.row_count * contraction.itemsize
        cycles += SHOWN * TRANSLATION_CYCLES * min(1.0, width / target.page_bytes)
    return lines * cycles


def _cycles_of_first_reads(tile: Tile, contraction: Contraction, target: Target) -> float:
    """Cycles that a step waits for rows of a matrix in memory, which other tiles read again: its pages are more than are foreseen."""
    nbytes = table_elements(contraction.row_factor) * contraction.itemsize
    if not contraction.rows_are_of_a_matrix or nbytes <= target.cache_bytes:
        return 0.0
    width = contraction.row_count * contraction.itemsize
    pages = contraction.depth * min(1.0, width / target.page_bytes)
    unforeseen = max(0.0, 1 - target.core.foreseen_pages / pages)
    lines = tile.rows * contraction.itemsize / target.first_cache.line_bytes
    reads = contraction.readers_of_rows(tile)
    return unforeseen * lines * target.core.memory_line_cycles / reads


def readers_worth_a_table(contraction: Contraction, target: Target) -> int:
    """So many tiles that read the same rows that a table of them is worth filling: fewer where each waits for memory.

    So it is where each step of the sum goes to another page of a matrix that does not stay in the second cache; one of a batch may.
    """
    nbytes = contraction.rows_at_once * contraction.itemsize
    return 2 if contraction.rows_are_of_a_matrix and nbytes > target.cache_bytes else WORTH_A_TABLE


def lie_near(
    contraction: Contraction, tile: Tile, cache: FirstCache, part: float = UNSTAGED_WAYS
) -> bool:
    """Whether a tile reads its rows along lines, which find room in that part of the ways of the first cache."""
    if not contraction.rows_lie_along_depth:
        return False
    itemsize = contraction.itemsize
    sets = [1 if s is None else sets_of(s * itemsize, cache) for s in contraction.row_steps]
    return tile.rows <= int(part * cache.ways) * min(sets, default=tile.rows)


def panel_bytes(tile: Tile, contraction: Contraction) -> float:
    """What each tile of the same columns reads again; windows over an image overlap."""
    elements = contraction.depth * tile.columns / max(1.0, contraction.growth_of_columns)
    return elements * contraction.itemsize


def known_bytes(target: Target) -> int:
    """Of the pages whose translations are at hand."""
    return target.core.translated_pages * target.page_bytes
