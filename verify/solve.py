"""Asking z3 about the text of an obligation, and reading its answer.

Owns: limits, values of a model as Python values. Does not own: what to ask (prove_case.py).

A limit is a number of z3's own steps ("rlimit"), and each text is read in a context of its own: so
the same version of z3 gives the same answer on every machine, however busy. The limit in seconds is
for a step that never ends; no answer of the library comes near to it.
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

PROVED, REFUTED, OPEN = "unsat", "sat", "unknown"
MOST_SECONDS = 600

_NUMBERS = re.compile(r"\b(?:Int|Real|declare-sort)\b")


@dataclass(frozen=True, slots=True)
class Answer:
    """`verdict` of the solver, the steps it took; the model's values by name where it found one."""

    verdict: str
    model: dict[str, Any]
    steps: int = 0


Shown = Sequence[tuple[str, Any, DType]]


def ask(
    text: str, most_steps: int, shown: Shown = (), most_seconds: float = MOST_SECONDS
) -> Answer:
    """What z3 says to an SMT-LIB text within `most_steps`.

    `shown`: name, term and type of what a model is to give a value for; without it, every constant
    gets its value as text.
    """
    verdict, steps, solver = _decide(text, most_steps, most_seconds)
    if verdict != REFUTED:
        return Answer(verdict, {}, steps)
    model = solver.model()
    if not shown:
        told = {str(d): str(model[d]) for d in model.decls() if d.arity() == 0}
        return Answer(verdict, told, steps)
    values = {
        name: _value(model.eval(term.translate(model.ctx)), dtype) for name, term, dtype in shown
    }
    return Answer(verdict, values, steps)


@lru_cache(maxsize=16)
def _decide(text: str, most_steps: int, most_seconds: float) -> tuple[str, int, Any]:
    """Rules that do not depend on a type have the same text at each: it is asked once."""
    solver = _solver(text)
    solver.set(rlimit=most_steps, timeout=int(most_seconds * 1000))
    solver.from_string(text)
    verdict = str(solver.check())
    return verdict, _steps(solver), solver


def _solver(text: str) -> Any:
    """What z3 has for the text. For numbers, the solver for anything tries others by the clock."""
    context = z3.Context()
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
