"""The kernels that one body becomes, and which of their iterations write an element.

Owns: memory between kernels, the element that an iteration writes. Does not own: the values of nodes
(sampled/linear.py), the iteration that writes an element (sampled/writers.py), what elements should be
(sampled/kernels.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy

from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.op_names import LOAD, PARAM
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.verify.sampled.arithmetic import Values, kept_as
from proofgrad.verify.sampled.inputs import PRIME
from proofgrad.verify.sampled.linear import Frame, Key, constants_of, of_points
from proofgrad.verify.sampled.nesting import Nesting, NotReadable
from proofgrad.verify.sampled.taken import (
    Taken,
    Term,
    nodes_above,
    ordered_loads,
    taken_in,
    writes_over,
)
from proofgrad.verify.sampled.tensor import Budget
from proofgrad.verify.sampled.writers import Found, Search, Stores, do_run

# How often a sample of a kernel sees each kind of memory before it sees the last, the ends of types, alone.
ROUNDS = 3
NO_ROWS = numpy.zeros(0, numpy.int64)  # of corners


@dataclass(frozen=True, slots=True)
class Drawn:
    """Memory that was there before: its elements are drawn."""

    number: int


@dataclass
class Part:
    """One Linear; `slots`: the numbers of its parameters in the body. `before`: what memory it finds."""

    linear: UOp
    slots: tuple[int, ...]
    before: dict[int, Drawn | Part]
    elements: int | None = None  # that it has to write, of more that its memory may have
    nests: dict[UOp, tuple[UOp, ...]] = field(init=False)
    depends: dict[UOp, frozenset[UOp]] = field(init=False)
    registers: dict[UOp, frozenset[UOp]] = field(init=False)
    constants: dict[UOp, Values] = field(init=False)

    def __post_init__(self) -> None:
        nesting = Nesting(self.linear)
        self.nests = nesting.of_stores()
        self.depends, self.registers = nesting.depends, nesting.registers
        self.constants = constants_of(self.linear.src)
        if not self.nests:
            raise NotReadable("a kernel stores nothing")

    @property
    def written(self) -> int:
        """The number in the body of the memory that it writes."""
        return self.slots[0]

    @property
    def size(self) -> int:
        """The number of elements that it writes, which are all of its memory but where a variable says fewer."""
        whole: int = self.memory.arg[1]
        return whole if self.elements is None else self.elements

    @property
    def memory(self) -> UOp:
        """The node of the memory that it writes, of its first store."""
        return next(iter(self.nests)).src[0].src[0]

    @property
    def dtype(self) -> DType:
        """The type of the elements that it writes."""
        return self.memory.dtype

    @functools.cached_property
    def reads_own(self) -> bool:
        """Whether it reads the memory that it writes."""
        own = {slot for slot, number in enumerate(self.slots) if number == self.written}
        read = [n.src[0].src[0] for n in self.depends if n.op is LOAD]
        return any([memory.op is PARAM and memory.arg[0] in own for memory in read])

    @property
    def writes_over(self) -> bool:
        """Whether the memory that it writes is there before: what it does not write stays."""
        return self.written in self.before

    @property
    def combines(self) -> bool:
        """Whether it combines with what is there."""
        return any(len(store.src) > 2 or store.arg is not None for store in self.nests)


@dataclass(slots=True)
class Reader:
    """Elements of memory as kernels see it. `draw` gives those that were there before."""

    draw: Callable[[int, DType, Values, Values], Values]
    budget: Budget
    _searches: dict[tuple[int, tuple[UOp, ...]], Search] = field(default_factory=dict)
    _frames: list[Frame] = field(default_factory=list)

    def frame(self, part: Part, kind: Values, bound: dict[UOp, Values]) -> Frame:
        """Iterations of `part` to be evaluated: loops have the values in `bound`, memory of each point is of `kind`."""

        def read(frame: Frame, memory: UOp, index: Values, mask: Values) -> Values:
            if memory.op is Ops.FILLED:
                return self._scratch(part, frame, memory, index)
            if memory.op is Ops.LOCAL_BUFFER:
                return self._kept(part, frame, memory, index)
            return self._parameter(part, frame, memory, index, mask)

        known: dict[Key, Values] = dict(part.constants.items())
        for loop, counter in bound.items():
            if kept_as(loop.dtype) is counter.dtype:
                known[loop] = counter
        made = Frame(part.depends, part.registers, read, self.budget, kind, bound, known)
        self._frames.append(made)
        return made

    def close(self) -> None:
        """Let go of all frames, which hold themselves: else they wait for the collector."""
        for frame in self._frames:
            frame.close()
        self._frames.clear()
        self._searches.clear()

    # -- reading --------------------------------------------------------------------------------

    def _parameter(
        self, part: Part, frame: Frame, memory: UOp, index: Values, mask: Values
    ) -> Values:
        slot = memory.arg[0]
        if slot >= len(part.slots):
            raise NotReadable(f"a LOAD reads slot {slot}, which no buffer is given for")
        number = part.slots[slot]
        if number == part.written and not part.combines and frame.position is not None:
            elsewhere = mask & (index != frame.position)
            if frame.writes is not None:
                elsewhere = elsewhere & frame.writes
            if elsewhere.any():
                raise NotReadable(
                    f"a LOAD reads element {numpy.broadcast_to(index, elsewhere.shape)[elsewhere].ravel()[0]}"
                    " of the memory that the kernel writes, where it writes another one"
                )
        there = part.before.get(number)
        if there is None:
            raise NotReadable(
                f"a LOAD reads buffer {number} of the body, which nothing has written"
            )
        if isinstance(there, Drawn):
            return self.draw(there.number, memory.dtype, index, frame.kind)
        shape = numpy.broadcast_shapes(numpy.shape(index), frame.kind.shape)
        flat, kind = _flattened(shape, index, frame.kind)
        return self.written(there, flat, kind).reshape(shape)

    def _scratch(self, part: Part, frame: Frame, kept: UOp, index: Values) -> Values:
        """What the STORE of FILLED puts at an index: in the iteration that the address counts."""
        store, *loops = kept.src
        around = [x for x in frame.bound if x in part.depends[store] and x not in loops]
        given = [index, frame.kind, *[frame.bound[loop] for loop in around]]
        shape = numpy.broadcast_shapes(*map(numpy.shape, given))
        flat, kind, *counters = _flattened(shape, *given)
        outer = dict(zip(around, counters))
        stores = [(store, tuple(loops))]
        return self._stored(part, stores, flat, kind, outer, (frame, shape)).reshape(shape)

    def _kept(self, part: Part, frame: Frame, keep: UOp, index: Values) -> Values:
        """The value of LOCAL_BUFFER for the loops whose row-major position an index is."""
        value, *loops = keep.src
        around = [x for x in frame.bound if x in part.depends[value] and x not in loops]
        given = [index, frame.kind, *[frame.bound[loop] for loop in around]]
        shape = numpy.broadcast_shapes(*map(numpy.shape, given))
        flat, kind, *counters = _flattened(shape, *given)
        sizes = [loop.src[0].arg for loop in loops]
        inner = dict(zip(loops, numpy.unravel_index(flat, sizes)))
        found = self.frame(part, kind, dict(zip(around, counters)) | inner).value(value)
        return of_points(found, len(flat)).reshape(shape)

    def written(self, part: Part, elements: Values, kind: Values) -> Values:
        """The elements that a kernel leaves behind. Raises: NotReadable where nothing writes one."""
        if part.combines:
            return self._combined_everywhere(part, elements, kind)
        return self._stored(part, list(part.nests.items()), elements, kind, {})

    def _stored(
        self,
        part: Part,
        stores: Sequence[tuple[UOp, tuple[UOp, ...]]],
        elements: Values,
        kind: Values,
        outer: dict[UOp, Values],
        reader: tuple[Frame, tuple[int, ...]] | None = None,
    ) -> Values:
        memory = stores[0][0].src[0].src[0]
        values = numpy.zeros(len(elements), kept_as(memory.dtype))
        left = numpy.ones(len(elements), bool)
        loops_of = dict(stores)
        search = self.search(part, stores)
        search.look_at_ends(outer)
        for found in search.writers(elements, kind, outer):
            frame = found.frame
            if reader is not None and len(found.rows) == len(frame.kind) == len(elements):
                frame.outer, frame.shape = reader
                frame.own = frozenset(loops_of[found.store])
            values[found.rows] = found.values()
            left[found.rows] = False
        if left.any() and part.writes_over and reader is None and not outer:
            values[left] = self.before(part, elements[left], kind[left])
        elif left.any():
            raise NotReadable(f"nothing writes element {elements[left][0]} of slot {memory.arg[0]}")
        return values

    def search(self, part: Part, stores: Stores | None = None) -> Search:
        """For the iterations of a part that write elements: of the memory that it leaves, or where some stores do."""
        stores = list(part.nests.items()) if stores is None else stores
        key = id(part), tuple([store for store, _ in stores])
        if key not in self._searches:

            def frame(kind: Values, bound: dict[UOp, Values]) -> Frame:
                return self.frame(part, kind, bound)

            self._searches[key] = Search(stores, frame, part.reads_own)
        return self._searches[key]

    # -- stores that combine ----------------------------------------------------------------------

    def _combined_everywhere(self, part: Part, elements: Values, kind: Values) -> Values:
        """Each element with every iteration of all stores that combine with it."""
        total = self.before(part, elements, kind)
        for store, nest in part.nests.items():
            total = self._combined(part, store, nest, {}, None, elements, kind, total)
        return total

    def before(self, part: Part, elements: Values, kind: Values) -> Values:
        """What a kernel that combines with memory, or leaves some of it as it was, finds there."""
        there = part.before.get(part.written)
        if there is None:
            raise NotReadable("a kernel combines with memory that nothing has written")
        if isinstance(there, Drawn):
            return self.draw(there.number, part.dtype, elements, kind)
        return self.written(there, elements, kind)

    def _combined(
        self,
        part: Part,
        store: UOp,
        nest: tuple[UOp, ...],
        fixed: dict[UOp, Values],
        lane: Values | None,
        elements: Values,
        kind: Values,
        first: Values,
    ) -> Values:
        """`first` combined with what a store puts at each element in the loops that are not fixed."""
        address, value = store.src[:2]
        if _is_never_written(address):
            return first
        frame = self.frame(part, kind, dict(fixed))
        loops = tuple([loop for loop in nest if loop not in fixed])
        lanes = value.dtype.lanes
        counters = list(loops)
        if lanes > 1 and lane is None:
            counters.append(UOp.range(lanes, 1 << 30))
        axis = frame.bind(counters, frozenset())
        if lanes > 1 and lane is None:
            lane = frame.bound[counters[-1]]
        steps = prod([loop.src[0].arg for loop in counters])
        self.budget.spend(steps * len(elements))
        position, mask = frame.address(address, lanes, lane)
        hits = mask & (position == elements)
        if writes_over(store):
            last = frame.last(first, frame.value(value, lane), hits, axis)
            return of_points(last, len(elements))
        taken = _taken_by(store)
        needed = [t for term in taken.terms for t in (*term.factors, *term.masks)]
        values = [frame.value(t, lane) for t in needed]
        given = iter(values)
        terms: list[Values] = []
        for term in taken.terms:
            terms += [next(given) for _ in term.factors]
            terms += [next(given) for _ in term.masks]
            terms.append(hits)
        masked = Taken(
            taken.op, tuple([type(t)(t.factors, (*t.masks, t.factors[0])) for t in taken.terms])
        )
        found = frame.combine(masked, part.dtype, first, terms, axis, steps)
        return of_points(found, len(elements))

    # -- samples ----------------------------------------------------------------------------------

    def sample(
        self,
        part: Part,
        points: int,
        elements: int,
        draw: Any,
        kinds: int,
        corners: Values = NO_ROWS,
    ) -> tuple[Values, Values, Values]:
        """Random iterations of some stores, and those that write random elements.

        `corners`: kinds of memory for more iterations, which write elements. Gives the elements that are written, as what,
        and which kind of memory each iteration sees.
        """
        stores = list(part.nests)
        found: list[Found] = []
        where = kind = rows = numpy.zeros(0, numpy.int64)
        as_it_was: Values | None = None
        if elements and part.size and not part.combines:
            # One of each part of the memory, the last of all, and the first.
            numbers = numpy.arange(elements)
            where = (numbers * part.size + draw.integers(0, part.size, elements)) // elements
            where[:1], where[1:2], kind = part.size - 1, 0, numbers % kinds
            search = self.search(part)
            found = list(search.writers(where, kind, {}))
            left = set(range(elements)).difference(*[each.rows.tolist() for each in found])
            if left and not part.writes_over:
                raise NotReadable(f"nothing writes element {where[min(left)]} of {part.size}")
            rows = numpy.array(sorted(left), numpy.int64)
            as_it_was = self.before(part, where[rows], kind[rows]) if left else None
        chosen = stores
        if len(stores) > 2:
            chosen = [each.store for each in found[:1]]
            chosen = chosen or [stores[k] for k in draw.choice(len(stores)).tolist()]
        every: list[tuple[Values, Values, Values]] = []
        together: dict[Any, list[UOp]] = {}
        for store in dict.fromkeys((*chosen, *[each.store for each in found])):
            key = store if part.combines or part.reads_own else part.nests[store]
            together.setdefault(key, []).append(store)
        for number, group in enumerate(together.values()):
            share = len(together) * len(group) if elements else min(len(stores), 2)
            count = max(1, points // share) if not set(group).isdisjoint(chosen) else 0
            each_kind = numpy.arange(count)
            each_kind = numpy.where(each_kind < ROUNDS * kinds, each_kind % kinds, kinds - 1)
            its = [(each, each.frame.kind[each.points]) for each in found if each.store in group]
            if its and len(mine := corners[number :: len(together)]):
                first = its[0][0]
                places = first.points[numpy.arange(len(mine)) // PRIME**2 % len(first.points)]
                again = [(replace(first, points=places), mine)]
                if len(group) == 1:
                    its += again
                else:
                    every += self._sampled(part, [first.store], each_kind[:0], draw, again)
            every += self._sampled(part, group, each_kind, draw, its)
        if as_it_was is not None:
            every.append((where[rows], of_points(as_it_was, len(rows)), kind[rows]))
        where, values, kind = [numpy.concatenate(parts) for parts in zip(*every)]
        return where, values, kind

    def _sampled(
        self,
        part: Part,
        stores: Sequence[UOp],
        kind: Values,
        draw: Any,
        found: Sequence[tuple[Found, Values]],
    ) -> list[tuple[Values, Values, Values]]:
        """Stores in the same loops, in a random iteration for each kind of memory and in those that were found, with theirs.

        Gives for each the elements that it writes, as what, and which kind of memory each sees.
        """
        nest = part.nests[stores[0]]
        if not do_run(nest):
            none = numpy.zeros(0, numpy.int64)
            return [(none, numpy.zeros(0, kept_as(part.dtype)), none)]
        count = len(kind)
        drawn = draw.loops(nest, count)
        bound = {
            loop: numpy.concatenate([drawn[loop], *[each.counter(loop) for each, _ in found]])
            for loop in nest
        }
        kind = numpy.concatenate([kind, *[its for _, its in found]])
        frame = self.frame(part, kind, bound)
        lane_of: dict[int, Values | None] = {1: None}
        every = []
        for store in stores:
            lanes = store.src[1].dtype.lanes
            if lanes not in lane_of:
                lane, first = draw.integers(0, lanes, len(kind)), count
                for each, _ in found:
                    its = each.lanes()
                    end = first + len(each.points)
                    lane[first:end] = lane[first:end] if its is None else its % lanes
                    first = end
                lane_of[lanes] = lane
            every.append(self._of_store(part, store, frame, lane_of[lanes]))
        return every

    def _of_store(
        self, part: Part, store: UOp, frame: Frame, lane: Values | None
    ) -> tuple[Values, Values, Values]:
        """The elements that a store writes in the points of a frame, as what, and which kind of memory each sees."""
        frame.writes_at(store, lane)
        position, mask, kind, count = frame.position, frame.writes, frame.kind, len(frame.kind)
        assert position is not None  # writes_at has found it
        outside = position.astype(numpy.uint64) >= part.size
        if mask is not None:
            outside = outside & mask
        if outside.any():
            raise NotReadable(
                f"a STORE writes element {position[outside][0]} of memory of {part.size} elements"
            )
        rows = slice(None) if mask is None else numpy.flatnonzero(mask)
        if len(store.src) > 2 or store.arg is not None:
            nest = part.nests[store]
            kind, position = kind[rows], position[rows]
            lane = None if lane is None else lane[rows]
            fixed = {loop: frame.bound[loop][rows] for loop in nest if loop not in store.src[2:]}
            first = self.before(part, position, kind)
            value = self._combined(part, store, nest, fixed, lane, position, kind, first)
            return position, value, kind
        # What is not stored is computed all the same: what it loads must be there.
        value = of_points(frame.value(store.src[1], lane), count)
        return position[rows], value[rows], kind[rows]


def _is_never_written(address: UOp) -> bool:
    """Whether the mask of a store is false, as of a row of a tile that lies beyond the last one."""
    return len(address.src) > 2 and address.src[2].op is Ops.CONST and not address.src[2].arg


def _taken_by(store: UOp) -> Taken:
    """What a STORE combines with the element that is there."""
    address, value = store.src[:2]
    if store.arg is not None:
        return Taken(store.arg, (Term((value,), ()),))
    there = ordered_loads(store)
    if len(there) != 1 or there[0].src[0] is not address:
        raise NotReadable("a STORE with loops does not read the element that it writes")
    return taken_in(there[0], value, nodes_above(there[0], value).__contains__)


def _flattened(shape: tuple[int, ...], *values: Values) -> list[Values]:
    """Each of them in every point of a shape, one after the other."""
    return [numpy.ravel(numpy.broadcast_to(each, shape)) for each in values]
