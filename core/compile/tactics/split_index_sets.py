"""Tactic: where memories are joined along a loop, each is copied by a loop of its own.

Does not own: the law (steps/split_index_set.py), which values of a program get a buffer (fusion/kernels.py).

    for i < 5: out[i] = where(i < 2, a[i if i < 2], b[i - 2 if 1 < i])   =   for j < 2: out[j] = a[j];  for j < 3: out[j + 2] = b[j]

One loop would ask at each element for all of them: of n memories it takes n times as long.
"""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import NamedTuple

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.loops import is_fixed, output_loops, size_of
from proofgrad.core.compile.nests.strides import coefficient
from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.schedule.copies import WORK_OF_A_STEP
from proofgrad.core.compile.schedule.operation_cycles import OPERATION_CYCLES, SHORT_CYCLES
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.steps.split_index_set import split_index_set
from proofgrad.core.compile.steps.window import iterations_of
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.uop import UOp, toposort

# A vector of a memory that is not there at an element: a load under a mask that is off, and a choice.
CYCLES_OF_A_CHOICE = 2
# Each part is a kernel, which takes some milliseconds to compile: of more memories several are in one.
MOST_PARTS = 16


class Cut(NamedTuple):
    """The borders at which a loop is cut, and the cycles that this saves."""

    loop: UOp
    borders: tuple[int, ...]
    saved: float


def split_index_sets(nest: LoopNest, context: Context) -> LoopNest | tuple[LoopNest, ...]:
    """The loop along which most memories are joined as one loop for each of them, if that pays; in order."""
    target, graph = context.target, nest.graph
    if len(graph.src) > 1 or len(graph.src[0].src) > 2 or (target.lockstep or 1) > 1:
        return nest  # items that run in step skip what they do not need
    if not _is_by_element(graph):
        return nest
    cuts = [cut for loop in output_loops(graph) if (cut := _cut(graph, loop, target)) is not None]
    best = max(cuts, key=lambda cut: cut.saved, default=None)
    if best is None or best.saved <= 0:
        return nest
    return split_index_set(nest, best.loop, best.borders)


def _is_by_element(graph: UOp) -> bool:
    """Whether each element is computed by itself, of loops of known sizes, and of memory that is changed in place of what it was."""
    position, value = graph.src[0].src[:2]
    while value.op is Ops.WHERE:
        value = value.src[2]
    if value.op is Ops.LOAD and value.src[0] is position:
        return False  # what is left as it is: another tactic's
    return not any(
        [
            node.op in (Ops.REDUCE, Ops.LOCAL_BUFFER)
            or (node.op is Ops.RANGE and not is_fixed(node))
            or (node.op is Ops.INDEX and node.src[0] is position.src[0] and node is not position)
            for node in toposort((graph,))
        ]
    )


def _cut(graph: UOp, loop: UOp, target: Target) -> Cut | None:
    """Where masks begin and end along a loop; None if that is nowhere."""
    size = size_of(loop)
    windows = [iterations_of(load, loop) for load in toposort((graph,)) if load.op is Ops.LOAD]
    ends = sorted({end for window in windows for end in window if 0 < end < size})
    borders = _evenly(ends, MOST_PARTS - 1)
    if not borders:
        return None
    parts = list(pairwise((0, *borders, size)))
    lanes = max(1, target.vector_bytes // graph.src[0].src[1].dtype.itemsize)
    other = prod([size_of(x) for x in output_loops(graph) if x is not loop])
    left_out = sum(
        [
            end - first
            for first, end in parts
            for begin, behind in windows
            if behind <= first or end <= begin
        ]
    )
    saved = other * left_out / lanes * CYCLES_OF_A_CHOICE
    shared = sum([_cycles_at_a_border(graph, loop, border, target) for border in borders])
    if coefficient(graph.src[0].src[0].src[1], loop) == 1:
        short = sum([end - first for first, end in parts if end - first < lanes])
        shared += other * short * _cycles_of_an_element(graph)
    return Cut(loop, tuple(borders), saved - len(borders) * target.core.launch_cycles - shared)


def _cycles_of_an_element(graph: UOp) -> float:
    """Of a part that is too short for vectors."""
    work = [n for n in toposort((graph,)) if n.op in ELEMENTWISE and n.dtype is not dtypes.index]
    steps = (WORK_OF_A_STEP + len(output_loops(graph))) * SHORT_CYCLES
    return steps + sum([OPERATION_CYCLES.get(node.op, SHORT_CYCLES) for node in work])


def _cycles_at_a_border(graph: UOp, loop: UOp, border: int, target: Target) -> float:
    """Cycles to write twice the lines that two parts share, one in each iteration of the loops outside, where results do not stay in the
    second cache. (Measured: zeros above and below 388 images of 12 x 37 take 78 us in three parts, 69 in one.)
    """
    (memory, position), loops = graph.src[0].src[0].src[:2], output_loops(graph)
    itemsize, outside = memory.dtype.itemsize, loops[: loops.index(loop)]
    moves = [(coefficient(position, loop) or 0) * border]
    moves += [coefficient(position, x) or 0 for x in outside]
    is_between_lines = all([move * itemsize % target.first_cache.line_bytes == 0 for move in moves])
    if is_between_lines or memory.arg[1] * itemsize <= target.room_bytes:
        return 0.0
    return prod([size_of(x) for x in outside]) * target.core.memory_line_cycles


def _evenly(ends: list[int], most: int) -> list[int]:
    """At most so many of them, as many of the others between each two."""
    count = min(len(ends), most)
    return [ends[len(ends) * (k + 1) // (count + 1)] for k in range(count)]
