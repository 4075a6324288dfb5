"""What the stages before the cut make of a tensor graph, beside the graph that they were given.

Owns: the proof that a reduction in parts takes in each element once, for the result that it belongs to; samples of graphs that
rules have rewritten. Does not own: the cut and the launches (launch_plan.py), kernels (sampled_kernels.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import prod

import numpy

from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.verify.launch_plan import PlanError
from proofgrad.verify.sampled_arithmetic import Values
from proofgrad.verify.sampled_freedom import Estimate
from proofgrad.verify.sampled_tensor import Budget, OverBudgetError, TensorElements, flat_elements

# Of more elements so many are followed, drawn at random; with PROVE=1 all of them, so many at a time.
FOLLOWED, AT_ONCE = 4096, 1 << 20
# Elements of each root that are compared.
POINTS = 3
_MOVES = frozenset({Ops.RESHAPE, Ops.PERMUTE, Ops.CONTIGUOUS, Ops.SHRINK})
_CUTS = frozenset({Ops.REDUCE_AXIS, Ops.CONTIGUOUS})
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
    chains = _chains(old, new)
    found = {chain[-1].src[0] for chain in chains}
    if len(found) > 1:
        raise PlanError("split reductions", "the parts of a reduction are of different values")
    (value,) = found
    for positions in _positions(prod(value.shape), every):
        wanted = _after(old, positions)
        taken = numpy.zeros(len(positions), numpy.int64)
        for chain in chains:
            place, inside = _through(chain, positions)
            if (place != wanted)[inside].any():
                raise PlanError("split reductions", "an element goes into another result")
            taken += inside
        if (taken != 1).any():
            raise PlanError("split reductions", "an element is in no part, or in two")
    return value


def _chains(old: UOp, new: UOp) -> list[list[UOp]]:
    """The ways from a reduction in parts down to its value, each a chain of nodes. Raises: PlanError."""
    op, shape = old.arg[0], old.src[0].shape
    if new.shape != old.shape:
        raise PlanError("split reductions", f"results of shape {new.shape}, not {old.shape}")
    ends: list[list[UOp]] = []
    waiting: list[tuple[UOp, list[UOp], int]] = [(new, [], 1)]
    while waiting:
        node, chain, least = waiting.pop()  # `least`: reductions above the value
        reductions = sum([n.op is Ops.REDUCE_AXIS for n in chain])
        if node.shape == shape and reductions > least:
            ends.append(chain)
            continue
        if node.dtype is not old.dtype:
            raise PlanError(
                "split reductions", f"a part of type {node.dtype} of one of {old.dtype}"
            )
        if node.op is op:
            waiting += [(source, chain, 0) for source in node.src]
        elif node.op in _MOVES or (node.op is Ops.REDUCE_AXIS and node.arg[0] is op):
            waiting.append((node.src[0], [*chain, node], least))
        else:
            raise PlanError("split reductions", f"{node.op.name} in a reduction by {op.name}")
    return ends


def _through(chain: list[UOp], positions: Values) -> tuple[Values, Values]:
    """Where elements of the value go, and which of them are in the part that a chain reduces."""
    inside = numpy.ones(len(positions), bool)
    for node in reversed(chain):
        if node.op is not Ops.SHRINK:
            positions = _after(node, positions)
            continue
        index = numpy.unravel_index(positions, node.src[0].shape)
        kept: list[Values] = []
        for place, (begin, end) in zip(index, node.arg, strict=True):
            inside &= (begin <= place) & (place < end)
            kept.append(numpy.clip(place - begin, 0, end - begin - 1))
        positions = numpy.ravel_multi_index(kept, node.shape)
    return positions, inside


def _positions(count: int, every: bool) -> Iterator[Values]:
    if not every and count > FOLLOWED:
        yield numpy.random.default_rng(count).integers(0, count, FOLLOWED)
        return
    for start in range(0, count, AT_ONCE):
        yield numpy.arange(start, min(count, start + AT_ONCE))


def _after(node: UOp, positions: Values) -> Values:
    """Where the elements of the source of a node go, as row-major positions."""
    shape = node.src[0].shape
    match node.op:
        case Ops.PERMUTE:
            index = numpy.unravel_index(positions, shape)
            return numpy.ravel_multi_index([index[axis] for axis in node.arg], node.shape)
        case Ops.REDUCE_AXIS:
            index = numpy.unravel_index(positions, shape)
            axes = node.arg[1]
            kept = [part * 0 if axis in axes else part for axis, part in enumerate(index)]
            return numpy.ravel_multi_index(kept, node.shape)
        case _:  # RESHAPE, CONTIGUOUS
            return positions


# -- graphs that rules have rewritten ---------------------------------------------------------------


def compare_graphs(before: UOp, after: UOp, draw: Draw, kinds: int, most_values: int) -> int:
    """How many elements of roots were compared. Raises: PlanError, OverBudgetError.

    What both graphs hold may be any value: nodes that they share are leaves, where that is enough.
    """
    known = toposort((before,))
    shared = set(known).intersection(toposort((after,)))
    leaves = {n: k for k, n in enumerate(known) if n.op is Ops.BUFFER}
    cut = {n: k for k, n in enumerate(known) if n in leaves or (n in shared and n.op in _CUTS)}
    compare = _Comparison(leaves, cut, draw, kinds)
    points = 0
    for number, (old, new) in enumerate(zip(before.src, after.src)):
        if old is new or not prod(old.shape):
            continue
        budget = Budget(most_values)
        found = compare.in_places(old, new, budget)
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
    kinds: int
    _same: dict[tuple[UOp, UOp], int | None] = field(default_factory=dict)

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
        return self._compared(old, new, self.leaves, budget) if found is None else found

    def _compared(self, old: UOp, new: UOp, leaves: dict[UOp, int], budget: Budget) -> int | None:
        size = prod(old.shape)
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            return None
        where = numpy.random.default_rng(size).integers(0, max(1, size), POINTS if size else 0)
        kind = numpy.arange(len(where)) % self.kinds

        def read(node: UOp, index: Values) -> Estimate:
            return Estimate(self.draw(leaves[node], node.dtype, numpy.asarray(index), kind))

        sides = []
        for root in (old, new):
            elements = TensorElements(read, budget, lambda node: node in leaves)
            sides.append(elements.at(root, flat_elements(root.shape, where)))
        one, other = sides
        if other.error is not None:
            one = Estimate(one.values, other.error + (0.0 if one.error is None else one.error))
        agrees = numpy.broadcast_to(one.agrees(other.values, old.dtype), where.shape)
        return int(numpy.broadcast_to(one.is_known(), where.shape).sum()) if agrees.all() else None
