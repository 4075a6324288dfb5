"""Values as bytes: `read`, which computes what is not there, and `at_hand`, which does not.

Owns: which memory has the elements of a node, in order. Does not own: memory (memory.py), runs (realize.py),
bytes as Python numbers (core/tensor/data).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import prod
from typing import TypeVar

from proofgrad.core.compile.passes.memory import memory_below
from proofgrad.core.ir.op_names import BUFFER, CONTIGUOUS, RESHAPE
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import Shape, elements, is_plain, sizes
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime import realize as machine
from proofgrad.core.tensor.runtime.canonical import computed, line_of_memory
from proofgrad.core.tensor.runtime.device import HOST, Device
from proofgrad.core.tensor.runtime.memory import is_view, memory_if_known, memory_of
from proofgrad.core.tensor.runtime.recording import recorder, refuse_read

SHRINK = Ops.SHRINK
FEW = 32  # numbers that Python looks at as fast as numpy
_Room = TypeVar("_Room")


def read(uop: UOp, device: str) -> bytearray:
    """The elements of `uop` as row-major bytes, computed if need be; of those in memory no zeros are written before."""
    there = at_hand(uop) if uop.shape else None  # one number is sooner copied
    return read_into(bytearray, uop, device) if there is None else bytearray(there)


def read_into(room: Callable[[int], _Room], uop: UOp, device: str) -> _Room:
    """The same in what `room` makes for so many bytes, which may be written to."""
    shape = uop.shape
    if elements(shape) == 0:
        return room(0)
    refuse_read()
    count = prod(value_of_shape(shape))
    if not count:
        return room(0)
    uop = computed(uop)
    part = _part_to_read(uop)
    if part is None:
        uop = UOp(CONTIGUOUS, uop.dtype, (uop,)) if is_view(uop) else uop
        uop = machine.run_again(uop, device, is_alone=False) or machine.realize([uop], device)[0]
        part = _part_to_read(uop)
    assert part is not None
    data = room(count * uop.dtype.itemsize)
    view = memoryview(data)  # type: ignore[arg-type]
    Device[memory_below(part).src[1].arg].copyout(view, memory_of(part))
    return data


def at_hand(uop: UOp) -> memoryview | None:
    """The row-major bytes of what is in memory of the host already, or of rows of it; None: there would be work to do."""
    if recorder() is not None or not is_plain(uop.shape) or not elements(uop.shape):
        return None
    node, begin = computed(uop), 0
    if node.op is SHRINK and not is_plain(node.arg[0]):
        return None  # a variable says where it begins
    if node.op is SHRINK and node.arg[1:] == tuple([(0, n) for n in node.src[0].shape[1:]]):
        begin = node.arg[0][0] * elements(node.shape[1:]) * node.dtype.itemsize
        node = computed(node.src[0])
    while node.op is RESHAPE:
        node = computed(node.src[0])
    node = node.src[0] if node.op is Ops.COPY and node.src[0].op is BUFFER else node
    data = memory_if_known(node)
    data = getattr(data, "view", data)
    if not isinstance(data, (bytes, bytearray, memoryview)):
        return None
    end = begin + elements(uop.shape) * uop.dtype.itemsize
    return memoryview(data).cast("B")[begin:end]


def extremes(values: memoryview[int], left_out: int | None = None) -> tuple[int, ...]:
    """The least and the greatest of some integers, but for one that counts not; nothing where there are no others.

    By numpy where the program has imported it: in Python 16,000 take 0.3 ms.
    """
    numpy = sys.modules.get("numpy") if len(values) > FEW else None
    if numpy is None:
        kept = values if left_out is None else [value for value in values if value != left_out]
        return (min(kept), max(kept)) if len(kept) else ()
    array = numpy.asarray(values)
    array = array if left_out is None else array[array != left_out]
    return (int(array.min()), int(array.max())) if array.size else ()


def _part_to_read(uop: UOp) -> UOp | None:
    """The BUFFER whose first elements are those of `uop` in order, or SHRINK to a part that begins with them; None: there is none."""
    node = uop.src[0] if uop.op is RESHAPE else uop
    if node.op is SHRINK and node.src[0].op is BUFFER and node.arg[0][0] == 0:
        node = node.src[0]
    if node.op is BUFFER:
        return node if node.src[1].arg != HOST else None
    line = line_of_memory(node)
    if line is None or not line[1]:
        return None if line is None else line[0]
    buffer, first = line
    if not Device[buffer.src[1].arg].target.has_parts:
        return None
    return UOp(SHRINK, uop.dtype, (buffer,), ((first, buffer.arg),))


def value_of_shape(shape: Shape) -> tuple[int, ...]:
    """The numbers that the sizes of a shape are now."""
    if is_plain(shape):
        return shape
    found: tuple[int, ...] = sizes().value_of_shape(shape)
    return found
