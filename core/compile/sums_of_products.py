"""What a sum of products looks like: as a tensor node, and as the term of a kernel's loop.

Does not own: what is done with one (split_reductions.py, schedule.py, nested_sums.py, tiles.py,
accumulate.py).
"""

from __future__ import annotations

from proofgrad.core.ir.ops import MOVEMENT, Ops
from proofgrad.core.ir.uop import UOp


def is_contraction(node: UOp) -> bool:
    """A sum of products whose factors are each used for many results, as in a product of matrices."""
    return node.op is Ops.REDUCE_AXIS and node.arg[0] is Ops.ADD and is_product(node.src[0])


def is_product(node: UOp) -> bool:
    """The terms of such a sum: a product of values that are both expanded."""
    return node.op is Ops.MUL and all([_is_expanded(factor) for factor in node.src])


def operands(contraction: UOp) -> list[UOp]:
    """What the factors of a contraction read, below the movement operations."""
    found: list[UOp] = []
    for node in contraction.src[0].src:
        while node.op in MOVEMENT:
            node = node.src[0]
        found.append(node)
    return found


def is_gated(term: UOp) -> bool:
    """Whether a term of a sum is a choice between a value and 0, which changes no sum."""
    return term.op is Ops.WHERE and term.src[2].op is Ops.CONST and term.src[2].arg == 0


def _is_expanded(node: UOp) -> bool:
    while node.op in MOVEMENT:
        if node.op is Ops.EXPAND and node.shape != node.src[0].shape:
            return True
        node = node.src[0]
    return False
