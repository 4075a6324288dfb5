"""What the stages before the cut make of a tensor graph, beside the graph that they were given.

Owns: the proof that a reduction in parts takes in each element once, for the result that it belongs to; samples of graphs that
rules have rewritten. Does not own: the cut and the launches (launch_plan.py), kernels (sampled/kernels.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from math import prod

import numpy

from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.verify.sampled.arithmetic import Values
from proofgrad.verify.sampled.freedom import Estimate
from proofgrad.verify.sampled.inputs import PRIME, rows_of_corners
from proofgrad.verify.sampled.launch_plan import PlanError
from proofgrad.verify.sampled.tensor import (
    Budget,
    Index,
    OverBudgetError,
    TensorElements,
    flat_elements,
    reads_of,
    values_of_one,
)

# Of more elements so many are followed, drawn at random; with PROVE=1 all of them, so many at a time.
FOLLOWED, AT_ONCE = 4096, 1 << 20
# Elements of each root that are compared, and about so many values are computed of one more in which corners meet.
POINTS, OF_CORNERS = 3, 20_000
# This part of what may be computed for a root is little.
SMALL = 8
_CUTS = frozenset({Ops.REDUCE_AXIS, Ops.CONTIGUOUS})
# What may lie between the parts of a reduction, beside the operation that combines them.
_MOVES = (Ops.RESHAPE, Ops.PERMUTE, Ops.SHRINK, Ops.CONTIGUOUS)
Draw = Callable[[int, DType, Values, Values], Values]


# -- reductions in parts ----------------------------------------------------------------------------


def check_parts(before: UOp, after: UOp, every: bool) -> None:
    """Two tensor graphs are one, but for reductions that became several. Raises: PlanError.

    `every`: all elements of such a reduction are followed, which proves it; else some.
    """
    stack, seen = [(before, after)], set[tuple[UOp, UOp]]()
    while stack:
        old, new = stack.pop()
        if old is new or (old, new) in seen:
            continue
        seen.add((old, new))
        if (old.op, old.dtype, old.arg, len(old.src)) == (new.op, new.dtype, new.arg, len(new.src)):
            stack += list(zip(old.src, new.src))
        elif old.op is Ops.REDUCE_AXIS:
            stack.append((old.src[0], _in_parts(old, new, every)))
        else:
            raise PlanError("split reductions", f"{old.op.name} became {new.op.name}")


def _in_parts(old: UOp, new: UOp, every: bool) -> UOp:
    """The value that both reduce, in the graph after. Raises: PlanError."""
    value, nodes = _parts(old, new)
    if (new.shape, value.shape) != (old.shape, old.src[0].shape):
        raise PlanError("split reductions", "a result of another shape")
    for positions in _positions(value.shape, every, _at_ends(nodes, value)):
        which = numpy.arange(len(positions))
        arrived = {value: (which, positions)}
        for node in nodes:
            into = [_after(node, source, *arrived[source]) for source in node.src]
            arrived[node] = tuple([numpy.concatenate(part) for part in zip(*into)])  # type: ignore[assignment]
        which, where = arrived[new]
        times = numpy.bincount(which, minlength=len(positions))
        if (times != 1).any():
            least = times.min()
            found = "is left out" if least == 0 else f"is taken in {times.max()} times"
            raise PlanError("split reductions", f"an element {found}")
        if (where != _after(old, old.src[0], which, positions[which])[1]).any():
            raise PlanError("split reductions", "an element goes into another result")
    return value


def _parts(old: UOp, new: UOp) -> tuple[UOp, list[UOp]]:
    """The value that is reduced, and what lies between it and the result, sources first. Raises: PlanError.

    The value is what the first reductions read: the first node of its shape below one.
    """
    op, values, nodes = old.arg[0], list[UOp](), dict[tuple[UOp, bool], None]()
    stack = [(new, False)]
    while stack:
        node, is_below = stack.pop()
        if is_below and node.shape == old.src[0].shape:
            values.append(node)
            continue
        if (node, is_below) in nodes:
            continue
        is_reduction = node.op is Ops.REDUCE_AXIS and node.arg[0] is op
        if not is_reduction and node.op not in (*_MOVES, op):
            raise PlanError("split reductions", f"{node.op.name} in a reduction by {op.name}")
        if node.dtype is not old.dtype:
            raise PlanError(
                "split reductions", f"a part of type {node.dtype} of one of {old.dtype}"
            )
        nodes[node, is_below] = None
        stack += [(source, is_below or is_reduction) for source in node.src]
    if any(value is not values[0] for value in values):
        raise PlanError("split reductions", "parts of several values")
    between = {node for node, _ in nodes}
    if values[0] in between:
        raise PlanError("split reductions", "a part that is not reduced")
    return values[0], [n for n in toposort((new,), lambda n: n in between) if n in between]


def _at_ends(nodes: list[UOp], value: UOp) -> Values:
    """Elements of the value that lie at the ends of parts, inside and outside."""
    found = [0, max(0, prod(value.shape) - 1)]
    for node in nodes:
        if node.op is not Ops.SHRINK:
            continue
        shape = node.src[0].shape
        for axis, (begin, end) in enumerate(node.arg):
            for at in {begin - 1, begin, end - 1, end}.intersection(range(shape[axis])):
                index = [at if a == axis else first for a, (first, _) in enumerate(node.arg)]
                found.append(_before(node.src[0], tuple(index), value))
    return numpy.array(found)


def _before(node: UOp, index: tuple[int, ...], value: UOp) -> int:
    """An element of the value that goes to an element of a node, as a row-major position."""
    while node is not value:
        source = node.src[0]
        match node.op:
            case Ops.PERMUTE:
                index = tuple([index[node.arg.index(axis)] for axis in range(len(index))])
            case Ops.SHRINK:
                index = tuple([at + begin for at, (begin, _) in zip(index, node.arg)])
            case Ops.RESHAPE:
                position = numpy.ravel_multi_index(index, node.shape) if index else 0
                index = tuple([int(at) for at in numpy.unravel_index(position, source.shape)])
        node = source
    return int(numpy.ravel_multi_index(index, value.shape))


def _positions(shape: tuple[int, ...], every: bool, always: Values) -> Iterator[Values]:
    count = prod(shape)
    if not every and count > FOLLOWED:
        yield numpy.append(numpy.random.default_rng(count).integers(0, count, FOLLOWED), always)
        return
    for start in range(0, count, AT_ONCE):
        yield numpy.arange(start, min(count, start + AT_ONCE))


def _after(node: UOp, source: UOp, which: Values, positions: Values) -> tuple[Values, Values]:
    """Which elements of a source of a node go into it, and where, as row-major positions."""
    shape = source.shape
    match node.op:
        case Ops.PERMUTE:
            index = numpy.unravel_index(positions, shape)
            return which, numpy.ravel_multi_index([index[axis] for axis in node.arg], node.shape)
        case Ops.REDUCE_AXIS:
            index = numpy.unravel_index(positions, shape)
            axes = node.arg[1]
            left = [part * 0 if axis in axes else part for axis, part in enumerate(index)]
            return which, numpy.ravel_multi_index(left, node.shape)
        case Ops.SHRINK:
            index = numpy.unravel_index(positions, shape)
            kept: list[Values] = [part - begin for part, (begin, _) in zip(index, node.arg)]
            inside = numpy.ones(len(positions), numpy.bool_)
            for part, (begin, end) in zip(index, node.arg):
                inside &= (begin <= part) & (part < end)
            within = [part[inside] for part in kept]
            return which[inside], numpy.ravel_multi_index(tuple(within), node.shape)
        case _:  # RESHAPE, CONTIGUOUS, and what combines results element by element
            return which, positions


# -- graphs that rules have rewritten ---------------------------------------------------------------


def compare_graphs(before: UOp, after: UOp, draw: Draw, most_values: int) -> int:
    """How many elements of roots were compared. Raises: PlanError, OverBudgetError.

    What both graphs hold may be any value: nodes that they share are leaves, where that is enough.
    """
    known = toposort((before,))
    shared = set(known).intersection(toposort((after,)))
    memory = [n for n in known if n.op is Ops.BUFFER]
    results = [n for n in known if n in shared and n.op in _CUTS]
    leaves = {n: k for k, n in enumerate(memory)}
    cut = leaves | {n: len(memory) + k for k, n in enumerate(results)}
    affordable = OF_CORNERS // max(values_of_one(known), values_of_one(toposort((after,))))
    corners = rows_of_corners(*reads_of(known, leaves), affordable)[: PRIME**2]
    compare = _Comparison(leaves, cut, draw, numpy.append(numpy.arange(POINTS), corners))
    points, in_places = 0, True
    for number, (old, new) in enumerate(zip(before.src, after.src)):
        if old is new or not prod(old.shape):
            continue
        found = None
        if not in_places:  # rules have changed this root as they have changed the one before
            with suppress(OverBudgetError):
                found = compare.whole(old, new, Budget(most_values // SMALL))
        if found is None:
            budget = Budget(most_values)
            found = compare.in_places(old, new, budget)
            in_places = found is not None
            if found is None:
                found = compare.whole(old, new, budget)
        if found is None:
            raise PlanError(f"root {number}", "rules made another value of it")
        points += found
    return points


@dataclass(slots=True)
class _Comparison:
    """Elements of two graphs, beside each other."""

    leaves: dict[UOp, int]  # memory
    cut: dict[UOp, int]  # and what both graphs hold
    draw: Draw
    kind: Values  # of the memory that each element sees
    _same: dict[tuple[UOp, UOp], int | None] = field(default_factory=dict)
    _positions: dict[tuple[int, ...], Index] = field(
        default_factory=dict
    )  # of the elements, by shape
    _known: dict[bool, TensorElements] = field(default_factory=dict)

    def in_places(self, old: UOp, new: UOp, budget: Budget) -> int | None:
        """How many elements were compared where the graphs begin to differ; None where these do not agree."""
        points = 0
        stack, seen = [(old, new)], set[tuple[UOp, UOp]]()
        while stack:
            pair = stack.pop()
            one, other = pair
            if one is other or pair in seen:
                continue
            seen.add(pair)
            alike = (one.op, one.dtype, one.arg) == (other.op, other.dtype, other.arg)
            if alike and [s.shape for s in one.src] == [s.shape for s in other.src] and one.src:
                stack += list(zip(one.src, other.src))
                continue
            if pair not in self._same:
                try:
                    self._same[pair] = self.whole(one, other, budget)
                except OverBudgetError:
                    self._same[pair] = None
            found = self._same[pair]
            if found is None:
                return None
            points += found
        return points

    def whole(self, old: UOp, new: UOp, budget: Budget) -> int | None:
        """How many elements were compared; None where they differ. Raises: OverBudgetError."""
        found = self._compared(old, new, self.cut, budget)
        if found is not None or self.cut.keys() == self.leaves.keys():
            return found
        return self._compared(old, new, self.leaves, budget)

    def _compared(self, old: UOp, new: UOp, leaves: dict[UOp, int], budget: Budget) -> int | None:
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            return None
        size = prod(old.shape)
        if not size:
            return 0
        if old.shape not in self._positions:
            where = numpy.random.default_rng(size).integers(0, size, POINTS)
            where = numpy.append(where, numpy.repeat(where[:1], len(self.kind) - POINTS))
            self._positions[old.shape] = flat_elements(old.shape, where)
        elements, index = self._elements(leaves), self._positions[old.shape]
        elements.budget = budget
        one, other = elements.at(old, index), elements.at(new, index)
        one = one.less_sure(other)
        agrees = one.agrees(other.values, old.dtype)
        return (
            int(numpy.broadcast_to(one.is_known(), len(self.kind)).sum()) if agrees.all() else None
        )

    def _elements(self, leaves: dict[UOp, int]) -> TensorElements:
        """One for all nodes: both graphs hold most of them, and at the same positions."""
        is_cut = leaves is self.cut
        if is_cut not in self._known:
            kind, draw = self.kind, self.draw

            def read(node: UOp, index: Values) -> Estimate:
                return Estimate(draw(leaves[node], node.dtype, numpy.asarray(index), kind))

            self._known[is_cut] = TensorElements(read, Budget(0), leaves)
        return self._known[is_cut]
