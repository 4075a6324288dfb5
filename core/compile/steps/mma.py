"""A sum of products over tiles becomes a product of small matrices, whose elements the items of warps hold.

    for r < 8h, c < 8: f(sum[k < 4n](a(r, k) * b(k, c)))   =   for i < 32, e < 2h: f(mma(i, e))

where item i holds a(r, k) and b(k, c) of the rows, columns and steps that are its (core/ir/fragments.py), and element e of what it
gets is the sum at row r(i, e) and column c(i, e). Of h = 1, n = 1:

    i: 0 1 2 3  4 5 6 7  ...       a(r, k): item 4 * r + k       b(k, c): item 4 * c + k
    e: 01 01 01 01 ...             f at r = 0: items 0 1 2 3 with c = 0 1, 2 3, 4 5, 6 7

Each element of a and b is held by one item, each result is one item's: these maps are one to one. The products that a result
adds are those that it added before, in another order, which is not specified of a sum. Warps lie side by side: item 32 * w + i
is item i of warp w.

The loops are those of results, or of what a group keeps, which then lies in the order of its items: its element at (r, c) is where (i, e) is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from proofgrad.core.compile.machine.target import MatrixUnit, TileUnit
from proofgrad.core.compile.nests.loops import output_loops, size_of
from proofgrad.core.compile.nests.strides import loops_below
from proofgrad.core.compile.steps.bijection import Bijection, NewLoop, exchanged, new_counters
from proofgrad.core.compile.steps.collapse import collapse_law, digits_at
from proofgrad.core.compile.steps.loop_nest import (
    LoopNest,
    require,
    require_fixed,
    require_in,
    step,
)
from proofgrad.core.compile.steps.tables import require_value
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.fragments import (
    COLUMNS_EACH,
    GROUPS,
    QUARTERS,
    WARP,
    column_element,
    result_element,
    result_holder,
    row_element,
)
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort


@cache
def warp_law(has_warps: bool) -> Bijection:
    """w < m, r < 8h, c < 8 as i < 32m, e < 2h; without w where there is one warp."""
    if not has_warps:
        return Bijection(
            parameters=("h",),
            before=lambda h: (GROUPS * h, GROUPS),
            after=lambda h: (WARP, COLUMNS_EACH * h),
            old=lambda item, register, h: result_element(item, register),
            new=lambda row, column, h: result_holder(row, column),
        )
    return Bijection(
        parameters=("m", "h"),
        before=lambda m, h: (m, GROUPS * h, GROUPS),
        after=lambda m, h: (WARP * m, COLUMNS_EACH * h),
        old=lambda item, register, m, h: (item // WARP, *result_element(item, register)),
        new=lambda warp, row, column, m, h: _of_warp(warp, *result_holder(row, column)),
    )


def _of_warp(warp: UOp, item: UOp, register: UOp) -> tuple[UOp, UOp]:
    return warp * WARP + item, register


@step("for r < 8h, c < 8: f(sum[k < 4n](a(r, k) * b(k, c))) = for i < 32, e < 2h: f(mma(i, e))")
def mma(
    nest: LoopNest,
    reduction: UOp,
    loops: tuple[UOp, ...],
    made: tuple[NewLoop, NewLoop],
    own: NewLoop,
) -> UOp:
    """The reduction, over one loop, as an MMA of warps.

    `loops`: those of warps, where there are several, of rows and of columns. `made`: the loop of items, and of what each has of the
    result. `own`: the loop over what an item holds of the factors.
    """
    row_factor, column_factor = _checked(nest, reduction, loops)
    roles = tuple([one.role for one in (*made, own)])
    are_its = roles == (AxisRole.LANE, AxisRole.VECTOR, AxisRole.VECTOR)
    require(are_its, "no items of a group, and lanes of what each holds", roles)
    has_warps = len(loops) == 3
    *_, row, column = loops
    halves, steps = size_of(row) // GROUPS, size_of(reduction.src[1]) // QUARTERS
    parameters = (size_of(loops[0]), halves) if has_warps else (halves,)
    law = warp_law(has_warps)
    counters = new_counters(nest.graph, law, parameters, loops, made)
    item, register = counters
    numbers = {n.arg[0] for n in toposort((nest.graph,)) if n.op is Ops.RANGE}
    is_free = own.number not in numbers.union([one.number for one in made])
    require(is_free, "a loop of this number is there", own.number)
    held, step = UOp.range(steps, own.number, own.role), reduction.src[1]
    rows = []
    for half in range(halves):
        there = dict(zip((row, step), row_element(item, half, held, steps)))
        rows.append(row_factor.substitute(there))
    there = dict(zip((step, column), column_element(item, held, steps)))
    factors = (column_factor.substitute(there), *rows)
    nothing = UOp.const(reduction.dtype, 0.0)
    product = UOp(
        Ops.MMA, reduction.dtype, (item, nothing, *factors, register, held), (halves, steps)
    )
    graph, values = nest.graph.substitute({reduction: product}), law.old(*counters, *parameters)
    if _memory_along(graph, loops) is None:
        return exchanged(graph, dict(zip(loops, values)), counters)
    kept = _memory_along(graph, loops)
    assert kept is not None
    return _kept_by_items(nest, graph, kept, law, parameters, loops, counters)


def _kept_by_items(
    nest: LoopNest,
    graph: UOp,
    kept: UOp,
    law: Bijection,
    parameters: Sequence[int],
    loops: tuple[UOp, ...],
    counters: list[UOp],
) -> UOp:
    """The graph where what is kept is filled by items, and lies in the order of other loops of its own, of items, and of what each has."""
    item, register = counters
    order = (*[x for x in kept.src[1:] if x not in loops], item, register)
    value = kept.src[0].substitute(dict(zip(loops, law.old(*counters, *parameters))))
    sizes = tuple([size_of(x) for x in kept.src[1:]])
    made = tuple([size_of(x) for x in order])
    done = {kept: kept.with_src((value, *order))}
    for node in toposort((graph,)):
        if node in done:
            continue
        new = node.with_src(tuple([done[s] for s in node.src]))
        if node.op is Ops.INDEX and node.src[0] is kept:
            digits = dict(zip(kept.src[1:], digits_at(new.src[1], sizes, nest.facts)))
            there = law.new(*[digits[x] for x in loops], *parameters)
            of_order = {**digits, **dict(zip(counters, there))}
            (position,) = collapse_law(len(order)).new(*[of_order[x] for x in order], *made)
            new = new.with_src((new.src[0], position, *new.src[2:]))
        done[node] = new
    return done[graph]


def _memory_along(graph: UOp, loops: Sequence[UOp]) -> UOp | None:
    """What is kept along these loops, and perhaps others."""
    kept = [n for n in toposort((graph,)) if n.op is Ops.LOCAL_BUFFER]
    found = [n for n in kept if set(loops) <= set(n.src[1:])]
    return found[0] if len(found) == 1 else None


def _checked(nest: LoopNest, reduction: UOp, loops: tuple[UOp, ...]) -> tuple[UOp, UOp]:
    """The factors of rows and columns as a unit takes them. Raises: StepRefused."""
    require_in(nest.graph, reduction)
    require(reduction.op is Ops.REDUCE and reduction.arg is Ops.ADD, "no sum", reduction)
    term, *steps = reduction.src
    require(len(steps) == 1 and term.op is Ops.MUL, "no sum of products over one loop", reduction)
    require(2 <= len(loops) <= 3, "no rows and columns, or more than warps beside them", *loops)
    require_fixed([*loops, *steps])
    outputs = [x for x in output_loops(nest.graph) if x.arg[1] is AxisRole.LOOP]
    kept = _memory_along(nest.graph, loops)
    is_kept = kept is not None and reduction in toposort((kept.src[0],))
    is_kept &= all([x.arg[1] in (AxisRole.LANE, AxisRole.REDUCE) for x in loops])
    are_its = is_kept or set(loops) <= set(outputs)
    require(are_its, "no loop of results, or one of another role", *loops)
    *_, row, column = loops
    free = loops_below(nest.graph)
    for one, other in (term.src, term.src[::-1]):
        if row not in free[other] and column not in free[one]:
            break
    else:
        require(False, "a factor that changes with rows and columns", term)
    unit = unit_for(nest.target.matrix_units, term.src, reduction.dtype)
    require(unit is not None, "no matrix unit for these types", reduction)
    assert unit is not None
    size = size_of(steps[0])
    is_whole = size > QUARTERS and size % (QUARTERS * unit.steps) == 0
    require(is_whole, "steps of the sum that items do not share out", size)
    high = size_of(row)
    require(high % (GROUPS * unit.halves) == 0, "rows that are no whole tiles of the unit", high)
    rows, columns = taken_by_unit(one, unit), taken_by_unit(other, unit)
    for factor in (rows, columns):
        require_value(factor)
    return rows, columns


def unit_for(
    units: Sequence[MatrixUnit | TileUnit], factors: Sequence[UOp], total: DType
) -> MatrixUnit | None:
    """The first of some units of warps that multiplies these factors, and adds in this type."""
    for unit in [x for x in units if isinstance(x, MatrixUnit)]:
        if unit.total is total and all([_takes(unit, factor) for factor in factors]):
            return unit
    return None


def _takes(unit: MatrixUnit, factor: UOp) -> bool:
    taken = taken_by_unit(factor, unit)
    return taken.dtype is unit.factor and (taken.op is Ops.TF32 or not unit.rounds)


def taken_by_unit(factor: UOp, unit: MatrixUnit) -> UOp:
    """What a factor was before it was converted to the type of the sum, if the unit takes that."""
    is_converted = factor.op is Ops.CAST and factor.src[0].dtype is unit.factor
    return factor.src[0] if is_converted else factor


def read_by_unit(factor: UOp, unit: MatrixUnit) -> UOp:
    """What memory holds of a factor that a unit takes: it is rounded to TF32 where an item has it."""
    taken = taken_by_unit(factor, unit)
    return taken.src[0] if taken.op is Ops.TF32 else taken
