"""Rules as data: what the parser makes, the prover proves, the ledger stores and the engine runs.

Owns: the term language of rules and its JSON form. Does not own: the text syntax (verify/dsl), the
meaning in SMT (verify), matching (match.py). A rule contains no code.

A rule file is elaborated into `Rule` objects. The same objects are exported to SMT and compiled
into matchers; the ledger stores their JSON, so nothing needs the parser at run time.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, fields
from typing import Any, Union


class RuleKind(enum.Enum):
    """What a line claims, and so what has to be proven of it."""

    REWRITE = "rewrite"  # left = right, for every value of the variables that meets `where`
    COTANGENT = "cotangent"  # right[k] = cotangent of source k of left, given the cotangent g
    BOUNDS = "bounds"  # low <= left <= high; of a float: if it is not NaN
    BITS = "bits"  # every bit of right[0] is set in left, and no bit outside of right[1]
    DIVISOR = "divisor"  # left is a multiple of right[0]; 0 divides 0 only
    FINITE = "finite"  # left is neither infinite nor NaN
    NOT_NAN = "not_nan"  # left is not NaN


# Domains of floats whose laws are not exact to the bit, the classes of FASTMATH. nsz: but for the sign
# of zero; finite: where no value of the left side is infinite or NaN; real: of real numbers.
LOOSE_CLASSES = ("nsz", "finite", "real")

# Transfer functions: what is known of a node, given what is known of its sources. The lines of one
# kind stand in the file of that name.
FACT_KINDS = (
    *(RuleKind.BOUNDS, RuleKind.BITS, RuleKind.DIVISOR, RuleKind.FINITE, RuleKind.NOT_NAN),
)
# Those whose right side is numbers, and how many.
NUMBER_KINDS = {RuleKind.BOUNDS: 2, RuleKind.BITS: 2, RuleKind.DIVISOR: 1}


# -- terms: nodes of the graph ------------------------------------------------------------------
# `type` is a concrete type name ("bool", "index", "float32", ...) or a type variable of the rule.


@dataclass(frozen=True, slots=True)
class Var:
    """Any node. The same name twice: the same node."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class Const:
    """Left: a CONST node, and its value gets the name. Right: the same node."""

    name: str
    type: str


@dataclass(frozen=True, slots=True, eq=False)
class Lit:
    """The constant `value` of its type. -0.0 is not 0.0, and NaN is NaN."""

    value: int | float | bool
    type: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Lit) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[str, str]:
        return repr(self.value), self.type


@dataclass(frozen=True, slots=True)
class Node:
    """An operation on terms. `op` is a name of Ops.

    `arg` is None, or an expression: left, a lone Name is bound to the node's arg; right, its value
    becomes the arg. REDUCE nodes have src (body, Var of the ranges), where the ranges Var has the
    type "ranges" and stands for all sources after the first; their arg is Name or Text of an op.
    Before it may stand a Var of the type "range": one of the sources, and "ranges" is the others.
    """

    op: str
    src: tuple[Term, ...]
    type: str
    arg: Expr | None = None


@dataclass(frozen=True, slots=True)
class Calc:
    """Right side only: a constant computed from constants and facts.

    mode "exact": `value` is an expression, a mathematical number; the rule fires only if it fits the
    type. A mathematical zero has no sign: as a float it is 0.0.
    mode "wrap": `value` is a term over constants. Each of its operations is done at the type that it
    says (two's complement, IEEE rounding), and each of its literals has one.
    """

    value: Expr | Term
    type: str
    mode: str = "exact"

    @property
    def number(self) -> Expr:
        """The expression of an exact constant."""
        if not isinstance(self.value, Num | Name | Apply | Fact | Text):
            raise ValueError(f"{self.value!r} is a term, not a number")  # noqa: TRY004
        return self.value

    @property
    def computed(self) -> Term:
        """The term of a constant that is computed at its type."""
        if isinstance(self.value, Num | Name | Apply | Fact | Text):
            raise ValueError(f"{self.value!r} is no term")  # noqa: TRY004  (bad rule data)
        return self.value


@dataclass(frozen=True, slots=True)
class Instance:
    """Right side only: the variable `name` with `value` in place of `counter`.

    `counter` is a range that the left side names, or a variable for bools: then `value` stands for it
    wherever the engine cares to put it.
    """

    name: str
    type: str
    counter: str
    value: Term


# -- expressions: mathematical numbers, truth, and args (tuples) ----------------------------------


@dataclass(frozen=True, slots=True)
class Num:
    """A literal number or truth value in a condition or computed constant."""

    value: int | float | bool


@dataclass(frozen=True, slots=True)
class Name:
    """The value of a Const, the arg bound on the left, an extractor's result, or a type variable."""

    name: str


@dataclass(frozen=True, slots=True)
class Apply:
    """A function from the closed set in core/rewrite/functions.py, applied to expressions.

    Arithmetic, comparison and logic are functions too, named by their symbol: "+", "<", "and".
    Facts take terms: Apply("lo", (Fact(Var x),)).
    """

    function: str
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Fact:
    """A term used inside an expression, as the argument of a fact: lo, hi, may, finite, ..."""

    term: Term


@dataclass(frozen=True, slots=True)
class Text:
    """A name taken literally, such as the op of a reduction: Text("ADD")."""

    value: str


@dataclass(frozen=True, slots=True)
class Extractor:
    """Names bound by an untrusted search: `outputs = function(inputs)` keeps a contract.

    The prover assumes the contract; the engine checks it at each use (core/rewrite/extractors.py).
    `outputs` are (name, sort) with sort "term" or "number".
    """

    function: str
    inputs: tuple[Union[Term, Expr], ...]
    outputs: tuple[tuple[str, str], ...]


Term = Union[Var, Const, Lit, Node, Calc, Instance]
Expr = Union[Num, Name, Apply, Fact, Text]


@dataclass(frozen=True, slots=True)
class Rule:
    """One named line of a rule file, elaborated.

    Fields:
        name: unique in its set.
        ruleset: the set, which is the file's name without `.rules`.
        kind: what is claimed.
        domains: where it is claimed: for each, every assignment of types to `types` that the
            domain and `where` allow is proven and may fire.
        types: type variables and their classes, e.g. (("T", "domain"), ("A", "any")). The class
            "domain" ranges over the types of the domain; others are named in functions.py.
        left, right: for COTANGENT `right` has one entry a source of `left` (None: no gradient);
            for BOUNDS it is (low, high), for BITS (ones, may), for DIVISOR one number, as Calc
            terms; for FINITE and NOT_NAN nothing; for REWRITE it has one entry.
        where: conditions that soundness needs.  when: conditions of strategy, never needed.
        extractors: names bound after the match, in order, before `where` is tested.
        text: the rule as written, without comments before it.  doc: the string before it.
        examples: pairs of texts, as written after `example`.
        line: in the file, from 1; not part of what is proven.
    """

    name: str
    ruleset: str
    kind: RuleKind
    domains: tuple[str, ...]
    types: tuple[tuple[str, str], ...]
    left: Node | Var
    right: tuple[Term | None, ...]
    where: tuple[Expr, ...] = ()
    when: tuple[Expr, ...] = ()
    extractors: tuple[Extractor, ...] = ()
    text: str = field(default="", compare=False)
    doc: str = field(default="", compare=False)
    examples: tuple[str, ...] = field(default=(), compare=False)
    line: int = field(default=0, compare=False)

    @property
    def full_name(self) -> str:
        """`ruleset.name`, which is unique in the library."""
        return f"{self.ruleset}.{self.name}"

    @property
    def loose_classes(self) -> frozenset[str]:
        """The classes of FASTMATH that it is a law of; none if it is exact to the bit."""
        return frozenset(LOOSE_CLASSES).intersection(self.domains)


# -- JSON ---------------------------------------------------------------------------------------

# By the names that ledgers and records have for them.
_CLASSES = {
    c.__name__: c for c in (Var, Const, Lit, Node, Calc, Instance, Num, Name, Apply, Fact, Text)
} | {"View": Extractor}
_NAMES = {c: name for name, c in _CLASSES.items()}
_FIELDS = {"views": "extractors"}


def rule_to_json(rule: Rule) -> dict[str, Any]:
    """Plain lists, strings and numbers. Floats are written as text so that -0.0 and NaN survive."""
    written = {field_name: name for name, field_name in _FIELDS.items()}
    return {written.get(f.name, f.name): _to_json(getattr(rule, f.name)) for f in fields(rule)}


def rule_from_json(data: dict[str, Any]) -> Rule:
    """The rule of `rule_to_json`, whose parts rule_check.py has to check. Raises: ValueError."""
    try:
        values = {_FIELDS.get(name, name): _from_json(value) for name, value in data.items()}
        rule = Rule(**values)
    except (TypeError, KeyError, ValueError, AttributeError, OverflowError) as error:
        raise ValueError(f"not a rule: {error}") from None
    except RecursionError:
        raise ValueError("not a rule: its parts are too deep in each other") from None
    return rule


def _to_json(value: Any) -> Any:
    if isinstance(value, RuleKind):
        return {"kind": value.value}
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, tuple):
        return [_to_json(v) for v in value]
    if (name := _NAMES.get(type(value))) is not None:
        return {name: [_to_json(getattr(value, f.name)) for f in fields(value)]}
    return value


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return tuple([_from_json(v) for v in value])
    if isinstance(value, float):
        raise ValueError(f"{value!r} is written as no float of a rule is")
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise ValueError(f"expected one key, got {sorted(value)}")
    ((tag, content),) = value.items()
    if tag == "kind":
        return RuleKind(content)
    if tag == "float":
        return float.fromhex(content)
    if tag not in _CLASSES:
        raise ValueError(f"unknown part {tag!r}")
    return _CLASSES[tag](*[_from_json(v) for v in content])
