"""Kernel -> Kernels: a product with few rows, or a reduction of rows, is summed slab by slab, in memory.

Owns: the kernels, and which reductions of rows. Does not own: which contractions, and how long a slab of them is
(operands.py), the tile (tiles.py), the memory of a table (the plan's, compiler.py), how a store that combines runs
(accumulate.py).

    out[m, n] = sum[k](a[m, k] * b[k, n])

reads b for each group of rows. A table would be read more easily, but is written first, which few rows
are not worth. In slabs, `out` is filled with 0; then, for k0 in order, the sum over the k of a slab is added to
out[m, n]. Some rows of b, as they lie in memory, stay in the cache until every row of a has used them, and are
then gone for good. A sum that is only a part of its kernel fills a table, which the kernel reads.

    out[n] = sum[k](b[k, n])

goes to another page of memory at each step. In slabs, some rows are read side by side from end to end, as the
processor foresees it, and added to `out`, which stays in the first cache.
"""

from __future__ import annotations

from proofgrad.core.compile.choices import NO_WISH, Choices
from proofgrad.core.compile.contraction import output_loops, size_of
from proofgrad.core.compile.long_rows import find_rows
from proofgrad.core.compile.merging import merge_loops
from proofgrad.core.compile.operands import choose_slab
from proofgrad.core.compile.tables import filled, loaded, table_over
from proofgrad.core.compile.target import Target
from proofgrad.core.compile.tiles import find_contraction
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort


def sum_in_slabs(kernel: UOp, target: Target, asked: Choices = NO_WISH) -> UOp:
    """Sum a product with few rows, or rows, in memory, some steps at a time; the kernels, in order."""
    if target.work_items:
        return kernel
    if (found := find_contraction(kernel, target, asked)) is not None:
        steps = choose_slab(found[0], asked)
        return _in_slabs(kernel, found[0].reduction, steps) if steps else kernel
    rows = find_rows(kernel, asked)
    return kernel if rows is None else _in_slabs(kernel, rows.reduction, rows.steps, rows.along)


def _in_slabs(kernel: UOp, reduction: UOp, steps: int, inside: UOp | None = None) -> UOp:
    """The kernels of a sum, and one for the rest of its kernel; `inside` runs inside of the slabs."""
    store = kernel.src[0]
    if reduction is store.src[1]:
        return UOp.sink(*_kernels(reduction, *store.src[0].src, steps, inside))
    memory, position = table_over((kernel,), reduction.dtype, output_loops(kernel))
    rest = kernel.substitute({reduction: loaded(memory, position)})
    return UOp.sink(*_kernels(reduction, memory, position, steps, inside), merge_loops(rest))


def _kernels(
    reduction: UOp, memory: UOp, position: UOp, steps: int, inside: UOp | None
) -> tuple[UOp, UOp]:
    """One that fills memory with what a reduction starts from, one that adds the slabs to it."""
    (loop,) = reduction.src[1:]
    number = 1 + max([n.arg[0] for n in toposort((reduction, position)) if n.op is Ops.RANGE])
    slab = UOp.range(size_of(loop) // steps, number, AxisRole.REDUCE)
    step = UOp.range(steps, *loop.arg)
    value = reduction.src[0].substitute({loop: slab * steps + step})
    part = UOp(Ops.REDUCE, reduction.dtype, (value, step), reduction.arg)
    place = UOp(Ops.INDEX, memory.dtype, (memory, position))
    add = UOp.sink(UOp(Ops.STORE, dtypes.void, (place, part, slab), reduction.arg))
    if inside is not None:
        add = add.substitute({inside: inside.replace(arg=(number + 1, inside.arg[1]))})
    return filled(memory, reduction.arg), add
