"""Vectors whose lanes lie in pieces side by side: each piece is one access.

Owns: which lanes are neighbours, on machines whose items read and write for themselves. Does not own: other accesses (memory.py).

What an item holds of a result of a matrix unit are two neighbours of each of several rows: they are stored two at a time.
"""

from __future__ import annotations

import operator
from functools import reduce

from proofgrad.backends.llvm.memory import Position, ask_lanes, lane_address, write_store
from proofgrad.backends.llvm.text import memory_type
from proofgrad.backends.llvm.writer import Writer
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.evaluate import evaluate
from proofgrad.core.ir.op_names import ADD, BROADCAST, CONST
from proofgrad.core.ir.ops import ALU, Ops
from proofgrad.core.ir.uop import UOp


def lanes_from(index: UOp) -> tuple[UOp, tuple[int, ...]] | None:
    """A scalar, and how far behind it each lane is, of a sum of both in any order; the scalar may be no node of the program."""
    scalars: list[UOp] = []
    apart = (0,) * index.dtype.lanes
    stack = [index]
    while stack:
        node = stack.pop()
        if (numbers := _constants(node)) is not None:
            apart = tuple(map(operator.add, apart, numbers))
        elif node.op is BROADCAST:
            scalars.append(node.src[0])
        elif node.op is ADD:
            stack += node.src[::-1]
        else:
            return None
    return (reduce(operator.add, scalars), apart) if scalars else None


def _constants(node: UOp) -> tuple[int, ...] | None:
    """The lanes of a vector that is made of constants alone."""
    if node.op is CONST:
        return node.arg if isinstance(node.arg, tuple) else (node.arg,) * node.dtype.lanes
    if node.op is BROADCAST and node.src[0].op is CONST:
        return (node.src[0].arg,) * node.dtype.lanes
    below = [_constants(s) for s in node.src] if node.op in ALU or node.op is Ops.CAST else []
    lanes = [numbers for numbers in below if numbers is not None]
    if not below or len(lanes) != len(below):
        return None
    each = zip(*lanes, strict=True)
    return tuple([int(evaluate(node.op, node.dtype.scalar, given)) for given in each])


def pieces_of(position: Position, dtype: DType, most_bytes: int) -> list[range]:
    """The lanes in runs of neighbours, each a power of two long and aligned; one lane is a run, too."""
    offsets, found, lane = position.offsets, list[range](), 0
    assert offsets is not None
    while lane < dtype.lanes:
        count = max(1, most_bytes // dtype.scalar.itemsize)
        while count > 1 and not _is_piece(offsets[lane : lane + count], count, position):
            count //= 2
        found.append(range(lane, lane + count))
        lane += count
    return found


def _is_piece(offsets: tuple[int, ...], count: int, position: Position) -> bool:
    first = offsets[0]
    are_neighbours = offsets == tuple(range(first, first + count))
    return are_neighbours and first % count == 0 and position.multiple_of % count == 0


def store_pieces(writer: Writer, position: Position, dtype: DType, value: str) -> None:
    """Store a vector piece by piece; lane by lane where a mask is off for some of them."""
    if position.mask is None:
        return _store_pieces(writer, position, dtype, value)
    if position.mask_lanes > 1:
        end = ask_lanes(writer, position, "store", (True,) * position.mask_lanes)
    else:
        end = writer.fresh("store")
        writer.do(f"br i1 {position.mask}, label %{end}.whole, label %{end}")
        writer.begin_block(f"{end}.whole")
    _store_pieces(writer, position._replace(mask=None), dtype, value)
    writer.do(f"br label %{end}")
    if position.mask_lanes > 1:
        writer.begin_block(f"{end}.lanes")
        write_store(writer, position, dtype, value)
        writer.do(f"br label %{end}")
    writer.begin_block(end)


def _store_pieces(writer: Writer, position: Position, dtype: DType, value: str) -> None:
    vector = memory_type(dtype)
    for lanes in pieces_of(position, dtype, writer.dialect.memory_bytes):
        address, part = lane_address(writer, position, lanes[0]), dtype.scalar.vec(len(lanes))
        if len(lanes) == 1:
            piece = writer.let(f"extractelement {vector} {value}, i64 {lanes[0]}")
        else:
            order = ", ".join([f"i32 {lane}" for lane in lanes])
            operands = f"{vector} {value}, {vector} poison, <{len(lanes)} x i32> <{order}>"
            piece = writer.let(f"shufflevector {operands}")
        writer.do(f"store {memory_type(part)} {piece}, {_place(writer, position, address, lanes)}")


def load_pieces(writer: Writer, position: Position, dtype: DType) -> str:
    """A vector loaded piece by piece."""
    vector, loaded = memory_type(dtype), "poison"
    for lanes in pieces_of(position, dtype, writer.dialect.memory_bytes):
        address, part = lane_address(writer, position, lanes[0]), dtype.scalar.vec(len(lanes))
        source = f"{memory_type(part)}, {_place(writer, position, address, lanes)}"
        piece = writer.let(f"load {source}", "load")
        for k, lane in enumerate(lanes):
            element = piece
            if len(lanes) > 1:
                element = writer.let(f"extractelement {memory_type(part)} {piece}, i64 {k}")
            scalar = f"{memory_type(dtype.scalar)} {element}"
            loaded = writer.let(f"insertelement {vector} {loaded}, {scalar}, i64 {lane}")
    return loaded


def _place(writer: Writer, position: Position, address: str, lanes: range) -> str:
    nbytes = len(lanes) * position.element.itemsize
    return f"{position.pointer(writer.dialect)} {address}, align {nbytes}"
