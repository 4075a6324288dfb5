"""TensorGraph -> TensorGraph: a long reduction becomes two, for threads to share or for the cache.

Owns: which reductions are split, and where. Does not own: the kernels (schedule.py).

The order in which a reduction combines its elements is not specified, so reducing slabs of an axis and
then their results gives what the reduction gives.
"""

from __future__ import annotations

from math import prod

from proofgrad.core.compile.divisors import largest_divisor
from proofgrad.core.compile.sums_of_products import is_contraction, operands
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.uop import UOp, toposort

# With fewer results than this, one thread would do most of the work ...
FEW_RESULTS = 16
# ... if there are so many elements.
MANY_ELEMENTS = 1 << 16
# Of so many rows that lie apart in memory, some make one row of results, which threads share out: at most ROWS,
# and fewer if the results would be fewer than SHARES.
MANY_ROWS, ROWS, LEAST_ROWS, SHARES = 256, 256, 16, 16
# A sum of products with few results and two long operands reads so much of them at once: it stays in the second
# cache while every result takes it in. The sums of the slabs must be so many times shorter than the operands.
SLAB_BYTES = 1 << 20
PARTS = 4
# A sum of floats with few results adds at most so many elements before their sum is added to others: the rounding
# error of a sum grows with how many it adds one after the other. A slab is at least a quarter as long, or leaves a rest.
LONGEST_SUM = 1 << 14
LONGEST_COLUMN = 1 << 9  # where elements are added one by one, and not in vectors
LEAST_SLABS = 8
# As many elements as the vectors that one iteration of a sum takes at once, or a multiple of that.
VECTORS = 128


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
    if prod(shape) < MANY_ELEMENTS or value.op is Ops.CONTIGUOUS:
        return node
    is_sum = op is Ops.ADD and node.dtype.is_float and not is_contraction(node)
    if is_sum and prod(node.shape) < FEW_RESULTS:
        longest = LONGEST_SUM if shape[-1] == 1 or len(shape) - 1 in axes else LONGEST_COLUMN
        return _in_short_sums(node, min(longest, prod(shape) // LEAST_SLABS))
    axis = next((a for a in axes if shape[a] > 1), None)
    size = None if axis is None else _slab(node, axis)
    return node if axis is None or size is None else _in_slabs(node, op, axes, axis, size)


def _slab(node: UOp, axis: int) -> int | None:
    """How much of an axis is reduced at once; None: all of it, in one reduction."""
    value, axes = node.src[0], node.arg[1]
    whole: int = value.shape[axis]
    if is_contraction(node):
        return _images_at_once(node, whole)
    if prod(node.shape) < FEW_RESULTS:
        size, least = largest_divisor(whole, at_most=max(1, whole // 8)), 2
    elif whole >= MANY_ROWS and _is_of_rows(value, axes):
        at_most = min(ROWS, max(4 * LEAST_ROWS, whole // SHARES))
        size, least = largest_divisor(whole, at_most), LEAST_ROWS
    else:
        return None
    return size if max(2, least) <= size < whole else None


def _in_short_sums(node: UOp, longest: int) -> UOp:
    """Sums of at most `longest` elements that lie together, then their sum."""
    (value,), axes, shape = node.src, node.arg[1], node.src[0].shape
    longest = max(longest, 2 * VECTORS)  # a part is shorter than the whole
    inner: list[int] = []  # the last axes, which are summed whole
    together = 1
    for axis in sorted(axes, reverse=True):
        if together * shape[axis] > longest:
            break
        inner.append(axis)
        together *= shape[axis]
    else:
        return node
    unit = VECTORS if together == 1 else 1
    room, whole = max(1, longest // together // unit), shape[axis]
    size = largest_divisor(whole // unit, at_most=room) if whole % unit == 0 else 1
    size = unit * (room if 4 * size < room else size)
    left = whole % size
    if left:
        head, rest = [
            _part(node, axis, *ends) for ends in ((0, whole - left), (whole - left, whole))
        ]
        return _in_short_sums(head, longest) + _in_short_sums(rest, longest)
    split = (*shape[:axis], whole // size, size, *shape[axis + 1 :])
    slabs = UOp(Ops.RESHAPE, value.dtype, (value,), split)
    within = (axis + 1, *[a + 1 for a in sorted(inner)])
    partial = UOp(Ops.REDUCE_AXIS, node.dtype, (slabs,), (Ops.ADD, within))
    stored = UOp(Ops.CONTIGUOUS, node.dtype, (partial,))
    across = tuple([a for a in sorted(axes) if a <= axis])
    total = UOp(Ops.REDUCE_AXIS, node.dtype, (stored,), (Ops.ADD, across))
    return UOp(Ops.RESHAPE, node.dtype, (_in_short_sums(total, longest),), node.shape)


def _part(node: UOp, axis: int, begin: int, end: int) -> UOp:
    """A reduction of a part of an axis only."""
    (value,) = node.src
    ends = tuple([(begin, end) if a == axis else (0, n) for a, n in enumerate(value.shape)])
    return node.with_src((UOp(Ops.SHRINK, value.dtype, (value,), ends),))


def _is_of_rows(value: UOp, axes: tuple[int, ...]) -> bool:
    """Whether one axis is reduced, and in memory only axes after it are kept."""
    order = _order_in_memory(value, tuple(range(len(value.shape))))
    if order is None:
        return False
    moving = [a for a in order if value.shape[a] > 1]
    return len(moving) > 1 and moving[0] in axes and not any(a in axes for a in moving[1:])


def _order_in_memory(node: UOp, names: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes in the order of an operand that is read once; `names` are those of the axes of `node`.

    None where every operand is read several times, as in a matrix product.
    """
    match node.op:
        case Ops.PERMUTE:
            below = dict(zip(node.arg, names))
            return _order_in_memory(node.src[0], tuple([below[a] for a in range(len(names))]))
        case Ops.EXPAND:
            grows = node.shape != node.src[0].shape
            return None if grows else _order_in_memory(node.src[0], names)
        case Ops.RESHAPE:
            old, new = node.src[0].shape, node.shape
            kept = [name for name, size in zip(names, new) if size > 1]
            if [n for n in old if n > 1] != [n for n in new if n > 1]:
                return names
            spare = iter([name for name, size in zip(names, new) if size == 1] + [0] * len(old))
            moving = iter(kept)
            return _order_in_memory(
                node.src[0], tuple([next(moving) if n > 1 else next(spare) for n in old])
            )
        case _ if node.op in ELEMENTWISE and node.src:
            orders = [_order_in_memory(source, names) for source in node.src]
            return next((order for order in orders if order is not None), None)
        case Ops.CONST:
            return None
        case _:
            return names


def _images_at_once(contraction: UOp, whole: int) -> int | None:
    """How much of an axis is read before the operands no longer stay in the cache.

    None, for no split, if one of them does anyway, or if the sums of the slabs would be as long as the operands.
    """
    lengths = [prod(read.shape) * read.dtype.itemsize for read in operands(contraction)]
    if min(lengths) <= SLAB_BYTES:  # it stays in the cache, while the other is read once
        return None
    nbytes = sum(lengths)
    size = largest_divisor(whole, at_most=max(1, whole * SLAB_BYTES // max(1, nbytes)))
    partial = whole // size * prod(contraction.shape) * contraction.dtype.itemsize
    return size if size < whole and nbytes > SLAB_BYTES and PARTS * partial <= nbytes else None


def _in_slabs(node: UOp, op: Ops, axes: tuple[int, ...], axis: int, size: int) -> UOp:
    (value,), dtype = node.src, node.dtype
    shape = value.shape
    split = (*shape[:axis], shape[axis] // size, size, *shape[axis + 1 :])
    slabs = UOp(Ops.RESHAPE, value.dtype, (value,), split)
    inner = tuple([a if a < axis else a + 1 for a in axes])  # the slab itself is kept
    partial = UOp(Ops.REDUCE_AXIS, dtype, (slabs,), (op, inner))
    slabs_first = (axis, *[a for a in range(len(split)) if a != axis])
    moved = UOp(Ops.PERMUTE, dtype, (partial,), slabs_first) if axis else partial
    stored = UOp(Ops.CONTIGUOUS, dtype, (moved,))
    whole = UOp(Ops.REDUCE_AXIS, dtype, (stored,), (op, (0,)))
    return UOp(Ops.RESHAPE, dtype, (whole,), node.shape)
