"""Elements that a Linear writes, computed for single iterations of its loops, many at once.

Owns: the value of each node in chosen iterations and lanes, registers as reductions, scratch memory by what fills
it. Does not own: which iteration writes an element (sampled/parts.py), the order of nodes
(sampled/nesting.py), the values of operations (sampled/arithmetic.py).

Axes of arrays, from the last: the points, which are iterations that were asked for; the lanes of a vector
that is combined; the loops of registers, those inside of others in front of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy

from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.evaluate import identity
from proofgrad.core.ir.op_names import ADD, BROADCAST, CONST
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.verify.sampled.arithmetic import (
    Values,
    cast,
    compute,
    constant,
    in_type,
    kept_as,
    operation,
    reduce_first,
)
from proofgrad.verify.sampled.matrices import moved, product_of
from proofgrad.verify.sampled.nesting import NotReadable
from proofgrad.verify.sampled.taken import Taken, Term, taken_in
from proofgrad.verify.sampled.tensor import Budget, OverBudgetError

ALWAYS = numpy.array(True)  # the mask of what has none
LANES = 1  # the axis of lanes that are combined; loops of registers come in front of it
CARRIED = 1 << 30  # and the number of a loop: the iterations up to one of it
_COSTLY = frozenset({Ops.RESULT, Ops.HREDUCE, Ops.LOAD})
Key = UOp | tuple[UOp, int | None]  # of a vector with the number of its lanes
Plan = tuple[Sequence[Key], Callable[..., Values]]  # what a value needs, and how it is made of it
ReadMemory = Callable[["Frame", UOp, Values, Values], Values]


@dataclass(slots=True)
class Frame:
    """Iterations of a Linear: the values of its loops, and of nodes in them."""

    depends: dict[UOp, frozenset[UOp]]
    registers: dict[UOp, frozenset[UOp]]  # that a node reads
    read: ReadMemory
    budget: Budget
    kind: Values  # of the memory that each point sees
    bound: dict[UOp, Values]
    known: dict[Key, Values]  # of constants and counters at first
    position: Values | None = None  # of the element that each point writes,
    writes: Values | None = None  # where its mask holds
    outer: Frame | None = None  # the frame that reads what this one fills, its points in this shape
    shape: tuple[int, ...] = ()
    own: frozenset[UOp] = frozenset()  # loops that the outer frame does not have
    axis_of: dict[UOp, int] = field(default_factory=dict)
    bound_with: dict[UOp, tuple[UOp, ...]] = field(default_factory=dict)  # loops of one axis
    lanes_of: dict[int | None, Values] = field(default_factory=dict)
    _depths: dict[UOp, int] = field(default_factory=dict)
    _elements: dict[object, Values] = field(default_factory=dict)
    _plans: dict[Key, tuple[Sequence[Key], Callable[..., Values]]] = field(default_factory=dict)

    def value(self, root: UOp, lane: Values | None = None) -> Values:
        """A node in every point; of a vector the lane given. Raises: NotReadable, OverBudgetError."""
        start: Key = root if root.dtype.lanes == 1 else (root, self._lane_key(lane))
        known, plans, budget = self.known, self._plans, self.budget
        stack = [start]
        while stack:
            key = stack[-1]
            if key in known:
                stack.pop()
                continue
            plan = plans.get(key)
            if plan is None:
                node, number = key if isinstance(key, tuple) else (key, None)
                plan = plans[key] = self._plan(node, number)
            needed, finish = plan
            missing = [k for k in needed if k not in known]
            if missing:
                stack += missing
                continue
            found = known[key] = finish(*[known[k] for k in needed])
            budget.left -= found.size + Budget.CALL
            if budget.left < 0:
                raise OverBudgetError
            stack.pop()
        return known[start]

    def close(self) -> None:
        """Forget all values."""
        self.known.clear()
        self._plans.clear()
        self.lanes_of.clear()
        self.outer = None

    def _lane_key(self, lane: Values | None) -> int | None:
        if lane is None:
            return None
        self.lanes_of[id(lane)] = lane
        return id(lane)

    def _plan(self, node: UOp, lane: int | None) -> tuple[Sequence[Key], Callable[..., Values]]:
        """What the value of a node needs, and how it is made of it."""
        op = node.op
        if node.dtype.lanes > 1 and lane is None:
            raise NotReadable(f"{op.name} of {node.dtype.lanes} lanes where one value is needed")
        if op in ELEMENTWISE:
            types = tuple([s.dtype for s in node.src])
            return _keys(node.src, lane), operation(op, node.dtype, types)
        if self.outer is not None and op in _COSTLY and node.dtype.lanes == 1:
            loops = self.depends[node]
            if self.own.isdisjoint(loops) and loops.isdisjoint(self.axis_of):  # no sum's in here
                return (), lambda: self._from_outside(node)
        plan = _PLANS.get(op)
        if plan is None:
            raise NotReadable(f"{op.name} is read outside of what it belongs to")
        return plan(self, node, lane)

    def _constant(self, node: UOp, lane: int | None) -> tuple[Sequence[Key], Callable[..., Values]]:
        found = constant(node.dtype.scalar, node.arg)
        return (), lambda: found[self.lanes_of[lane]] if found.ndim else found

    def _counter(self, node: UOp, lane: int | None) -> tuple[Sequence[Key], Callable[..., Values]]:
        if node not in self.bound:
            raise NotReadable(f"loop r{node.arg[0]} is read where it does not run")
        return (), lambda: self.bound[node].astype(kept_as(node.dtype), copy=False)

    def _same(self, node: UOp, lane: int | None) -> tuple[Sequence[Key], Callable[..., Values]]:
        return _keys(node.src, lane), lambda value: value

    def _from_outside(self, node: UOp) -> Values:
        """The value of what runs outside of the loops of scratch memory, once for all of its addresses."""
        assert self.outer is not None
        found = self.outer.value(node)
        found = found.reshape(found.shape[max(0, found.ndim - len(self.shape)) :])
        return numpy.ravel(numpy.broadcast_to(found, self.shape))

    # -- memory ---------------------------------------------------------------------------------

    def address(self, index: UOp, lanes: int, lane: Values | None) -> tuple[Values, Values]:
        """The position and mask of an access in each point."""
        position = self.value(index.src[1], lane)
        if lanes > 1 and index.src[1].dtype.lanes == 1:
            position = position + lane
        mask = self.value(index.src[2], lane) if len(index.src) > 2 else ALWAYS
        return position, mask

    def writes_at(self, store: UOp, lane: Values | None, elements: Values | None = None) -> Values:
        """Whether each point writes its element; from now on the points are of this store."""
        count = len(self.kind)
        position, mask = self.address(store.src[0], store.src[1].dtype.lanes, lane)
        self.position = of_points(position, count)
        self.writes = None if mask is ALWAYS else of_points(mask, count)
        right = self.position == elements
        return right if self.writes is None else right & self.writes

    def _load(self, node: UOp, lane: int | None) -> tuple[Sequence[Key], Callable[..., Values]]:
        index, (memory, *terms) = node.src[0], node.src[0].src
        if len(node.src) > 1:
            raise NotReadable("LOAD is read outside of what it belongs to")
        size, scalar = _size(memory), node.dtype.scalar
        in_lanes = node.dtype.lanes > 1 and index.src[1].dtype.lanes == 1

        def loaded(position: Values, mask: Values = ALWAYS) -> Values:
            if in_lanes:
                position = position + self.lanes_of[lane]
            outside = position.astype(numpy.uint64) >= size  # below 0 too
            if mask is not ALWAYS:
                outside = outside & mask
            if outside.any():
                position = numpy.broadcast_to(position, outside.shape)
                raise NotReadable(
                    f"a LOAD reads element {position[outside].ravel()[0]} of slot"
                    f" {_name(memory)}, which has {size} elements"
                )
            if mask is ALWAYS:
                return self.read(self, memory, position, mask)
            zero = constant(scalar, 0)
            if not mask.any():
                return zero
            return numpy.where(
                mask, self.read(self, memory, numpy.where(mask, position, 0), mask), zero
            )

        return _keys(terms, lane), loaded

    # -- registers ------------------------------------------------------------------------------

    def bind(self, loops: Sequence[UOp], outer: frozenset[UOp], least: int = 0) -> int:
        """Give loops an axis, in front of those of the loops that they run in; that number of axes or more before it."""
        known = [loop for loop in loops if loop in self.axis_of]
        if known and self.bound_with[known[0]] != tuple(loops):
            raise NotReadable("two reductions share some of their loops, and not all")
        if known:
            return self.axis_of[loops[0]]
        axis = 1 + max([self.axis_of.get(loop, LANES) for loop in outer], default=LANES)
        axis = max(axis, LANES + least)
        sizes = [loop.src[0].arg for loop in loops]
        self.budget.spend(prod(sizes))
        counter = numpy.arange(prod(sizes)).reshape(-1, *[1] * axis)
        for k, loop in enumerate(loops):
            inner = prod(sizes[k + 1 :])
            self.bound[loop] = counter // max(1, inner) % max(1, sizes[k])
            self.axis_of[loop], self.bound_with[loop] = axis, tuple(loops)
        return axis

    def _register(self, node: UOp, lane: int | None) -> tuple[Sequence[Key], Callable[..., Values]]:
        register, combined = node.src[0].src
        start, loops, dtype = register.src[0], register.src[1:], register.dtype.scalar
        axis = self.bind(loops, self.depends[node])
        taken = taken_in(register, combined, lambda n: register in self.registers[n])
        terms = [t for term in taken.terms for t in (*term.factors, *term.masks)]
        steps = prod([loop.src[0].arg for loop in loops])

        def result(first: Values, *values: Values) -> Values:
            return self.combine(taken, dtype, first, values, axis, steps)

        return _keys((start, *terms), lane), result

    def _carried(self, node: UOp, lane: int | None) -> tuple[Sequence[Key], Callable[..., Values]]:
        """What a register of an output loop is set to: what its iterations so far have combined."""
        register, combined = node.src
        start, loop, dtype = register.src[0], register.src[1], register.dtype.scalar
        own = loop.replace(arg=(CARRIED + loop.arg[0], loop.arg[1]))
        taken = taken_in(register, combined, lambda n: register in self.registers[n])
        upto = ~(loop < own)
        moved = self._moved([t for x in taken.terms for t in (*x.factors, *x.masks)], loop, own)
        self.depends |= {own: frozenset((own,)), upto.src[0]: frozenset((loop, own))}
        self.depends[upto] = self.depends[upto.src[0]]
        terms = [
            Term(tuple([moved[f] for f in x.factors]), (*[moved[m] for m in x.masks], upto))
            for x in taken.terms
        ]
        axis = self.bind((own,), self.depends[node])
        steps, whole = own.src[0].arg, Taken(taken.op, tuple(terms))

        def result(first: Values, *values: Values) -> Values:
            return self.combine(whole, dtype, first, values, axis, steps)

        return _keys((start, *[t for x in terms for t in (*x.factors, *x.masks)]), lane), result

    def _moved(self, terms: Sequence[UOp], loop: UOp, own: UOp) -> dict[UOp, UOp]:
        """Terms in another loop, and on which loops these depend."""
        done = {loop: own}
        for node in toposort(terms):
            if node is not loop:
                done[node] = new = node.with_src(tuple([done[s] for s in node.src]))
                below = self.depends.get(node, frozenset())
                self.depends[new] = below - {loop} | {own} if loop in below else below
        return done

    def _matrices(self, node: UOp, lane: int | None) -> tuple[Sequence[Key], Callable[..., Values]]:
        """An MMA: what the item has in a lane, from what the items of its warp hold."""
        if lane is None:
            raise NotReadable("MMA of no vectors")
        product, dtype = product_of(node, lane), node.dtype.scalar
        around = frozenset().union(*[self.depends.get(s, frozenset()) for s in node.src])
        axis = self.bind((product.step,), around)
        registers = self.bound[product.register] = self.lanes_of[lane]
        step = self.bound[product.step]
        of_rows = product.held_of_rows(registers, step)
        held_rows = self._lane_key(self._held(lane, of_rows, product.square, "rows"))
        of_column = product.held_of_column(registers, step)
        held = self._lane_key(self._held(lane, of_column, product.square, "columns"))
        rows = self._held_by(product.rows, product.item, product.of_rows, around)
        (column,) = self._held_by((product.column,), product.item, product.of_column, around)
        taken = Taken(ADD, (Term((product.rows[0], product.column), ()),))

        def result(first: Values, factor: Values, *halves: Values) -> Values:
            chosen = halves[-1]
            for k, half in list(enumerate(halves))[-2::-1]:
                chosen = numpy.where(registers // 2 == k, half, chosen)
            return self.combine(taken, dtype, first, (chosen, factor), axis, product.steps)

        keys = (*_keys((product.before,), lane), *_keys((column,), held), *_keys(rows, held_rows))
        return keys, result

    def _held(
        self, lane: int, elements: Values, square: tuple[int, int, int] | None, side: str
    ) -> Values:
        """Which of its elements an item holds for each step, once for all that ask: of a warp's the same on both sides."""
        steps = elements.shape[0], int(elements.max())
        known: object = steps if square is None else (square, lane, side)
        return self._elements.setdefault(known, elements)

    def _held_by(
        self, factors: Sequence[UOp], item: UOp, other: UOp, around: frozenset[UOp]
    ) -> list[UOp]:
        """What another item has of factors."""
        there = moved(factors, item, other)
        others = around.union([n for n in toposort((other,)) if n.op is Ops.RANGE])
        for node, new in there.items():
            below = self.depends.get(node, frozenset())
            self.depends.setdefault(new, below | (around if new is node else others))
            reads = [there.get(register, register) for register in self.registers.get(node, ())]
            self.registers.setdefault(new, frozenset(reads))
        return [there[factor] for factor in factors]

    def _depth(self, reduction: UOp) -> int:
        """How many reductions around each other there are at most, from the outermost to one over these loops, wherever one is."""
        if not self._depths:
            nodes, before = toposort(tuple(self.depends))[::-1], -1
            while before != sum(self._depths.values()):  # of a loop that stands in several places
                before, inside = sum(self._depths.values()), dict[UOp, int]()
                for node in nodes:
                    around = inside.get(node, 0)
                    if node.op is Ops.REDUCE:
                        around = max(around + 1, self._depths.get(_outer_loop(node), 0))
                        self._depths[_outer_loop(node)] = around
                    for source in node.src:
                        inside[source] = max(inside.get(source, 0), around)
        return self._depths[_outer_loop(reduction)]

    def _reduction(
        self, node: UOp, lane: int | None
    ) -> tuple[Sequence[Key], Callable[..., Values]]:
        """A REDUCE, of a Kernel."""
        value, *loops = node.src
        axis = self.bind(loops, self.depends[node], self._depth(node))
        steps = prod([loop.src[0].arg for loop in loops])
        taken = Taken(node.arg, (Term((value,), ()),))
        first = _neutral(node.arg, node.dtype)
        return (value,), lambda each: self.combine(taken, node.dtype, first, (each,), axis, steps)

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
            for _ in term.masks:
                each = numpy.where(next(given), each, _neutral(taken.op, wide))
            moved, put_back = _first(each, axis)
            self.budget.spend(steps * prod(moved.shape[1:]))
            found.append(put_back(reduce_first(taken.op, wide, moved, steps)))
        total = found[0]
        for more in found[1:]:
            total = compute(taken.op, wide, (total, more), (wide, wide))
        return cast(total, wide, dtype)

    def last(self, first: Values, value: Values, hits: Values, axis: int) -> Values:
        """The value of the last iteration that hits; `first` where none does."""
        shape = numpy.broadcast_shapes(value.shape, hits.shape)
        moved, put_back = _first(numpy.broadcast_to(value, shape), axis)
        hit, _ = _first(numpy.broadcast_to(hits, shape), axis)
        self.budget.spend(prod(shape))
        last = len(hit) - 1 - numpy.argmax(hit[::-1], axis=0)
        found = numpy.take_along_axis(moved, last[None], 0)[0]
        return put_back(numpy.where(hit.any(0), found, first))

    def _over_lanes(
        self, node: UOp, lane: int | None
    ) -> tuple[Sequence[Key], Callable[..., Values]]:
        lanes, dtype = node.src[0].dtype.lanes, node.dtype.scalar
        if -lanes not in self.lanes_of:
            self.lanes_of[-lanes] = numpy.arange(lanes).reshape(lanes, 1)

        def combined(values: Values) -> Values:
            moved, put_back = _first(values, LANES)
            return put_back(in_type(reduce_first(node.arg, dtype, moved, lanes), dtype))

        return ((node.src[0], -lanes),), combined


_PLANS: dict[Ops, Callable[[Frame, UOp, int | None], Plan]] = {
    Ops.CONST: Frame._constant,
    Ops.RANGE: Frame._counter,
    Ops.BROADCAST: Frame._same,
    Ops.LOAD: Frame._load,
    Ops.RESULT: Frame._register,
    Ops.UPDATE: Frame._carried,
    Ops.REDUCE: Frame._reduction,
    Ops.HREDUCE: Frame._over_lanes,
    Ops.MMA: Frame._matrices,
}


def _keys(nodes: Sequence[UOp], lane: int | None) -> Sequence[Key]:
    """What the values of nodes are known by: those of vectors by their lane, but for scalars that fill one."""
    if lane is None:
        return nodes
    return [
        n if n.dtype.lanes == 1 else n.src[0] if n.op is BROADCAST else (n, lane) for n in nodes
    ]


def _first(values: Values, axis: int) -> tuple[Values, Callable[[Values], Values]]:
    """With an axis, counted from the last, in front; and how what is reduced gets it back."""
    depth = axis + 1
    if values.ndim > depth:
        moved = numpy.moveaxis(values, -depth, 0)
        return moved, lambda found: numpy.expand_dims(found, -depth)
    return values.reshape((1,) * (depth - values.ndim) + values.shape), _with_axis


def _with_axis(values: Values) -> Values:
    return values[None]


def of_points(values: Values, count: int) -> Values:
    """One value a point: no loop is left that has no value. Raises: NotReadable."""
    if values.shape == (count,):
        return values
    if any([size > 1 for size in values.shape[:-1]]):
        raise NotReadable("a STORE depends on a loop that has ended")
    return numpy.broadcast_to(values.reshape(values.shape[-1:]), (count,))


def constants_of(nodes: Iterable[UOp]) -> dict[UOp, Values]:
    """The values of the constants among nodes; not of vectors, which differ by their lane."""
    return {n: constant(n.dtype, n.arg) for n in nodes if n.op is CONST and n.dtype.lanes == 1}


def _size(memory: UOp) -> int:
    """How many elements there are."""
    if memory.op is Ops.LOCAL_BUFFER:
        return prod([loop.src[0].arg for loop in memory.src[1:]])
    size: int = memory.arg[1] if memory.op is Ops.PARAM else memory.src[0].src[0].src[0].arg[1]
    return size


def _name(memory: UOp) -> str:
    return str(memory.arg[0]) if memory.op is Ops.PARAM else "scratch"


@functools.cache
def _neutral(op: Ops, dtype: DType) -> Values:
    return constant(dtype, identity(op, dtype))


def _product(values: Sequence[Values], term: Term, wide: DType) -> Values:
    """The factors of a term, or the one value, in the type that is summed in."""
    types = [f.dtype.scalar for f in term.factors]
    found = cast(values[0], types[0], wide)
    for value, dtype in zip(values[1:], types[1:]):
        found = compute(Ops.MUL, wide, (found, cast(value, dtype, wide)), (wide, wide))
    return found


def _outer_loop(reduction: UOp) -> UOp:
    """The first loop of a reduction; itself where it is over none, as one that was made wrongly may be."""
    return reduction.src[1] if len(reduction.src) > 1 else reduction
