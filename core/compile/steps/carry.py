"""A reduction over the first iterations of a loop runs along with an output loop, in a register that it carries.

    for i < m: f(i, sum[j < n](where(j <= i + c, v(j), 0)))
        =   r = sum[j < c](v(j));  for i < m, in order: r = r + where(0 <= i + c < n, v(i + c), 0); f(i, r)

    c = 0    i: 0   1     2            c = 1    i: 0     1
             r: v0  v0+v1 v0+v1+v2              r: v0+v1 v0+v1+v2

for any operation `+` of a reduction, whose order is not specified. The loop runs inside of all other output loops but
those of lanes, so that each run of it has a register of its own.
"""

from __future__ import annotations

from typing import Any

from proofgrad.core.compile.nests.loops import BINDERS, fresh_number, size_of
from proofgrad.core.compile.nests.strides import loops_below, loops_of
from proofgrad.core.compile.steps.loop_nest import LoopNest, require, require_in, step
from proofgrad.core.compile.steps.narrow import require_widths
from proofgrad.core.compile.steps.prefixes import Prefix, is_whole, prefix_of
from proofgrad.core.compile.steps.running import SHARED_OUT
from proofgrad.core.ir.evaluate import identity
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort

# Loops that become lanes, and those that are shared out, which run around all others whatever their numbers are.
_NOT_INSIDE = (AxisRole.VECTOR, *SHARED_OUT)


@step(
    "for i: f(i, sum[j](where(j <= i + c, v(j), 0))) is r = sum[j < c](v(j)); for i, in order: r = r + v(i + c); f(i, r)",
    makes_loops=False,
)
def carry(nest: LoopNest, reductions: tuple[UOp, ...]) -> UOp:
    """Each of the reductions becomes a register of the output loop that masks it."""
    kernel = nest.graph
    require_widths(kernel)
    require_in(kernel, *reductions)
    nodes, free = toposort((kernel,)), loops_below(kernel)
    first = len([n for n in nodes if n.op in BINDERS])  # `accumulate` numbers the others
    outputs = loops_of(kernel)
    changes: dict[UOp, UOp] = {}
    for number, reduction in enumerate(reductions, first):
        found = prefix_of(reduction)
        require(found is not None, "no reduction over the first iterations of a loop", reduction)
        assert found is not None
        require(found.counts_up, "a loop that has to count down", reduction)
        takes = takes_in(size_of(found.along), size_of(found.own), found.offset)
        require(takes, "nothing is ever taken in", reduction)
        _require_innermost(found.along, outputs)
        require(free[reduction] <= outputs, "a loop of another reduction", reduction)
        inner = [n for n in toposort((found.value,)) if n.op in BINDERS]
        require(not inner, "a reduction inside of it", *inner)
        changes[reduction] = carried(found, number, fresh_number(kernel) + number)
    in_order = {loop for store in kernel.src for loop in store.src[2:]}
    require(in_order.isdisjoint(outputs), "loops that run in order", *in_order)
    return kernel.substitute(changes)


def carried(prefix: Prefix, number: int, loop_number: int) -> UOp:
    """What a register of the loop is set to in each of its iterations, which is the value of the reduction there."""
    reduction, along, own = prefix.reduction, prefix.along, prefix.own
    op, dtype, size, offset = reduction.arg, reduction.dtype, size_of(own), prefix.offset
    neutral = start = UOp.const(dtype, identity(op, dtype))
    if before := taken_before(size, offset):
        loop = UOp(
            Ops.RANGE, own.dtype, (own.src[0].const_like(before),), (loop_number, own.arg[1])
        )
        start = UOp(Ops.REDUCE, dtype, (prefix.value.substitute({own: loop}), loop), op)
    at, last = along + offset if offset else along, size_of(along) - 1 + offset
    inside = at if 0 <= offset and last < size else nearest(at, size)
    value = prefix.value.substitute({own: inside})
    if inside is not at:
        value = is_one(at, size).where(value, neutral)
    register = UOp(Ops.ACCUMULATOR, dtype, (start, along), number)
    return UOp(Ops.UPDATE, dtype, (register, UOp(op, dtype, (register, value))))


def takes_in(count: Any, size: Any, offset: Any) -> Any:
    """Whether a reduction of so many takes something in, in some iteration of so many.

    Then what is read where nothing is taken in, the nearest iteration, is one that it takes in elsewhere: it is in its memory.
    """
    return (0 < size) & (0 <= count - 1 + offset)


def taken_before(size: Any, offset: Any) -> Any:
    """How many iterations of a reduction of so many are taken in before the loop begins."""
    if offset <= 0:
        return 0
    return size if size < offset else offset


def nearest(at: Any, size: Any) -> Any:
    """The iteration of a reduction of so many itself, or else the first or the last one."""
    return at.minimum(size - 1).maximum(0)


def is_one(at: Any, size: Any) -> Any:
    """Whether it is an iteration of a reduction of so many."""
    return ~(at < 0) & (at < size)


def _require_innermost(along: UOp, outputs: frozenset[UOp]) -> None:
    """Raises: StepRefused unless a loop runs one by one inside of all others but those of lanes."""
    require(along in outputs and is_whole(along), "no output loop that runs one by one", along)
    inside = [x for x in outputs if x.arg[0] > along.arg[0] and x.arg[1] not in _NOT_INSIDE]
    require(not inside, "a loop inside of the one that carries the register", *inside)
