"""Polynomials as graphs, shared by the transcendental functions.

Owns: Horner's scheme in fused steps, sizes, and coefficients written as hexadecimal floats. Does not own:
which coefficients (transcendental.py, sine.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp


def fma(x: UOp, factor: UOp | float, term: UOp | float) -> UOp:
    """x * factor + term, rounded once."""
    return x.alu(Ops.FMA, *[s if isinstance(s, UOp) else x.const_like(s) for s in (factor, term)])


def magnitude(x: UOp) -> UOp:
    """|x|, but for the sign of -0.0."""
    return (x < 0.0).where(-x, x)


def polynomial(x: UOp, coefficients: Sequence[float | UOp]) -> UOp:
    """coefficients[0] + coefficients[1] * x + ..., by Horner's scheme, one rounding a step."""
    *others, last = coefficients
    value = last if isinstance(last, UOp) else x.const_like(last)
    for c in reversed(others):
        value = fma(value, x, c)
    return value


def floats(hexadecimal: str) -> tuple[float, ...]:
    """The doubles written in hexadecimal, a space between, so that not a bit is lost on the way."""
    return tuple([float.fromhex(h) for h in hexadecimal.split()])
