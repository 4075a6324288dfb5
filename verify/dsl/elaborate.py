"""From the syntax tree of one rule to a `Rule`: names get their sort, terms their type.

Owns: which names are bound where, the meaning of sugar (x - y, !=, <=, comparisons of bounds). Does
not own: type variables (types.py), the functions themselves (core/rewrite/functions.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lark import Token, Tree

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
    Rule,
    RuleKind,
    Term,
    Text,
    Var,
    View,
)
from proofgrad.verify.dsl import names
from proofgrad.verify.dsl.errors import RuleError, Source, near
from proofgrad.verify.dsl.places import place_of
from proofgrad.verify.dsl.types import Types

Syntax = Tree[Token] | Token
MAX_DIGITS = 100  # no type has more; keeps arithmetic on literals fast


@dataclass(frozen=True, slots=True)
class FileHeader:
    """The first line of a rule file."""

    name: str
    domains: tuple[str, ...]

    @staticmethod
    def checked(name: str, domains: Tree[Token], source: Source) -> FileHeader:
        return FileHeader(name, _domains(domains, source))


def _domains(tree: Tree[Token], source: Source) -> tuple[str, ...]:
    for token in tree.children:
        if token not in names.DOMAINS:
            raise RuleError(
                source,
                place_of(token),
                f"unknown domain {str(token)!r}; {near(str(token), names.DOMAINS)}",
            )
    found = tuple([str(token) for token in tree.children])
    structural = [d for d in found if d in names.STRUCTURAL_DOMAINS]
    if structural and len(found) > 1:
        raise RuleError(
            source, place_of(tree), f"the domain {structural[0]!r} must stand alone in a rule"
        )
    return found


class Elaborator:
    """Elaborates one rule; make a new one for each."""

    def __init__(self, header: FileHeader, source: Source) -> None:
        self._header = header
        self._source = source
        self._sorts: dict[str, str] = {}  # name -> var, const, arg, number, ranges, type
        self._slots: dict[str, str] = {}  # name of a var or const -> its type slot
        self._declared_consts: set[str] = set()
        self._left_side = True
        self._in_wrap = False

    def rule(self, tree: Tree[Token], text: str, doc: str, examples: tuple[str, ...]) -> Rule:
        """Raises: RuleError."""
        kind = RuleKind(tree.data if tree.data != "rule" else "rewrite")
        children = list(tree.children[1:])
        name = str(children.pop(0))
        params = _take(children, "params")
        over = _take(children, "over")
        self._domains = _domains(over.children[0], self._source) if over else self._header.domains
        self._types = Types(self._domains, self._source)
        self._declare(params)
        clauses = _take_all(children, ("where_clause", "when_clause", "let_clause"))
        left = self._left(children[0])
        self._left_side = False
        views = tuple([self._view(c) for c in clauses if c.data == "let_clause"])
        right = self._right(kind, children, left)
        where = self._conditions(clauses, "where_clause")
        when = self._conditions(clauses, "when_clause")
        types = self._types.finish(left.type, place_of(tree))
        resolve = self._types.resolve
        return Rule(
            name=name,
            ruleset=self._header.name,
            kind=kind,
            domains=self._domains,
            types=types,
            left=resolve(left),
            right=tuple([resolve(r) for r in right]),
            where=resolve(where),
            when=resolve(when),
            views=resolve(views),
            text=text,
            doc=doc,
            examples=examples,
            line=tree.meta.line,
        )

    # -- parts of a rule ------------------------------------------------------------------------------

    def _declare(self, params: Tree[Token] | None) -> None:
        for param in params.children if params else ():
            assert isinstance(param, Tree)
            token = param.children[0]
            if token in self._sorts or token in self._declared_consts:
                raise self._error(token, f"{str(token)!r} is declared twice")
            if param.data == "const_param":
                self._declared_consts.add(str(token))
            else:
                self._sorts[str(token)] = "type"
                self._types.declare(str(token), str(param.children[1]), place_of(param.children[1]))

    def _left(self, tree: Syntax) -> Node | Var:
        left = self._term(tree)
        if not isinstance(left, (Node, Var)):
            raise self._error(tree, "the left side must be an operation or a variable")
        return left

    def _right(
        self, kind: RuleKind, children: list[Any], left: Node | Var
    ) -> tuple[Term | None, ...]:
        match kind:
            case RuleKind.REWRITE:
                return (self._typed_like(children[1], left.type),)
            case RuleKind.COTANGENT:
                return self._cotangents(left, children[1], children[2])
            case RuleKind.BOUNDS:
                low, high = children[1:]
                return (
                    Calc(self._number(low), left.type),
                    Calc(self._number(high), left.type),
                )

    def _cotangents(
        self, left: Node | Var, cotangent: Token, right: Tree[Token]
    ) -> tuple[Term | None, ...]:
        if cotangent != "g" or "g" in self._sorts:
            raise self._error(cotangent, "the cotangent of the node is called g, and nothing else")
        sources = left.src if isinstance(left, Node) else ()
        if len(right.children) != len(sources):
            raise self._error(
                right,
                f"{len(right.children)} cotangents for {len(sources)} sources of the left side;"
                " write one for each, or none",
            )
        self._bind("g", "var", cotangent)
        self._types.unify(self._slots["g"], left.type, place_of(cotangent))
        return tuple(
            [
                None if _is_name(tree, "none") else self._typed_like(tree, source.type)
                for tree, source in zip(right.children, sources)
            ]
        )

    def _typed_like(self, tree: Syntax, slot: str) -> Term:
        term = self._term(tree, slot)
        if self._types.is_number_against_bool(term.type, slot):
            domains = ", ".join(self._domains)
            raise self._error(tree, f"the left side is bool, this is not: it is of {domains}")
        self._types.unify(term.type, slot, place_of(tree))
        return term

    def _conditions(self, clauses: list[Tree[Token]], kind: str) -> tuple[Expr, ...]:
        found: list[Expr] = []
        for clause in clauses:
            if clause.data == kind:
                for tree in clause.children[0].children:
                    found.extend(_conjuncts(self._condition(tree)))
        return tuple(found)

    def _view(self, clause: Tree[Token]) -> View:
        outputs, function, inputs = clause.children
        if function not in names.VIEWS:
            raise self._error(
                function, f"unknown view {str(function)!r}; {near(str(function), names.VIEWS)}"
            )
        takes, gives = names.VIEWS[str(function)]
        self._check_count(function, len(inputs.children), len(takes), "inputs")
        self._check_count(function, len(outputs.children), len(gives), "outputs")
        given: list[Term | Expr] = []
        slot = ""
        for tree, sort in zip(inputs.children, takes):
            given.append(self._term(tree) if sort == "term" else self._number(tree))
            slot = slot or getattr(given[-1], "type", "")
        for token, sort in zip(outputs.children, gives):
            if token in self._sorts:
                raise self._error(token, f"{str(token)!r} already stands for something else")
            self._sorts[str(token)] = "var" if sort == "term" else "number"
            self._slots[str(token)] = slot
        pairs = tuple([(str(t), s) for t, s in zip(outputs.children, gives)])
        return View(str(function), tuple(given), pairs)

    # -- terms ----------------------------------------------------------------------------------------

    def _term(self, tree: Syntax, slot: str = "") -> Term:
        assert isinstance(tree, Tree)
        match tree.data:
            case "number":
                return self._literal(self._value(tree.children[0]), tree)
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
            case "exact" | "wrap":
                return self._calc(tree, slot)
            case _:
                raise self._error(tree, "not a term")

    def _literal(self, value: int | float | bool, tree: Syntax) -> Lit:
        return Lit(value, self._types.literal(value, place_of(tree)))

    def _named_term(self, tree: Tree[Token], slot: str) -> Term:
        token = tree.children[0]
        name = str(token)
        if name in names.LITERALS:
            return self._literal(names.LITERALS[name], tree)
        sort = self._sorts.get(name)
        if sort is None:
            if not self._left_side:
                raise self._unbound(token)
            sort = "const" if self._is_const_name(name) else "var"
            self._bind(name, sort, token)
        match sort:
            case "var":
                return Var(name, self._slots[name])
            case "const":
                return Const(name, self._slots[name])
            case "number":
                return Calc(Name(name), slot or self._slots[name])
            case _:
                raise self._error(token, f"{name!r} is {names.SORTS[sort]}, not a term")

    def _annotated(self, tree: Tree[Token]) -> Term:
        term = self._term(tree.children[0])
        self._types.unify(term.type, self._type(tree.children[1]), place_of(tree))
        return term

    def _prefix(self, tree: Tree[Token]) -> Term:
        operator, operand = tree.children
        if operator == "-" and (value := self._literal_number(operand)) is not None:
            return self._literal(-value, tree)
        if operator == "not":
            raise self._error(operator, "'not' belongs to conditions; the operation is !x")
        term = self._term(operand)
        return self._node("NEG" if operator == "-" else "NOT", (term,), tree)

    def _infix(self, tree: Tree[Token]) -> Term:
        left_tree, operator, right_tree = tree.children
        if operator in ("and", "or"):
            raise self._error(operator, f"{str(operator)!r} belongs to conditions; use & or |")
        left, right = self._term(left_tree), self._term(right_tree)
        match str(operator):
            case "-":
                return self._node("ADD", (left, self._negated(right, right_tree)), tree)
            case "!=":
                return self._node("NOT", (self._node("CMPEQ", (left, right), tree),), tree)
            case ">":
                return self._node("CMPLT", (right, left), tree)
            case "<=" | ">=":
                ends = (right, left) if operator == "<=" else (left, right)
                self._types.forbid_floats(left.type, place_of(operator))
                return self._node("NOT", (self._node("CMPLT", ends, tree),), tree)
            case symbol:
                return self._node(names.INFIX_OPS[symbol], (left, right), tree)

    def _negated(self, term: Term, tree: Syntax) -> Term:
        foldable = isinstance(term, Lit) and not isinstance(term.value, bool)
        if foldable and not self._in_wrap:  # in {wrap: c - 1} at an unsigned type, -1 does not fit
            return Lit(-term.value, self._types.literal(-term.value, place_of(tree)))
        return self._node("NEG", (term,), tree)

    def _call(self, tree: Tree[Token]) -> Term:
        function, *args = tree.children
        name = str(function)
        if name in names.CAST_OPS:
            self._check_count(function, len(args), 2)
            value = self._term(args[0])
            return Node(names.CAST_OPS[name], (value,), self._type(args[1]))
        if name in names.MOVEMENT_OPS:
            self._check_count(function, len(args), 2)
            value = self._term(args[0])
            return Node(names.MOVEMENT_OPS[name], (value,), value.type, self._arg(args[1]))
        if name in names.CALL_OPS:
            op, counts = names.CALL_OPS[name]
            self._check_count(function, len(args), *counts)
            return self._node(op, tuple([self._term(a) for a in args]), tree)
        known = [*names.CAST_OPS, *names.MOVEMENT_OPS, *names.CALL_OPS]
        raise self._error(function, f"unknown operation {name!r}; {near(name, known)}")

    def _reduction(self, tree: Tree[Token]) -> Term:
        function, *inside, body = tree.children
        over_loop = self._domains == ("loop",)
        op: Expr
        if function in names.REDUCE_OPS:
            op = Text(names.REDUCE_OPS[str(function)])
        elif function == "fold" and inside:
            op = self._arg(inside.pop(0))
        else:
            raise self._error(
                function,
                f"unknown reduction {str(function)!r}; {near(str(function), names.REDUCE_OPS)}",
            )
        if over_loop:
            ranges = [self._ranges(t) for t in inside]
            value = self._term(body)
            return Node("REDUCE", (value, *ranges), value.type, op)
        self._check_count(function, len(inside), 1, what="axes")
        value = self._term(body)
        axes = self._arg(inside[0])
        return Node("REDUCE_AXIS", (value,), value.type, Apply("pair", (op, axes)))

    def _ranges(self, tree: Syntax) -> Var:
        assert isinstance(tree, Tree)
        token = tree.children[0]
        if tree.data != "name" or not str(token)[0].isupper():
            raise self._error(tree, "the ranges of a reduction are one name with a capital letter")
        if str(token) not in self._sorts:
            if not self._left_side:
                raise self._unbound(token)
            self._sorts[str(token)] = "ranges"
        return Var(str(token), "ranges")

    def _calc(self, tree: Tree[Token], slot: str) -> Term:
        if self._left_side:
            raise self._error(tree, "computed constants belong to the right side")
        body = tree.children[0]
        if tree.data == "exact":
            return Calc(self._number(body), slot or self._types.fresh())
        self._in_wrap = True
        term = self._term(body)
        self._in_wrap = False
        return Calc(_as_typed_expression(term, self, body), term.type, "wrap")

    def _node(self, op: str, src: tuple[Term, ...], tree: Syntax) -> Node:
        return Node(op, src, self._types.operation(op, [s.type for s in src], place_of(tree)))

    def _type(self, syntax: Syntax) -> str:
        token = syntax.children[0] if isinstance(syntax, Tree) else syntax
        if isinstance(syntax, Tree) and syntax.data != "name":
            raise self._error(syntax, "expected the name of a type")
        if token == "T" and "T" not in self._sorts:
            self._sorts["T"] = "type"
        return self._types.named(str(token), place_of(token))

    # -- expressions: numbers, args, conditions ---------------------------------------------------------

    def _arg(self, tree: Syntax) -> Expr:
        """The arg of a movement operation or reduction: left a name that it binds."""
        assert isinstance(tree, Tree)
        if not self._left_side:
            return self._number(tree)
        if tree.data != "name":
            raise self._error(tree, "on the left side an arg is a name; put a condition in `where`")
        token = tree.children[0]
        self._bind(str(token), "arg", token)
        return Name(str(token))

    def _number(self, tree: Syntax) -> Expr:
        """A mathematical number, a tuple or a truth value: no bare terms."""
        assert isinstance(tree, Tree)
        match tree.data:
            case "number":
                return Num(self._value(tree.children[0]))
            case "name":
                return self._named_number(tree.children[0])
            case "prefix":
                return self._prefix_number(tree)
            case "infix":
                return self._infix_number(tree)
            case "call":
                return self._function(tree)
            case _:
                raise self._error(tree, "not a number, a fact or a condition")

    def _named_number(self, token: Token) -> Expr:
        name = str(token)
        if name in names.LITERALS:
            return Num(names.LITERALS[name])
        sort = self._sorts.get(name)
        if sort is None:
            raise self._unbound(token)
        if sort in ("const", "number", "arg", "type"):
            return Name(name)
        raise self._error(
            token, f"{name!r} is {names.SORTS[sort]}, not a number; lo({name}) and hi({name}) are"
        )

    def _prefix_number(self, tree: Tree[Token]) -> Expr:
        operator, operand = tree.children
        if operator == "-" and (value := self._literal_number(operand)) is not None:
            return Num(-value)
        if operator == "!":
            raise self._error(operator, "'!' is an operation on terms; in conditions write not")
        if operator == "not":
            return Apply("not", (self._condition(operand),))
        return Apply("neg", (self._number(operand),))

    def _infix_number(self, tree: Tree[Token]) -> Expr:
        left, operator, right = tree.children
        if operator not in names.NUMBER_INFIX:
            raise self._error(
                operator, f"{str(operator)!r} is an operation on terms, not on numbers"
            )
        if operator in ("and", "or"):
            return Apply(str(operator), (self._condition(left), self._condition(right)))
        return Apply(str(operator), (self._number(left), self._number(right)))

    def _function(self, tree: Tree[Token]) -> Expr:
        function, *args = tree.children
        name = str(function)
        if name not in names.FUNCTIONS:
            raise self._error(function, f"unknown function {name!r}; {near(name, names.FUNCTIONS)}")
        count = names.FUNCTIONS[name]
        if name in ("min", "max") and len(args) > 2:
            return self._chain(name, args)
        self._check_count(function, len(args), count)
        if name in names.FACT_FUNCTIONS:
            return Apply(name, tuple([self._fact_argument(a) for a in args]))
        return Apply(name, tuple([self._number(a) for a in args]))

    def _chain(self, name: str, args: list[Any]) -> Expr:
        result = self._number(args[0])
        for tree in args[1:]:
            result = Apply(name, (result, self._number(tree)))
        return result

    def _fact_argument(self, tree: Syntax) -> Expr:
        if isinstance(tree, Tree) and tree.data == "name":
            if self._sorts.get(str(tree.children[0])) == "ranges":
                return Fact(Var(str(tree.children[0]), "ranges"))
        return Fact(self._term(tree))

    def _condition(self, tree: Syntax) -> Expr:
        assert isinstance(tree, Tree)
        if tree.data == "infix" and tree.children[1].type == "COMPARE":
            return self._comparison(tree)
        condition = self._number(tree)
        if not isinstance(condition, Apply) or condition.function not in names.TRUTHS:
            raise self._error(tree, "a condition must be a comparison or a yes-or-no function")
        return condition

    def _comparison(self, tree: Tree[Token]) -> Expr:
        """Between numbers, or between bounds of terms: x < c says hi(x) < c."""
        left, operator, right = tree.children
        if operator in (">", ">="):
            left, right = right, left
            operator = "<" if operator == ">" else "<="
        if not (self._is_term_name(left) or self._is_term_name(right)):
            return Apply(str(operator), (self._number(left), self._number(right)))
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
        if self._is_term_name(tree):
            return Apply(fact, (Fact(self._term(tree)),))
        return self._number(tree)

    def _is_term_name(self, tree: Syntax) -> bool:
        return (
            isinstance(tree, Tree)
            and tree.data == "name"
            and self._sorts.get(str(tree.children[0])) == "var"
        )

    # -- literals -------------------------------------------------------------------------------------

    def _literal_number(self, tree: Syntax) -> int | float | None:
        if isinstance(tree, Tree) and tree.data == "number":
            return self._value(tree.children[0])
        return names.LITERALS["inf"] if _is_name(tree, "inf") else None

    def _value(self, token: Token) -> int | float:
        if len(token) > MAX_DIGITS:
            raise self._error(token, f"a number of more than {MAX_DIGITS} characters")
        return _number_value(str(token))

    # -- names ----------------------------------------------------------------------------------------

    def _is_const_name(self, name: str) -> bool:
        return name in self._declared_consts or names.CONST_NAME.fullmatch(name) is not None

    def _bind(self, name: str, sort: str, token: Token) -> None:
        known = self._sorts.setdefault(name, sort)
        if known != sort:
            raise self._error(
                token, f"{name!r} is {names.SORTS[known]} and cannot be {names.SORTS[sort]} too"
            )
        if sort in ("var", "const"):
            self._slots.setdefault(name, self._types.fresh(f"{name!r}"))

    def _unbound(self, token: Token) -> RuleError:
        name = str(token)
        bound = ", ".join(sorted(self._sorts)) or "none"
        return self._error(token, f"{name!r} is not bound by the left side; bound names: {bound}")

    def _check_count(
        self, function: Token, got: int, *allowed: int, what: str = "arguments"
    ) -> None:
        if got not in allowed:
            wanted = " or ".join([str(n) for n in allowed])
            raise self._error(function, f"{str(function)} takes {wanted} {what}, not {got}")

    def _error(self, syntax: Syntax, reason: str) -> RuleError:
        return RuleError(self._source, place_of(syntax), reason)


def _as_typed_expression(term: Term, owner: Elaborator, tree: Syntax) -> Expr:
    """A term over constants as the expression that `{wrap: ...}` keeps."""
    match term:
        case Const(name, _) | Calc(Name(name), _, "exact"):
            return Name(name)
        case Lit(value, _):
            return Num(value)
        case Node(op, src, type_) if op in names.TYPED_SYMBOLS:
            args = [_as_typed_expression(s, owner, tree) for s in src]
            if op in ("CAST", "BITCAST"):
                args.append(Name(type_))
            return Apply(names.TYPED_SYMBOLS[op], tuple(args))
        case _:
            raise owner._error(tree, "only constants and operations on them can be computed")


def _conjuncts(condition: Expr) -> list[Expr]:
    if isinstance(condition, Apply) and condition.function == "and":
        return [part for arg in condition.args for part in _conjuncts(arg)]
    return [condition]


def _is_name(tree: Syntax, name: str) -> bool:
    return isinstance(tree, Tree) and tree.data == "name" and tree.children[0] == name


def _number_value(text: str) -> int | float:
    if text.startswith("0x"):
        return int(text, 16)
    return int(text) if text.isdigit() else float(text)


def _take(children: list[Any], data: str) -> Tree[Token] | None:
    if children and isinstance(children[0], Tree) and children[0].data == data:
        return children.pop(0)
    return None


def _take_all(children: list[Any], kinds: tuple[str, ...]) -> list[Tree[Token]]:
    found = [c for c in children if isinstance(c, Tree) and c.data in kinds]
    children[:] = [c for c in children if not (isinstance(c, Tree) and c.data in kinds)]
    return found
