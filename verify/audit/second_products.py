"""Products of what a goal about integers compares: facts that make the rest of it linear.

0 <= a and 0 <= b give 0 <= a * b, and a = 0 gives a * b = 0, whatever a and b are. Where the signs
are known the product is a fact by itself, else an implication.

Owns: which products are made, and their text. Does not own: which signs are known, who is asked
(second_steps.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import combinations, combinations_with_replacement, product
from typing import Any

import z3

from proofgrad.verify.dsl.polynomial import Monomial, Polynomial, add, multiply, number, scale

Term = Any  # of z3, an integer or a truth

MOST_FACTORS = 3
COMPARISONS = {z3.Z3_OP_LE, z3.Z3_OP_GE, z3.Z3_OP_LT, z3.Z3_OP_GT, z3.Z3_OP_EQ, z3.Z3_OP_DISTINCT}


@dataclass(slots=True)
class Signs:
    """Polynomials that are 0, that may be 0, that are never negative, and that may have either sign.

    Of those that may be 0, and of the last, nothing is known: they are only worth a case.
    """

    zero: list[Polynomial] = field(default_factory=list)
    may_be_zero: list[Polynomial] = field(default_factory=list)
    above: list[Polynomial] = field(default_factory=list)
    either: list[Polynomial] = field(default_factory=list)

    def every(self) -> Iterator[Polynomial]:
        """All of them."""
        yield from (*self.zero, *self.may_be_zero, *self.above, *self.either)


# -- polynomials ----------------------------------------------------------------------------------


class Polynomials:
    """The polynomials that terms are, in their variables; None where a term is something else."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Term, Polynomial | None]] = {}

    def of(self, term: Term) -> Polynomial | None:
        """Terms are kept, for z3 gives the number of one that is gone to another."""
        key = term.get_id()
        if key not in self._made:
            self._made[key] = term, self._made_of(term)
        return self._made[key][1]

    def _made_of(self, term: Term) -> Polynomial | None:
        if z3.is_int_value(term):
            return number(term.as_long())
        if not term.children():
            return {(term.sexpr(),): 1}
        kind = term.decl().kind()
        if kind not in (z3.Z3_OP_ADD, z3.Z3_OP_SUB, z3.Z3_OP_UMINUS, z3.Z3_OP_MUL):
            return None
        found: list[Polynomial] = []
        for part in term.children():
            polynomial = self.of(part)
            if polynomial is None:
                return None
            found.append(polynomial)
        first, *others = found
        match kind:
            case z3.Z3_OP_UMINUS:
                return scale(first, -1)
            case z3.Z3_OP_SUB:
                return add(first, *[scale(other, -1) for other in others])
            case z3.Z3_OP_ADD:
                return add(*found)
            case _:
                return reduce(multiply, found)


def key_of(polynomial: Polynomial) -> frozenset[tuple[Monomial, int]]:
    """By which equal polynomials are found."""
    return frozenset(polynomial.items())


def opposite(polynomial: Polynomial) -> Polynomial:
    """What is not negative just where the polynomial is."""
    return add(scale(polynomial, -1), number(-1))


def degree(polynomial: Polynomial) -> int:
    """Of a sum, the most factors of a summand."""
    return max([len(monomial) for monomial in polynomial], default=0)


def text_of_polynomial(polynomial: Polynomial) -> str:
    """The polynomial as a term of SMT-LIB."""
    summands = [_text_of_summand(monomial, c) for monomial, c in polynomial.items()]
    if len(summands) > 1:
        return f"(+ {' '.join(summands)})"
    return summands[0] if summands else "0"


def _text_of_summand(monomial: Monomial, coefficient: int) -> str:
    numeral = [str(coefficient) if coefficient >= 0 else f"(- {-coefficient})"]
    parts = [*([] if coefficient == 1 and monomial else numeral), *monomial]
    return f"(* {' '.join(parts)})" if len(parts) > 1 else parts[0]


# -- what is compared -----------------------------------------------------------------------------


def is_comparison(term: Term) -> bool:
    """Whether two integers are compared."""
    return term.decl().kind() in COMPARISONS and z3.is_int(term.arg(0)) and term.num_args() == 2


def differences(
    parts: Sequence[Term], polynomials: Polynomials
) -> tuple[list[Polynomial], list[Polynomial]]:
    """Differences that terms compare: those that may be zero, those that may be above.

    A variable beside a number tells little in a product, unless the number is 0.
    """
    equal, above = [], []
    for term in parts:
        if not is_comparison(term):
            continue
        left, right = [polynomials.of(side) for side in term.children()]
        if left is None or right is None:
            continue
        difference = add(left, scale(right, -1))
        match term.decl().kind():
            case z3.Z3_OP_LE:
                above.append(scale(difference, -1))
            case z3.Z3_OP_GE:
                above.append(difference)
            case z3.Z3_OP_LT:
                above.append(opposite(difference))
            case z3.Z3_OP_GT:
                above.append(add(difference, number(-1)))
            case _:
                equal.append(difference)
                above += [add(difference, number(-1)), opposite(difference)]
    return different(equal), different(above)


def different(polynomials: Sequence[Polynomial]) -> list[Polynomial]:
    """Each once, neither with its opposite, and none that says only where a variable lies."""
    found: dict[frozenset[tuple[Monomial, int]], Polynomial] = {}
    for polynomial in polynomials:
        if not _is_bound(polynomial) and key_of(opposite(polynomial)) not in found:
            found[key_of(polynomial)] = polynomial
    return list(found.values())


def _is_bound(polynomial: Polynomial) -> bool:
    """Whether it is a number, or one variable and a number of more than one step."""
    others = [monomial for monomial in polynomial if monomial]
    is_far = abs(polynomial.get((), 0)) > 1
    return not others or (len(others) == 1 and len(others[0]) == 1 and is_far)


# -- products -------------------------------------------------------------------------------------


def products_of_pairs(signs: Signs) -> Iterator[str]:
    """Products of two that bring in one new product of variables at most, as assertions."""
    there = {m for polynomial in signs.every() for m in polynomial if len(m) > 1}

    def is_near(made: Polynomial) -> bool:
        return len({m for m in made if len(m) > 1} - there) <= 1

    zero, may_be_zero = _linear(signs.zero), _linear(signs.may_be_zero)
    above, either = _linear(signs.above), _linear(signs.either)
    for one, two in combinations_with_replacement(above, 2):
        if is_near(made := multiply(one, two)):
            yield _asserted(made, [])
    for one, two in product(either, above):
        if is_near(multiply(one, two)):
            for side in _sides(one):
                yield _asserted(multiply(side, two), [side])
    for one, two in combinations_with_replacement(either, 2):
        if is_near(multiply(one, two)):
            for a, b in product(_sides(one), _sides(two)):
                yield _asserted(multiply(a, b), [a, b])
    for ones, is_known in ((zero, True), (may_be_zero, False)):
        for one, two in product(ones, (*zero, *may_be_zero, *above, *either)):
            if is_near(made := multiply(one, two)):
                yield _asserted_zero(made, None if is_known else one)


def products_with_variables(signs: Signs, variables: Sequence[Polynomial]) -> Iterator[str]:
    """Products with one or two of `variables`, which are never negative, as assertions."""
    factors = [*variables, *[multiply(a, b) for a, b in combinations(variables, 2)]]
    for factor in factors:

        def fits(polynomial: Polynomial, more: int = degree(factor)) -> bool:
            return degree(polynomial) + more <= MOST_FACTORS

        for one in filter(fits, signs.above):
            yield _asserted(multiply(one, factor), [])
        for one in filter(fits, signs.either):
            for side in _sides(one):
                yield _asserted(multiply(side, factor), [side])
        for one in filter(fits, signs.zero):
            yield _asserted_zero(multiply(one, factor), None)
        for one in filter(fits, signs.may_be_zero):
            yield _asserted_zero(multiply(one, factor), one)


def _sides(polynomial: Polynomial) -> tuple[Polynomial, Polynomial]:
    """Of which one is not negative."""
    return polynomial, opposite(polynomial)


def _linear(polynomials: Sequence[Polynomial]) -> list[Polynomial]:
    return [polynomial for polynomial in polynomials if degree(polynomial) <= 1]


def _asserted(made: Polynomial, not_negative: Sequence[Polynomial]) -> str:
    """That a product is not negative, if these are not."""
    premises = [f"(>= {text_of_polynomial(one)} 0)" for one in not_negative]
    return _implied(premises, f"(>= {text_of_polynomial(made)} 0)")


def _asserted_zero(made: Polynomial, zero: Polynomial | None) -> str:
    """That a product is 0, if this is."""
    premises = [] if zero is None else [f"(= {text_of_polynomial(zero)} 0)"]
    return _implied(premises, f"(= {text_of_polynomial(made)} 0)")


def _implied(premises: Sequence[str], conclusion: str) -> str:
    claim = f"(=> {' '.join(premises)} {conclusion})" if premises else conclusion
    return f"(assert {claim})\n"
