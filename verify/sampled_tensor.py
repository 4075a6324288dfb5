"""Elements of a tensor graph, computed from what each operation means, for many indices at once.

Owns: the meaning of movement operations as maps of indices (apart from the compiler's own), reductions
as an axis of their own, memory of what was computed. Does not own: the values of operations
(sampled_arithmetic.py), what they leave free (sampled_freedom.py), what memory holds.

An index is one array for each axis of a node, or the number 0. The last axis of all arrays
counts the samples; each reduction below the other adds an axis in front.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy

from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.shapes import row_major_strides
from proofgrad.core.ir.uop import UOp
from proofgrad.verify.sampled_arithmetic import Values, constant, kept_as
from proofgrad.verify.sampled_freedom import Estimate, estimate, estimate_reduction

# Operations whose sources' indices are computed from several parts of an index at once.
_JOIN_AXES = frozenset({Ops.RESHAPE, Ops.PAD, Ops.SKEW})

Index = tuple[Any, ...]
Read = Callable[[UOp, Values], Estimate]


class OverBudgetError(Exception):
    """More work than a sample may cost."""


@dataclass(slots=True)
class Budget:
    """How much may still be computed: values, and for each operation on arrays as much as so many values."""

    left: int

    CALL = 400

    def spend(self, values: int) -> None:
        """Raises: OverBudgetError when nothing is left."""
        self.left -= values + self.CALL
        if self.left < 0:
            raise OverBudgetError


@dataclass(slots=True)
class TensorElements:
    """Elements of nodes. `read` gives those of leaves: PARAM, BUFFER, whatever `is_leaf` names."""

    read: Read
    budget: Budget
    is_leaf: Callable[[UOp], bool] = lambda node: node.op in (Ops.PARAM, Ops.BUFFER)
    _known: dict[tuple[Any, ...], Estimate] = field(default_factory=dict)
    _alive: list[Any] = field(default_factory=list)  # arrays that keys name by their number

    def at(self, root: UOp, index: Index) -> Estimate:
        """The elements of `root` at an index. Raises: OverBudgetError."""
        stack: list[tuple[UOp, Index, int]] = [(root, index, 1)]
        while stack:
            node, where, depth = stack[-1]
            key = self._key(node, where, depth)
            if key in self._known:
                stack.pop()
                continue
            missing = self._step(node, where, depth, key)
            if missing is None:
                stack.pop()
            else:
                stack.extend(missing)
        return self._known[self._key(root, index, 1)]

    def _key(self, node: UOp, index: Index, depth: int) -> tuple[Any, ...]:
        return (node, depth, *map(id, index))

    def _step(
        self, node: UOp, index: Index, depth: int, key: tuple[Any, ...]
    ) -> list[tuple[UOp, Index, int]] | None:
        """Compute a node, or name those of which it needs the elements first."""
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._plan(node, index, depth)
        needed, finish = plan
        missing = [each for each in needed if self._key(*each) not in self._known]
        if missing:
            return missing
        found = finish([self._known[self._key(*each)] for each in needed])
        self.budget.spend(numpy.size(found.values))
        self._known[key] = found
        self._alive.append(index)
        return None

    _plans: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    def _plan(
        self, node: UOp, index: Index, depth: int
    ) -> tuple[list[tuple[UOp, Index, int]], Callable[[list[Estimate]], Estimate]]:
        """What a node needs, and what it makes of it."""
        self._alive.append(index)
        if self.is_leaf(node) or node.op in _JOIN_AXES:
            self.budget.spend(_extent(index))  # before there are arrays of that size
        if self.is_leaf(node):
            flat = _flat(index, node.shape)
            return [], lambda _: self.read(node, flat)
        match node.op:
            case Ops.CONST:
                return [], lambda _: Estimate(constant(node.dtype, node.arg))
            case Ops.IOTA:
                return [], lambda _: Estimate(numpy.asarray(index[0]).astype(kept_as(node.dtype)))
            case Ops.DETACH | Ops.CONTIGUOUS | Ops.COPY:
                return [(node.src[0], index, depth)], lambda found: found[0]
            case Ops.REDUCE_AXIS:
                return self._reduction(node, index, depth)
            case Ops.PAD | Ops.SKEW:
                return self._padded(node, index, depth)
            case Ops.RESHAPE | Ops.PERMUTE | Ops.EXPAND | Ops.SHRINK | Ops.FLIP:
                return [(node.src[0], source_index(node, index), depth)], lambda found: found[0]
            case op if op in ELEMENTWISE:
                types = [s.dtype for s in node.src]
                return (
                    [(s, index, depth) for s in node.src],
                    lambda found: estimate(op, node.dtype, found, types),
                )
        raise OverBudgetError  # no node of a body

    def _reduction(self, node: UOp, index: Index, depth: int) -> Any:
        (source,), (op, axes) = node.src, node.arg
        sizes = [source.shape[axis] for axis in axes]
        terms = prod(sizes)
        self.budget.spend(terms)
        counter = numpy.arange(terms).reshape(terms, *[1] * depth)
        inner = list(index)
        for axis, part in zip(axes, _unflattened(counter, sizes)):
            inner[axis] = part

        def combined(found: list[Estimate]) -> Estimate:
            (each,) = found
            each = Estimate(_of_depth(each.values, depth + 1), each.error)
            if each.error is not None:
                each = Estimate(each.values, _of_depth(each.error, depth + 1))
            self.budget.spend(terms * prod(each.values.shape[1:]))
            return estimate_reduction(op, node.dtype, each, terms)

        return [(source, tuple(inner), depth + 1)], combined

    def _padded(self, node: UOp, index: Index, depth: int) -> Any:
        """Inside of the source its element, outside 0."""
        source = source_index(node, index)
        inside: Any = True
        cut: list[Any] = []
        for part, size in zip(source, node.src[0].shape):
            inside = inside & (numpy.asarray(part) >= 0) & (numpy.asarray(part) < size)
            cut.append(numpy.clip(part, 0, max(0, size - 1)))
        if not numpy.any(inside):
            return [], lambda _: Estimate(constant(node.dtype, 0))

        def chosen(found: list[Estimate]) -> Estimate:
            zero = constant(node.dtype, 0)
            values = numpy.where(inside, found[0].values, zero)
            error = found[0].error
            return Estimate(values, None if error is None else numpy.where(inside, error, 0.0))

        return [(node.src[0], tuple(cut), depth)], chosen


def _extent(index: Index) -> int:
    """How many elements an array has that depends on every part of an index."""
    return prod(numpy.broadcast_shapes(*[numpy.shape(part) for part in index]))


def _of_depth(values: Values, depth: int) -> Values:
    """With so many axes: those in front are 1 long."""
    return values.reshape((1,) * (depth - values.ndim) + values.shape)


def source_index(node: UOp, index: Index) -> Index:
    """Where the element of a movement operation at an index lies in its source."""
    shape, arg = node.src[0].shape, node.arg
    match node.op:
        case Ops.RESHAPE:
            return _unflattened(_flat(index, node.shape), shape)
        case Ops.PERMUTE:
            where = dict(zip(arg, index))
            return tuple([where[axis] for axis in range(len(shape))])
        case Ops.EXPAND:
            return tuple([0 if size == 1 else part for part, size in zip(index, shape)])
        case Ops.PAD:
            return tuple(
                [part - before if before else part for part, (before, _) in zip(index, arg)]
            )
        case Ops.SHRINK:
            return tuple([part + begin if begin else part for part, (begin, _) in zip(index, arg)])
        case Ops.FLIP:
            ends = zip(index, arg, shape)
            return tuple([size - 1 - part if turned else part for part, turned, size in ends])
        case _:  # SKEW
            axis, by, step, _ = arg
            moved = list(index)
            moved[axis] = index[axis] + step * index[by]
            return tuple(moved)


def _flat(index: Index, shape: Sequence[int]) -> Any:
    """The row-major position of an index."""
    position: Any = 0
    for part, stride, size in zip(index, row_major_strides(tuple(shape)), shape):
        if size > 1:
            position = position + (part if stride == 1 else part * stride)
    return position


def _unflattened(position: Any, shape: Sequence[int]) -> Index:
    """The index of a row-major position."""
    found: list[Any] = []
    total = prod(shape)
    for stride, size in zip(row_major_strides(tuple(shape)), shape):
        if size == 1:
            found.append(0)
            continue
        digit = position if stride == 1 else position // stride
        found.append(digit if stride * size == total else digit % size)
    return tuple(found)


def flat_elements(shape: Sequence[int], position: Values) -> Index:
    """The index of each row-major position."""
    return _unflattened(position, shape)
