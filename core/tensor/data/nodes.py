"""Graph nodes that many methods make: reshapes, broadcasting, constants, parts side by side, copies to a device.

Owns: numpy's rules of broadcasting. Does not own: the methods of these names, which check what they are given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.op_names import IOTA, RESHAPE, WHERE
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import Shape, show
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.arguments import Scalar
from proofgrad.core.tensor.data.errors import BroadcastError, RangeError

EXPAND = Ops.EXPAND


def reshape_node(node: UOp, shape: Shape) -> UOp:
    """`node` under another shape of as many elements."""
    return node if node.shape == shape else UOp(RESHAPE, node.dtype, (node,), shape)


def broadcast_node(node: UOp, shape: Shape) -> UOp:
    """`node` repeated to `shape`, which its own shape goes into. Both steps stay visible."""
    if node.shape == shape:
        return node
    padded = reshape_node(node, (1,) * (len(shape) - len(node.shape)) + node.shape)
    return padded if padded.shape == shape else UOp(EXPAND, node.dtype, (padded,), shape)


@lru_cache(maxsize=1024)
def broadcast_shapes(operation: str, *shapes: Shape) -> Shape:
    """The common shape by numpy's rules. Raises: BroadcastError with the shapes and the axis."""
    if shapes.count(shapes[0]) == len(shapes):
        return shapes[0]
    rank = max(map(len, shapes))
    result: list[int] = []
    for back in range(rank, 0, -1):
        sizes = {shape[-back] for shape in shapes if len(shape) >= back}
        wide = sizes - {1}
        if len(wide) > 1:
            listed = " and ".join(map(show, shapes))
            raise BroadcastError(
                f"cannot broadcast {listed} in {operation}: axis {-back} has sizes"
                f" {' and '.join(sorted([show((size,))[1:-2] for size in wide]))};"
                f" sizes must be equal, or one of them 1"
            )
        result.append(wide.pop() if wide else 1)
    return tuple(result)


def constant_node(value: Scalar, dtype: DType, shape: Shape) -> UOp:
    """CONST -> RESHAPE -> EXPAND. Raises: OverflowError if `value` does not fit `dtype`."""
    if value:
        return _constant_node(value, dtype, shape)
    return _zero_node(math.copysign(1.0, value) < 0, dtype, shape)


@lru_cache(maxsize=1024)
def _zero_node(negative: bool, dtype: DType, shape: Shape) -> UOp:
    """0.0 == -0.0, so that they would share an entry of the other cache."""
    return broadcast_node(UOp.const(dtype, -0.0 if negative and dtype.is_float else 0), shape)


@lru_cache(maxsize=1024, typed=True)
def _constant_node(value: Scalar, dtype: DType, shape: Shape) -> UOp:
    try:
        return broadcast_node(UOp.const(dtype, value), shape)
    except OverflowError as error:
        raise RangeError(str(error)) from None


def copy_node(node: UOp, device: str) -> UOp:
    """The values of `node` on another device."""
    return UOp(Ops.COPY, node.dtype, (node,), device)


def stacked_node(parts: Sequence[UOp], axis: int) -> UOp:
    """Of the first part its one element along an axis, of the next one its own, and so on: in one kernel, that computes them all."""
    shape = tuple([len(parts) if k == axis else n for k, n in enumerate(parts[0].shape)])
    return _chosen([broadcast_node(part, shape) for part in parts], axis, 0)


def _chosen(parts: Sequence[UOp], axis: int, first: int) -> UOp:
    """At each number along the axis, from `first` on, what the part of that number has there."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    before, behind = _chosen(parts[:half], axis, first), _chosen(parts[half:], axis, first + half)
    is_before = _is_before(first + half, axis, before.shape)
    return UOp(WHERE, before.dtype, (is_before, before, behind))


@lru_cache(maxsize=1024)
def _is_before(end: int, axis: int, shape: Shape) -> UOp:
    """Whether the number along an axis is below one."""
    limit = broadcast_node(UOp.const(dtypes.int32, end), (shape[axis],))
    counter = UOp(IOTA, dtypes.int32, (), shape[axis])
    line = tuple([n if k == axis else 1 for k, n in enumerate(shape)])
    is_before = UOp(Ops.CMPLT, dtypes.bool, (counter, limit))
    return broadcast_node(reshape_node(is_before, line), shape)
