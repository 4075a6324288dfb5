"""Asking z3 about the text of an obligation, and reading its answer.

Owns: time limits, values of a model as Python values. Does not own: what to ask (prove.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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


def ask(text: str, timeout_ms: int, dtypes: dict[str, DType] | None = None) -> Answer:
    """What z3 says to an SMT-LIB text within `timeout_ms`."""
    solver = z3.Solver()
    solver.set("timeout", timeout_ms)
    solver.from_string(text)
    verdict = str(solver.check())
    model = _values(solver.model(), dtypes or {}) if verdict == REFUTED else {}
    return Answer(verdict, model)


def text_of(assertions: Sequence[Any]) -> str:
    """The assertions as an SMT-LIB text."""
    solver = z3.Solver()
    solver.add(*assertions)
    return str(solver.to_smt2())


def _values(model: Any, dtypes: dict[str, DType]) -> dict[str, Any]:
    """Values of the constants named in `dtypes`; those that do not matter get 0."""
    by_name = {d.name(): model[d] for d in model.decls() if d.arity() == 0}
    return {name: _value(by_name.get(name), dtype) for name, dtype in dtypes.items()}


def _value(value: Any, dtype: DType) -> Any:
    match dtype.kind:
        case Kind.BOOL:
            return value is not None and z3.is_true(value)
        case Kind.FLOAT:
            return 0.0 if value is None else _float(value, dtype)
        case _ if value is None:
            return 0
        case Kind.SIGNED if z3.is_bv(value):
            return value.as_signed_long()
        case _:
            return value.as_long()


def _float(value: Any, dtype: DType) -> float:
    if value.isNaN():
        return float("nan")
    bits = z3.simplify(z3.fpToIEEEBV(value)).as_long()
    return float(from_bits(bits, dtype))
