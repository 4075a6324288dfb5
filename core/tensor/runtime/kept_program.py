"""The kernels of a small plan over memory of their own between, to be run again in one native call.

Owns: that memory, the launches. Does not own: which plans are kept, results (known_runs.py).

To ask for memory, make a table of addresses, launch, and give the memory back takes five microseconds of Python for each
kernel, as long as a kernel of tens of thousands of operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from proofgrad.core.tensor.runtime.arena import make_arena
from proofgrad.core.tensor.runtime.device import Device
from proofgrad.core.tensor.runtime.launches import Launches, with_copies_ahead

if TYPE_CHECKING:
    from proofgrad.core.compile.plan.plan import Plan


class KeptProgram:
    """A plan without variables that writes over no input. For one thread at a time."""

    __slots__ = ("_inputs", "_launches", "_memory", "_results", "_where", "nbytes")

    def __init__(self, plan: Plan, devices: Sequence[str]) -> None:
        """`devices`: where each input is. Raises: MemoryError."""
        self._inputs, self._results = plan.inputs, plan.results
        steps = with_copies_ahead(plan.steps, plan.inputs)
        arena = make_arena(steps, plan.made, plan.inputs, set(plan.results))
        self.nbytes = arena.nbytes
        self._memory: list[Any] = [None] * (plan.inputs + len(plan.made))
        for slot, handle in arena.memory.items():
            self._memory[slot] = handle
        made = plan.made[plan.results[0] - plan.inputs]
        self._where = [*devices, *[info.device for info in plan.made]]
        self._launches = Launches(steps, self._memory, self._where, Device[made.device])

    def run(self, given: Sequence[Any], into: Sequence[Any]) -> None:
        """All steps, for inputs in this memory, with the results in that."""
        memory, launches = self._memory, self._launches
        for slot in range(self._inputs):
            memory[slot] = handle = given[slot]
            launches.changed(slot, handle)
        for slot, handle in zip(self._results, into):
            memory[slot] = handle
            launches.changed(slot, handle)
        launches.run()
        for slot in range(self._inputs):
            memory[slot] = None  # else the next run would hold what this one read
        for slot in self._results:
            memory[slot] = None
