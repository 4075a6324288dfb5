"""CHECK=2: kernels as the machine runs them, on drawn memory.

Owns: the memory of a run, its bytes, the launches. Does not own: what is expected of the results, errors
(sampled/kernels.py), what is drawn (sampled/inputs.py), pieces of loops (sampled/pieces.py).

This is the one look at what comes after Linear: printers, LLVM and drivers. It knows nothing of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy

from proofgrad.core.compile.plan.plan import Kernel
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.evaluate import from_bits
from proofgrad.core.ir.op_names import PARAM
from proofgrad.core.ir.uop import UOp
from proofgrad.verify.sampled.arithmetic import Values, kept_as
from proofgrad.verify.sampled.parts import Part
from proofgrad.verify.sampled.pieces import run_in_pieces

# Elements of all memory that a kernel is run on; one of more is not run.
MOST_ELEMENTS = 1 << 21
# The bytes of memory that nothing has written: a large number of every type.
_UNWRITTEN = 0x7F
# So many lie behind all memory, as a few long vectors have: a write that goes too far shows there, also of what was read too far.
_BEHIND, _BEHIND_READ, _BEHIND_WRITTEN = 512, 0x5A, 0x3C
# And so many before it, where memory may begin inside of other memory: at the end of a cache line, and elements further.
_BEFORE, _FURTHER = 64, 3

Draw = Callable[[int, DType, Values, Values], Values]


class WrittenElsewhere(RuntimeError):
    """A kernel has written to what it only reads, or beside memory. The message says where."""


@dataclass(frozen=True, slots=True)
class Made:
    """The nodes of a body, its kernels and what each writes; `values`: of the variables, in place of which the nodes have numbers."""

    nodes: Sequence[UOp]
    kernels: Sequence[Kernel]
    parts: Sequence[Part]
    values: Mapping[str, int] = field(default_factory=dict)

    @property
    def elements(self) -> int:
        """Of all memory that the body and its kernels have."""
        given = [node.arg[1] for node in self.nodes if node.op is PARAM]
        return sum(given + [part.memory.arg[1] for part in self.parts])

    @property
    def is_small(self) -> bool:
        """Whether they have so little memory that they may be run."""
        return self.elements <= MOST_ELEMENTS


@dataclass(frozen=True, slots=True)
class Way:
    """How kernels are run. `is_moved`: memory begins where vectors are not aligned, if the machine takes such memory.
    `is_cut`: what threads share is run in pieces, if the machine can."""

    kind: int
    seed: int = 0
    is_moved: bool = False
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class _Placed:
    """Bytes as they were before a run, with what lies around them, and where they are on the machine."""

    slot: int
    before: Values
    first: int  # byte of the memory itself
    handle: Any

    def of_launch(self, backend: Any) -> Any:
        """What a kernel is given."""
        return backend.part(self.handle, self.first) if self.first else self.handle

    def now(self, backend: Any) -> Values:
        """The bytes of the memory itself, as they are."""
        return self._all(backend)[self.first : -_BEHIND]

    def _all(self, backend: Any) -> Values:
        found = numpy.empty_like(self.before)
        backend.copyout(memoryview(found), self.handle)
        return found

    def after(self, backend: Any, written: int) -> Values:
        """The first bytes, which may be others now. Raises: WrittenElsewhere if one of the rest is."""
        found = self._all(backend)
        changed = numpy.flatnonzero(found != self.before) - self.first
        changed = changed[(changed < 0) | (changed >= written)]
        if len(changed):
            raise WrittenElsewhere(self._told(int(changed[0]), written))
        return found[self.first :][:written]

    def _told(self, byte: int, written: int) -> str:
        size = len(self.before) - self.first - _BEHIND
        if byte < 0:
            return f"it wrote {-byte} bytes before parameter {self.slot}"
        if byte < size:
            return f"it wrote byte {byte} of parameter {self.slot}, which it only reads"
        return f"it wrote {byte - size} bytes behind the {size} bytes of parameter {self.slot}"


def results(made: Made, draw: Draw, way: Way) -> Values:
    """What kernels leave in the memory of a body's result, run once. Raises: DeviceError, WrittenElsewhere."""
    backend, memory = made.kernels[-1].backend, _Memory(made.kernels[-1].backend, way.is_moved)
    for node in made.nodes:
        if node.op is PARAM:
            slot, index = node.arg[0], numpy.arange(node.arg[1])
            values = draw(slot, node.dtype, index, numpy.full(index.shape, way.kind))
            data = _as_bytes(values, node.dtype)
            memory.place(slot, data, node.dtype.itemsize, _BEHIND_READ)
    for kernel, part in zip(made.kernels, made.parts):
        if part.written not in memory.placed:
            size_bytes = part.dtype.itemsize
            unwritten = numpy.full(part.memory.arg[1] * size_bytes, _UNWRITTEN, numpy.uint8)
            memory.place(part.written, unwritten, size_bytes, _BEHIND_WRITTEN)
        for slot, name in kernel.variables.items():
            memory.place_number(slot, made.values[name])
        _launch(kernel, memory, way)
    backend.synchronize()
    sizes = {part.written: part.size * part.dtype.itemsize for part in made.parts}
    found = {slot: each.after(backend, sizes.get(slot, 0)) for slot, each in memory.placed.items()}
    return _as_values(found[made.parts[-1].written], made.parts[-1].dtype)


def _launch(kernel: Kernel, memory: _Memory, way: Way) -> None:
    launch: Any = kernel.ready()
    size, own = kernel.source.thread_size or 1, kernel.source.own_bytes
    handles = [memory.placed[slot].of_launch(kernel.backend) for slot in kernel.slots]
    if not way.is_cut or size == 1 or not hasattr(launch, "piece"):
        launch(handles)
        return
    wrong = run_in_pieces(
        size,
        own[0] if own else 0,
        lambda first, end: launch.piece(handles, first, end),
        lambda: memory.placed[kernel.slots[0]].now(kernel.backend),
        way.kind + way.seed,
    )
    if wrong:
        raise WrittenElsewhere(f"{wrong}, of parameter {kernel.slots[0]}")


class _Memory:
    """What kernels are given, by slot of the body."""

    def __init__(self, backend: Any, is_moved: bool) -> None:
        self.placed: dict[int, _Placed] = {}
        self._backend, self._further = backend, _FURTHER if is_moved else 0

    def place(self, slot: int, data: Values, size_bytes: int, around: int) -> None:
        """Bytes of elements of a size, with what lies around them."""
        first = _BEFORE + self._further * size_bytes if self._further else 0
        first = first if self._backend.target.has_parts else 0
        sides = [numpy.full(count, around, numpy.uint8) for count in (first, _BEHIND)]
        whole: Values = numpy.concatenate([sides[0], data, sides[1]])
        handle = self._backend.alloc(whole.nbytes)
        self._backend.copyin(handle, memoryview(whole))
        self.placed[slot] = _Placed(slot, whole, first, handle)

    def place_number(self, slot: int, value: int) -> None:
        """The value of a variable."""
        data = numpy.frombuffer(value.to_bytes(8, "little", signed=True), numpy.uint8)
        self.place(slot, data, 0, _BEHIND_READ)


def _as_bytes(values: Values, dtype: DType) -> Values:
    values = numpy.ascontiguousarray(values)
    if dtype is dtypes.bfloat16:
        values = (values.view(numpy.uint32) >> 16).astype(numpy.uint16)
    elif dtype.is_code:
        every = _every_code(dtype)
        codes = {_key(every[code]): code for code in range(prod(every.shape))[::-1]}
        values = numpy.array([codes[_key(value)] for value in values], numpy.uint8)
    return values.view(numpy.uint8)


def _as_values(data: Values, dtype: DType) -> Values:
    if dtype is dtypes.bfloat16:
        return (data.view(numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)
    if dtype.is_code:
        return _every_code(dtype)[data]
    return data != 0 if dtype.is_bool else data.view(kept_as(dtype))


def _every_code(dtype: DType) -> Values:
    return numpy.array([from_bits(code, dtype) for code in range(256)], kept_as(dtype))


def _key(value: Any) -> str:
    return "nan" if value != value else float(value).hex()
