"""Tactic: what is made of the rows of a product, as in attention, is computed once for each row, and kept.

Owns: which values are kept. Does not own: which nests are so (schedule/row_products.py), the law (steps/local_buffer.py).

    s = local[j](sum[k](q[i, k] * c[j, k])),   w = local[j](... s[j], max[j](s[j]) ...),   out[i, d] = sum[j](w[j] * v[j, d])

Powers that are added up and used again are kept, too.
"""

from __future__ import annotations

from typing import Any

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.loops import fresh_number, size_of
from proofgrad.core.compile.nests.strides import loops_below
from proofgrad.core.compile.nests.weighted_sums import loops_of_blocks, loops_over_row
from proofgrad.core.compile.schedule.operation_cycles import COSTLY
from proofgrad.core.compile.schedule.row_products import find_row_products, keys_of_block
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.local_buffer import functions_of, local_buffer
from proofgrad.core.compile.steps.loop_nest import LoopNest, StepRefused
from proofgrad.core.compile.steps.rescale_blocks import rescale_blocks
from proofgrad.core.compile.steps.split import split
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort


def keep_rows(nest: LoopNest, target: Target) -> LoopNest:
    """What several loops over the keys compute alike, and the weights, are computed once for each row, or block of it."""
    nest = _in_blocks(nest, target)
    while alike := _most_alike(nest.graph):
        (loop, value), *others = alike
        same = [(other, (its,)) for its, other in others]
        nest = local_buffer(nest, value, (loop,), (_row(nest),), same)
    found = find_row_products(nest.graph, target)
    if found is None or found.weights.op is Ops.LOAD:
        return nest
    return local_buffer(nest, found.weights, (found.keys,), (_row(nest),))


def _in_blocks(nest: LoopNest, target: Target) -> LoopNest:
    """A row is taken in blocks of keys, each beside its own maximum, where that may be so."""
    found = find_row_products(nest.graph, target)
    keys = 0 if found is None else keys_of_block(found, target)
    loops, start = () if found is None else loops_over_row(found.total), nest
    if found is None or not keys or not loops:
        return nest
    try:
        for loop in loops:
            inner = NewLoop(fresh_number(nest.graph), AxisRole.REDUCE)
            nest = split(nest, loop, (keys,), (NewLoop(*loop.arg), inner))
        blocks = UOp.range(-(-size_of(found.keys) // keys), *found.keys.arg)
        (total,) = [
            n for n in toposort((nest.graph,)) if n.op is Ops.REDUCE and blocks in n.src[1:]
        ]
        return rescale_blocks(nest, total)
    except StepRefused:  # then all of a row is kept
        return start


def _row(nest: LoopNest) -> NewLoop:
    return NewLoop(fresh_number(nest.graph), AxisRole.REDUCE)


def _most_alike(kernel: UOp) -> list[tuple[UOp, UOp]]:
    """Values that are the same function of as many loops as possible, each with its loop; of these the largest."""
    free = loops_below(kernel)
    functions: dict[Any, int] = {}
    groups: dict[int, list[tuple[UOp, UOp]]] = {}
    reductions = [n for n in free if n.op is Ops.REDUCE and len(n.src) == 2]
    for loop in dict.fromkeys([n.src[1] for n in reductions]):
        values = _computed_along(loop, kernel)
        names = functions_of(values, (loop,), functions)
        for value in values:
            groups.setdefault(names[value], []).append((loop, value))
    alike = [group for group in groups.values() if len({loop for loop, _ in group}) > 1]
    return max(alike, key=lambda group: (len(group), len(toposort((group[0][1],)))), default=[])


def _computed_along(loop: UOp, kernel: UOp) -> list[UOp]:
    """Values that a reduction or a costly operation makes in each iteration of a loop, and of loops of results alone."""
    free, deep = loops_below(kernel), dict[UOp, bool]()
    for node, loops in free.items():
        is_value = node.op in ELEMENTWISE or node.op is Ops.REDUCE
        makes = node.op is Ops.REDUCE or node.op in COSTLY or any([deep[s] for s in node.src])
        deep[node] = is_value and loop in loops and makes and node.dtype is not dtypes.index
    outer = free[kernel] | loops_of_blocks(kernel) | {loop}
    return [node for node, is_deep in deep.items() if is_deep and free[node] <= outer]
