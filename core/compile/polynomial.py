"""Polynomials as graphs, shared by the transcendental functions.

Owns: Horner's scheme, and coefficients written as hexadecimal floats. Does not own: which
coefficients (transcendental.py, sine.py).
"""

from __future__ import annotations

from proofgrad.core.ir.uop import UOp


def polynomial(x: UOp, coefficients: tuple[float, ...]) -> UOp:
    """coefficients[0] + coefficients[1] * x + ..., by Horner's scheme."""
    value = x.const_like(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        value = value * x + c
    return value


def floats(*hexadecimal: str) -> tuple[float, ...]:
    """The doubles written in hexadecimal, so that not a bit is lost on the way."""
    return tuple([float.fromhex(h) for h in hexadecimal])
