"""`from proofgrad.dtype import dtypes, DType`, as programs for tinygrad write it: types, and numbers in them.

Owns: the names. Does not own: what the types are (core/ir/dtypes.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from proofgrad.core.ir.dtypes import DType, PtrDType, dtypes, round_float, wrap_int
from proofgrad.core.ir.evaluate import from_bits, to_bits
from proofgrad.core.ir.positions import AddrSpace
from proofgrad.core.tensor.data.promotion import as_dtype as to_dtype
from proofgrad.core.tensor.data.promotion import promote

__all__ = [
    "DTYPES_DICT",
    "AddrSpace",
    "ConstType",
    "DType",
    "DTypeLike",
    "PtrDType",
    "_from_np_dtype",
    "_from_torch_dtype",
    "_to_np_dtype",
    "_to_torch_dtype",
    "can_lossless_cast",
    "dtypes",
    "float_to_bf16",
    "float_to_fp8",
    "float_to_fp16",
    "fp8_to_float",
    "least_upper_dtype",
    "least_upper_float",
    "sum_acc_dtype",
    "to_dtype",
    "truncate",
]

ConstType = float | int | bool
DTypeLike = str | DType
DTYPES_DICT: dict[str, DType] = {
    name: value
    for name, value in vars(dtypes).items()
    if value in (*dtypes.all, *dtypes.fp8s) and not name.startswith("default_")
}


def least_upper_dtype(*kinds: DType) -> DType:
    """The type of a result of operands of these types."""
    return functools.reduce(promote, kinds)


def least_upper_float(kind: DType) -> DType:
    """The type itself if it is one of floats, else the default one."""
    return kind if kind.is_float else dtypes.default_float


def sum_acc_dtype(kind: DType) -> DType:
    """The type in which a sum of elements of this type is computed: at least 32 bits of the same kind."""
    if kind.is_bool or kind.is_int:
        return least_upper_dtype(kind, dtypes.uint32 if kind.is_unsigned else dtypes.int32)
    return least_upper_dtype(kind, dtypes.float32)


def can_lossless_cast(kind: DType, to: DType) -> bool:
    """Does `to` have every number of `kind`?"""
    if kind is to or kind.is_bool:
        return True
    if to.is_bool or (dtypes.is_float(kind) and not dtypes.is_float(to)):
        return False
    if dtypes.is_float(kind):
        exponent, fraction = dtypes.finfo(kind)
        wider = dtypes.finfo(to)
        return exponent <= wider[0] and fraction <= wider[1] and not _loses_a_value(kind, to)
    if dtypes.is_float(to):
        return kind.bits - (not kind.is_unsigned) <= dtypes.finfo(to)[1] + 1 and (
            dtypes.max(kind) <= 2.0 ** (2 ** (dtypes.finfo(to)[0] - 1) - 1)
        )
    return bool(dtypes.min(to) <= dtypes.min(kind) and dtypes.max(kind) <= dtypes.max(to))


def _loses_a_value(kind: DType, to: DType) -> bool:
    """Of 8-bit floats that `to` would hold: is there a code that it has not?"""
    if not kind.is_code:
        return False
    values = [from_bits(code, kind) for code in range(256)]
    return any([value == value and round_float(value, to) != value for value in values])


def float_to_fp16(x: float) -> float:
    """The float16 nearest to `x`."""
    return round_float(float(x), dtypes.float16)


def float_to_bf16(x: float) -> float:
    """The bfloat16 nearest to `x`."""
    return round_float(float(x), dtypes.bfloat16)


def float_to_fp8(x: float, dtype: DType) -> int:
    """The code of the 8-bit float nearest to `x`. Raises: ValueError for another type."""
    return to_bits(round_float(float(x), _code(dtype)), dtype)


def fp8_to_float(x: int, dtype: DType) -> float:
    """What the code of an 8-bit float means. Raises: ValueError for another type."""
    return float(from_bits(x, _code(dtype)))


def _code(dtype: DType) -> DType:
    if not dtype.is_code:
        raise ValueError(f"{dtype} is no 8-bit float; there are {dtypes.fp8s}")
    return dtype


def _in_range(dtype: DType) -> Callable[[Any], Any]:
    if dtype.is_bool:
        return bool
    if dtype.is_int:
        return lambda x: wrap_int(int(x), dtype)
    return lambda x: round_float(float(x), dtype)


# By type: a Python number as that type holds it; ints wrap around.
truncate: dict[DType, Callable[[Any], Any]] = {
    dtype: _in_range(dtype) for dtype in (*dtypes.all, *dtypes.fp8s)
}


def _to_np_dtype(dtype: DType) -> Any:
    """The type of numpy, float32 for bfloat16 and 8-bit floats, which numpy lacks."""
    import numpy

    is_lacking = dtype.is_code or dtype is dtypes.bfloat16
    return numpy.float32 if is_lacking else numpy.dtype(dtype.name).type


def _from_np_dtype(npdtype: Any) -> DType:
    """The type that numpy calls so. Raises: DtypeError."""
    import numpy

    return to_dtype(numpy.dtype(npdtype).name)


def _to_torch_dtype(dtype: DType) -> Any:
    """The type of torch; that of bytes for 8-bit floats."""
    import torch

    return torch.uint8 if dtype.is_code else getattr(torch, dtype.name)


def _from_torch_dtype(torchdtype: Any) -> DType:
    """The type that torch calls so. Raises: DtypeError."""
    name = str(torchdtype).removeprefix("torch.")
    return to_dtype(name.replace("float8_", "fp8").removesuffix("fn"))
