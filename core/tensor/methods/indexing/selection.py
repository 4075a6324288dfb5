"""`tensor[...]`: ints, slices, None, Ellipsis, integer Tensors or lists, boolean masks.

Owns: what an index means. Does not own: the choice of elements by integers in memory (take.py), what a mask chooses (masks.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple, Self, TypeVar

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import Shape, ShapeError, at_least, is_plain, show, sizes
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.arguments import (
    Whole,
    normal_size,
    plain_number,
    resolve_axis_of_several,
    takes_dim,
)
from proofgrad.core.tensor.data.errors import DtypeError, IndexTypeError, PositionError
from proofgrad.core.tensor.data.nodes import broadcast_node, broadcast_shapes, reshape_node
from proofgrad.core.tensor.data.storage import flatten_nested
from proofgrad.core.tensor.methods.base import TensorBase, check_same_device, describe
from proofgrad.core.tensor.methods.indexing.bounds import check_inside
from proofgrad.core.tensor.methods.indexing.cuts import CUTS, IndexCut, index_cut, key_of_index
from proofgrad.core.tensor.methods.indexing.masks import (
    check_mask,
    known_flags,
    mask_index,
    position_of_each_axis,
    positions_of_true,
    where_true,
)
from proofgrad.core.tensor.methods.indexing.take import take, take_along
from proofgrad.core.tensor.methods.made_once import made_once
from proofgrad.core.tensor.methods.movement.room import shrunk
from proofgrad.core.tensor.methods.reduction.reduce import Reduction
from proofgrad.core.tensor.runtime.once import copy_data_once
from proofgrad.core.tensor.runtime.recording import at_least_now

SHRINK = Ops.SHRINK
_S = TypeVar("_S", bound="Selection")


class Selection(Reduction):
    """Reading parts of a Tensor. As in torch, ints beside a Tensor or list move no axes."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Self:
        """Parts of the Tensor.

        Ints, slices with any step, None (a new axis) and `...` are views. Integer Tensors, lists and
        arrays pick elements; several of them are broadcast together, and their axes stand where the
        first one was, or in front if other axes lie between them. Negative positions count from the
        end. A position that is out of range is an IndexError; in a Tensor that is still to be
        computed it is not looked for, but with CHECK=1, and gives 0. A
        boolean mask needs its values: it is computed at once, and the positions of its true
        elements are picked.

        Example:
            Tensor([[1, 2], [3, 4]])[:, 0]  # [1, 3]
            Tensor([1, 5, 3])[[2, 0]]  # [3, 1]
        """
        seen = self._seen(index)
        if seen is not None:
            return seen
        mask = mask_index(self, index) if is_plain(self.shape) else None
        if mask is not None:
            return where_true(self, mask, known_flags(index))
        cut, pending = self._cut_and_positions(index)
        return self._viewed(cut)._pick_by_tensors(pending)

    def _view_and_positions(self, index: Any) -> tuple[Self, list[tuple[int, Self]]]:
        """What the ints, slices and None of an index show, and the Tensors for axes of that."""
        seen = self._seen(index)
        if seen is not None:
            return seen, []
        cut, pending = self._cut_and_positions(index)
        return self._viewed(cut), pending

    def _seen(self, index: Any) -> Self | None:
        """What an index of numbers alone shows; None: there is more to it."""
        cut = self._cut_of_numbers(index)
        return None if cut is None else self._viewed(cut)

    def _cut_of_numbers(self, index: Any) -> IndexCut | None:
        """What an index of numbers alone cuts out, which is found once for a shape; None: there is more to it."""
        shape, key = self._uop.shape, key_of_index(index)
        if key is None or not is_plain(shape):
            return None
        cut = CUTS.get((shape, key))
        if cut is None:
            cut = CUTS[shape, key] = self._cut_and_positions(index)[0]
        return cut

    def _cut_and_positions(self, index: Any) -> tuple[IndexCut, list[tuple[int, Self]]]:
        cuts: list[Any] = []  # of each axis of this Tensor
        strides: list[tuple[int, Any]] = []  # of axes that are not read one after the other
        kept: list[int | None] = []  # the axes of this Tensor that the view has; None: a new one
        pending: list[tuple[int, Self]] = []
        for part in self._full_index(index_parts(index)):
            axis = len(cuts)
            match part:
                case None:
                    kept.append(None)
                    continue
                case slice():
                    begin, end, step = self._bounds(axis, part)
                    if step != 1:
                        strides.append((axis, step))
                case int() | UOp():
                    begin = self._begin(axis, part)
                    cuts.append((begin, normal_size(begin + 1)))
                    continue
                case _Numbers(values, positions):
                    _check_positions(values, axis, self.shape)
                    begin, end = 0, self.shape[axis]
                    pending.append((len(kept), positions))
                case _:
                    begin, end = 0, self.shape[axis]
                    pending.append((len(kept), part))
            cuts.append((begin, end))
            kept.append(axis)
        return index_cut(self.shape, cuts, strides, kept), pending

    def _viewed(self, cut: IndexCut) -> Self:
        """A cut of each axis, some of them read in steps or from their end; then the axes that are kept."""
        node, result = self._uop, self
        if cut.shape is not None:  # of numbers, which were found to lie within
            if cut.cuts is not None:
                copy_data_once(node)
                node = UOp(SHRINK, node.dtype, (node,), cut.cuts)
            return self._with(reshape_node(node, cut.shape))
        node = node if cut.cuts is None else shrunk(node, cut.cuts)
        if cut.strides:
            result = self._with(node)
            for axis, step in cut.strides:
                result = result.flip(axis) if step < 0 else result
                result = result._every(axis, abs(step)) if abs(step) > 1 else result
            node = result._uop
        return result._with(reshape_node(node, cut.shape_of(node)))

    def _full_index(self, parts: tuple[Any, ...]) -> list[Any]:
        """The index with Ellipsis spelt out, masks as positions and every axis mentioned."""
        checked = [self._index_part(part) for part in parts]
        used = sum(_axes_of(part) for part in checked)
        positions = [k for k, part in enumerate(checked) if part is Ellipsis]
        if len(positions) > 1:
            raise IndexError("an index can have only one '...'")
        position = positions[0] if positions else len(checked)
        fill = [slice(None)] * (self.ndim - used)
        full: list[Any] = []
        axis = 0
        for part in checked[:position] + fill + checked[position + 1 :]:
            full += self._positions_of_mask(part, axis) if _is_mask(part) else [part]
            axis += _axes_of(part)
        if used > self.ndim:
            raise IndexError(
                f"too many indices: {used} indices for {self.ndim} axes {show(self.shape)}"
            )
        return full

    def _index_part(self, part: Any) -> Any:
        """One part, checked: None, Ellipsis, a slice, a number, or a Tensor of numbers or bools."""
        if part is None or part is Ellipsis or isinstance(part, slice):
            return part
        if not isinstance(part, (TensorBase, list, tuple)):
            part = plain_number(
                part
            )  # one of numpy is an int: it cuts, and what it shows is a view
        given, numbers = part, None
        if isinstance(part, bool):
            raise IndexError("a bool is no index; use where, or an int")
        if isinstance(part, int) or (isinstance(part, UOp) and part.dtype is dtypes.index):
            return part
        if isinstance(part, (list, tuple)) and not is_plain(part):
            given = part = plain_number(part)
        if isinstance(part, (list, tuple, range)) or (
            hasattr(part, "__array__") and hasattr(part, "dtype")
        ):
            part = part if isinstance(part, TensorBase) else self._as_index(part)
            numbers = given if given is not part else None
        if not isinstance(part, TensorBase):
            if hasattr(part, "__index__"):
                return part.__index__()
            raise IndexTypeError(f"cannot index with {describe(part)}")
        check_same_device("[]", self, part)
        if not part.dtype.is_int and not part.dtype.is_bool:
            raise IndexTypeError(
                f"indices are integers or bools, not {part.dtype}: cast them to dtypes.int"
            )
        return part if numbers is None else _Numbers(numbers, part)

    def _as_index(self, values: Any) -> TensorBase:
        if isinstance(values, (list, tuple, range)) and not values:
            return self._iota(0)
        return self._as_tensor(list(values) if isinstance(values, (tuple, range)) else values)

    def _positions_of_mask(self, part: Any, axis: Whole) -> list[Any]:
        """Where the mask is true: computed now, as the size of the result depends on it."""
        mask = _tensor_of(part)
        check_mask(self, mask, axis)
        if not mask.ndim:
            raise IndexError("a single bool is a mask of all axes alone; use where, or an int")
        flags = known_flags(part.values) if isinstance(part, _Numbers) else None
        positions, count = positions_of_true(self._with(mask._uop), flags)
        shape = sizes().value_of_shape(mask.shape)
        return position_of_each_axis(positions._cut(0, 0, count), shape)

    def _begin(self, axis: Whole, position: Any) -> Any:
        """A position of an axis, from its begin. Raises: IndexError."""
        size = self.shape[axis]
        begin = position if at_least_now(position, 0) else position + size
        if not (at_least_now(begin, 0) and at_least_now(size, begin + 1)):
            shown = show((position,))[1:-2]
            raise PositionError(
                f"index {shown} is out of range for axis {axis} of {show(self.shape)}"
            )
        return normal_size(begin)

    def _bounds(self, axis: Whole, part: slice) -> tuple[Any, Any, Any]:
        """begin:end:step of one axis as what is cut out, and how that is read; a negative step reverses."""
        size = self.shape[axis]
        if part.start is None and part.stop is None and part.step is None:
            return 0, size, 1
        if any(isinstance(bound, UOp) for bound in (part.start, part.stop, size)):
            return _bounds_of_variables(size, part)
        for bound in (part.start, part.stop, part.step):
            if bound is not None and not hasattr(bound, "__index__"):
                raise IndexTypeError(f"the bounds of a slice are ints, not {describe(bound)}")
        if part.step == 0:
            raise IndexTypeError("the step of a slice cannot be 0")
        positions = range(size)[part]
        if not positions:
            return 0, 0, 1
        forward = positions if positions.step > 0 else positions[::-1]
        return forward[0], forward[-1] + 1, positions.step

    def _every(self, axis: Whole, step: Whole) -> Self:
        """Elements 0, step, 2 step, ... of one axis."""
        size = self.shape[axis]
        count = normal_size((size + step - 1) // step)
        around = [(0, 0)] * self.ndim
        around[axis] = (0, normal_size(count * step - size))
        x = self._pad_zeros(around)
        x = x.reshape(x.shape[:axis] + (count, step) + x.shape[axis + 1 :])._cut(axis + 1, 0, 1)
        return x.reshape(x.shape[: axis + 1] + x.shape[axis + 2 :])

    def _pick_by_tensors(self, pending: Sequence[tuple[int, TensorBase]]) -> Self:
        """The elements at integer positions of several axes, broadcast together."""
        if not pending:
            return self
        broadcast_positions(pending)  # raises
        for axis, positions in pending:
            check_inside(positions, axis, self.shape, from_end=True)
        parts = [self._with(positions._uop) for _, positions in pending]
        return self._picked(*parts, axes=tuple([axis for axis, _ in pending]))

    @made_once
    def _picked(self, *parts: Self, axes: tuple[int, ...]) -> Self:
        """The elements at these positions of the axes."""
        order, first, source = list(axes), axes[0], self
        if not are_adjacent(order):
            first = 0
            source = self.permute(order + [k for k in range(self.ndim) if k not in axes])
        sizes = [self.shape[axis] for axis in axes]
        together = broadcast_shapes("[]", *[part.shape for part in parts])
        position = self._position_in_axes(parts, sizes, together)
        behind = source.shape[first + len(axes) :]
        flat = source.reshape((*source.shape[:first], prod(sizes), *behind))
        return take(flat, first, position)

    def _position_in_axes(
        self, parts: Sequence[TensorBase], sizes: Sequence[int], shape: Sequence[int]
    ) -> Self:
        """Positions in several axes as one number; -1 where one of them is out of range."""
        wide = "int64" if prod(sizes) > 2**31 - 1 else "int32"
        position: Self | None = None
        inside: Self | None = None
        for part, size in zip(parts, sizes):
            whole = self._with(broadcast_node(part._uop, tuple(shape)))
            step = (
                whole if whole.dtype.bits > 32 or whole.dtype == dtypes.uint32 else whole.cast(wide)
            )
            if not step.dtype.is_unsigned:
                step = (step < 0).where(step + size, step)
            holds = (step >= 0) & (step < size)
            step = step.cast(wide)
            position = step if position is None else position * size + step
            inside = holds if inside is None else inside & holds
        assert position is not None and inside is not None
        return inside.where(position, -1)

    @takes_dim
    def gather(self, dim: Whole, index: Self) -> Self:
        """out[i][j] = self[index[i][j]][j] for dim 0; index has as many axes as this Tensor.

        The sizes of index are at most those of this Tensor on the other axes. An index that is out
        of range is an IndexError, or 0 if it is still to be computed.
        """
        axis, index = resolve_axis_of_several(dim, self.ndim), self._given("index", index)
        self._check_index("gather", axis, index)
        cuts = [None if k == axis else (0, n) for k, n in enumerate(index.shape)]
        return take_along(self.shrink(cuts), index, axis)

    def _check_index(self, name: str, axis: Whole, index: TensorBase) -> None:
        check_same_device(name, self, index)
        if not index.dtype.is_int:
            raise DtypeError(f"{name} takes integer indices, not {index.dtype}")
        fits = index.ndim == self.ndim and all(
            k == axis or at_least(m, n) for k, (n, m) in enumerate(zip(index.shape, self.shape))
        )
        if not fits:
            raise ShapeError(
                f"{name} along axis {axis} of {show(self.shape)} with indices {show(index.shape)}:"
                f" as many axes are needed, and sizes that are not larger on the other ones"
            )
        check_inside(index, axis, self.shape, from_end=False)


def _tensor_of(part: Any) -> Any:
    return part.positions if isinstance(part, _Numbers) else part


def _is_mask(part: Any) -> bool:
    tensor = _tensor_of(part)
    return isinstance(tensor, TensorBase) and tensor.dtype.is_bool


def _axes_of(part: Any) -> int:
    """How many axes a part of an index says something of: those of a mask, none for a new axis."""
    if part is None or part is Ellipsis:
        return 0
    return _tensor_of(part).ndim if _is_mask(part) else 1


def index_parts(index: Any) -> tuple[Any, ...]:
    """The parts of an index. As in torch a list of lists, slices, None, `...` or Tensors stands for a tuple."""
    if isinstance(index, list) and any(
        part is None or part is Ellipsis or isinstance(part, (list, tuple, slice, TensorBase))
        for part in index
    ):
        return tuple(index)
    return index if isinstance(index, tuple) else (index,)


def broadcast_positions(pending: Sequence[tuple[int, TensorBase]]) -> Shape:
    """The common shape of the index Tensors of one `x[...]`. Raises: ShapeError."""
    return broadcast_shapes("[]", *[positions.shape for _, positions in pending])


def are_adjacent(axes: Sequence[int]) -> bool:
    """Do no other axes lie between? Then the picked elements stand there, else in front."""
    return list(axes) == list(range(axes[0], axes[0] + len(axes)))


def _bounds_of_variables(size: Any, part: slice) -> tuple[Any, Any, Any]:
    """begin:end:step where a variable is a bound or the size: bounds are not clipped to the axis."""
    step = 1 if part.step is None else part.step
    if not isinstance(step, int) or not step:
        raise IndexTypeError(f"the step of a slice is an int that is not 0, not {describe(step)}")
    last = size - 1
    first = (0 if step > 0 else last) if part.start is None else _from_begin(part.start, size)
    if part.stop is None:
        begin, end = (first, size) if step > 0 else (0, first + 1)
    else:
        stop = _from_begin(part.stop, size)
        begin, end = (first, stop) if step > 0 else (stop + 1, first + 1)
    return normal_size(begin), normal_size(end), step


def _from_begin(bound: Any, size: Any) -> Any:
    """A bound of a slice, from the first element. Raises: IndexError if its sign is open."""
    if not isinstance(bound, UOp):
        if not hasattr(bound, "__index__"):
            raise IndexTypeError(f"the bounds of a slice are ints, not {describe(bound)}")
        return bound.__index__() if bound.__index__() >= 0 else size + bound.__index__()
    if at_least_now(bound, 0):
        return bound
    if at_least_now(-1, bound):
        return size + bound
    raise IndexError(
        f"{show((bound,))[1:-2]} counts from the end or from the begin, by the values of its"
        f" variables; write the size of the axis minus it"
    )


class _Numbers(NamedTuple):
    """Positions, or the elements of a mask, that are known: lists and arrays."""

    values: Any
    positions: Any


def _check_positions(values: Any, axis: int, shape: Shape) -> None:
    """Raises: IndexError for the first number that is no position of an axis."""
    size = shape[axis]
    if hasattr(values, "min"):
        found = [int(values.min()), int(values.max())] if values.size else []
    else:
        found = flatten_nested(values)[1]
    outside = [n for n in found if not (at_least(n, -size) and at_least(size - 1, n))]
    if outside:
        raise PositionError(f"index {outside[0]} is out of range for axis {axis} of {show(shape)}")
