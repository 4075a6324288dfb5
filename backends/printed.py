"""A machine whose kernels are printed here and run nowhere: what its backend is but for the text.

Owns: answers and handles where there is nothing to run. Does not own: any text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proofgrad.core.compile.machine.target import Backend, Binary, DeviceError, Launch, Source


class NoMemory:
    """A handle where there is no machine: one for each buffer, so that two are never taken for the same memory."""

    __slots__ = ()


class PrintedBackend(Backend):
    """Kernels are printed and compiled; running one, or asking for a value, is an error that says why."""

    missing: str
    """Why nothing is run, and what can be done."""

    def compile(self, source: Source) -> Binary:
        return Binary(source.entry, source.text.encode(), source)

    def load(self, binary: Binary) -> Launch:
        def launch(buffers: Sequence[Any]) -> None:
            raise DeviceError(f"the kernel {binary.entry} was printed and not run: {self.missing}")

        return launch

    def alloc(self, nbytes: int) -> NoMemory:
        return NoMemory()

    def copyin(self, handle: NoMemory, data: memoryview) -> None:
        """There is no memory."""

    def copyout(self, data: memoryview, handle: NoMemory) -> None:
        """Raises: DeviceError, since nothing was ever computed."""
        raise DeviceError(f"no value was computed: {self.missing}")

    def synchronize(self) -> None:
        """Nothing was launched."""
