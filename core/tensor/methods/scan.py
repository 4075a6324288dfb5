"""Running sums, products, extremes along an axis.

Owns: the work. Element i of a block of BLOCK is a reduction over the first i + 1 of it; the last
ones of the blocks are scanned in turn and put in front of the next block. So n elements take about
BLOCK * n steps at every size, in 2 log(n) / log(BLOCK) kernels, and not n * n.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.tensor.data.promotion import accumulation_dtype, sum_dtype
from proofgrad.core.tensor.methods.joining import Joining
from proofgrad.core.tensor.methods.movement import resolve_axis
from proofgrad.core.tensor.methods.operands import Scalar, Whole

BLOCK = 32


@dataclass(frozen=True, slots=True)
class Combination:
    """An associative operation on Tensors: of two, of all on the last axis, and what changes none."""

    of_two: Callable[[Any, Any], Any]
    of_last_axis: Callable[[Any], Any]
    identity: Scalar


_SUM = Combination(lambda a, b: a + b, lambda x: x._reduce(Ops.ADD, -1, False), 0)
_PRODUCT = Combination(lambda a, b: a * b, lambda x: x._reduce(Ops.MUL, -1, False), 1)
_LOG_SUM_EXP = Combination(
    lambda a, b: a.logaddexp(b), lambda x: x.logsumexp(-1), -math.inf
)  # fmt: skip


class Scan(Joining):
    """Cumulative functions. A 0-d Tensor is its own."""

    __slots__ = ()

    def cumsum(self, axis: Whole = 0) -> Self:
        """The sum of the elements up to each; types as for sum.

        Example:
            Tensor([1, 2, 3]).cumsum()  # [1, 3, 6]
        """
        result = sum_dtype(self.dtype)
        return self.cast(accumulation_dtype(result))._scan(axis, _SUM).cast(result)

    def cumprod(self, axis: Whole) -> Self:
        """The product of the elements up to each; types as for prod."""
        result = sum_dtype(self.dtype)
        return self.cast(accumulation_dtype(result))._scan(axis, _PRODUCT).cast(result)

    def cummax(self, axis: Whole = 0) -> tuple[Self, Self]:
        """The largest element up to each, and where it is first found; NaN is the largest."""
        return self._running_extreme(axis, Ops.MAX)

    def cummin(self, axis: Whole = 0) -> tuple[Self, Self]:
        """The smallest element up to each, and where it is first found; NaN is the smallest."""
        return self._running_extreme(axis, Ops.MIN)

    def logcumsumexp(self, axis: Whole = 0) -> Self:
        """log(cumsum(exp(x))), shifted so that nothing overflows and nothing is lost."""
        x = self._as_float()
        return x.cast(accumulation_dtype(x.dtype))._scan(axis, _LOG_SUM_EXP).cast(x.dtype)

    def _running_extreme(self, axis: Whole, op: Ops) -> tuple[Self, Self]:
        if self.dtype.is_bool:
            values, places = self.cast(dtypes.uint8)._running_extreme(axis, op)
            return values.bool(), places
        limit = dtypes.min(self.dtype) if op is Ops.MAX else dtypes.max(self.dtype)
        values = self._scan(axis, _extreme(op, limit))._value()
        return values, self._places_of_records(axis, values)

    def _places_of_records(self, axis: Whole, values: Self) -> Self:
        """Where each running extreme began: the last place before which it was another."""
        if not self.ndim:
            return self._iota(1).reshape(())
        position = resolve_axis(axis, self.ndim)
        size = self.shape[position]
        found = values.detach()
        around = [(0, 0)] * self.ndim
        around[position] = (1, -1) if size else (0, 0)
        before = found._pad_zeros(around)
        place = self._iota(size).reshape((-1,) + (1,) * (self.ndim - position - 1))
        changed = found.ne(before)
        if self.is_floating_point():
            changed = changed & ~(found.isnan() & before.isnan())
        return (changed & place.ne(0)).where(place, 0)._scan(axis, _extreme(Ops.MAX, 0))

    def _scan(self, axis: Whole, combination: Combination) -> Self:
        """Every prefix of an axis combined."""
        position = resolve_axis(axis, self.ndim)
        if not self.ndim:
            return self
        return self._axis_last(position)._scan_last(combination)._axis_from_last(position)

    def _scan_last(self, combination: Combination) -> Self:
        size = self.shape[-1]
        if not self.numel():
            return self
        if size <= BLOCK:
            return self._prefixes(combination)
        count = -(-size // BLOCK)
        outer = [(0, 0)] * (self.ndim - 1)
        padded = self._pad_value([*outer, (0, count * BLOCK - size)], combination.identity)
        blocks = padded.reshape((*self.shape[:-1], count, BLOCK))._prefixes(combination)
        ends = blocks._cut(blocks.ndim - 1, BLOCK - 1, BLOCK).reshape((*self.shape[:-1], count))
        shifted = ends._scan_last(combination)._pad_value([*outer, (1, -1)], combination.identity)
        result: Self = combination.of_two(shifted.unsqueeze(-1), blocks)
        return result.reshape((*self.shape[:-1], count * BLOCK))._cut(self.ndim - 1, 0, size)

    def _prefixes(self, combination: Combination) -> Self:
        """Element i combined from those of the last axis up to i, one by one."""
        size = self.shape[-1]
        line = self._iota(size)
        upto = line.reshape((1, size)) <= line.reshape((size, 1))
        result: Self = combination.of_last_axis(
            upto.where(self.unsqueeze(-2), combination.identity)
        )
        return result


def _extreme(op: Ops, limit: Scalar) -> Combination:
    def of_two(a: Any, b: Any) -> Any:
        return a.maximum(b) if op is Ops.MAX else a.minimum(b)

    return Combination(of_two, lambda x: x._reduce(op, -1, False), limit)
