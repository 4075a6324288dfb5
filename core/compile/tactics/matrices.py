"""Tactics: a core multiplies by its matrix unit, from tables that hold both factors in the order in which it takes them.

Owns: the order of the steps, the layout of the tables. Does not own: whether, and how many matrices at once (schedule/matrices.py),
the laws (steps/stage.py, steps/mma_in_item.py, steps/local_buffer.py; steps/where_normal.py and steps/offset_factor.py, which come before).

    out[m, n] = sum[k](a[m, k] * b[k, n])

is first sum[o, j](a[m, 64 * o + j] * b[64 * o + j, n]), of which a table gets the digits (m // 16, o, m % 16, j) of a, and one the digits
(n // 16, o, j // 4, n % 16, j % 4) of b. Then the sum over j of 16 x 16 results is an MMA, and the sums over o are kept, until the
results are made of them:

    for m, n in 16s: let t = local[e < 256](sum[o](mma(a[...], b[...]))); for r < 16, c < 16: out[...] = t[r * 16 + c]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from proofgrad.core.compile.machine.machine import LINE_BYTES
from proofgrad.core.compile.machine.target import Target, TileUnit
from proofgrad.core.compile.nests.kernel_schedule import (
    NO_COPIES,
    NO_MATRICES,
    Copies,
    Schedule,
    Vectors,
)
from proofgrad.core.compile.nests.loops import fresh_number, output_loops, size_of
from proofgrad.core.compile.nests.strides import loops_below, loops_of
from proofgrad.core.compile.nests.sums_of_products import is_masked
from proofgrad.core.compile.schedule.choose_schedule import choose_schedule
from proofgrad.core.compile.schedule.contraction import WORD_BYTES
from proofgrad.core.compile.schedule.divisors import largest_divisor
from proofgrad.core.compile.schedule.matrices import (
    columns_lie_in_lines,
    tiles_along,
    turns_of_columns,
    unit_of,
    way_of,
    window_of,
)
from proofgrad.core.compile.schedule.shared_tiles import find_product, runs_along
from proofgrad.core.compile.schedule.table_cycles import TRANSPOSED_ROWS
from proofgrad.core.compile.schedule.warp_tables import NO_TABLES
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.collapse import collapse
from proofgrad.core.compile.steps.local_buffer import local_buffer
from proofgrad.core.compile.steps.loop_nest import LoopNest, require
from proofgrad.core.compile.steps.mma_in_item import factors_of_unit, mma_in_item, tile_units
from proofgrad.core.compile.steps.offset_factor import offset_factor
from proofgrad.core.compile.steps.reduce_inside import reduce_inside
from proofgrad.core.compile.steps.split import split, split_reading_inside
from proofgrad.core.compile.steps.stage import Digit, stage
from proofgrad.core.compile.steps.unmask import unmask
from proofgrad.core.compile.steps.where_normal import where_normal
from proofgrad.core.compile.tactics.matrix_windows import in_windows
from proofgrad.core.compile.tactics.shared_tiles import as_one, product_of_unit, together
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort


def stage_matrices(nest: LoopNest, schedule: Schedule, target: Target) -> tuple[LoopNest, ...]:
    """The kernels that fill the tables of both factors, and the one that multiplies.

    Of a unit for which denormal numbers are 0, before them those that look for such, and behind them the one that multiplies without the unit.
    """
    product = find_product(nest.graph)
    way = None if product is None else way_of(product, target)
    if product is None or way is None or not way.of_normals:
        return _staged(nest, schedule, target)
    *gaps, by_unit, by_vectors = where_normal(nest, product.reduction)
    in_one = Schedule(reduction_block=0)  # the stage of blocks is over
    looking = [gap.scheduled(choose_schedule(gap.graph, target, in_one)) for gap in gaps]
    plain = Schedule(matrices=NO_MATRICES, staged=NO_TABLES, reduction_block=0)
    multiplying = by_vectors.scheduled(choose_schedule(by_vectors.graph, target, plain))
    return (*looking, *_staged(by_unit, schedule, target.for_normals()), multiplying)


def _staged(nest: LoopNest, schedule: Schedule, target: Target) -> tuple[LoopNest, ...]:
    """The kernels that fill the tables of both factors, and the one that multiplies."""
    sums, nest = _with_types_of_unit(nest, target)
    product, unit = product_of_unit(nest, target, unit_of)
    matrices, threads = schedule.matrices, bool(schedule.threads)
    assert matrices is not None
    filling = []
    depth = unit.groups * unit.group
    steps = -(-product.sizes[3] // depth) * depth
    if matrices.windows:
        window = window_of(product, unit)
        require(window is not None, "no windows of planes")
        assert window is not None
        steps = size_of(window.channel)
        fill, nest = in_windows(nest, window, size_of(product.columns[-1]), unit, threads)
        filling.append(fill)
        product, unit = product_of_unit(nest, target, unit_of)
    nest, row = as_one(nest, product.rows)
    nest, columns = (
        _lines(nest, product.columns, unit) if matrices.lines else (nest, product.columns)
    )
    lie_so = columns_lie_in_lines(product, matrices)
    nest, column = as_one(nest, columns)
    if not matrices.windows:
        nest = _in_steps(nest, product.reduction.src[1:], depth)
    high = tiles_along(size_of(row), unit, matrices.rows)
    turns = turns_of_columns(size_of(column), steps, unit, matrices.columns, target)
    wide = tiles_along(size_of(column), unit, turns * matrices.columns)
    sides = ((False, row, high), (True, column, wide))
    for is_column, side, tiles in sides[: 1 if matrices.windows else 2]:
        found = _factors(_reduction(nest), row, unit)
        require(found is not None, "no factors that the unit takes")
        assert found is not None
        lies_along = lie_so if is_column else runs_along(found[False], row)
        fill, nest = _table(
            nest, found[is_column], side, tiles, unit, is_column, lies_along, threads
        )
        filling.append(fill)
    decided = replace(schedule, rows=row.arg[0], columns=column.arg[0])
    return (*sums, *filling, _in_matrices(nest, decided, turns, target).scheduled(decided))


def _in_steps(nest: LoopNest, loops: Sequence[UOp], depth: int) -> LoopNest:
    """The loops of the sum as one, cut in steps of the unit: beyond its end both factors are 0."""
    nest, step = as_one(nest, loops)
    inner = NewLoop(fresh_number(nest.graph), AxisRole.REDUCE)
    nest = split(nest, step, (depth,), (NewLoop(*step.arg), inner))
    return unmask(nest, _reduction(nest)) if is_masked(_reduction(nest).src[0]) else nest


def _with_types_of_unit(nest: LoopNest, target: Target) -> tuple[tuple[LoopNest, ...], LoopNest]:
    """The nest, of whose factors of bytes one gets the type that a unit takes; before it the one that sums what is beside it."""
    product = find_product(nest.graph)
    way = None if product is None else way_of(product, target)
    if product is None or way is None or way.offset is None:
        return (), nest
    reduction = product.reduction
    nest = offset_factor(nest, reduction, reduction.src[0].src.index(way.offset))
    reductions = [n for n in toposort((nest.graph,)) if n.op is Ops.REDUCE]
    (beside,) = [n for n in reductions if n.src[1:] != reduction.src[1:]]
    free = loops_of(beside)
    loops = [x for x in output_loops(nest.graph) if x in free]
    fill, nest = stage(
        nest, beside, tuple([Digit(x, size_of(x), NewLoop(k)) for k, x in enumerate(loops)])
    )
    in_one = Schedule(reduction_block=0)  # the stage of blocks is over
    return (fill.scheduled(choose_schedule(fill.graph, target, in_one)),), nest


def _lines(
    nest: LoopNest, columns: Sequence[UOp], unit: TileUnit
) -> tuple[LoopNest, tuple[UOp, ...]]:
    """The loops of columns, the last of which is cut where a matrix ends: none goes over the end of a line."""
    *outer, last = columns
    made = NewLoop(*last.arg), NewLoop(fresh_number(nest.graph), last.arg[1])
    nest = split(nest, last, (unit.side,), made)
    pieces = -(-size_of(last) // unit.side), unit.side
    cut = [UOp.range(size, x.number, x.role) for size, x in zip(pieces, made) if size > 1]
    return nest, (*outer, *cut)


def _table(
    nest: LoopNest,
    factor: UOp,
    side: UOp,
    tiles: int,
    unit: TileUnit,
    is_column: bool,
    lies_along: bool,
    threads: bool,
) -> tuple[LoopNest, LoopNest]:
    """The nest that fills the table of a factor, and the one that reads it. `lies_along`: it lies side by side along the matrices' side."""
    *around, inner = _steps(_reduction(nest))
    free = loops_of(factor)
    others = [x for x in output_loops(nest.graph) if x in free and x is not side]
    whole = [Digit(x, size_of(x), NewLoop(k)) for k, x in enumerate(others)]
    number = len(whole)
    # Columns that lie side by side are read in lines: all of them for some steps, then for the next ones.
    by_steps = is_column and lies_along
    tile, steps = NewLoop(number + by_steps), NewLoop(number + 1 - by_steps)
    of_side, of_step = NewLoop(number + 3), NewLoop(number + 5)
    of_steps = [steps, *[NewLoop(number + 6 + k) for k in range(len(around) - 1)]]
    outer = [
        Digit(side, tiles, tile, unit.side),
        *[Digit(x, size_of(x), made) for x, made in zip(around, of_steps)],
    ]
    sizes = {of_side: unit.side, of_step: unit.group if is_column else size_of(inner)}
    if is_column:
        layout = [
            Digit(inner, unit.groups, NewLoop(number + 2), unit.group),
            Digit(side, unit.side, of_side),
            Digit(inner, unit.group, of_step),
        ]
    else:
        layout = [Digit(side, unit.side, of_side), Digit(inner, size_of(inner), of_step)]
    fill, nest = stage(nest, factor, (*whole, *outer, *layout))
    lanes = {of_side: lies_along, of_step: runs_along(factor, inner)}
    vectors = [Vectors(x.number, sizes[x]) for x, is_along in lanes.items() if is_along]
    if not vectors:
        return fill, nest
    if lanes[of_step] and len(around) == 1:
        loop = UOp.range(size_of(around[0]), steps.number, steps.role)
        if is_column and _are_words(fill, loop, unit):
            fill = _in_words(fill, loop, NewLoop(number + 4), of_side, of_step, unit)
            vectors = [Vectors(of_side.number, unit.side * unit.group)]
        else:
            fill = _in_lines(fill, loop, NewLoop(number + 4), unit)
    copies = Copies(of_step.number, unit.group) if lanes[of_side] else NO_COPIES
    decided = Schedule(
        buffered=False,
        tiled=False,
        reduction_block=0,
        vectors=(vectors[0],),
        copies=copies,
        unroll=0,
        deinterleaved=False,
        threads=threads,
    )
    return fill.scheduled(decided), nest


def _are_words(fill: LoopNest, steps: UOp, unit: TileUnit) -> bool:
    """Whether a group of steps is a word of memory, and a unit takes one at once: those of all columns of a matrix are turned around in registers."""
    is_word = unit.group * unit.columns.itemsize == WORD_BYTES and unit.groups == 1
    is_whole = size_of(steps) % TRANSPOSED_ROWS == 0 and not _masks_of(fill, steps)
    has_vectors = (
        unit.side % TRANSPOSED_ROWS == 0 and fill.target.most_lanes >= unit.side * unit.group
    )
    return is_word and is_whole and has_vectors


def _masks_of(fill: LoopNest, steps: UOp) -> bool:
    """Whether what is loaded ends within the steps."""
    loads = [n for n in toposort((fill.graph,)) if n.op is Ops.LOAD]
    masks = [mask for load in loads for mask in load.src[0].src[2:]]
    return any([steps in loops_of(mask) for mask in masks])


def _in_words(
    fill: LoopNest, steps: UOp, inner: NewLoop, of_side: NewLoop, of_step: NewLoop, unit: TileUnit
) -> LoopNest:
    """Rows of words, four of each at a time, are written as vectors of the words of all rows."""
    loops = [
        UOp.range(size, x.number, x.role)
        for size, x in ((unit.side, of_side), (unit.group, of_step))
    ]
    fill = collapse(fill, tuple(loops), of_side)
    return split(fill, steps, (TRANSPOSED_ROWS,), (NewLoop(*steps.arg), inner))


def _in_lines(fill: LoopNest, steps: UOp, inner: NewLoop, unit: TileUnit) -> LoopNest:
    """The steps that lie in one line of memory, all before those of the next row: of rows a page apart a cache may not keep a line each."""
    line = LINE_BYTES // (unit.groups * unit.group * unit.rows.itemsize)
    count = largest_divisor(size_of(steps), line)
    is_cut = count not in (1, size_of(steps))
    return split(fill, steps, (count,), (NewLoop(*steps.arg), inner)) if is_cut else fill


def _in_matrices(nest: LoopNest, schedule: Schedule, turns: int, target: Target) -> LoopNest:
    """The kernel that multiplies, from tables of both factors; so many `turns` of columns are taken by all rows before the next ones."""
    outputs = {x.arg[0]: x for x in output_loops(nest.graph)}
    row, column = [outputs.get(number) for number in (schedule.rows, schedule.columns)]
    matrices = schedule.matrices
    require(row is not None and column is not None, "no loops of rows and columns")
    assert row is not None and column is not None and matrices is not None
    unit = _unit_of(_reduction(nest), row, target)
    number = fresh_number(nest.graph)
    one_row, one_column = NewLoop(number + 1), NewLoop(number + 2, AxisRole.VECTOR)
    turn = NewLoop(number + 9)
    high = tiles_along(size_of(row), unit, matrices.rows) // matrices.rows
    made = NewLoop(*row.arg), NewLoop(number + 3, AxisRole.UPCAST), one_row
    nest = split_reading_inside(nest, row, (matrices.rows, unit.side), made)
    wide = -(-size_of(column) // (turns * matrices.columns * unit.side))
    of_columns = NewLoop(*column.arg), turn, NewLoop(number + 4, AxisRole.UPCAST), one_column
    sizes = turns, matrices.columns, unit.side
    nest = split_reading_inside(nest, column, sizes, of_columns)
    outer = (wide, NewLoop(*column.arg)), (high, NewLoop(*row.arg)), (turns, turn)
    sides = [UOp.range(size, x.number, x.role) for size, x in outer if size > 1]
    others = [x for x in outputs.values() if x is not row and x is not column]
    role = AxisRole.THREAD if schedule.threads else AxisRole.LOOP
    nest = together(nest, [*others, *sides], role, number)
    reduction = _reduction(nest)
    *around, inner = _steps(reduction)
    if around:
        nest = reduce_inside(nest, reduction, (inner,))
    of_results = [UOp.range(unit.side, one.number, one.role) for one in (one_row, one_column)]
    own = NewLoop(number + 5), NewLoop(number + 6)
    nest = local_buffer(nest, _reduction(nest), tuple(of_results), own)
    kept = [UOp.range(unit.side, one.number, one.role) for one in own]
    lanes = [NewLoop(number + 7 + k, AxisRole.VECTOR) for k in range(2)]
    reductions = [n for n in toposort((nest.graph,)) if n.op is Ops.REDUCE]
    return mma_in_item(nest, reductions[0], kept[0], kept[1], lanes[0], lanes[1])


def _unit_of(reduction: UOp, row: UOp, target: Target) -> TileUnit:
    """The first unit that takes the factors of a sum of products."""
    for unit in tile_units(target.matrix_units):
        if _factors(reduction, row, unit) is not None:
            return unit
    require(False, "no product that a matrix unit computes", reduction)
    raise AssertionError


def _factors(reduction: UOp, row: UOp, unit: TileUnit) -> tuple[UOp, UOp] | None:
    """Of rows and of columns, as the unit takes them."""
    free, term = loops_below(reduction), reduction.src[0]
    if term.op is not Ops.MUL:
        return None
    one, other = term.src
    factors = (one, other) if row in free[one] else (other, one)
    return factors_of_unit(factors, reduction.dtype, unit)


def _reduction(nest: LoopNest) -> UOp:
    """The outermost sum."""
    return [n for n in toposort((nest.graph,)) if n.op is Ops.REDUCE][-1]


def _steps(reduction: UOp) -> list[UOp]:
    """The loops of a sum in the order in which they run: that of their numbers."""
    return sorted(reduction.src[1:], key=lambda x: x.arg[0])
