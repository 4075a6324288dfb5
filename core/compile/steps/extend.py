"""A loop that a variable bounds runs to the largest bound, with a mask; and back, to where its mask ends.

    for i < n: f(i)   =   for i < m: if i < n: f(i)      n <= m

    n = 3:   i: 0 1 2         m = 5:   i: 0 1 2 - -

A loop of a known size can be split, merged, run as lanes and by threads. What is masked then is left out again where it
ends a loop: the law read from right to left, of a mask c * i + rest < n, whose rest is never below 0:

    for i < m: if c * i + rest < n: f(i)   =   for i < ceil(n / c): if c * i + rest < n: f(i)
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from proofgrad.core.compile.nests.loops import BINDERS, is_fixed, size_of
from proofgrad.core.compile.nests.strides import coefficient, loops_of
from proofgrad.core.compile.steps.bijection import (
    Bijection,
    NewLoop,
    exchanged,
    neutral,
    new_counters,
)
from proofgrad.core.compile.steps.bounds import lies_between
from proofgrad.core.compile.steps.loop_nest import (
    LoopNest,
    StepRefused,
    require,
    require_fixed,
    step,
)
from proofgrad.core.compile.steps.split import stays_inside
from proofgrad.core.ir.op_names import STORE
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.masks import parts_of


@cache
def extend_law() -> Bijection:
    """i < n as i < m, of which those below n count."""
    return Bijection(
        parameters=("n", "m"),
        before=lambda n, m: (n,),
        after=lambda n, m: (m,),
        old=lambda i, n, m: (i,),
        new=lambda i, n, m: (i,),
        inside=lambda i, n, m: i < n,
        in_order=True,
        least=0,
        given=lambda n, m: n <= m,
    )


@step("for i < n: f(i) = for i < m where i < n: f(i), if n <= m")
def extend(nest: LoopNest, loop: UOp) -> UOp:
    """The loop, which a variable bounds, to the largest bound. A load is masked unless its position is in memory anyway."""
    is_bounded = loop.op is Ops.RANGE and not is_fixed(loop) and size_of(loop) > 0
    require(is_bounded, "no loop that a variable bounds", loop)
    n, most = loop.src[0], size_of(loop)
    law = extend_law()
    counters = new_counters(nest.graph, law, (n, most), (loop,), (NewLoop(*loop.arg),))
    assert law.inside is not None  # what it is for
    inside, longer = law.inside(*counters, n, most), {loop: counters[0]}

    def stays(position: UOp) -> bool:
        return stays_inside(position, longer, nest.facts)

    return exchanged(nest.graph, longer, counters, inside, law.in_order, stays)


@step("for i < m: f(i) = for i < n: f(i), if f(i) is masked where not i < n")
def shorten(nest: LoopNest, loop: UOp) -> UOp:
    """The loop to where masks end all that it stores, or that its reduction takes in, by a variable.

    for i < 5: for j < 2: if 2 * i + j < n: ...      n = 3:   i: 0 0 1 1 2 2 3 3 4 4   =   0 0 1 1
                                                              j: 0 1 0 - - - - - - -       0 1 0 -
    """
    require_fixed([loop])
    bound = end_by_masks(nest.graph, loop, nest.facts)
    if bound is None:
        raise StepRefused(f"no variable at which masks end all that a loop does: r{loop.arg[0]}")
    shorter = UOp.range(bound, *loop.arg)
    return exchanged(nest.graph, {loop: shorter}, [shorter], None, True)


def end_by_masks(graph: UOp, loop: UOp, facts: Facts) -> UOp | None:
    """The least bound by a variable, not above the loop's own, beyond which masks are off; None: there is none."""
    if loop.arg[1] not in (AxisRole.LOOP, AxisRole.REDUCE):
        return None  # the number of lanes, threads and copies is known
    ends = [list(_ends(mask, loop, facts)) for mask in masks_around(graph, loop)]
    if not ends:
        return None
    common = [end for end in ends[0] if all(end in others for others in ends[1:])]
    shorter = [end for end in common if end.vmax <= size_of(loop)]
    return min(shorter, key=lambda end: end.vmax, default=None)


def masks_around(graph: UOp, loop: UOp) -> Iterator[list[UOp]]:
    """The truths that all hold where a store below an output loop, or the reduction of another loop, takes something in.

    A masked load is 0 where its mask is false: a sum takes in nothing there.
    """
    for node in toposort((graph,)):
        if node.op is STORE and loop in loops_of(node):
            yield [part for mask in node.src[0].src[2:] for part in parts_of(mask)]
        elif node.op in BINDERS and loop in node.src[1:]:
            found, term = [], node.src[0]
            while node.op is Ops.REDUCE and term.op is Ops.WHERE and term.src[2] is neutral(node):
                found += parts_of(term.src[0])
                term = term.src[1]
            if (
                node.op is Ops.REDUCE
                and term.op is Ops.LOAD
                and neutral(node) is UOp.const(node.dtype, 0)
            ):
                found += [part for mask in term.src[0].src[2:] for part in parts_of(mask)]
            yield found


def _ends(truths: list[UOp], loop: UOp, facts: Facts) -> Iterator[UOp]:
    """Bounds by variables beyond which one of these truths is off."""
    for part in truths:
        if part.op is not Ops.CMPLT:
            continue
        term, n = part.src
        times = coefficient(term, loop)
        if times is None or times < 1 or loops_of(n) or not _is_of_variables(n):
            continue
        rest = term.substitute({loop: UOp.index(0)})
        if lies_between(rest, 0, facts.hi(rest), facts):
            yield quotient_up(n, times)


def _is_of_variables(n: UOp) -> bool:
    nodes = toposort((n,))
    return any(x.op is Ops.VARIABLE for x in nodes) and not any(x.op is Ops.LOAD for x in nodes)


def quotient_up(n: Any, times: Any) -> Any:
    """ceil(n / times), for a number of times of 1 or more."""
    return (n + (times - 1)) // times
