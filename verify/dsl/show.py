"""Rules, terms and expressions as text again: what parse_rules reads back to the same objects.

Does not own: the text a user wrote (Rule.text), layout of whole files.
"""

from __future__ import annotations

import math
from typing import assert_never

from proofgrad.core.rewrite.rule import (
    NUMBER_KINDS,
    Apply,
    Calc,
    Const,
    Expr,
    Extractor,
    Fact,
    Instance,
    Lit,
    Name,
    Node,
    Num,
    Rule,
    RuleKind,
    Term,
    Text,
    Var,
)
from proofgrad.verify.dsl import names

# Binding strength, as in grammar.lark; an operand that binds less gets parentheses.
_STRENGTH = {
    "or": 1, "and": 2, "not": 3, "<": 4, "<=": 4, ">": 4, ">=": 4, "==": 4, "!=": 4, "|": 5,
    "^": 6, "&": 7, "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "//": 10, "%": 10,
}  # fmt: skip
_TYPED, _PREFIX, _ATOM = 0, 11, 12
_KEYWORDS = {RuleKind.REWRITE: "rule", RuleKind.COTANGENT: "cotangent", RuleKind.BOUNDS: "bounds"}
_INFIX = {op: symbol for symbol, op in names.INFIX_OPS.items()}
_CALLS = names.CALL_NAMES
_ARGS = {op: name for name, op in names.MOVEMENT_OPS.items()}
_CASTS = {op: name for name, op in names.CAST_OPS.items()}
_REDUCTIONS = {op: name for name, op in names.REDUCE_OPS.items()}
_DEFAULT_TYPES = frozenset({("T", "domain"), ("T", "any"), ("T", "float")})

Shown = tuple[str, int]  # text and how strongly its outermost operator binds


def show_rule(rule: Rule) -> str:
    """The rule in one line. Example: 'rule add_zero over int: x + 0 => x'."""
    keyword = _KEYWORDS.get(rule.kind, "fact")
    head = f"{keyword} {rule.name}{_params(rule)} over {', '.join(rule.domains)}"
    annotated = _Annotations(rule)
    left = annotated.term(rule.left)
    right = ", ".join(["none" if t is None else _right(t, rule, annotated) for t in rule.right])
    match rule.kind:
        case RuleKind.REWRITE:
            body = f"{left} => {right}"
        case RuleKind.COTANGENT:
            body = f"{left}, g => {right}"
        case RuleKind.BOUNDS:
            body = f"{left} in [{right}]"
        case RuleKind.BITS:
            body = f"bits({left}) in [{right}]"
        case RuleKind.DIVISOR:
            body = f"divisor({left}) is {right}"
        case RuleKind.FINITE | RuleKind.NOT_NAN:
            body = f"{rule.kind.value}({left})"
        case _:
            assert_never(rule.kind)
    return f"{head}: {body}{_clauses(rule)}"


def show_file(name: str, domains: tuple[str, ...], rules: tuple[Rule, ...]) -> str:
    """A rule file that parses to `rules`, whose positions and doc strings apart."""
    lines = [show_rule(rule) for rule in rules]
    return "\n".join([f"ruleset {name} over {', '.join(domains)}", *lines, ""])


def show_term(term: Term) -> str:
    """A term in infix notation, without types. Example: 'x // c + -y'."""
    return _Annotations(None).term(term)


def show_expr(expr: Expr) -> str:
    """A number, an arg or a condition. Example: 'hi(x) < c'."""
    return _expr(expr)[0]


# -- parts of a rule -----------------------------------------------------------------------------


def _params(rule: Rule) -> str:
    declared = [f"{name} in {kind}" for name, kind in rule.types if _is_declared(name, kind, rule)]
    declared += [f"const {name}" for name in _unusual_constants(rule.left)]
    return f" ({', '.join(declared)})" if declared else ""


def _is_declared(name: str, kind: str, rule: Rule) -> bool:
    default = names.STRUCTURAL_DOMAINS.get(rule.domains[0], "domain")
    return not (name == "T" and kind == default)


def _unusual_constants(term: Term) -> list[str]:
    found = [t.name for t in _walk(term) if isinstance(t, Const)]
    return sorted({n for n in found if not names.CONST_NAME.fullmatch(n)})


def _right(term: Term, rule: Rule, annotated: _Annotations) -> str:
    if rule.kind in NUMBER_KINDS:
        assert isinstance(term, Calc)
        return show_expr(term.number)
    return annotated.term(term)


def _clauses(rule: Rule) -> str:
    extractors = "".join([f" let {_extractor(extractor)}" for extractor in rule.extractors])
    where = f" where {', '.join([show_expr(c) for c in rule.where])}" if rule.where else ""
    when = f" when {', '.join([show_expr(c) for c in rule.when])}" if rule.when else ""
    return extractors + where + when


def _extractor(extractor: Extractor) -> str:
    outputs = ", ".join([name for name, _ in extractor.outputs])
    inputs = ", ".join([_input(part) for part in extractor.inputs])
    return f"({outputs}) = {extractor.function}({inputs})"


def _input(part: Term | Expr) -> str:
    if isinstance(part, Var | Const | Lit | Node | Calc | Instance):
        return show_term(part)
    return show_expr(part)


def _walk(term: Term) -> list[Term]:
    found = [term]
    for part in found:
        if isinstance(part, Node):
            found.extend(part.src)
    return found


# -- terms ---------------------------------------------------------------------------------------


class _Annotations:
    """Shows terms; those of a rule with the type of each name at its first use, and of literals.

    Most of these types would be inferred, but to say them is never wrong.
    """

    def __init__(self, rule: Rule | None) -> None:
        self._said: set[str] | None = set() if rule is not None else None
        self._hiders = 0  # and casts around this term: they hide the type from the outside

    def term(self, term: Term) -> str:
        return self._inside(term, _TYPED + 1)

    def argument(self, term: Term) -> str:
        """As in a call, where x: T needs no parentheses."""
        return self._shown(term)[0]

    def _shown(self, term: Term) -> Shown:
        match term:
            case Var(name, type_) | Const(name, type_):
                return self._named(name, type_)
            case Lit(value, type_):
                return self._literal(value, type_)
            case Calc(_, type_, mode):
                computed = mode == "wrap"
                inside = (
                    f"wrap: {self._computed(term.computed)}" if computed else show_expr(term.number)
                )
                if self._said is None or not self._hiders:
                    return f"{{{inside}}}", _ATOM
                return f"{{{inside}}}: {type_}", _TYPED
            case Instance(name, _, counter, value):
                return f"{name}[{counter} := {self.term(value)}]", _ATOM
            case Node():
                return self._node(term)

    def _computed(self, value: Term) -> str:
        """The inside of `{wrap: ...}`: nothing around it settles the types of its literals."""
        self._hiders += 1
        shown = self.term(value)
        self._hiders -= 1
        return shown

    def _named(self, name: str, type_: str) -> Shown:
        if self._said is None or name in self._said or type_ in ("range", "ranges"):
            return name, _ATOM
        self._said.add(name)
        return f"{name}: {type_}", _TYPED

    def _literal(self, value: float | bool, type_: str) -> Shown:
        text = _number(value)
        if self._said is None or isinstance(value, bool):
            return text, _ATOM if text[0] != "-" else _PREFIX
        return f"{text}: {type_}", _TYPED

    def _node(self, node: Node) -> Shown:
        op, src = node.op, node.src
        if op == "NEG":
            # -(3) is a negated literal, not the literal -3, which (3: T) keeps apart
            return "-" + self._inside(src[0], _PREFIX), _PREFIX
        if op == "NOT":
            return "!" + self._inside(src[0], _PREFIX), _PREFIX
        if op in _INFIX:
            strength = _STRENGTH[_INFIX[op]]
            compares = op in ("CMPLT", "CMPEQ")
            self._hiders += compares
            left = self._inside(src[0], strength + compares)
            right = self._inside(src[1], strength + 1)
            self._hiders -= compares
            return f"{left} {_INFIX[op]} {right}", strength
        if op in _CASTS:
            self._hiders += 1  # a cast hides the type too
            value = self.argument(src[0])
            self._hiders -= 1
            return f"{_CASTS[op]}({value}, {node.type})", _ATOM
        if op in _ARGS:
            arg = "" if node.arg is None else show_expr(node.arg)
            return f"{_ARGS[op]}({self.argument(src[0])}, {arg})", _ATOM
        if op in ("REDUCE", "REDUCE_AXIS"):
            return self._reduction(node), _ATOM
        return f"{_CALLS[op]}({', '.join([self.argument(s) for s in src])})", _ATOM

    def _reduction(self, node: Node) -> str:
        inside = [s.name for s in node.src[1:] if isinstance(s, Var)]
        op = node.arg
        if isinstance(op, Apply):
            op, axes = op.args
            inside = [show_expr(axes)]
        if isinstance(op, Text):
            return f"{_REDUCTIONS[op.value]}[{', '.join(inside)}]({self.argument(node.src[0])})"
        assert op is not None
        return f"fold[{', '.join([show_expr(op), *inside])}]({self.argument(node.src[0])})"

    def _inside(self, term: Term, least: int) -> str:
        text, strength = self._shown(term)
        return text if strength >= least else f"({text})"


def _number(value: float | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return repr(value)


# -- expressions ---------------------------------------------------------------------------------


def _expr(expr: Expr) -> Shown:
    match expr:
        case Num(value):
            text = _number(value)
            return text, _ATOM if text[0] != "-" else _PREFIX
        case Name(name):
            return name, _ATOM
        case Text(value):
            return value, _ATOM
        case Fact(term):
            return show_term(term), _ATOM
        case Apply(function, args):
            return _applied(function, args)


def _applied(function: str, args: tuple[Expr, ...]) -> Shown:
    if function == "neg":
        inner = f"({show_expr(args[0])})" if isinstance(args[0], Num) else _within(args[0], _PREFIX)
        return "-" + inner, _PREFIX
    if function == "not":
        return "not " + _within(args[0], _STRENGTH["not"]), _STRENGTH["not"]
    if function in _STRENGTH:
        strength = _STRENGTH[function]
        compares = strength == _STRENGTH["<"]
        left = _within(args[0], strength + 1 if compares else strength)
        return f"{left} {function} {_within(args[1], strength + 1)}", strength
    return f"{function}({', '.join([show_expr(a) for a in args])})", _ATOM


def _within(expr: Expr, least: int) -> str:
    text, strength = _expr(expr)
    return text if strength >= least else f"({text})"
