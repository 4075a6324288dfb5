"""What the data of a rule may be, checked before anything is made of a rule that comes from a file.

Owns: which names, numbers, texts and parts a rule has. Does not own: whether it is true (verify/), the
JSON form (rule.py), the rest of a ledger (ledger.py).

Names are identifiers of ordinary length; operations, functions and extractors are those that there are;
each part stands where its kind may stand. Code that is made from rules relies on it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from proofgrad.core.ir.ops import Ops
from proofgrad.core.rewrite.extractors import CONTRACTS
from proofgrad.core.rewrite.functions import (
    ARG_FUNCTIONS,
    DOMAIN_TYPES,
    FACTS,
    NUMBER_FUNCTIONS,
    TYPE_CLASSES,
    TYPE_FUNCTIONS,
    TYPE_NUMBERS,
)
from proofgrad.core.rewrite.rule import (
    NUMBER_KINDS,
    Apply,
    Calc,
    Const,
    Extractor,
    Fact,
    Instance,
    Lit,
    Name,
    Node,
    Num,
    Rule,
    RuleKind,
    Text,
    Var,
)
from proofgrad.core.rewrite.sorts import check_sorts

MOST_LETTERS = 100  # of a name
MOST_BITS = 4096  # of a number
MOST_DEPTH = 200  # of terms and expressions in each other
MOST_TEXT = 100_000  # characters of what is written for people

_is_name = re.compile(rf"[A-Za-z_][A-Za-z_0-9]{{0,{MOST_LETTERS - 1}}}", re.ASCII).fullmatch
_OPS = frozenset(Ops.__members__)
_FUNCTIONS = frozenset({*NUMBER_FUNCTIONS, *FACTS, *TYPE_FUNCTIONS, *TYPE_NUMBERS, *ARG_FUNCTIONS})
_DOMAINS = frozenset({*DOMAIN_TYPES, "tensor", "loop", "derivative"})
_CLASSES = frozenset({*TYPE_CLASSES, "domain"})
_MODES = ("exact", "wrap")
_SORTS = ("term", "number", "truth")


def check_rule(rule: Rule) -> Rule:
    """The rule, if each part of it is what it may be. Raises: ValueError."""
    for name in (rule.name, rule.ruleset):
        _check_name(name)
    if not isinstance(rule.kind, RuleKind):
        raise ValueError(f"{_shown(rule.kind)} is no kind of rule")
    for domain in _tuple(rule.domains):
        if domain not in _DOMAINS:
            raise ValueError(f"{_shown(domain)} is no domain")
    for pair in _tuple(rule.types):
        name, kind = _pair(pair)
        _check_name(name)
        if kind not in _CLASSES:
            raise ValueError(f"{_shown(kind)} is no class of types")
    if not isinstance(rule.left, Node | Var):
        raise ValueError(f"{_shown(rule.left)} is no left side")
    _check_term(rule.left, 0)
    for term in _tuple(rule.right):
        if term is not None:
            _check_term(term, 0)
    if rule.kind in NUMBER_KINDS and not all([isinstance(end, Calc) for end in rule.right]):
        raise ValueError("a right side is no number")
    if rule.kind is RuleKind.REWRITE and None in rule.right:
        raise ValueError("there is no right side")
    if len(rule.right) != _results(rule):
        raise ValueError(f"{len(rule.right)} right sides, where there are {_results(rule)}")
    for condition in (*_tuple(rule.where), *_tuple(rule.when)):
        _check_expr(condition, 0)
    for extractor in _tuple(rule.extractors):
        _check_extractor(extractor)
    for text in (rule.text, rule.doc, *_tuple(rule.examples)):
        check_text(text)
    _check_number(rule.line)
    check_sorts(rule)
    return rule


def check_text(text: object) -> None:
    """Raises: ValueError for what people cannot read."""
    if type(text) is not str or len(text) > MOST_TEXT:
        raise ValueError(f"{_shown(text)} is no text")
    if not text.isprintable() and not all(c.isprintable() or c in "\n\r\t" for c in text):
        raise ValueError(f"{_shown(text)} has letters that nobody can see")


def _results(rule: Rule) -> int:
    """How many right sides a rule has."""
    match rule.kind:
        case RuleKind.REWRITE:
            return 1
        case RuleKind.COTANGENT:
            return len(rule.left.src) if isinstance(rule.left, Node) else 0
        case kind:
            return NUMBER_KINDS.get(kind, 0)


# -- parts -----------------------------------------------------------------------------------------


def _check_term(term: Any, depth: int) -> None:
    check = _TERMS.get(type(term))
    if check is None or depth > MOST_DEPTH:
        raise ValueError(f"{_shown(term)} is no term, or too deep")
    check(term, depth + 1)


def _check_variable(term: Any, _: int) -> None:
    _check_name(term.name)
    _check_name(term.type)


def _check_literal(term: Any, _: int) -> None:
    _check_number(term.value)
    _check_name(term.type)


def _check_node(term: Any, depth: int) -> None:
    if type(term.op) is not str or term.op not in _OPS:
        raise ValueError(f"{_shown(term.op)} is no operation")
    _check_name(term.type)
    for source in _tuple(term.src):
        _check_term(source, depth)
    if term.arg is not None:
        _check_expr(term.arg, depth)


def _check_computed(term: Any, depth: int) -> None:
    if term.mode not in _MODES:
        raise ValueError(f"{_shown(term.mode)} is no way to compute a constant")
    _check_name(term.type)
    (_check_term if term.mode == "wrap" else _check_expr)(term.value, depth)


def _check_instance(term: Any, depth: int) -> None:
    for name in (term.name, term.type, term.counter):
        _check_name(name)
    _check_term(term.value, depth)


def _check_expr(expr: Any, depth: int) -> None:
    check = _EXPRESSIONS.get(type(expr))
    if check is None or depth > MOST_DEPTH:
        raise ValueError(f"{_shown(expr)} is no expression, or too deep")
    check(expr, depth + 1)


def _check_apply(expr: Any, depth: int) -> None:
    if type(expr.function) is not str or expr.function not in _FUNCTIONS:
        raise ValueError(f"{_shown(expr.function)} is no function of rules")
    for part in _tuple(expr.args):
        _check_expr(part, depth)


def _check_extractor(extractor: Any) -> None:
    if (
        type(extractor) is not Extractor
        or type(extractor.function) is not str
        or extractor.function not in CONTRACTS
    ):
        raise ValueError(f"{_shown(extractor)} is no extractor")
    contract = CONTRACTS[extractor.function]
    counts = (len(_tuple(extractor.inputs)), len(_tuple(extractor.outputs)))
    if counts != (len(contract.inputs), len(contract.outputs)):
        raise ValueError(f"the extractor {extractor.function} has other inputs and outputs")
    for given in extractor.inputs:
        (_check_term if type(given) in _TERMS else _check_expr)(given, 0)
    for output in extractor.outputs:
        name, sort = _pair(output)
        _check_name(name)
        if sort not in _SORTS:
            raise ValueError(f"{_shown(sort)} is no sort")


_Check = Callable[[Any, int], None]
_TERMS: dict[type, _Check] = {
    Var: _check_variable,
    Const: _check_variable,
    Lit: _check_literal,
    Node: _check_node,
    Calc: _check_computed,
    Instance: _check_instance,
}
_EXPRESSIONS: dict[type, _Check] = {
    Num: lambda expr, _: _check_number(expr.value),
    Name: lambda expr, _: _check_name(expr.name),
    Apply: _check_apply,
    Fact: lambda expr, depth: _check_term(expr.term, depth),
    Text: lambda expr, _: _check_name(expr.value),
}


def _check_name(name: object) -> None:
    if type(name) is not str or _is_name(name) is None:
        raise ValueError(f"{_shown(name)} is no name")


def _check_number(value: object) -> None:
    if type(value) is int:
        if value.bit_length() > MOST_BITS:
            raise ValueError(f"a number of {value.bit_length()} bits, more than {MOST_BITS}")
    elif type(value) is not float and type(value) is not bool:
        raise ValueError(f"{_shown(value)} is no number")


def _tuple(value: Any) -> tuple[Any, ...]:
    if type(value) is not tuple:
        raise ValueError(f"{_shown(value)} is no list")
    return value


def _pair(value: Any) -> tuple[Any, Any]:
    if len(_tuple(value)) != 2:
        raise ValueError(f"{_shown(value)} is no pair")
    first, second = value
    return first, second


def _shown(value: object) -> str:
    """The beginning of what is wrong; `repr` of a deep tuple would not end."""
    return repr(value[:40]) if isinstance(value, str) else f"a {type(value).__name__}"
