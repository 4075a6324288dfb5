"""The classes of FASTMATH: what laws of floats claim that are not exact to the bit.

Owns: equality up to the sign of zero (nsz), the premise that all values of the left side are finite
(finite), terms as real numbers (real). Does not own: operations (semantics.py, encode/derivative.py).

A law over reals says nothing of rounding: it may change a result by as much as reordering does.
Divisors of its left side are not zero there, and nothing that it takes roots of is negative; that the
same holds of the right side is part of the claim.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import z3

from proofgrad.core.ir.ops import Ops
from proofgrad.core.rewrite.rule import Apply, Calc, Const, Expr, Fact, Name, Node, Num, Var
from proofgrad.core.rewrite.rule import Term as RuleTerm
from proofgrad.verify.encode import semantics
from proofgrad.verify.encode.derivative import ON_REALS, Reals
from proofgrad.verify.encode.fresh_terms import Function
from proofgrad.verify.encode.goal import Encoder, Goal, equality
from proofgrad.verify.encode.quotients import named_quotients
from proofgrad.verify.encode.semantics import NoMeaning
from proofgrad.verify.encode.types import Case

Term = Any


def equality_but_for_zeros(case: Case, arithmetic: Any) -> Goal:
    """Both sides are the same, or both are zeros."""
    return equality(case, arithmetic, semantics.same_but_for_zeros)


def equality_of_finite(case: Case, arithmetic: Any) -> Goal:
    """Both sides are the same where no value of the left side is infinite or NaN."""
    goal = equality(case, arithmetic)
    encoder = Encoder(case, arithmetic)
    values = [encoder.term(part) for part in _parts(case.rule.left)]
    finite = [z3.Not(z3.Or(z3.fpIsNaN(v), z3.fpIsInf(v))) for v in values if z3.is_fp(v)]
    return Goal([*goal.premises, *finite], goal.conclusion, goal.variables)


def law_of_reals(case: Case) -> list[Goal]:
    """Both sides are the same real number, or truth; the right one exists where the left does."""
    (right,) = case.rule.right
    if right is None or case.rule.extractors:
        raise NoMeaning("a law of reals is a rewrite without extractors")
    values = _RealTerms(case)
    left, left_exists = values.term(case.rule.left), values.exists(case.rule.left)
    conditions = [values.number(condition) for condition in case.rule.where]
    result, right_exists = values.term(right), values.exists(right)
    claim = z3.And(semantics.same(left, result), *right_exists)
    return [named_quotients(Goal([*values.known, *left_exists, *conditions], claim))]


_NATURAL_LOGARITHM = Function("log_e", z3.RealSort, z3.RealSort)  # that no operation is


def _about_powers(op: Ops, argument: Term, value: Term) -> list[Term]:
    """Instances of the laws of 2**x and of its inverse, and of e**x, for one value of any."""
    if op is Ops.LOG2:
        return [z3.Implies(argument > 0, ON_REALS[Ops.EXP2](value) == argument)]
    power = ON_REALS[op]
    inverse = _NATURAL_LOGARITHM if op is Ops.EXP else ON_REALS[Ops.LOG2]
    known = [value > 0, inverse(value) == argument]
    if z3.is_add(argument):
        factors = [power(summand) for summand in argument.children()]
        known.append(value == z3.Product(*factors))
    for part in [argument, *argument.children()]:
        if z3.is_app_of(part, z3.Z3_OP_UMINUS):
            known.append(power(part) * power(part.arg(0)) == 1)
    return known


def _parts(term: RuleTerm) -> list[RuleTerm]:
    inner = term.src if isinstance(term, Node) else ()
    if isinstance(term, Calc) and term.mode == "wrap":
        inner = (term.computed,)
    return [term, *[part for source in inner for part in _parts(source)]]


def _divisors(expr: Expr) -> list[Expr]:
    if not isinstance(expr, Apply):
        return []
    own = [expr.args[1]] if expr.function == "/" else []
    return own + [divisor for arg in expr.args for divisor in _divisors(arg)]


_ON_REALS: dict[str, Callable[..., Term]] = {
    "+": operator.add,
    "*": operator.mul,
    "/": operator.truediv,
    "neg": operator.neg,
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}


class _RealTerms(Reals):
    """Terms with constants, and conditions, as real numbers."""

    def term(self, term: RuleTerm) -> Term:
        match term:
            case Const(name, kind):
                return super().term(Var(name, kind))
            case Calc(_, _, "wrap"):
                return self.term(term.computed)
            case Calc():
                return self.number(term.number)
            case _:
                return super().term(term)

    def node(self, op: Ops, args: list[Term], term: Node) -> Term:
        """As for gradients; of powers and logarithms what they are: a power of a sum is a product."""
        value = super().node(op, args, term)
        if op in (Ops.EXP2, Ops.EXP, Ops.LOG2):
            self.known += _about_powers(op, args[0], value)
        return value

    def exists(self, term: RuleTerm) -> list[Term]:
        """What has to hold for every part of a term to be a real number."""
        needs: list[Term] = []
        for part in _parts(term):
            match part:
                case Node("FDIV", (_, divisor)):
                    needs.append(self.term(divisor) != 0)
                case Node("SQRT", (inner,)):
                    needs.append(self.term(inner) >= 0)
                case Node("LOG2", (inner,)):
                    needs.append(self.term(inner) > 0)
                case Calc(_, _, "exact"):
                    needs += [self.number(divisor) != 0 for divisor in _divisors(part.number)]
        return needs

    def number(self, expr: Expr) -> Term:
        """A computed constant or a condition, without rounding."""
        match expr:
            case Num(value):
                return z3.RealVal(str(value))
            case Name(name):
                return z3.Real(name)
            case Apply("finite", (Fact(),)):
                return z3.BoolVal(True)
            case Apply(function, args) if function in _ON_REALS:
                return _ON_REALS[function](*[self.number(arg) for arg in args])
            case _:
                raise NoMeaning(f"{expr} has no meaning on real numbers")
