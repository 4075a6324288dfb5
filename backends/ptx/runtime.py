"""Running PTX through the CUDA driver (NVIDIA's cuda-bindings), and printing it without one.

Owns: the driver's context, memory, modules, launches. Does not own: the text (emit.py). The driver
itself compiles PTX for the GPU and keeps the result (~/.nv/ComputeCache), so a Binary here is the
text again.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from proofgrad.backends.ptx.emit import DEFAULT_ARCHITECTURE, emit, known_architecture
from proofgrad.core.compile.target import Binary, CompileError, DeviceError, Launch, Source, Target
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.uop import UOp

BLOCK_SIZE = 128  # work items a block: fills every GPU, and leaves each item all the registers


class PTXBackend:
    """The first NVIDIA GPU. Without one it prints and compiles; everything else raises."""

    name = "CUDA"

    def __init__(self, driver: Driver | None) -> None:
        """`driver` None: open the GPU when it is first needed."""
        self._driver = driver
        self._architecture: int | None = None
        self.target = Target("CUDA", work_items=True, index_dtype=dtypes.int32)

    @property
    def driver(self) -> Driver:
        """The opened GPU. Raises: DeviceError, with what is missing."""
        if self._driver is None:
            self._driver = open_driver()
        return self._driver

    def emit(self, linear: UOp, name: str) -> Source:
        if self._architecture is None:
            self._architecture = self._find_architecture()
        return emit(linear, name, self._architecture)

    def _find_architecture(self) -> int:
        try:
            return known_architecture(self.driver.capability)
        except DeviceError:
            return DEFAULT_ARCHITECTURE

    def compile(self, source: Source) -> Binary:
        return Binary(source.entry, source.text.encode(), source)

    def load(self, binary: Binary) -> Launch:
        driver, source = self.driver, binary.source
        function = driver.function(binary.data, binary.entry)
        slots = [k for k, dtype in enumerate(source.params) if dtype is not dtypes.void]
        blocks = -(-(1 if source.global_size is None else source.global_size) // BLOCK_SIZE)
        threads = 1 if source.global_size is None else BLOCK_SIZE
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

    def alloc(self, nbytes: int) -> DeviceMemory:
        return DeviceMemory(self.driver, nbytes)

    def copyin(self, handle: DeviceMemory, data: memoryview) -> None:
        if data.nbytes:
            handle.driver.copy_in(handle.address, data)

    def copyout(self, data: memoryview, handle: DeviceMemory) -> None:
        if data.nbytes:
            handle.driver.copy_out(data, handle.address)

    def synchronize(self) -> None:
        self.driver.synchronize()


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
        return int(self._call("cuMemAllocAsync", nbytes, 0))

    def free(self, address: int) -> None:
        self._call("cuMemFreeAsync", address, 0)

    def copy_in(self, address: int, data: memoryview) -> None:
        contents = data if data.c_contiguous else memoryview(data.tobytes())
        self._call("cuMemcpyHtoD", address, bytes(contents), contents.nbytes)

    def copy_out(self, data: memoryview, address: int) -> None:
        target = (ctypes.c_char * data.nbytes).from_buffer(data)
        self._call("cuMemcpyDtoH", ctypes.addressof(target), address, data.nbytes)

    def synchronize(self) -> None:
        self._call("cuCtxSynchronize")


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
        raise DeviceError(
            f"no NVIDIA driver with a GPU was found ({error}); PTX can be printed, not run"
        ) from None
