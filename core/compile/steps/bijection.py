"""Loops exchanged for other loops that count the same iterations, each once.

Owns: what such a law is, and the one function that executes it. Does not own: the laws (split.py, collapse.py,
...), their proofs (verify/steps).

    for old in before: body(old)   =   for new in after: if inside(new): body(old(new))

holds if `old` maps the new iterations that are inside one to one onto the old ones: the order of output loops is free as
no two of them write one position, and that of a reduction is not specified. The functions of a law take
numbers and terms: UOps when a step is taken, terms of the solver when the law is proved. So what is proved is what runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from proofgrad.core.compile.nests.loops import BINDERS, is_fixed, size_of
from proofgrad.core.compile.nests.strides import loops_below
from proofgrad.core.compile.steps.loop_nest import LoopNest, require
from proofgrad.core.ir.evaluate import identity
from proofgrad.core.ir.op_names import RANGE, STORE
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, toposort


@dataclass(frozen=True, slots=True)
class Bijection:
    """Iterations before and after. `parameters` name whole numbers.

    before(*parameters), after(*parameters): the sizes of the loops.
    old(*after, *parameters), new(*before, *parameters): the counters of one side as terms of the other's.
    inside(*after, *parameters): which new iterations count; None: all.
    in_order: in row-major order, iteration number n after is number n before.
    least: of the parameters. given(*parameters): what holds of them where the law is used.
    """

    parameters: tuple[str, ...]
    before: Callable[..., tuple[Any, ...]]
    after: Callable[..., tuple[Any, ...]]
    old: Callable[..., tuple[Any, ...]]
    new: Callable[..., tuple[Any, ...]]
    inside: Callable[..., Any] | None = None
    in_order: bool = False
    least: int = 1
    given: Callable[..., Any] | None = None


@dataclass(frozen=True, slots=True)
class NewLoop:
    """What a loop that a step makes is called, and how it runs."""

    number: int
    role: AxisRole = AxisRole.LOOP

    def __str__(self) -> str:
        role = "" if self.role is AxisRole.LOOP else f" as {self.role.value}"
        return f"r{self.number}{role}"


def reindex(
    nest: LoopNest,
    law: Bijection,
    parameters: Sequence[int],
    loops: Sequence[UOp],
    made: Sequence[NewLoop],
) -> UOp:
    """The graph with `loops` exchanged for new ones by a law."""
    counters = new_counters(nest.graph, law, parameters, loops, made)
    values = law.old(*counters, *parameters)
    inside = None if law.inside is None else law.inside(*counters, *parameters)
    return exchanged(nest.graph, dict(zip(loops, values)), counters, inside, law.in_order)


def new_counters(
    graph: UOp,
    law: Bijection,
    parameters: Sequence[Any],
    loops: Sequence[UOp],
    made: Sequence[NewLoop],
) -> list[UOp]:
    """The counters of the loops that a law makes; of one that runs once, 0."""
    ranges = {n for n in toposort((graph,)) if n.op is RANGE}
    made_sizes = law.after(*parameters)
    require(len(made_sizes) == len(made), "not as many loops as the law makes", len(made))
    require(
        ranges.issuperset(loops), "no loop of this nest", *[x for x in loops if x not in ranges]
    )
    require(len(set(loops)) == len(loops), "one loop twice", *loops)
    sizes = tuple([size_of(loop) if is_fixed(loop) else loop.src[0] for loop in loops])
    require(sizes == law.before(*parameters), "the law is of loops of other sizes", sizes)
    numbers = [loop.number for loop in made]
    taken = {loop.arg[0] for loop in ranges.difference(loops)}
    is_free = taken.isdisjoint(numbers) and len(set(numbers)) == len(numbers)
    require(is_free, "a loop of this number is there", *numbers)
    return [
        UOp.range(size, loop.number, loop.role) if size != 1 else UOp.index(0)
        for size, loop in zip(made_sizes, made)
    ]


def exchanged(
    graph: UOp,
    values: dict[UOp, UOp],
    counters: list[UOp],
    inside: UOp | None = None,
    in_order: bool = False,
    stays: Callable[[UOp], bool] | None = None,
) -> UOp:
    """The graph with the loops that `values` names replaced; outside of `inside` nothing is read, written or added.

    But what is loaded from a position that `stays` is not used there.
    """
    written = {store.src[0] for store in graph.src} if stays is not None else set()
    loops = frozenset(values)
    free = {} if inside is None and len(loops) == 1 else loops_below(graph)
    for store in graph.src if len(loops) > 1 else ():
        some = loops.intersection(free[store])
        require(some in (frozenset(), loops), "only some of the loops are those of a store", *some)
    ranges = tuple([c for c in counters if c.op is Ops.RANGE])
    done: dict[UOp, UOp] = dict(values)
    for node in toposort((graph,)):
        if node in done:
            continue
        new = node.with_src(tuple([done[s] for s in node.src]))
        if node.op in BINDERS and not loops.isdisjoint(node.src[1:]):
            require(
                node.op is Ops.REDUCE or in_order, "the positions of what is kept have an order"
            )
            new = _with_loops(node, new, tuple(values), ranges)
            if inside is not None:
                new = _masked(node, new, loops, inside)
        elif node.op is STORE:
            require(loops.isdisjoint(node.src[2:]), "loops that run in order stay as they are")
        elif inside is not None and node.op is Ops.INDEX and not loops.isdisjoint(free[node]):
            if stays is None or node in written or not stays(node):
                new = masked(new, inside)
        done[node] = new
    return done[graph]


def masked(position: UOp, inside: UOp) -> UOp:
    """The position where its mask and `inside` hold."""
    mask = position.src[2] & inside if len(position.src) > 2 else inside
    return position.replace(src=(position.src[0], position.src[1], mask))


def _with_loops(node: UOp, new: UOp, loops: tuple[UOp, ...], ranges: tuple[UOp, ...]) -> UOp:
    """A REDUCE or LOCAL_BUFFER with the new loops where the first of the old ones stood."""
    own = node.src[1:]
    require(set(loops) <= set(own), "only some of the loops are those of a reduction")
    first = own.index(loops[0])
    side_by_side = own[first : first + len(loops)] == loops
    require(node.op is Ops.REDUCE or side_by_side, "the positions of what is kept have an order")
    rest = [x for x in own[first:] if x not in loops]
    before = [x for x in own[:first] if x not in loops]
    return new.replace(src=(new.src[0], *before, *ranges, *rest))


def _masked(node: UOp, new: UOp, loops: frozenset[UOp], inside: UOp) -> UOp:
    """What a REDUCE takes in outside is its identity; LOCAL_BUFFER has positions there that nobody reads."""
    if node.op is Ops.LOCAL_BUFFER:
        is_first = set(node.src[1 : 1 + len(loops)]) == loops
        require(is_first, "positions of what is kept lie further apart than they are counted")
        return new
    return new.replace(src=(inside.where(new.src[0], neutral(node)), *new.src[1:]))


def neutral(reduction: UOp) -> UOp:
    """What a reduction takes in where nothing is to be taken in."""
    return UOp.const(reduction.dtype, identity(reduction.arg, reduction.dtype))
