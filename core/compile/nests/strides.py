"""How an index term changes with one loop: the coefficient that the axis procedures ask for.

Does not own: simplification (rules) and the linear normal form of index terms (core/rewrite/sums.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from proofgrad.core.ir.evaluate import evaluate
from proofgrad.core.ir.fragments import own_loops
from proofgrad.core.ir.op_names import (
    ADD,
    CONST,
    LOAD,
    LOCAL_BUFFER,
    MMA,
    MUL,
    NEG,
    REDUCE,
    STORE,
    WHERE,
)
from proofgrad.core.ir.ops import ELEMENTWISE
from proofgrad.core.ir.uop import UOp, coefficients_of, counters_in, found_once, toposort

_NO_LOOPS: frozenset[UOp] = frozenset()
MOST_STEPS = 10_000  # of a walk through a sum, in which a term may stand several times


def coefficient(term: UOp, loop: UOp, beside_loads: bool = False) -> int | None:
    """c where term = c * loop + (something without loop); None if the term is not of that kind.

    `beside_loads`: what is loaded counts as without loop, wherever it is loaded from.
    """
    if term is loop:
        return 1
    if loop not in counters_in(term):
        return 0
    known = coefficients_of(term)
    asked = loop, beside_loads
    if asked not in known:
        known[asked] = _coefficient(term, loop, beside_loads)
    return known[asked]


def _coefficient(term: UOp, loop: UOp, beside_loads: bool) -> int | None:
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
        elif loop in counters_in(node) and (
            not beside_loads or loop in toposort((node,), _is_no_load)
        ):
            return None
        if steps > MOST_STEPS:
            return None
    return total


def _is_no_load(node: UOp) -> bool:
    return node.op is not LOAD


def at_start(term: UOp, values: dict[UOp, int] | None = None) -> int:
    """The value of an integer term where every loop is at 0; 0 if it depends on memory.

    `values`: those of nodes that are known from other terms; more are added.
    """
    known = {} if values is None else values
    for node in toposort((term,), lambda n: n.op in ELEMENTWISE and n not in known):
        if node in known:
            continue
        if node.op is CONST:
            known[node] = int(node.arg)
        elif node.op not in ELEMENTWISE:
            known[node] = 0
        else:
            below, types = [known[s] for s in node.src], [s.dtype for s in node.src]
            known[node] = int(evaluate(node.op, node.dtype, below, types))
    return known[term]


@lru_cache(maxsize=8)  # of the kernel that one tactic after the other asks about
def loops_below(root: UOp) -> Mapping[UOp, frozenset[UOp]]:
    """For each node of a graph, sources first, the RANGE nodes whose value it depends on."""
    return {node: loops_of(node) for node in toposort((root,))}


def conditions_of_choices(free: Mapping[UOp, frozenset[UOp]]) -> list[UOp]:
    """What decides which of two computed values an element is. `free`: the loops that each node changes with (loops_below)."""
    return [n.src[0] for n in free if n.op is WHERE and free[n.src[1]] and free[n.src[2]]]


def _loops_of(node: UOp) -> frozenset[UOp]:
    """Those of the sources; REDUCE, LOCAL_BUFFER, STORE and MMA hide their own."""
    op, src = node.op, node.src
    if op is REDUCE or op is LOCAL_BUFFER:
        return loops_of(src[0]).difference(src[1:])
    found = _NO_LOOPS
    for source in src:
        more = loops_of(source)
        if more is not found and not more <= found:
            found = found | more if found else more
    if op is STORE and len(src) > 2:
        return found.difference(src[2:])
    return found.difference(own_loops(node)) if op is MMA else found


# The RANGE nodes whose value one node depends on.
loops_of = found_once("loops", _loops_of)
