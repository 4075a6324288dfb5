"""All arguments of each step within a scope, for one kernel: sensible ones and senseless ones.

Owns: the arguments. Does not own: kernels (small_kernels.py), what is asked of the results (steps_exhaustively.py).

Every loop of the kernel, one that it does not have, and nodes that are no loops; a sum that it does not have; sizes 0 to 5, alone and as two (to 3) or three
(to 2) parts; numbers that are free, that loops have, twice the same; every role; every node of the graph as a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, combinations, islice, permutations, product
from typing import Any

from proofgrad.core.compile.nests.loops import size_of
from proofgrad.core.compile.nests.strides import coefficient, loops_below
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.keep_window import Axis
from proofgrad.core.compile.steps.stage import Digit
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp

Arguments = tuple[tuple[Any, ...], dict[str, Any]]

FOREIGN = UOp.range(3, 77)
# What is no loop; the second has a number where a loop has its size.
NO_LOOPS = (UOp.index(0), UOp(Ops.ADD, dtypes.index, (UOp.index(3), FOREIGN)))
_TERM = UOp(Ops.MUL, dtypes.int, (UOp.const(dtypes.int, 2), UOp.const(dtypes.int, 3)))
_MASKED = (FOREIGN < 2).where(_TERM, _TERM.const_like(0))
FOREIGN_SUM = UOp(Ops.REDUCE, dtypes.int, (_MASKED, FOREIGN), Ops.ADD)
FREE, MORE = 21, (21, 23, 25, 27, 29)  # numbers that no small kernel has
TOGETHER = (AxisRole.THREAD, AxisRole.VECTOR, AxisRole.UPCAST)  # roles tried with each other
LAYOUTS = 3  # orders of the digits of one value, at most
PARTS = [(), (0,), (-1,), (1, 1, 1, 1), *[(k,) for k in range(1, 6)],
         *product((1, 2, 3), repeat=2), *product((1, 2), repeat=3)]  # fmt: skip


def loops_in(graph: UOp) -> list[UOp]:
    return sorted([n for n in graph.toposort() if n.op is Ops.RANGE], key=lambda x: x.arg[0])


def _call(*args: Any, **named: Any) -> Arguments:
    return args, named


def for_split(graph: UOp) -> Iterator[Arguments]:
    for loop in (*loops_in(graph), FOREIGN):
        number, role = loop.arg
        for sizes in PARTS:
            inner = [NewLoop(k, role) for k in MORE[: len(sizes)]]
            yield _call(loop, sizes, (NewLoop(number, role), *inner))
        for outer, last in (*product(AxisRole, (role,)), *product((role, *TOGETHER), TOGETHER)):
            yield _call(loop, (2,), (NewLoop(number, outer), NewLoop(FREE, last)))
        yield _call(loop, (3,), (NewLoop(number, role), NewLoop(FREE, AxisRole.VECTOR)))
        yield _call(
            loop, (2, 2), (NewLoop(number, role), NewLoop(FREE, role), NewLoop(23, AxisRole.VECTOR))
        )
        for other in loops_in(graph):
            yield _call(loop, (2,), (NewLoop(number, role), NewLoop(other.arg[0], role)))
        yield _call(loop, (2,), (NewLoop(FREE, role), NewLoop(FREE, role)))
        yield _call(loop, (2,), (NewLoop(FREE, role),))
    for other in NO_LOOPS:
        yield _call(other, (2,), (NewLoop(2), NewLoop(FREE)))


def for_collapse(graph: UOp) -> Iterator[Arguments]:
    own = loops_in(graph)
    for count in (1, 2, 3):
        for loops in permutations((*own, FOREIGN), count):
            for number in {loops[0].arg[0], FREE, *[x.arg[0] for x in own]}:
                yield _call(loops, NewLoop(number, loops[0].arg[1]))
    for loop, role in product(own, AxisRole):
        yield _call((loop,), NewLoop(FREE, role))
        yield _call((loop, loop), NewLoop(FREE, role))
    yield _call((), NewLoop(FREE))
    for other in NO_LOOPS:
        yield _call((*own, other), NewLoop(FREE))


def for_merge(graph: UOp) -> Iterator[Arguments]:
    for pair in product((*loops_in(graph), FOREIGN, *NO_LOOPS), repeat=2):
        yield _call(*pair)


def for_reorder(graph: UOp) -> Iterator[Arguments]:
    own = loops_in(graph)
    for loop in (*own, FOREIGN, graph, *NO_LOOPS):
        for number in {0, FREE, *[x.arg[0] + k for x in own for k in (0, 1)]}:
            yield _call(loop, number)


def for_one_loop(graph: UOp) -> Iterator[Arguments]:
    for loop in (*loops_in(graph), FOREIGN, graph, *NO_LOOPS):
        yield _call(loop)


def for_run_as(graph: UOp) -> Iterator[Arguments]:
    own = loops_in(graph)
    yield _call({})
    for loop, role in product((*own, FOREIGN, graph, *NO_LOOPS), AxisRole):
        yield _call({loop: role})
    for pair in combinations(own, 2):
        for roles in product(AxisRole, repeat=2):
            yield _call(dict(zip(pair, roles)))


def for_unroll(graph: UOp) -> Iterator[Arguments]:
    own = (*loops_in(graph), FOREIGN)
    for count in range(len(own) + 1):
        for loops in combinations(own, count):
            yield _call(frozenset(loops))
    for other in NO_LOOPS:
        yield _call(frozenset((*own[:-1], other)))


def for_keep(graph: UOp) -> Iterator[Arguments]:
    own, free = loops_in(graph), loops_below(graph)
    for value in (*free, FOREIGN):
        for count in (1, 2) if _is_value(value) else (1,):
            for loops in permutations(own, count):
                made = tuple([NewLoop(k, AxisRole.REDUCE) for k in MORE[:count]])
                yield _call(value, loops, made)
    values = [n for n in free if n.op in (Ops.LOAD, Ops.ADD, Ops.MUL, Ops.WHERE)]
    one = NewLoop(FREE, AxisRole.REDUCE)
    for value in values:
        for loop in own:
            for role in AxisRole:
                yield _call(value, (loop,), (NewLoop(FREE, role),))
            for taken in own:
                yield _call(value, (loop,), (NewLoop(taken.arg[0], AxisRole.REDUCE),))
            yield _call(value, (loop, loop), (one, NewLoop(23)))
            yield _call(value, (loop,), (one, NewLoop(23)))
            for other in NO_LOOPS:
                yield _call(value, (loop, other), (one, NewLoop(23)))
            for other, its in product((*values, FOREIGN), own):
                yield _call(value, (loop,), (one,), [(other, (its,))])
        yield _call(value, (), ())


def for_keep_window(graph: UOp) -> Iterator[Arguments]:
    own = loops_in(graph)
    for load in [n for n in graph.toposort() if n.op is Ops.LOAD]:
        index = load.src[0].src[1]
        for inner in chain.from_iterable(combinations(own, count) for count in (0, 1, 2)):
            first = index.substitute({x: UOp.index(0) for x in inner})
            others = tuple([x for x in own if x not in inner])
            for size, apart in product((0, 1, 2, 3, 6, 12), ((), others)):
                yield _call(load, first, (_axis(index - first, size),), apart)
            for loop in inner:
                if step := coefficient(index, loop):
                    one = _axis(loop, size_of(loop), step)
                    behind = _axis(index - first - loop * step, 6, 1, 23)
                    yield _call(load, first, (one, behind))
                    yield _call(load, first, (behind, one))
                    yield _call(load, first, (_axis(loop, size_of(loop) + 2, step), behind))
                    yield _call(load, first, (_axis(loop, size_of(loop), step + 1), behind))
                    yield _call(load, first, (one, _axis(behind.place, 6)))
        distance, start = index - UOp.index(0), UOp.index(0)
        for number, role in ((FREE, role) for role in AxisRole):
            yield _call(load, start, (_axis(distance, 24, 1, number, role),))
        for taken in own:
            yield _call(load, start, (_axis(distance, 24, 1, taken.arg[0]),))
        for wrong in (UOp.index(1), UOp.index(-1), FOREIGN):
            yield _call(load, wrong, (_axis(distance, 24),))
            yield _call(load, wrong, (_axis(distance - wrong, 24),))
        yield _call(load, start, (_axis(distance, 24),), (FOREIGN,))
        yield _call(load, index, ())
    for other in (FOREIGN, graph, FOREIGN_SUM):
        yield _call(other, UOp.index(0), (_axis(UOp.index(0), 1),))


def for_stage_window(graph: UOp) -> Iterator[Arguments]:
    own = loops_in(graph)
    for load in [n for n in graph.toposort() if n.op is Ops.LOAD]:
        index = load.src[0].src[1]
        for size in (1, 6, 12, 24, 30):
            yield _call(load, (_axis(index, size),))
        for loop in own:
            if step := coefficient(index, loop):
                one, rest = _axis(loop, size_of(loop), step), index - loop * step
                behind = _axis(rest, 24, 1, 23)
                yield _call(load, (one, behind))
                yield _call(load, (behind, one))
                yield _call(load, (_axis(loop, size_of(loop) + 2, step), behind))
                yield _call(load, (_axis(loop, size_of(loop) - 1, step), behind))
                yield _call(load, (_axis(loop, size_of(loop), step + 1), behind))
                yield _call(load, (one, _axis(rest, 24)))
        for role in AxisRole:
            yield _call(load, (_axis(index, 24, 1, FREE, role),))
        for taken in own:
            yield _call(load, (_axis(index, 24, 1, taken.arg[0]),))
        yield _call(load, (_axis(FOREIGN, 24),))
        yield _call(load, ())
    for other in (FOREIGN, graph, FOREIGN_SUM):
        yield _call(other, (_axis(UOp.index(0), 1),))


def _axis(
    place: UOp, size: int, stride: int = 1, number: int = FREE, role: AxisRole = AxisRole.REDUCE
) -> Axis:
    return Axis(place, size, stride, NewLoop(number, role))


def for_stage(graph: UOp) -> Iterator[Arguments]:
    free = loops_below(graph)
    for value, loops in (*free.items(), (FOREIGN, frozenset((FOREIGN,)))):
        ordered = sorted(loops, key=lambda x: x.arg[0])
        for digits in islice(_layouts(ordered), None if _is_value(value) else 2):
            yield _call(value, digits)
    for value in [n for n in free if n.op is Ops.LOAD]:
        ordered = sorted(free[value], key=lambda x: x.arg[0])
        whole = [_digit(x, size_of(x), k) for k, x in enumerate(ordered)]
        yield _call(value, tuple(whole[1:]))
        yield _call(value, (*whole, _digit(FOREIGN, 3, 4)))
        yield _call(value, (*whole, *whole))
        for other in NO_LOOPS:
            yield _call(value, (*whole, _digit(other, 3, 4)))
        for loop in ordered:
            rest = [d for d in whole if d.loop is not loop]
            yield _call(value, (*rest, _digit(loop, 0, 4)))
            yield _call(value, (*rest, _digit(loop, 1, 4)))
            yield _call(value, (*rest, _digit(loop, 2, 3, stride=3), _digit(loop, 2, 4)))
            yield _call(value, (*rest, _digit(loop, 3, 3, stride=2), _digit(loop, 2, 3)))
            for role in AxisRole:
                yield _call(value, (*rest, Digit(loop, size_of(loop), NewLoop(29, role))))
            for other in loops_in(graph):
                yield _call(value, (*rest, Digit(loop, size_of(loop), NewLoop(other.arg[0]))))


def _is_value(node: UOp) -> bool:
    return node.dtype not in (dtypes.index, dtypes.void) and node.op is not Ops.INDEX


def _digit(loop: UOp, size: int, position: int, stride: int = 1) -> Digit:
    return Digit(loop, size, NewLoop(61 + position), stride)


def _layouts(loops: list[UOp]) -> Iterator[tuple[Digit, ...]]:
    """Each loop whole, longer, or as two digits of which the last has 2 or 3 values, in every order."""
    ways = []
    for loop in loops:
        n = size_of(loop)
        halves = [(loop, -(-n // 2), 2), (loop, 2, 1)]
        ways.append(
            [[(loop, n, 1)], [(loop, n + 1, 1)], halves, [(loop, -(-n // 3), 3), (loop, 3, 1)]]
        )
        if len(loops) > 1:
            ways[-1].pop()
    for way in product(*ways):
        parts = [*chain(*way)]
        for order in islice(permutations(parts), LAYOUTS):
            yield tuple(
                [
                    Digit(x, size, NewLoop(31 + k), stride)
                    for k, (x, size, stride) in enumerate(order)
                ]
            )


def for_deinterleave(graph: UOp) -> Iterator[Arguments]:
    for (load, loop), _ in for_loads_and_loops(graph):
        for row_length in (None, 0, 1, 2, 3, 5, 7):
            yield _call(load, loop, row_length)


def for_loads_and_loops(graph: UOp) -> Iterator[Arguments]:
    nodes = [n for n in graph.toposort() if n.op in (Ops.LOAD, Ops.STORE, Ops.INDEX)]
    foreign = UOp(Ops.LOAD, nodes[0].src[0].dtype, (nodes[0],))
    for node, loop in product((*nodes, foreign), (*loops_in(graph), FOREIGN, graph, *NO_LOOPS)):
        yield _call(node, loop)


def for_pad_rows(graph: UOp) -> Iterator[Arguments]:
    for call in for_loads_and_loops(graph):
        for padding in (-1, 0, 1, 2):
            yield _call(*call[0], padding)


def for_sum_in_memory(graph: UOp) -> Iterator[Arguments]:
    for steps in range(-1, 6):
        for number in {0, FREE, *[x.arg[0] for x in loops_in(graph)]}:
            yield _call(steps, number)


def for_split_index_set(graph: UOp) -> Iterator[Arguments]:
    for loop in (*loops_in(graph), FOREIGN, graph, *NO_LOOPS):
        for borders in ((), (0,), (1,), (2,), (1, 2), (2, 1), (1, 1), (7,)):
            yield _call(loop, borders)


def for_align(graph: UOp) -> Iterator[Arguments]:
    loops = loops_in(graph)
    starts = [UOp.index(1), UOp.index(-1), FOREIGN, *[x * 3 + 1 for x in loops], *NO_LOOPS]
    for loop in (*loops, FOREIGN, graph, *NO_LOOPS):
        for start in starts:
            for length in (0, 1, 2, 4):
                yield _call(loop, start, length)


def for_scatter(graph: UOp) -> Iterator[Arguments]:
    yield _call()


def for_reduce_inside(graph: UOp) -> Iterator[Arguments]:
    for node in (*graph.toposort(), FOREIGN_SUM):
        loops = (*node.src[1:], FOREIGN) if node.op is Ops.REDUCE else (FOREIGN,)
        for count in range(3):
            for inner in permutations(loops, count):
                yield _call(node, inner)
        yield _call(node, (loops[0], loops[0]))


def for_prefix_in_blocks(graph: UOp) -> Iterator[Arguments]:
    made = tuple([NewLoop(k, AxisRole.REDUCE) for k in MORE[:3]])
    reductions = [n for n in graph.toposort() if n.op is Ops.REDUCE]
    for node in (*reductions, FOREIGN_SUM, FOREIGN):
        for size in range(-1, 6):
            yield _call(node, size, made)
    for node in reductions[:1]:
        for role in AxisRole:
            yield _call(node, 2, (made[0], NewLoop(MORE[1], role), NewLoop(MORE[2], role)))
        for number in {MORE[1], *[x.arg[0] for x in loops_in(graph)]}:
            yield _call(node, 2, (NewLoop(number, AxisRole.REDUCE), *made[1:]))


def for_pair(graph: UOp) -> Iterator[Arguments]:
    for node in (*graph.toposort(), FOREIGN, FOREIGN_SUM):
        for loop in (*node.src[1:], FOREIGN) if node.op is Ops.REDUCE else (FOREIGN,):
            yield _call(node, loop)


def for_offset_factor(graph: UOp) -> Iterator[Arguments]:
    for node in (*graph.toposort(), FOREIGN, FOREIGN_SUM):
        for place in (0, 1, 2) if node.op is Ops.REDUCE else (0,):
            yield _call(node, place)


def for_mma(graph: UOp) -> Iterator[Arguments]:
    outputs = [x for x in loops_in(graph) if x.arg[1] is AxisRole.LOOP]
    for memory in [n for n in graph.toposort() if n.op is Ops.LOCAL_BUFFER]:
        outputs = [*memory.src[1:]]
    roles = (AxisRole.LANE, AxisRole.VECTOR, AxisRole.VECTOR)
    made = [NewLoop(k, role) for k, role in zip(MORE, roles)]
    for node in (*graph.toposort(), FOREIGN_SUM):
        if node.op is not Ops.REDUCE:
            yield _call(node, tuple(outputs[:2]), tuple(made[:2]), made[2])
            continue
        for count in range(4):
            for loops in permutations((*outputs, FOREIGN), count):
                yield _call(node, loops, tuple(made[:2]), made[2])
        for number in {FREE, MORE[0], *[x.arg[0] for x in loops_in(graph)]}:
            other = NewLoop(number, AxisRole.VECTOR)
            yield _call(node, tuple(outputs), tuple(made[:2]), other)
            yield _call(node, tuple(outputs), (made[0], other), made[2])
        for role in AxisRole:
            others = (NewLoop(MORE[0], role), made[1])
            yield _call(node, tuple(outputs), others, made[2])
            yield _call(node, tuple(outputs), tuple(made[:2]), NewLoop(MORE[2], role))


def for_turn_rows(graph: UOp) -> Iterator[Arguments]:
    kept = [x for n in graph.toposort() if n.op is Ops.LOCAL_BUFFER for x in n.src[1:]]
    for row, piece in product((*kept, *loops_in(graph)[:1], FOREIGN, *NO_LOOPS), repeat=2):
        for times, each in ((1, 1), (3, 2), (0, 1), (1, 0), (-1, 1)):
            yield _call(row, piece, times, each)


def for_fill_ahead(graph: UOp) -> Iterator[Arguments]:
    loops = loops_in(graph)
    for loop in (*loops, FOREIGN, *NO_LOOPS):
        for number in {FREE, *[x.arg[0] for x in loops]}:
            yield _call(loop, NewLoop(number, AxisRole.AHEAD))
        for parts in (0, 1, 3, 4, 7):
            yield _call(loop, NewLoop(FREE, AxisRole.AHEAD), parts)
        for role in AxisRole:
            yield _call(loop, NewLoop(FREE, role))


def for_all_reduce(graph: UOp) -> Iterator[Arguments]:
    for node in (*graph.toposort(), FOREIGN_SUM):
        taken = {x.arg[0] for x in loops_in(graph)} if node.op is Ops.REDUCE else set()
        for number in {FREE, *taken}:
            yield _call(node, number)


def for_keep_in_item(graph: UOp) -> Iterator[Arguments]:
    memories = [n for n in graph.toposort() if n.op is Ops.LOCAL_BUFFER]
    for memory in (*memories, FOREIGN_SUM, graph):
        for loop in (*loops_in(graph), FOREIGN, *NO_LOOPS):
            yield _call(memory, loop)


def for_own_loops(graph: UOp) -> Iterator[Arguments]:
    for shared in ((), *[(loop,) for loop in loops_in(graph)]):
        yield _call(shared)


def for_one_reduction(graph: UOp) -> Iterator[Arguments]:
    reductions = [n for n in graph.toposort() if n.op is Ops.REDUCE]
    for pair in product((*reductions, FOREIGN_SUM, graph), repeat=2):
        yield _call(*pair)


def for_mma_in_item(graph: UOp) -> Iterator[Arguments]:
    vectors = [NewLoop(k, AxisRole.VECTOR) for k in MORE]
    for node in (*graph.toposort(), FOREIGN_SUM):
        if node.op is not Ops.REDUCE:
            yield _call(node, FOREIGN, FOREIGN, *vectors[:2])
            continue
        for loops in permutations((*loops_in(graph), FOREIGN), 2):
            yield _call(node, *loops, *vectors[:2])
        for row, column in islice(permutations(loops_in(graph), 2), 1):
            for role in AxisRole:
                yield _call(node, row, column, NewLoop(MORE[0], role), vectors[1])
                yield _call(node, row, column, vectors[0], NewLoop(MORE[1], role))
            for number in {MORE[0], *[x.arg[0] for x in loops_in(graph)]}:
                taken = NewLoop(number, AxisRole.VECTOR)
                yield _call(node, row, column, vectors[0], taken)
                yield _call(node, row, column, taken, vectors[0])


def for_each_node(graph: UOp) -> Iterator[Arguments]:
    for node in (*graph.toposort(), FOREIGN, FOREIGN_SUM):
        yield _call(node)


def for_end_before_hidden(graph: UOp) -> Iterator[Arguments]:
    for loop in (*loops_in(graph), FOREIGN, *NO_LOOPS):
        for around in ((), *[(other,) for other in (*loops_in(graph), FOREIGN)]):
            yield _call(loop, around)


ARGUMENTS: dict[str, Callable[[UOp], Iterator[Arguments]]] = {
    "split": for_split,
    "split_reading_inside": for_split,
    "collapse": for_collapse,
    "merge": for_merge,
    "reorder": for_reorder,
    "reverse": for_one_loop,
    "extend": for_one_loop,
    "shorten": for_one_loop,
    "end_before_hidden": for_end_before_hidden,
    "begin_after_hidden": for_end_before_hidden,
    "window": for_one_loop,
    "leave": for_each_node,
    "run_as": for_run_as,
    "unroll": for_unroll,
    "local_buffer": for_keep,
    "keep_window": for_keep_window,
    "stage_window": for_stage_window,
    "stage": for_stage,
    "deinterleave": for_deinterleave,
    "pad_rows": for_pad_rows,
    "sum_in_memory": for_sum_in_memory,
    "split_index_set": for_split_index_set,
    "align": for_align,
    "scatter": for_scatter,
    "overwrite": for_scatter,
    "join_sums": for_each_node,
    "prefix_in_blocks": for_prefix_in_blocks,
    "reduce_inside": for_reduce_inside,
    "turn_rows": for_turn_rows,
    "fill_ahead": for_fill_ahead,
    "keep_in_item": for_keep_in_item,
    "rescale_blocks": for_each_node,
    "divide_once": for_each_node,
    "own_loops": for_own_loops,
    "one_reduction": for_one_reduction,
    "all_reduce": for_all_reduce,
    "mma": for_mma,
    "mma_in_item": for_mma_in_item,
    "read_inside": for_each_node,
    "unmask": for_each_node,
    "where_normal": for_each_node,
    "pair": for_pair,
    "offset_factor": for_offset_factor,
}
