"""How an index term changes with one loop: the coefficient that the axis procedures ask for.

Does not own: simplification (rules) and the linear normal form of views (core/rewrite/views.py).
"""

from __future__ import annotations

from proofgrad.core.ir.evaluate import evaluate
from proofgrad.core.ir.op_names import ADD, CONST, KEEP, MUL, NEG, RANGE, REDUCE, STORE
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.uop import UOp, toposort

MOST_STEPS = 10_000  # of a walk through a sum, in which a term may stand several times


def coefficient(term: UOp, loop: UOp, beside_loads: bool = False) -> int | None:
    """c where term = c * loop + (something without loop); None if the term is not of that kind.

    `beside_loads`: what is loaded counts as without loop, wherever it is loaded from.
    """
    total, steps = 0, 0
    stack = [(term, 1)]
    while stack:
        node, factor = stack.pop()
        steps += 1
        op = node.op
        if node is loop:
            total += factor
        elif op is ADD:
            stack += [(source, factor) for source in node.src]
        elif op is NEG:
            stack.append((node.src[0], -factor))
        elif op is MUL and node.src[1].op is CONST:
            stack.append((node.src[0], factor * node.src[1].arg))
        elif op is MUL and node.src[0].op is CONST:
            stack.append((node.src[1], factor * node.src[0].arg))
        elif node.src and loop in toposort((node,), _is_no_load if beside_loads else None):
            return None
        if steps > MOST_STEPS:
            return None
    return total


def _is_no_load(node: UOp) -> bool:
    return node.op is not Ops.LOAD


def at_start(term: UOp) -> int:
    """The value of an integer term where every loop is at 0; 0 if it depends on memory."""
    values: dict[UOp, int] = {}
    for node in toposort((term,)):
        known = [values[s] for s in node.src]
        if node.op is CONST:
            values[node] = int(node.arg)
        elif node.op in (Ops.LOAD, RANGE) or node.op not in ELEMENTWISE:
            values[node] = 0
        else:
            values[node] = int(evaluate(node.op, node.dtype, known, [s.dtype for s in node.src]))
    return values[term]


def loops_below(root: UOp) -> dict[UOp, frozenset[UOp]]:
    """For each node the RANGE nodes whose value it depends on; REDUCE, KEEP and STORE hide their own."""
    found: dict[UOp, frozenset[UOp]] = {}
    for node in toposort((root,)):
        below: frozenset[UOp] = frozenset()
        for source in node.src:
            if not found[source] <= below:
                below = below | found[source] if below else found[source]
        if node.op is RANGE:
            below = frozenset((node,))
        elif node.op in (REDUCE, KEEP):
            below = found[node.src[0]].difference(node.src[1:])
        elif node.op is STORE and len(node.src) > 2:
            below = below.difference(node.src[2:])
        found[node] = below
    return found
