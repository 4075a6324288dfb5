"""Whether the records beside the ledgers are about the present rules: no solver is asked.

Owns: what is missing in proofs/crosscheck.json and proofs/mutants.json. Does not own: the files
(crosscheck.py, mutants_record.py), whether rules may be used (core/rewrite/ledger.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from proofgrad.core.rewrite.rule import rule_from_json
from proofgrad.rules.library import library_names
from proofgrad.verify.audit.crosscheck import read_outcomes, transcript
from proofgrad.verify.audit.mutants_record import (
    RecordError,
    counts,
    decided,
    digest_of_mutants,
    open_mutants,
    read_by_hand,
    read_record,
    verdict_by_hand,
)
from proofgrad.verify.audit.obligations import evidence_digest
from proofgrad.verify.commands.crosscheck import CROSSCHECK, Entries, library_entries
from proofgrad.verify.commands.mutants import LEAST_DECIDED, MUTANTS, SURVIVORS

ASK = "run `verify-rules --crosscheck`"
JUDGE = "run `verify-rules --mutants`"
LEAST_JUDGED = 0.95  # of the rules; judging all takes an hour, and goes on where it was stopped


def check_records() -> int:
    """Say what the records lack. 1 if it is more than some rules whose mutants nobody judged yet."""
    entries = library_entries(library_names())
    unjudged = rules_without_verdict(entries)
    for name in unjudged:
        print(f"{name}: its mutants were not judged since it or they changed; {JUDGE}")
    problems = [*crosscheck_problems(entries), *mutant_problems(len(unjudged), len(entries))]
    for problem in problems:
        print(problem)
    if problems:
        many = "s" if len(problems) > 1 else ""
        print(f"{len(problems)} problem{many} in the records of {len(entries)} rules")
        return 1
    judged = len(entries) - len(unjudged)
    print(f"other solvers were asked about all of {len(entries)} rules; mutants of {judged} judged")
    return 0


def crosscheck_problems(entries: Entries) -> Iterator[str]:
    """Rules whose present proof no other solver was asked about."""
    data = read_outcomes(CROSSCHECK)
    for name, entry in entries:
        told = data["rules"].get(name)
        if told is None or told["evidence"] != evidence_digest(entry):
            yield f"{name}: no other solver was asked about its present proof; {ASK}"
        elif told.get("transcript") != transcript(told, data["solvers"]):
            yield f"{name}: what other solvers said was edited by hand; {ASK}"


def rules_without_verdict(entries: Entries) -> list[str]:
    """The full names of rules whose mutants have no verdict."""
    record = read_record(MUTANTS)
    return [
        name
        for name, entry in entries
        if record.get(name, {}).get("digest") != digest_of_mutants(rule_from_json(entry["rule"]))
    ]


def mutant_problems(unjudged: int, rules: int) -> Iterator[str]:
    """Too few verdicts, and open mutants on which nobody gave one."""
    record = read_record(MUTANTS)
    try:
        by_hand = read_by_hand(SURVIVORS)
    except RecordError as error:
        yield str(error)
        return
    if unjudged > (1 - LEAST_JUDGED) * rules:
        yield f"the mutants of {unjudged} of {rules} rules were not judged; {JUDGE}"
    for name, one in open_mutants(record):
        if verdict_by_hand(name, one["change"], by_hand) is None:
            yield (
                f"{name}: its mutant ({one['change']}) is open, and proofs/{SURVIVORS.name} has no"
                " verdict on it"
            )
    found = counts(record.values())
    if decided(found) < LEAST_DECIDED:
        total = sum(found.values())
        yield f"{found['open']} of {total} mutants are open; {LEAST_DECIDED:.0%} have to be decided"
