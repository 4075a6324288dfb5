"""The ways to decide one case of a rule, in the order in which they are tried.

Owns: which encodings, case splits and limits are tried for which rules. Does not own: encodings,
trying (prove/case.py), splits (portfolio_splits.py), the ways of laws (prove/laws.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from proofgrad.core.ir.dtypes import DType, Kind
from proofgrad.core.ir.ops import Ops
from proofgrad.core.rewrite.rule import FACT_KINDS, Node, RuleKind
from proofgrad.verify.encode.facts import (
    containment,
    divisibility,
    divisibility_by_factors,
    finiteness,
    known_bits,
)
from proofgrad.verify.encode.goal import Bits, Goal, equality, ring_equality
from proofgrad.verify.encode.integers import Integers, Quotients
from proofgrad.verify.encode.lemmas import goals_by_lemmas
from proofgrad.verify.encode.loose import equality_but_for_zeros, equality_of_finite
from proofgrad.verify.encode.opaque import without_products
from proofgrad.verify.encode.opaque_casts import without_casts
from proofgrad.verify.encode.semantics import NoMeaning
from proofgrad.verify.encode.types import Case
from proofgrad.verify.prove.case import LONG, MIDDLE, QUICK, SHORT, Attempt
from proofgrad.verify.prove.laws import attempts_at_laws
from proofgrad.verify.prove.portfolio_fits import may_divide, may_hide, may_split
from proofgrad.verify.prove.portfolio_splits import (
    alternatives,
    has_amounts,
    split_amounts,
    split_signs,
    split_values,
    with_premise,
    without_quotients,
)

_GOALS_OF_FACTS: dict[RuleKind, Callable[[Case, Any], Goal]] = {
    RuleKind.BOUNDS: containment,
    RuleKind.BITS: known_bits,
    RuleKind.DIVISOR: divisibility,
    RuleKind.FINITE: finiteness,
    RuleKind.NOT_NAN: finiteness,
}
_EQUALITIES: dict[str, Callable[[Case, Any], Goal]] = {
    "nsz": equality_but_for_zeros,
    "finite": equality_of_finite,
}


def attempts(case: Case) -> Iterator[Attempt]:
    """Every way to decide a case, in the order in which they are tried."""
    laws = attempts_at_laws(case)
    whole = list(_attempts_at_values(case) if laws is None else laws)
    parts = alternatives(case)
    if not parts:
        yield from whole
        return
    short = [attempt for attempt in whole if attempt.most_steps <= SHORT]
    yield from short
    yield from [_by_alternatives(attempt, parts) for attempt in whole if attempt.proves]
    yield from [attempt for attempt in whole if attempt not in short]


def _by_alternatives(attempt: Attempt, parts: Sequence[Case]) -> Attempt:
    """The same way, for each of the cases that together are the case."""

    def plan(_: Case) -> list[Goal]:
        return [goal for part in parts for goal in attempt.plan(part)]

    return replace(attempt, method=f"{attempt.method}, by alternatives", plan=plan)


def _attempts_at_values(case: Case) -> Iterator[Attempt]:
    ops, dtypes = _used(case)
    kinds = {dtype.kind for dtype in dtypes}
    integral = kinds.isdisjoint((Kind.FLOAT, Kind.CODE))
    bounds = case.rule.kind in FACT_KINDS
    goal_of = _GOALS_OF_FACTS.get(case.rule.kind, _EQUALITIES.get(case.domain, equality))
    arithmetic = bounds or bool(ops & _HARD_ON_BITS) or Kind.INDEX in kinds
    only_bits = case.rule.kind is RuleKind.BITS or bool(ops & {Ops.SHL, Ops.SHR})

    def bits(case: Case) -> list[Goal]:
        return [goal_of(case, Bits())]

    def bits_split(case: Case) -> list[Goal]:
        if not may_split(case):
            raise NoMeaning("nothing to split")
        return split_values(case, goal_of(case, Bits()))

    def bits_by_amount(case: Case) -> list[Goal]:
        return split_amounts(case, goal_of(case, Bits()))

    def integers(case: Case) -> list[Goal]:
        return [goal_of(case, Integers(Quotients.SOLVER))]

    def quotients(case: Case) -> list[Goal]:
        return [goal_of(case, Integers(Quotients.FRESH))]

    def lemmas(case: Case) -> list[Goal]:
        if not may_divide(case):
            raise NoMeaning("no division")
        arithmetic = Integers(Quotients.NAMED)
        goal = goal_of(case, arithmetic)
        if not arithmetic.divisors:
            raise NoMeaning("no division")
        # A divisor without quotients in it may be zero: that case is a goal of its own.
        own_divisors = without_quotients(arithmetic.divisors)
        goal = Goal([*goal.premises, *[d != 0 for d in own_divisors]], goal.conclusion)
        zero = [
            with_premise(goal_of(case, Integers(Quotients.SOLVER)), d == 0) for d in own_divisors
        ]
        return [*goals_by_lemmas(goal, arithmetic), *zero]

    def remainders(case: Case) -> list[Goal]:
        if not may_divide(case):
            raise NoMeaning("no division")
        arithmetic = Integers(Quotients.FRESH)
        goal = goal_of(case, arithmetic)
        return [replace(goal, premises=[*goal.premises, *arithmetic.spaced_multiples()])]

    def signs(case: Case) -> list[Goal]:
        return split_signs(goal_of(case, Integers(Quotients.FRESH)))

    def opaque(case: Case) -> list[Goal]:
        if not may_hide(case):
            raise NoMeaning("nothing to hide")
        return [without_products(goal_of(case, Bits()))]

    def casts_opaque(case: Case) -> list[Goal]:
        return [without_casts(goal_of(case, Bits()))]

    def ring(case: Case) -> list[Goal]:
        return [ring_equality(case)]

    on_ring = [Attempt("ring", ring, SHORT, exact=False)]
    on_integers = [
        Attempt("lemmas", lemmas, QUICK, exact=False),
        Attempt("integers", integers, QUICK, exact=True),
        Attempt("quotients", quotients, SHORT, exact=True),
        Attempt("quotients by signs", signs, SHORT, exact=False),
    ]
    on_opaque = [Attempt("bits, opaque", opaque, QUICK, exact=False)]
    on_casts = [Attempt("bits, casts opaque", casts_opaque, SHORT, exact=False)]
    by_cases = Attempt("bits by cases", bits_split, LONG, exact=True)
    by_amount = Attempt("bits by amount", bits_by_amount, MIDDLE, exact=True)
    on_bits = [by_cases, Attempt("bits", bits, LONG, exact=True)]
    if may_split(case) or has_amounts(case):
        short = [replace(attempt, most_steps=SHORT) for attempt in on_bits]
        on_bits = [*short, by_amount, *on_bits]
    if case.rule.kind is RuleKind.DIVISOR:
        yield Attempt("factors", divisibility_by_factors, SHORT, exact=False)
        yield Attempt("integers", integers, QUICK, exact=True)
        yield Attempt("bits", bits, LONG, exact=True)
        return
    if integral and arithmetic:
        if not bounds and Kind.INDEX not in kinds:
            yield from on_ring
            yield from on_opaque
        if not only_bits:
            yield from on_integers
            if Kind.INDEX in kinds:
                yield Attempt("remainders", remainders, SHORT, exact=False)
            yield from [replace(attempt, most_steps=MIDDLE) for attempt in on_integers[:2]]
    if Kind.INDEX not in kinds or not integral:
        if not integral:
            yield from on_opaque
        if Ops.CAST in ops:
            yield from on_casts
        yield from on_bits
    if integral:
        yield Attempt("quotients", quotients, LONG, exact=True)
        yield Attempt("integers", integers, LONG, exact=True)


_HARD_ON_BITS = {Ops.MUL, Ops.FLOORDIV, Ops.MOD, Ops.TRUNCDIV, Ops.TRUNCMOD, Ops.MULACC}


def _used(case: Case) -> tuple[set[Ops], set[DType]]:
    """The operations and types of a case."""
    ops: set[Ops] = set()
    dtypes: set[DType] = set()
    terms: list[Any] = [case.rule.left, *case.rule.right]
    while terms:
        term = terms.pop()
        if term is None:
            continue
        if isinstance(term, Node):
            ops.add(Ops[term.op])
            terms += term.src
        if term.type not in ("range", "ranges"):
            dtypes.add(case.dtype(term.type))
    return ops, dtypes
