"""The steps of a replay: one native call where the backend has such, else one by one.

Owns: which of the two, copies before it. Does not own: the memory they work on (replay.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from proofgrad.core.tensor.runtime.execute import run_step

if TYPE_CHECKING:
    from proofgrad.core.compile.machine.target import Backend, LaunchSequence
    from proofgrad.core.compile.plan.plan import Step


class Launches:
    """See the head of this file."""

    def __init__(
        self, steps: Sequence[Step], memory: list[Any], where: Sequence[str], backend: Backend
    ) -> None:
        self.memory, self.where = memory, where
        self.copies = [step for step in steps if step.kernel is None]
        first = [step.kernel is None for step in steps]
        self.steps = list(steps)
        self._native: LaunchSequence | None = None
        copies_lead = first == sorted(first, reverse=True)
        if copies_lead:
            launches = [
                (step.kernel.ready(), step.slots, step.offsets or (0,) * len(step.slots))
                for step in steps
                if step.kernel is not None
            ]
            self._native = backend.sequence(launches, memory)
        # The one call that is all that runs, if there is such.
        self.native = None if self._native is None or self.copies else self._native.run
        # To be told when the memory of a slot is another one.
        self.changed: Callable[[int, Any], None] = (
            _look_it_up if self._native is None else self._native.point
        )

    def run(self) -> None:
        """All steps, in order."""
        if self._native is None:
            for step in self.steps:
                if step.kernel is None:
                    run_step(step, self.memory, self.where)
                else:
                    step.kernel.launch(step.buffers(self.memory))
            return
        for step in self.copies:
            run_step(step, self.memory, self.where)
        self._native.run()

    def listed(self) -> list[tuple[Step | None, list[Any]]]:
        """The steps in the order in which they run, and where the buffers of each are: for checks.

        None for a launch that is that of no step.
        """
        done = self.steps if self._native is None else self.copies
        found: list[tuple[Step | None, list[Any]]] = [
            (step, [_address(handle) for handle in step.buffers(self.memory)]) for step in done
        ]
        if self._native is None:
            return found
        kernels = [(step, step.kernel.ready()) for step in self.steps if step.kernel is not None]
        for k, (launch, addresses) in enumerate(self._native.listed()):
            is_known = k < len(kernels) and kernels[k][1] is launch
            found.append((kernels[k][0] if is_known else None, addresses))
        return found


def with_copies_ahead(steps: Sequence[Step], inputs: int) -> list[Step]:
    """The steps, copies of inputs between memories that no step before them uses in front: the kernels behind are one call."""
    ahead: list[Step] = []
    others: list[Step] = []
    used: set[int] = set()  # what a kernel reads or writes, and what a copy fills
    for step in steps:
        is_copy = step.kernel is None
        is_of_input = is_copy and step.slots[1] < inputs <= step.slots[0]
        is_first = is_of_input and used.isdisjoint(step.slots)
        (ahead if is_first else others).append(step)
        used.update(step.slots[:1] if is_copy else step.slots)
    return [*ahead, *others]


def _address(handle: Any) -> Any:
    return getattr(handle, "address", handle)


def _look_it_up(slot: int, handle: Any) -> None:
    """Steps that run one by one read the memory of their slots each time."""
