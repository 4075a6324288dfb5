"""Goals that one number is a multiple of another, each with the factor that shows it.

To find a factor is what solvers are bad at, and to multiply is not. So the numbers are taken apart by
cases, one for each way through their choices; in each a search divides one polynomial by the other,
and the goal is that the product is the multiple, or else that the case never comes. A wrong factor
proves nothing.

Owns: the cases, the search. Does not own: quotients in the numbers (encode/lemmas.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import z3

from proofgrad.core.ir.dtypes import DType, Kind
from proofgrad.core.ir.ops import Ops
from proofgrad.verify.encode.goal import Goal
from proofgrad.verify.encode.integers import QUOTIENT, Integers, Quotients
from proofgrad.verify.encode.lemmas import Polynomial, Search, eliminated, goals_by_lemmas, without
from proofgrad.verify.encode.semantics import NoMeaning

Term = Any
MOST_CASES = 64


class Multiples(Integers):
    """The arithmetic: quotients are named, and a choice says that their divisor is not zero."""

    def __init__(self) -> None:
        super().__init__(Quotients.NAMED)

    def floor(self, x: Term, y: Term) -> tuple[Term, Term]:
        """Quotient and remainder of the floor division; both 0 if y is 0."""
        quotient, zero = QUOTIENT(x, y), z3.IntVal(0)
        return z3.If(y == 0, zero, quotient), z3.If(y == 0, zero, x - y * quotient)

    def _on_integers(self, op: Ops, dtype: DType, args: Sequence[Term]) -> Term:
        """Where -x wraps at a signed type it is x."""
        if op is Ops.NEG and dtype.kind is Kind.SIGNED:
            return z3.If(args[0] == dtype.lo, args[0], -args[0])
        return super()._on_integers(op, dtype, args)

    def _truncated(self, x: Term, y: Term) -> tuple[Term, Term]:
        return self._truncated_by_sizes(x, y)


def goals_by_factors(
    premises: list[Term], value: Term, divisor: Term, arithmetic: Multiples
) -> list[Goal]:
    """The goals that together show that `value` is a multiple of `divisor`, which is 0 or more."""
    goals: list[Goal] = []
    for path, claim in _cases(value == divisor):
        known, claim, _ = eliminated([*premises, *path], claim, [])
        whole, part = claim.children()
        search = Search(known)
        factor = _factor(search, known, whole, part)
        claim = z3.BoolVal(False)
        if factor is not None:
            claim = z3.And(whole == part * search.term(factor), part >= 0)
        goals += goals_by_lemmas(Goal([*known, *search.exchanges], claim), arithmetic)
    if len(goals) > MOST_CASES:
        raise NoMeaning(f"{len(goals)} cases are too many")
    return goals


def _cases(claim: Term) -> Iterator[tuple[list[Term], Term]]:
    """What the claim is without choices of numbers, and the conditions under which it is that."""
    choice = _choice(claim)
    if choice is None:
        yield [], claim
        return
    condition, *branches = choice.children()
    decided = z3.simplify(condition)
    for truth, branch in zip((True, False), branches):
        if decided.eq(z3.BoolVal(not truth)):
            continue
        taken = z3.substitute(claim, (choice, branch))
        for path, rest in _cases(z3.substitute(taken, (condition, z3.BoolVal(truth)))):
            yield [condition if truth else z3.Not(condition), *path], rest


def _choice(term: Term) -> Term | None:
    """A choice in a term, in whose condition there is none."""
    found = next((c for c in map(_choice, term.children()) if c is not None), None)
    if found is None and z3.is_app_of(term, z3.Z3_OP_ITE):
        return term
    return found


def _factor(search: Search, known: list[Term], whole: Term, part: Term) -> Polynomial | None:
    """What `part` has to be multiplied with to give `whole`; None if the case must never come."""
    divisor = search.polynomial(part)
    dividend = search.polynomial(_without_remainders(whole))
    found = _quotient(dividend, divisor)
    if found is None:
        dividend = _with_products(search, known, search.exchanged(dividend))
        found = _quotient(dividend, divisor)
    return found


def _quotient(dividend: Polynomial, divisor: Polynomial) -> Polynomial | None:
    """The polynomial divided by a monomial; None if that leaves a rest, or a fraction."""
    if len(divisor) != 1:
        return None
    ((atoms, number),) = divisor.items()
    found: Polynomial = {}
    for monomial, coefficient in dividend.items():
        rest = without(monomial, atoms)
        if rest is None or coefficient % number:
            return None
        found[rest] = coefficient // number
    return found


def _without_remainders(term: Term) -> Term:
    """The solver's a mod b as a - b * (a div b)."""
    parts = [_without_remainders(part) for part in term.children()]
    if z3.is_app_of(term, z3.Z3_OP_MOD):
        return parts[0] - parts[1] * (parts[0] / parts[1])
    return term.decl()(*parts) if parts else term


def _with_products(search: Search, known: list[Term], polynomial: Polynomial) -> Polynomial:
    """The polynomial with products for multiples of numbers that a premise says they are."""
    for premise in known:
        if z3.is_eq(premise) and z3.is_int_value(premise.arg(0)):
            polynomial = search.with_product(premise, polynomial)
    return polynomial
