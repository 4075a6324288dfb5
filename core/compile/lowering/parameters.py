"""The parameters of a Linear: which it still uses, which it writes, and their numbers.

Owns: the order in which a kernel takes its buffers. Does not own: which buffers those are (compile/planning.py).
"""

from __future__ import annotations

from proofgrad.core.ir.op_names import PARAM, STORE
from proofgrad.core.ir.uop import UOp


def written_parameter(linear: UOp) -> UOp:
    """The parameter that a kernel writes."""
    memory = [n.src[0].src[0] for n in linear.src if n.op is STORE]
    return next(m for m in memory if m.op is PARAM)


def slots_of(linear: UOp) -> tuple[int, ...]:
    """The parameters that a kernel still uses, the one that it writes first.

    Simplification may have removed some.
    """
    written: int = written_parameter(linear).arg[0]
    used = {n.arg[0] for n in linear.src if n.op is PARAM}
    return (written, *sorted(used - {written}))


def with_dense_slots(linear: UOp, slots: tuple[int, ...]) -> UOp:
    """The parameters numbered 0, 1, ... without gaps."""
    parameters = [n for n in linear.src if n.op is PARAM]
    changes = {n: n.replace(arg=(slots.index(n.arg[0]), n.arg[1])) for n in parameters}
    changes = {old: new for old, new in changes.items() if old is not new}
    return linear.substitute(changes) if changes else linear
