"""Deciding again, by another solver, every goal that z3 decided; proofs/crosscheck.json.

Owns: the outcome for each rule, the file. Does not own: texts (obligations.py), the other solvers
(second_solver.py), processes (workers.py), output (commands/crosscheck.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from proofgrad.core.rewrite.rule import rule_from_json
from proofgrad.verify.audit.obligations import case_of, digest, evidence_digest, texts_of
from proofgrad.verify.audit.second_solver import Second, ask_second
from proofgrad.verify.prove.ledger import write_whole
from proofgrad.verify.prove.rules import Result
from proofgrad.verify.prove.solve import PROVED, REFUTED
from proofgrad.verify.prove.workers import Workers

FORMAT = 1
Entry = Mapping[str, Any]
Known = Mapping[str, str]  # digest of a text: the solver that agreed


@dataclass(frozen=True, slots=True)
class Before:
    """Goals of a rule on which solvers agreed before; if they are all of some evidence, its digest."""

    evidence: str = ""
    agreed: Known = field(default_factory=dict)


@dataclass(slots=True)
class Outcome:
    """What the other solvers say of the goals of one rule."""

    name: str
    evidence: str
    agreed: dict[str, str] = field(default_factory=dict)  # digest: solver
    not_checked: dict[str, tuple[str, str]] = field(default_factory=dict)  # digest: case, reason
    disagreed: list[tuple[str, str, str]] = field(default_factory=list)  # case, solver, text

    @property
    def goals(self) -> set[str]:
        """The digest of each goal."""
        return {*self.agreed, *self.not_checked}

    def add(self, case: str, goal: str, text: str, answer: Second) -> None:
        """Count what a solver said of a goal of a case."""
        if answer.verdict == PROVED:
            self.agreed[goal] = answer.solver
        elif answer.verdict == REFUTED:
            self.disagreed.append((case, answer.solver, text))
        else:
            self.not_checked[goal] = case, answer.reason

    def to_json(self) -> dict[str, Any]:
        """The form that the file stores, but for the digest of it all."""
        by_solver: dict[str, list[str]] = {}
        for goal, solver in sorted(self.agreed.items()):
            by_solver.setdefault(solver, []).append(goal)
        return {
            "evidence": self.evidence,
            "agreed": by_solver,
            "not crosschecked": {
                goal: {"case": case, "reason": reason}
                for goal, (case, reason) in sorted(self.not_checked.items())
            },
        }


def crosscheck(
    entries: Sequence[tuple[str, Entry]],
    before: Mapping[str, Before],
    processes: int,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[Outcome]:
    """The outcome for each full name and entry of a ledger, in their order.

    `before`: by full name, goals on which a solver of the same version agreed: they are not asked
    again, and not even made if they were all of the same evidence.

    Raises: WorkerDied.
    """
    found: dict[str, Outcome] = {}
    tasks = []
    for name, entry in entries:
        known = before.get(name, Before())
        if known.evidence == evidence_digest(entry):
            found[name] = Outcome(name, known.evidence, dict(known.agreed))
        else:
            tasks.append((name, entry, known.agreed))
    with Workers(processes) as workers:
        each = workers.each(_crosscheck_rule, tasks, lambda task: task[0])
        for done, (_, outcome) in enumerate(each, 1):
            found[outcome.name] = outcome
            if on_progress is not None:
                on_progress(done, len(tasks))
    return [found[name] for name, _ in entries]


def goals_of(entries: Sequence[tuple[str, Entry]], processes: int) -> dict[str, set[str]]:
    """The digests of the goals of each rule, without asking anyone."""
    with Workers(processes) as workers:
        each = workers.each(_digests, entries, lambda named: named[0])
        return {name: digests for (name, _), digests in each}


def _digests(named: tuple[str, Entry]) -> set[str]:
    return {digest(text) for _, text in _texts(named[1])}


def _texts(entry: Entry) -> Iterator[tuple[str, str]]:
    """The case and the text of each goal."""
    rule = rule_from_json(entry["rule"])
    for obligation in entry["obligations"]:
        case = str(case_of(rule, obligation))
        for text in texts_of(rule, obligation):
            yield case, text


def _crosscheck_rule(task: tuple[str, Entry, Known]) -> Outcome:
    name, entry, known = task
    outcome = Outcome(name, evidence_digest(entry))
    for case, text in _texts(entry):
        goal = digest(text)
        if goal in outcome.goals:
            continue
        if goal in known:
            outcome.agreed[goal] = known[goal]
        else:
            outcome.add(case, goal, text, ask_second(text))
    return outcome


# -- beside z3 --------------------------------------------------------------------------------------

# For each text its digest, itself if it is disputed, and the answer.
Testimony = list[tuple[str, str, Second]]


def testify(texts: Sequence[str]) -> Testimony:
    """What the other solvers say of the texts of a case, in the process in which z3 decided them."""
    answers = [(text, _ask_once(text)) for text in texts]
    return [(digest(t), t if a.verdict == REFUTED else "", a) for t, a in answers]


@cache
def _ask_once(text: str) -> Second:
    """Goals that do not depend on a type have the same text at each."""
    return ask_second(text)


def outcome_of(result: Result) -> Outcome:
    """The outcome for a rule whose cases `testify` was a witness of."""
    evidence = evidence_digest({"obligations": [o.to_json() for o in result.obligations]})
    outcome = Outcome(result.rule.full_name, evidence)
    for obligation in result.obligations:
        for goal, text, answer in obligation.testimony:
            outcome.add(str(obligation.case), goal, text, answer)
    return outcome


# -- the file ---------------------------------------------------------------------------------------


def write_outcomes(
    path: Path, outcomes: Mapping[str, Mapping[str, Any]], solvers: Mapping[str, str]
) -> None:
    """Write the file, a line for each rule."""
    outcomes = {
        name: {**told, "transcript": transcript(told, solvers)} for name, told in outcomes.items()
    }
    head = json.dumps({"format": FORMAT, "solvers": dict(solvers)}, indent=1).removesuffix("\n}")
    lines = [f"{json.dumps(name)}: {json.dumps(told)}" for name, told in outcomes.items()]
    write_whole(path, f'{head},\n "rules": {{\n' + ",\n".join(lines) + "\n}\n}\n")


def transcript(told: Mapping[str, Any], solvers: Mapping[str, str]) -> str:
    """The digest of what was asked about a rule, of whom, and what they said."""
    lines = [f"evidence {told['evidence']}"]
    for solver, goals in sorted(told["agreed"].items()):
        lines += [f"{solver} {solvers.get(solver)} {goal} {PROVED}" for goal in sorted(goals)]
    lines += [f"nobody {goal}" for goal in sorted(told["not crosschecked"])]
    return digest("\n".join(lines))


def read_outcomes(path: Path) -> dict[str, Any]:
    """The file: "solvers", and "rules" by full name; empty if there is none of this format."""
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {"solvers": {}, "rules": {}}
    is_ours = isinstance(data, dict) and data.get("format") == FORMAT
    return data if is_ours else {"solvers": {}, "rules": {}}


def agreed_before(data: Mapping[str, Any], solvers: Mapping[str, str]) -> dict[str, Before]:
    """By full name, the goals on which solvers of these very versions agreed."""
    found: dict[str, Before] = {}
    for name, told in data["rules"].items():
        agreed = {
            goal: solver
            for solver, goals in told["agreed"].items()
            if data["solvers"].get(solver) == solvers.get(solver)
            for goal in goals
        }
        is_all = goals_in(told) == agreed.keys()
        is_whole = is_all and told.get("transcript") == transcript(told, solvers)
        found[name] = Before(told["evidence"] if is_whole else "", agreed)
    return found


def goals_in(told: Mapping[str, Any]) -> set[str]:
    """The digests that the file has for a rule."""
    agreed: Collection[list[str]] = told["agreed"].values()
    return {goal for goals in agreed for goal in goals} | set(told["not crosschecked"])
