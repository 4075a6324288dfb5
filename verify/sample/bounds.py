"""Values within the bounds that conditions ask for: elsewhere a rule says nothing.

Owns: the bounds of a variable, given the variables before it, and the choice of values between them. Does
not own: whether all conditions hold (sample/rules.py asks).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from proofgrad.core.ir.dtypes import DType, round_float
from proofgrad.core.rewrite.rule import Apply, Const, Expr, Fact, Name, Rule, Var

NEAR = 16  # how far from an end half of all integers are
REACH = 1000  # how far values go where a bound is missing
STEP_EXPONENTS = (-30, 30)  # of what is added to the end of an open interval of floats


@dataclass(frozen=True, slots=True)
class Bound:
    """`name` lies above (or below) the value of `end`, or is it."""

    name: str
    is_low: bool
    end: Expr


def bounds_in(rule: Rule) -> tuple[Bound, ...]:
    """What the conditions of a rule say of a variable or constant by itself."""
    return tuple([bound for condition in rule.where for bound in _bounds(condition)])


def _bounds(condition: Expr) -> list[Bound]:
    match condition:
        case Apply("and", parts):
            return [bound for part in parts for bound in _bounds(part)]
        case Apply("<" | "<=", (low, high)):
            return _ordered(low, high)
        case Apply(">" | ">=", (high, low)):
            return _ordered(low, high)
        case Apply("==", (a, b)):
            return _ordered(a, b) + _ordered(b, a)
        case _:
            return []


def _ordered(low: Expr, high: Expr) -> list[Bound]:
    above, below = _subject(high), _subject(low)
    found = [] if above is None else [Bound(above, True, low)]
    return found if below is None else [*found, Bound(below, False, high)]


def _subject(expr: Expr) -> str | None:
    """The name that an expression is the value of, or a bound of."""
    match expr:
        case Name(name) | Apply("lo" | "hi", (Fact(Var(name, _) | Const(name, _)),)):
            return name
        case _:
            return None


def ends_of(name: str, bounds: Sequence[Bound], value_of: Callable[[Expr], Any]) -> tuple[Any, Any]:
    """The highest low end and the lowest high end that have a value; None where there is none."""
    ends: dict[bool, list[Any]] = {True: [], False: []}
    for bound in bounds:
        if bound.name == name:
            value = value_of(bound.end)
            if isinstance(value, int | float) and value == value:
                ends[bound.is_low].append(value)
    return max(ends[True], default=None), min(ends[False], default=None)


def value_between(
    dtype: DType, low: Any, high: Any, simple: Sequence[Any], source: random.Random
) -> Any:
    """A value of a type from `low` to `high`; None if there is no such integer.

    `simple`: values of the type, of which those between are chosen more often.
    """
    inside = [v for v in simple if (low is None or low <= v) and (high is None or v <= high)]
    if inside and source.random() < 0.3:
        return source.choice(inside)
    if dtype.is_float:
        return round_float(_float_between(low, high, source), dtype)
    low = dtype.lo if low is None else math.ceil(low) if math.isfinite(low) else dtype.lo
    high = dtype.hi if high is None else math.floor(high) if math.isfinite(high) else dtype.hi
    low = (0 if high is None else min(high, 0)) - REACH if low is None else low
    high = max(low, 0) + REACH if high is None else high
    if dtype.lo is not None and dtype.hi is not None:
        low, high = max(low, dtype.lo), min(high, dtype.hi)
    if low > high:
        return None
    if source.random() < 0.5:
        return source.choice([low + source.randint(0, min(NEAR, high - low)), high])
    return source.randint(low, high)


def _float_between(low: Any, high: Any, source: random.Random) -> float:
    if low is not None and high is not None and math.isfinite(low) and math.isfinite(high):
        return source.uniform(low, high)
    step = math.ldexp(source.uniform(0, 2), source.randint(*STEP_EXPONENTS))
    if low is not None and math.isfinite(low):
        return float(low) + step
    return float(high) - step if high is not None and math.isfinite(high) else step
