"""What an index is a multiple of, for wide loads of machines that ask for it.

Owns: a power of two that divides an index for all values of its loops; whether none of them is negative. Does not own: how buffers lie (dialect.py).

Index terms of Linear are machine integers of which every value fits (steps/narrow.py), and wrapping keeps powers of two.
"""

from __future__ import annotations

from proofgrad.core.ir.op_names import ADD, CONST, MUL, NEG, RANGE, SHL
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort

MOST = 1 << 4


_UPWARD = frozenset({ADD, MUL, CONST, RANGE, Ops.TRUNCDIV, Ops.TRUNCMOD, Ops.SHR, Ops.AND, Ops.MIN})


def counts_up(term: UOp) -> bool:
    """Whether an index is shown to be 0 or more by what it is made of: loops, and numbers that are so."""
    nodes = toposort((term,), lambda n: n.op is not RANGE)
    is_made = all([n.op in _UPWARD for n in nodes])
    return is_made and all([n.arg >= 0 for n in nodes if n.op is CONST])


def largest_power_of_two(term: UOp) -> int:
    """A power of two up to MOST that divides the term."""
    known: dict[UOp, int] = {}
    for node in toposort((term,), lambda n: n.op in (ADD, MUL, NEG, SHL)):
        below = [known.get(s, 1) for s in node.src]
        if node.op is CONST:
            known[node] = min(MOST, node.arg & -node.arg) or MOST
        elif node.op is ADD:
            known[node] = min(below)
        elif node.op is MUL:
            known[node] = min(MOST, below[0] * below[1])
        elif node.op is NEG:
            known[node] = below[0]
        elif node.op is SHL and node.src[1].op is CONST:
            known[node] = min(MOST, below[0] << min(node.src[1].arg, 8))
        else:
            known[node] = 1
    return known[term]
