"""The positions of the rows of matrices that the items of a warp give to an instruction which reads these together.

Owns: their terms, and where in a program these are computed. Does not own: which loads are made so, and what an instruction hands out
(matrix_loads.py).

A row begins where an element of another item is: so its position is that of the element, with the item and the number of the element as terms
of the item that gives it, and for loads that are made together of which one it is. Positions are sums of terms. What is known
first is added first, before all loops if it can be, and numbers are kept apart, so that rows that are a number apart share the rest.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.fragments import GROUPS, QUARTERS, WARP
from proofgrad.core.ir.op_names import ADD, BROADCAST, CONST, MUL
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.uop import UOp, toposort

MATRICES = WARP // GROUPS  # of an instruction, of each of which an item gets a word


@dataclass(frozen=True, slots=True)
class Row:
    """Where it begins: so many elements behind a position."""

    position: UOp
    behind: int


def rows_of(
    indexes: tuple[UOp, ...], item: UOp, word: int, is_across: bool, places: dict[UOp, int]
) -> tuple[Row, ...] | None:
    """Of each instruction, for loads whose elements are at these positions; None: elements lie on no line.

    `word`: elements of one. `places`: of the nodes of a program; those of terms are added.
    """
    try:
        turns = [_Turn(item, k, len(indexes), word, is_across, places) for k in range(len(indexes))]
        return tuple([turn.row(indexes) for turn in turns])
    except _NoLine:
        return None


def places_of(linear: UOp) -> dict[UOp, int]:
    """Where each node of a program stands that can stand nowhere else."""
    return {n: k for k, n in enumerate(linear.src) if n.op not in ELEMENTWISE and n.op is not CONST}


def with_rows(linear: UOp, rows: Sequence[Row], loads: Iterable[UOp]) -> UOp:
    """The program with the positions of rows before some loads, each term where all that it needs is known."""
    places = places_of(linear)
    first = min([places[load] for load in loads])
    places |= {node: k for k, node in enumerate(linear.src[:first])}
    behind, moved = dict[int, list[UOp]](), set[UOp]()
    for row in rows:
        for node in _find_places(row.position, places):
            behind.setdefault(places[node], []).append(node)
            moved.add(node)
    kept = [[] if node in moved else [node] for node in linear.src]
    nodes = [x for k, node in enumerate(kept) for x in (*node, *behind.get(k, ()))]
    return linear.with_src(tuple(nodes))


def _find_places(term: UOp, places: dict[UOp, int]) -> list[UOp]:
    """What below a term has no place yet gets that where the last of what it needs is known; these nodes, sources first."""
    new = [n for n in toposort((term,), lambda n: n not in places) if n not in places]
    for node in new:
        places[node] = max([places[s] for s in node.src], default=-1)
    return [n for n in new if n.op is not CONST]


class _NoLine(Exception):
    """Elements lie on no line of loads, words and elements of a word."""


class _Turn:
    """The row that an item gives to one instruction, of `count`."""

    def __init__(
        self, item: UOp, turn: int, count: int, word: int, is_across: bool, places: dict[UOp, int]
    ) -> None:
        self.word, self.is_across, self.places = word, is_across, places
        warp, row = _op(Ops.AND, item, -WARP), _digit(item, 0, GROUPS)
        step, each = _digit(item, 1, QUARTERS), MATRICES // count
        other = step if is_across else _op(MUL, row, QUARTERS)
        load, piece = _digit(item, 3, count), _digit(item, 2 + count, each)
        # Which load, which of its words, which element of the word; the number of the second.
        self.digits, self.first = (load, piece, _digit(item, 0, word)), each * turn
        self.done: dict[tuple[UOp, ...], UOp] = {(item,): _op(Ops.OR, warp, other)}

    def row(self, indexes: tuple[UOp, ...]) -> Row:
        """Of loads whose elements are at these positions. Raises: _NoLine."""
        addends, behind = self._sum(indexes)
        return Row(self._added(addends, 0, indexes[0].dtype.scalar), behind)

    def _term(self, nodes: tuple[UOp, ...]) -> UOp:
        """What is one of some terms, by the load."""
        nodes = nodes[:1] if len(set(nodes)) == 1 else nodes
        if nodes not in self.done:
            self.done[nodes] = self._made(nodes)
        return self.done[nodes]

    def _made(self, nodes: tuple[UOp, ...]) -> UOp:
        first = nodes[0]
        dtype = first.dtype.scalar
        if any([_is_sum(node) for node in nodes]):
            return self._added(*self._sum(nodes), dtype)
        if len(nodes) == 1 and first.op not in ELEMENTWISE:
            return first
        if len({(n.op, len(n.src), n.arg) for n in nodes}) > 1 or first.op not in ELEMENTWISE:
            return self._chosen([self._term((node,)) for node in nodes])
        src = tuple([self._term(below) for below in zip(*[node.src for node in nodes])])
        return UOp(first.op, dtype, src, first.arg)

    def _sum(self, nodes: tuple[UOp, ...]) -> tuple[dict[UOp, int], int]:
        """What is added, so many times each, and a number."""
        sums = [_sum_of(node) for node in nodes]
        number, digits = self._on_line([one.numbers for one in sums])
        both = set(sums[0].others.items()).intersection(*[one.others.items() for one in sums[1:]])
        left = [
            sorted([x for x in one.others.items() if x not in both], key=lambda x: x[1])
            for one in sums
        ]
        added = [(self._term((x,)), n) for x, n in sums[0].others.items() if (x, n) in both]
        if len({tuple([times for _, times in one]) for one in left}) == 1:
            added += [(self._term(tuple([x for x, _ in pair])), pair[0][1]) for pair in zip(*left)]
        else:
            each = [_together([(self._term((x,)), n) for x, n in one]) for one in left]
            added.append((self._chosen([self._added(*x, nodes[0].dtype.scalar) for x in each]), 1))
        addends, more = _together([*added, *digits])
        return addends, number + more

    def _added(self, addends: Mapping[UOp, int], number: int, dtype: DType) -> UOp:
        """What is known first before what is known later; the number last."""
        total: UOp | None = None
        for term in addends:
            _find_places(term, self.places)
        for term, times in sorted(addends.items(), key=lambda x: self.places[x[0]]):
            product = term if times == 1 else _op(MUL, term, times)
            total = product if total is None else _op(ADD, total, product)
        if total is None:
            return UOp(CONST, dtype, (), number)
        return _op(ADD, total, number) if number else total

    def _chosen(self, terms: Sequence[UOp]) -> UOp:
        """One of two, by the load."""
        is_first = _op(Ops.CMPEQ, self.digits[0], 0)
        return UOp(Ops.WHERE, terms[0].dtype, (is_first, *terms))

    def _on_line(self, numbers: Sequence[Sequence[int]]) -> tuple[int, list[tuple[UOp, int]]]:
        """The number at a place, as that of the first one and what is added with each part of the place."""

        def at(load: int, piece: int, element: int) -> int:
            found = numbers[load]
            return found[self.word * piece + element] if len(found) > 1 else found[0]

        sizes = len(numbers), MATRICES, self.word if self.is_across else 1
        start = at(0, 0, 0)
        ends = [tuple([int(k == axis) for k in range(3)]) for axis in range(3)]
        apart = [at(*one) - start if size > 1 else 0 for one, size in zip(ends, sizes)]
        for place in product(*map(range, sizes)):
            if at(*place) != start + sum(map(operator.mul, place, apart)):
                raise _NoLine
        found = [(digit, times) for digit, times in zip(self.digits, apart) if times]
        return start + self.first * apart[1], found


@dataclass(frozen=True, slots=True)
class _Sum:
    """Terms, so many times each, and a number, or one for each lane."""

    others: Mapping[UOp, int]
    numbers: Sequence[int]


def _sum_of(term: UOp) -> _Sum:
    """A term as a sum, multiplied out."""
    others: dict[UOp, int] = {}
    numbers, stack = [0], [(term, 1)]
    while stack:
        node, times = stack.pop()
        if node.op is ADD or node.op is BROADCAST:
            stack += [(source, times) for source in node.src]
        elif (factor := _factor(node)) is not None:
            stack.append((node.src[0], times * factor))
        elif node.op is CONST:
            each = list(node.arg) if isinstance(node.arg, tuple) else [node.arg]
            lanes = max(len(numbers), len(each))
            pairs = zip(numbers * (lanes // len(numbers)), each * (lanes // len(each)))
            numbers = [one + times * int(more) for one, more in pairs]
        else:
            others[node] = others.get(node, 0) + times
    return _Sum(others, numbers)


def _together(added: Sequence[tuple[UOp, int]]) -> tuple[dict[UOp, int], int]:
    """How often each term is added, and the sum of the numbers."""
    found, number = dict[UOp, int](), 0
    for term, times in added:
        if term.op is CONST:
            number += int(term.arg) * times
        else:
            found[term] = found.get(term, 0) + times
    return found, number


def _is_sum(node: UOp) -> bool:
    return node.op in (ADD, BROADCAST, CONST) or _factor(node) is not None


def _factor(node: UOp) -> int | None:
    """The number that a term is multiplied by."""
    if node.op is not MUL or node.src[1].op is not CONST:
        return None
    number = node.src[1].arg
    numbers = set(number) if isinstance(number, tuple) else {number}
    return int(number[0] if isinstance(number, tuple) else number) if len(numbers) == 1 else None


def _digit(item: UOp, bits: int, count: int) -> UOp:
    """Of the item's number."""
    return _op(Ops.AND, _op(Ops.SHR, item, bits), count - 1)


def _op(op: Ops, one: UOp, other: UOp | int) -> UOp:
    known = one.const_like(other) if isinstance(other, int) else other
    return UOp(op, dtypes.bool if op is Ops.CMPEQ else one.dtype, (one, known))
