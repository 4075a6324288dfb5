"""`from proofgrad.dtype import dtypes, DType`, as programs for tinygrad write it."""

from proofgrad.core.ir.dtypes import DType, PtrDType, dtypes
from proofgrad.core.ir.places import AddrSpace

__all__ = ["AddrSpace", "DType", "PtrDType", "dtypes"]
