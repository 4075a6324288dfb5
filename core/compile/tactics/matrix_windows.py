"""Tactic: what windows read of an image is copied once with channels in groups, and the matrices of a unit are read from there for each tap of a filter.

Owns: the axes of the copy. Does not own: whether (schedule/matrices.py), the law (steps/stage_window.py), the rest of the product (tactics/matrices.py).

    out[o, p] = sum[c, a, b](w[o, c, a, b] * image[plane * c + 58 * a + b + p])

A unit takes some channels of a pixel side by side, so a table of all pixels for each step has each of them nine times, for a filter of 3 x 3. The copy
T[c // 2][58 * a + b + p][c % 2] has each once, and neighbours in a line are neighbours there. As many places more as a line of whole matrices is longer than the
line follow each plane: what matrices read there is of no result.
"""

from __future__ import annotations

from proofgrad.core.compile.machine.target import TileUnit
from proofgrad.core.compile.nests.kernel_schedule import Copies, Schedule, Vectors
from proofgrad.core.compile.nests.loops import fresh_number, size_of
from proofgrad.core.compile.nests.strides import coefficient, loops_of
from proofgrad.core.compile.nests.sums_of_products import below_conversions
from proofgrad.core.compile.schedule.matrices import Window, tiles_along
from proofgrad.core.compile.schedule.shared_tiles import find_product
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.keep_window import Axis
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.steps.split import split
from proofgrad.core.compile.steps.stage_window import stage_window
from proofgrad.core.ir.uop import AxisRole, UOp


def in_windows(
    nest: LoopNest, window: Window, line: int, unit: TileUnit, threads: bool
) -> tuple[LoopNest, LoopNest]:
    """The nest that copies the memory of the columns' factor, and the one that reads it, of whose sum the innermost loop is over a group of channels.

    `line`: columns that lie side by side.
    """
    group = NewLoop(fresh_number(nest.graph), AxisRole.REDUCE)
    nest = split(nest, window.channel, (unit.group,), (NewLoop(*window.channel.arg), group))
    found = find_product(nest.graph)
    assert found is not None
    load = below_conversions(found.column_factor)
    index = load.src[0].src[1]
    inner = UOp.range(unit.group, group.number, group.role)
    others = [x for x in loops_of(index) if x is not inner]
    strides = {x: coefficient(index, x) or 0 for x in others}
    outer = sorted([x for x in others if strides[x] >= window.plane], key=lambda x: -strides[x])
    place = index.substitute({x: UOp.index(0) for x in (*outer, inner)})
    room = tiles_along(line, unit, 1) * unit.side - line
    axes = [Axis(x, size_of(x), strides[x], NewLoop(k)) for k, x in enumerate(outer)]
    pixel, channel = NewLoop(len(outer)), NewLoop(len(outer) + 1)
    axes += [
        Axis(place, window.plane + room, 1, pixel),
        Axis(inner, unit.group, window.plane, channel),
    ]
    fill, nest = stage_window(nest, load, tuple(axes))
    decided = Schedule(
        buffered=False, tiled=False, reduction_block=0, vectors=(Vectors(pixel.number, unit.side),),
        copies=Copies(channel.number, unit.group), unroll=0, deinterleaved=False, threads=threads,
    )  # fmt: skip
    return fill.scheduled(decided), nest
