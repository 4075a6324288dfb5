"""Sums of index terms as wholes: the compiled form of the rule that collects like terms.

Owns: which nodes are such sums, what they are sums of, their one tidy form. Does not own: linear
forms (linear.py), the rule (it must be among the rules, or nothing here is used), other rules.

The rule `x + y => t let (t) = tidy(x + y)` says that a sum may become any sum with the same linear
form. Applied from the inside out it would tidy every part of a sum on the way; here the summands
are brought to their normal forms, and the whole sum is tidied once, under the same contract.
"""

from __future__ import annotations

from functools import cache

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.linear import Linear, to_term
from proofgrad.core.rewrite.rule import Calc, Const, Lit, Node, Rule, Term, Var

TIDY = "tidy"


class Sums:
    """Sums of scalar index terms, each tidied once."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._tidy: set[UOp] = set()

    def __contains__(self, node: UOp) -> bool:
        return (
            node.op is Ops.ADD and node.dtype is dtypes.index and self._facts.form(node) is not None
        )

    def parts(self, node: UOp) -> tuple[UOp, ...]:
        """The summands of a sum, without factors and constants; the sources of another node."""
        if node.op is Ops.ADD and node.dtype is dtypes.index:
            form = self._facts.form(node)
            if form is not None:
                return tuple(form.terms)
        return node.src

    def tidy(self, node: UOp, parts: tuple[UOp, ...]) -> UOp:
        """The tidy sum equal to `node`, whose summands have become `parts`."""
        if node in self._tidy:
            return node
        facts, form = self._facts, self._facts.form(node)
        assert form is not None
        total = Linear({}, form.constant)
        for coefficient, part in zip(form.terms.values(), parts):
            total = total.plus(facts.form(part) or Linear({part: 1}, 0), coefficient)
        tidy = to_term(total, facts)
        found = facts.form(tidy)
        if found is None or found.constant != total.constant or found.terms != total.terms:
            return node.substitute(dict(zip(form.terms, parts)))
        self._tidy.add(tidy)
        return tidy


def is_collector(rule: Rule) -> bool:
    """Whether `rule` is `x + y => t let (t) = tidy(x + y)`, in any names."""
    if len(rule.views) != 1 or rule.where or rule.when or rule.domains != ("index",):
        return False
    (view,) = rule.views
    left = rule.left
    return (
        isinstance(left, Node)
        and left.op == Ops.ADD.name
        and [type(source) for source in left.src] == [Var, Var]
        and left.src[0] != left.src[1]
        and (view.function, view.inputs) == (TIDY, (left,))
        and [term.name for term in rule.right if isinstance(term, Var)] == [view.outputs[0][0]]
    )


@cache
def is_linear_law(rule: Rule) -> bool:
    """Whether both sides of `rule` have one linear form, so that it says nothing of a tidy sum."""
    if is_collector(rule):
        return True
    return not rule.views and all([_is_linear(term) for term in (rule.left, *rule.right)])


def _is_linear(term: Term | None) -> bool:
    """Whether the linear form of `term` is that of its variables, whatever they stand for."""
    if not isinstance(term, Node):
        return term is not None
    if term.op == Ops.MUL.name:
        if not any([isinstance(source, Const | Lit | Calc) for source in term.src]):
            return False
    elif term.op not in (Ops.ADD.name, Ops.NEG.name):
        return False
    return all([_is_linear(source) for source in term.src])
