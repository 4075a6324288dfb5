"""From a line of facts at one choice of types to a goal: what the fact says of the left side.

Owns: the goals of bounds, known bits, divisors and finiteness. Does not own: what the facts of the
sources say, the meaning of terms and numbers (encode/goal.py).
"""

from __future__ import annotations

import z3

from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.ops import Ops
from proofgrad.core.rewrite.rule import Calc, Node, RuleKind
from proofgrad.core.rewrite.rule import Term as RuleTerm
from proofgrad.verify.encode import numbers as numbers
from proofgrad.verify.encode import semantics
from proofgrad.verify.encode.goal import Arithmetic, Bits, Encoder, Goal, Term
from proofgrad.verify.encode.integers import Integers
from proofgrad.verify.encode.multiples import Multiples, goals_by_factors
from proofgrad.verify.encode.numbers import Number
from proofgrad.verify.encode.semantics import NoMeaning
from proofgrad.verify.encode.types import Case


def containment(case: Case, arithmetic: Arithmetic) -> Goal:
    """The goal of a transfer function: low <= left <= high.

    At machine integers the bounds are used only where both are values of the type, so that is a
    premise here.
    """
    encoder = Encoder(case, arithmetic)
    left = encoder.term(case.rule.left)
    dtype = case.dtype(case.rule.left.type)
    conditions = [encoder.premise(c) for c in case.rule.where]
    value = encoder.number_of(left, dtype)
    claims, fits = [], []
    for side, compare in zip(case.rule.right, ("<=", ">=")):
        if not isinstance(side, Calc):
            raise NoMeaning("bounds are computed numbers")
        bound = encoder.number(side.number)
        claims.append(numbers.apply(compare, [bound, value]))
        fits += _within(bound, dtype)
    claim = z3.And(*claims)
    if dtype.is_float:
        claim = z3.Or(z3.fpIsNaN(left), claim)
    return encoder.goal(claim, [*conditions, *fits, *published_of(encoder, case.rule.left)])


def known_bits(case: Case, arithmetic: Arithmetic) -> Goal:
    """The goal of a line of known bits: all of `ones` are set, and nothing outside of `may`.

    The masks are used only where both are values of the type, so that is a premise here.
    """
    encoder = Encoder(case, arithmetic)
    if not isinstance(arithmetic, Bits):
        raise NoMeaning("numbers without end have no known bits")
    value = encoder.term(case.rule.left)
    conditions = [encoder.premise(c) for c in case.rule.where]
    ones, may = [encoder.term(side) for side in case.rule.right if side is not None]
    return encoder.goal(z3.And(value & ones == ones, value & may == value), conditions)


def divisibility(case: Case, arithmetic: Arithmetic) -> Goal:
    """The goal of a line of divisors: left is a multiple of the number, which is 0 or more."""
    encoder = Encoder(case, arithmetic)
    value, divisor, conditions = _multiple_and_divisor(encoder)
    zero = numbers.literal(0, "wide" if isinstance(divisor, numbers.Wide) else "int")
    is_natural = numbers.apply(">=", [divisor, zero])
    return encoder.goal(z3.And(_is_multiple(value, divisor, arithmetic), is_natural), conditions)


def divisibility_by_factors(case: Case) -> list[Goal]:
    """The same, with the factors that show it."""
    arithmetic = Multiples()
    encoder = Encoder(case, arithmetic)
    value, divisor, conditions = _multiple_and_divisor(encoder)
    goal = encoder.goal(value == divisor, conditions)
    return goals_by_factors(goal.premises, value, divisor, arithmetic)


def _multiple_and_divisor(encoder: Encoder) -> tuple[Number, Number, list[Term]]:
    """What a line of divisors is about, what it says divides it, and where."""
    rule = encoder.case.rule
    left = encoder.term(rule.left)
    conditions = [encoder.premise(c) for c in rule.where]
    (side,) = rule.right
    if not isinstance(side, Calc):
        raise NoMeaning("a divisor is a computed number")
    value = encoder.number_of(left, encoder.case.dtype(rule.left.type))
    return value, encoder.number(side.number), conditions


def _is_multiple(value: Number, divisor: Number, arithmetic: Arithmetic) -> Term:
    if isinstance(arithmetic, Integers):
        return value == divisor * arithmetic.floor(value, divisor)[0]
    if not isinstance(value, numbers.Wide) or not isinstance(divisor, numbers.Wide):
        raise NoMeaning("multiples are those of integers")
    less = numbers.apply("-", [divisor, numbers.literal(1, "wide")])
    zero = numbers.literal(0, "wide")
    # of powers of two, and 0, it can be seen in the bits
    is_power = numbers.apply("==", [numbers.apply("&", [divisor, less]), zero])
    in_bits = numbers.apply("==", [numbers.apply("&", [value, less]), zero])
    return z3.If(is_power, in_bits, numbers.apply("divides", [divisor, value]))


def finiteness(case: Case, arithmetic: Arithmetic) -> Goal:
    """The goal of a line that a float is finite, or not NaN."""
    encoder = Encoder(case, arithmetic)
    value = encoder.term(case.rule.left)
    conditions = [encoder.premise(c) for c in case.rule.where]
    is_finite = case.rule.kind is RuleKind.FINITE
    claim = numbers.is_finite(value) if is_finite else z3.Not(z3.fpIsNaN(value))
    return encoder.goal(claim, [*conditions, *published_of(encoder, case.rule.left)])


def published_of(encoder: Encoder, term: RuleTerm) -> list[Term]:
    """What docs/numerics.md promises of the functions in a term, whose values are not proven."""
    if not isinstance(term, Node):
        return []
    found = [part for source in term.src for part in published_of(encoder, source)]
    if Ops[term.op] in semantics.PUBLISHED:
        (argument,) = [encoder.term(source) for source in term.src]
        found += semantics.PUBLISHED[Ops[term.op]](argument, encoder.term(term))
    return found


def _within(bound: Number, dtype: DType) -> list[Term]:
    if dtype.lo is None or dtype.hi is None:
        return []
    like = "wide" if isinstance(bound, numbers.Wide) else "int"
    low, high = numbers.literal(dtype.lo, like), numbers.literal(dtype.hi, like)
    return [numbers.apply("<=", [low, bound]), numbers.apply("<=", [bound, high])]
