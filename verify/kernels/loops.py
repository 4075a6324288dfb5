"""Which values of the loops before belong to which values of the loops after: guesses to be proven.

Owns: the search for such maps, by mixed radix. Does not own: index terms as sums (kernels/linear_sums.py), showing that a map is right; a wrong
guess proves nothing and harms nothing (kernels/match.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, permutations
from math import prod

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.verify.kernels.linear_sums import (
    PARTS,
    Limit,
    Linear,
    limits_of,
    limits_of_digits,
    linear_form,
    reach_of,
    without_zeros,
)
from proofgrad.verify.kernels.terms import DIGITS, loop_name, loop_size

MOST_GUESSES = 200


def loops_at_first(loops: Sequence[UOp], given: Sequence[UOp]) -> list[UOp]:
    """Those of `loops` of which conditions allow the first iteration alone."""
    limits = limits_of(given)
    return [
        loop
        for loop in loops
        if any([x.parts.get(loop, 0) > 0 and x.constant + x.parts[loop] >= n for x, n in limits])
    ]


def digits(
    position: UOp, strides: Sequence[tuple[int, int]], limits: Sequence[Limit] = ()
) -> list[UOp]:
    """The digit of each (stride, size) in `position`, which lies within `limits`; strides fall.

    Where the loops of `position` fall into groups, one a digit, no division is needed.
    """
    form = linear_form(position)
    if form is not None and limits:
        form = without_zeros(form, limits)
    found: list[UOp] = []
    for k, (stride, size) in enumerate(strides):
        digit, form = (None, None) if form is None else _leading_digit(form, stride, limits)
        if digit is None:
            rest = position if k == 0 or form is None else form.term()
            return found + [_digit(rest, *each) for each in strides[k:]]
        position = form.term() if form is not None else position
        found.append(digit)
    return found


def _leading_digit(form: Linear, stride: int, limits: Sequence[Limit]) -> tuple[UOp | None, Linear]:
    """What is divisible by `stride`, if the rest stays below it."""
    high = {x: c // stride for x, c in form.parts.items() if c % stride == 0}
    low = {x: c for x, c in form.parts.items() if c % stride}
    rest = Linear(low, form.constant % stride)
    if rest.largest(limits) >= stride or any(c < 0 for c in low.values()):
        return None, form
    return Linear(high, form.constant // stride).term(), rest


def _digit(position: UOp, stride: int, size: int) -> UOp:
    quotient = position // stride if stride > 1 else position
    return quotient % size


def map_by_position(
    before: UOp, after: UOp, loops: Sequence[UOp], given: Sequence[UOp] = ()
) -> dict[UOp, UOp] | None:
    """Values of `loops`, on which the index `before` depends, that give the index `after` under `given`."""
    form = linear_form(before)
    if form is None:
        return None
    pieces = [piece for loop in loops for piece in _pieces(loop, form)]
    moving = sorted([x.part for x in pieces], key=lambda part: -abs(form.parts[part]))
    falling = [x for x in moving if form.parts[x] < 0]
    least = sum([form.parts[x] * reach_of(x) for x in falling])
    fixed = Linear({x: c for x, c in form.parts.items() if x not in moving}, form.constant + least)
    whole = fixed.term()
    position = after if whole is UOp.index(0) else after + whole * -1
    strides = [(abs(form.parts[x]), reach_of(x) + 1) for x in moving]
    limits = limits_of_digits(limits_of(given), [x.stride for x in pieces])
    values = dict(zip(moving, digits(position, strides, limits)))
    values.update({x: UOp.index(reach_of(x)) + values[x] * -1 for x in falling})
    return {loop: _whole([x for x in pieces if x.loop is loop], values) for loop in loops}


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a sum that is a digit of a loop, by its stride and its count; the loop itself is the only one it has."""

    part: UOp
    loop: UOp
    stride: int
    count: int


def _piece_of(part: UOp) -> _Piece | None:
    """The quotient or remainder of a loop, of one of those, ... as a digit of it; None for that of a sum."""
    own, stride = part, 1
    while own.op is not Ops.RANGE:
        if own.src[0].op not in PARTS:
            return None
        stride *= own.src[1].arg if own.op is Ops.FLOORDIV else 1
        own = own.src[0]
    return _Piece(part, own, stride, reach_of(part) + 1)


def _pieces(loop: UOp, form: Linear) -> list[_Piece]:
    """The loop itself, if the sum has a multiple of it, else the digits of it that tell its value, if it has multiples of those."""
    if form.parts.get(loop, 0):
        return [_Piece(loop, loop, 1, loop_size(loop))]
    parts = [part for part, c in form.parts.items() if c]
    found = [x for part in parts if (x := _piece_of(part)) is not None and x.loop is loop]
    found.sort(key=lambda piece: piece.stride)
    following = 1
    for piece in found:
        if piece.stride != following:
            return []
        following *= piece.count
    return found if following >= loop_size(loop) else []


def _whole(pieces: Sequence[_Piece], values: Mapping[UOp, UOp]) -> UOp:
    """The value of a loop whose digits have these values; 0 without any."""
    terms = [values[x.part] * x.stride if x.stride > 1 else values[x.part] for x in pieces]
    return sum(terms[1:], terms[0]) if terms else UOp.index(0)


def turned(loop: UOp) -> UOp:
    """The value of a loop in the iteration that is as far from the last one as this is from the first."""
    return UOp.index(loop_size(loop) - 1) + loop * -1


def map_by_digits(loop: UOp, term: UOp, after: Sequence[UOp]) -> LoopMap | None:
    """The map that gives a loop this value, a sum of digits of the loops after, each of which is one of the loop."""
    form, back = linear_form(term), dict[UOp, UOp]()
    if form is None or form.constant:
        return None
    for part, c in form.parts.items():
        piece = _piece_of(part)
        if piece is None or c <= 0:
            return None
        digit, own = _digit(loop, c, piece.count) * piece.stride, piece.loop
        back[own] = back[own] + digit if own in back else digit
    if set(back) != set(after):
        return None
    is_partial = prod(map(loop_size, after)) > loop_size(loop)
    return LoopMap({loop: term}, back, partial=is_partial)


def map_by_stride(before: UOp, after: UOp, loops: Sequence[UOp]) -> dict[UOp, UOp] | None:
    """For each of `loops` what runs over as many values with the same stride in `after`, if there is one."""
    form, other = linear_form(before), linear_form(after)
    if form is None or other is None:
        return None
    found: dict[UOp, UOp] = {}
    for loop in loops:
        there = [x for x, c in other.parts.items() if c == form.parts.get(loop)]
        if len(there) != 1 or reach_of(there[0]) != loop_size(loop) - 1:
            return None
        found[loop] = there[0]
    return found


def digits_of_positions(positions: Sequence[UOp], size: int) -> list[UOp]:
    """Loops whose row-major positions are all numbers below `size`, as far as may be those of the positions."""
    strides = {1, size}
    for position in positions:
        form = linear_form(position) or Linear({}, 0)
        strides |= {s for x, c in form.parts.items() for s in (c, c * (reach_of(x) + 1))}
    chain = [1]
    for stride in sorted(strides):
        if stride > chain[-1] and stride % chain[-1] == 0 and size % stride == 0:
            chain.append(stride)
    sizes = [outer // inner for inner, outer in zip(chain, chain[1:])][::-1]
    return [UOp.range(n, DIGITS + k) for k, n in enumerate(sizes)]


def common_loops(before: Sequence[UOp], after: Sequence[UOp]) -> dict[UOp, UOp]:
    """Loops with the same name and size are taken to be the same."""
    named = {(loop_name(x), loop_size(x)): x for x in after}
    return {
        x: named[loop_name(x), loop_size(x)]
        for x in before
        if (loop_name(x), loop_size(x)) in named
    }


@dataclass(frozen=True, slots=True)
class LoopMap:
    """Each loop before as a term of loops after; `partial`: a value may lie outside of its loop.

    `inverse`: each loop after that is not one of those before, as a term of loops before.
    """

    terms: Mapping[UOp, UOp]
    inverse: Mapping[UOp, UOp]
    partial: bool = False


def values_at(position: UOp, loops: Sequence[UOp]) -> dict[UOp, UOp]:
    """The value of each loop at a row-major position of all of them."""
    return dict(zip(loops, digits(position, _strides(loops))))


def guesses(before: Sequence[UOp], after: Sequence[UOp]) -> Iterator[LoopMap]:
    """Maps between the loops of two reductions, likely ones first."""
    same = common_loops(before, after)
    old = [x for x in before if x not in same]
    new = [x for x in after if x not in same.values()]
    yield from islice(_guesses(same, old, new), MOST_GUESSES)


def _guesses(same: dict[UOp, UOp], old: list[UOp], new: list[UOp]) -> Iterator[LoopMap]:
    sizes = prod(map(loop_size, old)), prod(map(loop_size, new))
    if sizes[0] == sizes[1]:
        for order in permutations(new):
            for inner in permutations(old):
                there = dict(zip(inner, digits(row_major(order).term(), _strides(inner))))
                back = dict(zip(order, digits(row_major(inner).term(), _strides(order))))
                yield LoopMap({**same, **there}, back)
    elif len(old) == len(new) > 1:  # each loop by itself goes on beyond its end
        for order in permutations(new):
            if all(loop_size(x) <= loop_size(y) for x, y in zip(old, order)):
                yield LoopMap({**same, **dict(zip(old, order))}, dict(zip(order, old)), True)
    if old and sizes[1] > sizes[0]:  # all loops as one, which goes on beyond its end
        known = _strides(old)
        strides = [(known[0][0], -(-sizes[1] // known[0][0])), *known[1:]]
        for order in permutations(new):
            there = dict(zip(old, digits(row_major(order).term(), strides)))
            back = dict(zip(order, digits(row_major(old).term(), _strides(order))))
            yield LoopMap({**same, **there}, back, partial=True)


def _strides(loops: Sequence[UOp]) -> list[tuple[int, int]]:
    return [(prod(map(loop_size, loops[k + 1 :])), loop_size(x)) for k, x in enumerate(loops)]


def row_major(loops: Sequence[UOp]) -> Linear:
    """The position of the values of loops, the first of which moves slowest."""
    parts = {x: stride for x, (stride, _) in zip(loops, _strides(loops))}
    return Linear(parts, 0)
