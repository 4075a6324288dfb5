"""Tactic: what several loops over one row compute alike is computed once, and kept.

Owns: which values are kept. Does not own: the law (steps/local_buffer.py), the memory (accumulate.py, backends).

A softmax takes exp2 of each element of a row for the sum, and again for the result. Here a loop of its
own puts exp2 into memory of one row, and both read it there: v(i) is element i of LOCAL_BUFFER(v(k), k).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from proofgrad.core.compile.nests.loops import fresh_number, is_fixed, output_loops, size_of
from proofgrad.core.compile.nests.strides import loops_below
from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.schedule.cost_model import COSTLY
from proofgrad.core.compile.schedule.tiles import find_contraction
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.local_buffer import functions_of, local_buffer
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort


def use_local_buffers(nest: LoopNest, context: Context) -> LoopNest:
    """Keep the costly values that several loops over a row compute alike."""
    nodes, target = toposort((nest.graph,)), context.target
    if not any(n.op in COSTLY for n in nodes) or not any(n.op is Ops.REDUCE for n in nodes):
        return nest
    if context.override.buffered is False:
        return nest
    if target.scratch_bytes == 0 or find_contraction(nest.graph, target) is not None:
        return nest
    room = target.scratch_bytes
    for alike in _computed_alike(nest.graph):
        (loop, value), *others = alike
        nbytes = size_of(loop) * value.dtype.itemsize
        if nbytes > room:
            continue
        room -= nbytes
        there = set(toposort((nest.graph,)))  # not what is below a value that is kept by now
        same = [(other, its) for its, other in others if other in there]
        row = NewLoop(fresh_number(nest.graph), AxisRole.REDUCE)
        nest = local_buffer(nest, value, (loop,), (row,), same)
    return nest


def _computed_alike(kernel: UOp) -> list[list[tuple[UOp, UOp]]]:
    """Values that are the same function of different loops, each with its loop; the largest such."""
    free = loops_below(kernel)
    outer = output_loops(kernel)
    found: dict[int, list[tuple[UOp, UOp]]] = {}
    functions: dict[Any, int] = {}
    for loop in _loops_over_rows(free, outer):
        costly = _costly_along(loop, free, outer)
        names = functions_of(costly, loop, functions)
        for node in costly:
            found.setdefault(names[node], []).append((loop, node))
    alike = [group for group in found.values() if len({loop for loop, _ in group}) > 1]
    inside = {n for group in alike for _, value in group for n in toposort(value.src)}
    return [group for group in alike if group[0][1] not in inside]


def _loops_over_rows(free: Mapping[UOp, frozenset[UOp]], outer: list[UOp]) -> list[UOp]:
    """The loops of reductions that have one, and the loops of the output."""
    own = [n.src[1] for n in free if n.op is Ops.REDUCE and len(n.src) == 2]
    return [loop for loop in dict.fromkeys([*own, *outer]) if is_fixed(loop)]


def _costly_along(loop: UOp, free: Mapping[UOp, frozenset[UOp]], outer: list[UOp]) -> list[UOp]:
    """Values made by costly operations that change with `loop`, and beside it with outer loops only.

    Those are the first loops of the output, so that a row is kept in their body.
    """
    costly: dict[UOp, bool] = {}
    found = []
    for node, loops in free.items():
        moves = loop in loops and node.op in ELEMENTWISE and node.dtype is not dtypes.index
        costly[node] = moves and (node.op in COSTLY or any([costly[s] for s in node.src]))
        if costly[node]:
            first = outer[: len(loops) - 1]
            found += [node] if loop not in first and loops - {loop} == set(first) else []
    return found
