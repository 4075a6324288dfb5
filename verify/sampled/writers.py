"""Which iterations of a Linear write given elements: guessed by strides, and looked for where no guess is right.

Owns: the search. That an iteration does write an element is always seen from the address and the mask of its store, so
that a wrong guess costs time and nothing else. Does not own: the values that are written (sampled/linear.py), which
elements are asked for (sampled/parts.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy

from proofgrad.core.compile.nests.strides import at_start, coefficient
from proofgrad.core.ir.op_names import LOAD, RANGE, RESULT
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.verify.sampled.arithmetic import Values
from proofgrad.verify.sampled.linear import Frame, of_points
from proofgrad.verify.sampled.nesting import NotReadable
from proofgrad.verify.sampled.tensor import OverBudgetError

# So many iterations are looked through for those that write elements, and so many pairs of these are compared.
MOST_TRIED, MOST_PAIRS = 1 << 14, 1 << 21
# And so many guesses are made of which iteration writes an element.
MOST_GUESSES = 4

Loops = tuple[UOp, ...]
Stores = Sequence[tuple[UOp, Loops]]  # each with the loops that it runs in
Bound = dict[UOp, Values]


@dataclass(frozen=True, slots=True)
class Guess:
    """Iterations of a store that may write some elements: the rows of these, counters of loops, the lane."""

    store: UOp
    rows: Values
    counters: list[Values]
    lane: Values | None


@dataclass(frozen=True, slots=True)
class Found:
    """Iterations of a store that write some elements: the rows of these, and the points of a frame."""

    store: UOp
    rows: Values
    frame: Frame
    points: Values
    lane: Values | None

    def counter(self, loop: UOp) -> Values:
        """Of a loop that the store runs in."""
        return self.frame.bound[loop][self.points]

    def lanes(self) -> Values | None:
        """The lane of each point; None of a store of scalars."""
        return None if self.lane is None else self.lane[self.points]

    def values(self) -> Values:
        """What is written."""
        count = len(self.frame.kind)
        return of_points(self.frame.value(self.store.src[1], self.lane), count)[self.points]


@dataclass(slots=True)
class _Group:
    """Stores whose addresses move alike with their loops and the lane."""

    stores: list[tuple[UOp, int]]  # each with a value of the tabled loop
    addresses: list[int]  # where each starts
    strides: list[int]
    sizes: list[int]
    tabled: int | None  # the loop that addresses do not move with by a stride

    @property
    def starts(self) -> Values:
        """The addresses, one below the other."""
        return numpy.array(self.addresses).reshape(-1, 1)


class Search:
    """Looks for iterations of stores. `frame`: makes one of kinds of memory and counters of loops.

    `apart`: each store has frames of its own, for what it may read depends on what it writes.
    """

    def __init__(
        self, stores: Stores, frame: Callable[[Values, Bound], Frame], apart: bool
    ) -> None:
        self.apart = apart
        self.stores = [(store, loops) for store, loops in stores if do_run(loops)]
        self.loops_of = dict(self.stores)
        self.frame = frame
        self._groups: list[_Group] | None = None
        self._ends_are_seen = False
        self._known_strides: dict[tuple[UOp, int], list[int] | None] = {}

    def writers(self, elements: Values, kind: Values, outer: Bound) -> Iterator[Found]:
        """Each element once, with an iteration that writes it; left out if none does.

        `outer`: the counters of loops around, of each element. Raises: OverBudgetError.
        """
        ways = (self.by_guess, self._by_trying, self._one_by_one)
        rows = numpy.arange(len(elements))
        for way in (self._one_by_one, self._inside) if outer else ways:
            left = numpy.ones(len(rows), bool)
            if not len(rows):
                return
            around = {loop: values[rows] for loop, values in outer.items()}
            for found in way(elements[rows], kind[rows], around):
                yield replace(found, rows=rows[found.rows])
                left[found.rows] = False
            rows = rows[left]
        if len(rows) and any([_too_many(loops) for _, loops in self.stores]):
            raise OverBudgetError

    # -- guesses ----------------------------------------------------------------------------------

    def _guesses(self, elements: Values) -> list[Guess]:
        """Stores and iterations that may write elements, if addresses move with loops by strides, but for one loop."""
        found: list[Guess] = []
        if self._groups is None:
            self._groups = self._moving_alike()
        times = numpy.zeros(len(elements), int)
        for group in self._groups:
            if group.starts.size * len(elements) > MOST_PAIRS:
                continue
            digits, rest = _digits(elements - group.starts, group.strides, group.sizes)
            hits = rest == 0
            for k in numpy.flatnonzero(hits.any(axis=1)).tolist():
                rows = numpy.flatnonzero(hits[k] & (times < MOST_GUESSES))
                if not len(rows):
                    continue
                times[rows] += 1
                store, value = group.stores[k]
                *counters, lane = [digit[k][rows] for digit in digits]
                if group.tabled is not None:
                    counters[group.tabled] = numpy.full(len(rows), value)
                its_lane = lane if group.sizes[-1] > 1 else None
                found.append(Guess(store, rows, counters, its_lane))
        return found

    def _moving_alike(self) -> list[_Group]:
        """Stores by how their addresses move."""
        in_loops: dict[tuple[Loops, int], list[UOp]] = {}
        for store, loops in self.stores:
            in_loops.setdefault((loops, store.src[1].dtype.lanes), []).append(store)
        groups: list[_Group] = []
        starts: dict[UOp, int] = {}
        for (loops, lanes), stores in in_loops.items():
            first: tuple[_Group, int, list[int]] | None = None
            for store in stores:
                address = store.src[0].src[1]
                if address.dtype.lanes > 1 or first is None:
                    if (group := self._moving(store, loops, lanes)) is None:
                        continue
                    groups.append(group)
                    if address.dtype.lanes == 1:
                        first = group, at_start(address, starts), list(group.addresses)
                else:  # as the first one does; whether it does is seen where it is used
                    group, start, addresses = first
                    off = at_start(address, starts) - start
                    group.stores += [(store, value) for value in range(len(addresses))]
                    group.addresses += [at + off for at in addresses]
        return groups

    def _moving(self, store: UOp, loops: Loops, lanes: int) -> _Group | None:
        """How the address of a store moves; None if not by strides, but for one loop."""
        address, sizes = store.src[0].src[1], [*[loop.src[0].arg for loop in loops], lanes]
        if address.dtype.lanes == 1:
            known = [coefficient(address, loop) for loop in loops]
            moves = [move for move in known if move is not None]
            if len(moves) == len(loops):
                moves.append(1 if lanes > 1 else 0)
                return _Group([(store, 0)], [at_start(address)], moves, sizes, None)
        if not _moves_with(loops, store):
            return None
        probes, frame = self._probes(loops, lanes, {})
        at = of_points(frame.address(store.src[0], lanes, probes[-1])[0], probes.shape[1]).tolist()
        start, near, far = at[0], at[1 : len(sizes) + 1], at[len(sizes) + 1 :]
        strides = [next_one - start for next_one in near]
        bent = [k for k, size in enumerate(sizes) if far[k] != start + strides[k] * (size - 1)]
        if not bent:
            return _Group([(store, 0)], [start], strides, sizes, None)
        (tabled, *others), count = bent, sizes[bent[0]]
        if others or tabled == len(loops) or count > MOST_TRIED:
            return None
        strides[tabled] = 0
        bound = dict.fromkeys(loops, numpy.zeros(count, numpy.int64))
        bound[loops[tabled]] = numpy.arange(count)
        table = self.frame(numpy.zeros(count, numpy.int64), bound)
        addresses = table.address(store.src[0], lanes, numpy.zeros(count, numpy.int64))[0]
        stores = [(store, value) for value in range(count)]
        return _Group(stores, of_points(addresses, count).tolist(), strides, sizes, tabled)

    def _probes(self, loops: Loops, lanes: int, outer: Bound) -> tuple[Values, Frame]:
        """The first iteration; for each loop and the lane the next one; and the last one."""
        sizes = numpy.array([*[loop.src[0].arg for loop in loops], lanes])
        one = numpy.diag(numpy.minimum(sizes - 1, 1))
        first = numpy.zeros((len(sizes), 1), numpy.int64)
        probes = numpy.concatenate([first, one, numpy.diag(sizes - 1)], axis=1)
        return probes, self._probed(loops, probes, outer)

    def _probed(self, loops: Loops, probes: Values, outer: Bound) -> Frame:
        """Iterations of loops, in the first of those around."""
        count = probes.shape[1]
        around = {loop: numpy.repeat(values[:1], count) for loop, values in outer.items()}
        return self.frame(numpy.zeros(count, numpy.int64), around | dict(zip(loops, probes)))

    def by_guess(
        self, elements: Values, kind: Values, outer: Bound | None = None
    ) -> Iterator[Found]:
        """Elements with an iteration that writes them, where a guess is right; of stores in the same loops in one frame."""
        together: dict[object, list[Guess]] = {}
        for guess in self._guesses(elements):
            key = guess.store if self.apart else self.loops_of[guess.store]
            together.setdefault(key, []).append(guess)
        left = numpy.ones(len(elements), bool)
        for guesses in together.values():
            loops = self.loops_of[guesses[0].store]
            rows = numpy.concatenate([guess.rows for guess in guesses])
            counters = [numpy.concatenate(parts) for parts in zip(*[g.counters for g in guesses])]
            frame, first = self.frame(kind[rows], dict(zip(loops, counters))), 0
            lane_of: dict[UOp, Values] = {}
            for guess in guesses:  # the lane of a store may be asked for again
                lane_of.setdefault(guess.store, numpy.zeros(len(rows), numpy.int64))
                if guess.lane is not None:
                    lane_of[guess.store][first : first + len(guess.rows)] = guess.lane
                first += len(guess.rows)
            first = 0
            for guess in guesses:
                points = numpy.arange(first, first + len(guess.rows))
                first += len(guess.rows)
                lane = None if guess.lane is None else lane_of[guess.store]
                right = frame.writes_at(guess.store, lane, elements[rows])[points]
                right &= left[guess.rows]
                if right.any():
                    left[guess.rows[right]] = False
                    yield Found(guess.store, guess.rows[right], frame, points[right], lane)

    def _right(self, guess: Guess, bound: Bound, elements: Values, kind: Values) -> Iterator[Found]:
        """What is right of a guess, whose elements these are."""
        frame = self.frame(kind, bound)
        right = frame.writes_at(guess.store, guess.lane, elements)
        points = numpy.flatnonzero(right)
        if len(points):
            yield Found(guess.store, guess.rows[points], frame, points, guess.lane)

    def _one_by_one(self, elements: Values, kind: Values, outer: Bound) -> Iterator[Found]:
        """A guess for each store, from its address in each frame."""
        left = numpy.ones(len(elements), bool)
        for store, loops in self.stores:
            rows = numpy.flatnonzero(left)
            lanes = store.src[1].dtype.lanes
            strides = self._strides(store, loops, lanes, outer) if len(rows) else None
            if strides is None:
                continue
            around = {loop: values[rows] for loop, values in outer.items()}
            nothing = numpy.zeros(len(rows), numpy.int64)
            frame = self.frame(kind[rows], {**around, **dict.fromkeys(loops, nothing)})
            start = frame.address(store.src[0], lanes, nothing)[0]
            sizes = [*[loop.src[0].arg for loop in loops], lanes]
            digits, rest = _digits(elements[rows] - start, strides, sizes)
            if not (rest == 0).any():
                continue
            *counters, lane = digits
            guess = Guess(store, rows, counters, lane if lanes > 1 else None)
            bound = {**around, **dict(zip(loops, counters))}
            for found in self._right(guess, bound, elements[rows], kind[rows]):
                left[found.rows] = False
                yield found

    def _strides(self, store: UOp, loops: Loops, lanes: int, outer: Bound) -> list[int] | None:
        """How the address moves with each loop, and with the lane; None if it depends on memory.

        It is said for the first element; whether it holds for others is seen where it is used.
        """
        key = store, lanes
        if key not in self._known_strides:
            self._known_strides[key] = None
            if _moves_with((*loops, *outer), store):
                probes, frame = self._probes(loops, lanes, outer)
                address = frame.address(store.src[0], lanes, probes[-1])[0]
                at = of_points(address, probes.shape[1])
                self._known_strides[key] = (at[1 : len(loops) + 2] - at[0]).tolist()
        return self._known_strides[key]

    def look_at_ends(self, outer: Bound) -> None:
        """Raises: NotReadable if a STORE writes outside of its memory where its address should be the least, or the largest."""
        if self._ends_are_seen:
            return
        self._ends_are_seen = True
        frames: dict[Any, tuple[Values, Frame]] = {}
        for store, loops in self.stores:
            lanes, size = store.src[1].dtype.lanes, store.src[0].src[0].arg[1]
            strides = self._strides(store, loops, lanes, outer)
            if strides is None:
                continue
            key = loops, lanes, tuple([stride > 0 for stride in strides])
            if key not in frames:
                last = [*[loop.src[0].arg - 1 for loop in loops], lanes - 1]
                ends = numpy.array(
                    [(0, n, 0 if up > 0 else n, n if up > 0 else 0) for n, up in zip(last, strides)]
                )
                frames[key] = ends, self._probed(loops, ends, outer)
            ends, frame = frames[key]
            position, mask = frame.address(store.src[0], lanes, ends[-1])
            outside = mask & (position.astype(numpy.uint64) >= size)
            if outside.any():
                position = numpy.broadcast_to(position, outside.shape)
                raise NotReadable(
                    f"a STORE writes element {position[outside].ravel()[0]} of memory of {size} elements"
                )

    # -- every iteration ----------------------------------------------------------------------------

    def _by_trying(self, elements: Values, kind: Values, outer: Bound) -> Iterator[Found]:
        """Every iteration is looked at, of stores in the same loops together."""
        groups: dict[Loops, list[UOp]] = {}
        for store, loops in self.stores:
            groups.setdefault(loops, []).append(store)
        left = numpy.ones(len(elements), bool)
        for loops, group in groups.items():
            if _too_many(loops):
                continue
            every = _every(loops)
            count = prod([loop.src[0].arg for loop in loops])
            addresses = toposort([store.src[0].src[1] for store in group])
            kinds = numpy.unique(kind[left]).tolist()
            if not any([n.op is LOAD for n in addresses]):
                kinds = kinds[:1]
            for seen in kinds:  # where an address depends on what is loaded
                frame = self.frame(numpy.full(count, seen), dict(zip(loops, every)))
                for store in group:
                    rows = numpy.flatnonzero(left & (kind == seen) if len(kinds) > 1 else left)
                    if not len(rows):
                        break
                    tried = (store, loops, every, frame)
                    for found in self._tried(tried, rows, elements[rows], kind[rows]):
                        left[found.rows] = False
                        yield found

    def _tried(
        self,
        tried: tuple[UOp, Loops, list[Values], Frame],
        rows: Values,
        elements: Values,
        kind: Values,
    ) -> Iterator[Found]:
        """The iterations of one store, whose loops have every value in a frame, that write elements."""
        store, loops, every, frame = tried
        index, lanes = store.src[0].src[1], store.src[1].dtype.lanes
        addresses = index.dtype.lanes  # of its lanes, else one after the other
        count = len(frame.kind)
        if count * addresses * len(rows) > MOST_PAIRS:
            raise OverBudgetError
        every_lane = numpy.arange(addresses).reshape(-1, 1) if addresses > 1 else None
        position = frame.value(index, every_lane)
        off = elements.reshape(-1, 1, 1) - numpy.broadcast_to(position, (addresses, count))
        which, lane, iteration = numpy.nonzero((off >= 0) & (off < lanes // addresses))
        if len(which):
            counters = [values[iteration] for values in every]
            its_lane = lane + off[which, lane, iteration] if lanes > 1 else None
            pairs = Guess(store, which, counters, its_lane)
            bound = dict(zip(loops, counters))
            for found in self._right(pairs, bound, elements[which], kind[which]):
                _, first = numpy.unique(found.rows, return_index=True)
                yield replace(found, rows=rows[found.rows[first]], points=found.points[first])

    def _inside(self, elements: Values, kind: Values, outer: Bound) -> Iterator[Found]:
        """Every iteration of each store, in the iteration of the loops around that an element is of.

        If they are too many, those for the first elements are: one that nothing writes says enough.
        """
        lanes_of = {store: store.src[1].dtype.lanes for store, _ in self.stores}
        sizes_of = {
            s: [*[loop.src[0].arg for loop in loops], lanes_of[s]] for s, loops in self.stores
        }
        most = max([prod(sizes) for sizes in sizes_of.values()], default=1)
        if most > MOST_TRIED:
            raise OverBudgetError
        is_cut, few = len(elements) > MOST_TRIED // most, MOST_TRIED // most
        elements, kind = elements[:few], kind[:few]
        outer = {loop: values[:few] for loop, values in outer.items()}
        left = numpy.ones(len(elements), bool)
        for store, loops in self.stores:
            rows = numpy.flatnonzero(left)
            lanes, sizes = lanes_of[store], sizes_of[store]
            count = prod(sizes)
            every = numpy.unravel_index(numpy.arange(count), sizes)
            bound = {loop: numpy.tile(c, len(rows)) for loop, c in zip(loops, every)}
            bound |= {loop: numpy.repeat(v[rows], count) for loop, v in outer.items()}
            lane = numpy.tile(every[-1], len(rows)) if lanes > 1 else None
            frame = self.frame(numpy.repeat(kind[rows], count), bound)
            hits = frame.writes_at(store, lane, numpy.repeat(elements[rows], count))
            hits = hits.reshape(len(rows), count)
            written = numpy.flatnonzero(hits.any(axis=1))
            points = written * count + hits[written].argmax(axis=1)
            guess = Guess(store, rows[written], [], None if lane is None else lane[points])
            its = {loop: values[points] for loop, values in bound.items()}
            for found in self._right(guess, its, elements[guess.rows], kind[guess.rows]):
                left[found.rows] = False
                yield found
        if is_cut and not left.any():
            raise OverBudgetError


def _moves_with(loops: Loops, store: UOp) -> bool:
    """Whether the address of a store depends on these loops and on nothing else."""
    for node in toposort((store.src[0].src[1],)):
        op = node.op
        if op is LOAD or op is RESULT or (op is RANGE and node not in loops):
            return False
    return True


def do_run(loops: Sequence[UOp]) -> bool:
    """Whether there is an iteration."""
    return all([loop.src[0].arg for loop in loops])


def _too_many(loops: Sequence[UOp]) -> bool:
    count: int = prod([loop.src[0].arg for loop in loops])
    return count > MOST_TRIED


def _every(loops: Sequence[UOp]) -> list[Values]:
    """The counters of all iterations."""
    sizes = [loop.src[0].arg for loop in loops]
    return list(numpy.unravel_index(numpy.arange(prod(sizes)), sizes)) if sizes else []


def _digits(
    rest: Values, strides: Sequence[int], sizes: Sequence[int]
) -> tuple[list[Values], Values]:
    """Counters by the strides of an address, the largest first, and how far the address is then off."""
    digits: list[Values] = [numpy.zeros(rest.shape, numpy.int64) for _ in sizes]
    for k in sorted(range(len(sizes)), key=lambda k: -abs(strides[k])):
        stride, last = abs(strides[k]), sizes[k] - 1
        if stride == 0 or last < 1:
            continue
        if strides[k] < 0:
            rest = rest + stride * last
        digit = rest if stride == 1 else rest // stride
        digit = numpy.minimum(numpy.maximum(digit, 0), last)
        rest = rest - (digit if stride == 1 else digit * stride)
        digits[k] = digit if strides[k] > 0 else last - digit
    return digits, rest
