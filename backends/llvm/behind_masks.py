"""What only a store under a mask needs, computed behind the branch that the store is.

    a = load(&d[i if m]);  b = c[j if m];  d[i if m] = a + b    =    if m: d[i] = d[i] + c[j]

Owns: which stores, and which nodes. Does not own: the text of the branch (emit.py).

A store under one mask is a branch, and what it stores is asked for by nobody else where the mask is off: so its loads need no other place to read
from, and positions no bounds there. Loads stay between the stores that they stood between. This is for stores of one lane whose mask depends on data, as of
what is combined one by one at positions in memory; of other masks LLVM knows that they are the same.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from proofgrad.core.ir.op_names import BROADCAST, CAST, STORE
from proofgrad.core.ir.ops import ALU, Ops
from proofgrad.core.ir.uop import UOp

_PURE = frozenset({*ALU, CAST, BROADCAST, Ops.BITCAST, Ops.INDEX})


def behind_masks(
    linear: UOp, by_data: Container[UOp], written: Container[UOp]
) -> dict[UOp, tuple[UOp, ...]]:
    """The nodes that only such a store needs, in order, of each store that loads under its mask; none of those `written` elsewhere."""
    stores = [n for n in linear.src if _is_one_under(n, by_data) and n not in written]
    if not stores:
        return {}
    users: dict[UOp, list[UOp]] = {}
    for node in linear.src:
        for source in node.src:
            users.setdefault(source, []).append(node)
    found = {}
    for store, before in _with_nodes_before(linear, frozenset(stores)):
        own = _own(store, [n for n in before if n not in written], users)
        if any([n.op is Ops.LOAD for n in own]):
            found[store] = tuple(own)
    return found


def _is_one_under(store: UOp, by_data: Container[UOp]) -> bool:
    """Whether it stores one lane, under one mask that depends on data."""
    if store.op is not STORE:
        return False
    position, value = store.src[:2]
    return value.dtype.lanes == 1 and position.src[-1] in by_data and len(position.src) > 2


def _with_nodes_before(linear: UOp, stores: Container[UOp]) -> list[tuple[UOp, list[UOp]]]:
    """Each store, with the nodes between it and what is written, begins or ends before it."""
    found, before = [], list[UOp]()
    for node in linear.src:
        if node in stores:
            found.append((node, before))
        if node.op in _PURE or node.op is Ops.LOAD:
            before.append(node)
        else:
            before = []
    return found


def _own(store: UOp, before: Sequence[UOp], users: Mapping[UOp, Sequence[UOp]]) -> list[UOp]:
    """What only the store needs, and loads under no other mask than its own, in order."""
    mask, own = store.src[0].src[2], {store}
    for node in reversed(before):
        is_asked = node is mask or (node.op is Ops.LOAD and not _is_under(node, mask))
        if not is_asked and own.issuperset(users.get(node, ())) and node in users:
            own.add(node)
    return [node for node in before if node in own]


def _is_under(load: UOp, mask: UOp) -> bool:
    """Whether one lane is loaded under this mask, or under none."""
    masks = load.src[0].src[2:]
    return load.dtype.lanes == 1 and all([other is mask for other in masks])
