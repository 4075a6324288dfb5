"""Words of two small integers that lie side by side in memory: read as one vector, and widened at once.

    word k of lanes:   x[2 k] % 2**16 + 2**16 * x[2 k + 1]      the bits of   x[0], x[1], x[2], x[3], ...   in 16 bits each

Owns: which words, their loads and masks. Does not own: what is done with words (the DOT of arithmetic.py), other accesses (memory_printer.py).

A word is little-endian, as all machines are for which LLVM IR is printed here: its lower half is the element at the lower address.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from proofgrad.backends.llvm.arithmetic import constant_value
from proofgrad.backends.llvm.memory import Position, write_load
from proofgrad.backends.llvm.register_transpose import same_but_for_position
from proofgrad.backends.llvm.text import literal, register_type
from proofgrad.backends.llvm.writer import Writer
from proofgrad.core.compile.lowering.program_facts import lanes_apart
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.op_names import ADD, LOAD, MUL, PARAM, STORE
from proofgrad.core.ir.ops import ALU, Ops
from proofgrad.core.ir.uop import UOp

HALF = 1 << 16  # numbers of half a word


class Word(NamedTuple):
    """The nodes of a vector of words: itself, the loads of both halves, and which of them comes last in the program."""

    whole: UOp
    lower: UOp
    upper: UOp
    last: UOp


def words_of_neighbours(linear: UOp, others: Iterable[UOp]) -> list[Word]:
    """The vectors of words both of whose halves are read from memory, next to each other, but for loads that are read otherwise."""
    sums = [
        n
        for n in linear.src
        if n.op is ADD and n.dtype.lanes > 1 and n.dtype.scalar is dtypes.int32
    ]
    found = [(node, halves) for node in sums if (halves := _halves(node)) is not None]
    if not found:
        return []
    place, apart = {node: k for k, node in enumerate(linear.src)}, set(others)
    stores = [k for k, node in enumerate(linear.src) if node.op is STORE]
    words, taken = list[Word](), set[UOp]()
    for node, halves in found:
        first, last = sorted(halves, key=lambda load: place[load])
        is_between = any([place[first] < k < place[last] for k in stores])
        if not is_between and apart.isdisjoint(halves) and taken.isdisjoint(halves):
            words.append(Word(node, *halves, last))
            taken.update(halves)
    return words


def within_words(linear: UOp, words: list[Word]) -> set[UOp]:
    """The words, and what nothing but them is made of: values that no instruction computes by themselves."""
    found = {word.whole for word in words}
    users: dict[UOp, list[UOp]] = {}
    for node in linear.src:
        for source in node.src:
            users.setdefault(source, []).append(node)
    for node in reversed(linear.src):
        if node.op in ALU or node.op is Ops.CAST:
            if (own := users.get(node)) and found.issuperset(own):
                found.add(node)
    return found


def alone_in_words(linear: UOp, words: list[Word], within: set[UOp]) -> set[UOp]:
    """The loads of words that nothing else reads."""
    loads = {load for word in words for load in (word.lower, word.upper)}
    for node in linear.src:
        if node not in within:
            loads.difference_update(node.src)
    return loads


def _halves(node: UOp) -> tuple[UOp, UOp] | None:
    """The loads of the lower and the upper half of a vector of words; None: it is no such vector."""
    for raised, rest in (node.src, node.src[::-1]):
        upper = _factor(raised, MUL, HALF)
        if upper is None:
            continue
        lower = _factor(rest, Ops.AND, HALF - 1)
        is_low = lower is not None or _source_of(rest).dtype.is_unsigned
        one, other = _source_of(rest if lower is None else lower), _source_of(upper)
        if is_low and _are_neighbours(one, other):
            return one, other
    return None


def _factor(node: UOp, op: Ops, constant: int) -> UOp | None:
    """The operand beside a constant; None: it is another operation."""
    if node.op is not op:
        return None
    sides = (node.src, node.src[::-1])
    return next((x for x, other in sides if constant_value(other) == constant), None)


def _source_of(node: UOp) -> UOp:
    """What is converted to words."""
    return node.src[0] if node.op is Ops.CAST else node


def _are_neighbours(lower: UOp, upper: UOp) -> bool:
    """Whether these are loads of integers of one or two bytes, whose lanes lie two elements apart, the second one behind the first."""
    if lower.op is not LOAD or upper.op is not LOAD or lower.dtype is not upper.dtype:
        return False
    kind = lower.dtype.scalar
    if kind not in (dtypes.int8, dtypes.uint8, dtypes.int16):
        return False
    if any([len(load.src) > 1 or load.src[0].src[0].op is not PARAM for load in (lower, upper)]):
        return False
    (memory, one, *masks), (other_memory, other, *other_masks) = lower.src[0].src, upper.src[0].src
    if any([mask.dtype.lanes == 1 for mask in (*masks, *other_masks)]):
        return False
    first, second = lanes_apart(one), lanes_apart(other)
    if first is None or second is None or first[1] != tuple(range(0, 2 * lower.dtype.lanes, 2)):
        return False
    key, number = same_but_for_position(memory, *first)
    return same_but_for_position(other_memory, *second) == (key, number + 1)


def write_words(writer: Writer, lower: Position, upper: Position, dtype: DType) -> str:
    """The register of a vector of words; `dtype` is that of the loads of both halves."""
    elements = dtype.scalar.vec(2 * dtype.lanes)
    position = lower._replace(index_dtype=lower.index_dtype.scalar, offsets=None, multiple_of=1)
    if lower.mask is not None or upper.mask is not None:
        position = _masked(writer, position, lower, upper, dtype.lanes)
    loaded = write_load(writer, position, elements)
    halves = dtypes.int16.vec(elements.lanes)
    if dtype.scalar.itemsize == 1:
        extend = "zext" if dtype.scalar.is_unsigned else "sext"
        kinds = register_type(elements), register_type(halves)
        loaded = writer.let(f"{extend} {kinds[0]} {loaded} to {kinds[1]}")
    words = register_type(dtypes.int32.vec(dtype.lanes))
    return writer.let(f"bitcast {register_type(halves)} {loaded} to {words}")


def _masked(
    writer: Writer, position: Position, lower: Position, upper: Position, lanes: int
) -> Position:
    """With the masks of both halves between each other."""
    bools = dtypes.bool.vec(lanes)
    sides = [_mask_of(side, bools) for side in (lower, upper)]
    known = tuple([truth for pair in zip(*[truths for _, truths in sides]) for truth in pair])
    if known == (True,) * 2 * lanes:
        return position._replace(mask=None, mask_lanes=1, known=(None,))
    if None not in known:
        mask = literal(known, dtypes.bool.vec(2 * lanes))
    else:
        order = ", ".join([f"i32 {k + half * lanes}" for k in range(lanes) for half in range(2)])
        operands = ", ".join([f"{register_type(bools)} {mask}" for mask, _ in sides])
        mask = writer.let(f"shufflevector {operands}, <{2 * lanes} x i32> <{order}>")
    return position._replace(mask=mask, mask_lanes=2 * lanes, known=known)


def _mask_of(position: Position, bools: DType) -> tuple[str, tuple[bool | None, ...]]:
    """The register of the mask of lanes, and what is known of each; where there is no mask all are on."""
    if position.mask is None:
        on = (True,) * bools.lanes
        return literal(on, bools), on
    known = position.known
    return position.mask, known if len(known) == bools.lanes else known * bools.lanes
