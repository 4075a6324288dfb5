"""Launches on an OpenCL queue: one, and many as one call.

Owns: kernels with their arguments. Does not own: building (runtime.py).

Arguments belong to a kernel object, not to a launch of it. A launch by itself sets them each time; in a sequence each launch
has an object of its own, whose arguments stay until a buffer is another one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from proofgrad.core.compile.machine.target import Launch

if TYPE_CHECKING:
    from proofgrad.backends.opencl.runtime import OpenCLBackend


class KernelLaunch:
    """A built kernel. Called with one buffer a slot."""

    def __init__(
        self,
        machine: OpenCLBackend,
        kernel: Any,
        make: Callable[[], Any],
        entry: str,
        slots: list[int],
        shape: tuple[int, int],
    ) -> None:
        """`make` gives another kernel object; `slots`: those that it has arguments for; `shape`: items, and those of a group."""
        self.machine, self.kernel, self.make = machine, kernel, make
        self.entry, self.slots = entry, slots
        self.grid, self.group = (shape[0],), (shape[1],)
        self.is_linked = False  # it has run once
        self._lock = threading.Lock()

    def __call__(self, buffers: Sequence[Any]) -> None:
        self.machine.check_usable()  # a forked child may never get the lock
        with self._lock:
            self.machine.enqueue(self, self.kernel, [buffers[slot] for slot in self.slots])


class QueuedSequence:
    """Launches in order, over buffers that `point` changes."""

    def __init__(
        self, launches: Sequence[tuple[KernelLaunch, Sequence[int]]], memory: Sequence[Any]
    ) -> None:
        """`launches`: each with the slots of its buffers in `memory`."""
        self._launches = [launch for launch, _ in launches]
        self._handles: list[list[Any]] = [[None] * len(slots) for _, slots in launches]
        self._kernels: list[Any] = [None] * len(launches)
        self._changed = set(range(len(launches)))
        self._positions: dict[int, list[tuple[int, int]]] = {}
        for k, (_, slots) in enumerate(launches):
            for j, slot in enumerate(slots):
                self._positions.setdefault(slot, []).append((k, j))
        self._lock = threading.Lock()
        for slot, handle in enumerate(memory):
            if handle is not None:
                self.point(slot, handle)

    def point(self, slot: int, handle: Any) -> None:
        """The buffer of a slot is another one. It is held: OpenCL holds no arguments."""
        for k, j in self._positions.get(slot, ()):
            if self._handles[k][j] is not handle:
                self._handles[k][j] = handle
                self._changed.add(k)

    def listed(self) -> list[tuple[Launch | None, list[Any]]]:
        """Each launch with the buffers that it will be given."""
        return [
            (launch, list(own)) for launch, own in zip(self._launches, self._handles, strict=True)
        ]

    def run(self) -> None:
        """All launches, in order."""
        self._launches[0].machine.check_usable()
        with self._lock:
            for k, launch in enumerate(self._launches):
                arguments = None
                if k in self._changed:
                    if self._kernels[k] is None:
                        self._kernels[k] = launch.make()
                    arguments = [self._handles[k][slot] for slot in launch.slots]
                launch.machine.enqueue(launch, self._kernels[k], arguments)
                self._changed.discard(k)
