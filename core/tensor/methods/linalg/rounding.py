"""Factors of products of matrices, rounded to 11 binary digits where ALLOW_TF32=1 asks for it.

Owns: which factors, and that the products of a gradient are asked for, too. Does not own: the products (products.py), what rounding is
(Ops.TF32), which machine multiplies such factors faster (MatrixUnit).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from proofgrad.core import settings
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.methods.custom_vjp import CustomGradient


def are_rounded(total: DType, *types: DType) -> bool:
    """Whether factors of these types are rounded: in sums of float32, those of float16 alone have no more digits."""
    is_float32 = total is dtypes.float32 and dtypes.float32 in types
    return is_float32 and settings.allows_tf32()


def rounded(x: Any) -> Any:
    """Each element rounded to 11 digits; a gradient passes as it is."""
    return x._unary(Ops.TF32)


def with_rounded_gradient(y: Any) -> Any:
    """A sum of products whose gradient is rounded, for it is a factor of the gradients of both factors."""
    # mypy takes the __hash__ of Tensors for that of their class.
    mark = _mark(type(y), y.device)  # type: ignore[arg-type]
    return y._with(UOp(Ops.DETACH, y.dtype, (y._uop, y._uop), mark))


@lru_cache(maxsize=64)
def _mark(kind: Any, device: str) -> CustomGradient:
    """One for all products alike, so that equal graphs are one."""
    return CustomGradient(lambda gradient, _: rounded(gradient), "a rounded product", kind, device)
