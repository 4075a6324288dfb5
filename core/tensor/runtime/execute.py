"""Running plans: memory for what they make, launches, copies, and what DEBUG tells of them.

Owns: the loop over the steps of a plan. Does not own: planning (core/compile), which buffers there
are and what Tensors they belong to (realize.py), replaying without looking again (jit.py).
"""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from proofgrad.core import settings
from proofgrad.core.compile.machine.target import Backend
from proofgrad.core.ir.shapes import show
from proofgrad.core.messages import say
from proofgrad.core.tensor.data.storage import unpack
from proofgrad.core.tensor.runtime.counters import GlobalCounters
from proofgrad.core.tensor.runtime.device import HOST, Device
from proofgrad.core.tensor.runtime.interrupts import Interrupts
from proofgrad.core.tensor.runtime.report import kernel_line, run_line

if TYPE_CHECKING:
    from proofgrad.core.compile.plan.plan import BufferInfo, Plan, Step


@dataclass(slots=True)
class _Listener:
    """Who is told of every kernel: name, device, seconds, operations, bytes, the methods that it comes from if known."""

    add: Callable[[str, str, float, int, int, Sequence[str]], None] | None = None


LISTENER = _Listener()
_ASKED = settings.encoded("DEBUG", "DEBUG_NANS")


def is_watched() -> bool:
    """Does anybody want to know of each kernel that runs?"""
    if settings.is_any_set(_ASKED):
        return settings.debug_level() >= 1 or LISTENER.add is not None or settings.stops_at_nans()
    return LISTENER.add is not None


def execute(
    plan: Plan,
    given: Sequence[Any],
    devices: Sequence[str],
    values: Mapping[str, int] | None = None,
    interrupts: Interrupts | None = None,
    into: Sequence[Any] = (),
) -> list[Any]:
    """Run the steps; the memory of each result. Memory between is dropped after its last use.

    `given` is the memory of the inputs, `devices` where each is, `values` those of variables.
    When the first input is written over, all else that can fail has been done, and `interrupts`
    are held. `into` is memory for the results, if there is.
    """
    inputs, made = plan.inputs, plan.made
    numbers = memory_of_variables(plan, values or {}) if plan.variables else ()
    memory = [*given[:inputs], *[None] * len(made), *numbers]
    where = [*devices[:inputs], *[info.device for info in made]]
    for slot, info in enumerate(made, inputs):
        if info.size == 0:  # no kernel writes it, but one may loop over its no elements
            memory[slot] = allocate(info)
    for slot, handle in zip(plan.results, into):
        memory[slot] = handle
    watched = is_watched()
    level, stops_at_nans = (
        settings.debug_level() if watched else 0,
        watched and settings.stops_at_nans(),
    )
    start = time.perf_counter() if watched else 0.0
    no_way_back = False
    for k, step in enumerate(plan.steps):
        out = step.slots[0]
        if out < inputs and not no_way_back:
            no_way_back = True
            _make_ready(plan, k, memory)
            if interrupts is not None:
                interrupts.hold()
        if memory[out] is None:
            memory[out] = allocate(made[out - inputs])
        if watched and (level >= 2 or LISTENER.add is not None):
            _timed(step, memory, where, level)
        else:
            run_step(step, memory, where)
        if stops_at_nans and step.kernel is not None:
            _look_for_nans(step, memory[out], where[out])
        for slot in step.free_after:
            memory[slot] = None
    if level >= 1 and plan.steps:
        synchronize({where[step.slots[0]] for step in plan.steps})
        seconds = time.perf_counter() - start
        if level == 1:
            GlobalCounters.time_sum_s += seconds
        say(run_line(plan, seconds))
    return [memory[slot] for slot in plan.results]


def _make_ready(plan: Plan, first: int, memory: list[Any]) -> None:
    """Load the kernels from step `first` on, and find memory for all that they write."""
    for step in plan.steps[first:]:
        out = step.slots[0]
        if step.kernel is not None:
            step.kernel.ready()
        if memory[out] is None:
            memory[out] = allocate(plan.made[out - plan.inputs])


def memory_of_variables(plan: Plan, values: Mapping[str, int]) -> list[Any]:
    """Memory for each variable of a plan. Raises: ValueError if one has no value."""
    for name, _ in plan.variables:
        if name not in values:
            raise ValueError(f"variable {name} has no value here; use {name}.bind(n) in the shape")
    # mypy finds no __hash__ in a protocol.
    return [variable_memory(d, Device[d], values[name]) for name, d in plan.variables]  # type: ignore[arg-type]


@functools.lru_cache(maxsize=1024)
def variable_memory(device: str, backend: Backend, value: int) -> Any:
    """Memory that holds the value of a variable, as a kernel of the backend that has the name now reads it."""
    handle = claim(device, 8)
    backend.copyin(handle, memoryview(value.to_bytes(8, "little", signed=True)))
    return handle


def allocate(made: BufferInfo) -> Any:
    """Fresh memory for a buffer of a plan; the host's is made by who fills it."""
    if made.device == HOST:
        return None
    return claim(made.device, max(made.size, 1) * made.dtype.itemsize)


def claim(device: str, nbytes: int) -> Any:
    """Memory of a device. If there is none left, what nobody can reach is collected, and asked again.

    Raises: MemoryError if there is not enough then.
    """
    try:
        return Device[device].alloc(nbytes)
    except MemoryError:
        gc.collect()
    return Device[device].alloc(nbytes)


def run_step(step: Step, memory: list[Any], where: Sequence[str]) -> None:
    """One kernel, or one copy between devices."""
    if step.kernel is None:
        copy(step, memory, where)
        GlobalCounters.copy_count += 1
        return
    step.kernel.launch(step.buffers(memory))
    counters = GlobalCounters
    counters.kernel_count += 1
    counters.global_ops += step.kernel.source.cost_flops
    counters.global_mem += step.nbytes


def synchronize(devices: set[str]) -> None:
    """Wait for everything that was launched on these devices."""
    for device in devices:
        if device != HOST:
            Device[device].synchronize()


def _look_for_nans(step: Step, handle: Any, device: str) -> None:
    """Raises: FloatingPointError if the kernel has written a NaN."""
    assert step.kernel is not None
    dtype = step.kernel.source.params[0]
    if not dtype.is_float:
        return
    data = bytearray(step.kernel.size * dtype.itemsize)
    Device[device].copyout(memoryview(data), handle)
    positions = [k for k, value in enumerate(unpack(bytes(data), dtype)) if value != value]  # noqa: PLR0124  (a NaN)
    if positions:
        origin = f", which comes from {', '.join(step.origin)}" if step.origin else ""
        raise FloatingPointError(
            f"kernel {step.kernel.name}{origin} wrote {len(positions)} NaN of {step.kernel.size} values,"
            f" the first at element {positions[0]} of {show(step.shape)} (DEBUG_NANS=1; with DEBUG=2 the"
            f" methods of Tensor are known)"
        )


def _timed(step: Step, memory: list[Any], where: Sequence[str], level: int) -> None:
    device = where[step.slots[0]]
    if device == HOST:  # a copy to the host, which has been done when it returns
        start = time.perf_counter()
        run_step(step, memory, where)
        seconds = time.perf_counter() - start
    else:
        seconds = Device[device].timed(lambda: run_step(step, memory, where))
    GlobalCounters.time_sum_s += seconds
    if level >= 2:
        say(kernel_line(step, device, seconds))
    if LISTENER.add is not None:
        kernel = step.kernel
        name, flops = ("copy", 0) if kernel is None else (kernel.name, kernel.source.cost_flops)
        LISTENER.add(name, device, seconds, flops, step.nbytes, step.origin)


def copy(step: Step, memory: list[Any], where: Sequence[str]) -> None:
    """The bytes of slot 1 into slot 0, through the host."""
    target, source = step.slots
    data: Any = memory[source]
    if where[source] != HOST:
        data = bytearray(step.nbytes)
        Device[where[source]].copyout(memoryview(data), memory[source])
    if where[target] == HOST:
        memory[target] = bytes(data)
    else:
        Device[where[target]].copyin(memory[target], memoryview(data).cast("B"))
