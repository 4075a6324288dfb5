"""Tactic: attention by matrix units in one pass: keys go by once, in blocks, each beside its own maximum.

Owns: the order of the steps, and which items hold what. Does not own: whether (schedule/warp_rows.py), the laws
(steps/rescale_blocks.py, steps/carry_maximum.py, steps/mma.py), tiles and the last product (tactics/warp_rows.py).

    over o                                                          # blocks of keys: copied, wait
    let s = local[t, item, e](mma(q, k[o]))                         # in registers of the item
    let b = max[u](local[item, e](max[t](s)))                       # through memory of the group: wait
    let p = local[t, item, e](exp2(s - b))                          # in registers
    let l = sum[u](local[item, e](sum[t](p)))                       # through memory: wait
    out = sum[o](exp2(b - max[o](b)) * mma(p, v[o])) / sum[o](exp2(b - max[o](b)) * l)

Scores and powers are memory of the group to steps and proofs; each item reads only what it has put there (lowering/held_by_items.py).
"""

from __future__ import annotations

from math import prod

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import Schedule
from proofgrad.core.compile.nests.loops import fresh_number, size_of
from proofgrad.core.compile.nests.strides import loops_of
from proofgrad.core.compile.nests.weighted_sums import POWERS, loops_over_row
from proofgrad.core.compile.schedule.warp_rows import WarpRows, sums_of_scores
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.collapse import collapse
from proofgrad.core.compile.steps.local_buffer import local_buffer
from proofgrad.core.compile.steps.loop_nest import LoopNest, require
from proofgrad.core.compile.steps.reduce_inside import reduce_inside
from proofgrad.core.compile.steps.rescale_blocks import rescale_blocks
from proofgrad.core.compile.steps.reverse import reverse
from proofgrad.core.compile.steps.split import split, split_reading_inside
from proofgrad.core.compile.tactics.groups import as_one_loop
from proofgrad.core.compile.tactics.hidden_blocks import sees_more_at_the_end, without_hidden_blocks
from proofgrad.core.compile.tactics.shared_tiles import filled_ahead
from proofgrad.core.compile.tactics.warp_rows import (
    Parts,
    in_columns,
    in_steps,
    keys_in_tiles,
    last_sum,
    reduction_over,
    scores_by_units,
    without_mask,
)
from proofgrad.core.ir.fragments import GROUPS
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort


def in_warp_blocks(nest: LoopNest, rows: WarpRows, schedule: Schedule, target: Target) -> LoopNest:
    """The kernel as warps of groups that each have the keys go by once."""
    assert schedule.warps is not None
    found = rows.found
    nest, keys = _in_blocks(nest, rows, schedule.warps.column_tiles * GROUPS)
    part = Parts(fresh_number(nest.graph), rows, schedule.warps, target)
    half, row = NewLoop(part.column_tile + 1), NewLoop(part.row.number)
    sizes, made = (part.high[0], part.halves, GROUPS), (part.block, part.warp, half, row)
    nest = split_reading_inside(nest, found.rows, sizes, made)
    nest = in_columns(nest, found.columns, part)
    nest = in_steps(nest, part)
    groups = -(-size_of(found.rows) // prod(part.high))
    around = [*found.around, *([UOp.range(groups, part.block.number)] if groups > 1 else [])]
    if groups > 1 and sees_more_at_the_end(nest, around[-1]):  # what begins last is soon done
        nest, around = reverse(nest, around[-1]), [around[-1], *found.around]
    nest = as_one_loop(nest, around, AxisRole.BLOCK, part.group)
    held = _Held(part, half, row)
    nest = _scores_kept(nest, keys, held, part)
    of_total, of_sum, of_maximum = keys
    nest = _found_of_block(nest, of_maximum, held, part)
    nest, total_keys = keys_in_tiles(nest, of_total, part.tiles, AxisRole.REDUCE)
    nest = without_mask(nest, total_keys[0])
    nest, sum_keys = keys_in_tiles(nest, of_sum, part.tiles, AxisRole.UPCAST)
    one, other = [_power_along(nest.graph, loops) for loops in (total_keys, sum_keys)]
    nest = held.kept(nest, one, total_keys, (other, sum_keys))
    nest = _found_of_block(nest, sum_keys, held, part)
    nest = last_sum(nest, total_keys, part, held.weights_kept)
    nest = without_hidden_blocks(nest, part.group)
    return filled_ahead(nest, found.keys, schedule.ahead) if schedule.ahead else nest


def _in_blocks(nest: LoopNest, rows: WarpRows, keys: int) -> tuple[LoopNest, list[UOp]]:
    """The rows in blocks of keys; the loops over the keys of a block of the last sum, that of the weights, and the maximum."""
    inner = []
    for loop in loops_over_row(rows.found.total):
        key = NewLoop(fresh_number(nest.graph), AxisRole.REDUCE)
        nest = split(nest, loop, (keys,), (NewLoop(*loop.arg), key))
        inner.append(UOp.range(keys, key.number, key.role))
    blocks = UOp.range(-(-size_of(rows.found.keys) // keys), *rows.found.keys.arg)
    (total,) = [n for n in toposort((nest.graph,)) if n.op is Ops.REDUCE and blocks in n.src[1:]]
    return rescale_blocks(nest, total), inner


class _Held:
    """How what is held along rows and keys lies: as the items of warps hold the results of a product."""

    def __init__(self, part: Parts, half: NewLoop, row: NewLoop) -> None:
        self.warps = (UOp.range(part.high[0], part.warp.number),) * (part.high[0] > 1)
        self.halves = (UOp.range(part.halves, half.number),) * (part.halves > 1)
        self.row = UOp.range(GROUPS, row.number)

    @property
    def rows(self) -> tuple[UOp, ...]:
        """Those of rows, as they are counted."""
        return (*self.warps, *self.halves, self.row)

    def order(self, keys: tuple[UOp, ...]) -> tuple[UOp, ...]:
        """Loops of rows and of keys: those that count tiles, items, and what an item has."""
        *tiles, quarter, column = keys
        return (*tiles, *self.warps, self.row, quarter, *self.halves, column)

    def kept(
        self,
        nest: LoopNest,
        value: UOp,
        keys: tuple[UOp, ...],
        alike: tuple[UOp, tuple[UOp, ...]] | None = None,
    ) -> LoopNest:
        """A value kept along rows and keys; `alike`: another one, along other keys."""
        along = self.order(keys)
        same = [] if alike is None else [(alike[0], self.order(alike[1]))]
        each = len(along) - 1 - len(self.halves)
        return _filled_by_items(nest, value, along, (len(keys) - 2, each), (each, len(along)), same)

    def kept_for_others(self, nest: LoopNest, value: UOp, keys: tuple[UOp, ...]) -> LoopNest:
        """The same of what other items of a row read, where what those of a warp read at once lies in banks of its own."""
        along = *self.halves, *self.warps, self.row, *keys
        each = len(self.halves)
        return _filled_by_items(nest, value, along, (each, len(along)), (0, 0), [])

    def weights_kept(
        self,
        nest: LoopNest,
        value: UOp,
        outer: tuple[UOp, ...],
        inner: tuple[UOp, UOp],
        part: Parts,
    ) -> LoopNest:
        """The weights, as items hold what they are made of; then the rows of a warp are one loop again."""
        nest = self.kept(nest, value, (*outer, *inner))
        whole = NewLoop(part.row.number)
        return collapse(nest, (*self.halves, self.row), whole) if self.halves else nest


def _filled_by_items(
    nest: LoopNest,
    value: UOp,
    along: tuple[UOp, ...],
    items: tuple[int, int],
    each: tuple[int, int],
    alike: list[tuple[UOp, tuple[UOp, ...]]],
) -> LoopNest:
    """A value kept along loops, of which these, from one to before the other, become that of items, and the lanes that each fills."""
    number = fresh_number(nest.graph)
    roles = [AxisRole.LANE if k == items[1] - 1 else AxisRole.REDUCE for k in range(len(along))]
    made = [NewLoop(number + k, role) for k, role in enumerate(roles)]
    nest = local_buffer(nest, value, along, tuple(made), alike)
    own = [UOp.range(size_of(x), y.number, y.role) for x, y in zip(along, made)]
    item, lanes = number + len(made), number + len(made) + 1
    nest = collapse(nest, tuple(own[slice(*items)]), NewLoop(item, AxisRole.LANE))
    own = own[slice(*each)]
    return collapse(nest, tuple(own), NewLoop(lanes, AxisRole.VECTOR)) if own else nest


def _scores_kept(nest: LoopNest, keys: list[UOp], held: _Held, part: Parts) -> LoopNest:
    """The scores of a block, multiplied once."""
    of_total, of_sum, of_maximum = keys
    one, *more = [n for n in sums_of_scores(nest.graph) if of_maximum in loops_of(n)]
    require(not more, "several products of a score", *more)
    others = [
        (n, (*held.rows, loop))
        for loop in (of_total, of_sum)
        for n in sums_of_scores(nest.graph)
        if loop in loops_of(n)
    ]
    number, along = fresh_number(nest.graph), (*held.rows, of_maximum)
    roles = [*[AxisRole.REDUCE] * len(held.rows), AxisRole.LANE]
    made = [NewLoop(number + k, role) for k, role in enumerate(roles)]
    nest = local_buffer(nest, one, along, tuple(made), others)
    own = [UOp.range(size_of(x), y.number, y.role) for x, y in zip(along, made)]
    if held.halves:
        *_, half, row, _ = own
        nest = collapse(nest, (half, row), NewLoop(row.arg[0], AxisRole.REDUCE))
        own[-3:-1] = [UOp.range(part.high[1], *row.arg)]
    number = fresh_number(nest.graph)
    tile, column = NewLoop(number, AxisRole.REDUCE), NewLoop(own[-1].arg[0], AxisRole.LANE)
    nest = split(nest, own[-1], (GROUPS,), (tile, column))
    filled = (*own[:-1], UOp.range(GROUPS, column.number, column.role))
    return scores_by_units(nest, filled, (UOp.range(part.tiles, number, tile.role),), part)


def _found_of_block(
    nest: LoopNest, keys: UOp | tuple[UOp, UOp, UOp], held: _Held, part: Parts
) -> LoopNest:
    """A reduction over the keys of a block: what each item found is kept, what the items of a row found is made of it."""
    if isinstance(keys, UOp):
        nest, keys = keys_in_tiles(nest, keys, part.tiles, AxisRole.UPCAST)
    tile, quarter, column = keys
    nest = reduce_inside(nest, reduction_over(nest, tile), (tile, column))
    return held.kept_for_others(nest, reduction_over(nest, tile), (quarter,))


def _power_along(kernel: UOp, loops: tuple[UOp, ...]) -> UOp:
    """The power that changes with loops of keys; others may be in what it is of."""
    powers = [n for n in toposort((kernel,)) if n.op in POWERS and set(loops) <= loops_of(n)]
    require(bool(powers), "no power along these loops", *loops)
    return powers[-1]
