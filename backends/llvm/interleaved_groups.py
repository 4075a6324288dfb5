"""Vectors whose lanes lie as many elements apart as there are vectors: interleaved in registers, and stored as whole vectors.

    stores of a, b, c, one element behind the other, lanes 3 elements apart:     a0 b0 c0 a1   b1 c1 a2 b2   c2 a3 b3 c3

Owns: which stores (an interleaved group, in the words of vectorizers), and the shuffles. Does not own: other stores (memory.py), lanes that lie further
apart, of words (interleave.py) or of rows of four (register_transpose.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from proofgrad.backends.llvm.memory import Position, write_store
from proofgrad.backends.llvm.register_transpose import (
    last_of,
    same_but_for_position,
    stores_together,
)
from proofgrad.backends.llvm.strided import step_of
from proofgrad.backends.llvm.text import literal, memory_type, register_type
from proofgrad.backends.llvm.writer import Writer
from proofgrad.core.compile.lowering.program_facts import lanes_apart
from proofgrad.core.compile.schedule.copies import MOST_COPIES
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.op_names import LOAD, PARAM
from proofgrad.core.ir.uop import UOp


def interleaved_groups(linear: UOp) -> dict[UOp, tuple[UOp, ...]]:
    """For the last of the STOREs of a group all of them, in the order of memory."""
    read = {n.src[0].src[0] for n in linear.src if n.op is LOAD}
    found: dict[UOp, tuple[UOp, ...]] = {}
    for stores in stores_together(linear, _of_a_group):
        one = next(iter(stores.values()))
        if one.src[0].src[0] in read:
            continue
        apart = lanes_apart(one.src[0].src[1])
        assert apart is not None  # _of_a_group
        step, free = step_of(apart[1]), sorted(stores)
        while free:
            first = free[0]
            run = [stores[n] for n in range(first, first + step) if n in stores]
            if len(run) == step:
                found[last_of(tuple(run), stores)] = tuple(run)
            free = [n for n in free if n >= first + (step if len(run) == step else 1)]
    return found


def _of_a_group(store: UOp) -> tuple[object, int] | None:
    """What stores of a group have in common, and the number of elements by which they lie apart."""
    position, value, *loops = store.src
    memory, index, *mask = position.src
    if loops or memory.op is not PARAM or (found := lanes_apart(index)) is None:
        return None
    step = step_of(found[1])
    if not 2 <= step <= min(MOST_COPIES, value.dtype.lanes + 1):
        return None  # more shuffles than lanes
    key, number = same_but_for_position(memory, *found)
    return (value.dtype, tuple(mask), key), number


def may_interleave(positions: Sequence[Position]) -> bool:
    """Whether it is known which lanes are stored, the same of all vectors."""
    return all([p.mask_lanes == 1 or None not in p.known for p in positions])


def write_group(writer: Writer, first: Position, dtype: DType, rows: Sequence[str]) -> None:
    """Store vectors between each other; `first` is the position of the first of them.

    They are taken in parts of a register, which processors shuffle in few instructions.
    """
    lanes, bits = dtype.lanes, 8 * dtype.scalar.itemsize
    integers = _integer(dtype)
    words = [_bits(writer, dtype, row) for row in rows]
    width = writer.dialect.target.vector_bytes * 8 // bits
    part = width if 1 < width < lanes and lanes % width == 0 else lanes
    for start in range(0, lanes, part):
        own = [_part(writer, integers, word, start, part) for word in words]
        kind = integers.scalar.vec(part)
        for number, made in enumerate(_interleaved(writer, kind, own)):
            begin = start * len(rows) + number * part
            _store_part(writer, first, kind, made, begin, len(rows))


def _store_part(
    writer: Writer, first: Position, kind: DType, value: str, begin: int, step: int
) -> None:
    """Store so many elements from the number `begin` on, of those that the mask of the vectors lets through."""
    assert first.offsets is not None
    base = f"{memory_type(first.element)}, {writer.dialect.pointer} {first.address}"
    behind = first.offsets[0] + begin
    address = writer.let(f"getelementptr {base}, i64 {behind}", "at") if behind else first.address
    position = first._replace(
        address=address, element=kind.scalar, index_dtype=first.index_dtype.scalar, offsets=None,
        multiple_of=1)  # fmt: skip
    if first.mask_lanes > 1:
        known = tuple([first.known[(begin + k) // step] for k in range(kind.lanes)])
        if not any(known):
            return
        mask = None if all(known) else literal(known, dtypes.bool.vec(kind.lanes))
        of_lanes = 1 if mask is None else kind.lanes
        position = position._replace(mask=mask, mask_lanes=of_lanes, known=known)
    write_store(writer, position, kind, value)


def _interleaved(writer: Writer, kind: DType, rows: Sequence[str]) -> list[str]:
    """As many vectors as there are rows: the first lanes of all rows, the second ones, and so on."""
    count, lanes = len(rows), kind.lanes
    if count % 2 == 0 and lanes % 2 == 0:
        evens, odds = [_interleaved(writer, kind, rows[k::2]) for k in (0, 1)]
        halves = [
            [lane + shift for lane in range(start, start + lanes // 2) for shift in (0, lanes)]
            for start in (0, lanes // 2)
        ]
        return [_shuffled(writer, kind, a, b, h) for a, b in zip(evens, odds) for h in halves]
    made = list[str]()
    for number in range(count):
        places = [divmod(number * lanes + k, count) for k in range(lanes)]
        vector = rows[0]
        for row in range(1, count):
            order = [
                lanes + lane if of == row else (lane if row == 1 else k)
                for k, (lane, of) in enumerate(places)
            ]
            vector = _shuffled(writer, kind, vector, rows[row], order)
        made.append(vector)
    return made


def _shuffled(writer: Writer, kind: DType, one: str, other: str, order: Sequence[int]) -> str:
    vector, numbers = memory_type(kind), ", ".join([f"i32 {k}" for k in order])
    operands = f"{vector} {one}, {vector} {other}, <{len(order)} x i32> <{numbers}>"
    return writer.let(f"shufflevector {operands}")


def _integer(dtype: DType) -> DType:
    """Integers of as many bits."""
    kinds = (dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64)
    return next(k for k in kinds if k.itemsize == dtype.scalar.itemsize).vec(dtype.lanes)


def _bits(writer: Writer, dtype: DType, row: str) -> str:
    """The bits of a vector, as memory has them."""
    kind, integers = memory_type(dtype), memory_type(_integer(dtype))
    if dtype.is_bool:
        return writer.let(f"zext {register_type(dtype)} {row} to {integers}")
    return row if kind == integers else writer.let(f"bitcast {kind} {row} to {integers}")


def _part(writer: Writer, kind: DType, vector: str, start: int, lanes: int) -> str:
    """So many lanes of a vector."""
    if lanes == kind.lanes:
        return vector
    return _shuffled(writer, kind, vector, "poison", range(start, start + lanes))
