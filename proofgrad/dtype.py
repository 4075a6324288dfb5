"""`from proofgrad.dtype import dtypes, DType`, as programs for tinygrad write it."""

from proofgrad.core.ir.dtypes import DType, PtrDType, dtypes

__all__ = ["DType", "PtrDType", "dtypes"]
