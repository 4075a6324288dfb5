"""Vectors whose lanes lie a few elements apart, forwards or backwards: read as whole vectors, and picked out of them by shuffles.

    x[9], x[8], x[7], x[6]    =    x[6 : 10] reversed
    x[0], x[2], x[4], x[6]    =    lanes 0 and 2 of x[0 : 4], lanes 1 and 3 of x[3 : 7]

Owns: which vectors, their loads, stores and masks. Does not own: other accesses (memory.py), rows that are transposed (transposed_loads.py).

The last of the vectors ends with the last element that is wanted, so that nothing is read outside of what is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from proofgrad.backends.llvm.dialect import GATHERED_BYTES, Dialect
from proofgrad.backends.llvm.memory import Position, address_or_zeros, write_load, write_store
from proofgrad.backends.llvm.text import literal, memory_type, register_type
from proofgrad.backends.llvm.writer import Writer
from proofgrad.core.ir.dtypes import DType, dtypes

# Cycles to pick lanes out of two vectors; of elements of one or two bytes, which few instructions pick, so many times as long (measured).
SHUFFLE_CYCLES, SHORT_ELEMENTS = 2, 2


class _Part(NamedTuple):
    """A vector, and which lanes of the result are which of its lanes."""

    register: str
    lanes: Mapping[int, int]


def is_read_whole(dialect: Dialect, position: Position, dtype: DType) -> bool:
    """Whether lanes that lie so far apart are sooner picked out of whole vectors."""
    step = step_of(position.offsets or ())
    if dialect.target.work_items or step == 0 or (position.of_item and position.mask is not None):
        return False
    if step == -1:
        return True
    if position.mask_lanes > 1 and None in position.known:
        return False  # each vector would ask for a mask of its own
    return picks_lanes(dialect, step, dtype)


def picks_lanes(dialect: Dialect, step: int, dtype: DType) -> bool:
    """Whether lanes so many elements apart are picked out of whole vectors sooner than they are put together."""
    parts = min(abs(step), dtype.lanes)
    shuffle = SHUFFLE_CYCLES * (1 if dtype.scalar.itemsize in GATHERED_BYTES else SHORT_ELEMENTS)
    cycles = parts / dialect.target.core.loads_a_cycle + (parts - 1) * shuffle
    return cycles < dtype.lanes * dialect.target.core.gather_cycles


def load_whole(writer: Writer, position: Position, dtype: DType) -> str:
    """The lanes of a load, picked out of whole vectors."""
    assert position.offsets is not None
    lanes, lowest = dtype.lanes, min(position.offsets)
    wanted = {offset - lowest: lane for lane, offset in enumerate(position.offsets)}
    first, last = _from(writer, position, lowest), max(wanted)
    if first.mask is not None and first.mask_lanes == 1:
        address = address_or_zeros(writer, first, dtype.scalar.vec(last + 1))
        first = first._replace(address=address, mask=None)
    kind = dtypes.uint8.vec(lanes) if dtype.is_bool else dtype
    parts: list[_Part] = []
    for start in [*range(0, last + 1 - lanes, lanes), last + 1 - lanes]:
        own = {wanted.pop(e): e - start for e in range(start, start + lanes) if e in wanted}
        if own:
            parts.append(_Part(_load_part(writer, first, kind, start, own), own))
    while len(parts) > 1:
        pairs = [_together(writer, kind, *parts[k : k + 2]) for k in range(0, len(parts) - 1, 2)]
        parts = pairs + parts[len(parts) & ~1 :]
    loaded = _together(writer, kind, *parts).register
    if not dtype.is_bool:
        return loaded
    return writer.let(f"icmp ne {memory_type(dtype)} {loaded}, zeroinitializer")


def is_written_whole(dialect: Dialect, position: Position) -> bool:
    """Whether a store of lanes is that of a vector reversed."""
    return not dialect.target.work_items and step_of(position.offsets or ()) == -1


def store_whole(writer: Writer, position: Position, dtype: DType, value: str) -> None:
    """Store a vector whose lanes lie backwards."""
    assert position.offsets is not None
    kind, lanes = dtype, dtype.lanes
    if dtype.is_bool:
        kind = dtypes.uint8.vec(lanes)
        value = writer.let(f"zext {register_type(dtype)} {value} to {register_type(kind)}")
    backwards = {lane: lanes - 1 - lane for lane in range(lanes)}
    value = _together(writer, kind, _Part(value, backwards)).register
    first = _from(writer, position, position.offsets[-1])
    if first.mask_lanes > 1:
        first = _masked(writer, first, backwards, lanes)
    write_store(writer, first, kind, value)


def step_of(offsets: Sequence[int]) -> int:
    """How many elements it is from each lane to the next; 0: not as many for all."""
    steps = {other - one for one, other in zip(offsets, offsets[1:])}
    return steps.pop() if len(steps) == 1 else 0


def _from(writer: Writer, position: Position, offset: int) -> Position:
    """That of one element, so far behind the address of lanes."""
    at = f"{memory_type(position.element)}, {position.pointer(writer.dialect)} {position.address}"
    address = writer.let(f"getelementptr {at}, i64 {offset}", "at") if offset else position.address
    scalar = position.index_dtype.scalar
    return position._replace(address=address, index_dtype=scalar, offsets=None, multiple_of=1)


def _load_part(
    writer: Writer, first: Position, kind: DType, start: int, own: Mapping[int, int]
) -> str:
    """The vector from the element number `start` on; under a mask, what is wanted of it."""
    part = _from(writer, first, start)
    if first.mask is not None:
        part = _masked(writer, part, own, kind.lanes)
        if not any([known is not False for known in part.known]):
            return "zeroinitializer"
    return write_load(writer, part, kind)


def _masked(writer: Writer, position: Position, own: Mapping[int, int], lanes: int) -> Position:
    """With the mask of a vector of which lanes are asked for, each by the lane of a mask."""
    if position.known == (True,) * lanes:
        return position._replace(mask=None, mask_lanes=1)
    by_source = {source: lane for lane, source in own.items()}
    asked = [by_source.get(source) for source in range(lanes)]
    known = [False if lane is None else position.known[lane] for lane in asked]
    bools = dtypes.bool.vec(lanes)
    if None not in known:
        mask = literal(tuple(known), bools)
    else:
        order = [lanes if lane is None else lane for lane in asked]
        operands = f"{register_type(bools)} {position.mask}, {register_type(bools)} zeroinitializer"
        mask = writer.let(f"shufflevector {operands}, {_order(order)}")
    return position._replace(mask=mask, known=tuple(known))


def _together(writer: Writer, kind: DType, one: _Part, other: _Part | None = None) -> _Part:
    """The lanes of two vectors, each where it is in the result."""
    vector, lanes = memory_type(kind), kind.lanes
    second = _Part("poison", {}) if other is None else other
    places = {**{lane: lanes + at for lane, at in second.lanes.items()}, **one.lanes}
    if all([lane == at for lane, at in places.items()]):
        return one
    order = _order([places.get(lane) for lane in range(lanes)])
    operands = f"{vector} {one.register}, {vector} {second.register}"
    made = writer.let(f"shufflevector {operands}, {order}")
    return _Part(made, {lane: lane for lane in places})


def _order(lanes: Sequence[int | None]) -> str:
    """The third operand of a shuffle; None: any lane."""
    numbers = ", ".join(["i32 poison" if lane is None else f"i32 {lane}" for lane in lanes])
    return f"<{len(lanes)} x i32> <{numbers}>"
