"""CHECK=2: kernels as the machine runs them, on drawn memory.

Owns: the memory of a run, its bytes, the launches. Does not own: what is expected of the results, errors
(sampled/kernels.py), what is drawn (sampled/inputs.py).

This is the one look at what comes after Linear: printers, LLVM and drivers. It knows nothing of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
class _Placed:
    """Bytes as they were before a run, with what lies around them, and where they are on the machine."""

    slot: int
    before: Values
    first: int  # byte of the memory itself
    handle: Any

    def of_launch(self, backend: Any) -> Any:
        """What a kernel is given."""
        return backend.part(self.handle, self.first) if self.first else self.handle

    def after(self, backend: Any, written: int) -> Values:
        """The first bytes, which may be others now. Raises: WrittenElsewhere if one of the rest is."""
        found = numpy.empty_like(self.before)
        backend.copyout(memoryview(found), self.handle)
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


def elements_of(nodes: Sequence[UOp], parts: Sequence[Part]) -> int:
    """Of all memory that a body and its kernels have."""
    return sum([node.arg[1] for node in nodes if node.op is PARAM] + [part.size for part in parts])


def is_small(nodes: Sequence[UOp], parts: Sequence[Part]) -> bool:
    """Whether a body and its kernels have so little memory that they may be run."""
    return elements_of(nodes, parts) <= MOST_ELEMENTS


def results(
    nodes: Sequence[UOp],
    kernels: Sequence[Kernel],
    parts: Sequence[Part],
    draw: Draw,
    kind: int,
    is_moved: bool = False,
) -> Values:
    """What kernels leave in the memory of a body's result, run once in memory of a kind.

    `is_moved`: it begins where vectors are not aligned, if the machine takes such memory. Raises: DeviceError, WrittenElsewhere.
    """
    backend = kernels[-1].backend

    def placed(slot: int, data: Values, size_bytes: int, around: int) -> _Placed:
        first = _BEFORE + (_FURTHER * size_bytes if is_moved else 0)
        first = first if backend.target.has_parts else 0
        sides = [numpy.full(count, around, numpy.uint8) for count in (first, _BEHIND)]
        whole: Values = numpy.concatenate([sides[0], data, sides[1]])
        handle = backend.alloc(whole.nbytes)
        backend.copyin(handle, memoryview(whole))
        return _Placed(slot, whole, first, handle)

    memory: dict[int, _Placed] = {}
    for node in nodes:
        if node.op is PARAM:
            slot, index = node.arg[0], numpy.arange(node.arg[1])
            values = draw(slot, node.dtype, index, numpy.full(index.shape, kind))
            data = _as_bytes(values, node.dtype)
            memory[slot] = placed(slot, data, node.dtype.itemsize, _BEHIND_READ)
    for kernel, part in zip(kernels, parts):
        if part.written not in memory:
            size_bytes = part.dtype.itemsize
            unwritten = numpy.full(part.size * size_bytes, _UNWRITTEN, numpy.uint8)
            memory[part.written] = placed(part.written, unwritten, size_bytes, _BEHIND_WRITTEN)
        kernel.ready()([memory[slot].of_launch(backend) for slot in kernel.slots])
    backend.synchronize()
    sizes = {part.written: part.size * part.dtype.itemsize for part in parts}
    found = {slot: each.after(backend, sizes.get(slot, 0)) for slot, each in memory.items()}
    return _as_values(found[parts[-1].written], parts[-1].dtype)


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
