"""Memory of a group that items of one warp fill and read: a printer may leave it in their registers, and have them exchange it.

Owns: which memory of a Linear is so, for which of it that is worth it, whose element each item reads. Does not own: the instructions
(backends). That a Linear is right does not hang on it: it says the same of memory that the items share. That nobody waits there needs two
things more, which `PROVE=1` shows again (verify/kernels/warps.py): item t fills element t and reads those of its own warp, and all items
of the warp come to each load together.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence

from proofgrad.core.compile.lowering.program_facts import group_size
from proofgrad.core.ir.fragments import WARP
from proofgrad.core.ir.op_names import (
    ADD,
    AND,
    CAST,
    CONST,
    END,
    FILLED,
    FLOORDIV,
    INDEX,
    LOAD,
    MOD,
    MUL,
    RANGE,
    STORE,
)  # fmt: skip
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort

# Of each memory the loads, and of each of these the item whose element item 0, 1, ... gets.
Reads = Mapping[UOp, Mapping[UOp, Sequence[int]]]

WORD = 32  # bits, that are exchanged at once

_FUNCTIONS: dict[Ops, Callable[[int, int], int]] = {
    ADD: operator.add, MUL: operator.mul, FLOORDIV: operator.floordiv, MOD: operator.mod,
    AND: operator.and_, Ops.OR: operator.or_, Ops.XOR: operator.xor,
    Ops.SHL: operator.lshift, Ops.SHR: operator.rshift,
}  # fmt: skip


def held_by_warps(linear: UOp) -> Reads:
    """The SCRATCH whose elements the items of a warp exchange among themselves."""
    group = group_size(linear)
    if group is None or group % WARP:
        return {}
    around, found = list[UOp](), dict[UOp, dict[UOp, Sequence[int]]]()
    known: dict[UOp, Sequence[int] | None] = {}
    for node in linear.src:
        if node.op is RANGE:
            around.append(node)
        elif node.op is END:
            around.remove(node.src[0])
        elif node.op is STORE:
            if _fills_its_own(node, around, group, known):
                found[node.src[0].src[0]] = {}
        elif node.op is FILLED:
            if len(node.src) != 2 or not _is_one_each(node.src[1], group):
                found.pop(memory_of(node), None)
        elif node.op is LOAD and node.src[0].src[0].op is FILLED:
            memory = memory_of(node.src[0].src[0])
            items = _items_read(node, around, group, known)
            if items is None:
                found.pop(memory, None)
            elif memory in found:
                found[memory][node] = items
    others = [s for n in linear.src if n.op is not LOAD for s in n.src if s.op is INDEX]
    for index in others:  # of what else uses a position nothing is known
        if index.src[0].op is FILLED:
            found.pop(memory_of(index.src[0]), None)
    return found


def exchanged_memory(linear: UOp, wide_bytes: int) -> Reads:
    """The memory that the items of a warp exchange; with more words to read than come in a wide load it is memory of the group."""
    found = {}
    for memory, reads in held_by_warps(linear).items():
        others = [load for load, items in reads.items() if bits_apart(items) != 0]
        if sum([max(WORD, load.dtype.bits) for load in others]) <= wide_bytes * 8:
            found[memory] = reads
    return found


def bits_apart(items: Sequence[int]) -> int | None:
    """In which bits the number of each item differs from that of the one whose element it gets; None: not all in the same."""
    apart = items[0]
    return apart if all([k ^ item == apart for k, item in enumerate(items)]) else None


def memory_of(filled: UOp) -> UOp:
    """The SCRATCH that a FILLED is of."""
    return filled.src[0].src[0].src[0]


def _fills_its_own(
    store: UOp, around: Sequence[UOp], group: int, known: dict[UOp, Sequence[int] | None]
) -> bool:
    """Whether each item stores the element of its own number, and all come to it."""
    memory, position, *mask = store.src[0].src
    is_one = memory.op is Ops.SCRATCH and not mask and store.src[1].dtype.lanes == 1
    if not is_one or memory.arg[1] != group or not _all_come(around, group):
        return False
    items = _items_at(position, group, known)
    return items is not None and list(items) == list(range(group))


def _all_come(around: Sequence[UOp], group: int) -> bool:
    """Whether no loop is around that items might leave before others."""
    return all([x.arg[1] is AxisRole.BLOCK or _is_one_each(x, group) for x in around])


def _is_one_each(loop: UOp, group: int) -> bool:
    size = loop.src[0]
    return loop.arg[1] is AxisRole.LANE and size.op is CONST and size.arg == group


def _items_read(
    load: UOp, around: Sequence[UOp], group: int, known: dict[UOp, Sequence[int] | None]
) -> Sequence[int] | None:
    """Whose element each item gets; None: somebody gets one of another warp, or may not come."""
    _, position, *mask = load.src[0].src
    if mask or load.dtype.lanes > 1 or len(load.src) > 1 or not _all_come(around, group):
        return None
    items = _items_at(position, group, known)
    if items is None or any([item // WARP != k // WARP for k, item in enumerate(items)]):
        return None
    return items


def _items_at(
    position: UOp, group: int, known: dict[UOp, Sequence[int] | None]
) -> Sequence[int] | None:
    """The value of a position for each item; None: it changes with more than the item."""
    for node in toposort((position,), lambda n: n.op is not RANGE):
        if node not in known:
            known[node] = _numbers(node, [known.get(s) for s in node.src], group)
    return known[position]


def _numbers(
    node: UOp, sources: Sequence[Sequence[int] | None], group: int
) -> Sequence[int] | None:
    """The value of an index term for each item. Index terms of Linear never wrap (steps/narrow.py)."""
    if node.op is RANGE:
        return range(group) if _is_one_each(node, group) else None
    if node.op is CONST:
        return None if isinstance(node.arg, tuple) else [node.arg] * group
    if node.op is CAST:
        return sources[0]
    function = _FUNCTIONS.get(node.op)
    known = [s for s in sources if s is not None]
    if function is None or len(known) != 2:
        return None
    if node.op in (FLOORDIV, MOD) and 0 in known[1]:
        return None
    return list(map(function, *known))
