"""Whether a proven rule needs each of its conditions: without it, the rule has to be refuted.

Owns: the verdict on each `where` condition. Does not own: how a case is decided (portfolio.py).

A condition that is not needed is not wrong, but it is strategy: it says when to use a true law, and
has to stand after `when`. This is no part of what makes a rule sound.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from proofgrad.core.ir.dtypes import as_constant
from proofgrad.core.rewrite.rule import Calc, Lit, Node, Rule, Term
from proofgrad.verify.dsl.show import show_expr
from proofgrad.verify.dsl.types import OP_KINDS
from proofgrad.verify.encode.types import Case, cases, type_condition
from proofgrad.verify.prove.case import DRAWS, MIDDLE, Attempt, decide
from proofgrad.verify.prove.portfolio import attempts
from proofgrad.verify.prove.solve import OPEN, REFUTED
from proofgrad.verify.sample import rules as sample
from proofgrad.verify.sample.facts import refutes_fact

NEEDED, UNNEEDED, UNDECIDED = "needed", "not needed", "undecided"
MORE_DRAWS = 5_000
MOST_OPEN = 4  # cases; after so many without an answer no more are asked


@dataclass(frozen=True, slots=True)
class Needed:
    """What is known of the need of a condition: `verdict`, and by which case, or why it is open."""

    condition: str
    verdict: str
    why: str

    def to_json(self) -> dict[str, str]:
        """The form that the ledger stores."""
        return {"condition": self.condition, "verdict": self.verdict, "why": self.why}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Needed:
        """What a ledger stores."""
        return Needed(str(data["condition"]), str(data["verdict"]), str(data["why"]))


def is_needed(rule: Rule, position: int) -> Needed:
    """Whether the condition number `position` of a proved rule is needed."""
    condition = show_expr(rule.where[position])
    claimed = _cases_without(rule, position)
    failing = _failing_sample(claimed, DRAWS)
    if failing is not None:
        return Needed(condition, NEEDED, f"without it, values refute {_told(failing)}")
    opened: list[str] = []
    for case in claimed:
        decision = decide(case, _refuting_first(case))
        if decision.verdict == REFUTED:
            return Needed(condition, NEEDED, f"without it, {decision.method} refute {_told(case)}")
        if decision.is_ill_formed:
            return Needed(condition, NEEDED, f"without it, no claim: {decision.reason}")
        if decision.verdict == OPEN:
            opened.append(f"{_told(case)}: {decision.reason}")
        if len(opened) == MOST_OPEN:
            break
    if not opened:
        return Needed(condition, UNNEEDED, f"without it, {len(claimed)} cases are proved")
    failing = _failing_sample(claimed, MORE_DRAWS) or _failing_fact(claimed, MORE_DRAWS)
    if failing is not None:
        return Needed(condition, NEEDED, f"without it, values refute {_told(failing)}")
    return Needed(condition, UNDECIDED, opened[0])


def _refuting_first(case: Case) -> list[Attempt]:
    """The ways to decide a case that most likely does not hold: only exact ones refute."""
    hurried = [replace(a, most_steps=min(a.most_steps, MIDDLE), apart=True) for a in attempts(case)]
    return sorted(hurried, key=lambda attempt: not attempt.exact)


def _cases_without(rule: Rule, position: int) -> list[Case]:
    """The cases of which the proof of the rule says nothing once a condition is gone, small first."""
    gone = rule.where[position]
    weaker = replace(rule, where=(*rule.where[:position], *rule.where[position + 1 :]))
    proved = [(case.domain, case.types) for case in cases(rule) if type_condition(gone, case)]
    found = [
        case
        for case in cases(weaker)
        if (case.domain, case.types) not in proved and is_well_formed(case)
    ]
    return sorted(found, key=lambda case: sum(dtype.bits for _, dtype in case.types))


def _failing_sample(claimed: Sequence[Case], draws: int) -> Case | None:
    """A case that random values refute."""
    for case in claimed:
        if sample.can_sample(case.rule) and sample.refute_by_sampling(case, draws) is not None:
            return case
    return None


def _failing_fact(claimed: Sequence[Case], draws: int) -> Case | None:
    """As `_failing_sample`, of a line of facts."""
    return next((case for case in claimed if refutes_fact(case, draws)), None)


def _told(case: Case) -> str:
    types = ", ".join([f"{name}={dtype.name}" for name, dtype in case.types])
    return f"{case.domain} ({types})" if types else case.domain


# -- cases that mean something ----------------------------------------------------------------------


def is_well_formed(case: Case) -> bool:
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
        case Calc(_, _, "wrap"):
            return _exists(term.computed, case)
        case Node(op, src, name):
            kinds = OP_KINDS.get(op)
            fits = kinds is None or case.dtype(name).kind in kinds
            return fits and all(_exists(source, case) for source in src)
        case _:
            return True
