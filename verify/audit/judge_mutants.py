"""Deciding the mutants of rules, in parallel and in few steps each.

Owns: the limits, the verdict on a mutant. Does not own: which mutants there are (mutants.py), how a
case is decided (portfolio.py), what is kept of verdicts (mutants_record.py).

A mutant is refuted by the first case that fails, or that claims nothing (its sides are of different
types, or use what changes in a loop outside of it). It is equal if it is proven in its smallest
cases, most often because it claims less than the rule: then the change made another true rule, as
far as was looked; samples were taken of all its cases. "idle" is an equal one that can never fire.
What is neither is open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import z3

from proofgrad.core.rewrite.rule import Rule
from proofgrad.verify.audit.mutants import Mutant, mutants
from proofgrad.verify.encode.fresh_terms import fresh_terms
from proofgrad.verify.encode.goal import Goal
from proofgrad.verify.encode.types import Case, cases
from proofgrad.verify.prove.case import DRAWS, Attempt, can_fire, decide
from proofgrad.verify.prove.needed import is_well_formed
from proofgrad.verify.prove.portfolio import attempts
from proofgrad.verify.prove.solve import OPEN, PROVED, REFUTED, ask
from proofgrad.verify.prove.workers import Workers
from proofgrad.verify.sample import rules as sample
from proofgrad.verify.sample.facts import refutes_fact
from proofgrad.verify.sample.reals import refutes_reals

STEPS_A_QUESTION = (100_000, 300_000, 3_000_000)  # most are answered in the first
SECONDS_A_QUESTION = 20.0  # for steps without end
MOST_CASES = 3  # that solvers are asked about
MOST_OPEN = 1  # case; after so many without an answer no more are asked
MORE_DRAWS = 5_000  # where the solver did not say
CASES_WITH_MORE = 2
VERDICTS = ("refuted", "equal", "idle", "open")


@dataclass(frozen=True, slots=True)
class Judged:
    """A mutant and what is known of it."""

    mutant: Mutant
    verdict: str  # one of VERDICTS, or "" if it has no meaning at any type
    reason: str = ""


def judge_rules(
    rules: Sequence[Rule], processes: int, on_progress: Callable[[int, int], None] | None = None
) -> Iterator[tuple[Rule, list[Judged]]]:
    """Each rule, as soon as it is done, with the verdict on each of its mutants that means something.

    Raises: WorkerDied.
    """
    tasks = [(rule, number) for rule in rules for number in range(len(mutants(rule)))]
    waiting = {rule: len(mutants(rule)) for rule in rules}
    judged: dict[Rule, dict[int, Judged]] = {rule: {} for rule in rules}
    done = 0
    with Workers(processes) as workers:
        for rule in [rule for rule, count in waiting.items() if not count]:
            yield rule, []
        for (rule, number), one in workers.each(_judge_numbered, tasks, _told):
            judged[rule][number] = one
            done += 1
            if on_progress is not None:
                on_progress(done, len(tasks))
            if len(judged[rule]) == waiting[rule]:
                ones = [judged[rule][k] for k in sorted(judged[rule])]
                yield rule, [one for one in ones if one.verdict]


def _judge_numbered(task: tuple[Rule, int]) -> Judged:
    rule, number = task
    return judge(mutants(rule)[number])


def _told(task: tuple[Rule, int]) -> str:
    rule, number = task
    return f"{rule.full_name} ({mutants(rule)[number].change})"


def judge(mutant: Mutant) -> Judged:
    """The verdict on one mutant."""
    claimed = sorted([case for case in cases(mutant.rule) if is_well_formed(case)], key=_size)
    if not claimed:
        return Judged(mutant, "")
    if any(_fails_on_samples(case, DRAWS) for case in claimed):
        return Judged(mutant, "refuted")
    left, reason = _not_implied(mutant, claimed[:MOST_CASES]), ""
    for steps in STEPS_A_QUESTION:
        if left:
            left, reason = _ask(left, steps)
        if reason == REFUTED:
            return Judged(mutant, "refuted")
    if not left:
        return Judged(mutant, "idle" if _never_fires(mutant.rule, claimed) else "equal")
    if any(_fails_on_samples(case, MORE_DRAWS) for case in claimed[:CASES_WITH_MORE]):
        return Judged(mutant, "refuted")
    return Judged(mutant, "open", reason)


def _not_implied(mutant: Mutant, claimed: Sequence[Case]) -> list[Case]:
    """The cases in which the mutant does not just claim less than its rule, which is proven there."""
    proven = {(case.domain, case.types): case for case in cases(mutant.original)}
    return [
        case
        for case in claimed
        if (case.domain, case.types) not in proven
        or not _follows(case, proven[case.domain, case.types])
    ]


def _follows(case: Case, proven: Case) -> bool:
    """Whether the goal of `case` follows from that of a proven case, in an exact way to say both."""
    for attempt in _hurried(proven, STEPS_A_QUESTION[0]):
        if not (attempt.exact and attempt.proves):
            continue
        try:
            with fresh_terms():
                goals = [
                    part
                    for new, old in zip(attempt.plan(case), attempt.plan(proven), strict=True)
                    for part in (
                        Goal(new.premises, z3.And(*old.premises)),
                        Goal([*new.premises, old.conclusion], new.conclusion),
                    )
                ]
                texts = [goal.text() for goal in goals]
        except (ValueError, TypeError, z3.Z3Exception):  # no terms of SMT in this way
            continue
        limits = attempt.most_steps, attempt.most_seconds
        return all(ask(text, *limits).verdict == PROVED for text in texts)
    return False


def _ask(claimed: Sequence[Case], steps: int) -> tuple[list[Case], str]:
    """The cases that are not proved, and why the first is not; REFUTED if one is wrong or no law."""
    left: list[Case] = []
    reasons: list[str] = []
    for position, case in enumerate(claimed):
        decision = decide(case, _hurried(case, steps))
        if decision.verdict == REFUTED or decision.is_ill_formed:
            return [case], REFUTED
        if decision.verdict == OPEN:
            left.append(case)
            reasons.append(f"{case}: {decision.reason}")
        if len(left) == MOST_OPEN:
            return [*left, *claimed[position + 1 :]], reasons[0]
    return left, "".join(reasons[:1])


def _hurried(case: Case, steps: int) -> Iterator[Attempt]:
    for attempt in attempts(case):
        limit = min(attempt.most_steps, steps)
        yield replace(attempt, most_steps=limit, most_seconds=SECONDS_A_QUESTION, apart=True)


def _fails_on_samples(case: Case, draws: int) -> bool:
    if sample.can_sample(case.rule):
        return sample.refute_by_sampling(case, draws) is not None
    if case.domain == "real":
        return refutes_reals(case)
    return refutes_fact(case, draws)


def _never_fires(rule: Rule, claimed: Sequence[Case]) -> bool:
    if not rule.where or claimed[0].domain in ("tensor", "loop", "derivative", "real"):
        return False
    return not any(can_fire(case, attempts(case)) for case in claimed)


def _size(case: Case) -> int:
    return sum(dtype.bits for _, dtype in case.types)
