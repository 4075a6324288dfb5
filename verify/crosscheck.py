"""Deciding again, by another solver, every goal that z3 decided; proofs/crosscheck.json.

Owns: the division of work over processes, the outcome for each rule, the file. Does not own: texts
(obligations.py), the other solvers (second_solver.py), output (commands_crosscheck.py).
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from proofgrad.core.rewrite.rule import rule_from_json
from proofgrad.verify.ledger import write_whole
from proofgrad.verify.obligations import case_of, digest, evidence_digest, texts_of
from proofgrad.verify.second_solver import ask_second
from proofgrad.verify.solve import PROVED, REFUTED

FORMAT = 1
Entry = Mapping[str, Any]
Known = Mapping[str, str]  # digest of a text: the solver that agreed


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

    def to_json(self) -> dict[str, Any]:
        """The form that the file stores."""
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
    known: Known,
    processes: int,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[Outcome]:
    """The outcome for each full name and entry of a ledger, in their order.

    `known`: goals on which a solver of the same version agreed before; they are not asked again.
    """
    found: dict[str, Outcome] = {}
    tasks = [(name, entry, known) for name, entry in entries]
    for outcome in _shared(_crosscheck_rule, tasks, processes):
        found[outcome.name] = outcome
        if on_progress is not None:
            on_progress(len(found), len(entries))
    return [found[name] for name, _ in entries]


def goals_of(entries: Sequence[tuple[str, Entry]], processes: int) -> dict[str, set[str]]:
    """The digests of the goals of each rule, without asking anyone."""
    return dict(_shared(_digests, [(name, entry) for name, entry in entries], processes))


def _shared(
    work: Callable[..., Any], tasks: Iterable[tuple[Any, ...]], processes: int
) -> Iterator[Any]:
    """The results as they come; a process that dies raises BrokenProcessPool."""
    context = multiprocessing.get_context("fork" if os.name == "posix" else "spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        futures = [pool.submit(work, *task) for task in tasks]
        for future in as_completed(futures):
            yield future.result()


def _digests(name: str, entry: Entry) -> tuple[str, set[str]]:
    return name, {digest(text) for _, text in _texts(entry)}


def _texts(entry: Entry) -> Iterator[tuple[str, str]]:
    """The case and the text of each goal."""
    rule = rule_from_json(entry["rule"])
    for obligation in entry["obligations"]:
        case = str(case_of(rule, obligation))
        for text in texts_of(rule, obligation):
            yield case, text


def _crosscheck_rule(name: str, entry: Entry, known: Known) -> Outcome:
    outcome = Outcome(name, evidence_digest(entry))
    for case, text in _texts(entry):
        goal = digest(text)
        if goal in outcome.goals:
            continue
        if goal in known:
            outcome.agreed[goal] = known[goal]
            continue
        answer = ask_second(text)
        if answer.verdict == PROVED:
            outcome.agreed[goal] = answer.solver
        elif answer.verdict == REFUTED:
            outcome.disagreed.append((case, answer.solver, text))
        else:
            outcome.not_checked[goal] = case, answer.reason
    return outcome


# -- the file ---------------------------------------------------------------------------------------


def write_outcomes(
    path: Path, outcomes: Mapping[str, Mapping[str, Any]], solvers: Mapping[str, str]
) -> None:
    """Write the file, a line for each rule."""
    head = json.dumps({"format": FORMAT, "solvers": dict(solvers)}, indent=1).removesuffix("\n}")
    lines = [f"{json.dumps(name)}: {json.dumps(told)}" for name, told in outcomes.items()]
    write_whole(path, f'{head},\n "rules": {{\n' + ",\n".join(lines) + "\n}\n}\n")


def read_outcomes(path: Path) -> dict[str, Any]:
    """The file: "solvers", and "rules" by full name; empty if there is none of this format."""
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {"solvers": {}, "rules": {}}
    return data if data.get("format") == FORMAT else {"solvers": {}, "rules": {}}


def agreed_before(data: Mapping[str, Any], solvers: Mapping[str, str]) -> dict[str, str]:
    """Goals on which solvers of these very versions agreed."""
    return {
        goal: solver
        for told in data["rules"].values()
        for solver, goals in told["agreed"].items()
        if data["solvers"].get(solver) == solvers.get(solver)
        for goal in goals
    }


def goals_in(told: Mapping[str, Any]) -> set[str]:
    """The digests that the file has for a rule."""
    agreed: Collection[list[str]] = told["agreed"].values()
    return {goal for goals in agreed for goal in goals} | set(told["not crosschecked"])
