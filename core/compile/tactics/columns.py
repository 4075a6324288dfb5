"""Tactic: loops over rows that lie across memory run inside of those that rows lie side by side along.

A softmax over the first axis has rows whose neighbours are elements of other rows. Vectors take an element of each of these rows, and so
each loop over the row, for the largest element, for the sum, for the result, runs inside of the loop over vectors, while
the lines that it reads are in the cache. Does not own: the laws (steps/reorder.py, steps/local_buffer.py), which rows are fused (fusion/rows.py),
which values are worth keeping (tactics/local_buffers.py).

    for r < n, c < m: out[r, c] = f(x[r, c], sum[k](x[k, c]))   =   for c < m, r < n: out[r, c] = ...

Costly values that these loops compute alike are computed once, for so many columns at a time as a core adds up at once:

    for b < m / 64: let p[r, l] = exp2(x[r, 64 * b + l]): for r < n, l < 64: out[r, 64 * b + l] = f(p[r, l], sum[k](p[k, l]))
"""

from __future__ import annotations

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.loops import fresh_number, is_fixed, output_loops, size_of
from proofgrad.core.compile.nests.strides import coefficient, loops_below
from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.schedule.copies import side_by_side
from proofgrad.core.compile.schedule.threads import runs_in_order
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.local_buffer import local_buffer
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.steps.reorder import reorder
from proofgrad.core.compile.steps.split import split
from proofgrad.core.compile.tactics.local_buffers import Alike, worth_keeping
from proofgrad.core.ir.op_names import LOCAL_BUFFER, REDUCE, STORE
from proofgrad.core.ir.uop import AxisRole, UOp


def rows_inside(nest: LoopNest, context: Context) -> LoopNest:
    """The loops over such a row get numbers above those of all other loops of the results."""
    across = _across(nest.graph)
    if across is None:
        return nest
    inside = _inside(nest, across)
    is_asked = context.override.buffered is not False and len(across) <= 1
    groups = worth_keeping(inside.graph) if is_asked else []
    sizes = _columns_at_once(nest.graph, groups, context.target)
    return _kept(nest, across, sizes) if sizes else inside


def _inside(nest: LoopNest, rows: list[UOp]) -> LoopNest:
    for loop in rows:
        nest = reorder(nest, loop, fresh_number(nest.graph))
    return nest


def _across(kernel: UOp) -> list[UOp] | None:
    """The loops of the results that no reduction changes with, where reductions change with the last loop, along which all is stored; None: they do not."""
    free, outputs = loops_below(kernel), output_loops(kernel)
    reductions = [free[n] for n in free if n.op is REDUCE]
    is_kept = any([n.op is LOCAL_BUFFER for n in free])
    if not reductions or not outputs or is_kept or runs_in_order(kernel):
        return None
    last = outputs[-1]
    stored = [n.src[0].src[1] for n in free if n.op is STORE]
    beside = all([last in loops for loops in reductions])
    if not beside or not all([coefficient(index, last) == 1 for index in stored]):
        return None
    rows = [x for x in outputs if not any([x in loops for loops in reductions])]
    return rows if all(map(is_fixed, rows)) else None


def _columns_at_once(kernel: UOp, groups: list[Alike], target: Target) -> tuple[int, ...]:
    """So many vectors of columns, and lanes of each, as a core adds up at once, if what is kept of them stays in the second cache; (): keep nothing.

    The fewest vectors lie beyond the last column, of which what is kept is not used: the steps allow any number.
    """
    columns = output_loops(kernel)[-1]
    if not groups or target.work_items or not is_fixed(columns):
        return ()
    lanes = max([target.lanes(value.dtype) for ((_, value), *_) in groups])
    row_bytes = sum([size_of(loop) * value.dtype.itemsize for ((loop, value), *_) in groups])
    room = min(target.scratch_bytes, target.room_bytes)
    most, vectors = room // (row_bytes * lanes), -(-size_of(columns) // lanes)
    most = min(most, target.core.sums_at_once)
    return (side_by_side(vectors, most), lanes) if most and size_of(columns) >= lanes else ()


def _kept(nest: LoopNest, rows: list[UOp], sizes: tuple[int, ...]) -> LoopNest:
    """The nest in blocks of so many columns, with what is worth keeping of each kept."""
    columns, number = output_loops(nest.graph)[-1], fresh_number(nest.graph)
    lanes = NewLoop(number + 1)
    made = (NewLoop(*columns.arg), NewLoop(number, AxisRole.UPCAST), lanes)
    nest = _inside(split(nest, columns, sizes, made), rows)
    column = UOp.range(sizes[-1], lanes.number, lanes.role)
    while groups := worth_keeping(nest.graph):
        (loop, value), *others = groups[0]
        number = fresh_number(nest.graph)
        alike = [(other, (its, column)) for its, other in others]
        filled = NewLoop(number + 1, AxisRole.REDUCE), NewLoop(number, AxisRole.REDUCE)
        nest = local_buffer(nest, value, (loop, column), filled, alike)
    return reorder(nest, column, fresh_number(nest.graph))
