"""What `Tensor(...)` is given, as a graph: a number, nested lists, bytes, an array, a file, a variable, a graph.

Owns: what each of them means, and that elements are copied. Does not own: packing (core/tensor/data/storage.py), constants and
counters (factories.py).
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import Shape, ShapeError, at_least, sizes
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.arguments import normal_size, plain_number
from proofgrad.core.tensor.data.errors import DtypeError
from proofgrad.core.tensor.data.nodes import broadcast_node, reshape_node
from proofgrad.core.tensor.data.storage import flatten_nested, infer_dtype, pack
from proofgrad.core.tensor.methods.base import TensorBase
from proofgrad.core.tensor.methods.disk import moved_node, node_in_file, path_of, size_of_file
from proofgrad.core.tensor.methods.movement.joining import Movement
from proofgrad.core.tensor.runtime.device import DISK, canonical_device
from proofgrad.core.tensor.runtime.known_runs import SMALL_BYTES
from proofgrad.core.tensor.runtime.memory import copied_buffer, host_buffer
from proofgrad.core.tensor.runtime.scheduling import shown

_NUMBERS = frozenset({bool, int, float})
_NUMPY_NAMES = {d.name: d for d in dtypes.all if d is not dtypes.bfloat16}


def node_of(owner: Movement, data: Any, dtype: DType | None) -> UOp:
    """The graph of what a Tensor is made of, on the device of its owner. Raises: ShapeError, DtypeError, OverflowError."""
    if isinstance(data, UOp) and data.dtype is dtypes.index:
        return _node_of_size(data, dtype or dtypes.default_int)
    if isinstance(data, UOp):
        return data if dtype is None else data.cast(dtype)
    if isinstance(data, TensorBase):
        same = data.device == owner.device
        node = shown(data._uop)
        moved = node if same else moved_node(node, data.device, owner.device)
        return moved if dtype is None else moved.cast(dtype)
    if isinstance(data, (bytes, bytearray, memoryview)):
        raw, kind = memoryview(data), dtype or dtypes.uint8
        raw = raw if raw.c_contiguous else memoryview(bytes(raw))
        if raw.nbytes % kind.itemsize:
            raise ShapeError(f"{raw.nbytes} bytes are no whole number of {kind} elements")
        return copied_buffer(raw, kind, owner.device)
    if hasattr(data, "__array__"):
        return _node_of_array(owner, data, dtype)
    return _node_of_lists(owner, [] if data is None else data, dtype)


def file_node(path: Path, dtype: DType | None) -> tuple[UOp, str]:
    """All of a file, as elements of uint8 or `dtype`, and its device. Raises: OSError, ShapeError for a part of an element."""
    device, kind = canonical_device(f"{DISK}:{path}"), dtype or dtypes.uint8
    name = path_of(device)
    return node_in_file(name, (size_of_file(name, kind),), kind), device


def _node_of_lists(owner: Movement, data: Any, dtype: DType | None) -> UOp:
    shape, elements = flatten_nested(data)
    if not _NUMBERS.issuperset(map(type, elements)):
        if any([isinstance(element, (TensorBase, UOp)) for element in elements]):
            return _node_of_tensors(owner, shape, elements, dtype)
        if all([hasattr(element, "__array__") for element in elements]):
            import numpy

            return _node_of_array(owner, numpy.array(data), dtype)
        elements = plain_number(elements)  # there are some of numpy among them
    kind = infer_dtype(elements) if dtype is None else dtype
    return reshape_node(copied_buffer(memoryview(pack(elements, kind)), kind, owner.device), shape)


def _node_of_tensors(
    owner: Movement, shape: Shape, elements: list[Any], dtype: DType | None
) -> UOp:
    """Lists of Tensors of one shape, which become the last axes."""
    parts = [e if isinstance(e, Movement) else type(owner)(e, owner.device) for e in elements]
    inner = parts[0].shape
    if any(part.shape != inner for part in parts):
        raise ShapeError(f"a list of Tensors of different shapes: {[p.shape for p in parts]}")
    whole: Movement = type(owner).stack(*parts).reshape(shape + inner)
    return whole._uop if dtype is None else whole._uop.cast(dtype)


def _node_of_array(owner: Movement, data: Any, dtype: DType | None) -> UOp:
    """A numpy array or scalar, or anything that can become one. The elements are copied."""
    import numpy

    array = numpy.asarray(data)
    kind, is_turned = _kind_of(array.dtype)
    if kind is None:
        raise DtypeError(f"cannot make a Tensor of a numpy array of type {array.dtype}")
    if is_turned:
        array = array.astype(array.dtype.newbyteorder("<"))
    if array.nbytes <= SMALL_BYTES:
        line = host_buffer(array.tobytes(), kind, owner.device)
    else:
        ordered: Any = numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8)
        line = copied_buffer(memoryview(ordered), kind, owner.device)
    node = reshape_node(line, array.shape)
    return node if dtype is None else node.cast(dtype)


@lru_cache(maxsize=64)
def _kind_of(dtype: Any) -> tuple[DType | None, bool]:
    """The type that a type of numpy is, if it is one, and whether its bytes are in the other order."""
    return _NUMPY_NAMES.get(dtype.name), dtype != dtype.newbyteorder("<")


def _node_of_size(size: UOp, dtype: DType) -> UOp:
    """The value of a size that is made of variables: so many ones, added."""
    length = normal_size(size)
    if isinstance(length, int):
        return UOp.const(dtype, length)
    if not at_least(length, 0):
        more, less = [_node_of_size(part, dtype) for part in sizes().positive_parts(length)]
        return UOp(Ops.ADD, dtype, (more, UOp(Ops.NEG, dtype, (less,))))
    ones = broadcast_node(UOp.const(dtype, 1), (length,))
    return reshape_node(UOp(Ops.REDUCE_AXIS, dtype, (ones,), (Ops.ADD, (0,))), ())
