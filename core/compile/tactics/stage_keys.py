"""Tactic: keys of attention, or what stands for them, are copied so that lanes along them read neighbours.

Owns: the layout of the table. Does not own: which nests are so (schedule/row_products.py), the law (steps/stage.py).
"""

from __future__ import annotations

from proofgrad.core.compile.nests.kernel_schedule import Tile
from proofgrad.core.compile.nests.loops import size_of
from proofgrad.core.compile.nests.strides import coefficient, loops_below
from proofgrad.core.compile.schedule.row_products import RowProducts
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.steps.stage import Digit, stage
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp


def stage_keys(nest: LoopNest, found: RowProducts, tile: Tile) -> tuple[LoopNest, ...]:
    """The factor c of the scores in a table, if its elements do not lie side by side along the keys."""
    free = loops_below(nest.graph)
    for factor in found.scores.src[0].src:
        load = factor
        while load.op is Ops.CAST:
            load = load.src[0]
        keys = free[load].difference(free[nest.graph], found.scores.src[1:])
        if load.op is not Ops.LOAD or len(keys) != (1 if found.blocks is None else 2):
            continue
        (loop,) = [x for x in keys if x is not found.blocks]
        if coefficient(load.src[0].src[1], loop) != 1:
            return stage(nest, load, _digits(load, loop, found, free[load], tile.lanes))
    return (nest,)


def _digits(
    load: UOp, loop: UOp, found: RowProducts, loops: frozenset[UOp], lanes: int
) -> tuple[Digit, ...]:
    """A vector of keys for each step of the sum, step by step, vector by vector."""
    own = [x for x in found.scores.src[1:] if x in loops]
    around = sorted(loops.difference(own, (loop,)), key=lambda x: x.arg[0])
    order = [*[(x, size_of(x), 1) for x in around], (loop, -(-size_of(loop) // lanes), lanes)]
    order += [*[(x, size_of(x), 1) for x in own], (loop, lanes, 1)]
    return tuple([Digit(x, n, NewLoop(k), stride) for k, (x, n, stride) in enumerate(order)])
