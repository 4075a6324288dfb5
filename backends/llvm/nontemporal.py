"""Nontemporal stores, past the caches: whole lines of a result that is longer than they hold.

Owns: which stores. Does not own: the instruction (memory.py), from which size on (the dialect).

A line that is stored as usual is first read into the cache, to be changed there. One that is written as a
whole, and read by nobody soon, needs neither. But it waits for memory where loads from the second cache wait, too: a tile that reads more from
there than it stores takes less time if its results go to the caches, for which they are asked ahead (prefetch_tiles.py).
"""

from __future__ import annotations

from collections import Counter
from itertools import takewhile
from math import prod

from proofgrad.backends.llvm.prefetch_tiles import Loops, loops_around
from proofgrad.core.compile.machine.machine import LINE_BYTES
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.loops import is_fixed, size_of
from proofgrad.core.compile.nests.strides import loops_of
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.op_names import ADD, CONST, LOAD, MUL, PARAM, STORE
from proofgrad.core.ir.uop import UOp

# How a store says it, and what waits for such stores where a program ends.
MARK, FENCE = ", !nontemporal !0", "  fence seq_cst"


def is_stored_past(text: str) -> bool:
    """Whether a program stores past the caches."""
    return MARK in text


def stored_in_caches(text: str) -> str:
    """The text of a program whose results are read soon: its stores go through the caches."""
    return text.replace(MARK, "").replace(FENCE, "")


def nontemporal_stores(linear: UOp, least_bytes: int | None, target: Target) -> frozenset[UOp]:
    """The STOREs of whole lines to buffers of so many bytes that the program does not read."""
    if least_bytes is None:
        return frozenset()
    long = {node for node in linear.src if node.op is PARAM and _nbytes(node) >= least_bytes}
    if not long:
        return frozenset()
    long -= {node.src[0].src[0] for node in linear.src if node.op is LOAD}
    stores = [node for node in linear.src if node.op is STORE]
    whole = [s for s in stores if s.src[0].src[0] in long and _is_whole_lines(s)]
    around = loops_around(linear) if whole else {}
    tiles = Counter[Loops]()
    for store in whole:
        tiles[around[store]] += _bytes_moved(store.src[1].dtype)
    past = {loops for loops, n in tiles.items() if _bytes_read_again(loops, around, target) < n}
    return frozenset([s for s in whole if around[s] in past])


def _bytes_read_again(loops: Loops, around: dict[UOp, Loops], target: Target) -> int:
    """What loops inside of these read for each iteration of the innermost one, and again in one further outside, when only the second cache still has it."""
    read = Counter[tuple[UOp, Loops]]()
    for node, inside in around.items():
        if node.op is LOAD and len(inside) > len(loops) and inside[: len(loops)] == loops:
            changing = loops_of(node.src[0].src[1])
            steps = [loop for loop in inside[len(loops) :] if loop in changing]
            goes_on = tuple(reversed([*takewhile(changing.__contains__, reversed(loops))]))
            if goes_on and goes_on != loops and all(map(is_fixed, (*goes_on, *steps))):
                times = prod([size_of(loop) for loop in steps])
                read[node.src[0].src[0], goes_on] += times * _bytes_moved(node.dtype)
    near = target.near_bytes
    return sum([n for (_, inner), n in read.items() if n * prod(map(size_of, inner)) > near])


def _bytes_moved(dtype: DType) -> int:
    return dtype.lanes * dtype.itemsize


def _nbytes(buffer: UOp) -> int:
    return int(buffer.arg[1] * buffer.dtype.itemsize)


def _is_whole_lines(store: UOp) -> bool:
    position, value = store.src[:2]
    masks = position.src[2:]  # one of all lanes turns off a whole line
    is_in_lanes = any([n.dtype.lanes > 1 for n in (position.src[1], *masks)])
    if is_in_lanes or value.dtype.is_bool:
        return False
    nbytes = value.dtype.lanes * value.dtype.itemsize
    return nbytes % LINE_BYTES == 0 and _is_multiple(position.src[1], value.dtype.lanes)


def _is_multiple(term: UOp, size: int) -> bool:
    """Whether the index is known to be a multiple of `size`, a power of two."""
    if term.op is CONST:
        return bool(term.arg % size == 0)
    if term.op is ADD:
        return all([_is_multiple(part, size) for part in term.src])
    return term.op is MUL and any([_is_multiple(part, size) for part in term.src])
