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
from math import prod

from proofgrad.core.compile.choices import NO_WISH, Blocks, Choices, Tile
from proofgrad.core.compile.linear_terms import coefficient, loops_below
from proofgrad.core.compile.target import Target
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort

# Rows and vectors of a tile that keep both the multipliers and the load ports busy.
TILES = ((8, 3), (6, 4), (12, 2), (8, 2), (4, 4), (6, 3), (4, 3), (6, 2), (4, 2), (3, 3), (4, 1),
         (2, 4), (2, 2), (2, 1))  # fmt: skip
# Registers beside the accumulators and one step's vectors: a broadcast element and room to move.
SPARE_REGISTERS = 3
# What the second cache gives to a loop that streams from it.
CACHE_BYTES_A_CYCLE = 24
# Items to share out: more even out the threads, fewer count less.
ITEMS_A_THREAD = 8
# Below so many multiplications a contraction is not worth a tile.
WORTH_MULTIPLICATIONS = 1 << 9


@dataclass(frozen=True, slots=True)
class Contraction:
    """The sum of products of a kernel. `rows` and `columns` are the output loops of its tile."""

    reduction: UOp
    rows: UOp
    columns: UOp
    row_factor: UOp  # moves with `rows`, not with `columns`
    column_factor: UOp
    others: tuple[UOp, ...]  # output loops outside of the tile

    @property
    def depth(self) -> int:
        """Products that are summed for one element."""
        return prod(size_of(loop) for loop in self.reduction.src[1:])

    @property
    def multiplications(self) -> int:
        outputs = prod(size_of(loop) for loop in (self.rows, self.columns, *self.others))
        return outputs * self.depth


def size_of(loop: UOp) -> int:
    """The number of iterations of a RANGE; of one that a variable bounds, at most."""
    bound = loop.src[0]
    size: int = bound.arg if bound.op is Ops.CONST else bound.vmax
    return size


def is_fixed(loop: UOp) -> bool:
    """Is the number of iterations known to the compiler, so that the loop can be cut in parts?"""
    return loop.src[0].op is Ops.CONST


def output_loops(kernel: UOp) -> list[UOp]:
    """The loops of known size that run over the output's elements, in order of their numbers."""
    free = [loop for loop in loops_below(kernel)[kernel] if is_fixed(loop)]
    return sorted(free, key=lambda loop: loop.arg[0])


def find_contraction(kernel: UOp, asked: Choices = NO_WISH) -> Contraction | None:
    """The one sum of products of a kernel with one store; None where there is none to tile."""
    if asked.tiled is False:
        return None
    nodes = toposort((kernel,))
    if not all(is_fixed(n) for n in nodes if n.op is Ops.RANGE):
        return None
    reductions = [n for n in nodes if n.op is Ops.REDUCE]
    if len(kernel.src) != 1 or len(reductions) != 1:
        return None
    (reduction,) = reductions
    product = reduction.src[0]
    if reduction.arg is not Ops.ADD or product.op is not Ops.MUL:
        return None
    free = loops_below(kernel)
    outputs = output_loops(kernel)
    place = kernel.src[0].src[0].src[1]
    found: list[Contraction] = []
    for one, other in (product.src, product.src[::-1]):
        rows = [x for x in outputs if x in free[one] and x not in free[other]]
        columns = [x for x in outputs if x in free[other] and x not in free[one]]
        columns = [x for x in columns if coefficient(place, x) == 1]
        if rows and columns:
            row, column = max(rows, key=size_of), columns[0]
            others = tuple([x for x in outputs if x is not row and x is not column])
            found.append(Contraction(reduction, row, column, one, other, others))
    least = 1 if asked.tiled else WORTH_MULTIPLICATIONS
    return next((c for c in found if c.multiplications >= least), None)


def choose_tile(contraction: Contraction, target: Target, asked: Choices = NO_WISH) -> Tile | None:
    """The tile with the least work for the machine, per useful product; None: no vectors."""
    if asked.tile is not None:
        return asked.tile
    lanes = _lanes(size_of(contraction.columns), target, contraction.reduction.dtype)
    if lanes < 2:
        return None
    fitting = [Tile(rows, vectors, lanes) for rows, vectors in TILES
               if rows * vectors + vectors + SPARE_REGISTERS <= target.vector_registers]  # fmt: skip
    return min(fitting, key=lambda tile: _cost(tile, contraction, target), default=None)


def _lanes(columns: int, target: Target, dtype: DType) -> int:
    """A full vector, or a shorter one for few columns."""
    lanes = target.lanes(dtype)
    while lanes > 1 and lanes >= 2 * columns:
        lanes //= 2
    return lanes


def _cost(tile: Tile, contraction: Contraction, target: Target) -> float:
    """Cycles of the multipliers, the load ports or the second cache, whichever is busiest."""
    rows, columns = size_of(contraction.rows), size_of(contraction.columns)
    tiles = -(-rows // tile.rows) * -(-columns // tile.columns)
    products, loads = tile.rows * tile.vectors, tile.rows + tile.vectors
    # Two multiply-adds and two loads a cycle; a multiply-add takes 4 cycles, so fewer than 8 of them
    # wait for each other; the vectors come from the second cache.
    from_cache = tile.vectors * target.vector_bytes / CACHE_BYTES_A_CYCLE
    step = max(products / 2, loads / 2, 4.0, from_cache)
    return tiles * step


def choose_blocks(
    contraction: Contraction, tile: Tile, target: Target, asked: Choices = NO_WISH
) -> Blocks:
    """Rows of an item fit half of the second cache; enough items for every thread."""
    row_tiles, column_tiles = tiles_along(contraction, tile)
    if (wish := asked.blocks) is not None:
        return Blocks(min(wish.row_tiles, row_tiles), min(wish.column_tiles, column_tiles))
    others = prod(size_of(x) for x in contraction.others)
    row_bytes = tile.rows * contraction.depth * contraction.reduction.dtype.itemsize
    height = _block(row_tiles, max(1, target.cache_bytes // 2 // max(1, row_bytes)))
    width = column_tiles
    wanted = ITEMS_A_THREAD * target.threads

    def items() -> int:
        return others * -(-row_tiles // height) * -(-column_tiles // width)

    while width > 1 and items() < wanted:
        width = _block(column_tiles, width // 2)
    while height > 1 and items() < wanted:
        height = _block(row_tiles, height // 2)
    return Blocks(height, width)


def tiles_along(contraction: Contraction, tile: Tile) -> tuple[int, int]:
    """How many tiles cover the rows, and the columns."""
    rows, columns = size_of(contraction.rows), size_of(contraction.columns)
    return -(-rows // tile.rows), -(-columns // tile.columns)


def _block(tiles: int, at_most: int) -> int:
    """Tiles a block, about as many as allowed, so that whole blocks reach little beyond the tiles."""
    at_most = min(tiles, at_most)
    sizes = range(max(1, at_most // 2), at_most + 1)
    return min(sizes, key=lambda size: (-(-tiles // size) * size, -size))
