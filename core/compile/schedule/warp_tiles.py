"""Whether the warps of a group multiply a tile of a product by matrix units, and which tile, and how its operands lie.

Owns: the choice, a heuristic from what the machine has. Does not own: the steps (tactics/warp_tiles.py), products and their operands
(shared_tiles.py), the units (target.py).

A warp has some tiles of a unit along the rows and along the columns, and keeps their sums in registers: each element that it reads
from memory of the group goes into as many products as there are tiles along the other side. Warps of a group share
what it keeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import product as product_of

from proofgrad.core.compile.machine.target import MatrixUnit, Target
from proofgrad.core.compile.nests.kernel_schedule import NO_WARP_TILE, Schedule, WarpTile
from proofgrad.core.compile.nests.loops import size_of
from proofgrad.core.compile.schedule.occupancy import GroupShape, groups_of_unit
from proofgrad.core.compile.schedule.shared_tiles import (
    GROUPS_AT_ONCE,
    GroupProduct,
    copies_ahead,
    find_product,
    lies_in_vectors,
    runs_along,
)
from proofgrad.core.compile.steps.mma import read_by_unit, unit_for
from proofgrad.core.ir.fragments import COLUMNS_EACH, GROUPS, QUARTERS, WARP
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp

WARPS = ((2, 4), (4, 2), (2, 2), (1, 4), (4, 1), (2, 1), (1, 2), (1, 1))
TILES = (8, 4, 2, 1)
# Registers of an item beside its sums, and what it reads at once: addresses, counters, what is copied.
OTHER_REGISTERS = 40
MOST_REGISTERS = 255  # that a unit's instructions name
WORD_BYTES = 4
# What a unit of an H100 takes a cycle, fitted to the times of 65 tiles of a product of 4096 in bfloat16 and of as many of one of 2048
# in float64 (of the tiles that were timed it puts the best first, and one 3 % behind the best): multiply-adds by the bytes of a factor, bytes of
# local and of far memory.
MULTIPLY_ADDS, LOCAL_BYTES, FAR_BYTES = {1: 2730.0, 2: 1365.0, 4: 682.0, 8: 75.0}, 85.0, 20.0
# Cycles of a byte that is stored element by element, and bytes that an element counts as at least.
ELEMENT_CYCLES, LEAST_ELEMENT = 0.06, 2.5
# Cycles that the items of a group wait for each other in a block of steps, and for a load whose value they store; warps of which a unit begins instructions at once, and
HIDDEN_AT_MOST = 0.5
# with how many more the times of its products are hidden behind each other.
WAIT_CYCLES, LOAD_CYCLES, SCHEDULERS, MORE_WARPS = 100.0, 400.0, 4, 5.0
# Bytes of results that are stored in a cycle, and cycles until a group's first operands are there.
STORED_BYTES, FIRST_CYCLES = 16.0, 2000.0
AT_ONCE = 4  # turns of few, whose loads go out together
# Blocks of steps that are copied ahead where copies go on by themselves; what is loaded and stored is waited for at once.
AHEAD, LOADED_AHEAD = 3, 1


def unit_of(product: GroupProduct, target: Target) -> MatrixUnit | None:
    """The unit that multiplies the factors of a product, and adds as it does."""
    factors = product.row_factor, product.column_factor
    return unit_for(target.matrix_units, factors, product.reduction.dtype)


def held_steps(unit: MatrixUnit, target: Target) -> int:
    """Neighbours along the sum that an item holds: a whole load of them, or what one instruction takes."""
    lanes = max(2, target.lanes(unit.factor))
    return -(-lanes // unit.steps) * unit.steps


def choose_warps(kernel: UOp, target: Target, override: Schedule) -> WarpTile | None:
    """The tile of warps that multiply by units; None: no unit is used."""
    if not target.matrix_units or not target.group_items or target.lockstep != WARP:
        return None
    product = find_product(kernel)
    if product is None or override.warps == NO_WARP_TILE or override.tiled is False:
        return None
    unit = unit_of(product, target)
    if unit is None or not _may_be_unmasked(product, unit, target):
        return None
    if override.warps is not None:
        return override.warps if _fits(override.warps, unit, target) else None
    asked = override.shared, override.tile, override.tiled
    _, rows, columns, steps = product.sizes
    is_small = min(rows, columns) < GROUPS // 2 or steps < QUARTERS * unit.steps // 2
    if is_small or any([x is not None for x in asked]):
        return None
    by_element = [x.is_by_element for x in operands_of(product, unit, target)]
    ways = tiles_that_fit(unit, target)
    return min(
        ways, key=lambda way: cycles_of_tile(way, unit, product, by_element, target), default=None
    )


def ways_of_warps(kernel: UOp, target: Target) -> list[WarpTile]:
    """Every tile that may be tried for a kernel."""
    if choose_warps(kernel, target, Schedule()) is None:
        return []
    product = find_product(kernel)
    unit = None if product is None else unit_of(product, target)
    return [] if unit is None else tiles_that_fit(unit, target)


def tiles_that_fit(unit: MatrixUnit, target: Target) -> list[WarpTile]:
    """Every tile for which a group has room."""
    ways = [WarpTile(*warps, *tiles) for warps in WARPS for tiles in product_of(TILES, TILES)]
    return [way for way in ways if _fits(way, unit, target)]


def _may_be_unmasked(product: GroupProduct, unit: MatrixUnit, target: Target) -> bool:
    """Whether steps beyond the end of the sum add nothing: there are none, or loads are 0 there."""
    factors = product.row_factor, product.column_factor
    is_whole = product.sizes[3] % (QUARTERS * held_steps(unit, target)) == 0
    return is_whole or all([read_by_unit(x, unit).op is Ops.LOAD for x in factors])


def _fits(way: WarpTile, unit: MatrixUnit, target: Target) -> bool:
    """Whether registers, memory of the group, items and loops are enough."""
    steps = held_steps(unit, target)
    held = (way.row_tiles * unit.halves + 1) * steps * unit.factor.itemsize
    registers = _sums(way, unit) + held // WORD_BYTES + OTHER_REGISTERS
    return (
        registers <= MOST_REGISTERS
        and way.warps * WARP <= target.group_items
        and _bytes(way, unit, target) <= target.local_bytes
    )


def _bytes(way: WarpTile, unit: MatrixUnit, target: Target, window: Window | None = None) -> int:
    """Local memory that a group needs for a block of steps."""
    high = sum(_copied_sides(way, unit, window))
    return high * QUARTERS * held_steps(unit, target) * unit.factor.itemsize


def _copied_sides(way: WarpTile, unit: MatrixUnit, window: Window | None) -> list[int]:
    """Rows and columns of a group that it copies for each block of steps."""
    sides = tile_sizes(way, unit)
    return [n if window is None or window.factor != k else 0 for k, n in enumerate(sides)]


def warps_ahead(
    kernel: UOp, way: WarpTile, target: Target, override: Schedule, window: Window | None = None
) -> int | None:
    """Of how many of the next blocks of steps the operands are copied while one is multiplied."""
    product = find_product(kernel)
    unit = None if product is None else unit_of(product, target)
    assert product is not None and unit is not None
    blocks = -(-product.sizes[3] // (QUARTERS * held_steps(unit, target)))
    once = 0 if window is None else window.nbytes
    shape = GroupShape(way.warps * WARP, _sums(way, unit), _bytes(way, unit, target, window), once)
    by_element = [x.is_by_element for x in operands_of(product, unit, target)]
    most = LOADED_AHEAD if any(by_element) else AHEAD
    return copies_ahead(shape, blocks, most, target, override)


@dataclass(frozen=True, slots=True)
class Window:
    """Of the memory that a factor reads, of rows (0) or of columns (1), what a tile does: `size` places so many elements apart.

    `row`: elements that are kept of each, `row_bytes` long.
    """

    factor: int
    size: int
    stride: int
    row: int
    row_bytes: int

    @property
    def nbytes(self) -> int:
        """That a group keeps."""
        return self.size * self.row_bytes


class Lies(Enum):
    """How a factor lies in far memory, and so in that of the group."""

    ALONG = auto()  # the sum: each row has its steps side by side
    ACROSS = auto()  # the rows of each step are side by side, and stay so
    IN_TILES = auto()  # the same, but they are put where ALONG they would be


@dataclass(frozen=True, slots=True)
class Operand:
    """Which factor of the product it is, how it lies, how many elements are copied at once.

    `is_by_element`: no copy of it goes on by itself: each element goes elsewhere, or is computed, or they are too few bytes.
    """

    factor: int
    lies: Lies
    width: int
    is_by_element: bool


def operands_of(product: GroupProduct, unit: MatrixUnit, target: Target) -> tuple[Operand, Operand]:
    """Of rows and of columns."""

    def operand(factor: UOp, side: Sequence[UOp]) -> Operand:
        value, steps = read_by_unit(factor, unit), product.reduction.src[1:]
        is_along = runs_along(value, steps[-1]) or not runs_along(value, side[-1])
        across = Lies.ACROSS if unit.reads_across else Lies.IN_TILES
        lies = Lies.ALONG if is_along else across
        width = 1 if lies is Lies.IN_TILES else width_of(value, steps if is_along else side, target)
        is_copied = value.op is Ops.LOAD and width * value.dtype.itemsize >= WORD_BYTES
        number = product.reduction.src[0].src.index(factor)
        return Operand(number, lies, width, lies is Lies.IN_TILES or not is_copied)

    return (
        operand(product.row_factor, product.rows),
        operand(product.column_factor, product.columns),
    )


def width_of(value: UOp, loops: Sequence[UOp], target: Target) -> int:
    """How many elements an item copies at once: as many as lie in whole aligned vectors along loops, one of which none goes around."""
    lanes = target.lanes(value.dtype)
    while lanes > 1:
        is_whole = size_of(loops[-1]) % lanes == 0 or len(loops) == 1
        if is_whole and lies_in_vectors(value, loops, lanes):
            return lanes
        lanes //= 2
    return 1


def tile_sizes(way: WarpTile, unit: MatrixUnit) -> tuple[int, int]:
    """Rows and columns of a group."""
    high = way.row_warps * way.row_tiles * unit.halves * GROUPS
    return high, way.column_warps * way.column_tiles * GROUPS


def _sums(way: WarpTile, unit: MatrixUnit) -> int:
    """Words of the sums that an item holds."""
    elements = way.row_tiles * way.column_tiles * unit.halves * COLUMNS_EACH
    return elements * unit.total.itemsize // WORD_BYTES


def cycles_of_tile(
    way: WarpTile,
    unit: MatrixUnit,
    product: GroupProduct,
    by_element: Sequence[bool],
    target: Target,
    window: Window | None = None,
) -> float:
    """Cycles of a unit, for all groups that it has; `by_element`: of rows and of columns. `window`: what groups keep once."""
    batch, rows, columns, steps = product.sizes
    high, wide = tile_sizes(way, unit)
    groups = batch * -(-rows // high) * -(-columns // wide)
    of_unit = -(-groups // (target.units or GROUPS_AT_ONCE))
    once = 0 if window is None else window.nbytes
    kept = 2 * _bytes(way, unit, target, window)
    shape = GroupShape(way.warps * WARP, _sums(way, unit), kept, once)
    at_once = min(of_unit, groups_of_unit(shape, target))
    blocks = -(-steps // (QUARTERS * held_steps(unit, target)))
    block = _block_cycles(way, unit, by_element, at_once, target, window)
    results = high * wide * unit.total.itemsize / STORED_BYTES
    first = max(FIRST_CYCLES / at_once, once / FAR_BYTES)  # copies that are waited for together
    return of_unit * (blocks * block + results + first)


def _block_cycles(
    way: WarpTile,
    unit: MatrixUnit,
    by_element: Sequence[bool],
    at_once: int,
    target: Target,
    window: Window | None,
) -> float:
    """Of one group for one block of steps, where so many groups share a unit.

    The warps of a group copy, read and multiply one after the other, for they wait for each other; meanwhile other groups do something else.
    Where copies go on by themselves and a warp reads rows at once, it waits once in a block: then the warps of a scheduler do, whosever they are.
    """
    steps, nbytes = QUARTERS * held_steps(unit, target), unit.factor.itemsize
    sides = tile_sizes(way, unit)
    multiplying = sides[0] * sides[1] * steps / MULTIPLY_ADDS[nbytes]
    of_warp = way.row_tiles * unit.halves * GROUPS + way.column_tiles * GROUPS
    warps = at_once * way.warps
    multiplying *= max(1.0, SCHEDULERS / warps) + MORE_WARPS / warps
    read = way.warps * of_warp * steps * nbytes / LOCAL_BYTES
    as_it_lies, stored = nbytes / LOCAL_BYTES, ELEMENT_CYCLES * max(LEAST_ELEMENT, nbytes)
    moved = _copied_sides(way, unit, window)
    copied = sum([n * steps * (stored if x else as_it_lies) for n, x in zip(moved, by_element)])
    far = sum(moved) * steps * nbytes / FAR_BYTES
    near = read + copied
    hidden = min(multiplying, near)
    waits_once = target.copies_ahead and unit.word > 0 and not any(by_element)
    others = max(at_once, warps // SCHEDULERS) if waits_once else at_once
    apart = HIDDEN_AT_MOST + (1 - HIDDEN_AT_MOST) / others
    turns = [_turns(way, number, side, steps) for number, side in enumerate(sides)]
    loads = sum([-(-n // (AT_ONCE if n <= AT_ONCE else 1)) for n, x in zip(turns, by_element) if x])
    waited = (WAIT_CYCLES + LOAD_CYCLES * loads) / at_once
    return max(multiplying + near - hidden * (1 - apart), far) + waited


def _turns(way: WarpTile, number: int, side: int, steps: int) -> int:
    """Loads of an item, of as many neighbours as there are tiles along a side: of rows (0) or columns (1)."""
    tiles = (way.row_tiles, way.column_tiles)[number]
    return -(-side * steps // (way.warps * WARP * tiles))
