"""Order: sort, argsort, topk.

Owns: what comes first. Equal elements keep their order, in both directions; NaN counts as the largest,
-0.0 as equal to 0.0. The rank of an element is the number of those before it; the element of rank k
goes to place k.
"""

from __future__ import annotations

from typing import Self

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.shapes import ShapeError, show
from proofgrad.core.tensor.movement import resolve_axis
from proofgrad.core.tensor.operands import Flag, Whole
from proofgrad.core.tensor.scatter import Scatter


class Sorting(Scatter):
    """Sorting along an axis."""

    __slots__ = ()

    def sort(self, dim: Whole = -1, descending: Flag = False) -> tuple[Self, Self]:
        """The sorted elements, and where each one was.

        Example:
            values, places = Tensor([3, 1, 2]).sort()  # [1, 2, 3] and [1, 2, 0]
        """
        places = self.argsort(dim, descending)
        if not self.ndim:
            return self, places
        return self._take_along(resolve_axis(dim, self.ndim), places), places

    def argsort(self, dim: Whole = -1, descending: Flag = False) -> Self:
        """Where the elements of the sorted axis are, as int32."""
        axis = resolve_axis(dim, self.ndim)
        if not self.ndim:
            return self._iota(1).reshape(())
        keys = self.detach()._order_keys()
        keys = (~keys if descending else keys)._axis_last(axis)._buffered()
        return keys._places_by_rank()._axis_from_last(axis)

    def topk(
        self, k: Whole, dim: Whole = -1, largest: Flag = True, sorted_: Flag = True
    ) -> tuple[Self, Self]:
        """The k largest (or smallest) elements of an axis, in order, and where they were.

        `sorted_`: they are in order in any case.
        """
        axis = resolve_axis(dim, self.ndim)
        if not self.ndim or not 0 <= k <= self.shape[axis]:
            raise ShapeError(f"topk of {k} elements along axis {dim} of {show(self.shape)}")
        places = self.argsort(axis, descending=largest)._cut(axis, 0, k)
        return self._take_along(axis, places), places

    def _order_keys(self) -> Self:
        """Integers in the order of the elements: equal elements have equal keys."""
        if self.dtype.is_bool:
            return self.cast(dtypes.int8)
        if not self.dtype.is_float:
            return self
        dtype = getattr(dtypes, f"int{self.dtype.bits}")
        bits = (self + 0.0).bitcast(dtype)  # -0.0 + 0.0 is 0.0
        keys = bits ^ (bits >> (self.dtype.bits - 1) & dtypes.max(dtype))
        return self.isnan().where(dtypes.max(dtype), keys)

    def _places_by_rank(self) -> Self:
        """argsort of the last axis of integers: count who is before, then find each rank."""
        size = self.shape[-1]
        line = self._iota(size)
        other, own = self.unsqueeze(-2), self.unsqueeze(-1)
        earlier = line.reshape((1, size)) < line.reshape((size, 1))
        before = (other < own) | (other.eq(own) & earlier)
        ranks = before.sum(-1)._buffered()
        hits = ranks.unsqueeze(-2).eq(line.reshape((size, 1)))
        return hits.where(line, 0).sum(-1)
