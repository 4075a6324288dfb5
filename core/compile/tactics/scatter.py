"""Tactic: what is combined by position in memory goes to its positions, source by source.

Owns: which reductions these are. Does not own: the law (steps/scatter.py), whether it pays (schedule/scatters.py), the memory of a table (the
plan's, planning.py), how loops in order run (accumulate.py, linearize.py).

    out[r, d] = sum[j](where(position[j] == r, value[j, d], 0))

lets every r look at every j. The same in two kernels: `out` is filled with 0; then, for j in order,
value[j, d] is added to out[position[j], d], where that is inside. The gradient of `x[position]` and of an embedding,
scatter_reduce and counts are of this form. A reduction that is only a part of its kernel fills a table, which the
kernel reads. What only the last value of a position decides is written value by value (steps/overwrite.py).
"""

from __future__ import annotations

from math import prod

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.loops import output_loops, size_of
from proofgrad.core.compile.nests.strides import loops_below
from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.schedule.scatters import pays_overwriting, pays_scatter
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.steps.overwrite import LastWriter, last_writer, overwrite
from proofgrad.core.compile.steps.scatter import Placed, placed, scatter
from proofgrad.core.compile.tactics.coalesce import merge_loops
from proofgrad.core.compile.tactics.results import results_in_a_table
from proofgrad.core.ir.op_names import REDUCE
from proofgrad.core.ir.uop import toposort


def lower_scatters(nest: LoopNest, context: Context) -> LoopNest | tuple[LoopNest, ...]:
    """Combine values one by one at their positions, where each position would look at all; the kernels, in order."""
    writers: list[LoopNest] = []
    parts: list[LoopNest] = []
    while (last := last_writer(nest.graph, nest.facts)) is not None:
        if not _pays_to_overwrite(last, context.target):
            if len(last.loops) > len(last.last.loops):  # rows would look for their last value each
                filling, nest = results_in_a_table(nest, last.last.reduction)
                parts += _filled(filling, context.target)
            break
        *first, writer = overwrite(nest)
        writers.insert(0, writer)
        if not first:
            return tuple(writers)
        (nest,) = first
    while (found := _first(nest, context.target)) is not None:
        store = nest.graph.src[0]
        if found.reduction is store.src[1] and set(found.loops) == set(output_loops(nest.graph)):
            return (*parts, *scatter(nest), *writers)
        filling, nest = results_in_a_table(nest, found.reduction)
        parts += scatter(filling)
    nest = merge_loops(nest, context) if parts else nest
    return (*parts, nest, *writers) if parts or writers else nest


def _filled(filling: LoopNest, target: Target) -> tuple[LoopNest, ...]:
    """The kernels that fill a table with the last values of places."""
    found = _first(filling, target)
    return scatter(filling) if found is not None else (filling,)


def _pays_to_overwrite(found: LastWriter, target: Target) -> bool:
    of_places = {loop.arg[0] for loop in found.last.loops}
    inside = [loop for loop in found.loops if loop.arg[0] not in of_places]
    are_rows = all([loop.arg[0] > max(of_places) for loop in inside])
    places = prod([size_of(loop) for loop in found.last.loops])
    values = size_of(found.last.reduction.src[1])
    others = prod([size_of(loop) for loop in inside])
    return pays_overwriting(places, values, others, are_rows, found.is_in_place, target)


def _first(nest: LoopNest, target: Target) -> Placed | None:
    """The first reduction of a kernel that is one by position, and pays."""
    free = loops_below(nest.graph)
    for node in toposort((nest.graph,)):
        if node.op is REDUCE:
            found = placed(node, free[node], nest.facts)
            if found is not None and _pays(found, target):
                return found
    return None


def _pays(found: Placed, target: Target) -> bool:
    results = prod(size_of(loop) for loop in found.loops)
    values = prod(size_of(loop) for loop in found.reduction.src[1:])
    others = prod(size_of(loop) for loop in found.loops if loop not in found.addresses)
    return pays_scatter(results, values, others, target)
