"""Nontemporal stores, past the caches: whole lines of a result that is longer than they hold.

Owns: which stores. Does not own: the instruction (memory.py), from which size on (the dialect).

A line that is stored as usual is first read into the cache, to be changed there. One that is written as a
whole, and read by nobody soon, needs neither; vectors that are half a line fill it one behind the other. But it waits for memory where loads from the second cache wait, too: a tile that reads more from
there than it stores takes less time if its results go to the caches, for which they are asked ahead (prefetch_tiles.py).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import takewhile
from math import prod

from proofgrad.backends.llvm.prefetch_tiles import Loops, bytes_of, loops_around
from proofgrad.core.compile.machine.machine import LINE_BYTES
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.loops import is_fixed, size_of
from proofgrad.core.compile.nests.strides import coefficient, loops_of
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.op_names import ADD, CONST, LOAD, MUL, PARAM, STORE
from proofgrad.core.ir.uop import UOp

# How a store says it, and what waits for such stores where a program ends.
MARK, FENCE = ", !nontemporal !0", "  fence seq_cst"

# Of a loop that stores halves of lines in a row.
LEAST_STEPS = 16


def is_stored_past(text: str) -> bool:
    """Whether a program stores past the caches."""
    return MARK in text


def stored_in_caches(text: str) -> str:
    """The text of a program whose results are read soon: its stores go through the caches."""
    return text.replace(MARK, "").replace(FENCE, "")


def nontemporal_stores(linear: UOp, target: Target, whole: frozenset[UOp]) -> frozenset[UOp]:
    """The STOREs of whole lines to long buffers that the program does not read, if it moves twice as many bytes as make them long.

    `whole`: masks that hold but for what ends a row, which is stored as usual.
    """
    if not target.past_caches_bytes:
        return frozenset()
    least = target.least_past_caches_bytes
    memories = [node for node in linear.src if node.op is PARAM]
    moved = sum(map(bytes_of, memories))
    long = {node for node in memories if bytes_of(node) >= least}
    # What is filled, and not read, leaves the caches to the result (measured: 34 MB are filled in 0.55 ms, past the caches in 0.89).
    if not long or moved < 2 * least:
        return frozenset()
    long -= {node.src[0].src[0] for node in linear.src if node.op is LOAD}
    stores = [node for node in linear.src if node.op is STORE]
    plain = [s for s in stores if s.src[0].src[0] in long and _is_plain(s, whole)]
    around = loops_around(linear) if plain else {}
    plain = _long_enough(plain, around, moved, target)
    lines = [s for s in plain if _is_whole_lines(s)]
    lines += _in_a_row([s for s in plain if 2 * _nbytes_of(s) == LINE_BYTES], around)
    tiles = Counter[Loops]()
    for store in lines:
        tiles[around[store]] += _bytes_moved(store.src[1].dtype)
    past = {loops for loops, n in tiles.items() if _bytes_read_again(loops, around, target) < n}
    return frozenset([s for s in lines if around[s] in past])


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


def _is_plain(store: UOp, whole: frozenset[UOp]) -> bool:
    """Whether lanes lie side by side, and one truth turns off all of them but where a row ends."""
    position, value = store.src[:2]
    is_in_lanes = any([n.dtype.lanes > 1 for n in position.src[1:] if n not in whole])
    return not is_in_lanes and not value.dtype.is_bool


def _long_enough(
    stores: list[UOp], around: dict[UOp, Loops], moved: int, target: Target
) -> list[UOp]:
    """The stores of results so long as those must be that are written in the order of memory, or in another one."""
    written = Counter[tuple[UOp, Loops]]()  # elements of an iteration of the innermost loop
    for store in stores:
        written[store.src[0].src[0], around[store]] += store.src[1].dtype.lanes
    found: list[UOp] = []
    for store in stores:
        (memory, index, *_), loops = store.src[0].src, around[store]
        goes_on = not loops or coefficient(index, loops[-1]) == written[memory, loops]
        least = target.past_caches_bytes if goes_on else target.least_past_caches_bytes
        if bytes_of(memory) >= least and moved >= 2 * least:
            found.append(store)
    return found


def _nbytes_of(store: UOp) -> int:
    return _bytes_moved(store.src[1].dtype)


def _is_whole_lines(store: UOp) -> bool:
    is_long = _nbytes_of(store) % LINE_BYTES == 0
    return is_long and _is_multiple(store.src[0].src[1], store.src[1].dtype.lanes)


def _in_a_row(stores: list[UOp], around: dict[UOp, Loops]) -> list[UOp]:
    """Of stores of half a line those that an iteration does side by side, if the next iteration of the innermost loop goes on behind them."""
    rows = defaultdict[tuple[UOp, UOp, Loops], dict[int, UOp]](dict)
    for store in stores:
        lanes, (memory, index, *masks) = store.src[1].dtype.lanes, store.src[0].src
        is_left_out = any([mask.dtype.lanes == 1 for mask in masks])
        if not is_left_out and around[store] and _is_multiple(index, lanes):
            first, offset = index.src if index.op is ADD else (index, None)
            if offset is None or offset.op is not CONST:
                first, offset = index, None
            rows[memory, first, around[store]][0 if offset is None else offset.arg] = store
    found: list[UOp] = []
    for (_, first, loops), row in rows.items():
        lanes, length = next(iter(row.values())).src[1].dtype.lanes, len(row)
        is_whole = sorted(row) == [lanes * k for k in range(length)]
        if is_whole and coefficient(first, loops[-1]) == lanes * length and _is_long(loops[-1]):
            found += row.values()
    return found


def _is_long(loop: UOp) -> bool:
    """Whether what begins or ends within a line is little of what such a loop stores."""
    return not is_fixed(loop) or size_of(loop) >= LEAST_STEPS


def _is_multiple(term: UOp, size: int) -> bool:
    """Whether the index is known to be a multiple of `size`, a power of two."""
    if term.op is CONST:
        return bool(term.arg % size == 0)
    if term.op is ADD:
        return all([_is_multiple(part, size) for part in term.src])
    return term.op is MUL and any([_is_multiple(part, size) for part in term.src])
