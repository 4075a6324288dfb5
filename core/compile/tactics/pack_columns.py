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
from proofgrad.core.compile.schedule.cost_model import TRANSPOSED_ROWS
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.local_buffer import local_buffer
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.steps.split import split
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort


def pack_columns(nest: LoopNest, vector: UOp, lane: UOp) -> LoopNest:
    """Keep what the one reduction of a tiled kernel loads for its columns, the loops `vector` and `lane`, and converts."""
    (reduction,) = [n for n in toposort((nest.graph,)) if n.op is Ops.REDUCE]
    loaded = [n for n in toposort((reduction.src[0],)) if below_conversions(n).op is Ops.LOAD]
    loaded = [n for n in loaded if lane in loops_of(n)]
    if len({below_conversions(n) for n in loaded}) != 1:
        return nest
    column, number = loaded[-1], fresh_number(nest.graph)  # behind its conversions
    free = loops_of(column)
    loops = tuple([x for x in (*reduction.src[1:], vector, lane) if x in free])
    roles = [AxisRole.VECTOR if loop is lane else AxisRole.REDUCE for loop in loops]
    made = tuple([NewLoop(number + k, role) for k, role in enumerate(roles)])
    nest = local_buffer(nest, column, loops, made)
    step = reduction.src[-1]
    if load_steps(column, step) != [1] or step is not loops[0] or size_of(step) < TRANSPOSED_ROWS:
        return nest
    steps = UOp.range(size_of(step), number, AxisRole.REDUCE)
    inner = NewLoop(number + len(loops), AxisRole.REDUCE)
    return split(nest, steps, (TRANSPOSED_ROWS,), (NewLoop(number, AxisRole.REDUCE), inner))
