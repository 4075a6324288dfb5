"""Which values of the loops before belong to which values of the loops after: guesses to be proven.

Owns: the search for such maps, by mixed radix; index terms as sums of multiples of loops. Does not own: showing that a map is right; a wrong
guess proves nothing and harms nothing (kernels/match.py).

That a term and its sum are equal is believed where positions of what is kept are put into each other (kernels/tables.py). So there is none of a
term that, or a part of which, may leave its type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice, permutations
from math import prod

from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.verify.kernels.terms import DIGITS, loop_name, loop_size, width_limits

MOST_GUESSES = 200
_PARTS = (Ops.RANGE, Ops.FLOORDIV, Ops.MOD)


@dataclass(frozen=True, slots=True)
class Linear:
    """A sum of loops, or quotients and remainders of them, times constants, and a constant."""

    parts: dict[UOp, int]
    constant: int

    def largest(self, limits: Sequence[Limit] = ()) -> int:
        """No value is larger where `limits` hold, which are of parts that go up."""
        left, total = {x: c for x, c in self.parts.items() if c > 0}, self.constant
        for form, bound in limits:
            factors = {Fraction(left.get(x, 0), c) for x, c in form.parts.items()}
            if len(factors) == 1 and 0 not in factors:
                most = min(bound - 1, form.largest()) - form.constant
                total += int(factors.pop() * most)
                left = {x: c for x, c in left.items() if x not in form.parts}
        return total + sum(c * _reach(x) for x, c in left.items())

    def least(self) -> int:
        """No value is smaller."""
        return self.constant + sum([c * _reach(x) for x, c in self.parts.items() if c < 0])

    def stays_in(self, dtype: DType) -> bool:
        """Whether each value is one of the type."""
        limits = width_limits(dtype)
        return limits is None or (limits[0] <= self.least() and self.largest() <= limits[1])

    def term(self) -> UOp:
        """The sum as an index term."""
        terms = [loop * c if c != 1 else loop for loop, c in self.parts.items() if c]
        if self.constant or not terms:
            terms.append(UOp.index(self.constant))
        return sum(terms[1:], terms[0])


# A sum of loops that stays below a number.
Limit = tuple[Linear, int]


def limits_of(given: Sequence[UOp]) -> list[Limit]:
    """What conditions say of sums of loops: those that each stays below a number."""
    found: list[Limit] = []
    stack = list(given)
    while stack:
        node = stack.pop()
        if node.op is Ops.AND:
            stack += node.src
        elif node.op is Ops.CMPLT and node.src[1].op is Ops.CONST:
            form = linear_form(node.src[0])
            if form is not None and form.parts and min(form.parts.values()) > 0:
                found.append((form, node.src[1].arg))
    return found


def loops_at_first(loops: Sequence[UOp], given: Sequence[UOp]) -> list[UOp]:
    """Those of `loops` of which conditions allow the first iteration alone."""
    limits = limits_of(given)
    return [
        loop
        for loop in loops
        if any([x.parts.get(loop, 0) > 0 and x.constant + x.parts[loop] >= n for x, n in limits])
    ]


def _reach(part: UOp) -> int:
    """The largest value of a loop, of the quotient or remainder of one, or of the remainder of a sum."""
    if part.op is Ops.RANGE:
        return loop_size(part) - 1
    divisor: int = part.src[1].arg
    if part.src[0].op not in _PARTS:
        return divisor - 1
    reach = _reach(part.src[0])
    return min(divisor - 1, reach) if part.op is Ops.MOD else reach // divisor


def linear_form(term: UOp) -> Linear | None:
    """`term` as a sum of multiples of loops; None if it is not one."""
    found: dict[UOp, Linear | None] = {}
    for node in toposort((term,)):
        form = _linear(node, [found[s] for s in node.src])
        found[node] = form if form is None or form.stays_in(node.dtype) else None
    return found[term]


def shortest(term: UOp) -> UOp:
    """The same index term as a sum of multiples of loops, if it is one."""
    form = linear_form(term)
    return term if form is None else form.term()


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
            return Linear(_joined(parts), known[0].constant + known[1].constant)
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
        case Ops.MIN:
            ordered = [x for x, y in (known, known[::-1]) if x.largest() <= y.least()]
            return ordered[0] if ordered else None
        case Ops.CAST:
            return known[0]
        case Ops.SHR | Ops.AND if not known[1].parts and known[1].constant >= 0:
            bits = known[1].constant if node.op is Ops.SHR else known[1].constant.bit_length()
            if node.op is Ops.AND and known[1].constant != (1 << bits) - 1:
                return None
            op = Ops.FLOORDIV if node.op is Ops.SHR else Ops.MOD
            same = UOp(op, node.dtype, (node.src[0], node.src[0].const_like(1 << bits)))
            return _linear(same, [known[0], Linear({}, 1 << bits)])
        case Ops.FLOORDIV | Ops.MOD if not known[1].parts:
            if list(known[0].parts.values()) == [1] and not known[0].constant:
                (part,) = known[0].parts
                return _quotient(node.with_src((part, node.src[1])), known[1].constant)
            return _quotient_of_sum(known[0], known[1].constant, node.op)
        case _:
            return None


def _joined(parts: dict[UOp, int]) -> dict[UOp, int]:
    """The same sum, with what a quotient and a remainder were made of in place of both."""
    for part, c in list(parts.items()):
        if part.op is not Ops.MOD:
            continue
        whole, divisor = part.src
        quotient = UOp(Ops.FLOORDIV, part.dtype, (whole, divisor))
        if part in parts and parts.get(quotient) == c * divisor.arg:
            rest = {x: n for x, n in parts.items() if x not in (part, quotient)}
            return _joined({**rest, whole: rest.get(whole, 0) + c})
    return parts


def _quotient_of_sum(form: Linear, divisor: int, op: Ops) -> Linear | None:
    """The quotient, or remainder, of a sum of what the divisor divides and a rest: from 0 to below it, or one part of its own."""
    if divisor <= 0:
        return None
    high = {x: c // divisor for x, c in form.parts.items() if c % divisor == 0}
    rest = Linear({x: c for x, c in form.parts.items() if c % divisor}, form.constant % divisor)
    if min(rest.parts.values(), default=0) < 0 or rest.largest() >= divisor:
        same = _modulo(form, divisor) if op is Ops.MOD else form
        if same.parts != form.parts:
            return _quotient_of_sum(same, divisor, op)
        if op is Ops.MOD:
            whole = rest.term()
            return Linear({UOp(op, whole.dtype, (whole, whole.const_like(divisor))): 1}, 0)
        if list(rest.parts.values()) != [1] or rest.constant:
            return None
        (part,) = rest.parts
        quotient = UOp(op, part.dtype, (part, part.const_like(divisor)))
        high[quotient] = high.get(quotient, 0) + 1
    return rest if op is Ops.MOD else Linear(high, form.constant // divisor)


def _modulo(form: Linear, divisor: int) -> Linear:
    """A sum that has the same remainder: of a remainder of a multiple of the divisor, what it is of."""
    parts, constant = dict[UOp, int](), form.constant
    for part, c in form.parts.items():
        is_alike = part.op is Ops.MOD and part.src[1].arg % divisor == 0
        whole = linear_form(part.src[0]) if is_alike else None
        for one, times in (Linear({part: 1}, 0) if whole is None else whole).parts.items():
            parts[one] = parts.get(one, 0) + c * times
        constant += c * whole.constant if whole is not None else 0
    return Linear({x: c for x, c in parts.items() if c}, constant)


def _quotient(node: UOp, divisor: int) -> Linear | None:
    """A quotient or remainder of a loop, or of one of it, is a part of its own."""
    if divisor <= 0:
        return None
    if divisor == 1:
        return Linear({}, 0) if node.op is Ops.MOD else Linear({node.src[0]: 1}, 0)
    return Linear({node: 1}, 0)


def digits(
    position: UOp, strides: Sequence[tuple[int, int]], limits: Sequence[Limit] = ()
) -> list[UOp]:
    """The digit of each (stride, size) in `position`, which lies within `limits`; strides fall.

    Where the loops of `position` fall into groups, one a digit, no division is needed.
    """
    form = linear_form(position)
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
    moving = sorted((x for x in loops if form.parts.get(x, 0)), key=lambda x: -abs(form.parts[x]))
    falling = [x for x in moving if form.parts[x] < 0]
    least = sum([form.parts[x] * (loop_size(x) - 1) for x in falling])
    fixed = Linear({x: c for x, c in form.parts.items() if x not in moving}, form.constant + least)
    whole = fixed.term()
    position = after if whole is UOp.index(0) else after + whole * -1
    strides = [(abs(form.parts[x]), loop_size(x)) for x in moving]
    found = dict(zip(moving, digits(position, strides, limits_of(given))))
    found.update({x: turned(x).substitute({x: found[x]}) for x in falling})
    found.update({x: UOp.index(0) for x in loops if x not in found})
    return found


def turned(loop: UOp) -> UOp:
    """The value of a loop in the iteration that is as far from the last one as this is from the first."""
    return UOp.index(loop_size(loop) - 1) + loop * -1


def map_by_digits(loop: UOp, term: UOp, after: Sequence[UOp]) -> LoopMap | None:
    """The map that gives a loop this value, a sum of digits of the loops after, each of which is one of the loop."""
    form, back = linear_form(term), dict[UOp, UOp]()
    if form is None or form.constant:
        return None
    for part, c in form.parts.items():
        own, stride = part, 1
        count = _reach(part) + 1
        while own.op is not Ops.RANGE:
            if own.src[0].op not in _PARTS:
                return None
            stride *= own.src[1].arg if own.op is Ops.FLOORDIV else 1
            own = own.src[0]
        if c <= 0:
            return None
        digit = _digit(loop, c, count) * stride
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
        if len(there) != 1 or _reach(there[0]) != loop_size(loop) - 1:
            return None
        found[loop] = there[0]
    return found


def digits_of_positions(positions: Sequence[UOp], size: int) -> list[UOp]:
    """Loops whose row-major positions are all numbers below `size`, as far as may be those of the positions."""
    strides = {1, size}
    for position in positions:
        form = linear_form(position) or Linear({}, 0)
        strides |= {s for x, c in form.parts.items() for s in (c, c * (_reach(x) + 1))}
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
