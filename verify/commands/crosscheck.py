"""What verify-rules does for --crosscheck.

Owns: which rules are asked about, the text of results. Does not own: asking (audit/crosscheck.py), the
page of numbers (evidence.py), proofs (prove/rules.py), arguments (cli.py).
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from proofgrad.core.rewrite.ledger import PROVED
from proofgrad.rules.library import PROOFS, fingerprint, ledger_file, library_names, rule_file
from proofgrad.verify.audit.crosscheck import (
    Outcome,
    agreed_before,
    crosscheck,
    outcome_of,
    read_outcomes,
    testify,
    write_outcomes,
)
from proofgrad.verify.audit.second_solver import NoSecondSolver, second_versions
from proofgrad.verify.commands.prove import Options, prove_file, prove_with_witness, solver_versions
from proofgrad.verify.prove.ledger import entry_of
from proofgrad.verify.prove.progress import Progress
from proofgrad.verify.prove.workers import process_count

CROSSCHECK = PROOFS / "crosscheck.json"
Entries = list[tuple[str, Mapping[str, Any]]]


def crosscheck_library(
    names: Sequence[str], jobs: int | None, write: bool = True, from_nothing: bool = False
) -> int:
    """Ask other solvers about every goal of the library, or of some of its sets and files.

    `names`: sets, their files, or files of one's own, which are proven first. 1 if a solver
    disagrees with z3, or if a rule of such a file is not proved.
    """
    start = time.perf_counter()
    try:
        solvers = {**solver_versions(), **second_versions()}
        entries, own = _entries(names, jobs)
    except (NoSecondSolver, OSError, ValueError) as error:
        print(error)
        return 1
    before = read_outcomes(CROSSCHECK)
    known = {} if from_nothing else agreed_before(before, solvers)
    with Progress("crosscheck") as progress:
        outcomes = crosscheck(entries, known, jobs or process_count(), progress.update)
    agrees = _report(outcomes, time.perf_counter() - start)
    if agrees and write and not own:
        _write(outcomes, before, solvers)
    return 0 if agrees else 1


def prove_with_crosscheck(options: Options) -> int:
    """Prove the library from nothing, and ask other solvers about each goal as z3 has decided it.

    1 if a rule is not proved, or if a solver disagrees with z3.
    """
    start = time.perf_counter()
    try:
        solvers = {**solver_versions(), **second_versions()}
    except NoSecondSolver as error:
        print(error)
        return 1
    code, results = prove_with_witness(replace(options, from_nothing=True), testify)
    outcomes = [outcome_of(result) for result in results if result.verdict == PROVED]
    agrees = _report(outcomes, time.perf_counter() - start)
    if agrees and options.write:
        _write(outcomes, read_outcomes(CROSSCHECK), solvers)
    return code if agrees else 1


def _report(outcomes: Sequence[Outcome], seconds: float) -> bool:
    """Print what was found; whether nobody disagrees."""
    _print_open(outcomes)
    _print_summary(outcomes, seconds)
    for outcome in outcomes:
        _tell_disagreements(outcome)
    return not any(outcome.disagreed for outcome in outcomes)


def _entries(names: Sequence[str], jobs: int | None) -> tuple[Entries, bool]:
    """Entries by full name, and whether they are of files outside of the library."""
    sets = library_names()
    wanted = [name if name in sets else _set_of(Path(name)) for name in names] or list(sets)
    if None not in wanted:
        return library_entries([name for name in wanted if name is not None]), False
    made: Entries = []
    for name in names:
        for result in prove_file(Path(name), jobs):
            if result.verdict != PROVED:
                raise ValueError(f"{result.rule.full_name} is {result.verdict}: {result.reason}")
            entry = entry_of(result, fingerprint(), solver_versions())
            made.append((result.rule.full_name, entry))
    return made, True


def _set_of(path: Path) -> str | None:
    """The set of the library whose file this is."""
    for name in library_names():
        if path.resolve() == rule_file(name).resolve():
            return name
    return None


def library_entries(names: Sequence[str]) -> Entries:
    """The entries of ledgers, by full name. Raises: OSError, ValueError."""
    return [
        (f"{name}.{entry['name']}", entry)
        for name in names
        for entry in json.loads(ledger_file(name).read_bytes())["rules"]
    ]


def _write(outcomes: Sequence[Outcome], before: dict[str, Any], solvers: dict[str, str]) -> None:
    """New outcomes in the positions of old ones; none of rules that are gone, none of old solvers."""
    made = {outcome.name: outcome.to_json() for outcome in outcomes}
    old = before["rules"] if before["solvers"] == solvers else {}
    every = [name for name, _ in library_entries(library_names())]
    told = {name: made.get(name) or old[name] for name in every if name in made or name in old}
    write_outcomes(CROSSCHECK, told, solvers)


def _tell_disagreements(outcome: Outcome) -> None:
    for case, solver, text in outcome.disagreed:
        with tempfile.NamedTemporaryFile(
            "w", prefix=f"{outcome.name}-", suffix=".smt2", delete=False, encoding="utf-8"
        ) as file:
            file.write(text)
        print(f"{case}: z3 says that it holds, {solver} that it does not; the goal: {file.name}")


def _print_open(outcomes: Sequence[Outcome]) -> None:
    reasons = Counter(
        [(case, why) for outcome in outcomes for case, why in outcome.not_checked.values()]
    )
    for (case, why), count in reasons.items():
        print(f"not crosschecked: {case}, {count} goal{'s' if count > 1 else ''}: {why}")


def _print_summary(outcomes: Sequence[Outcome], seconds: float) -> None:
    agreed = Counter([solver for outcome in outcomes for solver in outcome.agreed.values()])
    opened = sum(len(outcome.not_checked) for outcome in outcomes)
    wrong = sum(len(outcome.disagreed) for outcome in outcomes)
    told = ", ".join([f"{solver} {count}" for solver, count in sorted(agreed.items())]) or "none"
    print(
        f"{len(outcomes)} rules: {agreed.total()} goals agreed ({told}), {wrong} disagreed,"
        f" {opened} not crosschecked ({seconds:.1f} s)"
    )
