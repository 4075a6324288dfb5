"""How an index term changes with one loop: the coefficient that the axis procedures ask for.

Does not own: simplification (rules) and the linear normal form of views (core/rewrite/views.py).
"""

from __future__ import annotations

from proofgrad.core.ir.evaluate import evaluate
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.uop import UOp, toposort


def coefficient(term: UOp, loop: UOp) -> int | None:
    """c where term = c * loop + (something without loop); None if the term is not of that kind."""
    known: dict[UOp, int | None] = {}
    for node in toposort((term,)):
        known[node] = _coefficient_of(node, loop, known)
    return known[term]


def _coefficient_of(node: UOp, loop: UOp, known: dict[UOp, int | None]) -> int | None:
    if node is loop:
        return 1
    parts = [known[s] for s in node.src]
    if not any(p is None or p for p in parts):
        return 0
    if any(p is None for p in parts):
        return None
    match node.op:
        case Ops.ADD:
            return sum(p for p in parts if p is not None)
        case Ops.NEG:
            return None if parts[0] is None else -parts[0]
        case Ops.MUL:
            factor, other = (0, 1) if node.src[0].op is Ops.CONST else (1, 0)
            if node.src[factor].op is not Ops.CONST or parts[other] is None:
                return None
            scaled: int = node.src[factor].arg * parts[other]
            return scaled
        case _:
            return None


def at_start(term: UOp) -> int:
    """The value of an integer term where every loop is at 0; 0 if it depends on memory."""
    values: dict[UOp, int] = {}
    for node in toposort((term,)):
        known = [values[s] for s in node.src]
        if node.op is Ops.CONST:
            values[node] = int(node.arg)
        elif node.op in (Ops.LOAD, Ops.RANGE) or node.op not in ELEMENTWISE:
            values[node] = 0
        else:
            values[node] = int(evaluate(node.op, node.dtype, known, [s.dtype for s in node.src]))
    return values[term]


def loops_below(root: UOp) -> dict[UOp, frozenset[UOp]]:
    """For each node the RANGE nodes whose value it depends on; a reduction hides its own."""
    found: dict[UOp, frozenset[UOp]] = {}
    for node in toposort((root,)):
        if node.op is Ops.RANGE:
            found[node] = frozenset((node,))
        elif node.op is Ops.REDUCE:
            found[node] = found[node.src[0]] - set(node.src[1:])
        else:
            found[node] = frozenset().union(*[found[s] for s in node.src])
    return found
