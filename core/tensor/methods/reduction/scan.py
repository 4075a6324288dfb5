"""Running sums, products, extremes along an axis.

Owns: the work. Element i of a row is a reduction over the first i + 1 elements of it, which the compiler runs as one addition
an element (core/compile/steps/carry.py). A long row is cut into blocks: what the blocks before come to is scanned in turn, and put
in front of each. So rounding errors do not grow with the length, and threads share a single row. Integers have no such errors, and where
threads are few their rows stay whole.

The gradient of a running sum is one from the end, that of a running extreme goes to where it was found. That of a running product is the
sum from the end of what the products get, over the element. LogSumExp takes a block's length of powers for each element, for each has another
largest one before it: so its blocks are short.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import at_least, is_plain
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.arguments import Scalar, normal_size, resolve_axis
from proofgrad.core.tensor.data.promotion import accumulation_dtype
from proofgrad.core.tensor.methods.custom_vjp import CustomGradient
from proofgrad.core.tensor.methods.movement.joining import Movement
from proofgrad.core.tensor.runtime.device import Device

BLOCK = 64  # where a size is a variable
# A running sum adds at most so many elements one after the other, as a sum does; of few rows it makes FEW_ROWS blocks, no shorter
# than LEAST_SUM.
LONGEST_SUM, LEAST_SUM, FEW_ROWS = 1 << 14, 1 << 10, 16
# A LogSumExp takes so many powers, at most, and as much again for what comes before the block.
LONGEST_OF_POWERS = 16
MOST_IN_ORDER = 2  # threads
_T = TypeVar("_T", bound=Movement)


@dataclass(frozen=True, slots=True)
class Combination:
    """An associative operation on Tensors: of two, of all along an axis, and what changes none."""

    of_two: Callable[[Any, Any], Any]
    of_axis: Callable[[Any, int], Any]
    identity: Scalar
    longest: int = LONGEST_SUM  # so many elements are combined one after the other at most
    waits: bool = True  # of integers, too, for longer than memory takes to bring the next

    def block(self, x: Any, axis: int) -> int:
        """How many elements of an axis are combined one after the other."""
        size, rows = x.shape[axis], [n for a, n in enumerate(x.shape) if a != axis]
        if isinstance(size, int) and not self.waits and _is_read_once(x):
            return size
        longest = self.longest if is_plain(x.shape) else min(self.longest, BLOCK)
        if longest > LEAST_SUM and math.prod(rows) < FEW_ROWS:
            longest = max(LEAST_SUM, min(longest, -(-size * math.prod(rows) // FEW_ROWS)))
        return _dividing(size, longest) if isinstance(size, int) else longest


def _is_read_once(x: Any) -> bool:
    """Whether integers are combined in order as fast as memory brings them: blocks would read them twice, for so few threads in vain."""
    target = Device[x.device].target
    return x.dtype.is_int and target.threads <= MOST_IN_ORDER and not target.work_items


def _dividing(size: int, longest: int) -> int:
    """A block of at most so many elements, and more than half of them, that the axis is made of; else `longest`."""
    least = -(-size // longest)
    count = next((n for n in range(least, 2 * least) if size % n == 0), None)
    return longest if count is None else size // count


SUM = Combination(lambda a, b: a + b, lambda x, k: x._reduce(Ops.ADD, k, False), 0, waits=False)
PRODUCT = Combination(lambda a, b: a * b, lambda x, k: x._reduce(Ops.MUL, k, False), 1)
# Stored where it is a row of blocks: behind a cut no lanes would lie over elements.
LOG_SUM_EXP = Combination(
    lambda a, b: a.logaddexp(b),
    lambda x, k: x.logsumexp(k).contiguous(),
    -math.inf,
    LONGEST_OF_POWERS,
)


def running_product(x: _T, axis: int) -> _T:
    """The product of the elements up to each."""
    if not x.ndim or not x.is_floating_point():
        return scan(x, axis, PRODUCT)
    products = scan(x.detach(), axis, PRODUCT)
    # mypy takes the __hash__ of Tensors for that of their class.
    mark = _to_factors(type(x), x.device, resolve_axis(axis, x.ndim))
    return x._with(UOp(Ops.DETACH, x.dtype, (products._uop, x._uop), mark))


@functools.lru_cache(maxsize=64)
def _to_factors(kind: type[Movement], device: str, axis: int) -> CustomGradient:
    """The gradient of running products. One for equal calls, so that equal graphs are one.

    Each element before the first 0 of a row gets what all products up to there get, over itself; that 0 what the others would get if it were 1.
    """

    def backward(gradient: Any, x: Any) -> Any:
        zeros = scan(x.eq(0).cast(dtypes.int32), axis, SUM)
        is_before, is_first = zeros.eq(0), x.eq(0) & zeros.eq(1)
        parts = gradient * scan(is_first.where(1, x), axis, PRODUCT)
        whole = is_before.where(0, parts)._reduce(Ops.ADD, axis, True)
        from_end = scan(is_before.where(parts, 0).flip(axis), axis, SUM).flip(axis)
        return is_before.where(from_end / x, is_first.where(whole, 0))

    return CustomGradient(backward, "running products", kind, device)


def running_extreme(x: _T, axis: int, op: Ops) -> tuple[_T, _T]:
    """The extreme element up to each, and where it is first found."""
    if x.dtype.is_bool:
        values, positions = running_extreme(x.cast(dtypes.uint8), axis, op)
        return values.bool(), positions
    values = _extremes(x.detach(), axis, op)._value()
    positions = _positions_of_records(x, axis, values)
    if x.ndim and x.is_floating_point():
        # mypy takes the __hash__ of Tensors for that of their class.
        mark = _to_the_extreme(type(x), x.device, resolve_axis(axis, x.ndim), op)
        values = x._with(UOp(Ops.DETACH, x.dtype, (values._uop, x._uop), mark))
    return values, positions


def _extremes(x: _T, axis: int, op: Ops) -> _T:
    wide = accumulation_dtype(x.dtype) if x.dtype.is_float else x.dtype  # as of a whole row
    limit = dtypes.min(wide) if op is Ops.MAX else dtypes.max(wide)
    return scan(x._in_type(wide), axis, _extreme(op, limit))._in_type(x.dtype)


@functools.lru_cache(maxsize=64)
def _to_the_extreme(kind: type[Movement], device: str, axis: int, op: Ops) -> CustomGradient:
    """The gradient of running extremes: each part goes to where the extreme is first found. One for equal calls, so that equal graphs are one."""

    def backward(gradient: Any, x: Any) -> Any:
        positions = _positions_of_records(x, axis, _extremes(x.detach(), axis, op))
        last = positions._axis_last(axis).unsqueeze(-1)
        is_there = last.eq(x._iota(x.shape[axis]))
        parts = is_there.where(gradient._axis_last(axis).unsqueeze(-1), 0)
        return parts._reduce(Ops.ADD, parts.ndim - 2, False)._axis_from_last(axis)

    return CustomGradient(backward, "running extremes", kind, device)


def _positions_of_records(x: _T, axis: int, values: _T) -> _T:
    """Where each running extreme began: the last position before which it was another."""
    if not x.ndim:
        return x._iota(1).reshape(())
    along = resolve_axis(axis, x.ndim)
    size = x.shape[along]
    found = values.detach()
    before = _shifted(found, along, 0)
    position = x._iota(size).reshape((-1,) + (1,) * (x.ndim - along - 1))
    changed = found.ne(before)
    if x.is_floating_point():
        changed = changed & ~(found.isnan() & before.isnan())
    records = (changed & position.ne(0)).where(position, 0)
    return scan(records, axis, _extreme(Ops.MAX, dtypes.min(records.dtype)))


def scan(x: _T, axis: int, combination: Combination) -> _T:
    """Every prefix of an axis combined."""
    along = resolve_axis(axis, x.ndim)
    return _scan(x, along, combination) if x.ndim and x.numel() != 0 else x


def _scan(x: _T, axis: int, combination: Combination) -> _T:
    """In blocks, each behind what those before it come to."""
    size, block = x.shape[axis], combination.block(x, axis)
    if at_least(block, size):
        return _prefixes(x, axis, combination)
    count = normal_size((size + block - 1) // block)
    padded = x._pad_value(_around(x, axis, 0, count * block - size), combination.identity)
    whole = padded.reshape((*x.shape[:axis], count, block, *x.shape[axis + 1 :]))
    scanned = _scan(combination.of_axis(whole, axis + 1), axis, combination)
    shifted = _shifted(scanned, axis, combination.identity)
    within = _prefixes(whole, axis + 1, combination)
    result: _T = combination.of_two(shifted.unsqueeze(axis + 1), within)
    return result.reshape(padded.shape)._cut(axis, 0, size)


def _shifted(x: _T, axis: int, first: Scalar) -> _T:
    """Each element one further along an axis, behind `first`; the last is left out."""
    size = x.shape[axis]
    if at_least(size, 1):
        return x._pad_value(_around(x, axis, 1, -1), first)
    return x._pad_value(_around(x, axis, 1, 0), first)._cut(axis, 0, size)


def _around(x: Movement, axis: int, before: Any, after: Any) -> list[tuple[Any, Any]]:
    """So much around one axis, and nothing around others."""
    return [(before, after) if k == axis else (0, 0) for k in range(x.ndim)]


def _prefixes(x: _T, axis: int, combination: Combination) -> _T:
    """Element i combined from those of the axis up to i, one by one."""
    size, behind = x.shape[axis], (1,) * (x.ndim - axis - 1)
    line = x._iota(size)
    upto = line.reshape((1, size, *behind)) <= line.reshape((size, 1, *behind))
    masked = upto.where(x.unsqueeze(axis), combination.identity)
    result: _T = combination.of_axis(masked, axis + 1)
    return result


def _extreme(op: Ops, limit: Scalar) -> Combination:
    def of_two(a: Any, b: Any) -> Any:
        return a.maximum(b) if op is Ops.MAX else a.minimum(b)

    return Combination(of_two, lambda x, k: x._reduce(op, k, False), limit, waits=False)
