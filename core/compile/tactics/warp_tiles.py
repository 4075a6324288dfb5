"""Tactic: warps of a group multiply a tile of a product by matrix units, from rows and columns that all copy into local memory.

Owns: the order of the steps. Does not own: whether, and which tile, how operands lie (schedule/warp_tiles.py), the laws (steps/mma.py,
steps/split.py, steps/local_buffer.py), how a group fills its memory (tactics/shared_tiles.py).

    out[m, n] = sum[k](a[m, k] * b[k, n])

is first sum[o, j](a[m, 32 * o + j] * b[32 * o + j, n]), where m is a group, a warp of it, a tile of the warp and a row of the tile,
and n in the same way. What the group reads for 32 steps is kept; then the sum over j of each tile is an MMA.

An item holds neighbours along j. Where items read by themselves, j is as it is, so that each has its neighbours in one load. Where a
warp reads rows of 16 bytes at once and hands out words of them, j is counted in another order: of j = (p, q, e), piece p of
16 bytes, word q of 4 and element e of it, an item holds all p of its q, as (q, p, e). A sum does not depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import gcd, prod

from proofgrad.core.compile.machine.target import MatrixUnit, Target
from proofgrad.core.compile.nests.kernel_schedule import Schedule, WarpTile
from proofgrad.core.compile.nests.loops import fresh_number, size_of
from proofgrad.core.compile.nests.strides import loops_of
from proofgrad.core.compile.nests.sums_of_products import is_masked
from proofgrad.core.compile.schedule.shared_tiles import lies_in_vectors, runs_along
from proofgrad.core.compile.schedule.warp_tiles import (
    Lies,
    Operand,
    held_steps,
    operands_of,
    unit_of,
)
from proofgrad.core.compile.schedule.warp_windows import window_of
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.collapse import collapse
from proofgrad.core.compile.steps.local_buffer import local_buffer
from proofgrad.core.compile.steps.loop_nest import LoopNest, StepRefused, require
from proofgrad.core.compile.steps.mma import mma, read_by_unit
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
    product_of_unit,
    together,
)
from proofgrad.core.compile.tactics.warp_windows import kept_in_window
from proofgrad.core.ir.fragments import GROUPS, QUARTERS, WARP
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort


def in_warp_tiles(nest: LoopNest, schedule: Schedule, target: Target) -> LoopNest:
    """The kernel of one product as warps of groups, as its schedule says."""
    if schedule.windows:
        with suppress(StepRefused):  # then what it would keep is copied for each block of steps
            return _from_window(nest, schedule, target)
    return _from_blocks(nest, schedule, target)


def _from_window(nest: LoopNest, schedule: Schedule, target: Target) -> LoopNest:
    """One factor is read from a window that groups keep once, the other from what they copy for each block of steps."""
    (product, unit), tile = product_of_unit(nest, target, unit_of), schedule.warps
    window = None if tile is None else window_of(product, tile, unit, target)
    require(window is not None, "no window of memory that a group may keep")
    assert tile is not None and window is not None
    operands = operands_of(product, unit, target)
    nest, row = as_one(nest, product.rows)
    nest, column = as_one(nest, product.columns)
    number = fresh_number(nest.graph)  # of the steps as one loop, which stay as they are until then
    part = _Parts(number + 1, tile, unit, held_steps(unit, target))
    sides = [part.side(k, True) for k in range(len(operands))]
    for loop, made, operand in zip((row, column), sides, operands):
        nest = _split_side(nest, loop, made, operand, part)
    loops, kept = _reduction(nest).src[1:], operands[window.factor]
    inner = [*[part.loop(one) for one in sides[window.factor]], *loops]
    value = read_by_unit(_reduction(nest).src[0].src[kept.factor], unit)
    items = tile.warps * WARP
    nest = kept_in_window(nest, value, window, inner, items, kept.width, part.end)
    nest, step = as_one(nest, loops, number)
    nest = split(nest, step, part.sizes_of_steps, (NewLoop(*step.arg), *part.steps))
    nest = as_groups(nest, (*product.others, row, column), part.group.number)
    other = operands[1 - window.factor]
    value = read_by_unit(_reduction(nest).src[0].src[other.factor], unit)
    nest = _kept(nest, value, sides[1 - window.factor], other, part)
    nest = _by_units(nest, part)
    return filled_ahead(nest, step, schedule.ahead) if schedule.ahead else nest


def _from_blocks(nest: LoopNest, schedule: Schedule, target: Target) -> LoopNest:
    """Both factors are read from what groups copy for each block of steps."""
    (product, unit), tile = product_of_unit(nest, target, unit_of), schedule.warps
    assert tile is not None
    operands = operands_of(product, unit, target)
    nest, row = as_one(nest, product.rows)
    nest, column = as_one(nest, product.columns)
    nest, step = as_one(nest, product.reduction.src[1:])
    part = _Parts(fresh_number(nest.graph), tile, unit, held_steps(unit, target))
    sides = [part.side(k, operand.lies is not Lies.IN_TILES) for k, operand in enumerate(operands)]
    nest = split(nest, step, part.sizes_of_steps, (NewLoop(*step.arg), *part.steps))
    if is_masked(_reduction(nest).src[0]):
        nest = unmask(nest, _reduction(nest))
    for loop, made, operand in zip((row, column), sides, operands):
        nest = _split_side(nest, loop, made, operand, part)
    nest = as_groups(nest, (*product.others, row, column), part.group.number)
    for operand, side in zip(operands, sides):
        value = read_by_unit(_reduction(nest).src[0].src[operand.factor], unit)
        nest = _kept(nest, value, side, operand, part)
    nest = _by_units(nest, part)
    return filled_ahead(nest, step, schedule.ahead) if schedule.ahead else nest


# Of a row that an item gives the address of, for a warp that reads rows at once.
PIECE_BYTES = 16
BANKS_BYTES = 128  # that items of a warp read at once, each from banks of its own


def _split_side(
    nest: LoopNest, loop: UOp, made: tuple[NewLoop, ...], operand: Operand, part: _Parts
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
    nest: LoopNest, value: UOp, side: tuple[NewLoop, ...], operand: Operand, part: _Parts
) -> LoopNest:
    """What a factor reads is kept by the group, and its items take turns at filling it.

    Steps are innermost, or outermost where it lies across them. One that shall lie in tiles is read along its rows, or columns,
    in vectors of as many as there are tiles.
    """
    items, steps = part.tile.warps * WARP, [part.loop(one) for one in part.steps]
    order = [part.loop(one) for one in side]
    if operand.lies is Lies.ACROSS:
        loops = steps, order[:-1], order[-1:]
        return kept_in_rows(nest, value, loops, items, operand.width, GROUPS)
    rows, tile = (order[:-1], order[-1]) if operand.lies is Lies.IN_TILES else (order, None)
    if len(steps) == 1:  # items read by themselves
        return kept_by_group(nest, value, [*rows, *steps], items, operand.width, tile)
    loops, each = (rows, steps[:1], steps[1:]), PIECE_BYTES // value.dtype.itemsize
    return kept_in_rows(nest, value, loops, items, operand.width, each, tile)


def kept_in_rows(
    nest: LoopNest,
    value: UOp,
    loops: tuple[Sequence[UOp], Sequence[UOp], Sequence[UOp]],
    items: int,
    width: int,
    each: int,
    vector: UOp | None = None,
    apart: int = 1,
) -> LoopNest:
    """A value is kept row by row, as by `kept_by_group`, its rows turned so that a warp finds pieces of neighbours in other banks.

    `loops`: those that count the rows, the pieces of a row, and what a piece has; the last may have several pieces. `each`: elements of a
    piece that items read at once: along the sum those of an address, across it one of each of the groups of a warp. Items read
    every `apart`th row at once.
    """
    along = [x for x in (*loops[0], *loops[1], *loops[2]) if x in loops_of(value)]
    number = fresh_number(nest.graph)
    own = [NewLoop(number + 4 + k, AxisRole.REDUCE) for k in range(len(along))]
    own[-1] = NewLoop(own[-1].number, AxisRole.LANE)
    lanes = [vector] if vector is not None and vector in loops_of(value) else []
    of_lanes = [NewLoop(number + 2, AxisRole.VECTOR) for _ in lanes]
    nest = local_buffer(nest, value, (*lanes, *along), (*of_lanes, *own))
    made = [UOp.range(size_of(x), one.number, one.role) for x, one in zip(along, own)]
    if {loops[0][-1], *loops[2]} <= set(along):
        parts = [[y for x, y in zip(along, made) if x in part] for part in loops]
        banks = BANKS_BYTES // (each * value.dtype.itemsize)
        nest, made = _turned(nest, parts, each, banks, apart)
    whole = NewLoop(number + 3, AxisRole.LANE)
    size = prod([size_of(x) for x in made])
    nest = collapse(nest, tuple(made), whole)
    return in_turns(nest, UOp.range(size, whole.number, whole.role), items, width, number)


def _turned(
    nest: LoopNest, parts: Sequence[list[UOp]], each: int, banks: int, apart: int
) -> tuple[LoopNest, list[UOp]]:
    """What is kept along loops of rows, pieces and elements (`parts`), with rows turned that are read at once; the loops of it.

    `banks`: rows that are read at once, every `apart`th; a piece of each, of so many elements, shall lie in banks of its own. Rows of an odd
    number of pieces lie so as they are; else as many pieces are turned around as the number has factors of 2, up to `banks`.
    """
    rows, pieces, elements = parts
    nest, row = _collapsed(nest, rows)
    nest, element = _collapsed(nest, elements)
    nest, [*more, element] = _inner(nest, element, each)
    if not pieces and not more:
        return nest, [row, element]
    nest, piece = _collapsed(nest, [*pieces, *more])
    around = gcd(size_of(piece), banks)
    if around == 1:
        return nest, [row, piece, element]
    nest, loops = _inner(nest, piece, around)
    return turn_rows(nest, row, loops[-1], around, banks * apart), [row, *loops, element]


def _inner(nest: LoopNest, loop: UOp, size: int) -> tuple[LoopNest, list[UOp]]:
    """A loop of what is kept as one over parts of this size and one inside of a part, if there are several."""
    if size_of(loop) <= size:
        return nest, [loop]
    high = NewLoop(fresh_number(nest.graph), AxisRole.REDUCE)
    nest = split(nest, loop, (size,), (high, NewLoop(*loop.arg)))
    return nest, [
        UOp.range(size_of(loop) // size, high.number, high.role),
        UOp.range(size, *loop.arg),
    ]


def _collapsed(nest: LoopNest, loops: Sequence[UOp]) -> tuple[LoopNest, UOp]:
    """Loops of what is kept as one, which has the name of the last."""
    last = loops[-1]
    if len(loops) == 1:
        return nest, last
    nest = collapse(nest, tuple(loops), NewLoop(*last.arg))
    return nest, UOp.range(prod([size_of(x) for x in loops]), *last.arg)


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
    inner = part.loop(part.step)
    if len(part.steps) > 1:
        piece, quarter, *element = [part.loop(one) for one in part.steps]
        nest = collapse(nest, (quarter, piece, *element), part.step)
    reduction = _reduction(nest)
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
    """The loops of a group's tile: steps; warps, tiles of a warp, and rows or columns of a tile.

    `steps`: those as they lie: pieces of 16 bytes, words of a piece, elements of a word if there are several, where a warp hands out words; else one loop.
    """

    def __init__(self, number: int, tile: WarpTile, unit: MatrixUnit, steps: int) -> None:
        self.tile = tile
        self.step = NewLoop(number, AxisRole.REDUCE)
        self.row_warp, self.row_tile = NewLoop(number + 1), NewLoop(number + 2, AxisRole.UPCAST)
        self.column_warp = NewLoop(number + 3)
        self.column_tile = NewLoop(number + 4, AxisRole.UPCAST)
        self.row, self.column = NewLoop(number + 5), NewLoop(number + 6)
        self.group = NewLoop(number + 7, AxisRole.BLOCK)
        self.end = number + 11  # behind the numbers of all
        self.sizes = {
            self.step: QUARTERS * steps,
            self.row_warp: tile.row_warps,
            self.row_tile: tile.row_tiles,
            self.row: unit.halves * GROUPS,
            self.column_warp: tile.column_warps,
            self.column_tile: tile.column_tiles,
            self.column: GROUPS,
        }
        self.steps: tuple[NewLoop, ...] = (self.step,)
        if unit.word:
            sizes = [steps // unit.word, QUARTERS, *([unit.word] if unit.word > 1 else [])]
            self.steps = tuple(
                [NewLoop(number + 8 + k, AxisRole.REDUCE) for k in range(len(sizes))]
            )
            self.sizes.update(zip(self.steps, sizes))

    @property
    def sizes_of_steps(self) -> tuple[int, ...]:
        """Of the loops of steps."""
        return tuple([self.sizes[one] for one in self.steps])

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
