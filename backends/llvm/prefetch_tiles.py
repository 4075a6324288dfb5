"""Prefetches of what a kernel of tiles will read and write next, into the second cache while it computes.

Owns: which memory, and what part of it each iteration asks for. Does not own: the instruction (memory.py). A hint
reads nothing, so it may name a position outside of its buffer.

Many tiles share a piece of an operand: some columns of a table, a matrix of a batch. The first that reads it would
wait for memory all the time, and the others, which find it in the second cache, never. So every step of all of them
asks for a small part of what lies behind the piece; also of results, whose lines are fetched before they are written. A piece that
is read once, some columns at a time, is no stream that a processor foresees, and asked for as well (of 190 matrices of 83 x 125 that 7 rows
each are multiplied by, in strips of 32 columns, the next one: 440 us became 335).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product, takewhile
from math import prod

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.loops import is_fixed, size_of
from proofgrad.core.compile.nests.strides import at_start, coefficient, loops_of
from proofgrad.core.ir.op_names import ADD, CONST, END, LOAD, MUL, MULACC, PARAM, RANGE, STORE
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort

# Lines that one iteration asks for, at most: more would be no small part of its work. Where many steps are written out, one for so many
# multiplications of vectors.
MOST_LINES, PRODUCTS_A_LINE = 4, 7
# Loads and stores of a piece that are looked at.
MOST_POSITIONS = 1 << 12

Loops = tuple[UOp, ...]


@dataclass(frozen=True, slots=True)
class Term:
    """`elements` for each iteration of a loop, or `loop // divisor`, or `loop % modulus`; or times an index term that is there already."""

    loop: UOp
    elements: int
    divisor: int = 1
    modulus: int = 0


@dataclass(frozen=True, slots=True)
class Hint:
    """Ask for the line `elements` behind a load, and further behind it `along` some loops.

    `buffer`: not behind the load, but behind the first element of a buffer and the sum of `parts`, index terms
    that are there already. `cache`: 1 for what is read at once, 2 for later. `is_written`: not read.
    """

    elements: int
    along: tuple[Term, ...] = ()
    buffer: UOp | None = None
    parts: tuple[UOp, ...] = ()
    cache: int = 1
    is_written: bool = False


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows of `width` elements, `stride` apart; from `start` on, where all loops are at 0."""

    start: int
    rows: int
    width: int
    stride: int


@dataclass(frozen=True, slots=True)
class _Access:
    """A position that is loaded from (by `load`) or stored to, how many lanes, and the loops around it.

    `index`: that of the position, without what keeps tiles beyond the last inside of their buffer: what they would read is asked for as well.
    """

    position: UOp
    index: UOp
    lanes: int
    loops: Loops
    load: UOp | None

    def step(self, loop: UOp) -> int:
        """Elements between the first two iterations of a loop."""
        step = coefficient(self.index, loop)
        return at_start(self.index, {loop: 1}) - at_start(self.index) if step is None else step

    def moves(self, loops: Loops) -> list[int] | None:
        """Elements between two iterations of each loop; None if they are not always as many."""
        return _moves(self.index, loops)


@dataclass(frozen=True, slots=True)
class _Nest:
    """The loops of a tile, a load in the innermost one, and the loops around all nodes of the kernel.

    `before`: the nodes that come before that load.
    """

    first: UOp
    loops: Loops
    around: dict[UOp, Loops]
    target: Target
    before: frozenset[UOp]

    def outside(
        self, access: _Access, number: int
    ) -> tuple[tuple[UOp, ...], list[Term], int] | None:
        """The parts of an index that do not change inside of a loop: those that are known where the load is, by their names, others by the loops
        around; and what is left where all loops are at 0. None if a part is neither.
        """
        parts: list[UOp] = []
        terms: list[Term] = []
        constant, waiting = 0, [(access.index, 1)]
        outer = self.loops[: number + 1]
        while waiting:
            term, times = waiting.pop()
            is_inside = not loops_of(term).isdisjoint(access.loops[number + 1 :])
            if term.op is ADD:
                waiting += [(source, times) for source in term.src]
            elif not is_inside and term in self.before and self._is_open(self.around[term]):
                parts += [term] if times == 1 else []
                terms += [Term(term, times)] if times != 1 else []
            elif (moves := _moves(term, outer)) is not None and _is_of_loops(term):
                constant += at_start(term) * times
                moved = zip(outer, moves, strict=True)
                terms += [Term(x, move * times) for x, move in moved if move]
            elif term.op is MUL and term.src[1].op is CONST:
                waiting.append((term.src[0], times * term.src[1].arg))
            else:
                return None
        return tuple(parts), terms, constant

    @property
    def products(self) -> int:
        """Multiplications of an iteration of the innermost loop."""
        return sum([node.op is MULACC and own == self.loops for node, own in self.around.items()])

    def _is_open(self, loops: Loops) -> bool:
        """Whether the load stands inside of all these loops."""
        return loops == self.loops[: len(loops)]


_Reader = Callable[[Sequence[_Access], UOp, int], _Piece | None]


def tile_prefetches(
    first: UOp,
    around: dict[UOp, Loops],
    target: Target,
    asked: frozenset[UOp] = frozenset(),
    past: frozenset[UOp] = frozenset(),
) -> Iterator[tuple[UOp, Hint]]:
    """Loads in the innermost loop of a tile, each with what to ask for there.

    `first`: one of these loads; `around`: the loops around each node of the kernel; `asked`: the buffers whose rows or windows are asked for a little ahead anyway; `past`:
    those that are stored past the caches. Columns that are asked for a little ahead, and read once, are asked for in time by hints for the next piece (measured, one thread:
    12 rows by 5003 x 4000 take 6.4 ms in place of 9.6, by 4096 x 4096 5.3 in place of 8.5, 10 by 2551 x 2150 2.4 in place of 2.3).
    """
    loops = around[first]
    tiles = [k for k, loop in enumerate(loops) if loop.arg[1] is not AxisRole.REDUCE]
    if not tiles or tiles[-1] == len(loops) - 1:
        return
    numbers, nest = range(tiles[-1], -1, -1), _nest_of(first, around, target)
    for accesses in _of_far_buffers(first, around, target, past):
        is_read = all(access.load is not None for access in accesses)
        readers = (_whole, _in_rows) if is_read else (_whole,)  # rows of results: measured, no gain
        again = (True, False) if is_read and accesses[0].position.src[0] not in asked else (True,)
        ways = product(again, readers, numbers)
        found = (_hints(accesses, nest, number, read, is_again) for is_again, read, number in ways)
        yield from next(filter(None, found), ())


def scan_prefetches(
    first: UOp, around: dict[UOp, Loops], target: Target, past: frozenset[UOp] = frozenset()
) -> Iterator[tuple[UOp, Hint]]:
    """The same of a loop that goes along several rows at once, element by element: what it reads and writes of the next rows.

    The processor foresees the rows, and nothing at their ends (measured: running sums of 13,462 rows of 289, 8 at a time, take 2.3 ms in place of 4.4).
    """
    numbers, nest = range(len(around[first]) - 2, -1, -1), _nest_of(first, around, target)
    for accesses in _of_far_buffers(first, around, target, past):
        found = (_hints(accesses, nest, number, _whole, is_again=False) for number in numbers)
        yield from next(filter(None, found), ())


def _nest_of(first: UOp, around: dict[UOp, Loops], target: Target) -> _Nest:
    before = frozenset(takewhile(lambda node: node is not first, around))
    return _Nest(first, around[first], around, target, before)


def _of_far_buffers(
    first: UOp, around: dict[UOp, Loops], target: Target, past: frozenset[UOp]
) -> Iterator[list[_Access]]:
    """What is loaded from each buffer, or stored to it, that does not fit the second cache: others are there often enough that hints cost more than they give (measured)."""
    if not all(is_fixed(loop) and size_of(loop) for loop in around[first]):
        return
    for buffer, nodes in _by_buffer(around).items():
        is_near = buffer.op is not PARAM or bytes_of(buffer) <= target.cache_bytes or buffer in past
        if not is_near and all(node.src[0].src[1].dtype.lanes == 1 for node in nodes):
            yield _accesses(nodes, around)


def loops_around(linear: UOp) -> dict[UOp, Loops]:
    """The loops that are open where a node stands."""
    loops: Loops = ()
    found: dict[UOp, Loops] = {}
    for node in linear.src:
        found[node] = loops
        if node.op is RANGE:
            loops = (*loops, node)
        elif node.op is END:
            loops = loops[:-1]
    return found


def _by_buffer(around: dict[UOp, Loops]) -> dict[UOp, list[UOp]]:
    """The loads and stores of each buffer."""
    found: dict[UOp, list[UOp]] = {}
    for node in around:
        if node.op in (LOAD, STORE):
            found.setdefault(node.src[0].src[0], []).append(node)
    return found


def _accesses(nodes: Sequence[UOp], around: dict[UOp, Loops]) -> list[_Access]:
    found, known = [], dict[UOp, UOp]()
    for node in nodes:
        position, value = node.src[0], node if node.op is LOAD else node.src[1]
        load = node if node.op is LOAD else None
        index = _without_ends(position.src[1], known)
        found.append(_Access(position, index, value.dtype.lanes, around[node], load))
    return found


def _without_ends(index: UOp, known: dict[UOp, UOp]) -> UOp:
    """An index without the constants that its terms are kept below: a hint may name what lies beyond. `known`: those of other terms, and more."""
    for node in toposort((index,), lambda n: n.op in ELEMENTWISE and n not in known):
        if node in known:
            continue
        if node.op not in ELEMENTWISE:
            known[node] = node
        elif node.op is Ops.MIN and node.src[1].op is CONST:
            known[node] = known[node.src[0]]
        else:
            known[node] = node.with_src(tuple([known[source] for source in node.src]))
    return known[index]


def _moves(term: UOp, loops: Loops) -> list[int] | None:
    """What each loop adds in an iteration; None if it is not always as much."""
    found = [coefficient(term, loop) for loop in loops]
    return None if None in found else [move for move in found if move is not None]


def _is_of_loops(term: UOp) -> bool:
    """Whether nothing but loops decides a term."""
    return all(node.src or node.op is CONST for node in toposort((term,)))


def _hints(
    accesses: Sequence[_Access], nest: _Nest, number: int, read: _Reader, is_again: bool
) -> list[tuple[UOp, Hint]]:
    """For one buffer; none if the loop does not go from one piece to the next, or no loop inside reads a piece again, if `is_again`."""
    loops, access = nest.loops, accesses[0]
    pieces, inner = loops[number], loops[number + 1 :]
    moves = access.moves(inner)
    step = access.step(pieces) if moves and (0 in moves or not is_again) else 0
    piece = read(accesses, pieces, step) if step > 0 else None
    buffer = access.position.src[0]
    target = nest.target
    if piece is None or piece.rows * piece.width * buffer.dtype.itemsize > target.room_bytes:
        return []  # it would not stay in the second cache, beside the next one
    line = target.first_cache.line_bytes // buffer.dtype.itemsize
    parts_of_piece = _parts(piece, inner, line)
    most = max(MOST_LINES, nest.products // PRODUCTS_A_LINE)
    if parts_of_piece is None or len(parts_of_piece[0]) > most:
        return []
    behind, along = parts_of_piece
    inside = [(one, one.load) for one in accesses if one.loops == loops and one.load is not None]
    if inside and (moves := inside[0][0].moves(inner) or []):
        one, owner = inside[0]
        hint = Hint(piece.start + step - at_start(one.position.src[1]))
        along += [Term(loop, -move) for loop, move in zip(inner, moves, strict=True) if move]
    elif (outside := nest.outside(access, number)) is not None:
        parts, terms, constant = outside
        along = terms + along
        start = piece.start + step - at_start(access.index) + constant
        owner, hint = nest.first, Hint(start, buffer=buffer, parts=parts)
    else:
        return []
    is_written = any(one.load is None for one in accesses)
    hint = replace(hint, along=tuple(along), cache=2, is_written=is_written)
    return [(owner, replace(hint, elements=hint.elements + elements)) for elements in behind]


def _parts(piece: _Piece, loops: Loops, line: int) -> tuple[list[int], list[Term]] | None:
    """The lines that an iteration asks for, by the elements between its first and them, and where that is: its part of a piece that is shared out over
    loops. None: all steps are written out.
    """
    if piece.rows == 1:
        shares = _shares(piece.width, loops)
        terms = [Term(loop, share) for loop, share in zip(loops, shares, strict=True)]
        return [*range(0, shares[-1], line)], terms
    tiles = [loop for loop in loops if loop.arg[1] is not AxisRole.REDUCE]
    if len(tiles) == len(loops):  # all steps of a block are written out
        return None
    steps = max((loop for loop in loops if loop not in tiles), key=size_of)
    shares = _shares(piece.rows, tiles)
    terms = [Term(loop, share * piece.stride) for loop, share in zip(tiles, shares, strict=True)]
    lines = -(-piece.width // line) + (piece.stride % line != 0)
    rows, along = shares[-1] if shares else piece.rows, [*range(0, lines * line, line)]
    each = size_of(steps) // rows  # iterations for a row
    if each == 0:
        several = -(-rows // size_of(steps))  # rows for an iteration
        behind = [row * piece.stride + elements for row in range(several) for elements in along]
        return behind, [*terms, Term(steps, several * piece.stride)]
    if each >= lines:
        each, lines = _in_powers_of_two(each, lines)
        in_turn = [Term(steps, piece.stride, divisor=each), Term(steps, line, modulus=lines)]
        return [0], [*terms, *in_turn]
    return along, [*terms, Term(steps, piece.stride, divisor=each)]


def _in_powers_of_two(each: int, lines: int) -> tuple[int, int]:
    """Iterations for a row and lines of it as powers of 2, where those leave a turn to each line: fewer iterations, and lines of the next tile.

    Then a shift and a mask say which line it is, and no division (measured, with AVX2: 30 products of 131 x 241 by 241 x 86, in tiles of 4 x 2
    vectors step by step, took 3.7 ms, of 240 steps, three at a time, 2.7).
    """
    fewer, more = 1 << (each.bit_length() - 1), 1 << (lines - 1).bit_length()
    return (fewer, more) if fewer >= more else (each, lines)


def _shares(count: int, loops: Sequence[UOp]) -> list[int]:
    """What falls to an iteration of each of the loops, the outer ones first."""
    shares: list[int] = []
    for loop in loops:
        count = -(-count // size_of(loop))
        shares.append(count)
    return shares


def _whole(accesses: Sequence[_Access], pieces: UOp, step: int) -> _Piece | None:
    """All that lies between the starts of two pieces; None if they overlap, or most of it is not used."""
    lows, highs, used, known = [], [], 0, dict[UOp, int]()
    for access in accesses:
        if (moves := _inner_moves(access, pieces, step)) is None:
            return None
        start = at_start(access.index, known)
        far = [move * (size - 1) for move, size in moves]
        lows.append(start + sum(x for x in far if x < 0))
        highs.append(start + sum(x for x in far if x > 0))
        used += access.lanes * prod(size for move, size in moves if move)
    is_whole = max(highs) - min(lows) < step <= 2 * used
    return _Piece(min(lows), 1, step, step) if is_whole else None


def _in_rows(accesses: Sequence[_Access], pieces: UOp, step: int) -> _Piece | None:
    """Rows of equal length, equally far apart; None if a piece is not that."""
    positions: list[_Positions] = []
    known: dict[UOp, int] = {}
    for access in accesses:
        if (moves := _inner_moves(access, pieces, step)) is None:
            return None
        positions.append(_Positions(at_start(access.index, known), access.lanes, tuple(moves)))
    sizes = [size for _, size in positions[0].moves]
    longest = sizes.index(max(sizes)) if sizes else 0
    along = {p.moves[longest] for p in positions} if sizes else set()
    first = _grid([p.without(longest) for p in positions]) if len(along) == 1 else None
    if first is not None:
        ((move, times),) = along
        stride = first.stride if first.rows > 1 else move
        if move == first.rows * stride > first.rows * first.width:  # next rows go on behind these
            return replace(first, rows=first.rows * times, stride=stride)
    return _grid(positions)


@dataclass(frozen=True, slots=True)
class _Positions:
    """Where an access begins, how many lanes it has, and how it moves with loops of so many iterations."""

    start: int
    lanes: int
    moves: tuple[tuple[int, int], ...]

    def without(self, number: int) -> _Positions:
        """In the first iteration of one of the loops."""
        return replace(self, moves=self.moves[:number] + self.moves[number + 1 :])


def _grid(positions: Sequence[_Positions]) -> _Piece | None:
    """The rows of equal length, equally far apart, that accesses make up; None if they do not, or are many."""
    ends: dict[int, int] = {}
    for one in positions:
        if len(ends) + prod(size for move, size in one.moves if move) > MOST_POSITIONS:
            return None
        starts = [one.start]
        for move, size in one.moves:
            starts = [start + move * n for start in starts for n in range(size if move else 1)]
        ends.update((start, start + one.lanes) for start in starts)
    rows: list[tuple[int, int]] = []  # where each starts and ends
    for start, end in sorted(ends.items()):
        if rows and start <= rows[-1][1]:
            start = rows.pop()[0]
        rows.append((start, end))
    widths = {end - start for start, end in rows}
    strides = {after[0] - before[0] for before, after in pairwise(rows)} or {0}
    is_grid = len(widths) == len(strides) == 1
    return _Piece(rows[0][0], len(rows), widths.pop(), strides.pop()) if is_grid else None


def _inner_moves(access: _Access, pieces: UOp, step: int) -> list[tuple[int, int]] | None:
    """How a position moves with each loop inside of `pieces`, and its size; None if it does not go from piece to piece."""
    if pieces not in access.loops:
        return None
    inner = access.loops[access.loops.index(pieces) + 1 :]
    moves = access.moves(inner)
    if moves is None or access.step(pieces) != step:
        return None
    return list(zip(moves, map(size_of, inner), strict=True))


def bytes_of(buffer: UOp) -> int:
    """The size of a parameter."""
    return int(buffer.arg[1] * buffer.dtype.itemsize)
