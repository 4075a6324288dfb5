"""A reduction is combined in the memory of its results, some of its iterations at a time.

    out[x] = sum[k < n](v(x, k))
        =   for x: out[x] = 0;   for s < n / m, in order: for x: out[x] += sum[j < m](v(x, s * m + j))

    k: 0 1 2 3 4 5         s: 0     1
                           j: 0 1 2 0 1 2      out: 0, v0+v1+v2, (v0+v1+v2)+(v3+v4+v5)

`n` is a multiple of `m`. The order of a reduction is not specified, and a reduction that starts from its identity is the same.
"""

from __future__ import annotations

from math import prod

from proofgrad.core.compile.nests.loops import is_fixed, output_loops, size_of
from proofgrad.core.compile.steps.loop_nest import LoopNest, fission, require
from proofgrad.core.compile.steps.split import split_law
from proofgrad.core.compile.steps.tables import filled
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort


@fission(
    "out = sum[k < n](v(k)) is out = 0; for s < n / m, in order: out += sum[j < m](v(s * m + j))"
)
def sum_in_memory(nest: LoopNest, steps: int, block_number: int) -> tuple[UOp, UOp]:
    """The graph that fills the results with what the reduction starts from, and the one that combines `steps` at a time."""
    require(len(nest.graph.src) == 1 and len(nest.graph.src[0].src) == 2, "more than one store")
    position, reduction = nest.graph.src[0].src
    is_one = reduction.op is Ops.REDUCE and len(reduction.src) == 2 and is_fixed(reduction.src[1])
    require(is_one, "no reduction over one loop of known size")
    value, loop = reduction.src
    nodes = toposort((nest.graph,))
    own = [
        n
        for n in nodes
        if n.op is not Ops.REDUCE and loop in n.src[1:] and n.op is Ops.LOCAL_BUFFER
    ]
    shares = [n for n in nodes if n.op is Ops.REDUCE and n is not reduction and loop in n.src[1:]]
    require(not own and not shares, "a loop of another reduction", loop)
    require(len(position.src) == 2, "a store that is masked")
    memory = position.src[0]
    iterations = prod([size_of(x) for x in output_loops(nest.graph)])
    require(
        iterations == memory.arg[1], "memory that is not all written", iterations, memory.arg[1]
    )
    size = size_of(loop)
    require(steps > 0 and size % steps == 0 and size > 0, "blocks of unequal length", size, steps)
    numbers = {n.arg[0] for n in nodes if n.op is Ops.RANGE}
    require(block_number not in numbers, "a loop of this number is there", block_number)
    block = UOp.range(size // steps, block_number, AxisRole.REDUCE)
    step = UOp.range(steps, *loop.arg)
    (counter,) = split_law(1).old(block, step, size, steps)
    part = reduction.replace(src=(value.substitute({loop: counter}), step))
    add = UOp(Ops.STORE, dtypes.void, (position, part, block), reduction.arg)
    return filled(memory, reduction.arg), UOp.sink(add)
