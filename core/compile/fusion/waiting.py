"""How long a kernel waits whose loops over a row need what the loops before have found: a mean, then a variance, then the row.

Owns: the estimate, whether kernels that have a loop each over all rows take less. Does not own: which reductions run row by row (rows.py).

A row begins when the one before has ended, but for instructions that the core foresees. From the first load of a row to its last store takes a while, in
which little is done: lanes are added up one after the other, then a root of one element. Of short rows the core foresees the next few, of long ones it
has work enough meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import ceil, log2

from proofgrad.core.compile.fusion.work import (
    BUSY,
    CLEARLY,
    SHORT_REDUCTION,
    computed_by,
    cycles_of_work,
    pays_a_buffer,
)
from proofgrad.core.compile.machine.machine import Core
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.schedule.operation_cycles import COSTLY, OPERATION_CYCLES, SHORT_CYCLES
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.shapes import elements
from proofgrad.core.ir.uop import UOp

# Instructions for each half of the lanes of a vector that is added to the other one.
HALVES = 2


def waits_longer(
    node: UOp, end: UOp, longest: int, inside: Sequence[UOp], stored: set[UOp], target: Target
) -> bool:
    """Whether rows of `longest` elements wait longer in the kernel of `end`, with `node` and what it computes `inside`, than a kernel takes that has
    a loop over all rows for `node`."""
    lanes = 0 if target.work_items else target.lanes(node.dtype)
    rows = elements(node.shape)
    if lanes < 2 or not rows:
        return False
    together = list(dict.fromkeys((*computed_by(node, stored), *inside)))
    if any(map(_is_long, together)):
        # of short rows, which are written out, where nothing is stored of each element
        are_lanes = longest <= SHORT_REDUCTION and elements(end.shape) <= rows
        return not are_lanes and _waits_in_loops(node, end, longest, inside, stored, target)
    waits = _waits(together, rows, longest, lanes, target.core)
    waits -= _waits(inside, rows, longest, lanes, target.core)
    return rows * waits > _cycles_to_read(rows * longest * node.dtype.itemsize, target)


def _is_long(node: UOp) -> bool:
    """Whether it is a chain of instructions itself, in whose loop a core has work enough."""
    return node.op in COSTLY and node.op not in BUSY


def _waits_in_loops(
    node: UOp, end: UOp, longest: int, inside: Sequence[UOp], stored: set[UOp], target: Target
) -> bool:
    """The same of loops over long work, as of an exponential, which is a chain of operations itself.

    A core has busy units while as many vectors as it adds up at once go on side by side: those of the row, or what it foresees of the next ones.
    """
    lanes, core = target.lanes(node.dtype), target.core
    work = max([cycles_of_work(n, stored, parts=BUSY) for n in (end, node)])
    vectors = longest / lanes
    foreseen = core.foreseen_instructions * SHORT_CYCLES / max(work, SHORT_CYCLES)
    side_by_side = max(1.0, vectors, foreseen)
    waits = work * vectors * max(0.0, core.sums_at_once / side_by_side - 1)
    loops = sum([n.op is Ops.REDUCE_AXIS for n in inside])  # over a row, beside the last
    return pays_a_buffer(end, waits * elements(node.shape), loops, target)


def _waits(nodes: Collection[UOp], rows: int, longest: int, lanes: int, core: Core) -> float:
    """Cycles of a row in which a core has nothing to do, for all that it foresees waits."""
    chain = _chain(nodes, lanes, core) - core.foreseen_instructions * SHORT_CYCLES
    foreseen = _instructions(nodes, rows, longest, lanes) / core.foreseen_instructions
    return max(0.0, chain) * min(1.0, foreseen)


def _chain(nodes: Collection[UOp], lanes: int, core: Core) -> float:
    """Cycles from the first sum of a row to what is last made of it, each operation as soon as it can be."""
    ends: dict[UOp, float] = {}
    for node in nodes:
        before = max([ends.get(source, 0.0) for source in node.src], default=0.0)
        if node.op is Ops.REDUCE_AXIS and node.shape != node.src[0].shape:
            before += HALVES * log2(lanes) * core.multiply_add_cycles
        elif before and node.op in ELEMENTWISE:
            before += core.multiply_add_cycles + OPERATION_CYCLES.get(node.op, 0.0)
        ends[node] = before
    return max(ends.values(), default=0.0)


def _instructions(nodes: Collection[UOp], rows: int, longest: int, lanes: int) -> float:
    """So many a row has: vectors of elements, and single ones of what there is one of."""
    vectors, count = ceil(longest / lanes), 0.0
    for node in nodes:
        if node.op is Ops.REDUCE_AXIS and node.shape != node.src[0].shape:
            count += 2 * vectors + HALVES * log2(lanes)  # loaded, and added up
        elif node.op in ELEMENTWISE:
            each = OPERATION_CYCLES[node.op] / SHORT_CYCLES if _is_long(node) else 1.0
            count += each * ceil(elements(node.shape) / rows / lanes)
    return count + 2 * vectors  # and loaded for the last loop, and stored


def _cycles_to_read(nbytes: int, target: Target) -> float:
    """What one more kernel takes to read all rows again."""
    core = target.core
    if nbytes > target.room_bytes:
        return core.launch_cycles + nbytes / core.memory_bytes_a_cycle
    per_cycle = core.cache_bytes_a_cycle if nbytes > target.near_bytes else 2 * target.vector_bytes
    return CLEARLY * (core.launch_cycles + nbytes / max(1, per_cycle))
