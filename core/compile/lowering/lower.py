"""TensorGraph body -> Kernel: movement operations become index terms over ranges.

Owns: the meaning of each movement operation as a map of indices, and masks for what lies outside.
Does not own: simplification (the terms made here are plain; rule sets of the pipeline tidy them).

Each tensor node is asked for its element at an index, under a mask. The answer is a scalar term.
Loads below a PAD or a SKEW carry the mask, so that no memory outside of a buffer is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import NamedTuple

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.evaluate import identity
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.shapes import Shape, elements, is_plain, row_major_strides
from proofgrad.core.ir.uop import AxisRole, UOp

Index = tuple[UOp, ...]


class Demand(NamedTuple):
    """The element of `node` at the index `at`, needed only where `mask` (None: everywhere) holds."""

    node: UOp
    at: Index
    mask: UOp | None


class _Lowering:
    """One kernel body. Loops are numbered: the output's first, then each reduction's."""

    def __init__(self, first_free_number: int) -> None:
        self.next_number = first_free_number
        self.loops_of: dict[tuple[UOp, Index], tuple[UOp, ...]] = {}

    def reduce_loops(self, node: UOp, index: Index) -> tuple[UOp, ...]:
        """The ranges of a REDUCE_AXIS: others for each index, which may lie in other loops.

        Under any mask the same: they run together, and are one reduction if the masks hold.
        """
        if (node, index) not in self.loops_of:
            sizes = [node.src[0].shape[axis] for axis in node.arg[1]]
            self.loops_of[node, index] = tuple(
                [
                    UOp.range(size, self.next_number + k, AxisRole.REDUCE)
                    for k, size in enumerate(sizes)
                ]
            )
            self.next_number += len(sizes)
        return self.loops_of[node, index]


def lower_movement(body: UOp) -> UOp:
    """One STORE of a scalar term: movement operations become index terms, padding becomes masks."""
    (value,) = body.src
    numbers = count()  # an axis of one element has none: equal loops have equal numbers
    loops = [UOp.range(size, next(numbers)) if size != 1 else UOp.index(0) for size in value.shape]
    lowering = _Lowering(next(numbers))
    element = _element(Demand(value, tuple(loops), None), lowering)
    size = elements(value.shape)
    target = UOp(Ops.PARAM, value.dtype, (), (0, size))
    position = UOp(Ops.INDEX, value.dtype, (target, flat_index(loops, value.shape)))
    return UOp.sink(UOp(Ops.STORE, dtypes.void, (position, element)))


def _element(demand: Demand, lowering: _Lowering) -> UOp:
    """The scalar term of a demand, without recursion."""
    done: dict[Demand, UOp] = {}
    asked: dict[Demand, list[Demand]] = {}
    stack = [demand]
    while stack:
        current = stack[-1]
        if current in done:
            stack.pop()
            continue
        needed = asked.get(current)
        if needed is None:
            needed = asked[current] = _needs(current, lowering)
            missing = [d for d in needed if d not in done]
            if missing:
                stack.extend(missing)
                continue
        done[current] = _combine(current, [done[d] for d in needed], lowering)
        stack.pop()
    return done[demand]


def _needs(demand: Demand, lowering: _Lowering) -> list[Demand]:
    """What the element of a node is made from."""
    node, index, mask = demand
    if node.op in ELEMENTWISE or node.op in (Ops.DETACH, Ops.CONTIGUOUS):
        return [Demand(source, index, mask) for source in node.src]
    if _combines_nothing(node):
        return []
    if node.op is Ops.REDUCE_AXIS:
        inner = list(index)
        for axis, loop in zip(node.arg[1], lowering.reduce_loops(node, index)):
            inner[axis] = loop if node.src[0].shape[axis] != 1 else UOp.index(0)
        return [Demand(node.src[0], tuple(inner), mask)]
    if node.op in SOURCE_INDEX:
        inside = _valid(node, index)
        both = mask if inside is None else inside if mask is None else mask & inside
        return [Demand(node.src[0], SOURCE_INDEX[node.op](node, index), both)]
    return []


def _combine(demand: Demand, values: list[UOp], lowering: _Lowering) -> UOp:
    """The element of a node from the elements of its sources."""
    node, index, mask = demand
    if node.op in ELEMENTWISE:
        return UOp(node.op, node.dtype, tuple(values), node.arg)
    match node.op:
        case Ops.CONST:
            return node
        case Ops.PARAM:
            position = (node, index[0]) if mask is None else (node, index[0], mask)
            return UOp(Ops.LOAD, node.dtype, (UOp(Ops.INDEX, node.dtype, position),))
        case Ops.IOTA:
            return index[0].cast(node.dtype)
        case Ops.REDUCE_AXIS if _combines_nothing(node):
            return UOp.const(node.dtype, identity(node.arg[0], node.dtype))
        case Ops.REDUCE_AXIS:
            loops = lowering.reduce_loops(node, index)
            return UOp(Ops.REDUCE, node.dtype, (values[0], *loops), node.arg[0])
        case _:
            inside = _valid(node, index)
            return values[0] if inside is None else inside.where(values[0], values[0].const_like(0))


def _combines_nothing(node: UOp) -> bool:
    """Whether a node is a reduction over an axis of no elements, whose operand need not have any memory."""
    return node.op is Ops.REDUCE_AXIS and 0 in [node.src[0].shape[axis] for axis in node.arg[1]]


def flat_index(index: Sequence[UOp], shape: Sequence[int]) -> UOp:
    """The row-major position of an index."""
    position = UOp.index(0)
    for term, stride in zip(index, row_major_strides(shape)):
        position = position + term * stride
    return position


def _reshape(node: UOp, index: Index) -> Index:
    """Axes are regrouped only where it is needed: (2, 3, 4) -> (6, 4) leaves the last axis alone.

    The first axis of a group needs no remainder: an index outside of the shape is masked out.
    """
    old: list[UOp] = []
    for old_sizes, new_sizes, first in _axis_groups(node.src[0].shape, node.shape):
        part = index[first : first + len(new_sizes)]
        if old_sizes == new_sizes:
            old.extend(part)
            continue
        position = flat_index(part, new_sizes)
        strides = row_major_strides(old_sizes)
        for axis, (stride, size) in enumerate(zip(strides, old_sizes)):
            quotient = position // stride
            old.append(quotient % size if axis else quotient)
    return tuple(old)


def _axis_groups(old: Shape, new: Shape) -> list[tuple[Shape, Shape, int]]:
    """The shortest runs of axes with the same number of elements: (old sizes, new sizes, start)."""
    if 0 in old:
        return [(old, new, 0)]
    if not is_plain((*old, *new)):
        return _groups_of_variable_sizes(old, new)
    groups: list[tuple[Shape, Shape, int]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        i0, j0 = i, j
        count_old = count_new = 1
        if i < len(old):
            count_old, i = old[i], i + 1
        if j < len(new):
            count_new, j = new[j], j + 1
        while count_old != count_new:
            if (count_old < count_new and i < len(old)) or j == len(new):
                count_old, i = count_old * old[i], i + 1
            else:
                count_new, j = count_new * new[j], j + 1
        groups.append((old[i0:i], new[j0:j], j0))
    return groups


def _groups_of_variable_sizes(old: Shape, new: Shape) -> list[tuple[Shape, Shape, int]]:
    """Axes that are the same from the front and from the back alone; what is between together."""
    front = 0
    while front < min(len(old), len(new)) and old[front] == new[front]:
        front += 1
    back = 0
    while back < min(len(old), len(new)) - front and old[-1 - back] == new[-1 - back]:
        back += 1
    groups: list[tuple[Shape, Shape, int]] = [((old[k],), (new[k],), k) for k in range(front)]
    middle = (old[front : len(old) - back], new[front : len(new) - back], front)
    if middle[0] or middle[1]:
        groups.append(middle)
    ends = range(len(new) - back, len(new))
    return groups + [((new[k],), (new[k],), k) for k in ends]


def _permute(node: UOp, index: Index) -> Index:
    source = list(index)
    for k, axis in enumerate(node.arg):
        source[axis] = index[k]
    return tuple(source)


def _expand(node: UOp, index: Index) -> Index:
    return tuple([UOp.index(0) if n == 1 else i for i, n in zip(index, node.src[0].shape)])


def _pad(node: UOp, index: Index) -> Index:
    return tuple([i + -before if before else i for i, (before, _) in zip(index, node.arg)])


def _shrink(node: UOp, index: Index) -> Index:
    return tuple([i + begin if begin else i for i, (begin, _) in zip(index, node.arg)])


def _flip(node: UOp, index: Index) -> Index:
    flips = zip(index, node.arg, node.shape)
    return tuple([i * -1 + (size - 1) if flipped else i for i, flipped, size in flips])


def _skew(node: UOp, index: Index) -> Index:
    axis, by, step, _ = node.arg
    return index[:axis] + (index[axis] + index[by] * step,) + index[axis + 1 :]


SOURCE_INDEX: dict[Ops, Callable[[UOp, Index], Index]] = {
    Ops.RESHAPE: _reshape,
    Ops.PERMUTE: _permute,
    Ops.EXPAND: _expand,
    Ops.PAD: _pad,
    Ops.SHRINK: _shrink,
    Ops.FLIP: _flip,
    Ops.SKEW: _skew,
}


def _valid(node: UOp, index: Index) -> UOp | None:
    """Where the source of a PAD or SKEW has an element; None: everywhere."""
    bounds: list[UOp] = []
    source_shape = node.src[0].shape if node.src else ()
    match node.op:
        case Ops.PAD:
            inner = _pad(node, index)
            padded = [k for k, (before, after) in enumerate(node.arg) if before or after]
        case Ops.SKEW:
            inner, padded = _skew(node, index), [node.arg[0]]
        case _:
            return None
    for axis in padded:
        bounds += [~(inner[axis] < 0), inner[axis] < source_shape[axis]]
    return _all(bounds)


def _all(conditions: list[UOp]) -> UOp | None:
    result: UOp | None = None
    for condition in conditions:
        result = condition if result is None else result & condition
    return result
