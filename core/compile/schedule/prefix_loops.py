"""Kernels whose reductions run along with a loop of the results, as running sums do: how they run.

Owns: which kernels these are, which of their loops run as vectors, of which so many run side by side. Does not own: the
steps that apply it (tactics/prefix_loops.py, steps/carry.py).

Each iteration of such a loop waits for the one before, some cycles for each addition. So rows of results run side by side:
as lanes where they lie side by side in memory, else as copies.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import (
    NO_COPIES,
    NO_GROUP,
    Copies,
    Group,
    Schedule,
    Vectors,
)
from proofgrad.core.compile.nests.loops import BINDERS, output_loops, size_of
from proofgrad.core.compile.nests.running_reductions import SHORT
from proofgrad.core.compile.nests.strides import coefficient, loops_of
from proofgrad.core.compile.schedule.cache_sets import lines_of_a_set
from proofgrad.core.compile.schedule.threads import operations, runs_in_order, shares_work
from proofgrad.core.compile.steps.prefixes import Prefix, is_whole, prefix_of
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort

LEAST_LANES = 4
# Elements that an item of a group takes at once, and sums of blocks that it adds up.
BLOCK, AT_ONCE = 4, 16
# Rows of fewer elements are an item's each.
LEAST_OF_GROUP = 128
# Cores start so many additions of one element in a cycle, of vectors perhaps fewer.
STARTED_A_CYCLE = 2


@dataclass(frozen=True, slots=True)
class Along:
    """The loop of results that the reductions of a kernel run along with."""

    loop: UOp
    prefixes: tuple[Prefix, ...]


def find_along(kernel: UOp) -> Along | None:
    """The loop of results that all reductions of a kernel can run along with; None: there is none."""
    nodes = toposort((kernel,))
    found = [prefix_of(n) for n in nodes if n.op in BINDERS]
    prefixes = tuple([one for one in found if one is not None])
    if not prefixes or len(prefixes) < len(found) or runs_in_order(kernel):
        return None
    first, outputs = prefixes[0], loops_of(kernel)
    ways = {(p.along, p.along_counts_up) for p in prefixes}
    own_ways = {(p.own, p.own_counts_up) for p in prefixes}
    alike = len(ways) == 1 and len(own_ways) == len({own for own, _ in own_ways})
    inner = any([n.op in BINDERS for p in prefixes for n in toposort((p.value,))])
    fixed = first.along in outputs and is_whole(first.along) and size_of(first.along) > SHORT
    free = frozenset().union(*[loops_of(p.reduction) for p in prefixes])
    if not alike or inner or not fixed or not free <= outputs:
        return None
    return Along(first.along, prefixes)


def schedule_along(kernel: UOp, along: Along, target: Target, override: Schedule) -> Schedule:
    """Vectors and copies of the loops around the one that reductions run along with; or groups that take rows in blocks."""
    if group := _group(kernel, along, target, override):
        return Schedule(reduction_block=0, group=group, threads=False)
    lanes = _vectors(kernel, along, target, override)
    copies = _copies(kernel, along, target, override) if lanes is None else NO_COPIES
    return Schedule(
        buffered=False,
        tiled=False,
        reduction_block=0,
        vectors=() if lanes is None else (lanes,),
        copies=copies,
        unroll=1,
        deinterleaved=False,
        group=NO_GROUP if target.group_items else None,
        threads=shares_work(operations(kernel) // size_of(along.loop), target, override),
    )


def _group(kernel: UOp, along: Along, target: Target, override: Schedule) -> Group | None:
    """The items of a group that take a row in blocks, if elements that follow each other lie side by side; None: it is one item's."""
    if not target.group_items or target.lockstep == 1 or not target.vector_bytes:
        return None
    positions = [n.src[0].src[1] for n in toposort((kernel,)) if n.op is Ops.STORE]
    loads = [
        n.src[0].src[1] for p in along.prefixes for n in toposort((p.value,)) if n.op is Ops.LOAD
    ]
    own = [coefficient(x, p.own) for x in loads for p in along.prefixes if p.own in loops_of(x)]
    steps = [*own, *[coefficient(x, along.loop) for x in positions]]
    is_along = all([step in (1, -1) for step in steps])
    size = max([size_of(along.loop), *[size_of(p.own) for p in along.prefixes]])
    least = min([size_of(along.loop), *[size_of(p.own) for p in along.prefixes]])
    kept = sum([size * p.reduction.dtype.itemsize // (BLOCK - 1) for p in along.prefixes])
    room = target.local_bytes_of(2 * target.unit_groups)
    if not is_along or least < LEAST_OF_GROUP or kept > room:
        return None
    if override.group is not None:
        asked = min(override.group.items, target.group_items)
        return Group(1, asked) if asked else None  # an item of its own
    return Group(1, min(target.group_items, 1 << (size // BLOCK - 1).bit_length()))


def loops_around(kernel: UOp, along: Along) -> list[UOp]:
    """The other loops of known size of the results, in order."""
    return [x for x in output_loops(kernel) if x is not along.loop]


def _vectors(kernel: UOp, along: Along, target: Target, override: Schedule) -> Vectors | None:
    """The loop along which all memory is contiguous, or the same, as vectors."""
    nodes = toposort((kernel,))
    positions = [n.src[0].src[1] for n in nodes if n.op in (Ops.LOAD, Ops.STORE)]
    stored = [n.src[0].src[1] for n in nodes if n.op is Ops.STORE]
    widest = max(
        [n.dtype for n in nodes if n.op in (Ops.LOAD, Ops.REDUCE)], key=lambda d: d.itemsize
    )
    lanes = target.lanes(widest) if target.vector_bytes else 1
    if override.vectors == () or lanes < 2:
        return None
    for loop in loops_around(kernel, along):
        steps = [coefficient(position, loop) for position in positions]
        if not all([s in (0, 1) for s in steps]) or size_of(loop) < LEAST_LANES:
            continue
        if all([coefficient(position, loop) == 1 for position in stored]):
            return _of(loop, lanes, target) if _is_enough(kernel, along, lanes, target) else None
    return None


def _is_enough(kernel: UOp, along: Along, lanes: int, target: Target) -> bool:
    """Whether so many rows for each item leave items for all units, where there are units."""
    items = prod([size_of(x) for x in loops_around(kernel, along)]) // lanes
    return not target.units or items >= target.units * target.group_items


def _of(loop: UOp, lanes: int, target: Target) -> Vectors:
    """As many lanes as fit, and as many vectors at once as an addition takes cycles."""
    size = size_of(loop)
    while lanes > LEAST_LANES and lanes > size:
        lanes //= 2
    at_once = 1 if target.units else target.core.multiply_add_cycles  # other items go on meanwhile
    while at_once > 1 and at_once * lanes > size:
        at_once //= 2
    return Vectors(loop.arg[0], lanes, at_once)


def _copies(kernel: UOp, along: Along, target: Target, override: Schedule) -> Copies:
    """As many rows side by side as additions are started while one waits for itself: of integers, which wait for a cycle, one row.

    More rows read more pages, and integers have half as many registers as that (measured: 16 rows of int64, of which the largest
    so far is taken, take twice as long as 8, 4 a third longer; one row of int32 is added up in 3/5 of the time of 4).
    """
    if target.work_items:
        return NO_COPIES
    count = min(STARTED_A_CYCLE * target.core.multiply_add_cycles, target.vector_registers // 2)
    if all([p.reduction.arg is Ops.ADD and p.reduction.dtype.is_int for p in along.prefixes]):
        count = 1
    around = [x for x in loops_around(kernel, along) if size_of(x) > 1]
    if override.copies is not None:
        count = override.copies.count
        named = [x for x in around if x.arg[0] == override.copies.loop]
        around = named or around
    if not around or count < 2:
        return NO_COPIES
    loop = max(around, key=size_of)
    count = min(count, size_of(loop))
    while override.copies is None and count > 2 and not _stay(kernel, loop, count, target):
        count //= 2
    return Copies(loop.arg[0], count)


def _stay(kernel: UOp, loop: UOp, count: int, target: Target) -> bool:
    """Whether the first cache keeps a line of each of so many rows of all memories, if those fall into the same sets."""
    accesses = [n.src[0] for n in toposort((kernel,)) if n.op in (Ops.LOAD, Ops.STORE)]
    steps = [(coefficient(x.src[1], loop) or 0) * x.dtype.itemsize for x in dict.fromkeys(accesses)]
    cache = target.first_cache
    lines = [lines_of_a_set(step, count, cache) for step in steps if step]
    return sum(lines) <= cache.ways
