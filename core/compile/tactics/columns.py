"""Tactic: loops over rows that lie across memory run inside of those that rows lie side by side along.

A softmax over the first axis has rows whose neighbours are elements of other rows. Vectors take an element of each of these rows, and so
each loop over the row, for the largest element, for the sum, for the result, runs inside of the loop over vectors, while
the lines that it reads are in the cache. Does not own: the law (steps/reorder.py), which rows are fused (fusion/rows.py).

    for r < n, c < m: out[r, c] = f(x[r, c], sum[k](x[k, c]))   =   for c < m, r < n: out[r, c] = ...
"""

from __future__ import annotations

from proofgrad.core.compile.nests.loops import fresh_number, is_fixed, output_loops
from proofgrad.core.compile.nests.strides import coefficient, loops_below
from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.schedule.threads import runs_in_order
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.steps.reorder import reorder
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp


def rows_inside(nest: LoopNest, context: Context) -> LoopNest:
    """The loops over such a row get numbers above those of all other loops of the results."""
    for loop in _across(nest.graph):
        nest = reorder(nest, loop, fresh_number(nest.graph))
    return nest


def _across(kernel: UOp) -> list[UOp]:
    """The loops of the results that no reduction changes with, where reductions change with the last loop, along which all is stored."""
    free, outputs = loops_below(kernel), output_loops(kernel)
    reductions = [free[n] for n in free if n.op is Ops.REDUCE]
    is_kept = any([n.op is Ops.LOCAL_BUFFER for n in free])
    if not reductions or not outputs or is_kept or runs_in_order(kernel):
        return []
    last = outputs[-1]
    stored = [n.src[0].src[1] for n in free if n.op is Ops.STORE]
    beside = all([last in loops for loops in reductions])
    if not beside or not all([coefficient(index, last) == 1 for index in stored]):
        return []
    rows = [x for x in outputs if not any([x in loops for loops in reductions])]
    return rows if all(map(is_fixed, rows)) else []
