"""Running PTX through the CUDA driver (NVIDIA's cuda-bindings), and printing it where there is none.

Owns: the driver's context, memory, modules, launches. Does not own: the text (emit.py). The driver
itself compiles PTX for the GPU and keeps the result (~/.nv/ComputeCache), so a Binary here is the
text again.
"""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Sequence
from typing import Any

from proofgrad.backends.ptx.emit import DEFAULT_ARCHITECTURE, emit, known_architecture
from proofgrad.core.compile.machine.target import (
    Backend,
    Binary,
    CompileError,
    DeviceError,
    Launch,
    Source,
    Target,
)
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.uop import UOp

WIDE_BYTES = 16  # of the widest load of an item
BLOCK_ITEMS = 256  # of a block that computes a row together
SHARED_BYTES = 48 << 10  # of a block, on every GPU, without asking for more
WARP = 32  # items that run in step
REGISTERS = 96  # of an item, of 4 bytes, for a tile: with twice as many half as many items are there to wait for memory
BLOCK_SIZE = 128  # work items a block: fills every GPU, and leaves each item all the registers


class PTXBackend(Backend):
    """The first NVIDIA GPU. Without one, kernels are printed and compiled, and none is run."""

    name = "CUDA"

    def __init__(self, driver: Driver | None, missing: str = "") -> None:
        """`driver` None: there is no GPU to use; `missing` says why."""
        self.driver = driver
        self.missing = missing
        capability = DEFAULT_ARCHITECTURE if driver is None else driver.capability
        self.architecture = known_architecture(capability)
        self.target = Target(
            "CUDA",
            vector_bytes=WIDE_BYTES,
            vector_registers=REGISTERS * 4 // WIDE_BYTES,
            work_items=True,
            group_items=BLOCK_ITEMS,
            local_bytes=SHARED_BYTES,
            lockstep=WARP,
            index_dtype=dtypes.int32,
            runs=driver is not None,
        )

    def emit(self, linear: UOp, name: str) -> Source:
        return emit(linear, name, self.architecture)

    def compile(self, source: Source) -> Binary:
        return Binary(source.entry, source.text.encode(), source)

    def load(self, binary: Binary) -> Launch:
        return _launch_nothing if self.driver is None else _loaded(self.driver, binary)

    def alloc(self, nbytes: int) -> DeviceMemory | None:
        return None if self.driver is None else DeviceMemory(self.driver, nbytes)

    def copyin(self, handle: DeviceMemory | None, data: memoryview) -> None:
        if handle is not None and data.nbytes:
            handle.driver.copy_in(handle.address, data)

    def copyout(self, data: memoryview, handle: DeviceMemory | None) -> None:
        """Raises: DeviceError without a GPU, since then nothing was ever computed."""
        if handle is None:
            raise DeviceError(f"no value was computed: {self.missing}")
        if data.nbytes:
            handle.driver.copy_out(data, handle.address)

    def synchronize(self) -> None:
        if self.driver is not None:
            self.driver.synchronize()


def _launch_nothing(buffers: Sequence[Any]) -> None:
    """Stands for every kernel where there is no GPU."""


def _loaded(driver: Driver, binary: Binary) -> Launch:
    source = binary.source
    function = driver.function(binary.data, binary.entry)
    slots = [k for k, dtype in enumerate(source.params) if dtype is not dtypes.void]
    threads = source.group_size or (1 if source.global_size is None else BLOCK_SIZE)
    blocks = -(-(1 if source.global_size is None else source.global_size) // threads)
    values = (ctypes.c_uint64 * max(1, len(slots)))()
    places = (ctypes.c_void_p * max(1, len(slots)))(
        *[ctypes.addressof(values) + 8 * k for k in range(len(slots))]
    )

    def launch(buffers: Sequence[DeviceMemory]) -> None:
        for k, slot in enumerate(slots):
            values[k] = buffers[slot].address
        if blocks:
            driver.launch(function, blocks, threads, ctypes.addressof(places))

    return launch


class DeviceMemory:
    """Global memory that goes back to the driver's pool when the handle is dropped."""

    __slots__ = ("address", "driver")

    def __init__(self, driver: Driver, nbytes: int) -> None:
        self.driver = driver
        self.address = driver.allocate(max(1, nbytes))

    def __del__(self) -> None:
        if hasattr(self, "address"):
            self.driver.free(self.address)


class Driver:
    """The calls of the CUDA driver that are needed, each checked. `api` is cuda.bindings.driver."""

    def __init__(self, api: Any) -> None:
        """Raises: DeviceError where no GPU answers."""
        self._api = api
        self._call("cuInit", 0)
        device = self._call("cuDeviceGet", 0)
        self._call("cuCtxSetCurrent", self._call("cuDevicePrimaryCtxRetain", device))
        attribute = api.CUdevice_attribute
        major, minor = [
            self._call("cuDeviceGetAttribute", a, device)
            for a in (
                attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
            )
        ]
        self.capability = 10 * int(major) + int(minor)

    def _call(self, name: str, *arguments: Any) -> Any:
        code, *results = getattr(self._api, name)(*arguments)
        if int(code) != 0:
            raise DeviceError(f"{name} failed on the NVIDIA driver: {code!r}")
        return results[0] if results else None

    def function(self, text: bytes, entry: str) -> Any:
        """The kernel `entry` of PTX text. Raises: CompileError."""
        try:
            module = self._call("cuModuleLoadData", text + b"\0")
        except DeviceError as error:
            raise CompileError(f"the driver refused the PTX: {error}\n{text.decode()}") from None
        return self._call("cuModuleGetFunction", module, entry.encode())

    def launch(self, function: Any, blocks: int, threads: int, parameters: int) -> None:
        """Start `blocks * threads` work items; `parameters`: the address of void *[]."""
        self._call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, 0, 0, parameters, 0)

    def allocate(self, nbytes: int) -> int:
        """The address of `nbytes` bytes of memory of the GPU. Raises: MemoryError."""
        try:
            return int(self._call("cuMemAllocAsync", nbytes, 0))
        except DeviceError as error:
            raise MemoryError(f"cannot allocate {nbytes} bytes on the GPU: {error}") from None

    def free(self, address: int) -> None:
        """Return memory from `allocate`, after all that was launched before."""
        self._call("cuMemFreeAsync", address, 0)

    def copy_in(self, address: int, data: memoryview) -> None:
        """Copy `data` to `address` on the GPU. Raises: DeviceError."""
        contents = data if data.c_contiguous else memoryview(data.tobytes())
        self._call("cuMemcpyHtoD", address, bytes(contents), contents.nbytes)

    def copy_out(self, data: memoryview, address: int) -> None:
        """Copy `data.nbytes` bytes from `address` on the GPU into `data`. Raises: DeviceError."""
        target = (ctypes.c_char * data.nbytes).from_buffer(data)
        self._call("cuMemcpyDtoH", ctypes.addressof(target), address, data.nbytes)

    def synchronize(self) -> None:
        """Wait until all that was launched has run. Raises: DeviceError, also for what a kernel did wrong."""
        self._call("cuCtxSynchronize")


def open_backend() -> PTXBackend:
    """The first GPU, or, with a warning that says why, the machine that only prints."""
    try:
        return PTXBackend(open_driver())
    except DeviceError as error:
        warnings.warn(f"{error}; PTX is printed and compiled here, not run", stacklevel=2)
        return PTXBackend(None, str(error))


def open_driver() -> Driver:
    """The first GPU. Raises: DeviceError, with what to install."""
    try:
        from cuda.bindings import driver as api
    except ImportError as error:
        raise DeviceError(
            f"CUDA needs the package cuda-bindings, which cannot be imported ({error});"
            f' run: pip install "proofgrad[cuda]"'
        ) from None
    try:
        return Driver(api)
    except RuntimeError as error:  # cuda-bindings raises this where there is no libcuda
        raise DeviceError(f"no NVIDIA driver with a GPU was found ({error})") from None
