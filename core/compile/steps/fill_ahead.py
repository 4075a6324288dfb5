"""What a loop of a reduction keeps is filled for later iterations while the present one reads it.

    for s < n: k = v(s); f(s, k)
        =   k[0] = v(0), ..., k[P - 2] = v(P - 2);
            for s < n, in order: k[(s + P - 1) % P] = v(min(s + P - 1, n - 1)); f(s, k[s % P])

    n = 3, P = 2    s:       0    1    2
                    k[0]: v0 v0   v2   v2          read: k[0], k[1], k[0]: v0, v1, v2
                    k[1]: -  v1   v1   v2

In a nest the memory has P parts. What they hold in iteration s, behind the fill, is a function of s: part p has the values of
iteration s + (p - s) % P, or of the last one. So the memory is a LOCAL_BUFFER along p < P too, and p has the role AHEAD: in the
first iteration all parts are filled, in each other one the part that the iteration before has read. The others are left as they are,
for an iteration before has filled them with the same values. As this is so of the values, rules may write them otherwise; a
step that would change the loops is refused (loop_nest.py), but for this one on other loops. Memories that a loop fills share one loop over parts: they are filled together.
"""

from __future__ import annotations

from typing import Any

from proofgrad.core.compile.nests.loops import BINDERS, is_fixed, runs_alike, size_of
from proofgrad.core.compile.nests.strides import loops_below
from proofgrad.core.compile.nests.weighted_sums import run_together
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.loop_nest import LoopNest, require, step
from proofgrad.core.compile.steps.tables import require_room
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, is_of_group, toposort

MOST_PARTS = 6  # for so many the law is proved


def iteration_kept(iteration: Any, part: Any, count: Any, parts: int) -> Any:
    """Of which iteration a part holds the values, behind the fill of this one."""
    return (iteration + (part - iteration) % parts).minimum(count - 1)


def part_read(iteration: Any, parts: int) -> Any:
    """The part that an iteration reads."""
    return iteration % parts


def position_in_part(part: Any, position: Any, size: Any) -> Any:
    """Where a part of so many elements has the element at a position."""
    return part * size + position


@step(
    "for s < n: k = v(s); f(k)"
    " = k[p] = v(p) for p < P - 1; for s < n: k[(s + P - 1) % P] = v(min(s + P - 1, n - 1)); f(k[s % P])",
    makes_ahead=True,
)
def fill_ahead(nest: LoopNest, loop: UOp, made: NewLoop, parts: int = 2) -> UOp:
    """All memory of the group that the loop fills with what is read elsewhere has parts, of which all but one are filled ahead.

    `made`: the loop over parts. What the loop makes itself, by reductions or of what is kept, stays as it is.
    """
    require(2 <= parts <= MOST_PARTS, "so many parts", parts)
    nodes, free = toposort((nest.graph,)), loops_below(nest.graph)
    is_loop = loop in nodes and loop.op is Ops.RANGE
    require(is_loop and (is_fixed(loop) or runs_alike(loop)), "no loop of known size", loop)
    require(size_of(loop) > 1, "a loop that does not run twice", loop)
    count = size_of(loop) if is_fixed(loop) else loop.src[0]
    sums = [n for n in nodes if n.op is Ops.REDUCE and loop in n.src[1:]]
    is_one = len(sums) == 1 or run_together(sums)
    runs = loop.arg[1] is AxisRole.REDUCE and is_one and sums[0].src[1] is loop
    require(runs, "no loop of one reduction around its others, which runs one by one", loop)
    filled = [n for n in nodes if n.op is Ops.LOCAL_BUFFER and loop in free[n]]
    buffers = [n for n in filled if _is_read_elsewhere(n)]
    require(bool(buffers), "nothing that is read elsewhere is kept in the loop", loop)
    others = [x for n in filled for x in n.src[1:] if x.arg[1] is AxisRole.AHEAD]
    require(not others, "memory that is filled ahead by another loop", *others)
    part = UOp.range(parts, made.number, made.role)
    is_free = made.number not in {n.arg[0] for n in nodes if n.op is Ops.RANGE}
    require(is_free, "a loop of this number is there", made.number)
    require(made.role is AxisRole.AHEAD, "parts that are not filled ahead", made.role)
    changes: dict[UOp, UOp] = {}
    for buffer in buffers:
        value, *own = buffer.src
        there = value.substitute({loop: iteration_kept(loop, part, count, parts)})
        changes[buffer] = UOp(Ops.LOCAL_BUFFER, buffer.dtype, (there, part, *own))
    positions = {n: n.src[1] for n in nodes if n.op is Ops.INDEX and n.src[0] in changes}
    for index, position in positions.items():
        memory, _, *mask = index.src
        size = 1
        for own_loop in memory.src[1:]:
            size *= size_of(own_loop)
        at = position_in_part(part_read(loop, parts), position, size)
        changes[index] = UOp(Ops.INDEX, index.dtype, (changes[memory], at, *mask))
    changed = nest.graph.substitute(changes)
    require_room(nest, changed)
    return changed


def _is_read_elsewhere(buffer: UOp) -> bool:
    """Whether memory is a group's, and no reduction, or what is kept, is in what it keeps."""
    value, *own = buffer.src
    return is_of_group(own) and not any([n.op in BINDERS for n in toposort((value,))])
