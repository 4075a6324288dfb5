"""Loads of vectors whose lanes lie apart, but whose rows lie side by side: four rows are read together, and transposed in registers.

    rows k .. k + 3 of lane 0:   x[0, k : k + 4],     of lane 1:   x[1, k : k + 4], ...

Owns: which loads, what is read of each lane. Does not own: the shuffles (register_transpose.py), loops of four steps (transposed_loads.py).

So a tile whose columns lie apart in memory, as channels do, reads what is added to it: a load for each lane of four rows, in place of one for each
element. That is a quarter of the loads, and of the text that LLVM compiles.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from proofgrad.backends.llvm.memory import Position, load_of_lane
from proofgrad.backends.llvm.register_transpose import (
    ITEMSIZE,
    one_behind_the_other,
    same_but_for_position,
    side_by_side,
    transposed,
)
from proofgrad.backends.llvm.writer import Writer
from proofgrad.core.compile.lowering.program_facts import lanes_apart
from proofgrad.core.compile.schedule.table_cycles import TRANSPOSED_ROWS
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.op_names import END, INDEX, LOAD, PARAM, RANGE, STORE
from proofgrad.core.ir.uop import UOp


class Rows(NamedTuple):
    """Four LOADs by their positions, and the number of the one that runs first."""

    loads: tuple[UOp, ...]
    first: int


def loads_of_rows(linear: UOp, others: Container[UOp]) -> dict[UOp, Rows]:
    """For the first of four LOADs that stand in one block, but for some others, whose elements are neighbours, lane by lane, all of them."""
    written = {n.src[0].src[0] for n in linear.src if n.op is STORE}
    alike: dict[object, dict[int, UOp]] = {}
    block = 0
    for node in linear.src:
        if node.op is RANGE or node.op is END:
            block += 1
        elif node.op is LOAD and node not in others and node.src[0].src[0] not in written:
            if (found := _apart(node)) is not None:
                key, number = found
                alike.setdefault((block, key), {}).setdefault(number, node)
    return {made.loads[made.first]: made for loads in alike.values() for made in _runs(loads)}


def positions_of_followers(linear: UOp, rows: dict[UOp, Rows]) -> set[UOp]:
    """The INDEXes that nothing asks for: those of loads that are made with the first of their rows."""
    followers = {n for made in rows.values() for n in made.loads}.difference(rows)
    found = {load.src[0] for load in followers}
    for node in linear.src:
        if node not in followers and node.op is not INDEX:
            found.difference_update(node.src)
    return found


def _apart(load: UOp) -> tuple[object, int] | None:
    """What is the same for loads whose lanes may be neighbours, and the number that tells them apart."""
    position, dtype = load.src[0], load.dtype
    memory, index, *masks = position.src
    if len(load.src) > 1 or memory.op is not PARAM or dtype.is_bool:
        return None
    is_known = dtype.scalar.itemsize == ITEMSIZE and dtype.lanes.bit_count() == 1
    if not is_known or dtype.lanes < TRANSPOSED_ROWS or (found := lanes_apart(index)) is None:
        return None
    key, number = same_but_for_position(memory, *found)
    return (key, dtype, tuple(masks)), number


def _runs(loads: dict[int, UOp]) -> list[Rows]:
    """Loads of four positions one after the other, as many as there are; `loads` are in running order."""
    order, free, found = {load: k for k, load in enumerate(loads.values())}, sorted(loads), []
    while len(free) >= TRANSPOSED_ROWS:
        run = free[:TRANSPOSED_ROWS]
        if run[-1] - run[0] == TRANSPOSED_ROWS - 1:
            rows = tuple([loads[position] for position in run])
            found.append(Rows(rows, rows.index(min(rows, key=order.__getitem__))))
            free = free[TRANSPOSED_ROWS:]
        else:
            free = free[1:]
    return found


def write_rows(writer: Writer, position: Position, dtype: DType, first: int) -> list[str]:
    """The vectors of four rows; `position` is that of the row number `first`."""
    assert position.offsets is not None
    start = position._replace(offsets=tuple([offset - first for offset in position.offsets]))
    row = dtype.scalar.vec(TRANSPOSED_ROWS)
    loaded = [load_of_lane(writer, start, lane, row) for lane in range(dtype.lanes)]
    width = min(dtype.lanes, max(TRANSPOSED_ROWS, writer.dialect.target.lanes(dtype.scalar)))
    part = dtype.scalar.vec(width)  # of a vector of several registers each by itself
    parts = [
        transposed(writer, part, side_by_side(writer, row, loaded[k : k + width]))
        for k in range(0, dtype.lanes, width)
    ]
    return [one_behind_the_other(writer, part, registers) for registers in zip(*parts)]
