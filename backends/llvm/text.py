"""LLVM's spelling of types and constants.

Owns: which LLVM type holds a value of each type, in registers and in memory, and literals. Does not
own: instructions.

A bool is i1 in a register and i8 in memory. A bfloat16 is its 16 bits (i16) in both: LLVM's own
bfloat conversions flush denormals on some machines and need library calls on others.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from proofgrad.core.ir.dtypes import DType, Kind, dtypes
from proofgrad.core.ir.evaluate import to_bits

_FLOATS = {"float16": "half", "bfloat16": "i16", "float32": "float", "float64": "double"}
_CODES = {"half": "f16", "float": "f32", "double": "f64"}


@cache
def register_type(dtype: DType) -> str:
    """The type of a value in a register: `i1`, `float`, `<8 x i32>`."""
    return _with_lanes(_scalar_type(dtype), dtype.lanes)


@cache
def memory_type(dtype: DType) -> str:
    """The type of a value in memory: as in a register, but `i8` for bools."""
    return _with_lanes("i8" if dtype.is_bool else _scalar_type(dtype), dtype.lanes)


@cache
def _scalar_type(dtype: DType) -> str:
    match dtype.kind:
        case Kind.BOOL:
            return "i1"
        case Kind.SIGNED | Kind.UNSIGNED | Kind.CODE:
            return f"i{dtype.bits}"
        case Kind.FLOAT:
            return _FLOATS[dtype.scalar.name]
        case _:
            raise ValueError(f"Linear has no values of {dtype!r}; index terms need a width before")


def _with_lanes(scalar: str, lanes: int) -> str:
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


def type_code(llvm_type: str) -> str:
    """The type as it stands in the names of intrinsics: `f32`, `v16i32`."""
    if not llvm_type.startswith("<"):
        return _CODES.get(llvm_type, llvm_type)
    lanes, _, scalar = llvm_type[1:-1].partition(" x ")
    return f"v{lanes}{_CODES.get(scalar, scalar)}"


def literal(value: Any, dtype: DType) -> str:
    """A constant of `dtype`; a scalar value of a vector type stands in every lane."""
    if dtype.lanes == 1:
        return _scalar_literal(value, dtype)
    scalar_type = _scalar_type(dtype)
    if not isinstance(value, tuple):
        return f"splat ({scalar_type} {_scalar_literal(value, dtype)})"
    lanes = ", ".join([f"{scalar_type} {_scalar_literal(v, dtype)}" for v in value])
    return f"<{lanes}>"


def _scalar_literal(value: Any, dtype: DType) -> str:
    match dtype.scalar:
        case dtypes.bool:
            return "true" if value else "false"
        case narrow if narrow is dtypes.bfloat16 or narrow.is_code:
            return str(to_bits(value, dtype.scalar))
        case dtypes.float16:
            return f"0xH{to_bits(value, dtypes.float16):04X}"
        case dtypes.float32 | dtypes.float64:  # LLVM writes a float by the bits of its double
            return f"0x{to_bits(value, dtypes.float64):016X}"
        case _:
            return str(value)
