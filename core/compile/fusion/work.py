"""What it takes to compute elements where a kernel has them, and what a kernel of their own would take: in cycles.

Owns: the estimate. Does not own: cycles of an operation (cost_model.py), where kernels are cut (kernels.py, limits.py).

A kernel of elementwise work alone runs over its memory in whole vectors. In the loops of something else it runs in
vectors of short rows, of which lanes are left empty, or, where vectors run along a reduction, one element at a time.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from math import log2, prod

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.running_reductions import is_running, runs_along
from proofgrad.core.compile.nests.sums_of_products import is_contraction
from proofgrad.core.compile.schedule.copies import is_short
from proofgrad.core.compile.schedule.operation_cycles import (
    OF_ONE_ELEMENT,
    OPERATION_CYCLES,
    SHORT_CYCLES,
)
from proofgrad.core.compile.schedule.wide_vectors import cycles_of_row
from proofgrad.core.ir.op_names import ADD, PAD, REDUCE_AXIS, WHERE
from proofgrad.core.ir.ops import ELEMENTWISE, MOVEMENT, Ops
from proofgrad.core.ir.shapes import elements, is_plain
from proofgrad.core.ir.uop import UOp

# An estimate is not exact: a buffer in the caches has to save so many times what it takes.
CLEARLY = 2
# Lanes of rows side by side are gathered where that takes less than this part of the work on one element after the other.
CLEARLY_LESS = 0.9
# While the next row is added up so many cycles of work on one element show no more (measured: nothing of a division and a sum does, all
# of an exponential).
HIDDEN_CYCLES = 8
# Operations of which one after the other keeps its unit busy, whatever waits beside.
BUSY = {Ops.FDIV: 0.0, Ops.SQRT: 0.0}
_WHOLE: dict[Ops, float] = {}
# Of a value so many nodes are looked at: who computes more has a buffer on the way, or the estimate is too low.
MOST_NODES = 100
# A reduction of so few values is written out, and vectors run along its results.
SHORT_REDUCTION = 16
_SAME_AXIS = frozenset({Ops.SHRINK, Ops.PAD, Ops.FLIP, Ops.DETACH})
_CUTS = frozenset({Ops.SHRINK, Ops.PAD})
_VIEWS = frozenset({Ops.RESHAPE, Ops.PERMUTE, Ops.DETACH})


def cycles_of_work(
    end: UOp, stored: Container[UOp], start: UOp | None = None, parts: Mapping[Ops, float] = _WHOLE
) -> float:
    """Cycles of a vector, or of one element, of `end` and of the elementwise work below it that has no buffer, down to `start`: of so much
    of it as is looked at. `parts`: of such an operation only this part of its cycles."""
    whole, cycles = max(1, elements(end.shape)), 0.0
    for node in _near(end, stored, start):
        if node.op in ELEMENTWISE and (node is end or node not in stored):
            share = min(1.0, elements(node.shape) / whole)
            share *= parts.get(node.op, 1.0)
            cycles += share * OPERATION_CYCLES.get(node.op, SHORT_CYCLES)
    return cycles


def cycles_of_reductions(end: UOp, stored: Container[UOp], target: Target | None = None) -> float:
    """Cycles of a vector of `end` that reductions below it take which have no buffer; one term where a counter may select it.

    Of short rows along memory, which are lanes, each element is gathered, as is what is selected along it. None: of what is gathered nothing is known.
    """
    near = [n for n in _near(end, stored) if n is end or n not in stored]
    gathered = 0.0 if target is None else target.core.gather_cycles * target.lanes(end.dtype)
    cycles = 0.0
    for node in [n for n in near if n.op is REDUCE_AXIS]:
        may_select = may_select_a_term(node, stored)
        is_gathered = (may_select or _is_short(node)) and _reads_along(node)
        term = 0.0 if may_select else SHORT_CYCLES + cycles_of_work(node.src[0], stored)
        each = max(gathered if is_gathered else 0.0, term)
        cycles += each * elements(node.shape if may_select else node.src[0].shape)
    return cycles / max(1, elements(end.shape))


def may_select_a_term(reduction: UOp, stored: Container[UOp]) -> bool:
    """Whether a counter runs along what a reduction combines. One along its results alone selects none: all terms are looked at."""
    waiting = [(reduction.src[0], axis) for axis in reduction.arg[1]]
    seen = set(waiting)
    while waiting and len(seen) < MOST_NODES:
        node, axis = waiting.pop()
        if node.op is Ops.IOTA:
            return True
        for source in [s for s in node.src if s not in stored]:
            below = axis if node.op in ELEMENTWISE else axis_below(node, source, axis)
            if below is not None and (source, below) not in seen:
                seen.add((source, below))
                waiting.append((source, below))
    return False


def _near(end: UOp, stored: Container[UOp], start: UOp | None = None) -> list[UOp]:
    """The nodes that `end` is computed from without a buffer, and those that have one, down to `start`; the nearest, if there are many."""
    found = {end}
    for node in (around := [end]):
        if len(found) >= MOST_NODES:
            break
        if node is end or (node is not start and node not in stored):
            for source in node.src:
                if source not in found:
                    found.add(source)
                    around.append(source)
    return around


def computed_by(end: UOp, stored: Container[UOp]) -> list[UOp]:
    """What a kernel computes, sources first."""
    nodes = end.toposort(lambda n: n is end or n not in stored)
    return [n for n in nodes if n is end or n not in stored]


def buffer_cycles(node: UOp, reads: int, target: Target, work: float = 0.0) -> float:
    """Cycles that storing a value by a kernel of its own, and reading it so many times, takes at most.

    In the caches, where other work hides some of what it takes or it hides other work, CLEARLY times the estimate. What the second cache does not
    hold beside as much that is made of it goes through memory, which all else waits for: but for so many cycles of `work` on what is stored.
    """
    nbytes, core = elements(node.shape) * node.dtype.itemsize, target.core
    if 2 * nbytes > target.room_bytes:
        moved = nbytes / core.memory_bytes_a_cycle
        return core.launch_cycles + max(0.0, moved - work) + reads * moved
    per_cycle = core.cache_bytes_a_cycle if nbytes > target.near_bytes else 2 * target.vector_bytes
    return CLEARLY * (core.launch_cycles + (1 + reads) * nbytes / max(1, per_cycle))


def vectors_of_rows(shape: Sequence[int], lanes: int) -> int:
    """So many vectors has each row by itself."""
    sizes = [size for size in shape if size != 1] or [1]
    return prod(sizes[:-1]) * -(-sizes[-1] // lanes)


def pays_a_buffer(node: UOp, cycles: float, reads: int, target: Target, work: float = 0.0) -> bool:
    """Whether so many cycles are more than to store `node` by a kernel of its own, and to read it so many times."""
    return cycles > buffer_cycles(node, reads, target, work)


def apart_from_rows(
    ends: Mapping[UOp, list[UOp]], nodes: Sequence[UOp], stored: set[UOp], target: Target
) -> set[UOp]:
    """What gets a buffer so that costly elementwise work runs in whole vectors.

    Results of a reduction, whose epilogue is then a kernel of its own, and what is padded. `ends`: the end of each epilogue, with the
    reductions before it.
    """
    if target.vector_bytes == 0 or target.work_items:
        return set()
    found = set()
    for end, reductions in ends.items():
        combining = [n for n in reductions if _combines(n)]
        if len(combining) != 1 or end not in stored or any([n in stored for n in reductions]):
            continue
        (reduction,) = combining
        if end is not reduction and _is_wasted(reduction, end, stored, target):
            found.add(reduction)
    for reductions in ends.values():
        found.update([v for r in reductions if (v := _wasted_before(r, stored, target))])
    written_out = _written_out(nodes)
    for node in nodes:
        if node.op is PAD and is_plain(node.shape):
            value = _joined_before(node, stored | found) if node in written_out else node.src[0]
            source = None if value is None else _below_views(value, stored)
            if source and source not in stored and _is_padded(node, source, stored, target):
                found.add(source)
    return found


def _written_out(nodes: Sequence[UOp]) -> set[UOp]:
    """What is put into its place among others along a short axis, each of whose elements a kernel computes by itself (schedule/copies.py)."""
    joined: dict[UOp, UOp] = {}
    for node in reversed(nodes):
        if node.op is ADD or node.op is WHERE:
            joined.update(dict.fromkeys(node.src[-2:], joined.get(node, node)))
    pads = [node for node in nodes if node.op is PAD and node in joined]
    placed = [pad for pad in pads if is_plain((*pad.shape, *sum(pad.arg, ())))]
    borders: dict[tuple[UOp, int], set[int]] = {}
    for pad in placed:
        for axis, (size, (before, after)) in enumerate(zip(pad.shape, pad.arg)):
            ends = {end for end in (before, size - after) if 0 < end < size}
            borders.setdefault((joined[pad], axis), set()).update(ends)
    chosen = {
        x for x, ends in borders.items() if ends and is_short(x[0].shape[x[1]], len(ends) + 1)
    }
    return {x for x in placed if any([(joined[x], k) in chosen for k, _ in enumerate(x.shape)])}


def axis_below(node: UOp, source: UOp, axis: int) -> int | None:
    """The axis of a source along which neighbours along an axis of a node that moves elements lie; None: it does not change, or nothing is known."""
    if node.op in _SAME_AXIS:
        return axis
    if node.op is Ops.PERMUTE:
        below: int = node.arg[axis]
        return below
    if node.op is Ops.EXPAND:
        return axis if source.shape[axis] != 1 else None
    if node.op is Ops.RESHAPE:
        step = prod(node.shape[axis + 1 :])
        same = [
            a for a, n in enumerate(source.shape) if n != 1 and prod(source.shape[a + 1 :]) == step
        ]
        return same[0] if same else None
    return None


def length_of(reduction: UOp) -> int:
    """How many elements are combined to one."""
    return prod([reduction.src[0].shape[axis] for axis in reduction.arg[1]])


def last_axis(node: UOp) -> int:
    """The last axis of more than one element."""
    return max([a for a, n in enumerate(node.shape) if n != 1], default=0)


def flips_last(node: UOp) -> bool:
    """Whether it turns around the last axis of more than one element."""
    return node.op is Ops.FLIP and bool(node.arg) and bool(node.arg[last_axis(node)])


def _joined_before(pad: UOp, stored: set[UOp]) -> UOp | None:
    """What a value is cut from that was joined along other axes: which part an element is of changes with both, and none is written out."""
    waiting = [(pad.src[0], pad)]  # where it was cut last
    seen = set(waiting)
    while waiting and len(seen) < MOST_NODES:
        node, cut = waiting.pop()
        if node.op is Ops.PAD and cut is not pad:
            return cut.src[0]
        if node.op is Ops.RESHAPE and _axes(node) > _axes(node.src[0]):
            cut = node
        more = [(source, cut) for source in node.src if source not in stored]
        waiting += [one for one in more if one not in seen]
        seen.update(more)
    return None


def _axes(node: UOp) -> int:
    """How many axes have more than one element."""
    return sum([size != 1 for size in node.shape])


def below_movement(node: UOp) -> UOp:
    """What a node shows through movement, padding too."""
    while node.op in MOVEMENT:
        node = node.src[0]
    return node


def _below_views(node: UOp, stored: Container[UOp]) -> UOp:
    """What a node shows in another shape or order, or a view on the way that has a buffer."""
    while node not in stored and node.op in _VIEWS:
        node = node.src[0]
    return node


def _is_wasted(reduction: UOp, end: UOp, stored: set[UOp], target: Target) -> bool:
    """Whether the epilogue of a reduction runs in so few of the lanes that its results are better stored."""
    size, lanes = elements(end.shape), target.lanes(reduction.dtype)
    used = min(1.0, size / max(1, elements(reduction.shape)))  # a slice takes some of the results
    if lanes < 2:
        return False
    near = [n for n in _near(end, stored, reduction) if n is not reduction]
    if any([_combines(n) and n not in stored for n in near]):
        return False  # of the same row: two kernels would reduce it
    is_sum = not is_contraction(reduction)
    is_short = is_sum and not runs_along(reduction) and _is_short(reduction)
    is_short = is_short and _reads_along(reduction) and _rows_join(reduction)
    is_of_scalars = is_short or (is_sum and _is_along_memory(reduction))
    if is_running(reduction) and _is_turned(reduction, near):  # lanes of it lie apart in the end
        is_of_scalars = True
    # Beside the next row of a sum divisions show no more in vectors with empty lanes than in whole ones.
    parts = OF_ONE_ELEMENT if is_of_scalars else BUSY if is_sum else _WHOLE
    work = cycles_of_work(end, stored, reduction, parts)
    if is_of_scalars:
        # Each result of a running sum waits for one addition, that of a row for the last few.
        one = target.core.multiply_add_cycles
        work -= one if is_running(reduction) else HIDDEN_CYCLES
        wasted = work * size - cycles_of_row(work, size / lanes, target)
    elif is_sum:
        rows = _cycles_of_rows(reduction, work, target)
        wasted = used * rows - cycles_of_row(work, size / lanes, target)
    else:  # vectors of a tile lie beside each other
        wasted = work * (used * vectors_of_rows(reduction.shape, lanes) - size / lanes)
    gathered = length_of(reduction) * target.core.gather_cycles
    if is_short and gathered < CLEARLY_LESS * (work + HIDDEN_CYCLES):  # rows are lanes
        wasted = min(wasted, _cycles_apart(reduction, lanes, target))
    return pays_a_buffer(reduction, wasted, 1, target)


def _is_turned(reduction: UOp, near: Sequence[UOp]) -> bool:
    """Whether another axis is the last one behind a move of what is made of a reduction."""
    around = set(near)
    return any(
        [
            reduction in move.toposort(lambda n: n in around)
            for move in near
            if move.op is Ops.PERMUTE and move.arg[last_axis(move)] != last_axis(move.src[0])
        ]
    )


def _cycles_apart(reduction: UOp, lanes: int, target: Target) -> float:
    """How much longer it takes to gather lanes of short rows, side by side, than to add up the lanes of each."""
    gathered = length_of(reduction) * target.core.gather_cycles
    added_up = target.core.multiply_add_cycles * (1 + log2(lanes))
    return max(0.0, gathered - added_up) * elements(reduction.shape)


def _combines(node: UOp) -> bool:
    """Whether it reduces an axis of more than one element."""
    return node.op is Ops.REDUCE_AXIS and node.shape != node.src[0].shape


def _is_along_memory(reduction: UOp) -> bool:
    """Whether a long reduction runs along the last axis of what it reads, in vectors whose sum is one element; a running one along its results'."""
    if running := runs_along(reduction):
        return max([a for a, size in enumerate(reduction.shape) if size != 1], default=0) in running
    return not _is_short(reduction) and _reads_along(reduction)


def _is_short(reduction: UOp) -> bool:
    """Whether it is written out."""
    return length_of(reduction) <= SHORT_REDUCTION


def _reads_along(reduction: UOp) -> bool:
    """Whether what it combines lies side by side in memory."""
    (node,), axes = reduction.src[:1], set(reduction.arg[1])
    order = list(range(len(node.shape)))
    while node.op in ELEMENTWISE or node.op is Ops.PERMUTE:
        if node.op is Ops.PERMUTE:
            order = [order[node.arg.index(axis)] for axis in range(len(order))]
        node = max(node.src, key=lambda source: elements(source.shape))
    sizes = [(axis, size) for axis, size in zip(order, node.shape) if size != 1]
    return len(order) == len(node.shape) and bool(sizes) and sizes[-1][0] in axes


def _rows_join(reduction: UOp) -> bool:
    """Whether vectors of results go on from one row of them into the next: nothing is reduced between rows, as over windows of several lines, and no
    row is read as a part of a longer one, or overlaps the next."""
    node = reduction.src[0]
    kept = [axis for axis, size in enumerate(reduction.shape) if size != 1]
    between = range(kept[0], kept[-1]) if kept else range(0)
    if any([axis in between for axis in reduction.arg[1] if node.shape[axis] != 1]):
        return False
    while node.op in ELEMENTWISE or node.op in MOVEMENT:
        if node.op is Ops.SKEW or (node.op in _CUTS and _cuts_rows(node)):
            return False
        node = max(node.src, key=lambda source: elements(source.shape))
    return True


def _cuts_rows(move: UOp) -> bool:
    """Whether rows, of which there are several, are made longer or shorter."""
    both = zip(move.shape, move.src[0].shape)
    return any([n != m and prod(move.shape[:axis]) > 1 for axis, (n, m) in enumerate(both)])


def _wasted_before(reduction: UOp, stored: set[UOp], target: Target) -> UOp | None:
    """What a reduction whose results are lanes combines, where that is computed in so few of them that it is better stored."""
    lanes, value = target.lanes(reduction.dtype), below_movement(reduction.src[0])
    if lanes < 2 or value in stored or value.op not in ELEMENTWISE or not _combines(reduction):
        return None
    if is_contraction(reduction) or is_running(reduction) or _is_along_memory(reduction):
        return None
    if any([_combines(n) for n in _near(value, stored) if n not in stored]):
        return None
    work, size = cycles_of_work(value, stored), elements(value.shape)
    taken = length_of(reduction) * _cycles_of_rows(reduction, work, target)
    wasted = taken - cycles_of_row(work, size / lanes, target)
    # Of divisions and roots, which take less in vectors narrower than those of the table, none is counted beside memory.
    beside = cycles_of_row(cycles_of_work(value, stored, parts=BUSY), size / lanes, target)
    return value if pays_a_buffer(value, wasted, 1, target, beside) else None


def _cycles_of_rows(reduction: UOp, work: float, target: Target) -> float:
    """Cycles of work on each result of a reduction, in vectors of its rows."""
    lanes, size = target.lanes(reduction.dtype), elements(reduction.shape)
    if _rows_join(reduction):
        return cycles_of_row(work, size / lanes, target)
    if not size:
        return 0
    vectors = vectors_of_rows(reduction.shape, lanes)
    row = -(-reduction.shape[last_axis(reduction)] // lanes)
    return vectors / row * cycles_of_row(work, row, target)


def _is_padded(pad: UOp, source: UOp, stored: set[UOp], target: Target) -> bool:
    """Whether what is padded is costly, and computed for many lanes that are not in it; reductions for all that is around it."""
    lanes = target.lanes(source.dtype)
    if lanes < 2 or (source.op not in ELEMENTWISE and source.op is not Ops.REDUCE_AXIS):
        return False
    near = _near(source, stored)
    if len(near) >= MOST_NODES or any([is_running(n) for n in near if n.op is REDUCE_AXIS]):
        return False
    size = elements(source.shape)
    cycles = cycles_of_work(source, stored) * (vectors_of_rows(pad.shape, lanes) - size / lanes)
    cycles += cycles_of_reductions(source, stored, target) * (elements(pad.shape) - size) / lanes
    return pays_a_buffer(source, cycles, 1, target)
