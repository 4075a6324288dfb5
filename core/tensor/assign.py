"""Writing: `assign`, `x[...] = v`, `x += v`, to whole Tensors, views and chosen elements.

Owns: which elements a view or an index names, what a write makes of the Tensors that it changes,
gradients through writes. Does not own: memory, which realize.py may write over.

A Tensor names a value; a write lets it name another one. The graph of the new value reads the old,
so whoever was built before a write goes on to mean the old value. What does change is the Tensor
that is written to and, if that is a view, the Tensors it is a view of.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any, NoReturn, Self

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import Shape, ShapeError, show
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor import realize as machine
from proofgrad.core.tensor.base import ALIASES, TensorBase, check_same_device, own_value
from proofgrad.core.tensor.errors import DtypeError, GradientError
from proofgrad.core.tensor.interop import Interop
from proofgrad.core.tensor.movement import broadcast_node, reshape_node
from proofgrad.core.tensor.operands import Scalar, Whole, constant_node
from proofgrad.core.tensor.promotion import promote


class Assignment(Interop):
    """Writing to Tensors. Readers built before a write keep the old value."""

    __slots__ = ()

    def assign(self, x: Any) -> Self:
        """This Tensor becomes `x`, which passes no gradient. Those built before keep the old.

        A view writes into the Tensor that it is a view of: `x[:, 0].assign(0)` changes `x`.
        Raises: ShapeError, DtypeError, DeviceError if `x` is not alike; ValueError for a view
        that repeats elements.
        """
        new = self._value_like(x, self.shape)
        self._write(new if machine.is_view(new) else UOp(Ops.DETACH, new.dtype, (new,)))
        return self

    def replace(self, x: Any) -> Self:
        """This Tensor becomes `x`, with another shape, type and device allowed, and no view."""
        if not isinstance(x, TensorBase):
            raise TypeError(f"replace takes a Tensor, not {type(x).__name__}")
        self._uop, self.device, self._base = x._uop, x.device, None
        machine.note_write(self)
        return self

    def __setitem__(self, index: Any, value: Any) -> None:
        """Write `value`, broadcast, to the elements that `self[index]` reads.

        Of indices that name an element twice the last one counts. Gradients pass to `value` and to
        the elements that stay. Raises: as assign; GradientError for a parameter, see there.
        """
        self._refuse_parameter("x[...] = v")
        mask = self._mask_index(index)
        if mask is not None:
            self._write(self._where_masked(mask, value))
            return
        target = self[index]
        if target is not self and target._view_chain() is None:
            self._write(self._scattered(index, target.shape, value))
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
            return constant_node(value, self.dtype, shape)
        given = value if isinstance(value, TensorBase) else self._data_like(value)
        check_same_device("assign", self, given)
        node = given._uop
        if node.dtype is not self.dtype:
            if promote(self.dtype, node.dtype) is not self.dtype:
                raise DtypeError(f"cannot assign {node.dtype} to {self.dtype}; cast it first")
            node = node.cast(self.dtype)
        return _broadcast(node, shape)

    def _data_like(self, value: Any) -> TensorBase:
        given: TensorBase = type(self)(value, self.device)  # type: ignore[call-arg]
        if given.dtype is not self.dtype and not hasattr(value, "dtype"):
            return type(self)(value, self.device, self.dtype)  # type: ignore[call-arg]
        return given

    def _write(self, node: UOp) -> None:
        """This Tensor, and all that it is a view of, from now on name what `node` makes of them."""
        levels = self._levels()
        owner, chain = levels[0][0], [step for _, steps in levels for step in steps]
        if len(levels) == 1:
            self._set_value(node)
            return
        owner._set_value(written(owner._uop, chain, node))
        below, seen = owner, owner._uop
        for level, steps in levels[1:]:
            before = below._uop
            for step in steps:
                seen = step.with_src((seen,))
            level._uop, level._base = seen, (below, before, seen, None)
            below = level
        self._uop, self._base = node, (*self._base[:3], owner._uop)  # type: ignore[index]

    def _levels(self) -> list[tuple[Any, list[UOp]]]:
        """The Tensor that this is in the end a view of, and the views down to this one, each with
        the movement operations to it. Raises: ShapeError if one has another shape now.
        """
        levels: list[tuple[Any, list[UOp]]] = []
        target: Any = self
        while (chain := target._view_chain()) is not None:
            levels.append((target, chain))
            base, before = target._base[0], target._base[1].shape
            if base.shape != before or base.dtype is not target.dtype:
                raise ShapeError(
                    f"this is a view of a Tensor that had the shape {show(before)} and now has"
                    f" {show(base.shape)}; take the view again"
                )
            target = base
        levels.append((target, []))
        return levels[::-1]

    def _set_value(self, node: UOp) -> None:
        if self._requires_grad:
            node = own_value(node)
        self._uop = node
        machine.note_write(self)

    def _view_chain(self) -> list[UOp] | None:
        """The movement operations from the Tensor that this is a view of; None: it is no view."""
        if self._base is None:
            return None
        _, bottom, top, _ = self._base
        chain: list[UOp] = []
        while top is not bottom:
            if top.op not in ALIASES:
                return None
            chain.append(top)
            top = top.src[0]
        return chain[::-1]

    def _was_just_written_to(self, place: Any) -> bool:
        """Is this the second half of `x[i] += v`, which has been done by the first?"""
        if self._base is None or self._base[3] is None:
            return False
        mine, its = self._levels(), place._levels()
        if mine[0][0] is not its[0][0] or self._base[3] is not mine[0][0]._uop:
            return False
        return _path(mine) == _path(its)

    def _refresh(self) -> None:
        """A view again of what the Tensor below it is now."""
        chain = self._view_chain()
        if chain is None:
            return
        base = self._base[0]
        base._refresh()
        if base._uop is self._base[1] or base.shape != self._base[1].shape:
            return
        node = base._uop
        for step in chain:
            node = step.with_src((node,))
        self._uop, self._base = node, (base, base._uop, node, None)

    def _refuse_parameter(self, what: str) -> None:
        target: TensorBase | None = self
        while target is not None:
            if target._requires_grad and not TensorBase._grad_off:
                raise GradientError(
                    f"{what} on a Tensor with requires_grad=True: its gradient would be that of the"
                    f" new value; write inside `with Tensor.no_grad():`, or use assign"
                )
            target = target._base[0] if target._base is not None else None

    # -- chosen elements --------------------------------------------------------------------------

    def _mask_index(self, index: Any) -> Any:
        """The index as a bool Tensor over the first axes; None if it is something else."""
        if isinstance(index, (list, tuple)) or not hasattr(index, "dtype"):
            return None
        mask = index if isinstance(index, TensorBase) else self._as_tensor(index)
        if not mask.dtype.is_bool:
            return None
        if mask.shape != self.shape[: mask.ndim]:
            raise IndexError(f"a mask of shape {show(mask.shape)} for {show(self.shape)}")
        check_same_device("x[mask] = v", self, mask)
        return mask

    def _where_masked(self, mask: Any, value: Any) -> UOp:
        rest = self.shape[mask.ndim :]
        wide = mask.reshape(mask.shape + (1,) * len(rest)).expand(self.shape)
        given = (
            value if isinstance(value, TensorBase) or _is_scalar(value) else self._data_like(value)
        )
        if isinstance(given, TensorBase) and given.ndim > len(rest) and given.shape[0] != 1:
            given = self._spread(mask, given, rest)
        node = self._value_like(given, self.shape)
        return wide._uop.alu(Ops.WHERE, node, self._uop)

    def _spread(self, mask: Any, given: Any, rest: Shape) -> Any:
        """Rows of `given` at the places where the mask is true. Reads the mask, to count them."""
        flags = bytes(machine.read(mask._uop, mask.device))
        count = flags.count(1)
        if given.shape != (count, *rest):
            raise ShapeError(
                f"cannot write {show(given.shape)} to the {count} places where the mask is true;"
                f" expected {show((count, *rest))}, or what broadcasts to {show(rest)}"
            )
        if not count:
            return 0
        rows = [max(0, done - 1) for done in accumulate(flags)]
        return given[type(self)(rows, self.device)].reshape(self.shape)  # type: ignore[call-arg]

    def _scattered(self, index: Any, shape: Shape, value: Any) -> UOp:
        """Each element of `shape` written to its place; of two for one place the last."""
        count = self.numel()
        numbers = type(self).arange(1, count + 1, dtype="int64", device=self.device)
        places = numbers.reshape(self.shape)[index].flatten()  # 0: outside of this Tensor
        node = self._value_like(value, shape)
        written_by = self._writers(places, count)
        wanted = (written_by - 1).maximum(0)
        flat = self._with(reshape_node(node, (places.numel(),)))
        chosen = flat[wanted]._uop if places.numel() else self._uop
        hit = reshape_node((written_by > 0)._uop, self.shape)
        return hit.alu(Ops.WHERE, reshape_node(chosen, self.shape), self._uop)

    def _writers(self, places: Any, count: Whole) -> Any:
        """For each of `count` places the number, from 1, of the last element for it; 0: none."""
        number = places.numel()
        if not number:
            return type(self).zeros(count, dtype="int64", device=self.device)
        own = type(self).arange(1, count + 1, dtype="int64", device=self.device)
        serial = type(self).arange(1, number + 1, dtype="int64", device=self.device)
        hits = own.reshape(count, 1) == places.reshape(1, number)
        return hits.where(serial.reshape(1, number), 0).max(1)

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

    def __ipow__(self, other: Any) -> Self:  # type: ignore[misc]
        return self._in_place("**=", type(self).__pow__, other)

    def __iand__(self, other: Any) -> Self:
        return self._in_place("&=", type(self).__and__, other)

    def __ior__(self, other: Any) -> Self:
        return self._in_place("|=", type(self).__or__, other)

    def __ixor__(self, other: Any) -> Self:
        return self._in_place("^=", type(self).__xor__, other)

    def __ilshift__(self, other: Any) -> Self:
        return self._in_place("<<=", type(self).__lshift__, other)

    def __irshift__(self, other: Any) -> Self:
        return self._in_place(">>=", type(self).__rshift__, other)

    def __imatmul__(self, other: Any) -> Self:
        return self._in_place("@=", type(self).__matmul__, other)


def _path(levels: list[tuple[Any, list[UOp]]]) -> list[tuple[Ops, Any]]:
    return [(step.op, step.arg) for _, steps in levels for step in steps]


def _is_scalar(value: Any) -> bool:
    return isinstance(value, Scalar)


def _broadcast(node: UOp, shape: Shape) -> UOp:
    """`node` with the wanted shape, which it may only be broadcast to. Raises: ShapeError."""
    own = node.shape
    while len(own) > len(shape) and own[0] == 1:
        own = own[1:]
    fits = len(own) <= len(shape) and all(a in (1, b) for a, b in zip(own[::-1], shape[::-1]))
    if not fits:
        raise ShapeError(f"cannot assign {show(node.shape)} to a Tensor of {show(shape)}")
    return broadcast_node(reshape_node(node, own), shape)


# -- views -----------------------------------------------------------------------------------------


def written(base: UOp, chain: list[UOp], value: UOp) -> UOp:
    """`base` with `value` in the places that the view `chain` shows.

    Raises: ValueError if the view repeats elements or has some that are not of `base`.
    """
    everything = constant_node(True, dtypes.bool, value.shape)
    inside = _placed(chain, everything)
    whole = _placed(chain, value)
    if not any(step.op is Ops.SHRINK for step in chain):
        return whole
    return inside.alu(Ops.WHERE, whole, base)


def _placed(chain: list[UOp], value: UOp) -> UOp:
    """The elements of a view back where they came from, zeros around."""
    k = len(chain)
    while k:
        k -= 1
        step = chain[k]
        before = step.src[0].shape
        match step.op:
            case Ops.DETACH:
                continue
            case Ops.RESHAPE:
                value = reshape_node(value, before)
            case Ops.PERMUTE:
                order = tuple([step.arg.index(axis) for axis in range(len(step.arg))])
                value = UOp(Ops.PERMUTE, value.dtype, (value,), order)
            case Ops.FLIP:
                value = UOp(Ops.FLIP, value.dtype, (value,), step.arg)
            case Ops.SHRINK:
                around = tuple([(b, size - e) for (b, e), size in zip(step.arg, before)])
                value = UOp(Ops.PAD, value.dtype, (value,), around)
            case Ops.PAD if _only_fills_a_stride(chain[k:]):
                cuts = tuple([(b, b + size) for (b, _), size in zip(step.arg, before)])
                value = UOp(Ops.SHRINK, value.dtype, (value,), cuts)
            case _:
                raise ValueError(
                    f"cannot write to this view: {_WHY_NOT.get(step.op, step.op.name)}; write to"
                    f" the Tensor that it is a view of"
                )
    return value


_WHY_NOT = {
    Ops.EXPAND: "it shows an element several times (expand)",
    Ops.SKEW: "it shows an element several times (windows)",
    Ops.PAD: "it has elements that are no memory (pad)",
}


def _only_fills_a_stride(chain: list[UOp]) -> bool:
    """PAD, RESHAPE, SHRINK as `x[::step]` makes them: what was added is cut off again."""
    if len(chain) < 3 or chain[1].op is not Ops.RESHAPE or chain[2].op is not Ops.SHRINK:
        return False
    padded = [k for k, (before, after) in enumerate(chain[0].arg) if before or after]
    if len(padded) != 1 or chain[0].arg[padded[0]][0]:
        return False
    axis, added = padded[0], chain[0].arg[padded[0]][1]
    split, old = chain[1].arg, chain[0].shape
    if split[:axis] + split[axis + 2 :] != old[:axis] + old[axis + 1 :]:
        return False
    step: int = split[axis + 1]
    return added < step and chain[2].arg[axis + 1] == (0, 1)
