"""The text of one rule about sums: its lines, and what the names of the rule stand for in them.

Owns: lines and their depth, local names, what of a rule may look like a sum. Does not own: what is
matched (index_patterns.py) or made (index_results.py), the functions around it (index_code.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from proofgrad.core.ir.ops import Ops
from proofgrad.core.rewrite.expression_code import Expressions, NoCode
from proofgrad.core.rewrite.rule import Calc, Const, Expr, Fact, Lit, Name, Node, Rule, Term, Var

DIVISIONS = {"FLOORDIV": "quotient", "MOD": "remainder"}
ATOMS = {"FLOORDIV": "plain_quotient", "MOD": "plain_remainder"}
LINEAR = frozenset({"ADD", "MUL", "NEG"})
_STEP = "    "


class NoMatch(Exception):
    """A left side that no sum in normal form looks like."""


@dataclass(slots=True)
class RuleText:
    """The lines that try one rule at a sum, or at a sum divided by a number."""

    rule: Rule
    number: int
    op: str
    is_early: bool = False  # it stands before the sum is looked at
    lines: list[str] = field(default_factory=list)
    forms: dict[str, str] = field(default_factory=dict)  # names of the rule -> locals: sums
    numbers: dict[str, str] = field(default_factory=dict)  # names of the rule -> numbers
    bounded: dict[str, tuple[str, str]] = field(default_factory=dict)  # locals -> lo and hi
    unsettled: set[str] = field(default_factory=set)  # names of sums that may not be normal
    loops: int = 0
    depth: int = field(init=False)
    code: Expressions = field(init=False)
    _count: int = 0

    def __post_init__(self) -> None:
        self.bounded["form"] = ("low", "high")
        self.code = Expressions(self.numbers, self.bound, self.divisor)
        self.depth = 2 if self.is_early else 3

    def emit(self, line: str) -> None:
        """Add a line."""
        self.lines.append(_STEP * self.depth + line)

    def open(self, line: str) -> None:
        """Add a line that begins a block."""
        self.emit(line)
        self.depth += 1

    def local(self, kind: str) -> str:
        """A new local name."""
        self._count += 1
        return f"{kind}{self._count}"

    def test(self, conditions: list[Expr]) -> None:
        """Go on only where all conditions hold. Raises: NoCode."""
        if conditions:
            self.open(f"if {' and '.join([self.code.condition(c) for c in conditions])}:")

    def bound(self, side: str, name: str) -> str:
        """The local name or number of lo or hi of a name of the rule. Raises: NoCode."""
        if name in self.numbers:
            return f"({self.numbers[name]})"
        local = self.forms.get(name)
        if local is None:
            raise NoCode(f"no bounds of {name}")
        if local not in self.bounded:
            low, high = self.local("low"), self.local("high")
            self.bounded[local] = (low, high)
            self.emit(f"{low}, {high} = interval({local})")
        return self.bounded[local][side == "hi"]

    def divisor(self, name: str) -> str:
        """The text of what divides the sum of that name. Raises: NoCode."""
        if name not in self.forms:
            raise NoCode(f"no divisor of {name}")
        return f"divisor({self.forms[name]})"


def ops_of_summands(term: Term) -> set[Ops]:
    """Ops that a sum must have among its summands to look like `term`."""
    if not isinstance(term, Node):
        return set()
    if term.op not in LINEAR:
        return {Ops[term.op]}
    if term.op == Ops.MUL.name and not any([isinstance(s, Const | Lit | Var) for s in term.src]):
        return {Ops.MUL}
    return {op for source in term.src for op in ops_of_summands(source)}


def mentions(part: object, names: set[str]) -> bool:
    """Whether an expression or a term uses one of `names`."""
    return not names.isdisjoint(names_in(part))


def names_in(part: object) -> Iterator[str]:
    """The names in an expression or a term."""
    if isinstance(part, Name | Var | Const):
        yield part.name
    for inner in (*getattr(part, "args", ()), *getattr(part, "src", ())):
        yield from names_in(inner)
    if isinstance(part, Fact | Calc):
        yield from names_in(part.term if isinstance(part, Fact) else part.value)
