"""Loads of matrix fragments that the items of a warp make together, by one instruction that turns small matrices around.

Owns: which loads, and the term of the address that each item gives. Does not own: the instruction (a dialect), which item holds which
element (core/ir/fragments.py).

A factor that lies across the steps of a sum, [step][column], is read at a stride: element k of item 4 * g + q is that of column g in
row r(q, k), whose columns lie side by side. An instruction that reads a matrix of 8 rows, whose addresses 8 items
give, hands rows 2q and 2q + 1 of column g to item 4 * g + q. So for elements 2p and 2p + 1 of all items item 8 * p + i gives
the address of row r(i // 2, 2p + i % 2), where g is 0.

    item:      0        1        2        3    ...   8        9
    address:   r(0, 0)  r(0, 1)  r(1, 0)  r(1, 1)    r(0, 2)  r(0, 3)

That the positions are such ones is decided by their values for every item of a group: a term is what changes with the item and the
element, which is computed, plus what does not, which is known by what it is a multiple of.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from proofgrad.backends.llvm.alignment import largest_power_of_two
from proofgrad.core.ir.fragments import GROUPS, QUARTERS, WARP, fragments_of
from proofgrad.core.ir.op_names import ADD, BROADCAST, CONST, LOAD, MMA, MUL, RANGE
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort

NBYTES = 2  # of an element
ROW = GROUPS  # elements of a row of a matrix: its bytes are what an address is a multiple of
PAIR = COLUMNS = 2  # rows that an item gets of a matrix
ELEMENTS = WARP // GROUPS * PAIR  # that an item gets of four matrices


def loads_together(linear: UOp, of_group: frozenset[UOp], group: int | None) -> dict[UOp, UOp]:
    """Of each load that a warp makes together, the position in its memory of the row that an item gives."""
    if group is None or group % WARP:
        return {}
    found: dict[UOp, UOp] = {}
    known: dict[UOp, _Values | None] = {}
    for node in linear.src:
        if node.op is not MMA or len(node.arg) == 3:
            continue
        parts = fragments_of(node)
        if not _is_one_each(parts.item, group):
            continue
        for load in (parts.column, *parts.rows):
            if load not in found and _is_candidate(load, of_group):
                index = load.src[0].src[1]
                if _lies_across(_values(index, parts.item, group, known), group):
                    row = _row_of_item(index, parts.item)
                    found.update({} if row is None else {load: row})
    return found


def _is_one_each(item: UOp, group: int) -> bool:
    """Whether a loop counts the items of a group."""
    size = item.src[0] if item.op is RANGE else item
    is_lane = item.op is RANGE and item.arg[1] is AxisRole.LANE
    return is_lane and size.op is CONST and size.arg == group


def _is_candidate(load: UOp, of_group: frozenset[UOp]) -> bool:
    if load.op is not LOAD or load.dtype.is_bool or load.dtype.scalar.itemsize != NBYTES:
        return False
    memory, index, *mask = load.src[0].src
    is_vector = index.dtype.lanes == load.dtype.lanes == ELEMENTS
    return is_vector and memory in of_group and not mask and len(load.src) == 1


# -- positions by their values ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Values:
    """A term: a number for each item, or for each element of each item, and terms that are the same for all, so many times."""

    numbers: Sequence[int]
    others: Sequence[tuple[UOp, int]] = ()


_FUNCTIONS: dict[Ops, Callable[[int, int], int]] = {
    Ops.AND: operator.and_,
    Ops.OR: operator.or_,
    Ops.XOR: operator.xor,
    Ops.SHR: operator.rshift,
    Ops.SHL: operator.lshift,
}


def _values(term: UOp, item: UOp, group: int, known: dict[UOp, _Values | None]) -> _Values | None:
    """None: it is not of this form."""
    changing: set[UOp] = set()
    for node in toposort((term,), lambda n: n.op is not RANGE):
        if not changing.isdisjoint(node.src) or not _is_same_for_all(node):
            changing.add(node)
        if node not in known:
            known[node] = _value(node, item, group, known, node in changing)
    return known[term]


def _is_same_for_all(node: UOp) -> bool:
    """Whether a node is the same for all items and elements if what is below it is."""
    if node.op is RANGE:
        return node.arg[1] not in (AxisRole.LANE, AxisRole.GLOBAL)
    is_one = node.op is CONST and not isinstance(node.arg, tuple)
    return is_one or node.op is BROADCAST or (node.op is not CONST and node.op in ELEMENTWISE)


def _value(
    node: UOp, item: UOp, group: int, known: Mapping[UOp, _Values | None], is_changing: bool
) -> _Values | None:
    lanes = node.dtype.lanes
    if node is item:
        return _Values(range(group))
    if node.op is CONST:
        each = node.arg if isinstance(node.arg, tuple) else (node.arg,) * lanes
        return _Values(list(each) * group)
    if node.op not in (ADD, BROADCAST) and not is_changing:
        return _Values([0] * group * lanes, [(node, 1)])
    below = [found for s in node.src if (found := known.get(s)) is not None]
    if len(below) != len(node.src):
        return None
    if node.op is BROADCAST:
        return _Values([x for x in below[0].numbers for _ in range(lanes)], below[0].others)
    if len(below) != 2:
        return None
    one, other = below
    if node.op is ADD:
        numbers = map(operator.add, one.numbers, other.numbers)
        return _Values(list(numbers), [*one.others, *other.others])
    if node.op is MUL and node.src[1].op is CONST and lanes == 1:
        times = int(node.src[1].arg)
        others = [(term, count * times) for term, count in one.others]
        return _Values([x * times for x in one.numbers], others)
    function = operator.mul if node.op is MUL else _FUNCTIONS.get(node.op)
    if function is None or one.others or other.others:
        return None
    return _Values(list(map(function, one.numbers, other.numbers)))


def _lies_across(values: _Values | None, group: int) -> bool:
    """Whether element k of item 4 * g + q is g behind that of item q, at which a row begins."""
    if values is None:
        return False
    if any([largest_power_of_two(term) * times % ROW for term, times in values.others]):
        return False
    numbers = values.numbers
    for item in range(group):
        first = item // WARP * WARP + item % QUARTERS
        column = item // QUARTERS % GROUPS
        for k in range(ELEMENTS):
            start = numbers[first * ELEMENTS + k]
            if start % ROW or numbers[item * ELEMENTS + k] != start + column:
                return False
    return True


# -- the row of an item -----------------------------------------------------------------------------


def _row_of_item(index: UOp, item: UOp) -> UOp | None:
    """The term where the item and the element are those whose row this item gives; None: elements lie at no one stride."""

    def number(value: int) -> UOp:
        return UOp(CONST, item.dtype, (), value)

    def part(bits: int, count: int) -> UOp:
        return UOp(
            Ops.AND, item.dtype, (UOp(Ops.SHR, item.dtype, (item, number(bits))), number(count - 1))
        )

    warp = UOp(Ops.AND, item.dtype, (item, number(-WARP)))
    other = UOp(Ops.OR, item.dtype, (warp, part(1, QUARTERS)))
    element = UOp(
        Ops.OR, item.dtype, (UOp(MUL, item.dtype, (part(3, QUARTERS), number(PAIR))), part(0, PAIR))
    )
    done: dict[UOp, UOp] = {item: other}
    for node in toposort((index,), lambda n: n.op is not RANGE):
        if node in done:
            continue
        if node.op is RANGE:
            done[node] = node
        elif node.op is CONST and node.dtype.lanes > 1:
            line = _along(node.arg)
            if line is None:
                return None
            first, apart = [UOp(CONST, node.dtype.scalar, (), n) for n in line]
            scaled = UOp(MUL, node.dtype.scalar, (element, apart))
            done[node] = UOp(ADD, node.dtype.scalar, (scaled, first))
        elif node.op is BROADCAST:
            done[node] = done[node.src[0]]
        else:
            src = tuple([done[s] for s in node.src])
            done[node] = UOp(node.op, node.dtype.scalar, src, node.arg)
    return done[index]


def _along(numbers: int | Sequence[int]) -> tuple[int, int] | None:
    """The first of some numbers, and how far they are apart."""
    if isinstance(numbers, int):
        return numbers, 0
    apart = numbers[1] - numbers[0]
    are_even = all([n == numbers[0] + apart * k for k, n in enumerate(numbers)])
    return (numbers[0], apart) if are_even else None
