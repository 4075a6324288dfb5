"""Which values of the loops before belong to which values of the loops after: guesses to be proven.

Owns: the search for such maps, by mixed radix. Does not own: showing that a map is right; a wrong
guess proves nothing and harms nothing (kernel_match.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, permutations
from math import prod

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.verify.kernel_terms import loop_name, loop_size

MOST_GUESSES = 200


@dataclass(frozen=True, slots=True)
class Linear:
    """A sum of loops, or quotients and remainders of them, times constants, and a constant."""

    parts: dict[UOp, int]
    constant: int

    def largest(self) -> int:
        return self.constant + sum(c * _reach(x) for x, c in self.parts.items() if c > 0)

    def term(self) -> UOp:
        total = UOp.index(self.constant)
        for loop, c in self.parts.items():
            total = total + (loop * c if c != 1 else loop)
        return total


def _reach(part: UOp) -> int:
    """The largest value of a loop, or of the quotient or remainder of one."""
    if part.op is Ops.RANGE:
        return loop_size(part) - 1
    divisor: int = part.src[1].arg
    return divisor - 1 if part.op is Ops.MOD else _reach(part.src[0]) // divisor


def linear_form(term: UOp) -> Linear | None:
    """`term` as a sum of multiples of loops; None if it is not one."""
    found: dict[UOp, Linear | None] = {}
    for node in toposort((term,)):
        found[node] = _linear(node, [found[s] for s in node.src])
    return found[term]


def _linear(node: UOp, src: list[Linear | None]) -> Linear | None:
    if node.op is Ops.RANGE:
        return Linear({node: 1}, 0)
    if node.op is Ops.CONST and not node.dtype.is_float:
        return Linear({}, int(node.arg))
    known = [s for s in src if s is not None]
    if len(known) < len(src):
        return None
    match node.op:
        case Ops.ADD:
            parts = dict(known[0].parts)
            for loop, c in known[1].parts.items():
                parts[loop] = parts.get(loop, 0) + c
            return Linear(parts, known[0].constant + known[1].constant)
        case Ops.MUL | Ops.SHL:
            one, other = known
            if node.op is Ops.MUL and not one.parts:
                one, other = other, one
            if other.parts:
                return None
            factor = other.constant if node.op is Ops.MUL else 1 << other.constant
            return Linear({x: c * factor for x, c in one.parts.items()}, one.constant * factor)
        case Ops.NEG:
            return Linear({x: -c for x, c in known[0].parts.items()}, -known[0].constant)
        case Ops.CAST:
            return known[0]
        case Ops.FLOORDIV | Ops.MOD if node.src[0].op is Ops.RANGE and not known[1].parts:
            return Linear({node: 1}, 0) if known[1].constant > 0 else None
        case _:
            return None


def digits(position: UOp, strides: Sequence[tuple[int, int]]) -> list[UOp]:
    """The digit of each (stride, size) in `position`; strides fall.

    Where the loops of `position` fall into groups, one a digit, no division is needed.
    """
    form = linear_form(position)
    found: list[UOp] = []
    for k, (stride, size) in enumerate(strides):
        digit, form = _leading_digit(form, stride) if form is not None else (None, None)
        if digit is None:
            rest = position if k == 0 or form is None else form.term()
            return found + [_digit(rest, *each) for each in strides[k:]]
        position = form.term() if form is not None else position
        found.append(digit)
    return found


def _leading_digit(form: Linear, stride: int) -> tuple[UOp | None, Linear]:
    """What is divisible by `stride`, if the rest stays below it."""
    high = {x: c // stride for x, c in form.parts.items() if c % stride == 0}
    low = {x: c for x, c in form.parts.items() if c % stride}
    rest = Linear(low, form.constant % stride)
    if rest.largest() >= stride or any(c < 0 for c in low.values()):
        return None, form
    return Linear(high, form.constant // stride).term(), rest


def _digit(position: UOp, stride: int, size: int) -> UOp:
    quotient = position // stride if stride > 1 else position
    return quotient % size


def map_by_position(before: UOp, after: UOp, loops: Sequence[UOp]) -> dict[UOp, UOp] | None:
    """Values of `loops`, on which the index `before` depends, that give the index `after`."""
    form = linear_form(before)
    if form is None:
        return None
    moving = sorted((x for x in loops if form.parts.get(x, 0) > 0), key=lambda x: -form.parts[x])
    fixed = Linear({x: c for x, c in form.parts.items() if x not in moving}, form.constant)
    whole = fixed.term()
    position = after if whole is UOp.index(0) else after + whole * -1
    strides = [(form.parts[x], loop_size(x)) for x in moving]
    found = dict(zip(moving, digits(position, strides)))
    found.update({x: UOp.index(0) for x in loops if x not in found})
    return found


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
    elif len(old) == 1 and sizes[1] > sizes[0]:
        for order in permutations(new):
            back = dict(zip(order, digits(old[0], _strides(order))))
            yield LoopMap({**same, old[0]: row_major(order).term()}, back, partial=True)


def _strides(loops: Sequence[UOp]) -> list[tuple[int, int]]:
    return [(prod(map(loop_size, loops[k + 1 :])), loop_size(x)) for k, x in enumerate(loops)]


def row_major(loops: Sequence[UOp]) -> Linear:
    """The position of the values of loops, the first of which moves slowest."""
    parts = {x: stride for x, (stride, _) in zip(loops, _strides(loops))}
    return Linear(parts, 0)
