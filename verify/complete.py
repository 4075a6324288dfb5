"""Whether the records beside the ledgers are about the present rules: no solver is asked.

Owns: what is missing in proofs/crosscheck.json and proofs/mutants.json. Does not own: the files
(crosscheck.py, mutants_record.py), whether rules may be used (core/rewrite/ledger.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from proofgrad.core.rewrite.rule import rule_from_json
from proofgrad.rules.library import library_names
from proofgrad.verify.commands_crosscheck import CROSSCHECK, Entries, library_entries
from proofgrad.verify.commands_mutants import LEAST_DECIDED, MUTANTS, SURVIVORS
from proofgrad.verify.crosscheck import read_outcomes, transcript
from proofgrad.verify.mutants_record import (
    counts,
    decided,
    digest_of_mutants,
    open_mutants,
    read_by_hand,
    read_record,
)
from proofgrad.verify.obligations import evidence_digest

ASK = "run `verify-rules --crosscheck`"
JUDGE = "run `verify-rules --mutants`"


def check_records() -> int:
    """Say what the records lack. 1 if they lack something."""
    entries = library_entries(library_names())
    problems = [*crosscheck_problems(entries), *mutant_problems(entries)]
    for problem in problems:
        print(problem)
    if problems:
        print(f"{len(problems)} problems in the records of {len(entries)} rules")
        return 1
    print(f"other solvers were asked about all of {len(entries)} rules, and their mutants judged")
    return 0


def crosscheck_problems(entries: Entries) -> Iterator[str]:
    """Rules whose present proof no other solver was asked about."""
    data = read_outcomes(CROSSCHECK)
    for name, entry in entries:
        told = data["rules"].get(name)
        if told is None or told["evidence"] != evidence_digest(entry):
            yield f"{name}: no other solver was asked about its present proof; {ASK}"
        elif told.get("transcript") != transcript(told, data["solvers"]):
            yield f"{name}: what other solvers said was edited by hand; {ASK} --all"


def mutant_problems(entries: Entries) -> Iterator[str]:
    """Rules whose mutants have no verdict, and open mutants on which nobody gave one."""
    record, by_hand = read_record(MUTANTS), read_by_hand(SURVIVORS)
    for name, entry in entries:
        told = record.get(name)
        if told is None or told["digest"] != digest_of_mutants(rule_from_json(entry["rule"])):
            yield f"{name}: its mutants were not judged since it or they changed; {JUDGE}"
    for name, one in open_mutants(record):
        if one["change"] not in by_hand.get(name, {}):
            yield (
                f"{name}: its mutant ({one['change']}) is open, and proofs/{SURVIVORS.name} has no"
                " verdict on it"
            )
    found = counts(record.values())
    if decided(found) < LEAST_DECIDED:
        yield f"{found['open']} of {sum(found.values())} mutants are open; {LEAST_DECIDED:.0%} have to be decided"
