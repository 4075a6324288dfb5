"""Elements of a tensor graph, computed from what each operation means, for many indices at once.

Owns: the meaning of movement operations as maps of indices (apart from the compiler's own), reductions
as an axis of their own, memory of what was computed. Does not own: the values of operations
(sampled/arithmetic.py), what they leave free (sampled/freedom.py), what memory holds.

An index is one array for each axis of a node, or the number 0. The last axis of all arrays
counts the samples; each reduction below the other adds an axis in front.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy

from proofgrad.core.ir.op_names import RESHAPE
from proofgrad.core.ir.ops import ELEMENTWISE, MOVEMENT, Ops
from proofgrad.core.ir.shapes import Shape, row_major_strides
from proofgrad.core.ir.uop import UOp
from proofgrad.verify.sampled.arithmetic import Values, constant, kept_as
from proofgrad.verify.sampled.freedom import Estimate, estimate_reduction, estimation

_MOVEMENT = frozenset({Ops.RESHAPE, Ops.PERMUTE, Ops.EXPAND, Ops.SHRINK, Ops.FLIP})

_MEMORY = frozenset({Ops.PARAM, Ops.BUFFER})

Index = tuple[Any, ...]
Key = tuple[Any, ...]
Asked = tuple[Key, UOp, Index, int]  # elements of a node, by what they are known
Plan = tuple[
    list[Asked], Callable[..., Estimate]
]  # what an element needs, and how it is made of it
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


# Reductions in one another: each adds an axis to the arrays, and numpy has no more of them (32 before its version 2).
MOST_NESTED = 64 if int(numpy.__version__.split(".")[0]) > 1 else 32


@dataclass(slots=True)
class TensorElements:
    """Elements of nodes. `read` gives those of memory, and of nodes where the graph is cut."""

    read: Read
    budget: Budget
    cut: Container[UOp] = ()
    _known: dict[Key, Estimate] = field(default_factory=dict)
    _moved: dict[Key, Asked] = field(default_factory=dict)
    _alive: list[Any] = field(default_factory=list)  # arrays that keys name by their number

    def at(self, root: UOp, index: Index) -> Estimate:
        """The elements of `root` at an index. Raises: OverBudgetError."""
        known, budget = self._known, self.budget
        asked = self._asked(root, index, 1)
        plans: dict[Key, tuple[list[Asked], Callable[..., Estimate]]] = {}
        stack = [asked]
        while stack:
            key, node, where, depth = stack[-1]
            if key in known:
                stack.pop()
                continue
            plan = plans.get(key)
            if plan is None:
                self._alive.append(where)
                plan = plans[key] = self._plan(node, where, depth)
                missing = [each for each in plan[0] if each[0] not in known]
                if missing:
                    stack += missing
                    continue
            needed, finish = plan
            parts = [known[each[0]] for each in needed]
            if len(parts) > 1 and _extent_of({p.values.shape for p in parts}) > budget.left:
                raise OverBudgetError  # before there are arrays of that size
            found = known[key] = finish(*parts)
            budget.left -= found.values.size + Budget.CALL
            if budget.left < 0:
                raise OverBudgetError
            stack.pop()
        return known[asked[0]]

    def _asked(self, node: UOp, index: Index, depth: int) -> Asked:
        """The elements of a node; of one that moves elements, those of its source."""
        key = (node, depth, *map(id, index))
        if node.op not in _MOVEMENT or node in self.cut:
            return key, node, index, depth
        found = self._moved.get(key)
        if found is None:
            self._alive.append(index)
            while node.op in _MOVEMENT and node not in self.cut:
                if node.op is RESHAPE:
                    self.budget.spend(_extent(index))  # before there are arrays of that size
                index, node = source_index(node, index), node.src[0]
            self._alive.append(index)
            found = self._moved[key] = (node, depth, *map(id, index)), node, index, depth
        return found

    def _plan(
        self, node: UOp, index: Index, depth: int
    ) -> tuple[list[Asked], Callable[..., Estimate]]:
        """What a node needs, and what it makes of it."""
        op = node.op
        if op in _MEMORY or node in self.cut:
            self.budget.spend(_extent(index))  # before there are arrays of that size
            flat = _flat(index, node.shape)
            return [], lambda: self.read(node, flat)
        if op in ELEMENTWISE:
            types = tuple([s.dtype for s in node.src])
            asked = [self._asked(s, index, depth) for s in node.src]
            return asked, estimation(op, node.dtype, types)
        match op:
            case Ops.CONST:
                found = Estimate(constant(node.dtype, node.arg))
                return [], lambda: found
            case Ops.IOTA:
                return [], lambda: Estimate(numpy.asarray(index[0]).astype(kept_as(node.dtype)))
            case Ops.DETACH | Ops.CONTIGUOUS | Ops.COPY:
                return [self._asked(node.src[0], index, depth)], _same
            case Ops.REDUCE_AXIS:
                return self._reduction(node, index, depth)
            case Ops.PAD | Ops.SKEW:
                self.budget.spend(_extent(index))
                return self._padded(node, index, depth)
        raise OverBudgetError  # no node of a body

    def _reduction(self, node: UOp, index: Index, depth: int) -> Plan:
        (source,), (op, axes) = node.src, node.arg
        sizes = [source.shape[axis] for axis in axes]
        terms = prod(sizes)
        self.budget.spend(terms)
        if depth >= MOST_NESTED:
            raise OverBudgetError
        counter = numpy.arange(terms).reshape(terms, *[1] * depth)
        inner = list(index)
        for axis, part in zip(axes, _unflattened(counter, sizes)):
            inner[axis] = part

        def combined(each: Estimate) -> Estimate:
            error, out_of_range = [
                None if part is None else _of_depth(part, depth + 1)
                for part in (each.error, each.out_of_range)
            ]
            values = _of_depth(each.values, depth + 1)
            each = replace(each, values=values, error=error, out_of_range=out_of_range)
            self.budget.spend(terms * prod(each.values.shape[1:]))
            return estimate_reduction(op, node.dtype, each, terms)

        return [self._asked(source, tuple(inner), depth + 1)], combined

    def _padded(self, node: UOp, index: Index, depth: int) -> Plan:
        """Inside of the source its element, outside 0."""
        source = source_index(node, index)
        inside: Any = None
        cut = list(source)
        for axis, (part, size) in enumerate(zip(source, node.src[0].shape)):
            if node.op is Ops.PAD and not any(node.arg[axis]):
                continue
            within = numpy.asarray(part).astype(numpy.uint64) < size  # not below 0 either
            inside = within if inside is None else inside & within
            cut[axis] = numpy.minimum(numpy.maximum(part, 0), max(0, size - 1))
        if inside is None:
            return [self._asked(node.src[0], source, depth)], _same
        zero = constant(node.dtype, 0)
        if not inside.any():
            return [], lambda: Estimate(zero)

        def chosen(found: Estimate) -> Estimate:
            values, error = numpy.where(inside, found.values, zero), found.error
            error = None if error is None else numpy.where(inside, error, 0.0)
            return replace(found, values=values, error=error)

        return [self._asked(node.src[0], tuple(cut), depth)], chosen


def _same(found: Estimate) -> Estimate:
    return found


def _extent(index: Index) -> int:
    """How many elements an array has that depends on every part of an index."""
    return _extent_of({part.shape for part in index if type(part) is not int})


def _extent_of(shapes: set[Shape]) -> int:
    """How many elements arrays of these shapes have together, each repeated along the axes of the others."""
    if len(shapes) < 2:
        return prod(shapes.pop()) if shapes else 1
    depth = max([len(shape) for shape in shapes])
    padded = [(1,) * (depth - len(shape)) + shape for shape in shapes]
    return prod([max(sizes) if 0 not in sizes else 0 for sizes in zip(*padded)])


def _of_depth(values: Values, depth: int) -> Values:
    """With so many axes: those in front are 1 long."""
    return values.reshape((1,) * (depth - values.ndim) + values.shape)


def source_index(node: UOp, index: Index) -> Index:
    """Where the element of a movement operation at an index lies in its source."""
    shape, arg = node.src[0].shape, node.arg
    match node.op:
        case Ops.RESHAPE:
            long = [part for part, size in zip(index, node.shape) if size != 1]
            if [size for size in node.shape if size != 1] == [size for size in shape if size != 1]:
                parts = iter(long)
                return tuple([0 if size == 1 else next(parts) for size in shape])
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
        if size != 1:
            position = position + (part if stride == 1 else part * stride)
    return position


def _unflattened(position: Any, shape: Sequence[int]) -> Index:
    """The index of a row-major position."""
    found: list[Any] = []
    total = prod(shape)
    if not total:  # there are no positions, in as many axes
        return (position,) * len(shape)
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


def values_of_one(nodes: Sequence[UOp]) -> int:
    """About how many values one element of a graph is made of; its nodes are given, sources first."""
    times: dict[UOp, int] = dict.fromkeys(nodes, 1)
    total = 0
    for node in reversed(nodes):
        here = times[node]
        total += here
        if node.op is Ops.REDUCE_AXIS:
            here *= prod([node.src[0].shape[axis] for axis in node.arg[1]])
        if here > 1:
            for source in node.src:
                if times[source] < here:
                    times[source] = here
    return total


def reads_of(nodes: Sequence[UOp], memories: Collection[UOp]) -> tuple[int, int]:
    """How many memories a graph reads, and how many views of them; its nodes are given, sources first."""
    views = set(memories)
    used: set[UOp] = set()
    for node in nodes:
        if node.op in MOVEMENT and node.src[0] in views:
            views.add(node)
        else:
            used.update(views.intersection(node.src))
    return len(memories), len(used)
