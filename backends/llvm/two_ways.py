"""Choices between two ways of computing a value, of which the longer one is taken only where a lane needs it.

    v = x * x < 2**32 ? near(x) : far(x)    =    v = near(x);  if any lane is far: v = x * x < 2**32 ? v : far(x)

Owns: which choices, and which nodes are the longer way. Does not own: the text of the branch (emit.py).

Functions have such ways for arguments that are rare. A way is nodes of one block that only choices by the same condition need, without
loads or stores: whether it runs can only be seen in the time that it takes.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from proofgrad.core.ir.op_names import BROADCAST, CAST, END, RANGE, WHERE
from proofgrad.core.ir.ops import ALU, Ops
from proofgrad.core.ir.uop import UOp

LEAST_NODES = 24  # of the longer way: the branch then costs little beside it
_PURE = frozenset({*ALU, CAST, BROADCAST, Ops.BITCAST})


class TwoWays(NamedTuple):
    """Choices by one condition: which operand is the longer way, its nodes, and what all need before, in order."""

    choices: tuple[UOp, ...]
    operand: int
    nodes: tuple[UOp, ...]
    before: tuple[UOp, ...]


def two_ways(linear: UOp) -> dict[UOp, TwoWays]:
    """The first of the choices by a condition, where one way is the longer one."""
    blocks: list[list[UOp]] = [[]]
    for node in linear.src:
        if node.op is RANGE or node.op is END:
            blocks.append([])
        else:
            blocks[-1].append(node)
    long = [block for block in blocks if len(block) > LEAST_NODES]
    chosen = [block for block in long if any([node.op is WHERE for node in block])]
    found: dict[UOp, TwoWays] = {}
    users = _users(linear) if chosen else {}
    for block in chosen:
        _add_choices(found, block, users)
    return found


def _users(linear: UOp) -> dict[UOp, list[UOp]]:
    users: dict[UOp, list[UOp]] = {}
    for node in linear.src:
        for source in node.src:
            users.setdefault(source, []).append(node)
    return users


def _add_choices(
    found: dict[UOp, TwoWays], block: Sequence[UOp], users: dict[UOp, list[UOp]]
) -> None:
    """Those of one block."""
    by_condition: dict[UOp, list[UOp]] = {}
    for node in block:
        if node.op is WHERE:
            by_condition.setdefault(node.src[0], []).append(node)
    position = {node: k for k, node in enumerate(block)}
    written: set[UOp] = set()
    # The longest is taken first, of equal ones that of the first choice.
    waiting: list[tuple[int, int, TwoWays]] = []
    # Choices in the way of another one, by that: where its way is one, theirs is none.
    inside: dict[UOp, list[Sequence[UOp]]] = {}

    def look_at(every: Sequence[Sequence[UOp]]) -> None:
        """Find the ways of choices, but of those that lie in the way of another one: theirs is a part of it."""
        ways_of: dict[UOp, TwoWays] = {}
        for choices in reversed(every):
            around = ways_of.get(choices[-1])
            if around is not None and all([ways_of.get(c) is around for c in choices]):
                inside.setdefault(around.choices[0], []).append(choices)
                continue
            way = _way(choices, position, users)
            if way is not None:
                heappush(waiting, (-len(way.nodes), position[choices[0]], way))
                if len(choices) == 1:  # else some may be needed by what lies in its way
                    ways_of |= {n: way for n in way.nodes if n.op is WHERE and n not in ways_of}

    look_at(list(by_condition.values()))
    while waiting:  # of two that share nodes, the longer
        way = heappop(waiting)[-1]
        own = {*way.choices, *way.nodes, *way.before}
        if written.isdisjoint(own):
            written |= own
            found[way.choices[0]] = way
        else:
            look_at(inside.pop(way.choices[0], [])[::-1])


def _way(
    choices: Sequence[UOp], position: Mapping[UOp, int], users: dict[UOp, list[UOp]]
) -> TwoWays | None:
    """The longer way of choices by one condition; None: there is none."""
    sides = [(_own(choices, operand, position, users), operand) for operand in (1, 2)]
    (short, _), (longer, operand) = sorted(sides, key=lambda side: len(side[0]))
    if not short or len(longer) < max(LEAST_NODES, len(short) + 1):
        return None
    nodes = tuple(sorted(longer, key=position.__getitem__))
    before = _before(choices, nodes, position)
    return None if before is None else TwoWays(tuple(choices), operand, nodes, before)


def _own(
    choices: Sequence[UOp], operand: int, inside: Container[UOp], users: dict[UOp, list[UOp]]
) -> set[UOp]:
    """The nodes of a block that only this operand of choices needs: looked at again as each of their users is found."""
    own: set[UOp] = set()
    chosen, stack = set(choices), [choice.src[operand] for choice in choices]
    while stack:
        node = stack.pop()
        if node in inside and node not in own and node.op in _PURE and node not in chosen:
            if all(n in own or (n in chosen and _is_only(node, n, operand)) for n in users[node]):
                own.add(node)
                stack += node.src
    return own


def _is_only(node: UOp, choice: UOp, operand: int) -> bool:
    return choice.src[operand] is node and choice.src.count(node) == 1


def _before(
    choices: Sequence[UOp], nodes: Sequence[UOp], position: Mapping[UOp, int]
) -> tuple[UOp, ...] | None:
    """What stands behind the first choice and is needed at once; None: that is another choice, or is loaded."""
    first, own = position[choices[0]], {*choices, *nodes}
    chosen, found = set(choices), set[UOp]()
    stack = [source for node in own for source in node.src]
    while stack:
        node = stack.pop()
        if position.get(node, -1) < first or node in found or (node in own and node not in chosen):
            continue
        if node in chosen or node.op not in _PURE:
            return None
        found.add(node)
        stack += node.src
    return tuple(sorted(found, key=position.__getitem__))
