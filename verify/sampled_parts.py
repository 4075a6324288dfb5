"""The kernels that one body becomes, and which of their iterations write an element.

Owns: memory between kernels, the element that an iteration writes, the iteration that writes an
element. Does not own: the values of nodes (sampled_linear.py), what elements should be (sampled_kernels.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy

from proofgrad.core.compile.linear_terms import at_start
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.verify.kernel_nesting import Nesting, NotReadable
from proofgrad.verify.sampled_arithmetic import Values, kept_as
from proofgrad.verify.sampled_linear import Frame, Taken, Term, taken_in
from proofgrad.verify.sampled_tensor import Budget, OverBudgetError

# So many iterations are looked through for the one that writes an element.
MOST_TRIED = 1 << 14


@dataclass(frozen=True, slots=True)
class Drawn:
    """Memory that was there before: its elements are drawn."""

    number: int


@dataclass(slots=True)
class Part:
    """One Linear; `slots`: the numbers of its parameters in the body. `before`: what memory it finds."""

    linear: UOp
    slots: tuple[int, ...]
    before: dict[int, Drawn | Part]
    nests: dict[UOp, tuple[UOp, ...]] = field(init=False)
    depends: dict[UOp, frozenset[UOp]] = field(init=False)

    def __post_init__(self) -> None:
        nesting = Nesting(self.linear)
        self.nests = nesting.of_stores()
        self.depends = nesting.depends
        if not self.nests:
            raise NotReadable("a kernel stores nothing")

    @property
    def written(self) -> int:
        """The number in the body of the memory that it writes."""
        return self.slots[0]

    @property
    def size(self) -> int:
        size: int = self.memory.arg[1]
        return size

    @property
    def memory(self) -> UOp:
        return next(iter(self.nests)).src[0].src[0]

    @property
    def dtype(self) -> DType:
        return self.memory.dtype

    @property
    def combines(self) -> bool:
        """Whether it combines with what is there."""
        return any(len(store.src) > 2 or store.arg is not None for store in self.nests)


@dataclass(slots=True)
class Reader:
    """Elements of memory as kernels see it. `draw` gives those that were there before."""

    draw: Callable[[int, DType, Values, Values], Values]
    budget: Budget

    def frame(self, part: Part, kind: Values, bound: dict[UOp, Values]) -> Frame:
        def read(frame: Frame, memory: UOp, index: Values, gate: Values) -> Values:
            if memory.op is Ops.KEPT:
                return self._scratch(part, frame, memory, index)
            if memory.op is Ops.KEEP:
                return self._kept(part, frame, memory, index)
            return self._parameter(part, frame, memory, index, gate)

        return Frame(part.depends, read, self.budget, kind, bound)

    # -- reading --------------------------------------------------------------------------------

    def _parameter(
        self, part: Part, frame: Frame, memory: UOp, index: Values, gate: Values
    ) -> Values:
        slot = memory.arg[0]
        if slot >= len(part.slots):
            raise NotReadable(f"a LOAD reads slot {slot}, which no buffer is given for")
        number = part.slots[slot]
        if number == part.written and not part.combines and frame.position is not None:
            elsewhere = gate & (index != frame.position)
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
        """What the STORE of KEPT puts at an index: in the iteration that the place counts."""
        store, *loops = kept.src
        around = [x for x in frame.bound if x in part.depends[store] and x not in loops]
        given = [index, frame.kind, *[frame.bound[loop] for loop in around]]
        shape = numpy.broadcast_shapes(*map(numpy.shape, given))
        flat, kind, *counters = _flattened(shape, *given)
        outer = dict(zip(around, counters))
        stores = [(store, tuple(loops))]
        return self._stored(part, stores, flat, kind, outer, (frame, shape)).reshape(shape)

    def _kept(self, part: Part, frame: Frame, keep: UOp, index: Values) -> Values:
        """The value of KEEP for the loops whose row-major position an index is."""
        value, *loops = keep.src
        around = [x for x in frame.bound if x in part.depends[value] and x not in loops]
        given = [index, frame.kind, *[frame.bound[loop] for loop in around]]
        shape = numpy.broadcast_shapes(*map(numpy.shape, given))
        flat, kind, *counters = _flattened(shape, *given)
        sizes = [loop.src[0].arg for loop in loops]
        inner = dict(zip(loops, numpy.unravel_index(flat, sizes)))
        found = self.frame(part, kind, dict(zip(around, counters)) | inner).value(value)
        return _of_points(found, len(flat)).reshape(shape)

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
        found = numpy.zeros(len(elements), kept_as(memory.dtype))
        left = numpy.ones(len(elements), bool)
        for store, loops, rows, counters, lane in self._writers(
            part, stores, elements, kind, outer
        ):
            bound = {loop: values[rows] for loop, values in outer.items()} | dict(
                zip(loops, counters)
            )
            frame = self.frame(part, kind[rows], bound)
            frame.position = elements[rows]
            if reader is not None and len(rows) == len(elements):
                frame.outer, frame.shape = reader
                frame.own = frozenset(loops)
            value = frame.value(store.src[1], lane)
            found[rows] = _of_points(value, len(rows))
            left[rows] = False
        if left.any():
            raise NotReadable(f"nothing writes element {elements[left][0]} of slot {memory.arg[0]}")
        return found

    # -- which iteration --------------------------------------------------------------------------

    def _writers(
        self,
        part: Part,
        stores: Sequence[tuple[UOp, tuple[UOp, ...]]],
        elements: Values,
        kind: Values,
        outer: dict[UOp, Values],
    ) -> list[tuple[UOp, tuple[UOp, ...], Values, list[Values], Values | None]]:
        """For each element a store, and its loops and lane there: (store, loops, rows, counters, lane)."""
        found = []
        left = numpy.ones(len(elements), bool)
        steps: dict[tuple[UOp, ...], list[int] | None] = {}
        for guess in (self._by_strides, self._by_trying):
            for store, loops in stores:
                if not left.any():
                    return found
                rows = numpy.flatnonzero(left)
                args = (part, store, loops, elements[rows], kind[rows], _rows(outer, rows), steps)
                counters, lane, right = guess(*args)
                if not right.any():
                    continue
                rows, counters = rows[right], [c[right] for c in counters]
                found.append((store, loops, rows, counters, None if lane is None else lane[right]))
                left[rows] = False
        return found

    def _by_strides(
        self,
        part: Part,
        store: UOp,
        loops: tuple[UOp, ...],
        elements: Values,
        kind: Values,
        outer: dict[UOp, Values],
        steps: dict[tuple[UOp, ...], list[int] | None],
    ) -> tuple[list[Values], Values | None, Values]:
        """The counters by the strides of the place, largest first, and where they do give the element."""
        lanes = store.src[1].dtype.lanes
        none = numpy.zeros(len(elements), bool)
        if loops not in steps:
            steps[loops] = self._strides(part, store, loops, lanes, outer)
        strides = steps[loops]
        if strides is None:
            return [none] * len(loops), none if lanes > 1 else None, none
        start = at_start(store.src[0].src[1]) if store.src[0].src[1].dtype.lanes == 1 else None
        if start is None:
            zero = {loop: numpy.zeros(len(elements), numpy.int64) for loop in loops}
            frame = self.frame(part, kind, {**outer, **zero})
            start = frame.place(store.src[0], lanes, numpy.zeros(len(elements), numpy.int64))[0]
        sizes = [*[loop.src[0].arg for loop in loops], lanes]
        rest = elements - start
        digits: list[Values] = [numpy.zeros(len(elements), numpy.int64) for _ in sizes]
        for k in sorted(range(len(sizes)), key=lambda k: -abs(strides[k])):
            if strides[k] == 0 or sizes[k] < 2:
                continue
            if strides[k] < 0:
                rest = rest - strides[k] * (sizes[k] - 1)
            digit = numpy.clip(rest // abs(strides[k]), 0, sizes[k] - 1)
            rest = rest - digit * abs(strides[k])
            digits[k] = digit if strides[k] > 0 else sizes[k] - 1 - digit
        if not (rest == 0).any():
            return digits[:-1], digits[-1] if lanes > 1 else None, none
        frame = self.frame(part, kind, {**outer, **dict(zip(loops, digits))})
        position, gate = frame.place(store.src[0], lanes, digits[-1])
        right = (
            (rest == 0)
            & _of_points(position == elements, len(elements))
            & _of_points(gate, len(elements))
        )
        return digits[:-1], digits[-1] if lanes > 1 else None, right

    def _strides(
        self, part: Part, store: UOp, loops: tuple[UOp, ...], lanes: int, outer: dict[UOp, Values]
    ) -> list[int] | None:
        """How the place moves with each loop, and with the lane; None if it depends on more."""
        index = store.src[0].src[1]
        if outer or any(n.op in (Ops.LOAD, Ops.RESULT) for n in toposort((index,))):
            return None
        sizes = [*[loop.src[0].arg for loop in loops], lanes]
        probes = numpy.zeros((len(sizes), len(sizes) + 1), numpy.int64)
        for k, size in enumerate(sizes):
            probes[k, k + 1] = 1 if size > 1 else 0
        frame = self.frame(part, numpy.zeros(len(sizes) + 1, numpy.int64), dict(zip(loops, probes)))
        position = _of_points(frame.place(store.src[0], lanes, probes[-1])[0], len(sizes) + 1)
        moved: list[int] = (position[1:] - position[0]).tolist()
        return moved

    def _by_trying(
        self,
        part: Part,
        store: UOp,
        loops: tuple[UOp, ...],
        elements: Values,
        kind: Values,
        outer: dict[UOp, Values],
        steps: dict[tuple[UOp, ...], list[int] | None],
    ) -> tuple[list[Values], Values | None, Values]:
        """Every iteration is looked at. Raises: OverBudgetError if they are too many."""
        lanes = store.src[1].dtype.lanes
        sizes = [*[loop.src[0].arg for loop in loops], lanes]
        count = prod(sizes)
        points = 1 if not outer else len(elements)
        if count * points > MOST_TRIED:
            raise OverBudgetError
        every = numpy.unravel_index(numpy.arange(count), sizes)
        bound = {loop: numpy.tile(c, points) for loop, c in zip(loops, every)}
        bound |= {loop: numpy.repeat(values, count) for loop, values in outer.items()}
        lane = numpy.tile(every[-1], points)
        frame = self.frame(part, numpy.repeat(kind[:points], count), bound)
        position, gate = frame.place(store.src[0], lanes, lane)
        position = _of_points(position, count * points).reshape(points, count)
        gate = _of_points(gate, count * points).reshape(points, count)
        hits = gate & (position == elements[:, None])
        first = hits.argmax(axis=1)
        digits = [c[first] for c in every]
        return digits[:-1], digits[-1] if lanes > 1 else None, hits.any(axis=1)

    # -- stores that combine ----------------------------------------------------------------------

    def _combined_everywhere(self, part: Part, elements: Values, kind: Values) -> Values:
        """Each element with every iteration of all stores that combine with it."""
        total = self.before(part, elements, kind)
        for store, nest in part.nests.items():
            total = self._combined(part, store, nest, {}, None, elements, kind, total)
        return total

    def before(self, part: Part, elements: Values, kind: Values) -> Values:
        """What a kernel that combines finds there."""
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
        place, value = store.src[:2]
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
        taken = _taken_by(store)
        position, gate = frame.place(place, lanes, lane)
        hits = gate & (position == elements)
        needed = [t for term in taken.terms for t in (*term.factors, *term.gates)]
        values = [frame.value(t, lane) for t in needed]
        given = iter(values)
        terms: list[Values] = []
        for term in taken.terms:
            terms += [next(given) for _ in term.factors]
            terms += [next(given) for _ in term.gates]
            terms.append(hits)
        gated = Taken(
            taken.op, tuple([type(t)(t.factors, (*t.gates, t.factors[0])) for t in taken.terms])
        )
        found = frame.combine(gated, part.dtype, first, terms, axis, steps)
        return _of_points(found, len(elements))

    # -- samples ----------------------------------------------------------------------------------

    def sample(
        self, part: Part, points: int, elements: int, draw: Any, kinds: int
    ) -> tuple[Values, Values, Values]:
        """Random iterations of some stores, and those that write random elements.

        Gives the elements that they write, as what, and which kind of memory each sees.
        """
        stores = list(part.nests)
        count = len(stores) if len(stores) < 3 else 1
        chosen = [stores[k] for k in draw.choice(len(stores), count, replace=False).tolist()]
        found: dict[UOp, tuple[list[Values], Values | None, Values]] = {}
        if elements and part.size and not part.combines:
            found = self._of_elements(part, stores, elements, draw, kinds)
            if count == 1 and len(stores) > 1:  # in the same frame
                chosen = list(found)[:1]
        every: list[tuple[Values, Values, Values]] = []
        for k, store in enumerate(dict.fromkeys((*chosen, *found))):
            more = 0
            if store in chosen:
                more = max(1, points // count + (1 if k < points % count else 0))
            every.append(self._sampled(part, store, more, draw, kinds, found.get(store)))
        where, values, kind = [numpy.concatenate(parts) for parts in zip(*every)]
        return where, values, kind

    def _of_elements(
        self, part: Part, stores: Sequence[UOp], elements: int, draw: Any, kinds: int
    ) -> dict[UOp, tuple[list[Values], Values | None, Values]]:
        """The iterations that write random elements, by store: counters, lane, kind. Raises: NotReadable if none does."""
        where = draw.integers(0, part.size, elements)
        where[:1] = part.size - 1
        kind = numpy.arange(elements) % kinds
        found: dict[UOp, tuple[list[Values], Values | None, Values]] = {}
        left = numpy.ones(elements, bool)
        nests = [(store, part.nests[store]) for store in stores]
        for store, _, rows, counters, lane in self._writers(part, nests, where, kind, {}):
            found.setdefault(store, (counters, lane, kind[rows]))
            left[rows] = False
        if left.any():
            raise NotReadable(f"nothing writes element {where[left][0]} of {part.size}")
        return found

    def _sampled(
        self,
        part: Part,
        store: UOp,
        count: int,
        draw: Any,
        kinds: int,
        more: tuple[list[Values], Values | None, Values] | None,
    ) -> tuple[Values, Values, Values]:
        """So many random iterations of a store, and more that are known."""
        nest, lanes = part.nests[store], store.src[1].dtype.lanes
        if any(loop.src[0].arg == 0 for loop in nest):
            none = numpy.zeros(0, numpy.int64)
            return none, numpy.zeros(0, kept_as(part.dtype)), none
        kind = numpy.arange(count) % kinds
        bound = {loop: draw.loop(loop, count) for loop in nest}
        lane = draw.integers(0, lanes, count) if lanes > 1 else None
        if more is not None:
            counters, other_lane, other_kind = more
            kind = numpy.concatenate([kind, other_kind])
            bound = {x: numpy.concatenate([bound[x], c]) for x, c in zip(nest, counters)}
            if lane is not None and other_lane is not None:
                lane = numpy.concatenate([lane, other_lane])
            count = len(kind)
        frame = self.frame(part, kind, bound)
        position, gate = frame.place(store.src[0], lanes, lane)
        position, gate = [_of_points(x, count) for x in (position, gate)]
        outside = gate & ((position < 0) | (position >= part.size))
        if outside.any():
            raise NotReadable(
                f"a STORE writes element {position[outside][0]} of memory of {part.size} elements"
            )
        rows = numpy.flatnonzero(gate)
        if len(store.src) > 2 or store.arg is not None:
            kind, position = kind[rows], position[rows]
            bound = {loop: values[rows] for loop, values in bound.items()}
            lane = None if lane is None else lane[rows]
            fixed = {loop: values for loop, values in bound.items() if loop not in store.src[2:]}
            first = self.before(part, position, kind)
            value = self._combined(part, store, nest, fixed, lane, position, kind, first)
            return position, value, kind
        # What is not stored is computed all the same: what it loads must be there.
        frame.position, frame.writes = position, gate
        value = _of_points(frame.value(store.src[1], lane), count)
        return position[rows], value[rows], kind[rows]


def _taken_by(store: UOp) -> Taken:
    """What a STORE combines with the element that is there."""
    place, value = store.src[:2]
    if store.arg is not None:
        return Taken(store.arg, (Term((value,), ()),))
    there = [n for n in toposort((value,)) if n.op is Ops.LOAD and len(n.src) > 1]
    if len(there) != 1 or there[0].src[0] is not place:
        raise NotReadable("a STORE with loops does not read the element that it writes")
    return taken_in(there[0], value)


def _of_points(values: Values, count: int) -> Values:
    """One value a point: no loop is left that has no value. Raises: NotReadable."""
    if any(size > 1 for size in values.shape[:-1]):
        raise NotReadable("a STORE depends on a loop that has ended")
    return numpy.broadcast_to(values.reshape(values.shape[-1:]), (count,))


def _flattened(shape: tuple[int, ...], *values: Values) -> list[Values]:
    """Each of them in every point of a shape, one after the other."""
    return [numpy.ravel(numpy.broadcast_to(each, shape)) for each in values]


def _rows(outer: dict[UOp, Values], rows: Values) -> dict[UOp, Values]:
    return {loop: values[rows] for loop, values in outer.items()}


def may_cover(part: Part) -> bool:
    """Whether the stores together run often enough to write every element."""
    if part.combines:
        return True
    runs = 0
    for store, nest in part.nests.items():
        runs += prod([loop.src[0].arg for loop in nest]) * store.src[1].dtype.lanes
    return runs >= part.size
