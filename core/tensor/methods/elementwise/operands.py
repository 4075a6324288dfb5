"""Operands: how two of them get one type and one shape, and how types are changed.

Owns: promotion and broadcasting of operands, checks of their types, casts. Does not own: what is done
with them (operators.py).
"""

from __future__ import annotations

from typing import Any, Self
from weakref import ref

from proofgrad.core.ir.dtypes import DType, Kind, dtypes
from proofgrad.core.ir.ops import COMPARE, Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.arguments import Operand, Whole
from proofgrad.core.tensor.data.errors import DtypeError
from proofgrad.core.tensor.data.nodes import broadcast_node, broadcast_shapes, constant_node
from proofgrad.core.tensor.data.promotion import (
    CODES,
    COMPUTED_FLOATS,
    as_dtype,
    computed_dtype,
    least_float,
    promote,
    promote_scalar,
)
from proofgrad.core.tensor.data.widths import reinterpreted_node
from proofgrad.core.tensor.methods.base import Link, TensorBase, check_same_device, describe
from proofgrad.core.tensor.methods.disk import reinterpreted
from proofgrad.core.tensor.runtime.device import is_on_disk

# On bools these stand for the bitwise ops, as in numpy.
_ON_BOOLS = {Ops.ADD: Ops.OR, Ops.MUL: Ops.AND, Ops.MAX: Ops.OR, Ops.MIN: Ops.AND}
_INTS_ONLY = frozenset({Ops.FLOORDIV, Ops.MOD, Ops.TRUNCDIV, Ops.TRUNCMOD, Ops.SHL, Ops.SHR})
_IN_ALL = 127  # and 0 are numbers that every type of integers holds
# The side of a whole number beyond a type on which it makes a comparison true: numpy compares with such a number as it is.
_TRUE_BEYOND = {"<": 1, "<=": 1, ">": -1, ">=": -1}
# A number of each kind, to ask what one would make of a type.
_LIKE: dict[Kind, bool | float] = {Kind.BOOL: True, Kind.SIGNED: 1, Kind.FLOAT: 1.0}
_BITWISE = frozenset({Ops.AND, Ops.OR, Ops.XOR})
_OF_ANY_NUMBERS = frozenset(Ops) - _INTS_ONLY - _BITWISE


class Operands(TensorBase):
    """Pairs of operands, and types."""

    __slots__ = ()

    # -- operands -------------------------------------------------------------------------------

    def _as_tensor(self, value: Operand) -> TensorBase:
        """`value` as a Tensor on this device: numpy arrays, numpy scalars, lists and variables."""
        is_size = isinstance(value, UOp) and value.dtype is dtypes.index
        if not isinstance(value, (list, tuple)) and not hasattr(value, "__array__") and not is_size:
            raise DtypeError(
                f"cannot combine a Tensor with {describe(value)};"
                f" expected a Tensor, a number, a list or an array"
            )
        return type(self)(value, self.device, self._type_of_size(value) if is_size else None)

    def _given(self, name: str, value: Operand) -> Self:
        """`value` as a Tensor beside this one, for a method that takes a Tensor: a number takes the type as in arithmetic.

        Raises: DtypeError for what is no Tensor, number, list or array; `name` says what it was given as.
        """
        if isinstance(value, TensorBase):
            return value  # type: ignore[return-value]
        if isinstance(value, (bool, int, float)):
            return self._with(constant_node(value, promote_scalar(self.dtype, value), ()))
        if not isinstance(value, (list, tuple)) and not hasattr(value, "__array__"):
            raise DtypeError(
                f"{name} is a Tensor, an array, a list or a number, not {describe(value)}"
            )
        return self._with(self._as_tensor(value)._uop)

    def _type_of_size(self, size: Any) -> DType | None:
        """As of a number: this Tensor's, where that is one of integers and all values of the variables fit."""
        kind = promote_scalar(self.dtype, 1)
        fits = kind.is_int and dtypes.min(kind) <= size.vmin and size.vmax <= dtypes.max(kind)
        return kind if fits else None

    def _pair(self, name: str, other: Operand) -> tuple[UOp, UOp]:
        """The nodes of both operands with one type and one shape."""
        node = self._uop
        if isinstance(other, (bool, int, float)):
            dtype = node.dtype
            if dtype not in COMPUTED_FLOATS:
                dtype = computed_dtype(promote_scalar(dtype, other))
                node = node.cast(dtype)
            return node, constant_node(other, dtype, node.shape)
        if not isinstance(other, TensorBase):
            other = self._as_tensor(other)
        if other.device != self.device:
            check_same_device(name, self, other)
        second = other._uop
        if node.dtype is not second.dtype or node.dtype in CODES:
            dtype = computed_dtype(self._common_type(other))
            node, second = node.cast(dtype), second.cast(dtype)
        if node.shape != second.shape:
            shape = broadcast_shapes(name, node.shape, second.shape)
            node, second = broadcast_node(node, shape), broadcast_node(second, shape)
        return node, second

    def _common_type(self, other: TensorBase) -> DType:
        """The type of a result of both; what was made of a number alone counts as that number."""
        numbers = TensorBase._numbers
        if not other.ndim and id(other) in numbers and id(self) not in numbers:
            return promote_scalar(self.dtype, _LIKE[other.dtype.kind])
        if not self.ndim and id(self) in numbers and id(other) not in numbers:
            return promote_scalar(other.dtype, _LIKE[self.dtype.kind])
        return promote(self.dtype, other.dtype)

    def _binary(self, op: Ops, name: str, other: Operand, swap: bool = False) -> Self:
        if type(other) is int and not 0 <= other <= _IN_ALL and op in COMPARE:
            decided = self._decided(name, other)
            if decided is not None:
                return decided
        a, b = self._pair(name, other)
        dtype = a.dtype
        if dtype is dtypes.bool:
            op = _ON_BOOLS.get(op, op)
        if op not in _OF_ANY_NUMBERS:
            _check_dtype(op, name, dtype)
        src = (b, a) if swap else (a, b)
        if op in COMPARE:
            return self._with(UOp(op, dtypes.bool, src))
        node = UOp(op, dtype, src)
        # Where this one was taken as it is, its type is that of the result.
        return self._with(node) if a is self._uop else self._rounded(node, other)

    def _decided(self, name: str, number: Whole) -> Self | None:
        """What a comparison with a number gives that this type of integers does not hold; None if it holds it."""
        dtype = self._uop.dtype
        if not dtype.is_int or dtypes.min(dtype) <= number <= dtypes.max(dtype):
            return None
        side = 1 if number > 0 else -1
        answer = _TRUE_BEYOND.get(name) == side
        return self._with(constant_node(answer, dtypes.bool, self._uop.shape))

    def _rounded(self, node: UOp, other: Operand = 0) -> Self:
        """A result that was computed in float32, in the 8-bit type that this and `other` have; any other as it is."""
        if self._uop.dtype in CODES or (isinstance(other, Operands) and other._uop.dtype in CODES):
            beside = other if isinstance(other, Operands) else self
            number = isinstance(other, (bool, int, float))
            dtype = self.dtype if number else self._common_type(beside)
            node = node.cast(dtype) if dtype.is_code else node
        return self._with(node)

    def _unary(self, op: Ops) -> Self:
        node = self._uop
        if node.dtype not in CODES:
            return self._with(UOp(op, node.dtype, (node,)))
        node = node.cast(computed_dtype(node.dtype))
        return self._rounded(UOp(op, node.dtype, (node,)))

    def _computed(self) -> Self:
        """In a type that is computed with."""
        return self._in_type(computed_dtype(self.dtype))

    def _as_float(self) -> Self:
        return self._in_type(least_float(self.dtype))

    def _in_type(self, dtype: DType) -> Self:
        """This Tensor itself if it has the type: for what is read and not given."""
        return self if self._uop.dtype is dtype else self._with(self._uop.cast(dtype))

    def _iota(self, size: Whole, dtype: DType = dtypes.int32) -> Self:
        """0 .. size-1 on this device."""
        return self._with(UOp(Ops.IOTA, dtype, (), size))

    # -- types ----------------------------------------------------------------------------------

    def cast(self, dtype: DType | str) -> Self:
        """The values in another type, rounded to nearest even; floats saturate in integers.

        Arithmetic of the 8-bit floats (fp8e4m3, fp8e5m2, fp8e4m3fnuz, fp8e5m2fnuz) is done in float32 and rounded
        to them once; gradients pass, in float32. Too large for fp8e5m2 is infinite; for the others, which have no
        infinity, NaN: beyond 448, 240 and 57344.
        A cast of a leaf to the type it has is a leaf.
        """
        target = as_dtype(dtype)
        if self.dtype is not target:
            return self._with(self._uop.cast(target))
        return self._leaf_twin()

    def detach(self) -> Self:
        """The same values; no gradient passes."""
        return self._with(UOp(Ops.DETACH, self.dtype, (self._uop,)))

    def _detached(self) -> Self:
        """As `detach`, in a Tensor that is no view: for what is read and not given."""
        node = self._uop
        return self._apart(UOp(Ops.DETACH, node.dtype, (node,)))

    def bitcast(self, dtype: DType | str) -> Self:
        """The same bits read as another type; one of another width changes the size of the last axis.

        A view: what is written to it is written to this Tensor. No gradient passes.

        Raises: DtypeError for bools, or where the last axis is no whole number of elements.

        Example:
            Tensor([1.0, 2.0]).bitcast("uint16").tolist()  # [0, 16256, 0, 16384]
        """
        target = as_dtype(dtype)
        if is_on_disk(self.device):
            return type(self)._new(reinterpreted(self._uop, target), self.device)
        new = self._with(reinterpreted_node(self._uop, target))
        if target.itemsize != self.dtype.itemsize:  # a step of a view that is several nodes
            step = Link(ref(self), Ops.BITCAST, (target, self.dtype), self.shape)
            new._base = (step, *(self._base or ()))
        return new

    def float(self) -> Self:
        """Cast to float32."""
        return self.cast(dtypes.float32)

    def half(self) -> Self:
        """Cast to float16."""
        return self.cast(dtypes.float16)

    def bfloat16(self) -> Self:
        """Cast to bfloat16."""
        return self.cast(dtypes.bfloat16)

    def double(self) -> Self:
        """Cast to float64."""
        return self.cast(dtypes.float64)

    def int(self) -> Self:
        """Cast to int32."""
        return self.cast(dtypes.int32)

    def short(self) -> Self:
        """Cast to int16."""
        return self.cast(dtypes.int16)

    def long(self) -> Self:
        """Cast to int64."""
        return self.cast(dtypes.int64)

    def bool(self) -> Self:
        """Cast to bool."""
        return self.cast(dtypes.bool)


def _check_dtype(op: Ops, name: str, dtype: DType) -> None:
    if op in _INTS_ONLY and not dtype.is_int:
        raise DtypeError(f"{name} takes integers, not {dtype}")
    if op in _BITWISE and not (dtype.is_int or dtype.is_bool):
        raise DtypeError(f"{name} takes bools and integers, not {dtype}; cast with .int() first")
