"""Tactic: what is read along one loop and stored along another goes through memory of a group, tile by tile.

Owns: the order of the steps. Does not own: whether, and which tile (schedule/transposes.py), the laws (steps/split.py,
steps/local_buffer.py, steps/collapse.py), waiting for each other (lowering/waits.py).

    out[c, r] = x[r, c]

is first tiles of 32 x 32. What a tile reads is kept along r and c, and items take turns at filling it, neighbours along c; then they
take turns at storing it, neighbours along r. Rows are kept 33 elements apart: neighbours along r are in banks of their own.
"""

from __future__ import annotations

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import Transposed
from proofgrad.core.compile.nests.loops import fresh_number, output_loops, size_of
from proofgrad.core.compile.schedule.transposes import find_turned
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.collapse import collapse
from proofgrad.core.compile.steps.local_buffer import local_buffer
from proofgrad.core.compile.steps.loop_nest import LoopNest, require
from proofgrad.core.compile.steps.split import split_reading_inside
from proofgrad.core.compile.tactics.groups import as_one_loop
from proofgrad.core.compile.tactics.shared_tiles import in_turns
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort


def through_memory(nest: LoopNest, tile: Transposed, target: Target) -> LoopNest:
    """The kernel as groups of items, each with a tile."""
    turned = find_turned(nest.graph)
    require(turned is not None, "no load that lies along another loop than what is stored")
    assert turned is not None
    which = [k for k, load in enumerate(_loads(nest.graph)) if load in turned.loads]
    nest, along = _in_tiles(nest, turned.along, tile.along)
    nest, across = _in_tiles(nest, turned.across, tile.across)
    nest, along = _with_room(nest, along)
    outer = [x for x in output_loops(nest.graph) if x not in (along, across)]
    nest = as_one_loop(nest, outer, AxisRole.BLOCK)
    items = min(target.group_items, size_of(along) * size_of(across))
    for k in which:
        nest = _kept(nest, _loads(nest.graph)[k], (across, along), items)
    return as_one_loop(nest, [along, across], AxisRole.LANE)


def _in_tiles(nest: LoopNest, loop: UOp, size: int) -> tuple[LoopNest, UOp]:
    """A loop as tiles of this size, and the loop within a tile."""
    if size_of(loop) == size:
        return nest, loop
    own = NewLoop(fresh_number(nest.graph))
    nest = split_reading_inside(nest, loop, (size,), (NewLoop(*loop.arg), own))
    return nest, UOp.range(size, own.number, own.role)


def _with_room(nest: LoopNest, loop: UOp) -> tuple[LoopNest, UOp]:
    """A loop that an even number of iterations has with one more, which stores nothing."""
    size = size_of(loop)
    if size % 2:
        return nest, loop
    made = NewLoop(fresh_number(nest.graph))
    nest = split_reading_inside(nest, loop, (size + 1,), (NewLoop(made.number + 1), made))
    return nest, UOp.range(size + 1, made.number, made.role)


def _kept(nest: LoopNest, load: UOp, loops: tuple[UOp, UOp], items: int) -> LoopNest:
    """What a load reads for a tile, kept by the group, whose items take turns at filling it."""
    number = fresh_number(nest.graph)  # two are for the turns
    own = NewLoop(number + 2, AxisRole.REDUCE), NewLoop(number + 3, AxisRole.LANE)
    nest = local_buffer(nest, load, loops, own)
    made = tuple([UOp.range(size_of(x), one.number, one.role) for x, one in zip(loops, own)])
    whole = NewLoop(number + 4, AxisRole.LANE)
    nest = collapse(nest, made, whole)
    size = size_of(loops[0]) * size_of(loops[1])
    return in_turns(nest, UOp.range(size, whole.number, whole.role), items, 1, number)


def _loads(kernel: UOp) -> list[UOp]:
    """The loads of memory of the kernel, in an order that steps keep."""
    nodes = toposort((kernel,))
    return [n for n in nodes if n.op is Ops.LOAD and n.src[0].src[0].op is Ops.PARAM]
