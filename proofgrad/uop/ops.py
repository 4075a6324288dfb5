"""Patterns with Python functions as right sides, to learn with and for graphs of one's own.

Owns: `UPat`, `PatternMatcher`, `graph_rewrite`. Does not own: the compiler's rules, which are
proven data (rules/); the compiler never uses this module, and what it rewrites counts as unproven.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import permutations
from typing import Any

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import COMMUTATIVE, COMPARE, Ops
from proofgrad.core.ir.positions import AddrSpace, AxisType, KernelInfo
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.engine import RewriteError
from proofgrad.core.rewrite.journal import Journal

__all__ = [
    "AddrSpace",
    "AxisType",
    "KernelInfo",
    "Ops",
    "PatternMatcher",
    "UOp",
    "UPat",
    "graph_rewrite",
]

MOST_APPLICATIONS = 100_000  # in one call; more is taken for a set of patterns that does not end
_ANY_ARG = object()


class UPat:
    """A pattern of nodes. Every part that is given must agree; a name given twice is one node.

    Fields: op (one or several), dtype (one or several), src (a tuple: in this order; a list: in any
    order; one pattern: every source), name (the node is passed to the function under it), arg, allow_any_len (more
    sources may follow those of `src`).

    Example:
        UPat(Ops.ADD, src=(UPat.cvar("a"), UPat.cvar("b")))
    """

    def __init__(
        self,
        op: Ops | Iterable[Ops] | None = None,
        dtype: DType | Iterable[DType] | None = None,
        src: tuple[UPat, ...] | list[UPat] | UPat | None = None,
        name: str | None = None,
        arg: Any = _ANY_ARG,
        allow_any_len: bool = False,
    ) -> None:
        self.op = None if op is None else frozenset({op} if isinstance(op, Ops) else op)
        self.dtype = None if dtype is None else {dtype} if isinstance(dtype, DType) else set(dtype)
        self.src = src
        self.name = name
        self.arg = arg
        self.allow_any_len = allow_any_len

    @staticmethod
    def any(*patterns: UPat) -> UPat:
        """What agrees with one of these patterns."""
        return _AnyOf(patterns)

    @staticmethod
    def var(name: str | None = None, dtype: DType | Iterable[DType] | None = None) -> UPat:
        """Any node."""
        return UPat(dtype=dtype, name=name)

    @staticmethod
    def cvar(name: str | None = None, dtype: DType | Iterable[DType] | None = None) -> UPat:
        """Any constant."""
        return UPat(Ops.CONST, dtype, name=name)

    @staticmethod
    def const(dtype: DType | Iterable[DType] | None, value: Any) -> UPat:
        """The constant `value`."""
        return UPat(Ops.CONST, dtype, arg=value)

    def alu(self, op: Ops, *others: UPat) -> UPat:
        """`op` of this pattern and `others`; in any order if `op` is commutative."""
        src = (self, *others)
        dtype = dtypes.bool if op in COMPARE else None
        return UPat(op, dtype, list(src) if op in COMMUTATIVE else src)

    def named(self, name: str) -> UPat:
        """This pattern, its node passed on as `name`."""
        return UPat(self.op, self.dtype, self.src, name, self.arg, self.allow_any_len)

    def f(self, op: Ops, **options: Any) -> UPat:
        """`op` of this pattern; options as for UPat."""
        return UPat(op, src=(self,), **options)

    def or_casted(self, name: str | None = None) -> UPat:
        """This pattern, or a cast of it; either is passed on as `name`."""
        here = self if name is None else self.named(name)
        return UPat.any(here, self.f(Ops.CAST, name=name))

    def cast(self, dtype: DType | Iterable[DType] | None = None, name: str | None = None) -> UPat:
        """A cast of this pattern."""
        return self.f(Ops.CAST, dtype=dtype, name=name)

    def bitcast(
        self, dtype: DType | Iterable[DType] | None = None, name: str | None = None
    ) -> UPat:
        """The bits of this pattern as another type."""
        return self.f(Ops.BITCAST, dtype=dtype, name=name)

    def sink(self, *others: UPat, name: str | None = None) -> UPat:
        """The root of a graph of these patterns."""
        return UPat(Ops.SINK, src=(self, *others), name=name)

    def maximum(self, other: Any) -> UPat:
        """The greater of this pattern and another."""
        return self.alu(Ops.MAX, self._operand(other))

    def _operand(self, other: Any) -> UPat:
        return other if isinstance(other, UPat) else UPat.const(None, other)

    def __add__(self, other: Any) -> UPat:
        return self.alu(Ops.ADD, self._operand(other))

    def __radd__(self, other: Any) -> UPat:
        return self._operand(other).alu(Ops.ADD, self)

    def __sub__(self, other: Any) -> UPat:
        return self.alu(Ops.ADD, self._operand(other).alu(Ops.NEG))

    def __mul__(self, other: Any) -> UPat:
        return self.alu(Ops.MUL, self._operand(other))

    def __rmul__(self, other: Any) -> UPat:
        return self._operand(other).alu(Ops.MUL, self)

    def __truediv__(self, other: Any) -> UPat:
        return self.alu(Ops.FDIV, self._operand(other))

    def __floordiv__(self, other: Any) -> UPat:
        return self.alu(Ops.FLOORDIV, self._operand(other))

    def __mod__(self, other: Any) -> UPat:
        return self.alu(Ops.MOD, self._operand(other))

    def __and__(self, other: Any) -> UPat:
        return self.alu(Ops.AND, self._operand(other))

    def __or__(self, other: Any) -> UPat:
        return self.alu(Ops.OR, self._operand(other))

    def __xor__(self, other: Any) -> UPat:
        return self.alu(Ops.XOR, self._operand(other))

    def __lt__(self, other: Any) -> UPat:
        return self.alu(Ops.CMPLT, self._operand(other))

    def __neg__(self) -> UPat:
        return self.alu(Ops.NEG)

    def where(self, if_true: UPat, if_false: UPat) -> UPat:
        """A selection by this condition."""
        return self.alu(Ops.WHERE, if_true, if_false)

    def match(self, node: UOp, names: dict[str, UOp]) -> Iterator[dict[str, UOp]]:
        """Every way in which `node` agrees with this pattern, as names and their nodes."""
        if self.op is not None and node.op not in self.op:
            return
        if self.dtype is not None and node.dtype not in self.dtype:
            return
        if self.arg is not _ANY_ARG and (node.arg is None or node.arg != self.arg):
            return
        if self.name is not None:
            if names.get(self.name, node) is not node:
                return
            names = {**names, self.name: node}
        for patterns in self._source_orders(node):
            yield from _match_all(patterns, node.src, names)

    def _source_orders(self, node: UOp) -> Iterator[Sequence[UPat]]:
        if self.src is None:
            yield ()
        elif isinstance(self.src, UPat):
            yield [self.src] * len(node.src)
        elif self.allow_any_len and len(self.src) < len(node.src):
            more = [UPat()] * (len(node.src) - len(self.src))
            if isinstance(self.src, list):
                raise ValueError("allow_any_len is for sources in order: give a tuple of patterns")
            yield [*self.src, *more]
        elif len(self.src) == len(node.src):
            yield from permutations(self.src) if isinstance(self.src, list) else (self.src,)


class _AnyOf(UPat):
    """What agrees with one of several patterns."""

    def __init__(self, patterns: Sequence[UPat], name: str | None = None) -> None:
        super().__init__(name=name)
        self._patterns = tuple(patterns)

    def named(self, name: str) -> UPat:
        """These patterns, the node passed on as `name`."""
        return _AnyOf(self._patterns, name)

    def match(self, node: UOp, names: dict[str, UOp]) -> Iterator[dict[str, UOp]]:
        """Every way of every pattern, in their order."""
        for here in super().match(node, names):
            for pattern in self._patterns:
                yield from pattern.match(node, here)


def _match_all(
    patterns: Sequence[UPat], nodes: Sequence[UOp], names: dict[str, UOp]
) -> Iterator[dict[str, UOp]]:
    if not patterns:
        yield names
        return
    for found in patterns[0].match(nodes[0], names):
        yield from _match_all(patterns[1:], nodes[1:], found)


class PatternMatcher:
    """Pairs of a pattern and a function, tried in order.

    The function gets the named nodes (and `ctx`, if it has that parameter) and returns the new
    node, or None if it does not apply after all.
    """

    def __init__(self, patterns: Iterable[tuple[UPat, Callable[..., UOp | None]]]) -> None:
        self.patterns = list(patterns)
        self._wants_context = [
            "ctx" in inspect.signature(function).parameters for _, function in self.patterns
        ]

    def __add__(self, other: PatternMatcher) -> PatternMatcher:
        return PatternMatcher([*self.patterns, *other.patterns])

    def rewrite(self, node: UOp, ctx: Any = None) -> UOp | None:
        """What the first pattern that applies makes of `node` itself; None if none does."""
        for (pattern, function), wants_context in zip(self.patterns, self._wants_context):
            for names in pattern.match(node, {}):
                given: dict[str, Any] = {**names, "ctx": ctx} if wants_context else dict(names)
                result = function(**given)
                if result is not None and result is not node:
                    return result
        return None


def graph_rewrite(
    root: UOp, matcher: PatternMatcher, ctx: Any = None, journal: Journal | None = None
) -> UOp:
    """`root` with the patterns of `matcher` applied, sources first, until none applies.

    Every application counts as unproven in `journal`. Raises: RewriteError if there is no end.
    """
    counts = Journal() if journal is None else journal
    before = counts.unproven

    def step(node: UOp) -> UOp:
        result = matcher.rewrite(node, ctx)
        if result is None:
            return node
        counts.record("patterns.function", proven=False)
        if counts.unproven - before > MOST_APPLICATIONS:
            raise _endless(node)
        return result

    return _normal_form(root, step)


def _normal_form(root: UOp, step: Callable[[UOp], UOp]) -> UOp:
    """`root` after `step` on every node whose sources are done, until it changes none."""
    normal: dict[UOp, UOp] = {}
    becomes: dict[UOp, UOp] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        missing = [source for source in node.src if source not in normal]
        if node in normal:
            stack.pop()
        elif node in becomes:
            if becomes[node] not in normal:
                raise _endless(node)
            normal[node] = normal[becomes[node]]
            stack.pop()
        elif missing:
            stack.extend(missing[::-1])
        else:
            following = node.with_src(tuple([normal[source] for source in node.src]))
            if following is node:
                following = step(node)
            if following is node:
                normal[node] = node
            else:
                becomes[node] = following
                stack.append(following)
    return normal[root]


def _endless(node: UOp) -> RewriteError:
    return RewriteError(f"rewriting does not end; a pattern undoes or repeats another at\n{node!r}")
