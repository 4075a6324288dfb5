"""Tactic: operands of a contraction are copied into tables, in the order of its tile.

Owns: the layout of a table, the order in which it is filled. Does not own: the tile (tiles.py), which operands are
worth a table (operands.py), the law (steps/stage.py), the memory (the plan's, planning.py).

A table of an operand that moves with the loops x, k has the digits (x // size, k, x % size), and is as long as whole
tiles need, so that the tile that reads it needs no mask.
"""

from __future__ import annotations

from dataclasses import replace

from proofgrad.core.compile.nests.loops import output_loops, size_of
from proofgrad.core.compile.nests.strides import coefficient, loops_of
from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.schedule.choose_schedule import choose_schedule, schedule_of
from proofgrad.core.compile.schedule.contraction import (
    LARGEST_STEP,
    Contraction,
    load_steps,
    tiles_along,
)
from proofgrad.core.compile.schedule.divisors import largest_divisor
from proofgrad.core.compile.schedule.operands import may_stage
from proofgrad.core.compile.schedule.row_products import find_kept_rows
from proofgrad.core.compile.schedule.table_cycles import TRANSPOSED_ROWS
from proofgrad.core.compile.schedule.tiles import find_contraction
from proofgrad.core.compile.schedule.warp_tables import NO_TABLES
from proofgrad.core.compile.schedule.window_rows import row_length_of
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.deinterleave import deinterleave
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.steps.merge import merge, reads_as_one
from proofgrad.core.compile.steps.reorder import reorder
from proofgrad.core.compile.steps.split import split
from proofgrad.core.compile.steps.stage import Digit, stage
from proofgrad.core.compile.tactics.matrices import stage_matrices
from proofgrad.core.compile.tactics.stage_keys import stage_keys
from proofgrad.core.compile.tactics.warp_tables import stage_factors
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort

# Steps of the sum that are copied for all rows or columns before the next ones are: pieces of memory long enough to be
# read and written in lines, whatever their types.
STEPS_AT_ONCE = 16


def stage_operands(nest: LoopNest, context: Context) -> LoopNest | tuple[LoopNest, ...]:
    """Copy operands of a contraction into tables laid out for its tile; the kernels, in order."""
    target = context.target
    if target.has_scalar_items:
        return nest
    nest = nest.scheduled(schedule := schedule_of(nest, context))
    if schedule.matrices is not None and schedule.matrices.rows:
        return stage_matrices(nest, schedule, target)
    if schedule.is_of_groups:
        has_tables = schedule.staged not in (None, NO_TABLES)
        return stage_factors(nest, schedule, context) if has_tables else nest
    if (rows := find_kept_rows(nest.graph, target, schedule)) is not None:
        assert schedule.tile is not None  # a schedule that was decided
        *tables, last = stage_keys(nest, rows, schedule.tile)
        return (*tables, last.scheduled(schedule)) if tables else nest
    found = None
    if schedule.tiled:
        found = find_contraction(nest.graph, target, schedule)
    if found is None or not may_stage(found[0], target, context.override):
        return nest
    filling: list[LoopNest] = []
    before, nest = nest, _with_neighbours(nest, found[0], filling)
    if nest is not before:  # its columns lie elsewhere now, and another tile may be better
        override = replace(context.override, reduction_block=0)  # the stage of blocks is over
        schedule = choose_schedule(nest.graph, target, override)
        found = find_contraction(nest.graph, target, schedule)
    blocks, staged = schedule.blocks, schedule.staged
    assert found is not None and blocks is not None and staged is not None
    contraction, tile = found
    row_tiles, column_tiles = tiles_along(contraction, tile)
    groups = {
        contraction.rows: -(-row_tiles // blocks.row_tiles) * blocks.row_tiles,
        contraction.columns: -(-column_tiles // blocks.column_tiles) * blocks.column_tiles,
    }
    operands: list[tuple[UOp, UOp, int]] = []
    if staged.rows:
        operands.append((contraction.row_factor, contraction.rows, tile.rows))
    if staged.columns:
        operands.append((contraction.column_factor, contraction.columns, tile.columns))
    for factor, loop, size in operands:
        if tile.lanes == 1:
            fill, nest = _along_the_sum(nest, contraction, factor, loop, size, groups[loop])
        else:
            fill, nest = _in_a_table(nest, contraction, factor, loop, size, groups[loop])
        filling.append(fill)
    nest = nest.scheduled(schedule)  # the tables lie as its tile reads them
    return (*filling, nest) if filling else nest


def _along_the_sum(
    nest: LoopNest, contraction: Contraction, factor: UOp, loop: UOp, size: int, groups: int
) -> tuple[LoopNest, LoopNest]:
    """The same of columns that are read along the sum, each by itself."""
    places = [Digit(loop, groups, NewLoop(0), size), Digit(loop, size, NewLoop(1))]
    steps = [Digit(x, size_of(x), NewLoop(2 + k)) for k, x in enumerate(contraction.sum_loops)]
    fill, nest = stage(nest, factor, (*places, *steps))
    return fill, nest


def _in_a_table(
    nest: LoopNest, contraction: Contraction, factor: UOp, loop: UOp, size: int, groups: int
) -> tuple[LoopNest, LoopNest]:
    """The nest that fills the table of an operand, and the one that reads it.

    Where groups lie side by side in memory, some steps of the sum are copied for all of them before the next
    steps: long enough pieces of memory are read and written.
    """
    free = loops_of(factor)
    outer = [x for x in output_loops(nest.graph) if x in free and x is not loop]
    summed = [x for x in contraction.sum_loops if x in free]
    around, last = summed[:-1], summed[-1] if summed else None
    side_by_side = all(step in (0, 1) for step in load_steps(factor, loop))
    steps = 1 if last is None else size_of(last)
    at_once = largest_divisor(steps, STEPS_AT_ONCE) if side_by_side else steps
    number = (
        len(outer) + len(around)
    )  # of the outer steps; groups, inner steps, steps within a line and what is inside of a group follow
    near = [] if side_by_side else _within_a_line(contraction, factor, loop, around)
    places = {x: len(outer) + k for k, x in enumerate(around)}
    places |= {x: number + 3 + k for k, x in enumerate(near)}
    digits = [Digit(x, size_of(x), NewLoop(k)) for k, x in enumerate(outer)]
    digits.append(Digit(loop, groups, NewLoop(number + 1), size))
    digits += [Digit(x, size_of(x), NewLoop(places[x])) for x in around]
    if last is not None:
        digits.append(Digit(last, steps, NewLoop(number + 2)))
    digits.append(Digit(loop, size, NewLoop(number + 3 + len(near))))
    fill, nest = stage(nest, factor, tuple(digits))
    if 1 < at_once < steps:
        made = (NewLoop(number), NewLoop(number + 2))
        fill = split(fill, UOp.range(steps, number + 2), (at_once,), made)
    elif at_once == 1 < steps:
        fill = reorder(fill, UOp.range(steps, number + 2), number)
    elif contraction.steps_along_sum(factor) > TRANSPOSED_ROWS and not side_by_side:
        fill = _along_memory(fill, [*range(len(outer), number), number + 2])
    return fill, nest


def _within_a_line(
    contraction: Contraction, factor: UOp, loop: UOp, around: list[UOp]
) -> list[UOp]:
    """The loops of a sum whose steps lie nearer to each other than rows or columns, as windows of weights: each line is read once for all of them."""

    def distance(along: UOp) -> int | None:
        steps = {abs(step or 0) for step in load_steps(factor, along)}
        return steps.pop() if len(steps) == 1 else None

    if distance(loop) is None or contraction.steps_along_sum(factor) > TRANSPOSED_ROWS:
        return []
    return [x for x in around if 0 < (distance(x) or 0) < (distance(loop) or 0)]


def _along_memory(fill: LoopNest, numbers: list[int]) -> LoopNest:
    """A table filled from memory that lies along the sum: four steps at a time, which are transposed in registers.

    The steps are those of the loops of these numbers, as one where they lie side by side.
    """
    *others, inner = [x for n in numbers for x in output_loops(fill.graph) if x.arg[0] == n]
    last = inner.arg[0]
    for outer in reversed(others):
        if not reads_as_one(fill.graph, outer, inner):
            break
        size = size_of(outer) * size_of(inner)
        fill = merge(fill, outer, inner)
        inner = UOp.range(size, outer.arg[0])
    if inner.arg[0] != last:
        fill = reorder(fill, inner, last)
    steps = UOp.range(size_of(inner), last)
    return split(fill, steps, (TRANSPOSED_ROWS,), (NewLoop(last), NewLoop(last + 2)))


def _with_neighbours(nest: LoopNest, contraction: Contraction, filling: list[LoopNest]) -> LoopNest:
    """Memory that columns read in steps of a few elements, copied so that they read neighbours.

    Not where a variable says how many columns there are, for all of the memory would be copied.
    """
    if contraction.has_ended_columns:
        return nest
    columns = contraction.columns
    for load in [n for n in toposort((contraction.column_factor,)) if n.op is Ops.LOAD]:
        step = coefficient(load.src[0].src[1], columns)
        if step is not None and 1 < step <= LARGEST_STEP:
            length = row_length_of(load, columns, nest)
            copied, nest = deinterleave(nest, load, columns, length)
            filling.append(copied)
    return nest
