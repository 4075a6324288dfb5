"""Laws of sums among the rules: which rules state them, and whether all that are needed are there.

Owns: LAWS, the laws whose compiled form adding and scaling of sums is (sums.py); which rules say
nothing of a sum in normal form. Does not own: the rules (rules/), their proofs (verify/).

The engine works with sums only where its rule sets state every one of LAWS for index terms and
collect like terms by the extractor `tidy`, whose contract is that both sums are the same. No proof, no
normal form: without one of them, terms are rewritten as trees.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.rewrite.rule import (
    Apply,
    Calc,
    Const,
    Expr,
    Lit,
    Name,
    Node,
    Rule,
    RuleKind,
    Term,
    Var,
)
from proofgrad.core.rewrite.scope import takes

TIDY = "tidy"
_T = "T"
_x, _y, _c, _d = Var("x", _T), Var("y", _T), Const("c", _T), Const("d", _T)


def _node(op: Ops, *src: Term) -> Node:
    return Node(op.name, src, _T)


def _computed(op: Ops, *src: Term) -> Calc:
    return Calc(_node(op, *src), _T, "wrap")


_SUM_OF_CONSTANTS = _computed(Ops.ADD, _c, _d)
_PRODUCT_OF_CONSTANTS = _computed(Ops.MUL, _c, _d)
_scaled = _node(Ops.MUL, _x, _c)

# Left and right side of each law, for every x, y and constants c, d.
LAWS: dict[str, tuple[Node, Term]] = {
    "constants are added": (_node(Ops.ADD, _c, _d), _SUM_OF_CONSTANTS),
    "constants are multiplied": (_node(Ops.MUL, _c, _d), _PRODUCT_OF_CONSTANTS),
    "constants are negated": (_node(Ops.NEG, _c), _computed(Ops.NEG, _c)),
    "0 adds nothing": (_node(Ops.ADD, _x, Lit(0, _T)), _x),
    "1 scales nothing": (_node(Ops.MUL, _x, Lit(1, _T)), _x),
    "0 times a term is 0": (_node(Ops.MUL, _x, Lit(0, _T)), Lit(0, _T)),
    "-1 times a term is its negation": (_node(Ops.MUL, _x, Lit(-1, _T)), _node(Ops.NEG, _x)),
    "factors of a factor": (_node(Ops.MUL, _scaled, _d), _node(Ops.MUL, _x, _PRODUCT_OF_CONSTANTS)),
    "factors of a sum": (
        _node(Ops.MUL, _node(Ops.ADD, _x, _y), _c),
        _node(Ops.ADD, _scaled, _node(Ops.MUL, _y, _c)),
    ),
    "like terms": (
        _node(Ops.ADD, _scaled, _node(Ops.MUL, _x, _d)),
        _node(Ops.MUL, _x, _SUM_OF_CONSTANTS),
    ),
}


def missing_laws(rules: Iterable[Rule]) -> list[str]:
    """The laws of LAWS that no rule of `rules` states for index terms."""
    stated = {_shape(rule) for rule in rules if _is_plain_law(rule)}
    return [name for name, (left, right) in LAWS.items() if unnamed((left, right)) not in stated]


def _is_plain_law(rule: Rule) -> bool:
    """Whether `rule` holds for all index terms, under no condition."""
    return (
        rule.kind is RuleKind.REWRITE
        and not (rule.where or rule.when or rule.extractors)
        and isinstance(rule.left, Node)
        and takes(rule, dtypes.index)
    )


@cache
def _shape(rule: Rule) -> object:
    right = rule.right[0]
    return None if right is None else unnamed((rule.left, right))


def unnamed(parts: Iterable[Term | Expr]) -> object:
    """Sides and conditions of a law with names exchanged for numbers in order of appearance."""
    names: dict[str, str] = {}

    def of(part: object) -> object:
        match part:
            case Var(name, _):
                return ("var", names.setdefault(name, f"n{len(names)}"))
            case Const(name, _) | Name(name):
                return ("constant", names.setdefault(name, f"n{len(names)}"))
            case Lit(value, _):
                return ("literal", value)
            case Node(op, src, _, arg):
                return (op, arg, *[of(source) for source in src])
            case Calc(value, _, _):
                return of(value)
            case Apply(function, args):
                return (function, *[of(arg) for arg in args])
            case _:
                return part

    return tuple([of(part) for part in parts])


def is_collector(rule: Rule) -> bool:
    """Whether `rule` is `x + y => t let (t) = tidy(x + y)`, in any names."""
    if len(rule.extractors) != 1 or rule.where or rule.when or rule.domains != ("index",):
        return False
    (extractor,) = rule.extractors
    left = rule.left
    return (
        isinstance(left, Node)
        and left.op == Ops.ADD.name
        and [type(source) for source in left.src] == [Var, Var]
        and left.src[0] != left.src[1]
        and (extractor.function, extractor.inputs) == (TIDY, (left,))
        and [term.name for term in rule.right if isinstance(term, Var)] == [extractor.outputs[0][0]]
    )


@cache
def is_linear_law(rule: Rule) -> bool:
    """Whether both sides of `rule` have one linear form, so that it says nothing of a sum."""
    if is_collector(rule):
        return True
    return not (rule.extractors or rule.where) and all(
        [_is_linear(term) for term in (rule.left, *rule.right)]
    )


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
