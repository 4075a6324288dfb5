"""Rules on concrete values: refutes most wrong rules in milliseconds and explains counterexamples.

Owns: the value of the terms and conditions of a rule on given values, computed by the reference
interpreter (core/ir/evaluate.py), and the choice of values to try. A rule about a loop is tried on
loops of no, one or two iterations. Does not own: proofs.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, TypeVar

from proofgrad.core.ir.dtypes import DType, Kind, as_constant, round_float, wrap_int
from proofgrad.core.ir.evaluate import evaluate, from_bits, identity
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.rewrite.functions import NUMBER_FUNCTIONS, TYPE_NUMBERS
from proofgrad.core.rewrite.rule import (
    Apply,
    Calc,
    Const,
    Expr,
    Fact,
    Instance,
    Lit,
    Name,
    Node,
    Num,
    Rule,
    RuleKind,
    Text,
    Var,
)
from proofgrad.core.rewrite.rule import Term as RuleTerm
from proofgrad.verify.encode.assumed import assumed, otherwise, variable_of
from proofgrad.verify.encode.types import Case, type_condition
from proofgrad.verify.sample.bounds import bounds_in, ends_of, value_between

WITHIN = 0.7  # the part of all choices that are made within the bounds that conditions ask for

Value = Any
Bounds = dict[str, tuple[int, int]]  # the facts lo and hi of a variable; else its value is both


class NotFiring(Exception):
    """The rule does not fire on these values, or they cannot be tried."""


class Several(tuple[Value, ...]):
    """The values of a variable in the iterations of a loop."""

    def __repr__(self) -> str:
        return f"{', '.join(map(repr, self))} in turn" if self else "nothing (no iterations)"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Both sides on one choice of values."""

    values: dict[str, Value]
    bounds: Bounds
    left: Value
    right: Value

    @property
    def differs(self) -> bool:
        """Whether the two sides are different values; a NaN is the same as a NaN."""
        return not same_value(self.left, self.right)


def same_value(a: Value, b: Value) -> bool:
    """Same bits, and any NaN is any NaN."""
    if isinstance(a, float) and isinstance(b, float):
        if math.isnan(a) or math.isnan(b):
            return math.isnan(a) and math.isnan(b)
        return a == b and math.copysign(1.0, a) == math.copysign(1.0, b)
    return bool(a == b)


def variables(rule: Rule) -> dict[str, str]:
    """What both sides are functions of, and their types: the variables of the left side, and what
    one of them is where another truth is put into it than it has."""
    return dict(_variables(rule))


@lru_cache(maxsize=64)
def _variables(rule: Rule) -> dict[str, str]:
    found: dict[str, str] = {}
    terms: list[Any] = [rule.left]
    while terms:
        term = terms.pop()
        if isinstance(term, Var | Const) and term.type not in ("range", "ranges"):
            found.setdefault(term.name, term.type)
        if isinstance(term, Node):
            terms += reversed(term.src)
    others = {otherwise(name, truth): found[name] for name, truth in sorted(assumed(rule))}
    return found | others


def can_sample(rule: Rule) -> bool:
    """Whether the rule rewrites single values or loops over them, without extractors or real numbers.

    Not those that name a range: see law_of_a_short_range in encode/ranges.py.
    """
    if rule.extractors or rule.kind is not RuleKind.REWRITE or "real" in rule.domains:
        return False
    if isinstance(rule.left, Node) and any(source.type == "range" for source in rule.left.src):
        return False
    terms: list[Any] = [rule.left, *rule.right]
    while terms:
        term = terms.pop()
        if isinstance(term, Node):
            if Ops[term.op] not in ELEMENTWISE and not _is_loop(term):
                return False
            terms += term.src
    return True


def _is_loop(term: Any) -> bool:
    return isinstance(term, Node) and term.op == "REDUCE" and isinstance(term.arg, Text)


class About:
    """What every choice of values for a case has in common."""

    def __init__(self, case: Case) -> None:
        self.dtypes = {name: case.dtype(kind) for name, kind in variables(case.rule).items()}
        self.looped = _in_loops(case.rule)
        self.bounds = bounds_in(case.rule)


class Trial:
    """One choice of values for the variables of a case."""

    def __init__(
        self,
        case: Case,
        values: dict[str, Value],
        bounds: Bounds | None = None,
        about: About | None = None,
    ) -> None:
        self.case = case
        self.values = values
        self.bounds = bounds or {}
        about = about or About(case)
        self.dtypes = about.dtypes
        self._iteration: int | None = None

    def run(self) -> Outcome:
        """Both sides. Raises: NotFiring if a condition is false or a constant does not fit."""
        for condition in self.case.rule.where:
            if not self.number(condition):
                raise NotFiring
        left = self.term(self.case.rule.left)
        (right_side,) = self.case.rule.right
        if right_side is None:
            raise NotFiring
        if self.case.domain == "finite" and not self._is_finite(self.case.rule.left):
            raise NotFiring
        sides = [left, self.term(right_side)]
        if self.case.domain == "nsz":
            sides = [side + 0.0 if isinstance(side, float) else side for side in sides]
        return Outcome(self.values, self.bounds, *sides)

    def _is_finite(self, term: RuleTerm) -> bool:
        """Whether every value of a term is finite."""
        inner = term.src if isinstance(term, Node) else ()
        return math.isfinite(self.term(term)) and all([self._is_finite(part) for part in inner])

    def term(self, term: RuleTerm) -> Value:
        """The value of a term. Raises: NotFiring."""
        if isinstance(term, Var | Const):
            return self._value(term.name)
        dtype = self.case.dtype(term.type)
        match term:
            case Lit(value, _):
                return _constant(value, dtype)
            case Calc(_, _, "wrap"):
                return self.term(term.computed)
            case Calc():
                return _exactly(self.number(term.number), dtype)
            case Instance(name, _, counter, value):
                is_so = self._value(counter) == self.term(value)
                return self._value(name if is_so else otherwise(name, counter))
            case Node():
                return self._node(term, dtype)

    def number(self, expr: Expr) -> Any:
        """The mathematical value of an expression."""
        match expr:
            case Num(value):
                return value
            case Name(name):
                return self._value(name)
            case Apply(("lo" | "hi") as side, (about,)):
                return self._bound(side, about)
            case Apply("finite", (Fact(term),)):
                return math.isfinite(self.term(term))
            case Apply("not_nan", (Fact(term),)):
                return not math.isnan(self.term(term))
            case Apply("divisor", (Fact(term),)):
                return abs(self.term(term))  # as much as may be known
            case Apply("ones" | "may", (Fact(term),)):
                return self.term(term)  # what is known, if it is all
            case Apply("wrapped", (value, Name(target))):
                return wrap_int(self.number(value), self.case.dtype(target))
            case Apply(function, (Name(target),)) if function in TYPE_NUMBERS:
                return _known(TYPE_NUMBERS[function](self.case.dtype(target)))
            case Apply("independent", (Fact(term), _)):
                return not _varies(term, self.values)
            case Apply(function, args):
                truth = type_condition(expr, self.case)
                if truth is not None:
                    return truth
                if function not in NUMBER_FUNCTIONS:
                    raise NotFiring
                return _known(NUMBER_FUNCTIONS[function](*[self.number(arg) for arg in args]))
            case _:
                raise NotFiring

    def _value(self, name: str) -> Value:
        value = self.values[name]
        if not isinstance(value, Several):
            return value
        if self._iteration is None:
            raise NotFiring
        return value[self._iteration]

    def _node(self, term: Node, dtype: DType) -> Value:
        if _is_loop(term):
            return self._loop(term, dtype)
        op, args = Ops[term.op], [self.term(source) for source in term.src]
        if op is Ops.BITCAST:
            return evaluate(op, dtype, args, [self.case.dtype(term.src[0].type)])
        return evaluate(op, dtype, args)

    def _loop(self, term: Node, dtype: DType) -> Value:
        """A reduction in order. Over no loops at all it has one iteration."""
        if self._iteration is not None or dtype.is_bool or not isinstance(term.arg, Text):
            raise NotFiring
        op = Ops[term.arg.value]
        total = identity(op, dtype)
        if len(term.src) == 1:
            return evaluate(op, dtype, (total, self.term(term.src[0])), (dtype, dtype))
        lengths = {len(v) for v in self.values.values() if isinstance(v, Several)}
        if len(lengths) > 1:
            raise NotFiring
        for self._iteration in range(max(lengths, default=1)):
            total = evaluate(op, dtype, (total, self.term(term.src[0])), (dtype, dtype))
        self._iteration = None
        return total

    def _bound(self, side: str, about: Expr) -> int | float:
        if isinstance(about, Fact) and isinstance(about.term, Var | Const):
            about = Name(about.term.name)
        if isinstance(about, Name) and about.name in self.bounds:
            return self.bounds[about.name][side == "hi"]
        value = self.term(about.term) if isinstance(about, Fact) else self.number(about)
        if isinstance(value, float):
            return _known(None if math.isnan(value) else value)
        return int(value)


T = TypeVar("T")


def _known(value: T | None) -> T:
    if value is None:
        raise NotFiring
    return value


def _constant(value: Any, dtype: DType) -> Value:
    try:
        return as_constant(value, dtype)
    except OverflowError:
        raise NotFiring from None


def _exactly(value: Any, dtype: DType) -> Value:
    if dtype.is_float and round_float(float(value), dtype) != value:
        raise NotFiring
    if dtype.is_int and value != int(value):
        raise NotFiring
    return _constant(value + 0.0 if isinstance(value, float) else value, dtype)  # of 0 no sign


def _varies(term: Any, values: dict[str, Value]) -> bool:
    if isinstance(term, Node):
        return any(_varies(source, values) for source in term.src)
    return isinstance(term, Var | Const) and isinstance(values.get(term.name), Several)


# -- which values to try ----------------------------------------------------------------------------


@cache
def simple_values(dtype: DType) -> tuple[Value, ...]:
    """Values of a type, the simplest for a reader first."""
    match dtype.kind:
        case Kind.BOOL:
            return (False, True)
        case Kind.FLOAT:
            return _simple_floats(dtype)
        case Kind.CODE:
            return tuple([from_bits(code, dtype) for code in range(256)])
        case _:
            near = [0, 1, -1, 2, -2, 3, -3, 4, -4, 5, -5, 6, 7, 8, -7, -8, 10, 12, 16]
            if dtype.lo is None or dtype.hi is None:
                return (*near, -10, 17, -16, 24, 31, -31, 32, 64, 100, -100)
            middle = 1 << (dtype.bits - 2)
            edges = [dtype.lo, dtype.lo + 1, dtype.hi, dtype.hi - 1, middle, middle * 2, -middle]
            edges += [1 << (dtype.bits // 2), dtype.hi // 2, dtype.bits - 1, dtype.bits]
            inside = [v for v in near + edges if dtype.lo <= v <= dtype.hi]
            return tuple(dict.fromkeys(inside))


@cache
def _simple_floats(dtype: DType) -> tuple[float, ...]:
    near = [0.0, 1.0, -1.0, -0.0, 2.0, 0.5, -0.5, 1.5, 3.0, math.inf, -math.inf, math.nan]
    rough = [0.1, 10.0, -2.0, 1e-3, 1e3, 7.0, 255.0, 300.0, 1e10, -1e10, 1e30, 1e-30, 1e-10]
    wide = [round_float(v, dtype) for v in rough]
    smallest, largest = _FLOAT_EDGES[dtype.name]
    return (*near, *[v for v in wide if v not in near], smallest, largest)


_FLOAT_EDGES = {
    "float16": (2.0**-24, 65504.0),
    "bfloat16": (2.0**-133, 2.0**128 - 2.0**120),
    "float32": (2.0**-149, 2.0**128 - 2.0**104),
    "float64": (5e-324, 1.7976931348623157e308),
}


def random_value(dtype: DType, source: random.Random) -> Value:
    """A value of the type; for machine integers and floats, often one of the edge cases."""
    match dtype.kind:
        case Kind.BOOL:
            return source.random() < 0.5
        case Kind.FLOAT:
            if source.random() < 0.4:
                return source.choice(_simple_floats(dtype))
            return round_float(math.ldexp(source.uniform(-2, 2), source.randint(-30, 30)), dtype)
        case Kind.CODE:
            return source.choice(simple_values(dtype))
        case Kind.INDEX:
            return source.choice([source.randint(-9, 9), source.randint(-1000, 1000)])
        case _:
            if source.random() < 0.4:
                return source.choice(simple_values(dtype))
            assert dtype.lo is not None and dtype.hi is not None
            return source.randint(dtype.lo, dtype.hi)


def refute_by_sampling(case: Case, draws: int) -> Outcome | None:
    """A failing choice among `draws` random ones (a fixed seed: the same in every run)."""
    source, about = random.Random(f"{case}"), About(case)
    for _ in range(draws):
        values = drawn(case, about, source)
        outcome = attempt(case, values, _loosened(about, values, source), about)
        if outcome is not None and outcome.differs:
            return outcome
    return None


def drawn(case: Case, about: About, source: random.Random) -> dict[str, Value]:
    """A choice of values; where conditions bound a variable, most often within these bounds."""
    times = source.randint(0, 2)
    is_within = bool(about.bounds) and source.random() < WITHIN
    values: dict[str, Value] = {}
    for name in _most_bounded_first(case, about) if is_within else about.dtypes:
        dtype = about.dtypes[name]
        ends = _ends(case, about, name, values) if is_within else (None, None)
        if name in about.looped:
            values[name] = Several(_one(dtype, ends, source) for _ in range(times))
        else:
            values[name] = _one(dtype, ends, source)
    return {name: values[name] for name in about.dtypes}


def _most_bounded_first(case: Case, about: About) -> list[str]:
    """The names, those first that numbers bound: the others are bounded by them."""
    return sorted(about.dtypes, key=lambda name: _ends(case, about, name, {}).count(None))


def _ends(case: Case, about: About, name: str, values: dict[str, Value]) -> tuple[Any, Any]:
    def value_of(expr: Expr) -> Any:
        try:
            return Trial(case, values, None, about).number(expr)
        except (NotFiring, KeyError, OverflowError, ValueError):
            return None  # of a variable that has no value yet

    return ends_of(name, about.bounds, value_of)


def _one(dtype: DType, ends: tuple[Any, Any], source: random.Random) -> Value:
    low, high = ends
    if (low is None and high is None) or dtype.is_bool or dtype.is_code:
        return random_value(dtype, source)
    found = value_between(dtype, low, high, simple_values(dtype), source)
    return random_value(dtype, source) if found is None else found


def _in_loops(rule: Rule) -> set[str]:
    """Variables of the body of a loop that no condition says to be independent of it."""
    if not _is_loop(rule.left) or len(rule.left.src) < 2:  # type: ignore[union-attr]
        return set()
    free = {
        term.name
        for c in rule.where
        if isinstance(c, Apply) and c.function == "independent"
        for term in [getattr(c.args[0], "term", None)]
        if isinstance(term, Var | Const)
    }
    return {name for name in variables(rule) if variable_of(name) not in free}


def _loosened(about: About, values: dict[str, Value], source: random.Random) -> Bounds:
    """Bounds around integer values, often tight."""
    bounds: Bounds = {}
    for name, value in values.items():
        if isinstance(value, float | Several) or source.random() < 0.6:
            continue
        dtype = about.dtypes[name]
        low, high = int(value) - source.randint(0, 3), int(value) + source.randint(0, 3)
        if dtype.lo is not None and dtype.hi is not None:
            low, high = max(low, dtype.lo), min(high, dtype.hi)
        bounds[name] = (low, high)
    return bounds


def attempt(
    case: Case, values: dict[str, Value], bounds: Bounds | None = None, about: About | None = None
) -> Outcome | None:
    """Both sides on these values; None if the rule does not fire."""
    try:
        return Trial(case, values, bounds, about).run()
    except (NotFiring, OverflowError, ValueError):
        return None


def smallest_first(case: Case, limit: int) -> Iterator[dict[str, Value]]:
    """Choices of simple values, those with simple values everywhere first, at most `limit`."""
    about = About(case)
    names = about.dtypes
    lists = [_choices(dtype, name in about.looped) for name, dtype in names.items()]
    deepest = max([len(values) for values in lists], default=0)
    count = 0
    for depth in range(deepest):
        ranks = [range(min(depth + 1, len(values))) for values in lists]
        for positions in itertools.product(*ranks):
            if max(positions, default=0) != depth:
                continue
            yield {name: values[k] for name, values, k in zip(names, lists, positions)}
            count += 1
            if count >= limit:
                return


def simplified(case: Case, known: Outcome) -> Outcome:
    """A failing choice near `known` with simpler values, one variable at a time."""
    names = variables(case.rule)
    looped = _in_loops(case.rule)
    for name, kind in names.items():
        for value in _choices(case.dtype(kind), name in looped):
            if same_value(value, known.values[name]):
                break
            bounds = {other: b for other, b in known.bounds.items() if other != name}
            outcome = attempt(case, {**known.values, name: value}, bounds)
            if outcome is not None and outcome.differs:
                known = outcome
                break
    return known


def _choices(dtype: DType, looped: bool) -> Sequence[Value]:
    values = simple_values(dtype)
    if not looped:
        return values
    few = values[:8]
    return [Several(), *[Several((v,)) for v in few], *map(Several, itertools.product(few, few))]
