"""Which numbers of a graph change from one run to the next: they become memory, or variables, and all runs one kernel.

Owns: what was seen of graphs that differ in such numbers alone. Does not own: which nodes have positions (positions.py), what stands in
place of a number (canonical.py).

A loop that scales by a number which it reads, or cuts at places which it draws, would compile a kernel in each step. Two numbers in one
place have kernels of their own, in which rules know them. What is taken for a change decides how fast a run is, and never what it gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from proofgrad.core.compile.plan.bounded_cache import Newest
from proofgrad.core.ir.op_names import (
    APPLY,
    BUFFER,
    CONST,
    CONTIGUOUS,
    COPY,
    DETACH,
    FLOORDIV,
    IOTA,
    MOD,
)
from proofgrad.core.ir.ops import MOVEMENT, Ops
from proofgrad.core.ir.uop import UOp

MOST_GRAPHS, MOST_OWN = 1024, 2
Place = tuple[
    UOp, int
]  # a node, and the axis of which its argument has the number; 0 of a constant
# Where integers say which elements are read, rules ask what they are.
_ADDRESSES = frozenset({IOTA, FLOORDIV, MOD, Ops.TRUNCDIV, Ops.TRUNCMOD, Ops.SHL, Ops.SHR})

_Like = tuple[Any, ...]
SEEN: Newest[_Like, list[set[Any]]] = Newest(MOST_GRAPHS, lambda like, _: len(like))


def changing_places(nodes: Sequence[UOp], numbers: Mapping[Place, Any]) -> Set[Place]:
    """The places among those of `numbers` where graphs like that of these nodes had other numbers before."""
    found: dict[Place, None] = {}
    if not numbers:
        return found.keys()
    like = tuple([(n.op, n.dtype, n.shape, n.arg if n.op is APPLY else None) for n in nodes])
    seen = SEEN.get(like)
    if seen is None:
        seen = SEEN[like] = [set() for _ in numbers]
    for (place, number), known in zip(numbers.items(), seen):
        if len(known) <= MOST_OWN:
            known.add(number)
        if len(known) > MOST_OWN:
            found[place] = None
    return found.keys()


def constants(nodes: Sequence[UOp], roots: Sequence[UOp]) -> dict[Place, UOp]:
    """The constants that may be read from memory of the device of the roots, which are no constants."""
    if any([node.op is COPY and node.src[0].op is not BUFFER for node in nodes]):
        return {}  # of another device, perhaps
    are_addresses = any([node.op in _ADDRESSES for node in nodes])
    alone = set(map(_below, roots))
    return {
        (node, 0): node
        for node in nodes
        if node.op is CONST
        and (node.dtype.is_float or (node.dtype.is_int and not are_addresses))
        and node not in alone
    }


def _below(node: UOp) -> UOp:
    while node.op in MOVEMENT or node.op is DETACH or node.op is CONTIGUOUS:
        node = node.src[0]
    return node
