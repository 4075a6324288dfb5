"""Operands of commutative operations change positions, and so do the parameters of a kernel.

    f(a + b)   =   f(b + a)                     for every operation that commutes, at every node where it is wanted

    f(m, n)    =   g(n, m)                      g is f with its parameters numbered in another order

A canonical order of operands makes one kernel of those that differ by it alone: equal layers of a model, steps in time.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from proofgrad.core.compile.steps.loop_nest import require
from proofgrad.core.compile.steps.tensor_program import TensorProgram, graph_step
from proofgrad.core.ir.op_names import PARAM
from proofgrad.core.ir.ops import COMMUTATIVE, Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.core.rewrite.order import StableOrder

# -- the functions of the law ---------------------------------------------------------------------


def exchanged(op: Ops, operands: tuple[Any, ...], is_wanted: Any) -> tuple[Any, ...]:
    """The operands in the other order, where that is wanted of an operation that commutes."""
    return operands[::-1] if op in COMMUTATIVE and is_wanted else operands


# -- the step -------------------------------------------------------------------------------------


@graph_step("f(a + b) = f(b + a)")
def exchange(program: TensorProgram, calls: Collection[UOp]) -> UOp:
    """The operands in the bodies of `calls` in an order that does not depend on what their parameters are numbered."""
    graph = program.graph
    require(graph.op is Ops.SINK and set(graph.src).issuperset(calls), "no kernel of the program")
    known: dict[UOp, tuple[UOp, tuple[int, ...]]] = {}  # equal kernels are put in order once
    wanted, order = set(calls), StableOrder()
    made = [_in_order(call, known, order) if call in wanted else call for call in graph.src]
    return graph.replace(src=tuple(made))


def _in_order(call: UOp, known: dict[UOp, tuple[UOp, tuple[int, ...]]], order: StableOrder) -> UOp:
    """The call with its operands in order, and its sources as they are then first read."""
    body = call.src[0]
    if body not in known:
        known[body] = _renumbered(_body_in_order(body, order))
    made, slots = known[body]
    return call.replace(src=(made, call.src[1], *[call.src[1 + slot] for slot in slots]))


def _body_in_order(body: UOp, order: StableOrder) -> UOp:
    made: dict[UOp, UOp] = {}
    nameless: dict[
        UOp, UOp
    ] = {}  # each node over parameters that are all number 0, by which it is sorted
    for node in toposort((body,)):
        if node.op is PARAM:
            made[node], nameless[node] = node, node.replace(arg=(0, node.arg[1]))
            continue
        swaps = False
        if node.op in COMMUTATIVE:
            one, other = [order.key(nameless[source]) for source in node.src]
            swaps = other < one
        sources = exchanged(node.op, node.src, swaps)
        made[node] = node.with_src(tuple([made[s] for s in sources]))
        nameless[node] = node.with_src(tuple([nameless[s] for s in sources]))
    return made[body]


def _renumbered(body: UOp) -> tuple[UOp, tuple[int, ...]]:
    """The body with its parameters numbered as they are first read, and what they were numbered."""
    params = [n for n in toposort((body,)) if n.op is PARAM and n.arg[0]]
    slots = list(dict.fromkeys([param.arg[0] for param in params]))
    changes = {p: p.replace(arg=(1 + slots.index(p.arg[0]), p.arg[1])) for p in params}
    return body.substitute(changes), tuple(slots)
