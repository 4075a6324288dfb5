"""Deciding one case of a rule by the ways it is given, tried in turn: the first that answers wins.

Owns: trying, limits, when a counterexample counts, taking over an old decision. Does not own: which
ways there are (portfolio.py), encodings, sampling.

Whatever is tried, a proof is only what the solver says of the text of a goal; a refutation of values
is only a choice of values on which the reference interpreter gives two different results.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import z3

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.rewrite.rule import RuleKind
from proofgrad.verify.encode.fresh_terms import fresh_terms
from proofgrad.verify.encode.goal import Goal
from proofgrad.verify.encode.semantics import IllFormed
from proofgrad.verify.encode.text import text_of
from proofgrad.verify.encode.types import Case
from proofgrad.verify.prove.solve import (
    MOST_SECONDS,
    OPEN,
    PROVED,
    REFUTED,
    ask,
    ask_each,
    functions_of,
    values_of,
)
from proofgrad.verify.sample import rules as sample
from proofgrad.verify.sample.rules import Outcome

DRAWS, FIRST_DRAWS = 200, 20
SIMPLE = 2_000  # choices of the simplest values
SAMPLING = "sampling"
# Steps of z3. Most goals are decided in some thousands by the right way, and by a wrong way never.
QUICK, SHORT, MIDDLE, LONG = 1_000_000, 4_000_000, 10_000_000, 80_000_000

# What fails of a line of each kind, where its goal does not say it.
_CLAIMS = {
    RuleKind.REWRITE: "both sides are the same",
    RuleKind.COTANGENT: "each cotangent is the derivative times that of the node",
    RuleKind.BOUNDS: "the value lies within the bounds",
    RuleKind.BITS: "the value has all bits of the first mask and none outside of the second",
    RuleKind.DIVISOR: "the value is a multiple of the number, which is 0 or more",
    RuleKind.FINITE: "the value is neither infinite nor NaN",
    RuleKind.NOT_NAN: "the value is not NaN",
}

Plan = Callable[[Case], Sequence[Goal]]  # all of the goals together are the claim


@dataclass(frozen=True, slots=True)
class Decision:
    """What is known of one case, how, and what it cost.

    `goals`: the digest of the texts that the solver decided; `texts`: they themselves, if it was asked.
    """

    verdict: str  # PROVED, REFUTED or OPEN
    method: str
    seconds: float
    reason: str = ""
    outcome: Outcome | None = None
    goals: str = ""
    steps: int = 0
    is_old: bool = False  # taken over from a ledger
    is_ill_formed: bool = False  # no way of deciding found a claim in it
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Attempt:
    """One way to decide a case.

    `exact`: a model of its goal is a claim about the rule itself. `proves`: its goals are all of
    the rule, not a part of it that is only there to be refuted. `supposes`: the premises of its goals
    are what the rule asks for, even if it is not exact. `apart`: each text is asked in a
    context of its own, in which a search for values more often ends.
    """

    method: str
    plan: Plan
    most_steps: int
    exact: bool
    proves: bool = True
    most_seconds: float = MOST_SECONDS
    apart: bool = False
    supposes: bool = False


@dataclass(frozen=True, slots=True)
class _Tried:
    verdict: str
    reason: str = ""
    outcome: Outcome | None = None
    goals: str = ""
    steps: int = 0
    texts: tuple[str, ...] = ()
    refused: Exception | None = None  # the encoder found no claim to ask about


def decide(case: Case, attempts: Iterable[Attempt]) -> Decision:
    """Prove or refute a case, or say why neither worked."""
    start = time.perf_counter()
    every: list[tuple[str, _Tried]] = []
    for method, tried in _tries(case, attempts):
        if tried.verdict != OPEN:
            return Decision(
                tried.verdict,
                method,
                _since(start),
                tried.reason,
                tried.outcome,
                tried.goals,
                tried.steps,
                texts=tried.texts,
            )
        if method != SAMPLING:
            every.append((method, tried))
    reasons = dict.fromkeys([f"{method}: {tried.reason}" for method, tried in every])
    refusals = [tried.refused for _, tried in every]
    ill_formed = None not in refusals and any(isinstance(e, IllFormed) for e in refusals)
    return Decision(OPEN, "", _since(start), "; ".join(reasons), is_ill_formed=ill_formed)


def refuted_by_values(case: Case, attempts: Iterable[Attempt]) -> Decision:
    """A case of a rule of which an instance differs: values at which it fails, drawn, simple, or of the solver's."""
    start = time.perf_counter()
    outcome = sample.refute_by_sampling(case, DRAWS)
    if outcome is None:
        tried = (sample.attempt(case, values) for values in sample.smallest_first(case, SIMPLE))
        outcome = next((one for one in tried if one is not None and one.differs), None)
    if outcome is not None:
        return Decision(REFUTED, SAMPLING, _since(start), outcome=outcome)
    exact = [replace(a, most_steps=min(a.most_steps, SHORT)) for a in attempts if a.exact]
    return decide(case, dict.fromkeys(exact))


def _tries(case: Case, attempts: Iterable[Attempt]) -> Iterator[tuple[str, _Tried]]:
    """Each way and what came of it, one by one.

    Most wrong rules fail on the first values. More are drawn once the solver did not prove the case.
    """
    yield SAMPLING, _sample(case, FIRST_DRAWS)
    refused: set[str] = set()
    were_drawn = False
    for attempt in attempts:
        if attempt.method in refused:
            continue  # more steps give it no goal
        tried = _try(case, attempt)
        yield attempt.method, tried
        if tried.refused is not None:
            refused.add(attempt.method)
        elif not were_drawn:
            were_drawn = True
            yield SAMPLING, _sample(case, DRAWS)
    if not were_drawn:
        yield SAMPLING, _sample(case, DRAWS)


def _sample(case: Case, draws: int) -> _Tried:
    outcome = sample.refute_by_sampling(case, draws) if sample.can_sample(case.rule) else None
    return _Tried(OPEN if outcome is None else REFUTED, outcome=outcome)


def texts_of(case: Case, attempt: Attempt) -> list[str]:
    """The texts of the goals of one way, which do not depend on what was asked before.

    Raises: ValueError, TypeError, z3.Z3Exception if the case has no meaning there.
    """
    with fresh_terms():
        return [goal.text() for goal in attempt.plan(case)]


def digest_of(texts: Iterable[str]) -> str:
    """By which a ledger names the texts of one case."""
    digest = sha256()
    for text in texts:
        digest.update(f"{len(text)}\n{text}".encode())
    return digest.hexdigest()[:32]


def taken_over(case: Case, attempts: Iterable[Attempt], method: str, goals: str) -> bool:
    """Whether the texts of `method` are still those of the digest `goals`.

    If z3 of the same version decided them before, it need not be asked again.
    """
    for attempt in attempts:
        if attempt.method == method and attempt.proves:
            try:
                return digest_of(texts_of(case, attempt)) == goals
            except (ValueError, TypeError, z3.Z3Exception):
                return False
    return False


def can_fire(case: Case, attempts: Iterable[Attempt]) -> bool:
    """Whether some values meet the conditions: a rule that never fires proves nothing."""
    if sample.can_sample(case.rule):
        for values in sample.smallest_first(case, 500):
            if sample.attempt(case, values) is not None:
                return True
    fitting = [attempt for attempt in attempts if attempt.exact or attempt.supposes]
    return any(_are_met(case, attempt) for attempt in fitting)


def _are_met(case: Case, attempt: Attempt) -> bool:
    try:
        with fresh_terms():
            texts = [text_of(goal.premises) for goal in attempt.plan(case) if goal.premises]
    except (ValueError, TypeError, z3.Z3Exception):
        return False
    return any(ask(text, SHORT).verdict == REFUTED for text in texts)


def _since(start: float) -> float:
    return time.perf_counter() - start


def _try(case: Case, attempt: Attempt) -> _Tried:
    with fresh_terms():
        try:
            goals = attempt.plan(case)
            texts = tuple([goal.text() for goal in goals])
        except (ValueError, TypeError, z3.Z3Exception) as error:  # no terms of SMT: no claim
            return _Tried(OPEN, str(error), refused=error)
        try:
            answers = ask_each(texts, attempt.most_steps, attempt.most_seconds, attempt.apart)
        except z3.Z3Exception as error:
            return _Tried(OPEN, f"the solver refused the goal ({error})")
        if answers.verdict == OPEN:
            return _Tried(OPEN, f"no answer in {attempt.most_steps:,} steps")
        if answers.verdict == REFUTED and attempt.exact:
            goal = goals[answers.position]
            model = values_of(answers, _shown(case, goal)) | functions_of(answers)
            return _confirm(case, goal, model)
        if answers.verdict == REFUTED:
            return _Tried(OPEN, "does not follow")
    if not attempt.proves:
        return _Tried(OPEN, "holds there")
    return _Tried(PROVED, goals=digest_of(texts), steps=answers.steps, texts=texts)


def _shown(case: Case, goal: Goal) -> list[tuple[str, Any, DType]]:
    """The goal's variables and bounds."""
    named = [(name, value, dtype) for name, (value, dtype) in goal.variables.items()]
    if not sample.can_sample(case.rule) and case.domain != "tensor":
        return [(name, value, dtype) for name, value, dtype in named if not z3.is_real(value)]
    variables = named
    return [*variables, *[_shown_bound(goal, key) for key in goal.bounds]]


def _shown_bound(goal: Goal, key: tuple[str, str]) -> tuple[str, Any, DType]:
    (side, name), bound = key, goal.bounds[key]
    if z3.is_fp(bound):
        dtype = goal.variables[name][1]
    else:
        dtype = dtypes.index if z3.is_int(bound) else dtypes.int64
    return f"{side}({name})", bound, dtype


def _confirm(case: Case, goal: Goal, model: dict[str, Any]) -> _Tried:
    """A model of the solver refutes only if the reference interpreter agrees."""
    if not sample.can_sample(case.rule):
        shown = ", ".join(f"{name} = {value}" for name, value in model.items())
        claim = goal.claim or _CLAIMS[case.rule.kind]
        return _Tried(REFUTED, f"that {claim} fails{f' for {shown}' if shown else ''}")
    values = {name: model[name] for name in goal.variables}
    bounded = {name for _, name in goal.bounds if name in values}
    bounds = {
        n: (model.get(f"lo({n})", values[n]), model.get(f"hi({n})", values[n])) for n in bounded
    }
    outcome = sample.attempt(case, values, bounds)
    if outcome is not None and outcome.differs:
        return _Tried(REFUTED, outcome=outcome)
    return _Tried(OPEN, f"the solver's counterexample {model} could not be reproduced")
