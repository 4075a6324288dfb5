"""The functions of the CUDA driver that the runtime uses, over memory of the host.

Owns: devices, streams, events. Does not own: memory (memory_calls.py), kernels and graphs (kernel_calls.py), what both stand on
(state.py).

`EmulatedDriver` stands for the module cuda.bindings.driver: the same names, arguments and results. It is as strict as the
driver is at its worst: a context belongs to a thread, nothing that was launched runs before somebody waits for it, pinned
memory is read when the copy runs, freed memory stays in the pool until that is trimmed, a fault ends its context. Source:
CUDA Driver API.
"""

from __future__ import annotations

import time

from proofgrad.backends.ptx.emulator.kernel_calls import KernelCalls
from proofgrad.backends.ptx.emulator.memory_calls import MemoryCalls
from proofgrad.backends.ptx.emulator.state import (
    CUDA_KERNEL_NODE_PARAMS,
    MAX_GRID,
    MEMORY_BYTES,
    Context,
    CUresult,
    Event,
    Failed,
    Stream,
    names,
)

UNITS = 132  # multiprocessors that a GPU says it has
UNIT_THREADS, UNIT_REGISTERS = 2048, 1 << 16


class EmulatedDriver(MemoryCalls, KernelCalls):
    """GPUs that are none. Counters and limits are for tests: `memory_bytes` of each, `launches`, `modules`."""

    is_emulated = True
    CUresult = CUresult
    CUDA_KERNEL_NODE_PARAMS = CUDA_KERNEL_NODE_PARAMS
    cuuint64_t = int
    CUdevice_attribute = names(
        ("CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR", 75),
        ("CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR", 76),
        ("CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X", 5),
        ("CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT", 16),
        ("CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED", 115),
        ("CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR", 39),
        ("CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR", 81),
        ("CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR", 82),
        ("CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN", 97),
    )
    CUmemPool_attribute = names(("CU_MEMPOOL_ATTR_RELEASE_THRESHOLD", 4))
    CUjit_option = names(("CU_JIT_ERROR_LOG_BUFFER", 5), ("CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES", 6))
    CUfunction_attribute = names(
        ("CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES", 1),
        ("CU_FUNC_ATTRIBUTE_NUM_REGS", 4),
        ("CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES", 8),
    )

    def __init__(
        self, devices: int = 1, memory_bytes: int = MEMORY_BYTES, capability: int = 90
    ) -> None:
        super().__init__(devices, memory_bytes)
        self.capability = capability
        self._is_open = False

    # -- devices and contexts ------------------------------------------------------------------------

    def cuInit(self, flags: int) -> None:
        """Open the driver for this process."""
        self._is_open = True

    def cuDriverGetVersion(self) -> int:
        """1000 times the major and 10 times the minor version of CUDA."""
        return 12090

    def cuDeviceGetCount(self) -> int:
        """How many GPUs there are."""
        self.require(self._is_open, CUresult.CUDA_ERROR_NOT_INITIALIZED)
        return len(self.contexts)

    def cuDeviceGet(self, ordinal: int) -> int:
        """A GPU by its number."""
        self.require(0 <= ordinal < len(self.contexts), CUresult.CUDA_ERROR_INVALID_DEVICE)
        return ordinal

    def cuDeviceGetName(self, length: int, device: int) -> bytes:
        """Its name, ended by a zero."""
        return f"emulated GPU {device}".encode().ljust(length, b"\0")[:length]

    def cuDeviceGetAttribute(self, attribute: int, device: int) -> int:
        """A fact about a GPU."""
        major, minor = divmod(self.capability, 10)
        asked, whole = self.asked_shared()
        memory = {39: UNIT_THREADS, 81: whole, 82: UNIT_REGISTERS, 97: asked}
        known = {75: major, 76: minor, 5: MAX_GRID, 16: UNITS, 115: 1, **memory}
        self.require(attribute in known)
        return known[attribute]

    def cuDevicePrimaryCtxRetain(self, device: int) -> Context:
        """The context that all libraries of a process share."""
        return self.contexts[device]

    def cuCtxSetCurrent(self, context: Context) -> None:
        """From now on the calling thread works in a context."""
        self._current.context = context

    def cuGetErrorString(self, code: int) -> bytes:
        """The words for an error; of a fault of a kernel, what the emulator saw."""
        text = CUresult(code).name.removeprefix("CUDA_ERROR_").replace("_", " ").lower()
        is_of_a_kernel = any(context.fault == code for context in self.contexts)
        return f"{text}: {self.fault_text}".encode() if is_of_a_kernel else text.encode()

    # -- streams and events --------------------------------------------------------------------------

    def cuStreamCreate(self, flags: int) -> Stream:
        """An order for work of its own."""
        stream = Stream(self.context())
        stream.context.streams.append(stream)
        return stream

    def cuStreamSynchronize(self, stream: Stream) -> None:
        """Wait until all work of a stream is done: here, do it."""
        self.drain(self.own(stream), stream)

    def cuEventCreate(self, flags: int) -> Event:
        """A position in a stream that has not been reached."""
        return Event(self.context())

    def cuEventRecord(self, event: Event, stream: Stream) -> None:
        """Put an event behind the work that a stream has."""
        self.own(stream)
        event.stream, event.seconds = stream, None

        def reach() -> None:
            event.seconds = time.perf_counter()

        stream.waiting.append(reach)

    def cuEventSynchronize(self, event: Event) -> None:
        """Wait until an event is reached."""
        context = self.own(event)
        if event.stream is not None and event.seconds is None:
            self.drain(context, event.stream)

    def cuEventElapsedTime(self, first: Event, last: Event) -> float:
        """Milliseconds between two events that were reached."""
        self.own(first)
        if first.seconds is None or last.seconds is None:
            raise Failed(CUresult.CUDA_ERROR_NOT_READY)
        return (last.seconds - first.seconds) * 1000

    def cuEventDestroy(self, event: Event) -> None:
        """Let go of an event."""
        self.own(event)
