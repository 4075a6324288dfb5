"""Elements chosen by integers in memory: a sum over all positions of which one is not zero.

Owns: the one form in which the compiler sees such a choice: rules take the loop away where the
position is compared with the counter of the axis, and a gradient goes to each position once (docs/architecture.md). Does not own: what an index
means (selection.py).
"""

from __future__ import annotations

import functools
from typing import TypeVar

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.nodes import broadcast_node, broadcast_shapes
from proofgrad.core.tensor.methods.base import TensorBase
from proofgrad.core.tensor.methods.custom_vjp import CustomGradient
from proofgrad.core.tensor.methods.made_once import made_once
from proofgrad.core.tensor.methods.movement.joining import Movement
from proofgrad.core.tensor.methods.reduction.reduce import Reduction

_T = TypeVar("_T", bound=Reduction)
_P = TypeVar("_P", bound=Movement)
# By the bytes of an element.
_BITS = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}


def take(x: _T, axis: int, positions: TensorBase) -> _T:
    """The axis replaced by the axes of `positions`: the elements there; 0 for a position outside of it."""
    size = x.shape[axis]
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    wanted = x._with(positions._uop).reshape(
        (1,) * len(before) + positions.shape + (1,) * (len(after) + 1)
    )
    chosen = is_position(wanted, len(before) + positions.ndim, size)
    source = x.reshape(before + (1,) * positions.ndim + (size,) + after)
    return one_of(source, chosen, len(before) + positions.ndim)


@made_once
def take_along(x: _T, positions: TensorBase, axis: int) -> _T:
    """Element [.., positions[.., i, ..], ..]: both have the same axes beside `axis`."""
    chosen = is_position(x._with(positions._uop).unsqueeze(-1), -1, x.shape[axis])
    return one_of(x._axis_last(axis).unsqueeze(axis), chosen, x.ndim)


def is_position(positions: _P, axis: int, size: int) -> _P:
    """Where these integers, which have size 1 on `axis`, are the position on it: 0 .. size-1."""
    largest = size if isinstance(size, int) else size.vmax
    kind = dtypes.int64 if largest > 1 << 31 or positions.dtype.bits > 32 else dtypes.int32
    counts = largest - 1 <= dtypes.max(positions.dtype) and positions.dtype is not dtypes.uint64
    # What int64 does not hold becomes no position.
    named = positions if counts else positions.cast(kind)
    after = positions.ndim - 1 - axis % positions.ndim
    line = positions._iota(size, named.dtype)
    return named.eq(line.reshape((size,) + (1,) * after))


def last_true(hits: _T) -> _T:
    """The last position of the last axis that is true, as int32 or int64; the least integer where none is.

    An extreme whose mask names an address: each true one goes there (core/compile/tactics/scatter.py).
    """
    number = hits.shape[-1]
    largest = number if isinstance(number, int) else number.vmax
    positions = hits._iota(number, dtypes.int64 if largest > 1 << 31 else dtypes.int32)
    return hits.where(positions, dtypes.min(positions.dtype)).max(-1)


def one_of(x: _T, chosen: _T, axis: int) -> _T:
    """The element where `chosen`, which is true for at most one position of the axis, else 0.

    Of floats the bits are summed: 0.0 + -0.0 is 0.0, but the element is -0.0.
    """
    if x.dtype.is_bool:
        return (chosen & x).any(axis)
    if not (x.dtype.is_float or x.dtype.is_code):
        return chosen.where(x, 0).sum(axis, dtype=x.dtype)
    bits = _BITS[x.dtype.itemsize]
    shape = broadcast_shapes("[]", x.shape, chosen.shape)
    whole, chosen = [part._with(broadcast_node(part._uop, shape)) for part in (x, chosen)]
    picked = chosen.where(whole.bitcast(bits), 0).sum(axis, dtype=bits).bitcast(x.dtype)
    sources = (picked._uop, whole._uop, chosen._uop)
    # mypy takes the __hash__ of Tensors for that of their class.
    mark = _mark(type(x), x.device, axis)
    return x._with(UOp(Ops.DETACH, x.dtype, sources, mark))


@functools.lru_cache(maxsize=64)
def _mark(kind: type[Reduction], device: str, axis: int) -> CustomGradient:
    """How a gradient passes the bits: to the position that was chosen. One for all choices, so that equal graphs are one."""

    def to_its_position(
        gradient: Reduction, whole: Reduction, chosen: Reduction
    ) -> tuple[Reduction, None]:
        return chosen.where(gradient.unsqueeze(axis), 0), None

    return CustomGradient(to_its_position, "an element by its position", kind, device)
