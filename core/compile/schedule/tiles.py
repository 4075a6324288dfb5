"""Which tile of the output a contraction computes at once, and how its loops are blocked.

Owns: choosing the loops and the sizes of a tile from the target: a heuristic, which can make a kernel slow
and never wrong. Does not own: what a tile costs (cost_model.py), what a contraction is (contraction.py), the changes of
the iteration space (axes.py), the tables that operands are staged into (operands.py, tactics/pack_operands.py).

Each step of a tile's loop loads one element a row and one vector for each `lanes` columns, and multiplies
every row with every column into registers.
"""

from __future__ import annotations

from functools import lru_cache
from math import inf, prod

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import AUTOMATIC, Blocks, Schedule, Tile
from proofgrad.core.compile.nests.loops import size_of
from proofgrad.core.compile.schedule.contraction import (
    MOST_STEPS,
    Contraction,
    contractions,
    tiles_along,
)
from proofgrad.core.compile.schedule.cost_model import (
    MOST_PRODUCTS_AT_ONCE,
    cycles_of_tiles,
    goes_along_rows,
    least_cycles,
    masks_are_vectors,
)
from proofgrad.core.compile.schedule.items import (
    beside_in_an_item,
    others_of_an_item,
    sizes_of,
    wanted_items,
)
from proofgrad.core.compile.schedule.operands import (
    filling,
    most_row_tiles,
    packs_columns,
    planned_staging,
    row_tiles_of_an_item,
)
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.op_names import DOT
from proofgrad.core.ir.uop import UOp

# Registers beside the accumulators and one step's vectors: an element of a row, in all lanes; where products are not added as they are
# multiplied, some of these, too, for they take longer than an addition (LLVM begins a few before it adds the first).
ELEMENT_REGISTERS, PRODUCT_REGISTERS = 1, 2
# And where all steps of a sum run at once: 0.0, and an element of the next step (measured: of 7 steps 4 x 3 and 6 x 2 vectors of 16 registers are
# 1.3 to 1.5 times as fast in a loop, 12 x 1 and 5 x 2 a tenth slower).
REGISTERS_OF_A_WHOLE_SUM = 2
# Items to share out where a sum is taken in blocks: fewer than else, as each goes through its sums once more.
ITEMS_A_THREAD_OF_BLOCKS = 2
# Multiply-adds of vectors in an iteration beside which counting iterations takes no time (measured: two vectors a row or more).
PRODUCTS_WORTH_COUNTING = 24
# In a sum of so few steps counting shows (measured: 4 % of 16 steps, nothing of 32).
SHORT_SUM = 16
# Rows and vectors of columns in a tile, at most: a longer side leaves the registers too little of the other.
TALLEST, WIDEST = 16, 8


@lru_cache(maxsize=8)  # several tactics ask for the tile of one kernel
def find_contraction(
    kernel: UOp, target: Target, override: Schedule = AUTOMATIC
) -> tuple[Contraction, Tile] | None:
    """The one sum of products of a kernel with one store, and its best tile; None: nothing to tile."""
    if override.tiled is False:
        return None
    ways = [(contraction, tiles) for contraction in contractions(kernel, override, target)
            if (tiles := _tiles(contraction, target, override))]  # fmt: skip
    if not ways:
        return None
    if len(ways) == len(ways[0][1]) == 1:
        return ways[0][0], ways[0][1][0]
    return _fastest(ways, target, override)


def _fastest(
    ways: list[tuple[Contraction, list[Tile]]], target: Target, override: Schedule
) -> tuple[Contraction, Tile]:
    """The fastest tile of all ways, with what it takes to fill the tables that it reads; of equal ones that of the first way.

    Those that promise most are looked at first, so that nothing more is asked of a tile, or of a way, whose bound is too slow.
    """
    bounds = [(least_cycles(tile, contraction, target), number, k)
              for number, (contraction, tiles) in enumerate(ways)
              for k, tile in enumerate(tiles)]  # fmt: skip
    least = (inf, len(ways), inf, 0)
    for bound, number, k in sorted(bounds):
        if bound > least[0]:
            break
        contraction, tile = ways[number][0], ways[number][1][k]
        cost = _cost(tile, contraction, target)
        if cost <= least[0]:
            total = cost + filling(contraction, tile, target, override)
            least = min(least, (total, number, cost, k))
    _, number, _, k = least
    return ways[number][0], ways[number][1][k]


def _tiles(contraction: Contraction, target: Target, override: Schedule) -> list[Tile]:
    """The tiles that fit the registers, large ones first."""
    if override.tile is not None:
        return [override.tile] if target.vector_bytes else []
    lanes = _lanes(contraction.column_count, target, contraction.reduction.dtype)
    if lanes < 2:
        return []
    registers = registers_of_sums(contraction.reduction.dtype, target)
    found = [*_tiles_of(lanes, registers)] if contraction.has_vectors(target) else []
    if contraction.may_sum_lanes(target):
        most = contraction.column_count
        found += [tile for tile in _tiles_of(1, registers) if tile.vectors <= most]
    return found


def registers_of_sums(dtype: DType, target: Target) -> int:
    """Registers for the sums of a tile and the vectors of columns of one step."""
    is_fused = dtype.is_float and target.has_fma
    return target.vector_registers - ELEMENT_REGISTERS - (0 if is_fused else PRODUCT_REGISTERS)


@lru_cache(maxsize=16)
def _tiles_of(lanes: int, registers: int) -> tuple[Tile, ...]:
    """The tiles of vectors of so many lanes whose sums and columns fit so many registers, large ones first."""
    sizes = [(rows, vectors) for rows in range(2, TALLEST + 1) for vectors in range(1, WIDEST + 1)
             if rows * vectors + vectors <= registers]  # fmt: skip
    sizes.sort(key=lambda size: -size[0] * size[1])
    return tuple([Tile(*size, lanes) for size in sizes])


def _lanes(columns: int, target: Target, dtype: DType) -> int:
    """A full vector, or a shorter one for few columns."""
    lanes = target.lanes(dtype)
    while lanes > 1 and lanes >= 2 * columns:
        lanes //= 2
    return lanes


def _cost(tile: Tile, contraction: Contraction, target: Target) -> float:
    at_once = choose_depth(contraction, tile, target)
    return cycles_of_tiles(tile, at_once, contraction, target)


def choose_depth(
    contraction: Contraction, tile: Tile, target: Target, override: Schedule = AUTOMATIC
) -> int:
    """How many steps of the innermost loop of the sum run at once: less counting, and windows share loads.

    Of dots one: where several are added to a register, LLVM takes the instruction that adds apart, to wait less (0.8 ms
    became 1.1). Where steps share nothing, so many that counting them is little: more is only more code, and loads that go ahead of what multiplies take
    registers that sums have, which go by way of the stack. All of a sum, if that is few steps, or where registers are left: what it starts from
    takes one, and those loads the others.
    """
    reduction = contraction.reduction
    size = size_of(reduction.src[-1])
    if override.depth is not None:
        depth = override.depth
        return size if size <= depth else depth if size % depth == 0 else 1
    if reduction.src[0].op is DOT:
        return 1
    products = tile.rows * tile.vectors
    most = MOST_PRODUCTS_AT_ONCE // products
    if not _elements_stay(contraction, tile, min(size, most), target):
        most = min(most, contraction.window.lag)
    leaves = _leaves_registers(tile, reduction.dtype, target)
    shares = contraction.shares_steps and contraction.window.lag < size
    shows = tile.vectors == 1 or products < PRODUCTS_WORTH_COUNTING
    if size <= most and (leaves or (size <= MOST_STEPS and (shares or shows))):
        return size
    enough = MOST_STEPS
    if _sums_move(tile, target) and not contraction.window.lag:
        enough = 1
    elif tile.vectors > 1 and not shares and (size > SHORT_SUM or not (leaves or shows)):
        enough = -(-PRODUCTS_WORTH_COUNTING // products)
    ways = [n for n in range(1, min(MOST_STEPS, max(1, most)) + 1) if size % n == 0]
    return next((n for n in ways if n >= enough), ways[-1])


def _leaves_registers(tile: Tile, dtype: DType, target: Target) -> bool:
    """Whether sums and columns leave registers for what a sum starts from, and for an element that is loaded ahead."""
    taken = (tile.rows + 1) * tile.vectors
    return taken + REGISTERS_OF_A_WHOLE_SUM <= registers_of_sums(dtype, target)


def _sums_move(tile: Tile, target: Target) -> bool:
    """Whether each step has its sums in other registers, and two steps more than there are: where a row has one product, which an instruction without
    memory of one element for all lanes puts where the element was. (Measured: 13 rows are 1.2 to 1.6 times as fast step by step, 7 a tenth slower.)
    """
    is_in_place = tile.vectors > 1 or tile.lanes == 1 or not masks_are_vectors(target)
    return not is_in_place and 2 * tile.rows + 1 > target.vector_registers


def _elements_stay(contraction: Contraction, tile: Tile, steps: int, target: Target) -> bool:
    """Whether registers hold what so many steps of windows read again, which LLVM loads once: beside the sums it would go by way of the stack."""
    window = contraction.window
    if not 0 < window.lag < steps or tile.lanes == 1:
        return True
    elements = min(window.lag, steps - window.lag) * max(0, tile.rows - window.shift)
    # One is loaded while the others wait for the step after, or for the one after that, but where a product loads it itself, as with AVX-512 (measured
    # with AVX2: of 8 rows of stride 2 a sum went by way of the stack in each step, and three took 36 cycles for 12).
    elements += masks_are_vectors(target) and (steps > 2 * window.lag or window.lag > 1)
    return elements + tile.rows * tile.vectors + tile.vectors <= target.vector_registers


def stores_by_columns(contraction: Contraction, tile: Tile, target: Target) -> bool:
    """Whether all rows of a vector of columns are stored before the next vector, where results lie apart: its lanes' pages are at hand.

    So it is where registers hold the elements of all rows, which the next vector takes again; else LLVM would keep them on the stack.
    """
    if not contraction.is_apart or contraction.is_transposed:
        return False
    return tile.rows * tile.vectors + tile.rows + 1 <= target.vector_registers


def choose_blocks(
    contraction: Contraction, tile: Tile, target: Target, override: Schedule = AUTOMATIC
) -> Blocks:
    """Rows of an item fit half of the second cache, or are those of a tile; enough items for every thread."""
    row_tiles, column_tiles = tiles_along(contraction, tile)
    others, width = contraction.other_tiles, column_tiles
    is_packed = packs_columns(contraction, tile, target, override)
    if is_packed and (inside := others_of_an_item(contraction, tile, target)):
        others //= sizes_of(inside)  # and all tiles of columns of an item are packed at once
        tile_bytes = tile.columns * contraction.depth * contraction.itemsize
        width = _block(column_tiles, max(1, target.scratch_bytes // tile_bytes))
    else:
        others //= sizes_of(beside_in_an_item(contraction, tile, target))
    if (blocks := override.blocks) is not None:
        return Blocks(min(blocks.row_tiles, row_tiles), min(blocks.column_tiles, width))
    if target.work_items:  # each has a tile
        return Blocks(1, 1)
    is_table = planned_staging(contraction, tile, target, override).columns
    if contraction.blocks:
        return Blocks(row_tiles, _width_of_blocks(contraction, tile, target))
    if is_packed:
        height = row_tiles_of_an_item(contraction, tile, target)
    elif goes_along_rows(tile, contraction, target, is_table):
        height = 1
    else:
        height = _block(row_tiles, most_row_tiles(contraction, tile, target))
    if contraction.shares_large_columns(target.cache_bytes):
        column_bytes = tile.columns * contraction.depth * contraction.itemsize
        width = _block(column_tiles, min(width, max(1, target.room_bytes // column_bytes)))
    wanted = wanted_items(target)

    def items() -> int:
        return others * -(-row_tiles // height) * -(-column_tiles // width)

    while width > 1 and items() < wanted:
        width = _block(column_tiles, width // 2)
    while height > 1 and items() < wanted and not is_packed:
        height = _block(row_tiles, height // 2)
    return Blocks(height, width)


def _width_of_blocks(contraction: Contraction, tile: Tile, target: Target) -> int:
    """Tiles of columns of an item: sums of all rows and a block fit half of the second cache.

    As wide as that, for memory is read best in long pieces; and all items alike, for tiles beyond the last are computed, too.
    """
    row_tiles, column_tiles = tiles_along(contraction, tile)
    bytes_a_tile = (row_tiles * tile.rows + contraction.depth) * tile.columns
    bytes_a_tile *= contraction.itemsize
    items = prod(size_of(x) for x in contraction.others)
    shared = -(-ITEMS_A_THREAD_OF_BLOCKS * target.threads // items)
    most = max(1, min(target.room_bytes // bytes_a_tile, -(-column_tiles // shared)))
    return -(-column_tiles // -(-column_tiles // most))


def _block(tiles: int, at_most: int) -> int:
    """Tiles a block, about as many as allowed, so that whole blocks reach little beyond the tiles."""
    at_most = min(tiles, at_most)
    sizes = range(max(1, at_most // 2), at_most + 1)
    return min(sizes, key=lambda size: (-(-tiles // size) * size / tiles + 1 / (8 * size), -size))
