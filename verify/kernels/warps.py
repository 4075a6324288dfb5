"""Whether memory of a group of which a Linear has no waits is of each item, or each warp, alone.

Owns: finding an item that fills or reads what another item, or another warp, has. Does not own: that the items of a warp come there
together (waiting.py), which memory is taken to be so (core/compile/lowering/held_by_warps.py, held_by_items.py), which this file does
not believe.
"""

from __future__ import annotations

from math import prod

import numpy

from proofgrad.core.ir.fragments import WARP
from proofgrad.core.ir.op_names import CONST, RANGE, SCRATCH, STORE
from proofgrad.core.ir.uop import AxisRole, UOp, toposort
from proofgrad.verify.kernels.terms import Terms, loop_name, loop_size

MOST_POSITIONS = 1 << 18  # of an access, that are computed


def what_leaves_its_warp(node: UOp, items: int | None) -> str | None:
    """Why a STORE is not of each item's own element, or a LOAD not of one of its warp; None: it is."""
    found = _positions(node, items)
    if found is None or items is None or items % WARP or len(node.src[0].src) > 2:
        return f"memory {_number(node)} of warps is accessed where nothing is known"
    item, at = found
    if node.op is STORE:
        return _told(item, item == at, "fills the element of another", node)
    return _told(item, item // WARP == at // WARP, "reads what another warp holds", node)


def what_leaves_its_item(node: UOp, items: int | None, lanes: int) -> str | None:
    """Why an access is not of each item's own elements, which lie so many side by side in each turn; None: it is."""
    found = _positions(node, items)
    if found is None or items is None or (node.op is STORE and len(node.src[0].src) > 2):
        return f"memory {_number(node)} of items is accessed where nothing is known"
    item, at = found
    is_own = (at % lanes + lanes_of(node) <= lanes) & (at // lanes % items == item)
    return _told(item, is_own, "has elements of another", node)


def lanes_of(node: UOp) -> int:
    """How many elements a STORE or LOAD accesses."""
    return node.src[1].dtype.lanes if node.op is STORE else node.dtype.lanes


def _told(item: numpy.ndarray, truth: numpy.ndarray, what: str, node: UOp) -> str | None:
    wrong = item[~truth]
    return f"item {wrong[0]} {what}, in memory {_number(node)}" if len(wrong) else None


def _number(node: UOp) -> int:
    memory = node.src[0].src[0]
    number: int = (memory if memory.op is SCRATCH else memory.src[0].src[0].src[0]).arg[0]
    return number


def _positions(node: UOp, items: int | None) -> tuple[numpy.ndarray, numpy.ndarray] | None:
    """Which item accesses which element, in each iteration of the loops that this changes with; None: that is not known."""
    position, terms = node.src[0].src[1], Terms()
    loops = [n for n in toposort((position,)) if n.op is RANGE]
    are_known = all([x.src[0].op is CONST and x.arg[1] is not AxisRole.BLOCK for x in loops])
    if items is None or not are_known or not terms.is_computable(position):
        return None
    shared = [x for x in loops if x.arg[1] is AxisRole.LANE]
    sizes = [items, *[loop_size(x) for x in loops if x not in shared]]
    if any([loop_size(x) != items for x in shared]) or prod(sizes) > MOST_POSITIONS:
        return None
    item, *others = [axis.ravel() for axis in numpy.indices(sizes)]
    points = {loop_name(x): item for x in shared}
    points.update(zip([loop_name(x) for x in loops if x not in shared], others))
    return item, numpy.broadcast_to(terms.values(position, points), item.shape)
