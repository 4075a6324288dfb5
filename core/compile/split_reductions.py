"""TensorGraph -> TensorGraph: a long reduction becomes two, so that threads can share it.

Owns: which reductions are split, and where. Does not own: the kernels (schedule.py).

The order in which a reduction combines its elements is not specified, so reducing slabs of an axis and
then their results gives what the reduction gives.
"""

from __future__ import annotations

from math import prod

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort

# With fewer results than this, one thread would do most of the work ...
FEW_RESULTS = 16
# ... if there are so many elements.
MANY_ELEMENTS = 1 << 16
# A sum over rows that lie apart in memory reads so many of them side by side: more, and each step would
# go to another page.
ROWS_SIDE_BY_SIDE = 64
FEWEST_ROWS_SIDE_BY_SIDE = 16


def split_long_reductions(root: UOp) -> UOp:
    """Reduce slabs first where a reduction has few results, or runs over rows that lie far apart."""
    done: dict[UOp, UOp] = {}
    for node in toposort((root,)):
        new = node.with_src(tuple([done[s] for s in node.src]))
        done[node] = _split(new) if new.op is Ops.REDUCE_AXIS else new
    return done[root]


def _split(node: UOp) -> UOp:
    (value,), (op, axes) = node.src, node.arg
    shape = value.shape
    elements, results = prod(shape), prod(node.shape)
    if elements < MANY_ELEMENTS or value.op is Ops.CONTIGUOUS:
        return node
    axis = next((a for a in axes if shape[a] > 1), None)
    if axis is None:
        return node
    if results < FEW_RESULTS:
        size = _divisor(shape[axis], at_most=max(1, shape[axis] // 8))
    elif _is_of_rows(shape, axes) and shape[axis] >= 4 * ROWS_SIDE_BY_SIDE:
        size = _divisor(shape[axis], at_most=ROWS_SIDE_BY_SIDE)
        size = size if size >= FEWEST_ROWS_SIDE_BY_SIDE else 1
    else:
        return node
    return node if size in (1, shape[axis]) else _in_slabs(node, op, axes, axis, size)


def _is_of_rows(shape: tuple[int, ...], axes: tuple[int, ...]) -> bool:
    """Whether one axis is reduced, and only axes after it are kept."""
    reduced = [a for a in axes if shape[a] > 1]
    kept = [a for a in range(len(shape)) if a not in axes and shape[a] > 1]
    return len(reduced) == 1 and bool(kept) and min(kept) > reduced[0]


def _divisor(size: int, at_most: int) -> int:
    return next(n for n in range(at_most, 0, -1) if size % n == 0)


def _in_slabs(node: UOp, op: Ops, axes: tuple[int, ...], axis: int, size: int) -> UOp:
    (value,), dtype = node.src, node.dtype
    shape = value.shape
    split = (*shape[:axis], shape[axis] // size, size, *shape[axis + 1 :])
    slabs = UOp(Ops.RESHAPE, value.dtype, (value,), split)
    inner = tuple([a if a < axis else a + 1 for a in axes])  # the slab itself is kept
    partial = UOp(Ops.REDUCE_AXIS, dtype, (slabs,), (op, inner))
    stored = UOp(Ops.CONTIGUOUS, dtype, (partial,))
    whole = UOp(Ops.REDUCE_AXIS, dtype, (stored,), (op, (axis,)))
    return UOp(Ops.RESHAPE, dtype, (whole,), node.shape)
