"""Buffers of a GPU, and copies from and to the host.

Owns: handles, memory of the host that the GPU reads by itself while Python goes on. Does not own: calls of the driver
(driver.py).
"""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass
from typing import Any

from proofgrad.backends.ptx.driver import Driver
from proofgrad.core.compile.machine.target import Borrowed

STAGE_BYTES = 1 << 20  # copies up to here do not wait for the GPU
STAGES = 4
_NO_TIMES = 2  # CU_EVENT_DISABLE_TIMING


class DeviceMemory:
    """Global memory that goes back to the driver's pool when the handle is dropped, by whichever thread."""

    __slots__ = ("address", "driver", "nbytes")

    def __init__(self, driver: Driver, nbytes: int) -> None:
        self.driver, self.nbytes = driver, nbytes
        self.address = driver.allocate(max(1, nbytes))

    def __del__(self) -> None:
        if hasattr(self, "address"):
            self.driver.free(self.address)


class AdoptedMemory(Borrowed):
    """Memory of the GPU that belongs to somebody else, who is held as long as this is."""

    __slots__ = ("_keep", "address", "nbytes")

    def __init__(self, address: int, nbytes: int, keep: object) -> None:
        self.address, self.nbytes, self._keep = address, nbytes, keep


@dataclass(slots=True)
class _Stage:
    """Pinned memory of the host. `event`: the copy from it is done."""

    address: int
    view: memoryview
    event: Any


class Copies:
    """Copies from and to one GPU. Small ones are staged: the GPU fetches them when it gets there."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._lock = threading.Lock()
        self._stages: list[_Stage] = []
        self._next = 0

    def write(self, address: int, data: memoryview) -> None:
        """Copy `data` to the GPU; it may be changed when this returns. Raises: DeviceError."""
        contents = data.cast("B") if data.c_contiguous else memoryview(data.tobytes())
        if contents.nbytes > STAGE_BYTES:
            self.driver.copy_in(address, contents, contents.nbytes)
            self.driver.synchronize()  # memory that somebody has pinned is read later
            return
        self.driver.require_usable()
        with self._lock:
            stage = self._free_stage()
            stage.view[: contents.nbytes] = contents
            self.driver.copy_in(address, stage.address, contents.nbytes)
            self.driver.call("cuEventRecord", stage.event, self.driver.stream)

    def read(self, data: memoryview, address: int) -> None:
        """Copy from the GPU into `data`. Raises: DeviceError."""
        target = (ctypes.c_char * data.nbytes).from_buffer(data)
        self.driver.copy_out(ctypes.addressof(target), address, data.nbytes)

    def _free_stage(self) -> _Stage:
        """The stage that was used the longest ago, when its copy is done."""
        if len(self._stages) < STAGES:
            return self._new_stage()
        stage = self._stages[self._next % STAGES]
        self._next += 1
        self.driver.call("cuEventSynchronize", stage.event)
        return stage

    def _new_stage(self) -> _Stage:
        """Keeps nothing where memory is out."""
        event = self.driver.call("cuEventCreate", _NO_TIMES)
        try:
            address = int(self.driver.call("cuMemAllocHost", STAGE_BYTES))
        except BaseException:
            self.driver.release("cuEventDestroy", event)
            raise
        view = memoryview((ctypes.c_char * STAGE_BYTES).from_address(address)).cast("B")
        self._stages.append(_Stage(address, view, event))
        return self._stages[-1]
