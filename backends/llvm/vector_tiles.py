"""Matrices that one item holds in vectors: a row of results each, to which products of bytes are added four at a time (x86 VNNI).

Owns: which types have an instruction, and the text. Does not own: tile registers (tiles.py), where elements stand (core/ir/fragments.py).

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, VPDPBUSD; Intel Architecture Instruction Set Extensions,
VPDPB[SU,UU,SS]D. A lane of int32 takes in the products of its four bytes, exact, and wraps; VPDPBUSD takes a first factor without a
sign and a second one with a sign.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from proofgrad.backends.llvm.dialect import ByteDot
from proofgrad.backends.llvm.memory import Position
from proofgrad.backends.llvm.writer import Writer
from proofgrad.core.compile.machine.target import CompileError, TileUnit
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.fragments import fragments_of, square_of
from proofgrad.core.ir.uop import UOp

GROUP = 4  # bytes of a word
PORTS = 2  # of an instruction a cycle
_SIGNED, _UNSIGNED = dtypes.int8, dtypes.uint8


def byte_dots(has: Callable[[str], bool]) -> dict[tuple[DType, DType], ByteDot]:
    """The instruction for factors of rows and columns, in this order, of a processor by its features."""
    found: list[ByteDot] = []
    if has("avx512vnni"):
        found.append(ByteDot("avx512.vpdpbusd.512", 16, _UNSIGNED, _SIGNED))
    elif has("avxvnni"):
        found.append(ByteDot("avx512.vpdpbusd.256", 8, _UNSIGNED, _SIGNED))
    if has("avxvnniint8"):
        found += [
            ByteDot("avx2.vpdpbssd.256", 8, _SIGNED, _SIGNED),
            ByteDot("avx2.vpdpbuud.256", 8, _UNSIGNED, _UNSIGNED),
        ]
    made = {}
    for dot in found:
        made[dot.first, dot.second] = made[dot.second, dot.first] = dot
    return made


def units_of_dots(dots: Mapping[tuple[DType, DType], ByteDot]) -> tuple[TileUnit, ...]:
    """Units that keep a matrix of as many rows as a vector has words, all of which fit the registers."""
    return tuple(
        [
            TileUnit(*types, dtypes.int32, dot.words, 1, GROUP, dot.words // PORTS, sums=1)
            for types, dot in dots.items()
        ]
    )


def write_product_of_vectors(
    writer: Writer, node: UOp, before: str, factors: tuple[str, str], rows_at: Position | None
) -> str:
    """The rows of results, side by side in one vector, that LLVM takes apart. Raises: CompileError.

    `factors`: of columns and of rows; `rows_at`: where those lie side by side in memory, if they do.
    """
    square, parts = square_of(node), fragments_of(node)
    (row,) = parts.rows
    types = row.dtype.scalar, parts.column.dtype.scalar
    dot = writer.dialect.byte_dots.get(types)
    if dot is None or square is None or (square.side, square.steps) != (dot.words, GROUP):
        raise CompileError(f"no instruction multiplies matrices of {types[0]!r} and {types[1]!r}")
    count = dot.words
    words, whole = f"<{count} x i32>", f"<{count * count} x i32>"
    own = f"<{count * GROUP} x i8>"
    in_words = writer.let(f"bitcast {own} {factors[1]} to {words}")
    results = []
    for number in range(count):
        lanes = _order([number * count + k for k in range(count)])
        total = writer.let(f"shufflevector {whole} {before}, {whole} poison, {lanes}")
        if rows_at is not None and rows_at.address is not None and rows_at.mask is None:
            at = writer.let(f"getelementptr i32, ptr {rows_at.address}, i64 {number}", "at")
            word = writer.let(f"load i32, ptr {at}, align 1", "load")
        else:
            word = writer.let(f"extractelement {words} {in_words}, i64 {number}")
        spread = writer.splat(word, dtypes.int32.vec(count))
        spread = writer.let(f"bitcast {words} {spread} to {own}")
        both = (spread, factors[0]) if types[0] is dot.first else (factors[0], spread)
        operands = f"{words} {total}, {own} {both[0]}, {own} {both[1]}"
        results.append(writer.let(f"call {words} @llvm.x86.{dot.name}({operands})"))
    lanes_each = count
    while len(results) > 1:
        kind, order = f"<{lanes_each} x i32>", _order(range(2 * lanes_each))
        results = [
            writer.let(f"shufflevector {kind} {one}, {kind} {other}, {order}")
            for one, other in zip(results[::2], results[1::2], strict=True)
        ]
        lanes_each *= 2
    return results[0]


def _order(lanes: range | list[int]) -> str:
    return f"<{len(lanes)} x i32> <{', '.join([f'i32 {lane}' for lane in lanes])}>"
