"""Instructions of x86 that do what takes several others: the larger of two floats.

Owns: their text. Does not own: other instructions (arithmetic.py), which machines have them (a dialect).

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, VRANGEPS. Vectors have 128, 256 or
512 bits; fewer elements are the first lanes of one. VSCALEFPS would apply a power of two in one instruction, but its denormal results and
those of -inf, as a softmax under a mask has, take it over a hundred cycles: six times as long for such a row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from proofgrad.backends.llvm.text import literal, register_type
from proofgrad.backends.llvm.writer import Writer
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops

WIDTHS = (128, 256, 512)
_TYPES = {dtypes.float32: "ps", dtypes.float64: "pd"}


def write_extreme(
    writer: Writer, op: Ops, dtype: DType, operands: Sequence[str], _: int | None = None
) -> str:
    """Three instructions where LLVM knows six: VRANGE orders zeros, and drops NaNs. Five of AVX before AVX-512."""
    has_any = writer.dialect.has_avx512 or writer.dialect.has_vector_masks
    if not has_any or (wide := _vector_of(dtype)) is None:
        return writer.call("maximum" if op is Ops.MAX else "minimum", dtype, operands)
    x, y = [_widened(writer, dtype, wide, operand) for operand in operands]
    if not writer.dialect.has_avx512:
        return _narrowed(writer, wide, dtype, _by_both_orders(writer, op, wide, x, y))
    chosen = _call(writer, "range", wide, (x, y), f"i32 {5 if op is Ops.MAX else 4}, ")
    unordered = writer.let(f"fcmp uno {register_type(wide)} {x}, {y}")
    found = writer.select(unordered, wide, literal(math.nan, wide), chosen)
    return _narrowed(writer, wide, dtype, found)


def _by_both_orders(writer: Writer, op: Ops, dtype: DType, x: str, y: str) -> str:
    """The larger of x and y, and of y and x, which differ where both are 0 or one is NaN: bits that both have, or all where one is NaN.

    MAXPS gives its second operand there. Of the smaller ones the bits that one of them has are those of -0.0.
    """
    vector, bits = register_type(dtype), register_type(_integers(dtype))
    order, join = ("ogt", "and") if op is Ops.MAX else ("olt", "or")
    found = []
    for one, other in ((x, y), (y, x)):
        is_first = writer.let(f"fcmp {order} {vector} {one}, {other}")
        chosen = writer.select(is_first, dtype, one, other)
        found.append(writer.let(f"bitcast {vector} {chosen} to {bits}"))
    both = writer.let(f"{join} {bits} {found[0]}, {found[1]}")
    unordered = writer.let(f"fcmp uno {vector} {x}, {y}")
    ones = writer.let(f"sext <{dtype.lanes} x i1> {unordered} to {bits}")
    whole = writer.let(f"or {bits} {both}, {ones}")
    return writer.let(f"bitcast {bits} {whole} to {vector}")


def _integers(dtype: DType) -> DType:
    return (dtypes.int32 if dtype.bits == 32 else dtypes.int64).vec(dtype.lanes)


def _vector_of(dtype: DType) -> DType | None:
    """The least vector that has the lanes of a type."""
    bits = dtype.lanes * dtype.bits
    if dtype.scalar not in _TYPES or bits not in (32, 64, *WIDTHS):
        return None
    return dtype.scalar.vec(max(bits, WIDTHS[0]) // dtype.bits)


def _call(writer: Writer, name: str, dtype: DType, operands: Sequence[str], order: str) -> str:
    """An instruction of whole vectors: no lane is left out, and rounding is as it is."""
    vector, bits = register_type(dtype), dtype.lanes * dtype.bits
    first, second = operands
    rounding = ", i32 4" if bits == WIDTHS[-1] else ""
    return writer.let(
        f"call {vector} @llvm.x86.avx512.mask.{name}.{_TYPES[dtype.scalar]}.{bits}({vector} {first},"
        f" {vector} {second}, {order}{vector} {first}, i{max(8, dtype.lanes)} -1{rounding})"
    )


def _widened(writer: Writer, dtype: DType, wide: DType, value: str) -> str:
    """A value in the first lanes of a vector."""
    if dtype is wide:
        return value
    if dtype.lanes == 1:
        element = f"{register_type(dtype)} {value}, i64 0"
        return writer.let(f"insertelement {register_type(wide)} poison, {element}")
    return _lanes(writer, dtype, value, [*range(dtype.lanes), *["poison"] * dtype.lanes])


def _narrowed(writer: Writer, wide: DType, dtype: DType, value: str) -> str:
    """The first lanes of a vector."""
    if dtype is wide:
        return value
    if dtype.lanes == 1:
        return writer.lane(value, wide, 0)
    return _lanes(writer, wide, value, range(dtype.lanes))


def _lanes(writer: Writer, dtype: DType, value: str, lanes: Sequence[int | str]) -> str:
    """These lanes of a vector."""
    vector, order = register_type(dtype), ", ".join([f"i32 {lane}" for lane in lanes])
    operands = f"{vector} {value}, {vector} poison, <{len(lanes)} x i32> <{order}>"
    return writer.let(f"shufflevector {operands}")
