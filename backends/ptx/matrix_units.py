"""Products of small matrices as mma.sync: which an architecture has, and their registers.

Owns: the order of a fragment's elements in the registers of an instruction. Does not own: which item holds which element
(core/ir/fragments.py).

Source: PTX ISA, "Matrix multiply-accumulate operation using mma instruction". In each of its shapes lane 4 * g + q has elements of
rows g (and g + 8) of A, of column g of B, and of columns 2q and 2q + 1 of C, as here. Its steps are others: of m16n8k16
those are 2q, 2q + 1, 2q + 8 and 2q + 9, of m16n8k32 4q to 4q + 3 and 4q + 16 to 4q + 19, of m16n8k8 q and q + 4, where here an item
has neighbours. A and B name their steps alike, and a sum does not depend on how its steps are named; so each item reads neighbours in
one wide load. What an item holds for more steps than an instruction takes goes into several, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from proofgrad.core.compile.machine.target import CompileError, MatrixUnit
from proofgrad.core.ir.dtypes import DType, dtypes

FIRST_ARCHITECTURE = 80
# cvt.rna.tf32.f32: to nearest, ties away from zero. What is in the bits that are cut off is not said (PTX ISA, "cvt"): on sm_80 and
# sm_90, as ptxas has it, half of them is added and they stay. So what it gives is for the units alone.
ROUND = "llvm.nvvm.f2tf32.rna"


@dataclass(frozen=True, slots=True)
class _Instruction:
    """An mma.sync: elements of a factor in a register, the types of a register and of a result in LLVM IR."""

    unit: MatrixUnit
    name: str
    elements: int
    register: str
    result: str


_F32, _F64 = dtypes.float32, dtypes.float64
INSTRUCTIONS = (
    _Instruction(
        MatrixUnit(dtypes.float16, _F32, 2, 4, word=2, reads_across=True),
        "m16n8k16.row.col.f32.f32",
        2,
        "<2 x half>",
        "float",
    ),
    _Instruction(
        MatrixUnit(dtypes.bfloat16, _F32, 2, 4, word=2, reads_across=True),
        "m16n8k16.row.col.bf16",
        2,
        "i32",
        "float",
    ),
    _Instruction(
        MatrixUnit(dtypes.int8, dtypes.int32, 2, 8, word=4), "m16n8k32.row.col.s8", 4, "i32", "i32"
    ),
    _Instruction(
        MatrixUnit(dtypes.uint8, dtypes.int32, 2, 8, word=4), "m16n8k32.row.col.u8", 4, "i32", "i32"
    ),
    _Instruction(
        MatrixUnit(_F32, _F32, 2, 2, word=1, reads_across=True, rounds=True),
        "m16n8k8.row.col.tf32",
        1,
        "i32",
        "float",
    ),
    _Instruction(MatrixUnit(_F64, _F64, 1, 1), "m8n8k4.row.col.f64", 1, "double", "double"),
)


def matrix_units(architecture: int) -> tuple[MatrixUnit, ...]:
    """Those of a GPU."""
    return tuple([x.unit for x in INSTRUCTIONS]) if architecture >= FIRST_ARCHITECTURE else ()


def write_product(
    let: Callable[[str], str],
    types: tuple[DType, DType],
    before: str,
    column: str,
    rows: Sequence[str],
    steps: int,
) -> str:
    """`before` plus the product of fragments, each a vector of what an item holds.

    `types`: of a factor and of the sum. `steps`: elements of an item along the sum. Rows of several tiles of the unit meet the same
    column, one tile after the other. Raises: CompileError.
    """
    found = [x for x in INSTRUCTIONS if (x.unit.factor, x.unit.total) == types]
    if not found or len(rows) % found[0].unit.halves or steps % found[0].unit.steps:
        raise CompileError(
            f"no mma.sync for {types}, {len(rows)} rows and {steps} steps of an item"
        )
    one = found[0]
    count = 2 * len(rows)
    vector = f"<{count} x {one.result}>"
    sums = [let(f"extractelement {vector} {before}, i64 {k}") for k in range(count)]
    words = steps // one.elements
    row_words = [_words(let, one, row, steps) for row in rows]
    column_words = _words(let, one, column, steps)
    high, own = one.unit.halves, 2 * one.unit.halves  # of a tile: rows of an item, results
    struct = f"{{{', '.join([one.result] * own)}}}"
    for first in range(0, words, one.unit.steps // one.elements):
        numbers = range(first, first + one.unit.steps // one.elements)
        for tile in range(len(rows) // high):
            mine = slice(tile * own, (tile + 1) * own)
            tile_words = row_words[tile * high : (tile + 1) * high]
            operands = [f"{one.register} {row[k]}" for k in numbers for row in tile_words]
            operands += [f"{one.register} {column_words[k]}" for k in numbers]
            operands += [f"{one.result} {value}" for value in sums[mine]]
            made = let(f"call {struct} @llvm.nvvm.mma.{one.name}({', '.join(operands)})")
            sums[mine] = [let(f"extractvalue {struct} {made}, {k}") for k in range(own)]
    total = "poison"
    for k, value in enumerate(sums):
        total = let(f"insertelement {vector} {total}, {one.result} {value}, i64 {k}")
    return total


def _words(let: Callable[[str], str], one: _Instruction, held: str, steps: int) -> list[str]:
    """What an item holds of a factor, in registers of the instruction."""
    if one.unit.rounds:
        values = [let(f"extractelement <{steps} x float> {held}, i64 {k}") for k in range(steps)]
        return [let(f"call i32 @{ROUND}(float {value})") for value in values]
    if one.register == "i32":  # bits of elements
        bits, count = 32 // one.elements, steps // one.elements
        words = let(f"bitcast <{steps} x i{bits}> {held} to <{count} x i32>")
        return [let(f"extractelement <{count} x i32> {words}, i64 {k}") for k in range(count)]
    if one.elements == 1:
        return [
            let(f"extractelement <{steps} x {one.register}> {held}, i64 {k}") for k in range(steps)
        ]
    vector = f"<{steps} x half>"
    return [
        let(f"shufflevector {vector} {held}, {vector} poison, <2 x i32> <i32 {k}, i32 {k + 1}>")
        for k in range(0, steps, 2)
    ]
