"""Goals with any value in place of each product, quotient or rounding.

What holds for any value holds for the true one, and equal terms stay equal. So a law that only moves
such operations around is decided without their circuits. Signed division is first written out by
its SMT-LIB definition; of unsigned division two facts are kept: the remainder is below the divisor,
and the quotient is not above the dividend; of float products and quotients, that a sign of an
operand is a sign of the result (rounding to nearest even is symmetric).

Owns: this weakening of a goal. Does not own: goals.
"""

from __future__ import annotations

from typing import Any

import z3

from proofgrad.verify.encode.goal import Goal
from proofgrad.verify.encode.semantics import NoMeaning

Term = Any

_UNSIGNED = {z3.Z3_OP_BUDIV, z3.Z3_OP_BUREM}
_COSTLY = _UNSIGNED | {z3.Z3_OP_BMUL, z3.Z3_OP_FPA_ADD, z3.Z3_OP_FPA_SQRT}
_SIGNED = {z3.Z3_OP_FPA_MUL, z3.Z3_OP_FPA_DIV}


def without_products(goal: Goal) -> Goal:
    """The goal with a fresh value for each costly operation. Raises: NoMeaning if there is none."""
    weakening = Weakening()
    premises = [weakening.term(premise) for premise in goal.premises]
    conclusion = weakening.term(goal.conclusion)
    if not weakening.values:
        raise NoMeaning("nothing to hide")
    return Goal([*premises, *weakening.facts], conclusion)


class Weakening:
    """Terms without what costs much. `values`: by the number of the term; `facts`: what is kept of them."""

    def __init__(self) -> None:
        self.values: dict[int, Term] = {}
        self.facts: list[Term] = []
        self._keep: list[Term] = []

    def term(self, term: Term) -> Term:
        """The term, with any value in place of each part that costs much."""
        if not z3.is_app(term) or not term.children():
            return term
        parts = [self.term(part) for part in term.children()]
        kind = term.decl().kind()
        if kind == z3.Z3_OP_BSREM:
            return self._signed_remainder(*parts)
        if kind == z3.Z3_OP_BSDIV:
            return self._signed_quotient(*parts)
        if kind in _SIGNED:
            return self._without_signs(term, parts)
        rebuilt = _rebuilt(term, parts)
        return self.hidden(rebuilt) if kind in _COSTLY else rebuilt

    def hidden(self, term: Term) -> Term:
        """Any value in place of a term, always the same."""
        key = term.get_id()
        if key not in self.values:
            self._keep.append(term)
            value = self.values[key] = z3.FreshConst(term.sort(), "any")
            if term.decl().kind() == z3.Z3_OP_BUREM:
                divisor = term.arg(1)
                self.facts.append(z3.Implies(divisor != 0, z3.ULT(value, divisor)))
            if term.decl().kind() == z3.Z3_OP_BUDIV:
                self.facts.append(z3.Implies(term.arg(1) != 0, z3.ULE(value, term.arg(0))))
        return self.values[key]

    def _without_signs(self, term: Term, parts: list[Term]) -> Term:
        """A float product or quotient: (-x) op y = -(x op y) = x op (-y)."""
        rounding, *operands = parts
        stripped = [_positive(operand) for operand in operands]
        value = self.hidden(_rebuilt(term, [rounding, *[operand for operand, _ in stripped]]))
        odd = sum(negated for _, negated in stripped) % 2 == 1
        return z3.fpNeg(value) if odd else value

    def _signed_remainder(self, s: Term, t: Term) -> Term:
        rest = self.hidden(z3.URem(_size(s), _size(t)))
        return z3.If(s < 0, -rest, rest)

    def _signed_quotient(self, s: Term, t: Term) -> Term:
        quotient = self.hidden(z3.UDiv(_size(s), _size(t)))
        return z3.If((s < 0) == (t < 0), quotient, -quotient)


def _positive(term: Term) -> tuple[Term, bool]:
    """The operand of a negation, and that there was one."""
    if z3.is_app(term) and term.decl().kind() == z3.Z3_OP_FPA_NEG:
        inner, negated = _positive(term.arg(0))
        return inner, not negated
    return term, False


def _size(value: Term) -> Term:
    return z3.If(value < 0, -value, value)


def _rebuilt(term: Term, parts: list[Term]) -> Term:
    """The same operation on other arguments; And, Or and sums take any number of them."""
    arguments = (z3.Ast * len(parts))(*[part.as_ast() for part in parts])
    made = z3.Z3_mk_app(term.ctx_ref(), term.decl().ast, len(parts), arguments)
    return z3.z3._to_expr_ref(made, term.ctx)
