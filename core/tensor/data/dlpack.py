"""DLPack: memory shared with other array libraries, in both directions and without a copy.

Owns: the C structures, capsules, and who keeps memory alive. Does not own: when a Tensor may be
shared (interop.py). Source: dmlc/dlpack, include/dlpack/dlpack.h, versions 0.8 and 1.1; the
protocol: array API standard, "Data interchange mechanisms".
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from proofgrad.core.ir.dtypes import DType, Kind, dtypes
from proofgrad.core.ir.shapes import Shape, row_major_strides

CPU = 1  # kDLCPU
VERSION = (1, 1)
_IS_COPIED = 2  # a flag of versioned capsules
_CODES = {Kind.SIGNED: 0, Kind.UNSIGNED: 1, Kind.FLOAT: 2, Kind.BOOL: 6}
_CODES_OF_TYPES = {
    dtypes.bfloat16: 4, dtypes.fp8e4m3: 10, dtypes.fp8e4m3fnuz: 11, dtypes.fp8e5m2: 12,
    dtypes.fp8e5m2fnuz: 13,
}  # fmt: skip
_OLD, _NEW = b"dltensor", b"dltensor_versioned"
_USED = {_OLD: b"used_dltensor", _NEW: b"used_dltensor_versioned"}  # a capsule keeps no copy of it


class _Device(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("number", ctypes.c_int32))


class _Type(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Array(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("ndim", ctypes.c_int32),
        ("dtype", _Type),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Old(ctypes.Structure):
    _fields_ = (("array", _Array), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _New(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("array", _Array),
    )


_api = ctypes.pythonapi
_Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _Destructor)(
    ("PyCapsule_New", _api)
)
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _api)
)
_pointer_at = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)
_pointer_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)
_has_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _api)
)
_set_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", _api)
)

# What is shared stays alive until its consumer calls the deleter: by the address of the structure.
_SHARED: dict[int, tuple[Any, ...]] = {}


def _forget(address: int) -> None:
    _SHARED.pop(address, None)


def _drop_capsule(capsule: int) -> None:
    """Of a capsule that nobody consumed; consumers rename theirs."""
    for name in (_OLD, _NEW):
        if _is_valid(capsule, name):
            _forget(_pointer_at(capsule, name))


_FORGET, _DROP_CAPSULE = _Deleter(_forget), _Destructor(_drop_capsule)


def export(
    address: int, shape: Shape, dtype: DType, keep: object, versioned: bool, copied: bool
) -> Any:
    """A capsule for row-major elements at `address`; `keep` stays alive as long as it is used."""
    sizes = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    strides = (ctypes.c_int64 * max(1, len(shape)))(*row_major_strides(shape))
    code = _code_of(dtype)
    array = _Array(
        address, _Device(CPU, 0), len(shape), _Type(code, dtype.itemsize * 8, 1), sizes, strides, 0
    )
    deleter = ctypes.cast(_FORGET, ctypes.c_void_p)
    whole: _Old | _New
    if versioned:
        whole = _New(*VERSION, None, deleter, _IS_COPIED if copied else 0, array)
    else:
        whole = _Old(array, None, deleter)
    position = ctypes.addressof(whole)
    _SHARED[position] = (whole, sizes, strides, keep)
    return _new_capsule(position, _NEW if versioned else _OLD, _DROP_CAPSULE)


@dataclass(slots=True)
class Foreign:
    """Row-major memory of another library, given back when this is dropped."""

    address: int
    shape: Shape
    dtype: DType
    is_row_major: bool
    structure: int
    deleter: int

    def __del__(self, call: Callable[[int], Callable[[int], None]] = _Deleter) -> None:
        if self.deleter:  # `call` is bound early: modules are empty when the interpreter ends
            call(self.deleter)(self.structure)


def consume(capsule: Any) -> Foreign:
    """The memory of a capsule, which cannot be used again. Raises: BufferError, TypeError."""
    name = next((name for name in (_NEW, _OLD) if _has_name(capsule, name)), None)
    if name is None:
        raise BufferError("this is no DLPack capsule, or it was used before")
    kind = _New if name == _NEW else _Old
    position = _pointer_in(capsule, name)
    whole = kind.from_address(position)
    array = whole.array
    if array.device.kind != CPU:
        raise BufferError(
            f"the memory is on DLPack device {array.device.kind}; only memory of the CPU can be"
            f" shared: copy it there first"
        )
    shape = tuple([array.shape[k] for k in range(array.ndim)])
    dtype = _dtype_of(array.dtype)
    _set_name(capsule, _USED[name])
    strides = (
        tuple([array.strides[k] for k in range(array.ndim)])
        if array.strides
        else row_major_strides(shape)
    )
    return Foreign(
        (array.data or 0) + array.byte_offset,
        shape,
        dtype,
        _is_row_major(shape, strides),
        position,
        whole.deleter or 0,
    )


def _code_of(dtype: DType) -> int:
    """DLPack's number of a type, apart from its width."""
    return _CODES_OF_TYPES[dtype] if dtype in _CODES_OF_TYPES else _CODES[dtype.kind]


def _dtype_of(kind: _Type) -> DType:
    for dtype in (*dtypes.all, *dtypes.fp8s):
        if (kind.code, kind.bits, kind.lanes) == (_code_of(dtype), dtype.itemsize * 8, 1):
            return dtype
    raise BufferError(
        f"no dtype for DLPack's type code {kind.code} of {kind.bits} bits and {kind.lanes} lanes"
    )


def bytes_at(address: int, size: int) -> bytes:
    """A copy of the bytes at an address."""
    return ctypes.string_at(address, size)


def readable(address: int, size: int, keep: object) -> memoryview:
    """The bytes at an address; `keep` stays alive as long as they are used."""
    memory = (ctypes.c_char * size).from_address(address)
    memory.keep = keep  # type: ignore[attr-defined]
    return memoryview(memory).toreadonly()


def owned(data: bytearray) -> tuple[int, object]:
    """The address of bytes, and what must be kept for it to stay valid."""
    owner = (ctypes.c_char * len(data)).from_buffer(data)
    return ctypes.addressof(owner), owner


def _is_row_major(shape: Sequence[int], strides: Sequence[int]) -> bool:
    expected = row_major_strides(shape)
    return not prod(shape) or all(
        size == 1 or step == wanted for size, step, wanted in zip(shape, strides, expected)
    )
