"""Counterexamples for people: the smallest one, with every intermediate value of both sides.

Owns: the search for small values and the text. Does not own: finding that a rule is wrong
(portfolio.py), values of terms (sample/rules.py), the program of Tensors
(tensor_script.py).
"""

from __future__ import annotations

from typing import Any

from proofgrad.core.rewrite.rule import Const, Lit, Node, Var
from proofgrad.core.rewrite.rule import Term as RuleTerm
from proofgrad.verify.dsl.show import show_term
from proofgrad.verify.encode.types import Case
from proofgrad.verify.explain.tensor_script import tensor_script
from proofgrad.verify.prove.rules import Obligation, Result
from proofgrad.verify.prove.solve import OPEN
from proofgrad.verify.sample.rules import (
    NotFiring,
    Outcome,
    Trial,
    attempt,
    same_value,
    simplified,
    smallest_first,
)

MOST_TRIES = 20_000
ADVICE = (
    "neither a proof nor a counterexample was found: state it for fewer types, with numbers in place of constants, or with"
    " conditions on bounds (`where c >= 0, c < bits(T)`); docs/add-a-rule.md"
)


def explain(result: Result) -> str:
    """Why a rule is not proved: a counterexample, or what was tried."""
    head = f"{result.rule.full_name} is {result.verdict}"
    if result.rule.text:
        head += f", line {result.rule.line}:\n    {result.rule.text.strip()}"
    failed = result.refutation
    if failed is None or failed.decision.outcome is None:
        is_open = any([o.decision.verdict == OPEN for o in result.obligations])
        advice = f"\n  {ADVICE}" if is_open and result.verdict == "unknown" else ""
        return f"{head}\n  {result.reason}{advice}"
    return f"{head}\n{_counterexample(failed)}"


def _counterexample(failed: Obligation) -> str:
    assert failed.decision.outcome is not None
    outcome = smallest(failed.case, failed.decision.outcome)
    lines = [f"  a counterexample over {failed.case.domain}{_types(failed.case)}:"]
    for name, value in values_of(outcome).items():
        lines.append(f"    {name} = {value}{_bounds(outcome, name)}")
    (right,) = failed.case.rule.right
    assert right is not None
    lines += _side("left", failed.case.rule.left, failed.case, outcome, outcome.right)
    lines += _side("right", right, failed.case, outcome, outcome.left)
    script = tensor_script(failed.case, outcome)
    if script is not None:
        lines += ["  the same with Tensors:", *indented(script)]
    return "\n".join(lines)


def smallest(case: Case, known: Outcome) -> Outcome:
    """The failing choice of the simplest values, if a short search finds one; else `known`."""
    for values in smallest_first(case, MOST_TRIES):
        outcome = attempt(case, values)
        if outcome is not None and outcome.differs:
            return outcome
    return simplified(case, known)


def values_of(outcome: Outcome) -> dict[str, str]:
    """What each name stands for, as text: a number may be too large, infinite or NaN for other notations."""
    return {name: show_value(value) for name, value in outcome.values.items()}


def show_value(value: Any) -> str:
    """A value as a rule file writes it: `true`, `false`, or Python's text of a number."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)


def indented(script: str) -> list[str]:
    """The lines of a script as a counterexample shows them."""
    return [f"    {line}".rstrip() for line in script.splitlines()]


def _types(case: Case) -> str:
    shown = ", ".join(f"{name} = {dtype.name}" for name, dtype in case.types)
    return f" ({shown})" if shown else ""


def _bounds(outcome: Outcome, name: str) -> str:
    if name not in outcome.bounds:
        return ""
    low, high = outcome.bounds[name]
    return f"   (known bounds: {low} to {high})"


def _side(title: str, term: RuleTerm, case: Case, outcome: Outcome, other: Any) -> list[str]:
    """Every intermediate value of one side; the last is marked, for it differs from the other."""
    trial = Trial(case, outcome.values, outcome.bounds)
    lines, seen = [], set()
    for part in _parts(term):
        text = show_term(part)
        if text in seen:
            continue
        seen.add(text)
        value = _value(trial, part)
        if value is not None:
            lines.append((text, show_value(value)))
    width = max(len(text) for text, _ in lines)
    shown = [f"      {text:{width}} = {value}" for text, value in lines]
    if not same_value(trial.term(term), other):
        shown[-1] += "   <-- differs"
    return [f"    {title}:", *shown]


def _value(trial: Trial, part: RuleTerm) -> Any:
    """The value of a part; None of one that changes with the iterations of a loop."""
    try:
        return trial.term(part)
    except NotFiring:
        return None


def _parts(term: RuleTerm) -> list[RuleTerm]:
    """The terms below and including `term` that are worth showing, inner ones first."""
    if isinstance(term, Node):
        below = [part for source in term.src for part in _parts(source)]
        return [*[part for part in below if not isinstance(part, Var | Const | Lit)], term]
    return [term]
