"""Loops that a variable may end before their last iteration, as the masks of what is stored and of what a sum takes in say.

Owns: which. Does not own: what follows for tables (row_cycles.py, operands.py), shorter loops (steps/extend.py).

A table is filled for all iterations of a loop, whatever a variable says: for its largest value, which may be thousands of times the one
that is bound.
"""

from __future__ import annotations

from proofgrad.core.compile.nests.strides import loops_of
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort


def ended_by_variables(position: UOp, reduction: UOp) -> frozenset[UOp]:
    """The loops beyond whose end by a variable nothing is stored at a position, or nothing taken in by a sum."""
    found: set[UOp] = set()
    value = reduction.src[0]
    truths = list(position.src[2:])
    truths += value.src[:1] if value.op is Ops.WHERE else ()
    truths += [t for n in toposort((value,)) if n.op is Ops.INDEX for t in n.src[2:]]
    while truths:
        truth = truths.pop()
        if truth.op is Ops.AND:
            truths += truth.src
        elif truth.op is Ops.CMPLT and _has_variables(truth.src[1]):
            found |= loops_of(truth.src[0])
    return frozenset(found)


def _has_variables(term: UOp) -> bool:
    return any([node.op is Ops.VARIABLE for node in toposort((term,))])
