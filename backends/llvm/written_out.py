"""Loops that fill memory of a group and have no loop in the text: each iteration is written for itself.

Owns: which loops. Does not own: writing them (emit.py), where items wait (lowering/waits.py).

Items take turns at filling memory, a few each. As a loop that is a branch, and addresses that are counted on, for every copy, and a
turn's loads wait for the stores of the one before; written out, addresses are constants apart and all loads go out at once.

Memory that is filled ahead has a loop over its parts, which runs through in the first iteration of the loop around alone. What it fills
then is written before that loop, and in the loop the one part that is filled in each iteration.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from proofgrad.backends.llvm.memory import Position
from proofgrad.core.compile.nests.strides import coefficient
from proofgrad.core.ir.op_names import (
    BROADCAST,
    CAST,
    CONST,
    END,
    FILLED,
    INDEX,
    LOAD,
    RANGE,
    STORE,
)
from proofgrad.core.ir.ops import ALU, Ops
from proofgrad.core.ir.uop import AxisRole, UOp, is_of_group

MOST_COPIES = 32  # of an item, that go on by themselves, and are constants apart
MOST_COMPUTED = 8  # that each have a mask, or a position, of their own: these wait in registers
AT_ONCE = (
    4  # other turns, whose loads are written before their stores: what they load waits in registers
)
PLAIN = frozenset({CONST, CAST, BROADCAST, INDEX, Ops.BITCAST})


@dataclass(frozen=True, slots=True)
class Ahead:
    """A loop that fills memory ahead: what it computes first, the loop over parts, what fills a part."""

    before: tuple[UOp, ...]
    parts: UOp
    filling: tuple[UOp, ...]


@dataclass(frozen=True, slots=True)
class Turn:
    """An iteration of a loop that is written out, not the first one. `positions`: of that."""

    loop: UOp
    number: int
    positions: Mapping[UOp, Position]

    def distance(self, index: UOp) -> int | None:
        """Elements from where an index is in the first iteration. Index terms of Linear never wrap (steps/narrow.py)."""
        step = coefficient(index, self.loop)
        return None if step is None else step * self.number


def turns_written_out(
    linear: UOp, items: int | None, copied: Collection[UOp]
) -> dict[UOp, tuple[UOp, ...]]:
    """The loops in which items take turns at filling memory of their group, each with the nodes inside.

    `copied`: stores that are copies which go on by themselves, and need no registers.
    """
    of_group = {n.src[0] for n in linear.src if n.op is FILLED and is_of_group(n.src[1:])}
    found: dict[UOp, tuple[UOp, ...]] = {}
    for at, node in enumerate(linear.src):
        if node.op is not RANGE or not is_short(node, MOST_COPIES):
            continue
        inside = inside_of(linear, at)
        stores = [n for n in inside if n.op is STORE]
        are_copies = all([n in copied for n in stores])
        is_filling = bool(stores) and all([n in of_group for n in stores])
        if not is_short(node, _most_turns(inside, node, are_copies)):
            continue
        if is_filling and all([_runs_straight(n, items) for n in inside]):
            found[node] = inside
    return found


def _most_turns(inside: Sequence[UOp], loop: UOp, are_copies: bool) -> int:
    if not are_copies:
        return AT_ONCE
    positions = [n for n in inside if n.op is INDEX]
    are_apart = all(
        [len(n.src) == 2 and coefficient(n.src[1], loop) is not None for n in positions]
    )
    return MOST_COPIES if are_apart else MOST_COMPUTED


def is_short(loop: UOp, most: int) -> bool:
    """Whether a loop that items do not share out runs so often at most."""
    size = loop.src[0]
    is_plain = loop.arg[1] in (AxisRole.REDUCE, AxisRole.LOOP)
    return is_plain and size.op is CONST and 0 < size.arg <= most


def inside_of(linear: UOp, at: int) -> tuple[UOp, ...]:
    """The nodes between a RANGE and its END."""
    loop, nodes = linear.src[at], linear.src
    end = next(k for k in range(at, len(nodes)) if nodes[k].op is END and nodes[k].src[0] is loop)
    return nodes[at + 1 : end]


def _runs_straight(node: UOp, items: int | None) -> bool:
    """Whether a node is neither a loop, but that over the items of the group, nor a part of a sum, nor a wait."""
    if node.op in (RANGE, END):
        loop = node.src[0] if node.op is END else node
        size = loop.src[0]
        return loop.arg[1] is AxisRole.LANE and size.op is CONST and size.arg == items
    return node.op in ALU or node.op in PLAIN or node.op in (LOAD, STORE)


def filled_ahead(linear: UOp) -> dict[UOp, Ahead]:
    """The loops whose memory is filled ahead by one loop over parts, behind nothing but what positions need."""
    found: dict[UOp, Ahead] = {}
    around: list[tuple[UOp, int]] = []
    for at, node in enumerate(linear.src):
        if node.op is END:
            around.pop()
        elif node.op is RANGE:
            if node.arg[1] is AxisRole.AHEAD and around:
                loop, first = around[-1]
                before = linear.src[first + 1 : at]
                is_plain = all([n.op in ALU or n.op in PLAIN for n in before])
                if loop.arg[1] is AxisRole.REDUCE and is_plain:
                    found[loop] = Ahead(before, node, inside_of(linear, at))
            around.append((node, at))
    several = [n for n in linear.src if n.op is RANGE and n.arg[1] is AxisRole.AHEAD]
    return found if len(several) == len(found) else {}
