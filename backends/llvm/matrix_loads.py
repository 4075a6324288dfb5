"""Loads of matrix fragments that the items of a warp make together, by one instruction that hands out words of rows of 16 bytes.

Owns: which loads, and the term of the address that each item gives. Does not own: the instruction (a dialect), which item holds which
element (core/ir/fragments.py).

The instruction reads four matrices of 8 rows of 16 bytes; item 8 * m + i gives the address of row i of matrix m. Item 4 * g + q gets of
each matrix word q, of 4 bytes, of row g; or, where matrices of elements of 2 bytes are turned around, element g of rows 2q and 2q + 1.
So an item can get four words of a factor at once: word p is its elements w * p to w * p + w - 1, and

    where the factor lies along the sum,  element w * p + e  of item 4 * g + q is  w * q + e  behind the beginning of a row r(g, p),
    where it lies across it, and w = 2,   element 2 * p + e  of item 4 * g + q is      g      behind that of a row r(q, 2 * p + e).

A row begins at what another item has as another of its elements: item 4 * i, or i // 2, has element w * p, or 2 * p + i % 2, there. Matrix
m is word m of one load; or, of two loads of a product whose items hold two halves of its rows, word m // 2 of load m % 2, and by a second
instruction word m // 2 + 2, for so the product takes them, side by side in registers.

That the positions are such ones is decided by their values for every item of a group: a term is what changes with the item and the
element, which is computed, plus what does not, which is known by what it is a multiple of.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from proofgrad.backends.llvm.alignment import counts_up, largest_power_of_two
from proofgrad.backends.llvm.matrix_rows import MATRICES, Row, places_of, rows_of
from proofgrad.core.ir.fragments import GROUPS, QUARTERS, WARP, fragments_of
from proofgrad.core.ir.op_names import ADD, BROADCAST, CONST, LOAD, MMA, MUL, RANGE, TF32
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort

WORD_BYTES = 4
TURNED_BYTES = 2  # of an element of a matrix that is turned around
_MOMENTS = frozenset({Ops.STORE, Ops.FILLED, Ops.RANGE, Ops.END})  # which loads do not pass


@dataclass(frozen=True, slots=True)
class Together:
    """Loads that a warp makes together, where it comes to the last of them.

    `rows`: of each instruction, the position of the row that an item gives. It hands out a word of each load in turn.
    """

    loads: tuple[UOp, ...]
    last: UOp
    rows: tuple[Row, ...]
    is_across: bool


def loads_together(linear: UOp, of_group: frozenset[UOp], group: int | None) -> dict[UOp, Together]:
    """Of each load that a warp makes together, with which others, and how."""
    found: dict[UOp, Together] = {}
    products = [n for n in linear.src if n.op is MMA and len(n.arg) == 2]
    if group is None or group % WARP:
        return found
    known: dict[UOp, _Values | None] = {}
    places = places_of(linear) if products else {}
    unprinted = rounded_by_products(linear) if products else frozenset[UOp]()
    for node in products:
        parts = fragments_of(node)
        column, *rows = [before_rounding(x) for x in (parts.column, *parts.rows)]
        alone = [(x,) for x in (column, *rows)]
        for loads in [tuple(rows), *alone] if len(rows) == 2 else alone:
            is_one = _is_one_each(parts.item, group) and found.keys().isdisjoint(loads)
            if is_one and all([_is_candidate(x, of_group) for x in loads]):
                made = _together(loads, linear, places, parts.item, group, known, unprinted)
                found.update({} if made is None else dict.fromkeys(loads, made))
    return found


def before_rounding(factor: UOp) -> UOp:
    """What an item holds of a factor, which a unit's product rounds to TF32."""
    return factor.src[0] if factor.op is TF32 else factor


def rounded_by_products(linear: UOp) -> frozenset[UOp]:
    """The roundings to TF32 that nothing but products of units takes."""
    others = {s for n in linear.src if n.op is not MMA for s in n.src}
    return frozenset([n for n in linear.src if n.op is TF32 and n not in others])


def _is_one_each(item: UOp, group: int) -> bool:
    """Whether a loop counts the items of a group."""
    size = item.src[0] if item.op is RANGE else item
    is_lane = item.op is RANGE and item.arg[1] is AxisRole.LANE
    return is_lane and size.op is CONST and size.arg == group


def _is_candidate(load: UOp, of_group: frozenset[UOp]) -> bool:
    if load.op is not LOAD or load.dtype.is_bool or WORD_BYTES % load.dtype.scalar.itemsize:
        return False
    memory, index, *mask = load.src[0].src
    is_vector = index.dtype.lanes == load.dtype.lanes == MATRICES * _word(load)
    return is_vector and memory in of_group and not mask and len(load.src) == 1


def _word(load: UOp) -> int:
    """Elements of a word."""
    return WORD_BYTES // load.dtype.scalar.itemsize


def _may_wait(loads: Sequence[UOp], between: Sequence[UOp]) -> bool:
    """Whether all loads may be made at the last one: nothing between stores, waits, or needs them."""
    is_of_one = len({load.src[0].src[0] for load in loads}) == 1
    return is_of_one and not any(
        [n.op in _MOMENTS or not set(loads).isdisjoint(n.src) for n in between]
    )


def _together(
    loads: tuple[UOp, ...],
    linear: UOp,
    places: dict[UOp, int],
    item: UOp,
    group: int,
    known: dict[UOp, _Values | None],
    unprinted: frozenset[UOp],
) -> Together | None:
    """None: a load gives other elements than an instruction does, or one may not wait for the other."""
    at = [places[load] for load in loads]
    between = [n for n in linear.src[min(at) : max(at) + 1] if n not in unprinted]
    if not _may_wait(loads, between):
        return None
    word = _word(loads[0])
    values = [_values(_index(load), item, group, known) for load in loads]
    ways = (False, True) if loads[0].dtype.scalar.itemsize == TURNED_BYTES else (False,)
    for is_across in ways:
        if all([_are_rows(found, group, word, is_across) for found in values]):
            rows = rows_of(tuple(map(_index, loads)), item, word, is_across, places)
            return None if rows is None else Together(loads, between[-1], rows, is_across)
    return None


def _index(load: UOp) -> UOp:
    """The positions of its elements."""
    return load.src[0].src[1]


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
        return _of_rows(node, below)
    return _Values(list(map(function, one.numbers, other.numbers)))


def _of_rows(node: UOp, below: Sequence[_Values]) -> _Values | None:
    """Any function of what is the same for the items of a row is so itself, whatever it is."""
    if node.dtype.lanes > 1 or node.op not in ELEMENTWISE:
        return None
    apart = QUARTERS if _divides_rows(node, below) else 1
    rows = [[x // apart for x in one.numbers] for one in below]
    if any([x != one[k - k % QUARTERS] for one in rows for k, x in enumerate(one)]):
        return None
    return _Values([0] * len(rows[0]), [(node, 1)])


def _divides_rows(node: UOp, below: Sequence[_Values]) -> bool:
    """Whether a quotient is the same for numbers that differ within as many as a row has items: as (i + 4 * k) // 112 is that of i // 4 + k by 28."""
    if node.op is not Ops.TRUNCDIV or node.src[1].op is not CONST or node.src[1].arg % QUARTERS:
        return False
    others = [largest_power_of_two(term) * times for term, times in below[0].others]
    return not any([n % QUARTERS for n in others]) and counts_up(node.src[0])


def _are_rows(values: _Values | None, group: int, word: int, is_across: bool) -> bool:
    """Whether elements lie behind the beginning of a row as an instruction hands them out."""
    size, count = QUARTERS * word, MATRICES * word
    if values is None:
        return False
    if any([largest_power_of_two(term) * times % size for term, times in values.others]):
        return False
    numbers = values.numbers
    for item in range(group):
        first, quarter, other = item // WARP * WARP, item % QUARTERS, item // QUARTERS % GROUPS
        for k in range(count):
            start, behind = (first + other * QUARTERS) * count + k // word * word, k % word
            behind += quarter * word
            if is_across:
                start, behind = (first + quarter) * count + k, other
            if numbers[start] % size or numbers[item * count + k] != numbers[start] + behind:
                return False
    return True
