"""Runs that compute again what the runs before them computed: who wrote the loop is told how to keep it.

    for k in range(1000): x = x * 0.99 + 0.1; print(x.sum().item())

asks in each step for what is made of `x`, and never for `x`: each run is that of all steps so far, a kernel of its own.

Owns: when that is said. Does not own: the runs (realize.py).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from weakref import WeakSet

from proofgrad.core.ir.uop import UOp
from proofgrad.core.messages import warn

# A run of fewer nodes is over soon. So many runs after each other, each of which computes nearly all of the one before, are a loop.
LEAST_NODES, MOST_RUNS = 64, 16


@dataclass(slots=True)
class _Runs:
    """The nodes of the last large run, and how many such runs before it each were part of the next."""

    nodes: WeakSet[UOp] = field(default_factory=WeakSet)
    count: int = 0


_LAST = _Runs()


def note_run(nodes: Collection[UOp]) -> None:
    """A run will compute these nodes. Warns, at the line that asked for it, when it is one of many that compute the same again."""
    if len(nodes) < LEAST_NODES:
        return
    again = sum([node in _LAST.nodes for node in nodes])
    _LAST.count = _LAST.count + 1 if 10 * again >= 9 * len(nodes) else 0
    _LAST.nodes = WeakSet(nodes)
    if _LAST.count == MOST_RUNS:
        warn(
            f"{MOST_RUNS} runs, one after the other, each computed again what the one before had computed, here {again} operations:"
            " call .realize() on what the loop goes on with, so that it is kept"
        )
