"""Joining and padding: cat, stack, roll, the modes of pad.

Owns: how one Tensor is made of several, and what stands around one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import copysign
from typing import Any, Self

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import ShapeError, at_least, is_plain, show, sizes
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.arguments import (
    Scalar,
    Whole,
    as_sizes,
    normal_size,
    resolve_axis,
    resolve_axis_of_several,
    several,
    split_amount,
    takes_dim,
    takes_numbers,
)
from proofgrad.core.tensor.data.errors import ArgumentError, AxisError, DtypeError, ModeError
from proofgrad.core.tensor.data.nodes import broadcast_node, constant_node
from proofgrad.core.tensor.data.promotion import promote
from proofgrad.core.tensor.methods.base import check_same_device, describe
from proofgrad.core.tensor.methods.custom_vjp import CustomGradient
from proofgrad.core.tensor.methods.elementwise.operators import Operators
from proofgrad.core.tensor.methods.made_once import made_once
from proofgrad.core.tensor.methods.movement.room import added_and_cut, padded
from proofgrad.core.tensor.methods.movement.views import Views

# More Tensors than these are joined in groups, so that equal groups are one kernel, and each element is asked of which part
# of its group it is.
MOST_BESIDE = 64
GROUP = 32


class Movement(Views, Operators):
    """Several Tensors as one, and frames around one."""

    __slots__ = ()

    # -- joining ----------------------------------------------------------------------------------

    @takes_dim
    def cat(self, *args: Any, dim: Whole = 0) -> Self:
        """The Tensors one after the other along `dim`. `Tensor.cat(a, b)` and `a.cat(b)`.

        Raises: ShapeError naming the sizes that differ.
        """
        if isinstance(self, (list, tuple)):
            return _first(self, args, "cat").cat(*self[1:], dim=dim)
        parts = self._parts("cat", args)
        axis = resolve_axis(dim, self.ndim)
        for number, part in enumerate(parts):
            same = part.ndim == self.ndim and all(
                n == m for k, (n, m) in enumerate(zip(part.shape, self.shape)) if k != axis
            )
            if not same or not self.ndim:
                raise (ShapeError if self.ndim else AxisError)(
                    f"cannot cat {show(self.shape)} and {show(part.shape)} along axis {dim}, part"
                    f" number {number}: there must be axes, and all other sizes must be equal"
                )
        return parts[0]._joined_along(*parts[1:], axis=axis)._value()

    def _parts(self, name: str, others: tuple[Any, ...]) -> list[Self]:
        """This Tensor and the others, of one type; `cat(a, [b, c])` is `cat(a, b, c)`."""
        if len(others) == 1 and isinstance(others[0], (list, tuple)):
            others = tuple(others[0])
        for part in others:
            if not isinstance(part, Movement):
                raise TypeError(f"{name} takes Tensors, not {describe(part)}")
            check_same_device(name, self, part)
        parts: list[Self] = [self, *others]
        dtype = self.dtype
        for part in parts:
            dtype = promote(dtype, part.dtype)
        return [part._in_type(dtype) for part in parts]

    def _joined_along(self, *others: Self, axis: Whole) -> Self:
        return self._joined(*others, axis=axis) if others else self

    @made_once
    def _joined(self, *others: Self, axis: Whole) -> Self:
        """This and the others, of this type, one after the other; many of them in groups, for at each element all of a group are asked."""
        parts: Sequence[UOp] = [part._uop for part in (self, *others)]
        joined = parts
        while len(joined) > MOST_BESIDE:
            groups = [joined[k : k + GROUP] for k in range(0, len(joined), GROUP)]
            joined = [self._in_places(x, axis)._uop if len(x) > 1 else x[0] for x in groups]
        result = self._in_places(joined, axis)
        sizes = tuple([part.shape[axis] for part in parts])
        if not result.dtype.is_float or not is_plain(sizes):
            return result
        mark = _slices(type(self), self.device, axis, sizes)
        return self._with(UOp(Ops.DETACH, result.dtype, (result._uop, *parts), mark))

    def _in_places(self, parts: Sequence[UOp], axis: Whole) -> Self:
        result, rank = parts[0], len(parts[0].shape)
        total = normal_size(sum([part.shape[axis] for part in parts]))
        line = self._iota(total).reshape((-1,) + (1,) * (rank - axis - 1))
        begin = 0
        for number, part in enumerate(parts):
            around = [(0, 0)] * rank
            around[axis] = (begin, total - begin - part.shape[axis])
            placed = padded(part, around)
            if number:
                is_before = broadcast_node((line < begin)._uop, placed.shape)
                placed = UOp(Ops.WHERE, part.dtype, (is_before, result, placed))
            result, begin = placed, begin + part.shape[axis]
        return self._with(result)

    @takes_dim
    def stack(self, *args: Any, dim: Whole = 0) -> Self:
        """The Tensors, all of one shape, along a new axis. Raises: ShapeError naming one."""
        if isinstance(self, (list, tuple)):
            return _first(self, args, "stack").stack(*self[1:], dim=dim)
        parts = self._parts("stack", args)
        for number, part in enumerate(parts):
            if part.shape != self.shape:
                raise ShapeError(
                    f"cannot stack {show(self.shape)} and {show(part.shape)} along a new axis {dim},"
                    f" part number {number}: the shapes must be equal"
                )
        axis = resolve_axis(dim, self.ndim + 1)
        placed = [part.unsqueeze(axis) for part in parts]
        return placed[0]._joined_along(*placed[1:], axis=axis)._value()

    @made_once
    def diag(self) -> Self:
        """A square matrix with this line on its diagonal.

        Example:
            Tensor([1, 2]).diag()  # [[1, 0], [0, 2]]
        """
        if self.ndim != 1:
            raise ShapeError(f"diag takes one axis, not {show(self.shape)}; see diagonal")
        (size,) = self.shape
        line = self._iota(size)
        return line.reshape(size, 1).eq(line).where(self.unsqueeze(-1), False)

    @takes_numbers
    @made_once
    def roll(
        self, shifts: Whole | Sequence[int], dims: Whole | Sequence[int] | None = None
    ) -> Self:
        """Elements moved along axes; those that leave at the end come back at the begin.

        Without `dims` the elements move as one line.
        """
        by = several("shifts of roll", shifts)
        if dims is None:
            if len(by) != 1:
                raise ArgumentError(f"roll by {shifts} needs dims, one for each shift")
            return self.flatten().roll(by, 0).reshape(self.shape)._value()
        axes = several("dims of roll", dims)
        if len(by) != len(axes):
            raise ArgumentError(f"roll needs one shift for each of dims: {by} for {axes}")
        result = self
        for shift, dim in zip(by, axes):
            result = result._rolled(resolve_axis_of_several(dim, self.ndim), shift)
        return result._value()

    def _rolled(self, axis: Whole, shift: Any) -> Self:
        """One axis rolled: its end in front of the rest."""
        size = self.shape[axis]
        if is_plain((size, shift)):
            shift = shift % size if size else 0
        if not is_plain((shift,)) or shift:
            ahead, back = split_amount(shift)
            steps = size - back if is_plain((ahead,)) and not ahead else ahead
            if not (at_least(size, steps) and at_least(steps, 0)):
                return self._rolled_round(axis, ahead, back)
            parts = [self._cut(axis, size - steps, size), self._cut(axis, 0, size - steps)]
            return parts[0]._joined_along(parts[1], axis=axis)
        return self

    def _rolled_round(self, axis: Whole, ahead: Any, back: Any) -> Self:
        """As _rolled, where the shift may be more than the variable size: cut out of enough copies in a row.

        Zeros stand for what lies beyond the copies; they are only seen where there are no elements.
        """
        size = self.shape[axis]
        least = max(1, sizes().smallest(size))
        copies = -(-sizes().largest(ahead + back) // least)
        around = [(0, 0)] * self.ndim
        around[axis] = (ahead, back)
        row = self.repeat([copies + 1 if k == axis else 1 for k in range(self.ndim)])
        begin = normal_size(size * copies if is_plain((back,)) and not back else back)
        return row._pad_zeros(around)._cut(axis, begin, begin + size)

    # -- padding ----------------------------------------------------------------------------------

    @takes_numbers
    def pad(self, padding: Sequence[Any], mode: str = "constant", value: Scalar = 0) -> Self:
        """Elements around. `padding`: (before, after) an axis, or torch's flat form.

        The flat form names the last axis first: (left, right, top, bottom, ...). Negative amounts
        cut. `mode`: "constant" (with `value`), "reflect" (mirrored at the edge, which stands once),
        "replicate" (the edge repeated), "circular" (from the other end of what is left after cuts).
        """
        around = self._padding_by_axis(padding)
        match mode:
            case "constant":
                return self._pad_value(around, value)._value()
            case "reflect" | "replicate" | "circular":
                return self._pad_around(tuple(around), mode)._value()
            case _:
                raise ModeError(
                    f"mode is 'constant', 'reflect', 'replicate' or 'circular', not {mode!r}"
                )

    def pad_to(self, shape: Any, *args: Any, value: Scalar = 0) -> Self:
        """With `value` behind each axis k up to shape[k] elements; None keeps an axis."""
        sizes = as_sizes((shape, *args))
        if len(sizes) != self.ndim or any(
            size is not None and not at_least(size, old) for size, old in zip(sizes, self.shape)
        ):
            raise ShapeError(
                f"cannot pad {show(self.shape)} to {sizes}: a size for each axis, not smaller"
            )
        around = [(0, 0 if size is None else size - old) for size, old in zip(sizes, self.shape)]
        return self._pad_value(around, value)._value()

    def _pad_value(self, around: Sequence[tuple[int, int]], value: Scalar) -> Self:
        zeros = self._pad_zeros(around)
        is_cut = all(added_and_cut(amount)[0] == 0 for amounts in around for amount in amounts)
        if (value == 0 and copysign(1, value) > 0) or is_cut:
            return zeros
        inside = self._with(constant_node(True, dtypes.bool, self.shape))._pad_zeros(around)
        return inside.where(zeros, value)

    def _padding_by_axis(self, padding: Sequence[Any]) -> list[tuple[int, int]]:
        if not isinstance(padding, (tuple, list)):
            raise TypeError(
                f"padding is pairs (before, after) or torch's flat form, not {padding!r}"
            )
        if all(isinstance(amount, (int, UOp)) for amount in padding):
            flat = list(padding)
            if len(flat) % 2 or len(flat) > 2 * self.ndim:
                raise ShapeError(f"pad {tuple(flat)} needs pairs for at most {self.ndim} axes")
            pairs = [(flat[k], flat[k + 1]) for k in range(0, len(flat), 2)][::-1]
            return [(0, 0)] * (self.ndim - len(pairs)) + pairs
        pairs = [(0, 0) if pair is None else pair for pair in padding]
        are_pairs = all([isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in pairs])
        if not are_pairs or len(pairs) != self.ndim:
            raise ShapeError(
                f"pad {tuple(padding)} needs a pair for each axis of {show(self.shape)}"
            )
        return [(before, after) for before, after in pairs]

    @made_once
    def _pad_around(self, around: tuple[tuple[int, int], ...], mode: str) -> Self:
        """Each axis with its own elements around it."""
        result = self
        for axis, (before, after) in enumerate(around):
            result = result._pad_by_positions(axis, before, after, mode)
        return result

    def _pad_by_positions(self, axis: Whole, before: Whole, after: Whole, mode: str) -> Self:
        """One axis with its own elements around it; negative amounts cut after that.

        But "circular" is of a circle that has been cut before it closes, as in torch.
        """
        size = self.shape[axis]
        (front, cut_front), (back, cut_back) = split_amount(before), split_amount(after)
        limit = {"reflect": size - 1, "circular": size}.get(mode)
        wanted = [amount for amount in (front, back) if not is_plain((amount,)) or amount]
        if mode == "circular" and (cut_front, cut_back) != (0, 0):
            return self._cut(axis, cut_front, size - cut_back)._pad_by_positions(
                axis, front, back, mode
            )
        if limit is not None and not all(at_least(limit, amount) for amount in wanted):
            raise ShapeError(
                f"pad {mode!r} of ({before}, {after}) is more than axis {axis} of"
                f" {show(self.shape)} can give: at most {limit}"
            )
        if wanted and not at_least(size, 1):
            raise ShapeError(f"pad {mode!r} of {show(self.shape)}: axis {axis} has no elements")
        parts = [self._frame(axis, mode, front, True), self, self._frame(axis, mode, back, False)]
        kept = [part for part in parts if part is self or part.shape[axis] != 0]
        whole = kept[0]._joined_along(*kept[1:], axis=axis)
        return whole._cut(axis, cut_front, whole.shape[axis] - cut_back)

    def _frame(self, axis: Whole, mode: str, count: Whole, in_front: bool) -> Self:
        """`count` elements of one axis, as the mode lays them before or behind it."""
        size = self.shape[axis]
        if is_plain((count,)) and not count:
            return self._cut(axis, 0, 0)
        match mode:
            case "reflect":
                begin = 1 if in_front else size - 1 - count
                return self._cut(axis, begin, begin + count).flip(axis)
            case "circular":
                begin = size - count if in_front else 0
                return self._cut(axis, begin, begin + count)
            case _:
                begin = 0 if in_front else size - 1
                sizes = [count if k == axis else n for k, n in enumerate(self.shape)]
                return self._cut(axis, begin, begin + 1).expand(sizes)


def _first(parts: Sequence[Any], others: tuple[Any, ...], name: str) -> Any:
    """The first of a list: `Tensor.cat([a, b])` is `a.cat(b)`. Raises: TypeError for what comes behind the list."""
    if others:
        raise TypeError(
            f"{name} takes Tensors, or one list of them and nothing more but dim=, not"
            f" {describe(others[0])} behind a list"
        )
    if not parts or not isinstance(parts[0], Movement):
        raise DtypeError(f"{name} takes Tensors, one or more, not {parts!r}")
    return parts[0]


@lru_cache(maxsize=256)
def _slices(kind: type[Movement], device: str, axis: int, sizes: tuple[int, ...]) -> CustomGradient:
    """The gradient of Tensors that were joined: a slice for each. One for all alike, so that equal graphs are one."""

    def apart(gradient: Movement, *parts: Movement) -> list[Movement]:
        return list(gradient.split(list(sizes), axis))

    return CustomGradient(apart, "what was joined", kind, device)
