"""Terms of the solver that the functions of a law take, as they take numbers and index terms.

Owns: Term and Truth, what is known of products and quotients. Does not own: what is claimed of laws (laws.py),
asking (claims.py).

Products of unknowns are hard for a solver, so it is not told what a product is. `times` is a function of which it knows
the instances of a few laws of multiplication (`LEMMAS`, each proved by itself), for the products that
occur; what follows for every such function holds for multiplication. A quotient by an unknown is a number of its own with
the property that defines it, and one by a product is taken factor by factor, the last one first, as
(x // b) // a = x // (a * b). What is left is linear, and decided in milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import z3

Formula = Any


class Refused(TypeError):
    """A law asked for an operation whose meaning terms do not have."""


@dataclass(slots=True)
class Known:
    """What is known of the terms of one run: products by their right factor, quotients, and how branches are decided."""

    decide: Callable[[Formula], bool]
    is_exact: bool = False  # products are those that the solver knows
    facts: list[Formula] = field(default_factory=list)  # of the quotients and products so far
    exponents: list[Formula] = field(default_factory=list)  # of powers so far
    _products: dict[Formula, list[Product]] = field(default_factory=dict)
    _quotients: dict[tuple[Formula, Formula], tuple[Term, Term]] = field(default_factory=dict)

    def number(self, name: str) -> Term:
        """A whole number of which nothing is known yet."""
        return Term(self, z3.Int(name))

    def real(self, name: str) -> Real:
        """A real number of which nothing is known yet."""
        return Real(self, z3.Real(name))

    def product(self, left: Formula, right: Formula) -> Formula:
        """left * right of two unknowns, with what the lemmas say of it beside others by the same factor."""
        value = _TIMES(left, right)
        same = self._products.setdefault(right, _trivial(right))
        if not any([one.left.eq(left) for one in same]):
            this = Product(left, right, value)
            self.facts += _instances(this, same)
            same.append(this)
        return value

    def quotient(self, term: Term, divisor: Term) -> tuple[Term, Term]:
        """term // divisor and term % divisor of a divisor that is no product."""
        key = (term.value, divisor.value)
        if key not in self._quotients:
            number = len(self._quotients)
            quotient, rest = self.number(f"quotient#{number}"), self.number(f"rest#{number}")
            whole = quotient * divisor + rest
            is_rest = z3.And(0 <= rest.value, rest.value < divisor.value)
            defined = z3.And(term.value == whole.value, is_rest)
            self.facts.append(z3.Implies(divisor.value > 0, defined))
            self._quotients[key] = quotient, rest
        return self._quotients[key]


@dataclass(frozen=True, slots=True)
class Product:
    """`value` is left * right."""

    left: Formula
    right: Formula
    value: Formula


def applied(known: Known, name: str, arguments: Sequence[Any]) -> Term:
    """The value of a function of which nothing is known."""
    sorts = [z3.IntSort() for _ in range(len(arguments) + 1)]
    return Term(known, z3.Function(name, *sorts)(*[_value(x) for x in arguments]))


class Truth:
    """A formula. Where a law branches on it, each branch is a case."""

    __slots__ = ("formula", "known")

    def __init__(self, known: Known, formula: Formula) -> None:
        self.known, self.formula = known, formula

    def __and__(self, other: Any) -> Truth:
        return Truth(self.known, z3.And(self.formula, _formula(other)))

    def __invert__(self) -> Truth:
        return Truth(self.known, z3.Not(self.formula))

    def __bool__(self) -> bool:
        return self.known.decide(self.formula)


class Term:
    """A whole number, as Python's: `//` rounds down, and `%` is what it leaves."""

    __slots__ = ("factors", "known", "value")
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self, known: Known, value: Formula, factors: tuple[Term, Term] | None = None
    ) -> None:
        self.known, self.value = known, value
        self.factors = factors  # of a product of unknowns

    def __add__(self, other: Any) -> Term:
        return Term(self.known, self.value + _value(other))

    def __radd__(self, other: Any) -> Term:
        return Term(self.known, _value(other) + self.value)

    def __sub__(self, other: Any) -> Term:
        return Term(self.known, self.value - _value(other))

    def __rsub__(self, other: Any) -> Term:
        return Term(self.known, _value(other) - self.value)

    def __neg__(self) -> Term:
        return Term(self.known, -self.value)

    def __mul__(self, other: Any) -> Term:
        return _times(self.known, self, other)

    def __rmul__(self, other: Any) -> Term:
        return _times(self.known, other, self)

    def __floordiv__(self, other: Any) -> Term:
        return _divided(self, other)[0]

    def __mod__(self, other: Any) -> Term:
        return _divided(self, other)[1]

    def __lt__(self, other: Any) -> Truth:
        return Truth(self.known, self.value < _value(other))

    def __le__(self, other: Any) -> Truth:
        return Truth(self.known, self.value <= _value(other))

    def __gt__(self, other: Any) -> Truth:
        return Truth(self.known, self.value > _value(other))

    def __ge__(self, other: Any) -> Truth:
        return Truth(self.known, self.value >= _value(other))

    def __eq__(self, other: Any) -> Truth:  # type: ignore[override]
        return Truth(self.known, self.value == _value(other))

    def __ne__(self, other: Any) -> Truth:  # type: ignore[override]
        return Truth(self.known, self.value != _value(other))

    def minimum(self, other: Any) -> Term:
        """The lesser of both."""
        value = _value(other)
        return Term(self.known, z3.If(self.value < value, self.value, value))

    def maximum(self, other: Any) -> Term:
        """The greater of both."""
        value = _value(other)
        return Term(self.known, z3.If(self.value < value, value, self.value))


class Real:
    """A real number, whose products the solver knows."""

    __slots__ = ("known", "value")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, known: Known, value: Formula) -> None:
        self.known, self.value = known, value

    def __add__(self, other: Any) -> Real:
        return Real(self.known, self.value + _real(other))

    def __sub__(self, other: Any) -> Real:
        return Real(self.known, self.value - _real(other))

    def __mul__(self, other: Any) -> Real:
        return Real(self.known, self.value * _real(other))

    def __le__(self, other: Any) -> Truth:
        return Truth(self.known, self.value <= _real(other))

    def __eq__(self, other: Any) -> Truth:  # type: ignore[override]
        return Truth(self.known, self.value == _real(other))

    def maximum(self, other: Any) -> Real:
        """The greater of both."""
        value = _real(other)
        return Real(self.known, z3.If(self.value < value, value, self.value))


def _real(number: Any) -> Formula:
    """Raises: Refused for what is no real number."""
    if type(number) is int:
        return z3.RealVal(number)
    if type(number) is not Real:
        raise Refused(f"a real number of a law beside {type(number).__name__} {number!r}")
    return number.value


_POWER = z3.Function("power", z3.RealSort(), z3.RealSort())


def power(known: Known, exponent: Real) -> Real:
    """e(exponent) of a function of which this is known: e(a) * e(b) = e(a + b)."""
    value = _POWER(exponent.value)
    for other in known.exponents:
        known.facts.append(value * _POWER(other) == _POWER(exponent.value + other))
    known.exponents.append(exponent.value)
    return Real(known, value)


def _value(number: Any) -> Formula:
    """Raises: Refused for what is no whole number."""
    if type(number) is int:
        return z3.IntVal(number)
    if type(number) is not Term:
        raise Refused(f"a term of a law beside {type(number).__name__} {number!r}")
    return number.value


def _formula(truth: Any) -> Formula:
    if type(truth) is not Truth:
        raise Refused(f"a formula of a law beside {type(truth).__name__} {truth!r}")
    return truth.formula


# -- products and quotients -----------------------------------------------------------------------

_TIMES = z3.Function("times", z3.IntSort(), z3.IntSort(), z3.IntSort())


def _times(known: Known, left: Any, right: Any) -> Term:
    """left * right; l * (a * b) is (l * a) * b."""
    a, b = _value(left), _value(right)
    if known.is_exact:
        return Term(known, a * b)
    if z3.is_int_value(a) or z3.is_int_value(b):
        is_one = z3.is_int_value(a) and a.as_long() == 1
        return right if is_one else Term(known, a * b)
    if right.factors is not None:
        first, second = right.factors
        return _times(known, _times(known, left, first), second)
    return Term(known, known.product(a, b), (left, right))


def _divided(term: Term, divisor: Any) -> tuple[Term, Term]:
    """The quotient and what it leaves."""
    if type(divisor) is int:
        if divisor <= 0:
            raise Refused(f"a term of a law divided by {divisor}")
        quotient, rest = term.value / divisor, term.value % divisor
        return Term(term.known, quotient), Term(term.known, rest)
    _value(divisor)
    if divisor.factors is not None:
        first, second = divisor.factors
        quotient = _divided(_divided(term, second)[0], first)[0]
        return quotient, term - quotient * divisor
    return term.known.quotient(term, divisor)


def _trivial(right: Formula) -> list[Product]:
    zero, one = z3.IntVal(0), z3.IntVal(1)
    return [Product(zero, right, zero), Product(one, right, right)]


def _instances(one: Product, others: Sequence[Product]) -> Iterator[Formula]:
    """What the lemmas say of a product beside others with the same right factor."""
    yield _at_least(one)
    yield _by_one(one)
    for other in others:
        yield _monotone(one, other)
        yield _monotone(other, one)
        yield _opposite(one, other)


def _at_least(p: Product) -> Formula:
    return z3.Implies(z3.And(p.right >= 1, p.left >= 0), p.value >= p.left)


def _by_one(p: Product) -> Formula:
    return z3.Implies(p.right == 1, p.value == p.left)


def _monotone(p: Product, m: Product) -> Formula:
    less = z3.Implies(p.left < m.left, p.value + p.right <= m.value)
    return z3.Implies(p.right > 0, z3.And(less, z3.Implies(p.left == m.left, p.value == m.value)))


def _opposite(p: Product, m: Product) -> Formula:
    total, value = p.left + m.left, p.value + m.value
    below = z3.Implies(total < 0, value + p.right <= 0)
    return z3.Implies(p.right > 0, z3.And(below, z3.Implies(total >= 0, value >= 0)))


def lemmas() -> Sequence[tuple[str, Formula]]:
    """What is used of multiplication and division, as formulas about both themselves."""
    p, m, n, x, a, b = z3.Ints("p m n x a b")
    first, second = [Product(left, n, left * n) for left in (p, m)]
    q, r, s, t = z3.Ints("q r s t")
    nested = z3.And(x == q * b + r, 0 <= r, r < b, q == s * a + t, 0 <= t, t < a, a > 0, b > 0)
    return (
        ("p < m: p * n + n <= m * n", _monotone(first, second)),
        ("p + m < 0: p * n + m * n + n <= 0", _opposite(first, second)),
        ("0 <= p, 1 <= n: p <= p * n", _at_least(first)),
        ("n = 1: p * n = p", _by_one(first)),
        ("x * (a * b) = (x * a) * b", x * (a * b) == (x * a) * b),
        ("0 * n = 0, 1 * n = n", z3.And(0 * n == 0, 1 * n == n)),
        (
            "(x // b) // a = x // (a * b)",
            z3.Implies(nested, z3.And(s * (a * b) <= x, x < s * (a * b) + a * b)),
        ),
    )
