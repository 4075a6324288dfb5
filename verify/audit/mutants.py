"""Rules with one small mistake in them: what a prover that can be trusted has to refute.

Owns: which mistakes are made, and the mutants of a rule. Does not own: deciding them
(judge_mutants.py), output.

A mutant is a `Rule` with one change: a number is another one, a condition is gone, a comparison or
an operation is its neighbour, operands stand in the other order, a sign is dropped, or a variable
that stood twice on the left stands once. A mutant may still be true: that is for the prover to say.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from proofgrad.core.rewrite.functions import ARG_FUNCTIONS
from proofgrad.core.rewrite.rule import (
    Apply,
    Calc,
    Const,
    Expr,
    Fact,
    Instance,
    Lit,
    Node,
    Num,
    Rule,
    Term,
    Text,
    Var,
)
from proofgrad.verify.dsl.show import show_expr

NEIGHBOURS = {
    "ADD": "MUL",
    "MUL": "ADD",
    "MAX": "MIN",
    "MIN": "MAX",
    "AND": "OR",
    "OR": "AND",
    "XOR": "OR",
    "FDIV": "MUL",
    "FLOORDIV": "TRUNCDIV",
    "TRUNCDIV": "FLOORDIV",
    "MOD": "TRUNCMOD",
    "TRUNCMOD": "MOD",
    "SHL": "SHR",
    "SHR": "SHL",
    "CMPLT": "CMPEQ",
    "CMPEQ": "CMPLT",
}
FUNCTION_NEIGHBOURS = {
    "<": ("<=", ">"),
    "<=": ("<", ">="),
    ">": (">=", "<"),
    ">=": (">", "<="),
    "==": ("!=", "<="),
    "!=": ("==",),
    "+": ("*", "-"),
    "-": ("+",),
    "*": ("+",),
    "//": ("%", "*"),
    "%": ("//",),
    "min": ("max",),
    "max": ("min",),
    "gcd": ("max", "*"),
    "and": ("or",),
    "or": ("and",),
    "lo": ("hi",),
    "hi": ("lo",),
}
# The order of operands that is exchanged for the usual one.
SWAPPED_SOURCES = {
    **dict.fromkeys(("FDIV", "FLOORDIV", "MOD", "TRUNCDIV", "TRUNCMOD"), (1, 0)),
    **dict.fromkeys(("SHL", "SHR", "CMPLT"), (1, 0)),
    **dict.fromkeys(("WHERE", "MULACC", "FMA"), (0, 2, 1)),
}
SWAPPED_ARGUMENTS = frozenset(
    {"-", "//", "%", "<<", ">>", "divides", "compose", "chain_shrinks", "lossless", "narrower"}
)

Part = Any  # a Term or an Expr
Changed = tuple[Part, str]  # what stands there now, and what was done


@dataclass(frozen=True, slots=True)
class Mutant:
    """A rule with one change, which `change` describes."""

    original: Rule
    rule: Rule
    change: str


def mutants(rule: Rule) -> list[Mutant]:
    """Every mutant of `rule` that differs from it and from the others."""
    found = {repr(rule): Mutant(rule, rule, "")}  # by text, for 0.0 == -0.0
    for changed, change in _changes(rule):
        found.setdefault(repr(changed), Mutant(rule, changed, change))
    del found[repr(rule)]
    return list(found.values())


def _changes(rule: Rule) -> Iterator[tuple[Rule, str]]:
    for left, change in [*_variants(rule.left), *_less_repetition(rule.left)]:
        if isinstance(left, Node):
            yield dataclasses.replace(rule, left=left), f"left: {change}"
    for position, side in enumerate(rule.right):
        for right, change in _variants(side) if side is not None else ():
            sides = (*rule.right[:position], right, *rule.right[position + 1 :])
            yield dataclasses.replace(rule, right=sides), f"right: {change}"
    for position, condition in enumerate(rule.where):
        before, after = rule.where[:position], rule.where[position + 1 :]
        gone = f"where: without {show_expr(condition)}"
        yield dataclasses.replace(rule, where=(*before, *after)), gone
        for other, change in _variants(condition):
            yield dataclasses.replace(rule, where=(*before, other, *after)), f"where: {change}"


# -- one change somewhere in a term or an expression ------------------------------------------------


def _variants(part: Part) -> Iterator[Changed]:
    """`part` with one change in it."""
    match part:
        case Lit(value, _):
            for other in _numbers(value):
                yield dataclasses.replace(part, value=other), f"{value} becomes {other}"
        case Num(value):
            for other in _numbers(value):
                yield Num(other), f"{value} becomes {other}"
        case Node():
            yield from _variants_of_node(part)
        case Calc(value):
            for inner, change in _variants(value):
                yield dataclasses.replace(part, value=inner), change
        case Instance(value=value):
            for inner, change in _variants(value):
                yield dataclasses.replace(part, value=inner), change
        case Apply():
            yield from _variants_of_application(part)
        case Fact(term):
            for inner, change in _variants(term):
                yield Fact(inner), change
        case Text(op) if op in NEIGHBOURS:
            yield Text(NEIGHBOURS[op]), f"{op} becomes {NEIGHBOURS[op]}"


def _numbers(value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [not value]
    others = [value + 1, value - 1, value * 0, -value]
    by_text = {repr(other): other for other in others}  # 0.0 and -0.0 are two
    return [other for text, other in by_text.items() if text != repr(value)]


def _variants_of_node(node: Node) -> Iterator[Changed]:
    if node.op in NEIGHBOURS:
        other = NEIGHBOURS[node.op]
        yield dataclasses.replace(node, op=other), f"{node.op} becomes {other}"
    if node.op in SWAPPED_SOURCES:
        src = tuple([node.src[k] for k in SWAPPED_SOURCES[node.op]])
        yield dataclasses.replace(node, src=src), f"operands of {node.op} swapped"
    if node.op in ("NEG", "NOT"):
        yield node.src[0], f"without {node.op}"
    for position, source in enumerate(node.src):
        for inner, change in _variants(source):
            src = (*node.src[:position], inner, *node.src[position + 1 :])
            yield dataclasses.replace(node, src=src), change
    if node.arg is not None:
        for arg, change in _variants(node.arg):
            yield dataclasses.replace(node, arg=arg), change


def _variants_of_application(applied: Apply) -> Iterator[Changed]:
    function, args = applied.function, applied.args
    neighbours = FUNCTION_NEIGHBOURS
    if function == "==" and any(_is_tuple(arg) for arg in args):
        neighbours = {"==": ("!=",)}
    for other in neighbours.get(function, ()):
        yield Apply(other, args), f"{function} becomes {other}"
    if function in SWAPPED_ARGUMENTS and len(args) == 2:
        yield Apply(function, (args[1], args[0])), f"operands of {function} swapped"
    if function in ("neg", "not"):
        yield args[0], f"without {function}"
    for position, arg in enumerate(args):
        for inner, change in _variants(arg):
            yield Apply(function, (*args[:position], inner, *args[position + 1 :])), change


def _is_tuple(expr: Expr) -> bool:
    """Whether an expression is a shape or the arg of a movement, which has no order."""
    return isinstance(expr, Apply) and expr.function in {"shape", *ARG_FUNCTIONS}


# -- a variable that stood twice --------------------------------------------------------------------


def _less_repetition(left: Term) -> Iterator[Changed]:
    """The left side with one use of a variable, after its first, made a variable of its own."""
    names = [leaf.name for leaf in _leaves(left)]
    for position, name in enumerate(names):
        if name in names[:position]:
            yield _renamed(left, position, f"{name}_other")[0], f"{name} is not repeated"


def _leaves(term: Term) -> list[Var | Const]:
    if isinstance(term, Node):
        return [leaf for source in term.src for leaf in _leaves(source)]
    if isinstance(term, Var | Const) and term.type not in ("range", "ranges"):
        return [term]
    return []


def _renamed(term: Term, position: int, name: str) -> tuple[Term, int]:
    """`term` with its leaf number `position` renamed, and the position counted from its end."""
    if isinstance(term, Node):
        src: list[Term] = []
        for source in term.src:
            changed, position = _renamed(source, position, name)
            src.append(changed)
        return dataclasses.replace(term, src=tuple(src)), position
    if isinstance(term, Var | Const) and term.type not in ("range", "ranges"):
        return (dataclasses.replace(term, name=name) if position == 0 else term), position - 1
    return term, position
