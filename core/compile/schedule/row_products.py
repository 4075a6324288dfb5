"""Products of what is made of the rows of a product, as in attention: what they look like in a nest, and their tile.

Owns: finding them, how many rows and columns run at once. Does not own: which of them are one kernel (fusion/row_products.py),
the steps that make it run so (tactics/row_products.py).

    out[i, d] = sum[j](w(i, j) * v(j, d)),   w(i, j) made of s(i, 0), s(i, 1), ...,   s(i, j) = sum[k](q(i, k) * c(j, k))

An item takes some rows i: of s all j side by side in vectors, then w, each kept, then the sums in vectors of d. Both products
run in one tile of so many rows and one wide vector, which is several registers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, prod

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import Blocks, Schedule, Tile
from proofgrad.core.compile.nests.loops import BINDERS, is_fixed, output_loops, size_of
from proofgrad.core.compile.nests.strides import loops_below
from proofgrad.core.compile.nests.weighted_sums import beside_maximum, loops_of_blocks
from proofgrad.core.compile.schedule.threads import shares_work
from proofgrad.core.compile.schedule.tiles import registers_of_sums
from proofgrad.core.compile.steps.rescale_blocks import is_asked_for
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.op_names import LOCAL_BUFFER
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort

# Rows that an item keeps for each of its own: scores, powers, weights.
KEPT_ROWS = 3
# And where it takes keys block by block: scores and powers of a block.
KEPT_OF_BLOCK = 2
# Vectors that the wide one of a tile is made of, at most: more leave the registers too few rows.
WIDEST = 4
# Rows of fewer elements, and fewer rows, are not worth it: each product alone is soon done.
LEAST_ROWS = 4
# Steps of a product that run at once: less counting.
DEPTHS = (4, 2)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The lengths of the loops i, j, k, d."""

    rows: int
    keys: int
    depth: int
    columns: int


@dataclass(frozen=True, slots=True)
class RowProducts:
    """Such a nest: its last sum, the part of it that is made of rows, the sum of a score, and output loops.

    `inside` are those that only the last sum changes with, beside `columns`; `around` all others. `blocks`: the loop over blocks
    of keys, each of which has its own last sum.
    """

    total: UOp
    weights: UOp
    scores: UOp
    rows: UOp
    columns: UOp
    inside: tuple[UOp, ...]
    around: tuple[UOp, ...]
    blocks: UOp | None = None

    @property
    def keys(self) -> UOp:
        """The loop of the last sum."""
        return self.total.src[1]

    @property
    def sizes(self) -> Sizes:
        """The lengths of its loops."""
        depth = prod([size_of(loop) for loop in self.scores.src[1:]])
        keys = size_of(self.keys) * (1 if self.blocks is None else size_of(self.blocks))
        return Sizes(size_of(self.rows), keys, depth, size_of(self.columns))


def pays(sizes: Sizes, dtype: DType, target: Target) -> bool:
    """Whether such a kernel pays: c and v stay in the cache, and no side is so short that most of a tile is empty."""
    lanes = target.lanes(dtype)
    if target.work_items or lanes < 2 or min(sizes.keys, 2 * sizes.columns) < lanes:
        return False
    near = sizes.keys * (sizes.depth + sizes.columns) * dtype.itemsize
    is_near = near <= target.room_bytes and sizes.depth > 1
    return is_near and min(sizes.rows, tile_of(sizes, dtype, target).rows) >= LEAST_ROWS


def pays_in_blocks(sizes: Sizes, dtype: DType, target: Target) -> bool:
    """Whether such a kernel may take keys block by block, which pays wherever c and v stay."""
    lanes = target.lanes(dtype)
    if not is_asked_for() or target.work_items or lanes < 2 or sizes.depth < 2:
        return False
    is_long = min(sizes.keys, 2 * sizes.columns) >= lanes and sizes.rows >= LEAST_ROWS
    return is_long and _keys_at_once(sizes, dtype, target) > 0


def keys_of_block(found: RowProducts, target: Target) -> int:
    """How many keys are taken at once, each block beside its own maximum; 0: all of them."""
    sizes, dtype = found.sizes, found.total.dtype
    if found.inside or not pays_in_blocks(sizes, dtype, target):
        return 0
    return _keys_at_once(sizes, dtype, target)


def _keys_at_once(sizes: Sizes, dtype: DType, target: Target) -> int:
    """As many keys as two rows of each of a tile's stay in the first cache for; 0: no tile has two rows, or it is one block."""
    tile = tile_of_blocks(sizes, dtype, target)
    most = target.near_bytes // (KEPT_OF_BLOCK * tile.rows * dtype.itemsize)
    blocks = -(-sizes.keys // max(tile.lanes, most // tile.lanes * tile.lanes))
    if tile.rows < 2 or blocks < 2:
        return 0
    return _whole(-(-sizes.keys // blocks), tile.lanes)


def tile_of_blocks(sizes: Sizes, dtype: DType, target: Target) -> Tile:
    """Rows and lanes that run at once where all columns of a row are added up side by side."""
    lanes = target.lanes(dtype)
    counts = [n for n in (1, 2, WIDEST) if n * lanes <= target.most_lanes]
    count = next((n for n in counts if n * lanes >= sizes.columns), counts[-1])
    vectors = -(-sizes.columns // (count * lanes))
    rows = (registers_of_sums(dtype, target) - count) // (count * vectors)
    return Tile(max(1, min(rows, sizes.rows)), vectors, count * lanes)


def _tiles_of_rows(tile: Tile, sizes: Sizes, dtype: DType, target: Target) -> int:
    """Tiles that take a block of keys after each other: twice as many as multiply while memory brings one, for the first waits."""
    rows = 2 * dtype.itemsize * target.multiply_adds(dtype) / target.core.memory_bytes_a_cycle
    return max(1, min(ceil(rows / tile.rows), sizes.rows // tile.rows))


def tile_of(sizes: Sizes, dtype: DType, target: Target) -> Tile:
    """Rows and lanes that run at once."""
    lanes = target.lanes(dtype)
    counts = [n for n in (1, 2, WIDEST) if n * lanes <= target.most_lanes]
    tiles = [_tile(n * lanes, n, sizes, dtype, target) for n in counts]
    tall = [tile for tile in tiles if tile.rows >= LEAST_ROWS]  # fewer read c and v too often
    return min(tall or tiles, key=lambda tile: _cycles(tile, lanes, sizes, target))


def _tile(lanes: int, count: int, sizes: Sizes, dtype: DType, target: Target) -> Tile:
    """The tile of a vector of so many registers, with as many rows as registers and memory of an item take."""
    kept = KEPT_ROWS * dtype.itemsize * _whole(sizes.keys, lanes)
    rows = (registers_of_sums(dtype, target) - count) // count
    return Tile(max(1, min(rows, target.scratch_bytes // kept, sizes.rows)), 1, lanes)


def _cycles(tile: Tile, lanes: int, sizes: Sizes, target: Target) -> float:
    """Of both products for all rows: multiply-adds, or loads where there are more."""
    core, count = target.core, tile.lanes // lanes
    added, loaded = tile.rows * count, tile.rows + count
    step = max(added / core.multiply_adds_a_cycle, loaded / core.loads_a_cycle)
    scores = _whole(sizes.keys, tile.lanes) * sizes.depth
    sums = _whole(sizes.columns, tile.lanes) * sizes.keys
    return _whole(sizes.rows, tile.rows) / tile.rows * (scores + sums) / tile.lanes * step


def _whole(length: int, part: int) -> int:
    """So many elements, and those that whole parts reach beyond them."""
    return -(-length // part) * part


def find_row_products(kernel: UOp, target: Target) -> RowProducts | None:
    """The products of a nest with one store, before or after rows are kept."""
    if target.work_items or not target.vector_bytes:
        return None
    return row_products_of(kernel)


def row_products_of(kernel: UOp) -> RowProducts | None:
    """The same for any machine."""
    free, outputs = loops_below(kernel), output_loops(kernel)
    (store, *others), last = kernel.src, _outermost_reductions(kernel)
    if blocks := [part for n in last if (part := _part_of_blocks(n)) is not None]:
        last = [max(blocks, key=lambda part: len(free[part]))]
    is_one = not others and len(store.src) == 2 and len(last) == 1
    if not is_one or last[0].arg is not Ops.ADD or not _is_over_one_loop(last[0]):
        return None
    total = last[0]
    sums = [n for n in toposort((total.src[0],)) if n.op is Ops.REDUCE and n.arg is Ops.ADD]
    scores = next(
        (n for n in sums if n.src[0].op is Ops.MUL and all(map(is_fixed, n.src[1:]))), None
    )
    if scores is None:
        return None
    own = free[scores].intersection(outputs)  # as a score is inside of others, so are these
    own |= frozenset().union(*[free[n] for n in sums]).intersection(outputs)
    moving = [x for x in outputs if x in free[total] and x not in own]
    weights = _made_of(scores, total, frozenset(moving), free)
    values = [
        n
        for n in toposort((total.src[0],))
        if n.op is Ops.LOAD and moving and moving[-1] in free[n]
    ]
    rows = [
        x
        for x in outputs
        if x in own and _is_of_one(scores, x, free) and not any([x in free[v] for v in values])
    ]
    if weights is None or not moving or not rows:
        return None
    around = tuple([x for x in outputs if x not in moving and x is not rows[-1]])
    inside, over_blocks = tuple(moving[:-1]), next(iter(loops_of_blocks(kernel)), None)
    return RowProducts(total, weights, scores, rows[-1], moving[-1], inside, around, over_blocks)


def _part_of_blocks(reduction: UOp) -> UOp | None:
    """What a block adds to a sum beside the maximum of its own loop."""
    found = beside_maximum(reduction)
    return None if found is None else found[1]


def _outermost_reductions(kernel: UOp) -> list[UOp]:
    """The reductions, and what is kept, that are inside of no other."""
    found = []
    for node in toposort((kernel,), lambda n: n.op not in BINDERS):
        found += [node] if node.op in BINDERS else []
    return found


def _is_over_one_loop(reduction: UOp) -> bool:
    return reduction.op is Ops.REDUCE and len(reduction.src) == 2 and is_fixed(reduction.src[1])


def _made_of(
    scores: UOp, total: UOp, moving: frozenset[UOp], free: Mapping[UOp, frozenset[UOp]]
) -> UOp | None:
    """The largest value in the last sum that changes with its loop and no loop in `moving`, and needs a score."""
    needs: dict[UOp, bool] = {}
    found = None
    for node in toposort((total.src[0],)):  # the largest comes last
        needs[node] = node is scores or any([needs[s] for s in node.src])
        is_made = needs[node] and node.dtype.is_float and node.op is not Ops.INDEX
        if is_made and total.src[1] in free[node] and moving.isdisjoint(free[node]):
            found = node
    return found


def _is_of_one(scores: UOp, loop: UOp, free: Mapping[UOp, frozenset[UOp]]) -> bool:
    """Whether one factor of a score changes with a loop, and the other does not."""
    return sum([loop in free[factor] for factor in scores.src[0].src]) == 1


def find_kept_rows(kernel: UOp, target: Target, override: Schedule) -> RowProducts | None:
    """The products of a nest whose scores are kept, unless they shall not run in a tile."""
    if override.tiled is False or override.buffered is False:
        return None
    kept = [n for n in toposort((kernel,)) if n.op is LOCAL_BUFFER]
    found = find_row_products(kernel, target) if kept else None
    return found if found is not None and found.scores in toposort(kept) else None


def _asked_in_blocks(found: RowProducts, override: Schedule) -> Tile | None:
    """The tile that is asked for, if it has all columns of the result at once, and whole vectors of the keys of a block."""
    tile = override.tile
    if tile is None or tile.vectors * tile.lanes < size_of(found.columns):
        return None
    return tile if size_of(found.keys) % tile.lanes == 0 else None


def schedule_rows(found: RowProducts, target: Target, override: Schedule) -> Schedule:
    """The whole schedule of such a nest."""
    sizes, dtype = found.sizes, found.total.dtype
    blocks = None
    if found.blocks is not None:
        tile = _asked_in_blocks(found, override) or tile_of_blocks(sizes, dtype, target)
        asked = override.blocks
        high = _tiles_of_rows(tile, sizes, dtype, target)
        blocks = asked if asked is not None and asked.column_tiles == 1 else Blocks(high, 1)
    else:
        tile = override.tile or tile_of(sizes, dtype, target)
    work = sizes.rows * sizes.keys * (sizes.depth + sizes.columns)
    work *= prod([size_of(loop) for loop in found.around])
    return Schedule(
        buffered=True,
        tiled=True,
        rows=found.rows.arg[0],
        columns=found.columns.arg[0],
        tile=tile,
        blocks=blocks,
        reduction_block=0,
        threads=shares_work(work, target, override),
    )
