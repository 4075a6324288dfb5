"""The terms of the text of loop nests: expressions, what in them goes by a name, the names.

Owns: how one node is written, with what is inside of it. Does not own: lines (block.py), words (syntax.py).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from proofgrad.core.compile.text.names import Names, declaration, has_own_name
from proofgrad.core.compile.text.syntax import (
    ATOM,
    COMBINED,
    COMPARISON,
    PREFIXES,
    REDUCTIONS,
    SIGNED,
    SIGNS,
    SUM,
    constant,
    free_loops,
    is_literal,
    is_plain_loop,
    natural_type,
    plain_type,
    type_around,
    type_name,
)
from proofgrad.core.ir.dtypes import DType, dtypes, round_float
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort

# Parts of a term: a longer one gets a name, one of so few is written again where it is used again.
MOST_PARTS, FEW_PARTS = 30, 3
_NO_TYPE = dtypes.void  # of no literal: so each says its own


class Terms:
    """The terms of one graph."""

    def __init__(self, root: UOp, names: Mapping[UOp, str]) -> None:
        self.root = root
        is_plain = root.dtype is dtypes.void and (root.arg is None or type(root.arg) is str)
        self.is_sink = root.op is Ops.SINK and is_plain
        self.roots = root.src if self.is_sink else (root,)
        self.names = Names(names)
        self.nodes = everything(root)
        self.positions = {node: k for k, node in enumerate(self.nodes)}
        for dtype in {node.dtype for node in self.nodes}:
            type_name(dtype)
        self.index = self._index_type()
        self.free: dict[UOp, frozenset[UOp]] = {}
        for node in self.nodes:
            self.free[node] = free_loops(node, self.free)
        self.declared: set[UOp] = set()  # loops
        self._texts: dict[UOp, tuple[str, int]] = {}  # of the statement that is written
        self.long = self._long_terms()

    def _index_type(self) -> DType:
        loops = [n.dtype for n in self.nodes if n.op is Ops.RANGE]
        positions = [
            n.src[1].dtype.scalar for n in self.nodes if n.op is Ops.INDEX and len(n.src) > 1
        ]
        first = next(iter(loops or positions), dtypes.index)
        return first if first.is_int and first.lanes == 1 else dtypes.index

    def _long_terms(self) -> set[UOp]:
        """The terms that get a name: used more than once, long, or memory that is computed."""
        parts: dict[UOp, int] = {}
        for node in self.nodes:
            total = 1
            if not has_own_name(node):
                total = _parts_of(node) + sum([parts[s] for s in node.src])
            parts[node] = min(total, 1000)
        times, roots = dict.fromkeys(self.nodes, 0), set(self.roots)
        for root in self.roots:
            times[root] += 1
        long: set[UOp] = set()
        for node in reversed(self.nodes):
            if node is self.root and self.is_sink:
                continue
            if node.op is Ops.INDEX and node.src and declaration(node.src[0]) is None:
                long.add(node.src[0])
            long.update([one for one in held(node.arg) if not has_own_name(one)])
            if is_plain_loop(node) and parts[node.src[0]] > FEW_PARTS:
                long.add(node.src[0])
            again = times[node] > 1 and node.op is not Ops.INDEX and parts[node] > FEW_PARTS
            if again and not has_own_name(node) and not is_literal(node):
                long.add(node)
            each = 1 if node in long else max(times[node], 1)
            for source in node.src:
                times[source] += each
        for node in self.nodes:
            if not has_own_name(node):
                below = [1 if s in long else parts[s] for s in node.src]
                parts[node] = _parts_of(node) + sum(below)
            is_line = node.op is Ops.STORE and node in roots or node is self.root and self.is_sink
            if parts[node] > MOST_PARTS and node.op is not Ops.INDEX and not is_line:
                long.add(node)
        return {n for n in long if not has_own_name(n)}

    def _is_named(self, node: UOp) -> bool:
        return node in self.long or has_own_name(node)

    def _inside(self, root: UOp) -> list[UOp]:
        """The nodes that stand in the text of a term, sources first."""
        return toposort((root,), lambda n: n is root or not self._is_named(n))

    def _is_plain_place(self, node: UOp) -> bool:
        """Whether a LOAD or STORE says itself what its position is."""
        return _is_element(node) and node not in self.long

    # -- terms ----------------------------------------------------------------------------------

    def _term(self, root: UOp) -> str:
        """The text of a term, in which others go by their names."""
        return self._written(root, (root,))[root][0]

    def _written(self, root: UOp, parts: Sequence[UOp]) -> dict[UOp, tuple[str, int]]:
        """Of the nodes in parts of a statement their texts, and how tightly these hold together."""
        self._texts = {}
        for node in self._inside(root):
            if node is root and node not in parts:
                continue
            if node in self.names.given:
                self._texts[node] = self.names.given[node], ATOM
            elif node is not root and has_own_name(node):
                raise AssertionError(f"{node.op!r} {node.arg!r} is used before it is declared")
            else:
                self._texts[node] = self._expression(node)
        return self._texts

    def _expression(self, node: UOp) -> tuple[str, int]:
        op, src, arg = node.op, node.src, node.arg
        if is_literal(node):
            text = self._literal(node, None)
            return text, SIGNED if text.startswith("-") else ATOM
        is_plain = node.dtype is plain_type(op, src, arg)
        if is_plain and arg is None and op in SIGNS and len(src) == 2:
            return self._between(node, *SIGNS[op])
        if is_plain and arg is None and op in PREFIXES and len(src) == 1:
            (source,) = src
            inside = (
                f"({self._piece(source)})" if is_literal(source) else self._piece(source, SIGNED)
            )
            return f"{PREFIXES[op]}{inside}", SIGNED
        return self._called(node, is_plain), ATOM

    def _between(self, node: UOp, sign: str, precedence: int) -> tuple[str, int]:
        left, right = node.src
        around = self._around(node.src)
        least = precedence + 1 if precedence == COMPARISON else precedence
        first = self._piece(left, least, around)
        second = self._piece(right, precedence + 1, around)
        if node.op is Ops.ADD and is_literal(right) and _is_negative(second):
            return f"{first} - {second[1:]}", SUM
        if node.op is Ops.ADD and self._is_subtracted(right):
            return f"{first} - {self._piece(right.src[0], SUM + 1)}", SUM
        return f"{first} {sign} {second}", precedence

    def _is_subtracted(self, node: UOp) -> bool:
        is_plain = node.op is Ops.NEG and node.arg is None and len(node.src) == 1
        if not is_plain or self._is_named(node):
            return False
        return node.dtype is node.src[0].dtype and not is_literal(node.src[0])

    def _around(self, src: Sequence[UOp]) -> DType | None:
        """What a literal among operands of one type need not say."""
        if (around := type_around(src)) is not None:
            return around
        are_natural = all(
            [s.op is Ops.CONST and s.dtype is natural_type(s.arg, self.index) for s in src]
        )
        return None if are_natural else _NO_TYPE

    def _piece(self, node: UOp, least: int = 0, around: DType | None = None) -> str:
        """The text of a source, in parentheses where it holds together less tightly than needed."""
        if is_literal(node):
            return self._literal(node, around)
        text, precedence = self._texts[node]
        return text if precedence >= least else f"({text})"

    def _called(self, node: UOp, is_plain: bool) -> str:
        op, src, arg, kind = node.op, node.src, node.arg, type_name(node.dtype)
        if op is Ops.LOAD and arg is None and len(src) == 1 and self._is_plain_place(src[0]):
            return self._position(src[0]) + ("" if is_plain else f":{kind}")
        if op is Ops.INDEX and _is_element(node):
            return f"&{self._position(node)}"
        if self._binds(node):
            head = "local" if op is Ops.LOCAL_BUFFER else REDUCTIONS[arg]
            return f"{head}[{self._loops(src[1:])}]({self._piece(src[0])})"
        if op is Ops.HREDUCE and is_plain and arg in COMBINED and len(src) == 1:
            return f"{COMBINED[arg]}({self._piece(src[0])})"
        if op is Ops.CAST and arg is None and len(src) == 1:
            if src[0].dtype.lanes == node.dtype.lanes and kind != "void":
                return f"{kind}({self._piece(src[0])})"
        if op is Ops.BROADCAST and arg is None and len(src) == 1:
            if src[0].dtype is node.dtype.scalar and node.dtype.lanes > 1:
                return f"{kind}({self._piece(src[0], around=src[0].dtype)})"
        around: list[DType | None] = [None] * len(src)
        if op in ELEMENTWISE and is_plain and arg is None:
            first = 1 if op is Ops.WHERE else 0
            around[first:] = [self._around(src[first:])] * len(src[first:])
        pieces = [self._piece(s, around=a) for s, a in zip(src, around)]
        own = "" if is_plain else f":{kind}"
        shown = "" if arg is None else f"{{{self._argument(arg)}}}"
        return f"{op.name.lower()}{own}{shown}({', '.join(pieces)})"

    def _binds(self, node: UOp) -> bool:
        """Whether a node has its loops in brackets."""
        is_reduction = node.op is Ops.REDUCE and node.arg in REDUCTIONS
        is_kept = node.op is Ops.LOCAL_BUFFER and node.arg is None
        if not (is_reduction or is_kept) or len(node.src) < 2:
            return False
        return node.dtype is node.src[0].dtype and all(map(is_plain_loop, node.src[1:]))

    def _position(self, position: UOp) -> str:
        memory, index, *mask = position.src
        masked = f" if {self._piece(mask[0])}" if mask else ""
        return f"{self._texts[memory][0]}[{self._piece(index)}{masked}]"

    def _loops(self, loops: Iterable[UOp]) -> str:
        return ", ".join([self._loop(loop, AxisRole.REDUCE) for loop in loops])

    def _loop(self, loop: UOp, usual: AxisRole) -> str:
        """Name, size and role; the name alone of one that was declared."""
        name, role = self.names.given[loop], loop.arg[1]
        if loop in self.declared and usual is AxisRole.REDUCE and role is AxisRole.REDUCE:
            return name
        kind = "" if loop.dtype is self.index else f": {type_name(loop.dtype)}"
        bound = loop.src[0]
        if is_literal(bound):
            size = self._literal(bound, loop.dtype)
        else:
            around, self._texts = self._texts, {}
            text, precedence = self._written(bound, (bound,))[bound]
            size = text if precedence > COMPARISON else f"({text})"
            self._texts = around
        return f"{name}{kind} < {size}{'' if role is usual else f' as {role.value}'}"

    def _literal(self, node: UOp, around: DType | None) -> str:
        """The text of a constant among operands of one type; with its own type if that is another."""
        if node.op is Ops.BROADCAST:
            (scalar,) = node.src
            if around is node.dtype and _is_plain_constant(scalar):
                return self._literal(scalar, scalar.dtype)
            return f"{type_name(node.dtype)}({self._literal(scalar, scalar.dtype)})"
        if not _is_plain_constant(node):
            return f"const:{type_name(node.dtype)}{{{self._argument(node.arg)}}}()"
        natural = natural_type(node.arg, self.index) if around is None else around
        own = "" if natural is node.dtype else f":{type_name(node.dtype)}"
        if isinstance(node.arg, tuple):
            values = ", ".join([_number(value, node.dtype.scalar) for value in node.arg])
            return f"[{values}]{own}"
        return f"{_number(node.arg, node.dtype)}{own}"

    def _argument(self, arg: Any) -> str:
        """An arg as literals, names of operations and of terms."""
        pieces: list[str] = []
        stack: list[Any] = [arg]
        while stack:
            match stack.pop():
                case _Text(text):
                    pieces.append(text)
                case tuple() as items:
                    pieces.append("(")
                    stack.append(_Text(",)" if len(items) == 1 else ")"))
                    for k in reversed(range(len(items))):
                        stack += [items[k], _Text(", ")] if k else [items[k]]
                case UOp() as node:
                    is_no_line = node.op is Ops.RANGE and node not in self.declared
                    if node not in self.names.given or is_no_line:
                        raise ValueError(
                            "a node in the argument of another, which no line runs, has no text"
                        )
                    pieces.append(self.names.given[node])
                case Ops() as op:
                    pieces.append(op.name.lower())
                case AxisRole() as role:
                    pieces.append(f"as {role.value}")
                case None:
                    pieces.append("none")
                case str() as text:
                    pieces.append(json.dumps(text))
                case bool() | int() | float() as value:
                    pieces.append(_number(value, dtypes.float64))
                case other:
                    raise ValueError(
                        f"an arg of {type(other).__name__} has no text: {other!r:.200}"
                    )
        return "".join(pieces)


@dataclass(frozen=True, slots=True)
class _Text:
    text: str


def everything(root: UOp, enter: Callable[[UOp], bool] | None = None) -> list[UOp]:
    """The nodes of a graph and of the args of its nodes, sources first; `enter(node)` false stops."""
    order: dict[UOp, None] = {}
    stack: list[tuple[UOp, bool]] = [(root, False)]
    while stack:
        node, is_done = stack.pop()
        if is_done or (enter is not None and not enter(node)):
            order[node] = None
        elif node not in order:
            stack.append((node, True))
            below = (*node.src[::-1], *held(node.arg))
            stack += [(one, False) for one in below if one not in order]
    return list(order)


def _parts_of(node: UOp) -> int:
    """How much one node adds to the length of a term."""
    if node.op in (Ops.INDEX, Ops.LOAD):
        return 0
    return 1 if node.op in ELEMENTWISE or not node.src else FEW_PARTS + 1


def held(arg: Any) -> list[UOp]:
    """The nodes in an arg."""
    found: list[UOp] = []
    stack = [arg]
    while stack:
        one = stack.pop()
        if isinstance(one, UOp):
            found.append(one)
        elif isinstance(one, tuple):
            stack += one
    return found


def _is_element(node: UOp) -> bool:
    """Whether an INDEX is as `a[i if g]` says it."""
    if node.op is not Ops.INDEX or node.arg is not None or len(node.src) not in (2, 3):
        return False
    return node.dtype is node.src[0].dtype and node.src[0].op is not Ops.INDEX


def _is_plain_constant(node: UOp) -> bool:
    """Whether a CONST is what its literal is read as."""
    if node.op is not Ops.CONST or node.src:
        return False
    try:
        return constant(node.arg, node.dtype) is node
    except (ValueError, TypeError, OverflowError):
        return False


def _is_negative(literal: str) -> bool:
    return literal.startswith("-") and ":" not in literal


def _number(value: Any, dtype: DType) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        return repr(value)
    shortest = repr(value)
    if len(shortest) > 6 and (dtype.is_float or dtype.is_code):
        for digits in range(1, 17):
            text = repr(float(f"{value:.{digits}g}"))
            if round_float(float(text), dtype) == value:
                return text
    return shortest
