"""Programs as data, and as the text that runs them.

Owns: values by number, steps, writes, programs of each kind, their source. A program is run only as
its source, so that a script that shows a fault runs what was run here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

OPERATORS = {
    "__add__": "+", "__sub__": "-", "__mul__": "*", "__truediv__": "/", "__floordiv__": "//",
    "__mod__": "%", "__pow__": "**", "__and__": "&", "__or__": "|", "__xor__": "^",
    "__lshift__": "<<", "__rshift__": ">>", "__matmul__": "@", "__lt__": "<", "__le__": "<=",
    "__gt__": ">", "__ge__": ">=", "__eq__": "==", "__ne__": "!=",
}  # fmt: skip
REFLECTED = {
    f"__r{name[2:]}": sign
    for name, sign in OPERATORS.items()
    if name[2:-2] not in ("lt", "le", "gt", "ge", "eq", "ne")
}
IN_PLACE = {f"__i{name[2:]}": f"{sign}=" for name, sign in OPERATORS.items() if f"__r{name[2:]}" in REFLECTED}  # fmt: skip
PREFIX = {"__neg__": "-", "__pos__": "+", "__invert__": "~"}


@dataclass(frozen=True, slots=True)
class Ref:
    """The value of that number; it prints as its name in the source."""

    number: int

    def __repr__(self) -> str:
        return f"v{self.number}"


@dataclass(frozen=True, slots=True)
class Data:
    """A Tensor of given elements, or a row of a table that a call takes in turn."""

    dtype: str
    shape: tuple[int, ...]
    elements: tuple[Any, ...]

    def __repr__(self) -> str:
        elements, count = self.elements, len(self.elements)
        same = count > 4 and all(repr(e) == repr(elements[0]) for e in elements)
        listed = f"[{elements[0]!r}] * {count}" if same else repr(list(elements))
        data = f"Tensor({listed}, dtype={self.dtype!r})"
        return data if len(self.shape) == 1 else f"{data}.reshape({self.shape!r})"


@dataclass(frozen=True, slots=True)
class Step:
    """`target = operands[0].name(*operands[1:], **options)`, or one of several results of it."""

    target: int
    name: str
    operands: tuple[Any, ...] = ()
    options: tuple[tuple[str, Any], ...] = ()
    pick: int | None = None

    def __repr__(self) -> str:
        picked = "" if self.pick is None else f"[{self.pick}]"
        return f"v{self.target} = {call_text(self.name, self.operands, self.options)}{picked}"


@dataclass(frozen=True, slots=True)
class Write:
    """`target.assign(value)`, `target[index] = value` or `target += value`."""

    target: Ref
    name: str
    value: Any
    index: Any = None

    def __repr__(self) -> str:
        if self.name == "assign":
            return f"{self.target!r}.assign({self.value!r})"
        if self.name == "__setitem__":
            return f"{self.target!r}[{index_text(self.index)}] = {self.value!r}"
        return f"{self.target!r} {IN_PLACE[self.name]} {self.value!r}"


@dataclass(frozen=True, slots=True)
class Realize:
    """Compute a value now."""

    target: Ref

    def __repr__(self) -> str:
        return f"{self.target!r}.realize()"


@dataclass(frozen=True, slots=True)
class Call:
    """The recorded function on these arguments."""

    arguments: tuple[Ref, ...]


Statement: TypeAlias = Step | Write | Realize


@dataclass(frozen=True, slots=True)
class Program:
    """Statements, and what of it is compared.

    `gradient_of`: leaves for which the weighted sum of the results is differentiated. `body`: what a
    TinyJit records, over the values numbered in `parameters` and all that was made before; `calls`
    says what it is called with. `sizes`: the values of the Variable `n` that the program is run for.
    `is_together`: what is compared is computed in one go.
    """

    kind: str
    statements: tuple[Statement, ...]
    results: tuple[Ref, ...]
    settings: tuple[tuple[str, str], ...] = ()
    gradient_of: tuple[Ref, ...] = ()
    weights: tuple[Any, ...] = ()
    parameters: tuple[int, ...] = ()
    body: tuple[Statement, ...] = ()
    calls: tuple[Call, ...] = ()
    sizes: tuple[int, ...] = ()
    bound: int = 0
    is_together: bool = False
    note: str = field(default="", compare=False)

    @property
    def operations(self) -> int:
        """How many steps, writes and realizations it has, leaves not counted."""
        return sum(not is_leaf(s) for s in (*self.statements, *self.body))

    def with_(self, **changes: Any) -> Program:
        """A copy with these fields changed."""
        return replace(self, **changes)


def is_leaf(statement: Statement) -> bool:
    """Whether a statement makes a Tensor of data."""
    return isinstance(statement, Step) and statement.name == "Tensor"


def references(value: Any) -> Iterator[int]:
    """The numbers of all values that an operand, an option or a statement reads."""
    if isinstance(value, Ref):
        yield value.number
    elif isinstance(value, Step):
        yield from references(value.operands)
        yield from references([option for _, option in value.options])
    elif isinstance(value, Write):
        yield from references((value.target, value.value, value.index))
    elif isinstance(value, Realize):
        yield value.target.number
    elif isinstance(value, Call):
        yield from references(value.arguments)
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from references(part)


# -- text -----------------------------------------------------------------------------------------


def index_text(index: Any) -> str:
    """What stands between the brackets."""
    parts = index if isinstance(index, tuple) else (index,)
    inner = ", ".join(_part_text(part) for part in parts)
    return f"{inner}," if isinstance(index, tuple) and len(parts) == 1 else inner or "()"


def _part_text(part: Any) -> str:
    if isinstance(part, slice):
        begin, end = ["" if bound is None else repr(bound) for bound in (part.start, part.stop)]
        return f"{begin}:{end}" + ("" if part.step is None else f":{part.step}")
    return "..." if part is Ellipsis else repr(part)


def call_text(name: str, operands: Sequence[Any], options: Sequence[tuple[str, Any]] = ()) -> str:
    """The expression of one step."""
    first = operands[0] if operands else None
    if name == "Tensor":
        return repr(first)
    if name in OPERATORS:
        return f"{first!r} {OPERATORS[name]} {operands[1]!r}"
    if name in REFLECTED:
        return f"{operands[1]!r} {REFLECTED[name]} {first!r}"
    if name in PREFIX:
        return f"{PREFIX[name]}{first!r}"
    if name == "__getitem__":
        return f"{first!r}[{index_text(operands[1])}]"
    if name == "__abs__":
        return f"abs({first!r})"
    named = [f"{key}={value!r}" for key, value in options]
    if name == "T":
        return f"{first!r}.T"
    owner, rest = (first, operands[1:]) if isinstance(first, Ref) else ("Tensor", operands)
    return f"{owner}.{name}({', '.join([*map(repr, rest), *named])})"


def source_of(program: Program) -> str:
    """Statements that call `see(name, tensor)` with all that is compared."""
    lines: list[str] = []
    for statement in program.statements:
        lines.append(repr(statement))
        if isinstance(statement, Step) and Ref(statement.target) in program.gradient_of:
            lines.append(f"v{statement.target}.requires_grad_()")
    if program.sizes:
        first = len([s for s in program.statements if is_leaf(s)])
        inner = [*lines[first:], *[_seen(f"{r!r} at {{size}}", r) for r in program.results]]
        head = [f"n = Variable('n', 1, {program.bound})", f"for size in {program.sizes!r}:"]
        return _joined([*lines[:first], *head, *_indented(["m = n.bind(size)", *inner])])
    if program.gradient_of:
        return _joined([*lines, *_gradient_lines(program)])
    if program.body:
        return _joined([*lines, *_recorded_lines(program)])
    together = _together(program, list(map(repr, program.results)))
    return _joined([*lines, *together, *[_seen(repr(r), r) for r in program.results]])


def _together(program: Program, names: Sequence[str]) -> list[str]:
    return [f"Tensor.realize({', '.join(names)})"] if program.is_together and len(names) > 1 else []


def _gradient_lines(program: Program) -> list[str]:
    terms = [f"({r!r} * {w!r}).sum()" for r, w in zip(program.results, program.weights)]
    names = [f"g{r.number}" for r in program.gradient_of]
    total = " + ".join(terms)
    lines = [
        f"{', '.join(names)}, = ({total}).gradient({', '.join(map(repr, program.gradient_of))}, materialize_grads=True)"
    ]
    lines += _together(program, [*map(repr, program.results), *names])
    lines += [_seen(repr(r), r) for r in program.results]
    return lines + [f"see({name!r}, {name})" for name in names]


def _recorded_lines(program: Program) -> list[str]:
    names = ", ".join(f"v{number}" for number in program.parameters)
    returned = "".join(f"{r!r}, " for r in program.results)
    lines = ["@TinyJit", f"def step({names}):"]
    written = sorted(
        {repr(s.target) for s in program.body if isinstance(s, Write) and s.name in IN_PLACE}
    )
    outer = [
        f"global {name}"
        for name in written
        if name not in names.split(", ") and name not in _made_in(program)
    ]
    lines += _indented([*outer, *map(repr, program.body), f"return ({returned})"])
    lines.append("seen = []")
    lines += [
        f"seen.append(step({', '.join(map(repr, call.arguments))}))" for call in program.calls
    ]
    lines.append("for turn, results in enumerate(seen):")
    lines += _indented(["for position, result in enumerate(results):"])
    lines += _indented(_indented(["see(f'result {position} of call {turn}', result)"]))
    made = [s.target for s in program.statements if isinstance(s, Step)]
    return lines + [f"see('v{number}', v{number})" for number in made]


def _made_in(program: Program) -> set[str]:
    return {f"v{s.target}" for s in program.body if isinstance(s, Step)}


def _seen(name: str, value: Ref) -> str:
    prefix = "f" if "{" in name else ""
    return f"see({prefix}{name!r}, {value!r})"


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _joined(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"
