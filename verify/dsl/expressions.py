"""Expressions of rules: mathematical numbers, args of operations, conditions.

Owns: functions of the closed set, comparisons of bounds. Does not own: terms (terms.py), which a
fact such as lo(x) contains.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lark import Token, Tree

from proofgrad.core.rewrite.rule import Apply, Expr, Fact, Name, Num, Term, Var
from proofgrad.verify.dsl import names
from proofgrad.verify.dsl.errors import near
from proofgrad.verify.dsl.positions import position_of
from proofgrad.verify.dsl.scope import Scope, Syntax


class Expressions:
    """Elaborates the expressions of one rule; `term` elaborates a term inside one."""

    def __init__(self, scope: Scope, term: Callable[[Syntax], Term]) -> None:
        self._scope = scope
        self._term = term

    def arg(self, tree: Syntax) -> Expr:
        """The arg of a movement operation or reduction: left a name that it binds."""
        if not self._scope.left_side:
            return self.number(tree)
        if tree.data != "name":
            raise self._scope.error(
                tree, "on the left side an arg is a name; put a condition in `where`"
            )
        token = tree.children[0]
        self._scope.bind(str(token), "arg", token)
        self._scope.positions.append((Name(str(token)), position_of(token)))
        return Name(str(token))

    def number(self, tree: Syntax) -> Expr:
        """A mathematical number, a tuple or a truth value: no bare terms."""
        expr = self._number(tree)
        self._scope.positions.append((expr, position_of(tree)))
        return expr

    def _number(self, tree: Syntax) -> Expr:
        match tree.data:
            case "number":
                return Num(self._scope.value(tree.children[0]))
            case "name":
                return self._named_number(tree.children[0])
            case "prefix":
                return self._prefix_number(tree)
            case "infix":
                return self._infix_number(tree)
            case "call":
                return self._function(tree)
            case _:
                raise self._scope.error(tree, "not a number, a fact or a condition")

    def condition(self, tree: Syntax) -> Expr:
        """A truth value."""
        if tree.data == "infix" and tree.children[1].type == "COMPARE":
            comparison = self._comparison(tree)
            self._scope.positions.append((comparison, position_of(tree)))
            return comparison
        condition = self.number(tree)
        if not isinstance(condition, Apply) or condition.function not in names.TRUTHS:
            raise self._scope.error(
                tree, "a condition must be a comparison or a yes-or-no function"
            )
        return condition

    def _named_number(self, token: Token) -> Expr:
        name = str(token)
        if name in names.LITERALS:
            return Num(names.LITERALS[name])
        sort = self._scope.sorts.get(name)
        if sort is None and (name == "T" or name in names.SINGLE_TYPES):
            return Name(self._scope.types.named(name, position_of(token)))
        if sort is None:
            raise self._scope.unbound(token)
        if sort in ("const", "number", "arg", "type"):
            return Name(name)
        raise self._scope.error(
            token, f"{name!r} is {names.SORTS[sort]}, not a number; lo({name}) and hi({name}) are"
        )

    def _prefix_number(self, tree: Syntax) -> Expr:
        operator, operand = tree.children
        if operator == "-" and (value := self._scope.literal_number(operand)) is not None:
            return Num(-value)
        if operator == "!":
            raise self._scope.error(
                operator, "'!' is an operation on terms; in conditions write not"
            )
        if operator == "not":
            return Apply("not", (self.condition(operand),))
        return Apply("neg", (self.number(operand),))

    def _infix_number(self, tree: Syntax) -> Expr:
        left, operator, right = tree.children
        if operator not in names.NUMBER_INFIX:
            raise self._scope.error(
                operator,
                f"{str(operator)!r} is an operation on terms, not on numbers;"
                " {wrap: ...} computes at the type of its terms",
            )
        if operator in ("and", "or"):
            return Apply(str(operator), (self.condition(left), self.condition(right)))
        return Apply(str(operator), (self.number(left), self.number(right)))

    def _function(self, tree: Syntax) -> Expr:
        function, *args = tree.children
        name = str(function)
        if name not in names.FUNCTIONS:
            raise self._scope.error(
                function, f"unknown function {name!r}; {near(name, names.FUNCTIONS)}"
            )
        count = names.FUNCTIONS[name]
        if name in ("min", "max") and len(args) > 2:
            return self._chain(name, args)
        self._scope.check_count(function, len(args), count)
        if name in names.FACT_FUNCTIONS:
            return Apply(name, tuple([self._fact_argument(a) for a in args]))
        return Apply(name, tuple([self.number(a) for a in args]))

    def _chain(self, name: str, args: list[Any]) -> Expr:
        result = self.number(args[0])
        for tree in args[1:]:
            result = Apply(name, (result, self.number(tree)))
        return result

    def _fact_argument(self, tree: Syntax) -> Expr:
        if isinstance(tree, Tree) and tree.data == "name":
            sort = self._scope.sorts.get(str(tree.children[0]))
            if sort in ("range", "ranges"):
                return Fact(Var(str(tree.children[0]), sort))
        return Fact(self._term(tree))

    def _comparison(self, tree: Syntax) -> Expr:
        """Between numbers, or between bounds of terms: x < c says hi(x) < c."""
        left, operator, right = tree.children
        if operator in (">", ">="):
            left, right = right, left
            operator = "<" if operator == ">" else "<="
        if not (self._scope.is_term_name(left) or self._scope.is_term_name(right)):
            return Apply(str(operator), (self.number(left), self.number(right)))
        match str(operator):
            case "<" | "<=":
                return Apply(str(operator), (self._bound("hi", left), self._bound("lo", right)))
            case "==":
                least = Apply("==", (self._bound("lo", left), self._bound("hi", right)))
                most = Apply("==", (self._bound("hi", left), self._bound("lo", right)))
                return Apply("and", (least, most))
            case _:
                below = Apply("<", (self._bound("hi", left), self._bound("lo", right)))
                above = Apply("<", (self._bound("hi", right), self._bound("lo", left)))
                return Apply("or", (below, above))

    def _bound(self, fact: str, tree: Any) -> Expr:
        if not self._scope.is_term_name(tree):
            return self.number(tree)
        bound = Apply(fact, (Fact(self._term(tree)),))
        self._scope.positions.append((bound, position_of(tree)))
        return bound


def conjuncts(condition: Expr) -> list[Expr]:
    """The conditions that `and` joins."""
    if isinstance(condition, Apply) and condition.function == "and":
        return [part for arg in condition.args for part in conjuncts(arg)]
    return [condition]
