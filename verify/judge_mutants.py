"""Deciding the mutants of rules, in parallel and in a short time each.

Owns: the limits, the verdict on a mutant, the counts of each set, proofs/mutants.json. Does not own:
which mutants there are (mutants.py), how a case is decided (portfolio.py).

A mutant is refuted by the first case that fails, and equal if every case is proven: then the change
made another true rule. "idle" is an equal one that can never fire. What is neither is open.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import z3

from proofgrad.core.ir.dtypes import as_constant
from proofgrad.core.rewrite.rule import Lit, Node, Rule, Term
from proofgrad.verify import sample
from proofgrad.verify.dsl.show import show_rule
from proofgrad.verify.dsl.types import OP_KINDS
from proofgrad.verify.encode_types import Case, cases
from proofgrad.verify.ledger import write_whole
from proofgrad.verify.mutants import Mutant, mutants
from proofgrad.verify.portfolio import DRAWS, Attempt, _attempts, can_fire, decide
from proofgrad.verify.prove_laws import attempts_for
from proofgrad.verify.solve import OPEN, REFUTED

SECONDS_A_CASE = 2.0
SECONDS_A_MUTANT = 20.0
MS_A_QUESTION = 1_000
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
    """The verdict on each mutant of `rules` that means something, in their order."""
    made = [mutant for rule in rules for mutant in mutants(rule)]
    judged: dict[int, Judged] = {}
    for place, one in _judge_all(made, processes):
        judged[place] = one
        if on_progress is not None:
            on_progress(len(judged), len(made))
    return [judged[place] for place in sorted(judged) if judged[place].verdict]


def _judge_all(made: Sequence[Mutant], processes: int) -> Iterable[tuple[int, Judged]]:
    if processes == 1:
        yield from map(_judge_numbered, enumerate(made))
        return
    context = multiprocessing.get_context("fork" if os.name == "posix" else "spawn")
    with context.Pool(processes) as pool:
        yield from pool.imap_unordered(_judge_numbered, enumerate(made), chunksize=4)


def _judge_numbered(numbered: tuple[int, Mutant]) -> tuple[int, Judged]:
    place, mutant = numbered
    return place, judge(mutant)


def judge(mutant: Mutant) -> Judged:
    """The verdict on one mutant."""
    claimed = sorted([case for case in cases(mutant.rule) if _has_types(case)], key=_size)
    if not claimed:
        return Judged(mutant, "")
    if any(_fails_on_samples(case, DRAWS) for case in claimed):
        return Judged(mutant, "refuted")
    deadline = time.monotonic() + SECONDS_A_MUTANT
    open_reason = ""
    for case in claimed:
        if time.monotonic() > deadline:
            return Judged(mutant, "open", open_reason or f"not done in {SECONDS_A_MUTANT:g} s")
        decision = decide(case, _Hurried(attempts_for(case) or _attempts(case)))
        if decision.verdict == REFUTED:
            return Judged(mutant, "refuted")
        if decision.verdict == OPEN:
            open_reason = open_reason or f"{case}: {decision.reason}"
    if open_reason:
        refuted = any(_fails_on_samples(case, MORE_DRAWS) for case in claimed[:CASES_WITH_MORE])
        return Judged(mutant, "refuted") if refuted else Judged(mutant, "open", open_reason)
    return Judged(mutant, "idle" if _never_fires(mutant.rule, claimed) else "equal")


class _Hurried(tuple[Attempt, ...]):
    """Attempts with little time each, of which no more are made when the time of a case is up."""

    def __new__(cls, attempts: Iterable[Attempt]) -> Self:
        short = [replace(a, timeout_ms=min(a.timeout_ms, MS_A_QUESTION)) for a in attempts]
        return super().__new__(cls, short)

    def __iter__(self) -> Iterator[Attempt]:
        deadline = time.monotonic() + SECONDS_A_CASE
        for attempt in super().__iter__():
            if time.monotonic() > deadline:
                return
            yield attempt


def _fails_on_samples(case: Case, draws: int) -> bool:
    return sample.can_sample(case.rule) and sample.refute_by_sampling(case, draws) is not None


def _never_fires(rule: Rule, claimed: Sequence[Case]) -> bool:
    if not rule.where or claimed[0].domain in ("tensor", "loop", "derivative"):
        return False
    return not any(can_fire(case) for case in claimed)


def _size(case: Case) -> int:
    return sum(dtype.bits for _, dtype in case.types)


def _has_types(case: Case) -> bool:
    """Whether operations and literals exist at the types of the case; the parser asks the same."""
    return all(_exists(term, case) for term in (case.rule.left, *case.rule.right))


def _exists(term: Term | None, case: Case) -> bool:
    match term:
        case Lit(value, name):
            try:
                as_constant(value, case.dtype(name))
            except OverflowError:
                return False
            return True
        case Node(op, src, name):
            kinds = OP_KINDS.get(op)
            fits = kinds is None or case.dtype(name).kind in kinds
            return fits and all(_exists(source, case) for source in src)
        case _:
            return True


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
        "seconds_a_case": SECONDS_A_CASE,
        "seconds_a_mutant": SECONDS_A_MUTANT,
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
