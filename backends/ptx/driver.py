"""One NVIDIA GPU through the CUDA driver: its context, errors, memory, copies, modules, launches, events.

Owns: each call of the driver, checked, in the right context from any thread. Does not own: buffers as the compiler knows them
(memory.py), what is launched (runtime.py), whose driver it is: NVIDIA's by cuda-bindings, or the emulator's.

All work is put on one stream, in the order in which Python asks for it, and runs later. What goes wrong in a kernel is
therefore told by a later call: the message names the kernels that have been launched since the GPU was last waited for.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from weakref import ref

from proofgrad.backends.ptx.emit import PTX_VERSIONS, known_architecture
from proofgrad.core.compile.machine.target import CompileError, DeviceError

OUT_OF_MEMORY, TOO_MANY_RESOURCES = 2, 701
# After these the context computes nothing any more. Source: CUDA driver API, "CUresult".
FATAL = frozenset({4, 46, 214, 700, 702, 710, 714, 715, 716, 717, 718, 719, 999})
# The oldest driver that reads each PTX version, as cuDriverGetVersion tells. Source: PTX ISA, "Release Notes".
DRIVERS = {60: 9000, 63: 10000, 70: 11000, 71: 11010, 78: 11080, 86: 12070, 87: 12080}
NAMED_KERNELS = 8  # of those since the last wait, in a message
# Of a block's shared memory, and the first architecture that reserves it. Source: CUDA C++ Programming Guide, "Compute Capabilities".
RESERVED_SHARED, FIRST_RESERVED = 1 << 10, 80
RETIRED_MODULES = 32  # that wait to be unloaded, before the GPU is waited for
LOG_BYTES = 8192
_NON_BLOCKING = 1  # a stream beside the default one, and a wait that yields the processor


def _version(number: int) -> str:
    """12090 as 12.9."""
    return f"{number // 1000}.{number % 1000 // 10}"


class _Thread(threading.local):
    """What the thread that asks is in the middle of."""

    driver: Driver | None = None  # whose context it works in


_thread = _Thread()


class CallFailed(DeviceError):
    """A call of the driver gave an error. `code`: its number."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def _end(driver: ref[Driver]) -> None:
    """The process ends, and with it all that it has on a GPU: handles that are dropped later give nothing back."""
    known = driver()
    if known is not None and not known.lost:
        known.lost = f"{known.label} is closed: the process is ending"


class Driver:
    """A GPU by its number. `api` is cuda.bindings.driver, or a stand-in with the same functions."""

    def __init__(self, api: Any, ordinal: int = 0) -> None:
        """Raises: DeviceError where no such GPU answers."""
        self.api, self.ordinal = api, ordinal
        self.label = "CUDA" if ordinal == 0 else f"CUDA:{ordinal}"
        self.is_emulated = bool(getattr(api, "is_emulated", False))
        self.lost = ""  # why nothing can be computed any more
        # A lock that its thread may take again: Python may drop handles, which tell of a lost GPU, at any line.
        self._process, self._lock = os.getpid(), threading.RLock()
        self._recent: deque[str] = deque(maxlen=NAMED_KERNELS)
        self._launched = 0  # since the GPU was last waited for
        self._retired: deque[Any] = deque()  # modules, put there at any line as well
        self._check("cuInit", 0)
        self._device = self._check("cuDeviceGet", self._known_ordinal())
        self._context = self._check("cuDevicePrimaryCtxRetain", self._device)
        name = self._check("cuDeviceGetName", 256, self._device)
        self.name = bytes(name).split(b"\0")[0].decode()
        self.version = int(self._check("cuDriverGetVersion"))
        self.capability = 10 * self._attribute("COMPUTE_CAPABILITY_MAJOR") + self._attribute(
            "COMPUTE_CAPABILITY_MINOR"
        )
        self._require_recent()
        self.max_blocks = self._attribute("MAX_GRID_DIM_X")
        self.units = self._attribute("MULTIPROCESSOR_COUNT")
        self.block_shared = self._attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
        self.unit_shared = self._attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR")
        self.reserved_shared = RESERVED_SHARED if self.capability >= FIRST_RESERVED else 0
        self.unit_items = self._attribute("MAX_THREADS_PER_MULTIPROCESSOR")
        self.unit_registers = self._attribute("MAX_REGISTERS_PER_MULTIPROCESSOR")
        self.stream = self.call("cuStreamCreate", _NON_BLOCKING)
        self._pool = self._make_pool()
        atexit.register(_end, ref(self))

    def _require_recent(self) -> None:
        """Raises: DeviceError for a driver that cannot read the text that is printed for this GPU."""
        architecture = known_architecture(self.capability)
        needed = DRIVERS[PTX_VERSIONS[architecture]]
        if self.version < needed:
            raise DeviceError(
                f"the NVIDIA driver of {self.label} ({self.name}) is too old: it is of CUDA {_version(self.version)}, and"
                f" kernels for sm_{architecture} need CUDA {_version(needed)}: update it"
            )

    def _known_ordinal(self) -> int:
        count = int(self._check("cuDeviceGetCount"))
        if not 0 <= self.ordinal < count:
            names = ", ".join(["CUDA" if k == 0 else f"CUDA:{k}" for k in range(count)]) or "none"
            raise DeviceError(
                f"there is no {self.label}: the NVIDIA driver lists {count} GPUs ({names})"
            )
        return self.ordinal

    def _attribute(self, name: str) -> int:
        attribute = getattr(self.api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self._check("cuDeviceGetAttribute", attribute, self._device))

    def _make_pool(self) -> Any:
        """The driver's pool of memory, which shall keep what is freed; None where there is none."""
        if not self._attribute("MEMORY_POOLS_SUPPORTED"):
            return None
        pool = self._check("cuDeviceGetDefaultMemPool", self._device)
        threshold = self.api.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
        most = self.api.cuuint64_t(2**64 - 1)
        self._check("cuMemPoolSetAttribute", pool, threshold, most)
        return pool

    # -- calls ---------------------------------------------------------------------------------------

    def call(self, name: str, *arguments: Any, what: str = "") -> Any:
        """A function of the driver in the context of this GPU, whichever thread asks.

        If memory is out for it, what the pool keeps is given back, and it is called once more: modules, graphs and launches
        take memory, too. `what` could not be done, if it is out still. Raises: CallFailed, DeviceError, MemoryError.
        """
        self.require_usable()
        around = _thread.driver
        try:
            _thread.driver = self
            self._check("cuCtxSetCurrent", self._context)
            return self._called(name, arguments, what)
        finally:
            _thread.driver = around
            if around is not None and around is not self:  # a handle was dropped during its call
                around._check("cuCtxSetCurrent", around._context)

    def _called(self, name: str, arguments: Sequence[Any], what: str) -> Any:
        try:
            return self._check(name, *arguments)
        except CallFailed as error:
            if error.code != OUT_OF_MEMORY:
                raise
        self._give_back()
        try:
            return self._check(name, *arguments)
        except CallFailed as error:
            if error.code != OUT_OF_MEMORY:
                raise
            free, total = [int(n) for n in self._check("cuMemGetInfo")]
        raise MemoryError(
            f"{what or f'memory is out for {name}'} on {self.label} ({self.name}): {free} of its {total} bytes are free"
        )

    def _give_back(self) -> None:
        """Wait for what was launched, and keep neither modules that are done with nor memory in the pool."""
        retired = self._taken()
        self._check("cuStreamSynchronize", self.stream)
        self._has_waited(retired)
        if self._pool is not None:
            self._check("cuMemPoolTrimTo", self._pool, 0)

    def require_usable(self) -> None:
        """Asked before a lock is taken, which a child never gets if another thread held it. Raises: DeviceError if the GPU was lost, and in a forked child."""
        if self.lost:
            raise DeviceError(self.lost)
        if os.getpid() != self._process:
            raise DeviceError(
                f"{self.label} was used before this process was forked, and CUDA does not outlive that: start"
                f' processes with multiprocessing.get_context("spawn"), or use {self.label} in the child only'
            )

    def _check(self, name: str, *arguments: Any) -> Any:
        try:
            code, *results = getattr(self.api, name)(*arguments)
        except RuntimeError as error:  # cuda-bindings raises this for what the driver does not have
            raise DeviceError(
                f"the NVIDIA driver of {self.label} has no {name} ({error}): it is too old, update it"
            ) from None
        if int(code) == 0:
            return results[0] if len(results) == 1 else results or None
        message = f"{name} failed on {self.label}: {self._words(code)}"
        if int(code) in FATAL:
            message = self.lost = self._words_of_loss(code)
        raise CallFailed(message, int(code))

    def _words(self, code: Any) -> str:
        failed, text = self.api.cuGetErrorString(code)
        told = "" if int(failed) or text is None else f": {bytes(text).decode(errors='replace')}"
        return f"{getattr(code, 'name', code)}{told}"

    def _words_of_loss(self, code: Any) -> str:
        with self._lock:
            names, count = list(dict.fromkeys(self._recent)), self._launched
        which = (
            f" in one of the {count} kernels launched since it was last waited for, the last of which are"
            f" {', '.join(names)}"
            if count > 1
            else f" in the kernel {names[0]}"
            if names
            else ""
        )
        return (
            f"{self.label} ({getattr(self, 'name', 'NVIDIA')}) was lost{which}: {self._words(code)}. Its values are gone;"
            " other devices go on, a new process can use it again. With DEBUG=2 each kernel is waited for,"
            " which shows the one"
        )

    # -- memory --------------------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> int:
        """The address of fresh memory. Raises: MemoryError."""
        what = f"cannot allocate {nbytes} bytes"
        if self._pool is None:
            return int(self.call("cuMemAlloc", nbytes, what=what))
        return int(self.call("cuMemAllocAsync", nbytes, self.stream, what=what))

    def free(self, address: int) -> None:
        """Give memory back, after all that was launched before."""
        if self._pool is None:
            self.release("cuMemFree", address)
        else:
            self.release("cuMemFreeAsync", address, self.stream)

    def release(self, name: str, *arguments: Any) -> None:
        """A call that gives something back. Of a GPU that is lost, or was another process's, there is nothing to give."""
        if self.lost or os.getpid() != self._process:
            return
        try:
            self.call(name, *arguments)
        except CallFailed:
            if not self.lost:  # else the next call says so, where somebody can be told
                raise

    def copy_in(self, address: int, data: Any, nbytes: int) -> None:
        """Begin to copy from the host: an address of pinned memory, or an object with contiguous bytes."""
        self.call("cuMemcpyHtoDAsync", address, data, nbytes, self.stream)

    def copy_out(self, target: int, address: int, nbytes: int) -> None:
        """Copy to an address of the host, after all that was launched before."""
        self.call("cuMemcpyDtoHAsync", target, address, nbytes, self.stream)
        self.synchronize()

    # -- kernels -------------------------------------------------------------------------------------

    def load(self, text: bytes) -> Any:
        """A module of PTX text. Raises: CompileError, with what the PTX compiler says."""
        option, log = self.api.CUjit_option, bytearray(LOG_BYTES)
        options = [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
        try:
            return self.call("cuModuleLoadDataEx", text + b"\0", 2, options, [log, LOG_BYTES])
        except CallFailed as error:
            if self.lost:
                raise
            said = bytes(log).split(b"\0")[0].decode(errors="replace").strip()
            raise CompileError(
                f"the driver refused the PTX: {error}\n{said}\n{text.decode(errors='replace')}"
            ) from None

    def function(self, module: Any, entry: str) -> Any:
        """A kernel of a module. Raises: CompileError."""
        try:
            return self.call("cuModuleGetFunction", module, entry.encode())
        except CallFailed as error:
            raise CompileError(f"the PTX has no kernel {entry}: {error}") from None

    def unload(self, module: Any) -> None:
        """Let go of a module when all that was launched of it has run."""
        if self.lost or os.getpid() != self._process:
            return
        self._retired.append(module)
        if len(self._retired) >= RETIRED_MODULES:
            retired = self._taken()
            self.release("cuStreamSynchronize", self.stream)
            self._unload(retired)

    def _taken(self) -> list[Any]:
        """The modules that are done with now. What is launched while these are waited for may be of others."""
        taken = list[Any]()
        with suppress(IndexError):  # another thread takes some, too
            for _ in range(len(self._retired)):
                taken.append(self._retired.popleft())
        return taken

    def _unload(self, modules: Sequence[Any]) -> None:
        for module in modules:
            self.release("cuModuleUnload", module)

    def allow_shared(self, name: str, function: Any, nbytes: int) -> None:
        """Launches of a kernel may give each block so much shared memory. Raises: DeviceError for more than there is."""
        if nbytes > self.block_shared:
            raise DeviceError(
                f"the kernel {name} needs {nbytes} bytes of shared memory a block, and {self.label} ({self.name}) has"
                f" {self.block_shared}: ask for smaller tiles, as with schedule(...)"
            )
        which = self.api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        self.call("cuFuncSetAttribute", function, which, nbytes)

    def launch(
        self, name: str, function: Any, shape: tuple[int, int, int], parameters: int
    ) -> None:
        """Start blocks; `shape`: how many, the threads and bytes of shared memory that each gets.

        `parameters`: the address of void *[], read before this returns.
        """
        self.require_usable()
        self.note([name])
        blocks, threads, nbytes = shape
        sizes = (blocks, 1, 1, threads, 1, 1, nbytes)
        try:
            self.call("cuLaunchKernel", function, *sizes, self.stream, parameters, 0)
        except CallFailed as error:
            if error.code != TOO_MANY_RESOURCES or self.lost:
                raise
            raise DeviceError(f"{error}; {self._needs(name, function, shape)}") from None

    def _needs(self, name: str, function: Any, shape: tuple[int, int, int]) -> str:
        attribute = self.api.CUfunction_attribute
        registers, shared = [
            int(self.call("cuFuncGetAttribute", which, function))
            for which in (
                attribute.CU_FUNC_ATTRIBUTE_NUM_REGS,
                attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
            )
        ]
        return (
            f"the kernel {name} needs {registers} registers for each of {shape[1]} threads and {shared + shape[2]} bytes of shared"
            " memory a block; ask for smaller tiles, as with schedule(...)"
        )

    def note(self, names: Sequence[str]) -> None:
        """Kernels that are launched now, for the message if one of them goes wrong."""
        with self._lock:
            self._recent.extend(names)
            self._launched += len(names)

    def synchronize(self) -> None:
        """Wait until all that was launched has run. Raises: DeviceError, also for what a kernel did wrong."""
        retired = self._taken()
        try:
            self.call("cuStreamSynchronize", self.stream)
        except BaseException:
            self._retired.extend(retired)
            raise
        self._has_waited(retired)

    def _has_waited(self, retired: Sequence[Any]) -> None:
        with self._lock:
            self._recent.clear()
            self._launched = 0
        self._unload(retired)
