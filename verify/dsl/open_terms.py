"""Terms that users ask about: `(x // 4) // 8 + y over index where 0 <= x < 100`.

Owns: the domain, the type and the bounds that such a text gives to its names. Does not own: terms
(terms.py), what is done with them (verify/explain/steps_of_terms.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lark import Token, Tree

from proofgrad.core.ir.dtypes import DType, dtype_named, dtypes
from proofgrad.core.rewrite.functions import DOMAIN_TYPES
from proofgrad.core.rewrite.rule import Term
from proofgrad.verify.dsl import names
from proofgrad.verify.dsl.errors import RuleError, Source, near
from proofgrad.verify.dsl.positions import position_of
from proofgrad.verify.dsl.scope import Scope, Syntax
from proofgrad.verify.dsl.terms import Terms

DEFAULT_DOMAIN = "index"
_USUAL_TYPES = {
    "int": dtypes.int32,
    "signed": dtypes.int32,
    "unsigned": dtypes.uint32,
    "float": dtypes.float32,
    "cast": dtypes.int32,
}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "=="}

Bounds = dict[str, tuple[int | None, int | None]]


@dataclass(frozen=True, slots=True)
class OpenTerm:
    """A term, the type that "T" stands for in it, and the bounds of its names, ends included."""

    term: Term
    dtype: DType
    bounds: Bounds

    def dtype_of(self, type_: str) -> DType:
        """The type that a type of the term stands for."""
        return dtype_named(type_) if type_ not in ("T", "domain") else self.dtype


def open_term(tree: Syntax, source: Source) -> OpenTerm:
    """Raises: RuleError."""
    body, *rest = tree.children
    token = rest.pop(0) if rest and isinstance(rest[0], Token) else None
    dtype = _dtype(token, source)
    scope = Scope((dtype.name,), source)
    term = Terms(scope).term(body)
    scope.types.finish(term.type, position_of(tree))
    (settled,) = scope.types.resolve((term,))
    bounds: Bounds = {}
    for given in rest:
        _narrow(given, scope, bounds)
    return OpenTerm(settled, dtype, bounds)


def _dtype(token: Token | None, source: Source) -> DType:
    domain = DEFAULT_DOMAIN if token is None else str(token)
    if domain in _USUAL_TYPES:
        return _USUAL_TYPES[domain]
    if token is not None and domain not in DOMAIN_TYPES:
        reason = f"no domain of single values is called {domain!r}; {near(domain, DOMAIN_TYPES)}"
        raise RuleError(source, position_of(token), reason)
    return DOMAIN_TYPES[domain][0]


def _narrow(given: Tree[Token], scope: Scope, bounds: Bounds) -> None:
    """One comparison of a name with numbers, such as 0 <= x < 100."""
    parts = given.children
    for first, operator, second in zip(parts[0::2], parts[1::2], parts[2::2]):
        symbol = str(operator)
        if not _is_name(first):
            first, second, symbol = second, first, _TURNED.get(symbol, symbol)
        number = scope.literal_number(second) if _is_name(first) else None
        if number is None and _is_name(first):
            number = _negative(second, scope)
        if not isinstance(number, int) or symbol not in _TURNED:
            raise scope.error(given, "compare one name with integers here, as in 0 <= x < 100")
        name = str(first.children[0])  # type: ignore[union-attr]
        if scope.sorts.get(name) not in ("var", "const"):
            raise scope.error(given, f"the term has no name {name!r}")
        low, high = bounds.get(name, (None, None))
        new_low, new_high = _interval(symbol, number)
        bounds[name] = (_tighter(max, low, new_low), _tighter(min, high, new_high))


def _is_name(tree: Syntax) -> bool:
    return isinstance(tree, Tree) and tree.data == "name" and tree.children[0] not in names.LITERALS


def _negative(tree: Syntax, scope: Scope) -> int | float | None:
    if isinstance(tree, Tree) and tree.data == "prefix" and tree.children[0] == "-":
        number = scope.literal_number(tree.children[1])
        return None if number is None else -number
    return None


def _interval(symbol: str, number: int) -> tuple[int | None, int | None]:
    match symbol:
        case "<":
            return None, number - 1
        case "<=":
            return None, number
        case ">":
            return number + 1, None
        case ">=":
            return number, None
        case _:
            return number, number


def _tighter(choose: Callable[[int, int], int], a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else choose(a, b)
