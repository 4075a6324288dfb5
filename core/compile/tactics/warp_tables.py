"""Tactic: factors of a product by matrix units are copied into tables, in which the steps of the sum lie side by side in whole loads.

Owns: the order of the steps, the layout of a table. Does not own: which factors (schedule/warp_tables.py), the law (steps/stage.py), the
kernel that multiplies (warp_tiles.py).

    out[m, n] = sum[k < 1001](a[m, k] * b[k, n])

is the sum over o and j of a[m, 8 * o + j] * b[8 * o + j, n], which are 0 beyond the end. A table has the digits (m, o, j) of the one, and
one the digits (n, o, j) of the other: rows of 1008 elements.
"""

from __future__ import annotations

from dataclasses import replace

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import Schedule
from proofgrad.core.compile.nests.loops import fresh_number, output_loops, size_of
from proofgrad.core.compile.nests.strides import loops_of
from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.schedule.choose_schedule import choose_schedule
from proofgrad.core.compile.schedule.shared_tiles import GroupProduct
from proofgrad.core.compile.schedule.warp_tables import NO_TABLES, get_tables
from proofgrad.core.compile.schedule.warp_tiles import unit_of
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.steps.merge import merge, reads_as_one
from proofgrad.core.compile.steps.mma import read_by_unit
from proofgrad.core.compile.steps.split import split
from proofgrad.core.compile.steps.stage import Digit, stage
from proofgrad.core.compile.steps.unmask import unmask
from proofgrad.core.compile.tactics.shared_tiles import as_one, product_of_unit
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort


def stage_factors(nest: LoopNest, schedule: Schedule, context: Context) -> tuple[LoopNest, ...]:
    """The kernels that fill tables of the factors that get one, and the one that multiplies."""
    target, staged = context.target, schedule.staged
    assert staged is not None
    product, unit = product_of_unit(nest, target, unit_of)
    get = get_tables(product, unit, target)
    tables = staged.rows and get[0], staged.columns and get[1]
    if not any([is_copied and not x for is_copied, x in zip((staged.rows, staged.columns), get)]):
        nest = _in_whole_loads(nest, product, target.lanes(unit.factor))
    filling = []
    for is_column, is_table in enumerate(tables):
        if is_table:
            fill, nest = _in_a_table(nest, is_column, target)
            filling.append(fill)
    decided = choose_schedule(nest.graph, target, replace(context.override, staged=NO_TABLES))
    return (*filling, nest.scheduled(replace(decided, staged=staged)))


def _in_whole_loads(nest: LoopNest, product: GroupProduct, lanes: int) -> LoopNest:
    """All steps of the sum as one loop, or as one over whole loads and one inside of a load."""
    nest, step = as_one(nest, product.reduction.src[1:])
    if size_of(step) % lanes == 0:
        return nest
    inner = NewLoop(fresh_number(nest.graph), AxisRole.REDUCE)
    nest = split(nest, step, (lanes,), (NewLoop(*step.arg), inner))
    (masked,) = [n for n in toposort((nest.graph,)) if n.op is Ops.REDUCE]
    return unmask(nest, masked)


def _in_a_table(nest: LoopNest, is_column: int, target: Target) -> tuple[LoopNest, LoopNest]:
    """The nest that fills the table of a factor, and the one that reads it."""
    product, unit = product_of_unit(nest, target, unit_of)
    value = read_by_unit((product.row_factor, product.column_factor)[is_column], unit)
    outer = [x for x in output_loops(nest.graph) if x in loops_of(value)]
    loops = [*outer, *product.reduction.src[1:]]
    digits = [Digit(x, size_of(x), NewLoop(k)) for k, x in enumerate(loops)]
    fill, nest = stage(nest, value, tuple(digits))
    if len(loops) == len(outer) + 1:
        return fill, nest
    high, low = [UOp.range(size_of(x), k) for k, x in enumerate(loops)][-2:]
    return (merge(fill, high, low) if reads_as_one(fill.graph, high, low) else fill), nest
