"""Prove the laws of the steps and write proofs/steps.json.

Owns: ways to prove a claim, entries, writing. Does not own: the claims (laws.py), what reads the entries
(core/compile/steps/evidence.py).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import z3

from proofgrad.core.compile.steps import evidence
from proofgrad.verify.prove.ledger import write_whole
from proofgrad.verify.steps.all_steps import all_steps
from proofgrad.verify.steps.claims import PROVED, RUN, UNKNOWN, Asked, Claim, Goal, proved, tried
from proofgrad.verify.steps.laws import LAWS, Law
from proofgrad.verify.steps.terms import lemmas

LINEAR, POLYNOMIAL, LEMMA = "linear", "polynomial", "lemma"


@dataclass(frozen=True, slots=True)
class Decision:
    """A claim that was decided. `tried`: small numbers for which it was computed; `steps`: those of the solver."""

    claim: str
    verdict: str
    method: str
    goals: int
    tried: int
    steps: int
    why: str = ""
    seconds: float = field(default=0.0, compare=False)

    def to_json(self) -> dict[str, Any]:
        """What the ledger keeps: all but the explanation and the time."""
        parts = ("claim", "verdict", "method", "goals", "tried", "steps")
        return {part: getattr(self, part) for part in parts}


@dataclass(frozen=True, slots=True)
class Proof:
    """What became of the law of a step."""

    step: str
    decisions: tuple[Decision, ...]

    @property
    def verdict(self) -> str:
        """PROVED if every claim is; else the verdict of the first that is not, or UNKNOWN if there are none."""
        wrong = [d.verdict for d in self.decisions if d.verdict != PROVED]
        return wrong[0] if wrong else PROVED if self.decisions else UNKNOWN

    @property
    def why(self) -> str:
        """The claims that are not proved, each with the reason; empty if all are."""
        if not self.decisions:
            return f"verify/steps/laws.py has no law for {self.step}"
        return "; ".join([f"{d.claim}: {d.why}" for d in self.decisions if d.verdict != PROVED])


def decide_claim(name: str, claim: Claim) -> Decision:
    """Small numbers first; then the solver, told little of products, and then all that it knows of them."""
    start = time.perf_counter()
    small = tried(claim)
    if small.verdict != PROVED:
        return Decision(name, small.verdict, RUN, 1, small.steps, 0, _told(small))
    if small.what == RUN:
        seconds = time.perf_counter() - start
        return Decision(name, PROVED, RUN, small.steps, 1, 0, seconds=seconds)
    for method, is_exact in ((LINEAR, False), (POLYNOMIAL, True)):
        goals = proved(claim, is_exact)
        if goals and all([goal.verdict == PROVED for goal in goals]):
            break
    steps, last = sum([goal.steps for goal in goals]), goals[-1] if goals else Goal("none", UNKNOWN)
    seconds = time.perf_counter() - start
    return Decision(
        name, last.verdict, method, len(goals), small.steps, steps, _told(last), seconds
    )


def _told(goal: Goal) -> str:
    return f"{goal.what} is {goal.verdict}" + (f" at {goal.found}" if goal.found else "")


def decide_lemmas() -> tuple[Decision, ...]:
    """What is used of multiplication and division."""
    decisions = []
    for name, formula in lemmas():
        start = time.perf_counter()
        verdict, steps = Asked().follows(formula)
        seconds = time.perf_counter() - start
        why = "" if verdict == PROVED else f"the lemma is {verdict}"
        decisions.append(Decision(name, verdict, LEMMA, 1, 0, steps, why, seconds))
    return tuple(decisions)


class Prover:
    """Decides claims; one that several laws have, once."""

    def __init__(self) -> None:
        self._lemmas: tuple[Decision, ...] | None = None
        self._known: dict[Claim, Decision] = {}

    def prove(self, step: str, law: Law | None) -> Proof:
        """Decide the lemmas that all steps use, and each claim of `law`. None: the step has no law."""
        if law is None or not law.claims:
            return Proof(step, ())
        if self._lemmas is None:
            self._lemmas = decide_lemmas()
        decisions = list(self._lemmas)
        for name, claim in law.claims.items():
            if claim not in self._known:
                self._known[claim] = decide_claim(name, claim)
            decisions.append(self._known[claim])
        return Proof(step, tuple(decisions))


# -- the file --------------------------------------------------------------------------------------


def entry_of(proof: Proof, step: Any, law: Law | None) -> dict[str, Any]:
    """The entry of a step."""
    module = step.function.__module__
    entry = {
        "name": step.name,
        "module": module,
        "law": step.law,
        "decided": "" if law is None else law.decided,
        "files": evidence.read_sources().digest(module),
        "solver": f"z3 {z3.get_version_string()}",
        "verdict": proof.verdict,
        "claims": [decision.to_json() for decision in proof.decisions],
    }
    return {**entry, "seal": evidence.seal(entry)}


def text_of(entries: Sequence[Mapping[str, Any]]) -> str:
    """The file: one line a step."""
    lines = ",\n".join([json.dumps(entry, separators=(",", ":")) for entry in entries])
    return f'{{"format": {evidence.FORMAT}, "steps": [\n{lines}\n]}}\n'


def prove_steps(
    from_nothing: bool = False, write: bool = True, verbose: bool = False
) -> tuple[Proof, ...]:
    """Prove the laws of steps without fresh evidence, or all; the proofs that were made."""
    start = time.perf_counter()
    kept = {} if from_nothing else _fresh_entries()
    prover, proofs, entries = Prover(), list[Proof](), []
    for name, step in all_steps().items():
        if name in kept:
            entries.append(kept[name])
            continue
        law = LAWS.get(name)
        proof = prover.prove(name, law)
        entries.append(entry_of(proof, step, law))
        proofs.append(proof)
        if verbose:
            _print(proof)
        if proof.verdict != PROVED:
            print(f"{proof.verdict}: the law of the step {name}: {proof.why}")
    if write and proofs:
        write_whole(evidence.EVIDENCE, text_of(entries))
        evidence.forget()
    done = len([proof for proof in proofs if proof.verdict == PROVED])
    seconds = time.perf_counter() - start
    print(f"steps: {done} of {len(proofs)} laws proved; {len(kept)} fresh before; {seconds:.1f} s")
    return tuple(proofs)


def _fresh_entries() -> dict[str, Mapping[str, Any]]:
    """Entries that are evidence now, by this version of the solver."""
    try:
        entries = evidence.read_entries(evidence.EVIDENCE)
    except evidence.EvidenceError:
        return {}
    solver, sources = f"z3 {z3.get_version_string()}", evidence.read_sources()
    return {
        name: entries[name]
        for name, step in all_steps().items()
        if name in entries
        and entries[name]["solver"] == solver
        and evidence.problem(entries[name], name, step.law, step.function.__module__, sources)
        is None
    }


def _print(proof: Proof) -> None:
    for d in proof.decisions:
        print(
            f"{d.verdict:8} {proof.step}: {d.claim}  {d.method}, {d.goals} goals, {d.steps:,} steps,"
            f" {d.tried:,} small cases, {d.seconds:.2f} s"
        )
