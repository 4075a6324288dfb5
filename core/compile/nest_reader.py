"""The text of loop nests as graphs again.

Owns: reading what nest_text.py prints, or what a person writes in that form. It knows a closed set of words and runs
nothing; terms nest at most MOST_NESTED deep. Does not own: printing (nest_text.py), the words (nest_syntax.py), which
graphs are legal (core/compile/forms.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from proofgrad.core.compile.nest_linear import newly_run
from proofgrad.core.compile.nest_syntax import (
    COMBINED,
    COMPARISON,
    LOOP_NAME,
    OP_OF_SIGN,
    OPS,
    PREFIXES,
    REDUCTIONS,
    REGISTER_NAME,
    ROLES,
    STORES,
    constant,
    free_loops,
    is_reserved,
    natural_type,
    nest_of,
    plain_type,
    type_around,
    type_named,
)
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.text import GraphTextError
from proofgrad.core.ir.uop import AxisRole, UOp

MOST_NESTED = 100
MOST_DIGITS = 400  # of a number
INDENT = 2

_FORMS = ("kernel", "program", "linear", "graph", "term")
_TOKEN = re.compile(
    r"""[ ]*(?:
    (?P<comment>\#.*)
  | (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
  | (?P<name>[A-Za-z_][A-Za-z_0-9]*)
  | (?P<text>"(?:[^"\\]|\\.)*")
  | (?P<mark>//|<<|>>|==|\.\.|\+=|\*=|[\[\](){}<=+\-*/%&|^~,:])
  | (?P<end>$)
    )""",
    re.VERBOSE,
)
_PREFIX_OF = {sign: op for op, sign in PREFIXES.items()}
_REDUCTION_OF = {name: op for op, name in REDUCTIONS.items()}
_COMBINED_OF = {name: op for op, name in COMBINED.items()}
_STORE_OF = {sign: op for op, sign in STORES.items()}
_WORDS = {"true": True, "false": False, "inf": float("inf"), "nan": float("nan")}


class _Token(NamedTuple):
    kind: str
    text: str
    at: int  # column, from 0


@dataclass(slots=True)
class _Literal:
    """A number whose type is that of what it is combined with."""

    value: Any
    at: int


_Term = UOp | _Literal


def read_nest(text: str) -> UOp:
    """The graph of a text, or a SINK of the graphs of several.

    Raises: GraphTextError, with line, column and what was expected.
    Example:
        read_nest("term\\n  return 3 * 4")
    """
    return read_named(text)[0]


def read_named(text: str) -> tuple[UOp, dict[str, UOp]]:
    """The same, and what is called by each name in the last of the graphs."""
    blocks: list[UOp] = []
    titles: list[tuple[int, int] | None] = []
    block: _Block | None = None
    line = 0
    for line, content in enumerate(text.split("\n"), 1):
        reader = _Line(content, line)
        if reader.is_at_end():
            continue
        if reader.indent == 0:
            if block is not None:
                blocks.append(block.made(line))
            block = _Block()
            titles.append(block.head(reader))
        elif block is None:
            raise reader.expected(f"a first line that says {', '.join(_FORMS)}")
        else:
            block.statement(reader)
    if block is None:
        raise GraphTextError("line 1, column 1: expected a graph, found no text")
    blocks.append(block.made(line))
    if titles == [None]:
        return blocks[0], block.names
    count = len(blocks)
    if titles != [(k + 1, count) for k in range(count)]:
        raise GraphTextError(
            f"line {line}: {count} graphs are called `1 of {count}`, `2 of {count}` and so on"
        )
    return UOp.sink(*blocks), block.names


class _Line:
    """One line as tokens."""

    def __init__(self, content: str, number: int) -> None:
        self.number = number
        self.indent = len(content) - len(content.lstrip(" "))
        self.tokens: list[_Token] = []
        self.next = 0
        position = 0
        while True:
            found = _TOKEN.match(content, position)
            if found is None:
                position += len(content[position:]) - len(content[position:].lstrip(" "))
                raise self.error(f"{content[position]!r} does not belong here", position)
            kind = found.lastgroup or "end"
            if kind in ("end", "comment"):
                break
            position = found.end()
            self.tokens.append(_Token(kind, found[kind], found.start(kind)))
        self.tokens.append(_Token("end", "", len(content.rstrip())))

    @property
    def token(self) -> _Token:
        return self.tokens[self.next]

    def is_at_end(self) -> bool:
        return self.token.kind == "end"

    def is_here(self, *texts: str) -> bool:
        return self.token.kind in ("mark", "name") and self.token.text in texts

    def follows(self, *texts: str) -> bool:
        """Whether these tokens come next."""
        here = self.tokens[self.next : self.next + len(texts)]
        return [t.text for t in here] == list(texts)

    def take(self) -> _Token:
        token = self.token
        if token.kind != "end":
            self.next += 1
        return token

    def accept(self, text: str) -> bool:
        if self.is_here(text):
            self.next += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.expected(f"`{text}`")

    def name(self, what: str) -> _Token:
        if self.token.kind != "name":
            raise self.expected(what)
        return self.take()

    def number_here(self, what: str) -> int:
        sign = -1 if self.accept("-") else 1
        if self.token.kind != "number" or not self.token.text.isdigit():
            raise self.expected(what)
        return sign * self.value(self.take())

    def value(self, token: _Token) -> Any:
        if len(token.text) > MOST_DIGITS:
            raise self.error(f"a number of more than {MOST_DIGITS} digits", token.at)
        return int(token.text) if token.text.isdigit() else float(token.text)

    def string(self) -> str:
        if self.token.kind != "text":
            raise self.expected('text in "..."')
        token = self.take()
        try:
            return str(json.loads(token.text))
        except ValueError:
            raise self.error("text with an escape that JSON has not", token.at) from None

    def end(self) -> None:
        if not self.is_at_end():
            raise self.expected("the end of the line")

    def expected(self, what: str) -> GraphTextError:
        found = f"`{self.token.text}`" if self.token.text else "the end of the line"
        return self.error(f"expected {what}, found {found}", self.token.at)

    def error(self, what: str, at: int) -> GraphTextError:
        return GraphTextError(f"line {self.number}, column {at + 1}: {what}")


@dataclass(slots=True)
class _Open:
    """A `for` whose lines are read."""

    loop: UOp
    in_order: bool


class _Block:
    """Reads one graph, statement by statement."""

    def __init__(self) -> None:
        self.names: dict[str, UOp] = {}
        self.roots: list[UOp] = []
        self.open: list[_Open] = []
        self.index = dtypes.index
        self.form = "kernel"
        self.order: dict[UOp, None] = {}  # what has run, of Linear
        self.arg: str | None = None  # the device that a graph is for
        self.free: dict[UOp, frozenset[UOp]] = {}
        self.has_lines = True  # whether the last `for` has a line inside

    def head(self, line: _Line) -> tuple[int, int] | None:
        """The form, its place among several, the type of indices."""
        if not line.is_here(*_FORMS):
            raise line.expected(f"one of {', '.join(_FORMS)}")
        self.form = line.take().text
        place = None
        if line.token.kind == "number":
            first = line.number_here("a number")
            if line.name("`of`").text != "of":
                raise line.expected("`of`")
            place = (first, line.number_here("how many graphs there are"))
        if self.form not in ("term", "linear") and line.accept("on"):
            self.arg = line.string()
        if line.accept(","):
            line.expect("indices")
            self.index = self._type(line)
        line.end()
        return place

    def made(self, number: int) -> UOp:
        """The graph."""
        if not self.has_lines:
            raise GraphTextError(f"line {number}: expected a line inside of the last `for`")
        if self.form == "linear":
            self._close(0)
            return UOp(Ops.LINEAR, dtypes.void, tuple(self.order))
        if self.form != "term":
            return UOp(Ops.SINK, dtypes.void, tuple(self.roots), self.arg)
        if len(self.roots) != 1:
            raise GraphTextError(f"line {number}: a term has one `return`, not {len(self.roots)}")
        return self.roots[0]

    # -- statements -----------------------------------------------------------------------------

    def statement(self, line: _Line) -> None:
        depth, odd = divmod(line.indent - INDENT, INDENT)
        deepest = len(self.open)
        if odd or depth > deepest or depth < 0 or (not self.has_lines and depth < deepest):
            wanted = INDENT * (deepest + 1)
            at_most = "" if not self.has_lines else " or less"
            raise line.error(f"expected {wanted} spaces{at_most}, found {line.indent}", line.indent)
        self._close(depth)
        self.has_lines = True
        if line.accept("for"):
            self._for(line)
        elif line.accept("over"):
            self._loops(line, ())
        elif line.accept("let"):
            name = line.name("a name")
            line.expect("=")
            node = self._typed(line, self._term(line), None)
            self._name(line, name, node)
            self._run(line, node, name.at)
        elif self.form == "linear" and line.accept("run"):
            self._run(line, self._typed(line, self._term(line), None), line.token.at)
            while line.accept(","):
                self._run(line, self._typed(line, self._term(line), None), line.token.at)
        elif self.form != "linear" and line.accept("return"):
            self.roots.append(self._typed(line, self._term(line), None))
        elif len(line.tokens) > 1 and line.tokens[1].text == ":":
            self._declaration(line)
        else:
            self._store(line)
        line.end()

    def _close(self, depth: int) -> None:
        """The loops inside of `depth` others end."""
        while len(self.open) > depth:
            loop = self.open.pop().loop
            if self.form == "linear":
                self.order[UOp(Ops.END, dtypes.void, (loop,))] = None

    def _run(self, line: _Line, node: UOp, at: int) -> None:
        """In Linear a node, and what it needs, run where they stand."""
        if self.form != "linear":
            return
        new = newly_run(node, self.order)
        if not new:
            raise line.error("this ran above", at)
        if any([n.op is Ops.RANGE for n in new if n is not node or self.has_lines]):
            raise line.error("a loop is opened by `for`", at)
        self.order.update(dict.fromkeys(new))

    def _name(self, line: _Line, name: _Token, node: UOp) -> None:
        if is_reserved(name.text):
            raise line.error(f"{name.text} is a word of the language, no name", name.at)
        if self.names.setdefault(name.text, node) is not node:
            raise line.error(f"{name.text} is the name of something else", name.at)

    def _for(self, line: _Line) -> None:
        at = line.token.at
        end = line.tokens[-3:-1]
        in_order = [t.text for t in end] == ["in", "order"]
        loop = self._loop(line, AxisRole.REDUCE if in_order else AxisRole.LOOP)
        if in_order:
            line.expect("in")
            line.expect("order")
        if loop in [one.loop for one in self.open]:
            raise line.error("this loop stands around itself", at)
        self.open.append(_Open(loop, in_order))
        self.has_lines = False
        self._run(line, loop, at)

    def _declaration(self, line: _Line) -> None:
        """Memory, a variable, or a register."""
        name = line.name("a name")
        line.expect(":")
        dtype = self._type(line)
        if line.accept("from"):
            return self._register(line, name, dtype)
        if line.accept("["):
            size = line.number_here("a number of elements")
            line.expect("]")
            line.expect("=")
            node = self._memory(line, dtype, size)
        else:
            line.expect("=")
            line.expect("variable")
            variable = line.string()
            line.expect("in")
            low = line.number_here("the smallest value")
            line.expect("..")
            bounds = (variable, low, line.number_here("the largest value"))
            node = self._made(line, name.at, Ops.VARIABLE, dtype, (), bounds)
        self._name(line, name, node)
        self._run(line, node, name.at)
        return None

    def _memory(self, line: _Line, dtype: DType, size: int) -> UOp:
        kind = line.name("`param`, `scratch` or `buffer`")
        number = line.number_here("a number")
        match kind.text:
            case "param" if line.is_here("of"):
                line.take()
                return self._made(
                    line, kind.at, Ops.PARAM, dtype, (), (number, size, line.string())
                )
            case "param":
                return self._made(line, kind.at, Ops.PARAM, dtype, (), (number, size))
            case "scratch":
                return self._made(line, kind.at, Ops.SCRATCH, dtype, (), (number, size))
            case "buffer":
                line.expect("on")
                unique = UOp(Ops.UNIQUE, dtypes.void, (), number)
                device = UOp(Ops.DEVICE, dtypes.void, (), line.string())
                return self._made(line, kind.at, Ops.BUFFER, dtype, (unique, device), size)
        raise line.error("expected `param`, `scratch` or `buffer`", kind.at)

    def _register(self, line: _Line, name: _Token, dtype: DType) -> None:
        found = REGISTER_NAME.fullmatch(name.text)
        if found is None:
            raise line.error("a register is called acc and its number, as acc0", name.at)
        arg: Any = int(found[1])
        for number in found[2].split("_")[1:]:
            arg = (arg, int(number))
        start = self._typed(line, self._term(line), dtype)
        loops = self._loops(line, ()) if line.accept("over") else ()
        node = self._made(line, name.at, Ops.ACCUMULATOR, dtype, (start, *loops), arg)
        self._name(line, name, node)
        self._run(line, node, name.at)

    def _store(self, line: _Line) -> None:
        at = line.token.at
        if line.token.kind != "name" or not line.tokens[1].text == "[":
            raise line.expected("for, over, let, return, a declaration or a store")
        place = self._place(line, self._known(line, line.take()))
        sign = line.take().text
        if sign in ("max", "min") and line.is_here("="):
            sign += line.take().text
        if sign not in _STORE_OF:
            raise line.error(
                f"expected one of {' '.join(_STORE_OF)}", line.tokens[line.next - 1].at
            )
        value = self._typed(line, self._term(line), place.dtype)
        loops = [one.loop for one in self.open if one.in_order and self.form != "linear"]
        store = self._made(
            line, at, Ops.STORE, dtypes.void, (place, value, *loops), _STORE_OF[sign]
        )
        if self.form == "linear":
            return self._run(line, store, at)
        self._check_nest(line, at, store)
        self.roots.append(store)
        return None

    def _check_nest(self, line: _Line, at: int, store: UOp) -> None:
        """The loops around a store are those that it changes with, in the order in which they run."""
        stack = [store]
        while stack:
            missing = [s for s in stack[-1].src if s not in self.free]
            stack += missing
            if not missing and (node := stack.pop()) not in self.free:
                self.free[node] = free_loops(node, self.free)
        around = [one.loop for one in self.open]
        wanted = self.free[store]
        if wanted != set(around):
            shown = ", ".join([f"r{x.arg[0]}" for x in nest_of(wanted)]) or "no loop"
            raise line.error(f"expected this store inside of {shown}: with those it changes", at)
        order = [x.arg[0] for x in nest_of(wanted)]
        if order != [x.arg[0] for x in around]:
            shown = ", ".join([f"r{number}" for number in order])
            raise line.error(f"expected the loops in the order in which they run: {shown}", at)

    # -- loops ----------------------------------------------------------------------------------

    def _loops(self, line: _Line, before: Sequence[UOp]) -> tuple[UOp, ...]:
        loops = [*before, self._loop(line, AxisRole.REDUCE)]
        while line.accept(","):
            loops.append(self._loop(line, AxisRole.REDUCE))
        return tuple(loops)

    def _loop(self, line: _Line, role: AxisRole) -> UOp:
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

    def _term(self, line: _Line, depth: int = 0) -> _Term:
        return self._between(line, 1, depth)

    def _sum(self, line: _Line) -> _Term:
        return self._between(line, COMPARISON + 1, 0)

    def _between(self, line: _Line, least: int, depth: int) -> _Term:
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

    def _negative(self, line: _Line, term: _Term, at: int) -> _Term:
        if isinstance(term, UOp):
            return self._made(line, at, Ops.NEG, term.dtype, (term,), None)
        if isinstance(term.value, (bool, tuple)):
            raise line.error("expected a number behind `-`", term.at)
        return _Literal(-term.value, at)

    def _prefixed(self, line: _Line, depth: int) -> _Term:
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

    def _with_type(self, line: _Line, term: _Term) -> _Term:
        """A literal with the type that it is written with."""
        if isinstance(term, UOp) or not line.is_here(":"):
            return term
        line.take()
        return self._typed(line, term, self._type(line))

    def _atom(self, line: _Line, depth: int) -> _Term:
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
            return self._place(line, self._known(line, line.name("memory")), depth)
        if token.kind != "name":
            raise line.expected("a term")
        line.take()
        if token.text in _WORDS:
            return _Literal(_WORDS[token.text], token.at)
        if token.text in (*_REDUCTION_OF, "keep") and line.is_here("["):
            return self._bound(line, token, depth)
        if is_reserved(token.text):
            return self._called(line, token, depth)
        node = self._known(line, token)
        return self._load(line, node, depth) if line.is_here("[") else node

    def _lane(self, line: _Line) -> Any:
        at = line.token.at
        sign = -1 if line.accept("-") else 1
        term = self._atom(line, MOST_NESTED)
        if isinstance(term, UOp) or isinstance(term.value, tuple):
            raise line.error("expected a number", at)
        return term.value if sign == 1 else -term.value

    def _load(self, line: _Line, memory: UOp, depth: int) -> UOp:
        at = line.token.at
        place = self._place(line, memory, depth)
        dtype = self._type(line) if line.accept(":") else place.dtype
        return self._made(line, at, Ops.LOAD, dtype, (place,), None)

    def _place(self, line: _Line, memory: UOp, depth: int = 0) -> UOp:
        at = line.token.at
        line.expect("[")
        src = [memory, self._typed(line, self._term(line, depth + 1), None)]
        if line.accept("if"):
            src.append(self._typed(line, self._term(line, depth + 1), None))
        line.expect("]")
        return self._made(line, at, Ops.INDEX, memory.dtype, tuple(src), None)

    def _bound(self, line: _Line, name: _Token, depth: int) -> UOp:
        """sum[r1 < 4](value)."""
        line.expect("[")
        loops = self._loops(line, ())
        line.expect("]")
        line.expect("(")
        value = self._typed(line, self._term(line, depth + 1), None)
        line.expect(")")
        op = Ops.KEEP if name.text == "keep" else Ops.REDUCE
        arg = _REDUCTION_OF.get(name.text)
        return self._made(line, name.at, op, value.dtype, (value, *loops), arg)

    def _called(self, line: _Line, name: _Token, depth: int) -> UOp:
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

    def _converted(self, line: _Line, name: _Token, kind: DType, src: list[_Term]) -> UOp:
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

    def _alu(self, line: _Line, at: int, op: Ops, src: list[_Term]) -> UOp:
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

    def _argument(self, line: _Line) -> Any:
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

    def _argument_atom(self, line: _Line) -> Any:
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

    def _separated(self, line: _Line, end: str, read: Callable[[], Any]) -> list[Any]:
        found: list[Any] = []
        while not line.accept(end):
            if found:
                line.expect(",")
            found.append(read())
        return found

    def _known(self, line: _Line, name: _Token) -> UOp:
        node = self.names.get(name.text)
        if node is None:
            raise line.error(f"there is nothing called {name.text} above", name.at)
        return node

    def _type(self, line: _Line) -> DType:
        token = line.name("a type, as f32, idx or i64x8")
        dtype = type_named(token.text)
        if dtype is None:
            raise line.error(
                f"expected a type, as f32, idx or i64x8, found `{token.text}`", token.at
            )
        return dtype

    def _typed(self, line: _Line, term: _Term, dtype: DType | None) -> UOp:
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
        self, line: _Line, at: int, op: Ops, dtype: DType, src: tuple[UOp, ...], arg: Any
    ) -> UOp:
        try:
            return UOp(op, dtype, src, arg)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise line.error(f"no {op.name.lower()} of these ({error})", at) from None
