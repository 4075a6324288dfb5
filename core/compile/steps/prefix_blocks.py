"""A reduction over the first iterations of a loop takes in whole blocks of them, and the first of one block more.

    sum[j < n](where(j < t, v(j), 0))
        =   sum[q < n / k](where(q < t / k, sum[b < k](v(q * k + b)), 0)) + sum[b < k](where(b < t % k, v(t / k * k + b), 0))

for any term t with 0 <= t < n, and the same where j = t is taken in, too: then b = t % k is.

    t = 5, k = 2    j: 0 1 2 3 4 - -         q: 0   1   -        b: 0 -
                       v0+v1+v2+v3+v4           v0+v1 + v2+v3  +    v4

for any operation `+` of a reduction, whose order is not specified. What a block sums is the same for all t: it may be kept, and
blocks may be summed by blocks again (a scan of a GPU: G. Blelloch, Prefix Sums and Their Applications, 1990).
"""

from __future__ import annotations

from typing import Any

from proofgrad.core.compile.nests.loops import is_fixed, size_of
from proofgrad.core.compile.steps.bijection import NewLoop, neutral
from proofgrad.core.compile.steps.bounds import is_inside, lies_between
from proofgrad.core.compile.steps.loop_nest import LoopNest, require, require_in, step
from proofgrad.core.compile.steps.prefixes import First, first_iterations
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort


@step(
    "sum[j < n](where(j < t, v(j), 0)) = sum[q < n / k](where(q < t / k, sum[b < k](v(q * k + b)), 0))"
    " + sum[b < k](where(b < t % k, v(t / k * k + b), 0))"
)
def prefix_in_blocks(
    nest: LoopNest, reduction: UOp, size: int, made: tuple[NewLoop, NewLoop, NewLoop]
) -> UOp:
    """The reduction by blocks of so many iterations; `made`: the loops over blocks, over those of a block, and over those of the last one."""
    require_in(nest.graph, reduction)
    first = first_iterations(reduction)
    require(first is not None, "no reduction over the first iterations of a loop", reduction)
    assert first is not None
    _check(nest, reduction, first, size, made)
    count = size_of(first.own)
    sizes = whole_blocks(count, size), size, size
    block, element, last = [UOp.range(n, x.number, x.role) for n, x in zip(sizes, made)]
    nothing, end = neutral(reduction), first.end

    def at(iteration: UOp) -> UOp:
        return first.value.substitute({first.own: iteration})

    whole = UOp(
        Ops.REDUCE,
        reduction.dtype,
        (at(element_of(block, element, size, count)), element),
        reduction.arg,
    )
    whole = is_before(block, end, size).where(whole, nothing)
    rest = at(element_of(end // size, last, size, count))
    rest = is_of_last(last, end, size, int(first.takes_end)).where(rest, nothing)
    blocks, others = [
        UOp(Ops.REDUCE, reduction.dtype, (value, loop), reduction.arg)
        for value, loop in ((whole, block), (rest, last))
    ]
    both = UOp(reduction.arg, reduction.dtype, (blocks, others))
    return nest.graph.substitute({reduction: both})


def whole_blocks(n: Any, k: Any) -> Any:
    """How many blocks of k iterations there are; the last one may reach beyond the end: it is never taken in as a whole."""
    return -(-n // k)


def is_before(block: Any, end: Any, k: Any) -> Any:
    """Whether all iterations of a block are taken in, as it lies before the one of `end`."""
    return block < end // k


def is_of_last(element: Any, end: Any, k: Any, takes_end: Any) -> Any:
    """Whether an element of the block of `end` is taken in: one before it, or it itself, too, with `takes_end` 1."""
    return element < end % k + takes_end


def element_of(block: Any, element: Any, k: Any, n: Any) -> Any:
    """The iteration that an element of a block is; beyond the end of the loop the last one, which is not taken in there."""
    at = block * k + element
    return at if n % k == 0 else at.minimum(n - 1)


def _check(
    nest: LoopNest, reduction: UOp, first: First, size: int, made: tuple[NewLoop, NewLoop, NewLoop]
) -> None:
    """Raises: StepRefused unless a reduction has blocks of this size."""
    require(is_fixed(first.own), "no loop of known size", first.own)
    count = size_of(first.own)
    require(1 < size and 1 < whole_blocks(count, size), "no blocks of this size", count, size)
    is_its = lies_between(first.end, 0, count - 1, nest.facts)
    require(is_its, "an end that is known to be no iteration of the loop", first.end)
    inner = [n for n in _own_nodes(first.value) if n.op is Ops.REDUCE]
    require(not inner, "a reduction inside of it", *inner)
    others = {n.arg[0] for n in toposort((nest.graph,)) if n.op is Ops.RANGE}
    numbers = [loop.number for loop in made]
    is_free = others.isdisjoint(numbers) and len(set(numbers)) == len(numbers)
    require(is_free, "a loop of this number is there", *numbers)
    before = set(toposort((reduction,)))  # positions that keep their masks are read by it, too
    read = [n for n in _own_nodes(first.value) if n.op is Ops.INDEX and n not in before]
    outside = [x for x in read if not is_inside(x.src[1], x.src[0], nest.facts)]
    require(not outside, "a position that is outside of its memory without the mask", *outside)


def _own_nodes(value: UOp) -> list[UOp]:
    """All of a value but what fills the memory that it reads."""
    return toposort((value,), lambda n: n.op is not Ops.LOCAL_BUFFER)
