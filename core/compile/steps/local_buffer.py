"""A value is computed ahead, by a loop of its own, and kept in memory that an item has to itself.

    f(v(i, j))   =   let k[a, b] = v(a, b) for all a, b: f(k[i, j])

    for i: for j: for c: v(i, j) * c     for a: for b: k[a, b] = v(a, b)
                                         for i: for j: for c: k[i, j] * c

where k is a LOCAL_BUFFER: its element at the row-major position of (a, b) is v(a, b). So v at (i, j) is the element at the
position of (i, j). All loops of v that are not kept along stay as they are: the memory holds one run of them at a time.
They may be loops of the reduction that reads it, which then fills the memory anew in each of their iterations:

    sum[k](a[i, k] * b[k])   =   sum[o, j](let t[l] = b[4 * o + l] for all l: a[i, 4 * o + j] * t[j])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proofgrad.core.compile.nests.loops import BINDERS, size_of
from proofgrad.core.compile.nests.strides import loops_below, loops_of
from proofgrad.core.compile.nests.weighted_sums import run_together
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.collapse import MOST_LOOPS, collapse_law
from proofgrad.core.compile.steps.loop_nest import LoopNest, require, require_fixed, step
from proofgrad.core.compile.steps.tables import require_room, require_value
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import COMMUTATIVE, Ops
from proofgrad.core.ir.uop import UOp, toposort


@step("f(v(i)) = f(k[i]) where k[a] = v(a) for all a")
def local_buffer(
    nest: LoopNest,
    value: UOp,
    loops: tuple[UOp, ...],
    made: tuple[NewLoop, ...],
    alike: Sequence[tuple[UOp, tuple[UOp, ...]]] = (),
) -> UOp:
    """`value` along `loops` is computed by the loops `made`, and read from memory where it was used.

    `alike`: other values, each with its loops, that are the same function of them as `value` is of the last of its loops; they
    are read from there too.
    """
    _check_loops(nest, value, loops, made)
    sizes = tuple([size_of(x) for x in loops])
    fresh = tuple([UOp.range(n, loop.number, loop.role) for n, loop in zip(sizes, made)])
    kept = UOp(Ops.LOCAL_BUFFER, value.dtype, (value.substitute(dict(zip(loops, fresh))), *fresh))

    def element(own: tuple[UOp, ...]) -> UOp:
        (position,) = collapse_law(len(own)).new(*own, *sizes)
        return UOp(Ops.LOAD, value.dtype, (UOp(Ops.INDEX, value.dtype, (kept, position)),))

    changes = {value: element(loops)}
    known = set(toposort((nest.graph,)))
    for same, own in alike:
        require(same in known, "a value that is not in the nest", same)
        require(0 < len(own) <= len(loops), "no loops, or more than are kept along", *own)
        is_alike = same_function((value, loops[-len(own) :]), (same, own))
        require(is_alike, "another function of its loops", same)
        changes[same] = element((*loops[: -len(own)], *own))
    changed = nest.graph.substitute(changes)
    require_room(nest, changed)
    return changed


def _check_loops(
    nest: LoopNest, value: UOp, loops: tuple[UOp, ...], made: tuple[NewLoop, ...]
) -> None:
    """Raises: StepRefused unless a value can be kept along these loops."""
    free = loops_below(nest.graph)
    require(value in free, "a value that is not in the nest", value)
    require_value(value)
    require(0 < len(loops) == len(made) == len(set(loops)), "no loops, or one twice", *loops)
    require(len(loops) <= MOST_LOOPS, "more loops at once than", MOST_LOOPS)
    require(set(loops) <= free[value], "a loop that the value does not change with", *loops)
    require_fixed(loops)
    require_fill(nest, free[value].difference(loops), made)


def require_fill(nest: LoopNest, outside: frozenset[UOp], made: Sequence[NewLoop]) -> None:
    """Raises: StepRefused unless memory may be filled by loops `made`, anew in each iteration of those outside: of results, or of one reduction."""
    nodes, results = toposort((nest.graph,)), loops_of(nest.graph)
    numbers, new = {n.arg[0] for n in nodes if n.op is Ops.RANGE}, [loop.number for loop in made]
    is_free = numbers.isdisjoint(new) and len(set(new)) == len(new)
    require(is_free, "a loop of this number is there", *new)
    of_kept = {loop for n in nodes if n.op is Ops.LOCAL_BUFFER for loop in n.src[1:]}
    is_plain = of_kept.isdisjoint(outside)
    require(is_plain, "what is kept changes with a loop of what is kept", *outside)
    readers = [n for n in nodes if n.op is Ops.REDUCE and not outside.isdisjoint(n.src[1:])]
    if not readers:
        return
    summed = outside.intersection(readers[0].src[1:])
    is_one = (len(readers) == 1 or run_together(readers)) and summed.isdisjoint(results)
    what = "what is kept changes with a loop of a reduction, and of another or of the results"
    require(is_one, what, *outside)


def same_function(one: tuple[UOp, tuple[UOp, ...]], other: tuple[UOp, tuple[UOp, ...]]) -> bool:
    """Whether two values are the same function of as many loops each, which end at the same, but for the order of commutative operands."""
    (value, loops), (same, own) = one, other
    if [loop.src for loop in loops] != [loop.src for loop in own]:
        return False
    functions: dict[Any, int] = {}
    first = functions_of([value], loops, functions)[value]
    return first == functions_of([same], own, functions)[same]


def functions_of(
    values: Sequence[UOp], loops: tuple[UOp, ...], functions: dict[Any, int]
) -> dict[UOp, int]:
    """Of values, and of what is below them, a number that those have in common which are one function of such loops each.

    `functions`: the numbers given so far. A value that does not change with the loops is itself. Index terms are integers without end, so
    sums of them are the same in any order.
    """
    names: dict[UOp, int] = {}
    terms: dict[UOp, tuple[int, ...]] = {}
    bound = _bound_loops(values)
    for node in toposort(values):
        if node in loops:
            key: Any = (None, loops.index(node), size_of(node))
        elif node in bound:
            key = bound[node]
        elif node.op is Ops.ADD and node.dtype is dtypes.index:
            below = [terms.get(s, (names[s],)) for s in node.src]
            terms[node] = tuple(sorted(sum(below, ())))
            key = (node.op, node.dtype, terms[node])
        elif all([functions.get(s) == names[s] for s in node.src]):  # nothing below changes
            key = node
        else:
            own = [names[s] for s in node.src]
            is_free = node.op in COMMUTATIVE
            key = (node.op, node.dtype, node.arg, frozenset(own) if is_free else tuple(own))
        names[node] = functions.setdefault(key, len(functions))
    return names


def _bound_loops(values: Sequence[UOp]) -> dict[UOp, Any]:
    """The loops of reductions that have none inside, each with its place among them: their numbers are names alone."""
    found: dict[UOp, Any] = {}
    has_binder: dict[UOp, bool] = {}
    for node in toposort(values):
        inside = any([has_binder[s] for s in node.src])
        has_binder[node] = inside or node.op in BINDERS
        for place, loop in enumerate(node.src[1:] if node.op in BINDERS else ()):
            key = None if inside else (loop.op, loop.src, loop.arg[1], place)
            if found.setdefault(loop, key) != key:
                found[loop] = None
    return {loop: key for loop, key in found.items() if key is not None}
