"""Lines that a loop asks the cache for before it reads or writes them.

Owns: which, and how far ahead. Does not own: the instruction (memory.py). A hint reads nothing, so
it may name a position outside of its buffer.

The columns of a tile come through a loop in steps that a processor does not foresee well: a row of a tile from a
table, or of a matrix, whose rows lie pages apart. What the tiles after these need is asked for too (prefetch_tiles.py).
Where several loops in turn run over a row, as in a softmax, only the first waits for memory: the second asks for
the row after this one, which comes while it computes. Results of a tile that are parts of lines are asked for by the tile before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import inf, prod

from proofgrad.backends.llvm.prefetch_tiles import (
    Hint,
    Loops,
    bytes_of,
    loops_around,
    scan_prefetches,
    tile_prefetches,
)
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.loops import is_fixed, size_of
from proofgrad.core.compile.nests.strides import at_start, coefficient
from proofgrad.core.compile.schedule.contraction import LONG_ROW_BYTES
from proofgrad.core.ir.op_names import LOAD, MULACC, PARAM, STORE
from proofgrad.core.ir.uop import AxisRole, UOp

# Iterations ahead, measured from 1 to 4: 2 to 4 % of a large product, a quarter of one with few rows.
AHEAD = 2
# Lines ahead in a row whose elements a tile takes one by one, measured from 1 to 4: 1 to 5 % of a product.
LINES_AHEAD = 2
# Loads of a row in an iteration: one more than so many counts little (measured: a quarter more time where it is one for one).
LEAST_LOADS = 3
# Iterations of a loop over windows, for each that is asked for ahead: of fewer much would be behind the last one.
LEAST_STEPS = 4
# Vectors that are multiplied less often are read in a stream, which the processor foresees.
LEAST_USES = 4
# Rows that a loop goes along at once: fewer are streams that the processor foresees.
LEAST_ROWS = 4
# Rows of so much of the second cache stay there until their turn; buffers that fit stay there with all their rows.
LONGEST_ROW = 1 / 4


def prefetched(linear: UOp, target: Target, past: Iterable[UOp] = ()) -> dict[UOp, list[Hint]]:
    """What to ask for where something is loaded. `past`: stores that pass the caches, which ask for nothing."""
    around = loops_around(linear)
    found = {load: [Hint(step)] for load, step in _next_rows(around, target).items()}
    tiles, unread = set[UOp](), frozenset([store.src[0].src[0] for store in past])
    for load, loops in columns_of_tiles(around):
        if step := _step(load, loops[-1], target):
            found.setdefault(load, []).append(Hint(AHEAD * step))
        if loops[-1] not in tiles:
            tiles.add(loops[-1])
            others: dict[UOp, Hint] = {}
            for row in _rows_of_tile(around, loops, target):
                ahead = LINES_AHEAD * target.first_cache.line_bytes // row.dtype.itemsize
                others[row] = Hint(ahead)
            others |= {window: Hint(n) for window, n in _windows_of_tile(around, loops, target)}
            for one, hint in others.items():
                found.setdefault(one, []).append(hint)
            asked = frozenset([one.src[0].src[0] for one in others])
            for owner, hint in tile_prefetches(load, around, target, asked, unread):
                found.setdefault(owner, []).append(hint)
    for load in rows_at_once(around):
        for owner, hint in scan_prefetches(load, around, target, unread):
            found.setdefault(owner, []).append(hint)
    results = _next_results(around, target)
    found |= {store: [hint] for store, hint in results.items() if store not in past}
    return found


def rows_at_once(around: dict[UOp, Loops]) -> Iterator[UOp]:
    """The first load of each loop of results that goes along several rows of a buffer at once, element by element."""
    rows: dict[tuple[UOp, UOp], list[UOp]] = {}
    for node, loops in around.items():
        if node.op is LOAD and node.dtype.lanes == 1 and len(loops) > 1:
            buffer, index = node.src[0].src[:2]
            is_row = buffer.op is PARAM and coefficient(index, loops[-1]) in (1, -1)
            if is_row and loops[-1].arg[1] is not AxisRole.REDUCE:
                rows.setdefault((buffer, loops[-1]), []).append(node)
    yield from [loads[0] for loads in rows.values() if len(loads) >= LEAST_ROWS]


def columns_of_tiles(around: dict[UOp, Loops]) -> Iterator[tuple[UOp, Loops]]:
    """The vectors that a tile multiplies often, each with the loops around it."""
    uses = Counter(source for node in around if node.op is MULACC for source in node.src[:2])
    for node, loops in around.items():
        if loops and _is_vector(node) and uses[node] * _readers(node, loops) >= LEAST_USES:
            yield node, loops


def _readers(load: UOp, loops: Loops) -> int:
    """So many tiles, one after the other, load the same vectors: 1 where the loop around the sum goes to others."""
    tiles = next((loop for loop in reversed(loops) if loop.arg[1] is not AxisRole.REDUCE), None)
    if tiles is None or not is_fixed(tiles) or coefficient(load.src[0].src[1], tiles) != 0:
        return 1
    return size_of(tiles)


def _rows_of_tile(around: dict[UOp, Loops], loops: Loops, target: Target) -> list[UOp]:
    """Where the innermost loop of a tile reads some elements of a row at a time: the first load of each row."""
    starts: dict[tuple[UOp, int], UOp] = {}
    known: dict[UOp, int] = {}
    for node, inside in around.items():
        if node.op is LOAD and node.dtype.lanes == 1 and inside == loops:
            buffer, index = node.src[0].src[:2]
            is_far = buffer.op is PARAM and bytes_of(buffer) > target.first_cache.nbytes
            step = abs(coefficient(index, loops[-1]) or 0) if is_far else 0
            each = step * node.dtype.itemsize
            if (
                0 < each <= target.first_cache.line_bytes
                and is_fixed(loops[-1])
                and each * size_of(loops[-1]) >= LONG_ROW_BYTES
            ):
                starts[buffer, at_start(index, known)] = node
    return [
        load
        for (buffer, start), load in starts.items()
        if (buffer, start - 1) not in starts
        and all((buffer, start + k) in starts for k in range(LEAST_LOADS))
    ]


def _windows_of_tile(
    around: dict[UOp, Loops], loops: Loops, target: Target
) -> Iterator[tuple[UOp, int]]:
    """Where the innermost loop of a tile goes through a short piece of windows, as a line of one channel, and a loop of the sum around it to others: loads, and
    how far away what is read two iterations of that loop later is. Of what stays in the first cache nothing is asked for.

    Positions that move by a few elements and then by an image are no stream that a processor foresees. Of rows that lie apart, as those of several images, none is
    asked for: with a position more for each of 11 images it took 1.5 times as long (measured).
    """
    sums = [loop for loop in loops if loop.arg[1] is AxisRole.REDUCE]
    if len(sums) < 2 or not all(map(is_fixed, sums)):
        return
    starts: dict[tuple[UOp, tuple[int, ...]], dict[int, UOp]] = {}
    known: dict[UOp, int] = {}
    for node, inside in around.items():
        if node.op is LOAD and inside == loops and node.src[0].src[1].dtype.lanes == 1:
            buffer, index = node.src[0].src[:2]
            moves = tuple([coefficient(index, loop) or 0 for loop in sums])
            starts.setdefault((buffer, moves), {})[at_start(index, known)] = node
    line, read = target.first_cache.line_bytes, 0
    for (buffer, moves), loads in starts.items():
        lines = len(_in_other_lines(loads, line // buffer.dtype.itemsize))
        read += line * lines * _times_more_lines(buffer, moves, sums, line)
    for (buffer, moves), loads in starts.items() if read > target.first_cache.nbytes else ():
        step = _far_step(buffer, moves, sums, target)
        first, *others = _in_other_lines(loads, line // buffer.dtype.itemsize)
        is_near = not others or (others[-1] - first) * buffer.dtype.itemsize < LINES_AHEAD * line
        if step and is_near:
            for start in (first, *others):
                yield loads[start], AHEAD * step


def _far_step(buffer: UOp, moves: Sequence[int], sums: Sequence[UOp], target: Target) -> int:
    """Elements between two iterations of the outermost loop of a sum that leaves out most lines of memory, not the innermost loop, nor one of so few iterations
    that much of what is asked for is behind its end; 0: none does.
    """
    itemsize, line = buffer.dtype.itemsize, target.first_cache.line_bytes
    if buffer.op is not PARAM or bytes_of(buffer) <= target.first_cache.nbytes:
        return 0
    for number, (move, loop) in enumerate(zip(moves, sums[:-1])):
        inside = _times_more_lines(buffer, moves[number + 1 :], sums[number + 1 :], line)
        is_far = abs(move) * itemsize > 2 * line * inside
        if is_far and size_of(loop) >= LEAST_STEPS * AHEAD:
            return move
    return 0


def _times_more_lines(buffer: UOp, moves: Sequence[int], loops: Sequence[UOp], line: int) -> int:
    """How many times more lines of a buffer all iterations of some loops read than one of them does."""
    steps = [abs(move) * buffer.dtype.itemsize for move in moves]
    sizes = [size_of(loop) for loop in loops]
    return prod([max(1, min(n, n * step // line)) for n, step in zip(sizes, steps)])


def _in_other_lines(starts: Iterable[int], elements: int) -> list[int]:
    """Of positions the first, and each that is a line or more behind the last one before."""
    found: list[int] = []
    for start in sorted(starts):
        if not found or start - found[-1] >= elements:
            found.append(start)
    return found


def _next_results(around: dict[UOp, Loops], target: Target) -> dict[UOp, Hint]:
    """The stores of a tile whose results are not whole lines, one a line of the next tile, and where that is.

    Of a line that two tiles write the first cache may have lost the first half; a vector in two lines waits for both, one after the other, and all
    stores behind it wait, too. (Measured, with AVX2: sums of 5 products for 240 rows take 0.7 of the time for 390 columns, 0.8 for 392.)
    """
    tiles = {loops[:n] for node, loops in around.items() if node.op is MULACC and node.dtype.lanes > 1
             for n in range(1, len(loops) + 1)}  # fmt: skip
    by_buffer: dict[UOp, dict[int, UOp]] = {}  # by the first element in the first tile
    for store, loops in around.items():
        if store.op is STORE and loops in tiles and _leaves_first_cache(store, target):
            buffer, index = store.src[0].src[:2]
            by_buffer.setdefault(buffer, {})[at_start(index)] = store
    found: dict[UOp, Hint] = {}
    for buffer, stores in by_buffer.items():
        line = target.first_cache.line_bytes // buffer.dtype.itemsize
        if not _are_whole_lines(stores, line, around):
            found |= _once_a_line(stores, line, around)
    return found


def _leaves_first_cache(store: UOp, target: Target) -> bool:
    """Whether a vector of neighbours goes to memory that the first cache does not hold."""
    buffer, index = store.src[0].src[:2]
    is_far = buffer.op is PARAM and bytes_of(buffer) > target.first_cache.nbytes
    return is_far and store.src[1].dtype.lanes > index.dtype.lanes == 1


def _are_whole_lines(stores: dict[int, UOp], line: int, around: dict[UOp, Loops]) -> bool:
    """Whether what the stores of a tile write together begins and ends with a line, in all iterations."""
    moves = [coefficient(s.src[0].src[1], loop) for s in stores.values() for loop in around[s]]
    edges = stores.keys() ^ {n + store.src[1].dtype.lanes for n, store in stores.items()}
    return not any([move is None or move % line for move in (*moves, *edges)])


def _once_a_line(stores: dict[int, UOp], line: int, around: dict[UOp, Loops]) -> dict[UOp, Hint]:
    """The stores whose last elements are a line apart, and where that of each is in the next iteration."""
    found, last = dict[UOp, Hint](), inf
    for start, store in sorted(stores.items(), reverse=True):
        step = coefficient(store.src[0].src[1], around[store][-1])
        end = start + (ahead := store.src[1].dtype.lanes - 1)
        if step and last - end >= line:
            last, found[store] = end, Hint(step + ahead, is_written=True)
    return found


def _next_rows(around: dict[UOp, Loops], target: Target) -> dict[UOp, int]:
    """The loads of the second loop over a row, and how far behind it the next row is."""
    long = {node for node in around if node.op is PARAM and bytes_of(node) > target.cache_bytes}
    found: dict[UOp, int] = {}
    readers: dict[tuple[UOp, UOp], list[UOp]] = {}  # of a buffer's rows, which a loop takes: loops
    for node, loops in around.items() if long else ():
        if len(loops) > 1 and _is_vector(node) and node.src[0].src[0] in long:
            rows, inner = loops[-2:]
            inside = readers.setdefault((node.src[0].src[0], rows), [])
            if inner not in inside:
                inside.append(inner)
            step = coefficient(node.src[0].src[1], rows) if inside.index(inner) == 1 else None
            if step and abs(step) * node.dtype.itemsize <= LONGEST_ROW * target.cache_bytes:
                found[node] = step
    return found


def _is_vector(node: UOp) -> bool:
    return node.op is LOAD and node.dtype.lanes > 1 and node.src[0].src[1].dtype.lanes == 1


def _step(load: UOp, loop: UOp, target: Target) -> int | None:
    """Elements between two iterations of a loop of a sum, if it reads more than the first cache holds.

    None of a loop that ends before what would be asked for: lines of others, or of nobody.
    """
    if loop.arg[1] is not AxisRole.REDUCE or not is_fixed(loop) or size_of(loop) <= AHEAD:
        return None
    step = coefficient(load.src[0].src[1], loop)
    is_long = step and abs(step) * size_of(loop) * load.dtype.itemsize > target.first_cache.nbytes
    return step if is_long else None
