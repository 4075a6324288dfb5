"""Deciding the mutants of rules, in parallel and in a short time each.

Owns: the limits, the verdict on a mutant, the counts of each set, proofs/mutants.json. Does not own:
which mutants there are (mutants.py), how a case is decided (portfolio.py).

A mutant is refuted by the first case that fails, and equal if every case is proven: then the change
made another true rule. "idle" is an equal one that can never fire. What is neither is open.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import z3

from proofgrad.core.rewrite.rule import Rule
from proofgrad.verify import sample
from proofgrad.verify.dsl.show import show_rule
from proofgrad.verify.encode_types import Case, cases
from proofgrad.verify.ledger import write_whole
from proofgrad.verify.mutants import Mutant, mutants
from proofgrad.verify.portfolio import attempts
from proofgrad.verify.prove_case import DRAWS, Attempt, can_fire, decide
from proofgrad.verify.prove_needed import is_well_formed
from proofgrad.verify.solve import OPEN, REFUTED
from proofgrad.verify.workers import Workers

STEPS_A_QUESTION = 2_000_000
MOST_OPEN = 4  # cases; after so many without an answer no more are asked
MORE_DRAWS = 20_000  # where the solver did not say
CASES_WITH_MORE = 2
VERDICTS = ("refuted", "equal", "idle", "open")


@dataclass(frozen=True, slots=True)
class Judged:
    """A mutant and what is known of it."""

    mutant: Mutant
    verdict: str  # one of VERDICTS, or "" if it has no meaning at any type
    reason: str = ""


def judge_rules(
    rules: Sequence[Rule],
    processes: int,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[Judged]:
    """The verdict on each mutant of `rules` that means something, in their order.

    Raises: WorkerDied.
    """
    made = [mutant for rule in rules for mutant in mutants(rule)]
    judged: dict[int, Judged] = {}
    with Workers(processes) as workers:
        for place, one in workers.each(_judge_numbered, list(enumerate(made)), _told):
            judged[place] = one
            if on_progress is not None:
                on_progress(len(judged), len(made))
    return [judged[place] for place in sorted(judged) if judged[place].verdict]


def _judge_numbered(numbered: tuple[int, Mutant]) -> tuple[int, Judged]:
    place, mutant = numbered
    return place, judge(mutant)


def _told(numbered: tuple[int, Mutant]) -> str:
    mutant = numbered[1]
    return f"{mutant.original.full_name} ({mutant.change})"


def judge(mutant: Mutant) -> Judged:
    """The verdict on one mutant."""
    claimed = sorted([case for case in cases(mutant.rule) if is_well_formed(case)], key=_size)
    if not claimed:
        return Judged(mutant, "")
    if any(_fails_on_samples(case, DRAWS) for case in claimed):
        return Judged(mutant, "refuted")
    opened: list[str] = []
    for case in claimed:
        decision = decide(case, _hurried(case))
        if decision.verdict == REFUTED:
            return Judged(mutant, "refuted")
        if decision.verdict == OPEN:
            opened.append(f"{case}: {decision.reason}")
        if len(opened) == MOST_OPEN:
            break
    if opened:
        refuted = any(_fails_on_samples(case, MORE_DRAWS) for case in claimed[:CASES_WITH_MORE])
        return Judged(mutant, "refuted") if refuted else Judged(mutant, "open", opened[0])
    return Judged(mutant, "idle" if _never_fires(mutant.rule, claimed) else "equal")


def _hurried(case: Case) -> Iterator[Attempt]:
    for attempt in attempts(case):
        yield replace(attempt, most_steps=min(attempt.most_steps, STEPS_A_QUESTION))


def _fails_on_samples(case: Case, draws: int) -> bool:
    return sample.can_sample(case.rule) and sample.refute_by_sampling(case, draws) is not None


def _never_fires(rule: Rule, claimed: Sequence[Case]) -> bool:
    if not rule.where or claimed[0].domain in ("tensor", "loop", "derivative"):
        return False
    return not any(can_fire(case, attempts(case)) for case in claimed)


def _size(case: Case) -> int:
    return sum(dtype.bits for _, dtype in case.types)


# -- the report -------------------------------------------------------------------------------------


def counts(judged: Sequence[Judged]) -> dict[str, int]:
    """How many mutants have each verdict."""
    found = Counter(one.verdict for one in judged)
    return {verdict: found[verdict] for verdict in VERDICTS}


def write_report(path: Path, judged: dict[str, list[Judged]]) -> None:
    """Write what is known of the sets in `judged`; other sets in the file stay."""
    known: dict[str, Any] = {}
    if path.exists():
        known = json.loads(path.read_text(encoding="utf-8"))["sets"]
    known.update({name: _of_set(ones) for name, ones in judged.items()})
    report = {
        "solver": f"z3 {z3.get_version_string()}",
        "steps_a_question": STEPS_A_QUESTION,
        "most_open_cases": MOST_OPEN,
        "sets": dict(sorted(known.items())),
    }
    write_whole(path, json.dumps(report, indent=1, ensure_ascii=False) + "\n")


def _of_set(judged: Sequence[Judged]) -> dict[str, Any]:
    survivors = {
        verdict: [_shown(one) for one in judged if one.verdict == verdict]
        for verdict in ("open", "idle", "equal")
    }
    return {"counts": counts(judged), **survivors}


def _shown(one: Judged) -> dict[str, str]:
    shown = {
        "rule": one.mutant.original.name,
        "change": one.mutant.change,
        "mutant": show_rule(one.mutant.rule),
    }
    return shown | ({"reason": one.reason} if one.reason else {})
