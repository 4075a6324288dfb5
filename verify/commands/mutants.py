"""What verify-rules does for --mutants.

Owns: which rules are judged, when the record is written, the text of results. Does not own: verdicts
(judge_mutants.py), the record (mutants_record.py), arguments (cli.py).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from proofgrad.core.rewrite.rule import Rule
from proofgrad.rules.library import PROOFS, library_names, rule_file
from proofgrad.verify.audit.judge_mutants import VERDICTS, judge_rules
from proofgrad.verify.audit.mutants_record import (
    Told,
    counts,
    decided,
    digest_of_mutants,
    read_record,
    told_of,
    write_record,
)
from proofgrad.verify.dsl.parser import parse_rules
from proofgrad.verify.prove.progress import Progress
from proofgrad.verify.prove.workers import process_count

MUTANTS = PROOFS / "mutants.json"
SURVIVORS = PROOFS / "survivors.json"  # by hand
LEAST_DECIDED = 0.95  # of the mutants of all rules together
SECONDS_BETWEEN_WRITES = 30.0


def judge_library(
    names: Sequence[str], jobs: int | None, write: bool = True, from_nothing: bool = False
) -> int:
    """Judge the mutants of rules of the sets (no names: all) that have no verdict yet.

    1 if too many are open.
    """
    start = time.perf_counter()
    try:
        rules = {name: _parse(name) for name in library_names()}
        unknown = [name for name in names if name not in rules]
        if unknown:
            raise ValueError(f"there is no set {unknown[0]!r}; sets: {', '.join(rules)}")
    except (OSError, ValueError) as error:
        print(error)
        return 1
    known = {} if from_nothing else read_record(MUTANTS)
    every = [rule for its_rules in rules.values() for rule in its_rules]
    told = {rule.full_name: known[rule.full_name] for rule in every if _is_fresh(rule, known)}
    wanted = [rule for name in names or rules for rule in rules[name]]
    missing = [rule for rule in wanted if rule.full_name not in told]
    with Progress("mutants") as progress:
        written = time.perf_counter()
        for rule, judged in judge_rules(missing, jobs or process_count(), progress.update):
            told[rule.full_name] = told_of(rule, judged)
            if write and time.perf_counter() - written > SECONDS_BETWEEN_WRITES:
                _write(told, every)
                written = time.perf_counter()
    if write:
        _write(told, every)
    for name in names or rules:
        print(_counted(name, [told[rule.full_name] for rule in rules[name]]))
    together = [told[rule.full_name] for rule in wanted]
    print(_counted("together", together))
    print(f"{len(missing)} of {len(wanted)} rules judged ({time.perf_counter() - start:.1f} s)")
    return 0 if decided(counts(together)) >= LEAST_DECIDED else 1


def _parse(name: str) -> tuple[Rule, ...]:
    return parse_rules(rule_file(name).read_text(encoding="utf-8"), f"{name}.rules").rules


def _is_fresh(rule: Rule, known: Mapping[str, Told]) -> bool:
    old = known.get(rule.full_name)
    return old is not None and old["digest"] == digest_of_mutants(rule)


def _write(told: Mapping[str, Told], every: Sequence[Rule]) -> None:
    """What is told, in the order of the rules, so that a change shows as the change of a line."""
    names = [rule.full_name for rule in every]
    write_record(MUTANTS, {name: told[name] for name in names if name in told})


def _counted(name: str, every: Sequence[Told]) -> str:
    found = counts(every)
    told = ", ".join([f"{found[verdict]:4} {verdict}" for verdict in VERDICTS])
    total = sum(found.values())
    return f"{name:16} {total:5} mutants: {told}; {decided(found):.1%} decided"
