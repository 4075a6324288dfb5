"""Views: the same elements under another shape or order. None of them but contiguous computes anything.

Owns: reshape, permute, expand, shrink, flip, diagonals, windows, rearrange. Does not own: `[...]`
(indexing/selection.py), cat, stack and pad (joining.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Self

from proofgrad.core.ir.op_names import CONTIGUOUS
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import Shape, ShapeError, at_least, is_plain, show, sizes
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.arguments import (
    as_sizes,
    normal_size,
    resolve_axes,
    resolve_axis,
    resolve_axis_of_several,
    several,
    shape_with_rest,
    smaller,
    takes_dim,
    takes_numbers,
    whole_quotient,
)
from proofgrad.core.tensor.data.errors import ArgumentError, DtypeError, SizeTypeError
from proofgrad.core.tensor.data.nodes import broadcast_node, broadcast_shapes, reshape_node
from proofgrad.core.tensor.methods.base import TensorBase, describe, is_constant, own_copy
from proofgrad.core.tensor.methods.movement.blocks import windows_by_blocks
from proofgrad.core.tensor.methods.movement.rearrange import group_sizes, sides, without_ellipsis
from proofgrad.core.tensor.methods.movement.room import padded, shrunk

PERMUTE, FLIP = Ops.PERMUTE, Ops.FLIP


class Views(TensorBase):
    """Methods that only change the shape or the order of elements."""

    __slots__ = ()

    def reshape(self, shape: Any = (), *args: Any) -> Self:
        """The same elements in row-major order under another shape; one size may be -1.

        A size of None keeps that of the axis.

        Example:
            Tensor([1, 2, 3, 4]).reshape(2, -1)  # [[1, 2], [3, 4]]
        """
        return self._with(reshape_node(self._uop, self._resolve_shape(as_sizes((shape, *args)))))

    def view(self, shape: Any = (), *args: Any) -> Self:
        """As reshape."""
        return self.reshape(shape, *args)

    def _resolve_shape(self, shape: tuple[Any, ...]) -> Shape:
        if is_plain(shape) and -1 not in shape:
            return shape
        wanted = [old if new is None else new for new, old in zip(shape, self.shape)]
        wanted += shape[len(wanted) :]
        for size in wanted:
            if not isinstance(size, (int, UOp)):
                raise SizeTypeError(f"sizes of a shape are ints or variables, not {size!r}")
        if wanted.count(-1) > 1:
            raise ShapeError(f"reshape {tuple(wanted)} has more than one -1")
        if -1 in wanted:
            if not is_plain((*wanted, *self.shape)):
                return self._resolve_variable_shape(wanted)
            rest = -prod(wanted)
            if rest == 0 or self.numel() % rest:
                raise ShapeError(
                    f"cannot reshape {show(self.shape)} ({self.numel()} elements) to"
                    f" {tuple(wanted)}: {self.numel()} is no multiple of {rest}"
                )
            wanted[wanted.index(-1)] = self.numel() // rest
        return tuple([normal_size(size) for size in wanted])

    def _resolve_variable_shape(self, wanted: list[Any]) -> Shape:
        """The shape with its -1 filled in, where sizes are variables."""
        of = sizes()
        rest = of.product([size for size in wanted if not isinstance(size, int) or size != -1])
        missing = of.quotient(of.product(self.shape), rest)
        if missing is None:
            raise ShapeError(
                f"cannot reshape {show(self.shape)} to {show(wanted)}: the rest is not the same"
                f" product for all values of the variables; give every size"
            )
        return tuple(
            [
                missing if isinstance(size, int) and size == -1 else normal_size(size)
                for size in wanted
            ]
        )

    def permute(self, order: Any = (), *args: Any) -> Self:
        """Axis k of the result is axis order[k] of this Tensor."""
        given, node = as_sizes((order, *args)), self._uop
        rank = len(node.shape)
        if len(given) != rank:
            raise ShapeError(f"permute {given} must name each axis of {show(self.shape)} once")
        axes = tuple([resolve_axis(axis, rank) for axis in given])
        return self._with(UOp(PERMUTE, node.dtype, (node,), axes))

    def transpose(self, dim0: int = 1, dim1: int = 0) -> Self:
        """The two axes exchanged."""
        order = list(range(self.ndim))
        a, b = resolve_axis(dim0, self.ndim), resolve_axis(dim1, self.ndim)
        if order:  # a single element has no axes to exchange
            order[a], order[b] = b, a
        return self._with(UOp(PERMUTE, self.dtype, (self._uop,), tuple(order)))

    @property
    def T(self) -> Self:
        """All axes in the opposite order."""
        return self.permute(tuple(range(self.ndim))[::-1])

    def expand(self, shape: Any = (), *args: Any) -> Self:
        """Axes of size 1 repeated; new axes in front; -1 keeps a size."""
        target = as_sizes((shape, *args))
        if len(target) < self.ndim:
            raise ShapeError(f"cannot expand {show(self.shape)} to fewer axes: {target}")
        own = (1,) * (len(target) - self.ndim) + self.shape
        sizes = tuple([o if t in (-1, None) else normal_size(t) for o, t in zip(own, target)])
        node = reshape_node(self._uop, own)
        return self._with(node if own == sizes else UOp(Ops.EXPAND, self.dtype, (node,), sizes))

    def expand_as(self, other: TensorBase) -> Self:
        """As expand, to the shape of another Tensor."""
        if not isinstance(other, TensorBase):
            raise DtypeError(f"expand_as takes a Tensor, not {describe(other)}; see expand")
        return self.expand(other.shape)

    def shrink_to(self, shape: Any, *args: Any) -> Self:
        """The first shape[k] elements of each axis k; None keeps an axis."""
        sizes = as_sizes((shape, *args))
        return self.shrink([None if size is None else (0, size) for size in sizes])

    @takes_numbers
    def shrink(self, arg: Sequence[tuple[int, int] | None]) -> Self:
        """The elements begin <= i < end of each axis; None keeps an axis."""
        if any(cut is not None and not isinstance(cut, (tuple, list)) for cut in arg):
            raise TypeError(
                f"shrink takes (begin, end) or None for each axis of {show(self.shape)}, not {arg!r}"
            )
        cuts = [(0, n) if cut is None else (cut[0], cut[1]) for cut, n in zip(arg, self.shape)]
        cuts = [(normal_size(begin), normal_size(end)) for begin, end in cuts]
        if len(arg) != self.ndim:
            raise ShapeError(f"shrink {tuple(arg)} must have a cut for each of {show(self.shape)}")
        return self._with(shrunk(self._uop, cuts))

    def _cut(self, axis: int, begin: int, end: int) -> Self:
        """The elements begin <= i < end of one axis."""
        node = self._uop
        cuts = [(0, size) for size in node.shape]
        cuts[axis] = (normal_size(begin), normal_size(end))
        return self._with(shrunk(node, cuts))

    def contiguous(self) -> Self:
        """The same values, and they get a buffer of their own layout.

        That of floats that are all one constant is told apart from every other such, and has a gradient of its own.
        """
        if self.dtype.is_float and is_constant(self._uop):
            return self._with(own_copy(self._uop))
        return self._with(UOp(CONTIGUOUS, self.dtype, (self._uop,)))

    def flip(self, axis: Any = None, *args: Any) -> Self:
        """The given axes reversed; all of them if none is given."""
        axes = resolve_axes(None if axis is None else as_sizes((axis, *args)), self.ndim)
        flips = tuple([k in axes for k in range(self.ndim)])
        return self._with(UOp(FLIP, self.dtype, (self._uop,), flips))

    def _pad_zeros(self, arg: Sequence[tuple[int, int]]) -> Self:
        """Zeros around; negative amounts cut."""
        return self._with(padded(self._uop, arg))

    @takes_dim
    def squeeze(self, dim: int | None = None) -> Self:
        """Without axis `dim` if its size is 1 (else unchanged), or without all axes of size 1."""
        if dim is None:
            return self.reshape(tuple([n for n in self.shape if n != 1]))
        axis = resolve_axis(dim, self.ndim)
        if not self.ndim or self.shape[axis] != 1:
            return self._with(self._uop)
        return self._with(reshape_node(self._uop, self.shape[:axis] + self.shape[axis + 1 :]))

    @takes_dim
    def unsqueeze(self, dim: int) -> Self:
        """With a new axis of size 1 at `dim`."""
        axis = resolve_axis(dim, self.ndim + 1)
        return self._with(reshape_node(self._uop, (*self.shape[:axis], 1, *self.shape[axis:])))

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Self:
        """The axes start_dim .. end_dim as one."""
        if not self.ndim:
            resolve_axis(start_dim, 0), resolve_axis(end_dim, 0)
            return self.reshape((1,))
        begin, end = resolve_axis(start_dim, self.ndim), resolve_axis(end_dim, self.ndim)
        if begin > end:
            raise ShapeError(f"flatten from axis {start_dim} to {end_dim} of {show(self.shape)}")
        merged = prod(self.shape[begin : end + 1])
        return self.reshape(self.shape[:begin] + (merged,) + self.shape[end + 1 :])

    @takes_numbers
    def unflatten(self, dim: int, sizes: Sequence[int]) -> Self:
        """Axis `dim` as several axes of the given sizes; one may be -1."""
        axis = resolve_axis_of_several(dim, self.ndim)
        parts = shape_with_rest(sizes, self.shape[axis])
        if parts is None:
            raise ShapeError(f"cannot unflatten axis {dim} of {show(self.shape)} to {tuple(sizes)}")
        return self.reshape(self.shape[:axis] + parts + self.shape[axis + 1 :])

    @takes_numbers
    @takes_dim
    def split(self, sizes: int | UOp | Sequence[Any], dim: int = 0) -> tuple[Self, ...]:
        """Parts of the given size (the last may be smaller) or sizes along `dim`."""
        axis = resolve_axis_of_several(dim, self.ndim)
        total = self.shape[axis]
        is_equal = isinstance(sizes, (int, UOp))
        sizes = _equal_parts(total, sizes) if is_equal else several("sizes of split", sizes)
        if normal_size(sum(sizes)) != total:
            raise ShapeError(
                f"split sizes {tuple(sizes)} must add up to {total}, the size of axis {dim}"
            )
        parts, begin = [], 0
        for size in sizes:
            parts.append(self._cut(axis, begin, begin + size))
            begin += size
        return tuple(parts)

    @takes_numbers
    @takes_dim
    def chunk(self, chunks: int, dim: int = 0) -> list[Self]:
        """At most `chunks` parts of equal size; the last may be smaller."""
        if not isinstance(chunks, int):
            raise TypeError(f"chunk takes how many parts to make, not {chunks!r}; see split")
        if chunks <= 0:
            raise ShapeError(f"cannot make {chunks} chunks")
        size = self.shape[resolve_axis_of_several(dim, self.ndim)]
        if size == 0:  # so many empty parts, as in torch
            return list(self.split([0] * chunks, dim))
        if isinstance(size, int):
            return list(self.split(-(-size // chunks), dim))
        each = whole_quotient(size, chunks)
        if each is None:
            raise ShapeError(
                f"{chunks} chunks of {show((size,))[1:-2]} elements have other sizes for other values of the"
                f" variables; give a multiple of {chunks}, or use split with the sizes"
            )
        return list(self.split([each] * chunks, dim))

    def repeat(self, repeats: Any, *args: Any) -> Self:
        """The whole Tensor laid side by side, repeats[k] times along axis k."""
        counts = as_sizes((repeats, *args))
        if len(counts) < self.ndim:
            raise ShapeError(f"repeat {counts} has fewer entries than axes of {show(self.shape)}")
        if any(is_plain((count,)) and count < 0 for count in counts):
            raise ShapeError(f"repeat {counts}: each count must be 0 or more")
        sizes = (1,) * (len(counts) - self.ndim) + self.shape
        paired = [n for size in sizes for n in (1, size)]
        wide = [n for count, size in zip(counts, sizes) for n in (count, size)]
        final = tuple([count * size for count, size in zip(counts, sizes)])
        return self.reshape(tuple(paired)).expand(tuple(wide)).reshape(final)._value()

    @takes_numbers
    def repeat_interleave(self, repeats: int, dim: int | None = None) -> Self:
        """Each element `repeats` times, along `dim` (None: flattened)."""
        if not isinstance(repeats, (int, UOp)) or not at_least(repeats, 0):
            raise ShapeError(f"repeat_interleave takes a number of 0 or more, not {repeats!r}")
        axis = 0 if dim is None else resolve_axis(dim, self.ndim)
        x = self.flatten() if dim is None or not self.ndim else self
        before, size, after = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
        wide = x.reshape(before + (size, 1) + after).expand(before + (size, repeats) + after)
        return wide.reshape(before + (size * repeats,) + after)._value()

    def _skew(self, axis: int, by: int, step: int, size: int) -> Self:
        """y[.., i, ..] = x[.., i + step * k, ..]: see Ops.SKEW."""
        return self._with(UOp(Ops.SKEW, self.dtype, (self._uop,), (axis, by, step, size)))

    def _windows(self, axis: int, kernel: int, stride: int, dilation: int) -> Self:
        """Axis `axis` as two: the position of a window, and the position inside of it."""
        size = self.shape[axis]
        reach = dilation * (kernel - 1) + 1
        if not all(at_least(number, 1) for number in (kernel, stride, dilation)):
            raise ShapeError(
                f"kernel {kernel}, stride {stride} and dilation {dilation} must be 1 or more"
            )
        if not at_least(size, reach):
            has, remedy = "has", "add padding"
            if isinstance(size, UOp):
                has = f"has for all values of its variables ({sizes().smallest(size)} at least)"
                remedy += ", or raise the least value of a variable"
            raise ShapeError(
                f"a window of {kernel} elements with dilation {dilation} spans {reach}, more than"
                f" axis {axis} of {show(self.shape)} {has}; {remedy}"
            )
        count = normal_size((size - reach) // stride + 1)
        x = self.unsqueeze(axis + 1)
        x = x.expand(x.shape[: axis + 1] + (kernel,) + x.shape[axis + 2 :])
        x = x._skew(axis, axis + 1, dilation, normal_size(count * stride))
        if stride == 1:
            return x
        x = x.reshape(x.shape[:axis] + (count, stride) + x.shape[axis + 1 :])
        cuts: list[tuple[int, int] | None] = [None] * x.ndim
        cuts[axis + 1] = (0, 1)
        x = x.shrink(cuts)
        return x.reshape(x.shape[: axis + 1] + x.shape[axis + 2 :])

    # -- views of more than one step -----------------------------------------------------------------

    def _axis_last(self, axis: int) -> Self:
        """With axis `axis` moved behind all others."""
        if axis == self.ndim - 1:
            return self
        return self.permute([k for k in range(self.ndim) if k != axis] + [axis])

    def _axis_from_last(self, axis: int) -> Self:
        """With the last axis moved to position `axis`: undoes `_axis_last`."""
        last = self.ndim - 1
        if axis == last:
            return self
        return self.permute([*range(axis), last, *range(axis, last)])

    @takes_numbers
    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
        """The elements [i, i + offset] of two axes, as a last axis."""
        first, second = resolve_axis(dim1, self.ndim), resolve_axis(dim2, self.ndim)
        if first == second:
            raise ShapeError(f"diagonal needs two axes, not {dim1} twice")
        others = [k for k in range(self.ndim) if k not in (first, second)]
        x = self.permute([*others, first, second])
        rows, columns = x.shape[-2:]
        top, left = max(0, -offset), max(0, offset)
        size = smaller(rows - top, columns - left)
        outer: list[tuple[int, int] | None] = [None] * len(others)
        if is_plain((size,)) and size <= 0:
            return x.shrink([*outer, (0, 0), (0, 0)]).reshape((*x.shape[:-2], 0))
        square = x.shrink([*outer, (top, top + size), (left, left + size)])
        line = square.reshape((*x.shape[:-2], size * size))
        line = line._pad_zeros([(0, 0)] * len(others) + [(0, size)])
        steps = line.reshape((*x.shape[:-2], size, size + 1))
        return steps.shrink([*outer, None, (0, 1)]).reshape((*x.shape[:-2], size))

    @takes_numbers
    def unfold(self, dim: int, size: int, step: int) -> Self:
        """Windows of `size` elements along `dim`, `step` apart; the position in a window is last.

        Windows of no elements are as many as begin inside of the axis or at its end, as in torch.

        Example:
            Tensor([1, 2, 3, 4]).unfold(0, 2, 1)  # [[1, 2], [2, 3], [3, 4]]
        """
        axis = resolve_axis_of_several(dim, self.ndim)
        if not at_least(size, 0) or not at_least(step, 1):
            raise ShapeError(
                f"unfold takes a size of 0 or more and a step of 1 or more, not {size} and {step}"
            )
        if is_plain((size,)) and size == 0:
            return self._windows_of_nothing(axis, step)
        x = windows_by_blocks(self, axis, size, step)
        return (self._windows(axis, size, step, 1) if x is None else x)._axis_last(axis + 1)

    def _windows_of_nothing(self, axis: int, step: int) -> Self:
        count = normal_size(self.shape[axis] // step + 1)
        none = self._cut(axis, 0, 0)._axis_last(axis).unsqueeze(axis)
        return none.expand(none.shape[:axis] + (count,) + none.shape[axis + 1 :])

    def meshgrid(self, *args: Self, indexing: str = "ij") -> tuple[Self, ...]:
        """Lines as grids: grid k varies along axis k (with "xy" the first two axes change positions).

        Example:
            rows, columns = Tensor([0, 1]).meshgrid(Tensor([0, 1, 2]))  # both of shape (2, 3)
        """
        if indexing not in ("ij", "xy"):
            raise ArgumentError(f"indexing is 'ij' or 'xy', not {indexing!r}")
        lines: tuple[Self, ...] = (self, *args)
        for line in lines:
            if not isinstance(line, TensorBase):
                raise DtypeError(f"meshgrid takes Tensors, not {describe(line)}")
        if any(line.ndim > 1 for line in lines):
            raise ShapeError(f"meshgrid takes lines, not {[line.shape for line in lines]}")
        axes = list(range(len(lines)))
        if indexing == "xy":
            axes[:2] = [1, 0]
        placed = [
            line.reshape((-1,) + (1,) * (len(lines) - 1 - axis)) for line, axis in zip(lines, axes)
        ]
        shape = broadcast_shapes("meshgrid", *[line.shape for line in placed])
        return tuple([line._with(broadcast_node(line._uop, shape)) for line in placed])

    @takes_numbers
    def rearrange(self, formula: str, **sizes: int) -> Self:
        """Axes by name: "b c (h p) -> b (c p) h" splits, moves and joins them (as einops).

        A group in parentheses is one axis; all sizes of a group but one must be given. "..." stands
        for any axes, 1 for an axis of one element.

        Example:
            Tensor.ones(2, 12).rearrange("a (b c) -> c a b", c=3)  # shape (3, 2, 4)
        """
        left, right = sides(formula)
        left, right = without_ellipsis(left, right, self.ndim, formula)
        names = [name for group in left for name in group]
        wanted = [name for group in right for name in group]
        if len(set(names)) != len(names) or sorted(names) != sorted(wanted):
            raise ShapeError(
                f"rearrange {formula!r}: both sides must have the same names, each once"
            )
        unknown = set(sizes) - set(names)
        if unknown:
            raise ArgumentError(f"rearrange {formula!r} has no axis {', '.join(sorted(unknown))}")
        if len(left) != self.ndim:
            raise ShapeError(
                f"rearrange {formula!r} describes {len(left)} axes, and there are {self.ndim}:"
                f" {show(self.shape)}"
            )
        size_of: dict[str, int] = {}
        for group, total in zip(left, self.shape):
            size_of |= group_sizes(group, total, sizes, formula)
        split = self.reshape(tuple([size_of[name] for name in names]))
        moved = split.permute([names.index(name) for name in wanted])
        return moved.reshape(tuple([prod(size_of[name] for name in group) for group in right]))


def _equal_parts(total: Any, size: Any) -> list[Any]:
    """The sizes of parts of `size` elements, of which the last may have fewer. Raises: ShapeError.

    Of no elements there is one part, whatever its size would be, as in torch.
    """
    if is_plain((total, size)) and total == size == 0:
        return [0]
    if not at_least(size, 1):
        raise ShapeError(f"cannot split into parts of size {show((size,))[1:-2]}; give 1 or more")
    if isinstance(total, int) and isinstance(size, int):
        return [min(size, total - begin) for begin in range(0, max(total, 1), size)]
    count = whole_quotient(total, size)
    if not isinstance(count, int):
        shown = [show((n,))[1:-2] for n in (total, size)]
        raise ShapeError(
            f"{shown[0]} elements in parts of {shown[1]} are not the same number of parts for all values of"
            f" the variables; give the size of each part"
        )
    return [size] * count
