"""Kernel -> Kernels: a product with few rows is summed slab by slab, in memory.

Owns: which contractions are, the steps of a slab, the kernels. Does not own: the tile (tiles.py), the
memory of a table (the plan's, compiler.py), how a store that combines runs (accumulate.py).

    out[m, n] = sum[k](a[m, k] * b[k, n])

reads b for each group of rows. A table would be read more easily, but is written first, which few rows
are not worth. In slabs, `out` is filled with 0; then, for k0 in order, the sum over the k of a slab is added to
out[m, n]. Some rows of b, as they lie in memory, stay in the cache until every row of a has used them, and are
then gone for good. A sum that is only a part of its kernel fills a table, which the kernel reads.
"""

from __future__ import annotations

from proofgrad.core.compile.axes import merge_loops
from proofgrad.core.compile.choices import NO_WISH, Choices
from proofgrad.core.compile.divisors import largest_divisor
from proofgrad.core.compile.linear_terms import coefficient
from proofgrad.core.compile.target import Target
from proofgrad.core.compile.tiles import (
    Contraction,
    find_contraction,
    output_loops,
    size_of,
    table_elements,
)
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.evaluate import identity
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort

# Steps of the sum in a slab. Each is a row of the columns' operand, and a processor foresees the reading of 32
# pages at a time; with more rows to use a slab for, going through the sums less often is worth more (measured).
FEW_ROWS, STEPS_OF_FEW, STEPS_OF_MORE, LEAST_STEPS = 16, 32, 64, 16
# With more rows, a table of the columns is read often enough.
MOST_ROWS = 64
# Columns of fewer bytes stay in the cache, where all rows find them.
WORTH_BYTES = 1 << 21
# Types of fewer bytes are summed in wider registers; memory would round them at each slab.
LEAST_ITEMSIZE = 4


def sum_in_slabs(kernel: UOp, target: Target, asked: Choices = NO_WISH) -> UOp:
    """Sum a product with few rows in memory, some steps at a time for all rows; the kernels, in order."""
    found = None if target.work_items else find_contraction(kernel, target, asked)
    if found is None or (steps := choose_slab(found[0], asked)) == 0:
        return kernel
    reduction, store = found[0].reduction, kernel.src[0]
    if reduction is store.src[1]:
        return UOp.sink(*_kernels(reduction, *store.src[0].src, steps))
    position, length = UOp.index(0), 1
    for loop in output_loops(kernel):
        position, length = position * size_of(loop) + loop, length * size_of(loop)
    slot = 1 + max([n.arg[0] for n in toposort((kernel,)) if n.op is Ops.PARAM])
    table = UOp(Ops.PARAM, reduction.dtype, (), (slot, length))
    place = UOp(Ops.INDEX, table.dtype, (table, position))
    rest = kernel.substitute({reduction: UOp(Ops.LOAD, table.dtype, (place,))})
    return UOp.sink(*_kernels(reduction, table, position, steps), merge_loops(rest))


def choose_slab(contraction: Contraction, asked: Choices = NO_WISH) -> int:
    """Steps of the sum in a slab of a contraction; 0: it is not summed in slabs."""
    loops, factor = contraction.reduction.src[1:], contraction.column_factor
    itemsize = contraction.reduction.dtype.itemsize
    if asked.slab == 0 or len(loops) != 1 or contraction.slabs or itemsize < LEAST_ITEMSIZE:
        return 0
    if asked.slab is None and asked.staged is not None and asked.staged.columns:
        return 0
    lies_in_rows = factor.op is Ops.LOAD and len(factor.src[0].src) == 2
    if not lies_in_rows or coefficient(factor.src[0].src[1], contraction.columns) != 1:
        return 0
    if asked.slab is not None:
        return _slab(size_of(loops[0]), asked.slab, 1)
    rows, is_long = size_of(contraction.rows), table_elements(factor) * itemsize >= WORTH_BYTES
    if not is_long or rows > MOST_ROWS:
        return 0
    steps = STEPS_OF_FEW if rows <= FEW_ROWS else STEPS_OF_MORE
    return _slab(size_of(loops[0]), steps, LEAST_STEPS)


def _slab(depth: int, at_most: int, at_least: int) -> int:
    """So many steps that slabs are equally long, and more than one; 0: there are none."""
    steps = largest_divisor(depth, at_most)
    return steps if at_least <= steps < depth else 0


def _kernels(reduction: UOp, memory: UOp, position: UOp, steps: int) -> tuple[UOp, UOp]:
    """One that fills memory with what a sum starts from, one that adds the slabs to it."""
    (loop,) = reduction.src[1:]
    start = UOp.const(memory.dtype, identity(reduction.arg, memory.dtype))
    everywhere = UOp(Ops.INDEX, memory.dtype, (memory, UOp.range(memory.arg[1], 0)))
    number = 1 + max([n.arg[0] for n in toposort((reduction, position)) if n.op is Ops.RANGE])
    slab = UOp.range(size_of(loop) // steps, number, AxisRole.REDUCE)
    step = UOp.range(steps, *loop.arg)
    value = reduction.src[0].substitute({loop: slab * steps + step})
    part = UOp(Ops.REDUCE, reduction.dtype, (value, step), reduction.arg)
    place = UOp(Ops.INDEX, memory.dtype, (memory, position))
    add = UOp(Ops.STORE, dtypes.void, (place, part, slab), reduction.arg)
    return UOp.sink(UOp(Ops.STORE, dtypes.void, (everywhere, start))), UOp.sink(add)
