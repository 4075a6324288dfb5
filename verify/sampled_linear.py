"""Elements that a Linear writes, computed for single iterations of its loops, many at once.

Owns: the value of each node in chosen iterations and lanes, registers as reductions, scratch memory by what fills
it. Does not own: which iteration writes an element (sampled_parts.py), the order of nodes
(kernel_nesting.py), the values of operations (sampled_arithmetic.py).

Axes of arrays, from the last: the points, which are iterations that were asked for; the lanes of a vector
that is combined; the loops of registers, those inside of others in front of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.verify.kernel_nesting import NotReadable
from proofgrad.verify.sampled_arithmetic import (
    Values,
    cast,
    compute,
    constant,
    in_type,
    kept_as,
    reduce_first,
)
from proofgrad.verify.sampled_tensor import Budget

LANES = 1  # the axis of lanes that are combined; loops of registers come in front of it
_COSTLY = frozenset({Ops.RESULT, Ops.HREDUCE, Ops.LOAD})
Key = tuple[UOp, int | None]
ReadMemory = Callable[["Frame", UOp, Values, Values], Values]


@dataclass(frozen=True, slots=True)
class Term:
    """What a register takes in: the product of factors, or one value, where all gates hold."""

    factors: tuple[UOp, ...]
    gates: tuple[UOp, ...]


@dataclass(frozen=True, slots=True)
class Taken:
    """What a register becomes in one iteration: terms combined with it by one operation."""

    op: Ops
    terms: tuple[Term, ...]


@dataclass(slots=True)
class Frame:
    """Iterations of a Linear: the values of its loops, and of nodes in them."""

    depends: dict[UOp, frozenset[UOp]]
    read: ReadMemory
    budget: Budget
    kind: Values  # of the memory that each point sees
    bound: dict[UOp, Values]
    position: Values | None = None  # of the element that each point writes,
    writes: Values | None = None  # where its gate holds
    outer: Frame | None = None  # the frame that reads what this one fills, its points in this shape
    shape: tuple[int, ...] = ()
    own: frozenset[UOp] = frozenset()  # loops that the outer frame does not have
    axis_of: dict[UOp, int] = field(default_factory=dict)
    bound_with: dict[UOp, tuple[UOp, ...]] = field(default_factory=dict)  # loops of one axis
    lanes_of: dict[int | None, Values] = field(default_factory=dict)
    known: dict[Key, Values] = field(default_factory=dict)
    _plans: dict[Key, Any] = field(default_factory=dict)

    def value(self, root: UOp, lane: Values | None = None) -> Values:
        """A node in every point; of a vector the lane given. Raises: NotReadable, OverBudgetError."""
        start = (root, self._lane_key(lane) if root.dtype.lanes > 1 else None)
        stack = [start]
        while stack:
            key = stack[-1]
            if key in self.known:
                stack.pop()
                continue
            if key not in self._plans:
                self._plans[key] = self._plan(*key)
            needed, finish = self._plans[key]
            missing = [k for k in needed if k not in self.known]
            if missing:
                stack.extend(missing)
                continue
            found = self.known[key] = finish(*[self.known[k] for k in needed])
            self.budget.spend(found.size)
            stack.pop()
        return self.known[start]

    def _lane_key(self, lane: Values | None) -> int | None:
        if lane is None:
            return None
        self.lanes_of[id(lane)] = lane
        return id(lane)

    def _source(self, node: UOp, lane: int | None) -> Key:
        return node, (lane if node.dtype.lanes > 1 else None)

    def _plan(self, node: UOp, lane: int | None) -> tuple[list[Key], Callable[..., Values]]:
        """What the value of a node needs, and how it is made of it."""
        scalar, sources = node.dtype.scalar, [self._source(s, lane) for s in node.src]
        if node.dtype.lanes > 1 and lane is None:
            raise NotReadable(
                f"{node.op.name} of {node.dtype.lanes} lanes where one value is needed"
            )
        if self.outer is not None and node.op in _COSTLY and node.dtype.lanes == 1:
            if self.own.isdisjoint(self.depends[node]):
                return [], lambda: self._from_outside(node)
        match node.op:
            case Ops.CONST if isinstance(node.arg, tuple):
                every = numpy.array(node.arg, kept_as(scalar))
                return [], lambda: every[self.lanes_of[lane]]
            case Ops.CONST:
                return [], lambda: constant(scalar, node.arg)
            case Ops.RANGE:
                if node not in self.bound:
                    raise NotReadable(f"loop r{node.arg[0]} is read where it does not run")
                return [], lambda: self.bound[node].astype(kept_as(node.dtype))
            case Ops.BROADCAST:
                return sources, lambda value: value
            case Ops.LOAD if len(node.src) == 1:
                return self._load(node, lane)
            case Ops.RESULT:
                return self._register(node, lane)
            case Ops.REDUCE:
                return self._reduction(node)
            case Ops.HREDUCE:
                return self._over_lanes(node)
            case op if op in ELEMENTWISE:
                types = [s.dtype.scalar for s in node.src]
                return sources, lambda *values: compute(op, scalar, values, types)
        raise NotReadable(f"{node.op.name} is read outside of what it belongs to")

    def _from_outside(self, node: UOp) -> Values:
        """The value of what runs outside of the loops of scratch memory, once for all of its places."""
        assert self.outer is not None
        found = self.outer.value(node)
        found = found.reshape(found.shape[max(0, found.ndim - len(self.shape)) :])
        return numpy.ravel(numpy.broadcast_to(found, self.shape))

    # -- memory ---------------------------------------------------------------------------------

    def place(self, index: UOp, lanes: int, lane: Values | None) -> tuple[Values, Values]:
        """The position and gate of an access in each point."""
        position = self.value(index.src[1], lane)
        if lanes > 1 and index.src[1].dtype.lanes == 1:
            position = position + lane
        gate = self.value(index.src[2], lane) if len(index.src) > 2 else numpy.array(True)
        return position, gate

    def _load(self, node: UOp, lane: int | None) -> tuple[list[Key], Callable[..., Values]]:
        index, (memory, *terms) = node.src[0], node.src[0].src
        needed = [self._source(t, lane) for t in terms]

        def loaded(position: Values, gate: Values | None = None) -> Values:
            if node.dtype.lanes > 1 and index.src[1].dtype.lanes == 1:
                position = position + self.lanes_of[lane]
            open_ = numpy.array(True) if gate is None else gate
            shape = numpy.broadcast_shapes(numpy.shape(position), numpy.shape(open_))
            position, open_ = numpy.broadcast_to(position, shape), numpy.broadcast_to(open_, shape)
            size = _size(memory)
            outside = open_ & ((position < 0) | (position >= size))
            if outside.any():
                raise NotReadable(
                    f"a LOAD reads element {position[outside].ravel()[0]} of slot"
                    f" {_name(memory)}, which has {size} elements"
                )
            if not open_.any():
                return constant(node.dtype.scalar, 0)
            found = self.read(self, memory, numpy.where(open_, position, 0), open_)
            return numpy.where(open_, found, constant(node.dtype.scalar, 0))

        return needed, loaded

    # -- registers ------------------------------------------------------------------------------

    def bind(self, loops: Sequence[UOp], outer: frozenset[UOp]) -> int:
        """Give loops an axis, in front of those of the loops that they run in."""
        known = [loop for loop in loops if loop in self.axis_of]
        if known and self.bound_with[known[0]] != tuple(loops):
            raise NotReadable("two reductions share some of their loops, and not all")
        if known:
            return self.axis_of[loops[0]]
        axis = 1 + max([self.axis_of.get(loop, LANES) for loop in outer], default=LANES)
        sizes = [loop.src[0].arg for loop in loops]
        self.budget.spend(prod(sizes))
        counter = numpy.arange(prod(sizes)).reshape(-1, *[1] * axis)
        for k, loop in enumerate(loops):
            inner = prod(sizes[k + 1 :])
            self.bound[loop] = counter // max(1, inner) % max(1, sizes[k])
            self.axis_of[loop], self.bound_with[loop] = axis, tuple(loops)
        return axis

    def _register(self, node: UOp, lane: int | None) -> tuple[list[Key], Callable[..., Values]]:
        register, combined = node.src[0].src
        start, loops, dtype = register.src[0], register.src[1:], register.dtype.scalar
        axis = self.bind(loops, self.depends[node])
        taken = taken_in(register, combined)
        terms = [t for term in taken.terms for t in (*term.factors, *term.gates)]
        steps = prod([loop.src[0].arg for loop in loops])

        def result(first: Values, *values: Values) -> Values:
            return self.combine(taken, dtype, first, values, axis, steps)

        return [self._source(t, lane) for t in (start, *terms)], result

    def _reduction(self, node: UOp) -> tuple[list[Key], Callable[..., Values]]:
        """A REDUCE, of a Kernel."""
        value, *loops = node.src
        axis = self.bind(loops, self.depends[node])
        steps = prod([loop.src[0].arg for loop in loops])
        taken = Taken(node.arg, (Term((value,), ()),))
        first = _neutral(node.arg, node.dtype)
        return [(value, None)], lambda each: self.combine(
            taken, node.dtype, first, (each,), axis, steps
        )

    def combine(
        self,
        taken: Taken,
        dtype: DType,
        first: Values,
        values: Sequence[Values],
        axis: int,
        steps: int,
    ) -> Values:
        """`first` combined with all terms in all iterations; sums of floats are rounded once."""
        given = iter(values)
        wide = dtypes.float64 if dtype.is_float and taken.op in (Ops.ADD, Ops.MUL) else dtype
        found: list[Values] = [cast(first, dtype, wide)]
        for term in taken.terms:
            each = _product([next(given) for _ in term.factors], term, wide)
            for _ in term.gates:
                each = numpy.where(next(given), each, _neutral(taken.op, wide))
            each = each.reshape((1,) * (axis + 1 - each.ndim) + each.shape)
            moved = numpy.moveaxis(each, -(axis + 1), 0)
            self.budget.spend(steps * prod(moved.shape[1:]))
            found.append(numpy.expand_dims(reduce_first(taken.op, wide, moved, steps), -(axis + 1)))
        total = found[0]
        for more in found[1:]:
            total = compute(taken.op, wide, (total, more), (wide, wide))
        return cast(total, wide, dtype)

    def _over_lanes(self, node: UOp) -> tuple[list[Key], Callable[..., Values]]:
        lanes, dtype = node.src[0].dtype.lanes, node.dtype.scalar
        counter = self.lanes_of.get(-lanes)
        if counter is None:
            counter = self.lanes_of[-lanes] = numpy.arange(lanes).reshape(lanes, 1)

        def combined(values: Values) -> Values:
            values = values.reshape((1,) * (LANES + 1 - values.ndim) + values.shape)
            moved = numpy.moveaxis(values, -(LANES + 1), 0)
            found = reduce_first(node.arg, dtype, moved, lanes)
            return numpy.expand_dims(in_type(found, dtype), -(LANES + 1))

        return [(node.src[0], -lanes)], combined


def _size(memory: UOp) -> int:
    """How many elements there are."""
    if memory.op is Ops.KEEP:
        return prod([loop.src[0].arg for loop in memory.src[1:]])
    size: int = memory.arg[1] if memory.op is Ops.PARAM else memory.src[0].src[0].src[0].arg[1]
    return size


def _name(memory: UOp) -> str:
    return str(memory.arg[0]) if memory.op is Ops.PARAM else "scratch"


def _neutral(op: Ops, dtype: DType) -> Values:
    from proofgrad.core.ir.evaluate import identity

    return constant(dtype, identity(op, dtype))


def _product(values: Sequence[Values], term: Term, wide: DType) -> Values:
    """The factors of a term, or the one value, in the type that is summed in."""
    types = [f.dtype.scalar for f in term.factors]
    found = cast(values[0], types[0], wide)
    for value, dtype in zip(values[1:], types[1:]):
        found = compute(Ops.MUL, wide, (found, cast(value, dtype, wide)), (wide, wide))
    return found


def taken_in(register: UOp, combined: UOp) -> Taken:
    """What `combined` makes of a register. Raises: NotReadable if it is no such combination.

    `register` may be the LOAD of the element that a STORE combines with.
    """
    above = _nodes_above(register, combined)
    op: Ops | None = None
    terms: list[Term] = []
    node = combined
    while node is not register:
        gates: list[UOp] = []
        inside = node
        while inside.op is Ops.WHERE:
            if inside.src[2] not in above or inside.src[1] not in above:
                raise NotReadable("a register is chosen instead of combined")
            gates.append(inside.src[0])
            inside = inside.src[1]
        if inside is register:
            raise NotReadable("a register is chosen instead of combined")
        if inside.op is Ops.CAST:
            node = inside.src[0]
            if gates:
                raise NotReadable("a register is converted behind a gate")
            continue
        own, factors, node_before = _one_step(inside, above)
        if gates and not _all_keep(node, inside, node_before):
            raise NotReadable("a register keeps another value behind a gate")
        if op is not None and own is not op:
            raise NotReadable(f"a register is combined by {op.name} and by {own.name}")
        op = own
        terms.append(Term(factors, tuple(gates)))
        node = node_before
    if op is None:
        raise NotReadable("a register is not combined with anything")
    return Taken(op, tuple(terms))


def _one_step(node: UOp, above: set[UOp]) -> tuple[Ops, tuple[UOp, ...], UOp]:
    """The operation, what it takes in, and the register before."""
    if node.op is Ops.MULACC and node.src[2] in above and above.isdisjoint(node.src[:2]):
        return Ops.ADD, node.src[:2], node.src[2]
    if node.op in (Ops.ADD, Ops.MUL, Ops.MAX, Ops.MIN):
        inside = [s for s in node.src if s in above]
        other = [s for s in node.src if s not in above]
        if len(inside) == 1 and len(other) == 1:
            return node.op, (other[0],), inside[0]
    raise NotReadable(f"a register goes through {node.op.name} in its loop")


def _all_keep(outer: UOp, inside: UOp, before: UOp) -> bool:
    """Whether each gate, where it is false, leaves the register as it was before."""
    while outer is not inside:
        if outer.src[2] is not before:
            return False
        outer = outer.src[1]
    return True


def _nodes_above(register: UOp, combined: UOp) -> set[UOp]:
    """The nodes of `combined` that depend on the register in the same iteration."""
    found = {register}
    for node in toposort((combined,), lambda n: n.op is not Ops.RESULT):
        if not found.isdisjoint(node.src):
            found.add(node)
    return found
