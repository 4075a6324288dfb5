"""Tactic: warps of a group multiply a product, and the product of what is made of its rows, as in attention, by matrix units.

Owns: the order of the steps. Does not own: whether, and which tile (schedule/warp_rows.py), the laws (steps/mma.py, steps/split.py,
steps/local_buffer.py), how a group fills its memory (tactics/shared_tiles.py).

    out[i, d] = sum[j](w(i, j) * v(j, d)),   w(i, j) = f(s(i, j), max[j](s(i, j)), ...),   s(i, j) = sum[k](q(i, k) * c(j, k))

A reduction of a row is first one over 8 columns, of what it is over all keys of that column of their tiles; the items of warps keep these
where they have multiplied. Then, block of keys by block, the group keeps the weights, which they make of scores in the same way, and
multiplies from there.

    let m = local[i, u](max[o, t](mma(i, o, t, u)))
    let w = local[i, t, u](f(mma(i, o, t, u), max[u](m[i, u])))           # for each block o
    out[i, d] = sum[o](mma(w, v))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeAlias

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import Schedule, WarpTile
from proofgrad.core.compile.nests.loops import fresh_number, size_of
from proofgrad.core.compile.nests.strides import loops_of
from proofgrad.core.compile.nests.sums_of_products import is_masked
from proofgrad.core.compile.nests.weighted_sums import is_divided_inside
from proofgrad.core.compile.schedule.shared_tiles import lies_in_vectors, runs_along
from proofgrad.core.compile.schedule.warp_rows import (
    WarpRows,
    halves_of,
    steps_at_once,
    sums_of_scores,
)
from proofgrad.core.compile.schedule.warp_tiles import held_steps, width_of
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.collapse import collapse
from proofgrad.core.compile.steps.divide_once import divide_once
from proofgrad.core.compile.steps.keep_in_item import keep_in_item
from proofgrad.core.compile.steps.local_buffer import local_buffer
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.steps.mma import mma, read_by_unit
from proofgrad.core.compile.steps.reduce_inside import reduce_inside
from proofgrad.core.compile.steps.rescale_blocks import is_asked_for
from proofgrad.core.compile.steps.run_as import run_as
from proofgrad.core.compile.steps.split import split, split_reading_inside
from proofgrad.core.compile.steps.unmask import unmask
from proofgrad.core.compile.tactics.groups import as_one_loop
from proofgrad.core.compile.tactics.shared_tiles import filled_ahead, kept_by_group
from proofgrad.core.compile.tactics.warp_tiles import kept_for_unit, kept_in_rows
from proofgrad.core.ir.fragments import COLUMNS_EACH, GROUPS, QUARTERS, WARP, fragments_of
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort


def in_warp_rows(nest: LoopNest, rows: WarpRows, schedule: Schedule, target: Target) -> LoopNest:
    """The kernel as warps of groups, as its schedule says."""
    assert schedule.warps is not None
    found, part = rows.found, Parts(fresh_number(nest.graph), rows, schedule.warps, target)
    if is_asked_for() and is_divided_inside(found.total):
        nest = divide_once(nest, found.total)
    nest = split_reading_inside(nest, found.rows, part.high, (part.block, part.warp, part.row))
    nest = in_columns(nest, found.columns, part)
    nest = in_steps(nest, part)
    groups = -(-size_of(found.rows) // prod(part.high))
    around = [*found.around, *([UOp.range(groups, part.block.number)] if groups > 1 else [])]
    nest = as_one_loop(nest, around, AxisRole.BLOCK, part.group)
    for loop in rows.along:
        nest = _row_reduction(nest, loop, part)
    nest, keys = keys_in_tiles(nest, found.keys, part.tiles, AxisRole.REDUCE)
    nest = last_sum(without_mask(nest, keys[0]), keys, part, _weights_kept)
    for loop in (*rows.along, found.keys) if schedule.ahead else ():
        nest = filled_ahead(nest, loop, schedule.ahead or 0)
    return nest


# Keeps a value along outer loops and those of a tile.
WeightsKept: TypeAlias = (
    "Callable[[LoopNest, UOp, tuple[UOp, ...], tuple[UOp, UOp], Parts], LoopNest]"
)


class Parts:
    """The loops of a group's tile, and what of the machine decides them."""

    def __init__(self, number: int, rows: WarpRows, tile: WarpTile, target: Target) -> None:
        sizes, self.unit, self.target = rows.found.sizes, rows.unit, target
        self.items, self.tiles = tile.warps * WARP, tile.column_tiles
        self.halves = halves_of(tile, self.unit)
        self.high = tile.row_warps, self.halves * GROUPS
        self.column_tiles = -(-sizes.columns // GROUPS)
        self.steps = steps_at_once(sizes, self.unit, target)
        self.width = _width(rows, target)
        self.values_lie_across = _values_lie_across(rows)
        value = read_by_unit(_values_of(rows), rows.unit)
        self.width_of_values = width_of(value, [rows.found.columns], target)
        self.block, self.warp, self.row = [NewLoop(number + k) for k in range(3)]
        self.group, self.column = number + 3, NewLoop(number + 4)
        self.column_tile = number + 5

    @property
    def rows(self) -> tuple[UOp, ...]:
        """The loops of warps, if there are several, and of the rows of a warp."""
        made = zip(self.high, (self.warp, self.row))
        return tuple([UOp.range(size, one.number) for size, one in made if size > 1])

    @property
    def columns(self) -> tuple[UOp, ...]:
        """Those of a tile, and the tiles, of which neighbours are of another each unless values are kept as they lie."""
        tiles = UOp.range(self.column_tiles, self.column_tile, AxisRole.UPCAST)
        both = (UOp.range(GROUPS, self.column.number), *([tiles] if self.column_tiles > 1 else []))
        return both[::-1] if self.values_lie_across else both


def _width(rows: WarpRows, target: Target) -> int:
    """How many elements of a key an item copies at once."""
    (score,) = [n for n in sums_of_scores(rows.found.weights) if rows.found.keys in loops_of(n)]
    (factor,) = [x for x in score.src[0].src if rows.found.keys in loops_of(x)]
    lanes = target.lanes(rows.unit.factor)
    is_wide = lies_in_vectors(read_by_unit(factor, rows.unit), score.src[1:], lanes)
    return lanes if is_wide else 1


def _values_lie_across(rows: WarpRows) -> bool:
    """Whether the columns of a value lie side by side, and the unit reads them so, the items' steps of a block in one load each."""
    found = rows.found
    if not rows.unit.reads_across:
        return False
    values = _values_of(rows)
    return runs_along(values, found.columns) and not runs_along(values, found.keys)


def _values_of(rows: WarpRows) -> UOp:
    """The factor of the last sum that does not change with the rows."""
    (values,) = [x for x in rows.found.total.src[0].src if rows.found.rows not in loops_of(x)]
    return values


def in_columns(nest: LoopNest, loop: UOp, part: Parts) -> LoopNest:
    """Columns of the result in tiles. Neighbours that are read as vectors lie inside as a whole or not at all."""
    one = NewLoop(loop.arg[0])
    if part.values_lie_across:
        tile, vector = (
            NewLoop(part.column_tile, AxisRole.UPCAST),
            NewLoop(part.column.number, AxisRole.VECTOR),
        )
        parts = ((part.column_tiles, tile), (GROUPS, vector))
        made = [(size, x) for size, x in parts if size > 1]
        sizes = tuple([size for size, _ in made])
        nest = split_reading_inside(nest, loop, sizes, (one, *[x for _, x in made]))
        return run_as(nest, {UOp.range(GROUPS, vector.number, vector.role): AxisRole.LOOP})
    if part.column_tiles == 1:
        return split_reading_inside(nest, loop, (GROUPS,), (one, part.column))
    vector = NewLoop(part.column_tile, AxisRole.VECTOR)
    sizes = GROUPS, part.column_tiles
    nest = split_reading_inside(nest, loop, sizes, (one, part.column, vector))
    return run_as(nest, {UOp.range(sizes[1], part.column_tile, vector.role): AxisRole.UPCAST})


def in_steps(nest: LoopNest, part: Parts) -> LoopNest:
    """The steps of each score, as many as items hold, side by side; no masks, for what is read beyond their end is 0."""
    for loop in dict.fromkeys([n.src[1] for n in sums_of_scores(nest.graph)]):
        steps = NewLoop(fresh_number(nest.graph), AxisRole.REDUCE)
        made = NewLoop(loop.arg[0], AxisRole.UPCAST), steps
        nest = split(nest, loop, (part.steps,), made)
    while masked := [n for n in sums_of_scores(nest.graph) if is_masked(n.src[0])]:
        nest = unmask(nest, masked[0])
    return nest


def _row_reduction(nest: LoopNest, loop: UOp, part: Parts) -> LoopNest:
    """A reduction of rows: for each column of the tiles it is kept over all of them, then it is over the columns."""
    number = fresh_number(nest.graph)
    tile, column = NewLoop(number, AxisRole.UPCAST), NewLoop(number + 1, AxisRole.REDUCE)
    nest = split(nest, loop, (part.tiles, GROUPS), (NewLoop(*loop.arg), tile, column))
    columns = UOp.range(GROUPS, column.number, column.role)
    reduction = reduction_over(nest, columns)
    nest = reduce_inside(nest, reduction, tuple([x for x in reduction.src[1:] if x is not columns]))
    nest, own = _kept(nest, reduction_over(nest, columns).src[0], (*part.rows, columns))
    nest = scores_by_units(nest, own, (UOp.range(part.tiles, number, AxisRole.UPCAST),), part)
    nest, own = _kept(nest, reduction_over(nest, columns), part.rows)
    items = NewLoop(fresh_number(nest.graph), AxisRole.LANE)
    return collapse(nest, own, items) if len(own) > 1 else nest


def keys_in_tiles(
    nest: LoopNest, keys: UOp, tiles: int, role: AxisRole
) -> tuple[LoopNest, tuple[UOp, UOp, UOp]]:
    """Keys of a block as tiles, quarters and columns, as the items of a warp hold them."""
    number = fresh_number(nest.graph)
    made = [NewLoop(number + k, role) for k in range(3)]
    outer = [] if size_of(keys) == tiles * GROUPS else [NewLoop(*keys.arg)]
    sizes = (tiles, QUARTERS, COLUMNS_EACH)[1 - len(outer) :]
    nest = split(nest, keys, sizes, (*outer, *made))
    tile, quarter, column = [
        UOp.range(n, one.number, one.role) for n, one in zip((tiles, *sizes[-2:]), made)
    ]
    return nest, (tile, quarter, column)


def without_mask(nest: LoopNest, keys: UOp) -> LoopNest:
    """The last sum, over such keys, without a mask: weights beyond the end are 0."""
    total = reduction_over(nest, keys)
    return unmask(nest, total) if is_masked(total.src[0]) else nest


def _weights_kept(
    nest: LoopNest, value: UOp, outer: tuple[UOp, ...], inner: tuple[UOp, UOp], part: Parts
) -> LoopNest:
    """The weights of a block, which items make of scores that they multiply."""
    nest, own = _kept(nest, value, (*part.rows, *outer, *inner))
    columns = NewLoop(fresh_number(nest.graph), AxisRole.LANE)
    nest = collapse(nest, own[-2:], columns)
    filled = (*own[: len(part.rows)], UOp.range(GROUPS, columns.number, columns.role))
    return scores_by_units(nest, filled, own[len(part.rows) : -2], part)


def last_sum(
    nest: LoopNest, keys: tuple[UOp, UOp, UOp], part: Parts, weights_kept: WeightsKept
) -> LoopNest:
    """The sum of weights times values, block of keys by block, each kept; an item multiplies by the weights that it has made.

    Values that are kept as they lie are multiplied by as many keys at once as an item has in one load. `keys`: those of a block, in tiles.
    """
    tiles, quarter, column = keys
    at_once = part.tiles
    if part.values_lie_across:
        at_once = min(part.tiles, held_steps(part.unit, part.target) // COLUMNS_EACH)
    times: tuple[UOp, ...] = ()
    if at_once < part.tiles:
        parts = NewLoop(fresh_number(nest.graph), AxisRole.UPCAST), NewLoop(*tiles.arg)
        nest = split(nest, tiles, (at_once,), parts)
        times = (UOp.range(part.tiles // at_once, parts[0].number, parts[0].role),)
        tiles = UOp.range(at_once, *tiles.arg)
    weights, _ = _factors(reduction_over(nest, column), part)
    nest = weights_kept(nest, weights, (*times, tiles), (quarter, column), part)
    if part.values_lie_across:
        _, values = _factors(reduction_over(nest, column), part)
        steps = [*times, tiles, quarter, column]
        *pieces, element = part.columns
        loops = steps, pieces, [element]
        apart = (
            COLUMNS_EACH if part.unit.rounds else 1
        )  # items read by themselves, or a warp eight rows
        width = part.width_of_values
        nest = kept_in_rows(nest, values, loops, part.items, width, GROUPS, apart=apart)
    block = UOp.range(at_once * GROUPS, fresh_number(nest.graph), AxisRole.REDUCE)
    nest = collapse(nest, (quarter, tiles, column), NewLoop(*block.arg))
    if not part.values_lie_across:
        _, values = _factors(reduction_over(nest, block), part)
        nest = kept_for_unit(nest, values, part.columns, block, part.items, part.target)
    of_tile = UOp.range(GROUPS, part.column.number)
    nest = _by_unit(nest, reduction_over(nest, block), (*part.rows, of_tile), block)
    return _weights_of_items(nest)


def _weights_of_items(nest: LoopNest) -> LoopNest:
    """The weights as what each item has to itself: an item multiplies by those that it has made."""
    (product,) = [n for n in toposort((nest.graph,), _is_no_memory) if n.op is Ops.MMA]
    fragments = fragments_of(product)
    memories = {
        n.src[0]
        for row in fragments.rows
        for n in toposort((row,), _is_no_memory)
        if n.op is Ops.INDEX
    }
    (weights,) = [m for m in memories if m.op is Ops.LOCAL_BUFFER]
    return keep_in_item(nest, weights, fragments.item)


def _is_no_memory(node: UOp) -> bool:
    return node.op is not Ops.LOCAL_BUFFER


def reduction_over(nest: LoopNest, loop: UOp) -> UOp:
    """The reduction over a loop, beside others perhaps."""
    (found,) = [n for n in toposort((nest.graph,)) if n.op is Ops.REDUCE and loop in n.src[1:]]
    return found


def _factors(total: UOp, part: Parts) -> tuple[UOp, UOp]:
    """The weights and the values that the last sum multiplies, as the unit takes them."""
    one, other = [read_by_unit(x, part.unit) for x in total.src[0].src]
    return (other, one) if set(part.columns) & loops_of(one) else (one, other)


def _kept(nest: LoopNest, value: UOp, loops: tuple[UOp, ...]) -> tuple[LoopNest, tuple[UOp, ...]]:
    """The value kept along loops, by loops of its own."""
    number = fresh_number(nest.graph)
    roles = [AxisRole.REDUCE] * (len(loops) - 1) + [AxisRole.LANE]
    made = [NewLoop(number + k, role) for k, role in enumerate(roles)]
    nest = local_buffer(nest, value, loops, tuple(made))
    return nest, tuple([UOp.range(size_of(x), y.number, y.role) for x, y in zip(loops, made)])


def scores_by_units(
    nest: LoopNest, own: tuple[UOp, ...], tiles: Sequence[UOp], part: Parts
) -> LoopNest:
    """The scores of what is kept along rows and columns: their keys kept by the group, the sum as an MMA."""
    *_, row, column = own
    score = _score_along(nest.graph, row)
    (factor,) = [x for x in score.src[0].src if column in loops_of(x)]
    *outer, steps = score.src[1:]
    value = read_by_unit(factor, part.unit)
    nest = kept_by_group(nest, value, [*outer, *tiles, column, steps], part.items, part.width)
    return _by_unit(nest, _score_along(nest.graph, row), own, steps)


def _score_along(kernel: UOp, row: UOp) -> UOp:
    """The score that changes with a loop of rows."""
    (score,) = [n for n in sums_of_scores(kernel) if row in loops_of(n)]
    return score


def _by_unit(nest: LoopNest, total: UOp, loops: tuple[UOp, ...], steps: UOp) -> LoopNest:
    """The sum over some steps as an MMA of warps, and the sum of these."""
    inner = total
    if len(total.src) > 2:
        nest = reduce_inside(nest, total, (steps,))
        (inner,) = [
            n
            for n in toposort((nest.graph,))
            if n.op is Ops.REDUCE and n.src[1:] == (steps,) and loops[-1] in loops_of(n)
        ]
    number = fresh_number(nest.graph)
    made = NewLoop(number, AxisRole.LANE), NewLoop(number + 1, AxisRole.VECTOR)
    return mma(nest, inner, loops, made, NewLoop(number + 2, AxisRole.VECTOR))
