"""Types and constants of WGSL.

Owns: which WGSL type holds a value of each type, in registers and in memory. Does not own: operations (functions.py).

WGSL has numbers of 32 bits, and of 64 where the device has `shader-int64`. A narrower integer is held in 32 bits, always
extended from its own width; a float16, bfloat16 or 8-bit float as its bits in a u32. In memory two or four of them share a
word.
"""

from __future__ import annotations

import math

from proofgrad.core.compile.machine.target import CompileError
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.evaluate import to_bits

WORD = 32
_SMALLEST_NORMAL = 2.0**-126


def is_bits(dtype: DType) -> bool:
    """Whether it is a float that is held as its bits."""
    return dtype in (dtypes.float16, dtypes.bfloat16) or dtype.is_code


def is_small(dtype: DType) -> bool:
    """Whether several elements share a word of memory."""
    return dtype.is_bool or dtype.bits < WORD


def register_type(dtype: DType) -> str:
    """The WGSL type of a value in a register. Raises: CompileError for what WGSL has not."""
    if dtype.lanes == 1:
        if dtype.is_bool:
            return "bool"
        if is_bits(dtype):
            return "u32"
        if dtype is dtypes.float32:
            return "f32"
        if dtype.is_int:
            return f"{'u' if dtype.is_unsigned else 'i'}{64 if dtype.bits == 64 else WORD}"
    raise CompileError(
        f"WGSL has no values of {dtype!r}; cast to a type that it has, or compute this on another device"
    )


def memory_bits(dtype: DType) -> int:
    """Bits of an element in memory."""
    return 8 if dtype.is_bool else dtype.bits


def constant(value: float, dtype: DType) -> str:
    """A constant as WGSL that means exactly `value`."""
    kind = register_type(dtype)
    if dtype.is_bool:
        return "true" if value else "false"
    if is_bits(dtype):
        return f"{to_bits(value, dtype):#06x}u"
    if kind == "f32":
        return _float(float(value))
    suffix = {"i32": "i", "u32": "u", "i64": "li", "u64": "lu"}[kind]
    if value == dtype.lo and value < 0:  # there are no negative literals
        return f"({int(value) + 1}{suffix} - 1{suffix})"
    return f"({int(value)}{suffix})" if value < 0 else f"{int(value)}{suffix}"


def _float(value: float) -> str:
    """A literal must be finite, and a denormal one may be taken for 0: such are given by their bits."""
    if not math.isfinite(value) or 0 < abs(value) < _SMALLEST_NORMAL:
        return f"float_of({to_bits(value, dtypes.float32):#010x}u)"
    text = f"{value!r}f"
    return f"({text})" if text.startswith("-") else text
