"""The ways to decide one case of a rule, tried in turn: the first that proves or refutes it wins.

Owns: which encodings, case splits and time limits are tried. Whatever it tries, a proof is only
what the solver says of a goal from the encode_ files; a refutation is only a choice of values on
which the reference interpreter gives two different results. Does not own: encodings, sampling.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import z3

from proofgrad.core.ir.dtypes import DType, Kind
from proofgrad.core.ir.ops import Ops
from proofgrad.core.rewrite.rule import FACT_KINDS, Apply, Const, Name, Node, RuleKind
from proofgrad.verify import sample
from proofgrad.verify.encode import (
    Bits,
    Goal,
    containment,
    equality,
    finiteness,
    known_bits,
    ring_equality,
)
from proofgrad.verify.encode_integers import QUOTIENT, Integers, Quotients
from proofgrad.verify.encode_lemmas import goals_by_lemmas
from proofgrad.verify.encode_loose import equality_but_for_zeros, equality_of_finite
from proofgrad.verify.encode_opaque import without_products
from proofgrad.verify.encode_types import Case
from proofgrad.verify.sample import Outcome
from proofgrad.verify.semantics import NoMeaning
from proofgrad.verify.solve import OPEN, PROVED, REFUTED, ask, text_of

DRAWS = 200
# Most goals are decided in a few ms by the right way, and by a wrong way never. A busy machine may
# need many times as long, so the ways that are quick get a second, longer chance.
QUICK_MS, SHORT_MS, MIDDLE_MS, LONG_MS = 400, 1_500, 5_000, 20_000
MOST_SPLITS = 64

Plan = Callable[[Case], Sequence[Goal]]  # all of the goals together are the claim


@dataclass(frozen=True, slots=True)
class Decision:
    """What is known of one case, how, and how long it took."""

    verdict: str  # PROVED, REFUTED or OPEN
    method: str
    ms: float
    reason: str = ""
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One way to decide a case.

    `exact`: a model of its goal is a claim about the rule itself. `proves`: its goals are all of
    the rule, not a part of it that is only there to be refuted.
    """

    method: str
    plan: Plan
    timeout_ms: int
    exact: bool
    proves: bool = True


def decide(case: Case, attempts: Sequence[Attempt] | None = None) -> Decision:
    """Prove or refute a case, or say why neither worked."""
    start = time.perf_counter()
    if sample.can_sample(case.rule):
        outcome = sample.refute_by_sampling(case, DRAWS)
        if outcome is not None:
            return Decision(REFUTED, "sampling", _since(start), "", outcome)
    reasons: list[str] = []
    for attempt in attempts if attempts is not None else _attempts(case):
        verdict, reason, outcome = _try(case, attempt)
        if verdict != OPEN:
            return Decision(verdict, attempt.method, _since(start), reason, outcome)
        reasons.append(f"{attempt.method}: {reason}")
    return Decision(OPEN, "", _since(start), "; ".join(dict.fromkeys(reasons)))


def can_fire(case: Case) -> bool:
    """Whether some values meet the conditions: a rule that never fires proves nothing."""
    if sample.can_sample(case.rule):
        for values in sample.smallest_first(case, 500):
            if sample.attempt(case, values) is not None:
                return True
    for attempt in _attempts(case):
        if not attempt.exact:
            continue
        try:
            goals = attempt.plan(case)
        except (ValueError, TypeError, z3.Z3Exception):
            continue
        if any(ask(text_of(goal.premises), SHORT_MS).verdict == REFUTED for goal in goals):
            return True
    return False


def _since(start: float) -> float:
    return round((time.perf_counter() - start) * 1000, 1)


def _try(case: Case, attempt: Attempt) -> tuple[str, str, Outcome | None]:
    try:
        goals = attempt.plan(case)
    except (ValueError, TypeError, z3.Z3Exception) as error:  # no terms of SMT: no claim
        return OPEN, str(error), None
    for goal in goals:
        explains = sample.can_sample(case.rule) or case.domain == "tensor"
        wanted = goal.variables if explains else {}
        shown = [(name, value, dtype) for name, (value, dtype) in wanted.items()]
        try:
            answer = ask(goal.text(), attempt.timeout_ms, shown)
        except z3.Z3Exception as error:
            return OPEN, f"the solver refused the goal ({error})", None
        if answer.verdict == PROVED:
            continue
        if answer.verdict == REFUTED and attempt.exact:
            return _confirm(case, goal, answer.model)
        if answer.verdict == REFUTED:
            return OPEN, "does not follow", None
        return OPEN, f"no answer in {attempt.timeout_ms / 1000:g} s", None
    return (PROVED, "", None) if attempt.proves else (OPEN, "holds there", None)


def _confirm(case: Case, goal: Goal, model: dict[str, Any]) -> tuple[str, str, Outcome | None]:
    """A model of the solver refutes only if the reference interpreter agrees."""
    if not sample.can_sample(case.rule):
        shown = ", ".join(f"{name} = {value}" for name, value in model.items())
        return REFUTED, f"fails for {shown}" if shown else "fails", None
    outcome = sample.attempt(case, model)
    if outcome is not None and outcome.differs:
        return REFUTED, "", outcome
    return OPEN, f"the solver's counterexample {model} could not be reproduced", None


# -- which ways, in which order ---------------------------------------------------------------------


_GOALS_OF_FACTS: dict[RuleKind, Callable[[Case, Any], Goal]] = {
    RuleKind.BOUNDS: containment,
    RuleKind.BITS: known_bits,
    RuleKind.FINITE: finiteness,
    RuleKind.NOT_NAN: finiteness,
}
_EQUALITIES: dict[str, Callable[[Case, Any], Goal]] = {
    "nsz": equality_but_for_zeros,
    "finite": equality_of_finite,
}


def _attempts(case: Case) -> Iterator[Attempt]:
    ops, dtypes = _used(case)
    kinds = {dtype.kind for dtype in dtypes}
    integral = Kind.FLOAT not in kinds
    bounds = case.rule.kind in FACT_KINDS
    goal_of = _GOALS_OF_FACTS.get(case.rule.kind, _EQUALITIES.get(case.domain, equality))
    arithmetic = bounds or bool(ops & _HARD_ON_BITS) or Kind.INDEX in kinds

    def bits(case: Case) -> list[Goal]:
        return [goal_of(case, Bits())]

    def bits_split(case: Case) -> list[Goal]:
        return _split(case, goal_of(case, Bits()))

    def bits_by_amount(case: Case) -> list[Goal]:
        return _by_amount(case, goal_of(case, Bits()))

    def integers(case: Case) -> list[Goal]:
        return [goal_of(case, Integers(Quotients.SOLVER))]

    def quotients(case: Case) -> list[Goal]:
        return [goal_of(case, Integers(Quotients.FRESH))]

    def lemmas(case: Case) -> list[Goal]:
        arithmetic = Integers(Quotients.NAMED)
        goal = goal_of(case, arithmetic)
        if not arithmetic.divisors:
            raise NoMeaning("no division")
        # A divisor without quotients in it may be zero: that case is a goal of its own.
        own_divisors = _without_quotients(arithmetic.divisors)
        goal = Goal([*goal.premises, *[d != 0 for d in own_divisors]], goal.conclusion)
        zero = [_with(goal_of(case, Integers(Quotients.SOLVER)), d == 0) for d in own_divisors]
        return [*goals_by_lemmas(goal, arithmetic), *zero]

    def signs(case: Case) -> list[Goal]:
        return _split_signs(goal_of(case, Integers(Quotients.FRESH)))

    def opaque(case: Case) -> list[Goal]:
        return [without_products(goal_of(case, Bits()))]

    def ring(case: Case) -> list[Goal]:
        return [ring_equality(case)]

    on_ring = [Attempt("ring", ring, SHORT_MS, exact=False)]
    on_integers = [
        Attempt("lemmas", lemmas, QUICK_MS, exact=False),
        Attempt("integers", integers, QUICK_MS, exact=True),
        Attempt("quotients", quotients, SHORT_MS, exact=True),
        Attempt("quotients by signs", signs, SHORT_MS, exact=False),
    ]
    on_opaque = [Attempt("bits, opaque", opaque, QUICK_MS, exact=False)]
    on_bits = [
        Attempt("bits by cases", bits_split, SHORT_MS, exact=True),
        Attempt("bits", bits, SHORT_MS, exact=True),
    ]
    if integral and arithmetic:
        if not bounds and Kind.INDEX not in kinds:
            yield from on_ring
            yield from on_opaque
        yield from on_integers
        yield from [replace(attempt, timeout_ms=MIDDLE_MS) for attempt in on_integers[:2]]
    if Kind.INDEX not in kinds or not integral:
        if not integral:
            yield from on_opaque
        yield from on_bits
        yield Attempt("bits by amount", bits_by_amount, MIDDLE_MS, exact=True)
        yield Attempt("bits by cases", bits_split, LONG_MS, exact=True)
        yield Attempt("bits", bits, LONG_MS, exact=True)
    if integral:
        yield Attempt("quotients", quotients, LONG_MS, exact=True)
        yield Attempt("integers", integers, LONG_MS, exact=True)


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


def _split(case: Case, goal: Goal) -> list[Goal]:
    """The goal for each value of its bools and each power of two that a condition asks for."""
    choices = _bools(goal)
    powers = _powers_of_two(case)
    for name, (value, dtype) in goal.variables.items():
        if name in powers and z3.is_bv(value):
            top = dtype.bits - (dtype.kind is Kind.SIGNED)
            numerals = [z3.BitVecVal(1 << k, dtype.bits) for k in range(top)]
            choices.append([(value, numeral) for numeral in numerals])
    return _each(goal, choices)


def _by_amount(case: Case, goal: Goal) -> list[Goal]:
    """The goal for each value of a constant that is an amount of a shift, and for all larger ones."""
    for name in _amounts(case.rule.left):
        value, dtype = goal.variables[name]
        numerals = [z3.BitVecVal(k, dtype.bits) for k in range(dtype.bits)]
        larger = _with(goal, z3.UGE(value, dtype.bits))
        return [*_each(goal, [[(value, numeral) for numeral in numerals]]), larger]
    raise NoMeaning("no shift by a constant")


def _amounts(term: Any) -> list[str]:
    """The constants by which something is shifted."""
    if not isinstance(term, Node):
        return []
    below = [name for source in term.src for name in _amounts(source)]
    shifts = term.op in (Ops.SHL.name, Ops.SHR.name) and isinstance(term.src[1], Const)
    return [*below, term.src[1].name] if shifts else below  # type: ignore[union-attr]


def split_bools(goal: Goal) -> list[Goal]:
    """The goal for each value of its bools."""
    return _each(goal, _bools(goal))


Choices = list[list[tuple[Any, Any]]]


def _bools(goal: Goal) -> Choices:
    truths = [z3.BoolVal(False), z3.BoolVal(True)]
    values = [value for value, dtype in goal.variables.values() if dtype.kind is Kind.BOOL]
    return [[(value, truth) for truth in truths] for value in values]


def _each(goal: Goal, choices: Choices) -> list[Goal]:
    if not choices:
        raise NoMeaning("nothing to split")
    goals = []
    for combination in product(*choices):
        premises = [z3.substitute(p, *combination) for p in goal.premises]
        goals.append(Goal(premises, z3.substitute(goal.conclusion, *combination)))
    if len(goals) > MOST_SPLITS:
        raise NoMeaning(f"{len(goals)} cases are too many")
    return goals


def _with(goal: Goal, premise: Any) -> Goal:
    return Goal([*goal.premises, premise], goal.conclusion)


def _without_quotients(divisors: Sequence[Any]) -> list[Any]:
    """The different divisors in which no quotient stands, and which are no numbers."""
    found = {d.get_id(): d for d in divisors if not _has_quotient(d) and not z3.is_int_value(d)}
    return list(found.values())


def _has_quotient(term: Any) -> bool:
    return (
        z3.is_app_of(term, z3.Z3_OP_UNINTERPRETED)
        and term.decl().eq(QUOTIENT)
        or any(_has_quotient(part) for part in term.children())
    )


def _split_signs(goal: Goal) -> list[Goal]:
    """The goal for each choice of signs of its integers."""
    values = [v for v, _ in goal.variables.values() if z3.is_int(v)]
    if not 1 <= len(values) <= 3:
        raise NoMeaning("nothing to split, or too much")
    signs = [[value > 0, value == 0, value < 0] for value in values]
    return [Goal([*goal.premises, *choice], goal.conclusion) for choice in product(*signs)]


def _powers_of_two(case: Case) -> set[str]:
    """Constants that are powers of two by a condition, so that the other values need no case."""
    return {
        name
        for condition in case.rule.where
        for name in [_power_name(condition)]
        if name is not None
    }


def _power_name(condition: Any) -> str | None:
    match condition:
        case Apply("is_power_of_two", (Name(name),)):
            return name
        case _:
            return None
