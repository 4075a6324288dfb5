"""The tactics as functions of a graph, for tests: each applied alone, to a graph made by hand or by other stages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proofgrad.core.compile.fusion import kernels as schedule
from proofgrad.core.compile.fusion import split_reductions
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import AUTOMATIC, Schedule
from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.passes.stages import NO_MACHINE, GraphTactic, Tactic
from proofgrad.core.compile.steps.loop_nest import LoopNest, Step, lowered
from proofgrad.core.compile.steps.tensor_program import TensorProgram, traced
from proofgrad.core.compile.tactics import axes, columns, nested_sums, to_program, unroll
from proofgrad.core.compile.tactics import block_reductions as blocks
from proofgrad.core.compile.tactics import coalesce as merging
from proofgrad.core.compile.tactics import local_buffers as kept_rows
from proofgrad.core.compile.tactics import pack_operands as staging
from proofgrad.core.compile.tactics import scatter as by_position
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.tensor.runtime.realize import compiler

OnGraphs = Callable[..., UOp]


def on_graphs(tactic: Callable[[LoopNest, Context], LoopNest | tuple[LoopNest, ...]]) -> OnGraphs:
    """A tactic as a function of a graph; a step that refuses raises."""

    def applied(
        kernel: UOp,
        target: Target = NO_MACHINE,
        facts: Facts | None = None,
        override: Schedule = AUTOMATIC,
    ) -> UOp:
        known = compiler().library.facts() if facts is None else facts
        nest = lowered(kernel, known, target)
        nests = Tactic(tactic)(nest, Context(target, known, override))
        return nests[0].graph if len(nests) == 1 else UOp.sink(*[made.graph for made in nests])

    return applied


def on_programs(tactic: Callable[[TensorProgram, Context], TensorProgram]) -> OnGraphs:
    """A tactic on whole programs as a function of a graph; a step that refuses raises."""

    def applied(graph: UOp, target: Target = NO_MACHINE) -> UOp:
        context = Context(target, compiler().library.facts())
        return GraphTactic(tactic)(traced(graph), context).graph

    return applied


def on_nests(step: Step[Any], change: Callable[..., UOp]) -> Step[Any]:
    """A step with another body: a fault to be found. `change`: from its graph and arguments to another graph."""

    def changed(nest: LoopNest, *args: Any) -> UOp:
        return change(nest.graph, *args)

    changed.__module__ = step.function.__module__  # behind the evidence of the right one
    return Step(step.name, step.law, changed)


def nest_of(kernel: UOp, target: Target = NO_MACHINE, facts: Facts | None = None) -> LoopNest:
    """A nest as the runner of stages makes it."""
    return lowered(kernel, compiler().library.facts() if facts is None else facts, target)


def forged(nest: LoopNest, graph: UOp) -> LoopNest:
    """A nest that no step made of another one, in its place: a fault to be found."""
    made = lowered(graph, nest.facts, nest.target)
    made.position = nest.position
    return made


choose_axes = on_graphs(axes.choose_axes)
share_out_work_items = on_graphs(axes.share_out_work_items)
lower_scatters = on_graphs(by_position.lower_scatters)
use_local_buffers = on_graphs(kept_rows.use_local_buffers)
rows_inside = on_graphs(columns.rows_inside)
merge_loops = on_graphs(merging.merge_loops)
join_sums = on_graphs(nested_sums.join_nested_sums)
sum_in_blocks = on_graphs(blocks.sum_in_blocks)
stage_operands = on_graphs(staging.stage_operands)
unroll_upcasts = on_graphs(unroll.unroll_upcasts)
choose_index_width = on_graphs(to_program.choose_index_width)
reductions_to_accumulators = on_graphs(to_program.reductions_to_accumulators)
vectorize = on_graphs(to_program.vectorize)
cut_into_kernels = on_programs(schedule.cut_into_kernels)
split_long_reductions = on_programs(split_reductions.split_long_reductions)
