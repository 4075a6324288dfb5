"""Running graphs: buffers and their memory, plans executed, results remembered.

Owns: memory behind BUFFER nodes, `realize`, `read`, what a graph node has been computed to. Does not
own: planning (core/compile), Tensor objects (tensor.py).
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from proofgrad.core import settings
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import MOVEMENT, Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.core.tensor.counters import GlobalCounters
from proofgrad.core.tensor.device import HOST, Device

if TYPE_CHECKING:
    from proofgrad.core.compile.compiler import BufferInfo, Compiler, Plan, Step


@dataclass(slots=True)
class _Machine:
    """The state of this module: one compiler, the memory of each buffer, what was computed."""

    make_compiler: Callable[[], Compiler] | None = None
    compiler: Compiler | None = None
    compile_only: bool = False
    on_write: Callable[[Any], None] | None = None


_MACHINE = _Machine()
_MEMORY: WeakKeyDictionary[UOp, Any] = WeakKeyDictionary()
_COMPUTED: WeakKeyDictionary[UOp, UOp] = WeakKeyDictionary()
_SERIAL = itertools.count()


def use_compiler(make: Callable[[], Compiler]) -> None:
    """Say how the compiler is made when it is first needed."""
    _MACHINE.make_compiler = make


def compiler() -> Compiler:
    """The compiler of this process."""
    if _MACHINE.compiler is None:
        if _MACHINE.make_compiler is None:
            raise RuntimeError("no compiler: import proofgrad, not proofgrad.core, to run tensors")
        _MACHINE.compiler = _MACHINE.make_compiler()
    return _MACHINE.compiler


@contextmanager
def compile_only() -> Iterator[None]:
    """Inside, realize compiles every kernel and runs none; its buffers have no memory to read.

    For looking at the kernels of a machine that is not here.
    """
    before, _MACHINE.compile_only = _MACHINE.compile_only, True
    try:
        yield
    finally:
        _MACHINE.compile_only = before


def note_write(tensor: Any) -> None:
    """Tell whoever records what is run that `tensor` has been written to."""
    if _MACHINE.on_write is not None:
        _MACHINE.on_write(tensor)


# -- buffers ------------------------------------------------------------------------------------


def new_buffer(dtype: DType, size: int, device: str, memory: Any) -> UOp:
    """A BUFFER of `size` elements that owns `memory`, a handle of the device's backend."""
    unique = UOp(Ops.UNIQUE, dtypes.void, (), next(_SERIAL))
    buffer = UOp(Ops.BUFFER, dtype, (unique, UOp(Ops.DEVICE, dtypes.void, (), device)), size)
    _MEMORY[buffer] = memory
    return buffer


def host_buffer(data: bytes, dtype: DType, device: str) -> UOp:
    """COPY to `device` of row-major bytes on the host: what Tensor(list) is. Shape (elements,)."""
    source = new_buffer(dtype, len(data) // dtype.itemsize, HOST, data)
    return source if device == HOST else UOp(Ops.COPY, dtype, (source,), device)


def memory_of(buffer: UOp) -> Any:
    """The handle of a BUFFER's memory, of the backend of its device."""
    return _MEMORY[buffer]


def computed(uop: UOp) -> UOp:
    """What `uop` has been computed to, if it has; else `uop`."""
    return _COMPUTED.get(uop, uop)


def is_view(uop: UOp) -> bool:
    """Whether `uop` is memory seen through movement operations only."""
    while uop.op in MOVEMENT or uop.op is Ops.DETACH:
        uop = uop.src[0]
    return uop.op is Ops.BUFFER and uop.src[1].arg != HOST


def read(uop: UOp, device: str) -> bytearray:
    """The elements of `uop` as row-major bytes, computed if need be."""
    if prod(uop.shape) == 0:
        return bytearray()
    uop = computed(uop)
    if not _is_flat(uop):
        uop = UOp(Ops.CONTIGUOUS, uop.dtype, (uop,)) if is_view(uop) else uop
        uop = realize([uop], device)[0]
    buffer = uop.src[0] if uop.op is Ops.RESHAPE else uop
    data = bytearray(buffer.arg * buffer.dtype.itemsize)
    Device[buffer.src[1].arg].copyout(memoryview(data), _MEMORY[buffer])
    return data


def _is_flat(uop: UOp) -> bool:
    buffer = uop.src[0] if uop.op is Ops.RESHAPE else uop
    return buffer.op is Ops.BUFFER and buffer.src[1].arg != HOST


# -- realize ------------------------------------------------------------------------------------


def realize(roots: Sequence[UOp], device: str) -> list[UOp]:
    """Each root as a buffer (through RESHAPE); views of buffers stay views and run nothing.

    `device` is for values that read no buffer. Results are remembered: `computed(root)`.
    """
    wanted = [root for root in dict.fromkeys(map(computed, roots)) if not is_view(root)]
    if wanted:
        _run(wanted, device)
    return [computed(computed(root)) for root in roots]


def graph_to_run(roots: Sequence[UOp], device: str) -> UOp:
    """What `realize` would have compiled: a SINK, of no roots if nothing is left to run."""
    wanted = [root for root in dict.fromkeys(map(computed, roots)) if not is_view(root)]
    return _numbered(wanted, device)[0]


def _run(roots: list[UOp], device: str) -> None:
    graph, inputs = _numbered(roots, device)
    plan = compiler().plan(graph)
    for root, buffer in zip(roots, _execute(plan, inputs)):
        flat = root.shape == (buffer.arg,)
        result = buffer if flat else UOp(Ops.RESHAPE, root.dtype, (buffer,), root.shape)
        _COMPUTED[root] = result


def _numbered(roots: list[UOp], device: str) -> tuple[UOp, list[UOp]]:
    """The graph with its buffers numbered 0, 1, ... in order: equal graphs become one object."""
    done: dict[UOp, UOp] = {}
    inputs: list[UOp] = []
    for node in toposort(roots, lambda n: n not in _COMPUTED):
        known = _COMPUTED.get(node)
        if known is not None:
            for part in known.toposort():
                if part not in done:
                    done[part] = _renumber(part, done, inputs)
            done[node] = done[known]
        elif node not in done:
            done[node] = _renumber(node, done, inputs)
    return UOp(Ops.SINK, dtypes.void, tuple([done[root] for root in roots]), device), inputs


def _renumber(node: UOp, done: dict[UOp, UOp], inputs: list[UOp]) -> UOp:
    if node.op is Ops.BUFFER:
        inputs.append(node)
        unique = UOp(Ops.UNIQUE, dtypes.void, (), len(inputs) - 1)
        return UOp(Ops.BUFFER, node.dtype, (unique, node.src[1]), node.arg)
    if node.op in (Ops.UNIQUE, Ops.DEVICE):
        return node
    if node.op in (Ops.DETACH, Ops.CONTIGUOUS):  # what only gradients look at is left out
        return UOp(node.op, node.dtype, (done[node.src[0]],))
    return node.with_src(tuple([done[s] for s in node.src]))


def _execute(plan: Plan, inputs: list[UOp]) -> list[UOp]:
    """Run the steps; the buffer of each root. Buffers between are dropped after their last use."""
    first = plan.inputs
    if _MACHINE.compile_only:
        return [
            inputs[slot] if slot < first else _kept(plan.made[slot - first], None)
            for slot in plan.results
        ]
    devices = [buffer.src[1].arg for buffer in inputs] + [made.device for made in plan.made]
    memory: list[Any] = [_MEMORY[buffer] for buffer in inputs] + [None] * len(plan.made)
    for slot, made in enumerate(plan.made, first):
        if made.size == 0:  # no kernel writes it, but one may loop over its no elements
            memory[slot] = _allocate(made)
    keep = {slot for slot in plan.results if slot >= first}
    level = settings.debug_level()
    start = time.perf_counter()
    for step in plan.steps:
        out = step.slots[0]
        made = plan.made[out - first]
        memory[out] = _allocate(made)
        if level >= 1:
            _timed(step, memory, devices, made, level)
        else:
            _step(step, memory, devices, made)
        for slot in step.free_after:
            memory[slot] = None
    if level >= 1:
        kernels = sum(step.kernel is not None for step in plan.steps)
        _say(f"{kernels} kernels, {(time.perf_counter() - start) * 1e3:.1f} ms")
    results = {slot: _kept(plan.made[slot - first], memory[slot]) for slot in keep}
    return [results[slot] if slot in results else inputs[slot] for slot in plan.results]


def _allocate(made: BufferInfo) -> Any:
    if made.device == HOST:
        return None
    return Device[made.device].alloc(max(made.size, 1) * made.dtype.itemsize)


def _kept(made: BufferInfo, memory: Any) -> UOp:
    return new_buffer(made.dtype, made.size, made.device, memory)


def _step(step: Step, memory: list[Any], devices: list[str], made: BufferInfo) -> None:
    if step.kernel is None:
        _copy(step.slots, memory, devices, made)
        GlobalCounters.copy_count += 1
        return
    step.kernel.launch([memory[slot] for slot in step.slots])
    GlobalCounters.kernel_count += 1
    GlobalCounters.global_ops += step.kernel.source.cost_flops


def _timed(step: Step, memory: list[Any], devices: list[str], made: BufferInfo, level: int) -> None:
    start = time.perf_counter()
    _step(step, memory, devices, made)
    if made.device != HOST:
        Device[made.device].synchronize()
    seconds = time.perf_counter() - start
    GlobalCounters.time_sum_s += seconds
    if level >= 2:
        name = "copy" if step.kernel is None else step.kernel.name
        _say(f"*** {made.device:<10} {name:<40} {made.size:>10} {seconds * 1e3:9.3f} ms")


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _copy(slots: tuple[int, ...], memory: list[Any], devices: list[str], made: BufferInfo) -> None:
    """The bytes of slot 1 into slot 0, through the host."""
    target, source = slots
    data: Any = memory[source]
    if devices[source] != HOST:
        data = bytearray(made.size * made.dtype.itemsize)
        Device[devices[source]].copyout(memoryview(data), memory[source])
    if made.device == HOST:
        memory[target] = bytes(data)
    else:
        Device[made.device].copyin(memory[target], memoryview(data).cast("B"))
