"""How the loops of a nest may run together, whatever steps led there.

Owns: what is asked of numbers and roles in every nest. Does not own: which roles are taken (the tactics).

Loops are told apart by their numbers. What threads or work items share out is one output loop: of two each would
take the part of one worker, and of a reduction's its part of the results; a store without it would be every worker's. A register has lanes of one loop, two or more. What is
kept is filled by a loop that runs in each item, and is the same for all lanes. Or the items of a group share that loop out: then it
is the group's memory, filled once, and all items of the group come to where they wait for each other: around are only
the loop of groups and loops that each item runs as often as the others. Memory that is filled in each iteration of such a loop
may stand inside of the loop of results that the items share out, of which there is one: a group then has as many items as
that has iterations (lowering/program_facts.py), so that none has ended before others. The items of a warp come to an MMA together in
the same way. A reduction's loop is not shared out by a group, whose items would each have a part of the result.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from proofgrad.core.compile.nests.loops import BINDERS, is_fixed, runs_alike, size_of
from proofgrad.core.compile.nests.strides import loops_below
from proofgrad.core.ir.fragments import WARP, fragments_of, square_of
from proofgrad.core.ir.op_names import LOCAL_BUFFER, RANGE
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, counters_in, is_of_group, toposort

SHARED_OUT = (AxisRole.THREAD, AxisRole.GLOBAL, AxisRole.BLOCK)
_ALIKE = (AxisRole.BLOCK, AxisRole.UPCAST)  # one for all items of a group, or written out


def what_is_wrong(graph: UOp) -> tuple[str, Iterable[UOp]] | None:
    """Why the loops of a graph cannot run together, and which these are; None if they can."""
    nodes = toposort((graph,))
    loops = [n for n in nodes if n.op is RANGE]
    if len({loop.arg[0] for loop in loops}) < len(loops):
        return "two loops of one number", loops
    roles = [loop.arg[1] for loop in loops]
    short = [x for x in loops if x.arg[1] is AxisRole.VECTOR and is_fixed(x) and size_of(x) < 2]
    if short:
        return "lanes of a loop that does not run twice", short
    shared = [loop for loop, role in zip(loops, roles) if role in SHARED_OUT]
    if shared or AxisRole.UPCAST in roles:
        for node in nodes:
            for own in node.src[1:] if node.op in BINDERS else ():
                if own in shared or (node.op is Ops.LOCAL_BUFFER and own.arg[1] is AxisRole.UPCAST):
                    return "a loop of a reduction, or of what is kept, of this role", (own,)
    if len(shared) > 1:
        return "two loops that are shared out", shared
    if AxisRole.AHEAD in roles and (found := _wrong_ahead(nodes)) is not None:
        return found
    if shared and len(graph.src) > 1:
        if not all([shared[0] in counters_in(store) for store in graph.src]):
            return "a loop that is shared out, which not every store has", shared
    keeps = any([n.op is LOCAL_BUFFER for n in nodes])
    if AxisRole.LANE in roles and (found := _wrong_in_groups(graph, roles)) is not None:
        return found
    return _wrong_with_lanes(graph, roles.count(AxisRole.VECTOR), keeps)


def _wrong_ahead(nodes: Iterable[UOp]) -> tuple[str, Iterable[UOp]] | None:
    """The same of loops over parts of memory, of which the next iteration's is filled ahead."""
    nodes = list(nodes)
    kept = [n.src[1] for n in nodes if n.op is Ops.LOCAL_BUFFER and is_of_group(n.src[1:])]
    others = [x for n in nodes if n.op is Ops.REDUCE for x in n.src[1:]]
    others += [x for n in nodes if n.op is Ops.LOCAL_BUFFER for x in n.src[2:]]
    others += [x for n in nodes if n.op is Ops.STORE for x in n.src[2:]]
    loops = [n for n in nodes if n.op is Ops.RANGE and n.arg[1] is AxisRole.AHEAD]
    wrong = [x for x in loops if x not in kept or x in others]
    return ("parts of what is no memory of a group", wrong) if wrong else None


def _wrong_in_groups(graph: UOp, roles: list[AxisRole]) -> tuple[str, Iterable[UOp]] | None:
    """The same of loops that the items of a group share out."""
    if AxisRole.THREAD in roles or AxisRole.GLOBAL in roles:
        return "items of groups, and others", ()
    for node, free in _told_apart(graph, (*BINDERS, Ops.STORE, Ops.MMA)):
        own = frozenset(
            node.src[1:] if node.op in BINDERS else node.src[2:] if node.op is Ops.STORE else ()
        )
        items = [x for x in free | own if x.op is Ops.RANGE and x.arg[1] is AxisRole.LANE]
        if len(items) > 1:
            return "two loops of the items of a group at once", sorted(
                items, key=lambda x: x.arg[0]
            )
        is_of_warps = node.op is Ops.MMA and square_of(node) is None
        if is_of_warps and (wrong := _wrong_around_warps(node, free)):
            return "loops in which not all items of a warp come to an MMA", wrong
        if node.op is not Ops.LOCAL_BUFFER and not own.isdisjoint(items):
            return "a loop of a reduction that the items of a group share", items
        if node.op is Ops.LOCAL_BUFFER and not own.isdisjoint(items):
            around = [x for x in free if x.arg[1] not in _ALIKE and not runs_alike(x)]
            if around:
                return "a loop around what a group keeps", around
    return None


def _told_apart(graph: UOp, ops: Collection[Ops]) -> Iterable[tuple[UOp, frozenset[UOp]]]:
    """The nodes of these operations, and of all others one for each set of loops, with their loops."""
    seen = set[frozenset[UOp]]()
    for node, free in loops_below(graph).items():
        if node.op in ops or free not in seen:
            seen.add(free)
            yield node, free


def _wrong_around_warps(mma: UOp, free: frozenset[UOp]) -> list[UOp]:
    """The loops around an MMA that may run otherwise in some items of a warp, its own among them."""
    parts = fragments_of(mma)
    item, around = parts.item, free.difference((parts.item, parts.register))
    are_warps = item.op is Ops.RANGE and item.arg[1] is AxisRole.LANE and is_fixed(item)
    wrong = [] if are_warps and size_of(item) % WARP == 0 else [item]
    return wrong + [x for x in around if x.arg[1] not in _ALIKE and not runs_alike(x)]


def _wrong_with_lanes(graph: UOp, vectors: int, keeps: bool) -> tuple[str, Iterable[UOp]] | None:
    """The same of loops of lanes, of which there are so many."""
    if vectors < (1 if keeps else 2):
        return None
    for node, free in _told_apart(graph, BINDERS):
        around = free.union(node.src[1:]) if node.op in BINDERS else free
        lanes = sorted([x for x in around if x.arg[1] is AxisRole.VECTOR], key=lambda x: x.arg[0])
        if len(lanes) > 1:
            return "lanes of two loops at once", lanes
        if node.op is Ops.LOCAL_BUFFER and not free.isdisjoint(lanes):
            return "lanes that would need memory of their own", lanes
    return None
