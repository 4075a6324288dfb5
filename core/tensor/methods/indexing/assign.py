"""Writing: `assign`, `x[...] = v`, `x += v`, to whole Tensors, views and chosen elements.

Owns: which elements an index names, what a write makes of the Tensors that it changes, gradients
through writes. Does not own: what an array becomes by a write to a view (written_views.py); memory,
which a run may write over (realize.py).

A Tensor names a value; a write lets it name another one. The graph of the new value reads the old,
so whoever was built before a write goes on to mean the old value. What does change is the Tensor
that is written to and, if that is a view, the Tensors it is a view of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, ClassVar, NoReturn, Self
from weakref import WeakKeyDictionary, ref

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import Shape, ShapeError, show
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.arguments import Flag, Scalar
from proofgrad.core.tensor.data.errors import DeviceError, DtypeError, GradientError
from proofgrad.core.tensor.data.nodes import (
    broadcast_node,
    broadcast_shapes,
    constant_node,
    reshape_node,
)
from proofgrad.core.tensor.data.promotion import promote
from proofgrad.core.tensor.data.storage import flatten_nested
from proofgrad.core.tensor.methods.base import (
    GRADIENTS,
    Link,
    TensorBase,
    alive_links,
    check_same_device,
    own_copy,
    own_end,
    own_value,
)
from proofgrad.core.tensor.methods.disk import refuse_recording, write_view
from proofgrad.core.tensor.methods.indexing.bounds import check_inside
from proofgrad.core.tensor.methods.indexing.masks import mask_index
from proofgrad.core.tensor.methods.indexing.selection import (
    Selection,
    are_adjacent,
    broadcast_positions,
)
from proofgrad.core.tensor.methods.indexing.take import is_position, last_true, take
from proofgrad.core.tensor.methods.indexing.written_views import written, written_to_cuts
from proofgrad.core.tensor.methods.made_once import made_once
from proofgrad.core.tensor.runtime import reading
from proofgrad.core.tensor.runtime.canonical import computed
from proofgrad.core.tensor.runtime.device import Device, canonical_device, is_on_disk
from proofgrad.core.tensor.runtime.memory import is_view, under_its_own_name
from proofgrad.core.tensor.runtime.recording import before_write, recorder


class Assignment(Selection):
    """Writing to Tensors. Readers built before a write keep the old value."""

    __slots__ = ()
    # The view that was written to last, the Tensor below it, and what that became.
    _last_write: ClassVar[tuple[ref[Any], ref[Any], ref[UOp]] | None] = None
    # What Tensors became by writes through views, the values that were written, and the steps of the view.
    _written_through: ClassVar[WeakKeyDictionary[UOp, tuple[ref[UOp], list[Any]]]] = (
        WeakKeyDictionary()
    )

    def assign(self, x: Any) -> Self:
        """This Tensor becomes `x`, which passes no gradient. Those built before keep the old.

        Until it is realised, who asks for the gradient of a Tensor with requires_grad=True of which `x` was made is told that a part is
        missing, unless `x` is detached or this Tensor says requires_grad itself.
        On disk `x`, of any device, is written to the file now.
        A view writes into the Tensor that it is a view of: `x[:, 0].assign(0)` changes `x`.
        `x` is broadcast to this shape, and cast where nothing is lost: ints to floats. Raises: ShapeError, DtypeError, DeviceError
        if `x` is not alike; ValueError for a view that repeats elements of a Tensor that is there.
        """
        if is_on_disk(self.device):
            refuse_recording("written")
            write_view(self._uop, self._bytes_like(x))
            return self
        new = self._value_like(x, self.shape)
        node = new if new is self._uop else without_a_way_back(new)
        self._write(node)
        tensor: Any = self
        if node.op is Ops.DETACH and node is not new and not GRADIENTS.are_off:
            tensor._note_end(node, new)
        return self

    def replace(self, x: Any, allow_shape_mismatch: Flag = False) -> Self:
        """This Tensor becomes `x`, with another type and device allowed, and another shape if `allow_shape_mismatch`; and no view.

        Data is data then, too, with a gradient of its own, unless `x` leads to a Tensor with requires_grad=True. Raises: ShapeError.
        """
        if not isinstance(x, TensorBase):
            raise TypeError(f"replace takes a Tensor, not {type(x).__name__}")
        if x.shape != self.shape and not allow_shape_mismatch:
            raise ShapeError(
                f"replace was given {show(x.shape)} in place of {show(self.shape)}; say allow_shape_mismatch=True"
                " if another shape is meant"
            )
        is_data = id(self) in TensorBase._leaves or self._requires_grad is False
        value: Any = x
        is_data = is_data and x is not self and not value._leads_to_a_parameter()
        node = without_a_way_back(x._uop) if is_data else x._uop
        self.device, self._base = x.device, None
        self._set_value(node)
        return self

    def __setitem__(self, index: Any, value: Any) -> None:
        """Write `value`, broadcast, to the elements that `self[index]` reads.

        Of indices that name an element twice the last one counts. Gradients pass to `value` and to
        the elements that stay. Raises: as assign; GradientError for a parameter, see there.
        """
        self._refuse_parameter("x[...] = v")
        if value is self:
            value = self._value()  # the one that it names, before it shows what was written since
        if is_on_disk(self.device):
            position, positions = self._view_and_positions(index)
            if positions:
                raise DeviceError(f"{self.device} is written to by ints and slices, not by Tensors")
            position.assign(value)
            return
        self._refresh()  # the elements that stay are those of now
        mask = mask_index(self, index)
        if mask is not None:
            self._write(self._where_masked(mask, value))
            return
        last = Assignment._last_write
        is_written = last is not None and last[0]() is value  # perhaps what `x[i] += v` has done
        cut = None if self._base is not None else self._cut_of_numbers(index)
        if cut is not None and cut.cuts is not None and cut.shape is not None:
            if not is_written or not value._has_written_to(self, cut.cuts, cut.shape):
                self._write_cut(cut.cuts, self._value_like(value, cut.shape))
            return
        target, pending = self._view_and_positions(index)
        if pending:
            target._write(target._scattered(pending, value))
        elif not (isinstance(value, Assignment) and value._was_just_written_to(target)):
            target._write(target._value_like(value, target.shape))

    def __delitem__(self, index: Any) -> NoReturn:
        """Tensors keep their shape. Raises: TypeError."""
        raise TypeError(
            "elements of a Tensor cannot be deleted, for its shape is fixed; make a new one with"
            " cat of slices, or masked_select"
        )

    # -- what is written ------------------------------------------------------------------------

    def _value_like(self, value: Any, shape: Shape) -> UOp:
        """`value` as a node of this type and `shape`. Raises: ShapeError, DtypeError."""
        if isinstance(value, (bool, int, float)):
            self._check_whole([value])
            return constant_node(value, self.dtype, shape)
        given = value if isinstance(value, TensorBase) else self._data_like(value)
        check_same_device("assign", self, given)
        node = given._uop
        if node.dtype is not self.dtype:
            if promote(self.dtype, node.dtype) is not self.dtype:
                raise DtypeError(f"cannot assign {node.dtype} to {self.dtype}; cast it first")
            node = node.cast(self.dtype)
        return _broadcast(node, shape)

    def _bytes_like(self, value: Any) -> bytearray:
        """`value`, from any device, in this type and shape, as bytes. Raises: ShapeError, DtypeError."""
        if not isinstance(value, TensorBase):
            kind = None if hasattr(value, "dtype") else self.dtype
            value = type(self)(value, None, kind)
        if is_on_disk(value.device):
            value = type(self)(value, canonical_device(None))
        there = type(self)._new(constant_node(0, self.dtype, self.shape), value.device)
        return reading.read(there._value_like(value, self.shape), value.device)

    def _data_like(self, value: Any) -> TensorBase:
        given: TensorBase = type(self)(value, self.device)
        if given.dtype is not self.dtype and not hasattr(value, "dtype"):
            if given.dtype.is_float and isinstance(value, (list, tuple)):
                self._check_whole(flatten_nested(value)[1])
            return type(self)(value, self.device, self.dtype)
        return given

    def _check_whole(self, numbers: Sequence[Any]) -> None:
        """Raises: DtypeError for a number that this type would cut."""
        if not self.dtype.is_int:
            return
        for number in numbers:
            if isinstance(number, float) and not number.is_integer():
                raise DtypeError(
                    f"cannot assign {number} to {self.dtype}, which would cut it; cast the Tensor, or"
                    f" give a whole number"
                )

    def _write(self, node: UOp) -> None:
        """This Tensor, and all that it is a view of, from now on name what `node` makes of them."""
        links = self._alive_links()
        if not links:
            self._set_value(node)
            return
        owner: Any = links[-1].tensor()
        owner._set_value(written(owner._uop, links[::-1], node))
        seen = owner._uop
        for above, link in zip(links[-2::-1], links[:0:-1]):
            seen = link.of(seen)
            between = above.tensor()
            if between is not None:
                before_write(between)
                between._become(seen)
        before_write(self)
        self._become(node)
        Assignment._last_write = (ref(self), ref(owner), ref(owner._uop))
        Assignment._written_through[owner._uop] = (ref(node), [link[1:] for link in links])

    def _write_cut(self, cuts: tuple[tuple[int, int], ...], node: UOp) -> None:
        """As `_write` to the view that these cuts and a new shape show, without one."""
        self._set_value(written_to_cuts(self._uop, cuts, node))
        Assignment._written_through[self._uop] = (ref(node), [])

    def _owner_to_compute(self) -> Self | None:
        """The Tensor below this view, if it was written to through a view and not computed since."""
        links = alive_links(self)
        owner: Any = links[-1].tensor() if links else None
        return owner if owner is not None and owner._uop in self._written_through else None

    def _is_what_was_written(self) -> bool:
        """Is this view the last through which the Tensor below it was written to?"""
        owner = self._owner_to_compute()
        if owner is None:
            return False
        node, steps = self._written_through[owner._uop]
        return node() is self._uop and [link[1:] for link in alive_links(self)] == steps

    def _alive_links(self) -> tuple[Link, ...]:
        """The steps of this view down to the last Tensor that there still is.

        Raises: ShapeError if that one has another shape now.
        """
        links = alive_links(self)
        if links:
            owner = links[-1].tensor()
            if owner is None or owner.shape != links[-1].shape:
                before, now = show(links[-1].shape), show(() if owner is None else owner.shape)
                raise ShapeError(
                    f"this is a view of a Tensor that had the shape {before} and now has {now}; take"
                    f" the view again"
                )
        return links

    def _set_value(self, node: UOp) -> None:
        if self._requires_grad:
            node = own_value(node)
        before_write(self)
        self._become(node)

    def _shows_elements_of(self, owner: Any) -> bool:
        return any(link.tensor() is owner for link in self._base or ())

    def _was_just_written_to(self, position: Any) -> bool:
        """Is this the second half of `x[i] += v`, which has been done by the first?"""
        if Assignment._last_write is None or self._base is None:
            return False
        view, owner, node = Assignment._last_write
        mine, its = self._alive_links(), position._alive_links()
        return (
            view() is self
            and bool(its)
            and its[-1].tensor() is owner() is not None
            and its[-1].tensor()._uop is node()
            and [link[1:] for link in mine] == [link[1:] for link in its]
        )

    def _has_written_to(self, owner: Any, cuts: tuple[Any, ...], shape: Shape) -> bool:
        """As `_was_just_written_to`, of the view that these cuts of a Tensor show in this shape."""
        if Assignment._last_write is None:
            return False
        view, whole, node = Assignment._last_write
        is_last = view() is self and whole() is owner
        if not is_last or node() is not owner._uop:
            return False
        part = tuple([end - begin for begin, end in cuts])
        steps = [(Ops.RESHAPE, shape, part)] if shape != part else []
        links = [link[1:] for link in self._alive_links()]
        return links == [*steps, (Ops.SHRINK, cuts, owner.shape)]

    def _refresh(self) -> None:
        """A view again of what the Tensor below it is now."""
        links = self._alive_links()
        if links:
            node = links[-1].tensor()._uop  # type: ignore[union-attr]
            for link in links[::-1]:
                node = link.of(node)
            self._become(node)

    def _refuse_parameter(self, what: str) -> None:
        for target in (self, *[link.tensor() for link in self._base or ()]):
            if target is not None and target._requires_grad and not GRADIENTS.are_off:
                raise GradientError(
                    f"{what} on a Tensor with requires_grad=True: its gradient would be that of the"
                    f" new value; write inside `with Tensor.no_grad():`, or use assign"
                )

    # -- chosen elements --------------------------------------------------------------------------

    def _where_masked(self, mask: Any, value: Any) -> UOp:
        rest = self.shape[mask.ndim :]
        wide = mask.reshape(mask.shape + (1,) * len(rest)).expand(self.shape)
        given = (
            value if isinstance(value, TensorBase) or _is_scalar(value) else self._data_like(value)
        )
        if isinstance(given, TensorBase) and given.ndim > len(rest):
            given = self._without_first_ones(given, len(rest) + 1)
            given = given if given.shape[0] == 1 else self._spread(mask, given, rest)
        node = self._value_like(given, self.shape)
        chosen: UOp = wide._uop.alu(Ops.WHERE, node, self._uop)
        return chosen

    def _without_first_ones(self, given: Any, rank: int) -> Any:
        """`given` without axes of size 1 in front of its last `rank` ones: the mask's own axes are no axes of it."""
        extra = given.ndim - rank
        return given.reshape(given.shape[extra:]) if set(given.shape[:extra]) == {1} else given

    def _spread(self, mask: Any, given: Any, rest: Shape) -> Any:
        """Rows of `given` at the positions where the mask is true. Reads the mask, to count them."""
        flags = bytes(reading.read(mask._uop, mask.device))
        count = flags.count(1)
        fits = given.ndim == len(rest) + 1 and given.shape[0] == count
        if not fits or any(n not in (1, size) for n, size in zip(given.shape[1:], rest)):
            raise ShapeError(
                f"cannot write {show(given.shape)} to the {count} positions where the mask is true;"
                f" expected what broadcasts to {show((count, *rest))}"
            )
        if not count:
            return 0
        done = self._with(mask._uop).flatten().cumsum()
        rows = take(given, 0, (done - 1).maximum(0))
        return rows.reshape((*mask.shape, *given.shape[1:])).expand(self.shape)

    def _scattered(self, pending: Sequence[tuple[int, Any]], value: Any) -> UOp:
        """This Tensor with `value` at the positions of some axes; of two for one position the last."""
        axes = tuple([axis for axis, _ in pending])
        rest = [k for k in range(self.ndim) if k not in axes]
        together, first = broadcast_positions(pending), axes[0] if are_adjacent(axes) else 0
        kept = [self.shape[k] for k in rest]
        # One number for all positions has no last one.
        shape = () if _is_scalar(value) else (*kept[:first], *together, *kept[first:])
        node = self._value_like(value, shape)
        for axis, positions in pending:
            check_inside(positions, axis, self.shape, from_end=True)
        if not prod(together):
            return self._uop
        parts = [self._with(positions._uop) for _, positions in pending]
        result: UOp = _with_written(self, self._with(node), axes, *parts)._uop
        return result

    # -- in place ---------------------------------------------------------------------------------

    def _in_place(self, sign: str, compute: Callable[[Any, Any], Any], other: Any) -> Self:
        self._refuse_parameter(f"x {sign} y")
        self._refresh()
        result = compute(self, other)
        if result is NotImplemented:
            return result  # type: ignore[no-any-return]
        if result.shape != self.shape:
            raise ShapeError(
                f"x {sign} y cannot change the shape of x from {show(self.shape)} to"
                f" {show(result.shape)}; write x = x {sign[:-1]} y"
            )
        if result.dtype is not self.dtype:
            raise DtypeError(
                f"x {sign} y cannot change the type of x from {self.dtype} to {result.dtype};"
                f" write x = x {sign[:-1]} y"
            )
        self._write(result._uop)
        return self

    def __iadd__(self, other: Any) -> Self:
        return self._in_place("+=", type(self).__add__, other)

    def __isub__(self, other: Any) -> Self:
        return self._in_place("-=", type(self).__sub__, other)

    def __imul__(self, other: Any) -> Self:
        return self._in_place("*=", type(self).__mul__, other)

    def __itruediv__(self, other: Any) -> Self:
        return self._in_place("/=", type(self).__truediv__, other)

    def __ifloordiv__(self, other: Any) -> Self:
        return self._in_place("//=", type(self).__floordiv__, other)

    def __imod__(self, other: Any) -> Self:
        return self._in_place("%=", type(self).__mod__, other)

    def __ipow__(self, other: Any) -> Self:
        return self._in_place("**=", type(self).__pow__, other)

    def __iand__(self, other: Any) -> Self:
        return self._in_place("&=", type(self).__and__, other)

    def __ior__(self, other: Any) -> Self:
        return self._in_place("|=", type(self).__or__, other)

    def __ixor__(self, other: Any) -> Self:
        return self._in_place("^=", type(self).__xor__, other)

    def __ilshift__(self, other: Any) -> Self:  # type: ignore[misc,override]
        return self._in_place("<<=", type(self).__lshift__, other)

    def __irshift__(self, other: Any) -> Self:  # type: ignore[misc,override]
        return self._in_place(">>=", type(self).__rshift__, other)


@made_once
def _with_written(
    x: Assignment, value: Assignment, axes: tuple[int, ...], *parts: Assignment
) -> Assignment:
    """`x` with `value`, which may be a single element, at the positions of some axes; of two for one position the last.

    Who writes is settled for the positions of these axes alone; all elements behind a position have
    one writer.
    """
    rest = [k for k in range(x.ndim) if k not in axes]
    together = broadcast_shapes("[]", *[part.shape for part in parts])
    first = axes[0] if are_adjacent(axes) else 0
    sizes, kept = [x.shape[axis] for axis in axes], [x.shape[k] for k in rest]
    count, number = prod(sizes), prod(together)
    positions = x._position_in_axes(parts, sizes, together)
    # A single one is given twice, which changes nothing: then there is a last one to ask for.
    given = max(number, 2)
    line = positions.reshape((1, number)).expand((1, given))
    last = last_true(is_position(line, 0, count))
    # A machine of work items has no loop in order, and so a kernel of its own for the last ones.
    last = last.contiguous() if Device[x.device].target.work_items else last
    order = [*axes, *rest]
    back = [order.index(k) for k in range(x.ndim)]
    hit, chosen = (last >= 0).reshape((count, *[1] * len(kept))), value
    if value.ndim:
        inner = [first + k for k in range(len(together))]
        outer = [k for k in range(value.ndim) if k not in inner]
        rows = value.permute([*inner, *outer]).reshape((number, *kept))
        chosen = take(rows.expand((given, *kept)), 0, last)
    if len(axes) == 1:  # what stays is read as it lies in memory, which may be written over then
        chosen = chosen.permute(back) if value.ndim else chosen
        return hit.permute(back).where(chosen, x)
    before = x.permute(order).reshape((count, *kept))
    result = hit.where(chosen, before).reshape((*sizes, *kept))
    return result if back == sorted(back) else result.permute(back)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, Scalar)


def without_a_way_back(node: UOp) -> UOp:
    """The same value, from which no gradient passes to what `node` is. It has a name of its own, apart from all that is of this value, in memory too."""
    value = node
    while value.op is Ops.DETACH and len(value.src) == 1:
        value = value.src[0]
    known = computed(value)
    if not is_view(known):
        return own_end(node)
    if recorder() is not None:  # a replay takes what is there then
        return own_end(own_copy(known))
    return under_its_own_name(known)


def _broadcast(node: UOp, shape: Shape) -> UOp:
    """`node` with the wanted shape, which it may only be broadcast to. Raises: ShapeError."""
    own = node.shape
    if own == shape:
        return node
    while len(own) > len(shape) and own[0] == 1:
        own = own[1:]
    fits = len(own) <= len(shape) and all(a in (1, b) for a, b in zip(own[::-1], shape[::-1]))
    if not fits:
        raise ShapeError(f"cannot assign {show(node.shape)} to a Tensor of {show(shape)}")
    return broadcast_node(reshape_node(node, own), shape)
