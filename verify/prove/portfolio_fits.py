"""Which ways to decide a case have something to do in it, by what its rule says.

Owns: these questions, which are answered before a goal is made, since that takes milliseconds. Does
not own: the ways. An answer may be yes where a goal then has nothing to split or to hide, never no
where it has.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from proofgrad.core.ir.dtypes import Kind
from proofgrad.core.ir.ops import Ops
from proofgrad.core.rewrite.rule import (
    Apply,
    Calc,
    Const,
    Expr,
    Fact,
    Instance,
    Node,
    Rule,
    Term,
    Var,
)
from proofgrad.verify.encode.types import Case
from proofgrad.verify.prove.portfolio_splits import powers_of_two
from proofgrad.verify.sample.rules import variables

_DIVISIONS = {Ops.FLOORDIV, Ops.MOD, Ops.TRUNCDIV, Ops.TRUNCMOD}
_COSTLY = _DIVISIONS | {Ops.ADD, Ops.MUL, Ops.MULACC, Ops.FDIV, Ops.SQRT}


_LIKE = {"+": Ops.ADD, "*": Ops.MUL, "/": Ops.FDIV, "//": Ops.FLOORDIV, "%": Ops.MOD}


def may_split(case: Case) -> bool:
    """Whether a goal of the case can have bools, or powers of two, for `split_values`."""
    rule = case.rule
    kinds = {case.dtype(name).kind for name in variables(rule).values()}
    return Kind.BOOL in kinds or bool(rule.extractors) or bool(powers_of_two(case))


def may_divide(case: Case) -> bool:
    """Whether a goal of the case can have quotients of integers."""
    return bool(case.rule.extractors) or not _DIVISIONS.isdisjoint(_said(case.rule))


def may_hide(case: Case) -> bool:
    """Whether a goal of the case can have what `without_products` hides."""
    types = _types(case.rule)
    has_codes = any(case.dtype(name).is_code for name in types)  # their casts are products
    return has_codes or bool(case.rule.extractors) or not _COSTLY.isdisjoint(_said(case.rule))


def _said(rule: Rule) -> set[Ops]:
    """The operations in a rule, and for functions those with their names."""
    applied = {f for part in _parts(rule) if isinstance(part, Apply) for f in [part.function]}
    found = {_LIKE[function] for function in applied & _LIKE.keys()}
    found |= {Ops[part.op] for part in _parts(rule) if isinstance(part, Node)}
    return found | ({Ops.MOD} if applied & {"divides", "divisor"} else set())


def _types(rule: Rule) -> set[str]:
    """The types, and type variables, of the terms in a rule."""
    found = {part.type for part in _parts(rule) if isinstance(part, Node | Var | Const | Calc)}
    return found - {"range", "ranges"}


@lru_cache(maxsize=64)
def _parts(rule: Rule) -> tuple[Term | Expr, ...]:
    """Every term and every expression in a rule, but for what it says `when`."""
    found: list[Any] = []
    waiting: list[Any] = [rule.left, *rule.right, *rule.where]
    waiting += [given for extractor in rule.extractors for given in extractor.inputs]
    while waiting:
        part = waiting.pop()
        found.append(part)
        match part:
            case Node(_, src, _, arg):
                waiting += [*src, arg]
            case Apply(_, args):
                waiting += args
            case Calc(value) | Fact(value) | Instance(value=value):
                waiting.append(value)
    return tuple(found)
