"""Goals with any value in place of each cast to a float, of which the facts of rounding are kept.

A circuit that rounds 64 bits takes the solver minutes, and two of them, which is what a law of a maximum or a
comparison of casts has, take it for ever. Such a law needs only that rounding keeps order, signs, zeros, infinities
and NaN, and that a type that holds every value keeps what differs apart.

Owns: these facts, and this weakening of a goal. Does not own: products, quotients and other roundings (opaque.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import z3

from proofgrad.verify.encode.goal import Goal
from proofgrad.verify.encode.opaque import Weakening
from proofgrad.verify.encode.semantics import NoMeaning

Term = Any

_CASTS = {z3.Z3_OP_FPA_TO_FP, z3.Z3_OP_FPA_TO_FP_UNSIGNED}


def without_casts(goal: Goal) -> Goal:
    """The goal with a fresh value for each cast to a float. Raises: NoMeaning if no two of them can be compared."""
    weakening = _WithoutCasts()
    premises = [weakening.term(premise) for premise in goal.premises]
    conclusion = weakening.term(goal.conclusion)
    pairs = combinations(weakening.casts, 2)
    compared = [fact for one, other in pairs for fact in facts_of_casts(one, other)]
    if not compared:
        raise NoMeaning("no casts to floats to compare")
    facts = [*compared, *[fact for cast in weakening.casts for fact in facts_of_cast(cast)]]
    return Goal([*premises, *weakening.facts, *facts], conclusion)


@dataclass(frozen=True, slots=True)
class Cast:
    """A value of which a float was made, rounded so: another float, or an integer, `is_signed` or not."""

    source: Term
    value: Term
    is_signed: bool
    rounding: Term

    @property
    def is_lossless(self) -> bool:
        """Whether the type of the float holds every value of the source."""
        to, given = self.value.sort(), self.source.sort()
        if z3.is_fp(self.source):
            return bool(given.ebits() <= to.ebits() and given.sbits() <= to.sbits())
        bits = given.size() - self.is_signed
        return bool(bits <= to.sbits() and given.size() < 1 << (to.ebits() - 1))

    def is_negative(self) -> Term:
        """Whether the source is below zero, -0.0 among it."""
        if z3.is_fp(self.source):
            return z3.fpIsNegative(self.source)
        return self.source < 0 if self.is_signed else z3.BoolVal(False)

    def at_most(self, other: Cast) -> Term:
        """Whether the source is not above that of the other."""
        if z3.is_fp(self.source):
            return z3.fpLEQ(self.source, other.source)
        compare = z3.BitVecRef.__le__ if self.is_signed else z3.ULE
        return compare(self.source, other.source)


def facts_of_cast(cast: Cast) -> list[Term]:
    """What rounding keeps of one value."""
    x, v = cast.source, cast.value
    has_sign = z3.Implies(z3.Not(z3.fpIsNaN(v)), z3.fpIsNegative(v) == cast.is_negative())
    if not z3.is_fp(x):
        return [z3.Not(z3.fpIsNaN(v)), has_sign, z3.fpIsZero(v) == (x == 0)]
    alike = [z3.fpIsZero, z3.fpIsInf]
    if cast.is_lossless:
        kept = [is_so(v) == is_so(x) for is_so in alike]
    else:
        kept = [z3.Implies(is_so(x), is_so(v)) for is_so in alike]
    return [z3.fpIsNaN(v) == z3.fpIsNaN(x), has_sign, *kept]


def facts_of_casts(one: Cast, other: Cast) -> list[Term]:
    """What rounding keeps of two values of one type: their order, and where nothing is lost that they differ."""
    if one.source.sort() != other.source.sort() or one.value.sort() != other.value.sort():
        return []
    if one.is_signed != other.is_signed or not one.rounding.eq(other.rounding):
        return []
    ordered = [
        z3.Implies(low.at_most(high), z3.fpLEQ(low.value, high.value))
        for low, high in ((one, other), (other, one))
    ]
    same, equal = one.source == other.source, one.value == other.value
    return [*ordered, same == equal if one.is_lossless else z3.Implies(same, equal)]


class _WithoutCasts(Weakening):
    def __init__(self) -> None:
        super().__init__()
        self.casts: list[Cast] = []

    def term(self, term: Term) -> Term:
        found = super().term(term)
        if not _is_cast(term) or not _is_cast(found):
            return found
        source = found.arg(1)
        value = z3.simplify(found) if _is_number(source) else self.hidden(found)
        cast = Cast(source, value, found.decl().kind() == z3.Z3_OP_FPA_TO_FP, found.arg(0))
        if all([cast.value.get_id() != known.value.get_id() for known in self.casts]):
            self.casts.append(cast)
        return value


def _is_cast(term: Term) -> bool:
    """Whether a float is made of another, or of an integer, and not of bits or a real number."""
    if not z3.is_app(term) or term.decl().kind() not in _CASTS or term.num_args() != 2:
        return False
    return bool(z3.is_fp(term.arg(1)) or z3.is_bv(term.arg(1)))


def _is_number(term: Term) -> bool:
    return bool(z3.is_fp_value(term) or z3.is_bv_value(term))
