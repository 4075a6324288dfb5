"""What is kept of a run that may be done again.

Owns: the fields, whether the plan is still that of the graph. Does not own: which runs are kept (known_runs.py).
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import TYPE_CHECKING, Any, NamedTuple

from proofgrad.core import settings
from proofgrad.core.ir.shapes import Shape
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.device import Device
from proofgrad.core.tensor.runtime.likeness import Likeness

if TYPE_CHECKING:
    from proofgrad.core.compile.plan.plan import BufferInfo, Plan

# What changes how a graph is compiled or run.
_ASKED = settings.encoded("DEBUG", "DEBUG_NANS", *settings.READ_BY_STAGES)


class Ran(NamedTuple):
    """A run that may be done again: its graph, with buffers numbered and as it is compiled, the inputs that are parts of memory and those
    that are numbers, the variables that had values, and the plan, of which compiler. `make(info, shape, memory)`: the node of a result. How many
    of the roots were asked for: the others lie below those, and are to be kept.
    """

    asked: UOp
    graph: UOp
    parts: frozenset[int]
    numbers: frozenset[int]
    variables: Set[str]
    plan: Plan
    epoch: object
    make: Callable[[BufferInfo, Shape, Any], UOp]
    asked_for: int


class KeptRun:
    """One plan, for graphs that are alike."""

    __slots__ = (
        "_asked", "_backend", "_device", "_epoch", "asked", "copies", "graph", "is_asked", "likeness", "nodes", "plan", "roots", "where",
    )  # fmt: skip

    def __init__(self, ran: Ran, likeness: Likeness) -> None:
        self.likeness, self.nodes = likeness, len(ran.asked.toposort())
        self._asked, self._epoch = settings.stored(_ASKED), ran.epoch
        self.is_asked = self._asked != ()  # does the environment ask for anything, as for checks?
        self.asked, self.graph, self.plan = ran.asked, ran.graph, ran.plan
        self.roots = ran.asked.src[: ran.asked_for]
        self._device, self._backend = ran.graph.arg, Device[ran.graph.arg]
        self.where = likeness.devices[: ran.plan.inputs]
        self.copies = any([step.kernel is None for step in ran.plan.steps])

    def is_now(self, epoch: object) -> bool:
        """Whether the graph would get this plan now, on the machine that the device is now."""
        if self._epoch is not epoch or Device[self._device] is not self._backend:
            return False
        if self.is_asked:
            return self._asked == settings.stored(_ASKED)
        return not settings.is_any_set(_ASKED)
