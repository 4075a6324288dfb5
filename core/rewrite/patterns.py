"""Left sides of rules, compiled to closures that test a node and bind the names of the rule.

Owns: binding of variables, constants, literals and args; the orders of operands that can matter.
Does not own: which left sides are tried (match.py), right sides and conditions (terms.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.op_names import BROADCAST, CONST
from proofgrad.core.ir.ops import COMMUTATIVE, Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.rule import Apply, Const, Expr, Lit, Name, Node, Term, Var
from proofgrad.core.rewrite.scope import CONSTANT_OPS, RANGE, RANGES, Env, Scope, scalar_of
from proofgrad.core.rewrite.terms import compile_expr

Test = Callable[[UOp, Env], bool]
ArgTest = Callable[[Any, Env], bool]


def orders_of(term: Node | Var) -> Iterator[Node | Var]:
    """`term` with the operands of commutative operations in each order that can matter."""
    if isinstance(term, Var):
        yield term
        return
    inner = [list(orders_of(s)) if isinstance(s, Node) else [s] for s in term.src]
    for src in product(*inner):
        node = Node(term.op, src, term.type, term.arg)
        if not commutes(node) or src[0] == src[1] or is_constant(src[1]):
            yield node
            continue
        swapped = Node(term.op, src[::-1], term.type, term.arg)
        if not is_constant(src[0]):
            yield node
        yield swapped


def commutes(term: Node) -> bool:
    """Whether the operands of `term` may be exchanged."""
    return Ops[term.op] in COMMUTATIVE


def is_constant(term: Term) -> bool:
    """Whether `term` stands for constants only."""
    return isinstance(term, Const | Lit)


class PatternCompiler:
    """Compiles the terms of one left side in the order in which they are tested."""

    def __init__(self, scope: Scope, strict: bool) -> None:
        self._scope = scope
        self._strict = strict  # constants are CONST nodes only, nothing is spread over positions

    def compile(self, term: Term) -> Test:
        """A closure that tests a node against `term` and binds its names. Raises: ValueError for a computed term."""
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
        if node.op is CONST and type(node.arg) is not tuple:
            return node
        return None if self._strict and node.op is not BROADCAST else scalar_of(node)

    def _node(self, term: Node) -> Test:
        scope, op = self._scope, Ops[term.op]
        type_test = scope.type_test(term.type)
        arg_test = self._argument(term)
        last = term.src[-1] if term.src else None
        if isinstance(last, Var) and last.type in (RANGE, RANGES):
            if any([isinstance(s, Var) and s.type == RANGE for s in term.src]):
                return self._named_range(term, type_test, arg_test)
            return self._reduction(term, last.name, type_test, arg_test)
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
        constant_last = commutes(term) and is_constant(term.src[1])
        constant_last = constant_last and not is_constant(term.src[0])

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
        ranges: str,
        type_test: Callable[[DType, Env], bool],
        arg_test: ArgTest | None,
    ) -> Test:
        """A REDUCE; the last variable is bound to the tuple of all its ranges."""
        op, body = Ops[term.op], self.compile(term.src[0])
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

    def _named_range(
        self, term: Node, type_test: Callable[[DType, Env], bool], arg_test: ArgTest | None
    ) -> Test:
        """A REDUCE, one range of which has a name: the source whose number is in the choice slot."""
        op, scope = Ops[term.op], self._scope
        counter, *others = [source.name for source in term.src[1:] if isinstance(source, Var)]
        slot = scope.nodes[counter] = scope.new_slot()
        rest = scope.new_slot() if others else None
        if rest is not None:
            scope.nodes[others[0]] = rest
        choice = scope.choice = scope.new_slot()
        body = self.compile(term.src[0])

        def test(node: UOp, env: Env) -> bool:
            if node.op is not op or not type_test(node.dtype, env):
                return False
            if arg_test is not None and not arg_test(node.arg, env):
                return False
            position, src = env[choice], node.src
            if src[position].op is not Ops.RANGE:
                return False
            env[slot] = src[position]
            other = src[1:position] + src[position + 1 :]
            if rest is not None:
                env[rest] = other
            elif other:
                return False
            return body(src[0], env)

        return test

    def _argument(self, term: Node) -> ArgTest | None:
        """A test of the node's arg, which binds a name that stands alone."""
        return None if term.arg is None else argument_test(term.arg, self._scope)


def argument_test(expr: Expr, scope: Scope) -> ArgTest:
    """A test of an arg against `expr`: names not bound before are bound, part by part."""
    if isinstance(expr, Name) and expr.name not in scope.values:
        slot = scope.values[expr.name] = scope.new_slot()

        def bind(arg: Any, env: Env) -> bool:
            env[slot] = arg
            return True

        return bind
    if isinstance(expr, Apply) and expr.function == "pair":
        tests = [argument_test(part, scope) for part in expr.args]
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
