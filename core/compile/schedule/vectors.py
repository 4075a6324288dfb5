"""Which loops of a kernel without a tile run as vectors, and how many vectors at once.

Owns: the choice, a heuristic, which can make a kernel slow and never wrong. Does not own: which loops may (vector_loops.py), copies (copies.py), the steps that apply
both (axes.py), the tile of a contraction (tiles.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import NO_COPIES, Copies, Schedule, Vectors
from proofgrad.core.compile.nests.loops import (
    BINDERS,
    is_fixed,
    output_loops,
    size_of,
    unshared_reductions,
)
from proofgrad.core.compile.nests.strides import coefficient, loops_below, loops_of
from proofgrad.core.compile.schedule.cache_sets import rows_that_stay
from proofgrad.core.compile.schedule.copies import (
    MOST_COPIES,
    Nest,
    choose_copies,
    copies_of_choices,
    side_by_side,
)
from proofgrad.core.compile.schedule.divisors import largest_divisor
from proofgrad.core.compile.schedule.operation_cycles import OPERATION_CYCLES, SHORT_CYCLES
from proofgrad.core.compile.schedule.vector_loops import (
    NARROWEST_GATHERED,
    Candidate,
    fitting_lanes,
    is_costly_along,
    is_work_along,
    loops_that_pay,
    moves_narrow,
)
from proofgrad.core.compile.schedule.wide_vectors import registers_of_vector
from proofgrad.core.ir.op_names import FLOORDIV, INDEX, LOAD, LOCAL_BUFFER, MOD, REDUCE
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort

# Several vectors at once pay where no more than one in so many elements is beyond the end, and masked.
WORTH_A_REST = 8
# So many vectors of elements are written out, where that is a row, or where their lanes are gathered (measured: a transpose takes 0.6 to 1
# times as long, rows of an exponential 0.9).
ELEMENTS_AT_ONCE = 4
# Cycles of chains that are written out beside each other: their code takes long to compile.
MOST_CYCLES_AT_ONCE = 512
# Drivers compile the text of kernels of work items, and take as much longer as it is; an exponential is 30 lines.
MOST_COSTLY_AT_ONCE = 2
# A reduction of so few values has no loop.
SHORT_REDUCTION = 16
# Unless they are of so many loads, as where many gradients are added up: what is written out is not faster, and long.
MOST_LOADS = 256


def choose_vectors(
    kernel: UOp, target: Target, override: Schedule, shared: UOp | None
) -> tuple[tuple[Vectors, ...], Copies]:
    """The loops that run as vectors, and the one of which copies run side by side.

    `shared`: a loop of which each thread takes a part. Loops run as vectors along which most accesses are
    contiguous, no two of which any value or register depends on. The output's own loop comes first on a tie; each
    reduction beside it may have one of its own.
    """
    if target.vector_bytes == 0 or override.vectors == ():
        return (), NO_COPIES
    free = loops_below(kernel)
    unroll = SHORT_REDUCTION if override.unroll is None else override.unroll
    nest = Nest(kernel, free, looped_reductions(kernel, free, unroll), shared, target, unroll)
    if (in_digits := _in_digits(nest, override)) is not None:
        return in_digits
    chosen = _independent(loops_that_pay(nest, override), free)
    of_results = [one for one in chosen if _reduces(nest, one) and nest.is_of_results(one.loop)]
    at_once = max([_at_once(one, nest, NO_COPIES) for one in of_results], default=1)
    of_rows = [one for one in chosen if not nest.looped and nest.is_of_results(one.loop)]
    of_row = max([_at_once(one, nest, NO_COPIES) for one in of_rows], default=1)
    loops = [one.loop for one in chosen]
    if not chosen:
        is_asked = target.work_items or override.copies is not None
        return (), NO_COPIES if is_asked else copies_of_choices(nest, ())
    copies = choose_copies(nest, loops, at_once, of_row, override)
    return tuple([_vectors_of(one, nest, copies) for one in chosen]), copies


def _vectors_of(one: Candidate, nest: Nest, copies: Copies) -> Vectors:
    """As many lanes as a vector of a loop has, and how many vectors an iteration takes."""
    number, registers = one.loop.arg[0], registers_of_vector(one, nest)
    if registers > 1 and copies.count == 1:
        return Vectors(number, registers * one.lanes, 1)
    return Vectors(number, one.lanes, _at_once(one, nest, copies))


def _in_digits(nest: Nest, override: Schedule) -> tuple[tuple[Vectors, ...], Copies] | None:
    """Vectors along a loop that indexes divide by a small number, one for each remainder side by side.

    What interleaves parts, as the phases of a transposed convolution, reads each of them in order then.
    """
    outputs, free = output_loops(nest.kernel), nest.free
    if not outputs or nest.reductions or nest.keeps:
        return None
    loop = outputs[-1]
    steps = {n.src[1].arg for n in free if n.op in (FLOORDIV, MOD) and _divides(n, loop)}
    types = [n.dtype for n in nest.loads]
    if len(steps) != 1 or not types or loop.arg[1] is not AxisRole.LOOP or not is_fixed(loop):
        return None
    (step,), widest = steps, max(types, key=lambda dtype: dtype.itemsize)
    most = nest.target.lanes(widest)
    lanes = fitting_lanes(-(-size_of(loop) // step), most, rests=1)
    if lanes is None or not 1 < step <= MOST_COPIES:
        return None
    found = (Vectors(loop.arg[0], lanes, 1),), Copies(loop.arg[0], step)
    as_asked = zip((override.vectors, override.copies), found)
    return found if all(asked in (None, own) for asked, own in as_asked) else None


def _divides(node: UOp, loop: UOp) -> bool:
    """Whether a quotient or remainder is one of neighbours along the loop, by a number."""
    return node.src[1].op is Ops.CONST and coefficient(node.src[0], loop) == 1


def _independent(
    candidates: list[Candidate], free: Mapping[UOp, frozenset[UOp]]
) -> list[Candidate]:
    """The first ones, no two of which any value or register depends on."""
    inside = [loops.union(n.src[1:]) if n.op in BINDERS else loops for n, loops in free.items()]
    chosen: list[Candidate] = []
    for one in candidates:
        if not any(one.loop in loops and other.loop in loops
                   for loops in inside for other in chosen):  # fmt: skip
            chosen.append(one)
    return chosen


def _reduces(nest: Nest, one: Candidate) -> bool:
    return any([one.loop in nest.free[n.src[0]] for n in nest.looped])


def _at_once(one: Candidate, nest: Nest, copies: Copies) -> int:
    """How many vectors one iteration takes: several where a reduction would wait for itself.

    One that is written out does not: copies of it would only be more code.
    """
    target, free, size = nest.target, nest.free, nest.size(one.loop)
    if nest.keeps and any(n.op is Ops.LOCAL_BUFFER and one.loop in n.src for n in free):
        return 1  # each of its values has one position
    if one.at_once is not None:
        return min(one.at_once, -(-size_of(one.loop) // one.lanes))  # of others nothing is stored
    is_of_results, is_costly = nest.is_of_results(one.loop), is_costly_along(one.loop, free)
    if target.lockstep > 1 and is_of_results:
        return 1  # neighbours read side by side, and other items run while one waits
    # More than the core has at once wait for nothing.
    registers = target.vector_registers // 2 // copies.count
    most = min(registers, target.core.sums_at_once)
    if is_of_results and nest.looped and _is_beside_windows(copies, nest):
        # What they share is all that they load.
        registers = most = max(1, target.core.sums_at_once // copies.count)
    if target.work_items and is_costly:
        most = min(most, MOST_COSTLY_AT_ONCE)
    long = MOST_LOADS // max(1, _loads_along(one.loop, free))  # so many are long enough to read
    most = min(most, long)
    if not _reduces(nest, one):
        is_plain = copies.count == 1 or _is_beside_windows(copies, nest)
        is_plain = is_plain and not target.work_items and long >= ELEMENTS_AT_ONCE
        return _of_elements(one, nest, most) if is_plain else 1
    # A short row of results is one pass over what is reduced, with a mask where it has a rest. So is the last pass over a longer row; but
    # in texts for drivers each would ask for masks (a fifth slower, measured), and along a reduction a few more elements do.
    vectors = -(-size // one.lanes)
    rows = [vectors] if is_of_results else []
    wanted = [n for n in (*rows, 16, 8, 4, 2) if n <= most]
    if rows and not target.work_items and not is_costly:
        # Else so many that the fewest are beyond the end, as far as half of the registers hold what is summed.
        rows.append(side_by_side(vectors, max(1, min(registers, long))))
        wanted = [*[n for n in wanted if n >= 8 or n in rows], *rows[1:]]
    rest = 0 if rows and target.work_items and not is_costly else size // WORTH_A_REST
    fits = [n for n in wanted if n in rows or -size % (n * one.lanes) <= rest]
    return next(iter(fits), 1)


def _is_beside_windows(copies: Copies, nest: Nest) -> bool:
    """Whether copies are of rows whose windows overlap."""
    loops = [x for x in output_loops(nest.kernel) if x.arg[0] == copies.loop]
    return not nest.target.work_items and any([nest.has_windows(x) for x in loops])


def _of_elements(one: Candidate, nest: Nest, most: int) -> int:
    """How many vectors of elements, of which nothing is reduced in a loop, one iteration takes: a short row whole; of what is gathered lines side by side;
    of a row with ends so many that few iterations ask where they are (measured: rows of 90 to 3352 floats are padded in 1/4 to 3/5 of the time).

    What is gathered lies along another loop, mostly, which runs inside: each of its iterations stores to another page. Of functions of functions several
    are computed side by side (backends/llvm/beside.py), where one of them takes longer than a core looks ahead.
    """
    free, size = nest.free, nest.size(one.loop)
    vectors, others = -(-size // one.lanes), frozenset().union(*free.values()) - {one.loop}
    is_gathered, reduces = one.gathers > one.scatters, bool(nest.reductions)
    if one.by_lane and moves_narrow(nest, one.loop):
        return 1
    if not reduces and (beside := _beside_a_chain(one.loop, nest)) > 1:
        return side_by_side(vectors, beside)
    has_ends = _has_ends_along(one.loop, free)
    if reduces and not (others and has_ends):
        return 1
    if reduces and vectors > ELEMENTS_AT_ONCE:
        if not _is_gated_along(one.loop, free):
            return 1
        return side_by_side(vectors, MOST_COPIES) if _reads_in_steps(one.loop, nest) else 2
    if not others or (vectors > ELEMENTS_AT_ONCE and not (is_gathered or has_ends)):
        return 1
    at_most = _gathered_at_once(one, nest)
    if vectors <= min(at_most, most if has_ends else ELEMENTS_AT_ONCE):
        return vectors
    if at_most < ELEMENTS_AT_ONCE:
        return side_by_side(vectors, at_most)
    if size % one.lanes or not is_gathered:
        return side_by_side(vectors, ELEMENTS_AT_ONCE)
    # Whole vectors stay whole (turned_loads.py).
    divisors = [largest_divisor(vectors, n) for n in (ELEMENTS_AT_ONCE, 2 * ELEMENTS_AT_ONCE)]
    return divisors[0] if divisors[0] > 1 else divisors[1]


def _gathered_at_once(one: Candidate, nest: Nest) -> int:
    """Of how many vectors a line of each lane stays in the first cache, where lanes lie apart: the next iterations read on in these lines.

    No fewer than fill a line of results that leave the second cache before the next vector comes to it, but of narrow elements, whose lanes take longer.
    """
    steps = [(coefficient(n.src[0].src[1], one.loop), n.dtype.itemsize) for n in nest.loads]
    apart = [abs(step) * itemsize for step, itemsize in steps if step not in (None, 0, 1)]
    most = MOST_COPIES * one.lanes
    stay = [rows_that_stay(nbytes, most, nest.target.first_cache) for nbytes in apart]
    memory, target, line = nest.kernel.src[0].src[0].src[0], nest.target, 1
    itemsize = memory.dtype.itemsize
    is_far = memory.op is Ops.PARAM and memory.arg[1] * itemsize > target.cache_bytes
    if is_far and itemsize >= NARROWEST_GATHERED:
        line = target.first_cache.line_bytes // (one.lanes * itemsize)
    return max(1, line, min(stay, default=most) // one.lanes)


def _reads_in_steps(loop: UOp, nest: Nest) -> bool:
    """Whether lanes along a loop are picked out of what is loaded, as of windows with a stride: to mask them takes each lane by itself."""
    return any([coefficient(n.src[0].src[1], loop) not in (0, 1) for n in nest.loads])


def _has_ends_along(loop: UOp, free: Mapping[UOp, frozenset[UOp]]) -> bool:
    """Whether what is read is another matter at the ends of a row, as of a window on padded images: known, where the row is written out.

    It is left out by a gate there, or its position is brought inside.
    """
    reads = [n for n in free if n.op is INDEX and loop in free[n]]
    return _is_gated_along(loop, free) or any([coefficient(n.src[1], loop) is None for n in reads])


def _is_gated_along(loop: UOp, free: Mapping[UOp, frozenset[UOp]]) -> bool:
    """Whether a gate that changes along a loop leaves out what is read."""
    gates = [n.src[2] for n in free if n.op is INDEX and len(n.src) > 2]
    return any([loop in free[gate] for gate in gates])


def _beside_a_chain(loop: UOp, nest: Nest) -> int:
    """Of so many vectors a core works on one while another waits for itself: 1 where a chain of operations is short enough to see its end."""
    chains: dict[UOp, float] = {}
    for node in nest.free:
        along = is_work_along(node, loop, nest.free)
        own = OPERATION_CYCLES.get(node.op, SHORT_CYCLES) if along else 0.0
        chains[node] = own + max([chains[source] for source in node.src], default=0.0)
    longest = max(chains.values(), default=0.0)
    if longest <= nest.target.core.foreseen_instructions * SHORT_CYCLES:
        return 1
    return max(1, min(ELEMENTS_AT_ONCE, int(MOST_CYCLES_AT_ONCE // longest)))


def _loads_along(loop: UOp, free: Mapping[UOp, frozenset[UOp]]) -> int:
    return sum([n.op is LOAD and loop in loops for n, loops in free.items()])


def looped_reductions(kernel: UOp, free: Mapping[UOp, frozenset[UOp]], unroll: int) -> list[UOp]:
    """The reductions that are not written out."""
    short = short_reductions(kernel, unroll)
    return [n for n in free if n.op is REDUCE and not short.issuperset(n.src[1:])]


def short_reductions(kernel: UOp, at_most: int) -> set[UOp]:
    """The loops of reductions of so few values, each of which reads little."""
    nodes = toposort((kernel,))
    kept = {loop for n in nodes if n.op is LOCAL_BUFFER for loop in n.src[1:]}
    groups = [set(loops) for loops in unshared_reductions(kernel)]
    short = [g for g in groups if 0 < _values(g) <= at_most and kept.isdisjoint(g)]
    read = [loops_of(n.src[0].src[1]) for n in nodes if n.op is LOAD] if short else []
    loads = [sum([not g.isdisjoint(loops) for loops in read]) for g in short]
    return set().union(*[g for g, n in zip(short, loads) if n * _values(g) <= MOST_LOADS])


def _values(group: set[UOp]) -> int:
    return prod([size_of(loop) for loop in group])
