"""Proving rules: every case of every rule, in parallel, and one verdict a rule.

Owns: which proof a domain has, the division of work over processes, verdicts. Does not own: how a
case is decided (portfolio.py and the encode_ files), files (ledger.py), output (cli.py).
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from proofgrad.core.rewrite.rule import Calc, Rule, RuleKind
from proofgrad.verify.encode_types import Case, cases
from proofgrad.verify.portfolio import Decision, can_fire, decide
from proofgrad.verify.prove_laws import attempts_for
from proofgrad.verify.solve import OPEN, PROVED, REFUTED

CASES_A_TASK = 6  # enough to keep processes busy, few enough to stop soon after a refutation


@dataclass(frozen=True, slots=True)
class Obligation:
    """One case of a rule and how it was decided."""

    case: Case
    decision: Decision

    def to_json(self) -> dict[str, Any]:
        """The form that the ledger stores."""
        return {
            "types": {name: dtype.name for name, dtype in self.case.types},
            "domain": self.case.domain,
            "method": f"z3: {self.decision.method}",
            "ms": self.decision.ms,
        }


@dataclass(frozen=True, slots=True)
class Result:
    """The verdict on a rule: "proved", "refuted" or "unknown"."""

    rule: Rule
    verdict: str
    reason: str = ""
    obligations: tuple[Obligation, ...] = field(default=())

    @property
    def refutation(self) -> Obligation | None:
        """The first case that fails."""
        failed = [o for o in self.obligations if o.decision.verdict == REFUTED]
        return failed[0] if failed else None

    @property
    def seconds(self) -> float:
        return sum(o.decision.ms for o in self.obligations) / 1000


def prove_rules(
    rules: Sequence[Rule],
    processes: int | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[Result]:
    """The verdict on each rule, in the same order. `on_progress` gets cases done, cases in all."""
    work = {rule: list(cases(rule)) for rule in rules}
    tasks = [chunk for rule in rules for chunk in _chunks(work[rule])]
    found: dict[Case, Decision] = {}
    total = sum(len(chunk) for chunk in tasks)
    for decisions in _run(tasks, processes or process_count()):
        found.update(decisions)
        if on_progress is not None:
            on_progress(len(found), total)
    return [_verdict(rule, work[rule], found) for rule in rules]


def process_count() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _chunks(items: list[Case]) -> Iterator[list[Case]]:
    for start in range(0, len(items), CASES_A_TASK):
        yield items[start : start + CASES_A_TASK]


def _run(tasks: list[list[Case]], processes: int) -> Iterable[list[tuple[Case, Decision]]]:
    if processes == 1 or len(tasks) <= 1:
        yield from map(_decide_all, tasks)
        return
    context = multiprocessing.get_context("fork" if os.name == "posix" else "spawn")
    with context.Pool(min(processes, len(tasks))) as pool:
        yield from pool.imap_unordered(_decide_all, tasks)


def _decide_all(task: list[Case]) -> list[tuple[Case, Decision]]:
    """The decisions on some cases of one rule; after one that fails the others do not matter."""
    decisions = []
    for case in task:
        decision = decide(case, attempts_for(case))
        decisions.append((case, decision))
        if decision.verdict != PROVED:
            break
    return decisions


def _verdict(rule: Rule, claimed: list[Case], found: dict[Case, Decision]) -> Result:
    obligations = tuple([Obligation(case, found[case]) for case in claimed if case in found])
    if not claimed:
        return Result(rule, "unknown", "no types meet its conditions: it can never fire")
    for obligation in obligations:
        if obligation.decision.verdict == REFUTED:
            reason = f"{obligation.case}: {obligation.decision.reason or 'the sides differ'}"
            return Result(rule, "refuted", reason, obligations)
    for obligation in obligations:
        if obligation.decision.verdict == OPEN:
            return Result(
                rule, "unknown", f"{obligation.case}: {obligation.decision.reason}", obligations
            )
    if _has_conditions(rule) and not any(can_fire(case) for case in claimed):
        return Result(rule, "unknown", "no values were found that meet its conditions", obligations)
    return Result(rule, "proved", "", obligations)


def _has_conditions(rule: Rule) -> bool:
    if rule.kind is not RuleKind.REWRITE or rule.domains[0] in ("tensor", "loop"):
        return False
    return bool(rule.where) or any(isinstance(t, Calc) and t.mode == "exact" for t in rule.right)
