"""Whether a core multiplies a product by its matrix unit, and how many matrices of results it sums at once.

Owns: the choice, a heuristic from what the machine has. Does not own: the steps (tactics/matrices.py), products and their operands
(shared_tiles.py), the units (target.py).

The unit keeps a few matrices of results: each matrix of a factor that it loads goes into as many products as there are matrices along the
other side. Both factors are copied into tables first, in the order in which the unit takes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from proofgrad.core.compile.machine.target import Target, TileUnit
from proofgrad.core.compile.nests.kernel_schedule import NO_MATRICES, Matrices, Schedule
from proofgrad.core.compile.nests.loops import size_of
from proofgrad.core.compile.nests.strides import loops_of
from proofgrad.core.compile.schedule.shared_tiles import GroupProduct, find_product, runs_along
from proofgrad.core.compile.schedule.threads import shares_work
from proofgrad.core.compile.steps.collapse import MOST_LOOPS
from proofgrad.core.compile.steps.mma_in_item import factors_of_unit, tile_units
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp

# To put a vector into a table that is filled in the order in which memory lies, or in another (measured: Sapphire Rapids); to
# store a row of results.
COPY_CYCLES, ORDER_CYCLES, STORE_CYCLES = 8.0, 16.0, 2.0


def unit_of(product: GroupProduct, target: Target) -> TileUnit | None:
    """The unit that multiplies the factors of a product, and adds as it does."""
    factors = product.row_factor, product.column_factor
    for unit in tile_units(target.matrix_units):
        if factors_of_unit(factors, product.reduction.dtype, unit) is not None:
            return unit
    return None


def choose_matrices(kernel: UOp, target: Target, override: Schedule) -> Schedule | None:
    """The schedule of a product by a unit; None: it is not multiplied so."""
    if not tile_units(target.matrix_units) or override.tiled is False:
        return None
    if override.matrices == NO_MATRICES or (product := find_product(kernel)) is None:
        return None
    sides = product.rows, product.columns, product.reduction.src[1:]
    around = len(product.others) + 3  # with rows, and columns in two parts
    if max(around, *[len(loops) for loops in sides]) > MOST_LOOPS:
        return None
    unit = unit_of(product, target)
    if unit is None or not _may_be_unmasked(product, unit):
        return None
    made = _most_square(product, unit) if override.matrices is None else override.matrices
    if made.rows * made.columns > unit.sums:
        return None
    asked = override.rows, override.columns, override.tile, override.staged, override.blocks
    is_other = any([x is not None for x in asked]) or bool(override.reduction_block)
    if override.matrices is None and (is_other or not _pays(product, unit, made, target)):
        return None
    vectors = int(_cycles(product, unit, made)) * target.lanes(unit.total)
    return Schedule(
        tiled=True,
        rows=override.rows,
        columns=override.columns,
        matrices=made,
        reduction_block=0,
        threads=shares_work(vectors, target, override),
    )


def ways_of_matrices(kernel: UOp, target: Target) -> list[Matrices]:
    """All that may be tried for a kernel."""
    product = find_product(kernel)
    unit = None if product is None else unit_of(product, target)
    if unit is None:
        return []
    sizes = range(1, unit.sums + 1)
    return [Matrices(high, wide) for high in sizes for wide in sizes if high * wide <= unit.sums]


def tiles_along(size: int, unit: TileUnit, at_once: int) -> int:
    """Matrices along a side, in whole turns of so many."""
    return -(-size // (unit.side * at_once)) * at_once


def turns_of_columns(columns: int, steps: int, unit: TileUnit, at_once: int, target: Target) -> int:
    """So many turns of columns that all rows take before the next ones: their table stays in half of the second cache."""
    turns = -(-columns // (unit.side * at_once))
    nbytes = turns * at_once * unit.side * steps * unit.columns.itemsize
    blocks = min(turns, -(-nbytes // target.room_bytes))
    return -(-turns // blocks)


def _may_be_unmasked(product: GroupProduct, unit: TileUnit) -> bool:
    """Whether steps beyond the end of the sum add nothing: there are none, or loads are 0 there."""
    is_whole = product.sizes[3] % (unit.groups * unit.group) == 0
    factors = factors_of_unit(
        (product.row_factor, product.column_factor), product.reduction.dtype, unit
    )
    assert factors is not None
    return is_whole or all([x.op is Ops.LOAD for x in factors])


def _most_square(product: GroupProduct, unit: TileUnit) -> Matrices:
    """As many as the unit keeps, with which the fewest matrices are loaded."""
    _, rows, columns, _ = product.sizes
    sizes = range(1, unit.sums + 1)
    ways = [(high, wide) for high in sizes for wide in sizes if high * wide <= unit.sums]

    def cost(way: tuple[int, int]) -> tuple[float, int]:
        high, wide = tiles_along(rows, unit, way[0]), tiles_along(columns, unit, way[1])
        return high * wide * (1 + 1 / way[0] + 1 / way[1]), way[0] * way[1]

    return Matrices(*min(ways, key=cost))


def _pays(product: GroupProduct, unit: TileUnit, made: Matrices, target: Target) -> bool:
    """Whether the unit and the tables that it reads take fewer cycles than vectors do."""
    _, rows, columns, steps = product.sizes
    high = tiles_along(rows, unit, made.rows)
    wide = tiles_along(columns, unit, made.columns)
    depth = -(-steps // (unit.groups * unit.group))
    by_unit = _cycles(product, unit, made) + 2 * target.core.launch_cycles
    pairs = 2 if target.has_dot and unit.total.is_int else 1
    by_vectors = prod(product.sizes) / (pairs * target.multiply_adds(unit.total))
    loops = product.reduction.src[1:]
    for factor, tiles, in_order, across in (
        (product.row_factor, high, loops, product.rows),
        (product.column_factor, wide, product.columns, loops),
    ):
        others = [size_of(x) for x in product.others if x in loops_of(factor)]
        vectors = prod(others) * tiles * depth * unit.side
        elements = vectors * unit.groups * unit.group
        lies_across = _runs_along_one(factor, across)
        if _runs_along_one(factor, in_order):
            by_unit += vectors * COPY_CYCLES
        elif lies_across:
            by_unit += vectors * ORDER_CYCLES
        else:  # each element is gathered
            by_unit += elements * target.core.copy_cycles
        nbytes = elements * unit.rows.itemsize
        if nbytes > target.room_bytes:  # it comes from memory in any case
            by_unit += nbytes / target.core.memory_bytes_a_cycle
            by_vectors += nbytes / target.core.memory_bytes_a_cycle
        if factor is product.column_factor and lies_across:  # vectors gather it, or copy
            by_vectors += elements * target.core.copy_cycles
    return bool(by_unit < by_vectors)


def _cycles(product: GroupProduct, unit: TileUnit, made: Matrices) -> float:
    """Of the unit, and to store what it gives."""
    batch, rows, columns, steps = product.sizes
    high = tiles_along(rows, unit, made.rows)
    wide = tiles_along(columns, unit, made.columns)
    depth = -(-steps // (unit.groups * unit.group))
    return batch * high * wide * (depth * unit.cycles + unit.side * STORE_CYCLES)


def _runs_along_one(factor: UOp, loops: Sequence[UOp]) -> bool:
    """Whether what a factor reads lies side by side along these loops, of which there is one."""
    return len(loops) == 1 and runs_along(factor, loops[0])
