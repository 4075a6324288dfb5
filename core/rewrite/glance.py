"""What must be so two sources below a node, or a rule does not match it: seen without binding names.

Owns: one such condition of a left side, where there is one. Does not own: the match (patterns.py), which alone decides.

The key of a node (match.py) tells the operations of its sources, so that (y + x) + x is tried for each sum of a sum. A glance asks
whether x is among what the inner sum adds, and most sums are done with.
"""

from __future__ import annotations

from collections.abc import Callable

from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.patterns import commutes, is_constant
from proofgrad.core.rewrite.rule import Node, Var
from proofgrad.core.rewrite.scope import CONSTANT_OPS, RANGE, RANGES

Glance = Callable[[UOp], bool]


def glance_of(left: Node | Var, keyed: int) -> Glance | None:
    """A condition that every node which matches `left` meets; the key has told the operations of `keyed` sources."""
    if isinstance(left, Var) or (commutes(left) and is_constant(left.src[1])):
        return None
    inner = [(k, source) for k, source in enumerate(left.src[:keyed]) if isinstance(source, Node)]
    inner = [(k, source) for k, source in inner if source.src and not _has_loops(source)]
    fixed = [(k, source) for k, source in inner if Ops[source.op] in ELEMENTWISE]
    outer = {} if _has_loops(left) else _variables(left)
    for k, source in fixed:
        if shared := outer.keys() & _variables(source).keys():
            return _has(k, outer[min(shared)])
    for k, source in fixed:
        for position, below in enumerate(source.src):
            if isinstance(below, Node) and not (commutes(source) and is_constant(source.src[1])):
                again = outer.keys() & _variables(below).keys()
                is_there = _has_op(k, position, Ops[below.op])
                return _is_among(is_there, k, position, outer[min(again)]) if again else is_there
        if any(map(is_constant, source.src)):
            return _has_constant(k)
    return next((_has_count(k, len(source.src)) for k, source in inner), None)


def _has_loops(term: Node) -> bool:
    return bool(term.src) and isinstance(term.src[-1], Var) and term.src[-1].type in (RANGE, RANGES)


def _variables(term: Node) -> dict[str, int]:
    """The sources that are variables, by name."""
    return {source.name: k for k, source in enumerate(term.src) if isinstance(source, Var)}


def _has(inner: int, outer: int) -> Glance:
    return lambda node: node.src[outer] in node.src[inner].src


def _has_op(inner: int, position: int, op: Ops) -> Glance:
    return lambda node: node.src[inner].src[position].op is op


def _is_among(is_there: Glance, inner: int, position: int, outer: int) -> Glance:
    return lambda node: is_there(node) and node.src[outer] in node.src[inner].src[position].src


def _has_constant(inner: int) -> Glance:
    return lambda node: any([source.op in CONSTANT_OPS for source in node.src[inner].src])


def _has_count(inner: int, count: int) -> Glance:
    return lambda node: len(node.src[inner].src) == count
