"""Goals about floor division of integers, by instances of five lemmas.

Solvers are fickle about products and quotients. Here a quotient is an unknown function Q; a search
brings every quotient to a normal form by lemmas, and its steps are handed to the solver as premises:
- shift:   b != 0         =>  Q(b*m + r, b) = m + Q(r, b)
- merge:   v != 0, w > 0  =>  Q(Q(x, v) + y, w) = Q(x + v*y, v*w)
- cancel:  k*b != 0       =>  Q(k*x, k*b) = Q(x, b)
- zero:    b != 0         =>  Q(0, b) = 0
- range:   b > 0  =>  0 <= x - b*Q(x, b) < b, and Q(x, b) lies between 0 (or -1) and x;
           b < 0  =>  b < x - b*Q(x, b) <= 0
Products that a premise says are equal are exchanged for each other, multiple by multiple. Each instance is a true statement about floor division, whatever the search does; the goals are that
no divisor is zero, that every quotient equals its normal form, and the claim itself with
normal forms in place of quotients.
"""

from __future__ import annotations

from typing import Any

import z3

from proofgrad.verify.encode.goal import Goal
from proofgrad.verify.encode.integers import QUOTIENT, Integers
from proofgrad.verify.encode.semantics import NoMeaning

Term = Any
Monomial = tuple[int, ...]  # sorted ids of atoms, repeated for powers
Polynomial = dict[Monomial, int]
MOST_STEPS = 200


def goals_by_lemmas(goal: Goal, arithmetic: Integers) -> list[Goal]:
    """The goals that together show `goal`, in which quotients are the function QUOTIENT."""
    nonzero = [divisor != 0 for divisor in arithmetic.divisors]
    positive = [divisor > 0 for divisor in arithmetic.positive_divisors]
    premises, conclusion, conditions = eliminated(
        goal.premises, goal.conclusion, [*nonzero, *positive]
    )
    search = Search(premises)
    known = list(premises)
    goals: list[Goal] = []
    pairs: list[tuple[Term, Term]] = []
    for quotient in _quotients([conclusion, *premises]):
        normal = search.term(search.polynomial(quotient))
        if normal.eq(quotient):
            continue
        goals.append(Goal([*known, *search.instances], quotient == normal))
        known.append(quotient == normal)
        pairs.append((quotient, normal))
    goals += [Goal([*known, *search.instances], condition) for condition in conditions]
    claim = _expanded(z3.substitute(conclusion, *pairs))
    assumed = [_expanded(z3.substitute(premise, *pairs)) for premise in premises]
    goals.append(Goal([*assumed, *search.ranges, *search.exchanges], claim))
    return goals


def _expanded(term: Term) -> Term:
    """Products multiplied out by the solver's own simplifier."""
    return z3.simplify(term, som=True)


def eliminated(
    premises: list[Term], conclusion: Term, conditions: list[Term]
) -> tuple[list[Term], Term, list[Term]]:
    """Put e for v wherever a premise says v == e, for a variable v that is not in e."""
    rest = list(premises)
    while True:
        for number, premise in enumerate(rest):
            found = _definition(premise)
            if found is not None:
                break
        else:
            return rest, conclusion, conditions
        del rest[number]
        rest = [z3.substitute(p, found) for p in rest]
        conclusion = z3.substitute(conclusion, found)
        conditions = [z3.substitute(c, found) for c in conditions]


def _definition(premise: Term) -> tuple[Term, Term] | None:
    if not z3.is_eq(premise) or not z3.is_int(premise.arg(0)):
        return None
    for variable, value in (premise.children(), reversed(premise.children())):
        if z3.is_const(variable) and not z3.is_int_value(variable) and not _occurs(variable, value):
            return variable, value
    return None


def _occurs(variable: Term, term: Term) -> bool:
    return variable.eq(term) or any(_occurs(variable, part) for part in term.children())


def _quotients(terms: list[Term]) -> list[Term]:
    """Every application of QUOTIENT, inner ones first."""
    found: dict[int, Term] = {}
    seen: set[int] = set()

    def visit(term: Term) -> None:
        if term.get_id() in seen:
            return
        seen.add(term.get_id())
        for part in term.children():
            visit(part)
        if _is_quotient(term):
            found[term.get_id()] = term

    for term in terms:
        visit(term)
    return list(found.values())


def _is_quotient(term: Term) -> bool:
    return QUOTIENT.heads(term)


class Search:
    """Polynomials over atoms: variables, quotients in normal form, anything else as it is."""

    def __init__(self, premises: list[Term]) -> None:
        self.instances: list[Term] = []
        self.ranges: list[Term] = []
        self.exchanges: list[Term] = []
        self._atoms: dict[int, Term] = {}
        self._steps = 0
        self._products: list[tuple[Monomial, Polynomial, Term]] = []
        self._products = [found for p in premises for found in self._equal_product(p)]

    # -- terms and polynomials ----------------------------------------------------------------------

    def polynomial(self, term: Term) -> Polynomial:
        """`term` as a polynomial over atoms, its quotients brought to normal form."""
        if z3.is_int_value(term):
            value = term.as_long()
            return {(): value} if value else {}
        parts = term.children()
        if z3.is_add(term):
            return _sum([self.polynomial(p) for p in parts])
        if z3.is_sub(term):
            first, *others = [self.polynomial(p) for p in parts]
            return _sum([first, *[_scaled(p, -1) for p in others]])
        if z3.is_mul(term):
            result: Polynomial = {(): 1}
            for part in parts:
                result = _product(result, self.polynomial(part))
            return result
        if z3.is_app(term) and term.decl().kind() == z3.Z3_OP_UMINUS:
            return _scaled(self.polynomial(parts[0]), -1)
        if _is_quotient(term):
            return self._quotient(self.polynomial(parts[0]), self.polynomial(parts[1]))
        return self._atom(term)

    def term(self, polynomial: Polynomial) -> Term:
        """The canonical sum of products."""
        if not polynomial:
            return z3.IntVal(0)
        products = []
        for monomial, factor in sorted(polynomial.items()):
            factors = [self._atoms[key] for key in monomial]
            product = z3.IntVal(factor) if not factors else factors[0]
            for other in factors[1:]:
                product = product * other
            products.append(product if not factors or factor == 1 else z3.IntVal(factor) * product)
        total = products[0]
        for product in products[1:]:
            total = total + product
        return total

    def _atom(self, term: Term) -> Polynomial:
        self._atoms[term.get_id()] = term
        return {(term.get_id(),): 1}

    # -- products that a premise says are equal -------------------------------------------------------

    def _equal_product(self, premise: Term) -> list[tuple[Monomial, Polynomial, Term]]:
        """A premise v*w == e as a way to write multiples of v*w."""
        if not z3.is_eq(premise) or not z3.is_int(premise.arg(0)) or _quotients([premise]):
            return []
        left, right = [self.polynomial(side) for side in premise.children()]
        if len(left) == 1:
            ((monomial, factor),) = left.items()
            if factor == 1 and len(monomial) > 1:
                return [(monomial, right, premise)]
        return []

    def exchanged(self, polynomial: Polynomial) -> Polynomial:
        """The polynomial with products exchanged for what premises say they are."""
        for monomial, value, premise in self._products:
            for whole in list(polynomial):
                rest = without(whole, monomial)
                if rest is None:
                    continue
                factor = polynomial[whole]
                other = _product({rest: 1}, value)
                same = self.term({whole: 1}) == self.term(other)
                self.exchanges.append(z3.Implies(premise, same))
                self.instances.append(self.exchanges[-1])
                others = {m: k for m, k in polynomial.items() if m != whole}
                polynomial = _sum([others, _scaled(other, factor)])
        return polynomial

    def with_product(self, premise: Term, polynomial: Polynomial) -> Polynomial:
        """The polynomial with v*w, times a rest, for each multiple of n, where a premise is n == v*w."""
        number, product = premise.arg(0).as_long(), self.polynomial(premise.arg(1))
        for whole, factor in list(polynomial.items()):
            if number and not factor % number:
                rest = {whole: factor // number}
                other = _product(rest, product)
                same = self.term({whole: factor}) == self.term(other)
                self.exchanges.append(z3.Implies(premise, same))
                polynomial = _sum([polynomial, _scaled({whole: factor}, -1), other])
        return polynomial

    # -- quotients ----------------------------------------------------------------------------------

    def _quotient(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """The normal form of Q(a, b); every step becomes an instance."""
        exchanged = self.exchanged(a)
        if exchanged != a:
            ta, tb, te = self.term(a), self.term(b), self.term(exchanged)
            self._instance(QUOTIENT(ta, tb) == QUOTIENT(te, tb), ta == te)
            a = exchanged
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise NoMeaning("too many steps of lemmas")
        if len(b) == 1:
            if not a:
                self._instance(QUOTIENT(self.term(a), self.term(b)) == 0, self.term(b) != 0)
                return {}
            found = self._shift(a, b)
            found = found if found is not None else self._merge(a, b)
            found = found if found is not None else self._cancel(a, b)
            if found is not None:
                return found
        return self._range(a, b)

    def _shift(self, a: Polynomial, b: Polynomial) -> Polynomial | None:
        ((divisor, factor),) = b.items()
        multiple: Polynomial = {}
        rest: Polynomial = {}
        for monomial, k in a.items():
            quotient = without(monomial, divisor)
            if quotient is not None and k % factor == 0:
                multiple[quotient] = k // factor
            else:
                rest[monomial] = k
        if not multiple:
            return None
        ta, tb, tm, tr = [self.term(p) for p in (a, b, multiple, rest)]
        same = QUOTIENT(ta, tb) == tm + QUOTIENT(tr, tb)
        self._instance(same, tb != 0, ta == tb * tm + tr)
        return _sum([multiple, self._quotient(rest, b)])

    def _merge(self, a: Polynomial, b: Polynomial) -> Polynomial | None:
        for monomial, k in a.items():
            if k != 1 or len(monomial) != 1 or not _is_quotient(self._atoms[monomial[0]]):
                continue
            inner = self._atoms[monomial[0]]
            x, v = inner.children()
            y = {other: factor for other, factor in a.items() if other != monomial}
            # x and v are in normal form already, so this only reads them
            px, pv = self.polynomial(x), self.polynomial(v)
            new_a, new_b = _sum([px, _product(pv, y)]), _product(pv, b)
            ta, tb, ty, tna, tnb = [self.term(p) for p in (a, b, y, new_a, new_b)]
            same = QUOTIENT(ta, tb) == QUOTIENT(tna, tnb)
            identities = (ta == inner + ty, tna == x + v * ty, tnb == v * tb)
            self._instance(same, v != 0, tb > 0, *identities)
            return self._quotient(new_a, new_b)
        return None

    def _cancel(self, a: Polynomial, b: Polynomial) -> Polynomial | None:
        """Atoms that the divisor shares with every part of the dividend leave both."""
        ((divisor, factor),) = b.items()
        for key in divisor:
            if not all(key in monomial for monomial in a):
                continue
            common: Polynomial = {(key,): 1}
            less = {without(m, (key,)) or (): k for m, k in a.items()}
            lesser = {without(divisor, (key,)) or (): factor}
            ta, tb, tk, tna, tnb = [self.term(p) for p in (a, b, common, less, lesser)]
            same = QUOTIENT(ta, tb) == QUOTIENT(tna, tnb)
            self._instance(same, tb != 0, ta == tk * tna, tb == tk * tnb)
            return self._quotient(less, lesser)
        return None

    def _range(self, a: Polynomial, b: Polynomial) -> Polynomial:
        ta, tb = self.term(a), self.term(b)
        quotient = QUOTIENT(ta, tb)
        rest = _expanded(ta - tb * quotient)
        from_above = z3.And(0 <= quotient, quotient <= ta)
        size = z3.If(ta >= 0, from_above, z3.And(ta <= quotient, quotient < 0))
        above = z3.Implies(tb > 0, z3.And(0 <= rest, rest < tb, size))
        below = z3.Implies(tb < 0, z3.And(tb < rest, rest <= 0))
        self.instances += [above, below]
        self.ranges += [above, below]
        return self._atom(quotient)

    def _instance(self, conclusion: Term, *conditions: Term) -> None:
        """An instance of a lemma; that its terms fit together is checked by the solver."""
        premises = [_expanded(condition) for condition in conditions]
        self.instances.append(z3.Implies(z3.And(*premises), conclusion))


def _sum(parts: list[Polynomial]) -> Polynomial:
    total: Polynomial = {}
    for part in parts:
        for monomial, factor in part.items():
            total[monomial] = total.get(monomial, 0) + factor
    return {monomial: factor for monomial, factor in total.items() if factor}


def _scaled(polynomial: Polynomial, by: int) -> Polynomial:
    return {monomial: factor * by for monomial, factor in polynomial.items()}


def _product(a: Polynomial, b: Polynomial) -> Polynomial:
    terms = [{tuple(sorted(m + n)): j * k} for m, j in a.items() for n, k in b.items()]
    return _sum(terms)


def without(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    """The monomial divided by `divisor`; None if that leaves a fraction."""
    rest = list(monomial)
    for key in divisor:
        if key not in rest:
            return None
        rest.remove(key)
    return tuple(rest)
