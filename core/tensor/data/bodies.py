"""Bodies: graphs over parameters, whose value at some arguments is one node, APPLY.

Owns: what such a node stands for. Does not own: who makes bodies (methods/made_once.py).

A compiler, and who asks for derivatives, is shown the graph; all who walk from a Tensor to what it reads see one node and its arguments.
"""

from __future__ import annotations

from collections.abc import Sequence

from proofgrad.core.ir.op_names import APPLY, PARAM
from proofgrad.core.ir.shapes import elements
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.nodes import reshape_node


def parameter(slot: int, like: UOp) -> UOp:
    """What stands in a body for an argument like this node."""
    return reshape_node(UOp(PARAM, like.dtype, (), (slot, elements(like.shape))), like.shape)


def value_of_body(applied: UOp) -> UOp:
    """The graph that an APPLY stands for, over its sources."""
    return _over(applied.arg, applied.src)


def without_bodies(root: UOp) -> UOp:
    """A graph with what they stand for in place of all APPLYs."""
    return _over(root, ())


def _over(root: UOp, arguments: Sequence[UOp]) -> UOp:
    done: dict[UOp, UOp] = {}
    for node in root.toposort():
        src = tuple([done[source] for source in node.src])
        if node.op is PARAM:
            done[node] = reshape_node(arguments[node.arg[0]], node.shape)
        elif node.op is APPLY:
            done[node] = _over(node.arg, src)
        else:
            done[node] = node.with_src(src)
    return done[root]
