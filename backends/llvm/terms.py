"""Terms of one value that are alike and long, as of a sum that is written out: operation by operation, not one after the other.

Owns: which terms are, and their order. Does not own: copies that are stored each for itself (beside.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import zip_longest
from math import ceil

from proofgrad.core.ir.op_names import BROADCAST, LOAD, MULACC
from proofgrad.core.ir.ops import ELEMENTWISE
from proofgrad.core.ir.uop import UOp

# Of so many operations, each of which waits for another: a core looks ahead over the end of a shorter one by itself.
LONG = 8


def terms_beside(part: Sequence[UOp], room: int) -> list[UOp]:
    """What runs between two stores, with such terms side by side: as many at a time as have vectors in so many bytes."""
    within = dict.fromkeys(part)
    terms = _alike(within)
    most = room // (terms[0].dtype.itemsize * terms[0].dtype.lanes) if terms else 0
    if most < 2:
        return list(part)
    users: dict[UOp, list[UOp]] = defaultdict(list)
    for node in part:
        for source in dict.fromkeys(node.src):
            users[source].append(node)
    order: dict[UOp, None] = {}

    def needed(node: UOp) -> list[UOp]:
        nodes = node.toposort(lambda n: n in within and n not in order)
        return [n for n in nodes if n in within]

    at_once = ceil(len(terms) / ceil(len(terms) / most))
    for k in range(0, len(terms), at_once):
        done = terms[k : k + at_once]
        steps = zip_longest(*map(needed, done))
        order.update(dict.fromkeys([n for step in steps for n in step if n is not None]))
        while done:  # what is made of these alone frees their registers
            for user in users[done.pop()]:
                vectors = [s for s in user.src if _computes(s)]
                if _computes(user) and user not in order and all([s in order for s in vectors]):
                    order.update(dict.fromkeys(needed(user)))
                    done.append(user)
    return [*order, *[node for node in part if node not in order]]


def _alike(within: dict[UOp, None]) -> list[UOp]:
    """The most long computations that differ in what they load alone; of as many, the longest."""
    kinds: dict[UOp, Hashable] = {}
    numbers: dict[Hashable, int] = {}
    depths: dict[UOp, int] = {}
    found: dict[Hashable, list[UOp]] = defaultdict(list)
    for node in within:
        if node.op is LOAD:
            kinds[node], depths[node] = (LOAD, node.dtype), 0
        elif _computes(node) and all([s in kinds or not _is_made(s, within) for s in node.src]):
            alike = (node.op, node.arg, node.dtype, *[kinds.get(s, s) for s in node.src])
            kinds[node] = numbers.setdefault(alike, len(numbers))
            below = [depths[s] for s in node.src if s in depths]
            if below:
                depths[node] = 1 + max(below)
                if depths[node] >= LONG:
                    found[kinds[node]].append(node)
    terms = max(found.values(), key=lambda nodes: (len(nodes), depths[nodes[0]]), default=[])
    return terms if len(terms) > 1 else []


def _computes(node: UOp) -> bool:
    """Whether it is an operation on each lane of vectors; not one step of a sum in registers."""
    return node.op in ELEMENTWISE and node.op is not MULACC and node.dtype.lanes > 1


def _is_made(node: UOp, within: dict[UOp, None]) -> bool:
    """Whether a vector is neither there before nor the same in all lanes."""
    return node in within and bool(node.src) and node.op is not BROADCAST and node.dtype.lanes > 1
