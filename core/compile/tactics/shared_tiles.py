"""Tactic: the items of a group compute a tile of a product together, from rows and columns that they copy into local memory.

Owns: the order of the steps. Does not own: whether, and which tile (schedule/shared_tiles.py), the laws (steps/split.py,
steps/local_buffer.py, steps/collapse.py), waiting for each other (lowering/waits.py).

    out[m, n] = sum[k](a[m, k] * b[k, n])

is first sum[o, j](a[m, 16 * o + j] * b[16 * o + j, n]), where m is a group, an item of it and a row of the item's tile, and n in
the same way. What a tile reads of a for 16 steps is kept along j and the group's rows, and items take turns at filling it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeVar

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import Schedule, SharedTile, Tile
from proofgrad.core.compile.nests.loops import fresh_number, output_loops, size_of
from proofgrad.core.compile.nests.strides import loops_of
from proofgrad.core.compile.nests.sums_of_products import is_masked
from proofgrad.core.compile.schedule.shared_tiles import (
    GroupProduct,
    columns_run_along,
    find_product,
    kept_of,
    lies_in_vectors,
    runs_along,
    steps_at_once,
)
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.collapse import MOST_LOOPS, collapse
from proofgrad.core.compile.steps.fill_ahead import fill_ahead
from proofgrad.core.compile.steps.local_buffer import local_buffer
from proofgrad.core.compile.steps.loop_nest import LoopNest, require
from proofgrad.core.compile.steps.split import split, split_reading_inside
from proofgrad.core.compile.steps.unmask import unmask
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort

_Unit = TypeVar("_Unit")


def in_shared_tiles(nest: LoopNest, schedule: Schedule, target: Target) -> LoopNest:
    """The kernel of one product as groups of items, as its schedule says."""
    product, tile, shared = find_product(nest.graph), schedule.tile, schedule.shared
    assert tile is not None and shared is not None
    require(product is not None, "no product whose operands a group may share")
    assert product is not None
    sides = _sides(product, target)
    nest, row = as_one(nest, product.rows)
    nest, column = as_one(nest, product.columns)
    nest, step = as_one(nest, product.reduction.src[1:])
    part = _Parts(fresh_number(nest.graph), tile, shared, sides[0].is_along)
    nest = _split_sum(nest, step, part, shared.steps)
    nest = _split_results(nest, row, column, part)
    nest = as_groups(nest, (*product.others, row, column), part.group.number)
    for side, results in zip(sides, (part.rows, part.columns)):
        order = (*results, part.step) if side.is_along else (part.step, *results)
        nest = _shared(nest, side, [part.loop(x) for x in order], shared.items)
    items = [part.loop(x) for x in (part.row_item, part.column_item)]
    nest = together(nest, items, AxisRole.LANE)
    nest = _written_out(nest, part, shared.steps, steps_at_once(product, target))
    return filled_ahead(nest, step, schedule.ahead) if schedule.ahead else nest


def filled_ahead(nest: LoopNest, loop: UOp, blocks: int) -> LoopNest:
    """What a group keeps for an iteration of the loop over blocks of the sum is filled while one so many before is multiplied."""
    (block,) = [n for n in toposort((nest.graph,)) if n.op is Ops.RANGE and n.arg[0] == loop.arg[0]]
    part = NewLoop(fresh_number(nest.graph), AxisRole.AHEAD)
    return fill_ahead(nest, block, part, blocks + 1)


@dataclass(frozen=True, slots=True)
class _Side:
    """An operand: which factor of the product it is, whether it lies along the sum, how many elements are copied at once."""

    factor: int
    is_along: bool
    width: int


def _sides(product: GroupProduct, target: Target) -> tuple[_Side, _Side]:
    """The operands of the rows and of the columns."""
    steps = product.reduction.src[1:]
    row, column = product.row_factor, product.column_factor
    along = runs_along(row, steps[-1]), columns_run_along(product)
    return (
        _Side(
            _side_of(product, row),
            along[0],
            _width(row, steps if along[0] else product.rows, target),
        ),
        _Side(
            _side_of(product, column),
            along[1],
            _width(column, steps if along[1] else product.columns, target),
        ),
    )


def _split_sum(nest: LoopNest, loop: UOp, part: _Parts, steps: int) -> LoopNest:
    """So many steps of the sum for each copy; a mask that the loads have, too, goes."""
    nest = split(nest, loop, (steps,), (NewLoop(*loop.arg), part.step))
    (reduction,) = [n for n in toposort((nest.graph,)) if n.op is Ops.REDUCE]
    is_of_loads = is_masked(reduction.src[0]) and all(
        [kept_of(factor).op is Ops.LOAD for factor in reduction.src[0].src[1].src]
    )
    return unmask(nest, reduction) if is_of_loads else nest


def _split_results(nest: LoopNest, row: UOp, column: UOp, part: _Parts) -> LoopNest:
    """Rows and columns as groups, items, and what an item has of them."""
    for loop, made in ((row, part.rows), (column, part.columns)):
        sizes = tuple([part.sizes[one] for one in made])
        nest = split_reading_inside(nest, loop, sizes, (NewLoop(*loop.arg), *made))
    return nest


def _written_out(nest: LoopNest, part: _Parts, steps: int, at_once: int) -> LoopNest:
    """Some steps of the sum at once."""
    if steps % at_once or steps == at_once or at_once == 1:
        return nest
    inner = NewLoop(fresh_number(nest.graph), AxisRole.UPCAST)
    return split(nest, part.loop(part.step), (at_once,), (part.step, inner))


class _Parts:
    """The loops of a group's tile: steps, rows of an item, items side by side.

    Rows that are kept along the steps are those of one item after those of another, so that what items read at a time lies
    16 steps apart, in other banks, and not 16 times as many as an item has rows; across the steps an item's rows lie side by side, in one load.
    """

    def __init__(self, number: int, tile: Tile, shared: SharedTile, is_along: bool) -> None:
        self.step = NewLoop(number, AxisRole.REDUCE)
        self.row_item, self.row = NewLoop(number + 1), NewLoop(number + 2, AxisRole.UPCAST)
        self.vector, self.column_item = NewLoop(number + 3, AxisRole.UPCAST), NewLoop(number + 4)
        self.lane = NewLoop(number + 5, AxisRole.VECTOR)
        self.group = NewLoop(number + 6, AxisRole.BLOCK)
        self.rows = (self.row, self.row_item) if is_along else (self.row_item, self.row)
        self.columns = self.vector, self.column_item, self.lane
        self.sizes = {
            self.step: shared.steps,
            self.row_item: shared.rows,
            self.row: tile.rows,
            self.vector: tile.vectors,
            self.column_item: shared.columns,
            self.lane: tile.lanes,
        }

    def loop(self, made: NewLoop) -> UOp:
        """A loop; of one iteration, its only value."""
        size = self.sizes[made]
        return UOp.range(size, made.number, made.role) if size != 1 else UOp.index(0)


def product_of_unit(
    nest: LoopNest, target: Target, unit_of: Callable[[GroupProduct, Target], _Unit | None]
) -> tuple[GroupProduct, _Unit]:
    """The product of a nest, and the unit of the machine that multiplies it."""
    product = find_product(nest.graph)
    unit = None if product is None else unit_of(product, target)
    require(unit is not None, "no product that a matrix unit computes")
    assert product is not None and unit is not None
    return product, unit


def as_one(nest: LoopNest, loops: Sequence[UOp], number: int | None = None) -> tuple[LoopNest, UOp]:
    """Several loops, outermost first, as one. `number`: of that, if not the first that is free."""
    if len(loops) == 1:
        return nest, loops[0]
    require(len(loops) <= MOST_LOOPS, "so many loops of one side", len(loops))
    made = NewLoop(fresh_number(nest.graph) if number is None else number, loops[0].arg[1])
    size = prod([size_of(x) for x in loops])
    return collapse(nest, tuple(loops), made), UOp.range(size, *_arguments(made))


def _arguments(made: NewLoop) -> tuple[int, AxisRole]:
    return made.number, made.role


def as_groups(nest: LoopNest, loops: Sequence[UOp], number: int) -> LoopNest:
    """The output loops that are left but for parts of a tile, as groups."""
    numbers = {x.arg[0] for x in loops}
    left = [x for x in output_loops(nest.graph) if x.arg[0] in numbers]
    left.sort(key=lambda x: [y.arg[0] for y in loops].index(x.arg[0]))
    return together(nest, left, AxisRole.BLOCK, number)


def together(
    nest: LoopNest, loops: Sequence[UOp], role: AxisRole, number: int | None = None
) -> LoopNest:
    """The loops, outermost first, as one of this role."""
    left = [x for x in loops if x.op is Ops.RANGE]
    require(len(left) <= MOST_LOOPS, "so many loops of results", len(left))
    if not left:
        return nest
    made = NewLoop(fresh_number(nest.graph) if number is None else number, role)
    return collapse(nest, tuple(left), made)


def _side_of(product: GroupProduct, factor: UOp) -> int:
    """Which factor of the product it is."""
    return product.reduction.src[0].src.index(factor)


def _width(factor: UOp, loops: Sequence[UOp], target: Target) -> int:
    """How many elements an item copies at once."""
    value = kept_of(factor)
    lanes = target.lanes(value.dtype)
    return lanes if len(loops) == 1 and lies_in_vectors(value, loops, lanes) else 1


def _shared(nest: LoopNest, side: _Side, order: Sequence[UOp], items: int) -> LoopNest:
    """What a factor reads is kept along the loops of the tile, and items take turns at filling it."""
    (reduction,) = [n for n in toposort((nest.graph,)) if n.op is Ops.REDUCE]
    term = reduction.src[0].src[1] if is_masked(reduction.src[0]) else reduction.src[0]
    return kept_by_group(nest, kept_of(term.src[side.factor]), order, items, side.width)


def kept_by_group(
    nest: LoopNest,
    value: UOp,
    order: Sequence[UOp],
    items: int,
    width: int,
    vector: UOp | None = None,
) -> LoopNest:
    """A value is kept along loops, outermost first, and the items of a group take turns at filling it, `width` elements at once.

    `vector`: a loop that goes around the others, and that each item fills as the lanes of one vector.
    """
    along = [x for x in order if x in loops_of(value)]
    number = fresh_number(nest.graph)
    own = [NewLoop(number + 4 + k, AxisRole.REDUCE) for k in range(len(along))]
    own[-1] = NewLoop(own[-1].number, AxisRole.LANE)
    lanes = [vector] if vector is not None and vector in loops_of(value) else []
    of_lanes = [NewLoop(number + 2, AxisRole.VECTOR) for _ in lanes]
    nest = local_buffer(nest, value, (*lanes, *along), (*of_lanes, *own))
    made = [UOp.range(size_of(x), *_arguments(one)) for x, one in zip(along, own)]
    size, whole = prod([size_of(x) for x in along]), NewLoop(number + 3, AxisRole.LANE)
    nest = collapse(nest, tuple(made), whole)
    return in_turns(nest, UOp.range(size, *_arguments(whole)), items, width, number)


def in_turns(nest: LoopNest, whole: UOp, items: int, width: int, number: int) -> LoopNest:
    """A loop that fills memory: items take turns at vectors of it. `number`: the first of two that are free."""
    item = NewLoop(whole.arg[0], AxisRole.LANE)
    turn, lane = NewLoop(number, AxisRole.REDUCE), NewLoop(number + 1, AxisRole.VECTOR)
    width = width if size_of(whole) % width == 0 else 1
    parts = [(turn, items), (item, items)] if size_of(whole) > items * width else [(item, items)]
    if width > 1:
        parts.append((lane, width))
    if len(parts) == 1:
        return nest
    sizes = tuple([size for _, size in parts[1:]])
    return split(nest, whole, sizes, tuple([made for made, _ in parts]))
