"""Copies of a long computation in the body of a loop: operation by operation, not one after the other.

Owns: their order. Does not own: which copies there are (core/compile/schedule/vectors.py), the order of loops (core/compile/lowering/linearize.py).

Each operation of an exponential waits for the one before. A core goes on with what waits for nothing, but looks ahead over some tens of
instructions only: of copies that follow each other it sees one, of copies side by side all.
"""

from __future__ import annotations

from collections.abc import Sequence

from proofgrad.backends.llvm.terms import terms_beside
from proofgrad.core.compile.lowering.linearize import sources_before
from proofgrad.core.ir.op_names import END, RANGE, STORE, UPDATE
from proofgrad.core.ir.uop import UOp

# Copies at once: more would take more registers than there are.
MOST_BESIDE = 4
# Over the end of a shorter one a core looks ahead by itself.
LEAST_OPERATIONS = 24
# One that has so many times fewer operations of its own is no copy of the first, but shares most of it.
MOSTLY_SHARED = 2
_ENDS = frozenset({STORE, UPDATE})
_LOOPS = frozenset({RANGE, END})


def copies_beside(linear: UOp, room: int = 0) -> UOp:
    """Linear with copies of long computations side by side. `room`: bytes of vectors of so many terms of one value that go on at once."""
    order = list[UOp]()
    for copies in _copies(linear.src):
        order += terms_beside(copies[0], room) if len(copies) == 1 else _by_level(sum(copies, []))
    return linear.with_src(tuple(order))


def _copies(nodes: Sequence[UOp]) -> list[list[list[UOp]]]:
    """Parts that end with what is stored, together with those behind that are as long; loops begin and end between them."""
    groups: list[list[list[UOp]]] = [[]]
    part = list[UOp]()
    for node in nodes:
        part.append(node)
        if node.op in _ENDS and _is_copy(part, groups[-1]):
            groups[-1].append(part)
        elif node.op in _ENDS or node.op in _LOOPS:
            groups.append([part])
        else:
            continue
        part = []
    return [*groups[1:], [part]]


def _is_copy(part: list[UOp], others: list[list[UOp]]) -> bool:
    if not others or len(others) == MOST_BESIDE or others[-1][-1].op in _LOOPS:
        return False
    return len(part) >= max(LEAST_OPERATIONS, len(others[0]) // MOSTLY_SHARED)


def _by_level(nodes: list[UOp]) -> list[UOp]:
    """Those that most others wait for, one after the other, first: each as late as it may be."""
    waiting = dict.fromkeys(nodes, 0)
    for node in reversed(nodes):
        for source in sources_before(node):
            if source in waiting:
                waiting[source] = max(waiting[source], waiting[node] + 1)
    return sorted(nodes, key=lambda node: -waiting[node])
