"""How many cycles it takes to fill the tables that operands of a contraction are copied into.

Owns: the estimate. Does not own: which operands get one (row_cycles.py, operands.py), what tiles take that read them (cost_model.py).
"""

from __future__ import annotations

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import Staged, Tile
from proofgrad.core.compile.schedule.contraction import WORD_BYTES, Contraction, table_elements
from proofgrad.core.ir.uop import UOp

# Rows that are transposed in registers together: a vector has parts of 16 bytes, and shuffles work within them.
TRANSPOSED_ROWS = 4
# Cycles to pack a vector for the tiles of an item, or to copy it into a table (measured).
PACKING_CYCLES = 5
# What a core's share of the last cache holds, in second caches: what is read of more comes from memory. (Measured: 6 MB of 32 beside 1 MB, not 8;
# less, where others compute.)
CACHES_OF_A_SHARE = 6


def cycles_of_tables(contraction: Contraction, staged: Staged, tile: Tile, target: Target) -> float:
    """Cycles that it takes to fill the tables of a contraction, each by a kernel of its own, for which all threads wait."""
    core, is_shared = target.core, target.threads > 1
    each_waits = core.launch_cycles + core.share_cycles * is_shared
    cycles = float(target.threads * each_waits * (staged.rows + staged.columns))
    if staged.rows:
        each = core.copy_apart_cycles
        if contraction.rows_lie_side_by_side:
            each = _cycles_to_copy(contraction.row_factor, tile.rows, contraction, target)
        cycles += table_elements(contraction.row_factor) * each
    if staged.columns:
        each = _cycles_to_copy(contraction.column_factor, tile.columns, contraction, target)
        if contraction.columns_lie_apart:
            steps = contraction.steps_along_sum(contraction.column_factor)
            is_transposed = steps > TRANSPOSED_ROWS and tile.lanes % TRANSPOSED_ROWS == 0
            transposed = each + core.transposed_cycles
            transposed += cycles_to_bring_apart(tile, contraction, target)
            each = transposed if is_transposed else core.copy_apart_cycles
        cycles += table_elements(contraction.column_factor) * each
    return cycles


def _cycles_to_copy(factor: UOp, piece: int, contraction: Contraction, target: Target) -> float:
    """Cycles to copy an element into a table, where so many lie side by side in both: vector by vector, or as memory takes them
    where the table does not stay in the second cache; of several threads, which read what another one has written, in none (measured: two
    take 74 x 283 by 283 x 409 in 227 us with a table, 122 without, one in 224 and 237)."""
    itemsize, lanes = contraction.itemsize, target.lanes(contraction.reduction.dtype)
    vectors = piece // lanes + (piece % lanes).bit_count()  # the rest as shorter ones
    near = PACKING_CYCLES * vectors / piece
    far = max(near, target.core.copy_cycles * itemsize / WORD_BYTES)
    leaves = 1.0
    if target.threads == 1:
        leaves = part_that_leaves(table_elements(factor) * itemsize, target)
    return near + leaves * (far - near)


def cycles_to_bring_apart(tile: Tile, contraction: Contraction, target: Target) -> float:
    """Cycles an element in which memory brings the columns of a tile, which lie along the sum, where no cache holds the operand: nothing multiplies beside,
    and of more than are foreseen, or shorter ones than a page, each line is waited for. (Measured: of 1536 columns of 1844 floats by 16, 32 and 48 each
    element takes .2, .8 and 1.8 cycles more than of 768, of 195 of 214 in 208 matrices by 16 as many as 2.)
    """
    core, itemsize = target.core, contraction.itemsize
    nbytes = table_elements(contraction.column_factor) * itemsize
    each = itemsize / core.memory_bytes_a_cycle
    is_page_long = contraction.depth * itemsize >= target.page_bytes
    if tile.columns > core.foreseen_pages or not is_page_long:
        each = core.memory_line_cycles * itemsize / target.first_cache.line_bytes
    return each * part_that_leaves(2 * nbytes // CACHES_OF_A_SHARE, target)


def rows_worth_a_table(target: Target, itemsize: int) -> int:
    """So many rows of a product take as long as a table of its columns: to read them, to write it (lines are read before), to read it."""
    a_row = 1 / (target.core.multiply_adds_a_cycle * max(1, target.vector_bytes // itemsize))
    table = target.core.copy_cycles + 4 * itemsize / target.core.memory_bytes_a_cycle
    return round(table / a_row)


def part_that_leaves(nbytes: int, target: Target) -> float:
    """Of results of so many bytes the part that is not in the second cache when the next is written: all of twice as many as it holds."""
    return max(0.0, min(1.0, nbytes / target.cache_bytes - 1))
