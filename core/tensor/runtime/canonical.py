"""Graphs with their buffers numbered, so that equal graphs are one object; what graphs came to.

Owns: the numbers, what nodes have been computed to. Does not own: memory, running (realize.py).
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.op_names import BUFFER, CONTIGUOUS, DETACH, DEVICE, IOTA, PARAM, SINK, UNIQUE
from proofgrad.core.ir.ops import MOVEMENT
from proofgrad.core.ir.shapes import names_variables, sizes
from proofgrad.core.ir.uop import UOp, toposort

_LEAVES = frozenset({UNIQUE, DEVICE})
COMPUTED: WeakKeyDictionary[UOp, UOp] = WeakKeyDictionary()  # a node: a buffer, in its shape
SHOWN: WeakKeyDictionary[UOp, UOp] = WeakKeyDictionary()  # see scheduling.py


def computed(uop: UOp) -> UOp:
    """What `uop` has been computed to, if it has; else `uop`."""
    return COMPUTED.get(uop, uop)


def remember_graph(shown: UOp, graph: UOp) -> None:
    """`shown`, made of ASSIGNs of kernels, stands for the value of `graph`."""
    SHOWN[shown] = graph


def buffers_of(graph: UOp) -> list[UOp]:
    """The numbered buffers of a graph, in order."""
    return sorted(
        [node for node in graph.toposort() if node.op is BUFFER], key=lambda b: b.src[0].arg
    )


def with_buffers(graph: UOp, buffers: list[UOp]) -> list[UOp]:
    """The roots of a numbered graph, over real buffers."""
    return list(graph.substitute(dict(zip(buffers_of(graph), buffers))).src)


def numbered(
    roots: list[UOp], device: str, values: dict[str, int] | None = None
) -> tuple[UOp, list[UOp]]:
    """The graph with its buffers numbered 0, 1, ... in order: equal graphs become one object.

    Variables lose their values, which go into `values`.
    """
    values = {} if values is None else values
    done: dict[UOp, UOp] = {}
    inputs: list[UOp] = []
    if SHOWN:
        roots = _without_kernels(roots)
    some = len(COMPUTED) > 0  # most often not: then no node is looked up
    for node in toposort(roots, is_not_computed if some else None):
        known = COMPUTED.get(node) if some else None
        if known is not None:
            for part in known.toposort():
                if part not in done:
                    done[part] = _renumber(part, done, inputs, values)
            done[node] = done[known]
        elif node not in done:
            done[node] = _renumber(node, done, inputs, values)
    return UOp(SINK, dtypes.void, tuple([done[root] for root in roots]), device), inputs


def is_not_computed(node: UOp) -> bool:
    """Whether no buffer holds the value of `node`: a walk for what is still to compute goes on below it."""
    return node not in COMPUTED


def _without_kernels(roots: list[UOp]) -> list[UOp]:
    """The graphs with the values that kernels were shown for in their place."""
    nodes = toposort(roots, lambda n: n not in COMPUTED and n not in SHOWN)
    if not any(node in SHOWN for node in nodes):
        return roots
    done: dict[UOp, UOp] = {}
    for node in nodes:
        stands_for = SHOWN.get(node)
        if stands_for is not None:
            done[node] = computed(stands_for)
        elif all(source in done for source in node.src):
            done[node] = node.with_src(tuple([done[source] for source in node.src]))
        else:
            done[node] = node
    return [done[root] for root in roots]


def _renumber(node: UOp, done: dict[UOp, UOp], inputs: list[UOp], values: dict[str, int]) -> UOp:
    op = node.op
    if op in _LEAVES:
        return node
    if op is BUFFER:
        inputs.append(node)
        unique = UOp(UNIQUE, dtypes.void, (), len(inputs) - 1)
        return UOp(BUFFER, node.dtype, (unique, node.src[1]), node.arg)
    if op is PARAM:
        raise ValueError(
            f"parameter {node.arg[0]} of a body has no value; give it one with Tensor.call"
        )
    if op is DETACH or op is CONTIGUOUS:  # what only gradients look at is left out
        return UOp(op, node.dtype, (done[node.src[0]],))
    src = tuple([done[s] for s in node.src])
    if (op in MOVEMENT and names_variables(node.arg)) or (op is IOTA and type(node.arg) is UOp):
        return UOp(op, node.dtype, src, sizes().unbound(node.arg, values))
    return node.with_src(src)
