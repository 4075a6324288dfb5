"""Whether a group of items computes a tile of a product together, from operands in memory of the group, and which tile.

Owns: the loops of such a product, the choice, a heuristic. Does not own: the steps (tactics/shared_tiles.py), what a group
has (target.py).

An item with a tile of its own reads each operand from far memory as often as there are tiles along the other side. Here the
items of a group lie over a larger tile: for some steps of the sum at a time they copy its rows and columns into local
memory, each element once, and multiply from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import Schedule, SharedTile, Tile
from proofgrad.core.compile.nests.loops import is_fixed, output_loops, size_of
from proofgrad.core.compile.nests.strides import at_start, coefficient, loops_below, loops_of
from proofgrad.core.compile.schedule.occupancy import OTHER_WORDS, GroupShape, groups_of_unit
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.op_names import LOCAL_BUFFER, RANGE, REDUCE
from proofgrad.core.ir.ops import CONVERSIONS, Ops
from proofgrad.core.ir.uop import UOp, toposort

# Loops of one side are taken together until they are so long: most of a tile is then inside.
LONG_SIDE = 64
# Multiplications of two factors, and steps of the sum, from which on copies pay.
WORTH_SHARING, LEAST_STEPS = 1 << 15, 16
# Groups that fill a GPU (132 multiprocessors of an H100): with fewer, smaller tiles are as fast.
GROUPS_AT_ONCE = 128
# Items of a multiprocessor with which it has something to do while some wait.
ITEMS_AT_ONCE = 256
ITEMS = ((16, 16), (8, 16), (16, 8), (8, 8), (4, 16), (4, 8), (8, 4), (2, 16))
SIDES = ((8, 4), (4, 4), (8, 2), (4, 2), (8, 1), (4, 1), (2, 1))
# Steps that are kept, in loads of an item along them. Columns that lie along the steps are kept as they lie, and neighbours
# read so many elements apart: an odd number of loads, so that 8 items that read 16 bytes each find these in banks of their own.
STEPS, STEPS_ALONG = (4, 2), (3, 5)
WARPS_OF_GROUP = 2  # at least: of fewer no tile was timed
AHEAD = 1  # blocks of steps that are copied ahead
WORD_BYTES = 4
MOST_AT_ONCE = 4  # steps that are written out
# Cost of a multiply-add of an H100, in those of its peak, fitted to the times of 80 tiles of a product of 4096 in float32, within 5 %:
# by itself, for what is read from local and from far memory, for a block of steps, and where a group is alone on a unit.
PLAIN_COST, LOCAL_COST, FAR_COST, BLOCK_COST, ALONE_COST = 1.44, 0.24, 2.0, 0.9, 0.11
FAR_LIMIT = (
    25.6  # 4 bytes of far memory for each of 128 multiply-adds a cycle, of which a unit gets 20
)
MOST_REGISTERS = 255  # of an item


@dataclass(frozen=True, slots=True)
class GroupProduct:
    """A sum of products over output loops: those of the rows, of the columns, and of both or none."""

    reduction: UOp
    row_factor: UOp
    column_factor: UOp
    rows: tuple[UOp, ...]  # outermost first
    columns: tuple[UOp, ...]
    others: tuple[UOp, ...]

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Products besides each other, their rows, columns, steps."""
        sides = (self.others, self.rows, self.columns, self.reduction.src[1:])
        batch, rows, columns, steps = [prod([size_of(x) for x in side]) for side in sides]
        return batch, rows, columns, steps


def find_product(kernel: UOp) -> GroupProduct | None:
    """The one sum of products of a kernel with one store, whose operands groups may share."""
    nodes = toposort((kernel,))
    reductions = [n for n in nodes if n.op is REDUCE]
    if len(kernel.src) != 1 or len(kernel.src[0].src) != 2 or len(reductions) != 1:
        return None
    if any([n.op is LOCAL_BUFFER or (n.op is RANGE and not is_fixed(n)) for n in nodes]):
        return None
    (reduction,), term = reductions, reductions[0].src[0]
    if reduction.arg is not Ops.ADD or term.op is not Ops.MUL:
        return None
    free, outputs = loops_below(kernel), output_loops(kernel)
    position = kernel.src[0].src[0].src[1]
    for one, other in (term.src, term.src[::-1]):
        rows = [x for x in outputs if x in free[one] and x not in free[other]]
        columns = [x for x in outputs if x in free[other] and x not in free[one]]
        if rows and columns and any([coefficient(position, x) == 1 for x in columns]):
            sides = _long_side(rows), _long_side(columns)
            others = tuple([x for x in outputs if x not in sides[0] and x not in sides[1]])
            return GroupProduct(reduction, one, other, *sides, others)
    return None


def _long_side(loops: Sequence[UOp]) -> tuple[UOp, ...]:
    """The innermost loops of a side, as many as make a long one."""
    taken: list[UOp] = []
    for loop in reversed(loops):
        if prod([size_of(x) for x in taken]) >= LONG_SIDE:
            break
        taken.append(loop)
    return tuple(taken[::-1])


def runs_along(factor: UOp, loop: UOp) -> bool:
    """Whether what a factor reads lies side by side along a loop."""
    loads = [n for n in toposort((factor,)) if n.op is Ops.LOAD and loop in loops_of(n)]
    return bool(loads) and all([coefficient(n.src[0].src[1], loop) == 1 for n in loads])


def columns_run_along(product: GroupProduct) -> bool:
    """Whether the columns' operand lies along the steps of the sum alone: a matrix that is read transposed."""
    factor = product.column_factor
    is_along = runs_along(factor, product.reduction.src[-1])
    return is_along and not runs_along(factor, product.columns[-1])


def lies_in_vectors(value: UOp, loops: Sequence[UOp], lanes: int) -> bool:
    """Whether memory along the innermost of some loops is read in whole aligned vectors, wherever others are; under a mask all of one or none."""
    if value.op is not Ops.LOAD or lanes < 2:
        return False
    (_, index, *masks), last = value.src[0].src, loops[-1]
    if any([last in loops_of(mask) for mask in masks]):
        return False
    others = [x for x in loops_of(index) if x is not last]
    steps = [coefficient(index, x) for x in others]
    is_aligned = all([step is not None and step % lanes == 0 for step in steps])
    return coefficient(index, last) == 1 and is_aligned and at_start(index) % lanes == 0


def kept_of(factor: UOp) -> UOp:
    """What of a factor is kept in memory of the group: conversions are made behind, of what is read there."""
    while factor.op in CONVERSIONS and factor.src[0].op in CONVERSIONS | {Ops.LOAD}:
        factor = factor.src[0]
    return factor


def choose_shared(
    kernel: UOp, target: Target, override: Schedule
) -> tuple[Tile, SharedTile] | None:
    """The tile of an item, and how items lie side by side in that of the group; None: no group shares operands."""
    if not target.group_items or not target.local_bytes or not target.vector_bytes:
        return None
    if (product := find_product(kernel)) is None or override.tiled is False:
        return None
    if override.shared is not None:
        return _asked(product, target, override)
    _, rows, columns, steps = product.sizes
    is_short = steps < LEAST_STEPS or prod(product.sizes) < WORTH_SHARING
    if target.lockstep == 1 or is_short or override.tile is not None or override.tiled:
        return None
    least = target.lockstep // 4  # most of the smallest tile is inside
    ways = _ways(product, target) if min(rows, columns) >= least else []
    return min(ways, key=lambda way: _cost(way[0], way[1], product, target), default=None)


def copies_ahead(
    shape: GroupShape, blocks: int, most: int, target: Target, override: Schedule
) -> int | None:
    """Of how many of the next blocks of steps the operands are copied while one is multiplied, for groups that keep one block.

    Up to `most`, as long as there is room for no fewer groups of a unit. None: nothing asks for it, neither the machine nor an override.
    """
    if override.ahead is None and not target.copies_ahead:
        return None
    if override.ahead is not None:
        fits = (override.ahead + 1) * shape.kept_bytes <= target.local_bytes - shape.once_bytes
        return override.ahead if fits and override.ahead < blocks else 0
    groups = groups_of_unit(replace(shape, kept_bytes=0), target)
    room = target.local_bytes_of(groups) - shape.once_bytes
    wanted = min(most, blocks - 1, max(1, room // shape.kept_bytes - 1))
    whole = (wanted + 1) * shape.kept_bytes + shape.once_bytes
    return wanted if whole <= target.local_bytes else 0


def shares_ahead(
    kernel: UOp, tile: Tile, shared: SharedTile, target: Target, override: Schedule
) -> int | None:
    """The same for a tile that items of a group share."""
    product = find_product(kernel)
    assert product is not None
    blocks = -(-product.sizes[3] // shared.steps)
    return copies_ahead(_shape(tile, shared, product), blocks, AHEAD, target, override)


def _asked(
    product: GroupProduct, target: Target, override: Schedule
) -> tuple[Tile, SharedTile] | None:
    """What an override asks for, where it fits."""
    shared = override.shared
    assert shared is not None
    if not shared.items:
        return None
    tile = override.tile or Tile(4, 1, min(4, target.lanes(product.reduction.dtype)))
    fits = shared.items <= target.group_items and shared.steps < product.sizes[3]
    return (tile, shared) if fits and _bytes(tile, shared, product) <= target.local_bytes else None


def ways_to_share(kernel: UOp, target: Target) -> list[tuple[Tile, SharedTile]]:
    """Every tile that may be tried for a kernel."""
    product = find_product(kernel)
    return [] if product is None else _ways(product, target)


def _ways(product: GroupProduct, target: Target) -> list[tuple[Tile, SharedTile]]:
    """The tiles that fit the registers, and local memory twice for each group of a unit, as copies ahead need it."""
    lanes = target.lanes(product.reduction.dtype)
    along = columns_run_along(product)
    tiles = [Tile(rows, vectors, lanes) for rows, vectors in SIDES]
    if along:  # items have single columns, side by side
        tiles = [Tile(tile.rows, tile.columns, 1) for tile in tiles]
    at_once = steps_at_once(product, target)
    loads = STEPS_ALONG if along else STEPS
    shared = [SharedTile(*items, at_once * count) for items in ITEMS for count in loads]
    least = min(target.group_items, WARPS_OF_GROUP * target.lockstep)
    return [
        (tile, one)
        for tile in tiles
        for one in shared
        if _fits_registers(tile, along, product, target)
        and least <= one.items <= target.group_items
        and one.steps < product.sizes[3]
        and _bytes(tile, one, product) <= target.local_bytes_of(2 * target.unit_groups)
    ]


def _fits_registers(tile: Tile, along: bool, product: GroupProduct, target: Target) -> bool:
    """Whether an item holds its sums and what it multiplies: of columns along the steps, those of all steps that are written out."""
    dtype = product.reduction.dtype
    if not target.unit_registers:
        return (tile.rows + 1) * tile.columns <= target.lanes(dtype) * target.vector_registers
    held = tile.rows * tile.columns + along * tile.columns * steps_at_once(product, target)
    return held * dtype.itemsize // WORD_BYTES + OTHER_WORDS <= MOST_REGISTERS


def steps_at_once(product: GroupProduct, target: Target) -> int:
    """Steps of the sum that an item takes from one wide load, and that are written out."""
    return min(MOST_AT_ONCE, target.lanes(product.reduction.dtype))


def _bytes(tile: Tile, shared: SharedTile, product: GroupProduct) -> int:
    """Local memory that a group needs."""
    types: tuple[DType, DType] = (
        kept_of(product.row_factor).dtype,
        kept_of(product.column_factor).dtype,
    )
    sides = tile.rows * shared.rows, tile.columns * shared.columns
    return shared.steps * sum([n * dtype.itemsize for n, dtype in zip(sides, types)])


def _shape(tile: Tile, shared: SharedTile, product: GroupProduct) -> GroupShape:
    """Of a group that keeps one block of steps."""
    words = tile.rows * tile.columns * product.reduction.dtype.itemsize // WORD_BYTES
    return GroupShape(shared.items, words, _bytes(tile, shared, product))


def _cost(tile: Tile, shared: SharedTile, product: GroupProduct, target: Target) -> float:
    """Of all groups that a unit has, in multiply-adds at its peak."""
    batch, rows, columns, _ = product.sizes
    high, wide = tile.rows * shared.rows, tile.columns * shared.columns
    groups = batch * -(-rows // high) * -(-columns // wide)
    of_unit = -(-groups // (target.units or GROUPS_AT_ONCE))
    shape = _shape(tile, shared, product)
    twice = replace(shape, kept_bytes=2 * shape.kept_bytes)
    at_once = min(of_unit, groups_of_unit(twice, target))
    local, far = 1 / tile.rows + 1 / tile.columns, 1 / high + 1 / wide
    cost = PLAIN_COST + LOCAL_COST * local + FAR_COST * far
    cost += BLOCK_COST / shared.steps + ALONE_COST / at_once
    busy = min(1.0, at_once * shared.items / ITEMS_AT_ONCE)
    return of_unit * high * wide * max(cost / busy, FAR_LIMIT * far)
