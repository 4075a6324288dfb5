"""Python numbers to the bytes of a buffer and back, without numpy.

Owns: shapes and types of nested lists, packing, unpacking, the error for a number that does not
fit. Does not own: where the bytes live (memory.py).
"""

from __future__ import annotations

import array
import struct
from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

from proofgrad.core.ir.dtypes import DType, as_constant, dtypes, round_float
from proofgrad.core.ir.evaluate import from_bits, to_bits
from proofgrad.core.ir.shapes import Shape, ShapeError
from proofgrad.core.tensor.data.errors import DtypeError, RangeError
from proofgrad.core.tensor.data.promotion import scalar_dtype

_CODES = {
    dtypes.int8: "b", dtypes.uint8: "B", dtypes.int16: "h", dtypes.uint16: "H", dtypes.int32: "i",
    dtypes.uint32: "I", dtypes.int64: "q", dtypes.uint64: "Q", dtypes.float32: "f",
    dtypes.float64: "d",
}  # fmt: skip
_TRUTHS = bytes(
    [byte != 0 for byte in range(256)]
)  # a byte of a bool of other libraries may be any


def flatten_nested(data: Any) -> tuple[Shape, list[Any]]:
    """Shape and elements of nested lists. Raises: ShapeError if they are ragged."""
    shape: list[int] = []
    level = [data]
    while level and isinstance(level[0], (list, tuple, range)):
        size = len(level[0])
        for item in level:
            if not isinstance(item, (list, tuple, range)) or len(item) != size:
                found = f"{len(item)}" if isinstance(item, (list, tuple, range)) else repr(item)
                raise ShapeError(
                    f"ragged lists: on axis {len(shape)} one part has {size} elements and another"
                    f" {found}; all parts of a level must have the same length"
                )
        shape.append(size)
        level = [element for item in level for element in item]
    if any([issubclass(kind, (list, tuple, range)) for kind in set(map(type, level))]):
        beside = next(element for element in level if isinstance(element, (list, tuple, range)))
        raise ShapeError(f"ragged lists: {beside!r} stands beside a number")
    return tuple(shape), level


def infer_dtype(elements: Iterable[Any]) -> DType:
    """bool, default int or default float, whichever holds all kinds of numbers found."""
    kinds = set(map(type, elements))
    if not kinds or any([issubclass(kind, float) for kind in kinds]):
        return dtypes.default_float
    if all([issubclass(kind, bool) for kind in kinds]):
        return dtypes.bool
    strange = [kind for kind in kinds if not issubclass(kind, int)]
    if strange:
        raise DtypeError(
            f"cannot make a Tensor of {strange[0].__name__} elements; expected bool, int or float"
        )
    return scalar_dtype(0)


def pack(elements: Sequence[Any], dtype: DType) -> bytes:
    """The bytes of `elements` as `dtype`. Raises: OverflowError naming the number."""
    try:
        return _pack(elements, dtype)
    except OverflowError as error:
        raise RangeError(_misfit(elements, dtype) or str(error)) from None
    except (TypeError, ValueError) as error:
        raise DtypeError(f"cannot store these elements as {dtype}: {error}") from None


def _misfit(elements: Sequence[Any], dtype: DType) -> str:
    """What is said of the first number that does not fit."""
    try:
        for element in elements:
            as_constant(element, dtype)
    except OverflowError as error:
        return str(error)
    return ""


def _pack(elements: Sequence[Any], dtype: DType) -> bytes:
    if dtype is dtypes.float32 or dtype is dtypes.float64:  # most often
        return array.array(_CODES[dtype], elements).tobytes()
    if dtype is dtypes.bool:
        return bytes(map(bool, elements))
    if dtype is dtypes.float16:
        return struct.pack(f"<{len(elements)}e", *[round_float(float(e), dtype) for e in elements])
    if dtype.is_code:
        return bytes([to_bits(round_float(float(e), dtype), dtype) for e in elements])
    if dtype is dtypes.bfloat16:
        singles = array.array("f", [round_float(float(e), dtype) for e in elements]).tobytes()
        halves = bytearray(len(singles) // 2)
        halves[0::2], halves[1::2] = singles[2::4], singles[3::4]
        return bytes(halves)
    return array.array(_CODES[dtype], [int(e) for e in elements]).tobytes()


def unpack(data: bytes | bytearray, dtype: DType) -> list[Any]:
    """The Python numbers in the bytes of a buffer."""
    if dtype is dtypes.float32:  # most often
        return array.array("f", data).tolist()
    if dtype is dtypes.bool:
        return memoryview(data.translate(_TRUTHS)).cast("?").tolist()
    if dtype is dtypes.float16:
        return list(struct.unpack(f"<{len(data) // 2}e", data))
    if dtype.is_code:
        numbers = [from_bits(code, dtype) for code in range(256)] if len(data) > 256 else None
        return [from_bits(code, dtype) if numbers is None else numbers[code] for code in data]
    if dtype is dtypes.bfloat16:
        widened = bytearray(2 * len(data))
        widened[2::4], widened[3::4] = data[0::2], data[1::2]
        return array.array("f", widened).tolist()
    return array.array(_CODES[dtype], data).tolist()


def nest(elements: list[Any], shape: Shape) -> Any:
    """The elements in row-major order as nested lists of `shape`; a number for ()."""
    if not shape:
        return elements[0]
    for axis in range(len(shape) - 1, 0, -1):
        size = shape[axis]
        count = prod(shape[:axis])
        elements = [elements[k * size : (k + 1) * size] for k in range(count)]
    return elements
