"""Which loops of a kernel may run as vectors, of how many lanes, the best first.

Owns: what lanes that lie apart in memory cost beside those that lie side by side. Does not own: which of them are taken together, and how
many vectors at once (vectors.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2, prod

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import Schedule, Vectors
from proofgrad.core.compile.nests.loops import is_fixed, output_loops, size_of, unshared_reductions
from proofgrad.core.compile.nests.strides import coefficient, loops_of
from proofgrad.core.compile.schedule.cache_sets import rows_that_stay
from proofgrad.core.compile.schedule.contraction import LARGEST_STEP
from proofgrad.core.compile.schedule.copies import (
    WORK_OF_A_STEP,
    Nest,
    loop_that_chooses,
    loops_around_kept,
)
from proofgrad.core.compile.schedule.operation_cycles import (
    COSTLY,
    OPERATION_CYCLES,
    SHORT_CYCLES,
    share_of_one_element,
)
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.op_names import LOAD, PARAM, RANGE, REDUCE, STORE
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.uop import UOp, toposort

# So many reads of each element that a copy in another order pays: it costs as much as reading in that order once.
# A copy that does not stay in the second cache is written to memory and read from there: twice that.
WORTH_A_COPY, WORTH_A_FAR_COPY = 2, 4
# Vectors of fewer elements cost more to fill than they save.
LEAST_LANES = 4
# A vector with a mask, in a loop of a reduction, takes so many times as long as another one (measured).
MASKED_AGAIN = 2
# Of work of so many cycles an element, lanes that are filled one by one are few of it, and a rest pays as well.
WORTH_FILLING = 16
# Elements from lane to lane of vectors that a processor picks out of whole ones (backends/llvm/strided.py), so that no lane is filled by itself.
PICKED = frozenset(range(-LARGEST_STEP, LARGEST_STEP + 1))
# Bytes of the narrowest elements that processors gather or scatter by an instruction.
NARROWEST_GATHERED = 4
# Narrow elements are taken from so many lines at a time: of more the first cache does not keep each until its next element is taken, and there are
# more pages than are translated at once (measured: a matrix of bytes is transposed in a third to a ninth of the time of 64 lines).
LINES_TOGETHER = 16
# An estimate is not exact: other lanes have to take so many times fewer cycles (measured: of rows of 5 to 7 an exponential takes as long either way).
CLEARLY = 1.25


@dataclass(frozen=True, slots=True)
class Candidate:
    """Run `loop` in groups of `lanes`; the lanes of so many accesses lie apart, of so many would be taken one by one, so many are of stores."""

    loop: UOp
    lanes: int
    gathers: int
    by_lane: int = 0
    scatters: int = 0
    at_once: int | None = None  # by an override


def loops_that_pay(nest: Nest, override: Schedule) -> list[Candidate]:
    """The loops of the override, or all that pay, the best first."""
    kernel, target, free = nest.kernel, nest.target, nest.free
    loops, around_kept = _contiguous_first(kernel), loops_around_kept(free)
    loops = [loop for loop in loops if loop not in around_kept]
    wanted = override.vectors or ()
    if wanted and wanted[0].loop is not None:
        known = {loop.arg[0]: loop for loop in (*loops, *output_loops(kernel))}
        named = [(known[v.loop], v) for v in wanted if v.loop in known]
        return [
            Candidate(x, v.lanes, 0, at_once=v.at_once)
            for x, v in named
            if 1 < v.lanes < 2 * nest.size(x)
        ]
    lanes = wanted[0].lanes if wanted else target.lanes(_type_of_vectors(nest))
    if lanes < 2:
        return []
    outer = [loop for loop in output_loops(kernel) if loop not in around_kept]
    apart = _combine_apart(nest)
    loops, outer = [[x for x in some if x not in apart] for some in (loops, outer)]
    if override.vectors is None and override.copies is None:
        avoided = _loop_of_choices(lanes, nest)
        outer = [loop for loop in outer if loop is not avoided]
        if avoided is not None:
            loops = [loop for loop in loops if loop is not avoided]
            loops += [x for x in outer if x not in loops and nest.is_of_results(x)]
    at_once = wanted[0].at_once if wanted else None
    found = [_candidate(nest, loop, lanes, at_once, override) for loop in loops]
    if not any(found):  # as where rows are shorter than a vector: lanes are rows then
        others = [loop for loop in outer if loop not in loops]
        found = [_candidate(nest, loop, lanes, at_once, override) for loop in others]
    fitting = [one for one in found if one is not None]
    picks = any([nest.is_of_results(one.loop) and not one.by_lane for one in fitting])
    chosen = sorted(
        fitting,
        key=lambda one: (
            picks and _is_window(one, nest),
            one.gathers,
            one.by_lane,
            one.scatters,
            -one.lanes,
        ),
    )
    return _filled_apart(nest, chosen, outer, lanes) + chosen


def _combine_apart(nest: Nest) -> set[UOp]:
    """The loops along which stores combine with what lies apart in memory, step by step.

    A step reads what the one before has stored, which a core hands on before it is in the cache only where it was stored whole: a vector that is filled from
    what was stored lane by lane waits for all of it (measured: rows of 301 values that are added at positions of their own take 1/5 of the time one by
    one). Of a machine whose items run in step a vector is a wide load, and others run while one waits.
    """
    if nest.target.lockstep > 1:
        return set()
    combining = [n.src[0].src[1] for n in nest.stores if len(n.src) > 2]
    loops = output_loops(nest.kernel) if combining else []
    return {x for x in loops if any([coefficient(index, x) not in (0, 1) for index in combining])}


def _filled_apart(
    nest: Nest, found: list[Candidate], loops: Sequence[UOp], lanes: int
) -> list[Candidate]:
    """One of these loops of results whose lanes lie apart in memory, where that takes less than the best that was found, or than no vectors, as where rows
    are short, or what is made of the sum of a short row is costly."""
    if nest.target.work_items or nest.looped:
        return []
    if found and (_is_row_by_data(nest, found[0].loop, lanes) or moves_narrow(nest, found[0].loop)):
        return []
    known = {one.loop for one in found[:1]}
    wide = {x: fitting_lanes(nest.size(x), lanes, rests=1) for x in loops}
    costs = {x: _cycles_along_vectors(x, n, nest) for x, n in wide.items() if n and x not in known}
    loop = min(costs, key=lambda one: costs[one], default=None)
    if loop is None:
        return []
    best, n = (found[0].loop, found[0].lanes) if found else (loop, 1)
    pays = CLEARLY * costs[loop] < _cycles_along_vectors(best, n, nest)
    return [Candidate(loop, wide[loop] or 1, 0)] if pays else []


def _cycles_along_vectors(loop: UOp, lanes: int, nest: Nest) -> float:
    """Cycles of a kernel of which one loop runs in vectors of so many lanes: its operations, its accesses, and the loops themselves."""
    size, core, loops = nest.size(loop), nest.target.core, frozenset(output_loops(nest.kernel))
    is_whole = size % lanes == 0
    taken = size / -(-size // lanes)  # lanes of a vector, on average: those behind the end are neither loaded nor stored

    def times(changing: frozenset[UOp]) -> int:
        return prod([-(-size // lanes) if x is loop else size_of(x) for x in changing])

    cycles = WORK_OF_A_STEP * SHORT_CYCLES * times(loops)
    for node, changing in nest.free.items():
        if node.op is LOAD or node.op is STORE:
            step = coefficient(node.src[0].src[1], loop)
            is_picked = node.op is LOAD and step in PICKED and is_whole
            is_near = lanes == 1 or step in (0, 1) or is_picked
            each = core.scatter_cycles if node.op is STORE else core.gather_cycles
            cycles += times(changing) * (1 / core.loads_a_cycle if is_near else taken * each)
        elif node.op is REDUCE and loop in node.src[1:]:  # its lanes are combined by halves
            cycles += times(changing) * log2(lanes)
        elif node.op is REDUCE:
            cycles += times(changing.union(node.src[1:])) * SHORT_CYCLES
        elif node.op in ELEMENTWISE and node.dtype is not dtypes.index:
            each = OPERATION_CYCLES.get(node.op, SHORT_CYCLES)
            each *= 1 if loop in changing else share_of_one_element(node.op)
            cycles += times(changing) * each
    return cycles


def _candidate(
    nest: Nest, loop: UOp, lanes: int, at_once: int | None, override: Schedule
) -> Candidate | None:
    """The loop in vectors of at most so many lanes; None where that costs more than it saves."""
    target, free = nest.target, nest.free
    stores = [n.src[0].src[1] for n in nest.stores]
    indexes = [n.src[0].src[1] for n in nest.loads] + stores
    steps = [coefficient(index, loop) for index in indexes]
    gathers = sum(step not in (0, 1) for step in steps)
    by_lane = gathers if target.lockstep > 1 else sum([s not in PICKED for s in steps])
    if copies_windows(target, override):
        gathers -= len(_read_in_steps(nest.kernel, [loop], target))
    # A short row with a rest pays where all lanes lie side by side (measured: 1.3 to 3 times as fast; else half). The
    # last step of a reduction asks for its mask again, which beside an exponential is little.
    again = any([loop in free[n.src[0]] for n in nest.looped])
    again = again and not is_costly_along(loop, free)
    is_filled = by_lane or nest.keeps
    rests: float | None = MASKED_AGAIN if again or is_filled else 1
    if is_filled and cycles_along(loop, free) < WORTH_FILLING:
        rests = None
    lanes = min(lanes, _narrow_lanes(loop, nest) or lanes)
    fitting = fitting_lanes(nest.size(loop), lanes, rests)
    if not gathers and _is_row_by_data(nest, loop, lanes):
        fitting = LEAST_LANES
    if fitting is None and moves_narrow(nest, loop):
        fitting = next((n for n in (16, 8, LEAST_LANES) if n <= min(lanes, nest.size(loop))), None)
    # Lanes filled one by one cost more than they save, but where much is computed of them.
    if fitting is None or not (
        by_lane <= steps.count(1) or _pays_to_fill(loop, fitting, by_lane, nest)
    ):
        return None
    scatters = sum([coefficient(index, loop) not in (0, 1) for index in stores])
    return Candidate(loop, fitting, gathers, by_lane, scatters, at_once)


def _narrow_lanes(loop: UOp, nest: Nest) -> int | None:
    """Of how many lanes that lie apart a line each stays in the first cache, where they are narrow, and loaded one by one anyway: so the next iterations
    read on in these lines. None where no narrow lanes lie apart."""
    cache, found = nest.target.first_cache, list[int]()
    for load in [n for n in nest.loads if n.dtype.itemsize < NARROWEST_GATHERED]:
        step = coefficient(load.src[0].src[1], loop)
        if step not in (None, 0, 1):
            nbytes = abs(step) * load.dtype.itemsize
            found.append(rows_that_stay(nbytes, LINES_TOGETHER, cache))
    return max(LEAST_LANES, 1 << min(found).bit_length() - 1) if found else None


def moves_narrow(nest: Nest, loop: UOp) -> bool:
    """Whether a kernel only moves elements that no instruction gathers or scatters, for they are narrow, and stores them side by side along a loop.

    They are moved one by one along any other, too. To load them so, and store a vector, even with a mask, takes fewer instructions than to load a
    vector and store its lanes (measured: rows of 5 to 63 bytes, or of two, transposed in .3 to .8 of the time).
    """
    if nest.target.work_items or _type_of_vectors(nest).itemsize >= NARROWEST_GATHERED:
        return False
    stores = [n.src[0].src[1] for n in nest.stores]
    is_plain = not nest.reductions and not nest.keeps
    return is_plain and all([coefficient(index, loop) == 1 for index in stores])


def _is_row_by_data(nest: Nest, loop: UOp, lanes: int) -> bool:
    """Whether rows of one element less than the shortest vector lie where data says: lanes along other loops are filled one by one.

    Vectors of more than twice as many lanes compute the positions of as many rows at once.
    """
    if (
        nest.looped
        or nest.size(loop) != LEAST_LANES - 1
        or not LEAST_LANES <= lanes <= 2 * LEAST_LANES
    ):
        return False
    indexes = [n.src[0].src[1] for n in nest.loads]
    along = [index for index in indexes if coefficient(index, loop) == 1]
    return any([n.op is Ops.LOAD for n in toposort(along)])


def _loop_of_choices(lanes: int, nest: Nest) -> UOp | None:
    """The loop that decides which of several values an element is, where a vector of it would compute more of them than it has lanes."""
    chooser = loop_that_chooses(nest)
    if chooser is None or chooser.parts < min(lanes, size_of(chooser.loop)):
        return None
    return chooser.loop


def _type_of_vectors(nest: Nest) -> DType:
    """The type of which a vector has as many elements as a register: the widest that is loaded or summed.

    Items that run in step have no such registers: there a vector is a wide load of the memory that most of is loaded from.
    """
    if nest.target.lockstep > 1 and nest.reductions and nest.loads:
        return max(nest.loads, key=lambda n: _bytes_loaded(nest, n)).dtype
    types = [n.dtype for n in nest.free if n.op in (LOAD, REDUCE)]
    return max(types, key=lambda d: d.itemsize, default=nest.kernel.src[0].src[1].dtype)


def _bytes_loaded(nest: Nest, load: UOp) -> int:
    """Of different elements of memory."""
    loops = nest.free[load.src[0].src[1]]
    return prod([nest.size(loop) for loop in loops]) * load.dtype.itemsize


def _is_window(one: Candidate, nest: Nest) -> bool:
    """Whether what is reduced along a loop is one vector, whose lanes are added up for each result."""
    is_reduced = any([one.loop in n.src[1:] for n in nest.reductions])
    return is_reduced and nest.size(one.loop) <= one.lanes


def _contiguous_first(kernel: UOp) -> list[UOp]:
    """The loops of the output along which it, or all that is read, is contiguous; those of reductions."""
    outputs, nodes = output_loops(kernel), toposort((kernel,))
    stores = [n.src[0].src[1] for n in nodes if n.op is STORE]
    loads = [n.src[0].src[1] for n in nodes if n.op is LOAD]
    found = [x for x in outputs if all(coefficient(s, x) == 1 for s in stores)]
    found += [x for x in outputs if loads and all(coefficient(s, x) == 1 for s in loads)]
    reductions = {loop for group in unshared_reductions(kernel) for loop in group}
    found += sorted(reductions, key=lambda loop: loop.arg[0])
    return list(dict.fromkeys(found))


def fitting_lanes(size: int, lanes: int, rests: float | None) -> int | None:
    """A number of lanes that divides the size, else a full vector.

    `rests`: so many vectors cost as much as the last one of a row with a rest, and the cheapest row is taken; None: a
    short row with a rest does not pay.
    """
    if size < LEAST_LANES:
        return None
    widths = [n for n in (LEAST_LANES, 8, 16) if n <= lanes]
    if rests is not None and widths:
        return min(widths, key=lambda n: -(-size // n) + (rests - 1 if size % n else 0))
    fitting = next((n for n in reversed(widths) if size % n == 0), None)
    if fitting is None or (fitting < lanes and size >= 4 * lanes):
        return lanes if size > lanes else None
    return fitting


def _pays_to_fill(loop: UOp, lanes: int, by_lane: int, nest: Nest) -> bool:
    """Whether what a vector computes at once takes longer for each lane by itself than filling so many vectors does."""
    saved = cycles_along(loop, nest.free) * (lanes - 1)
    return saved > by_lane * lanes * nest.target.core.gather_cycles


def cycles_along(loop: UOp, free: Mapping[UOp, frozenset[UOp]]) -> float:
    """Cycles of the operations of an iteration, but for those on index terms."""
    work = [n.op for n in free if is_work_along(n, loop, free)]
    return sum([OPERATION_CYCLES.get(op, SHORT_CYCLES) for op in work])


def is_work_along(node: UOp, loop: UOp, free: Mapping[UOp, frozenset[UOp]]) -> bool:
    """Whether a node computes another value in each iteration of a loop, and no index."""
    return loop in free[node] and node.op in ELEMENTWISE and node.dtype is not dtypes.index


def is_costly_along(loop: UOp, free: Mapping[UOp, frozenset[UOp]]) -> bool:
    """Whether each iteration of a loop has an operation of many instructions."""
    return any([n.op in COSTLY and loop in loops for n, loops in free.items()])


def copies_windows(target: Target, override: Schedule) -> bool:
    """Whether what vectors read in steps may be copied first.

    Processors that drivers compile for pick lanes as fast, and the copy is a kernel of its own (measured: pools of stride 2 take 0.4 to 1.1
    times as long without it).
    """
    if override.deinterleaved is not None:
        return override.deinterleaved
    return not target.work_items or target.lockstep > 1


def loads_in_steps(
    kernel: UOp, vectors: tuple[Vectors, ...], target: Target
) -> list[tuple[UOp, UOp]]:
    """The loads that vectors take in steps of a few elements, and often, each with the loop."""
    by_number = {n.arg[0]: n for n in toposort((kernel,)) if n.op is RANGE}
    loops = [by_number[v.loop] for v in vectors if v.loop in by_number]
    return _read_in_steps(kernel, loops, target)


def _read_in_steps(kernel: UOp, loops: list[UOp], target: Target) -> list[tuple[UOp, UOp]]:
    found = []
    for load in [n for n in toposort((kernel,)) if n.op is LOAD]:
        memory, index, *_ = load.src[0].src
        steps = [(loop, coefficient(index, loop) or 0) for loop in loops]
        reads = prod([size_of(loop) for loop in loops_of(index) if is_fixed(loop)])
        if memory.op is not PARAM:
            continue
        is_near = memory.arg[1] * memory.dtype.itemsize <= 2 * target.cache_bytes
        if reads >= (WORTH_A_COPY if is_near else WORTH_A_FAR_COPY) * memory.arg[1]:
            found += [(load, loop) for loop, step in steps if 1 < step <= LARGEST_STEP]
    return found
