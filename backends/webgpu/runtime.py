"""Running WGSL through wgpu.

Owns: building, buffers, launches. Does not own: the text (emit.py), which device (adapters.py).
wgpu compiles the text for the device when it is loaded, so a Binary here is the text again.

Launches are collected and handed over together, when something is copied or waited for, or they are many.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from typing import Any

from proofgrad.backends.webgpu.adapters import (
    FEW_TURNS,
    LOOP,
    LOOP_TURNS,
    TRIAL,
    cases,
    choose_adapter,
    import_wgpu,
    not_kept,
)
from proofgrad.backends.webgpu.emit import GROUP_SIZE, LOOPS_RUN, MOST_GROUPS, emit
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
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp

LONG = "shader-int64"
_LIMITS = (
    "max-buffer-size",
    "max-storage-buffer-binding-size",
    "max-storage-buffers-per-shader-stage",
)
_NATIVE = frozenset({Ops.SIN, Ops.COS, Ops.POW, Ops.FMOD})  # elsewhere they are computed in float64
_GPUS = ("DiscreteGPU", "IntegratedGPU")
LOCKSTEP = 32  # items of a GPU that run in step, at least
# Of a workgroup, what every device takes.
MOST_ITEMS, LOCAL_BYTES = 256, 1 << 14
WORD_BYTES = 4
LEAST_BYTES = 16
LOST = "device is lost"  # in what wgpu says of every call after that
# What an item takes at once, and has room for: 128 words, half of what items of GPUs can have.
LANES, REGISTERS = 4, 32
TOGETHER = 64  # launches that are handed over at once


class WebGPUBackend(Backend):
    """A WebGPU device by its number."""

    def __init__(self, number: int = 0) -> None:
        """Raises: DeviceError, with what to install."""
        self._wgpu = import_wgpu()
        self._failures = (RuntimeError, self._wgpu.GPUError)
        self._lost = ""  # why nothing can be computed any more
        adapter = choose_adapter(self._wgpu, number)
        self.name = "WEBGPU" if number == 0 else f"WEBGPU:{number}"
        limits = {name: adapter.limits[name] for name in _LIMITS}
        features = [LONG] if LONG in adapter.features else []
        try:
            self._device = adapter.request_device_sync(
                required_features=features, required_limits=limits
            )
        except self._failures as error:
            raise DeviceError(f"{self.name} does not open: {error}") from None
        self._limits = limits
        info = adapter.info
        self.label = str(info["device"])
        self.identity = f"{self.label}, {info['description']}, {info['backend_type']}, wgpu {self._wgpu.__version__}"
        self._lock = threading.RLock()
        self._encoder: Any = None
        self._pass: Any = None
        self._waiting = 0
        self._modules: dict[bytes, Any] = {}
        self._marker = self.alloc(LEAST_BYTES)
        self.unpromised = self._tried()
        self.most_turns = self._turns()
        most = limits["max-storage-buffers-per-shader-stage"]
        self.target = _target(bool(features), self.unpromised, info["adapter_type"], most)

    def emit(self, linear: UOp, name: str) -> Source:
        return emit(linear, name)

    def compile(self, source: Source) -> Binary:
        data = source.text.encode()
        self._module(data)
        return Binary(source.entry, data, source)

    def load(self, binary: Binary) -> Launch:
        """Raises: DeviceError for a kernel of more buffers or work items than the device takes."""
        slots = [k for k, dtype in enumerate(binary.source.params) if dtype is not dtypes.void]
        most = self._limits["max-storage-buffers-per-shader-stage"]
        if len(slots) > most:
            raise DeviceError(
                f"the kernel {binary.entry} has {len(slots)} buffers, and {self.name} ({self.label}) takes {most};"
                " realize some of what it reads before, so that it is computed in parts"
            )
        self._require_whole_loops(binary)
        grid = _grid(binary, self.name)
        stored = [f"var<storage, read_write> data{slot}:" in binary.source.text for slot in slots]
        pipeline, layout = self._pipeline(self._module(binary.data), binary.entry, stored)

        def launch(buffers: Sequence[Any]) -> None:
            if 0 in grid:
                return
            with self._lock:
                try:
                    group = self._group(layout, [buffers[slot] for slot in slots])
                    self._add(pipeline, group, grid)
                except self._failures as error:
                    raise self._explained(f"launching {binary.entry} failed", error) from None

        return launch

    def _require_whole_loops(self, binary: Binary) -> None:
        """Raises: DeviceError for a kernel whose loops the device would end early, with wrong values."""
        turns = int(binary.source.text.partition("\n")[0].removeprefix(LOOPS_RUN) or 0)
        if self.most_turns is not None and turns > self.most_turns:
            raise DeviceError(
                f"the loops of an item of the kernel {binary.entry} run {turns} times, and {self.name} ({self.label}) ends"
                f" them after some {self.most_turns}, which other drivers do not: compute the result in parts, as by a"
                " reshape and two reductions with .contiguous() between, or on another device"
            )

    def alloc(self, nbytes: int) -> Any:
        size = max(LEAST_BYTES, -(-nbytes // LEAST_BYTES) * LEAST_BYTES)
        most = min(self._limits["max-buffer-size"], self._limits["max-storage-buffer-binding-size"])
        if size > most:
            raise MemoryError(
                f"cannot allocate {nbytes} bytes on {self.name} ({self.label}): its largest buffer has {most} bytes"
            )
        usage = self._wgpu.BufferUsage
        try:
            return self._device.create_buffer(
                size=size, usage=usage.STORAGE | usage.COPY_SRC | usage.COPY_DST
            )
        except self._failures as error:
            raise self._explained(f"cannot allocate {nbytes} bytes", error, MemoryError) from None

    def copyin(self, handle: Any, data: memoryview) -> None:
        if not data.nbytes:
            return
        contents = data.tobytes()
        with self._lock:
            try:
                self._submit()
                beyond = len(contents) % WORD_BYTES
                if beyond:  # the rest of the last word stays as it is
                    start = len(contents) - beyond
                    word = bytes(self._device.queue.read_buffer(handle, start, WORD_BYTES))
                    contents += word[beyond:]
                self._device.queue.write_buffer(handle, 0, contents)
            except self._failures as error:
                raise self._explained("copying failed to memory", error) from None

    def copyout(self, data: memoryview, handle: Any) -> None:
        if not data.nbytes:
            return
        size = -(-data.nbytes // WORD_BYTES) * WORD_BYTES
        with self._lock:
            try:
                self._submit()
                found = self._device.queue.read_buffer(handle, 0, size)
            except self._failures as error:
                raise self._explained("copying failed from memory", error) from None
        data.cast("B")[:] = found[: data.nbytes]

    def synchronize(self) -> None:
        with self._lock:
            try:
                self._submit()
                self._device.queue.read_buffer(self._marker, 0, WORD_BYTES)  # after all of that
            except self._failures as error:
                raise self._explained("waiting failed", error) from None

    def _explained(
        self, what: str, error: Exception, kind: type[Exception] = DeviceError
    ) -> Exception:
        """An error of wgpu as one of this project, of a `kind` unless the device is lost or memory is out."""
        if not self._lost and LOST in str(error):
            self._lost = (
                f"{self.name} ({self.label}) was lost: {' '.join(str(error).split())}. Its values are gone; other devices go on, a new process"
                " can use it again"
            )
        if self._lost:
            return DeviceError(self._lost)
        is_full = isinstance(error, self._wgpu.GPUOutOfMemoryError)
        text = f"{what} on {self.name} ({self.label}): {error}"
        return MemoryError(text) if is_full else kind(text)

    # -- launches ------------------------------------------------------------------------------------

    def _add(self, pipeline: Any, group: Any, grid: tuple[int, int]) -> None:
        if self._encoder is None:
            self._encoder = self._device.create_command_encoder()
            self._pass = self._encoder.begin_compute_pass()
        self._pass.set_pipeline(pipeline)
        self._pass.set_bind_group(0, group)
        self._pass.dispatch_workgroups(grid[0], grid[1], 1)
        self._waiting += 1
        if self._waiting >= TOGETHER:
            self._submit()

    def _submit(self) -> None:
        """Hand over what waits."""
        if self._encoder is not None:
            encoder, self._encoder, self._waiting = self._encoder, None, 0
            self._pass.end()
            self._device.queue.submit([encoder.finish()])

    def _group(self, layout: Any, buffers: Sequence[Any]) -> Any:
        entries = [
            {"binding": k, "resource": {"buffer": each, "offset": 0, "size": each.size}}
            for k, each in enumerate(buffers)
        ]
        return self._device.create_bind_group(layout=layout, entries=entries)

    def _module(self, text: bytes) -> Any:
        with self._lock:
            if text not in self._modules:
                try:
                    self._modules[text] = self._device.create_shader_module(code=text.decode())
                except self._failures as error:
                    raise self._explained("wgpu refused the kernel", error, CompileError) from None
            return self._modules[text]

    def _pipeline(self, module: Any, entry: str, stored: Sequence[bool]) -> tuple[Any, Any]:
        device = self._device
        entries = [
            {
                "binding": k,
                "visibility": self._wgpu.ShaderStage.COMPUTE,
                "buffer": {"type": "storage" if written else "read-only-storage"},
            }
            for k, written in enumerate(stored)
        ]
        try:
            layout = device.create_bind_group_layout(entries=entries)
            whole = device.create_pipeline_layout(bind_group_layouts=[layout])
            compute = {"module": module, "entry_point": entry}
            return device.create_compute_pipeline(layout=whole, compute=compute), layout
        except self._failures as error:
            raise self._explained(f"wgpu refused the kernel {entry}", error, CompileError) from None

    def _turns(self) -> int | None:
        """How often the loops of an item may run; None: as often as they will."""
        given = struct.pack("<3I", LOOP_TURNS, 1, 1)
        (count,) = struct.unpack("<I", self._one(LOOP, "turns", given, WORD_BYTES, 1))
        return None if count == LOOP_TURNS else FEW_TURNS

    def _tried(self) -> tuple[str, ...]:
        """What of IEEE 754 this device does not keep."""
        pairs = cases()
        given = b"".join([struct.pack("<2f", *pair) for pair in pairs])
        found = self._one(TRIAL, "trial", given, 3 * WORD_BYTES * len(pairs), len(pairs))
        return not_kept(list(struct.iter_unpack("<2fI", found)))

    def _one(self, text: str, entry: str, given: bytes, nbytes: int, groups: int) -> bytes:
        """Run a kernel by hand that reads the first buffer and writes the second: the bytes of that."""
        buffers = [self.alloc(len(given)), self.alloc(nbytes)]
        self.copyin(buffers[0], memoryview(given))
        pipeline, layout = self._pipeline(self._module(text.encode()), entry, [False, True])
        self._add(pipeline, self._group(layout, buffers), (groups, 1))
        found = bytearray(nbytes)
        self.copyout(memoryview(found), buffers[1])
        return bytes(found)


def _grid(binary: Binary, device: str) -> tuple[int, int]:
    """Groups along two axes. Raises: DeviceError for more work items than there can be."""
    items = binary.source.global_size
    if items is None:
        return (1, 1)
    groups = -(-items // (binary.source.group_size or GROUP_SIZE))
    rows = -(-groups // MOST_GROUPS)
    if rows > MOST_GROUPS or items >= 1 << 32:
        raise DeviceError(
            f"the kernel {binary.entry} has {items} work items, and {device} takes {(1 << 32) - 1}:"
            " compute the result in parts"
        )
    return (min(groups, MOST_GROUPS), rows)


def _target(has_long: bool, unpromised: tuple[str, ...], kind: str, most_buffers: int) -> Target:
    missing = {dtypes.float64} | (set() if has_long else {dtypes.int64, dtypes.uint64})
    return Target(
        "WEBGPU",
        vector_bytes=WORD_BYTES * LANES,
        most_lanes=LANES,
        vector_registers=REGISTERS,
        work_items=True,
        group_items=MOST_ITEMS,
        local_bytes=LOCAL_BYTES,
        lockstep=LOCKSTEP if kind in _GPUS else 1,
        storage=ALL_TYPES - missing,
        arithmetic=WIDE_TYPES - missing,
        index_dtype=dtypes.int32,
        native=_NATIVE,
        has_fma=False,
        calls_fma=True,  # a function of 60 lines, which drivers put in each place
        most_buffers=most_buffers,
        unpromised=unpromised,
    )
