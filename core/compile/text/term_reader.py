"""The terms in the text of loop nests as nodes: operators, calls, elements of memory, sums over loops.

Owns: names, types of literals, terms; they nest at most MOST_NESTED deep. Does not own: tokens (tokens.py), lines
(reader.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from proofgrad.core.compile.text.syntax import (
    COMBINED,
    COMPARISON,
    LOOP_NAME,
    OP_OF_SIGN,
    OPS,
    PREFIXES,
    REDUCTIONS,
    ROLES,
    constant,
    is_reserved,
    natural_type,
    plain_type,
    type_around,
    type_named,
)
from proofgrad.core.compile.text.tokens import Line, Token
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.uop import AxisRole, UOp

MOST_NESTED = 100

_PREFIX_OF = {sign: op for op, sign in PREFIXES.items()}
_REDUCTION_OF = {name: op for op, name in REDUCTIONS.items()}
_COMBINED_OF = {name: op for op, name in COMBINED.items()}
_WORDS = {"true": True, "false": False, "inf": float("inf"), "nan": float("nan")}


@dataclass(slots=True)
class _Literal:
    """A number whose type is that of what it is combined with."""

    value: Any
    at: int


_Term = UOp | _Literal


class TermReader:
    """Reads terms, and knows what is called by which name."""

    def __init__(self) -> None:
        self.names: dict[str, UOp] = {}
        self.index = dtypes.index

    def _name(self, line: Line, name: Token, node: UOp) -> None:
        if is_reserved(name.text):
            raise line.error(f"{name.text} is a word of the language, no name", name.at)
        if self.names.setdefault(name.text, node) is not node:
            raise line.error(f"{name.text} is the name of something else", name.at)

    # -- loops ----------------------------------------------------------------------------------

    def _loops(self, line: Line, before: Sequence[UOp]) -> tuple[UOp, ...]:
        loops = [*before, self._loop(line, AxisRole.REDUCE)]
        while line.accept(","):
            loops.append(self._loop(line, AxisRole.REDUCE))
        return tuple(loops)

    def _loop(self, line: Line, role: AxisRole) -> UOp:
        """A name, and its size and role where they were not said before."""
        name = line.name("a loop, as r0 < 5")
        found = LOOP_NAME.fullmatch(name.text)
        if found is None:
            raise line.error("a loop is called r and its number, as r0", name.at)
        known = self.names.get(name.text)
        if known is not None and not line.is_here("<", ":"):
            return known
        dtype = self.index
        if line.accept(":"):
            dtype = self._type(line)
        line.expect("<")
        size = self._typed(line, self._sum(line), dtype)
        if line.accept("as"):
            word = line.name("a role")
            if word.text not in ROLES:
                raise line.error(f"expected one of {', '.join(ROLES)}", word.at)
            role = ROLES[word.text]
        loop = self._made(line, name.at, Ops.RANGE, dtype, (size,), (int(found[1]), role))
        self._name(line, name, loop)
        return loop

    # -- terms ----------------------------------------------------------------------------------

    def _term(self, line: Line, depth: int = 0) -> _Term:
        return self._between(line, 1, depth)

    def _sum(self, line: Line) -> _Term:
        return self._between(line, COMPARISON + 1, 0)

    def _between(self, line: Line, least: int, depth: int) -> _Term:
        """Operands and the operators between them that bind at least so tightly."""
        left = self._prefixed(line, depth)
        while line.token.kind == "mark" and (line.token.text in OP_OF_SIGN or line.is_here("-")):
            sign = line.token
            op, precedence = OP_OF_SIGN["+" if sign.text == "-" else sign.text]
            if precedence < least:
                break
            line.take()
            right = self._between(line, precedence + 1, depth + 1)
            if sign.text == "-":
                right = self._negative(line, right, sign.at)
            left = self._alu(line, sign.at, op, [left, right])
            if precedence == COMPARISON and line.is_here("<", "=="):
                raise line.expected("parentheses around a comparison that is compared")
        return left

    def _negative(self, line: Line, term: _Term, at: int) -> _Term:
        if isinstance(term, UOp):
            return self._made(line, at, Ops.NEG, term.dtype, (term,), None)
        if isinstance(term.value, (bool, tuple)):
            raise line.error("expected a number behind `-`", term.at)
        return _Literal(-term.value, at)

    def _prefixed(self, line: Line, depth: int) -> _Term:
        if depth > MOST_NESTED:
            raise line.error(f"terms nest more than {MOST_NESTED} deep", line.token.at)
        if line.token.kind != "mark" or line.token.text not in _PREFIX_OF:
            return self._with_type(line, self._atom(line, depth))
        sign = line.take()
        is_number = line.token.kind == "number" or line.is_here("inf", "nan")
        if sign.text == "-" and is_number:
            return self._with_type(line, self._negative(line, self._atom(line, depth), sign.at))
        source = self._typed(line, self._prefixed(line, depth + 1), None)
        return self._made(line, sign.at, _PREFIX_OF[sign.text], source.dtype, (source,), None)

    def _with_type(self, line: Line, term: _Term) -> _Term:
        """A literal with the type that it is written with."""
        if isinstance(term, UOp) or not line.is_here(":"):
            return term
        line.take()
        return self._typed(line, term, self._type(line))

    def _atom(self, line: Line, depth: int) -> _Term:
        token = line.token
        if token.kind == "number":
            return _Literal(line.value(line.take()), token.at)
        if line.accept("("):
            inside = self._term(line, depth + 1)
            line.expect(")")
            return inside if isinstance(inside, UOp) else self._typed(line, inside, None)
        if line.accept("["):
            values = self._separated(line, "]", lambda: self._lane(line))
            return _Literal(tuple(values), token.at)
        if line.accept("&"):
            return self._position(line, self._known(line, line.name("memory")), depth)
        if token.kind != "name":
            raise line.expected("a term")
        line.take()
        if token.text in _WORDS:
            return _Literal(_WORDS[token.text], token.at)
        if token.text in (*_REDUCTION_OF, "local") and line.is_here("["):
            return self._bound(line, token, depth)
        if is_reserved(token.text):
            return self._called(line, token, depth)
        node = self._known(line, token)
        return self._load(line, node, depth) if line.is_here("[") else node

    def _lane(self, line: Line) -> Any:
        at = line.token.at
        sign = -1 if line.accept("-") else 1
        term = self._atom(line, MOST_NESTED)
        if isinstance(term, UOp) or isinstance(term.value, tuple):
            raise line.error("expected a number", at)
        return term.value if sign == 1 else -term.value

    def _load(self, line: Line, memory: UOp, depth: int) -> UOp:
        at = line.token.at
        position = self._position(line, memory, depth)
        dtype = self._type(line) if line.accept(":") else position.dtype
        return self._made(line, at, Ops.LOAD, dtype, (position,), None)

    def _position(self, line: Line, memory: UOp, depth: int = 0) -> UOp:
        at = line.token.at
        line.expect("[")
        src = [memory, self._typed(line, self._term(line, depth + 1), None)]
        if line.accept("if"):
            src.append(self._typed(line, self._term(line, depth + 1), None))
        line.expect("]")
        return self._made(line, at, Ops.INDEX, memory.dtype, tuple(src), None)

    def _bound(self, line: Line, name: Token, depth: int) -> UOp:
        """sum[r1 < 4](value)."""
        line.expect("[")
        loops = self._loops(line, ())
        line.expect("]")
        line.expect("(")
        value = self._typed(line, self._term(line, depth + 1), None)
        line.expect(")")
        op = Ops.LOCAL_BUFFER if name.text == "local" else Ops.REDUCE
        arg = _REDUCTION_OF.get(name.text)
        return self._made(line, name.at, op, value.dtype, (value, *loops), arg)

    def _called(self, line: Line, name: Token, depth: int) -> UOp:
        """f32(x), max(x, y), reshape:f32{(2, 3)}(x)."""
        kind = type_named(name.text)
        combined = _COMBINED_OF.get(name.text)
        if kind is None and combined is None and name.text not in OPS:
            raise line.error(f"expected a term, found `{name.text}`", name.at)
        op = Ops.HREDUCE if combined is not None else OPS.get(name.text)
        dtype = self._type(line) if kind is None and line.accept(":") else None
        arg = combined
        if kind is None and line.accept("{"):
            arg = self._argument(line)
            line.expect("}")
        line.expect("(")
        src = self._separated(line, ")", lambda: self._term(line, depth + 1))
        if kind is not None:
            return self._converted(line, name, kind, src)
        assert op is not None
        if op in ELEMENTWISE and dtype is None and arg is None:
            return self._alu(line, name.at, op, src)
        typed = tuple([self._typed(line, s, None) for s in src])
        dtype = plain_type(op, typed, arg) if dtype is None else dtype
        return self._made(line, name.at, op, dtype, typed, arg)

    def _converted(self, line: Line, name: Token, kind: DType, src: list[_Term]) -> UOp:
        """A cast, or a scalar in every lane."""
        if len(src) != 1:
            raise line.error(f"{name.text} takes one term, not {len(src)}", name.at)
        if kind.lanes == 1:
            return self._made(
                line, name.at, Ops.CAST, kind, (self._typed(line, src[0], None),), None
            )
        is_scalar = isinstance(src[0], _Literal) and not isinstance(src[0].value, tuple)
        source = self._typed(line, src[0], kind.scalar if is_scalar else None)
        op = Ops.CAST if source.dtype.lanes == kind.lanes else Ops.BROADCAST
        if op is Ops.BROADCAST and source.dtype is not kind.scalar:
            raise line.error(f"a term of type {source.dtype!r} does not fill {name.text}", name.at)
        return self._made(line, name.at, op, kind, (source,), None)

    def _alu(self, line: Line, at: int, op: Ops, src: list[_Term]) -> UOp:
        """An operation on operands of one type, from which literals among them have theirs."""
        first = 1 if op is Ops.WHERE else 0
        group = src[first:]
        around = type_around(group) or next((s.dtype for s in group if isinstance(s, UOp)), None)
        typed = [self._typed(line, s, None) for s in src[:first]]
        typed += [self._typed(line, s, around) for s in group]
        if not typed:
            raise line.error(f"{op.name.lower()} of nothing", at)
        return self._made(line, at, op, plain_type(op, typed, None), tuple(typed), None)

    # -- parts ----------------------------------------------------------------------------------

    def _argument(self, line: Line) -> Any:
        """An arg: literals, names of operations, roles and terms, and tuples of them."""
        items: list[list[Any]] = [[]]
        while True:
            if line.accept("("):
                items.append([])
                if line.accept(")"):
                    items[-2].append(tuple(items.pop()))
                elif len(items) > MOST_NESTED:
                    raise line.error("tuples nest too deep", line.token.at)
                else:
                    continue
            else:
                items[-1].append(self._argument_atom(line))
            while len(items) > 1:
                has_comma = line.accept(",")
                if line.accept(")"):
                    items[-2].append(tuple(items.pop()))
                elif has_comma:
                    break
                else:
                    raise line.expected("`,` or `)`")
            else:
                return items[0][0]

    def _argument_atom(self, line: Line) -> Any:
        token = line.token
        if token.kind == "text":
            return line.string()
        sign = -1 if line.accept("-") else 1
        if line.token.kind == "number":
            return sign * line.value(line.take())
        name = line.name("an arg").text
        if name in ("inf", "nan"):
            return sign * _WORDS[name]
        if sign == -1:
            raise line.error("expected a number behind `-`", token.at)
        if name in _WORDS:
            return _WORDS[name]
        if name == "none":
            return None
        if name == "as":
            role = line.name("a role").text
            if role in ROLES:
                return ROLES[role]
        if name in OPS:
            return OPS[name]
        return self._known(line, token)

    def _separated(self, line: Line, end: str, read: Callable[[], Any]) -> list[Any]:
        found: list[Any] = []
        while not line.accept(end):
            if found:
                line.expect(",")
            found.append(read())
        return found

    def _known(self, line: Line, name: Token) -> UOp:
        node = self.names.get(name.text)
        if node is None:
            raise line.error(f"there is nothing called {name.text} above", name.at)
        return node

    def _type(self, line: Line) -> DType:
        token = line.name("a type, as f32, idx or i64x8")
        dtype = type_named(token.text)
        if dtype is None:
            raise line.error(
                f"expected a type, as f32, idx or i64x8, found `{token.text}`", token.at
            )
        return dtype

    def _typed(self, line: Line, term: _Term, dtype: DType | None) -> UOp:
        """The term, a literal with the type."""
        if isinstance(term, UOp):
            return term
        kind = natural_type(term.value, self.index) if dtype is None else dtype
        try:
            if kind is None:
                raise ValueError("a vector without lanes")
            return constant(term.value, kind)
        except (ValueError, TypeError, OverflowError) as error:
            raise line.error(str(error), term.at) from None

    def _made(
        self, line: Line, at: int, op: Ops, dtype: DType, src: tuple[UOp, ...], arg: Any
    ) -> UOp:
        try:
            return UOp(op, dtype, src, arg)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise line.error(f"no {op.name.lower()} of these ({error})", at) from None
