"""Conditions and computed constants of rules as Python expressions over local names.

Owns: that text. Arithmetic is that of core/rewrite/functions.py; an operation that is not written
in line is called under its name there. Does not own: what the names stand for (the caller says).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proofgrad.core.rewrite.functions import NUMBER_FUNCTIONS
from proofgrad.core.rewrite.rule import (
    Apply,
    Calc,
    Const,
    Expr,
    Fact,
    Lit,
    Name,
    Node,
    Num,
    Term,
    Var,
)

INLINE = ("+", "-", "*", "<", "<=", ">", ">=", "==", "!=")
CALLED = {"//": "floordiv", "%": "modulo", "min": "min", "max": "max", "abs": "abs",
          "gcd": "gcd", "divides": "divides", "is_power_of_two": "is_power_of_two",
          "log2_exact": "log2_exact"}  # fmt: skip
OPERATORS = {"ADD": "+", "MUL": "*", "CMPLT": "<", "CMPEQ": "=="}
FUNCTIONS = {"FLOORDIV": "floordiv", "MOD": "modulo", "MIN": "min", "MAX": "max"}
LIBRARY: dict[str, Any] = {code: NUMBER_FUNCTIONS[name] for name, code in CALLED.items()}

Bound = Callable[
    [str, str], str
]  # ("lo" or "hi", a variable of the rule) -> a local name or number


class NoCode(Exception):
    """An expression or a term that has no text here; its rule is matched as a tree."""


class Expressions:
    """Text of expressions; `numbers` are the rule's names.

    `bound` gives lo and hi of its terms, `divisor` the text of what divides one.
    """

    def __init__(
        self, numbers: dict[str, str], bound: Bound, divisor: Callable[[str], str] | None = None
    ) -> None:
        self.numbers = numbers
        self._bound = bound
        self._divisor = divisor

    def value(self, expr: Expr) -> tuple[str, set[str]]:
        """The text of a number, and the local names in it that may be None. Raises: NoCode."""
        unknown: set[str] = set()
        return self._text(expr, unknown), unknown

    def computed(self, calc: Calc) -> tuple[str, set[str]]:
        """As `value`, of a computed constant at index, where nothing wraps. Raises: NoCode."""
        if calc.mode == "wrap":
            return self._constant(calc.computed), set()
        return self.value(calc.number)

    def _constant(self, term: Term) -> str:
        """The text of a term over constants."""
        match term:
            case Lit(value, _) if type(value) is int:
                return f"({value})"
            case Const(name, _) if name in self.numbers:
                return self.numbers[name]
            case Node("NEG", (inner,)):
                return f"(-{self._constant(inner)})"
            case Node(op, (a, b)) if op in OPERATORS:
                return f"({self._constant(a)} {OPERATORS[op]} {self._constant(b)})"
            case Node(op, (a, b)) if op in FUNCTIONS:
                return f"{FUNCTIONS[op]}({self._constant(a)}, {self._constant(b)})"
            case _:
                raise NoCode(f"no code for {term!r}")

    def condition(self, expr: Expr) -> str:
        """Text that is true only if `expr` surely is: an unknown bound makes it false."""
        match expr:
            case Apply("or", parts):
                return "(" + " or ".join([self.condition(part) for part in parts]) + ")"
            case Apply("and", parts):
                return "(" + " and ".join([self.condition(part) for part in parts]) + ")"
            case _:
                text, unknown = self.value(expr)
                return known(unknown, text)

    def _text(self, expr: Expr, unknown: set[str]) -> str:
        match expr:
            case Num(value) if type(value) is int:
                return str(value) if value >= 0 else f"({value})"
            case Name(name) if name in self.numbers:
                return self.numbers[name]
            case Apply(("lo" | "hi") as side, (Fact(Var(name, _) | Const(name, _)),)):
                local = self._bound(side, name)
                if local.isidentifier():
                    unknown.add(local)
                return local
            case Apply("divisor", (Fact(Var(name, _)),)) if self._divisor is not None:
                return self._divisor(name)
            case Apply("not", (part,)):
                return f"(not {self._text(part, unknown)})"
            case Apply(("and" | "or") as word, parts):
                return "(" + f" {word} ".join([self._text(p, unknown) for p in parts]) + ")"
            case Apply("neg", (part,)):
                return f"(-{self._text(part, unknown)})"
            case Apply(function, (a, b)) if function in INLINE:
                return f"({self._text(a, unknown)} {function} {self._text(b, unknown)})"
            case Apply(function, parts) if function in CALLED:
                inner = ", ".join([self._text(part, unknown) for part in parts])
                return f"{CALLED[function]}({inner})"
            case _:
                raise NoCode(f"no code for {expr!r}")


def known(unknown: set[str], text: str) -> str:
    """`text`, where none of the names `unknown` is None; else false."""
    return " and ".join([*[f"{name} is not None" for name in sorted(unknown)], text])
