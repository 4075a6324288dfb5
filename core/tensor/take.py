"""Elements chosen by integers in memory: a sum over all places of which one is not zero.

Owns: the one form in which the compiler sees such a choice: rules take the loop away where the
place is compared with the counter of the axis, and a gradient goes to each place once (docs/architecture.md). Does not own: what an index
means (indexing.py).
"""

from __future__ import annotations

from typing import Self

from proofgrad.core.tensor.base import TensorBase
from proofgrad.core.tensor.operands import Whole
from proofgrad.core.tensor.scan import Scan


class Take(Scan):
    """Choosing places of an axis. A place outside of the axis gives 0."""

    __slots__ = ()

    def _take(self, axis: Whole, places: TensorBase) -> Self:
        """The axis replaced by the axes of `places`: the elements there."""
        size = self.shape[axis]
        before, after = self.shape[:axis], self.shape[axis + 1 :]
        wanted = self._with(places._uop).reshape(
            (1,) * len(before) + places.shape + (1,) * (len(after) + 1)
        )
        chosen = wanted._is_place(len(before) + places.ndim, size)
        source = self.reshape(before + (1,) * places.ndim + (size,) + after)
        return source._one_of(chosen, len(before) + places.ndim)

    def _take_along(self, axis: Whole, places: TensorBase) -> Self:
        """Element [.., places[.., i, ..], ..]: both have the same axes beside `axis`."""
        wanted = self._with(places._uop)._axis_last(axis).unsqueeze(-1)
        chosen = wanted._is_place(-1, self.shape[axis])
        source = self._axis_last(axis).unsqueeze(-2)
        return source._one_of(chosen, source.ndim - 1)._axis_from_last(axis)

    def _one_of(self, chosen: Self, axis: Whole) -> Self:
        """The element where `chosen`, which is true for at most one place of the axis, else 0."""
        if self.dtype.is_bool:
            return (chosen & self).any(axis)
        return chosen.where(self, 0).sum(axis, dtype=self.dtype)
