"""Running sums as nodes of a tensor graph: reductions of which a counter says how far each goes.

Owns: how one is told from other reductions, before there are kernels. Does not own: what one is in a kernel (steps/prefixes.py).

    reduce_axis(where(iota over axis 2 <= iota over axis 1, x expanded along axis 1, 0)) over axis 2
"""

from __future__ import annotations

from proofgrad.core.ir.op_names import CAST, REDUCE_AXIS, WHERE
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.shapes import elements
from proofgrad.core.ir.uop import UOp, toposort

_SAME_AXES = frozenset({Ops.EXPAND, Ops.SHRINK, Ops.FLIP, Ops.DETACH})
_SAME_ELEMENTS = _SAME_AXES | {Ops.PERMUTE, Ops.RESHAPE}
_OF_COUNTERS = ELEMENTWISE | _SAME_ELEMENTS | {Ops.IOTA, Ops.CONST, Ops.PAD}
MOST_COUNTED = 64  # nodes of a comparison of counters: an order of two axes has about ten
SHORT = 4  # so few elements combined are written out with what uses them; more run along with a loop of the results


def is_running(node: UOp) -> bool:
    """Whether a counter says how far the reduction goes for each result, and all else is the same for the results."""
    return bool(runs_along(node))


def runs_along(node: UOp) -> frozenset[int]:
    """The axes of the results along which a running reduction goes further; none: it is another one."""
    if node.op is not REDUCE_AXIS or elements(node.src[0].shape) <= SHORT * elements(node.shape):
        return frozenset()
    axes = frozenset(node.arg[1])
    value = node.src[0]
    while value.op is CAST or value.op is WHERE:
        if value.op is Ops.WHERE and _is_order_of_counters(value.src[0]):
            told = varying(value.src[0])
            others = varying(value.src[1]) | varying(value.src[2])
            return told - axes - others if told & axes else frozenset()
        value = value.src[0 if value.op is Ops.CAST else 1 if varying(value.src[1]) else 2]
    return frozenset()


def _is_order_of_counters(choice: UOp) -> bool:
    """Whether a truth compares counters, by their order: the first node that is none of theirs settles it.

    No more than MOST_COUNTED are looked at, or of a chain of steps with a choice in each every one would be walked down to its first.
    """
    seen, stack = {choice}, [choice]
    while stack:
        node = stack.pop()
        if node.op not in _OF_COUNTERS or len(seen) > MOST_COUNTED:
            return False
        stack += [source for source in dict.fromkeys(node.src) if source not in seen]
        seen.update(node.src)
    found = {node.op for node in seen}
    return Ops.IOTA in found and Ops.CMPLT in found


def varying(node: UOp) -> frozenset[int]:
    """The axes along which a value of a tensor may change: those that no EXPAND made."""
    known: dict[UOp, frozenset[int]] = {}
    for n in toposort((node,), _is_as_below):
        known[n] = _varying(n, known) if n.shape else frozenset()
    return known[node]


def _is_as_below(n: UOp) -> bool:
    """Whether the sources of a node say along which axes it changes."""
    return bool(n.shape) and (n.op in ELEMENTWISE or n.op in _SAME_ELEMENTS)


def _varying(n: UOp, known: dict[UOp, frozenset[int]]) -> frozenset[int]:
    every = frozenset([a for a, size in enumerate(n.shape) if size != 1])
    if n.op in ELEMENTWISE and n.src:
        return every & frozenset().union(*[known.get(s, frozenset()) for s in n.src])
    if n.op in _SAME_AXES:
        return known[n.src[0]] & every
    if n.op is Ops.PERMUTE:
        return frozenset([k for k, a in enumerate(n.arg) if a in known[n.src[0]]])
    if n.op is Ops.RESHAPE:
        below = n.src[0].shape
        old = [a for a, size in enumerate(below) if size != 1]
        new = [a for a, size in enumerate(n.shape) if size != 1]
        if [below[a] for a in old] == [n.shape[a] for a in new]:
            return frozenset([b for a, b in zip(old, new) if a in known[n.src[0]]])
        return every if known[n.src[0]] else frozenset()
    return every if n.src or n.op is Ops.IOTA else frozenset()
