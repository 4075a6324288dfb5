"""Tactic: warps of a group multiply a tile of a product by matrix units, from rows and columns that all copy into local memory.

Owns: the order of the steps. Does not own: whether, and which tile (schedule/warp_tiles.py), the laws (steps/mma.py, steps/split.py,
steps/local_buffer.py), how a group fills its memory (tactics/shared_tiles.py).

    out[m, n] = sum[k](a[m, k] * b[k, n])

is first sum[o, j](a[m, 32 * o + j] * b[32 * o + j, n]), where m is a group, a warp of it, a tile of the warp and a row of the tile,
and n in the same way. What the group reads for 32 steps is kept, steps innermost, so that an item has neighbours along
the sum in one load; then the sum over j of each tile is an MMA.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from math import gcd, prod
from typing import assert_never

from proofgrad.core.compile.machine.target import MatrixUnit, Target
from proofgrad.core.compile.nests.kernel_schedule import Schedule, WarpTile
from proofgrad.core.compile.nests.loops import fresh_number, size_of
from proofgrad.core.compile.nests.strides import loops_of
from proofgrad.core.compile.nests.sums_of_products import is_masked
from proofgrad.core.compile.schedule.shared_tiles import (
    GroupProduct,
    find_product,
    lies_in_vectors,
    runs_along,
)
from proofgrad.core.compile.schedule.warp_tiles import held_steps, unit_of
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.collapse import collapse
from proofgrad.core.compile.steps.local_buffer import local_buffer
from proofgrad.core.compile.steps.loop_nest import LoopNest, require
from proofgrad.core.compile.steps.mma import mma, taken_by_unit
from proofgrad.core.compile.steps.reduce_inside import reduce_inside
from proofgrad.core.compile.steps.run_as import run_as
from proofgrad.core.compile.steps.split import split, split_reading_inside
from proofgrad.core.compile.steps.turn_rows import turn_rows
from proofgrad.core.compile.steps.unmask import unmask
from proofgrad.core.compile.tactics.shared_tiles import (
    as_groups,
    as_one,
    filled_ahead,
    in_turns,
    kept_by_group,
    together,
)
from proofgrad.core.ir.fragments import GROUPS, QUARTERS, WARP
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort


def in_warp_tiles(nest: LoopNest, schedule: Schedule, target: Target) -> LoopNest:
    """The kernel of one product as warps of groups, as its schedule says."""
    product, tile = find_product(nest.graph), schedule.warps
    unit = None if product is None else unit_of(product, target)
    require(unit is not None, "no product that a matrix unit computes")
    assert product is not None and unit is not None and tile is not None
    operands = _operands(product, unit, target)
    nest, row = as_one(nest, product.rows)
    nest, column = as_one(nest, product.columns)
    nest, step = as_one(nest, product.reduction.src[1:])
    part = _Parts(fresh_number(nest.graph), tile, unit, held_steps(unit, target))
    sides = [part.side(k, operand.lies is not Lies.IN_TILES) for k, operand in enumerate(operands)]
    nest = split(nest, step, (part.sizes[part.step],), (NewLoop(*step.arg), part.step))
    if is_masked(_reduction(nest).src[0]):
        nest = unmask(nest, _reduction(nest))
    for loop, made, operand in zip((row, column), sides, operands):
        nest = _split_side(nest, loop, made, operand, part)
    nest = as_groups(nest, (*product.others, row, column), part.group.number)
    for operand, side in zip(operands, sides):
        value = taken_by_unit(_reduction(nest).src[0].src[operand.factor], unit)
        nest = _kept(nest, value, side, operand, part)
    nest = _by_units(nest, part)
    return filled_ahead(nest, step, schedule.ahead) if schedule.ahead else nest


# Of 16 bytes in a row, from which on it is turned: fewer are in the same banks all the same.
LEAST_PIECES = 4


class Lies(Enum):
    """How a factor lies in far memory, and so in that of the group."""

    ALONG = auto()  # the sum: each row has its steps side by side
    ACROSS = auto()  # the rows of each step are side by side, and stay so
    IN_TILES = auto()  # the same, but they are put where ALONG they would be


@dataclass(frozen=True, slots=True)
class _Operand:
    """Which factor of the product it is, how it lies, how many elements are copied at once."""

    factor: int
    lies: Lies
    width: int


def _operands(product: GroupProduct, unit: MatrixUnit, target: Target) -> list[_Operand]:
    """Of rows and of columns."""
    found = []
    for factor in (product.row_factor, product.column_factor):
        value, steps = taken_by_unit(factor, unit), product.reduction.src[1:]
        side = product.rows if factor is product.row_factor else product.columns
        is_along = runs_along(factor, steps[-1]) or not runs_along(factor, side[-1])
        across = Lies.ACROSS if unit.reads_across else Lies.IN_TILES
        lies = Lies.ALONG if is_along else across
        width = 1 if lies is Lies.IN_TILES else width_of(value, steps if is_along else side, target)
        number = product.reduction.src[0].src.index(factor)
        found.append(_Operand(number, lies, width))
    return found


def width_of(value: UOp, loops: Sequence[UOp], target: Target) -> int:
    """How many elements an item copies at once: as many as lie in whole aligned vectors along loops, one of which none goes around."""
    lanes = target.lanes(value.dtype)
    while lanes > 1:
        is_whole = size_of(loops[-1]) % lanes == 0 or len(loops) == 1
        if is_whole and lies_in_vectors(value, loops, lanes):
            return lanes
        lanes //= 2
    return 1


def _split_side(
    nest: LoopNest, loop: UOp, made: tuple[NewLoop, ...], operand: _Operand, part: _Parts
) -> LoopNest:
    """Rows or columns in parts. Where neighbours are read as vectors, these lie inside as a whole or not at all."""
    sizes = tuple([part.sizes[one] for one in made])
    last = made[-1]
    is_vector = operand.lies is not Lies.ALONG and sizes[-1] > 1
    inner = (*made[:-1], NewLoop(last.number, AxisRole.VECTOR)) if is_vector else made
    nest = split_reading_inside(nest, loop, sizes, (NewLoop(*loop.arg), *inner))
    if not is_vector:
        return nest
    return run_as(nest, {UOp.range(sizes[-1], last.number, AxisRole.VECTOR): last.role})


def _kept(
    nest: LoopNest, value: UOp, side: tuple[NewLoop, ...], operand: _Operand, part: _Parts
) -> LoopNest:
    """What a factor reads is kept by the group, and its items take turns at filling it.

    Steps are innermost, or outermost where it lies across them. One that shall lie in tiles is read along its rows, or columns,
    in vectors of as many as there are tiles.
    """
    items, step = part.tile.warps * WARP, part.loop(part.step)
    order = [part.loop(one) for one in side]
    match operand.lies:
        case Lies.ALONG:
            return kept_by_group(nest, value, [*order, step], items, operand.width)
        case Lies.ACROSS:
            return kept_across(nest, value, [step], order, items, operand.width)
        case Lies.IN_TILES:
            *others, tile = order
            return kept_by_group(nest, value, [*others, step], items, 1, tile)
        case _:
            assert_never(operand.lies)


def kept_across(
    nest: LoopNest, value: UOp, steps: Sequence[UOp], side: Sequence[UOp], items: int, width: int
) -> LoopNest:
    """A value is kept as it lies, row by row of one step each, by the items of a group in turns, `width` elements at once.

    `side`: the loops of a row, the last of which is a tile's. Rows are turned, so that a warp finds the 8 that it reads at once in other
    banks. `steps`: one loop, of which items have neighbours, or those whose digits count the rows, of which a warp reads neighbours.
    """
    along = tuple([x for x in (*steps, *side) if x in loops_of(value)])
    number = fresh_number(nest.graph)
    own = [NewLoop(number + 4 + k, AxisRole.REDUCE) for k in range(len(along))]
    own[-1] = NewLoop(own[-1].number, AxisRole.LANE)
    nest = local_buffer(nest, value, along, tuple(own))
    made = [UOp.range(size_of(x), one.number, one.role) for x, one in zip(along, own)]
    if along[: len(steps)] == tuple(steps) and side[-1] in along:
        nest, made = _turned(nest, made, len(steps))
    whole = NewLoop(number + 3, AxisRole.LANE)
    size = prod([size_of(x) for x in made])
    nest = collapse(nest, tuple(made), whole)
    return in_turns(nest, UOp.range(size, whole.number, whole.role), items, width, number)


def _turned(nest: LoopNest, own: list[UOp], steps: int) -> tuple[LoopNest, list[UOp]]:
    """What is kept along loops of rows, and others of what a row has, with its rows turned; the loops of rows, pieces and elements.

    `steps`: how many loops count the rows. Where it is one, a warp reads rows of four quarters at once, else neighbours.
    """
    rows, pieces, element = own[:steps], own[steps:-1], own[-1]
    if size_of(element) > GROUPS:  # as many as a row of a small matrix has
        high = NewLoop(fresh_number(nest.graph), AxisRole.REDUCE)
        nest = split(nest, element, (GROUPS,), (high, NewLoop(*element.arg)))
        pieces.append(UOp.range(size_of(element) // GROUPS, high.number, high.role))
        element = UOp.range(GROUPS, *element.arg)
    is_short = steps == 1 and prod([size_of(x) for x in pieces]) < LEAST_PIECES
    if not pieces or is_short:
        return nest, [*rows, *pieces, element]
    nest, row = _collapsed(nest, rows)
    nest, piece = _collapsed(nest, pieces)
    if steps > 1:
        nest, turned = _turned_within(nest, row, piece)
    else:
        nest, turned = turn_rows(nest, row, piece, *_turn(size_of(piece))), [piece]
    return nest, [row, *turned, element]


def _turned_within(nest: LoopNest, row: UOp, piece: UOp) -> tuple[LoopNest, list[UOp]]:
    """Neighbouring rows with their pieces turned, by as little as puts 8 rows into banks of their own; the loops over pieces.

    Rows of an odd number of pieces lie so as they are; else as many pieces are turned around as the number has factors of 2, up to 8.
    """
    count = size_of(piece)
    around = gcd(count, GROUPS)
    if around == 1:
        return nest, [piece]
    loops = [piece]
    if around < count:
        inner = NewLoop(fresh_number(nest.graph), piece.arg[1])
        nest = split(nest, piece, (around,), (NewLoop(*piece.arg), inner))
        loops = [
            UOp.range(count // around, *piece.arg),
            UOp.range(around, inner.number, inner.role),
        ]
    return turn_rows(nest, row, loops[-1], around, GROUPS), loops


def _collapsed(nest: LoopNest, loops: Sequence[UOp]) -> tuple[LoopNest, UOp]:
    """Loops of what is kept as one, which has the name of the first."""
    first = loops[0]
    if len(loops) == 1:
        return nest, first
    nest = collapse(nest, tuple(loops), NewLoop(*first.arg))
    return nest, UOp.range(prod([size_of(x) for x in loops]), *first.arg)


def _turn(pieces: int) -> tuple[int, int]:
    """By how many pieces so many rows are turned.

    A warp reads rows 8 * q + 2 * p and the one behind of each quarter q at once, in pieces of 16 bytes of which banks hold
    8: by 2 * q for the quarters and 1 for the one behind these are 8 others. Fewer pieces in a row cannot all be.
    """
    held = WARP // QUARTERS
    return (held // 2 + 1, held // 2) if pieces >= held else (1, held)


def kept_for_unit(
    nest: LoopNest, value: UOp, side: tuple[UOp, ...], step: UOp, items: int, target: Target
) -> LoopNest:
    """What a factor reads kept along the loops of a side, of which tiles may be the last, and of steps, which are innermost."""
    lanes = target.lanes(value.dtype)
    if runs_along(value, step):
        width = lanes if lies_in_vectors(value, [step], lanes) else 1
        return kept_by_group(nest, value, [*side, step], items, width)
    is_tiled = side[-1].arg[1] is AxisRole.UPCAST
    others, tiles = (side[:-1], side[-1]) if is_tiled else (side, None)
    return kept_by_group(nest, value, [*others, step], items, 1, tiles)


def _by_units(nest: LoopNest, part: _Parts) -> LoopNest:
    """The sum over the steps that are kept as an MMA; warps along rows and columns as one loop of them."""
    reduction = _reduction(nest)
    inner = part.loop(part.step)
    if len(reduction.src) > 2:
        nest = reduce_inside(nest, reduction, (inner,))
        reduction = _reduction(nest).src[0]
    warps = [part.loop(one) for one in (part.row_warp, part.column_warp)]
    warps = [x for x in warps if x.op is Ops.RANGE]
    if len(warps) > 1:
        number = fresh_number(nest.graph)
        nest = together(nest, warps, AxisRole.LOOP, number)
        warps = [UOp.range(part.tile.warps, number)]
        reductions = [n for n in toposort((nest.graph,)) if n.op is Ops.REDUCE]
        (reduction,) = [n for n in reductions if n.src[1:] == (inner,)]
    number = fresh_number(nest.graph)
    made = NewLoop(number, AxisRole.LANE), NewLoop(number + 1, AxisRole.VECTOR)
    loops = (*warps, part.loop(part.row), part.loop(part.column))
    return mma(nest, reduction, loops, made, NewLoop(number + 2, AxisRole.VECTOR))


def _reduction(nest: LoopNest) -> UOp:
    """The outermost sum."""
    return [n for n in toposort((nest.graph,)) if n.op is Ops.REDUCE][-1]


class _Parts:
    """The loops of a group's tile: steps; warps, tiles of a warp, and rows or columns of a tile."""

    def __init__(self, number: int, tile: WarpTile, unit: MatrixUnit, steps: int) -> None:
        self.tile = tile
        self.step = NewLoop(number, AxisRole.REDUCE)
        self.row_warp, self.row_tile = NewLoop(number + 1), NewLoop(number + 2, AxisRole.UPCAST)
        self.column_warp = NewLoop(number + 3)
        self.column_tile = NewLoop(number + 4, AxisRole.UPCAST)
        self.row, self.column = NewLoop(number + 5), NewLoop(number + 6)
        self.group = NewLoop(number + 7, AxisRole.BLOCK)
        self.sizes = {
            self.step: QUARTERS * steps,
            self.row_warp: tile.row_warps,
            self.row_tile: tile.row_tiles,
            self.row: unit.halves * GROUPS,
            self.column_warp: tile.column_warps,
            self.column_tile: tile.column_tiles,
            self.column: GROUPS,
        }

    def side(self, number: int, as_it_lies: bool) -> tuple[NewLoop, ...]:
        """The loops of rows (0) or columns (1): of neighbours each is in another tile where these are what is read in vectors."""
        rows = self.row_warp, self.row_tile, self.row
        columns = self.column_warp, self.column_tile, self.column
        warp, tile, one = (rows, columns)[number]
        return (warp, tile, one) if as_it_lies else (warp, one, tile)

    def loop(self, made: NewLoop) -> UOp:
        """A loop; of one iteration, its only value."""
        size = self.sizes[made]
        return UOp.range(size, made.number, made.role) if size != 1 else UOp.index(0)
