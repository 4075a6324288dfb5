"""The index terms of index_terms.py as tinygrad's, and its strongest simplification of them.

Owns: the translation, counting work in tinygrad's terms. Does not own: the terms, the comparison.
"""

from __future__ import annotations

from typing import Any

from index_terms import Work
from tinygrad.uop.ops import GroupOp, graph_rewrite
from tinygrad.uop.ops import Ops as TheirOps
from tinygrad.uop.ops import UOp as TheirUOp
from tinygrad.uop.symbolic import sym

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp

DIVISIONS = frozenset({TheirOps.FLOORDIV, TheirOps.FLOORMOD, TheirOps.CDIV, TheirOps.CMOD})


def translated(term: UOp) -> Any:
    """The same term, node by node, as tinygrad builds it; a mask becomes a masked index."""
    known: dict[UOp, Any] = {}
    for node in term.toposort():
        if node.op not in (Ops.PARAM, Ops.INDEX):
            known[node] = _node(node, [known[source] for source in node.src])
    position = known[term.src[1]]
    return position.valid(known[term.src[2]]) if len(term.src) > 2 else position


def _node(node: UOp, sources: list[Any]) -> Any:
    match node.op:
        case Ops.CONST:
            return TheirUOp.const(node.arg)
        case Ops.RANGE:
            return TheirUOp.range(node.src[0].arg, node.arg[0])
        case Ops.NEG:
            return -sources[0]
        case Ops.NOT:
            return sources[0].logical_not()
        case Ops.ADD:
            return sources[0] + sources[1]
        case Ops.MUL:
            return sources[0] * sources[1]
        case Ops.FLOORDIV:
            return sources[0] // sources[1]
        case Ops.MOD:
            return sources[0] % sources[1]
        case Ops.CMPLT:
            return sources[0] < sources[1]
        case Ops.AND:
            return sources[0] & sources[1]
        case _:
            raise ValueError(f"{node.op.name} is not translated")


def simplified(term: Any) -> Any:
    """tinygrad's full set of symbolic rules, to a fixed point."""
    return graph_rewrite(term, sym)


def work(term: Any) -> Work:
    """As index_terms.work. The selection that marks a masked index is no work."""
    nodes = [node for node in term.toposort() if node.op in GroupOp.ALU]
    nodes = [node for node in nodes if not (node.op is TheirOps.WHERE and node.src[2].is_invalid)]
    return Work(sum(node.op in DIVISIONS for node in nodes), len(nodes))
