"""A loop of the results is cut into loops that run one after the other, each over some of its iterations.

    for i < n: out(i) = f(i)   =   for j < m: out(j) = f(j);   for j < n - m: out(m + j) = f(m + j)

    n = 5, m = 2:   i: 0 1 2 3 4         j: 0 1,   0 1 2
                                        i:  0 1,   2 3 4

What is one value on some iterations and another on the others, as elements of memories that were joined, is then chosen once for each loop
and not at each element (index-set splitting: Wolfe, High Performance Compilers for Parallel Computing, 1996). Each part is a window
of the loop; output loops may run in any order, and each part leaves the positions of the others as they are.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from proofgrad.core.compile.nests.loops import size_of
from proofgrad.core.compile.steps.bijection import exchanged
from proofgrad.core.compile.steps.loop_nest import (
    LoopNest,
    fission,
    require,
    require_fixed,
    require_in,
)
from proofgrad.core.compile.steps.window import window_law
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort


def is_of_part(i: Any, first: Any, end: Any) -> Any:
    """Whether iteration i is one of a part."""
    return ~(i < first) & (i < end)


def size_of_part(first: Any, end: Any) -> Any:
    """How many iterations a part has."""
    return end - first


@fission("for i < n: f(i) = for j < m: f(j); for j < n - m: f(m + j)")
def split_index_set(nest: LoopNest, loop: UOp, borders: tuple[int, ...]) -> tuple[UOp, ...]:
    """The graphs of the iterations up to the first border, from there to the second, and so on to the end of the loop."""
    require_in(nest.graph, loop)
    require_fixed([loop])
    require(loop.arg[1] is AxisRole.LOOP, "no loop of the results", loop)
    size = size_of(loop)
    ends = (0, *borders, size)
    ascend = all([first < end for first, end in pairwise(ends)])
    require(bool(borders) and ascend, "borders that are not inside of the loop, in order", *borders)
    require(len(nest.graph.src) == 1, "more than one store")
    store = nest.graph.src[0]
    nodes = toposort((store,))
    require(loop in toposort((store.src[0],)), "a loop of no position that is stored", loop)
    is_bound = any([loop in node.src[1:] for node in nodes if node.op in _BOUND])
    require(not is_bound, "a loop that is not of the results alone", loop)
    memory = store.src[0].src[0]
    elsewhere = [
        node
        for node in nodes
        if node.op is Ops.INDEX and node.src[0] is memory and node is not store.src[0]
    ]
    require(not elsewhere, "memory that is read where another part writes", *elsewhere)
    return tuple([_part(nest.graph, loop, first, end) for first, end in pairwise(ends)])


_BOUND = frozenset({Ops.REDUCE, Ops.LOCAL_BUFFER, Ops.STORE, Ops.MMA})


def _part(graph: UOp, loop: UOp, first: int, end: int) -> UOp:
    """The graph of the iterations from `first` on, before `end`."""
    size = size_of_part(first, end)
    counter = UOp.range(size, *loop.arg) if size != 1 else UOp.index(0)
    (place,) = window_law().new(counter, size, size_of(loop), UOp.index(first))
    return exchanged(graph, {loop: place}, [counter])
