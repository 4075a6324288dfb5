"""A CPU that is not here: its code is made and can be read, and nothing of it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proofgrad.backends.cpu.codegen import Host
from proofgrad.backends.cpu.generator import Generator
from proofgrad.core import settings
from proofgrad.core.compile.machine.target import Binary, DeviceError, Launch


class AbsentCpu(Generator):
    """See core/compile/machine/target.py: Backend. Memory is none, launches do nothing."""

    def __init__(self, host: Host, name: str, missing: str) -> None:
        """`missing`: why processor `name` is not here."""
        super().__init__(host, settings.number("NUM_THREADS"), runs=False)
        self.processor, self.missing = name, missing

    def load(self, binary: Binary) -> Launch:
        return _launch_nothing

    def alloc(self, nbytes: int) -> NoMemory:
        """Nothing is ever written there."""
        return NoMemory(self)

    def adopt(self, address: int, nbytes: int, keep: object) -> NoMemory:
        """Nothing is read there either."""
        return NoMemory(self)

    def part(self, handle: NoMemory, offset_bytes: int) -> NoPart:
        """Code is made for memory that begins inside of other memory, as for one that is here."""
        return NoPart(self, handle)

    def copyin(self, handle: NoMemory, data: memoryview) -> None:
        """What is copied to a machine that is not here is never read."""

    def copyout(self, data: memoryview, handle: NoMemory) -> None:
        """Raises: DeviceError, since nothing was ever computed."""
        raise self.error()

    def error(self) -> DeviceError:
        """Why there are no values."""
        return DeviceError(
            f"no value was computed: code was made for CPU_TARGET={self.processor}, and {self.missing}."
            " Unset CPU_TARGET, or name a processor whose instructions this one has"
        )

    def synchronize(self) -> None:
        """Nothing runs."""


class NoAddress(DeviceError, AttributeError):
    """Memory that is none has no address, so for `getattr` it is without that attribute."""


class NoMemory:
    """Stands for a buffer, so that one is told from another."""

    __slots__ = ("__weakref__", "_machine")

    def __init__(self, machine: AbsentCpu) -> None:
        self._machine = machine

    @property
    def address(self) -> int:
        """For who shares memory with other libraries. Raises: NoAddress."""
        raise NoAddress(str(self._machine.error()))


class NoPart(NoMemory):
    """Stands for a part of a buffer."""

    __slots__ = ("whole",)

    def __init__(self, machine: AbsentCpu, whole: NoMemory) -> None:
        super().__init__(machine)
        self.whole = whole


def _launch_nothing(buffers: Sequence[Any]) -> None:
    """Stands for every kernel."""
