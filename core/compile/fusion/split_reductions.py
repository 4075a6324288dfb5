"""Tactic: a long reduction becomes two, for threads or units to share, or for the cache.

Owns: which reductions are split, and where. Does not own: what a reduction in parts is (steps/reduce_in_parts.py), parts for the
units of a machine of groups (parts_for_units.py), the kernels (fusion/kernels.py).
"""

from __future__ import annotations

from math import prod

from proofgrad.core.compile.fusion.joined_rows import length_of_joined_rows
from proofgrad.core.compile.fusion.parts_for_units import (
    in_blocks_of,
    parts_for_units,
    parts_of_products,
)
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.running_reductions import is_running
from proofgrad.core.compile.nests.sums_of_products import is_contraction, operands
from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.schedule.divisors import largest_divisor
from proofgrad.core.compile.schedule.operands import REGISTERS_A_WIDE_VECTOR
from proofgrad.core.compile.steps.reduce_in_parts import Blocks, Ends, Parts, reduce_in_parts
from proofgrad.core.compile.steps.tensor_program import TensorProgram
from proofgrad.core.ir.op_names import REDUCE_AXIS
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.shapes import is_plain
from proofgrad.core.ir.uop import UOp, toposort

# With fewer results than this, one thread would do most of the work ...
FEW_RESULTS = 16
# ... if there are so many elements. (As on every machine, for the parts of a sum decide its rounding.)
MANY_ELEMENTS = 1 << 16
# Of so many rows that lie apart in memory, some make one row of results, which threads share out: at most ROWS,
# and fewer if the results would be fewer than SHARES.
MANY_ROWS, ROWS, LEAST_ROWS, SHARES = 256, 256, 16, 16
# Those of a sum of products must be so many times shorter than its operands.
PARTS = 1
# A sum of floats with few results adds at most so many elements before their sum is added to others: the rounding
# error of a sum grows with how many it adds one after the other. A block is at least a quarter as long, or leaves a rest.
LONGEST_SUM = 1 << 14
LONGEST_COLUMN = 1 << 9  # where elements are added one by one, and not in vectors
LEAST_BLOCKS = 8
# As many elements as the vectors that one iteration of a sum takes at once, or a multiple of that.
SUMMED_AT_ONCE = 128
_NO_AXIS = -1  # of what is looked at: an axis of size 1 of an operand alone


def split_long_reductions(program: TensorProgram, context: Context) -> TensorProgram:
    """Reduce blocks first where a reduction has few results, or runs over rows that lie far apart."""
    parts: dict[UOp, Parts] = {}
    for node in toposort((program.graph,)):
        if node.op is REDUCE_AXIS and (chosen := _parts(node, context.target)) is not None:
            parts[node] = chosen
    return reduce_in_parts(program, parts)


def _parts(node: UOp, target: Target) -> Parts | None:
    """In which parts a reduction is taken; None: whole."""
    (value,), (op, axes) = node.src, node.arg
    shape = value.shape
    if not is_plain(shape) or prod(shape) < MANY_ELEMENTS or value.op is Ops.CONTIGUOUS:
        return None
    if is_running(node):
        return None
    is_sum = op is Ops.ADD and node.dtype.is_float and not is_contraction(node)
    if is_sum and prod(node.shape) < FEW_RESULTS:
        longest = LONGEST_SUM if shape[-1] == 1 or len(shape) - 1 in axes else LONGEST_COLUMN
        longest = min(longest, prod(shape) // LEAST_BLOCKS)
        rows = length_of_joined_rows(value, max(axes), longest)
        return in_blocks_of(shape, axes, longest, rows if rows > 1 else SUMMED_AT_ONCE)
    if is_contraction(node) and (parts := parts_of_products(node, target)) is not None:
        return parts
    if target.units and not is_contraction(node):
        order = _order_in_memory(value, tuple(range(len(shape))))
        return parts_for_units(node, order or range(len(shape)), target)
    axis = next((a for a in axes if shape[a] > 1), None)
    if axis is None:
        return None
    if not is_contraction(node) and prod(node.shape) >= FEW_RESULTS:
        return _parts_of_rows(node)
    if (size := _block(node, axis, target)) is None:
        return None
    return Blocks(axis, size, tuple([a for a in axes if a != axis]), blocks_first=True)


def _block(node: UOp, axis: int, target: Target) -> int | None:
    """How much of an axis is reduced at once; None: all of it, in one reduction."""
    whole: int = node.src[0].shape[axis]
    if is_contraction(node):
        return _images_at_once(node, whole, target)
    longest = max(1, whole // 8)
    rows = length_of_joined_rows(node.src[0], axis, longest)
    rows = rows if whole % rows == 0 else 1
    size = rows * largest_divisor(whole // rows, at_most=longest // rows)
    return size if 2 <= size < whole else None


def _parts_of_rows(node: UOp) -> Parts | None:
    """Parts of a reduction of rows, of at most `ROWS` each; a few rows may be left."""
    (value,), axes = node.src, node.arg[1]
    rows = prod([value.shape[a] for a in axes])
    if rows < MANY_ROWS or not _is_of_rows(value, axes):
        return None
    at_most = min(ROWS, max(4 * LEAST_ROWS, rows // SHARES))
    inner: list[int] = []  # the last axes, which are reduced whole
    together = 1
    for axis in reversed(axes):
        if together * value.shape[axis] > at_most:
            break
        inner.append(axis)
        together *= value.shape[axis]
    else:  # all of them are one part
        return None
    whole = value.shape[axis]
    size = _length_of_parts(whole, at_most // together, -(-LEAST_ROWS // together))
    blocks, left = Blocks(axis, size, tuple(sorted(inner)), blocks_first=True), whole % size
    return Ends(axis, whole - left, blocks) if left else blocks


def _length_of_parts(whole: int, at_most: int, least: int) -> int:
    """That of equal parts, or of those that leave the fewest rows."""
    if (size := largest_divisor(whole, at_most)) >= least:
        return size
    return min(range(at_most, at_most // 2, -1), key=lambda rows: whole % rows)


def _is_of_rows(value: UOp, axes: tuple[int, ...]) -> bool:
    """Whether in memory the reduced axes are the first ones, in their order, and only axes after them are kept."""
    order = _order_in_memory(value, tuple(range(len(value.shape))))
    if order is None:
        return False
    moving = [a for a in order if value.shape[a] > 1]
    reduced = [a for a in axes if value.shape[a] > 1]
    return 0 < len(reduced) < len(moving) and moving[: len(reduced)] == reduced


def _order_in_memory(node: UOp, names: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes in the order of an operand that is read once; `names` are those of the axes of `node`.

    None where every operand is read several times, as in a matrix product.
    """
    waiting, seen = [(node, names)], set[tuple[UOp, tuple[int, ...]]]()
    while waiting:  # the first operand first; a graph may be deep, and have a value in many places
        asked = waiting.pop()
        if asked in seen:
            continue
        seen.add(asked)
        node, names = asked
        match node.op:
            case Ops.PERMUTE:
                below = dict(zip(node.arg, names))
                waiting.append((node.src[0], tuple([below[a] for a in range(len(names))])))
            case Ops.EXPAND:
                if node.shape == node.src[0].shape:
                    waiting.append((node.src[0], names))
            case Ops.RESHAPE if (below_it := _names_below(node, names)) is not None:
                waiting.append((node.src[0], below_it))
            case _ if node.op in ELEMENTWISE and node.src:
                waiting += [(source, names) for source in reversed(node.src)]
            case Ops.CONST:
                pass
            case _:
                return tuple([a for a in names if a != _NO_AXIS])
    return None


def _names_below(node: UOp, names: tuple[int, ...]) -> tuple[int, ...] | None:
    """Of a RESHAPE that adds and drops axes of size 1 alone, the names of the axes below; _NO_AXIS: one that is there alone."""
    old, new = node.src[0].shape, node.shape
    if [n for n in old if n > 1] != [n for n in new if n > 1]:
        return None
    moving = iter([name for name, size in zip(names, new) if size > 1])
    spare = iter([name for name, size in zip(names, new) if size == 1] + [_NO_AXIS] * len(old))
    return tuple([next(moving) if n > 1 else next(spare) for n in old])


def _images_at_once(contraction: UOp, whole: int, target: Target) -> int | None:
    """How much of an axis is read before it no longer stays in the cache: the columns of a wide tile, which every row takes in, or where all
    units read at once both operands.

    None, for no split, if one of the operands does anyway, or if the sums of the parts would be too long. (Measured: the gradient
    of the weights of a convolution of 32 x 128 images of 28 x 28 takes 1.6 times as long whole.)
    """
    lengths = [prod(read.shape) * read.dtype.itemsize for read in operands(contraction)]
    depth = prod([contraction.src[0].shape[a] for a in contraction.arg[1]])
    vectors = max(1, target.vector_registers // REGISTERS_A_WIDE_VECTOR)
    read = sum(lengths) if target.units else depth * vectors * target.vector_bytes
    room = target.room_bytes
    if min(lengths) <= room or read <= room:
        return None
    size = largest_divisor(whole, at_most=max(1, whole * room // read))
    partial = whole // size * prod(contraction.shape) * contraction.dtype.itemsize
    return size if size < whole and PARTS * partial <= sum(lengths) else None
