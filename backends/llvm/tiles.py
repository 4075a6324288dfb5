"""Matrices that one item holds, in the tile registers of x86 (AMX).

Owns: which values of a program are tiles, and their instructions. Does not own: the configuration of tiles and which register has which,
which LLVM decides, the permission that Linux is asked for (backends/cpu/permission.py), where elements stand (core/ir/fragments.py).

Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18, and TDPBSSD, TDPBF16PS of volume 2. A tile
has up to 16 rows of up to 64 bytes. The second factor has groups of as many rows as 4 bytes hold, column by column.
"""

from __future__ import annotations

from proofgrad.backends.llvm.memory import Position
from proofgrad.backends.llvm.writer import Writer
from proofgrad.core.compile.machine.target import CompileError, TileUnit
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.fragments import Square, fragments_of, square_of
from proofgrad.core.ir.op_names import ACCUMULATOR, LOAD, MMA, RESULT, UPDATE
from proofgrad.core.ir.uop import UOp

TILE = "x86_amx"
ROWS, ROW_BYTES = 16, 64
TILES, CYCLES = 8, 16  # registers; from one product to the next one
_PRODUCTS: dict[tuple[DType, DType], str] = {
    (dtypes.int8, dtypes.int8): "tdpbssd",
    (dtypes.int8, dtypes.uint8): "tdpbsud",
    (dtypes.uint8, dtypes.int8): "tdpbusd",
    (dtypes.uint8, dtypes.uint8): "tdpbuud",
    (dtypes.bfloat16, dtypes.bfloat16): "tdpbf16ps",
}


def units_of_bfloat16() -> tuple[TileUnit, ...]:
    """The unit of bfloat16, summed in float32, for which denormal numbers are 0."""
    types = dtypes.bfloat16, dtypes.bfloat16, dtypes.float32
    return (TileUnit(*types, ROWS, ROW_BYTES // 4, 2, CYCLES, TILES // 2, flushes=True),)


def units_of_bytes() -> tuple[TileUnit, ...]:
    """Units whose sums of products of 8-bit integers are those of int32, modulo 2**32. Half of the registers are sums."""
    return tuple(
        [
            TileUnit(*types, dtypes.int32, ROWS, ROW_BYTES // 4, 4, CYCLES, TILES // 2)
            for types in _PRODUCTS
            if dtypes.bfloat16 not in types
        ]
    )


def tiles_of(linear: UOp) -> dict[UOp, tuple[int, int]]:
    """The values of a program that are tiles, each with its rows and the bytes of a row."""
    found: dict[UOp, tuple[int, int]] = {}
    for node in linear.src:
        if node.op is MMA and (square := square_of(node)) is not None:
            parts = fragments_of(node)
            (row,), column = parts.rows, parts.column
            found[row] = square.side, square.steps * row.dtype.scalar.itemsize
            width = square.side * square.group * column.dtype.scalar.itemsize
            found[column] = square.groups, width
            found[node] = _of_results(square, node.dtype)
            if parts.before.op is ACCUMULATOR:
                found[parts.before] = found[node]
    for node in linear.src:
        if node.op is UPDATE and node.src[0] in found or node.op is RESULT and node.src[0] in found:
            found[node] = found[node.src[0]]
    return found


def _of_results(square: Square, dtype: DType) -> tuple[int, int]:
    return square.side, square.side * dtype.scalar.itemsize


def write_nothing(writer: Writer, size: tuple[int, int]) -> str:
    """A tile of zeros."""
    return writer.let(f"call {TILE} @llvm.x86.tilezero.internal({_words(*size)})", "tile")


def write_tile_load(writer: Writer, position: Position, size: tuple[int, int]) -> str:
    """The tile whose rows lie one after the other. Raises: CompileError where they do not."""
    if position.address is None or position.mask is not None:
        raise CompileError("a matrix whose elements do not lie side by side is no tile")
    operands = f"{_words(*size)}, ptr {position.address}, i64 {size[1]}"
    return writer.let(f"call {TILE} @llvm.x86.tileloadd64.internal({operands})", "tile")


def write_tile_store(writer: Writer, position: Position, size: tuple[int, int], tile: str) -> None:
    """Store a tile, row after row. Raises: CompileError where they do not lie side by side."""
    if position.address is None or position.mask is not None:
        raise CompileError("a matrix whose elements do not lie side by side is no tile")
    operands = f"{_words(*size)}, ptr {position.address}, i64 {size[1]}, {TILE} {tile}"
    writer.do(f"call void @llvm.x86.tilestored64.internal({operands})")


def write_product(writer: Writer, node: UOp, before: str, column: str, row: str) -> str:
    """A tile plus the product of two."""
    square, parts = square_of(node), fragments_of(node)
    assert square is not None
    types = parts.rows[0].dtype.scalar, parts.column.dtype.scalar
    if types not in _PRODUCTS or parts.rows[0].op is not LOAD or parts.column.op is not LOAD:
        raise CompileError(f"no instruction multiplies matrices of {types[0]!r} and {types[1]!r}")
    rows, width = _of_results(square, node.dtype)
    sizes = _words(rows, width, square.steps * types[0].itemsize)
    operands = f"{sizes}, {TILE} {before}, {TILE} {row}, {TILE} {column}"
    return writer.let(f"call {TILE} @llvm.x86.{_PRODUCTS[types]}.internal({operands})", "tile")


def _words(*numbers: int) -> str:
    return ", ".join([f"i16 {number}" for number in numbers])
