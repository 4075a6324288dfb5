"""Tactic: the window of an image that a group's tile reads is kept once, and items of warps read from there for each tap of a filter.

Owns: where the window begins, and the places in it that are read. Does not own: whether (schedule/warp_windows.py), the law
(steps/keep_window.py), how items take turns at filling memory (shared_tiles.py), the rest of the tile (warp_tiles.py).

    image[64 * (58 * y + x + 58 * a + b) + c]      y, x: of pixel 256 * g + i, a, b: the tap, c: the channel

begins at the first pixel of group g and tap (0, 0), and the place of a pixel is how many pixels it lies behind. A row of the window is the channels
of a pixel, and as many elements more as make it an odd number of loads: so items that read rows one behind the other find them in other banks.
"""

from __future__ import annotations

from collections.abc import Sequence

from proofgrad.core.compile.nests.loops import fresh_number
from proofgrad.core.compile.nests.strides import loops_of
from proofgrad.core.compile.schedule.warp_tiles import Window
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.collapse import collapse
from proofgrad.core.compile.steps.keep_window import Axis, keep_window, without_remainders
from proofgrad.core.compile.steps.loop_nest import LoopNest, require
from proofgrad.core.compile.tactics.shared_tiles import in_turns
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp


def kept_in_window(
    nest: LoopNest,
    load: UOp,
    window: Window,
    inner: Sequence[UOp],
    items: int,
    width: int,
    number: int,
) -> LoopNest:
    """What a factor loads is kept by a group for all iterations of the loops `inner`, of channels last, and its items take turns at filling it.

    `width`: elements that an item copies at once. `number`: from here on numbers of loops are free.
    """
    index, channel = load.src[0].src[1], inner[-1]
    first = index.substitute({x: UOp.index(0) for x in inner if x.op is Ops.RANGE})
    place = _place(nest, index.substitute({channel: UOp.index(0)}) - first, window.stride)
    number = max(number, fresh_number(nest.graph))
    pixel, element = NewLoop(number + 4, AxisRole.REDUCE), NewLoop(number + 5, AxisRole.LANE)
    axes = Axis(place, window.size, window.stride, pixel), Axis(channel, window.row, 1, element)
    apart = sorted(loops_of(place).difference(inner), key=lambda x: x.arg[0])
    nest = keep_window(nest, load, first, axes, tuple(apart))
    made = tuple([UOp.range(axis.size, axis.made.number, axis.made.role) for axis in axes])
    whole = UOp.range(window.size * window.row, number + 3, AxisRole.LANE)
    nest = collapse(nest, made, NewLoop(*whole.arg))
    return in_turns(nest, whole, items, width, number)


def _place(nest: LoopNest, distance: UOp, stride: int) -> UOp:
    """How many strides a distance is."""
    forms = nest.facts.forms
    form = forms.read(without_remainders(distance))
    require(form is not None, "a distance that is no sum", distance)
    assert form is not None
    terms, number = form
    are_whole = all([n % stride == 0 for n in (*terms.values(), number)])
    require(are_whole, "a distance that is no number of strides", distance, stride)
    return forms.written(({atom: n // stride for atom, n in terms.items()}, number // stride))
