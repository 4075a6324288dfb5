"""Graphs as text, and text as graphs again.

Owns: the printed form of nodes and a reader for it. The reader knows a closed set of names (UOp,
Ops, dtypes, AxisRole, numbers, text, tuples) and runs nothing. Neither recurses, so depth is no
limit. Does not own: drawings, names of kernels.

    UOp(Ops.ADD, dtypes.int, arg=None, src=(
      x0:=UOp(Ops.CONST, dtypes.int, arg=2, src=()),
       x0,))
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from proofgrad.core.ir.dtypes import DType, dtype_named, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp

DEEPEST_INDENT = 40  # levels; deeper lines are not indented further, so that text stays linear


class GraphTextError(ValueError):
    """Text that is no graph: says where and why."""


# -- printing -----------------------------------------------------------------------------------


def show_uop(root: UOp) -> str:
    """`root` and all below it; a node used more than once is named where it first appears."""
    uses = Counter([source for node in root.toposort() for source in node.src])
    names: dict[UOp, str] = {}
    parts: list[str] = []
    stack: list[tuple[UOp, int] | str] = [(root, 0)]
    while stack:
        top = stack.pop()
        if isinstance(top, str):
            parts.append(top)
            continue
        node, depth = top
        indent = " " * (2 * min(depth, DEEPEST_INDENT))
        if node in names:
            parts.append(f"{indent} {names[node]}")
            continue
        label = ""
        if uses[node] > 1:
            names[node] = f"x{len(names)}"
            label = f"{names[node]}:="
        parts.append(f"{indent}{label}UOp({node.op!r}, {node.dtype!r}, arg={node.arg!r}, src=(")
        stack.append("))")
        for k, source in enumerate(reversed(node.src)):
            stack.append("," if k == 0 else ",\n")
            stack.append((source, depth + 1))
        if node.src:
            parts.append("\n")
    return "".join(parts)


# -- reading ------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>-?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|inf\b|nan\b))
  | (?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)
  | (?P<text>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")
  | (?P<mark>:=|[(),=])
  | (?P<end>$)
    )""",
    re.VERBOSE,
)
_CONSTANTS: dict[str, Any] = {"None": None, "True": True, "False": False}
_PARAMETERS = ("op", "dtype", "src", "arg")


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


class _Frame:
    """An open parenthesis: a tuple, or the arguments of `called`."""

    def __init__(self, called: str | None, label: str | None) -> None:
        self.called = called
        self.label = label  # the name that the finished value gets
        self.items: list[Any] = []
        self.keys: dict[str, Any] = {}
        self.commas = 0


def read_uop(text: str) -> UOp:
    """The graph that `show_uop` printed as `text`.

    Raises: GraphTextError.
    Example:
        read_uop("UOp(Ops.CONST, dtypes.int, arg=2, src=())")
    """
    value = _Reader(text).read()
    if not isinstance(value, UOp):
        raise GraphTextError(f"expected a UOp, found {value!r}")
    return value


class _Reader:
    """Reads one value with a stack of open parentheses."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._names: dict[str, UOp] = {}
        self._key: str | None = None
        self._label: str | None = None

    def read(self) -> Any:
        frames = [_Frame(None, None)]
        tokens = list(self._tokens())
        for k, token in enumerate(tokens):
            following = tokens[k + 1].text if k + 1 < len(tokens) else ""
            match token.kind, token.text:
                case "mark", "(":
                    opened_by_name = k > 0 and tokens[k - 1].kind == "name"
                    called = tokens[k - 1].text if opened_by_name else None
                    frames.append(_Frame(called, self._label))
                    frames[-1].keys["="] = self._key
                    self._label = self._key = None
                case "mark", ")":
                    self._close(frames, token)
                case "mark", ",":
                    frames[-1].commas += 1
                case "mark", _:
                    continue  # := and = were seen with the name before them
                case "name", name if following == ":=":
                    self._label = name
                case "name", name if following == "=":
                    self._key = name
                case "name", _ if following == "(":
                    continue
                case _:
                    self._deliver(frames[-1], self._atom(token), token)
        if len(frames) != 1 or len(frames[0].items) != 1:
            raise GraphTextError(f"expected one value in {len(self._text)} characters of text")
        return frames[0].items[0]

    def _tokens(self) -> Iterator[_Token]:
        position = 0
        while True:
            found = _TOKEN.match(self._text, position)
            if found is None:
                raise self._error("a character that does not belong here", position)
            kind = found.lastgroup or "end"
            if kind == "end":
                return
            position = found.end()
            yield _Token(kind, found[kind], found.start(kind))

    def _close(self, frames: list[_Frame], token: _Token) -> None:
        frame = frames.pop()
        if not frames:
            raise self._error("a closing parenthesis too many", token.at)
        self._key = frame.keys.pop("=")
        self._label = frame.label
        self._deliver(frames[-1], self._value(frame, token), token)

    def _deliver(self, frame: _Frame, value: Any, token: _Token) -> None:
        if self._label is not None:
            if not isinstance(value, UOp):
                raise self._error(f"only a UOp may be named, not {value!r}", token.at)
            self._names[self._label] = value
        if self._key is None:
            frame.items.append(value)
        else:
            frame.keys[self._key] = value
        self._key = self._label = None

    def _atom(self, token: _Token) -> Any:
        if token.kind == "text":
            return ast.literal_eval(token.text)
        if token.kind == "number":
            whole = token.text.lstrip("-").isdigit()
            return int(token.text) if whole else float(token.text)
        if token.text in _CONSTANTS:
            return _CONSTANTS[token.text]
        if token.text in self._names:
            return self._names[token.text]
        owner, _, member = token.text.partition(".")
        match owner:
            case "Ops" if member in Ops.__members__:
                return Ops[member]
            case "AxisRole" if member in AxisRole.__members__:
                return AxisRole[member]
            case "dtypes":
                return self._dtype(member, token)
        raise self._error(f"the unknown name {token.text}", token.at)

    def _dtype(self, name: str, token: _Token) -> DType:
        found = getattr(dtypes, name, None)
        if isinstance(found, DType):
            return found
        try:
            return dtype_named(name)
        except ValueError as error:
            raise self._error(str(error), token.at) from None

    def _value(self, frame: _Frame, token: _Token) -> Any:
        """What a closed parenthesis stands for."""
        if frame.called is None:
            if frame.keys:
                raise self._error("a tuple does not name its items", token.at)
            lone = len(frame.items) == 1 and not frame.commas
            return frame.items[0] if lone else tuple(frame.items)
        if frame.called == "UOp":
            return self._uop(frame, token)
        owner, _, rest = frame.called.partition(".")
        name, _, method = rest.rpartition(".")
        lanes = frame.items[0] if len(frame.items) == 1 and not frame.keys else None
        if owner == "dtypes" and method == "vec" and type(lanes) is int and lanes > 0:
            return self._dtype(name, token).vec(lanes)
        raise self._error(f"a call of {frame.called}", token.at)

    def _uop(self, frame: _Frame, token: _Token) -> UOp:
        if len(frame.items) > len(_PARAMETERS) or not frame.keys.keys() <= set(_PARAMETERS):
            raise self._error(f"a UOp has only {', '.join(_PARAMETERS)}", token.at)
        given = {"dtype": dtypes.void, "src": (), "arg": None}
        given |= dict(zip(_PARAMETERS, frame.items)) | frame.keys
        op, dtype, src = given.get("op"), given["dtype"], given["src"]
        if not isinstance(op, Ops) or not isinstance(dtype, DType) or not isinstance(src, tuple):
            raise self._error("a UOp needs an op, a dtype and a tuple of sources", token.at)
        if not all([isinstance(source, UOp) for source in src]):
            raise self._error("a source that is no UOp", token.at)
        try:
            return UOp(op, dtype, src, given["arg"])
        except (ValueError, TypeError, LookupError) as error:
            raise self._error(f"no {op.name.lower()} of these ({error})", token.at) from None

    def _error(self, what: str, position: int) -> GraphTextError:
        line = self._text.count("\n", 0, position) + 1
        column = position - (self._text.rfind("\n", 0, position) + 1) + 1
        return GraphTextError(f"line {line}, column {column}: {what}")
