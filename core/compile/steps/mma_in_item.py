"""A sum of products over small matrices becomes their product, all of whose elements one item holds.

    for r < s, c < s: f(sum[k < p * g](a(r, k) * b(k, c)))   =   for e < s * s: f(mma(e))

    s, p, g = 2:   a: 0 1 2 3    b: 0 2    result: 0 1
                      4 5 6 7       1 3            2 3      by the numbers of their elements
                                    4 6
                                    5 7

Element e of the result is that of row e // s and column e % s. What the item holds of a goes row by row, of b in groups of g
rows, column by column (core/ir/fragments.py): these maps are one to one. Where the loops are those of what is kept, its positions stay as they
are. The products that a result adds are those that it added before, in another order, which is not specified of a sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from proofgrad.core.compile.machine.target import MatrixUnit, TileUnit
from proofgrad.core.compile.nests.loops import output_loops, size_of
from proofgrad.core.compile.nests.strides import loops_below
from proofgrad.core.compile.steps.bijection import Bijection, NewLoop, exchanged, new_counters
from proofgrad.core.compile.steps.loop_nest import (
    LoopNest,
    require,
    require_fixed,
    require_in,
    step,
)
from proofgrad.core.compile.steps.tables import require_value
from proofgrad.core.compile.steps.where_normal import is_of_normal_numbers
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.fragments import Square
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort


@cache
def square_law() -> Bijection:
    """r < s, c < s as e < s * s."""
    return Bijection(
        parameters=("s",),
        before=lambda s: (s, s),
        after=lambda s: (s * s,),
        old=lambda e, s: Square(s, 1, 1).result_element(e),
        new=lambda r, c, s: (Square(s, 1, 1).result_holder(r, c),),
        in_order=True,
    )


@step("for r < s, c < s: f(sum[k < p * g](a(r, k) * b(k, c))) = for e < s * s: f(mma(e))")
def mma_in_item(
    nest: LoopNest, reduction: UOp, row: UOp, column: UOp, made: NewLoop, own: NewLoop
) -> UOp:
    """The reduction, over one loop, as an MMA of one item.

    `made`: the loop over the results; `own`: that over the elements of each factor.
    """
    unit, row_factor, column_factor = _checked(nest, reduction, row, column)
    require(made.role is own.role is AxisRole.VECTOR, "no lanes", made.role, own.role)
    law, square = square_law(), Square(unit.side, unit.groups, unit.group)
    (register,) = counters = new_counters(nest.graph, law, (unit.side,), (row, column), (made,))
    numbers = {n.arg[0] for n in toposort((nest.graph,)) if n.op is Ops.RANGE}
    is_free = own.number not in numbers | {made.number}
    require(is_free, "a loop of this number is there", own.number)
    held, steps = UOp.range(square.elements, own.number, own.role), reduction.src[1]
    rows = row_factor.substitute(dict(zip((row, steps), square.row_element(held))))
    columns = column_factor.substitute(dict(zip((steps, column), square.column_element(held))))
    nothing, alone = UOp.const(reduction.dtype, 0), UOp.index(0)
    src = (alone, nothing, columns, rows, register, held)
    product = UOp(Ops.MMA, reduction.dtype, src, (square.side, square.groups, square.group))
    graph = nest.graph.substitute({reduction: product})
    values = dict(zip((row, column), law.old(register, unit.side)))
    return exchanged(graph, values, counters, in_order=law.in_order)


def _checked(nest: LoopNest, reduction: UOp, row: UOp, column: UOp) -> tuple[TileUnit, UOp, UOp]:
    """The unit that multiplies, and the factors of rows and columns as it takes them. Raises: StepRefused."""
    require_in(nest.graph, reduction)
    require(reduction.op is Ops.REDUCE and reduction.arg is Ops.ADD, "no sum", reduction)
    term, *steps = reduction.src
    require(len(steps) == 1 and term.op is Ops.MUL, "no sum of products over one loop", reduction)
    require_fixed((row, column, *steps))
    kept = [n for n in toposort((nest.graph,)) if n.op is Ops.LOCAL_BUFFER]
    outputs = [x for x in output_loops(nest.graph) if x.arg[1] is AxisRole.LOOP]
    around = [outputs, *[n.src[1:] for n in kept]]
    are_of_one = any([row in loops and column in loops for loops in around])
    require(are_of_one, "no loops of results, or of what is kept", row, column)
    free = loops_below(nest.graph)
    found: tuple[UOp, UOp] | None = None
    for one, other in (term.src, term.src[::-1]):
        if row not in free[other] and column not in free[one]:
            found = one, other
    require(found is not None, "a factor that changes with rows and columns", term)
    assert found is not None
    target = nest.target.for_normals() if is_of_normal_numbers(nest) else nest.target
    for unit in tile_units(target.matrix_units):
        if (factors := factors_of_unit(found, reduction.dtype, unit)) is not None:
            sizes = [size_of(x) for x in (row, column, *steps)]
            wanted = [unit.side, unit.side, unit.groups * unit.group]
            require(sizes == wanted, "matrices of another size than the unit's", *sizes)
            for factor in factors:
                require_value(factor)
            return unit, *factors
    require(False, "no matrix unit for these types", reduction)
    raise AssertionError


def tile_units(units: Sequence[MatrixUnit | TileUnit]) -> list[TileUnit]:
    """Those of one item."""
    return [unit for unit in units if isinstance(unit, TileUnit)]


def factors_of_unit(
    factors: tuple[UOp, UOp], total: DType, unit: TileUnit
) -> tuple[UOp, UOp] | None:
    """The factors of rows and columns as a unit takes them, before they were converted; None where it takes other types."""
    if total is not unit.total:
        return None
    rows, columns = [x.src[0] if x.op is Ops.CAST else x for x in factors]
    return (rows, columns) if (rows.dtype, columns.dtype) == (unit.rows, unit.columns) else None
