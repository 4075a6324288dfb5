"""Memory of a group of which each item reads only what it has put there itself: a printer may keep it in the item's registers.

Owns: which memory of a Linear is so, and which of its elements are whose. Does not own: whether that is worth it, and the registers
(backends). That a Linear is right does not hang on it: it says the same of memory that the items share.

    position = lanes * (items * turn + item) + k    is element `lanes * turn + k` of what the item has, k < lanes

where `item` counts a loop that each item of the group has one iteration of, and all else that the position changes with counts turns, or
which of its lanes an access of one element is of. `lanes`: those of the widest access; others are of as many, or of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proofgrad.core.compile.lowering.program_facts import group_size
from proofgrad.core.compile.nests.strides import at_start, coefficient
from proofgrad.core.ir.op_names import ADD, CONST, FILLED, INDEX, LOAD, MUL, NEG, RANGE, STORE
from proofgrad.core.ir.uop import AxisRole, UOp, is_of_group, toposort

_LINEAR = frozenset({ADD, MUL, NEG})


@dataclass(frozen=True, slots=True)
class Held:
    """So many elements that each of so many items has, so many of them side by side; loops that say at which of them it is."""

    elements: int
    lanes: int
    items: int
    loops: frozenset[UOp]


def held_by_items(linear: UOp) -> dict[UOp, Held]:
    """The SCRATCH of which each item reads only what it has put there, with what is known of it."""
    items = group_size(linear)
    filled = [n for n in linear.src if n.op is FILLED and is_of_group(n.src[1:])]
    if items is None or not filled:
        return {}
    accesses = _accesses(linear)
    found = {}
    for node in filled:
        memory = node.src[0].src[0].src[0]
        held = _held(memory, [*accesses.get(memory, ()), *accesses.get(node, ())], items)
        if held is not None:
            found[memory] = held
    return found


def item_of(position: UOp) -> UOp | None:
    """The loop of a position that the items of a group share out; None: there is none, or several."""
    loops = [n for n in toposort((position,)) if n.op is RANGE and n.arg[1] is AxisRole.LANE]
    return loops[0] if len(loops) == 1 else None


def _accesses(linear: UOp) -> dict[UOp, list[tuple[UOp, int]]]:
    """Of each memory, the positions that are accessed, and how many elements each time; 0: not known, or not in any case."""
    found: dict[UOp, list[tuple[UOp, int]]] = {}
    for node in linear.src:
        if node.op is LOAD or node.op is STORE:
            lanes = node.dtype.lanes if node.op is LOAD else node.src[1].dtype.lanes
            if node.op is STORE and len(node.src[0].src) > 2:
                lanes = 0  # a register that is left as it is would hold nothing
            found.setdefault(node.src[0].src[0], []).append((node.src[0], lanes))
        else:  # of what else uses a position nothing is known
            positions = [source for source in node.src if source.op is INDEX]
            for position in positions:
                found.setdefault(position.src[0], []).append((position, 0))
    return found


def _held(memory: UOp, accesses: Sequence[tuple[UOp, int]], items: int) -> Held | None:
    """What is known of a memory whose positions are each one item's; None: one is not."""
    lanes = max([count for _, count in accesses])
    if not all([count in (1, lanes) for _, count in accesses]) or memory.arg[1] % (lanes * items):
        return None
    loops = set[UOp]()
    for index, count in accesses:
        turns = _turns(index, count, lanes, items, memory.arg[1])
        if turns is None:
            return None
        loops.update(turns)
    return Held(memory.arg[1] // items, lanes, items, frozenset(loops))


def _turns(index: UOp, count: int, lanes: int, items: int, size: int) -> list[UOp] | None:
    """The loops that count the turns at which an item has so many elements, and the lanes; None: they are not known to be its own."""
    position, is_masked = index.src[1], len(index.src) > 2
    if position.dtype.lanes != 1 or (is_masked and index.src[2].dtype.lanes != 1):
        return None
    nodes, item = toposort((position,)), item_of(position)
    leaves = [n for n in nodes if n.op not in _LINEAR]
    if item is None or any([n.op is not RANGE and n.op is not CONST for n in leaves]):
        return None
    loops = [n for n in leaves if n.op is RANGE]
    if any([x.src[0].op is not CONST or x.arg[1] is AxisRole.BLOCK for x in loops]):
        return None
    if item.src[0].arg != items or coefficient(position, item) != lanes:
        return None
    turn, start = lanes * items, at_start(position)
    lane = start % turn
    first = last = start - lane
    others = [x for x in loops if x is not item]
    for loop in others:
        step, again = coefficient(position, loop), loop.src[0].arg - 1
        if step is None or (step % turn and step < 0):
            return None
        if step % turn:  # of the lanes of a turn
            lane += step * again
        else:
            first += min(0, step * again)
            last += max(0, step * again)
    is_inside = 0 <= first and last + turn <= size
    return others if is_inside and lane + count <= lanes else None
