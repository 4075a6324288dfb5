"""Which proof each domain has: single values by default, laws of tensors, loops and derivatives.

Owns: the choice. Does not own: the proofs (encode/), how they are tried
(prove/case.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from proofgrad.core.rewrite.rule import RuleKind
from proofgrad.verify.encode.axes import law_of_small_tensors, law_of_tensors
from proofgrad.verify.encode.derivative import law_of_derivatives, law_of_small_derivatives
from proofgrad.verify.encode.goal import Goal
from proofgrad.verify.encode.loops import law_of_loops, law_of_wrapping_loops
from proofgrad.verify.encode.loose import law_of_reals
from proofgrad.verify.encode.ranges import (
    law_of_a_range,
    law_of_a_short_range,
    law_of_a_wrapping_range,
    names_a_range,
)
from proofgrad.verify.encode.types import Case
from proofgrad.verify.prove.case import LONG, SHORT, Attempt
from proofgrad.verify.prove.portfolio_splits import split_bools


def attempts_at_laws(case: Case) -> Sequence[Attempt] | None:
    """The ways to prove a case that is not about single values; None for those that are.

    What only refutes comes when a short try to prove has failed, before the long one.
    """
    if case.rule.kind is RuleKind.COTANGENT:
        return [
            Attempt("derivative", law_of_derivatives, SHORT, exact=False),
            Attempt("rank 3", law_of_small_derivatives, SHORT, exact=True, proves=False),
            Attempt("derivative", law_of_derivatives, LONG, exact=True),
        ]
    match case.domain:
        case "tensor":
            return [
                Attempt("axis by axis", law_of_tensors, SHORT, exact=False),
                Attempt("rank 3", law_of_small_tensors, SHORT, exact=True, proves=False),
                Attempt("axis by axis", law_of_tensors, LONG, exact=True),
            ]
        case "loop" if names_a_range(case.rule):
            return [
                Attempt("induction on a ring", law_of_a_wrapping_range, SHORT, exact=False),
                Attempt("induction by cases", _ranges_by_cases, SHORT, exact=False),
                Attempt("induction", law_of_a_range, SHORT, exact=False),
                Attempt("two iterations", law_of_a_short_range, SHORT, exact=True, proves=False),
                Attempt("induction", law_of_a_range, LONG, exact=False, supposes=True),
            ]
        case "loop":
            return [
                Attempt("induction on a ring", law_of_wrapping_loops, SHORT, exact=False),
                Attempt("induction by cases", _loops_by_cases, SHORT, exact=False),
                Attempt("induction", law_of_loops, LONG, exact=False, supposes=True),
            ]
        case "real":
            return [Attempt("reals", law_of_reals, SHORT, exact=True)]
        case _:
            return None


def _loops_by_cases(case: Case) -> list[Goal]:
    return [part for goal in law_of_loops(case) for part in split_bools(goal)]


def _ranges_by_cases(case: Case) -> list[Goal]:
    return [part for goal in law_of_a_range(case) for part in split_bools(goal)]
