"""Polynomials as graphs, shared by the transcendental functions.

Owns: Horner's scheme, and coefficients written as hexadecimal floats. Does not own: which
coefficients (transcendental.py, sine.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from proofgrad.core.ir.uop import UOp


def polynomial(x: UOp, coefficients: Sequence[float | UOp]) -> UOp:
    """coefficients[0] + coefficients[1] * x + ..., by Horner's scheme."""
    *others, value = [c if isinstance(c, UOp) else x.const_like(c) for c in coefficients]
    for c in reversed(others):
        value = value * x + c
    return value


def floats(*hexadecimal: str) -> tuple[float, ...]:
    """The doubles written in hexadecimal, so that not a bit is lost on the way."""
    return tuple([float.fromhex(h) for h in hexadecimal])
