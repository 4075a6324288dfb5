"""Kernel -> Kernel: which loop of a kernel runs how: threads, vectors, registers.

Owns: the heuristic (it can only make a kernel slow, never wrong) and the change of the iteration space
that it asks for: splitting a loop, a bijection; tests/test_procedures.py validates that no value
changes. Does not own: merging loops (merging.py), the sizes of the tile of a contraction (tiles.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from proofgrad.core.compile.choices import NO_WISH, Choices, Tile
from proofgrad.core.compile.contraction import Contraction, output_loops, size_of, tiles_along
from proofgrad.core.compile.gated_rows import read_inside
from proofgrad.core.compile.index_width import Bounds
from proofgrad.core.compile.linear_terms import coefficient, loops_below
from proofgrad.core.compile.merging import BINDERS, unshared_reductions
from proofgrad.core.compile.operands import packs_columns
from proofgrad.core.compile.pack import pack_columns
from proofgrad.core.compile.target import Target
from proofgrad.core.compile.tiles import choose_blocks, choose_depth, find_contraction
from proofgrad.core.ir.evaluate import identity
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort
from proofgrad.core.rewrite.facts import Facts

# Below this many operations a kernel runs on one thread: waking another costs some 40 us.
THREAD_WORTH_OPERATIONS = 1 << 16
# Accumulators held at once by an unrolled reduction; more would spill.
UPCAST_SIZES = (8, 4, 2)
# Vectors that one iteration of a reduction takes at once: an addition takes 4 cycles.
UNROLLED_VECTORS = (8, 4, 2)
# They come from stretches of memory of their own where each is so long: the processor reads ahead in a
# page, and in several pages at a time (8 stretches take 2.7 ms where one takes 3.7, measured).
STRETCH_BYTES = 1 << 12
# A reduction of so few values has no loop.
SHORT_REDUCTION = 16


def _fresh_number(kernel: UOp) -> int:
    numbers = [n.arg[0] for n in toposort((kernel,)) if n.op is Ops.RANGE]
    return max(numbers, default=-1) + 1


# -- splitting ----------------------------------------------------------------------------------


def split_loop(kernel: UOp, loop: UOp, inner_size: int, role: AxisRole) -> UOp:
    """loop = outer * inner_size + inner, with a gate where inner_size does not divide the size."""
    size = size_of(loop)
    number = _fresh_number(kernel)
    outer_size = -(-size // inner_size)
    outer = UOp.range(outer_size, loop.arg[0], loop.arg[1]) if outer_size > 1 else UOp.index(0)
    inner = UOp.range(inner_size, number, role)
    position = outer * inner_size + inner
    if size % inner_size:
        kernel = gate_accesses(kernel, loop, UOp.index(size))
    kernel = kernel.substitute({loop: position})
    return _with_split_reductions(kernel, position, (outer, inner))


def _with_split_reductions(kernel: UOp, position: UOp, parts: tuple[UOp, UOp]) -> UOp:
    done: dict[UOp, UOp] = {}
    for node in toposort((kernel,)):
        new = node.with_src(tuple([done[s] for s in node.src]))
        if node.op in BINDERS and position in new.src[1:]:
            loops: list[UOp] = []
            for s in new.src[1:]:
                loops += [p for p in parts if p.op is Ops.RANGE] if s is position else [s]
            new = new.replace(src=(new.src[0], *loops))
        done[node] = new
    return done[kernel]


def gate_accesses(
    kernel: UOp,
    loop: UOp,
    size: UOp,
    reach: int = 0,
    bounds: Bounds | None = None,
    nearest: UOp | None = None,
) -> UOp:
    """Accesses that move with `loop`, and what it reduces, only where loop < size.

    With `bounds`, a load that stays in its buffer for all of `reach` iterations needs no gate: what it
    reads beyond `size` is stored nowhere. For the same reason a load may read there what it reads last, at
    the value `nearest` of the loop: the place is known before a loop inside begins, where a gate would be
    asked in each step.
    """
    inside = loop < size
    longer = {loop: UOp.range(reach, loop.arg[0], loop.arg[1])}
    free = loops_below(kernel)
    written = {node.src[0] for node in kernel.src if node.op is Ops.STORE}  # of an operand: none
    done: dict[UOp, UOp] = {}

    def needs_gate(place: UOp) -> bool:
        if loop not in free[place]:
            return False
        if bounds is None or place in written:
            return True
        index = place.src[1].substitute(longer)
        low, high = bounds.lo(index), bounds.hi(index)
        return low is None or high is None or low < 0 or high >= _elements(place.src[0])

    for node in toposort((kernel,)):
        new = node.with_src(tuple([done[s] for s in node.src]))
        if (
            nearest is not None
            and node.op is Ops.INDEX
            and needs_gate(node)
            and node not in written
        ):
            new = node.substitute({loop: nearest})
        elif node.op is Ops.INDEX and needs_gate(node):
            gate = new.src[2] & inside if len(new.src) > 2 else inside
            new = new.replace(src=(new.src[0], new.src[1], gate))
        elif node.op is Ops.REDUCE and loop in node.src[1:]:
            neutral = UOp.const(node.dtype, identity(node.arg, node.dtype))
            new = new.replace(src=(inside.where(new.src[0], neutral), *new.src[1:]))
        done[node] = new
    return done[kernel]


def _elements(memory: UOp) -> int:
    """How many elements a parameter has, or what is kept."""
    if memory.op is Ops.KEEP:
        return prod([size_of(loop) for loop in memory.src[1:]])
    count: int = memory.arg[1]
    return count


# -- choosing -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VectorChoice:
    """Run `loop` in groups of `lanes`."""

    loop: UOp
    lanes: int
    gathers: int


def choose_axes(
    kernel: UOp, target: Target, bounds: Bounds | None = None, asked: Choices = NO_WISH
) -> UOp:
    """Choose the loops that run as vectors, threads and unrolled copies; split them."""
    if target.work_items:
        return kernel
    if (found := find_contraction(kernel, target, asked)) is not None:
        return _tiled(kernel, *found, target, bounds, asked)
    if runs_in_order(kernel):
        kernel = _shared_within_order(kernel, target, asked)
    for vector in _choose_vectors(kernel, target, asked):
        if vector.gathers:
            kernel = _innermost(kernel, vector)
        kernel = _upcast(kernel, vector, asked)
        kernel = _vectors(kernel, vector, target, asked)
    return _choose_thread(_short_reductions_at_once(kernel), target, asked)


def _short_reductions_at_once(kernel: UOp) -> UOp:
    """Reductions of a few values, as over the windows of a pool, are written out."""
    plain = [x for x in _short_reductions(kernel) if x.arg[1] is AxisRole.REDUCE]
    changes = {x: x.replace(arg=(x.arg[0], AxisRole.UPCAST)) for x in plain}
    return kernel.substitute(changes) if changes else kernel


def _short_reductions(kernel: UOp) -> set[UOp]:
    """The loops of reductions of a few values."""
    kept = {loop for n in toposort((kernel,)) if n.op is Ops.KEEP for loop in n.src[1:]}
    groups = [set(loops) for loops in unshared_reductions(kernel)]
    short = [g for g in groups if 0 < prod([size_of(x) for x in g]) <= SHORT_REDUCTION]
    return set().union(*[group for group in short if kept.isdisjoint(group)])


def _shared_within_order(kernel: UOp, target: Target, asked: Choices) -> UOp:
    """A thread takes a part of each row: rows come in an order that is kept, but parts of them do not.

    No thread where an outer loop, which is shared out anyway, or nothing can be divided.
    """
    first = min([loop.arg[0] for loop in kernel.src[0].src[2:]])
    outputs = output_loops(kernel)
    outer = [x for x in outputs if x.arg[0] < first and size_of(x) >= target.threads]
    inner = [x for x in outputs if x.arg[0] > first and size_of(x) % target.threads == 0]
    if outer or not inner or not shares_work(operations(kernel), target, asked):
        return kernel
    kernel = split_loop(kernel, inner[0], size_of(inner[0]) // target.threads, AxisRole.LOOP)
    (whole,) = [x for x in output_loops(kernel) if x.arg[0] == inner[0].arg[0]]
    return kernel.substitute({whole: whole.replace(arg=(whole.arg[0], AxisRole.THREAD))})


def _innermost(kernel: UOp, vector: VectorChoice) -> UOp:
    """The loop along which memory is contiguous that vectors gather or scatter runs inside.

    So each of its lines is read or written once.
    """
    places = [n.src[0].src[1] for n in toposort((kernel,)) if n.op in (Ops.LOAD, Ops.STORE)]
    gathered = [index for index in places if coefficient(index, vector.loop) not in (0, 1)]
    for loop in output_loops(kernel)[:-1]:
        if loop is not vector.loop and all(coefficient(index, loop) == 1 for index in gathered):
            return kernel.substitute({loop: loop.replace(arg=(_fresh_number(kernel), loop.arg[1]))})
    return kernel


def _vectors(kernel: UOp, vector: VectorChoice, target: Target, asked: Choices) -> UOp:
    """Split the loop into vectors; several at once where a reduction would wait for itself.

    One that is written out does not: copies of it would only be more code.
    """
    loop, lanes = vector.loop, vector.lanes
    free, short = loops_below(kernel), _short_reductions(kernel)
    looped = [n for n in free if n.op is Ops.REDUCE and not short.issuperset(n.src[1:])]
    reduces = any(loop in free[n.src[0]] for n in looped)
    copies = prod(size_of(x) for x in output_loops(kernel) if x.arg[1] is AxisRole.UPCAST)
    most = target.vector_registers // 2 // copies
    wanted = [n for n in UNROLLED_VECTORS if reduces and n <= most]
    if asked.vectors is not None:
        wanted = [asked.vectors]
    if any(n.op is Ops.KEEP and loop in n.src for n in free):
        wanted = []  # each of its values has one place
    size = size_of(loop)
    count = next((n for n in wanted if size % (n * lanes) == 0), 1)
    if count == 1:
        return split_loop(kernel, loop, lanes, AxisRole.VECTOR)
    number, stretch = _fresh_number(kernel), size // count
    if reduces and stretch * target.vector_bytes >= STRETCH_BYTES * lanes:
        kernel = split_loop(kernel, loop, stretch, loop.arg[1])
        outer = UOp.range(count, *loop.arg)
        kernel = kernel.substitute({outer: outer.replace(arg=(loop.arg[0], AxisRole.UPCAST))})
        return split_loop(kernel, UOp.range(stretch, number, loop.arg[1]), lanes, AxisRole.VECTOR)
    kernel = split_loop(kernel, loop, count * lanes, AxisRole.UPCAST)
    inner = UOp.range(count * lanes, number, AxisRole.UPCAST)
    return split_loop(kernel, inner, lanes, AxisRole.VECTOR)


def _tiled(
    kernel: UOp,
    contraction: Contraction,
    tile: Tile,
    target: Target,
    bounds: Bounds | None,
    asked: Choices,
) -> UOp:
    """The loops of a contraction as items, blocks of tiles, and the parts of a tile.

    Within an item all tiles of a row block go by for one tile of columns, which stays in the cache.
    """
    blocks = choose_blocks(contraction, tile, target, asked)
    rows, columns = contraction.rows, contraction.columns
    if contraction.has_gated_rows and isinstance(bounds, Facts):
        kernel = read_inside(kernel, contraction.reduction, bounds)
    number = _fresh_number(kernel)
    row_tiles, column_tiles = tiles_along(contraction, tile)
    row_blocks = -(-row_tiles // blocks.row_tiles)
    column_blocks = -(-column_tiles // blocks.column_tiles)
    sizes = {x: size_of(x) for x in contraction.others} | {rows: row_blocks, columns: column_blocks}
    order = [*contraction.others, rows, columns]
    if contraction.shares_large_columns(target.cache_bytes):
        order = [columns, *order[:-1]]  # a thread goes on with columns that are in its cache
    is_shared = shares_work(contraction.multiplications, target, asked)
    role = AxisRole.THREAD if is_shared else AxisRole.LOOP
    item = _loop(prod(sizes.values()), number, role)
    changes = dict(zip(order, _digits(item, [sizes[x] for x in order])))
    row_block, column_block = changes[rows], changes[columns]
    column_tile = _loop(blocks.column_tiles, number + 1)
    row_tile = _loop(blocks.row_tiles, number + 2)
    row = _loop(tile.rows, number + 3, AxisRole.UPCAST)
    vector = _loop(tile.vectors, number + 4, AxisRole.UPCAST)
    lane = _loop(tile.lanes, number + 5, AxisRole.VECTOR)
    row_at = (row_block * blocks.row_tiles + row_tile) * tile.rows + row
    vector_at = (column_block * blocks.column_tiles + column_tile) * tile.vectors + vector
    column_at = vector_at * tile.lanes + lane
    for loop, position, reach, whole, within in (
        (rows, row_at, row_blocks * blocks.row_tiles * tile.rows, row_at, UOp.index(0)),
        (columns, column_at, column_blocks * blocks.column_tiles * tile.columns, vector_at, lane),
    ):
        size = size_of(loop)
        if reach > size:
            lanes = tile.lanes if loop is columns else 1
            last = UOp(Ops.MIN, loop.dtype, (whole, UOp.index(size // lanes - 1))) * lanes + within
            nearest = last if size % lanes == 0 else None
            kernel = gate_accesses(kernel, loop, UOp.index(size), reach, bounds, nearest)
        changes[loop] = position
    kernel = kernel.substitute(changes)
    if packs_columns(contraction, tile, target, asked):
        kernel = pack_columns(kernel, vector, lane)
    (reduction,) = [n for n in toposort((kernel,)) if n.op is Ops.REDUCE]
    loop = reduction.src[-1]
    steps = choose_depth(loop, tile, asked)
    if steps == size_of(loop):
        return kernel.substitute({loop: loop.replace(arg=(loop.arg[0], AxisRole.UPCAST))})
    return kernel if steps == 1 else split_loop(kernel, loop, steps, AxisRole.UPCAST)


def shares_work(operations: int, target: Target, asked: Choices = NO_WISH) -> bool:
    """Whether threads share a kernel of so many operations."""
    if target.threads < 2 or asked.threads is not None:
        return target.threads > 1 and bool(asked.threads)
    return operations >= THREAD_WORTH_OPERATIONS


def _loop(size: int, number: int, role: AxisRole = AxisRole.LOOP) -> UOp:
    return UOp.range(size, number, role) if size > 1 else UOp.index(0)


def _digits(loop: UOp, sizes: list[int]) -> list[UOp]:
    """The digits of a loop's value in the mixed radix `sizes`, most significant first."""
    digits: list[UOp] = []
    stride, total = 1, prod(sizes)
    for size in reversed(sizes):
        digit = loop // stride if stride > 1 else loop
        digits.append(digit % size if stride * size < total else digit)
        stride *= size
    return digits[::-1]


def share_out_work_items(kernel: UOp, target: Target) -> UOp:
    """On machines with work items all output loops become one loop of them."""
    loops = output_loops(kernel)
    if not target.work_items or not loops:
        return kernel
    total = prod(size_of(loop) for loop in loops)
    item = UOp.range(total, _fresh_number(kernel), AxisRole.GLOBAL)
    return kernel.substitute(dict(zip(loops, _digits(item, [size_of(x) for x in loops]))))


def _choose_vectors(kernel: UOp, target: Target, asked: Choices) -> list[VectorChoice]:
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


def _upcast(kernel: UOp, vector: VectorChoice, asked: Choices) -> UOp:
    """Unroll one output loop, whose copies share a load inside a reduction."""
    outputs, free = output_loops(kernel), loops_below(kernel)
    if any(loop.arg[1] is AxisRole.UPCAST for loop in outputs):
        return kernel
    sharing = [_loops_that_share(n, free) for n in free if n.op is Ops.REDUCE]
    candidates = frozenset().union(*sharing) - _loops_around_kept(kernel)
    for loop in reversed(outputs):
        if loop.arg[1] is not AxisRole.LOOP or loop is vector.loop or loop not in candidates:
            continue
        for count in UPCAST_SIZES if asked.copies is None else (asked.copies,):
            if count > 1 and size_of(loop) % count == 0:
                return split_loop(kernel, loop, count, AxisRole.UPCAST)
    return kernel


def _loops_that_share(reduction: UOp, free: dict[UOp, frozenset[UOp]]) -> frozenset[UOp]:
    """The loops that change a reduction, but not everything that it loads."""
    loads = [free[n] for n in toposort((reduction.src[0],)) if n.op is Ops.LOAD]
    return free[reduction] - free[reduction].intersection(*loads)


def _choose_thread(kernel: UOp, target: Target, asked: Choices) -> UOp:
    outputs = [x for x in output_loops(kernel) if x.arg[1] is AxisRole.LOOP]
    if runs_in_order(kernel):  # outside of the loops in order; their rows are shared out before
        first = min([loop.arg[0] for loop in kernel.src[0].src[2:]])
        outputs = [x for x in outputs if x.arg[0] < first]
    if not shares_work(operations(kernel), target, asked):
        return kernel
    loop = next((x for x in outputs if size_of(x) >= target.threads), None)
    if loop is None:
        return kernel
    return kernel.substitute({loop: loop.replace(arg=(loop.arg[0], AxisRole.THREAD))})


def runs_in_order(kernel: UOp) -> bool:
    """Whether a store of the kernel has loops of its own: it combines with what was stored before."""
    return any(len(store.src) > 2 for store in kernel.src)


def operations(kernel: UOp) -> int:
    """An estimate of the arithmetic of one run, for choosing threads."""
    free = loops_below(kernel)
    total = 0
    for node in toposort((kernel,)):
        if node.op in (Ops.REDUCE, Ops.KEEP, Ops.LOAD, Ops.STORE):
            below = (
                free[node.src[0]]
                if node.op not in BINDERS
                else free[node.src[0]] | set(node.src[1:])
            )
            total += prod(size_of(loop) for loop in below)
    return total
