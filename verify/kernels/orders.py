"""In which order the loops after a stage count the iterations of those before, as positions that both load tell.

Owns: the search for such an order, a guess to be proven (kernels/match.py). Does not own: maps of other kinds (kernels/loops.py).

A loop of 64 may be counted as o, q, p, e of 2, 4, 4 and 2, where its value is 32 * o + 8 * p + 2 * q + e. Positions may be turned around
in memory of a group on the way, so they are compared by their values, where all other loops are at 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy

from proofgrad.core.ir.uop import UOp
from proofgrad.verify.kernels.loops import LoopMap, map_by_digits, row_major, turned, values_at
from proofgrad.verify.kernels.terms import DIGITS, Points, Terms, loop_name, loop_size, loops_of

MOST_ITERATIONS = 1 << 16
ONE = (
    DIGITS - 1
)  # the number of a loop that counts several, which is put in place of them and gone again


def map_by_values(
    terms: Terms, positions: tuple[UOp, UOp], before: Sequence[UOp], after: Sequence[UOp]
) -> LoopMap | None:
    """The map between loops of two reductions that makes two positions the same."""
    old, new = positions
    count = prod(map(loop_size, after))
    is_known = all([terms.is_computable(x) for x in positions])
    if not before or not after or count > MOST_ITERATIONS or not is_known:
        return None
    numbers, at = numpy.arange(count), dict[UOp, numpy.ndarray]()
    for loop in before[:0:-1]:
        numbers, at[loop] = numbers // loop_size(loop), numbers % loop_size(loop)
    at[before[0]] = numbers
    number_at = {int(x): k for k, x in enumerate(_values(terms, old, at, count))}
    if len(number_at) < count:
        return None

    def numbers_of(loop: UOp, new: UOp) -> list[int]:
        values = _values(terms, new, {loop: numpy.arange(loop_size(loop))}, loop_size(loop))
        return [number_at.get(int(x), -1) for x in values]

    falling = {x: turned(x) for x in after if _falls(numbers_of(x, new))}
    new, total = new.substitute(falling), UOp.index(0)
    for loop in after:
        order = _as_digits(loop, numbers_of(loop, new))
        if order is None:
            return None
        total = total + order
    one = before[0]
    if len(before) > 1:
        one = UOp.range(prod(map(loop_size, before)), ONE)
    return _turned(_of_all(map_by_digits(one, total, after), one, before), falling)


def _falls(numbers: Sequence[int]) -> bool:
    return len(numbers) > 1 and numbers[1] < numbers[0]


def _turned(found: LoopMap | None, falling: dict[UOp, UOp]) -> LoopMap | None:
    """The map of loops of which some, after, run backwards."""
    if found is None or not falling:
        return found
    terms = {x: term.substitute(falling) for x, term in found.terms.items()}
    back = {
        x: turned(x).substitute({x: term}) if x in falling else term
        for x, term in found.inverse.items()
    }
    return LoopMap(terms, back, found.partial)


def _values(terms: Terms, position: UOp, at: dict[UOp, numpy.ndarray], count: int) -> numpy.ndarray:
    """A position at values of some loops, where all others are at 0."""
    points: Points = {loop_name(x): numpy.array([0]) for x in loops_of((position,))}
    points |= {loop_name(x): values for x, values in at.items()}
    return numpy.broadcast_to(terms.values(position, points), (count,))


def _as_digits(loop: UOp, numbers: Sequence[int]) -> UOp | None:
    """A sum of digits of a loop, so many times each, that has these values; None: it is no such sum."""
    total, stride, left = UOp.index(0), 1, list(numbers)
    while len(left) > 1:
        each, size = left[1] - left[0], 1
        while size < len(left) and left[size] == left[0] + size * each:
            size += 1
        while len(left) % size:
            size -= 1
        is_sum = all([x == left[k - k % size] + k % size * each for k, x in enumerate(left)])
        if left[0] or each <= 0 or size == 1 or not is_sum:
            return None
        digit = loop // stride if stride > 1 else loop
        digit = digit % size if size < len(left) else digit
        total = total + digit * each
        stride, left = stride * size, left[::size]
    return total


def _of_all(found: LoopMap | None, one: UOp, loops: Sequence[UOp]) -> LoopMap | None:
    """A map of one loop as that of the loops that it counts."""
    if found is None or len(loops) == 1:
        return found
    (outermost, *inner), number = loops, found.terms[one]
    size = prod(map(loop_size, inner))
    terms = {outermost: number // size, **values_at(number % size, inner)}
    number = row_major(loops).term()
    inverse = {x: term.substitute({one: number}) for x, term in found.inverse.items()}
    return LoopMap(terms, inverse, found.partial)
