"""Writing to positions that integers in memory name, and selection by masks.

Owns: scatter, scatter_reduce, masked_select, nonzero. Each position of the result looks at all sources, so
results never depend on an order of threads; the compiler sees from it that each source goes to one
position (core/compile/tactics/scatter.py).
"""

from __future__ import annotations

import functools
import math
from typing import Any, Self, TypeVar

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import ShapeError, at_least, show, sizes
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.arguments import (
    Flag,
    Scalar,
    Whole,
    plain_number,
    resolve_axis_of_several,
)
from proofgrad.core.tensor.data.errors import ArgumentError, DtypeError
from proofgrad.core.tensor.data.nodes import broadcast_node, constant_node
from proofgrad.core.tensor.data.promotion import accumulation_dtype
from proofgrad.core.tensor.methods.base import TensorBase, check_same_device
from proofgrad.core.tensor.methods.custom_vjp import CustomGradient
from proofgrad.core.tensor.methods.indexing.masks import (
    first_rows,
    position_of_each_axis,
    positions_of_true,
    true_positions,
)
from proofgrad.core.tensor.methods.indexing.selection import Selection
from proofgrad.core.tensor.methods.indexing.take import (
    is_position,
    last_true,
    one_of,
    take,
    take_along,
)
from proofgrad.core.tensor.methods.made_once import made_once

_T = TypeVar("_T", bound=Selection)
_REDUCTIONS = ("sum", "prod", "mean", "amax", "amin")


class Scatter(Selection):
    """The opposite of reading by an index."""

    __slots__ = ()

    def scatter(
        self, dim: Whole, index: Self, src: Self | Scalar, reduce: str | None = None
    ) -> Self:
        """A copy with out[index[i][j]][j] = src[i][j] (dim 0); the last one to a position counts.

        `reduce`: "add" or "multiply" combine a number `src` with what is there. An index that is out
        of range is an IndexError, or writes nothing if it is still to be computed.
        """
        if reduce not in (None, "add", "multiply"):
            raise ArgumentError(f"reduce is None, 'add' or 'multiply', not {reduce!r}")
        index, src = self._given("index", index), plain_number(src)
        if isinstance(src, (bool, int, float)):
            values = self._with(constant_node(src, self.dtype, index.shape))
        elif reduce is not None:
            raise TypeError("scatter with reduce takes a number; see scatter_reduce for Tensors")
        else:
            values = self._given("src", src)
        match reduce:
            case None:
                return self._scatter_last(dim, index, values)
            case "add":
                return self.scatter_reduce(dim, index, values, "sum")
            case _:
                return self.scatter_reduce(dim, index, values, "prod")

    def _scatter_last(self, dim: Whole, index: Self, src: Self) -> Self:
        axis = resolve_axis_of_several(dim, self.ndim)
        self._check_scatter(axis, index, src)
        return self._with_last(index, src, axis)

    @made_once
    def _with_last(self, index: Self, src: Self, axis: Whole) -> Self:
        """With the sources in place of the elements that they go to."""
        hits, values = self._hits_of_positions(axis, index, src)
        if not hits.shape[-1]:
            return self._value()
        last = last_true(hits).contiguous()
        return (last >= 0).where(take_along(values, last, axis), self)

    def _check_scatter(self, axis: Whole, index: Self, src: Self) -> None:
        self._check_index("scatter", axis, index)
        check_same_device("scatter", self, src)
        if src.dtype is not self.dtype:
            raise DtypeError(f"cannot scatter {src.dtype} into {self.dtype}; cast it first")
        if src.ndim != index.ndim or not all(map(at_least, src.shape, index.shape)):
            raise ShapeError(
                f"scatter of {show(src.shape)} by indices {show(index.shape)}: there must be a source"
                f" for each index"
            )

    def _hits_of_positions(self, axis: Whole, index: Self, src: Self) -> tuple[Self, Self]:
        """Which source (last axis) goes to which position (in place of axis `axis`), and the sources.

        Both have the sizes of this Tensor on all other axes: sources beyond those of index go nowhere.
        """
        sizes = enumerate(zip(self.shape, index.shape))
        around = [(0, 0 if k == axis else n - m) for k, (n, m) in sizes]
        positions = index._axis_last(axis).unsqueeze(axis)
        hits = is_position(positions, axis, self.shape[axis])
        return hits._pad_zeros([*around, (0, 0)]), src.shrink_to(index.shape)._pad_zeros(around)

    def scatter_reduce(
        self, dim: Whole, index: Self, src: Self, reduce: str, include_self: Flag = True
    ) -> Self:
        """As scatter, with all that go to one position combined.

        `reduce`: "sum", "prod", "mean", "amax" or "amin". `include_self`: with what is there.
        """
        if reduce not in _REDUCTIONS:
            raise ArgumentError(f"reduce is one of {_REDUCTIONS}, not {reduce!r}")
        axis = resolve_axis_of_several(dim, self.ndim)
        index, src = self._given("index", index), self._given("src", src)
        self._check_scatter(axis, index, src)
        return self._with_all(index, src, axis, reduce, include_self)

    @made_once
    def _with_all(
        self, index: Self, src: Self, axis: Whole, reduce: str, include_self: Flag
    ) -> Self:
        """With the sources combined, each in the element that it goes to."""
        hits, sources = self._hits_of_positions(axis, index, src)
        wide = accumulation_dtype(self.dtype)  # rounded to 16 bits once
        total = _combined(reduce, sources.cast(wide)._axis_last(axis), hits, axis)
        result: Self = _joined(reduce, self.cast(wide), total, hits.sum(-1), include_self)
        return result.cast(self.dtype) if self.dtype.is_float else result

    def masked_select(self, mask: Any, size: Whole | None = None, fill_value: Scalar = 0) -> Self:
        """The elements where the mask is true, as a line.

        Without `size` the mask is computed at once. With it the line has that many elements, those
        that are missing are `fill_value`, and nothing is computed.
        """
        if not isinstance(mask, TensorBase):
            mask = self._as_tensor(mask)
        check_same_device("masked_select", self, mask)
        if not mask.dtype.is_bool:
            raise DtypeError(f"masked_select takes a mask of bools, not {mask.dtype}")
        whole = self._with(broadcast_node(mask._uop, self.shape))
        _check_size("masked_select", size)
        if size is None:
            return self[whole]
        return self._selected(whole.flatten(), size, fill_value)

    def _selected(self, mask: Self, size: Whole, fill_value: Scalar) -> Self:
        """The elements of a flat mask, in `size` positions: the k-th that is true goes to position k."""
        wanted = self._iota(size)
        done = mask.cumsum()
        found = take(self.flatten(), 0, true_positions(mask, done, size))
        fill = self._with(UOp.const(self.dtype, fill_value))
        return (wanted < mask.sum()).where(found, fill)

    def nonzero(self, size: Whole | None = None, fill_value: Scalar = 0) -> Self:
        """The positions of elements that are not zero: a row for each, a column for each axis.

        With and without `size`: see masked_select.
        """
        _check_size("nonzero", size)
        mask = self if self.dtype.is_bool else self.ne(0)
        if size is None:
            positions, count = positions_of_true(mask)
            shape = sizes().value_of_shape(self.shape)
            return first_rows(_columns(positions, shape), count)
        flat = self._iota(self.numel())._selected(mask.flatten(), size, 0)
        inside = self._iota(size) < mask.sum()
        return inside.unsqueeze(-1).where(_columns(flat, self.shape), math.trunc(fill_value))


def _check_size(name: str, size: Whole | None) -> None:
    """Raises: ShapeError."""
    if size is not None and not at_least(size, 0):
        raise ShapeError(f"{name} takes a size of 0 or more, not {size}")


@made_once
def _columns(positions: _T, shape: tuple[int, ...]) -> _T:
    """Positions in row-major order as rows: a column for the position of each axis."""
    if not shape:
        return positions._iota(0).reshape((positions.shape[0], 0))
    if len(shape) == 1:
        return positions.unsqueeze(-1)
    columns = position_of_each_axis(positions, shape)
    return columns[0].stack(*columns[1:], dim=-1).cast(dtypes.int32)


def _neutral(reduce: str, tensor: TensorBase) -> Scalar:
    """The number that changes nothing in a reduction of this type."""
    match reduce:
        case "sum" | "mean":
            return 0
        case "prod":
            return 1
        case "amax":
            return dtypes.min(tensor.dtype)  # type: ignore[no-any-return]
        case _:
            return dtypes.max(tensor.dtype)  # type: ignore[no-any-return]


def _combined(reduce: str, values: _T, hits: _T, axis: int) -> _T:
    """What all values (last axis) that go to each position (axis `axis` of `hits`) make together.

    The gradient of a product or an extreme is in the terms of a position and of a value: each value finds its
    position's by one look, where the general rule would look at all positions.
    """
    total: _T = _reduced(reduce, hits.where(values.unsqueeze(axis), _neutral(reduce, values)))
    if not values.dtype.is_float or reduce in ("sum", "mean"):
        return total
    # mypy takes the __hash__ of Tensors for that of their class.
    mark = _to_sources(type(values), values.device, reduce, axis)
    sources = (total._uop, values._uop, hits._uop)
    return total._with(UOp(Ops.DETACH, total.dtype, sources, mark))


@functools.lru_cache(maxsize=16)
def _to_sources(kind: type[Scatter], device: str, reduce: str, axis: int) -> CustomGradient:
    """How a gradient of what came to each position goes to the values."""

    def there(of_positions: Any, hits: Any) -> Any:
        return one_of(of_positions.unsqueeze(-1), hits, axis)

    def number(of_values: Any, hits: Any) -> Any:
        return (hits & of_values.unsqueeze(axis)).sum(-1)

    def to_extremes(gradient: Any, values: Any, hits: Any) -> tuple[Any, None]:
        """In equal parts to those that are the extreme."""
        extreme = _combined(reduce, values, hits, axis)
        are_it = values.eq(there(extreme, hits))
        part = gradient / number(are_it, hits)
        return are_it.where(there(part, hits), 0), None

    def to_factors(gradient: Any, values: Any, hits: Any) -> tuple[Any, None]:
        """Times the product of the others: beside one zero, that zero gets it all."""
        is_zero = values.eq(0)
        zeros = there(number(is_zero, hits), hits)
        others = _combined(reduce, is_zero.where(1, values), hits, axis)
        whole = there(gradient * others, hits)
        alone, quotient = zeros.eq(1).where(whole, 0), zeros.eq(0).where(whole / values, 0)
        return is_zero.where(alone, quotient), None

    backward = to_factors if reduce == "prod" else to_extremes
    return CustomGradient(backward, f"scatter_reduce {reduce}", kind, device)


def _reduced(reduce: str, chosen: Any) -> Any:
    """The last axis combined."""
    match reduce:
        case "sum" | "mean":
            return chosen.sum(-1, dtype=chosen.dtype)
        case "prod":
            return chosen.prod(-1, dtype=chosen.dtype)
    if not chosen.shape[-1]:
        value = _neutral(reduce, chosen)
        return chosen._with(constant_node(value, chosen.dtype, chosen.shape[:-1]))
    return chosen.max(-1) if reduce == "amax" else chosen.min(-1)


def _joined(reduce: str, own: Any, total: Any, count: Any, include_self: bool) -> Any:
    """What is there with the `count` sources that go to each position, combined to `total`."""
    if not include_self:
        own = (count > 0).where(_neutral(reduce, own), own)
    match reduce:
        case "sum":
            return own + total
        case "prod":
            return own * total
        case "mean":
            return (own + total) / (count + (1 if include_self else count.eq(0).cast(dtypes.int32)))
        case "amax":
            return own.maximum(total)
        case _:
            return own.minimum(total)
