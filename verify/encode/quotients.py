"""Goals about real numbers without division: a quotient is any number that has its property.

Owns: this change of a goal. Does not own: the meaning of terms (the other files of this folder).

Where b is not zero, a / b is the one number q with q * b = a; where it is zero, it may be any. So a
goal that holds for every such q holds for the quotient, and the other way round.
"""

from __future__ import annotations

from typing import Any

import z3

from proofgrad.verify.encode.goal import Goal

Term = Any


def named_quotients(goal: Goal) -> Goal:
    """The same goal with a name for each quotient of reals, and its property as a premise."""
    names: dict[int, tuple[Term, Term]] = {}
    known: list[Term] = []
    positive = {p.arg(0).get_id() for p in goal.premises if _says_positive(p)}

    def named(term: Term) -> Term:
        if not z3.is_app(term) or not term.children():
            return term
        parts = [named(part) for part in term.children()]
        term = term.decl()(*parts) if not _same(parts, term.children()) else term
        if not z3.is_div(term) or z3.is_rational_value(z3.simplify(term)):
            return term
        if term.get_id() not in names:
            quotient = z3.Real(f"quotient#{len(names)}")
            names[term.get_id()] = term, quotient
            unsure = [f != 0 for f in _factors(parts[1]) if f.get_id() not in positive]
            property_ = quotient * parts[1] == parts[0]
            known.append(z3.Implies(z3.And(*unsure), property_) if unsure else property_)
        return names[term.get_id()][1]

    premises = [named(premise) for premise in goal.premises]
    conclusion = named(goal.conclusion)
    return Goal([*known, *premises], conclusion, goal.variables, goal.bounds)


def _says_positive(premise: Term) -> bool:
    """Whether a premise is that something is above zero."""
    if not z3.is_gt(premise) or not z3.is_rational_value(premise.arg(1)):
        return False
    return bool(premise.arg(1).as_fraction() == 0)


def _factors(term: Term) -> list[Term]:
    """What is multiplied: a product is zero where one of them is."""
    if not z3.is_mul(term):
        return [term]
    return [factor for part in term.children() for factor in _factors(part)]


def _same(parts: list[Term], others: list[Term]) -> bool:
    return all([part.eq(other) for part, other in zip(parts, others)])
