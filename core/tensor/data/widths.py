"""The bits of elements read as another type, of the same width or not: what `bitcast` of a Tensor means.

Owns: how wide elements come apart, and narrow ones together, in the order of bytes of memory (little-endian). The
last axis has more elements, or fewer. Does not own: what writes through such a view (methods/indexing/written_views.py).
"""

from __future__ import annotations

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.shapes import ShapeError, show
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.arguments import Whole, whole_quotient
from proofgrad.core.tensor.data.errors import DtypeError
from proofgrad.core.tensor.data.nodes import broadcast_node, constant_node, reshape_node

_UNSIGNED = {dtype.itemsize: dtype for dtype in (dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64)}  # fmt: skip


def reinterpreted_node(node: UOp, dtype: DType) -> UOp:
    """The bits of `node` as elements of `dtype`: (.., n) to (.., n * width before / width after).

    Raises: DtypeError for bools and for a last axis that is no whole number of elements, ShapeError where there is no axis.
    """
    if node.dtype is dtype:
        return node
    if dtype.is_bool or node.dtype.is_bool:
        raise DtypeError(f"bitcast is of numbers, not from {node.dtype} to {dtype}; cast instead")
    before, after = node.dtype.itemsize, dtype.itemsize
    if before == after:
        return node.bitcast(dtype)
    if not node.shape:
        raise ShapeError(
            f"bitcast from {node.dtype} to {dtype} changes the size of the last axis, and there is none; reshape to (1,)"
        )
    bits = node.bitcast(_UNSIGNED[before])
    return _taken_apart(bits, dtype) if before > after else _put_together(bits, dtype)


def _taken_apart(bits: UOp, dtype: DType) -> UOp:
    *rest, size = bits.shape
    parts = bits.dtype.itemsize // dtype.itemsize
    shape = (*rest, size, parts)
    each = broadcast_node(reshape_node(bits, (*rest, size, 1)), shape)
    found = each.alu(Ops.SHR, _positions(bits.dtype, dtype, parts, shape))
    return reshape_node(found.cast(_UNSIGNED[dtype.itemsize]).bitcast(dtype), (*rest, size * parts))


def _put_together(bits: UOp, dtype: DType) -> UOp:
    *rest, size = bits.shape
    parts = dtype.itemsize // bits.dtype.itemsize
    count = whole_quotient(size, parts)
    if count is None:
        raise DtypeError(
            f"the {show((size,))[1:-2]} elements of {bits.dtype.itemsize} bytes in the last axis of {show(bits.shape)}"
            f" are no whole number of {dtype}"
        )
    shape, wide = (*rest, count, parts), _UNSIGNED[dtype.itemsize]
    each = reshape_node(bits, shape).cast(wide)
    placed = each.alu(Ops.SHL, _positions(wide, bits.dtype, parts, shape))
    axis = len(shape) - 1
    whole = UOp(Ops.REDUCE_AXIS, wide, (placed,), (Ops.ADD, (axis,)))
    return reshape_node(whole, (*rest, count)).bitcast(dtype)


def _positions(wide: DType, narrow: DType, parts: Whole, shape: tuple[Whole, ...]) -> UOp:
    """By how many bits each of the `parts` of a wide element is shifted, along the last axis of `shape`."""
    numbers = UOp(Ops.IOTA, wide, (), parts)
    apart = constant_node(8 * narrow.itemsize, wide, (parts,))
    return broadcast_node(numbers.alu(Ops.MUL, apart), shape)
