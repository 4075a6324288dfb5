"""Matrices that one item holds in vectors: a row of results each, to whose words products are added (x86 VNNI, AVX-512 BF16).

Owns: which types have an instruction, and the text. Does not own: tile registers (tiles.py), where elements stand (core/ir/fragments.py).

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, VPDPBUSD, VDPBF16PS; Intel Architecture Instruction Set
Extensions, VPDPB[SU,UU,SS]D. A lane of int32 takes in the products of its four bytes, exact, and wraps; VPDPBUSD takes a first factor
without a sign and a second one with a sign. A lane of float32 takes in those of its two bfloat16; denormal numbers are 0, read and
written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from proofgrad.backends.llvm.dialect import WordDot
from proofgrad.backends.llvm.memory import Position
from proofgrad.backends.llvm.text import register_type
from proofgrad.backends.llvm.writer import Writer
from proofgrad.core.compile.machine.target import CompileError, TileUnit
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.fragments import fragments_of, square_of
from proofgrad.core.ir.uop import UOp

# In a cycle: measured of Emerald Rapids, which does two multiply-adds of float32 then, and Zen 4, which does one.
BRAIN_DOTS = 1
_SIGNED, _UNSIGNED, _TOTAL = dtypes.int8, dtypes.uint8, dtypes.int32


def word_dots(has: Callable[[str], bool]) -> dict[tuple[DType, DType], WordDot]:
    """The instruction for factors of rows and columns, in this order, of a processor by its features."""
    found: list[WordDot] = []
    if has("avx512vnni"):
        found.append(WordDot("avx512.vpdpbusd.512", 16, _UNSIGNED, _SIGNED, _TOTAL))
    elif has("avxvnni"):
        found.append(WordDot("avx512.vpdpbusd.256", 8, _UNSIGNED, _SIGNED, _TOTAL))
    if has("avxvnniint8"):
        found += [
            WordDot("avx2.vpdpbssd.256", 8, _SIGNED, _SIGNED, _TOTAL),
            WordDot("avx2.vpdpbuud.256", 8, _UNSIGNED, _UNSIGNED, _TOTAL),
        ]
    if has("avx512bf16"):
        types = dtypes.bfloat16, dtypes.bfloat16, dtypes.float32
        found.append(
            WordDot("avx512bf16.dpbf16ps.512", 16, *types, most_a_cycle=BRAIN_DOTS, flushes=True)
        )
    made = {}
    for dot in found:
        made[dot.first, dot.second] = made[dot.second, dot.first] = dot
    return made


def units_of_dots(
    dots: Mapping[tuple[DType, DType], WordDot], multiply_adds_a_cycle: int
) -> tuple[TileUnit, ...]:
    """Units that keep a matrix of as many rows as a vector has words, all of which fit the registers."""
    found = []
    for types, dot in dots.items():
        cycles = dot.words // min(dot.most_a_cycle, multiply_adds_a_cycle)
        unit = TileUnit(*types, dot.total, dot.words, 1, dot.group, cycles, 1, dot.flushes)
        found.append(unit)
    return tuple(found)


def write_product_of_vectors(
    writer: Writer, node: UOp, before: str, factors: tuple[str, str], rows_at: Position | None
) -> str:
    """The rows of results, side by side in one vector, that LLVM takes apart. Raises: CompileError.

    `factors`: of columns and of rows; `rows_at`: where those lie side by side in memory, if they do.
    """
    square, parts = square_of(node), fragments_of(node)
    (row,) = parts.rows
    types = row.dtype.scalar, parts.column.dtype.scalar
    dot = writer.dialect.word_dots.get(types)
    if dot is None or square is None or (square.side, square.steps) != (dot.words, dot.group):
        raise CompileError(f"no instruction multiplies matrices of {types[0]!r} and {types[1]!r}")
    count, sums = dot.words, register_type(dot.total)
    words, kind, whole = f"<{count} x i32>", f"<{count} x {sums}>", f"<{count * count} x {sums}>"
    held = register_type(parts.column.dtype)
    own = f"<{parts.column.dtype.lanes} x bfloat>" if dot.flushes else held
    in_words = writer.let(f"bitcast {held} {factors[1]} to {words}")
    column = writer.let(f"bitcast {held} {factors[0]} to {own}")
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
        # The second factor is read from memory and spread by the instruction itself.
        both = (column, spread) if types[0] is dot.second else (spread, column)
        operands = f"{kind} {total}, {own} {both[0]}, {own} {both[1]}"
        results.append(writer.let(f"call {kind} @llvm.x86.{dot.name}({operands})"))
    lanes_each = count
    while len(results) > 1:
        kind, order = f"<{lanes_each} x {sums}>", _order(range(2 * lanes_each))
        results = [
            writer.let(f"shufflevector {kind} {one}, {kind} {other}, {order}")
            for one, other in zip(results[::2], results[1::2], strict=True)
        ]
        lanes_each *= 2
    return results[0]


def _order(lanes: range | list[int]) -> str:
    return f"<{len(lanes)} x i32> <{', '.join([f'i32 {lane}' for lane in lanes])}>"
