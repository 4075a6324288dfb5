"""Split a loop into loops around each other, with a mask where the parts reach beyond its end.

    for i < n: f(i)   =   for o < ceil(n / k): for j < k: if o * k + j < n: f(o * k + j)

    i: 0 1 2 3 4 5 6         o: 0     1     2
                             j: 0 1 2 0 1 2 0 - -

and the same with more parts: j itself in parts, and so on. Where the mask is off, nothing is stored and what a
reduction takes in is its identity. So what is loaded there does not matter: a load stays as it is if its position is inside of
its memory there too, may be taken from the last whole vector instead (`nearest`), or is masked.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any

from proofgrad.core.compile.nests.loops import BINDERS, size_of
from proofgrad.core.compile.nests.strides import loops_below
from proofgrad.core.compile.steps.bijection import (
    Bijection,
    NewLoop,
    exchanged,
    masked,
    new_counters,
)
from proofgrad.core.compile.steps.bounds import is_inside
from proofgrad.core.compile.steps.digits import number_of, product_of
from proofgrad.core.compile.steps.loop_nest import LoopNest, require, require_fixed, step
from proofgrad.core.compile.steps.tables import require_room
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort
from proofgrad.core.rewrite.facts import Facts

MOST_PARTS = 3  # beside the outermost: for so many the law is proved


@cache
def split_law(parts: int) -> Bijection:
    """i < n as o, j1 < k1, ..., jp < kp: the digits of i, of which the first has no end."""
    assert 1 <= parts <= MOST_PARTS
    return Bijection(
        parameters=("n", *[f"k{p + 1}" for p in range(parts)]),
        before=lambda n, *_: (n,),
        after=lambda n, *sizes: (_quotient_up(n, product_of(sizes)), *sizes),
        old=lambda *terms: (number_of(terms[: parts + 1], terms[parts + 2 :]),),
        new=lambda i, _, *sizes: _digits(i, sizes),
        inside=lambda *terms: number_of(terms[: parts + 1], terms[parts + 2 :]) < terms[parts + 1],
        in_order=True,
    )


def _quotient_up(n: Any, k: Any) -> Any:
    return -(-n // k)


def _digits(number: Any, sizes: tuple[Any, ...]) -> tuple[Any, ...]:
    digits: list[Any] = []
    for size in reversed(sizes):
        digits.append(number % size)
        number = number // size
    return (number, *reversed(digits))


@step("for i < n: f(i) = for o < ceil(n / k), j < k where o * k + j < n: f(o * k + j)")
def split(nest: LoopNest, loop: UOp, sizes: tuple[int, ...], made: tuple[NewLoop, ...]) -> UOp:
    """The loop as an outer one and one for each of `sizes`, outermost first; what is outside of it is masked."""
    n = _checked(loop, sizes)
    law = split_law(len(sizes))
    counters = new_counters(nest.graph, law, (n, *sizes), (loop,), made)
    (value,) = law.old(*counters, n, *sizes)
    is_whole = n % prod(sizes) == 0
    assert law.inside is not None  # a split may leave a rest
    inside = None if is_whole else law.inside(*counters, n, *sizes)
    changed = exchanged(nest.graph, {loop: value}, counters, inside, law.in_order)
    require_room(nest, changed)
    return changed


@step("where the mask of a split is off, load(x, p(i)) = load(x, p(i')) for any i' < n")
def split_reading_inside(
    nest: LoopNest, loop: UOp, sizes: tuple[int, ...], made: tuple[NewLoop, ...]
) -> UOp:
    """As `split` of an output loop, where loads are not masked: their positions are known before loops inside begin.

    A load stays as it is if its position is inside of its memory beyond the end of the loop too. Else it is taken
    there from the last whole vector, the innermost of `sizes`, or the last iteration, of the loop; it is masked where that
    is no vector.

        n = 6, two vectors of 2 lanes:   i:      0 1 2 3   4 5 - -
                                         reads:  0 1 2 3   4 5 4 5
    """
    n = _checked(loop, sizes)
    law = split_law(len(sizes))
    counters = new_counters(nest.graph, law, (n, *sizes), (loop,), made)
    (value,) = law.old(*counters, n, *sizes)
    if n % prod(sizes) == 0:
        return exchanged(nest.graph, {loop: value}, counters, None, law.in_order)
    is_own = any([loop in node.src[1:] for node in toposort((nest.graph,)) if node.op in BINDERS])
    require(not is_own, "a reduction takes in what it reads", loop)
    lanes = sizes[-1] if made[-1].role is AxisRole.VECTOR else 1
    nearest = nearest_inside(counters, sizes, n, lanes) if n % lanes == 0 else None
    assert law.inside is not None
    inside = law.inside(*counters, n, *sizes)
    reach = UOp.range(reach_of(n, sizes), *loop.arg)
    return _reading_inside(nest, {loop: value}, inside, {loop: reach}, nearest)


def reach_of(n: Any, sizes: Sequence[Any]) -> Any:
    """How many iterations the parts count, with those that are masked."""
    return _quotient_up(n, product_of(sizes)) * product_of(sizes)


def nearest_inside(counters: Sequence[Any], sizes: Sequence[Any], n: Any, lanes: Any) -> Any:
    """An iteration that is the given one where it is below n, else another below n: `lanes` divides n.

    Lanes of one vector stay side by side.
    """
    if lanes == 1:
        return number_of(counters, sizes).minimum(n - 1)
    vector = number_of(counters[:-1], sizes[:-1])
    return vector.minimum(n // lanes - 1) * lanes + counters[-1]


def _checked(loop: UOp, sizes: tuple[int, ...]) -> int:
    require_fixed([loop])
    require(1 <= len(sizes) <= MOST_PARTS and min(sizes) > 0, "parts of no size", sizes)
    return size_of(loop)


def _reading_inside(
    nest: LoopNest, value: dict[UOp, UOp], inside: UOp, reach: dict[UOp, UOp], nearest: UOp | None
) -> UOp:
    """The graph with a loop exchanged; its stores are masked, its loads brought inside."""
    (loop,) = value
    free = loops_below(nest.graph)
    written = {store.src[0] for store in nest.graph.src}
    done: dict[UOp, UOp] = dict(value)
    for node in toposort((nest.graph,)):
        if node in done:
            continue
        new = node.with_src(tuple([done[s] for s in node.src]))
        if node.op is Ops.STORE:
            require(loop not in node.src[2:], "loops that run in order stay as they are")
        if node.op is Ops.INDEX and loop in free[node]:
            if node in written:
                new = masked(new, inside)
            elif not stays_inside(node, reach, nest.facts):
                new = masked(new, inside) if nearest is None else node.substitute({loop: nearest})
        done[node] = new
    return done[nest.graph]


def stays_inside(position: UOp, reach: dict[UOp, UOp], facts: Facts) -> bool:
    """Whether a position is inside of its memory for all values of a longer loop."""
    memory, index = position.src[:2]
    return is_inside(index.substitute(reach), memory, facts)
