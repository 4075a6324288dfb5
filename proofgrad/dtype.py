"""`from proofgrad.dtype import dtypes, DType`, as programs for tinygrad write it."""

import functools

from proofgrad.core.ir.dtypes import DType, PtrDType, dtypes
from proofgrad.core.ir.positions import AddrSpace
from proofgrad.core.tensor.data.promotion import as_dtype as to_dtype
from proofgrad.core.tensor.data.promotion import promote

__all__ = [
    "AddrSpace",
    "ConstType",
    "DType",
    "DTypeLike",
    "PtrDType",
    "dtypes",
    "least_upper_dtype",
    "least_upper_float",
    "to_dtype",
]

ConstType = float | int | bool
DTypeLike = str | DType


def least_upper_dtype(*kinds: DType) -> DType:
    """The type of a result of operands of these types."""
    return functools.reduce(promote, kinds)


def least_upper_float(kind: DType) -> DType:
    """The type itself if it is one of floats, else the default one."""
    return kind if kind.is_float else dtypes.default_float
