"""Tactic: what the loops over a row of a group read, or compute, alike is done once, and kept in memory of the group.

Owns: which values are kept, as far as there is room. Does not own: the law (steps/local_buffer.py), which values are alike
(tactics/local_buffers.py), waiting for each other (lowering/waits.py).

A softmax reads a row for its maximum, again for the sum and again for the result. Here the items of a group copy it into memory of
the group, in the order in which it lies, and all three read it there; and so what exp2 gave for the sum, which the result needs, too.
Where items take the elements in the same turns each time, each reads only what it has put there: then it is in their registers
(lowering/held_by_items.py), of which there are more.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.loops import fresh_number, output_loops, size_of
from proofgrad.core.compile.schedule.groups import rows_to_share
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.collapse import collapse
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.steps.split import split
from proofgrad.core.compile.tactics.local_buffers import (
    Values,
    computed_alike,
    costly_along,
    is_of_row,
    kept_along_row,
)
from proofgrad.core.compile.tactics.shared_tiles import in_turns
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort


def short_rows_kept(
    nest: LoopNest, of_group: UOp, items: int, lanes: Mapping[int, int], target: Target
) -> LoopNest:
    """The nest whose rows, several a group, are read once, where the items of a row take all of it at once, in their registers.

    `of_group`: the loop over the rows of a group. What reductions over the rows are in is kept when these are made.
    """
    around = [x for x in output_loops(nest.graph) if x.arg[1] is AxisRole.BLOCK or x is of_group]
    for values in (_loads_along, costly_along):
        of_rows = partial(_of_rows, values, around)
        for alike in computed_alike(nest.graph, of_rows):
            loop, value = alike[0]
            width = lanes.get(loop.arg[0], 0)
            is_whole = size_of(loop) == items * width
            below = toposort((value,), lambda n: n.op is not Ops.LOCAL_BUFFER)
            is_ready = all([n.op is not Ops.REDUCE for n in below])
            if not is_whole or not is_ready or width * value.dtype.itemsize > target.row_part_bytes:
                continue
            number = fresh_number(nest.graph)
            nest = kept_along_row(nest, alike, AxisRole.LANE, (of_group,))
            item = UOp.range(items, number + 1, AxisRole.LANE)
            if width > 1:
                made = NewLoop(*item.arg), NewLoop(number + 2, AxisRole.VECTOR)
                nest = split(nest, UOp.range(size_of(loop), *item.arg), (width,), made)
            rows = UOp.range(size_of(of_group), number, AxisRole.REDUCE)
            nest = collapse(nest, (rows, item), NewLoop(number + 3, AxisRole.LANE))
    return nest


def _of_rows(
    values: Values,
    around: list[UOp],
    loop: UOp,
    free: Mapping[UOp, frozenset[UOp]],
    outer: list[UOp],
) -> list[UOp]:
    """The values along a loop that beside it change with the loops around rows."""
    return values(loop, free, [*around, *[x for x in outer if x not in around]])


def rows_kept(nest: LoopNest, items: int, lanes: Mapping[int, int], target: Target) -> LoopNest:
    """The nest whose rows, one a group, are read once, as far as the group has room; so many `lanes` of each loop at once."""
    rows = rows_to_share(nest.graph)
    # Of the sums of the items, and of those that they exchange.
    times = 2 + (target.warp_items - 1).bit_length() if target.warp_items else 2
    parts = sum([times * items * row.dtype.itemsize for row in rows])
    most = (
        target.local_bytes - parts
    )  # with what items hold, which is memory of the group to each step
    room = target.local_bytes_of(target.unit_groups) - parts
    for values in (_loads_along, costly_along):
        held = (
            target.row_part_bytes * items
        )  # values take the registers of what they are computed from
        for alike in computed_alike(nest.graph, values):
            loop, value = alike[0]
            width = lanes.get(loop.arg[0], 0)  # 0: a short one, which each item takes in by itself
            turn = max(1, items * width)
            nbytes = -(-size_of(loop) // turn) * turn * value.dtype.itemsize
            if not width or nbytes > min(most, max(held, room)):
                continue
            most -= nbytes
            held, room = (held - nbytes, room) if nbytes <= held else (held, room - nbytes)
            number = fresh_number(nest.graph)
            nest = kept_along_row(nest, alike, AxisRole.LANE)
            whole = UOp.range(size_of(loop), number, AxisRole.LANE)
            nest = in_turns(nest, whole, items, width, number + 1)
    return nest


def _loads_along(loop: UOp, free: Mapping[UOp, frozenset[UOp]], outer: list[UOp]) -> list[UOp]:
    """What is loaded along a loop from memory of the kernel, and changes beside it with loops around a row only."""
    loads = [n for n in free if n.op is Ops.LOAD and n.src[0].src[0].op is Ops.PARAM]
    return [n for n in loads if loop in free[n] and is_of_row(free[n], loop, outer)]
