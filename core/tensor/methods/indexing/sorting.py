"""Order: sort, argsort, topk.

Owns: what comes first. Equal elements keep their order, in both directions; NaN counts as the largest,
-0.0 as equal to 0.0.

Few elements are ranked: the rank of one is the number of those before it, and the element of rank k
goes to position k; n * n comparisons in two kernels. Many go through a network of comparators (Batcher,
Sorting networks and their applications, 1968, with all comparators in one direction): n log(n)**2
comparisons in log(n) (log(n) + 1) / 2 kernels. Each carries its position along, which makes it stable. The
first few of many are the least, the least of what lies beyond that, and so on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.shapes import Shape, ShapeError, at_least, show
from proofgrad.core.tensor.data.arguments import Flag, Whole, resolve_axis, takes_dim
from proofgrad.core.tensor.methods.indexing.take import take_along
from proofgrad.core.tensor.methods.reduction.reduce import Reduction

RANKED_UP_TO = 8192  # elements; measured: there both ways take 15 to 30 ms on one core
# So many elements, of at least so many times as many, are found one by one: each is a kernel over all.
SELECTED_UP_TO, SELECTED_OF = 64, 8


class Sorting(Reduction):
    """Sorting along an axis."""

    __slots__ = ()

    @takes_dim
    def sort(self, dim: Whole = -1, descending: Flag = False) -> tuple[Self, Self]:
        """The sorted elements, and where each one was.

        Example:
            values, positions = Tensor([3, 1, 2]).sort()  # [1, 2, 3] and [1, 2, 0]
        """
        positions = self.argsort(dim, descending)
        if not self.ndim:
            return self._value(), positions
        return take_along(self, resolve_axis(dim, self.ndim), positions), positions

    @takes_dim
    def argsort(self, dim: Whole = -1, descending: Flag = False) -> Self:
        """Where the elements of the sorted axis are, as int32."""
        axis = resolve_axis(dim, self.ndim)
        if not self.ndim:
            return self._iota(1).reshape(())
        keys = self._keys_along(axis, descending)
        short = at_least(RANKED_UP_TO, keys.shape[-1])
        positions = keys._positions_by_rank() if short else keys._positions_by_network()
        return positions._axis_from_last(axis)

    def _keys_along(self, axis: Whole, descending: Flag) -> Self:
        """Integers, on the last axis, whose order is the one asked for."""
        keys = self.detach()._order_keys()
        return (~keys if descending else keys)._axis_last(axis).contiguous()

    @takes_dim
    def topk(
        self, k: Whole, dim: Whole = -1, largest: Flag = True, sorted_: Flag = True
    ) -> tuple[Self, Self]:
        """The k largest (or smallest) elements of an axis, in order, and where they were.

        `sorted_`: they are in order in any case.
        """
        axis = resolve_axis(dim, self.ndim)
        if not self.ndim or not at_least(k, 0) or not at_least(self.shape[axis], k):
            raise ShapeError(f"topk of {k} elements along axis {dim} of {show(self.shape)}")
        is_few = isinstance(k, int) and 0 < k <= SELECTED_UP_TO
        is_few = is_few and at_least(self.shape[axis], k * SELECTED_OF)
        if is_few and self.dtype.bits <= 32:
            positions = self._keys_along(axis, largest)._first_positions(k)._axis_from_last(axis)
        else:
            positions = self.argsort(axis, descending=largest)._cut(axis, 0, k)
        return take_along(self, axis, positions), positions

    def _order_keys(self) -> Self:
        """Integers in the order of the elements: equal elements have equal keys."""
        if self.dtype.is_bool:
            return self.cast(dtypes.int8)
        if self.dtype.is_code:
            return self._computed()._order_keys()
        if not self.dtype.is_float:
            return self
        dtype = getattr(dtypes, f"int{self.dtype.bits}")
        bits = (self + 0.0).bitcast(dtype)  # -0.0 + 0.0 is 0.0
        keys = bits ^ (bits >> (self.dtype.bits - 1) & dtypes.max(dtype))
        return self.isnan().where(dtypes.max(dtype), keys)

    def _positions_by_rank(self) -> Self:
        """argsort of the last axis of integers: count who is before, then find each rank."""
        size = self.shape[-1]
        line = self._iota(size)
        other, own = self.unsqueeze(-2), self.unsqueeze(-1)
        earlier = line.reshape((1, size)) < line.reshape((size, 1))
        before = (other < own) | (other.eq(own) & earlier)
        ranks = before.sum(-1).contiguous()
        hits = ranks.unsqueeze(-2).eq(line.reshape((size, 1)))
        return hits.where(line, 0).sum(-1)

    def _first_positions(self, k: Whole) -> Self:
        """The first k of argsort of the last axis of integers of 32 bits or fewer."""
        pairs = self._with_positions(self._iota(self.shape[-1]) + 1)  # no pair is the least number
        lowest, highest = dtypes.min(dtypes.int64), dtypes.max(dtypes.int64)
        found: Self = (pairs * 0 + lowest)._cut(-1, 0, k)
        for _ in range(k):  # the last one found is at the front; every round runs the same kernels
            beyond = (pairs > found._cut(-1, 0, 1)).where(pairs, highest)
            least = beyond.min(-1, keepdim=True).contiguous()
            found = least.cat(found._cut(-1, 0, k - 1), dim=-1).contiguous()
        return ((found & 0xFFFFFFFF) - 1).flip(-1).cast(dtypes.int32)

    def _with_positions(self, positions: Self) -> Self:
        """Key and position in one number: the larger of two pairs is one comparison."""
        offset = -(1 << 31) if self.dtype is dtypes.uint32 else 0
        return (self.cast(dtypes.int64) + offset) << 32 | positions.cast(dtypes.int64)

    def _positions_by_network(self) -> Self:
        """argsort of the last axis of integers by comparators."""
        size = self.shape[-1]
        levels = (size - 1).bit_length()
        around = [(0, 0)] * (self.ndim - 1) + [(0, (1 << levels) - size)]
        keys = self._pad_value(around, dtypes.max(self.dtype))
        positions = keys._iota(1 << levels).expand(keys.shape)
        if self.dtype.bits > 32:
            positions = keys._network_of_pairs(positions, levels)
        else:
            pairs = keys._with_positions(positions)
            for partner, lower in _comparators(pairs, levels):
                mine = pairs.reshape(partner[0])
                other = mine.flip(partner[1])
                pairs = lower.where(mine.minimum(other), mine.maximum(other)).contiguous()
                pairs = pairs.reshape(keys.shape)
            positions = pairs.cast(dtypes.int32)
        return positions._cut(positions.ndim - 1, 0, size)

    def _network_of_pairs(self, positions: Self, levels: Whole) -> Self:
        """The positions in the order of these keys, both moved together."""
        keys, shape = self, self.shape
        for (view, axes), lower in _comparators(self, levels):
            mine, position = keys.reshape(view), positions.reshape(view)
            other, rival = mine.flip(axes), position.flip(axes)
            first = (mine < other) | (mine.eq(other) & (position < rival))
            stays = first.eq(lower).contiguous()
            keys = stays.where(mine, other).contiguous().reshape(shape)
            positions = stays.where(position, rival).contiguous().reshape(shape)
        return positions


def _comparators(line: Sorting, levels: Whole) -> Iterator[tuple[tuple[Shape, Sequence[int]], Any]]:
    """Each layer of the network: a view in which partners are each other's mirror along axes.

    With it: where the smaller of the two goes. The first layer of a level mirrors whole blocks, so
    that all comparators point in one direction.
    """
    outer, size = line.shape[:-1], line.shape[-1]
    lower = line._iota(2).reshape(2, 1).eq(0)
    for level in range(1, levels + 1):
        for step in range(level, 0, -1):
            view = (*outer, size >> step, 2, 1 << (step - 1))
            yield (view, (-2, -1) if step == level else (-2,)), lower
