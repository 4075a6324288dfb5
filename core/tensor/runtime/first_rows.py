"""The first rows of what gets memory: all of it is computed, and the rows are shown.

Owns: which cuts are meant. So the kernels are the same however many rows there are, as of the elements that a mask chooses, and
nothing is copied. Does not own: what is computed (realize.py).
"""

from __future__ import annotations

from typing import Any

from proofgrad.core.ir.op_names import CONTIGUOUS
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import is_plain
from proofgrad.core.ir.uop import UOp

# Of five rows so many are to be shown at least: else a copy would be worth the memory that it saves.
SHOWN_OF_FIVE = 4
SHRINK = Ops.SHRINK


def room_for(rows: int) -> int:
    """So many rows or a few more: four numbers between a power of two and the next."""
    step = 1 << max(0, rows.bit_length() - 3)
    return -(-rows // step) * step


def cut_of(root: UOp) -> Any:
    """How `root` cuts the first rows from a CONTIGUOUS, most of its rows; None: it is something else."""
    if root.op is not SHRINK or root.src[0].op is not CONTIGUOUS:
        return None
    (whole,), cuts = root.src, root.arg
    if not is_plain((*whole.shape, *root.shape)) or cuts[0][0] != 0:
        return None
    if cuts[1:] != tuple([(0, size) for size in whole.shape[1:]]):
        return None
    return cuts if 5 * root.shape[0] >= SHOWN_OF_FIVE * whole.shape[0] else None


def below(root: UOp, cut: Any) -> UOp:
    """What is computed for `root`, whose cut is known."""
    return root if cut is None else root.src[0]


def shown(node: UOp, cut: Any) -> UOp:
    """What a value shows."""
    return node if cut is None else UOp(SHRINK, node.dtype, (node,), cut)
