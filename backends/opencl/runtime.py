"""Running OpenCL C on the first OpenCL device, through pyopencl.

Owns: choice and demands of the device, building, buffers, launches. Does not own: the text (emit.py).
Built kernels are kept on disk by the OpenCL driver itself, so a Binary here is the text again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from proofgrad.backends.opencl.cache import give_pocl_a_cache
from proofgrad.backends.opencl.emit import emit
from proofgrad.backends.opencl.vectors import VECTOR_LANES
from proofgrad.core.compile.machine.target import (
    ALL_TYPES,
    WIDE_TYPES,
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

GROUPS_A_CORE = 4  # at least, so that all end at nearly the same time
GROUP_SIZE = 64  # work items a group: a multiple of every machine's vector width
# -w: comparing a value with itself, as a NaN check does, is no reason to warn.
BUILD_OPTIONS = ("-cl-fp32-correctly-rounded-divide-sqrt", "-w")


LEAST_VECTOR_BYTES = 16  # of a wide load, on GPUs too, which have no vector registers
MOST_ITEMS = 256  # of a group that computes a row: every device lets so many wait for each other
LOCKSTEP = 32  # items of a GPU that run in step, at least: 32 or 64

PROBE = "kernel void probe(global float *out) { out[get_global_id(0)] = exp2(out[0]) + 1.0f; }"
MOST_TOLD = 400  # letters of an error


class OpenCLBackend(Backend):
    """The first OpenCL device that computes as IEEE 754 asks."""

    name = "CL"

    def __init__(self) -> None:
        self._cl = _import_pyopencl()
        give_pocl_a_cache()
        self.device = first_device(self._cl)
        self.target = _target(self._cl, self.device)
        self._context = self._cl.Context([self.device])
        self._process, self._queue = os.getpid(), self._cl.CommandQueue(self._context)
        self._pool = self._cl.tools.MemoryPool(self._cl.tools.ImmediateAllocator(self._queue))
        self._built: dict[bytes, Any] = {}

    def _check_process(self) -> None:
        """Raises: DeviceError in a forked child, where the threads that serve the queue are not."""
        if os.getpid() != self._process:
            raise DeviceError(
                "CL was used before this process was forked, and OpenCL does not outlive that: start"
                ' processes with multiprocessing.get_context("spawn"), or use CL in the child only'
            )

    def emit(self, linear: UOp, name: str) -> Source:
        return emit(linear, name, self.target.has_fma)

    def compile(self, source: Source) -> Binary:
        data = source.text.encode()
        self._program(data)
        return Binary(source.entry, data, source)

    def load(self, binary: Binary) -> Launch:
        kernel = self._cl.Kernel(self._program(binary.data), binary.entry)
        slots = [k for k, dtype in enumerate(binary.source.params) if dtype is not dtypes.void]
        items = max(1, binary.source.global_size or 1)
        group = binary.source.group_size or self._group_size(items)
        grid = (-(-items // group) * group,)

        def launch(buffers: Sequence[Any]) -> None:
            self._check_process()
            kernel.set_args(*[buffers[slot] for slot in slots])
            self._cl.enqueue_nd_range_kernel(self._queue, kernel, grid, (group,))

        return launch

    def _group_size(self, items: int) -> int:
        """Items of a group: on a processor, whose cores take groups one by one, so few that each core has some."""
        most = min(GROUP_SIZE, items, int(self.device.max_work_group_size))
        if self.target.lockstep > 1:
            return most
        return max(1, min(most, items // (GROUPS_A_CORE * int(self.device.max_compute_units))))

    def alloc(self, nbytes: int) -> Any:
        self._check_process()
        try:
            return self._pool.allocate(max(nbytes, 1))  # OpenCL has no empty buffers
        except self._cl.Error as error:
            name = self.device.name.strip()
            raise MemoryError(f"cannot allocate {nbytes} bytes on {name}: {error}") from None

    def copyin(self, handle: Any, data: memoryview) -> None:
        self._check_process()
        if data.nbytes:
            self._cl.enqueue_copy(self._queue, handle, data, is_blocking=True)

    def copyout(self, data: memoryview, handle: Any) -> None:
        self._check_process()
        if data.nbytes:
            self._cl.enqueue_copy(self._queue, data, handle, is_blocking=True)

    def synchronize(self) -> None:
        self._check_process()
        self._queue.finish()

    def _program(self, text: bytes) -> Any:
        self._check_process()
        if text not in self._built:
            program = self._cl.Program(self._context, text.decode())
            try:
                program.build(list(BUILD_OPTIONS), cache_dir=False)
            except self._cl.Error as error:
                log = program.get_build_info(self.device, self._cl.program_build_info.LOG)
                raise CompileError(explain_log(log or str(error), text.decode())) from None
            self._built[text] = program
        return self._built[text]


def explain_log(log: str, text: str) -> str:
    """The build log, with the line of the kernel that its first error speaks of."""
    lines = text.splitlines()
    place = re.search(r":(\d+):(\d+): ", log)
    if not place or not 0 < int(place.group(1)) <= len(lines):
        return f"the OpenCL compiler refused the kernel:\n{log.strip()}"
    line, column = int(place.group(1)), int(place.group(2))
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


def first_device(cl: Any) -> Any:
    """The first device that meets every demand. Raises: DeviceError, with what each one lacks."""
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        raise DeviceError(
            f"no OpenCL driver was found ({error}); install that of your GPU, or PoCL, which runs"
            f' on every CPU: pip install "proofgrad[opencl]"'
        ) from None
    refused = []
    for platform in platforms:
        for device in _devices(cl, platform):
            lacks = _lacks(cl, device) or _refusal(cl, device)
            if not lacks:
                return device
            refused.append(f"{device.name.strip()} lacks {', '.join(lacks)}")
    found = "; ".join(refused) or "the drivers list no device"
    raise DeviceError(f"no OpenCL device can be used: {found}")


def _devices(cl: Any, platform: Any) -> list[Any]:
    try:
        return list(platform.get_devices())
    except cl.Error:  # a platform without a device answers with an error
        return []


def _lacks(cl: Any, device: Any) -> list[str]:
    """What IEEE arithmetic on float32 needs and this device does not have."""
    config = cl.device_fp_config
    needed = {
        config.DENORM: "denormal numbers",
        config.INF_NAN: "infinities and NaN",
        config.ROUND_TO_NEAREST: "rounding to nearest",
        config.CORRECTLY_ROUNDED_DIVIDE_SQRT: "correctly rounded division",
    }
    return [words for bit, words in needed.items() if not device.single_fp_config & bit]


def _refusal(cl: Any, device: Any) -> list[str]:
    """What a device says that cannot compile at all, as one newer than its driver."""
    try:
        cl.Program(cl.Context([device]), PROBE).build(list(BUILD_OPTIONS), cache_dir=False)
    except cl.Error as error:
        told = " ".join(str(error).split())
        return [f"a driver that compiles kernels for it ({told[:MOST_TOLD]})"]
    return []


def _target(cl: Any, device: Any) -> Target:
    is_gpu = bool(device.type & cl.device_type.GPU)  # on a CPU, PoCL calls a function for fma()
    missing = frozenset() if "cl_khr_fp64" in device.extensions else frozenset({dtypes.float64})
    return Target(
        "CL",
        vector_bytes=max(LEAST_VECTOR_BYTES, 4 * device.native_vector_width_float),
        most_lanes=max(VECTOR_LANES),
        work_items=True,
        group_items=min(MOST_ITEMS, device.max_work_group_size),
        local_bytes=device.local_mem_size,
        lockstep=LOCKSTEP if is_gpu else 1,
        storage=ALL_TYPES - missing,
        arithmetic=WIDE_TYPES - missing,
        index_dtype=dtypes.int32,
        has_fma=is_gpu and bool(device.single_fp_config & cl.device_fp_config.FMA),
    )
