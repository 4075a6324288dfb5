"""Tactic: what several loops over one row compute alike is computed once, and kept.

Owns: which values are kept. Does not own: the law (steps/local_buffer.py), the memory (accumulate.py, backends).

A softmax takes exp2 of each element of a row for the sum, and again for the result. Here a loop of its
own puts exp2 into memory of one row, and both read it there: v(i) is element i of LOCAL_BUFFER(v(k), k).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.loops import fresh_number, is_fixed, output_loops, size_of
from proofgrad.core.compile.nests.strides import coefficient, loops_below
from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.schedule.operation_cycles import COSTLY
from proofgrad.core.compile.schedule.row_products import find_row_products
from proofgrad.core.compile.schedule.tiles import find_contraction
from proofgrad.core.compile.schedule.vectors import SHORT_REDUCTION
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.local_buffer import functions_of, local_buffer
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.tactics.keep_rows import keep_rows
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.op_names import REDUCE
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort

# Loops over a row, each with a value that changes with it; of a loop, those values that may be kept.
Alike: TypeAlias = list[tuple[UOp, UOp]]
Values: TypeAlias = Callable[[UOp, Mapping[UOp, frozenset[UOp]], list[UOp]], list[UOp]]


def use_local_buffers(nest: LoopNest, context: Context) -> LoopNest:
    """Keep the costly values that several loops over a row compute alike."""
    nodes, target = toposort((nest.graph,)), context.target
    if not any(n.op in COSTLY for n in nodes) or not any(n.op is REDUCE for n in nodes):
        return nest
    if context.override.buffered is False:
        return nest
    if find_row_products(nest.graph, target) is not None:
        return keep_rows(nest, target)
    if target.scratch_bytes == 0 or find_contraction(nest.graph, target) is not None:
        return nest
    room, is_asked = target.scratch_bytes, context.override.buffered
    while worth := [a for a in worth_keeping(nest.graph) if _row_bytes(a) <= room]:
        alike = worth[0]
        if not is_asked and (
            _is_in_lanes_of_rows(alike, nest.graph, target)
            or (not target.work_items and rows_across(alike, nest.graph))
        ):
            return nest
        room -= _row_bytes(alike)
        nest = kept_along_row(nest, alike, AxisRole.REDUCE)
    return nest


def _is_in_lanes_of_rows(alike: Alike, kernel: UOp, target: Target) -> bool:
    """Whether rows are shorter than a vector, and a vector of rows is as fast as it computes each element twice (measured: a softmax over 2 to
    15 columns takes .15 to .9 times as long).
    """
    loop, value = alike[0]
    lanes = 1 if target.work_items else target.lanes(value.dtype)
    rows = [size_of(x) for x in output_loops(kernel) if is_fixed(x) and x not in _loops(alike)]
    return size_of(loop) < lanes <= max(rows, default=0)


def rows_across(alike: Alike, kernel: UOp) -> bool:
    """Whether neighbours of a row lie apart in memory, and rows side by side: these run as lanes (tactics/columns.py)."""
    (loop, value), last = alike[0], output_loops(kernel)[-1:]
    read = [n.src[0].src[1] for n in toposort((value,)) if n.op is Ops.LOAD]
    is_beside = any([coefficient(index, x) == 1 for index in read for x in last])
    return is_beside and not any([coefficient(index, loop) == 1 for index in read])


def _row_bytes(alike: Alike) -> int:
    loop, value = alike[0]
    return size_of(loop) * value.dtype.itemsize


def worth_keeping(kernel: UOp) -> list[Alike]:
    """The largest such values, after those that more loops compute than any of what is made of them, as the scores of a softmax.

    Once these are kept, the others are made of what is in memory. A row that is written out has them at hand.
    """
    groups = [g for g in _all_alike(kernel, costly_along) if not _is_written_out(_loops(g))]
    made = [({n for _, value in g for n in toposort(value.src)}, _loops(g)) for g in groups]

    def is_kept(group: Alike) -> bool:
        (_, value), loops = group[0], _loops(group)
        return all([its < loops for below, its in made if value in below])

    return sorted(filter(is_kept, groups), key=lambda group: -len(_loops(group)))


def _is_written_out(loops: set[UOp]) -> bool:
    """Whether all of them are of reductions, and so short that one iteration has all of their values."""
    return all([x.arg[1] is AxisRole.REDUCE and size_of(x) <= SHORT_REDUCTION for x in loops])


def _loops(alike: Alike) -> set[UOp]:
    return {loop for loop, _ in alike}


def kept_along_row(
    nest: LoopNest, alike: Alike, role: AxisRole, rows: tuple[UOp, ...] = ()
) -> LoopNest:
    """Values that are alike, computed once by a loop of this role, of the largest number, and kept; `rows`: along these loops, too.

    The nest itself where they are made of others that are kept by now.
    """
    (loop, value), *others = alike
    there = set(toposort((nest.graph,)))  # not what is below a value that is kept by now
    if value not in there:
        return nest
    same = [(other, (its,)) for its, other in others if other in there]
    number = fresh_number(nest.graph)
    made = [NewLoop(number + k, AxisRole.REDUCE) for k in range(len(rows))]
    row = NewLoop(number + len(rows), role)
    return local_buffer(nest, value, (*rows, loop), (*made, row), same)


def computed_alike(kernel: UOp, values: Values) -> list[Alike]:
    """Values that are the same function of different loops, each with its loop; the largest such."""
    alike = _all_alike(kernel, values)
    inside = {n for group in alike for _, value in group for n in toposort(value.src)}
    return [group for group in alike if group[0][1] not in inside]


def _all_alike(kernel: UOp, values: Values) -> list[Alike]:
    free = loops_below(kernel)
    outer = output_loops(kernel)
    found: dict[int, list[tuple[UOp, UOp]]] = {}
    functions: dict[Any, int] = {}
    for loop in _loops_over_rows(free, outer):
        along = values(loop, free, outer)
        names = functions_of(along, (loop,), functions)
        for node in along:
            found.setdefault(names[node], []).append((loop, node))
    return [group for group in found.values() if len(_loops(group)) > 1]


def _loops_over_rows(free: Mapping[UOp, frozenset[UOp]], outer: list[UOp]) -> list[UOp]:
    """The loops of reductions that have one, and the loops of the output."""
    own = [n.src[1] for n in free if n.op is REDUCE and len(n.src) == 2]
    return [loop for loop in dict.fromkeys([*own, *outer]) if is_fixed(loop)]


def costly_along(loop: UOp, free: Mapping[UOp, frozenset[UOp]], outer: list[UOp]) -> list[UOp]:
    """Values made by costly operations that change with `loop`, and beside it with loops around a row only."""
    costly: dict[UOp, bool] = {}
    found = []
    for node, loops in free.items():
        moves = loop in loops and node.op in ELEMENTWISE and node.dtype is not dtypes.index
        costly[node] = moves and (node.op in COSTLY or any([costly[s] for s in node.src]))
        if costly[node] and is_of_row(loops, loop, outer):
            found.append(node)
    return found


def is_of_row(loops: frozenset[UOp], loop: UOp, outer: list[UOp]) -> bool:
    """Whether what changes with these loops changes with `loop` and the first loops of the output: a row is kept in their body."""
    first = outer[: len(loops) - 1]
    return loop not in first and loops - {loop} == set(first)
