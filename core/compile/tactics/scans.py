"""Tactic: the items of a group compute running sums of a row together, in blocks.

Owns: the order of the steps. Does not own: which kernels (schedule/prefix_loops.py), the laws (steps/prefix_blocks.py,
steps/local_buffer.py), waiting for each other (lowering/waits.py).

    out[r, i] = sum[j < n](where(j <= i, x[r, j], 0))

is sums of blocks of 4 elements that lie before the one of i, and what of that block is not behind i. The sums of blocks are kept,
each by another item. Those before a block are again sums of blocks of 16, which are kept, and the rest of one; and so on.
"""

from __future__ import annotations

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.loops import fresh_number, output_loops, size_of
from proofgrad.core.compile.schedule.prefix_loops import AT_ONCE, BLOCK, Along
from proofgrad.core.compile.schedule.vector_lanes import lanes_along
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.local_buffer import local_buffer
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.steps.prefix_blocks import prefix_in_blocks, whole_blocks
from proofgrad.core.compile.steps.prefixes import prefixes
from proofgrad.core.compile.steps.run_as import run_as
from proofgrad.core.compile.steps.split import split_reading_inside
from proofgrad.core.compile.tactics.groups import as_one_loop
from proofgrad.core.compile.tactics.prefix_loops import counting_up
from proofgrad.core.compile.tactics.shared_tiles import in_turns
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort


def in_scans(nest: LoopNest, along: Along, items: int, target: Target) -> LoopNest:
    """A group of so many items for each row."""
    nest, number = counting_up(nest, along)
    around = [x for x in output_loops(nest.graph) if x.arg[0] != number]
    nest = as_one_loop(nest, around, AxisRole.BLOCK)
    loop = _loop(nest.graph, number)
    lanes = lanes_along(nest.graph, loop, target)
    while found := [p.reduction for p in prefixes(nest.graph)]:
        nest = _in_blocks(nest, found[0], items, lanes)
    return _results_in_turns(nest, loop, items, lanes)


def _in_blocks(nest: LoopNest, reduction: UOp, items: int, lanes: int) -> LoopNest:
    """One running sum by blocks, their sums by blocks, until few are left."""
    size, inner = BLOCK, AxisRole.UPCAST
    if lanes > 1:
        size, inner = lanes, AxisRole.VECTOR
    left = size_of(reduction.src[1])
    while left >= 2 * size:
        number = fresh_number(nest.graph)
        blocks, element = NewLoop(number, AxisRole.REDUCE), NewLoop(number + 1, inner)
        made = blocks, element, NewLoop(number + 2, AxisRole.UPCAST)
        nest = prefix_in_blocks(nest, reduction, size, made)
        left = whole_blocks(left, size)
        nest = _kept(nest, UOp.range(left, number, AxisRole.REDUCE), items)
        reduction = _reduction(nest.graph, number)
        size, inner = AT_ONCE, AxisRole.UPCAST
    if left > AT_ONCE:
        return nest
    return run_as(nest, {reduction.src[1]: AxisRole.UPCAST})


def _kept(nest: LoopNest, blocks: UOp, items: int) -> LoopNest:
    """The sums of blocks, one after the other, each computed by another item."""
    (value,) = [x for x in _reduction(nest.graph, blocks.arg[0]).src[0].src if x.op is Ops.REDUCE]
    number = fresh_number(nest.graph)
    nest = local_buffer(nest, value, (blocks,), (NewLoop(number, AxisRole.LANE),))
    whole = UOp.range(size_of(blocks), number, AxisRole.LANE)
    return in_turns(nest, whole, items, 1, number + 1)


def _results_in_turns(nest: LoopNest, loop: UOp, items: int, lanes: int) -> LoopNest:
    """Items take results in turns, so many at once, side by side."""
    number = fresh_number(nest.graph)
    sizes: tuple[int, ...] = (items,)
    made: tuple[NewLoop, ...] = (NewLoop(number + 1), NewLoop(number, AxisRole.LANE))
    if lanes > 1:
        sizes, made = (items, lanes), (*made, NewLoop(number + 2, AxisRole.VECTOR))
    return split_reading_inside(nest, loop, sizes, made)


def _reduction(kernel: UOp, number: int) -> UOp:
    """The one over a loop of its own, by the loop's number."""
    nodes = [n for n in toposort((kernel,)) if n.op is Ops.REDUCE]
    return next(n for n in nodes if n.src[1].arg[0] == number)


def _loop(kernel: UOp, number: int) -> UOp:
    return next(n for n in toposort((kernel,)) if n.op is Ops.RANGE and n.arg[0] == number)
