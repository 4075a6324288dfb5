"""A plan: the launches that fill the roots of a graph, in order, and the buffers that they need.

Owns: the types of plans, and what follows from their steps: when a buffer is used for the last time,
how many bytes are held at once. Does not own: how a graph becomes one (compile/planning.py), running (core/tensor).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from proofgrad.core.compile.machine.target import Backend, Binary, Launch, Source
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.shapes import Shape

if TYPE_CHECKING:
    from concurrent.futures import Future


class _Told(threading.local):
    """Who is told of each launch of this thread, before it; a check."""

    launch: Callable[[Kernel, Sequence[Any]], None] | None = None


TOLD = _Told()


@dataclass(slots=True)
class Kernel:
    """A compiled kernel, launched with the buffers of `slots` of its body.

    It is loaded when first launched, so that kernels can be compiled for a machine that is not here.
    """

    source: Source
    compiled: Binary | Future[Binary]
    backend: Backend
    slots: tuple[int, ...]  # of the body; the first is the one that it writes
    size: int  # elements of the buffer that it writes
    variables: dict[int, str] = field(default_factory=dict)  # the slots of variables, their names
    loaded: Launch | None = None

    @property
    def name(self) -> str:
        """The name of its function in the source and in the binary."""
        return self.source.entry

    @property
    def binary(self) -> Binary:
        """What the machine loads; waits for the thread that compiles it."""
        if isinstance(self.compiled, Binary):
            return self.compiled
        return self.compiled.result()

    @property
    def is_compiled(self) -> bool:
        """Is the binary there, and was there no error?"""
        if isinstance(self.compiled, Binary):
            return True
        later = self.compiled
        return later.done() and not later.cancelled() and later.exception() is None

    def ready(self) -> Launch:
        """The loaded kernel. Raises: DeviceError where the machine is missing."""
        if self.loaded is None:
            self.loaded = self.backend.load(self.binary)
        return self.loaded

    def launch(self, buffers: Sequence[Any]) -> None:
        """Run it. Raises: DeviceError where the machine is missing."""
        if TOLD.launch is not None:
            TOLD.launch(self, buffers)
        (self.loaded or self.ready())(buffers)


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a plan: run a kernel (None: copy slot 1 to slot 0) on these slots."""

    kernel: Kernel | None
    slots: tuple[int, ...]
    free_after: tuple[int, ...]
    nbytes: int = 0  # of a kernel: of all its buffers; of a copy: of the one that it fills
    shape: Shape = ()  # of the value that is written
    origin: tuple[str, ...] = ()  # the methods of Tensor that the kernel comes from, if known
    offsets: tuple[int, ...] = ()  # where in each slot what is read begins, in bytes; none: at 0

    def buffers(self, memory: Sequence[Any]) -> list[Any]:
        """The handles that the kernel is given, of the memory of all slots."""
        if not self.offsets or self.kernel is None:
            return [memory[slot] for slot in self.slots]
        part = self.kernel.backend.part
        return [
            part(memory[slot], offset) if offset else memory[slot]
            for slot, offset in zip(self.slots, self.offsets)
        ]


@dataclass(frozen=True, slots=True)
class BufferInfo:
    """A buffer that a plan makes."""

    dtype: DType
    size: int
    device: str

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return self.size * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Plan:
    """Launches in order. Slots: the inputs, then the buffers that the plan makes."""

    inputs: int
    made: tuple[BufferInfo, ...]
    results: tuple[int, ...]
    steps: tuple[Step, ...]
    reused: dict[int, BufferInfo] = field(default_factory=dict)  # inputs that are results
    peak_bytes: int = 0  # of the buffers that the plan makes, at most at once
    variables: tuple[tuple[str, str], ...] = ()  # name and device; their slots are the last


def with_frees(launches: Sequence[Step], inputs: int, keep: set[int]) -> tuple[Step, ...]:
    """Each launch with the slots that are read for the last time."""
    last_use: dict[int, int] = {}
    for k, step in enumerate(launches):
        last_use.update({s: k for s in step.slots if s >= inputs and s not in keep})
    free: dict[int, list[int]] = {}
    for slot, last in last_use.items():
        free.setdefault(last, []).append(slot)
    return tuple([replace(step, free_after=tuple(free.get(k, ())))
                  for k, step in enumerate(launches)])  # fmt: skip


def peak_bytes(inputs: int, made: Sequence[BufferInfo], steps: Sequence[Step]) -> int:
    """The most bytes of made buffers that are held at once."""
    held: set[int] = set()
    now = most = 0
    for step in steps:
        out = step.slots[0]
        if out >= inputs and out not in held:
            held.add(out)
            now += made[out - inputs].nbytes
        most = max(most, now)
        for slot in held.intersection(step.free_after):
            held.remove(slot)
            now -= made[slot - inputs].nbytes
    return most
