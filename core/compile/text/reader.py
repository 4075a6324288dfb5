"""The text of loop nests as graphs again.

Owns: reading what show.py prints, or what a person writes in that form. It knows a closed set of words and runs
nothing. Does not own: terms (term_reader.py), printing (show.py), the words (syntax.py), which
graphs are legal (core/compile/passes/forms.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from proofgrad.core.compile.text.linear import newly_run
from proofgrad.core.compile.text.syntax import REGISTER_NAME, STORES, free_loops, nest_of
from proofgrad.core.compile.text.term_reader import TermReader
from proofgrad.core.compile.text.tokens import Line, Token
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.text import GraphTextError
from proofgrad.core.ir.uop import AxisRole, UOp

INDENT = 2

_FORMS = ("kernel", "program", "linear", "graph", "term")
_STORE_OF = {sign: op for op, sign in STORES.items()}


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
        reader = Line(content, line)
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


@dataclass(slots=True)
class _Open:
    """A `for` whose lines are read."""

    loop: UOp
    in_order: bool


class _Block(TermReader):
    """Reads one graph, statement by statement."""

    def __init__(self) -> None:
        super().__init__()
        self.roots: list[UOp] = []
        self.open: list[_Open] = []
        self.form = "kernel"
        self.order: dict[UOp, None] = {}  # what has run, of Linear
        self.arg: str | None = None  # the device that a graph is for
        self.free: dict[UOp, frozenset[UOp]] = {}
        self.has_lines = True  # whether the last `for` has a line inside

    def head(self, line: Line) -> tuple[int, int] | None:
        """The form, its position among several, the type of indices."""
        if not line.is_here(*_FORMS):
            raise line.expected(f"one of {', '.join(_FORMS)}")
        self.form = line.take().text
        position = None
        if line.token.kind == "number":
            first = line.number_here("a number")
            if line.name("`of`").text != "of":
                raise line.expected("`of`")
            position = (first, line.number_here("how many graphs there are"))
        if self.form not in ("term", "linear") and line.accept("on"):
            self.arg = line.string()
        if line.accept(","):
            line.expect("indices")
            self.index = self._type(line)
        line.end()
        return position

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

    def statement(self, line: Line) -> None:
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

    def _run(self, line: Line, node: UOp, at: int) -> None:
        """In Linear a node, and what it needs, run where they stand."""
        if self.form != "linear":
            return
        new = newly_run(node, self.order)
        if not new:
            raise line.error("this ran above", at)
        if any([n.op is Ops.RANGE for n in new if n is not node or self.has_lines]):
            raise line.error("a loop is opened by `for`", at)
        self.order.update(dict.fromkeys(new))

    def _for(self, line: Line) -> None:
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

    def _declaration(self, line: Line) -> None:
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

    def _memory(self, line: Line, dtype: DType, size: int) -> UOp:
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

    def _register(self, line: Line, name: Token, dtype: DType) -> None:
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

    def _store(self, line: Line) -> None:
        at = line.token.at
        if line.token.kind != "name" or not line.tokens[1].text == "[":
            raise line.expected("for, over, let, return, a declaration or a store")
        position = self._position(line, self._known(line, line.take()))
        sign = line.take().text
        if sign in ("max", "min") and line.is_here("="):
            sign += line.take().text
        if sign not in _STORE_OF:
            raise line.error(
                f"expected one of {' '.join(_STORE_OF)}", line.tokens[line.next - 1].at
            )
        value = self._typed(line, self._term(line), position.dtype)
        loops = [one.loop for one in self.open if one.in_order and self.form != "linear"]
        store = self._made(
            line, at, Ops.STORE, dtypes.void, (position, value, *loops), _STORE_OF[sign]
        )
        if self.form == "linear":
            return self._run(line, store, at)
        self._check_nest(line, at, store)
        self.roots.append(store)
        return None

    def _check_nest(self, line: Line, at: int, store: UOp) -> None:
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
