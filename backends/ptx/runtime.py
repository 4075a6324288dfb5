"""NVIDIA GPUs as backends: kernels launched through the CUDA driver, or printed where there is none.

Owns: what a launch is, which driver is opened. Does not own: the text (emit.py), the driver's calls (driver.py), memory
(memory.py), many launches at once (graph.py). The driver itself compiles PTX for the GPU and keeps the result
(~/.nv/ComputeCache), so a Binary here is the text again.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

from proofgrad.backends.printed import NoMemory
from proofgrad.backends.ptx.dialect import FUNCTIONS, MOST_ITEMS, ROW_PART_BYTES, UNIT_REGISTERS
from proofgrad.backends.ptx.driver import RESERVED_SHARED, Driver
from proofgrad.backends.ptx.emit import COPIES_AHEAD, DEFAULT_ARCHITECTURE, emit, known_architecture
from proofgrad.backends.ptx.graph import GraphSequence
from proofgrad.backends.ptx.matrix_units import matrix_units
from proofgrad.backends.ptx.memory import AdoptedMemory, Copies, DeviceMemory
from proofgrad.core import settings
from proofgrad.core.compile.machine.target import (
    Backend,
    Binary,
    DeviceError,
    Launch,
    LaunchSequence,
    Source,
    Target,
)
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.messages import warn

WIDE_BYTES = 16  # of the widest load of an item
BLOCK_ITEMS = 256  # of a block that computes a row together
# Of shared memory, where there is no GPU to ask: what a block may ask for, and what a multiprocessor has.
# Source: CUDA C++ Programming Guide, "Compute Capabilities", 9.0.
BLOCK_SHARED, UNIT_SHARED = 227 << 10, 228 << 10
UNITS = 132  # multiprocessors, of an H100 or H200: where there is no GPU to ask
UNIT_ITEMS = 2048  # of a multiprocessor
WARP = 32  # items that run in step
REGISTERS = 96  # of an item, of 4 bytes, for a tile: with twice as many half as many items are there to wait for memory
TUNED = frozenset(
    {90}
)  # architectures of GPUs on which schedules were measured (docs/performance.md)
COMPILED_AHEAD = 1024  # texts that are compiled and not loaded yet, at most
BLOCK_SIZE = 128  # work items a block: fills every GPU, and leaves each item all the registers


class PTXBackend(Backend):
    """One NVIDIA GPU. Without one, kernels are printed and compiled, and none is run."""

    compiles_in_background = (
        True  # the driver compiles PTX when it loads it, and holds no lock of Python
    )

    def __init__(self, driver: Driver | None, missing: str = "") -> None:
        """`driver` None: there is no GPU to use; `missing` says why."""
        self.driver, self.missing = driver, missing
        self.name = "CUDA" if driver is None else driver.label
        capability = DEFAULT_ARCHITECTURE if driver is None else driver.capability
        self.architecture = known_architecture(capability)
        self.copies = None if driver is None else Copies(driver)
        self._compiled: dict[bytes, LoadedModule] = {}
        units = matrix_units(self.architecture)
        self.target = Target(
            "CUDA",
            vector_bytes=WIDE_BYTES,
            vector_registers=REGISTERS * 4 // WIDE_BYTES,
            work_items=True,
            group_items=BLOCK_ITEMS,
            local_bytes=BLOCK_SHARED if driver is None else driver.block_shared,
            unit_local_bytes=UNIT_SHARED if driver is None else driver.unit_shared,
            unit_items=UNIT_ITEMS if driver is None else driver.unit_items,
            unit_registers=UNIT_REGISTERS if driver is None else driver.unit_registers,
            lost_local_bytes=RESERVED_SHARED if driver is None else driver.reserved_shared,
            row_items=MOST_ITEMS,
            row_part_bytes=ROW_PART_BYTES,
            units=UNITS if driver is None else driver.units,
            lockstep=WARP,
            warp_items=WARP,
            matrix_units=units,
            native=frozenset({Ops.TF32}) if units else frozenset(),
            approximate=frozenset(FUNCTIONS),
            copies_ahead=self.architecture >= COPIES_AHEAD,
            index_dtype=dtypes.int32,
            is_tuned=driver is not None and not driver.is_emulated and self.architecture in TUNED,
            runs=driver is not None,
        )
        if driver is not None:
            self.identity = f"{driver.name}, sm_{self.architecture}, driver {driver.version}"

    def emit(self, linear: UOp, name: str) -> Source:
        return emit(linear, name, self.architecture)

    def compile(self, source: Source) -> Binary:
        """The text again. Where there is a GPU its driver has compiled it, and keeps what came of it until `load`."""
        data = source.text.encode()
        if self.driver is not None and data not in self._compiled:
            self._compiled[data] = LoadedModule(self.driver, data)
            for oldest in list(self._compiled)[:-COMPILED_AHEAD]:  # several threads compile at once
                self._compiled.pop(oldest, None)
        return Binary(source.entry, data, source)

    def load(self, binary: Binary) -> Launch:
        if self.driver is None:
            return _launch_nothing
        module = self._compiled.pop(binary.data, None)
        return KernelLaunch(self.driver, binary, module or LoadedModule(self.driver, binary.data))

    def adopt(self, address: int, nbytes: int, keep: object) -> AdoptedMemory:
        """Memory of this GPU that another library has."""
        if self.driver is None:
            raise DeviceError(f"there is no memory to share: {self.missing}")
        return AdoptedMemory(address, nbytes, keep)

    def alloc(self, nbytes: int) -> DeviceMemory | NoMemory:
        return NoMemory() if self.driver is None else DeviceMemory(self.driver, nbytes)

    def copyin(self, handle: DeviceMemory | AdoptedMemory | NoMemory, data: memoryview) -> None:
        if not isinstance(handle, NoMemory) and self.copies is not None and data.nbytes:
            self.copies.write(handle.address, data)

    def copyout(self, data: memoryview, handle: DeviceMemory | AdoptedMemory | NoMemory) -> None:
        """Raises: DeviceError without a GPU, since then nothing was ever computed."""
        if isinstance(handle, NoMemory) or self.copies is None:
            raise DeviceError(f"no value was computed: {self.missing}")
        if data.nbytes:
            self.copies.read(data, handle.address)

    def synchronize(self) -> None:
        if self.driver is not None:
            self.driver.synchronize()

    def sequence(
        self, launches: Sequence[tuple[Launch, Sequence[int], Sequence[int]]], memory: Sequence[Any]
    ) -> LaunchSequence | None:
        """A CUDA graph, of two launches or more: one is as fast alone."""
        kernels = [(k, slots, offsets) for k, slots, offsets in launches if isinstance(k, KernelLaunch)]  # fmt: skip
        if self.driver is None or len(kernels) != len(launches) or len(kernels) < 2:
            return None
        if not all(kernel.blocks for kernel, _, _ in kernels):
            return None
        return GraphSequence(self.driver, kernels, memory)

    def timed(self, work: Callable[[], None]) -> float:
        """The seconds between two events around the work, by the clock of the GPU."""
        driver = self.driver
        if driver is None:
            return super().timed(work)
        before, after = [driver.call("cuEventCreate", 0) for _ in range(2)]
        try:
            driver.call("cuEventRecord", before, driver.stream)
            work()
            driver.call("cuEventRecord", after, driver.stream)
            driver.synchronize()
            return float(driver.call("cuEventElapsedTime", before, after)) / 1000
        finally:
            for event in (before, after):
                driver.release("cuEventDestroy", event)


def _launch_nothing(buffers: Sequence[Any]) -> None:
    """Stands for every kernel where there is no GPU."""


class LoadedModule:
    """What the driver made of a text. It is unloaded when nobody holds it."""

    def __init__(self, driver: Driver, text: bytes) -> None:
        """Raises: CompileError, with what the PTX compiler says."""
        self.driver = driver
        self.handle = driver.load(text)

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            self.driver.unload(self.handle)


class KernelLaunch:
    """A loaded kernel."""

    def __init__(self, driver: Driver, binary: Binary, module: LoadedModule) -> None:
        """Raises: CompileError, and DeviceError for more work items than a GPU can be given."""
        source = binary.source
        self.driver, self.name = driver, binary.entry
        self.slots = [k for k, dtype in enumerate(source.params) if dtype is not dtypes.void]
        items = 1 if source.global_size is None else source.global_size
        self.threads = source.group_size or (1 if source.global_size is None else BLOCK_SIZE)
        self.blocks = -(-items // self.threads)
        if self.blocks > driver.max_blocks:
            raise DeviceError(
                f"the kernel {self.name} has {items} work items, {self.blocks} blocks of {self.threads};"
                f" {driver.label} takes {driver.max_blocks} blocks: compute the result in parts"
            )
        self.module = module
        self.function = driver.function(module.handle, binary.entry)
        self.shared_bytes = source.group_bytes
        if self.shared_bytes:
            driver.allow_shared(self.name, self.function, self.shared_bytes)
        count = max(1, len(self.slots))
        self._values, self._positions = ctypes.c_uint64 * count, ctypes.c_void_p * count

    def __call__(self, buffers: Sequence[DeviceMemory | AdoptedMemory]) -> None:
        if self.blocks:
            arguments = self.arguments([buffers[slot].address for slot in self.slots])
            position = ctypes.addressof(arguments[1])
            shape = (self.blocks, self.threads, self.shared_bytes)
            self.driver.launch(self.name, self.function, shape, position)

    def arguments(self, addresses: Sequence[int]) -> tuple[Any, Any]:
        """Arguments of one launch, its own: other threads may launch the same kernel."""
        values = self._values(*addresses)
        first = ctypes.addressof(values)
        return values, self._positions(*[first + 8 * k for k in range(len(addresses))])


def open_backend(ordinal: int = 0) -> PTXBackend:
    """A GPU by its number, or, with a warning that says why, the machine that only prints.

    Raises: DeviceError for a number that no GPU has.
    """
    try:
        api = _api()
    except DeviceError as error:
        if ordinal:
            raise
        warn(f"{error}; PTX is printed and compiled here, not run")
        return PTXBackend(None, str(error))
    return PTXBackend(Driver(api, ordinal))


def _api() -> Any:
    """The driver's functions: of the emulator if MOCKGPU asks for it, else NVIDIA's.

    Raises: DeviceError where no GPU answers, with what to install.
    """
    emulated = settings.emulated_gpus()
    if emulated:
        return _emulated(emulated)
    try:
        from cuda.bindings import driver as api
    except ImportError as error:
        raise DeviceError(
            f"CUDA needs the package cuda-bindings, which cannot be imported ({error});"
            f' run: pip install "proofgrad[cuda]"'
        ) from None
    try:
        failed, *_ = api.cuInit(0)
    except RuntimeError as error:  # cuda-bindings raises this where there is no libcuda
        raise DeviceError(f"no NVIDIA driver was found ({error})") from None
    count = (0, 0) if int(failed) else api.cuDeviceGetCount()
    if int(failed) or int(count[0]) or not count[1]:
        raise DeviceError(f"the NVIDIA driver has no GPU to use ({failed!r}, {count[1]} GPUs)")
    return api


@functools.cache
def _emulated(count: int) -> Any:
    from proofgrad.backends.ptx.emulator.driver import EmulatedDriver

    return EmulatedDriver(count)
