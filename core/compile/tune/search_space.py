"""What BEAM searches over: for a kernel and its choices, the choices that differ in one thing.

Owns: the moves. Does not own: timing them (search.py), the heuristics that a search starts from.

A tile that is too big for the registers is left out, because it spills; nothing else is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import (
    NO_COPIES,
    NO_GROUP,
    NO_MATRICES,
    NO_SHARED_TILE,
    NO_TRANSPOSED,
    NO_WARP_TILE,
    Blocks,
    Copies,
    Group,
    Schedule,
    Staged,
    Tile,
    Transposed,
    Vectors,
)
from proofgrad.core.compile.nests.loops import output_loops
from proofgrad.core.compile.schedule.choose_schedule import choose_schedule
from proofgrad.core.compile.schedule.contraction import Contraction, contractions, tiles_along
from proofgrad.core.compile.schedule.groups import rows_to_share
from proofgrad.core.compile.schedule.matrices import ways_of_matrices
from proofgrad.core.compile.schedule.reduction_blocks import find_rows
from proofgrad.core.compile.schedule.shared_tiles import ways_to_share
from proofgrad.core.compile.schedule.threads import operations
from proofgrad.core.compile.schedule.tiles import find_contraction
from proofgrad.core.compile.schedule.transposes import find_turned
from proofgrad.core.compile.schedule.warp_tiles import ways_of_warps
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort

# Rows and vectors of tiles that keep both the multipliers and the load ports busy.
SHAPES = ((8, 3), (6, 4), (12, 2), (8, 2), (4, 4), (6, 3), (4, 3), (6, 2), (4, 2), (3, 3), (4, 1))
ROWS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 14, 16)
VECTORS = (1, 2, 3, 4, 6)
AT_ONCE = (1, 2, 4, 8)
MOST_LOOPS = 3  # that may run as vectors instead of one
# Multiply-adds of vectors in one iteration: more make code that takes long to compile.
MOST_PRODUCTS = 128
GROUPS = (NO_GROUP, *[Group(1, n) for n in (32, 64, 128, 256)], Group(32, 8), Group(16, 16))
TURNED = (
    NO_TRANSPOSED,
    *[Transposed(*sides) for sides in ((32, 32), (64, 64), (64, 16), (16, 64))],
)
BLOCKS, BLOCKS_OF_ROWS = (0, 32, 64), (0, 4, 8, 16)
STAGINGS = tuple([Staged(rows, columns) for rows in (False, True) for columns in (False, True)])


def neighbours(kernel: UOp, target: Target, choices: Schedule, forced: Schedule) -> list[Schedule]:
    """Schedules that differ from `choices` in one thing; nothing that is `forced` changes."""
    whole = choose_schedule(kernel, target, choices)
    # Of blocks only that is decided here; what differs from there on, differs from a kernel without.
    plain = (
        choose_schedule(kernel, target, replace(choices, reduction_block=0))
        if whole.reduction_block
        else whole
    )
    found = find_contraction(kernel, target, plain)
    has_rows = find_rows(kernel, target, Schedule(reduction_block=max(BLOCKS_OF_ROWS))) is not None
    blocks = BLOCKS if found is not None else BLOCKS_OF_ROWS if has_rows else ()
    moves = [
        replace(choices, reduction_block=steps)
        for steps in blocks
        if steps != whole.reduction_block
    ]
    if whole.warps is not None and whole.warps.warps:
        moves = _of_warps(kernel, target, choices)
    elif whole.matrices is not None and whole.matrices.rows:
        tiles = [NO_MATRICES, *ways_of_matrices(kernel, target)]
        moves = [replace(choices, matrices=tile) for tile in tiles if tile != whole.matrices]
    elif whole.shared is not None and whole.shared.items:
        moves = _of_shared(kernel, target, choices)
    elif found is not None:
        moves += _of_contraction(kernel, found[0], target, plain, choices)
    else:
        moves += _of_loops(kernel, target, plain, choices)
    if target.group_items and found is None and rows_to_share(kernel):
        now = whole.group or NO_GROUP
        ways = [way for way in GROUPS if way.rows * way.items <= target.group_items]
        moves += [replace(choices, group=way) for way in ways if way != now]
    if target.group_items and find_turned(kernel) is not None:
        now_turned = whole.transposed or NO_TRANSPOSED
        moves += [replace(choices, transposed=tile) for tile in TURNED if tile != now_turned]
    if target.threads > 1:
        moves = [*moves, replace(choices, threads=not plain.threads)]
    held = {
        name: value for name in Schedule.__slots__ if (value := getattr(forced, name)) is not None
    }
    return [move for move in dict.fromkeys([replace(m, **held) for m in moves]) if move != choices]


def _of_contraction(
    kernel: UOp, contraction: Contraction, target: Target, whole: Schedule, choices: Schedule
) -> list[Schedule]:
    tile, blocks = whole.tile, whole.blocks
    assert tile is not None and blocks is not None
    # The few moves that are not tiles come first, for time may be up before the last.
    moves = [replace(choices, staged=staged) for staged in STAGINGS if staged != whole.staged]
    moves.append(replace(choices, packed=not whole.packed))
    moves += [
        replace(choices, depth=steps)
        for steps in AT_ONCE
        if steps != whole.depth and steps * tile.rows * tile.vectors <= MOST_PRODUCTS
    ]
    row_tiles, column_tiles = tiles_along(contraction, tile)
    for height, width in _resized(blocks.row_tiles, blocks.column_tiles):
        other = Blocks(min(height, row_tiles), min(width, column_tiles))
        if other != blocks:
            moves.append(replace(choices, blocks=other))
    for way in contractions(kernel):  # another tile lies over other loops
        if (way.rows, way.columns) != (contraction.rows, contraction.columns):
            loops = {"rows": way.rows.arg[0], "columns": way.columns.arg[0]}
            moves.append(replace(choices, **loops, tile=None, blocks=None, depth=None))
    # Blocks count tiles, and an unrolling fits one size of tile: other tiles choose theirs again.
    moves += [
        replace(choices, tile=other, blocks=None, depth=None) for other in _tiles(tile, target)
    ]
    moves.append(Schedule(tiled=False))
    return moves


def _of_warps(kernel: UOp, target: Target, choices: Schedule) -> list[Schedule]:
    """Other tiles of warps, and none, with which items multiply by themselves."""
    tiles = [NO_WARP_TILE, *ways_of_warps(kernel, target)]
    whole = choose_schedule(kernel, target, replace(choices, windows=True))
    windows = [replace(choices, windows=on) for on in (True, False) if whole.windows]
    return [*windows, *[replace(choices, warps=tile) for tile in tiles]]


def _of_shared(kernel: UOp, target: Target, choices: Schedule) -> list[Schedule]:
    """Other tiles of groups, and none, with which each item reads for itself."""
    moves = [replace(choices, tile=None, shared=NO_SHARED_TILE)]
    return moves + [
        replace(choices, tile=tile, shared=shared) for tile, shared in ways_to_share(kernel, target)
    ]


def _tiles(tile: Tile, target: Target) -> Iterator[Tile]:
    """Tiles that often do well, those that differ in one side, and shorter vectors."""
    shapes = [*SHAPES, *[(rows, tile.vectors) for rows in ROWS], *[(tile.rows, n) for n in VECTORS]]
    for rows, vectors in dict.fromkeys(shapes):
        if rows * vectors + vectors + 1 <= target.vector_registers:
            yield Tile(rows, vectors, tile.lanes)
    if tile.lanes > 4:
        yield Tile(tile.rows, tile.vectors, tile.lanes // 2)


def _resized(height: int, width: int) -> Iterator[tuple[int, int]]:
    yield from ((height * 2, width), (height, width * 2), (height * 2, max(1, width // 2)))
    yield from ((max(1, height // 2), width), (height, max(1, width // 2)))
    yield max(1, height // 2), width * 2


def _of_loops(kernel: UOp, target: Target, whole: Schedule, choices: Schedule) -> list[Schedule]:
    """Another width, number at once, or loop of one of the vectors; another number of copies, or loop of them."""
    vectors, copies = whole.vectors or (), whole.copies or NO_COPIES
    widths = [n for n in (4, 8, 16, 32) if n <= min(target.vector_bytes, target.most_lanes)]
    moves = [replace(choices, vectors=())]
    for position, one in enumerate(vectors):
        others = [replace(one, at_once=count) for count in AT_ONCE]
        others += [replace(one, lanes=count) for count in widths]
        others += [replace(one, loop=loop) for loop in _numbers(kernel, vectors)]
        rest = [other for k, other in enumerate(vectors) if k != position]
        moves += [replace(choices, vectors=(other, *rest)) for other in others]
    outputs = [loop.arg[0] for loop in output_loops(kernel)]
    counts = [replace(copies, count=count) for count in AT_ONCE]
    moves += [replace(choices, copies=one) for one in counts]
    moves += [replace(choices, copies=Copies(loop, max(2, copies.count))) for loop in outputs]
    return moves


def _numbers(kernel: UOp, vectors: tuple[Vectors, ...]) -> list[int]:
    """The innermost loops that do not run as vectors."""
    loops = [n.arg[0] for n in toposort((kernel,)) if n.op is Ops.RANGE]
    taken = [one.loop for one in vectors]
    return [number for number in sorted(loops, reverse=True) if number not in taken][:MOST_LOOPS]


def work(kernel: UOp) -> int:
    """About how many operations one run takes."""
    found = contractions(kernel)
    return found[0].multiplications if found else operations(kernel)
