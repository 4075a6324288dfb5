"""Polynomials as graphs, shared by the transcendental functions.

Owns: Horner's scheme in fused steps, what becomes of them where no instruction fuses, sizes, and coefficients written as hexadecimal floats. Does not own:
which coefficients (transcendental.py, sine.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp

_OR_TWICE = "or twice"  # the arg of an FMA that need not be rounded once, until that is settled


def fma(x: UOp, factor: UOp | float, term: UOp | float) -> UOp:
    """x * factor + term, rounded once."""
    return x.alu(Ops.FMA, *[s if isinstance(s, UOp) else x.const_like(s) for s in (factor, term)])


def step(x: UOp, factor: UOp | float, term: UOp | float) -> UOp:
    """x * factor + term, rounded once, or twice where a fused one is a call: bounds hold for both."""
    return fma(x, factor, term).replace(arg=_OR_TWICE)


def settled(root: UOp, calls_fma: bool) -> UOp:
    """`root` with each step that may be rounded twice as what the machine does best: that or one FMA."""
    done: dict[UOp, UOp] = {}
    for node in root.toposort():
        same = node.with_src(tuple([done[s] for s in node.src]))
        if node.op is Ops.FMA and node.arg == _OR_TWICE:
            same = same.src[0] * same.src[1] + same.src[2] if calls_fma else fma(*same.src)
        done[node] = same
    return done[root]


def magnitude(x: UOp) -> UOp:
    """|x|, but for the sign of -0.0."""
    return (x < 0.0).where(-x, x)


def polynomial(x: UOp, coefficients: Sequence[float | UOp]) -> UOp:
    """coefficients[0] + coefficients[1] * x + ..., by Horner's scheme."""
    *others, last = coefficients
    value = last if isinstance(last, UOp) else x.const_like(last)
    for c in reversed(others):
        value = step(value, x, c)
    return value


def floats(hexadecimal: str) -> tuple[float, ...]:
    """The doubles written in hexadecimal, a space between, so that not a bit is lost on the way."""
    return tuple([float.fromhex(h) for h in hexadecimal.split()])
