"""Lines of facts on concrete values: do bounds, known bits, divisors and finiteness hold there?

Owns: the choice of values and of what is known of them, the value of the claim. Does not own: the
values of terms and expressions (sample/rules.py), proofs.
"""

from __future__ import annotations

import math
import random
from typing import Any

from proofgrad.core.ir.dtypes import DType
from proofgrad.core.rewrite.rule import FACT_KINDS, Apply, Calc, Const, Expr, Fact, RuleKind, Var
from proofgrad.verify.encode.types import Case
from proofgrad.verify.sample.rules import About, NotFiring, Trial, drawn, random_value, variables

Masks = dict[str, tuple[int, int]]  # the facts ones and may of a variable


def refutes_fact(case: Case, draws: int) -> bool:
    """Whether some of `draws` random choices break a line of facts (the same ones in every run)."""
    if case.rule.kind not in FACT_KINDS:
        return False
    source = random.Random(f"{case}")
    about = About(case)
    for _ in range(draws):
        values = drawn(case, about, source)
        if _breaks(case, values, source):
            return True
    return False


def _breaks(case: Case, values: dict[str, Any], source: random.Random) -> bool:
    dtypes = {name: case.dtype(kind) for name, kind in variables(case.rule).items()}
    bounds = {n: _around(v, dtypes[n], source) for n, v in values.items() if v == v}
    masks = {n: _known(v, dtypes[n], source) for n, v in values.items() if dtypes[n].is_int}
    divisors = {n: _divisor(v, source) for n, v in values.items() if isinstance(v, int)}
    try:
        return not _FactTrial(case, values, bounds, masks, divisors).holds()
    except (NotFiring, OverflowError, ValueError):
        return False


def _around(value: Any, dtype: DType, source: random.Random) -> tuple[Any, Any]:
    """Bounds of a value: the value itself, close to it, or far."""
    if source.random() < 0.4:
        return value, value
    if dtype.is_float:
        ends = [value, random_value(dtype, source), random_value(dtype, source)]
        known = [end for end in ends if not math.isnan(end)]
        return min(known), max(known)
    spread = source.choice([1, 3, 1000])
    low, high = int(value) - source.randint(0, spread), int(value) + source.randint(0, spread)
    if dtype.lo is not None and dtype.hi is not None:
        low, high = max(low, dtype.lo), min(high, dtype.hi)
    return low, high


def _known(value: int, dtype: DType, source: random.Random) -> tuple[int, int]:
    """What may be known of the bits of a value: all, nothing, or some of them."""
    nothing = dtype.hi if dtype.lo == 0 else -1
    assert nothing is not None
    if source.random() < 0.3:
        return value, value
    other, another = random_value(dtype, source), random_value(dtype, source)
    return value & other, (value | another) & nothing


def _divisor(value: int, source: random.Random) -> int:
    """What may be known to divide a value: all of it, a part of it, or nothing but 1."""
    number = math.gcd(value, source.choice([0, 0, 1, 2, 3, 4, 6, 8, 12, 16, 30, 1 << 40]))
    return number if value else source.choice([0, number, 1, 5])


class _FactTrial(Trial):
    """One choice of values and of what is known of their bounds, bits and divisors."""

    def __init__(
        self,
        case: Case,
        values: dict[str, Any],
        bounds: dict[str, Any],
        masks: Masks,
        divisors: dict[str, int],
    ) -> None:
        super().__init__(case, values, bounds)
        self._masks = masks
        self._divisors = divisors

    def holds(self) -> bool:
        """Whether the claim is true. Raises: NotFiring if the line says nothing here."""
        rule = self.case.rule
        if not all([self.number(condition) for condition in rule.where]):
            raise NotFiring
        value = self.term(rule.left)
        if rule.kind is RuleKind.FINITE:
            return math.isfinite(value)
        if rule.kind is RuleKind.NOT_NAN:
            return not math.isnan(value)
        if rule.kind is RuleKind.DIVISOR:
            (side,) = rule.right
            number = self.number(side.number) if isinstance(side, Calc) else 0
            return number >= 0 and bool(value % number == 0 if number else value == 0)
        low, high = [self._end(side) for side in rule.right]
        if rule.kind is RuleKind.BITS:
            return bool(value & low == low and value & high == value)
        return bool(value != value or low <= value <= high)

    def _end(self, side: Any) -> Any:
        """One of the two numbers. Raises: NotFiring if it is no value of the type."""
        if not isinstance(side, Calc):
            raise NotFiring
        dtype, end = self.case.dtype(self.case.rule.left.type), self.number(side.number)
        if dtype.lo is not None and dtype.hi is not None and not dtype.lo <= end <= dtype.hi:
            raise NotFiring
        return end

    def number(self, expr: Expr) -> Any:
        match expr:
            case Apply(("ones" | "may") as side, (Fact(Var(name, _) | Const(name, _)),)):
                return self._masks[name][side == "may"]
            case Apply("divisor", (Fact(Var(name, _) | Const(name, _)),)):
                return self._divisors[name]
            case _:
                return super().number(expr)
