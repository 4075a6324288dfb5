"""What a kernel of tiles will read and write next, asked of the second cache while it computes.

Owns: which memory, and what part of it each iteration asks for. Does not own: the instruction (memory.py). A hint
reads nothing, so it may name a place outside of its buffer.

Many tiles share a piece of an operand: some columns of a table, a matrix of a batch. The first that reads it would
wait for memory all the time, and the others, which find it in the second cache, never. So every step of all of them
asks for a small part of what lies behind the piece; also of results, whose lines are fetched before they are written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from proofgrad.backends.llvm.streaming import LINE_BYTES
from proofgrad.core.compile.linear_terms import at_start, coefficient
from proofgrad.core.ir.op_names import CONST, END, LOAD, PARAM, RANGE, STORE
from proofgrad.core.ir.uop import AxisRole, UOp

# Buffers up to here stay in the second cache as a whole.
NEAR_BYTES = 1 << 18
# A piece up to here does, beside the next one.
PIECE_BYTES = 1 << 20
# Lines that one iteration asks for, at most: more would be no small part of its work.
MOST_LINES = 4

Loops = tuple[UOp, ...]


@dataclass(frozen=True, slots=True)
class Hint:
    """Ask for the line `elements` behind a load, and so many more behind it for each iteration of a loop `along`.

    `buffer`: not behind the load, but behind the first element of a buffer. `cache`: 1 for what is read at once, 2
    for later. `is_written`: not read.
    """

    elements: int
    along: tuple[tuple[UOp, int], ...] = ()
    buffer: UOp | None = None
    cache: int = 1
    is_written: bool = False


@dataclass(frozen=True, slots=True)
class _Access:
    """A place that is loaded from (by `load`) or stored to, how many lanes, and the loops around it."""

    place: UOp
    lanes: int
    loops: Loops
    load: UOp | None

    def moves(self, loops: Loops) -> list[int] | None:
        """Elements between two iterations of each loop; None if they are not always as many."""
        found: list[int] = []
        for loop in loops:
            move = coefficient(self.place.src[1], loop)
            if move is None:
                return None
            found.append(move)
        return found


def next_pieces(linear: UOp, first: UOp, loops: Loops) -> Iterator[tuple[UOp, Hint]]:
    """Loads in the innermost loop of a tile, each with what to ask for there.

    `first`, `loops`: one of these loads, and the loops around it.
    """
    depth = sum(loop.arg[1] is AxisRole.REDUCE for loop in loops)
    by_buffer: dict[UOp, list[_Access]] = {}
    for access in _accesses(linear) if depth and all(map(size_of, loops)) else ():
        by_buffer.setdefault(access.place.src[0], []).append(access)
    for buffer, accesses in by_buffer.items():
        if buffer.op is not PARAM or buffer.arg[1] * buffer.dtype.itemsize <= NEAR_BYTES:
            continue
        inmost = len(loops) - depth - 1
        ways = (_hints(accesses, first, loops, number) for number in range(inmost, -1, -1))
        yield from next(filter(None, ways), ())


def _accesses(linear: UOp) -> Iterator[_Access]:
    loops: list[UOp] = []
    for node in linear.src:
        if node.op is RANGE:
            loops.append(node)
        elif node.op is END:
            loops.pop()
        elif node.op is LOAD:
            yield _Access(node.src[0], node.dtype.lanes, tuple(loops), node)
        elif node.op is STORE:
            yield _Access(node.src[0], node.src[1].dtype.lanes, tuple(loops), None)


def _hints(
    accesses: Sequence[_Access], first: UOp, loops: Loops, number: int
) -> list[tuple[UOp, Hint]]:
    """For one buffer; none if `loops[number]` does not go from one piece to the next, or no other loop reads it again."""
    pieces, inner, outer = loops[number], loops[number + 1 :], loops[: number + 1]
    buffer = accesses[0].place.src[0]
    step, *moves = accesses[0].moves((pieces, *inner)) or (0,)
    if 0 not in moves or not 0 < step * buffer.dtype.itemsize <= PIECE_BYTES:
        return []
    low = _start(accesses, pieces, step)
    shares, line = _shares(step, inner), LINE_BYTES // buffer.dtype.itemsize
    if low is None or shares[-1] > MOST_LINES * line:
        return []
    inside = [access for access in accesses if access.loops == loops and access.load is not None]
    start, per_loop = step + low, list(zip(inner, shares, strict=True))
    if inside and (moves := inside[0].moves(inner)) is not None:
        owner, base = inside[0].load, None  # behind a load, whatever other loops add to its place
        start -= at_start(inside[0].place.src[1])
        along = [(loop, share - move) for (loop, share), move in zip(per_loop, moves, strict=True)]
    elif (moves := accesses[0].moves(outer)) is not None:
        owner, base, along = first, buffer, [*zip(outer, moves, strict=True), *per_loop]
    else:
        return []
    is_written = any(access.load is None for access in accesses)
    starts = range(start, start + shares[-1], line)
    return [(owner, Hint(at, tuple(along), base, 2, is_written)) for at in starts]


def _shares(piece: int, loops: Loops) -> list[int]:
    """Elements of a piece that an iteration of each of the loops, the outer ones first, asks for."""
    shares: list[int] = []
    for loop in loops:
        piece = -(-piece // size_of(loop))
        shares.append(piece)
    return shares


def _start(accesses: Sequence[_Access], pieces: UOp, step: int) -> int | None:
    """Where the first piece of `step` elements begins; None if pieces overlap, or most of one is not used."""
    lows, highs, used, known = [], [], 0, dict[UOp, int]()
    for access in accesses:
        index = access.place.src[1]
        inner = access.loops[access.loops.index(pieces) + 1 :] if pieces in access.loops else ()
        own_step, *moves = access.moves((pieces, *inner)) or (0,)
        if own_step != step or index.dtype.lanes > 1:
            return None
        far = [move * (size_of(loop) - 1) for move, loop in zip(moves, inner, strict=True)]
        lows.append(at_start(index, known) + sum(x for x in far if x < 0))
        highs.append(at_start(index, known) + sum(x for x in far if x > 0))
        used += access.lanes * prod(size_of(x) for x, n in zip(inner, moves, strict=True) if n)
    return min(lows) if max(highs) - min(lows) < step <= 2 * used else None


def size_of(loop: UOp) -> int:
    """Iterations of a loop; 0 if they are not known."""
    return int(loop.src[0].arg) if loop.src[0].op is CONST else 0
