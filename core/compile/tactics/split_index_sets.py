"""Tactic: where memories are joined along a loop, or rows of one that lie apart, each part of it is a loop of its own.

Does not own: the law (steps/split_index_set.py), which values of a program get a buffer (fusion/kernels.py).

    for i < 5: out[i] = where(i < 2, a[i if i < 2], b[i - 2 if 1 < i])   =   for j < 2: out[j] = a[j];  for j < 3: out[j + 2] = b[j]

One loop would ask at each element for all of them: of n memories it takes n times as long.

    for i < 15: out[i] = a[(i + 2) % 6 * 9 + (i + 2) // 6]   =   for j < 4: out[j] = a[j * 9 + 18]
                                                                 for r < 1: for c < 6: out[4 + 6 * r + c] = a[c * 9 + r + 1];  ...

One that begins or ends within a row would divide out row and column of each element; where rows are whole, they are loops (separate.py).
"""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import NamedTuple

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.loops import is_fixed, output_loops, size_of
from proofgrad.core.compile.nests.strides import coefficient, loops_of
from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.schedule.copies import WORK_OF_A_STEP
from proofgrad.core.compile.schedule.operation_cycles import (
    DIVISION_CYCLES,
    OPERATION_CYCLES,
    SHORT_CYCLES,
)
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.steps.split_index_set import split_index_set
from proofgrad.core.compile.steps.window import iterations_of
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.op_names import INDEX, LOAD, LOCAL_BUFFER, MOD, RANGE, REDUCE
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.shapes import sizes
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
    """The loop along which most memories, or rows of one, are joined as one loop for each part of it, if that pays; in order."""
    target, graph = context.target, nest.graph
    if len(graph.src) > 1 or len(graph.src[0].src) > 2 or (target.lockstep or 1) > 1:
        return nest  # items that run in step skip what they do not need
    if not _may_have_borders(graph) or not _is_by_element(graph):
        return nest
    cuts = [cut for loop in output_loops(graph) if (cut := _cut(graph, loop, target)) is not None]
    best = max(cuts, key=lambda cut: cut.saved, default=None)
    if best is None or best.saved <= 0:
        return nest
    return split_index_set(nest, best.loop, best.borders)


def _may_have_borders(graph: UOp) -> bool:
    """Whether a load has a mask, or a remainder may be a place in a row: without either no loop has a border."""
    nodes = toposort((graph,))
    return any([n.op is MOD or (n.op is LOAD and len(n.src[0].src) > 2) for n in nodes])


def _is_by_element(graph: UOp) -> bool:
    """Whether each element is computed by itself, or is a sum of its own, of loops of known sizes; none of memory that is changed in place of what it was."""
    position, value = graph.src[0].src[:2]
    while value.op is Ops.WHERE:
        value = value.src[2]
    if value.op is Ops.LOAD and value.src[0] is position:
        return False  # what is left as it is: another tactic's
    return not any(
        [
            node.op is LOCAL_BUFFER
            or (node.op is RANGE and not is_fixed(node))
            or (node.op is INDEX and node.src[0] is position.src[0] and node is not position)
            for node in toposort((graph,))
        ]
    )


class Rows(NamedTuple):
    """Where a load is on along a loop, and into which rows it divides that: iteration i is at `offset + i`, of which each row is `length` long."""

    begin: int
    end: int
    offset: int
    length: int

    def whole(self) -> tuple[int, int]:
        """From which iteration on and before which one rows are whole."""
        begin = min(self.end, self.begin - (self.begin + self.offset) % -self.length)
        return begin, begin + (self.end - begin) // self.length * self.length

    def divides(self, first: int, end: int) -> bool:
        """Whether a loop over these iterations divides: it is not of whole rows, nor in one."""
        start = (first + self.offset) % self.length
        is_whole = start == 0 and (end - first) % self.length == 0
        return not is_whole and start + end - first > self.length


def _cut(graph: UOp, loop: UOp, target: Target) -> Cut | None:
    """Where masks, or whole rows, begin and end along a loop; None if that is nowhere."""
    size, lanes = size_of(loop), max(1, target.vector_bytes // graph.src[0].src[1].dtype.itemsize)
    loads = [load for load in toposort((graph,)) if load.op is LOAD]
    windows = [iterations_of(load, loop) for load in loads]
    found_rows = [_rows(load, loop, window) for load, window in zip(loads, windows)]
    rows = [r for r in found_rows if r is not None and r.length >= lanes]
    found = {end for window in (*windows, *[r.whole() for r in rows]) for end in window}
    borders = _evenly(sorted([end for end in found if 0 < end < size]), MOST_PARTS - 1)
    if not borders:
        return None
    parts = list(pairwise((0, *borders, size)))
    other = prod([size_of(x) for x in output_loops(graph) if x is not loop])
    summed = _loops_of_reductions(graph)
    left_out = sum(
        [
            (end - first) * prod([size_of(x) for x in summed & loops_of(load)])
            for first, end in parts
            for load, (begin, behind) in zip(loads, windows)
            if behind <= first or end <= begin
        ]
    )
    saved = other * left_out / lanes * CYCLES_OF_A_CHOICE
    if any([r.divides(0, size) for r in rows]):
        undivided = [
            end - first
            for first, end in parts
            if not any([r.divides(max(first, r.begin), min(end, r.end)) for r in rows])
        ]
        saved += other * sum(undivided) * (DIVISION_CYCLES + target.core.gather_cycles)
    shared = sum([_cycles_at_a_border(graph, loop, border, target) for border in borders])
    if coefficient(graph.src[0].src[0].src[1], loop) == 1:
        short = sum([end - first for first, end in parts if end - first < lanes])
        shared += other * short * _cycles_of_an_element(graph)
    return Cut(loop, tuple(borders), saved - len(borders) * target.core.launch_cycles - shared)


def _loops_of_reductions(graph: UOp) -> frozenset[UOp]:
    return frozenset([x for n in toposort((graph,)) if n.op is REDUCE for x in n.src[1:]])


def _rows(load: UOp, loop: UOp, window: tuple[int, int]) -> Rows | None:
    """The shortest rows into which the place of a load divides a loop; None: into none."""
    found = list[Rows]()
    for node in toposort((load.src[0].src[1],)):
        way = coefficient(node.src[0], loop) if node.op is MOD else None
        if node.src[1:] and node.src[1].op is Ops.CONST and (way == 1 or way == -1):
            start = node.src[0].substitute({loop: UOp.index(0)})
            if sizes().is_size_or_number(start) and start.vmin == start.vmax:
                offset = start.vmin if way == 1 else -1 - start.vmin  # rows begin at their ends
                found.append(Rows(*window, offset, node.src[1].arg))
    return min(found, key=lambda rows: rows.length, default=None)


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
