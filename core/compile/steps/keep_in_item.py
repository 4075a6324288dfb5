"""What a group keeps is kept by each item, where an item reads only what it filled itself.

    for i: f(i, k[a, i])   =   for i: let k'[b] = v(b, i) for all b: f(i, k'[a])       where k[b, j] = v(b, j) for all b, j

    k: v(0, 0) v(0, 1) v(0, 2)     item 1 reads k[0, 1], k[1, 1]:     k' of item 1: v(0, 1)
       v(1, 0) v(1, 1) v(1, 2)                                                      v(1, 1)

The element of k at (b, i) and the one of k' of item i at b are the same value. Nobody waits for what is an item's own, and it may lie in
registers. That a position of k has the item as its digit is seen by computing both for all iterations of the loops that it changes with.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from proofgrad.core.compile.nests.loops import size_of
from proofgrad.core.compile.nests.strides import loops_of
from proofgrad.core.compile.steps.collapse import collapse_law, digits_at
from proofgrad.core.compile.steps.loop_nest import (
    LoopNest,
    require,
    require_fixed,
    require_in,
    step,
)
from proofgrad.core.compile.steps.tables import require_room
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort

MOST_ITERATIONS = 1 << 16  # that a position is computed for


@step("for i: f(k[a, i]) = for i: f(k[a]) where k[b] = v(b, i) for all b")
def keep_in_item(nest: LoopNest, memory: UOp, item: UOp) -> UOp:
    """The memory that items share out, as one that each iteration of `item` has to itself."""
    require_in(nest.graph, memory, item)
    require(memory.op is Ops.LOCAL_BUFFER, "no memory that is kept", memory)
    require_fixed([item])
    value, *loops = memory.src
    shared = [x for x in loops if x.arg[1] is AxisRole.LANE]
    require(len(shared) == 1 < len(loops), "no loop of items beside others", *loops)
    require(item.arg[1] is AxisRole.LANE, "no loop of items", item)
    require(item not in toposort((value,)), "a loop that the value has already", item)
    (own,) = shared
    rest = [x for x in loops if x is not own]
    sizes, left = tuple([size_of(x) for x in loops]), [size_of(x) for x in rest]
    kept = memory.with_src((value.substitute({own: item}), *rest))
    changes: dict[UOp, UOp] = {}
    for index in toposort((nest.graph,)):
        if memory not in index.src:
            continue
        require(index.op is Ops.INDEX and index.src[0] is memory, "what is no reading", index)
        digits = dict(zip(loops, digits_at(index.src[1], sizes, nest.facts)))
        require(always_equal(digits[own], item), "what another item has filled", index)
        (position,) = collapse_law(len(rest)).new(*[digits[x] for x in rest], *left)
        changes[index] = index.with_src((kept, position, *index.src[2:]))
    changed = nest.graph.substitute(changes)
    require_room(nest, changed)
    return changed


def always_equal(term: UOp, other: UOp) -> bool:
    """Whether two index terms have one value in every iteration of their loops, of which there are few: all are computed."""
    loops = sorted(loops_of(term) | loops_of(other), key=lambda loop: loop.arg[0])
    if not all([x.op is Ops.RANGE and x.src[0].op is Ops.CONST for x in loops]):
        return False
    if prod([size_of(x) for x in loops]) > MOST_ITERATIONS:
        return False
    one, two = [_in_all_iterations(x, loops) for x in (term, other)]
    return one is not None and two is not None and bool((one == two).all())


def _in_all_iterations(term: UOp, loops: Sequence[UOp]) -> Any:
    """Its values as an array with an axis for each loop; None for a term of other operations than those of positions."""
    import numpy

    values: dict[UOp, Any] = {}
    for axis, loop in enumerate(loops):
        shape = [size_of(loop) if k == axis else 1 for k in range(len(loops))]
        values[loop] = numpy.arange(size_of(loop)).reshape(shape)
    operations = {
        Ops.ADD: numpy.add, Ops.MUL: numpy.multiply,
        Ops.FLOORDIV: numpy.floor_divide, Ops.MOD: numpy.remainder,
    }  # fmt: skip
    for node in toposort((term,), lambda n: n.op is not Ops.RANGE):
        if node.op is Ops.CONST:
            values[node] = numpy.int64(node.arg)
        elif node.op is not Ops.RANGE:
            if node.op not in operations or any([s not in values for s in node.src]):
                return None
            one, other = [values[s] for s in node.src]
            if node.op in (Ops.FLOORDIV, Ops.MOD) and not numpy.all(other > 0):
                return None
            values[node] = operations[node.op](one, other)
    return values[term]
