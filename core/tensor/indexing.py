"""`tensor[...]`: ints, slices, None, Ellipsis, and integer Tensors or lists on one axis.

Owns: what an index means. Does not own: boolean masks, whose result has a size that only the data
know; they are refused with a hint.
"""

from __future__ import annotations

from typing import Any, Self

from proofgrad.core.ir.shapes import ShapeError, show
from proofgrad.core.tensor.base import TensorBase, describe
from proofgrad.core.tensor.errors import DtypeError
from proofgrad.core.tensor.operands import Whole
from proofgrad.core.tensor.reduce import Reduce


class Indexing(Reduce):
    """Reading parts of a Tensor. As in torch, ints beside a Tensor or list move no axes."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Self:
        parts = self._full_index(index if isinstance(index, tuple) else (index,))
        result, axis = self, 0
        pending: list[tuple[int, Self]] = []
        for part in parts:
            match part:
                case None:
                    result, axis = result.unsqueeze(axis), axis + 1
                case slice():
                    result, axis = result._slice(axis, part), axis + 1
                case int():
                    result = result._pick(axis, part)
                case _:
                    pending.append((axis, part))
                    axis += 1
        if len(pending) > 1:
            raise IndexError(
                "only one Tensor or list is supported in an index; index twice instead"
            )
        for axis, positions in pending:
            result = result._gather(axis, positions)
        return result

    def _full_index(self, parts: tuple[Any, ...]) -> list[Any]:
        """The index with Ellipsis spelt out and every axis mentioned."""
        checked = [self._index_part(part) for part in parts]
        used = sum(1 for part in checked if part is not None and part is not Ellipsis)
        if used > self.ndim:
            raise IndexError(f"{used} indices for {self.ndim} axes {show(self.shape)}")
        places = [k for k, part in enumerate(checked) if part is Ellipsis]
        if len(places) > 1:
            raise IndexError("an index can have only one '...'")
        place = places[0] if places else len(checked)
        fill = [slice(None)] * (self.ndim - used)
        return checked[:place] + fill + checked[place + 1 :]

    def _index_part(self, part: Any) -> Any:
        if part is None or part is Ellipsis or isinstance(part, slice):
            return part
        if isinstance(part, bool):
            raise IndexError("a bool is no index; use where, or an int")
        if isinstance(part, int):
            return part
        if isinstance(part, list) or (hasattr(part, "__array__") and hasattr(part, "dtype")):
            part = part if isinstance(part, TensorBase) else self._as_tensor(part)
        if not isinstance(part, TensorBase):
            if hasattr(part, "__index__"):
                return part.__index__()
            raise IndexError(f"cannot index with {describe(part)}")
        if part.dtype.is_bool:
            raise IndexError(
                "a boolean mask gives a result whose size depends on the data; use"
                " mask.where(x, 0), or numpy: x.numpy()[mask.numpy()]"
            )
        if not part.dtype.is_int:
            raise DtypeError(f"indices are integers, not {part.dtype}")
        return part

    def _pick(self, axis: Whole, position: Whole) -> Self:
        """One place of an axis, without the axis. Raises: IndexError."""
        size = self.shape[axis]
        if not -size <= position < size:
            raise IndexError(
                f"index {position} is out of range for axis {axis} of {show(self.shape)}"
            )
        begin = position % size
        one = self._cut(axis, begin, begin + 1)
        return one.reshape(one.shape[:axis] + one.shape[axis + 1 :])

    def _cut(self, axis: Whole, begin: Whole, end: Whole) -> Self:
        cuts: list[tuple[int, int] | None] = [None] * self.ndim
        cuts[axis] = (begin, end)
        return self.shrink(cuts)

    def _slice(self, axis: Whole, part: slice) -> Self:
        """begin:end:step of one axis; a negative step reverses."""
        for bound in (part.start, part.stop, part.step):
            if bound is not None and not hasattr(bound, "__index__"):
                raise IndexError(f"the bounds of a slice are ints, not {describe(bound)}")
        if part.step == 0:
            raise IndexError("the step of a slice cannot be 0")
        places = range(self.shape[axis])[part]
        if not places:
            return self._cut(axis, 0, 0)
        forward = places if places.step > 0 else places[::-1]
        result = self._cut(axis, forward[0], forward[-1] + 1)
        if places.step < 0:
            result = result.flip(axis)
        return result._every(axis, abs(places.step)) if abs(places.step) > 1 else result

    def _every(self, axis: Whole, step: Whole) -> Self:
        """Elements 0, step, 2 step, ... of one axis."""
        size = self.shape[axis]
        count = -(-size // step)
        around = [(0, 0)] * self.ndim
        around[axis] = (0, count * step - size)
        x = self._pad_zeros(around)
        x = x.reshape(x.shape[:axis] + (count, step) + x.shape[axis + 1 :])._cut(axis + 1, 0, 1)
        return x.reshape(x.shape[: axis + 1] + x.shape[axis + 2 :])

    def _gather(self, axis: Whole, positions: Self) -> Self:
        """Elements at integer positions of one axis: a sum over places that has one term.

        A place outside of the axis gives 0; negative ones count from the end; -0.0 becomes 0.0.
        """
        size = self.shape[axis]
        wanted = positions.cast("int32") if positions.dtype.bits < 32 else positions
        if not wanted.dtype.is_unsigned:
            wanted = (wanted < 0).where(wanted + size, wanted)
        before, after = self.shape[:axis], self.shape[axis + 1 :]
        line = (1,) * len(before) + wanted.shape + (1,) + (1,) * len(after)
        places = self._iota(size, wanted.dtype).reshape((size,) + (1,) * len(after))
        hits = wanted.reshape(line) == places
        source = self.reshape(before + (1,) * wanted.ndim + (size,) + after)
        chosen = hits.where(source, 0)
        axis_of_places = len(before) + wanted.ndim
        if self.dtype.is_bool:
            return chosen.any(axis_of_places)
        return chosen.sum(axis_of_places, dtype=self.dtype)

    def gather(self, dim: Whole, index: Self) -> Self:
        """out[i][j] = self[index[i][j]][j] for dim 0; index has as many axes as this Tensor."""
        if index.ndim != self.ndim:
            raise ShapeError(f"gather from {show(self.shape)} with indices {show(index.shape)}")
        axis = dim % self.ndim
        cuts = [None if k == axis else (0, n) for k, n in enumerate(index.shape)]
        source = self.shrink(cuts).transpose(axis, -1) if self.ndim > 1 else self
        turned = index.transpose(axis, -1) if self.ndim > 1 else index
        hits = turned.unsqueeze(-1) == self._iota(self.shape[axis], index.dtype)
        chosen = hits.where(source.unsqueeze(-2), 0).sum(-1, dtype=self.dtype)
        return chosen.transpose(axis, -1) if self.ndim > 1 else chosen

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError(
            "Tensors are values and cannot be written in part; build the new one with where, cat"
            " or pad and give it to assign"
        )
