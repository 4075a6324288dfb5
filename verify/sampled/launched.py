"""CHECK=2: kernels as the machine runs them, on drawn memory.

Owns: the memory of a run, its bytes, the launches. Does not own: what is expected of the results, errors
(sampled/kernels.py), what is drawn (sampled/inputs.py).

This is the one look at what comes after Linear: printers, LLVM and drivers. It knows nothing of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
MOST_ELEMENTS = 1 << 16
# The bytes of memory that nothing has written: a large number of every type.
_UNWRITTEN = 0x7F
# So many lie behind all memory, as a few long vectors have: a write that goes too far shows there, also of what was read too far.
_BEHIND, _BEHIND_READ, _BEHIND_WRITTEN = 512, 0x5A, 0x3C

Draw = Callable[[int, DType, Values, Values], Values]


class WrittenElsewhere(RuntimeError):
    """A kernel has written to what it only reads, or behind memory. The message says where."""


def is_small(nodes: Sequence[UOp], parts: Sequence[Part]) -> bool:
    """Whether a body and its kernels have so little memory that they may be run."""
    sizes = [node.arg[1] for node in nodes if node.op is PARAM] + [part.size for part in parts]
    return bool(sum(sizes) <= MOST_ELEMENTS)


def results(
    nodes: Sequence[UOp], kernels: Sequence[Kernel], parts: Sequence[Part], draw: Draw, kind: int
) -> Values:
    """What kernels leave in the memory of a body's result, run once in memory of a kind.

    Raises: DeviceError, WrittenElsewhere.
    """
    backend = kernels[-1].backend
    memory: dict[int, Any] = {}
    before: dict[int, Values] = {}  # the bytes of memory, and those behind it
    for node in nodes:
        if node.op is PARAM:
            index = numpy.arange(node.arg[1])
            values = draw(node.arg[0], node.dtype, index, numpy.full(index.shape, kind))
            before[node.arg[0]] = _with_room(_as_bytes(values, node.dtype), _BEHIND_READ)
            memory[node.arg[0]] = _placed(kernels[-1], before[node.arg[0]])
    for kernel, part in zip(kernels, parts):
        if part.written not in memory:
            unwritten = numpy.full(part.size * part.dtype.itemsize, _UNWRITTEN, numpy.uint8)
            before[part.written] = _with_room(unwritten, _BEHIND_WRITTEN)
            memory[part.written] = _placed(kernel, before[part.written])
        kernel.ready()([memory[slot] for slot in kernel.slots])
    backend.synchronize()
    sizes = {part.written: part.size * part.dtype.itemsize for part in parts}
    found: dict[int, Any] = {slot: numpy.empty_like(data) for slot, data in before.items()}
    for slot, data in found.items():
        backend.copyout(memoryview(data), memory[slot])
        changed = numpy.flatnonzero((data != before[slot])[sizes.get(slot, 0) :])
        if len(changed):
            raise WrittenElsewhere(
                _told(slot, len(data) - _BEHIND, sizes.get(slot, 0) + int(changed[0]))
            )
    last = parts[-1]
    return _as_values(found[last.written][: sizes[last.written]], last.dtype)


def _told(slot: int, size: int, byte: int) -> str:
    if byte < size:
        return f"it wrote byte {byte} of parameter {slot}, which it only reads"
    return f"it wrote {byte - size} bytes behind the {size} bytes of parameter {slot}"


def _with_room(data: Values, byte: int) -> Values:
    return numpy.concatenate([data, numpy.full(_BEHIND, byte, numpy.uint8)])


def _placed(kernel: Kernel, data: Values) -> Any:
    handle = kernel.backend.alloc(data.nbytes)
    kernel.backend.copyin(handle, memoryview(data))
    return handle


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
