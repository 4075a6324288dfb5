"""Values that are widened before they are multiplied, or read again: whether they are stored as they were before.

Owns: this choice, a heuristic. Does not own: all others of what is stored (kernels.py), whether a product goes by a unit
(schedule/matrices.py).

Memory that is read side by side is what GPUs wait for. A core converts floats once rather than before each product; but its matrix unit,
and its products of pairs, take numbers as they were: the activations between two layers of bfloat16, or those that are rounded to int8.
"""

from __future__ import annotations

from proofgrad.core.compile.machine.target import Target, TileUnit
from proofgrad.core.compile.nests.sums_of_products import is_contraction, is_product
from proofgrad.core.compile.steps.mma_in_item import tile_units
from proofgrad.core.compile.steps.pair import fits_a_half
from proofgrad.core.compile.steps.store import below_reshape
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import CONVERSIONS, ELEMENTWISE, MOVEMENT, Ops
from proofgrad.core.ir.shapes import elements
from proofgrad.core.ir.uop import UOp

Consumers = dict[UOp, list[UOp]]

_COMPUTED = ELEMENTWISE | {Ops.REDUCE_AXIS}
_ALL_MOVED = frozenset({Ops.RESHAPE, Ops.PERMUTE, Ops.FLIP})  # the same elements, each once


def before_widening(node: UOp, consumers: Consumers, target: Target) -> UOp:
    """What is stored for a value that was widened last: itself, or what it was."""
    if target.lockstep > 1:
        return _before_reading(node)
    narrow = _before_cast(node)
    if narrow is None or target.work_items or narrow.op not in _COMPUTED:
        return node
    return narrow if _is_multiplied_so(node, narrow.dtype, consumers, target) else node


def is_rounded_for_unit(node: UOp, consumers: Consumers, target: Target) -> bool:
    """Whether a value is only rounded to the numbers that a matrix unit of a core takes, which reads them from memory: as weights of float32
    for a product of bfloat16."""
    narrow = _before_cast(node)
    if narrow is None or narrow.op is not Ops.CAST or target.work_items:
        return False
    return _are_whole_matrices(node, narrow.dtype, consumers, target)


def unit_takes(node: UOp, dtype: DType, consumers: Consumers, target: Target) -> bool:
    """Whether a matrix unit of a core multiplies what is made of a value by conversions and movement, in sums as long as its matrices: those of
    fewer steps go by vectors."""
    depths = [unit.groups * unit.group for unit in _units_of(dtype, target)]
    steps = [_steps(total) for total in _sums_of_products(node, consumers)]
    return bool(depths) and max(steps, default=0) >= min(depths)


def _before_cast(node: UOp) -> UOp | None:
    """What a value was before it was widened, perhaps in another shape; None: it was not."""
    wide = below_reshape(node)
    narrow = below_reshape(wide.src[0]) if wide.op is Ops.CAST else wide
    is_wider = narrow.dtype.itemsize < wide.dtype.itemsize
    return narrow if is_wider and narrow.dtype.is_float == wide.dtype.is_float else None


def _is_multiplied_so(node: UOp, narrow: DType, consumers: Consumers, target: Target) -> bool:
    """Whether an instruction multiplies numbers of this type that were widened to those of a node."""
    if target.has_dot and node.dtype is dtypes.int32 and fits_a_half(narrow):
        return bool(_sums_of_products(node, consumers))
    return _are_whole_matrices(node, narrow, consumers, target)


def _are_whole_matrices(node: UOp, narrow: DType, consumers: Consumers, target: Target) -> bool:
    """Whether a unit multiplies numbers of this type, and the product has as many rows, columns and steps as its matrices: others go by vectors."""
    for unit in _units_of(narrow, target):
        for total in _sums_of_products(node, consumers):
            steps = _steps(total)
            own = elements(node.shape) // max(1, steps)
            across = elements(total.shape) // max(1, own)
            is_whole = min(own, across) >= unit.side and steps >= unit.groups * unit.group
            if is_whole and total.dtype is unit.total:
                return True
    return False


def _units_of(dtype: DType, target: Target) -> list[TileUnit]:
    units = tile_units((*target.matrix_units, *target.units_of_normals))
    return [unit for unit in units if dtype in (unit.rows, unit.columns)]


def _sums_of_products(node: UOp, consumers: Consumers) -> list[UOp]:
    """Those whose factor a value is, through conversions and movement."""
    shown, seen, found = [node], {node}, list[UOp]()
    while shown:
        for user in consumers[shown.pop()]:
            if is_product(user):
                found += [x for x in consumers[user] if is_contraction(x)]
            elif user.op in MOVEMENT | CONVERSIONS and user not in seen:
                seen.add(user)
                shown.append(user)
    return found


def _steps(total: UOp) -> int:
    """The terms of each result of a sum."""
    shape = total.src[0].shape
    return elements([shape[axis] for axis in total.arg[1]])


def _before_reading(node: UOp) -> UOp:
    """What a float was before it was converted to a wider type.

    Or before it was rounded for matrix units, and perhaps moved: items round what they hold.
    """
    below = node
    while below.op in _ALL_MOVED:
        below = below.src[0]
    node = below if below.op is Ops.TF32 and below.src[0].op in _COMPUTED else node
    while node.op in CONVERSIONS and node.src[0].op in _COMPUTED:
        narrow, wide = node.src[0].dtype, node.dtype
        is_wider = narrow.is_float and wide.is_float and narrow.itemsize < wide.itemsize
        if not (is_wider or node.op is Ops.TF32):
            break
        node = node.src[0]
    return node
