"""Terms of rules: nodes, literals, computed constants, and the sugar for them.

Owns: x - y, x != y, x <= y, x > y as operations; binding of names on the left side. Does not own:
expressions inside terms (expressions.py), types (types.py).
"""

from __future__ import annotations

from lark import Token, Tree

from proofgrad.core.ir.ops import APPROXIMATED, Ops
from proofgrad.core.rewrite.functions import COMPUTABLE
from proofgrad.core.rewrite.rule import (
    Apply,
    Calc,
    Const,
    Expr,
    Instance,
    Lit,
    Name,
    Node,
    Term,
    Text,
    Var,
)
from proofgrad.verify.dsl import names
from proofgrad.verify.dsl.errors import near
from proofgrad.verify.dsl.expressions import Expressions
from proofgrad.verify.dsl.positions import position_of
from proofgrad.verify.dsl.scope import Scope, Syntax


class Terms:
    """Elaborates the terms of one rule. `expressions` does the same for what stands in them."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self.expressions = Expressions(scope, self.term)

    def term(self, tree: Syntax, slot: str = "") -> Term:
        """A node, name or constant; `slot` is the type that a computed constant takes."""
        term = self._said(tree, slot)
        self._scope.positions.append((term, position_of(tree)))
        return term

    def _said(self, tree: Syntax, slot: str) -> Term:
        match tree.data:
            case "number":
                return self._literal(self._scope.value(tree.children[0]), tree)
            case "name":
                return self._named_term(tree, slot)
            case "typed":
                return self._annotated(tree)
            case "prefix":
                return self._prefix(tree)
            case "infix":
                return self._infix(tree)
            case "call":
                return self._call(tree)
            case "reduction":
                return self._reduction(tree)
            case "instance":
                return self._instance(tree)
            case "exact" | "wrap":
                return self._calc(tree, slot)
            case _:
                raise self._scope.error(tree, "not a term")

    def _literal(self, value: int | float | bool, tree: Syntax) -> Lit:
        return Lit(value, self._scope.types.literal(value, position_of(tree)))

    def _named_term(self, tree: Syntax, slot: str) -> Term:
        token = tree.children[0]
        name = str(token)
        if name in names.LITERALS:
            return self._literal(names.LITERALS[name], tree)
        sort = self._scope.sorts.get(name)
        if sort is None:
            if not self._scope.left_side:
                raise self._scope.unbound(token)
            sort = "const" if self._scope.is_const_name(name) else "var"
            self._scope.bind(name, sort, token)
        match sort:
            case "var":
                return Var(name, self._scope.slots[name])
            case "const":
                return Const(name, self._scope.slots[name])
            case "number":
                return Calc(Name(name), slot or self._scope.slots[name])
            case "range" if self._scope.in_loop:
                return Var(name, self._scope.slots[name])
            case "range":
                raise self._scope.error(
                    token, f"outside of its loop {name!r} has no value; say x[{name} := ...]"
                )
            case _:
                raise self._scope.error(token, f"{name!r} is {names.SORTS[sort]}, not a term")

    def _annotated(self, tree: Syntax) -> Term:
        term = self.term(tree.children[0])
        self._scope.types.unify(term.type, self._type(tree.children[1]), position_of(tree))
        return term

    def _prefix(self, tree: Syntax) -> Term:
        operator, operand = tree.children
        if operator == "-" and (value := self._scope.literal_number(operand)) is not None:
            return self._literal(-value, tree)
        if operator == "not":
            raise self._scope.error(operator, "'not' belongs to conditions; the operation is !x")
        term = self.term(operand)
        return self._node(names.PREFIX_OPS[str(operator)], (term,), tree)

    def _infix(self, tree: Syntax) -> Term:
        left_tree, operator, right_tree = tree.children
        if operator in ("and", "or"):
            raise self._scope.error(
                operator, f"{str(operator)!r} belongs to conditions; use & or |"
            )
        left = self.term(left_tree)
        if operator == "-":
            return self._node("ADD", (left, self._negated(right_tree)), tree)
        right = self.term(right_tree)
        match str(operator):
            case "!=":
                return self._node("NOT", (self._node("CMPEQ", (left, right), tree),), tree)
            case ">":
                return self._node("CMPLT", (right, left), tree)
            case "<=" | ">=":
                ends = (right, left) if operator == "<=" else (left, right)
                self._scope.types.forbid_floats(left.type, position_of(operator))
                return self._node("NOT", (self._node("CMPLT", ends, tree),), tree)
            case symbol:
                return self._node(names.INFIX_OPS[symbol], (left, right), tree)

    def _negated(self, tree: Syntax) -> Term:
        value = self._scope.literal_number(tree)
        # Not in {wrap: c - 1}: at an unsigned type the literal -1 would not fit.
        if value is not None and not self._scope.in_wrap:
            return self._literal(-value, tree)
        return self._node("NEG", (self.term(tree),), tree)

    def _call(self, tree: Syntax) -> Term:
        function, *args = tree.children
        name = str(function)
        if name in names.CAST_OPS:
            self._scope.check_count(function, len(args), 2)
            value = self.term(args[0])
            made = self._scope.types.cast(value.type, self._type(args[1]), position_of(tree))
            return Node(names.CAST_OPS[name], (value,), made)
        if name in names.WHOLE_OPS:
            self._check_whole(function)
        if name in names.MOVEMENT_OPS:
            self._scope.check_count(function, len(args), 2)
            value = self.term(args[0])
            return Node(
                names.MOVEMENT_OPS[name], (value,), value.type, self.expressions.arg(args[1])
            )
        if name in names.CALL_OPS:
            op, counts = names.CALL_OPS[name]
            self._scope.check_count(function, len(args), *counts)
            return self._node(op, tuple([self.term(a) for a in args]), tree)
        if name in names.FUNCTIONS:
            raise self._scope.error(
                function,
                f"{name!r} is a function of numbers and facts, which stand in conditions and in {{...}}; terms, as those of"
                " {wrap: ...}, have operations",
            )
        known = [*names.CAST_OPS, *names.MOVEMENT_OPS, *names.CALL_OPS]
        raise self._scope.error(function, f"unknown operation {name!r}; {near(name, known)}")

    def _reduction(self, tree: Syntax) -> Term:
        function, *inside, body = tree.children
        over_loop = self._scope.domains == ("loop",)
        op: Expr
        if function in names.REDUCE_OPS:
            op = Text(names.REDUCE_OPS[str(function)])
        elif function == "fold" and inside and not over_loop:
            op = self.expressions.arg(inside.pop(0))
        else:
            raise self._scope.error(
                function,
                f"unknown reduction {str(function)!r}; {near(str(function), names.REDUCE_OPS)}",
            )
        if over_loop:
            ranges = self._loops(inside)
            value = self.term(body)
            if isinstance(op, Text):
                self._scope.types.takes(value.type, op.value, position_of(tree))
                self._scope.types.takes(value.type, f"{op.value}[]", position_of(tree))
            return Node("REDUCE", (value, *ranges), value.type, op)
        self._check_whole(function, "loop")
        self._scope.check_count(function, len(inside), 1, what="axes")
        value = self.term(body)
        axes = self.expressions.arg(inside[0])
        return Node("REDUCE_AXIS", (value,), value.type, Apply("pair", (op, axes)))

    def _check_whole(self, function: Token, *others: str) -> None:
        """Refuse an operation on whole tensors in a rule about elements. `others`: domains that know it too."""
        if self._scope.domains[0] not in names.WHOLE_DOMAINS:
            domains = " or ".join([f"`over {domain}`" for domain in ("tensor", *others)])
            raise self._scope.error(
                function,
                f"{str(function)!r} is no operation on elements of {', '.join(self._scope.domains)};"
                f" say {domains}",
            )

    def _loops(self, inside: list[Syntax]) -> tuple[Var, ...]:
        """What stands in the brackets of a reduction: nothing, R, r, or r, R."""
        if not inside:
            return ()
        *named, last = [self._ranges(tree) for tree in inside]
        if len(named) > 1 or (named and (named[0].type, last.type) != ("range", "ranges")):
            raise self._scope.error(
                inside[0],
                "a reduction is over R, all its loops; over r, its only one; or over r, R, one of"
                " them and the others",
            )
        return (*named, last)

    def _ranges(self, tree: Syntax) -> Var:
        token = tree.children[0]
        if tree.data != "name":
            raise self._scope.error(tree, "the loops of a reduction are names: R, r, or r, R")
        sort = "ranges" if str(token)[0].isupper() else "range"
        if str(token) not in self._scope.sorts:
            if not self._scope.left_side:
                raise self._scope.unbound(token)
            self._scope.bind(str(token), sort, token)
        elif self._scope.sorts[str(token)] != sort or not (self._scope.in_loop or sort == "ranges"):
            raise self._scope.error(tree, f"{str(token)!r} is no loop of this reduction")
        return Var(str(token), sort)

    def _instance(self, tree: Syntax) -> Instance:
        """v[r := x]: the variable v of the left side, with x for the range or the truth r."""
        variable, counter, value = tree.children
        if self._scope.left_side:
            raise self._scope.error(tree, "v[r := x] belongs to the right side")
        sort = self._scope.sorts.get(str(counter))
        if sort not in ("range", "var"):
            raise self._scope.error(
                counter, f"{str(counter)!r} is no counter of a loop, and no truth"
            )
        if self._scope.sorts.get(str(variable)) != "var":
            raise self._scope.error(variable, f"{str(variable)!r} is no variable for terms")
        position = position_of(tree)
        kind = self._scope.types.named("index" if sort == "range" else "bool", position)
        self._scope.types.unify(self._scope.slots[str(counter)], kind, position)
        term = self.term(value, kind)
        self._scope.types.unify(term.type, kind, position)
        return Instance(str(variable), self._scope.slots[str(variable)], str(counter), term)

    def _calc(self, tree: Syntax, slot: str) -> Term:
        if self._scope.left_side:
            raise self._scope.error(tree, "computed constants belong to the right side")
        body = tree.children[0]
        if tree.data == "exact":
            return Calc(self.expressions.number(body), slot or self._scope.types.fresh())
        self._scope.in_wrap = True
        term = self.term(body)
        self._scope.in_wrap = False
        self._check_computable(term, body)
        return Calc(term, term.type, "wrap")

    def _node(self, op: str, src: tuple[Term, ...], tree: Syntax) -> Node:
        return Node(
            op, src, self._scope.types.operation(op, [s.type for s in src], position_of(tree))
        )

    def _type(self, syntax: Syntax) -> str:
        token = syntax.children[0] if isinstance(syntax, Tree) else syntax
        if isinstance(syntax, Tree) and syntax.data != "name":
            raise self._scope.error(syntax, "expected the name of a type")
        if token == "T" and "T" not in self._scope.sorts:
            self._scope.sorts["T"] = "type"
        return self._scope.types.named(str(token), position_of(token))

    def _check_computable(self, term: Term, tree: Syntax) -> None:
        """Refuse what `{wrap: ...}` cannot compute, or would not compute as a kernel does."""
        if isinstance(term, Node):
            if Ops[term.op] in APPROXIMATED:
                raise self._scope.error(
                    tree,
                    f"{names.CALL_NAMES[term.op]} is approximated by each machine in its own way, so"
                    " a constant computed here would differ from what a kernel computes",
                )
            if Ops[term.op] in COMPUTABLE and term.arg is None:
                for source in term.src:
                    self._check_computable(source, tree)
                return
        if not isinstance(term, Const | Lit | Calc):
            raise self._scope.error(tree, "only constants and operations on them can be computed")
