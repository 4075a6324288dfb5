"""Polynomials with integer coefficients: enough to compare two measures for all arguments.

Does not own: which polynomial an operation has (termination.py).
"""

from __future__ import annotations

from collections.abc import Mapping

Monomial = tuple[str, ...]  # variables in alphabetical order, repeated for powers; () is 1
Polynomial = dict[Monomial, int]


MOST_PRODUCTS = 20_000  # of monomials in one product
MOST_DEGREE = 200  # of a monomial


class TooLarge(ValueError):
    """Measures with so many terms that they are not compared."""


def number(value: int) -> Polynomial:
    """The constant polynomial; zero has no monomial."""
    return {(): value} if value else {}


def variable(name: str, least: int) -> Polynomial:
    """A variable that is never below `least`, written as `least` + something not negative."""
    return add(number(least), {(name,): 1})


def add(*terms: Polynomial) -> Polynomial:
    """The sum of all terms, without monomials whose coefficients cancel."""
    total: Polynomial = {}
    for term in terms:
        for monomial, coefficient in term.items():
            total[monomial] = total.get(monomial, 0) + coefficient
    return {monomial: c for monomial, c in total.items() if c}


def scale(term: Polynomial, factor: int) -> Polynomial:
    """The polynomial times a whole number."""
    return {monomial: c * factor for monomial, c in term.items()} if factor else {}


def multiply(a: Polynomial, b: Polynomial) -> Polynomial:
    """Raises: TooLarge."""
    degree = max(map(len, a), default=0) + max(map(len, b), default=0)
    if len(a) * len(b) > MOST_PRODUCTS or degree > MOST_DEGREE:
        raise TooLarge("its measures are too large to be compared; split the rule")
    products = [{tuple(sorted(m + n)): c * d} for m, c in a.items() for n, d in b.items()]
    return add(*products)


def never_negative(term: Mapping[Monomial, int]) -> bool:
    """Sufficient: no coefficient is negative, and variables are not."""
    return all(c >= 0 for c in term.values())


def always_positive(term: Mapping[Monomial, int]) -> bool:
    """Sufficient: no coefficient is negative, and the constant one is above zero."""
    return never_negative(term) and term.get((), 0) > 0
