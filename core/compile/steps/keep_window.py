"""What loads read from a window of memory is kept in a table that is filled once, and read there at any places of the window.

    f(m[b + s(i)])   =   let k[a] = m[b + a] for all a < n: f(k[s(i)])        where 0 <= s(i) < n

    m:  0 1 2 3 4 5 6 7      b = 2, n = 4      k: 2 3 4 5      s = (0, 2, 0, 3): reads 2, 4, 2, 5

Where local_buffer keeps a value for each iteration, a position that many iterations read has one place here: so an image is kept once
for all taps of a filter. A place has several axes, each with its stride in memory: `b + 64 * s(i) + t(i)` for pixels and channels. An axis may be
longer than what is read of it. What the table has beyond the end of the memory is 0, and is read by nobody.

That a position is b and its places times their strides is decided by linear forms, where a remainder counts as i - i // n * n, and a
quotient of a quotient as one; that
places are inside of the window by bounds, for each iteration of a few loops by themselves: the first of some rows is another one in
each, and the others lie behind it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from proofgrad.core.compile.nests.loops import elements_of, is_fixed, size_of
from proofgrad.core.compile.nests.strides import loops_of
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.bounds import is_inside, lies_between
from proofgrad.core.compile.steps.collapse import MOST_LOOPS, collapse_law
from proofgrad.core.compile.steps.local_buffer import require_fill
from proofgrad.core.compile.steps.loop_nest import LoopNest, require, step
from proofgrad.core.compile.steps.tables import loaded, require_room
from proofgrad.core.compile.text.show import brief
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.core.rewrite.facts import Facts

MOST_TOLD_APART = 64  # iterations of loops for each of which bounds are asked


@dataclass(frozen=True, slots=True)
class Axis:
    """Of a window: the place that is read, how many there are, how far they lie apart in memory; `made`: the loop that fills them."""

    place: UOp
    size: int
    stride: int
    made: NewLoop

    def __str__(self) -> str:
        return f"{self.made} = {brief(self.place)} < {self.size}"


def position_of(first: Any, places: Sequence[Any], strides: Sequence[Any]) -> Any:
    """Where in memory the element at these places of a window is, which begins at `first`."""
    position = first
    for place, stride in zip(places, strides, strict=True):
        position = position + place * stride
    return position


def is_element(position: Any, elements: Any) -> Any:
    """Whether a memory of so many elements has one at a position."""
    return ~(position < 0) & (position < elements)


def remainder(number: Any, quotient: Any, by: Any) -> Any:
    """What is left of a number, from its quotient."""
    return number - quotient * by


def quotient_at_once(number: Any, first: Any, then: Any) -> Any:
    """The quotient by one number of the quotient by another."""
    return number // (first * then)


@step("f(m[b + s(i)]) = f(k[s(i)]) where k[a] = m[b + a] for all a < n")
def keep_window(
    nest: LoopNest, load: UOp, first: UOp, axes: tuple[Axis, ...], apart: tuple[UOp, ...] = ()
) -> UOp:
    """What `load` reads is kept along `axes` from the position `first` on, and read from there.

    `apart`: loops for each of whose iterations places are asked for their bounds.
    """
    require(load in toposort((nest.graph,)) and load.op is Ops.LOAD, "no load of the nest", load)
    memory, position, *masks = load.src[0].src
    require(memory.op is Ops.PARAM and not masks, "no memory that is read without a mask", memory)
    require_places(nest, position, first, axes, apart)
    own = tuple([UOp.range(axis.size, axis.made.number, axis.made.role) for axis in axes])
    value = filled_from(memory, first, own, axes, nest)
    require_fill(nest, loops_of(first), [axis.made for axis in axes])
    kept = UOp(Ops.LOCAL_BUFFER, load.dtype, (value, *own))
    places, sizes = [axis.place for axis in axes], [axis.size for axis in axes]
    (at,) = collapse_law(len(axes)).new(*places, *sizes)
    changed = nest.graph.substitute({load: loaded(kept, at)})
    require_room(nest, changed)
    return changed


def require_places(
    nest: LoopNest, position: UOp, first: UOp, axes: Sequence[Axis], apart: Sequence[UOp]
) -> None:
    """Raises: StepRefused where a position is not that of the places of axes behind a first one, or a place is outside of its axis."""
    require(0 < len(axes) <= MOST_LOOPS, "no axes, or more than", MOST_LOOPS)
    places, strides = [axis.place for axis in axes], [axis.stride for axis in axes]
    others = frozenset().union(*map(loops_of, (first, *places))) - loops_of(position)
    require(not others, "loops that the position does not change with", *others)
    is_there = _is_same(position, position_of(first, places, strides), nest.facts)
    require(is_there, "another position than those places have", position)
    for axis in axes:
        is_within = _lies_within(axis.place, axis.size, apart, nest.facts)
        require(is_within, "places outside of a window", axis.place, axis.size)


def filled_from(
    memory: UOp, first: UOp, own: Sequence[UOp], axes: Sequence[Axis], nest: LoopNest
) -> UOp:
    """What fills the places of these loops: the element of memory there, or 0 beyond its ends."""
    there = position_of(first, own, [axis.stride for axis in axes])
    if is_inside(there, memory, nest.facts):
        return loaded(memory, there)
    return loaded(memory, there, is_element(there, elements_of(memory)))


def _is_same(one: UOp, other: UOp, facts: Facts) -> bool:
    """Whether two terms are one number, by linear forms without remainders."""
    form = facts.forms.read(without_remainders(one - other))
    return form is not None and facts.forms.written(form) is UOp.index(0)


def without_remainders(term: UOp) -> UOp:
    """An index term in which each remainder by a number is what a quotient leaves, and each quotient by numbers one of a sum."""
    done: dict[UOp, UOp] = {}
    for node in toposort((term,)):
        new = node.with_src(tuple([done[s] for s in node.src]))
        if node.op is Ops.MOD and _is_by_number(new):
            number, by = new.src
            new = remainder(number, _quotient(number // by), by)
        done[node] = _quotient(new)
    return done[term]


def _quotient(term: UOp) -> UOp:
    """A quotient of a quotient as one."""
    if term.op is not Ops.FLOORDIV or not _is_by_number(term):
        return term
    inner, then = term.src
    if inner.op is not Ops.FLOORDIV or not _is_by_number(inner):
        return term
    made: UOp = quotient_at_once(inner.src[0], inner.src[1].arg, then.arg)
    return made


def _is_by_number(term: UOp) -> bool:
    divisor = term.src[1]
    return divisor.op is Ops.CONST and divisor.arg > 0


def _lies_within(place: UOp, size: int, apart: Sequence[UOp], facts: Facts) -> bool:
    """Whether a place is below a size, and not negative, in each iteration of some loops."""
    loops = [x for x in apart if x in loops_of(place)]
    if not all(map(is_fixed, loops)) or prod([size_of(x) for x in loops]) > MOST_TOLD_APART:
        return False
    return all([lies_between(one, 0, size - 1, facts) for one in _iterations(place, loops)])


def _iterations(place: UOp, loops: Sequence[UOp]) -> Iterator[UOp]:
    """A place in each iteration of loops."""
    for values in product(*[range(size_of(x)) for x in loops]):
        yield place.substitute({x: UOp.index(n) for x, n in zip(loops, values)})
