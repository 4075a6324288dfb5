"""Tactic: which loop of a kernel runs how: threads, vectors, registers.

Owns: the heuristic; it can only make a kernel slow, never wrong. Does not own: the steps that it takes
(steps/), the sizes of the tile of a contraction (tiles.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from proofgrad.core.compile.choose_schedule import schedule_of
from proofgrad.core.compile.context import Context
from proofgrad.core.compile.contraction import Contraction, tiles_along
from proofgrad.core.compile.kernel_schedule import Schedule, Tile
from proofgrad.core.compile.linear_terms import coefficient, loops_below
from proofgrad.core.compile.loops import (
    BINDERS,
    fresh_number,
    output_loops,
    size_of,
    unshared_reductions,
)
from proofgrad.core.compile.operands import packs_columns
from proofgrad.core.compile.pack import pack_columns
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.clamp import read_inside
from proofgrad.core.compile.steps.collapse import MOST_LOOPS, collapse
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.steps.reorder import reorder
from proofgrad.core.compile.steps.run_as import run_as
from proofgrad.core.compile.steps.split import split, split_reading_inside
from proofgrad.core.compile.target import Target
from proofgrad.core.compile.threads import operations, shares_work
from proofgrad.core.compile.tiles import choose_blocks, choose_depth, find_contraction
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort

# Accumulators held at once by an unrolled reduction; more would spill.
UPCAST_SIZES = (8, 4, 2)
# A reduction of so few values has no loop.
SHORT_REDUCTION = 16


@dataclass(frozen=True, slots=True)
class VectorChoice:
    """Run `loop` in groups of `lanes`."""

    loop: UOp
    lanes: int
    gathers: int


def choose_axes(nest: LoopNest, context: Context) -> LoopNest:
    """Choose the loops that run as vectors, threads and unrolled copies; split them."""
    target = context.target
    if target.work_items:
        return nest
    asked = schedule_of(nest, context)
    if (found := find_contraction(nest.graph, target, asked)) is not None:
        return _tiled(nest, *found, target, asked)
    if runs_in_order(nest.graph):
        nest = _shared_within_order(nest, target, asked)
    for vector in _choose_vectors(nest.graph, target, asked):
        if vector.gathers:
            nest = _innermost(nest, vector)
        nest = _upcast(nest, vector, asked)
        nest = _vectors(nest, vector, target, asked)
    return _choose_thread(_short_reductions_at_once(nest), target, asked)


def split_in_two(nest: LoopNest, loop: UOp, inner_size: int, role: AxisRole) -> LoopNest:
    """loop = outer * inner_size + inner; the outer loop stays what it was."""
    inner = NewLoop(fresh_number(nest.graph), role)
    return split(nest, loop, (inner_size,), (NewLoop(*loop.arg), inner))


def _short_reductions_at_once(nest: LoopNest) -> LoopNest:
    """Reductions of a few values, as over the windows of a pool, are written out."""
    plain = [x for x in _short_reductions(nest.graph) if x.arg[1] is AxisRole.REDUCE]
    return run_as(nest, {loop: AxisRole.UPCAST for loop in plain}) if plain else nest


def _short_reductions(kernel: UOp) -> set[UOp]:
    """The loops of reductions of a few values."""
    kept = {loop for n in toposort((kernel,)) if n.op is Ops.KEEP for loop in n.src[1:]}
    groups = [set(loops) for loops in unshared_reductions(kernel)]
    short = [g for g in groups if 0 < prod([size_of(x) for x in g]) <= SHORT_REDUCTION]
    return set().union(*[group for group in short if kept.isdisjoint(group)])


def _shared_within_order(nest: LoopNest, target: Target, asked: Schedule) -> LoopNest:
    """A thread takes a part of each row: rows come in an order that is kept, but parts of them do not.

    No thread where an outer loop, which is shared out anyway, or nothing can be divided.
    """
    kernel = nest.graph
    first = min([loop.arg[0] for loop in kernel.src[0].src[2:]])
    outputs = output_loops(kernel)
    outer = [x for x in outputs if x.arg[0] < first and size_of(x) >= target.threads]
    inner = [x for x in outputs if x.arg[0] > first and size_of(x) % target.threads == 0]
    if outer or not inner or not shares_work(operations(kernel), target, asked):
        return nest
    (whole, part), size = (inner[0].arg[0], fresh_number(kernel)), size_of(inner[0])
    made = (NewLoop(whole, AxisRole.THREAD), NewLoop(part))
    return split(nest, inner[0], (size // target.threads,), made)


def _innermost(nest: LoopNest, vector: VectorChoice) -> LoopNest:
    """The loop along which memory is contiguous that vectors gather or scatter runs inside.

    So each of its lines is read or written once.
    """
    places = [n.src[0].src[1] for n in toposort((nest.graph,)) if n.op in (Ops.LOAD, Ops.STORE)]
    gathered = [index for index in places if coefficient(index, vector.loop) not in (0, 1)]
    for loop in output_loops(nest.graph)[:-1]:
        if loop is not vector.loop and all(coefficient(index, loop) == 1 for index in gathered):
            return reorder(nest, loop, fresh_number(nest.graph))
    return nest


def _vectors(nest: LoopNest, vector: VectorChoice, target: Target, asked: Schedule) -> LoopNest:
    """Split the loop into vectors; several at once where a reduction would wait for itself.

    One that is written out does not: copies of it would only be more code.
    """
    loop, lanes, kernel = vector.loop, vector.lanes, nest.graph
    free, short = loops_below(kernel), _short_reductions(kernel)
    looped = [n for n in free if n.op is Ops.REDUCE and not short.issuperset(n.src[1:])]
    reduces = any(loop in free[n.src[0]] for n in looped)
    copies = prod(size_of(x) for x in output_loops(kernel) if x.arg[1] is AxisRole.UPCAST)
    most = target.vector_registers // 2 // copies
    most = min(most, target.core.sums_at_once)  # more than these wait for nothing
    wanted = [n for n in (16, 8, 4, 2) if reduces and n <= most]
    if asked.vectors is not None:
        wanted = [asked.vectors]
    if any(n.op is Ops.KEEP and loop in n.src for n in free):
        wanted = []  # each of its values has one place
    size = size_of(loop)
    count = next((n for n in wanted if size % (n * lanes) == 0), 1)
    if count == 1:
        return split_in_two(nest, loop, lanes, AxisRole.VECTOR)
    number, role, stretch = fresh_number(kernel), loop.arg[1], size // count
    # A processor reads ahead in a page, and in several at a time: vectors come from stretches of a page or more
    # of their own (8 of them take 2.7 ms where one takes 3.7, measured).
    if reduces and stretch * target.vector_bytes >= target.page_bytes * lanes:
        outer, inner = NewLoop(loop.arg[0], AxisRole.UPCAST), NewLoop(number, role)
        nest = split(nest, loop, (stretch,), (outer, inner))
        return split_in_two(nest, UOp.range(stretch, number, role), lanes, AxisRole.VECTOR)
    nest = split_in_two(nest, loop, count * lanes, AxisRole.UPCAST)
    inner_loop = UOp.range(count * lanes, number, AxisRole.UPCAST)
    return split_in_two(nest, inner_loop, lanes, AxisRole.VECTOR)


def _tiled(
    nest: LoopNest, contraction: Contraction, tile: Tile, target: Target, asked: Schedule
) -> LoopNest:
    """The loops of a contraction as items, blocks of tiles, and the parts of a tile.

    Within an item all tiles of a row block go by for one tile of columns, which stays in the cache.
    """
    blocks = choose_blocks(contraction, tile, target, asked)
    rows, columns = contraction.rows, contraction.columns
    if contraction.has_gated_rows:
        nest = read_inside(nest, contraction.reduction)
    number = fresh_number(nest.graph)
    row_block, column_block, item = NewLoop(number + 6), NewLoop(number + 7), number
    row_sizes = (blocks.row_tiles, tile.rows)
    row_loops = (row_block, NewLoop(number + 2), NewLoop(number + 3, AxisRole.UPCAST))
    nest = split_reading_inside(nest, rows, row_sizes, row_loops)
    column_sizes = (blocks.column_tiles, tile.vectors, tile.lanes)
    vector, lane = NewLoop(number + 4, AxisRole.UPCAST), NewLoop(number + 5, AxisRole.VECTOR)
    column_loops = (column_block, NewLoop(number + 1), vector, lane)
    nest = split_reading_inside(nest, columns, column_sizes, column_loops)
    row_tiles, column_tiles = tiles_along(contraction, tile)
    around = {
        rows: _loop(-(-row_tiles // blocks.row_tiles), row_block),
        columns: _loop(-(-column_tiles // blocks.column_tiles), column_block),
    }
    order = [*contraction.others, rows, columns]
    if contraction.shares_large_columns(target.cache_bytes):
        order = [columns, *order[:-1]]  # a thread goes on with columns that are in its cache
    items = [x for x in (around.get(loop, loop) for loop in order) if x.op is Ops.RANGE]
    is_shared = shares_work(contraction.multiplications, target, asked)
    nest = _as_items(nest, items, item, AxisRole.THREAD if is_shared else AxisRole.LOOP)
    if packs_columns(contraction, tile, target, asked):
        nest = pack_columns(nest, _loop(tile.vectors, vector), _loop(tile.lanes, lane))
    (reduction,) = [n for n in toposort((nest.graph,)) if n.op is Ops.REDUCE]
    loop = reduction.src[-1]
    steps = choose_depth(loop, tile, asked)
    if steps == size_of(loop):
        return run_as(nest, {loop: AxisRole.UPCAST})
    return nest if steps == 1 else split_in_two(nest, loop, steps, AxisRole.UPCAST)


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
    """On machines with work items all output loops become one loop of them."""
    loops = output_loops(nest.graph)
    if not context.target.work_items or not loops:
        return nest
    return _as_items(nest, loops, fresh_number(nest.graph), AxisRole.GLOBAL)


def _choose_vectors(kernel: UOp, target: Target, asked: Schedule) -> list[VectorChoice]:
    """Loops along which most accesses are contiguous, no two of which any value or register depends on.

    The output's own loop comes first on a tie; each reduction beside it may have one of its own.
    """
    nodes = toposort((kernel,))
    widest = max((n.dtype for n in nodes if n.op in (Ops.LOAD, Ops.REDUCE)),
                 key=lambda d: d.itemsize, default=kernel.src[0].src[1].dtype)  # fmt: skip
    lanes = target.lanes(widest) if asked.lanes is None else asked.lanes
    if lanes < 2 or target.vector_bytes == 0:
        return []
    outputs = output_loops(kernel)
    stores = [n.src[0].src[1] for n in nodes if n.op is Ops.STORE]
    loads = [n.src[0].src[1] for n in nodes if n.op is Ops.LOAD]
    candidates = [x for x in outputs if all(coefficient(s, x) == 1 for s in stores)]
    candidates += [x for x in outputs if loads and all(coefficient(s, x) == 1 for s in loads)]
    reductions = {loop for group in unshared_reductions(kernel) for loop in group}
    candidates += sorted(reductions, key=lambda loop: loop.arg[0])
    candidates = [x for x in candidates if x not in _loops_around_kept(kernel)]
    choices = [c for loop in candidates if (c := _vector_choice(nodes, loop, lanes)) is not None]
    chosen: list[VectorChoice] = []
    free = loops_below(kernel)
    inside = [free[n].union(n.src[1:]) if n.op in BINDERS else free[n] for n in nodes]
    choices.sort(key=lambda c: (c.gathers, -c.lanes))
    first = min(asked.along or 0, max(0, len(choices) - 1))
    for choice in (*choices[first:], *choices[:first]):
        if not any(choice.loop in loops and other.loop in loops
                   for loops in inside for other in chosen):  # fmt: skip
            chosen.append(choice)
    return chosen


def _vector_choice(nodes: list[UOp], loop: UOp, lanes: int) -> VectorChoice | None:
    size = size_of(loop)
    if size < 4:
        return None
    fitting = next((n for n in (16, 8, 4) if n <= lanes and size % n == 0), None)
    if fitting is None or (fitting < lanes and size >= 4 * lanes):
        fitting = lanes if size > lanes else None
    if fitting is None:
        return None
    accesses = [n.src[0].src[1] for n in nodes if n.op in (Ops.LOAD, Ops.STORE)]
    steps = [coefficient(index, loop) for index in accesses]
    gathers = sum(step not in (0, 1) for step in steps)
    if gathers > steps.count(1):
        return None  # lanes filled one by one cost more than they save
    return VectorChoice(loop, fitting, gathers)


def _loops_around_kept(kernel: UOp) -> frozenset[UOp]:
    """The loops that change what is kept: one run of them at a time has the memory for it."""
    found = [loops for n, loops in loops_below(kernel).items() if n.op is Ops.KEEP]
    return frozenset().union(*found)


def _upcast(nest: LoopNest, vector: VectorChoice, asked: Schedule) -> LoopNest:
    """Unroll one output loop, whose copies share a load inside a reduction."""
    outputs, free = output_loops(nest.graph), loops_below(nest.graph)
    if any(loop.arg[1] is AxisRole.UPCAST for loop in outputs):
        return nest
    sharing = [_loops_that_share(n, free) for n in free if n.op is Ops.REDUCE]
    candidates = frozenset().union(*sharing) - _loops_around_kept(nest.graph)
    for loop in reversed(outputs):
        if loop.arg[1] is not AxisRole.LOOP or loop is vector.loop or loop not in candidates:
            continue
        for count in UPCAST_SIZES if asked.copies is None else (asked.copies,):
            if count > 1 and size_of(loop) % count == 0:
                return split_in_two(nest, loop, count, AxisRole.UPCAST)
    return nest


def _loops_that_share(reduction: UOp, free: dict[UOp, frozenset[UOp]]) -> frozenset[UOp]:
    """The loops that change a reduction, but not everything that it loads."""
    loads = [free[n] for n in toposort((reduction.src[0],)) if n.op is Ops.LOAD]
    return free[reduction] - free[reduction].intersection(*loads)


def _choose_thread(nest: LoopNest, target: Target, asked: Schedule) -> LoopNest:
    kernel = nest.graph
    outputs = [x for x in output_loops(kernel) if x.arg[1] is AxisRole.LOOP]
    if runs_in_order(kernel):  # outside of the loops in order; their rows are shared out before
        first = min([loop.arg[0] for loop in kernel.src[0].src[2:]])
        outputs = [x for x in outputs if x.arg[0] < first]
    if not shares_work(operations(kernel), target, asked):
        return nest
    loop = next((x for x in outputs if size_of(x) >= target.threads), None)
    return nest if loop is None else run_as(nest, {loop: AxisRole.THREAD})


def runs_in_order(kernel: UOp) -> bool:
    """Whether a store of the kernel has loops of its own: it combines with what was stored before."""
    return any(len(store.src) > 2 for store in kernel.src)
