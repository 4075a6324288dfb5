"""Copies into memory of a group that are on their way while its items go on.

Owns: which stores are such copies, their text. Does not own: the instruction (a dialect), where items wait (lowering/waits.py).

A store of memory that is filled ahead copies what was loaded: as it is, 4, 8 or 16 bytes, from one position to another, or zeros where a
mask is off. Nothing else is made of the load. Such a copy needs no register, and nobody waits for it before the next wait of the group.
In a kernel that fills memory ahead so do other stores of what a group keeps, and waits for: the wait behind them is for all copies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from proofgrad.backends.llvm.memory import Position, alignment
from proofgrad.backends.llvm.writer import Writer
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, is_of_group

BYTES = (4, 8, 16)


def copies_of(linear: UOp, alone: Collection[UOp] = ()) -> dict[UOp, UOp]:
    """The loads whose value a store of memory of a group copies, each with that store, where some is filled ahead.

    `alone`: memory for which nobody waits.
    """
    filled = [n for n in linear.src if n.op is Ops.FILLED and is_of_group(n.src[1:])]
    if not any([n.src[1].arg[1] is AxisRole.AHEAD for n in filled]):
        return {}
    stores = [n.src[0] for n in filled]
    waited = [n for n in stores if n.op is Ops.STORE and n.src[0].src[0] not in alone]
    uses = Counter([s for n in linear.src for s in n.src])
    return {n.src[1]: n for n in waited if uses[n.src[1]] == 1 and _is_copy(n)}


def _is_copy(store: UOp) -> bool:
    position, value = store.src[:2]
    if value.op is not Ops.LOAD or value.src[0].src[0].op is not Ops.PARAM or value.dtype.is_bool:
        return False
    source = value.src[0]
    is_one = position.src[1].dtype.lanes == source.src[1].dtype.lanes == 1
    masks = [mask for index in (position, source) for mask in index.src[2:]]
    is_whole = len(position.src) == 2 and all([mask.dtype.lanes == 1 for mask in masks])
    return is_one and is_whole and _bytes_of(value.dtype) in BYTES


def _bytes_of(dtype: DType) -> int:
    return dtype.lanes * dtype.scalar.itemsize


def is_aligned(writer: Writer, target: Position, source: Position, dtype: DType) -> bool:
    """Whether both sides are aligned to the bytes of a copy."""
    known = [alignment(writer, position, dtype) for position in (target, source)]
    return min(known) >= _bytes_of(dtype)


def write_copy(writer: Writer, target: Position, source: Position, dtype: DType) -> None:
    """Begin to copy a value, or zeros where the mask of its source is off."""
    dialect, nbytes = writer.dialect, _bytes_of(dtype)
    address, size = source.address, None
    if source.mask is not None:
        pointer = source.pointer(dialect)
        choice = f"select i1 {source.mask}, {pointer} {address}, {pointer} {source.buffer}"
        address = writer.let(choice, "at")
        size = writer.let(f"select i1 {source.mask}, i32 {nbytes}, i32 0")
    assert address is not None and target.address is not None
    writer.do(dialect.begin_copy(target.address, address, nbytes, size))
