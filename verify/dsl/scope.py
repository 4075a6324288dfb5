"""The names of one rule while it is elaborated: what each stands for, and its type slot.

Owns: which names are bound, what a name may be, errors with their position. Does not own: terms and
expressions (terms.py, expressions.py), unification of types (types.py).
"""

from __future__ import annotations

import math
from typing import Any

from lark import Token, Tree

from proofgrad.core.rewrite.rule import Expr, Term
from proofgrad.verify.dsl import names
from proofgrad.verify.dsl.errors import Position, RuleError, Source
from proofgrad.verify.dsl.positions import position_of
from proofgrad.verify.dsl.types import Types

Syntax = Any  # a Tree or Token of lark, whose own types do not tell what a child is
MAX_DIGITS = 100  # no type has more; keeps arithmetic on literals fast


class Scope:
    """Fields: sorts (name -> var, const, arg, number, ranges or type), slots (name -> type slot).

    left_side: names may be bound. in_wrap: inside `{wrap: ...}`. in_loop: the counter of a loop has a
    value, which it has on the left side and in the inputs of extractors. positions: of each part, where it
    is written.
    """

    def __init__(self, domains: tuple[str, ...], source: Source) -> None:
        self.domains = domains
        self.types = Types(domains, source)
        self.sorts: dict[str, str] = {}
        self.slots: dict[str, str] = {}
        self.declared_consts: set[str] = set()
        self.left_side = True
        self.in_loop = True
        self.in_wrap = False
        self.positions: list[tuple[Term | Expr, Position]] = []
        self._source = source

    def bind(self, name: str, sort: str, token: Token) -> None:
        """The name now has this sort; a name has one sort only. Raises: RuleError."""
        known = self.sorts.setdefault(name, sort)
        if known != sort:
            raise self.error(
                token, f"{name!r} is {names.SORTS[known]} and cannot be {names.SORTS[sort]} too"
            )
        if sort in ("var", "const"):
            self.slots.setdefault(name, self.types.fresh(f"{name!r}"))
        if sort == "range":
            self.slots.setdefault(name, self.types.named("index", position_of(token)))

    def is_const_name(self, name: str) -> bool:
        """Whether a name not bound yet is a constant."""
        return name in self.declared_consts or names.CONST_NAME.fullmatch(name) is not None

    def is_term_name(self, tree: Syntax) -> bool:
        """Whether the syntax is the name of a variable for terms."""
        return (
            isinstance(tree, Tree)
            and tree.data == "name"
            and self.sorts.get(str(tree.children[0])) == "var"
        )

    def unbound(self, token: Token) -> RuleError:
        """The error of a name that the left side does not bind."""
        name = str(token)
        bound = ", ".join(sorted(self.sorts)) or "none"
        return self.error(token, f"{name!r} is not bound by the left side; bound names: {bound}")

    def check_count(
        self, function: Token, got: int, *allowed: int, what: str = "arguments"
    ) -> None:
        """Raises: RuleError if a call has another number of arguments."""
        if got not in allowed:
            wanted = " or ".join([str(n) for n in allowed])
            raise self.error(function, f"{str(function)} takes {wanted} {what}, not {got}")

    def literal_number(self, tree: Syntax) -> int | float | None:
        """The number that the syntax is, if it is one."""
        if getattr(tree, "data", "") == "number":
            (token,) = tree.children
            return self.value(token)
        return names.LITERALS["inf"] if is_name(tree, "inf") else None

    def value(self, token: Token) -> int | float:
        """The value of a number token."""
        if len(token) > MAX_DIGITS:
            raise self.error(token, f"a number of more than {MAX_DIGITS} characters")
        value = _number_value(str(token))
        if isinstance(value, float) and _has_left_the_range(value, str(token)):
            raise self.error(
                token, f"{token} is no value of any float; it would be read as {value}"
            )
        return value

    def error(self, syntax: Syntax, reason: str) -> RuleError:
        """An error at a piece of syntax."""
        return RuleError(self._source, position_of(syntax), reason)


def is_name(tree: Syntax, name: str) -> bool:
    """Whether a syntax tree is the bare name `name`."""
    return isinstance(tree, Tree) and tree.data == "name" and tree.children[0] == name


def _number_value(text: str) -> int | float:
    if text.startswith("0x"):
        return int(text, 16)
    return int(text) if text.isdigit() else float(text)


def _has_left_the_range(value: float, text: str) -> bool:
    """Whether a decimal number is too large for float64, or too small to be told from zero."""
    digits = text.lower().partition("e")[0]
    return math.isinf(value) or (value == 0.0 and any([digit in "123456789" for digit in digits]))
