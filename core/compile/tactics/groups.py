"""Tactic: the items of a group compute a row together: each a part, then the parts of parts, in memory of the group.

Owns: the order of the steps. Does not own: whether, and by how many items (schedule/groups.py), the laws (steps/split.py,
steps/reduce_inside.py, steps/local_buffer.py), waiting for each other (backends).

    out[r] = sum[i < n](v(r, i))

is first sum[t < 64](sum[s](v(r, 64 * s + t))). What is inside is kept along t, each element by another item; then t is 16 * a + b in
the same way, so that 16 items add 4 of what is kept, side by side, and each adds these sums again.

A reduction over several loops is first one over the last of them, of what it is over the others.

Where items of a warp exchange what they hold, t is first 32 * w + l, and the sum over l is made in rounds of exchange (steps/all_reduce.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import Group
from proofgrad.core.compile.nests.loops import fresh_number, output_loops, size_of
from proofgrad.core.compile.nests.strides import loops_below
from proofgrad.core.compile.schedule.groups import lanes_of_results, rows_to_share
from proofgrad.core.compile.schedule.vector_lanes import lanes_along
from proofgrad.core.compile.steps.all_reduce import all_reduce
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.collapse import MOST_LOOPS, collapse
from proofgrad.core.compile.steps.local_buffer import local_buffer
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.steps.reduce_inside import reduce_inside
from proofgrad.core.compile.steps.split import split, split_reading_inside
from proofgrad.core.compile.tactics.rows_in_groups import rows_kept, short_rows_kept
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort

# So many sums of a group an item adds up by itself.
AT_ONCE = 16


def in_groups(nest: LoopNest, group: Group, target: Target) -> LoopNest:
    """A group of so many rows and items for the positions of the loops that all rows change with."""
    while several := [x for x in rows_to_share(nest.graph, target.lockstep > 1) if len(x.src) > 2]:
        nest = reduce_inside(nest, several[0], several[0].src[1:-1])
    lanes = _lanes_of_rows(nest.graph, target)
    if group.rows == 1:
        nest = rows_kept(nest, group.items, lanes, target)
    rows = rows_to_share(nest.graph)
    free, outputs = loops_below(nest.graph), output_loops(nest.graph)
    around = [x for x in outputs if any([x in free[row] for row in rows])]
    inside = [x for x in outputs if x not in around]
    numbers = list(dict.fromkeys([row.src[1].arg[0] for row in rows]))
    across = min(group.rows, lanes_of_results(nest.graph, target)) if not inside else 1
    if group.results and inside:
        count = prod([size_of(x) for x in inside])
        nest, inside = _in_vectors(nest, inside, lanes)
        own = group.results * prod([size_of(x) for x in inside]) // count
        nest, shared, inside = _shared_by_groups(nest, inside, own)
        around += shared
    nest, of_group, vector = _rows_of_group(nest, around, group.rows, across)
    if not of_group and not group.results:
        nest, inside = _in_vectors(nest, inside, lanes)
    exchanging = 1 if vector else _exchanging(nest.graph, group, target)
    rows_of = _Rows(of_group, vector, group.items, exchanging)
    for number in numbers:
        if of_group and target.row_part_bytes:
            nest = short_rows_kept(nest, of_group[0], group.items, lanes, target)
        nest = _row_in_parts(nest, rows_of, number, lanes[number])
    if of_group:  # short rows are kept along whole loops
        nest, inside = _in_vectors(nest, inside, lanes)
    if group.rows == 1 and target.row_items:
        return _in_turns_of_items(nest, inside, group.items)
    return as_one_loop(nest, [*of_group, *inside], AxisRole.LANE)


def _shared_by_groups(
    nest: LoopNest, loops: list[UOp], count: int
) -> tuple[LoopNest, list[UOp], list[UOp]]:
    """Loops over groups that have so many iterations of some loops each, and those of a group."""
    shared: list[UOp] = []
    while loops and prod([size_of(x) for x in loops[1:]]) >= count:
        shared, loops = [*shared, loops[0]], loops[1:]
    if not loops:
        return nest, shared, loops
    loop, *rest = loops
    length = -(-count // prod([size_of(x) for x in rest]))
    if length >= size_of(loop):
        return nest, shared, loops
    own = NewLoop(fresh_number(nest.graph))
    groups = UOp.range(-(-size_of(loop) // length), *loop.arg)
    nest = split_reading_inside(nest, loop, (length,), (NewLoop(*loop.arg), own))
    return nest, [*shared, groups], [UOp.range(length, own.number, own.role), *rest]


def _in_turns_of_items(nest: LoopNest, loops: list[UOp], items: int) -> LoopNest:
    """The results of a row in the order in which it is kept: an item has the same elements of both, in turns that are counted."""
    count = prod([size_of(x) for x in loops])
    if count <= items:
        return as_one_loop(nest, loops, AxisRole.LANE)
    number = fresh_number(nest.graph)
    nest = as_one_loop(nest, loops, AxisRole.LOOP, number)
    turn, item = NewLoop(number + 1), NewLoop(number, AxisRole.LANE)
    return split_reading_inside(nest, UOp.range(count, number), (items,), (turn, item))


@dataclass(frozen=True, slots=True)
class _Rows:
    """The loop over the rows of a group, or none if it is one, the items of a row, of which so many exchange what they hold.

    `vector`: the loop over rows that an item sums side by side, if it does.
    """

    loop: tuple[UOp, ...]
    vector: tuple[UOp, ...]
    items: int
    exchanging: int


def _rows_of_group(
    nest: LoopNest, loops: list[UOp], rows: int, lanes: int
) -> tuple[LoopNest, tuple[UOp, ...], tuple[UOp, ...]]:
    """The loops over rows as groups; the loop over the rows of a group, and that over those that an item sums side by side."""
    count = prod([size_of(x) for x in loops])
    if rows == 1 or count < 2:
        return as_one_loop(nest, loops, AxisRole.BLOCK), (), ()
    nest = as_one_loop(nest, loops, AxisRole.LOOP, number := fresh_number(nest.graph))
    block, own = NewLoop(number, AxisRole.BLOCK), NewLoop(number + 1)
    vector = NewLoop(number + 2, AxisRole.VECTOR)
    whole, own_rows = UOp.range(count, number), rows // lanes
    sizes = [*[own_rows] * (own_rows > 1), *[lanes] * (lanes > 1)]
    made = [block, *[own] * (own_rows > 1), *[vector] * (lanes > 1)]
    nest = split_reading_inside(nest, whole, tuple(sizes), tuple(made))
    of_group = (UOp.range(own_rows, own.number, own.role),) * (own_rows > 1)
    return nest, of_group, (UOp.range(lanes, vector.number, vector.role),) * (lanes > 1)


def as_one_loop(
    nest: LoopNest, loops: list[UOp], role: AxisRole, made: int | None = None
) -> LoopNest:
    """The loops, outermost first, as one of this role, and of this number if one is given."""
    while len(loops) > MOST_LOOPS:
        inner, number = loops[-MOST_LOOPS:], fresh_number(nest.graph)
        nest = collapse(nest, tuple(inner), NewLoop(number))
        whole = UOp.range(prod([size_of(x) for x in inner]), number)
        loops = [*loops[:-MOST_LOOPS], whole]
    if not loops:
        return nest
    number = fresh_number(nest.graph) if made is None else made
    return collapse(nest, tuple(loops), NewLoop(number, role))


def _lanes_of_rows(kernel: UOp, target: Target) -> dict[int, int]:
    """Elements that an item takes at once along each loop over a row, by its number: as many along all of them."""
    rows, free = rows_to_share(kernel), loops_below(kernel)
    inside = [x for x in output_loops(kernel) if not any([x in free[row] for row in rows])]
    loops = [*inside, *[row.src[1] for row in rows]]
    lanes: dict[int, int] = {}
    for loop in loops:
        size = size_of(loop)
        lanes[size] = min(lanes.get(size, target.most_lanes), lanes_along(kernel, loop, target))
    return {loop.arg[0]: lanes[size_of(loop)] for loop in loops}


def _in_vectors(
    nest: LoopNest, loops: list[UOp], lanes_of: Mapping[int, int]
) -> tuple[LoopNest, list[UOp]]:
    """The innermost of some output loops in vectors, where these divide it and lie side by side; the loops then."""
    lanes = lanes_of[loops[-1].arg[0]] if loops else 1
    if lanes == 1:
        return nest, loops
    number = fresh_number(nest.graph)
    vector = NewLoop(number, AxisRole.VECTOR)
    nest = split(nest, loops[-1], (lanes,), (NewLoop(*loops[-1].arg), vector))
    count = size_of(loops[-1]) // lanes
    rest = [UOp.range(count, *loops[-1].arg)] if count > 1 else []
    return nest, [*loops[:-1], *rest]


def _row_in_parts(nest: LoopNest, rows: _Rows, number: int, lanes: int) -> LoopNest:
    """The reductions over the loop of this number: items take its elements in turns, so many at once, then their sums are combined."""
    loop, group = _loop(nest.graph, number), rows.items
    lanes = lanes if size_of(loop) >= lanes * group else 1
    item, vector = fresh_number(nest.graph), fresh_number(nest.graph) + 1
    sizes: tuple[int, ...] = (group,)
    made: tuple[NewLoop, ...] = (NewLoop(*loop.arg), NewLoop(item, AxisRole.REDUCE))
    if lanes > 1:
        sizes, made = (group, lanes), (*made, NewLoop(vector, AxisRole.VECTOR))
    nest = split(nest, loop, sizes, made)
    if rows.exchanging > 1:
        nest, group = _all_reduced(nest, rows, item), group // rows.exchanging
    else:
        nest = _kept_along(nest, rows, (item,))
    at_once = AT_ONCE if group <= AT_ONCE**2 else 2 * AT_ONCE  # else they would wait once more
    while group > at_once:
        group, last = max(at_once, group // at_once), fresh_number(nest.graph)
        loop = _loop(nest.graph, item)
        made = (NewLoop(item, AxisRole.REDUCE), NewLoop(last, AxisRole.REDUCE))
        nest = _kept_along(split(nest, loop, (group,), made), rows, (last,))
        item = last
    return nest


def _all_reduced(nest: LoopNest, rows: _Rows, item: int) -> LoopNest:
    """The reductions over a loop of items: of those of a warp in rounds of exchange, of its warps if it has several."""
    own, loop = rows.exchanging, _loop(nest.graph, item)
    warps = rows.items // own
    if warps > 1:
        made = NewLoop(item, AxisRole.REDUCE), NewLoop(fresh_number(nest.graph), AxisRole.REDUCE)
        nest, item = split(nest, loop, (own,), made), made[1].number
        loop = _loop(nest.graph, item)
        nest = _kept_along(nest, rows, (made[0].number, item))
    else:
        nest = _kept_along(nest, rows, (item,))
    while reductions := _reductions(nest.graph, item):
        reduction = reductions[0]
        if warps > 1:
            nest = reduce_inside(nest, reduction, (loop,))
            reduction = _reductions(nest.graph, item)[0]
        nest = all_reduce(nest, reduction, fresh_number(nest.graph))
    return nest


def _exchanging(kernel: UOp, group: Group, target: Target) -> int:
    """How many items of a row exchange what they hold of it; 1: what they add up goes through memory."""
    items = min(group.items, target.warp_items)
    if items < 2 or group.rows * group.items % target.warp_items or items & (items - 1):
        return 1
    rounds = items.bit_length() + 1  # with what the warps of a row add up
    kept = sum(
        [rounds * group.rows * group.items * x.dtype.itemsize for x in rows_to_share(kernel)]
    )
    return items if kept <= target.local_bytes else 1


def _kept_along(nest: LoopNest, rows: _Rows, items: tuple[int, ...]) -> LoopNest:
    """What the reductions over loops take in for each of their iterations, kept by the items of a group.

    Rows whose elements lie side by side in memory are neighbouring items', here and where they are read: so a warp has whole sectors of
    memory, and each of its items a bank of its own.
    """
    count = len(_reductions(nest.graph, items[-1]))
    for k in range(count):
        reduction = _reductions(nest.graph, items[-1])[k]
        loops = [_loop(nest.graph, item) for item in items]
        inner = tuple([x for x in reduction.src[1:] if x not in loops])
        if inner:
            nest = reduce_inside(nest, reduction, inner)
            reduction = _reductions(nest.graph, items[-1])[k]
        along = (*loops, *rows.loop) if rows.vector else (*rows.loop, *loops)
        number = fresh_number(nest.graph)
        roles = [*[AxisRole.REDUCE] * (len(along) - 1), AxisRole.LANE]
        roles += [AxisRole.VECTOR] * len(rows.vector)
        made = [NewLoop(number + k, role) for k, role in enumerate(roles)]
        nest = local_buffer(nest, reduction.src[0], (*along, *rows.vector), tuple(made))
        if len(along) > 1:
            own = [UOp.range(size_of(x), one.number, one.role) for x, one in zip(along, made)]
            nest = collapse(nest, tuple(own), NewLoop(number + len(made), AxisRole.LANE))
    return nest


def _reductions(kernel: UOp, number: int) -> list[UOp]:
    """The reductions over a loop, those that others take in first."""
    nodes = [n for n in toposort((kernel,)) if n.op is Ops.REDUCE]
    return [n for n in nodes if any([x.arg[0] == number for x in n.src[1:]])]


def _loop(kernel: UOp, number: int) -> UOp:
    (loop,) = [n for n in toposort((kernel,)) if n.op is Ops.RANGE and n.arg[0] == number]
    return loop
