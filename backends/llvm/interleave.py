"""Vectors of small elements that are stored between each other: made words of 4 bytes in registers, and stored as these.

    stores of a b c d, one element behind the other, lanes 4 elements apart:     a0 b0 c0 d0 a1 b1 c1 d1 ...

Owns: which stores, and how words are made. Does not own: other stores (memory.py), elements that are words (register_transpose.py).

A word is little-endian, as all machines are for which LLVM IR is printed here: its lowest bits are the element at the lower address.
"""

from __future__ import annotations

from proofgrad.backends.llvm.memory import Position, lane_address
from proofgrad.backends.llvm.register_transpose import (
    last_of,
    same_but_for_position,
    stores_together,
)
from proofgrad.backends.llvm.text import memory_type
from proofgrad.backends.llvm.writer import Writer
from proofgrad.core.compile.lowering.program_facts import lanes_apart
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.op_names import PARAM
from proofgrad.core.ir.uop import UOp

WORD_BYTES = 4


def interleaved_stores(
    linear: UOp, others: frozenset[UOp] = frozenset()
) -> dict[UOp, tuple[UOp, ...]]:
    """For the last of the STOREs, but for some others, whose elements, lane by lane, are a word, all of them in order."""
    made: dict[UOp, tuple[UOp, ...]] = {}
    groups = stores_together(linear, lambda n: None if n in others else _part_of_words(n))
    for stores in groups:
        first, count = min(stores), WORD_BYTES // stores[min(stores)].src[1].dtype.scalar.itemsize
        for start in range(first, max(stores) + 1, count):
            rows = [stores.get(start + k) for k in range(count)]
            there = tuple([row for row in rows if row is not None])
            if len(there) == count:
                made[last_of(there, stores)] = there
    return made


def _part_of_words(store: UOp) -> tuple[object, int] | None:
    """What is the same for stores that may be parts of the same words, and the number that tells them apart."""
    position, value, *loops = store.src
    memory, index, *mask = position.src
    dtype = value.dtype
    if loops or mask or memory.op is not PARAM or dtype.lanes < 2 or dtype.is_bool:
        return None
    if dtype.scalar.itemsize not in (1, 2) or (found := lanes_apart(index)) is None:
        return None
    key, number = same_but_for_position(memory, *found)
    return (dtype, key), number


def write_interleaved(writer: Writer, position: Position, dtype: DType, rows: list[str]) -> None:
    """Store vectors between each other; `position` is that of the first of their elements."""
    lanes, bits = dtype.lanes, 8 * dtype.scalar.itemsize
    words, own = f"<{lanes} x i32>", f"<{lanes} x i{bits}>"
    whole = ""
    for number, row in enumerate(rows):
        kind = memory_type(dtype)
        part = row if kind == own else writer.let(f"bitcast {kind} {row} to {own}")
        part = writer.let(f"zext {own} {part} to {words}")
        if not number:
            whole = part
            continue
        shift = ", ".join([f"i32 {bits * number}"] * lanes)
        part = writer.let(f"shl {words} {part}, <{shift}>")
        whole = writer.let(f"or {words} {whole}, {part}")
    pointer, alignment = writer.dialect.pointer, dtype.scalar.itemsize
    offsets = position.offsets
    assert offsets is not None
    if all([offset == k * len(rows) for k, offset in enumerate(offsets)]):
        address = lane_address(writer, position, 0)
        writer.do(f"store {words} {whole}, {pointer} {address}, align {alignment}")
        return
    for lane in range(lanes):
        word = writer.let(f"extractelement {words} {whole}, i64 {lane}")
        address = lane_address(writer, position, lane)
        writer.do(f"store i32 {word}, {pointer} {address}, align {alignment}")
