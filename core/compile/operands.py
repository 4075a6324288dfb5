"""Which operands of a contraction are copied into tables, or summed with slab by slab.

Owns: the choice, a heuristic, and what filling costs. Does not own: the layout of a table (staging.py), the
kernels of slabs (slabs.py).
"""

from __future__ import annotations

from math import gcd, prod

from proofgrad.core.compile.contraction import (
    LARGEST_GROWTH,
    WORTH_STAGING,
    Contraction,
    growth,
    load_steps,
    table_elements,
)
from proofgrad.core.compile.divisors import largest_divisor
from proofgrad.core.compile.kernel_schedule import AUTOMATIC, Schedule, Staged, Tile
from proofgrad.core.compile.linear_terms import coefficient, loops_of
from proofgrad.core.compile.loops import size_of
from proofgrad.core.compile.target import FirstCache, Target
from proofgrad.core.ir.op_names import LOAD

# Rows that a tile reads from a matrix in memory, for each set of the first cache that they share.
UNSTAGED_ROWS = 6
# So many tiles that read the same rows that a table of them is worth filling.
WORTH_A_TABLE = 4
# So many tiles of rows that an item reads what it packs often enough.
WORTH_PACKING = 12
# An operand of so many bytes, for one place of the loops outside of a tile, stays close enough as it is.
UNSTAGED_BYTES = 1 << 17
# Where a table is asked for, it may have so many elements at most.
LARGEST_TABLE = 1 << 26
# Steps of the sum in a slab. Each is a row of the columns' operand, and a processor foresees the reading of 32
# pages at a time; with more rows to use a slab for, going through the sums less often is worth more (measured).
FEW_ROWS, STEPS_OF_FEW, STEPS_OF_MORE, LEAST_STEPS = 48, 32, 64, 16
# With more rows, a table of the columns is read often enough; sooner where vectors of a matrix lie across lines.
MOST_ROWS, MOST_ROWS_ACROSS_LINES = 64, 16
# Columns of fewer bytes stay in the cache, where all rows find them.
WORTH_BYTES = 1 << 21
# Cycles to copy an element into a table: from where it lies in the order of the table, or apart.
COPY_CYCLES, APART_CYCLES = 1.5, 3.5
# Types of fewer bytes are summed in wider registers; memory would round them at each slab.
LEAST_ITEMSIZE = 4


def planned_staging(
    contraction: Contraction, tile: Tile, target: Target, asked: Schedule = AUTOMATIC
) -> Staged:
    """Which operands of a contraction get tables."""
    if not may_stage(contraction, asked):
        return Staged(False, False)
    return choose_staged(contraction, tile, target, asked)


def may_stage(contraction: Contraction, asked: Schedule) -> bool:
    """Whether there is enough to multiply, or tables are asked for."""
    if asked.staged is not None:
        return asked.staged.rows or asked.staged.columns
    return contraction.multiplications >= WORTH_STAGING


def choose_staged(
    contraction: Contraction, tile: Tile, target: Target, asked: Schedule = AUTOMATIC
) -> Staged:
    """Which operands are read often enough by the tiles, and are not much longer as a table."""
    one, other = contraction.row_factor, contraction.column_factor
    if (wish := asked.staged) is not None:
        short = [table_elements(factor) <= LARGEST_TABLE for factor in (one, other)]
        return Staged(wish.rows and short[0], wish.columns and short[1])
    rows = (
        not lie_near(contraction, tile, target.first_cache)
        and contraction.readers_of_rows(tile) >= WORTH_A_TABLE
    )
    columns = contraction.columns_lie_apart or (_is_large(contraction) and not contraction.slabs)
    columns = columns and contraction.readers_of_columns(tile) >= 2
    columns = columns and not packs_columns(contraction, tile, target, asked)
    return Staged(
        rows and contraction.rows_fit_a_table, columns and growth(other) <= LARGEST_GROWTH
    )


def lie_near(contraction: Contraction, tile: Tile, cache: FirstCache) -> bool:
    """Whether a tile reads its rows along lines, which find place in the sets of the first cache."""
    itemsize = contraction.reduction.dtype.itemsize
    steps = load_steps(contraction.row_factor, contraction.rows)
    sets = [1 if step is None else _sets(step * itemsize, cache) for step in steps]
    most = UNSTAGED_ROWS * min(sets, default=tile.rows)
    return contraction.rows_lie_along_depth and tile.rows <= most


def _sets(nbytes: int, cache: FirstCache) -> int:
    """How many sets of the first cache places so many bytes apart lie in."""
    return cache.way_bytes // gcd(nbytes, cache.way_bytes)


def packs_columns(
    contraction: Contraction, tile: Tile, target: Target, asked: Schedule = AUTOMATIC
) -> bool:
    """Whether each item copies the columns of a tile before its tiles of rows read them.

    They must lie side by side. It pays if an item has many tiles of rows, as its rows stay in the second
    cache, and the columns of a tile do not stay in the first as they lie.
    """
    factor, itemsize = contraction.column_factor, contraction.reduction.dtype.itemsize
    nbytes = contraction.depth * tile.columns * itemsize
    if asked.packed is False or contraction.slabs or nbytes > target.scratch_bytes:
        return False
    if factor.op is not LOAD or load_steps(factor, contraction.columns) != [1]:
        return False
    if asked.packed:
        return True
    if asked.staged is not None and asked.staged.columns:
        return False
    row_bytes = size_of(contraction.rows) * contraction.depth * itemsize
    row_tiles = -(-size_of(contraction.rows) // tile.rows)
    return (
        row_tiles >= WORTH_PACKING
        and row_bytes <= target.cache_bytes * 3 // 4
        and contraction.multiplications >= WORTH_STAGING
        and contraction.growth_of_columns <= 1
        and (_is_large(contraction) or _columns_collide(contraction, target.first_cache))
    )


def _columns_collide(contraction: Contraction, cache: FirstCache) -> bool:
    """Whether what a tile reads of the columns, step by step, is more than its sets of the first cache hold."""
    loop, itemsize = contraction.reduction.src[-1], contraction.reduction.dtype.itemsize
    steps = [step for step in load_steps(contraction.column_factor, loop) if step]
    return any(size_of(loop) > cache.ways * _sets(step * itemsize, cache) for step in steps)


def _is_large(contraction: Contraction) -> bool:
    """Whether the columns, which a tile reads in steps of a whole row, fill much of the second cache."""
    free = loops_of(contraction.column_factor)
    loops = [x for x in contraction.reduction.src[1:] if x in free]
    elements = prod(size_of(x) for x in (contraction.columns, *loops))
    return elements * contraction.reduction.dtype.itemsize > UNSTAGED_BYTES


def choose_slab(contraction: Contraction, target: Target, asked: Schedule = AUTOMATIC) -> int:
    """Steps of the sum in a slab of a contraction; 0: it is not summed in slabs."""
    loops, factor = contraction.reduction.src[1:], contraction.column_factor
    itemsize = contraction.reduction.dtype.itemsize
    if asked.slab == 0 or len(loops) != 1 or contraction.slabs or itemsize < LEAST_ITEMSIZE:
        return 0
    if asked.slab is None and asked.staged is not None and asked.staged.columns:
        return 0
    lies_in_rows = factor.op is LOAD and len(factor.src[0].src) == 2
    if not lies_in_rows or coefficient(factor.src[0].src[1], contraction.columns) != 1:
        return 0
    if asked.slab is not None:
        return _slab(size_of(loops[0]), asked.slab, 1)
    rows, is_long = size_of(contraction.rows), table_elements(factor) * itemsize >= WORTH_BYTES
    (step,) = load_steps(factor, loops[0])
    in_lines = step is not None and step * itemsize % target.first_cache.line_bytes == 0
    if not is_long or rows > (MOST_ROWS if in_lines else MOST_ROWS_ACROSS_LINES):
        return 0
    steps = STEPS_OF_FEW if rows <= FEW_ROWS else STEPS_OF_MORE
    return _slab(size_of(loops[0]), steps, LEAST_STEPS)


def _slab(depth: int, at_most: int, at_least: int) -> int:
    """So many steps that slabs are equally long, and more than one; 0: there are none."""
    steps = largest_divisor(depth, at_most)
    return steps if at_least <= steps < depth else 0


def filling(
    contraction: Contraction, tile: Tile, target: Target, asked: Schedule = AUTOMATIC
) -> float:
    """Cycles that it takes to fill the tables of a contraction."""
    staged, cycles = planned_staging(contraction, tile, target, asked), 0.0
    if staged.rows:
        each = COPY_CYCLES if contraction.rows_lie_side_by_side else APART_CYCLES
        cycles += table_elements(contraction.row_factor) * each
    if staged.columns and not choose_slab(contraction, target, asked):
        each = APART_CYCLES if contraction.columns_lie_apart else COPY_CYCLES
        cycles += table_elements(contraction.column_factor) * each
    return cycles
