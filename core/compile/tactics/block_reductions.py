"""Tactic: a product with few rows, or a reduction of rows, is summed block by block, in memory.

Owns: the order of the loops of a block. Does not own: which contractions, and how long a block of them is
(operands.py), which reductions of rows (schedule/reduction_blocks.py), the law (steps/sum_in_memory.py), the tile (tiles.py), the
memory of a table (the plan's, planning.py), how a store that combines runs (accumulate.py).

    out[m, n] = sum[k](a[m, k] * b[k, n])

reads b for each group of rows. A table would be read more easily, but is written first, which few rows
are not worth. In blocks, `out` is filled with 0; then, for k0 in order, the sum over the k of a block is added to
out[m, n]. Some rows of b, as they lie in memory, stay in the cache until every row of a has used them, and are
then gone for good. A sum that is only a part of its kernel fills a table, which the kernel reads.

    out[n] = sum[k](b[k, n])

goes to another page of memory at each step, or each few. In blocks, some rows are read side by side from end to end, as the
processor foresees it, and added to `out`, which stays in the first cache.
"""

from __future__ import annotations

from dataclasses import replace

from proofgrad.core.compile.nests.loops import fresh_number, output_loops, size_of
from proofgrad.core.compile.nests.sums_of_products import is_masked
from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.schedule.choose_schedule import choose_schedule, schedule_of
from proofgrad.core.compile.schedule.cost_model import masks_are_vectors
from proofgrad.core.compile.schedule.reduction_blocks import find_rows
from proofgrad.core.compile.schedule.threads import loops_of_longest_load
from proofgrad.core.compile.schedule.tiles import find_contraction
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.collapse import collapse
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.steps.merge import merge, reads_as_one
from proofgrad.core.compile.steps.reorder import reorder
from proofgrad.core.compile.steps.split import split
from proofgrad.core.compile.steps.sum_in_memory import sum_in_memory
from proofgrad.core.compile.steps.unmask import unmask
from proofgrad.core.compile.tactics.coalesce import merge_loops
from proofgrad.core.compile.tactics.results import results_in_a_table
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp


def sum_in_blocks(nest: LoopNest, context: Context) -> LoopNest | tuple[LoopNest, ...]:
    """Sum a product with few rows, or rows, in memory, some steps at a time; the kernels, in order."""
    target = context.target
    if target.work_items:
        return nest
    nest = nest.scheduled(schedule := schedule_of(nest, context))
    if not schedule.reduction_block:
        return nest
    if schedule.tiled and (found := find_contraction(nest.graph, target, schedule)) is not None:
        return _in_blocks(nest, context, found[0].reduction, schedule.reduction_block)
    rows = find_rows(nest.graph, target, schedule)
    return (
        nest if rows is None else _in_blocks(nest, context, rows.reduction, rows.steps, rows.along)
    )


def _in_blocks(
    nest: LoopNest, context: Context, reduction: UOp, steps: int, inside: UOp | None = None
) -> tuple[LoopNest, ...]:
    """The kernels of a sum, and one for the rest of its kernel; `inside` runs inside of the blocks.

    Beyond the end of the sum nothing is added, or where that would be an instruction for each product, 0 times 0.
    """
    rest: tuple[LoopNest, ...] = ()
    if reduction is not nest.graph.src[0].src[1]:
        nest, reading = results_in_a_table(nest, reduction)
        rest = (merge_loops(reading, context),)
    loop = nest.graph.src[0].src[1].src[1]
    if size_of(loop) % steps:
        nest = _in_whole_blocks(nest, loop, steps)
        if masks_are_vectors(context.target):
            nest = _without_choice(nest)
    number = fresh_number(nest.graph)
    fill, add = sum_in_memory(nest, steps, number)
    override = context.override
    if inside is not None:  # of a product, too, whose rows are all read side by side
        once = loops_of_longest_load(add.graph)
        again = [x for x in output_loops(add.graph) if x not in once]
        for loop in (*again, inside):
            add = reorder(add, loop, fresh_number(add.graph))
        override = replace(override, tiled=False)
    schedule = choose_schedule(add.graph, context.target, override)
    add = add.scheduled(replace(schedule, reduction_block=steps))
    return (fill, add, *rest)


def _in_whole_blocks(nest: LoopNest, loop: UOp, steps: int) -> LoopNest:
    """The loop of a reduction as long as a multiple of `steps`, with a mask behind its end."""
    inner = NewLoop(fresh_number(nest.graph), loop.arg[1])
    nest = split(nest, loop, (steps,), (NewLoop(*loop.arg), inner))
    outer = UOp.range(-(-size_of(loop) // steps), *loop.arg)
    both = outer, UOp.range(steps, inner.number, inner.role)
    if reads_as_one(nest.graph, *both):
        return merge(nest, *both)
    return collapse(nest, both, NewLoop(*loop.arg))


def _without_choice(nest: LoopNest) -> LoopNest:
    """A masked sum of products as one of products of 0 where the mask does not hold."""
    reduction = nest.graph.src[0].src[1]
    is_product = is_masked(reduction.src[0]) and reduction.src[0].src[1].op is Ops.MUL
    return unmask(nest, reduction) if is_product else nest
