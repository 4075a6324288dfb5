"""The memory behind BUFFER nodes: which there is, who made it, who else holds it.

Owns: values in a shape, whether memory is held by one owner alone. Does not own: the table from a BUFFER to its memory (table.py),
what computes values (realize.py), the count of owners (owners.py), values as bytes (reading.py).
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from weakref import ref

from proofgrad.core.compile.machine.target import Borrowed
from proofgrad.core.compile.passes.memory import first_element
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.op_names import BUFFER, DETACH, RESHAPE
from proofgrad.core.ir.ops import MOVEMENT, Ops
from proofgrad.core.ir.shapes import Shape, elements, is_plain, sizes
from proofgrad.core.ir.uop import UOp, fresh_node
from proofgrad.core.tensor.runtime.counters import GlobalCounters
from proofgrad.core.tensor.runtime.device import HOST, Device, is_on_disk
from proofgrad.core.tensor.runtime.execute import claim
from proofgrad.core.tensor.runtime.known_runs import RUNS, SMALL_BYTES
from proofgrad.core.tensor.runtime.once import copy_once
from proofgrad.core.tensor.runtime.owners import owners_of_attribute, owners_of_item
from proofgrad.core.tensor.runtime.table import MEMORY, NUMBERS, new_buffer

SHRINK = Ops.SHRINK

if TYPE_CHECKING:
    from proofgrad.core.compile.plan.plan import BufferInfo


def new_value(info: BufferInfo, shape: Shape, memory: Any) -> UOp:
    """A new BUFFER that owns `memory`, in this shape."""
    buffer = new_buffer(info.dtype, info.size, info.device, memory)
    if len(shape) == 1 or info.size != elements(shape) or not is_plain(shape):
        return in_shape(buffer, shape)
    return fresh_node(RESHAPE, info.dtype, (buffer,), shape, shape)


def host_buffer(data: bytes, dtype: DType, device: str) -> UOp:
    """COPY to `device` of row-major bytes on the host, read by the run that computes it. Shape (elements,).

    Large data is copied once; small data by each run that reads it, which is less than to look for who else does.
    """
    source = new_buffer(dtype, len(data) // dtype.itemsize, HOST, data)
    if device == HOST:
        return source
    copied = fresh_node(Ops.COPY, dtype, (source,), device, source.shape)
    if len(data) > SMALL_BYTES:
        copy_once(copied)
    return copied


def copied_buffer(data: memoryview, dtype: DType, device: str) -> UOp:
    """The same of bytes that may change afterwards: what Tensor(list) is. Large data is copied to memory of the CPU at once, with no bytes of Python between.

    Fresh pages take many times as long as memory that was used before (measured: 32 MB by way of bytes of Python 58 ms, at once 3).
    """
    if device != "CPU" or data.nbytes <= SMALL_BYTES:
        return host_buffer(bytes(data), dtype, device)
    handle = claim(device, data.nbytes)
    Device[device].copyin(handle, data)
    GlobalCounters.copy_count += 1
    return new_buffer(dtype, data.nbytes // dtype.itemsize, device, handle)


def buffer_of(uop: UOp) -> UOp | None:
    """The BUFFER that has exactly the elements of `uop` in order; None if there is none."""
    buffer = _below_shape(uop)
    return buffer if buffer.op is BUFFER else None


def _below_shape(uop: UOp) -> UOp:
    """What `uop` shows from its first element on: below RESHAPE, and below SHRINK to a size of variables."""
    node = uop.src[0] if uop.op is RESHAPE else uop
    is_whole = node.op is SHRINK and node.src[0].op is BUFFER and node.arg[0][0] == 0
    if is_whole and not is_plain(uop.shape) and node.src[0].arg == elements(uop.shape):
        return node.src[0]
    return node


def memory_at_hand(uop: UOp) -> Any:
    """The memory that has exactly the elements of `uop` in order; None: it is to be computed."""
    buffer = _below_shape(uop)
    return MEMORY.get(buffer) if buffer.op is BUFFER and buffer.src[1].arg != HOST else None


def memory_if_known(node: UOp) -> Any:
    """The memory behind a BUFFER, bytes of the host as well; None: it is another node, or has none."""
    return MEMORY.get(node) if node.op is BUFFER else None


def has_memory(uop: UOp, handle: Any) -> bool:
    """Whether this memory is that of `uop`, a BUFFER through RESHAPE or not, for as long as it is there."""
    return MEMORY.get(_below_shape(uop)) is handle


def memory_of(buffer: UOp | None) -> Any:
    """The memory behind a BUFFER, or a part of one, a handle of the backend of its device."""
    assert buffer is not None
    if buffer.op is BUFFER:
        return MEMORY.data[ref(buffer)]  # type: ignore[attr-defined]
    if buffer.op is SHRINK:
        begin = first_element(buffer) * buffer.dtype.itemsize
        whole = MEMORY[buffer.src[0]]
        return Device[buffer.src[0].src[1].arg].part(whole, begin) if begin else whole
    return MEMORY[buffer]


def twin(uop: UOp) -> UOp:
    """Another BUFFER with the memory of this one, in the same shape."""
    buffer = buffer_of(uop)
    assert buffer is not None
    other = new_buffer(buffer.dtype, buffer.arg, buffer.src[1].arg, MEMORY[buffer])
    return in_shape(other, uop.shape)


def under_its_own_name(view: UOp) -> UOp:
    """The same elements of the same memory, behind a BUFFER that nothing else names: no gradient passes from here to what `view` is."""
    if view.op is BUFFER:
        return twin(view)
    below = under_its_own_name(view.src[0])
    return below if view.op is DETACH else view.with_src((below,))


def memory_to_write(holder: Any, table: Sequence[Any], slot: int) -> tuple[Any, bool]:
    """The memory of `holder._uop`, and whether it is ours and nobody else has it, but for `table[slot]`."""
    handle = memory_of(buffer_of(holder._uop))
    known = 2 + (table[slot] is handle)  # the table of all memory, and this function
    is_alone = owners_of_item(MEMORY, buffer_of(holder._uop)) == known
    return handle, is_alone and _is_sole_holder(holder) and not isinstance(handle, Borrowed)


def is_as_written(holder: Any, table: Sequence[Any], slot: int) -> bool:
    """Whether nobody but `holder._uop` and this table has `table[slot]`, known to be its memory, and ours."""
    known = 2  # the table of all memory, and this one
    return owners_of_item(table, slot) == known and _is_sole_holder(holder)


def _is_sole_holder(holder: Any) -> bool:
    """Whether the BUFFER that `holder._uop` is, through RESHAPE or not, is held by this object alone."""
    if owners_of_attribute(holder, "_uop") != 1:
        return False
    return holder._uop.op is BUFFER or owners_of_item(holder._uop.src, 0) == 1


def is_view(uop: UOp) -> bool:
    """Whether `uop` is memory seen through movement operations only."""
    return buffer_below(uop) is not None


def buffer_below(uop: UOp) -> UOp | None:
    """The BUFFER of a device that `uop` shows through movement operations only; None: it is more."""
    while uop.op in MOVEMENT or uop.op is DETACH:
        uop = uop.src[0]
    return uop if uop.op is BUFFER and uop.src[1].arg != HOST else None


def is_flat(uop: UOp) -> bool:
    """Whether `uop` is the memory of a BUFFER of a device in its own layout."""
    buffer = _below_shape(uop)
    return buffer.op is BUFFER and buffer.src[1].arg != HOST


def in_shape(buffer: UOp, shape: Shape) -> UOp:
    """The first elements of a buffer, all of them if no size is or was a variable, in this shape."""
    count = elements(shape) if is_plain(shape) else _count(shape)
    if count != buffer.arg:
        buffer = fresh_node(SHRINK, buffer.dtype, (buffer,), ((0, count),), (count,))
    if shape == buffer.shape:
        return buffer
    return fresh_node(RESHAPE, buffer.dtype, (buffer,), shape, shape)


@functools.lru_cache(maxsize=256)
def _count(shape: Shape) -> Any:
    return sizes().product(shape)


def is_unshared(given: list[Any], k: int) -> bool:
    """Is memory `k` ours, and held by this list alone? An array may share it."""
    return not isinstance(given[k], Borrowed) and owners_of_item(given, k) == 1


def buffers() -> list[UOp]:
    """All buffers there are, in one step: other threads may make some meanwhile."""
    found = [reference() for reference in MEMORY.keyrefs()]
    return [buffer for buffer in found if buffer is not None]


def _bytes_held() -> Counter[str]:
    """Of each device, its memory of Tensors."""
    unused = RUNS.unused_bytes()  # before this function holds them
    held: Counter[str] = Counter()
    seen: set[int] = set()
    for buffer in buffers():
        device, handle = buffer.src[1].arg, MEMORY.get(buffer)
        if device == HOST or is_on_disk(device) or buffer in NUMBERS or id(handle) in seen:
            continue
        seen.add(id(handle))
        held[device] += buffer.arg * buffer.dtype.itemsize
    held.subtract(unused)
    return held


GlobalCounters.measure_memory = _bytes_held
