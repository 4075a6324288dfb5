"""Order: sort, argsort, topk.

Owns: what comes first. Equal elements keep their order, in both directions; NaN counts as the largest,
-0.0 as equal to 0.0. Sorted values of many elements have -0.0 before 0.0. Does not own: the comparators (networks.py).

An element becomes an integer, its key, and key and position one number, the pair: so each of them differs from all others, and to sort
them is stable. The bits of a pair of 64 are those of a float64 where vectors compare these faster. Keys of 64 bits are sorted by their
lower half, and then by the upper. Few elements are ranked: the rank of one is the number of those before it, and the element of rank k goes
to position k; n * n comparisons in two kernels.
"""

from __future__ import annotations

import functools
import math
from typing import Self, TypeVar

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import ShapeError, at_least, is_plain, show
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.arguments import (
    Flag,
    Whole,
    refuses,
    resolve_axis,
    takes_dim,
    takes_numbers,
)
from proofgrad.core.tensor.methods.custom_vjp import CustomGradient
from proofgrad.core.tensor.methods.indexing.networks import (
    RANKED_COMPARISONS,
    first_of_lines,
    has_least_of_doubles_alone,
    least_of_lines,
    sort_lines,
)
from proofgrad.core.tensor.methods.indexing.take import is_position, take_along
from proofgrad.core.tensor.methods.made_once import made_once
from proofgrad.core.tensor.methods.reduction.reduce import Reduction
from proofgrad.core.tensor.runtime.device import Device

# So many elements, of at least so many times as many, are found one by one where a variable says how many there are.
SEARCHED_UP_TO, SEARCHED_OF = 64, 8
GROUP = 16  # elements that are looked at one by one if the first of them is among the first
SELECTED_OF = 4  # so many times as many groups as are looked at one by one
# Bits of a position in a float64, whose other bits are a key above 0: so the floats are in the order of their bits, all of them normal.
BESIDE_A_KEY, LEAST_NORMAL = 30, 1 << 52
RANKED_UP_TO = 8192  # elements of a row, where a machine has no integers of 64 bits
_T = TypeVar("_T", bound=Reduction)
_S = TypeVar("_S", bound="Sorting")


class Sorting(Reduction):
    """Sorting along an axis."""

    __slots__ = ()

    @refuses(stable="leave it out: equal elements keep their order")
    @takes_dim
    def sort(self, dim: Whole = -1, descending: Flag = False) -> tuple[Self, Self]:
        """The sorted elements, and where each one was.

        Of many elements the values are sorted by themselves, -0.0 before 0.0.

        Example:
            values, positions = Tensor([3, 1, 2]).sort()  # [1, 2, 3] and [1, 2, 0]
        """
        positions = self.argsort(dim, descending)
        if not self.ndim:
            return self._value(), positions
        axis = resolve_axis(dim, self.ndim)
        if self.dtype.is_bool or self.dtype.is_code or self._is_ranked(self.shape[axis]):
            return take_along(self, positions, axis), positions
        return self._values_by_network(axis, descending), positions

    @refuses(stable="leave it out: equal elements keep their order")
    @takes_dim
    def argsort(self, dim: Whole = -1, descending: Flag = False) -> Self:
        """Where the elements of the sorted axis are, as int32."""
        axis = resolve_axis(dim, self.ndim)
        if not self.ndim:
            return self._iota(1).reshape(())
        is_ranked = self._is_ranked(self.shape[axis])
        return _positions_in_order(self.detach(), axis, bool(descending), is_ranked)

    def _values_by_network(self, axis: int, descending: bool) -> Self:
        """The elements of an axis in order, without where they were: half as much goes through the comparators."""
        values = _values_by_network(self.detach(), axis, bool(descending))
        # mypy takes the __hash__ of Tensors for that of their class.
        mark = _to_where_they_were(type(self), self.device, axis, bool(descending))
        sources = (values._uop, self._uop)
        return self._with(UOp(Ops.DETACH, self.dtype, sources, mark))

    def _is_ranked(self, size: Whole) -> bool:
        """Whether ranks along an axis of this size are all that can be had, or the faster way."""
        if not is_plain((size,)) or not size:
            return True
        if size <= RANKED_UP_TO and dtypes.int64 not in Device[self.device].target.storage:
            return True
        return at_least(RANKED_COMPARISONS, math.prod(self.shape) * size)

    def _keys_along(self, axis: Whole, descending: Flag) -> Self:
        """Integers, on the last axis, whose order is the one asked for."""
        return self.detach()._keys(descending)._axis_last(axis).contiguous()

    @refuses(sorted="it is called sorted_=")
    @takes_numbers
    @takes_dim
    def topk(
        self, k: Whole, dim: Whole = -1, largest: Flag = True, sorted_: Flag = True
    ) -> tuple[Self, Self]:
        """The k largest (or smallest) elements of an axis, in order, and where they were.

        `sorted_`: they are in order in any case.
        """
        axis = resolve_axis(dim, self.ndim)
        if not self.ndim or not at_least(k, 0) or not at_least(self.shape[axis], k):
            most = show(self.shape[axis : axis + 1])[1:-2] if self.ndim else 0
            raise ShapeError(
                f"topk of {k} elements along axis {dim} of {show(self.shape)}: k is 0 to {most}"
            )
        if self._is_searched(k, axis):
            keys = self._keys_along(axis, largest)
            positions = keys._positions_one_by_one(k)._axis_from_last(axis)
        elif self._is_selected(k, axis):
            positions = _first_by_network(self.detach(), axis, int(k), bool(largest))
        else:
            positions = self.argsort(axis, descending=largest)._cut(axis, 0, k)
        return take_along(self, positions, axis), positions

    def _is_searched(self, k: Whole, axis: int) -> bool:
        """Whether a variable says how long the axis is, and the first k are few of it."""
        size = self.shape[axis]
        if is_plain((size,)) or not isinstance(k, int) or self.dtype.bits > 32:
            return False
        return 0 < k <= SEARCHED_UP_TO and at_least(size, k * SEARCHED_OF)

    def _positions_one_by_one(self, k: int) -> Self:
        """The first k of argsort of the last axis: the least, the least of what lies beyond it, and so on."""
        pairs = self._with_positions(
            self._iota(self.shape[-1]) + 1, 1 << 32
        )  # none is the least number
        lowest, highest = dtypes.min(dtypes.int64), dtypes.max(dtypes.int64)
        found: Self = (pairs * 0 + lowest)._cut(-1, 0, k)
        for _ in range(k):  # the last one found is at the front; every round runs the same kernels
            beyond = (pairs > found._cut(-1, 0, 1)).where(pairs, highest)
            least = beyond.min(-1, keepdim=True).contiguous()
            found = least.cat(found._cut(-1, 0, k - 1), dim=-1).contiguous()
        return found.flip(-1)._positions_in_pairs(self.dtype) - 1

    def _is_selected(self, k: Whole, axis: int) -> bool:
        """Whether the first k of an axis are found without sorting the others."""
        if not isinstance(k, int) or not k:
            return False
        return not self._is_ranked(self.shape[axis]) and bool(self.shape[axis] >= 2 * k)

    def _first_positions(self, k: int, descending: bool) -> Self:
        """The first k of argsort of the rows of a matrix.

        They lie in the k groups whose own first elements come first: so only those are looked at one by one.
        """
        rows, size = self.shape
        if size < SELECTED_OF * GROUP * k:
            return self._least_positions(self._keys(descending), self._iota(size), k, descending)
        groups = self._pad_value([(0, 0), (0, -size % GROUP)], 0).reshape((rows, -1, GROUP))
        beyond = self._iota(groups.shape[1] * GROUP).reshape((-1, GROUP)) >= size
        keys = groups._keys(descending)
        firsts = beyond.where(dtypes.max(keys.dtype), keys).min(-1).contiguous()
        chosen = firsts._first_positions(k, False).contiguous()
        positions = (chosen.unsqueeze(-1) * GROUP + self._iota(GROUP)).reshape((rows, -1))
        found = take_along(self, positions, 1).contiguous()._keys(descending)
        keys = (positions < size).where(found, dtypes.max(found.dtype))
        return self._least_positions(keys, positions, k, descending)

    def _least_positions(self, keys: Self, positions: Self, k: int, descending: bool) -> Self:
        """The positions of the first k of each row, which are among these, by their keys."""
        beyond = self.shape[1] + GROUP
        if keys.dtype.bits <= 32:
            pairs = keys._with_positions(positions, beyond)
            return first_of_lines(pairs, k)._positions_in_pairs(keys.dtype)
        chosen = keys._positions_up_to_the_last(positions, beyond, k)
        found = take_along(self, chosen, 1).contiguous()._keys(descending)
        is_ranked = self._is_ranked(k)
        order = found._positions_by_rank() if is_ranked else found._positions_by_network()
        return take_along(chosen, order.contiguous(), 1)

    def _positions_up_to_the_last(self, positions: Self, beyond: int, k: int) -> Self:
        """Where the k least of each row of keys are, those before the last of them first; of equal ones in order.

        A key does not fit beside a position, but whether it comes before that last one does.
        """
        last = least_of_lines(self, k)._cut(1, k - 1, k).contiguous()
        room = (beyond - 1).bit_length()
        kind = dtypes.int32 if room < 30 else dtypes.int64
        part = (self < last).where(0, self.eq(last).where(1, 2)).cast(kind)
        found = first_of_lines(part << room | positions.cast(kind), k)
        return (found & (1 << room) - 1).cast(dtypes.int32).contiguous()

    def _keys(self, descending: bool) -> Self:
        """Integers whose order is the one asked for."""
        keys = self._order_keys()
        return ~keys if descending else keys

    def _order_keys(self) -> Self:
        """Integers in the order of the elements: equal elements have equal keys."""
        if self.dtype.is_bool:
            return self.cast(dtypes.int8)
        if self.dtype.is_code:
            return self._computed()._order_keys()
        return (self + 0.0 if self.dtype.is_float else self)._total_keys()  # -0.0 + 0.0 is 0.0

    def _total_keys(self) -> Self:
        """Integers in the order of the elements, -0.0 before 0.0; each is the key of one number, or of NaN."""
        if not self.dtype.is_float:
            return self
        dtype = getattr(dtypes, f"int{self.dtype.bits}")
        return self.isnan().where(dtypes.max(dtype), _mirrored(self.bitcast(dtype)))

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

    def _positions_by_network(self) -> Self:
        """argsort of the last axis of integers by comparators; of 64 bits by the lower half, then by the upper."""
        rows = self.reshape((-1, self.shape[-1]))
        if self.dtype.bits <= 32:
            return rows._positions_of_pairs().reshape(self.shape)
        upper = dtypes.uint32 if self.dtype.is_unsigned else dtypes.int32
        first = (rows & 0xFFFFFFFF).cast(dtypes.uint32)._positions_of_pairs().contiguous()
        then = take_along((rows >> 32).cast(upper), first, 1).contiguous()._positions_of_pairs()
        return take_along(first, then.contiguous(), 1).reshape(self.shape)

    def _positions_of_pairs(self) -> Self:
        """argsort of the rows of a matrix of integers of 32 bits or fewer."""
        size = self.shape[1]
        pairs = sort_lines(self._with_positions(self._iota(size), size))
        return pairs._positions_in_pairs(self.dtype)

    def _with_positions(self, positions: Self, size: int) -> Self:
        """Key and position below `size` in one number: the larger of two pairs is one comparison."""
        room, half = (size - 1).bit_length(), 1 << self.dtype.bits - 1
        bits = 32 if self.dtype.bits + room <= 32 else 64
        pair = getattr(dtypes, f"int{bits}")
        if bits == 64 and room <= BESIDE_A_KEY and self._compares_doubles():
            keys = self.cast(pair) + (0 if self.dtype.is_unsigned else half)
            found = (keys << BESIDE_A_KEY | positions.cast(pair)) + LEAST_NORMAL
            return found.bitcast(dtypes.float64)
        keys = (self.cast(pair) - (half if self.dtype.is_unsigned else 0)) << bits - self.dtype.bits
        return keys | positions.cast(pair)

    def _compares_doubles(self) -> bool:
        return has_least_of_doubles_alone(self.device)

    def _positions_in_pairs(self, keys: DType) -> Self:
        """The positions of pairs whose keys are of that type."""
        bits, room = self, self.dtype.bits - keys.bits
        if self.dtype.is_float:
            bits, room = self.bitcast(dtypes.int64), BESIDE_A_KEY
        return (bits & (1 << room) - 1).cast(dtypes.int32).contiguous()


@made_once
def _positions_in_order(x: _S, axis: int, descending: bool, is_ranked: bool) -> _S:
    """argsort of an axis."""
    keys = x._keys_along(axis, descending)
    found = keys._positions_by_rank() if is_ranked else keys._positions_by_network()
    return found._axis_from_last(axis)


@made_once
def _first_by_network(x: _S, axis: int, count: int, descending: bool) -> _S:
    """The first so many of argsort of an axis, where not all are sorted."""
    values = x._axis_last(axis)
    first = values.reshape((-1, values.shape[-1]))._first_positions(count, descending)
    return first.reshape((*values.shape[:-1], count))._axis_from_last(axis)


@made_once
def _values_by_network(x: _S, axis: int, descending: bool) -> _S:
    """The elements of an axis in order."""
    line = x._axis_last(axis)
    keys = line._total_keys()
    rows = (~keys if descending else keys).reshape((-1, line.shape[-1]))
    found = sort_lines(rows).reshape(line.shape)
    found = ~found if descending else found
    if x.dtype.is_float:
        found = _mirrored(found).bitcast(x.dtype)
    return found._axis_from_last(axis).contiguous()


def _mirrored(bits: _T) -> _T:
    """The bits of floats as integers in their order, and back: below 0 the larger ones come first."""
    found: _T = bits ^ (bits >> (bits.dtype.bits - 1) & dtypes.max(bits.dtype))
    return found


@functools.lru_cache(maxsize=64)
def _to_where_they_were(
    kind: type[Sorting], device: str, axis: int, descending: bool
) -> CustomGradient:
    """The gradient of sorted values: each part goes to where the element was. One for equal calls, so that equal graphs are one."""

    def backward(gradient: Sorting, x: Sorting) -> Sorting:
        positions = x.argsort(axis, descending)._axis_last(axis).unsqueeze(-1)
        came = is_position(positions, -1, x.shape[axis])
        parts = came.where(gradient._axis_last(axis).unsqueeze(-1), 0)
        return parts.sum(-2, dtype=gradient.dtype)._axis_from_last(axis)

    return CustomGradient(backward, "sorted values", kind, device)
