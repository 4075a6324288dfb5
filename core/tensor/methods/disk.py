"""Elements of files: Tensors on the device `DISK:path`, which are views of the bytes of that file.

Owns: which bytes a view shows, reading and writing them, moving values to files and back. Does not own: the methods that
do so by themselves (creation, indexing, interop), formats of files (proofgrad/nn/state).

A file is memory that others may write to as well. Nothing of it is held: what is moved to another device is read when it
is computed there, and what is written is in the file at once.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import prod
from typing import Any

from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.ops import MOVEMENT, Ops
from proofgrad.core.ir.shapes import Shape, ShapeError, show
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.errors import DeviceError, DtypeError, JitError
from proofgrad.core.tensor.data.nodes import copy_node, reshape_node
from proofgrad.core.tensor.methods.view import view_info
from proofgrad.core.tensor.runtime import reading
from proofgrad.core.tensor.runtime.device import DISK, Device, is_on_disk
from proofgrad.core.tensor.runtime.memory import host_buffer, memory_of
from proofgrad.core.tensor.runtime.recording import recorder
from proofgrad.core.tensor.runtime.table import new_buffer


@dataclass(frozen=True, slots=True)
class FilePart:
    """The memory of a BUFFER in a file: its elements follow each other from this byte on."""

    path: str
    offset_bytes: int


@dataclass(frozen=True, slots=True)
class _Position:
    """The elements of a view in a file: from which byte on, and how far from one to the next on each axis."""

    path: str
    offset_bytes: int
    strides_bytes: tuple[int, ...]
    shape: Shape
    itemsize: int

    @property
    def is_row_major(self) -> bool:
        """Do the elements follow each other without a gap?"""
        step = self.itemsize
        for size, stride in zip(self.shape[::-1], self.strides_bytes[::-1], strict=True):
            if size > 1 and stride != step:
                return False
            step *= size
        return True

    @property
    def first_byte(self) -> int:
        """Where the lowest of its elements begins; strides may be negative."""
        steps = zip(self.shape, self.strides_bytes, strict=True)
        return self.offset_bytes + sum([min(0, (size - 1) * stride) for size, stride in steps])

    @property
    def end_byte(self) -> int:
        """Where the highest of its elements ends."""
        steps = zip(self.shape, self.strides_bytes, strict=True)
        last = sum([max(0, (size - 1) * stride) for size, stride in steps])
        return self.offset_bytes + last + self.itemsize


def node_in_file(path: str, shape: Shape, dtype: DType, offset_bytes: int = 0) -> UOp:
    """Elements of a file as a node: a BUFFER through RESHAPE. Reads nothing."""
    memory = FilePart(path, offset_bytes)
    buffer = new_buffer(dtype, prod(shape), f"{DISK}:{path}", memory)
    return reshape_node(buffer, shape)


def make_file(device: str, size_bytes: int) -> None:
    """A file of zeros, where there is none."""
    path = path_of(device)
    if not os.path.exists(path):
        with open(path, "xb") as file:
            file.truncate(size_bytes)


def path_of(device: str) -> str:
    """The file behind `DISK:path`."""
    return device.partition(":")[2]


def size_of_file(path: str, dtype: DType) -> int:
    """How many elements a file holds. Raises: ShapeError for a part of one, OSError."""
    size_bytes = os.path.getsize(path)
    if size_bytes % dtype.itemsize:
        raise ShapeError(
            f"the {size_bytes} bytes of {path} are no whole number of {dtype} elements"
        )
    return size_bytes // dtype.itemsize


def file_behind(node: UOp) -> str | None:
    """The path of the file that this shows all of, from its first byte; None if it does not."""
    if node.op is Ops.RESHAPE:
        node = node.src[0]
    memory = memory_of(node) if node.op is Ops.BUFFER else None
    if not isinstance(memory, FilePart) or memory.offset_bytes:
        return None
    size_bytes = node.arg * node.dtype.itemsize
    return memory.path if os.path.getsize(memory.path) == size_bytes else None


# -- moving ---------------------------------------------------------------------------------------


def moved_node(node: UOp, source: str, target: str) -> UOp:
    """The values of `node`, which is on `source`, on another device; a file is written at once."""
    if is_on_disk(target):
        refuse_recording("written")
        data = bytes_of_view(node) if is_on_disk(source) else reading.read(node, source)
        moved = node_in_file(path_of(target), reading.value_of_shape(node.shape), node.dtype)
        write_view(moved, data)
        return moved
    return _read_later(node, target) if is_on_disk(source) else copy_node(node, target)


def _read_later(node: UOp, device: str) -> UOp:
    """The elements of a view of a file on another device.

    They are read when they are computed there; those of a grid with gaps now. What is neither, as with padding, needs all
    that it is a view of.
    """
    refuse_recording("read")
    if not prod(node.shape):
        return reshape_node(host_buffer(b"", node.dtype, device), node.shape)
    position = _position_of(node)
    if position is None:
        buffer = _buffer_below(node)
        return node.substitute({buffer: _read_later(buffer, device)})
    data: Any = (
        memoryview(_bytes_between(position)) if position.is_row_major else _gathered(position)
    )
    return reshape_node(host_buffer(data, node.dtype, device), node.shape)


def reinterpreted(node: UOp, dtype: DType) -> UOp:
    """The same bytes of a file as elements of another type, which change the size of the last axis.

    Raises: DtypeError for bytes that are no whole number of elements, ShapeError for elements that are apart.
    """
    shape = node.shape or (1,)
    size_bytes = shape[-1] * node.dtype.itemsize
    if size_bytes % dtype.itemsize or (not node.shape and dtype.itemsize != node.dtype.itemsize):
        raise DtypeError(
            f"the {shape[-1]} elements of {node.dtype} in the last axis of {show(node.shape)} are no"
            f" whole number of {dtype}"
        )
    result = (*shape[:-1], size_bytes // dtype.itemsize) if node.shape else ()
    if not prod(node.shape):
        return node_in_file(_file_below(node).path, result, dtype)
    position = _position_of(node)
    if position is None or not position.is_row_major:
        raise ShapeError(
            f"bitcast of elements of {_file_below(node).path} that do not follow each other; move them first,"
            f" with .to({Device.DEFAULT!r})"
        )
    return node_in_file(position.path, result, dtype, position.offset_bytes)


# -- reading and writing --------------------------------------------------------------------------


def bytes_of_view(node: UOp) -> bytearray:
    """The elements that a view shows of a file, in row-major order. Of a grid only these are read.

    Raises: OSError, ValueError if the file ends before.
    """
    if not prod(node.shape):
        return bytearray()
    refuse_recording("read")
    position = _position_of(node)
    if position is None:
        return reading.read(_read_later(node, Device.DEFAULT), Device.DEFAULT)
    return _read(position) if position.is_row_major else _gathered(position)


def write_view(node: UOp, data: bytes | bytearray) -> None:
    """Write row-major bytes to the elements that a view shows of a file, which becomes long enough.

    Raises: OSError, ValueError for a view that shows an element twice.
    """
    refuse_recording("written")
    path = _file_below(node).path
    if not data:
        make_file(f"{DISK}:{path}", 0)
        return
    position = _position_of(node)
    if position is None:
        raise ValueError(
            f"cannot write to this view of {path}: it has padding, or its elements are not at equal"
            f" distances"
        )
    with open(path, "r+b" if os.path.exists(path) else "x+b") as file:
        if position.is_row_major:
            file.seek(position.offset_bytes)
            file.write(data)
            return
        if any(
            size > 1 and not s
            for size, s in zip(position.shape, position.strides_bytes, strict=True)
        ):
            raise ValueError(
                f"cannot write to a view of {path} that shows an element several times"
            )
        if os.fstat(file.fileno()).st_size < position.end_byte:
            file.truncate(position.end_byte)
    import numpy

    mapped = _bytes_between(position, mode="r+")
    elements = _elements(position, mapped)
    elements[...] = numpy.frombuffer(data, elements.dtype).reshape(position.shape)
    mapped.flush()


def refuse_recording(done: str) -> None:
    """Raises: JitError while somebody records."""
    if recorder() is not None:
        raise JitError(
            f"a file is {done} while a function is recorded, and a replay would not do so again; do it"
            f" outside, and give what was read as an argument"
        )


def _read(position: _Position) -> bytearray:
    size_bytes = prod(position.shape) * position.itemsize
    _check_end(position)
    data = bytearray(size_bytes)
    with open(position.path, "rb", buffering=0) as file:
        file.seek(position.offset_bytes)
        view, done = memoryview(data), 0
        while done < size_bytes and (count := file.readinto(view[done:])):
            done += count
    if done < size_bytes:
        raise ValueError(
            f"{position.path} ended after {done} of {size_bytes} bytes while it was read"
        )
    return data


def _gathered(position: _Position) -> bytearray:
    import numpy

    return bytearray(
        numpy.ascontiguousarray(_elements(position, _bytes_between(position))).tobytes()
    )


def _bytes_between(position: _Position, mode: Any = "r") -> Any:
    """The bytes from the first to the last element, mapped: a page is read when it is looked at."""
    import numpy

    _check_end(position)
    span = position.end_byte - position.first_byte
    return numpy.memmap(position.path, numpy.uint8, mode, position.first_byte, (span,))


def _elements(position: _Position, mapped: Any) -> Any:
    import numpy

    begin = position.offset_bytes - position.first_byte
    kind = numpy.dtype(f"u{position.itemsize}")
    return numpy.ndarray(position.shape, kind, mapped.data, begin, position.strides_bytes)


def _check_end(position: _Position) -> None:
    size_bytes = os.path.getsize(position.path)
    if position.end_byte > size_bytes:
        raise ValueError(
            f"{position.path} has {size_bytes} bytes, and the elements of this Tensor end at byte"
            f" {position.end_byte}"
        )


def _buffer_below(node: UOp) -> UOp:
    while node.op in MOVEMENT or node.op is Ops.DETACH:
        node = node.src[0]
    return node


def _file_below(node: UOp) -> FilePart:
    """Raises: DeviceError where this is no view of a file."""
    node = _buffer_below(node)
    memory = memory_of(node) if node.op is Ops.BUFFER else None
    if not isinstance(memory, FilePart):
        raise DeviceError(
            "values are not computed on disk: make the Tensor on another device, and write it to the"
            " file with .to('disk:...')"
        )
    return memory


def _position_of(node: UOp) -> _Position | None:
    """Where the elements of a view are; None if they are no grid in the file."""
    file = _file_below(node)
    itemsize = node.dtype.itemsize
    found = view_info(node)
    if found.strides is None or found.offset is None or found.mask is not None or found.condition:
        return None
    strides = tuple([stride * itemsize for stride in found.strides])
    return _Position(
        file.path, file.offset_bytes + found.offset * itemsize, strides, node.shape, itemsize
    )
