"""The table from BUFFER nodes to memory: what a graph that names one reads.

Owns: the table, new entries, numbers as memory. Does not own: values in a shape, who else holds memory (memory.py).
"""

from __future__ import annotations

import functools
import itertools
from typing import Any
from weakref import WeakKeyDictionary

from proofgrad.core.compile.machine.target import Backend
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.op_names import BUFFER, DEVICE, UNIQUE
from proofgrad.core.ir.uop import UOp, fresh_node
from proofgrad.core.tensor.data.storage import pack
from proofgrad.core.tensor.runtime.device import Device
from proofgrad.core.tensor.runtime.execute import claim

MEMORY: WeakKeyDictionary[UOp, Any] = WeakKeyDictionary()
# Those that are numbers, and of what device.
NUMBERS: WeakKeyDictionary[UOp, str] = WeakKeyDictionary()
# Buffers of numbered graphs, which plans keep, have small numbers: no real buffer is one of those.
_SERIAL = itertools.count(1_000_000)


def new_buffer(dtype: DType, size: int, device: str, memory: Any) -> UOp:
    """A BUFFER of `size` elements that owns `memory`, a handle of the device's backend."""
    unique = fresh_node(UNIQUE, dtypes.void, (), next(_SERIAL), ())
    buffer = fresh_node(BUFFER, dtype, (unique, _where(device)), size, (size,))
    MEMORY[buffer] = memory
    return buffer


@functools.lru_cache(maxsize=64)
def _where(device: str) -> UOp:
    return UOp(DEVICE, dtypes.void, (), device)


def number_buffer(number: UOp, device: str) -> UOp:
    """A BUFFER of one element, a constant that somebody writes; the same while it is among the last that were asked for."""
    # mypy finds no __hash__ in a protocol.
    return _number_buffer(number, device, Device[device])  # type: ignore[arg-type]


@functools.lru_cache(maxsize=1024)
def _number_buffer(number: UOp, device: str, backend: Backend) -> UOp:
    handle = _number_memory(number, device, backend)  # type: ignore[arg-type]
    buffer = new_buffer(number.dtype, 1, device, handle)
    NUMBERS[buffer] = device
    return buffer


def number_memory(number: UOp, device: str) -> Any:
    """The memory behind `number_buffer`, for who needs no node for it."""
    return _number_memory(number, device, Device[device])  # type: ignore[arg-type]


@functools.lru_cache(maxsize=1024)
def _number_memory(number: UOp, device: str, backend: Backend) -> Any:
    data = pack([number.arg], number.dtype)
    handle = claim(device, len(data))
    backend.copyin(handle, memoryview(data))
    return handle
