"""Asking z3 about the text of an obligation, and reading its answer.

Owns: limits, values of a model as Python values. Does not own: what to ask (prove/case.py).

A limit is a number of z3's own steps ("rlimit"), and texts are read in a context of their own, or in
the one where they were made: so the same version of z3 gives the same answer on every machine, however
busy. The limit in seconds is for a step that never ends; no answer of the library comes near to it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import z3

from proofgrad.core.ir.dtypes import DType, Kind
from proofgrad.core.ir.evaluate import from_bits
from proofgrad.verify.encode.answers import check

PROVED, REFUTED, OPEN = "unsat", "sat", "unknown"
MOST_SECONDS = 600

_NUMBERS = re.compile(r"\b(?:Int|Real|declare-sort)\b")


@dataclass(frozen=True, slots=True)
class Answer:
    """`verdict` of the solver, the steps it took; the model's values by name where it found one."""

    verdict: str
    model: dict[str, Any]
    steps: int = 0


@dataclass(frozen=True, slots=True)
class Answers:
    """PROVED if z3 proves each text; else its verdict on the first other one, and which that is.

    `steps`: of all that were asked; `solver`: it has the model, if there is one.
    """

    verdict: str
    steps: int
    position: int = 0
    solver: Any = None


Shown = Sequence[tuple[str, Any, DType]]


def ask(text: str, most_steps: int, most_seconds: float = MOST_SECONDS) -> Answer:
    """What z3 says to an SMT-LIB text within `most_steps`; values of a model are texts."""
    answers = _decide(None, (text,), most_steps, most_seconds)
    model = values_of(answers, ()) if answers.verdict == REFUTED else {}
    return Answer(answers.verdict, model, answers.steps)


@lru_cache(maxsize=16)
def ask_each(
    texts: tuple[str, ...], most_steps: int, most_seconds: float = MOST_SECONDS, apart: bool = False
) -> Answers:
    """What z3 says to the texts in turn, each within `most_steps`, where their terms were made.

    A context takes z3 milliseconds, more than most goals. Rules that do not depend on a type have
    the same texts at each: they are asked once. `apart`: each text in a context of its own.
    """
    return _decide(None if apart else z3.main_ctx(), texts, most_steps, most_seconds)


def forget_answers() -> None:
    """Ask anew: the steps of a case must not depend on which cases this process had before."""
    ask_each.cache_clear()


def values_of(answers: Answers, shown: Shown) -> dict[str, Any]:
    """The values of the model by name.

    `shown`: name, term and type of what is to have one; without it, every constant gets its value
    as text.
    """
    model = answers.solver.model()
    if not shown:
        return {str(d): str(model[d]) for d in model.decls() if d.arity() == 0}
    return {name: _value(model.eval(_brought(term, model.ctx)), t) for name, term, t in shown}


def functions_of(answers: Answers) -> dict[str, str]:
    """What the model has for each variable that is a function of a counter, as text."""
    model = answers.solver.model()
    named = [d for d in model.decls() if d.arity() and "#" not in d.name() and "!" not in d.name()]
    return {d.name(): str(model[d]) for d in sorted(named, key=str)}


def _brought(term: Any, context: Any) -> Any:
    return term if term.ctx is context else term.translate(context)


def _decide(context: Any, texts: Sequence[str], most_steps: int, most_seconds: float) -> Answers:
    steps = 0
    for position, text in enumerate(texts):
        solver = _solver(text, z3.Context() if context is None else context)
        before = _steps(solver)  # a context counts on
        solver.set(rlimit=most_steps, timeout=int(most_seconds * 1000))
        solver.from_string(text)
        verdict = str(check(solver))
        steps += _steps(solver) - before
        if verdict != PROVED:
            return Answers(verdict, steps, position, solver if verdict == REFUTED else None)
    return Answers(PROVED, steps)


def _solver(text: str, context: Any) -> Any:
    """What z3 has for the text. For numbers, the solver for anything tries others by the clock."""
    return z3.SimpleSolver(ctx=context) if _NUMBERS.search(text) else z3.Solver(ctx=context)


def _steps(solver: Any) -> int:
    statistics = solver.statistics()
    return int(dict(zip(statistics.keys(), [v for _, v in statistics]))["rlimit count"])


def _value(value: Any, dtype: DType) -> Any:
    """The Python value; 0 for what does not matter, which the model leaves as it is."""
    match dtype.kind:
        case Kind.BOOL:
            return z3.is_true(value)
        case Kind.FLOAT:
            return _float(value, dtype) if z3.is_fp_value(value) else 0.0
        case Kind.CODE:
            return from_bits(value.as_long(), dtype) if z3.is_bv_value(value) else 0.0
        case Kind.SIGNED if z3.is_bv_value(value):
            return value.as_signed_long()
        case _:
            return value.as_long() if z3.is_int_value(value) or z3.is_bv_value(value) else 0


def _float(value: Any, dtype: DType) -> float:
    if value.isNaN():
        return float("nan")
    bits = z3.simplify(z3.fpToIEEEBV(value, value.ctx)).as_long()
    return float(from_bits(bits, dtype))
