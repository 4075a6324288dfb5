"""Asking z3 about the text of an obligation, and reading its answer.

Owns: time limits, values of a model as Python values. Does not own: what to ask (prove.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import z3

from proofgrad.core.ir.dtypes import DType, Kind
from proofgrad.core.ir.evaluate import from_bits

PROVED, REFUTED, OPEN = "unsat", "sat", "unknown"


@dataclass(frozen=True, slots=True)
class Answer:
    """`verdict` of the solver; the model's values by name where it found one."""

    verdict: str
    model: dict[str, Any]


def ask(text: str, timeout_ms: int, shown: Sequence[tuple[str, Any, DType]] = ()) -> Answer:
    """What z3 says to an SMT-LIB text within `timeout_ms`.

    `shown`: name, term and type of what a model is to give a value for; without it, every constant
    gets its value as text.
    """
    return Answer(*_ask(text, timeout_ms, tuple(shown)))


@lru_cache(maxsize=256)
def _ask(
    text: str, timeout_ms: int, shown: tuple[tuple[str, Any, DType], ...]
) -> tuple[str, dict[str, Any]]:
    """Rules that do not depend on a type have the same text at each: it is asked once."""
    solver = z3.Solver()
    solver.set("timeout", timeout_ms)
    solver.from_string(text)
    verdict = str(solver.check())
    if verdict != REFUTED:
        return verdict, {}
    model = solver.model()
    if not shown:
        return verdict, {str(d): str(model[d]) for d in model.decls() if d.arity() == 0}
    return verdict, {name: _value(model.eval(term), dtype) for name, term, dtype in shown}


def text_of(assertions: Sequence[Any]) -> str:
    """The assertions as an SMT-LIB text."""
    solver = z3.Solver()
    solver.add(*assertions)
    return str(solver.to_smt2())


def _value(value: Any, dtype: DType) -> Any:
    """The Python value; 0 for what does not matter, which the model leaves as it is."""
    match dtype.kind:
        case Kind.BOOL:
            return z3.is_true(value)
        case Kind.FLOAT:
            return _float(value, dtype) if z3.is_fp_value(value) else 0.0
        case Kind.SIGNED if z3.is_bv_value(value):
            return value.as_signed_long()
        case _:
            return value.as_long() if z3.is_int_value(value) or z3.is_bv_value(value) else 0


def _float(value: Any, dtype: DType) -> float:
    if value.isNaN():
        return float("nan")
    bits = z3.simplify(z3.fpToIEEEBV(value)).as_long()
    return float(from_bits(bits, dtype))
