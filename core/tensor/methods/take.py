"""Elements chosen by integers in memory: a sum over all places of which one is not zero.

Owns: the one form in which the compiler sees such a choice: rules take the loop away where the
place is compared with the counter of the axis, and a gradient goes to each place once (docs/architecture.md). Does not own: what an index
means (indexing.py).
"""

from __future__ import annotations

import functools
from typing import Self

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.methods.base import TensorBase
from proofgrad.core.tensor.methods.custom_vjp import CustomGradient
from proofgrad.core.tensor.methods.movement import broadcast_node, broadcast_shapes
from proofgrad.core.tensor.methods.operands import Whole
from proofgrad.core.tensor.methods.scan import Scan

# By the bytes of an element.
_BITS = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}


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
        """The element where `chosen`, which is true for at most one place of the axis, else 0.

        Of floats the bits are summed: 0.0 + -0.0 is 0.0, but the element is -0.0.
        """
        if self.dtype.is_bool:
            return (chosen & self).any(axis)
        if not (self.dtype.is_float or self.dtype.is_code):
            return chosen.where(self, 0).sum(axis, dtype=self.dtype)
        bits = _BITS[self.dtype.itemsize]
        shape = broadcast_shapes("[]", self.shape, chosen.shape)
        whole, chosen = [x._with(broadcast_node(x._uop, shape)) for x in (self, chosen)]
        picked = chosen.where(whole.bitcast(bits), 0).sum(axis, dtype=bits).bitcast(self.dtype)
        sources = (picked._uop, whole._uop, chosen._uop)
        mark = _mark(type(self), self.device, axis)
        return self._with(UOp(Ops.DETACH, self.dtype, sources, mark))


@functools.lru_cache(maxsize=64)
def _mark(kind: type[Take], device: str, axis: Whole) -> CustomGradient:
    """How a gradient passes the bits: to the place that was chosen. One for all choices, so that equal graphs are one."""

    def to_its_place(gradient: Take, whole: Take, chosen: Take) -> tuple[Take, None]:
        return chosen.where(gradient.unsqueeze(axis), 0), None

    return CustomGradient(to_its_place, "an element by its place", kind, device)
