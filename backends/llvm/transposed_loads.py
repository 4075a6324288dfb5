"""Vectors whose lanes lie apart, but of which each lane's next elements lie behind it: read along memory, and transposed in registers.

    step k:   x[0, k]  x[1, k]  x[2, k] ...        four steps:   x[0, k : k + 4],  x[1, k : k + 4], ...

Elements are words of four bytes, or several that make up a word (as a matrix unit takes them: x[0, 2 k] x[0, 2 k + 1] x[1, 2 k] ...), or parts of
words, which are widened before and narrowed behind.

Owns: which loops, the loads and their masks. Does not own: the shuffles (register_transpose.py), writing the loops (loop_printer.py).

A loop of four steps that fills memory, with the columns of a tile or what lies across, has no loop in the text: each row of four elements is
one load, instead of each element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from proofgrad.backends.llvm.alignment import largest_power_of_two
from proofgrad.backends.llvm.memory import Position, lane_address
from proofgrad.backends.llvm.pieces import lanes_from
from proofgrad.backends.llvm.register_transpose import ITEMSIZE, side_by_side, transposed
from proofgrad.backends.llvm.skipping import parts_of_truths
from proofgrad.backends.llvm.text import literal, memory_type, register_type, type_code
from proofgrad.backends.llvm.writer import Writer
from proofgrad.backends.llvm.written_out import PLAIN, inside_of, is_short
from proofgrad.core.compile.lowering.program_facts import lanes_apart
from proofgrad.core.compile.nests.strides import coefficient
from proofgrad.core.compile.schedule.table_cycles import TRANSPOSED_ROWS
from proofgrad.core.ir.dtypes import DType, Kind, dtypes
from proofgrad.core.ir.op_names import AND, BROADCAST, CONST, END, LOAD, PARAM, RANGE, STORE
from proofgrad.core.ir.ops import ALU, Ops
from proofgrad.core.ir.uop import UOp, counters_in

STEPS = TRANSPOSED_ROWS


class TransposedLoad(NamedTuple):
    """The masks of a LOAD: those that are the same in all steps, and where the steps end: a number is below another. Lanes that make up a word."""

    same: tuple[UOp, ...]
    ends: tuple[UOp, ...]
    run: int = 1


class Masks(NamedTuple):
    """The registers of masks: of the lanes, and of the four steps; None: all hold."""

    lanes: str | None
    steps: str | None


def transposed_loads(linear: UOp) -> tuple[dict[UOp, tuple[UOp, ...]], dict[UOp, TransposedLoad]]:
    """The loops of four steps, each with the nodes inside, and the LOADs in them that are read along their rows.

    A loop inside of such a loop is none: a LOAD that steps along it alone has no rows along the one around.
    """
    loops: dict[UOp, tuple[UOp, ...]] = {}
    loads: dict[UOp, TransposedLoad] = {}
    written = {n.src[0].src[0] for n in linear.src if n.op is STORE}
    taken = set[UOp]()
    for at, loop in enumerate(linear.src):
        if loop.op is not RANGE or loop in taken:
            continue
        if not is_short(loop, STEPS) or loop.src[0].arg != STEPS:
            continue
        inside = inside_of(linear, at)
        if not all([_is_of_copies(node) for node in inside]):
            continue
        own = [n for n in inside if n.op is LOAD]
        if not written.isdisjoint([n.src[0].src[0] for n in own]):
            continue
        found = {n: masks for n in own if (masks := _masks_of(n, loop)) is not None}
        if found:
            loops[loop] = inside
            loads |= found
            taken.update(inside)
    return loops, loads


def _is_of_copies(node: UOp) -> bool:
    """Whether a node may run for four steps before the next one does: it is no part of a sum."""
    if node.op in (RANGE, END):
        size = (node.src[0] if node.op is END else node).src[0]
        return size.op is CONST and size.arg > 0
    return node.op in ALU or node.op in PLAIN or node.op is LOAD or node.op is STORE


def _masks_of(load: UOp, loop: UOp) -> TransposedLoad | None:
    """The masks of a load that is read along its rows; None: it is not, or by masks of another kind."""
    memory, index, *mask = load.src[0].src
    dtype, apart = load.dtype, lanes_apart(index) or lanes_from(index)
    if memory.op is not PARAM or apart is None or dtype.is_bool:
        return None
    run = _lanes_of_a_word(dtype, apart[1])
    if run == 1 and lanes_apart(index) is None:
        return None
    if run == 0 or dtype.lanes % (STEPS * run) or coefficient(apart[0], loop) != run:
        return None
    parts = [n for n in parts_of_truths(tuple(mask)) if n.op not in (AND, BROADCAST)]
    ends = tuple([part for part in parts if loop in counters_in(part)])
    same = tuple([part for part in parts if part not in ends])
    if run > 1 and (ends or not all([_is_of_words(part, run) for part in same])):
        return None
    return TransposedLoad(same, ends, run) if all([_is_end(part, loop) for part in ends]) else None


def _lanes_of_a_word(dtype: DType, apart: Sequence[int]) -> int:
    """How many lanes side by side are read as one: those of a word, or 1; 0: there is no way for such elements."""
    run = max(1, ITEMSIZE // dtype.scalar.itemsize)
    words = [apart[lane : lane + run] for lane in range(0, len(apart), run)]
    if run > 1 and all([tuple(word) == tuple(range(word[0], word[0] + run)) for word in words]):
        return run
    return 1 if dtype.scalar.itemsize <= ITEMSIZE else 0


def _is_of_words(truth: UOp, run: int) -> bool:
    """Whether a truth is one of all lanes of a word: that a number is below a bound, and no bound lies within a word."""
    if truth.dtype.lanes == 1:
        return True
    if truth.op is not Ops.CMPLT or (found := lanes_from(truth.src[0])) is None:
        return False
    first, apart = found
    bound = truth.src[1].src[0] if truth.src[1].op is BROADCAST else truth.src[1]
    words = [apart[lane : lane + run] for lane in range(0, len(apart), run)]
    if all([len(set(word)) == 1 for word in words]):
        return bound.dtype.lanes == 1
    are_words = all([len({number // run for number in word}) == 1 for word in words])
    ends = [largest_power_of_two(number) % run == 0 for number in (first, bound)]
    return are_words and all(ends) and bound.op is CONST


def _is_end(truth: UOp, loop: UOp) -> bool:
    """Whether a truth is that a step lies below a number."""
    if truth.op is not Ops.CMPLT or truth.dtype.lanes > 1:
        return False
    step, bound = truth.src
    is_signed = step.dtype.kind is Kind.SIGNED
    return is_signed and bound.op is CONST and coefficient(step, loop) == 1


def write_transposed_loads(
    writer: Writer, position: Position, dtype: DType, masks: TransposedLoad, of: Masks
) -> list[str]:
    """The vectors of four steps; `position` is that of the first.

    Where all masks hold, which is everywhere but at an end, none is asked for.
    """
    same, steps = of.lanes, of.steps
    firsts = range(0, dtype.lanes, masks.run)
    rows = [lane_address(writer, position, lane) for lane in firsts]
    row = _element_of(dtype, masks.run).vec(STEPS)
    pointer, kind = writer.dialect.pointer, memory_type(row)
    align = dtype.scalar.itemsize
    asked = [(same, dtype.lanes), (steps, STEPS)]
    whole = [_holds_everywhere(writer, mask, lanes) for mask, lanes in asked if mask is not None]
    if not whole:
        return _turned(writer, dtype, row, _loads(writer, row, rows, align))
    end, every = writer.fresh("rows"), whole[0]
    if len(whole) > 1:
        every = writer.let(f"and i1 {every}, {whole[1]}")
    writer.do(f"br i1 {every}, label %{end}.whole, label %{end}.lanes")
    writer.begin_block(f"{end}.whole")
    plain = _turned(writer, dtype, row, _loads(writer, row, rows, align))
    writer.do(f"br label %{end}")
    writer.begin_block(f"{end}.lanes")
    if same is not None:
        writer.zero_bytes = max(writer.zero_bytes, STEPS * ITEMSIZE)
        truths = dtypes.bool.vec(dtype.lanes)
        rows = [
            writer.let(
                f"select i1 {writer.lane(same, truths, lane)}, {pointer} {at}, {pointer} @zeros"
            )
            for lane, at in zip(firsts, rows)
        ]
    loaded = (
        _loads(writer, row, rows, align)
        if steps is None
        else [
            writer.let(
                f"call {kind} @llvm.masked.load.{type_code(kind)}.{writer.dialect.pointer_code}"
                f"({pointer} align {align} {at}, <{STEPS} x i1> {steps}, {kind} zeroinitializer)"
            )
            for at in rows
        ]
    )
    masked = _turned(writer, dtype, row, loaded)
    last = writer.block
    writer.do(f"br label %{end}")
    writer.begin_block(end)
    vector = memory_type(dtype)
    return [
        writer.let(f"phi {vector} [ {one}, %{end}.whole ], [ {other}, %{last} ]", "load")
        for one, other in zip(plain, masked)
    ]


def _element_of(dtype: DType, run: int) -> DType:
    """What is turned around: words, or parts of words."""
    if run > 1:
        return dtypes.uint32
    sizes = {ITEMSIZE: dtype.scalar, 2: dtypes.uint16, 1: dtypes.uint8}
    return sizes[dtype.scalar.itemsize]


def _turned(writer: Writer, dtype: DType, row: DType, rows: Sequence[str]) -> list[str]:
    """The vectors of four steps of such rows."""
    element, count = row.scalar, len(rows)
    vectors = side_by_side(writer, row, rows)
    held, words = element.vec(count), element if element.itemsize == ITEMSIZE else dtypes.uint32
    if words is not element:
        vectors = [_converted(writer, "zext", one, held, words.vec(count)) for one in vectors]
    made = transposed(writer, words.vec(count), vectors)
    if words is not element:
        made = [_converted(writer, "trunc", one, words.vec(count), held) for one in made]
    if memory_type(held) == memory_type(dtype):
        return made
    return [_converted(writer, "bitcast", one, held, dtype) for one in made]


def _converted(writer: Writer, how: str, value: str, before: DType, after: DType) -> str:
    return writer.let(f"{how} {memory_type(before)} {value} to {memory_type(after)}")


def mask_of_steps(writer: Writer, number: str, dtype: DType, bound: int) -> str:
    """Which of four steps, of which the first has that number, are below a bound."""
    wide = dtype.vec(STEPS)
    steps = f"{writer.splat(number, wide)}, {literal(tuple(range(STEPS)), wide)}"
    far = writer.let(f"add {register_type(wide)} {steps}")
    return writer.let(f"icmp slt {register_type(wide)} {far}, {literal(bound, wide)}")


def both(writer: Writer, lanes: int, masks: Sequence[str]) -> str | None:
    """The mask under which all hold; None: there is none."""
    found: str | None = None
    for mask in masks:
        found = mask if found is None else writer.let(f"and <{lanes} x i1> {found}, {mask}")
    return found


def _holds_everywhere(writer: Writer, mask: str, lanes: int) -> str:
    return writer.let(f"call i1 @llvm.vector.reduce.and.v{lanes}i1(<{lanes} x i1> {mask})")


def _loads(writer: Writer, row: DType, rows: Sequence[str], align: int) -> list[str]:
    kind, pointer = memory_type(row), writer.dialect.pointer
    return [writer.let(f"load {kind}, {pointer} {at}, align {align}", "load") for at in rows]
