"""Tactic: the columns that all tiles of an item read are copied side by side first, where they are kept.

Owns: which load is kept, and along which loops. Does not own: which operands (operands.py), the law (steps/local_buffer.py), the
memory (accumulate.py, backends).

    out[m, n] = sum[k](a[m, k] * b[k, n])

reads b[k, n] for the columns n of a tile and all k, again for each tile of rows. As b lies in memory, each k is
in another page, and many share a set of the first cache. So a loop of its own puts them into memory that the
item has to itself, in the order in which the tiles read: b[k, n] is element (k, n) of LOCAL_BUFFER(b[j, l], j, l).
"""

from __future__ import annotations

from proofgrad.core.compile.nests.loops import fresh_number, size_of
from proofgrad.core.compile.nests.strides import loops_of
from proofgrad.core.compile.nests.sums_of_products import below_conversions
from proofgrad.core.compile.schedule.contraction import load_steps
from proofgrad.core.compile.schedule.table_cycles import TRANSPOSED_ROWS
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.local_buffer import local_buffer
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.steps.merge import merge, reads_as_one
from proofgrad.core.compile.steps.split import split
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort


def pack_columns(nest: LoopNest, vector: UOp, lane: UOp, *tiles: UOp) -> LoopNest:
    """Keep what the one reduction of a tiled kernel loads for its columns, the loops `vector` and `lane`, and converts; for all `tiles` of an item."""
    (reduction,) = [n for n in toposort((nest.graph,)) if n.op is Ops.REDUCE]
    loaded = [n for n in toposort((reduction.src[0],)) if below_conversions(n).op is Ops.LOAD]
    loaded = [n for n in loaded if lane in loops_of(n)]
    if len({below_conversions(n) for n in loaded}) != 1:
        return nest
    column, number = loaded[-1], fresh_number(nest.graph)  # behind its conversions
    free = loops_of(column)
    loops = tuple([x for x in (*tiles, *reduction.src[1:], vector, lane) if x in free])
    roles = [AxisRole.VECTOR if loop is lane else AxisRole.REDUCE for loop in loops]
    made = tuple([NewLoop(number + k, role) for k, role in enumerate(roles)])
    nest = local_buffer(nest, column, loops, made)
    if load_steps(column, reduction.src[-1]) != [1]:
        return nest
    steps = [
        UOp.range(size_of(x), one.number, one.role)
        for x, one in zip(loops, made)
        if x in reduction.src[1:]
    ]
    return _transposed(nest, steps, number + len(loops))


def _transposed(nest: LoopNest, steps: list[UOp], number: int) -> LoopNest:
    """Columns that lie along the sum: four steps at a time, of all loops that lie side by side as one, are transposed in registers."""
    *others, along = steps
    while others and reads_as_one(nest.graph, others[-1], along):
        outer = others.pop()
        nest = merge(nest, outer, along)
        along = UOp.range(size_of(outer) * size_of(along), *outer.arg)
    if size_of(along) < TRANSPOSED_ROWS or (others and size_of(along) % TRANSPOSED_ROWS):
        return nest  # a mask would be inside of other loops
    made = (NewLoop(*along.arg), NewLoop(number, AxisRole.REDUCE))
    return split(nest, along, (TRANSPOSED_ROWS,), made)
