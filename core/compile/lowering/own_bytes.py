"""What an iteration of the loop that threads share has of each memory to itself.

Owns: that question about a Linear, answered by the coefficients of its positions and masks. Does not own: in which order iterations
run (backends).

    for i < n as thread: ... a[c * i + p] ...        0 <= p < c in all accesses of a: iteration i touches a[c * i : c * (i + 1)] alone
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import floor
from typing import NamedTuple

from proofgrad.core.compile.lowering.program_facts import parameters, range_of_role
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.op_names import LOAD, STORE
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp


def own_bytes(linear: UOp) -> tuple[int, ...]:
    """For each slot the bytes of its memory that an iteration of the shared loop has to itself; 0 where it has none."""
    loop, slots = range_of_role(linear, AxisRole.THREAD), parameters(linear)
    if loop is None:
        return ()
    found: dict[UOp, set[int]] = {memory: set() for memory in slots.values()}
    known: dict[UOp, _Sum | None] = {}
    for node in linear.src:
        if node.op is LOAD or node.op is STORE:
            memory, value = node.src[0].src[0], node.src[1] if node.op is STORE else node
            if memory in found and 0 not in found[memory]:  # with it, nothing else is asked
                found[memory].add(_own_elements(node.src[0], value.dtype.lanes, loop, known))
    return tuple([_bytes(slots.get(k), found) for k in range(max(slots) + 1)])


def _bytes(memory: UOp | None, found: dict[UOp, set[int]]) -> int:
    """Of all accesses of a memory, which agree or have nothing."""
    sizes = set() if memory is None else found[memory]
    return max(sizes) * memory.dtype.itemsize if memory is not None and len(sizes) == 1 else 0


class _Sum(NamedTuple):
    """Loops times constants, and what is added in each lane; of one lane if all are the same."""

    steps: dict[UOp, int]
    lanes: tuple[int, ...]

    def plus(self, other: _Sum) -> _Sum:
        loops = {*self.steps, *other.steps}
        steps = {x: self.steps.get(x, 0) + other.steps.get(x, 0) for x in loops}
        count = max(len(self.lanes), len(other.lanes))
        pairs = zip(self.in_lanes(count), other.in_lanes(count))
        return _Sum(steps, tuple([one + more for one, more in pairs]))

    def times(self, factor: int) -> _Sum:
        steps = {loop: step * factor for loop, step in self.steps.items()}
        return _Sum(steps, tuple([each * factor for each in self.lanes]))

    def in_lanes(self, count: int) -> tuple[int, ...]:
        return self.lanes * count if len(self.lanes) == 1 else self.lanes


def _own_elements(index: UOp, lanes: int, loop: UOp, known: dict[UOp, _Sum | None]) -> int:
    """The coefficient of the loop in a position, if all else in it is at least 0 and stays below; else 0."""
    position = _sum_of(index.src[1], known)
    if position is None:
        return 0
    if index.src[1].dtype.lanes == 1:  # lanes lie behind each other
        position = position.plus(_Sum({}, tuple(range(lanes))))
    own, inner = position.steps.get(loop, 0), {**position.steps, loop: 0}
    least = min(position.lanes) + sum([min(0, _reach(x, step)) for x, step in inner.items()])
    highest = _highest(_Sum(inner, position.lanes), None)
    for mask in _masks(index.src[2]) if len(index.src) > 2 else ():
        highest = min(highest, _highest(_Sum(inner, position.lanes), _bound(mask, known)))
    return own if 0 <= least and highest < own else 0


def _reach(loop: UOp, step: int) -> int:
    return int(step * (loop.src[0].arg - 1))


def _highest(position: _Sum, bound: _Sum | None) -> int:
    """The largest value of a position; where a sum is at most 0, some of whose multiples are the terms of its loops."""
    most = {loop: max(0, _reach(loop, step)) for loop, step in position.steps.items()}
    open_end = max(position.lanes) + sum(most.values())
    steps = {} if bound is None else {loop: step for loop, step in bound.steps.items() if step}
    factors = {Fraction(position.steps.get(loop, 0), step) for loop, step in steps.items()}
    if bound is None or len(factors) != 1 or (factor := max(factors)) <= 0:
        return open_end
    outside = sum([each for loop, each in most.items() if loop not in steps])
    count = max(len(position.lanes), len(bound.lanes))
    lanes = zip(position.in_lanes(count), bound.in_lanes(count))
    return min(open_end, max([floor(outside + at - factor * below) for at, below in lanes]))


def _masks(gate: UOp) -> Iterator[UOp]:
    """The masks that all have to hold."""
    if gate.op is Ops.AND or gate.op is Ops.BROADCAST:
        for source in gate.src:
            yield from _masks(source)
    else:
        yield gate


def _bound(mask: UOp, known: dict[UOp, _Sum | None]) -> _Sum | None:
    """What is at most 0 where a mask holds: x < c is x - c + 1 <= 0."""
    if mask.op is not Ops.CMPLT:
        return None
    below, end = _sum_of(mask.src[0], known), _sum_of(mask.src[1], known)
    return None if below is None or end is None else below.plus(end.times(-1)).plus(_Sum({}, (1,)))


def _sum_of(term: UOp, known: dict[UOp, _Sum | None]) -> _Sum | None:
    """None for a term that is no sum of loops of known size times constants."""
    if term not in known:
        known[term] = _sum_of_sources(term, known)
    return known[term]


def _sum_of_sources(term: UOp, known: dict[UOp, _Sum | None]) -> _Sum | None:
    match term.op:
        case Ops.CONST:
            return _Sum({}, term.arg if isinstance(term.arg, tuple) else (term.arg,))
        case Ops.RANGE:
            return _Sum({term: 1}, (0,)) if term.src[0].op is Ops.CONST else None
        case Ops.BROADCAST:
            return _sum_of(term.src[0], known)
        case Ops.CAST:
            return _as_type(_sum_of(term.src[0], known), term.dtype)
        case Ops.ADD | Ops.MUL:
            one, other = _sum_of(term.src[0], known), _sum_of(term.src[1], known)
        case _:
            return None
    if one is None or other is None:
        return None
    if term.op is Ops.ADD:
        return one.plus(other)
    factor, of = (other, one) if not other.steps and len(other.lanes) == 1 else (one, other)
    return of.times(factor.lanes[0]) if not factor.steps and len(factor.lanes) == 1 else None


def _as_type(found: _Sum | None, dtype: DType) -> _Sum | None:
    """A sum whose values are all of an integer type; None: they are not."""
    first, last = dtype.scalar.lo, dtype.scalar.hi
    if found is None or not dtype.is_int or first is None or last is None:
        return None
    reach = [_reach(loop, step) for loop, step in found.steps.items()]
    least = min(found.lanes) + sum([min(0, each) for each in reach])
    return found if first <= least and _highest(found, None) <= last else None
