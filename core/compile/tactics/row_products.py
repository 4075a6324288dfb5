"""Tactic: products of what is made of the rows of a product, as in attention, run a few rows at a time.

Owns: the order of the steps. Does not own: which nests are so and their tile (schedule/row_products.py), what is kept
(keep_rows.py), the laws (steps/split.py, steps/collapse.py).

    s = local[j](sum[k](q[i, k] * c[j, k])),   w = local[j](... s[j], max[j](s[j]) ...),   out[i, d] = sum[j](w[j] * v[j, d])

Copies of this for some rows i share what they load of c and v.
"""

from __future__ import annotations

from math import prod

from proofgrad.core.compile.nests.kernel_schedule import Schedule
from proofgrad.core.compile.nests.loops import BINDERS, fresh_number, size_of
from proofgrad.core.compile.nests.weighted_sums import loops_of_blocks
from proofgrad.core.compile.schedule.row_products import DEPTHS, RowProducts
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.collapse import MOST_LOOPS, collapse
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.steps.own_loops import own_loops
from proofgrad.core.compile.steps.reorder import reorder
from proofgrad.core.compile.steps.split import split, split_reading_inside
from proofgrad.core.compile.steps.unroll import unroll
from proofgrad.core.compile.tactics.hidden_blocks import without_hidden_blocks
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort


def in_rows(nest: LoopNest, found: RowProducts, schedule: Schedule) -> LoopNest:
    """Some rows side by side, keys and columns in vectors; threads share the blocks of rows."""
    tile, number = schedule.tile, fresh_number(nest.graph)
    assert tile is not None  # a schedule that was decided
    block, copies = NewLoop(number + 1), NewLoop(number + 2, AxisRole.UPCAST)
    tiles, high = NewLoop(number + 6, AxisRole.UPCAST), _tiles_of_item(schedule)
    nest = split_reading_inside(
        nest, found.rows, (*[high] * (high > 1), tile.rows), (block, *[tiles] * (high > 1), copies)
    )
    for k, loop in enumerate(found.inside):
        nest = reorder(nest, loop, number + 7 + k)
    made = (NewLoop(number + 3), NewLoop(number + 4, AxisRole.UPCAST))
    lanes = NewLoop(number + 5, AxisRole.VECTOR)
    nest = split_reading_inside(nest, found.columns, (tile.vectors, tile.lanes), (*made, lanes))
    apart = [*_loops_over_keys(nest.graph, found), *loops_of_blocks(nest.graph)]
    nest = _at_once(nest, apart)
    for loop in _loops_over_keys(nest.graph, found):
        vector = NewLoop(fresh_number(nest.graph), AxisRole.VECTOR)
        nest = split(nest, loop, (tile.lanes,), (NewLoop(*loop.arg), vector))
    blocks = -(-size_of(found.rows) // (high * tile.rows))
    around = [*found.around, *([UOp.range(blocks, block.number)] if blocks > 1 else [])]
    while len(around) > MOST_LOOPS:
        outer, inner = around[:-MOST_LOOPS], around[-MOST_LOOPS:]
        together = NewLoop(fresh_number(nest.graph))
        nest = collapse(nest, tuple(inner), together)
        around = [*outer, UOp.range(prod([size_of(x) for x in inner]), together.number)]
    role = AxisRole.THREAD if schedule.threads else AxisRole.LOOP
    nest = collapse(nest, tuple(around), NewLoop(number, role)) if around else nest
    if high > 1:
        nest = unroll(nest, frozenset((UOp.range(high, tiles.number, tiles.role),)))
        nest = own_loops(nest, tuple(loops_of_blocks(nest.graph)))
    return without_hidden_blocks(nest, number)


def _tiles_of_item(schedule: Schedule) -> int:
    return 1 if schedule.blocks is None else schedule.blocks.row_tiles


def _at_once(nest: LoopNest, apart: list[UOp]) -> LoopNest:
    """A few steps of each product are written out."""
    reductions = [n for n in toposort((nest.graph,)) if n.op is Ops.REDUCE]
    loops = dict.fromkeys([n.src[-1] for n in reductions if n.src[-1] not in apart])
    for loop in loops:
        depth = next((n for n in DEPTHS if size_of(loop) % n == 0), 1)
        if depth > 1:
            copies = NewLoop(fresh_number(nest.graph), AxisRole.UPCAST)
            nest = split(nest, loop, (depth,), (NewLoop(*loop.arg), copies))
    return nest


def _loops_over_keys(kernel: UOp, found: RowProducts) -> list[UOp]:
    """The loops of what is kept, and of the reductions that read what is kept, but for the last sum."""
    own: dict[UOp, None] = {}
    for node in toposort((kernel,)):
        if node.op is Ops.LOCAL_BUFFER:
            own[node.src[1]] = None
        elif node.op is Ops.REDUCE and len(node.src) == 2 and node.src[1] is not found.keys:
            inside = toposort((node.src[0],), lambda n: n.op not in BINDERS)
            kept = any([n.op is Ops.LOCAL_BUFFER for n in inside])
            own |= {node.src[1]: None} if kept else {}
    return list(own)
