"""Vectors that are stored apart, lane by lane, but whose rows lie side by side: transposed in registers, and stored in pieces.

Owns: which stores, and the shuffles. Does not own: other stores (memory.py).

A tile may have its columns apart in memory and its rows side by side, as filters and pixels of a convolution. Four rows
are four vectors whose lanes of one column are neighbours: transposed, they are stored four at a time. Where masks leave
out rows or columns at the edge of a matrix, a branch asks whether all are inside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from proofgrad.backends.llvm.memory import Position, lane_address
from proofgrad.backends.llvm.text import memory_type
from proofgrad.backends.llvm.writer import Writer
from proofgrad.core.compile.lowering.program_facts import lanes_apart
from proofgrad.core.compile.schedule.table_cycles import TRANSPOSED_ROWS
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.op_names import ADD, BROADCAST, CONST, END, INDEX, PARAM, RANGE, STORE
from proofgrad.core.ir.uop import UOp

ITEMSIZE = 4
# Lanes of two vectors a and b (from LANES on), in every part: a0 b0 a1 b1, ...
LOW, HIGH = (0, 4, 1, 5), (2, 6, 3, 7)
FIRST, SECOND = (0, 1, 4, 5), (2, 3, 6, 7)


def unread_vectors(linear: UOp) -> set[UOp]:
    """Vectors of positions that no instruction reads: accesses take the scalar, and how far behind it each lane is."""
    apart = {n for n in linear.src if n.dtype.lanes > 1 and lanes_apart(n) is not None}
    if not apart:
        return apart
    for node in linear.src:
        if node.op is not INDEX:
            apart.difference_update(node.src)
    wide = {source for node in apart for source in node.src if source.op is BROADCAST}
    for node in linear.src:
        if node not in apart:
            wide.difference_update(node.src)
    return apart | wide


def transposed_stores(
    linear: UOp, others: frozenset[UOp] = frozenset()
) -> dict[UOp, tuple[UOp, ...]]:
    """For the last of four STOREs, but for some others, whose elements are neighbours, lane by lane, all of them in order."""
    groups = stores_together(linear, lambda store: None if store in others else _apart(store))
    return {last_of(rows, stores): rows for stores in groups for rows in _runs(stores)}


def stores_together(
    linear: UOp, part_of: Callable[[UOp], tuple[object, int] | None]
) -> list[dict[int, UOp]]:
    """STOREs of which `part_of` says the same in the same loops, by the number that it tells them apart by; in running order."""
    groups: dict[object, dict[int, UOp]] = {}
    loops: list[UOp] = []
    for node in linear.src:
        if node.op is RANGE:
            loops.append(node)
        elif node.op is END:
            loops.pop()
        elif node.op is STORE and (found := part_of(node)) is not None:
            key, position = found
            own = groups.setdefault((tuple(loops), key), {})
            own.pop(position, None)
            own[position] = node
    return list(groups.values())


def last_of(some: tuple[UOp, ...], stores: dict[int, UOp]) -> UOp:
    """The one of some stores that runs last."""
    return [store for store in stores.values() if store in some][-1]


def _apart(store: UOp) -> tuple[object, int] | None:
    """What is the same for stores whose lanes may be neighbours, and the number that tells them apart."""
    position, value, *loops = store.src
    buffer, index, *_ = position.src
    if loops or buffer.op is not PARAM or value.dtype.itemsize != ITEMSIZE:
        return None
    if (
        value.dtype.lanes % TRANSPOSED_ROWS
        or value.dtype.is_bool
        or (found := lanes_apart(index)) is None
    ):
        return None
    return same_but_for_position(buffer, *found)


def same_but_for_position(memory: UOp, first: UOp, offsets: tuple[int, ...]) -> tuple[object, int]:
    """What stores have in common that begin some elements apart, and a number by which they do."""
    terms, number, stack = list[UOp](), 0, [first]
    while stack:
        node = stack.pop()
        if node.op is ADD:
            stack += node.src
        elif node.op is CONST:
            number += node.arg
        else:
            terms.append(node)
    return (memory, offsets, frozenset([(term, terms.count(term)) for term in terms])), number


def _runs(stores: dict[int, UOp]) -> list[tuple[UOp, ...]]:
    """Stores to four positions one after the other, as many as there are."""
    runs: list[tuple[UOp, ...]] = []
    free = sorted(stores)
    while free:
        run = free[:TRANSPOSED_ROWS]
        if run == list(range(run[0], run[0] + TRANSPOSED_ROWS)):
            runs.append(tuple([stores[position] for position in run]))
            free = free[TRANSPOSED_ROWS:]
        else:
            free = free[1:]
    return runs


def write_transposed_stores(
    writer: Writer, position: Position, dtype: DType, rows: list[str]
) -> None:
    """Store four vectors; `position` is that of the first, and the lanes of the others follow one by one."""
    columns = transposed(writer, dtype, rows)
    part = memory_type(dtype.scalar.vec(TRANSPOSED_ROWS))
    vector = memory_type(dtype)
    for lane in range(dtype.lanes):
        start = lane // TRANSPOSED_ROWS * TRANSPOSED_ROWS
        order = ", ".join([f"i32 {start + k}" for k in range(TRANSPOSED_ROWS)])
        operands = f"{vector} {columns[lane % TRANSPOSED_ROWS]}, {vector} poison, <{TRANSPOSED_ROWS} x i32> <{order}>"
        piece = writer.let(f"shufflevector {operands}")
        address = lane_address(writer, position, lane)
        writer.do(f"store {part} {piece}, {writer.dialect.pointer} {address}, align {ITEMSIZE}")


def transposed(writer: Writer, dtype: DType, rows: list[str]) -> list[str]:
    """Of four vectors in parts of four lanes: in each part the first lanes of all, the second ones, and so on."""
    one, two, three, four = rows
    low, high = [_shuffled(writer, dtype, one, two, lanes) for lanes in (LOW, HIGH)]
    low_too, high_too = [_shuffled(writer, dtype, three, four, lanes) for lanes in (LOW, HIGH)]
    return [
        _shuffled(writer, dtype, a, b, lanes)
        for a, b in ((low, low_too), (high, high_too))
        for lanes in (FIRST, SECOND)
    ]


def _shuffled(writer: Writer, dtype: DType, one: str, other: str, lanes: tuple[int, ...]) -> str:
    """In every part of four lanes, those of two vectors in an order in which the other's are 4 to 7."""
    vector, count = memory_type(dtype), dtype.lanes
    numbers = [
        start + lane if lane < TRANSPOSED_ROWS else count + start + lane - TRANSPOSED_ROWS
        for start in range(0, count, TRANSPOSED_ROWS)
        for lane in lanes
    ]
    order = ", ".join([f"i32 {number}" for number in numbers])
    operands = f"{vector} {one}, {vector} {other}, <{count} x i32> <{order}>"
    return writer.let(f"shufflevector {operands}")


def side_by_side(writer: Writer, row: DType, rows: Sequence[str]) -> list[str]:
    """Four vectors: rows 0, 4, 8, ... one behind the other, rows 1, 5, 9, ..., and so on."""
    return [
        one_behind_the_other(writer, row, rows[k::TRANSPOSED_ROWS]) for k in range(TRANSPOSED_ROWS)
    ]


def one_behind_the_other(writer: Writer, part: DType, parts: Sequence[str]) -> str:
    """One vector of several, as many as a power of two."""
    while len(parts) > 1:
        kind, lanes = memory_type(part), range(2 * part.lanes)
        order = f"<{len(lanes)} x i32> <{', '.join([f'i32 {lane}' for lane in lanes])}>"
        parts = [
            writer.let(f"shufflevector {kind} {low}, {kind} {high}, {order}")
            for low, high in zip(parts[::2], parts[1::2], strict=True)
        ]
        part = part.scalar.vec(2 * part.lanes)
    return parts[0]
