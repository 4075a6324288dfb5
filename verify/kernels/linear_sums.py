"""Index terms as sums of multiples of loops, and of quotients and remainders of them; what conditions say of such sums.

Does not own: which loops belong to which (kernels/loops.py).

That a term and its sum are equal is believed where positions of what is kept are put into each other (kernels/tables.py). So there is none of a
term that, or a part of which, may leave its type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd

from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.verify.kernels.terms import loop_size, width_limits

PARTS = (Ops.RANGE, Ops.FLOORDIV, Ops.MOD)


@dataclass(frozen=True, slots=True)
class Linear:
    """A sum of loops, or quotients and remainders of them, times constants, and a constant."""

    parts: dict[UOp, int]
    constant: int

    def largest(self, limits: Sequence[Limit] = ()) -> int:
        """No value is larger where `limits` hold, which are of parts that go up."""
        left, total = {x: c for x, c in self.parts.items() if c > 0}, self.constant
        for form, bound in limits:
            there = [x for x in form.parts if x in left]  # the others only add to these
            factors = {Fraction(left[x], form.parts[x]) for x in there}
            most = bound - 1 - form.constant
            if len(factors) == 1 and most < sum([form.parts[x] * reach_of(x) for x in there]):
                total += int(factors.pop() * most)
                left = {x: c for x, c in left.items() if x not in there}
        return total + sum(c * reach_of(x, limits) for x, c in left.items())

    def least(self) -> int:
        """No value is smaller."""
        return self.constant + sum([c * reach_of(x) for x, c in self.parts.items() if c < 0])

    def stays_in(self, dtype: DType) -> bool:
        """Whether each value is one of the type."""
        limits = width_limits(dtype)
        return limits is None or (limits[0] <= self.least() and self.largest() <= limits[1])

    def plus(self, other: Linear, times: int = 1) -> Linear:
        """With a multiple of another sum."""
        parts = dict(self.parts)
        for part, c in other.parts.items():
            parts[part] = parts.get(part, 0) + c * times
        return Linear(parts, self.constant + other.constant * times)

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


def limits_of_digits(limits: Sequence[Limit], strides: Sequence[int]) -> list[Limit]:
    """With what they say of how often each stride fits into a sum; long sums first, and the least number of each."""
    found = list(limits)
    for form, bound in limits:
        for stride in strides:
            quotient = _quotient_of_sum(form, stride, Ops.FLOORDIV) if stride > 1 else None
            if quotient is not None and quotient.parts:
                found.append((quotient, -(-bound // stride)))
    return sorted(found, key=lambda limit: (-len(limit[0].parts), limit[1]))


def without_zeros(form: Linear, limits: Sequence[Limit]) -> Linear:
    """The same sum where `limits` hold, without parts that are 0 there."""
    zeros = {x for one, bound in limits for x, c in one.parts.items() if one.constant + c >= bound}
    return Linear({x: c for x, c in form.parts.items() if x not in zeros}, form.constant)


def reach_of(part: UOp, limits: Sequence[Limit] = ()) -> int:
    """The largest value of a loop, or of the quotient or remainder of one or of a sum, where `limits` hold."""
    if part.op is Ops.RANGE:
        return loop_size(part) - 1
    divisor: int = part.src[1].arg
    if part.src[0].op in PARTS:
        reach = reach_of(part.src[0])
    elif part.op is Ops.MOD or (form := linear_form(part.src[0])) is None:
        return divisor - 1
    else:
        reach = form.largest(limits)
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
            return _joined(known[0].plus(known[1]))
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


def _joined(form: Linear) -> Linear:
    """The same sum, with what a quotient and a remainder were made of in place of both."""
    for part, c in form.parts.items():
        if part.op is not Ops.MOD:
            continue
        whole, divisor = part.src
        quotient = UOp(Ops.FLOORDIV, part.dtype, (whole, divisor))
        made_of = linear_form(whole)
        if form.parts.get(quotient) == c * divisor.arg and made_of is not None:
            rest = {x: n for x, n in form.parts.items() if x not in (part, quotient)}
            return _joined(Linear(rest, form.constant).plus(made_of, c))
    return form


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
        if (found := _by_common_factor(form, divisor, op)) is not None:
            return found
        if op is Ops.MOD:
            whole = rest.term()
            return Linear({UOp(op, whole.dtype, (whole, whole.const_like(divisor))): 1}, 0)
        if min(rest.parts.values()) < 0:
            return None
        whole = rest.term()
        quotient = UOp(op, whole.dtype, (whole, whole.const_like(divisor)))
        high[quotient] = high.get(quotient, 0) + 1
    return rest if op is Ops.MOD else Linear(high, form.constant // divisor)


def _by_common_factor(form: Linear, divisor: int, op: Ops) -> Linear | None:
    """The same of a sum of multiples of a factor of the divisor, and a rest from 0 to below that: it does not tell how often the divisor fits."""
    factors = {gcd(c, divisor) for c in form.parts.values()} - {1, divisor}
    for factor in sorted(factors, reverse=True):
        low = Linear({x: c for x, c in form.parts.items() if c % factor}, form.constant % factor)
        if min(low.parts.values(), default=0) < 0 or low.largest() >= factor:
            continue
        high = {x: c // factor for x, c in form.parts.items() if c % factor == 0}
        found = _divided(Linear(high, form.constant // factor), divisor // factor, op)
        if found is None or op is Ops.FLOORDIV:
            return found
        return low.plus(found, factor)
    return None


def _divided(form: Linear, divisor: int, op: Ops) -> Linear | None:
    """The quotient, or remainder, of a sum of any number of parts."""
    if list(form.parts.values()) != [1] or form.constant:
        return _quotient_of_sum(form, divisor, op)
    (part,) = form.parts
    return _quotient(UOp(op, part.dtype, (part, part.const_like(divisor))), divisor)


def _modulo(form: Linear, divisor: int) -> Linear:
    """A sum that has the same remainder: of a remainder of a multiple of the divisor, what it is of."""
    total = Linear({}, form.constant)
    for part, c in form.parts.items():
        is_alike = part.op is Ops.MOD and part.src[1].arg % divisor == 0
        whole = linear_form(part.src[0]) if is_alike else None
        total = total.plus(Linear({part: 1}, 0) if whole is None else whole, c)
    return Linear({x: c for x, c in total.parts.items() if c}, total.constant)


def _quotient(node: UOp, divisor: int) -> Linear | None:
    """A quotient or remainder of a loop, or of one of it, is a part of its own."""
    if divisor <= 0:
        return None
    if divisor == 1:
        return Linear({}, 0) if node.op is Ops.MOD else Linear({node.src[0]: 1}, 0)
    return Linear({node: 1}, 0)
