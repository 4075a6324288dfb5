"""Left sides of rules, compiled to closures, found by the op and type of a node and its sources.

Owns: `RuleSet`, binding of variables, matching modulo commutativity. Does not own: what is done
with a match (engine.py, facts.py), right sides (terms.py).

A rule of a scalar domain also holds lane by lane and place by place: all nodes it matches have the
same lanes and the same shape, and a constant is then one that repeats in every lane and place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import Any

from proofgrad.core.ir.dtypes import DType, dtype_named
from proofgrad.core.ir.ops import COMMUTATIVE, Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.functions import DOMAIN_TYPES
from proofgrad.core.rewrite.rule import Const, Lit, Name, Node, Rule, RuleKind, Term, Var
from proofgrad.core.rewrite.scope import (
    CONSTANT_OPS,
    RANGES,
    ROOT,
    Env,
    Scope,
    scalar_of,
    types_of_class,
)
from proofgrad.core.rewrite.terms import DoesNotFit, compile_expr, compile_term
from proofgrad.core.rewrite.views import compile_view

Test = Callable[[UOp, Env], bool]
Key = tuple[Any, ...]
Candidates = dict[Key, "tuple[tuple[Matcher, bool], ...]"]  # with: is there evidence
KEYED_SOURCES = 3  # sources whose ops choose the candidates
NOT_VALUES = frozenset(
    {Ops.PARAM, Ops.BUFFER, Ops.INDEX, Ops.SINK, Ops.STORE, Ops.CONST, Ops.UPDATE}
)


class RuleSet:
    """Rules in order of priority, under one name. `proven`: they came with fresh evidence."""

    def __init__(self, name: str, rules: Iterable[Rule], proven: bool = False) -> None:
        self.name = name
        self.rules = tuple(rules)
        self.proven = proven
        self._by_op: dict[Ops, list[_Pattern]] = {}
        self._any_op: list[_Pattern] = []
        self._candidates: dict[Key, tuple[Matcher, ...]] = {}
        self._joined: dict[tuple[RuleSet, ...], Candidates] = {}
        for pattern in [p for rule in self.rules for p in _patterns(rule)]:
            self._add(pattern)

    def __repr__(self) -> str:
        return f"RuleSet({self.name!r}, {len(self.rules)} rules)"

    def _add(self, pattern: _Pattern) -> None:
        if isinstance(pattern.left, Var):
            self._any_op.append(pattern)
            for patterns in self._by_op.values():
                patterns.append(pattern)
            return
        op = Ops[pattern.left.op]
        self._by_op.setdefault(op, list(self._any_op)).append(pattern)

    def candidates(self, node: UOp) -> tuple[Matcher, ...]:
        """Matchers that may match a node with the op, type and source ops of `node`, in order."""
        key = key_of(node)
        found = self._candidates.get(key)
        if found is None:
            patterns = self._by_op.get(node.op, self._any_op)
            found = tuple([Matcher(p, node.dtype) for p in patterns if p.may_match(node)])
            self._candidates[key] = found
        return found

    def joined(self, rulesets: tuple[RuleSet, ...]) -> Candidates:
        """The memory of candidates that all rewriters over `rulesets`, of which this is one, share."""
        return self._joined.setdefault(rulesets, {})


def key_of(node: UOp) -> Key:
    """What of a node decides which rules are tried."""
    return (node.op, node.dtype, *[source.op for source in node.src[:KEYED_SOURCES]])


class Matcher:
    """One left side, in one order of operands, for roots of one type."""

    __slots__ = ("rule", "_size", "_match", "_views", "_early", "_late", "_build")

    def __init__(self, pattern: _Pattern, root: DType) -> None:
        rule = self.rule = pattern.rule
        scope = Scope(rule, root)
        if pattern.left.type in scope.classes:
            scope.types[pattern.left.type] = root
        strict = not all([domain in DOMAIN_TYPES for domain in rule.domains])
        for name in ["g"] if rule.kind is RuleKind.COTANGENT else []:
            scope.nodes[name] = scope.new_slot()
        self._match = _PatternCompiler(scope, strict).compile(pattern.left)
        conditions = (*rule.where, *rule.when)
        names = {name for view in rule.views for name, _ in view.outputs}
        self._early = [compile_expr(c, scope) for c in conditions if not _mentions(c, names)]
        self._views = [compile_view(view, scope) for view in rule.views]
        self._late = [compile_expr(c, scope) for c in conditions if _mentions(c, names)]
        self._build = [None if t is None else _result(t, rule.kind, scope) for t in rule.right]
        self._size = scope.size

    def bind(self, node: UOp, facts: Any, cotangent: UOp | None = None) -> Env | None:
        """The names of the rule at `node`, if it matches and its conditions hold."""
        env: Env = [None] * self._size
        env[0] = facts
        env[ROOT] = node
        if cotangent is not None:
            env[2] = cotangent
        if not self._match(node, env):
            return None
        for condition in self._early:
            if condition(env) is not True:
                return None
        for view in self._views:
            if not view(env):
                return None
        for condition in self._late:
            if condition(env) is not True:
                return None
        return env

    def apply(self, node: UOp, facts: Any) -> UOp | None:
        """What the rule makes of `node`; None if it does not fire."""
        env = self.bind(node, facts)
        if env is None:
            return None
        try:
            return self._build[0](env, node.shape)
        except DoesNotFit:
            return None

    def results(self, node: UOp, facts: Any, cotangent: UOp) -> tuple[UOp | None, ...] | None:
        """All right sides, where the name `g` stands for `cotangent`; None if it does not fire."""
        env = self.bind(node, facts, cotangent)
        if env is None:
            return None
        return tuple([None if build is None else build(env, node.shape) for build in self._build])

    def interval(self, node: UOp, facts: Any) -> tuple[Any, Any] | None:
        """The bounds that the rule gives for `node`, None for an unknown end."""
        env = self.bind(node, facts)
        return None if env is None else (self._build[0](env), self._build[1](env))


def _result(term: Term, kind: RuleKind, scope: Scope) -> Any:
    if kind is RuleKind.BOUNDS:
        return compile_expr(term.value, scope)
    return compile_term(term, scope)


def _mentions(expr: Any, names: set[str]) -> bool:
    """Whether a condition uses one of `names`, in an expression or in a term of a fact."""
    if not names:
        return False
    if isinstance(expr, Name | Var | Const):
        return expr.name in names
    inner = getattr(expr, "args", None) or getattr(expr, "src", None) or ()
    term = getattr(expr, "term", None)
    return any([_mentions(part, names) for part in (*inner, *(() if term is None else (term,)))])


# -- patterns -----------------------------------------------------------------------------------


class _Pattern:
    """A left side in one order of operands, before it is compiled for a type."""

    def __init__(self, rule: Rule, left: Node | Var) -> None:
        self.rule = rule
        self.left = left
        classes = dict(rule.types)
        if left.type in classes:
            self._types = frozenset(types_of_class(rule, classes[left.type]))
        else:
            self._types = frozenset({dtype_named(left.type)})

    def may_match(self, node: UOp) -> bool:
        if node.dtype.scalar not in self._types:
            return False
        if isinstance(self.left, Var):
            return node.op not in NOT_VALUES
        wanted = [_source_ops(source) for source in self.left.src]
        given = [source.op for source in node.src[:KEYED_SOURCES]]
        if _commutes(self.left) and _is_constant(self.left.src[1]):
            return _agree(wanted, given) or _agree(wanted, given[::-1])
        return _agree(wanted, given)


def _agree(wanted: list[frozenset[Ops] | None], given: list[Ops]) -> bool:
    return all([want is None or op in want for want, op in zip(wanted, given)])


def _source_ops(term: Term) -> frozenset[Ops] | None:
    if isinstance(term, Node):
        return frozenset({Ops[term.op]})
    return CONSTANT_OPS if _is_constant(term) else None


def _patterns(rule: Rule) -> list[_Pattern]:
    return [_Pattern(rule, left) for left in _orders(rule.left)]


def _orders(term: Term) -> Iterator[Term]:
    """`term` with the operands of commutative operations in each order that can matter."""
    if not isinstance(term, Node):
        yield term
        return
    for src in product(*[list(_orders(source)) for source in term.src]):
        node = Node(term.op, src, term.type, term.arg)
        if not _commutes(node) or src[0] == src[1] or _is_constant(src[1]):
            yield node
            continue
        swapped = Node(term.op, src[::-1], term.type, term.arg)
        if not _is_constant(src[0]):
            yield node
        yield swapped


def _commutes(term: Node) -> bool:
    return Ops[term.op] in COMMUTATIVE


def _is_constant(term: Term) -> bool:
    return isinstance(term, Const | Lit)


class _PatternCompiler:
    """Compiles the terms of one left side in the order in which they are tested."""

    def __init__(self, scope: Scope, strict: bool) -> None:
        self._scope = scope
        self._strict = strict  # constants are CONST nodes only, nothing is spread over places

    def compile(self, term: Term) -> Test:
        match term:
            case Var():
                return self._variable(term)
            case Const():
                return self._constant(term)
            case Lit():
                return self._literal(term)
            case Node():
                return self._node(term)
            case _:
                raise ValueError(f"{term!r} cannot stand on a left side")

    def _variable(self, term: Var) -> Test:
        scope = self._scope
        if term.name in scope.nodes:
            bound = scope.nodes[term.name]
            return lambda node, env: env[bound] is node
        type_test = scope.type_test(term.type)
        slot = scope.nodes[term.name] = scope.new_slot()

        def bind(node: UOp, env: Env) -> bool:
            env[slot] = node
            return type_test(node.dtype, env)

        return bind

    def _constant(self, term: Const) -> Test:
        scope, find = self._scope, self._constant_of
        if term.name in scope.nodes:
            bound = scope.nodes[term.name]
            return lambda node, env: find(node) is find(env[bound]) is not None
        type_test = scope.type_test(term.type)
        slot = scope.nodes[term.name] = scope.new_slot()
        value_slot = scope.values[term.name] = scope.new_slot()

        def bind(node: UOp, env: Env) -> bool:
            found = find(node)
            if found is None:
                return False
            env[slot] = node
            env[value_slot] = found.arg
            return type_test(node.dtype, env)

        return bind

    def _literal(self, term: Lit) -> Test:
        type_test, find = self._scope.type_test(term.type), self._constant_of
        wanted: dict[DType, UOp | None] = {}

        def test(node: UOp, env: Env) -> bool:
            found = find(node)
            if found is None or not type_test(node.dtype, env):
                return False
            if found.dtype not in wanted:
                wanted[found.dtype] = _literal_node(found.dtype, term.value)
            return found is wanted[found.dtype]

        return test

    def _constant_of(self, node: UOp) -> UOp | None:
        if node.op is Ops.CONST and type(node.arg) is not tuple:
            return node
        return None if self._strict and node.op is not Ops.BROADCAST else scalar_of(node)

    def _node(self, term: Node) -> Test:
        scope, op = self._scope, Ops[term.op]
        type_test = scope.type_test(term.type)
        arg_test = self._argument(term)
        if term.src and isinstance(term.src[-1], Var) and term.src[-1].type == RANGES:
            return self._reduction(term, type_test, arg_test)
        sources = [self.compile(source) for source in term.src]
        if len(sources) == 2 and arg_test is None:
            return self._binary(term, type_test, sources)
        count = len(sources)

        def test(node: UOp, env: Env) -> bool:
            if node.op is not op or not type_test(node.dtype, env):
                return False
            if arg_test is None:
                if node.arg is not None:
                    return False
            elif not arg_test(node.arg, env):
                return False
            src = node.src
            return len(src) == count and all([t(s, env) for t, s in zip(sources, src)])

        return test

    def _binary(
        self, term: Node, type_test: Callable[[DType, Env], bool], sources: list[Test]
    ) -> Test:
        op, (first, second) = Ops[term.op], sources
        constant_last = _commutes(term) and _is_constant(term.src[1])
        constant_last = constant_last and not _is_constant(term.src[0])

        def test(node: UOp, env: Env) -> bool:
            if node.op is not op or len(node.src) != 2 or node.arg is not None:
                return False
            a, b = node.src
            if constant_last and b.op not in CONSTANT_OPS:
                a, b = b, a
            return type_test(node.dtype, env) and first(a, env) and second(b, env)

        return test

    def _reduction(
        self,
        term: Node,
        type_test: Callable[[DType, Env], bool],
        arg_test: Callable[[Any, Env], bool] | None,
    ) -> Test:
        """A REDUCE; the last variable is bound to the tuple of all its ranges."""
        op, body, ranges = Ops[term.op], self.compile(term.src[0]), term.src[-1].name
        bound = self._scope.nodes.get(ranges)
        slot = self._scope.nodes[ranges] = self._scope.new_slot() if bound is None else bound

        def test(node: UOp, env: Env) -> bool:
            if node.op is not op or not type_test(node.dtype, env):
                return False
            if arg_test is not None and not arg_test(node.arg, env):
                return False
            if not body(node.src[0], env):
                return False
            if bound is not None:
                return bool(env[slot] == node.src[1:])
            env[slot] = node.src[1:]
            return True

        return test

    def _argument(self, term: Node) -> Callable[[Any, Env], bool] | None:
        """A test of the node's arg, which binds a name that stands alone."""
        return None if term.arg is None else argument_test(term.arg, self._scope)


def argument_test(expr: Any, scope: Scope) -> Callable[[Any, Env], bool]:
    """A test of an arg against `expr`: names not bound before are bound, part by part."""
    if isinstance(expr, Name) and expr.name not in scope.values:
        slot = scope.values[expr.name] = scope.new_slot()

        def bind(arg: Any, env: Env) -> bool:
            env[slot] = arg
            return True

        return bind
    parts = getattr(expr, "args", None)
    if getattr(expr, "function", None) == "pair":
        tests = [argument_test(part, scope) for part in parts]
        return lambda arg, env: (
            isinstance(arg, tuple)
            and len(arg) == len(tests)
            and all([test(part, env) for test, part in zip(tests, arg)])
        )
    value = compile_expr(expr, scope)
    return lambda arg, env: bool(value(env) == arg)


def _literal_node(dtype: DType, value: Any) -> UOp | None:
    """The CONST of a literal, None if the type has no such value."""
    try:
        return UOp.const(dtype, value)
    except OverflowError:
        return None
