"""Tactics: a reduction over the first iterations of a loop of results runs along with it, each element one addition.

Owns: the order of the steps. Does not own: which kernels, and what runs as vectors (schedule/prefix_loops.py), the laws
(steps/carry.py, steps/reverse.py).

    for r: for i: out[r, i] = sum[j](where(j <= i, x[r, j], 0))
        =   for r: s = 0; for i, in order: s = s + x[r, i]; out[r, i] = s
"""

from __future__ import annotations

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import NO_COPIES, Schedule
from proofgrad.core.compile.nests.loops import fresh_number, output_loops, size_of
from proofgrad.core.compile.schedule.prefix_loops import Along
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.carry import carry
from proofgrad.core.compile.steps.loop_nest import LoopNest, StepRefused
from proofgrad.core.compile.steps.prefixes import prefixes
from proofgrad.core.compile.steps.reorder import reorder
from proofgrad.core.compile.steps.reverse import reverse
from proofgrad.core.compile.steps.run_as import run_as
from proofgrad.core.compile.steps.split import split
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort


def leave_whole(nest: LoopNest, along: Along, schedule: Schedule, target: Target) -> LoopNest:
    """The loop that reductions run along with inside of all others, counting up; vectors, copies and threads around it."""
    nest, number = counting_up(nest, along)
    for vectors in schedule.vectors or ():
        loop = _loop(nest.graph, vectors.loop)
        nest = _in_vectors(nest, loop, vectors.lanes, vectors.at_once)
    copies = schedule.copies or NO_COPIES
    if copies.loop is not None and copies.count > 1:
        loop = _loop(nest.graph, copies.loop)
        made = (NewLoop(*loop.arg), NewLoop(fresh_number(nest.graph), AxisRole.UPCAST))
        nest = split(nest, loop, (copies.count,), made)
    return _shared(nest, number, target) if schedule.threads else nest


def counting_up(nest: LoopNest, along: Along) -> tuple[LoopNest, int]:
    """The loop that reductions run along with inside of all others, each of them over its first iterations; its number."""
    down = {prefix.own: None for prefix in along.prefixes if not prefix.own_counts_up}
    for own in down:
        nest = reverse(nest, own)
    if not along.prefixes[0].along_counts_up:
        nest = reverse(nest, along.loop)
    number = fresh_number(nest.graph)
    return reorder(nest, along.loop, number), number


def carry_registers(nest: LoopNest) -> LoopNest:
    """Each reduction over the first iterations of a loop that was left whole becomes a register of it."""
    reductions = tuple([prefix.reduction for prefix in prefixes(nest.graph)])
    if not reductions:
        return nest
    try:
        return carry(nest, reductions)
    except StepRefused:  # then it combines all of them for each element
        return nest


def _in_vectors(nest: LoopNest, loop: UOp, lanes: int, at_once: int) -> LoopNest:
    number = fresh_number(nest.graph)
    lane = NewLoop(number, AxisRole.VECTOR)
    if at_once == 1:
        return split(nest, loop, (lanes,), (NewLoop(*loop.arg), lane))
    made = (NewLoop(*loop.arg), NewLoop(number + 1, AxisRole.UPCAST), lane)
    return split(nest, loop, (at_once, lanes), made)


def _shared(nest: LoopNest, along: int, target: Target) -> LoopNest:
    """Threads share the outermost loop around that is long enough."""
    around = [
        x for x in output_loops(nest.graph) if x.arg[1] is AxisRole.LOOP and x.arg[0] != along
    ]
    loop = next((x for x in around if size_of(x) >= target.threads), None)
    return nest if loop is None else run_as(nest, {loop: AxisRole.THREAD})


def _loop(kernel: UOp, number: int | None) -> UOp:
    return next(n for n in toposort((kernel,)) if n.op is Ops.RANGE and n.arg[0] == number)
