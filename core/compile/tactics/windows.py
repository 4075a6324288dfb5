"""Tactic: memory that windows read in steps is copied first, so that vectors read neighbours.

Owns: the order of the copies. Does not own: which loads (vectors.py), the law (steps/deinterleave.py), the operands of a
contraction (tactics/pack_operands.py).

    out[c, i] = sum[k](x[c, 2 * i + k] * w[c, k])

A depthwise convolution, or a pool, of stride 2 takes every other element: a vector would gather its lanes one by one, again for each
k. In a copy that has the even elements and then the odd ones, x[2 * i + k] is element i + k // 2 of one half.
"""

from __future__ import annotations

from dataclasses import replace

from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.schedule.choose_schedule import choose_schedule, schedule_of
from proofgrad.core.compile.schedule.vector_loops import loads_in_steps
from proofgrad.core.compile.schedule.window_rows import row_length_of
from proofgrad.core.compile.steps.deinterleave import deinterleave
from proofgrad.core.compile.steps.loop_nest import LoopNest


def deinterleave_windows(nest: LoopNest, context: Context) -> LoopNest | tuple[LoopNest, ...]:
    """Copy what vectors would read in steps, and often enough; the kernels, in order."""
    if context.target.has_scalar_items:
        return nest
    nest = nest.scheduled(schedule := schedule_of(nest, context))
    filling: list[LoopNest] = []
    vectors = (schedule.vectors or ()) if schedule.deinterleaved else ()
    while found := loads_in_steps(nest.graph, vectors, context.target):
        load, loop = found[0]
        length = row_length_of(load, loop, nest)
        copied, nest = deinterleave(nest, load, loop, length)
        filling.append(copied)
    if not filling:
        return nest
    schedule = choose_schedule(nest.graph, context.target, context.override)
    return (*filling, nest.scheduled(replace(schedule, deinterleaved=True)))
