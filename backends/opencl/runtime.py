"""Running OpenCL C on an OpenCL device, through pyopencl.

Owns: building, buffers, launches. Does not own: the text (emit.py), which device (devices.py).
Built kernels are kept on disk by the OpenCL driver itself, so a Binary here is the text again.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from proofgrad.backends.opencl.cache import give_pocl_a_cache
from proofgrad.backends.opencl.devices import choose_device, context_of, rounds_quotients
from proofgrad.backends.opencl.dialect import OPENCL, WITH_SUBGROUPS
from proofgrad.backends.opencl.emit import emit
from proofgrad.backends.opencl.programs import Programs
from proofgrad.backends.opencl.sequence import KernelLaunch, QueuedSequence
from proofgrad.backends.opencl.subgroups import exchange
from proofgrad.backends.opencl.vectors import VECTOR_LANES
from proofgrad.backends.opencl.wheels import name_drivers_of_wheels
from proofgrad.core import settings
from proofgrad.core.compile.machine.target import (
    ALL_TYPES,
    WIDE_TYPES,
    Backend,
    Binary,
    CompileError,
    DeviceError,
    Launch,
    LaunchSequence,
    Source,
    Target,
)
from proofgrad.core.disk_cache import DiskCache
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.fragments import WARP
from proofgrad.core.ir.uop import UOp
from proofgrad.core.messages import say, warn

GROUPS_A_CORE = 4  # at least, so that all end at nearly the same time
GROUP_SIZE = 64  # work items a group: a multiple of every machine's vector width
# -w: comparing a value with itself, as a NaN check does, is no reason to warn.
BUILD_OPTIONS = ("-cl-fp32-correctly-rounded-divide-sqrt", "-w")
_PLAIN_OPTIONS = ("-w",)  # where the device does not know the first

LEAST_VECTOR_BYTES = 16  # of a wide load, on GPUs too, which have no vector registers
MOST_ITEMS = 256  # of a group that computes a row: every device lets so many wait for each other
LOCKSTEP = 32  # items of a GPU that run in step, at least: 32 or 64


class OpenCLBackend(Backend):
    """An OpenCL device that computes as IEEE 754 asks, by its number among those that do."""

    compiles_in_background = True  # pyopencl holds no lock of Python while the driver builds

    def __init__(self, number: int = 0) -> None:
        """Raises: DeviceError, with what each device lacks. Warns of those that were passed over."""
        name_drivers_of_wheels()
        self._cl = _import_pyopencl()
        give_pocl_a_cache()
        self.name = "CL" if number == 0 else f"CL:{number}"
        chosen = choose_device(self._cl, number)
        self.device, self.called_bytes = chosen.device, chosen.called_bytes
        if chosen.refused:
            warn(f"{self.name} is {self.label}; not used: {'; '.join(chosen.refused)}")
        self.rounds_quotients = rounds_quotients(self._cl, self.device)
        self.identity = f"{self.label}, {self.device.version}, {self.device.driver_version}"
        if self.called_bytes:
            self.identity += f", functions of vectors of {self.called_bytes} bytes"
            if settings.debug_level():
                say(f"{self.name}: {self.identity}")
        self._context = context_of(self._cl, self.device)
        exchanges = exchange(self._cl, self.device, self._context)
        self.target = _target(self._cl, self.device, exchanges, self.called_bytes)
        self._process = os.getpid()
        self._lost = ""  # why nothing can be computed any more
        profiling = self._cl.command_queue_properties.PROFILING_ENABLE
        self._queue = self._cl.CommandQueue(self._context, properties=profiling)
        self._pool = self._cl.tools.MemoryPool(self._cl.tools.ImmediateAllocator(self._queue))
        files = DiskCache(settings.cache_folder() / "opencl")
        self._programs = Programs(self._build, self.identity, files)
        # Set once, and not for each kernel: filters belong to the process, and kernels are built by several threads.
        warnings.filterwarnings("ignore", category=self._cl.CompilerWarning)

    @property
    def label(self) -> str:
        """What its driver calls the device."""
        return str(self.device.name).strip()

    def check_usable(self) -> None:
        """Raises: DeviceError where the device was lost, and in a forked child, where the threads that serve the queue are not."""
        if self._lost:
            raise DeviceError(self._lost)
        if os.getpid() != self._process:
            raise DeviceError(
                f"{self.name} was used before this process was forked, and OpenCL does not outlive that: start"
                ' processes with multiprocessing.get_context("spawn"), or use it in the child only'
            )

    def emit(self, linear: UOp, name: str) -> Source:
        in_double = not self.rounds_quotients
        dialect = WITH_SUBGROUPS if self.target.warp_items else OPENCL
        return emit(linear, name, self.target.has_fma, dialect, in_double, self.called_bytes)

    def compile(self, source: Source) -> Binary:
        self._programs.add([source])
        return Binary(source.entry, source.text.encode(), source)

    def compile_together(self, sources: Sequence[Source]) -> Iterator[Binary]:
        """In one program; of one that the driver refuses each kernel by itself, so that the error is of the right one."""
        with contextlib.suppress(CompileError):
            self._programs.add(sources)
        return map(self.compile, sources)

    def load(self, binary: Binary) -> Launch:
        program, entry = self._programs.kernel(binary.source)
        slots = [k for k, dtype in enumerate(binary.source.params) if dtype is not dtypes.void]
        items = max(1, binary.source.global_size or 1)
        kernel = self._cl.Kernel(program, entry)
        asked, most = binary.source.group_size, self._require_room(kernel, binary.source)
        group = asked or min(self._group_size(items), most)
        shape = (-(-items // group) * group, group)
        make = functools.partial(self._cl.Kernel, program, entry)
        return KernelLaunch(self, kernel, make, binary.entry, slots, shape)

    def _require_room(self, kernel: Any, source: Source) -> int:
        """How many items a group of a kernel may have, which its registers decide.

        Raises: DeviceError for a kernel whose groups need more than the device has; some drivers run it all the same.
        """
        entry, which = source.entry, self._cl.kernel_work_group_info
        needed = kernel.get_work_group_info(which.LOCAL_MEM_SIZE, self.device)
        if needed > self.device.local_mem_size:
            raise DeviceError(
                f"the kernel {entry} needs {needed} bytes of local memory a group, and {self.name} ({self.label}) has"
                f" {self.device.local_mem_size}: ask for smaller tiles, as with schedule(...)"
            )
        most = int(kernel.get_work_group_info(which.WORK_GROUP_SIZE, self.device))
        if (source.group_size or 0) > most:
            raise DeviceError(
                f"the kernel {entry} has groups of {source.group_size} items that wait for each other, and {self.name} ({self.label})"
                f" has registers for {most}: ask for smaller tiles, as with schedule(...)"
            )
        return max(1, most)

    def enqueue(self, launch: KernelLaunch, kernel: Any, arguments: Sequence[Any] | None) -> None:
        """Put a launch on the queue; `arguments` None: the kernel object has those of its last launch.

        The first launch of a kernel is waited for. PoCL links a kernel only then, in a thread of its own, with a process
        that it spawns: where the program changes os.environ meanwhile, that fails, and PoCL ends the whole program.
        """
        self.check_usable()
        try:
            self._put(launch, kernel, arguments)
        except self._cl.Error as error:
            again = functools.partial(self._put, launch, kernel, arguments)
            self._again(again, f"launching {launch.entry}", error)

    def _put(self, launch: KernelLaunch, kernel: Any, arguments: Sequence[Any] | None) -> None:
        if arguments is not None:
            kernel.set_args(*arguments)
        self._cl.enqueue_nd_range_kernel(self._queue, kernel, launch.grid, launch.group)
        if not launch.is_linked:
            self._queue.finish()
            launch.is_linked = True

    def sequence(
        self, launches: Sequence[tuple[Launch, Sequence[int], Sequence[int]]], memory: Sequence[Any]
    ) -> LaunchSequence | None:
        """Two launches or more, whose buffers begin where their memory does: OpenCL has no pointers into buffers."""
        kernels = [(k, slots) for k, slots, _ in launches if isinstance(k, KernelLaunch)]
        inside = any([any(offsets) for _, _, offsets in launches])
        if len(kernels) < 2 or len(kernels) != len(launches) or inside:
            return None
        return QueuedSequence(kernels, memory)

    def _group_size(self, items: int) -> int:
        """Items of a group: on a processor, whose cores take groups one by one, so few that each core has some."""
        most = min(GROUP_SIZE, items, int(self.device.max_work_group_size))
        if self.target.lockstep > 1:
            return most
        return max(1, min(most, items // (GROUPS_A_CORE * int(self.device.max_compute_units))))

    def alloc(self, nbytes: int) -> Any:
        self.check_usable()
        count, flags = max(nbytes, 1), self._cl.mem_flags.READ_WRITE  # OpenCL has no empty buffers
        try:
            with contextlib.suppress(self._cl.Error):  # the pool asks for up to a sixteenth more
                return self._pool.allocate(count)
            return self._cl.Buffer(self._context, flags, count)
        except self._cl.Error as error:
            explained = self._explained(f"allocating {nbytes} bytes", error)
            if self._lost:
                raise explained from None
            raise MemoryError(
                f"cannot allocate {nbytes} bytes on {self.name} ({self.label}), which has {self.device.global_mem_size} and"
                f" gives a buffer {self.device.max_mem_alloc_size} at most: {error}"
            ) from None

    def _again(self, work: Callable[[], object], what: str, error: Exception) -> None:
        """After an error: the work once more, without what the pool keeps, if memory was out for it.

        A driver may take the memory of a buffer only when a kernel needs it. Raises: MemoryError, DeviceError.
        """
        if _is_full(error):
            try:
                self._queue.finish()
                self._pool.free_held()
                work()
                return
            except self._cl.Error as second:
                error = second
        raise self._explained(what, error) from None

    def _explained(self, what: str, error: Exception) -> Exception:
        """An error of the driver as one of this project."""
        text = f"{what} failed on {self.name} ({self.label}): {error}"
        if _is_full(error):
            return MemoryError(f"{text}; it has {self.device.global_mem_size} bytes of memory")
        if not self._answers():
            self._lost = (
                f"{self.name} ({self.label}) was lost: {what}: {error}. Its values are gone; other devices go on, a new process can"
                " use it again"
            )
        return DeviceError(self._lost or text)

    def _answers(self) -> bool:
        """Whether the device still does what it is asked: of one that was lost, each driver gives other errors."""
        try:
            place = self._cl.Buffer(self._context, self._cl.mem_flags.READ_WRITE, 4)
            self._cl.enqueue_copy(self._queue, place, bytearray(4), is_blocking=True)
        except self._cl.Error as error:
            return _is_full(error)
        return True

    def timed(self, work: Callable[[], None]) -> float:
        """The seconds between two markers around the work, by the clock of the device."""
        self.check_usable()
        before = self._cl.enqueue_marker(self._queue)
        work()
        after = self._cl.enqueue_marker(self._queue)
        self.synchronize()
        return float(after.profile.end - before.profile.end) * 1e-9

    def copyin(self, handle: Any, data: memoryview) -> None:
        self.check_usable()
        if data.nbytes:
            self._copy(handle, data, "copying to it")

    def copyout(self, data: memoryview, handle: Any) -> None:
        self.check_usable()
        if data.nbytes:
            self._copy(data, handle, "copying from it")

    def _copy(self, target: Any, source: Any, what: str) -> None:
        def copy() -> None:
            self._cl.enqueue_copy(self._queue, target, source, is_blocking=True)

        try:
            copy()
        except self._cl.Error as error:
            self._again(copy, what, error)

    def synchronize(self) -> None:
        self.check_usable()
        try:
            self._queue.finish()
        except self._cl.Error as error:
            raise self._explained("waiting", error) from None

    def _build(self, text: str) -> Any:
        """Raises: CompileError, with the line that the driver's log speaks of."""
        self.check_usable()
        program = self._cl.Program(self._context, text)
        try:
            options = BUILD_OPTIONS if self.rounds_quotients else _PLAIN_OPTIONS
            program.build(list(options), cache_dir=False)
        except self._cl.Error as error:
            if not self._answers():
                raise self._explained("building", error) from None
            log = program.get_build_info(self.device, self._cl.program_build_info.LOG)
            raise CompileError(explain_log(log or str(error), text)) from None
        return program


def _is_full(error: Exception) -> bool:
    return "MEM_OBJECT_ALLOCATION_FAILURE" in str(error) or "OUT_OF_HOST" in str(error)


def explain_log(log: str, text: str) -> str:
    """The build log, with the line of the kernel that its first error speaks of."""
    lines = text.splitlines()
    position = re.search(r":(\d+):(\d+): ", log)
    if not position or not 0 < int(position.group(1)) <= len(lines):
        return f"the OpenCL compiler refused the kernel:\n{log.strip()}"
    line, column = int(position.group(1)), int(position.group(2))
    return (
        f"the OpenCL compiler refused line {line} of the kernel:\n"
        f"  {lines[line - 1]}\n  {'^':>{column}}\n{log.strip()}"
    )


def _import_pyopencl() -> Any:
    try:
        import pyopencl
        import pyopencl.tools
    except ImportError as error:
        raise DeviceError(
            f"OpenCL needs the package pyopencl, which cannot be imported ({error});"
            f' run: pip install "proofgrad[opencl]"'
        ) from None
    return pyopencl


def _target(cl: Any, device: Any, exchanges: bool, called_bytes: int) -> Target:
    claimed = max(LEAST_VECTOR_BYTES, 4 * device.native_vector_width_float)
    vector_bytes = min(claimed, called_bytes or claimed)
    is_gpu = bool(device.type & cl.device_type.GPU)  # on a CPU, PoCL calls a function for fma()
    missing = frozenset() if "cl_khr_fp64" in device.extensions else frozenset({dtypes.float64})
    return Target(
        "CL",
        vector_bytes=vector_bytes,
        most_lanes=min(max(VECTOR_LANES), vector_bytes // 4 if called_bytes else max(VECTOR_LANES)),
        work_items=True,
        group_items=min(MOST_ITEMS, device.max_work_group_size),
        local_bytes=device.local_mem_size,
        units=device.max_compute_units if is_gpu else 0,
        lockstep=LOCKSTEP if is_gpu else 1,
        warp_items=WARP if exchanges else 0,
        storage=ALL_TYPES - missing,
        arithmetic=WIDE_TYPES - missing,
        index_dtype=dtypes.int32,
        has_fma=is_gpu and bool(device.single_fp_config & cl.device_fp_config.FMA),
    )
