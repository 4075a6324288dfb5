"""Which tile of the output a contraction computes at once, and how its loops are blocked.

Owns: finding the contraction of a kernel, and choosing the sizes of its tile from the target: a
heuristic, which can make a kernel slow and never wrong. Does not own: the changes of the iteration space
(axes.py), the tables that operands are staged into (staging.py).

A contraction is a sum of products where one factor moves with the rows of a tile and the other with its
columns, as in a product of matrices or a convolution. Each step of its loop loads one element a row and
one vector for each `lanes` columns, and multiplies every row with every column into registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

from proofgrad.core.compile.choices import NO_WISH, Blocks, Choices, Tile
from proofgrad.core.compile.linear_terms import coefficient, loops_below, loops_of
from proofgrad.core.compile.sums_of_products import is_gated
from proofgrad.core.compile.target import Target
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.op_names import CONST, LOAD, PARAM
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort

# Registers beside the accumulators and one step's vectors: a broadcast element and room to move.
SPARE_REGISTERS = 3
# What the second cache, and what is behind it, give to a loop that streams from them; most of the
# former is hidden behind the multiplications (measured: tiles whose columns stay in the first are 3 % faster).
CACHE_BYTES_A_CYCLE = 256
MEMORY_BYTES_A_CYCLE = 6
LINE_CYCLES, MEMORY_LINE_CYCLES = 0.5, 40
ELEMENTS_A_LINE = 16
FIRST_CACHE_BYTES = 48 << 10
# Items to share out: more even out the threads, fewer count less.
ITEMS_A_THREAD, ITEMS_A_THREAD_OF_SLABS = 8, 2
# Cycles to store one element of a vector whose elements lie apart.
SCATTER_CYCLES = 1.5
# Rows and vectors of columns in a tile, at most: more vectors leave few rows to share them.
MOST_ROWS, MOST_VECTORS = 16, 8
# Steps between the elements of a vector up to which memory is copied apart: as convolutions stride.
LARGEST_STEP = 4
# A table may be so much longer than what it is filled from: a gathered operand is read in place.
LARGEST_GROWTH = 2
# An operand is copied into a table for so many multiplications, or filling it costs more than it saves.
WORTH_STAGING = 1 << 18
# Below so many multiplications a contraction is not worth a tile.
WORTH_MULTIPLICATIONS = 1 << 9


@dataclass(frozen=True)  # without slots: what is found once is asked for each tile
class Contraction:
    """The sum of products of a kernel. `rows` and `columns` are the output loops of its tile."""

    reduction: UOp
    rows: UOp
    columns: UOp
    row_factor: UOp  # moves with `rows`, not with `columns`
    column_factor: UOp
    others: tuple[UOp, ...]  # output loops outside of the tile
    is_apart: bool = False  # columns do not lie side by side where they are stored
    slabs: tuple[
        UOp, ...
    ] = ()  # loops that run in order around the tiles: each adds a part of the sum

    @cached_property
    def depth(self) -> int:
        """Products that a tile sums for one element."""
        return prod(size_of(loop) for loop in self.reduction.src[1:])

    @property
    def sum_loops(self) -> tuple[UOp, ...]:
        """All loops of the sum, outermost first."""
        return (*self.slabs, *self.reduction.src[1:])

    @property
    def multiplications(self) -> int:
        sums = size_of(self.rows) * size_of(self.columns) * self.other_tiles
        return sums * prod(size_of(loop) for loop in self.sum_loops)

    @cached_property
    def other_tiles(self) -> int:
        return prod(size_of(loop) for loop in self.others)

    @cached_property
    def has_gated_rows(self) -> bool:
        """Whether the gate of a product changes from row to row."""
        value = self.reduction.src[0]
        return value.op is Ops.WHERE and self.rows in loops_of(value.src[0])

    @cached_property
    def reads_of_rows(self) -> int:
        """How often the tiles of one row and column read the same part of the rows' operand."""
        free = loops_of(self.row_factor)
        return prod(size_of(loop) for loop in self.others if loop not in free)

    @cached_property
    def rows_fit_a_table(self) -> bool:
        """Whether a table of the rows' operand is not much longer than the operand."""
        return growth(self.row_factor) <= LARGEST_GROWTH

    @cached_property
    def growth_of_columns(self) -> float:
        """How many times longer than their operand a table of the columns is."""
        return growth(self.column_factor)

    @cached_property
    def rows_lie_along_depth(self) -> bool:
        """Whether the rows' operand lies in memory along the innermost loop of the sum."""
        return self._row_steps(self.reduction.src[-1]) <= {1}

    @cached_property
    def rows_lie_side_by_side(self) -> bool:
        """Whether one row's element of the operand lies beside the next row's."""
        return self._row_steps(self.rows) <= {1}

    def _row_steps(self, loop: UOp) -> set[int | None]:
        loads = [n for n in toposort((self.row_factor,)) if n.op is LOAD]
        return {coefficient(load.src[0].src[1], loop) for load in loads}


def size_of(loop: UOp) -> int:
    """The number of iterations of a RANGE; of one that a variable bounds, at most."""
    bound = loop.src[0]
    size: int = bound.arg if bound.op is CONST else bound.vmax
    return size


def is_fixed(loop: UOp) -> bool:
    """Is the number of iterations known to the compiler, so that the loop can be cut in parts?"""
    return loop.src[0].op is CONST


def output_loops(kernel: UOp) -> list[UOp]:
    """The loops of known size that run over the output's elements, in order of their numbers."""
    free = [loop for loop in loops_of(kernel) if is_fixed(loop)]
    return sorted(free, key=lambda loop: loop.arg[0])


def find_contraction(
    kernel: UOp, target: Target, asked: Choices = NO_WISH
) -> tuple[Contraction, Tile] | None:
    """The one sum of products of a kernel with one store, and its best tile; None: nothing to tile."""
    if asked.tiled is False:
        return None
    ways = [(contraction, min(tiles, key=lambda tile: _cost(tile, contraction, target)))
            for contraction in contractions(kernel, asked)
            if (tiles := _tiles(contraction, target, asked))]  # fmt: skip
    ways.sort(key=lambda way: _cost(way[1], way[0], target))
    return ways[min(asked.along or 0, len(ways) - 1)] if ways else None


def contractions(kernel: UOp, asked: Choices = NO_WISH) -> list[Contraction]:
    """The ways to lay tiles over the one sum of products of a kernel with one store."""
    nodes = toposort((kernel,))
    if not all(is_fixed(n) for n in nodes if n.op is Ops.RANGE):
        return []
    reductions = [n for n in nodes if n.op is Ops.REDUCE]
    if len(kernel.src) != 1 or len(reductions) != 1:
        return []
    (reduction,), (place, value, *slabs) = reductions, kernel.src[0].src
    if slabs and (value is not reduction or not loops_below(place)[place].isdisjoint(slabs)):
        return []
    term = reduction.src[0].src[1] if is_gated(reduction.src[0]) else reduction.src[0]
    if reduction.arg is not Ops.ADD or term.op is not Ops.MUL:
        return []
    free = loops_below(kernel)
    outputs = output_loops(kernel)
    found: list[Contraction] = []
    for one, other in (term.src, term.src[::-1]):
        rows = [x for x in outputs if x in free[one] and x not in free[other]]
        columns = [x for x in outputs if x in free[other] and x not in free[one]]
        for row, column in product(reversed(rows), columns):  # inner loops lie closer in memory
            others = tuple([x for x in outputs if x is not row and x is not column])
            is_apart = coefficient(place.src[1], column) != 1
            across = (row, column, one, other, others, is_apart, tuple(slabs))
            found.append(Contraction(reduction, *across))
    least = 1 if asked.tiled else WORTH_MULTIPLICATIONS
    return [c for c in found if c.multiplications >= least and _has_vectors(c)]


def _has_vectors(contraction: Contraction) -> bool:
    """Whether columns lie side by side in memory, or can be put so in a table."""
    factor, columns = contraction.column_factor, contraction.columns
    loads = [n for n in toposort((factor,)) if n.op is LOAD]
    steps = [coefficient(load.src[0].src[1], columns) for load in loads]
    return all(step in (None, 0, 1) or 0 < step <= LARGEST_STEP for step in steps) or (
        contraction.multiplications >= WORTH_STAGING and growth(factor) <= LARGEST_GROWTH
    )


def growth(factor: UOp) -> float:
    """How many times longer a table of an operand is than the memory that it is filled from."""
    memory = {n for n in toposort((factor,)) if n.op is PARAM}
    return table_elements(factor) / max(1, sum(parameter.arg[1] for parameter in memory))


def table_elements(factor: UOp) -> int:
    """How many elements a table of an operand has."""
    return prod(size_of(loop) for loop in loops_of(factor))


def _cycles_of_lines(tile: Tile, contraction: Contraction) -> float:
    """Cycles to get the lines that a step reads for the rows of a tile, where they get no table."""
    read = contraction.reads_of_rows * -(-size_of(contraction.columns) // tile.columns)
    if read >= 2 and contraction.rows_fit_a_table:
        return 0.0
    lines, along_depth = float(tile.rows), contraction.rows_lie_along_depth
    if along_depth:
        lines /= min(ELEMENTS_A_LINE, size_of(contraction.reduction.src[-1]))
    if contraction.rows_lie_side_by_side:
        lines /= min(ELEMENTS_A_LINE, tile.rows)
    is_far = read < 2 and not along_depth  # from memory, where nothing foresees it
    return lines * (MEMORY_LINE_CYCLES if is_far else LINE_CYCLES)


def tiles_that_read(factor: UOp, contraction: Contraction, across: UOp, size: int) -> int:
    """How many tiles read the same part of an operand."""
    free = loops_of(factor)
    others = prod(size_of(loop) for loop in contraction.others if loop not in free)
    return others * -(-size_of(across) // size)


def _tiles(contraction: Contraction, target: Target, asked: Choices) -> list[Tile]:
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
    is_windows = contraction.growth_of_columns > LARGEST_GROWTH  # whose vectors lie across lines
    products, loads = tile.rows * tile.vectors, tile.rows + tile.vectors * (1 + is_windows)
    # What each tile of the same columns reads again; windows over an image overlap.
    panel = depth * tile.columns * itemsize / max(1.0, contraction.growth_of_columns)
    moved = (tile.rows + tile.columns) * itemsize  # bytes of one step
    # Two multiply-adds and two loads a cycle; a multiply-add takes 4 cycles, so fewer than 8 of them
    # wait for each other. Loads, and what comes from the second cache, are not hidden whole.
    step = max(products / 2, loads / 2, 4.0) + loads / 8
    if panel > target.cache_bytes // 2:
        step = max(step, tile.columns * itemsize / MEMORY_BYTES_A_CYCLE)
    elif panel > FIRST_CACHE_BYTES // 2:
        step += moved / CACHE_BYTES_A_CYCLE
    if contraction.has_gated_rows:  # each row has a mask of its own
        step += tile.rows
    step += _cycles_of_lines(tile, contraction)
    stores = tile.rows * tile.columns * SCATTER_CYCLES if contraction.is_apart else 0.0
    return tiles * (step * depth + stores)


def choose_blocks(
    contraction: Contraction, tile: Tile, target: Target, asked: Choices = NO_WISH
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


def tiles_along(contraction: Contraction, tile: Tile) -> tuple[int, int]:
    """How many tiles cover the rows, and the columns."""
    rows, columns = size_of(contraction.rows), size_of(contraction.columns)
    return -(-rows // tile.rows), -(-columns // tile.columns)


def _block(tiles: int, at_most: int) -> int:
    """Tiles a block, about as many as allowed, so that whole blocks reach little beyond the tiles."""
    at_most = min(tiles, at_most)
    sizes = range(max(1, at_most // 2), at_most + 1)
    return min(sizes, key=lambda size: (-(-tiles // size) * size / tiles + 1 / (8 * size), -size))
