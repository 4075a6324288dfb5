"""Kernel -> Kernel: the columns that all tiles of an item read are copied side by side first, where they are kept.

Owns: the KEEP, and its layout. Does not own: which operands (operands.py), the memory (accumulate.py, backends).

    out[m, n] = sum[k](a[m, k] * b[k, n])

reads b[k, n] for the columns n of a tile and all k, again for each tile of rows. As b lies in memory, each k is
in another page, and many share a set of the first cache. So a loop of its own puts them into memory that the
item has to itself, in the order in which the tiles read: b[k, n] is element (k, n) of KEEP(b[j, l], j, l).
"""

from __future__ import annotations

from proofgrad.core.compile.contraction import size_of
from proofgrad.core.compile.linear_terms import loops_of
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort


def pack_columns(kernel: UOp, vector: UOp, lane: UOp) -> UOp:
    """Keep what the one reduction of a tiled kernel loads for its columns, the loops `vector` and `lane`."""
    nodes = toposort((kernel,))
    (reduction,) = [n for n in nodes if n.op is Ops.REDUCE]
    loads = [n for n in toposort((reduction.src[0],)) if n.op is Ops.LOAD and lane in loops_of(n)]
    if len(loads) != 1:
        return kernel
    (load,), number = loads, 1 + max(n.arg[0] for n in nodes if n.op is Ops.RANGE)
    free = loops_of(load)
    place, fresh = UOp.index(0), {}
    for loop in [x for x in (*reduction.src[1:], vector, lane) if x in free]:
        role = AxisRole.VECTOR if loop is lane else AxisRole.REDUCE
        fresh[loop] = UOp.range(size_of(loop), number + len(fresh), role)
        place = place * size_of(loop) + loop
    kept = UOp(Ops.KEEP, load.dtype, (load.substitute(fresh), *fresh.values()))
    there = UOp(Ops.LOAD, load.dtype, (UOp(Ops.INDEX, load.dtype, (kept, place)),))
    return kernel.substitute({load: there})
