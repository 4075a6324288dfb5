"""What memory takes from the last of some values that address it is written value by value, in their order.

    for r: m[r] = where(L(r) >= 0, f(L(r), r), g(r))     where L(r) = max[j](where(p(j) == r, j, -inf))
        =   for r: m[r] = g(r);   for j, in order: if 0 <= p(j) < n: m[p(j)] = f(j, p(j))

    p: 2 0 2        L = 1 - 2        m: g0 g1 g2   j = 0: g0 g1 f0   j = 1: f1 g1 f0   j = 2: f1 g1 f2

As in an assignment by index, of which the last one counts where an index is there twice. Where m[r] is what is there already, it is not
written again: then the positions that are named are all that is touched, however large the memory is. No f, p or mask reads the memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from proofgrad.core.compile.nests.loops import is_fixed, size_of
from proofgrad.core.compile.nests.strides import loops_below
from proofgrad.core.compile.steps.loop_nest import LoopNest, fission, require
from proofgrad.core.compile.steps.scatter import Placed, placed
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.op_names import CAST, CMPLT, CONST, LOAD, LOCAL_BUFFER, RANGE, REDUCE, WHERE
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort
from proofgrad.core.rewrite.facts import Facts


@dataclass(frozen=True, slots=True)
class LastWriter:
    """A store of what the last of some values is, and of something else where there is none."""

    last: Placed
    loops: tuple[UOp, ...]  # of the store, in order of their numbers
    address: UOp
    written: UOp  # by the value that the reduction's loop counts
    rest: UOp

    @property
    def is_in_place(self) -> bool:
        """Whether the rest is what the memory holds already."""
        return self.rest.op is LOAD and self.rest.src == (self.address,)


@fission(
    "m[r] = where(L(r) >= 0, f(L(r), r), g(r)), L(r) = max[j](where(p(j) == r, j, -inf)), is m = g; for j, in order: m[p(j)] = f(j, p(j))"
)
def overwrite(nest: LoopNest) -> tuple[UOp, ...]:
    """The graph that stores what is there where nothing is written, unless it is there; and the one that writes in order."""
    found = last_writer(nest.graph, nest.facts)
    require(found is not None, "no store of what the last value is that names a position")
    assert found is not None
    writing = _in_order(found)
    if found.is_in_place:
        return (writing,)
    (store,) = nest.graph.src
    return nest.graph.with_src((store.with_src((found.address, found.rest)),)), writing


def last_writer(graph: UOp, facts: Facts) -> LastWriter | None:
    """What the one store of a kernel says of a last value; None: nothing of that kind."""
    if len(graph.src) != 1 or len(graph.src[0].src) != 2 or graph.src[0].arg is not None:
        return None
    address, value = graph.src[0].src
    free = loops_below(graph)
    loops = tuple(sorted(free[graph], key=lambda loop: loop.arg[0]))
    is_plain = len(address.src) == 2 and all(
        [is_fixed(loop) and loop.arg[1] is AxisRole.LOOP for loop in loops]
    )
    last = _is_there_a_last(value.src[0]) if is_plain and value.op is WHERE else None
    found = None if last is None else placed(last, free[last], facts)
    if last is None or found is None or set(found.addresses) != set(found.loops):
        return None
    (counter,) = last.src[1:]
    if not _counts(found.value, counter):
        return None
    written = value.src[1].substitute({last: found.value})
    nodes = toposort((written, found.mask, *found.addresses.values()))
    bound = [x for n in toposort((written,)) if n.op is REDUCE for x in n.src[1:]]
    reads = any([n.op is LOCAL_BUFFER or n is address.src[0] for n in nodes])
    if reads or counter in bound:
        return None
    return LastWriter(found, loops, address, written, value.src[2])


def is_some(least: int, bound: int) -> bool:
    """Whether `bound` < L says that there is a last value: L is `least` where there is none, and 0 or more else."""
    return (least <= bound) & (bound < 0)


def _is_there_a_last(condition: UOp) -> UOp | None:
    """The greatest counter of which a condition says that there is one."""
    if condition.op is not CMPLT or condition.src[0].op is not CONST:
        return None
    bound, last = condition.src
    is_last = last.op is REDUCE and last.arg is Ops.MAX and len(last.src) == 2 and last.dtype.is_int
    return last if is_last and is_some(dtypes.min(last.dtype), bound.arg) else None


def _counts(value: UOp, counter: UOp) -> bool:
    """Whether a value is the counter itself, in a type that holds all that it counts."""
    is_one = value.op is CAST and value.src[0] is counter
    return is_one and size_of(counter) - 1 <= dtypes.max(value.dtype)


def _in_order(found: LastWriter) -> UOp:
    """The graph that writes value after value to its position."""
    (counter,) = found.last.reduction.src[1:]
    order: list[UOp] = []  # the counter stands where the first loop of positions stood
    for loop in found.loops:
        if loop not in found.last.addresses:
            order.append(loop)
        elif counter not in order:
            order.append(counter)
    fresh = {
        loop: UOp.range(size_of(loop), k, AxisRole.REDUCE if loop is counter else AxisRole.LOOP)
        for k, loop in enumerate(order)
    }
    inside = [n for n in toposort((found.written,)) if n.op is RANGE and n not in fresh]
    for loop in inside:  # of reductions: they stay inside of all others
        if loop not in found.last.addresses:
            fresh[loop] = loop.replace(arg=(len(order) + loop.arg[0], *loop.arg[1:]))
    memory, position = found.address.src
    at, written, mask = [
        term.substitute(found.last.addresses).substitute(fresh)
        for term in (position, found.written, found.last.mask)
    ]
    address = UOp(Ops.INDEX, memory.dtype, (memory, at, mask))
    return UOp.sink(UOp(Ops.STORE, dtypes.void, (address, written, fresh[counter])))
