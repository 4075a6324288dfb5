"""Whether what items of a warp exchange is what a Linear says of memory that they share, where nobody waits.

Owns: finding an item that fills or reads what another warp has. Does not own: that all come there together (waiting.py), which
memory is taken to be so (core/compile/lowering/held_by_warps.py), which this file does not believe.
"""

from __future__ import annotations

import numpy

from proofgrad.core.ir.fragments import WARP
from proofgrad.core.ir.op_names import CONST, RANGE, SCRATCH, STORE
from proofgrad.core.ir.uop import AxisRole, UOp, toposort
from proofgrad.verify.kernels.terms import Terms, loop_name


def what_leaves_its_warp(node: UOp, items: int | None) -> str | None:
    """Why a STORE is not of each item's own element, or a LOAD not of one of its warp; None: it is."""
    index = node.src[0]
    memory, position, *mask = index.src
    number = (memory if memory.op is SCRATCH else memory.src[0].src[0].src[0]).arg[0]
    read = _values(position, items)
    if read is None or mask or items is None or items % WARP:
        return f"memory {number} of warps is accessed at {position!r}, of which nothing is known"
    own = numpy.arange(items)
    if node.op is STORE:
        wrong = numpy.flatnonzero(read != own)
        what = "fills the element of another"
    else:
        wrong = numpy.flatnonzero(read // WARP != own // WARP)
        what = "reads what another warp holds"
    return f"item {wrong[0]} {what}, memory {number} of warps" if len(wrong) else None


def _values(position: UOp, items: int | None) -> numpy.ndarray | None:
    """Where each item of a group is; None: that is not known."""
    terms = Terms()
    loops = [n for n in toposort((position,)) if n.op is RANGE]
    are_items = all(
        [
            x.arg[1] is AxisRole.LANE and x.src[0].op is CONST and x.src[0].arg == items
            for x in loops
        ]
    )
    if items is None or len(loops) > 1 or not are_items or not terms.is_computable(position):
        return None
    points = {loop_name(x): numpy.arange(items) for x in loops}
    return numpy.broadcast_to(terms.values(position, points), (items,))
