"""Which types the type variables of a rule take: the cases in which a rule has to be proven.

Owns: the assignments that the domain, the classes and the relations of types in `where` allow.
Does not own: what a case means (encode/goal.py and its neighbours).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from proofgrad.core.ir.dtypes import DType, dtype_named, dtypes
from proofgrad.core.rewrite.functions import DOMAIN_TYPES, TYPE_CLASSES, TYPE_FUNCTIONS
from proofgrad.core.rewrite.rule import Apply, Expr, Name, Node, Rule, Term

# Domains with proofs of their own say nothing about the type of "domain" variables: any may come.
_EVERY = dtypes.all + (dtypes.index,)


@dataclass(frozen=True, slots=True)
class Case:
    """A rule at one domain, with a type for each of its type variables."""

    rule: Rule
    domain: str
    types: tuple[tuple[str, DType], ...]

    def dtype(self, name: str) -> DType:
        """The type that `name`, a type variable or a type's name, stands for here."""
        for variable, dtype in self.types:
            if variable == name:
                return dtype
        return dtype_named(name)

    def __str__(self) -> str:
        types = ", ".join(f"{name}={dtype.name}" for name, dtype in self.types)
        return f"{self.rule.full_name} over {self.domain}" + (f" ({types})" if types else "")


def cases(rule: Rule) -> Iterator[Case]:
    """Every domain and assignment of types that `rule` claims, smallest types first."""
    for domain in rule.domains:
        classes = [_class_types(kind, domain) for _, kind in rule.types]
        names = [name for name, _ in rule.types]
        for types in product(*classes):
            case = Case(rule, domain, tuple(zip(names, types)))
            allowed = all(type_condition(c, case) is not False for c in rule.where)
            if allowed and _can_exist(rule.left, case):
                yield case


def type_condition(condition: Expr, case: Case) -> bool | None:
    """The truth of a relation of types; None if the condition is not one."""
    match condition:
        case Apply(function, args) if function in TYPE_FUNCTIONS:
            named = [case.dtype(arg.name) for arg in args if isinstance(arg, Name)]
            return bool(TYPE_FUNCTIONS[function](*named))
        case Apply("not", (inner,)):
            truth = type_condition(inner, case)
            return None if truth is None else not truth
        case Apply("and", args):
            truths = [type_condition(arg, case) for arg in args]
            return False if False in truths else None if None in truths else True
        case Apply("or", args):
            truths = [type_condition(arg, case) for arg in args]
            return True if True in truths else None if None in truths else False
        case _:
            return None


def _can_exist(term: Term, case: Case) -> bool:
    """Whether the left side can be a graph: a BITCAST is between types of one width."""
    if not isinstance(term, Node):
        return True
    if term.op == "BITCAST":
        source, target = case.dtype(term.src[0].type), case.dtype(term.type)
        if source.bits != target.bits or source.is_bool != target.is_bool:
            return False
    return all(_can_exist(source, case) for source in term.src)


def _class_types(kind: str, domain: str) -> tuple[DType, ...]:
    if kind != "domain":
        return TYPE_CLASSES[kind]
    return DOMAIN_TYPES.get(domain, _EVERY)
