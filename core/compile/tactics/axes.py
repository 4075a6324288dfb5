"""Tactic: the loops of a kernel are split and marked as its schedule says: threads, vectors, registers.

Owns: the order of the steps. Does not own: what is chosen (choose_schedule.py), the steps (steps/).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from math import isqrt, prod

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import NO_COPIES, Copies, Schedule, Tile, Vectors
from proofgrad.core.compile.nests.loops import fresh_number, output_loops, size_of
from proofgrad.core.compile.nests.strides import coefficient, loops_below
from proofgrad.core.compile.nests.sums_of_products import is_masked
from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.schedule.choose_schedule import schedule_of
from proofgrad.core.compile.schedule.contraction import Contraction, lanes_of_sum, tiles_along
from proofgrad.core.compile.schedule.cost_model import MOST_PRODUCTS_AT_ONCE
from proofgrad.core.compile.schedule.divisors import largest_divisor
from proofgrad.core.compile.schedule.items import beside_in_an_item, others_of_an_item
from proofgrad.core.compile.schedule.operands import packs_columns
from proofgrad.core.compile.schedule.prefix_loops import find_along
from proofgrad.core.compile.schedule.row_products import find_kept_rows
from proofgrad.core.compile.schedule.shared_windows import windows_beside_copies
from proofgrad.core.compile.schedule.table_cycles import TRANSPOSED_ROWS
from proofgrad.core.compile.schedule.threads import (
    leaves_first_cache,
    loop_shared_in_order,
    part_of_thread,
    runs_in_order,
)
from proofgrad.core.compile.schedule.tiles import (
    choose_blocks,
    choose_depth,
    find_contraction,
    stores_by_columns,
)
from proofgrad.core.compile.schedule.turned_loads import turned_loop
from proofgrad.core.compile.schedule.vectors import short_reductions
from proofgrad.core.compile.schedule.warp_blocks import is_one_pass
from proofgrad.core.compile.schedule.warp_rows import find_warp_rows
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.clamp import read_inside
from proofgrad.core.compile.steps.collapse import MOST_LOOPS, collapse
from proofgrad.core.compile.steps.extend import end_by_masks
from proofgrad.core.compile.steps.loop_nest import LoopNest, StepRefused, require
from proofgrad.core.compile.steps.prefixes import prefixes
from proofgrad.core.compile.steps.reorder import reorder
from proofgrad.core.compile.steps.run_as import run_as
from proofgrad.core.compile.steps.split import split, split_reading_inside
from proofgrad.core.compile.steps.unmask import unmask
from proofgrad.core.compile.tactics.groups import in_groups
from proofgrad.core.compile.tactics.pack_columns import pack_columns
from proofgrad.core.compile.tactics.pair_products import is_of_words, pair_lanes
from proofgrad.core.compile.tactics.prefix_loops import counting_up, leave_whole
from proofgrad.core.compile.tactics.row_products import in_rows
from proofgrad.core.compile.tactics.scans import in_scans
from proofgrad.core.compile.tactics.shared_tiles import in_shared_tiles
from proofgrad.core.compile.tactics.transposes import through_memory
from proofgrad.core.compile.tactics.warp_blocks import in_warp_blocks
from proofgrad.core.compile.tactics.warp_rows import in_warp_rows
from proofgrad.core.compile.tactics.warp_tiles import in_warp_tiles
from proofgrad.core.ir.op_names import LOAD, RANGE, REDUCE, STORE
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort

# Turns that each thread has at a loop that a variable ends, so that all have nearly as much to do.
THREAD_TURNS = 4
# More copies are written out in two steps, and what they ask of which copy it is becomes less between (tactics/unroll.py).
COPIES_AT_ONCE = 16


def choose_axes(nest: LoopNest, context: Context) -> LoopNest:
    """Split and mark the loops that run as vectors, threads and unrolled copies, as the schedule says."""
    target = context.target
    along = find_along(nest.graph)
    if target.has_scalar_items and along is not None:
        return counting_up(nest, along)[0]
    nest = nest.scheduled(schedule := schedule_of(nest, context))
    if along is not None and schedule.group is not None and schedule.group.items:
        return in_scans(nest, along, schedule.group.items, target)
    if along is not None:
        return leave_whole(nest, along, schedule, target)
    if schedule.warps is not None and schedule.warps.warps:
        if (by_rows := find_warp_rows(nest.graph, target)) is not None:
            if is_one_pass(by_rows, schedule.warps, target):
                with suppress(StepRefused):  # then keys go by for each reduction
                    return in_warp_blocks(nest, by_rows, schedule, target)
            return in_warp_rows(nest, by_rows, schedule, target)
        return in_warp_tiles(nest, schedule, target)
    if schedule.matrices is not None and schedule.matrices.rows:
        return nest  # its loops were decided with the order of its tables
    if (rows := find_kept_rows(nest.graph, target, schedule)) is not None:
        return in_rows(nest, rows, schedule)
    if schedule.shared is not None and schedule.shared.items:
        return in_shared_tiles(nest, schedule, target)
    if schedule.tiled and (found := find_contraction(nest.graph, target, schedule)) is not None:
        return _tiled(nest, *found, target, schedule)
    if schedule.group is not None and schedule.group.items:
        return _short_reductions_at_once(in_groups(nest, schedule.group, target), schedule)
    if schedule.transposed is not None and schedule.transposed.along:
        return through_memory(nest, schedule.transposed, target)
    if target.has_scalar_items:
        return nest
    # Of loops that have another number by now: the part of a thread, one in another order.
    numbers: dict[int, int] = {}
    if schedule.threads and runs_in_order(nest.graph):
        nest = _shared_within_order(nest, target, numbers)
    copied = schedule.copies or NO_COPIES
    nest, shares_windows = _windows_at_once(nest, copied, schedule, target)
    for vectors in schedule.vectors or ():
        assert vectors.loop is not None  # a schedule that was decided
        number = numbers.get(vectors.loop, vectors.loop)
        nest = _innermost(nest, number, numbers)
        if copied.loop is not None:
            loop = loop_of_number(nest.graph, numbers.get(copied.loop, copied.loop))
            is_masked = shares_windows or loop is loop_of_number(nest.graph, number)
            nest, copied = _copies(nest, loop, copied.count, is_masked), NO_COPIES
        loop = loop_of_number(nest.graph, number)
        if is_of_words(nest.graph, loop, target):
            with suppress(StepRefused):  # then products are taken one at a time
                nest = _vectors_of_words(nest, loop, vectors, target)
                continue
        turned = turned_loop(nest.graph, loop, vectors.lanes, target)
        nest = _vectors(nest, loop, vectors, target)
        if turned is not None:
            nest = split_in_two(nest, turned, TRANSPOSED_ROWS, AxisRole.LOOP)
    if copied.loop is not None:
        nest = _copies(nest, loop_of_number(nest.graph, copied.loop), copied.count)
    nest = _short_reductions_at_once(nest, schedule)
    if schedule.threads or leaves_first_cache(nest.graph, target):
        return _choose_thread(nest, target, bool(schedule.threads))
    return nest


def split_in_two(nest: LoopNest, loop: UOp, inner_size: int, role: AxisRole) -> LoopNest:
    """loop = outer * inner_size + inner; the outer loop stays what it was."""
    inner = NewLoop(fresh_number(nest.graph), role)
    return split(nest, loop, (inner_size,), (NewLoop(*loop.arg), inner))


def _copies(nest: LoopNest, loop: UOp, count: int, is_masked: bool = False) -> LoopNest:
    """So many iterations side by side; what is beyond the end reads the last one again, and is stored nowhere.

    `is_masked`: it reads nothing. The loop itself runs in vectors, whose mask loads have anyway, and of whose lanes the last one again would be no
    neighbour; or copies load elements of windows together, and the last one again would share none.
    """
    if is_masked or size_of(loop) % count == 0:
        number, within = fresh_number(nest.graph), largest_divisor(count, isqrt(count))
        sizes = (count // within, within) if count > COPIES_AT_ONCE and within > 1 else (count,)
        parts = [NewLoop(number + k, AxisRole.UPCAST) for k in range(len(sizes))]
        return split(nest, loop, sizes, (NewLoop(*loop.arg), *parts))
    inner = NewLoop(fresh_number(nest.graph), AxisRole.UPCAST)
    return split_reading_inside(nest, loop, (count,), (NewLoop(*loop.arg), inner))


def loop_of_number(kernel: UOp, number: int) -> UOp:
    """The loop of that number. Raises: StepRefused."""
    found = [n for n in toposort((kernel,)) if n.op is RANGE and n.arg[0] == number]
    require(len(found) == 1, "no loop of that number, or several", number)
    return found[0]


def _short_reductions_at_once(nest: LoopNest, schedule: Schedule) -> LoopNest:
    """Reductions of a few values, as over the windows of a pool, are written out."""
    short = short_reductions(nest.graph, schedule.unroll or 0)
    plain = [x for x in short if x.arg[1] is AxisRole.REDUCE]
    return run_as(nest, {loop: AxisRole.UPCAST for loop in plain}) if plain else nest


def _windows_at_once(
    nest: LoopNest, copies: Copies, schedule: Schedule, target: Target
) -> tuple[LoopNest, bool]:
    """Of the windows of rows that run side by side the loop along which they overlap is written out; whether there are such windows."""
    if copies.loop is None or target.work_items:
        return nest, False
    loop = loop_of_number(nest.graph, copies.loop)
    windows = windows_beside_copies(nest.graph, loop, schedule.unroll or 0)
    long = [x for n, loops in windows.items() if len(loops) < len(n.src) - 1 for x in loops]
    return run_as(nest, {x: AxisRole.UPCAST for x in long}) if long else nest, bool(windows)


def _shared_within_order(nest: LoopNest, target: Target, numbers: dict[int, int]) -> LoopNest:
    """A thread takes a part of each row: rows come in an order that is kept, but parts of them do not."""
    loop = loop_shared_in_order(nest.graph, target)
    if loop is None:
        return nest
    numbers[loop.arg[0]] = part = fresh_number(nest.graph)
    made = (NewLoop(loop.arg[0], AxisRole.THREAD), NewLoop(part))
    return split(nest, loop, (part_of_thread(loop, target),), made)


def _innermost(nest: LoopNest, number: int, numbers: dict[int, int]) -> LoopNest:
    """The loop along which memory is contiguous that vectors gather or scatter runs inside.

    So each of its lines is read or written once. Not where a reduction would be computed again for each vector.
    """
    vector = loop_of_number(nest.graph, number)
    positions = [n.src[0].src[1] for n in toposort((nest.graph,)) if n.op in (LOAD, STORE)]
    gathered = [index for index in positions if coefficient(index, vector) not in (0, 1)]
    for loop in output_loops(nest.graph)[:-1] if gathered else ():
        if loop is vector or not all(coefficient(index, loop) == 1 for index in gathered):
            continue
        if not _computes_again(nest.graph, loop):
            made, was = fresh_number(nest.graph), {new: old for old, new in numbers.items()}
            numbers[was.get(loop.arg[0], loop.arg[0])] = made
            return reorder(nest, loop, made)
    return nest


def _computes_again(kernel: UOp, loop: UOp) -> bool:
    """Whether a reduction changes with an output loop, but not with all those that it would run inside of."""
    outputs, free = output_loops(kernel), loops_below(kernel)
    after = set(outputs[outputs.index(loop) + 1 :])
    return any([n.op is Ops.REDUCE and loop in free[n] and not after <= free[n] for n in free])


def _vectors(nest: LoopNest, loop: UOp, vectors: Vectors, target: Target) -> LoopNest:
    """Split the loop into vectors, several at once."""
    lanes, count = vectors.lanes, vectors.at_once
    if count == 1:
        return split_in_two(nest, loop, lanes, AxisRole.VECTOR)
    number, stretch = fresh_number(nest.graph), size_of(loop) // count
    # Where a processor reads ahead to the end of a page, and in several at a time, vectors of a reduction come from stretches
    # of a page or more of their own (8 of them take 2.7 ms where one takes 3.7, measured; of results they take as long, and more
    # where rows run inside, each of whose lines would lie in as many pages). Where it reads on, one is faster (2.1 ms, 8 2.5).
    is_long = stretch * target.vector_bytes >= target.page_bytes * lanes
    is_long = is_long and not target.core.foreseen_beyond_pages
    is_long = is_long and loop.arg[1] is AxisRole.REDUCE
    is_long = is_long and stretch * count == size_of(loop)
    if is_long and end_by_masks(nest.graph, loop, nest.facts) is None:
        nest = split(nest, loop, (stretch,), (NewLoop(number, AxisRole.UPCAST), NewLoop(*loop.arg)))
        return split_in_two(nest, UOp.range(stretch, *loop.arg), lanes, AxisRole.VECTOR)
    nest = split_in_two(nest, loop, count * lanes, AxisRole.UPCAST)
    inner_loop = UOp.range(count * lanes, number, AxisRole.UPCAST)
    return split_in_two(nest, inner_loop, lanes, AxisRole.VECTOR)


def _vectors_of_words(nest: LoopNest, loop: UOp, vectors: Vectors, target: Target) -> LoopNest:
    """The same of a sum whose products are taken in pairs: half as many vectors have as many lanes, each of two elements. Raises: StepRefused."""
    size = vectors.lanes * (2 if size_of(loop) > vectors.lanes else 1)
    words = replace(vectors, lanes=size, at_once=max(1, vectors.at_once // 2))
    before = {n for n in toposort((nest.graph,)) if n.op is RANGE}
    nest = _vectors(nest, loop, words, target)
    made = [n for n in toposort((nest.graph,)) if n.op is RANGE and n not in before]
    (lanes,) = [n for n in made if n.arg[1] is AxisRole.VECTOR]
    return pair_lanes(nest, lanes)


def _tiled(
    nest: LoopNest, contraction: Contraction, tile: Tile, target: Target, override: Schedule
) -> LoopNest:
    """The loops of a contraction as items, blocks of tiles, and the parts of a tile.

    Within an item all tiles of a row block go by for one tile of columns, which stays in the cache; or images do, and their lines,
    for all tiles of columns that the item has packed.
    """
    blocks = choose_blocks(contraction, tile, target, override)
    rows, columns = contraction.rows, contraction.columns
    if contraction.has_masked_rows:
        nest = read_inside(nest, contraction.reduction)
    number = fresh_number(nest.graph)
    item, row_block, column_block = number, NewLoop(number + 6), NewLoop(number + 7)
    row_tiles, column_tiles = tiles_along(contraction, tile)
    is_packed = packs_columns(contraction, tile, target, override)
    inside = others_of_an_item(contraction, tile, target) if is_packed else ()
    beside = beside_in_an_item(contraction, tile, target)
    outside = [x for x in inside if x not in beside]
    innermost = number + 8 + len(outside) if inside else number + 1
    column_tile, row_tile = NewLoop(innermost), NewLoop(innermost + 1)
    parts = {
        rows: _Parts(row_tiles, blocks.row_tiles, row_block, row_tile),
        columns: _Parts(column_tiles, blocks.column_tiles, column_block, column_tile),
    }
    parts |= _in_turns_of_tiles(nest, contraction, parts, target)
    row, vector = NewLoop(number + 3, AxisRole.UPCAST), NewLoop(number + 4, AxisRole.UPCAST)
    if stores_by_columns(contraction, tile, target):
        row, vector = vector, row
    lane = NewLoop(number + 5, AxisRole.VECTOR)
    row_loops = (*parts[rows].loops, row)
    nest = split_reading_inside(nest, rows, (parts[rows].inside, tile.rows), row_loops)
    column_sizes = (parts[columns].inside, tile.vectors, tile.lanes)
    nest = split_reading_inside(nest, columns, column_sizes, (*parts[columns].loops, vector, lane))
    around = {loop: part.shared for loop, part in parts.items()}
    order = [*contraction.others, rows, columns]
    if contraction.shares_large_columns(target.cache_bytes):
        order = [columns, *order[:-1]]  # a thread goes on with columns that are in its cache
    shared = [around.get(loop, loop) for loop in order if loop not in (*inside, *beside)]
    items = [x for x in shared if x.op is Ops.RANGE]
    nest = _as_items(nest, items, item, _role_of_items(target, override))
    for place, loop in enumerate(outside, number + 8):
        nest = reorder(nest, loop, place)
    for place, loop in enumerate(beside, max(innermost + 2, number + 8)):
        nest = reorder(nest, loop, place)
    if is_packed:
        tiles = [_loop(parts[columns].inside, column_tile)] if inside else []
        loops = (_loop(tile.vectors, vector), _loop(tile.lanes, lane))
        nest = pack_columns(nest, *loops, *tiles)
    (reduction,) = [n for n in toposort((nest.graph,)) if n.op is REDUCE]
    loop = reduction.src[-1]
    if tile.lanes == 1 and contraction.may_sum_lanes(target):
        return _lanes_of_sum(nest, loop, lanes_of_sum(contraction, target), tile, target)
    steps = choose_depth(replace(contraction, reduction=reduction), tile, target, override)
    if steps == size_of(loop):
        return run_as(nest, {loop: AxisRole.UPCAST})
    return nest if steps == 1 else split_in_two(nest, loop, steps, AxisRole.UPCAST)


def _lanes_of_sum(nest: LoopNest, loop: UOp, lanes: int, tile: Tile, target: Target) -> LoopNest:
    """The innermost loop of a sum of products in vectors, few of which are written out: then only the last asks where the loop ends.

    What it loads beyond the end is 0. Of small integers each lane takes two.
    """
    has_words, number = is_of_words(nest.graph, loop, target), fresh_number(nest.graph)
    nest = split_in_two(nest, loop, lanes, AxisRole.VECTOR)
    (reduction,) = [n for n in toposort((nest.graph,)) if n.op is Ops.REDUCE]
    if is_masked(reduction.src[0]):
        nest = unmask(nest, reduction)
    if has_words:
        nest = pair_lanes(nest, UOp.range(lanes, number, AxisRole.VECTOR))
    steps = -(-size_of(loop) // lanes)
    if steps == 1 or steps * tile.rows * tile.vectors > MOST_PRODUCTS_AT_ONCE:
        return nest
    return run_as(nest, {UOp.range(steps, *loop.arg): AxisRole.UPCAST})


@dataclass(frozen=True, slots=True)
class _Parts:
    """The tiles along one loop of a contraction: so many `inside` of a block; blocks are shared out.

    `in_turns`: the tiles inside are shared out instead, one after the other, as a variable says how many blocks there are.
    """

    tiles: int
    inside: int
    block: NewLoop
    tile: NewLoop
    in_turns: bool = False

    @property
    def loops(self) -> tuple[NewLoop, NewLoop]:
        return (self.tile, self.block) if self.in_turns else (self.block, self.tile)

    @property
    def shared(self) -> UOp:
        size = self.inside if self.in_turns else -(-self.tiles // self.inside)
        return _loop(size, self.block)


def _in_turns_of_tiles(
    nest: LoopNest, contraction: Contraction, parts: dict[UOp, _Parts], target: Target
) -> dict[UOp, _Parts]:
    """The parts of loops that a variable ends: threads take their tiles in turns."""
    ends = [x for x in parts if end_by_masks(nest.graph, x, nest.facts) is not None]
    closed = [part for x, part in parts.items() if x not in ends]
    others = prod([size_of(x) for x in contraction.others])
    others *= prod([-(-part.tiles // part.inside) for part in closed])
    found = {}
    for loop in ends:
        turns = min(parts[loop].tiles, max(1, -(-THREAD_TURNS * target.threads // others)))
        found[loop] = replace(parts[loop], inside=turns, in_turns=True)
        others *= turns
    return found


def _role_of_items(target: Target, schedule: Schedule) -> AxisRole:
    """How what is shared out runs: as work items, by threads, or one after the other."""
    if target.work_items:
        return AxisRole.GLOBAL
    return AxisRole.THREAD if schedule.threads else AxisRole.LOOP


def _as_items(nest: LoopNest, loops: list[UOp], number: int, role: AxisRole) -> LoopNest:
    """The loops, outermost first, as one, whose iterations are shared out."""
    if not loops:
        return nest
    while len(loops) > MOST_LOOPS:
        inner = loops[-MOST_LOOPS:]
        made = NewLoop(fresh_number(nest.graph))
        nest = collapse(nest, tuple(inner), made)
        size = prod([size_of(x) for x in inner])
        loops = [*loops[:-MOST_LOOPS], _loop(size, made)]
    return collapse(nest, tuple(loops), NewLoop(number, role))


def _loop(size: int, made: NewLoop) -> UOp:
    """The loop that a step made of so many iterations; of one, its only value."""
    return UOp.range(size, made.number, made.role) if size != 1 else UOp.index(0)


def share_out_work_items(nest: LoopNest, context: Context) -> LoopNest:
    """On machines with work items all output loops that nothing else was said of become one loop of them.

    Where an item takes vectors as a core does, those stay inside of it that a reduction is the same for: softmax of a row.
    """
    target = context.target
    if not target.work_items:
        return nest
    outputs = output_loops(nest.graph)
    roles = [n.arg[1] for n in toposort((nest.graph,)) if n.op is Ops.RANGE]
    if any([role in (AxisRole.GLOBAL, AxisRole.LANE) for role in roles]):
        return nest
    inside = (
        _same_for_a_reduction(nest.graph) if target.vector_bytes and target.lockstep == 1 else ()
    )
    along = {prefix.along for prefix in prefixes(nest.graph) if prefix.counts_up}
    loops = [x for x in outputs if x.arg[1] is AxisRole.LOOP and x not in inside and x not in along]
    if not loops:
        return nest
    return _as_items(nest, loops, fresh_number(nest.graph), AxisRole.GLOBAL)


def _same_for_a_reduction(kernel: UOp) -> set[UOp]:
    """The output loops that some reduction does not change with."""
    free, outputs = loops_below(kernel), set(output_loops(kernel))
    reductions = [n for n in free if n.op is Ops.REDUCE]
    return set().union(*[outputs.difference(free[n]) for n in reductions])


def _choose_thread(nest: LoopNest, target: Target, is_shared: bool) -> LoopNest:
    """Threads share the outermost loop that is long enough, or it may run in parts."""
    kernel = nest.graph
    outputs = [x for x in output_loops(kernel) if x.arg[1] is AxisRole.LOOP]
    if runs_in_order(kernel):  # outside of the loops in order; their rows are shared out before
        first = min([loop.arg[0] for loop in kernel.src[0].src[2:]])
        outputs = [x for x in outputs if x.arg[0] < first]
    loop = next((x for x in outputs if size_of(x) >= target.threads), None)
    if loop is None:
        return nest
    if end_by_masks(nest.graph, loop, nest.facts) is None:
        return run_as(nest, {loop: AxisRole.THREAD})
    return _in_turns(nest, loop, target) if is_shared else nest


def _in_turns(nest: LoopNest, loop: UOp, target: Target) -> LoopNest:
    """Threads take stretches of an outermost loop in turns: it ends where a variable says."""
    turns = min(THREAD_TURNS * target.threads, size_of(loop))
    vectors = target.page_bytes // max(1, target.vector_bytes)  # as far as a processor reads ahead
    stretch = max(1, min(vectors, size_of(loop) // (turns * THREAD_TURNS)))
    others = [x for x in output_loops(nest.graph) if x.arg[0] > loop.arg[0]]
    number = fresh_number(nest.graph)
    made = (NewLoop(number), NewLoop(loop.arg[0], AxisRole.THREAD), NewLoop(number + 1))
    nest = split(nest, loop, (turns, stretch), made)
    for other in others:  # run inside as before
        nest = reorder(nest, other, fresh_number(nest.graph))
    return nest
