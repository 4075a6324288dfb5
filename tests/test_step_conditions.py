"""What steps refuse: each kind of argument that once gave a wrong kernel, or an error that said nothing.

tests/test_steps_exhaustively.py found them; here each has its name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import pytest
from kernel_interpreter import run_kernel
from small_graphs import program, reduced, tensor
from small_kernels import (
    INSIDE,
    OUT,
    N,
    X,
    Y,
    inner_loops,
    load,
    loops,
    position_of,
    reduce,
    row_major,
    small_kernels,
    store,
)
from small_kernels import keep as kept_memory
from small_kernels import kept as kept_value
from tactics import nest_of

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.strides import loops_below
from proofgrad.core.compile.passes.forms import Form, FormError, check_form
from proofgrad.core.compile.steps.accumulate import accumulate
from proofgrad.core.compile.steps.bijection import NewLoop, exchanged
from proofgrad.core.compile.steps.clamp import read_inside
from proofgrad.core.compile.steps.collapse import MOST_LOOPS, collapse
from proofgrad.core.compile.steps.deinterleave import deinterleave
from proofgrad.core.compile.steps.join import join_sums
from proofgrad.core.compile.steps.keep_window import MOST_TOLD_APART, Axis, keep_window
from proofgrad.core.compile.steps.lanes import lanes
from proofgrad.core.compile.steps.local_buffer import local_buffer
from proofgrad.core.compile.steps.loop_nest import LoopNest, Step, StepRefused, check_whole
from proofgrad.core.compile.steps.merge import merge
from proofgrad.core.compile.steps.narrow import narrow
from proofgrad.core.compile.steps.pad_rows import pad_rows
from proofgrad.core.compile.steps.pair import pair
from proofgrad.core.compile.steps.reduce_in_parts import Blocks, Ends, reduce_in_parts
from proofgrad.core.compile.steps.reorder import reorder
from proofgrad.core.compile.steps.run_as import run_as
from proofgrad.core.compile.steps.scatter import scatter
from proofgrad.core.compile.steps.split import MOST_PARTS, split, split_reading_inside
from proofgrad.core.compile.steps.stage import MOST_DIGITS, Digit, stage
from proofgrad.core.compile.steps.stage_window import stage_window
from proofgrad.core.compile.steps.sum_in_memory import sum_in_memory
from proofgrad.core.compile.steps.tensor_program import traced
from proofgrad.core.compile.steps.turn_rows import turn_rows
from proofgrad.core.compile.steps.unroll import unroll
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp

MACHINE = Target("test", scratch_bytes=1 << 10, vector_bytes=16, threads=2)
ROW = NewLoop(21, AxisRole.REDUCE)


def nest_of_stores(*stores: UOp) -> LoopNest:
    (kernel,) = small_kernels([("test", UOp.sink(*stores))])
    return nest_of(kernel.graph, MACHINE)


def rows(n: int, k: int, op: Ops = Ops.ADD) -> LoopNest:
    """out[a] = reduce[r](x[a, r])."""
    (a,), (r,) = loops(n), inner_loops(k)
    return nest_of_stores(store(a, reduce(op, load(X, row_major(a, r)), r)))


def nodes(nest: LoopNest, op: Ops) -> list[UOp]:
    return [n for n in nest.graph.toposort() if n.op is op]


def refused(way: Callable[[], object], why: str) -> None:
    with pytest.raises(StepRefused, match=why):
        way()


# -- values -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", [Ops.INDEX, Ops.STORE, Ops.PARAM, Ops.RANGE, Ops.ADD], ids=str)
def test_what_memory_cannot_hold_is_not_kept_or_staged(op: Ops) -> None:
    nest = rows(2, 3)
    value = nodes(nest, op)[-1]
    a, r = nodes(nest, Ops.RANGE)
    refused(
        lambda: local_buffer(nest, value, (r,), (ROW,)),
        "no value that memory can hold|not in the nest",
    )
    digits = (Digit(a, 2, NewLoop(31)), Digit(r, 3, NewLoop(32)))
    refused(lambda: stage(nest, value, digits), "no value that memory can hold")


def test_a_value_that_runs_a_loop_itself_is_not_staged_along_it() -> None:
    """As sum[a](x[a]) * y[a]: the counter of the table would stand for the loop of the sum, too."""
    (a,) = loops(4)
    value = reduce(Ops.ADD, load(X, a), a) * load(Y, a)
    nest = nest_of_stores(store(a, value))
    whole = nodes(nest, Ops.MUL)[-1]
    refused(
        lambda: stage(nest, whole, (Digit(a, 2, NewLoop(31), 2), Digit(a, 2, NewLoop(32)))),
        "runs itself",
    )


def test_what_changes_with_a_loop_of_a_reduction_and_of_the_results_is_not_kept() -> None:
    (a,), (r,) = loops(3), inner_loops(2)
    total = reduce(Ops.ADD, load(X, row_major(a, r)), a, r)
    nest = nest_of_stores(store(a, total - load(Y, a)))
    (value,) = [n for n in nodes(nest, Ops.LOAD) if r in n.toposort()]
    refused(lambda: local_buffer(nest, value, (r,), (ROW,)), "changes with a loop of a reduction")


@pytest.mark.parametrize(("op", "commutes"), [(Ops.ADD, True), (Ops.MAX, True), (Ops.CMPLT, False),
                                              (Ops.FLOORDIV, False)], ids=str)  # fmt: skip
def test_values_are_alike_in_another_order_if_their_operation_commutes(
    op: Ops, commutes: bool
) -> None:
    b, (r,) = UOp.range(3, 4), inner_loops(3)
    dtype = dtypes.bool if op is Ops.CMPLT else dtypes.int32
    one = UOp(op, dtype, (load(X, b), load(Y, b)))
    turned = UOp(op, dtype, (load(Y, r), load(X, r)))
    total = reduce(Ops.ADD, turned.cast(dtypes.int32), r)
    nest = nest_of_stores(store(b, one.cast(dtypes.int32) * total))
    one, turned = sorted(nodes(nest, op), key=lambda n: r in n.toposort())
    if not commutes:
        refused(lambda: local_buffer(nest, one, (b,), (ROW,), [(turned, (r,))]), "another function")
        return
    kept = local_buffer(nest, one, (b,), (ROW,), [(turned, (r,))])
    assert {one, turned}.isdisjoint(kept.graph.toposort())


def alike_sums(
    first: tuple[UOp, ...], second: tuple[UOp, ...], body: Callable[..., UOp]
) -> tuple[LoopNest, UOp, UOp, UOp, UOp]:
    """A nest, its sums of `body` over some loops and over others, each with the loop beside that it is a function of."""
    b, (r,) = UOp.range(3, 4), (UOp.range(3, 20, AxisRole.REDUCE),)
    one = reduce(Ops.ADD, body(b, *first), *first)
    other = reduce(Ops.ADD, body(r, *second), *second)
    nest = nest_of_stores(store(b, one * reduce(Ops.MAX, other, r)))
    (most,) = [n for n in nodes(nest, Ops.REDUCE) if n.arg is Ops.MAX and n.src[0].op is Ops.REDUCE]
    inside = most.src[0]
    (sum_,) = [n for n in nodes(nest, Ops.REDUCE) if n.arg is Ops.ADD and n is not inside]
    (loop,) = [n for n in loops_below(nest.graph)[sum_] if n is not most.src[1]]
    return nest, sum_, loop, inside, most.src[1]


def test_sums_are_alike_whatever_their_loops_are_called() -> None:
    k, m = UOp.range(2, 30, AxisRole.REDUCE), UOp.range(2, 31, AxisRole.REDUCE)
    nest, one, b, other, r = alike_sums((k,), (m,), lambda x, i: load(X, i) * load(Y, x))
    kept = local_buffer(nest, one, (b,), (ROW,), [(other, (r,))])
    assert len(nodes(kept, Ops.LOCAL_BUFFER)) == 1 and other not in kept.graph.toposort()


def test_sums_are_not_alike_if_their_loops_are_of_other_lengths_or_in_another_order() -> None:
    def loop(size: int, number: int) -> UOp:
        return UOp.range(size, number, AxisRole.REDUCE)

    def twice(x: UOp, i: UOp, j: UOp) -> UOp:
        return load(X, i) * load(Y, row_major(x, j))

    shorter = alike_sums((loop(2, 30),), (loop(3, 31),), lambda x, i: load(X, i) * load(Y, x))
    k, m = loop(2, 30), loop(2, 31)
    turned = alike_sums((k, m), (m, k), lambda x, *_: twice(x, k, m))
    inner = loop(2, 32), loop(2, 33)
    nested = alike_sums(
        (k,), (m,), lambda x, i: reduce(Ops.MAX, twice(x, i, inner[i is m]), inner[i is m])
    )
    for nest, one, b, other, r in (shorter, turned, nested):
        refused(
            lambda: local_buffer(nest, one, (b,), (ROW,), [(other, (r,))]),  # noqa: B023
            "another function",
        )


# -- loops --------------------------------------------------------------------------------------------


def test_a_loop_is_not_collapsed_or_merged_with_itself() -> None:
    nest = rows(3, 1)
    for loop in nodes(nest, Ops.RANGE):
        refused(lambda: collapse(nest, (loop, loop), NewLoop(21)), "one loop twice")
    one = nest_of_stores(store(UOp.range(1, 2), load(X, UOp.range(1, 2))))
    (loop,) = nodes(one, Ops.RANGE)
    refused(lambda: merge(one, loop, loop), "one loop twice")


def test_loops_that_are_not_all_of_one_store_are_not_collapsed() -> None:
    """Each element of a store would be written once for each iteration of a loop that it does not have."""
    a, b = loops(3, 2)
    nest = nest_of_stores(store(a, load(X, a)), store(b + 3, load(Y, b)))
    refused(
        lambda: collapse(nest, (a, b), NewLoop(21)), "only some of the loops are those of a store"
    )
    (r,) = inner_loops(2)
    total = reduce(Ops.ADD, load(X, a) * load(Y, r), a, r)
    nest = nest_of_stores(store(a, total - load(X, a)))
    refused(
        lambda: collapse(nest, (a, r), NewLoop(21)), "only some of the loops are those of a store"
    )


def test_a_loop_that_never_runs_is_not_collapsed() -> None:
    """Its digits would be remainders by 0."""
    a, b = loops(0, 2)
    nest = nest_of_stores(store(row_major(a, b), load(X, row_major(a, b))))
    refused(lambda: collapse(nest, (a, b), NewLoop(21)), "a loop that never runs")


def test_a_loop_of_a_reduction_is_not_reordered() -> None:
    nest = rows(2, 3)
    a, r = nodes(nest, Ops.RANGE)
    assert reorder(nest, a, 21)
    refused(lambda: reorder(nest, r, 21), "no output loop")


def test_no_step_takes_the_number_of_a_loop_that_stays() -> None:
    """Where two loops of one number are alike, they would be one loop."""
    nest = rows(2, 4)
    a, r = nodes(nest, Ops.RANGE)
    (value,) = nodes(nest, Ops.LOAD)
    number = r.arg[0]
    for way in (
        lambda: sum_in_memory(nest, 2, number),
        lambda: sum_in_memory(nest, 2, a.arg[0]),
        lambda: split(nest, a, (2,), (NewLoop(a.arg[0]), NewLoop(number))),
        lambda: collapse(nest, (a,), NewLoop(number)),
        lambda: reorder(nest, a, number),
        lambda: local_buffer(nest, value, (r,), (NewLoop(number),)),
        lambda: local_buffer(nest, value, (a, r), (NewLoop(21), NewLoop(21))),
    ):
        refused(way, "a loop of this number is there|numbers of loops")


def test_as_many_loops_are_named_as_a_law_makes() -> None:
    nest = rows(4, 2)
    loop = nodes(nest, Ops.RANGE)[0]
    refused(lambda: split(nest, loop, (2,), (NewLoop(21),)), "not as many loops")


def test_a_store_without_a_loop_that_is_written_out_stays_one() -> None:
    a, b = loops(4, 2)
    nest = nest_of_stores(store(a, load(X, a)), store(b + 4, load(Y, b)))
    assert len(unroll(nest, frozenset([a])).graph.src) == 5


@pytest.mark.parametrize(("n", "k"), [(0, 2), (2, 0)], ids=["results", "sum"])
def test_a_loop_that_never_runs_is_not_written_out(n: int, k: int) -> None:
    """No copy would be left to store, or to combine."""
    nest = rows(n, k)
    empty = [x for x in nodes(nest, Ops.RANGE) if x.src[0].arg == 0]
    refused(lambda: unroll(nest, frozenset(empty)), "never runs")


# What is no loop of known size; the last two have a number where a loop has its size.
NO_LOOPS = {
    "constant": UOp.index(0),
    "variable": UOp.range(N, 2),
    "sum": UOp(Ops.ADD, dtypes.index, (UOp.index(3), UOp.range(3, 77))),
    "memory": UOp(Ops.INDEX, dtypes.int, (UOp.index(3), UOp.index(3))),
}
TAKES_LOOPS: dict[str, Callable[[LoopNest, UOp], object]] = {
    "split": lambda nest, loop: split(nest, loop, (2,), (NewLoop(21), NewLoop(22))),
    "split_reading_inside": lambda nest, loop: split_reading_inside(
        nest, loop, (2,), (NewLoop(21), NewLoop(22))
    ),
    "collapse": lambda nest, loop: collapse(nest, (loop,), NewLoop(21)),
    "merge_outer": lambda nest, loop: merge(nest, loop, nodes(nest, Ops.RANGE)[-1]),
    "merge_inner": lambda nest, loop: merge(nest, nodes(nest, Ops.RANGE)[-1], loop),
    "reorder": lambda nest, loop: reorder(nest, loop, 21),
    "run_as": lambda nest, loop: run_as(nest, {loop: AxisRole.UPCAST}),
    "unroll": lambda nest, loop: unroll(nest, frozenset([loop])),
    "deinterleave": lambda nest, loop: deinterleave(nest, nodes(nest, Ops.LOAD)[0], loop),
    "pad_rows": lambda nest, loop: pad_rows(nest, nodes(nest, Ops.LOAD)[0], loop, 1),
    "turn_rows": lambda nest, loop: turn_rows(nest, loop, nodes(nest, Ops.RANGE)[-1], 1, 1),
    "turn_pieces": lambda nest, loop: turn_rows(nest, nodes(nest, Ops.RANGE)[-1], loop, 1, 1),
}


@pytest.mark.parametrize("loop", NO_LOOPS.values(), ids=NO_LOOPS)
@pytest.mark.parametrize("way", TAKES_LOOPS.values(), ids=TAKES_LOOPS)
def test_what_is_no_loop_of_known_size_is_refused(
    way: Callable[[LoopNest, UOp], object], loop: UOp
) -> None:
    a, b = UOp.range(N, 2), UOp.range(2, 4)
    nest = nest_of_stores(store(a * 2 + b, load(X, a * 2 + b)))
    refused(lambda: way(nest, loop), "no loop of known size")


def small_products(n: int, k: int, first: DType, second: DType, op: Ops = Ops.ADD) -> LoopNest:
    """out[0] = reduce[r, s](x[r, s] * y[s]) in int32."""
    r, s = inner_loops(n, k)
    one, other = load(X, r * k + s, dtype=first), load(Y, s, dtype=second)
    product = one.cast(dtypes.int32) * other.cast(dtypes.int32)
    return nest_of_stores(store(UOp.index(0), reduce(op, product, r, s)))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (dtypes.uint16, dtypes.int8),
        (dtypes.int8, dtypes.int32),
        (dtypes.float32, dtypes.int8),
        (dtypes.bool, dtypes.uint32),
    ],
)
def test_only_products_of_small_integers_are_paired(first: DType, second: DType) -> None:
    nest = small_products(3, 2, first, second)
    (total,) = nodes(nest, Ops.REDUCE)
    refused(lambda: pair(nest, total, total.src[2]), "no sum of products of small integers")


def test_only_a_loop_of_two_among_those_of_a_sum_is_paired() -> None:
    nest = small_products(3, 2, dtypes.int8, dtypes.int8)
    (total,) = nodes(nest, Ops.REDUCE)
    refused(lambda: pair(nest, total, total.src[1]), "no loop of two")
    refused(lambda: pair(nest, total, UOp.range(2, 77)), "no loop of the sum")
    refused(lambda: pair(nest, total, UOp.range(N, 77)), "no loop of known size")
    other = small_products(3, 2, dtypes.int16, dtypes.int8)
    refused(lambda: pair(other, total, total.src[2]), "not in the nest")
    largest = small_products(3, 2, dtypes.int8, dtypes.int8, Ops.MAX)
    (total,) = nodes(largest, Ops.REDUCE)
    refused(lambda: pair(largest, total, total.src[2]), "no sum of products")


def test_a_sum_of_one_pair_stays_a_sum() -> None:
    """Nothing would be left to sum over."""
    (s,) = inner_loops(2)
    one, other = [load(slot, s, dtype=dtypes.int8).cast(dtypes.int32) for slot in (X, Y)]
    nest = nest_of_stores(store(UOp.index(0), reduce(Ops.ADD, one * other, s)))
    (total,) = nodes(nest, Ops.REDUCE)
    refused(lambda: pair(nest, total, total.src[1]), "the only loop of the sum")


def test_a_value_is_not_kept_or_staged_along_a_loop_of_no_known_size() -> None:
    a, b = UOp.range(N, 2), UOp.range(2, 4)
    nest = nest_of_stores(store(a * 2 + b, load(X, a * 2 + b)))
    (value,) = nodes(nest, Ops.LOAD)
    refused(lambda: local_buffer(nest, value, (a,), (ROW,)), "no loop of known size")
    digits = (Digit(a, 3, NewLoop(31)), Digit(b, 2, NewLoop(32)))
    refused(lambda: stage(nest, value, digits), "no loop of known size")


@pytest.mark.parametrize("way", [TAKES_LOOPS["run_as"], TAKES_LOOPS["unroll"]])
def test_a_loop_that_is_not_in_the_nest_is_refused(way: Callable[[LoopNest, UOp], object]) -> None:
    refused(lambda: way(rows(2, 3), UOp.range(3, 77)), "not in the nest: r77")


@pytest.mark.parametrize("step", [join_sums, read_inside], ids=lambda step: step.name)
def test_a_sum_that_is_not_in_the_nest_is_refused(step: Step[[UOp]]) -> None:
    (r,) = inner_loops(3)
    masked = (r < 2).where(load(X, r, r < 2) * load(Y, r), UOp.const(dtypes.int, 0))
    refused(lambda: step(rows(2, 3), reduce(Ops.ADD, masked, r)), "not in the nest")


@pytest.mark.parametrize(("step", "masks"), [(join_sums, [0, 0, 1]), (read_inside, [0, 0, 0])],
                         ids=["join_sums", "read_inside"])  # fmt: skip
def test_what_is_kept_is_read_without_a_mask_where_its_position_is_inside(
    step: Step[[UOp]], masks: list[int]
) -> None:
    """By loops of 2, 3 and 4 iterations, of 3 elements; some positions can be brought inside."""
    found = []
    for count in (2, 3, 4):
        (a,), (r, s) = loops(2), inner_loops(count, 3)
        memory, inside = kept_memory(load(X, s) * 2, s), r < 2
        terms = inside.where(kept_value(memory, r, inside) * load(Y, r), UOp.const(dtypes.int32, 0))
        nest = nest_of_stores(store(a, reduce(Ops.ADD, terms, r)))
        (total,) = nodes(nest, Ops.REDUCE)
        found.append(len([n for n in nodes(step(nest, total), Ops.INDEX) if len(n.src) > 2]))
    assert found == masks


def test_a_product_of_loops_is_not_read_as_one_loop() -> None:
    """Neither is a sum of them where one is multiplied with what memory holds."""
    a, b = loops(2, 3)
    for index in (
        a * b,
        (a * 3 + b) * b,
        position_of(INSIDE, a * 3 + b) * b + a * 3,
        a * 3 + b // 2,
    ):
        nest = nest_of_stores(store(row_major(a, b), load(X, index)))
        refused(lambda: merge(nest, a, b), "tells the loops apart")
    once = nest_of_stores(store(row_major(a, b), load(X, position_of(INSIDE, row_major(a, b)) * 2)))
    assert len(nodes(merge(once, a, b), Ops.RANGE)) == 1


def test_only_memory_that_is_read_in_steps_is_deinterleaved() -> None:
    """Of neighbours the copy would be what is there, element by element."""

    def copied(step: int) -> object:
        (a,) = loops(3)
        nest = nest_of_stores(store(a, load(X, a * step + 4)))
        (read,) = nodes(nest, Ops.LOAD)
        return deinterleave(nest, read, a)

    for step in (-2, -1, 0, 1):
        refused(partial(copied, step), "steps of no known length")
    assert copied(2) and copied(3)


def test_only_rows_that_windows_stay_in_are_deinterleaved_for_themselves() -> None:
    """A window that reaches into the next row would find what lies behind its own."""

    def copied(row_length: int, reach: int = 0) -> object:
        (a, b) = loops(3, 2)
        nest = nest_of_stores(store(row_major(a, b), load(X, b * 7 + a * 2 + reach)))
        (read,) = nodes(nest, Ops.LOAD)
        return deinterleave(nest, read, a, row_length)

    for row_length, reach in ((0, 0), (-7, 0)):
        refused(partial(copied, row_length, reach), "rows of no elements")
    for row_length, reach in ((6, 0), (1, 0), (2, 0), (7, 3)):
        refused(partial(copied, row_length, reach), "loops that leave a row")
    assert copied(7) and copied(7, 2)


def test_only_rows_of_known_length_are_padded() -> None:
    """Rows of one element, or of none, are no rows, and no room between them is no copy."""

    def copied(length: int, padding: int) -> object:
        (a,) = loops(3)
        nest = nest_of_stores(store(a, load(X, a * length + 4)))
        (read,) = nodes(nest, Ops.LOAD)
        return pad_rows(nest, read, a, padding)

    for length in (-2, -1, 0, 1):
        refused(partial(copied, length, 1), "rows of no known length")
    for padding in (-1, 0):
        refused(partial(copied, 2, padding), "no room between rows")
    assert copied(2, 1) and copied(3, 5)


def test_what_is_kept_stays_in_its_order() -> None:
    """A law that says nothing of the order of its iterations is one of reductions, not of what is kept."""
    (a,), (r,) = loops(3), inner_loops(4)
    fresh = UOp.range(4, 21, AxisRole.REDUCE)
    summed = nest_of_stores(store(a, reduce(Ops.ADD, load(X, r), r))).graph
    assert fresh in exchanged(summed, {r: 3 - fresh}, [fresh]).toposort()
    row = nest_of_stores(store(a, kept_value(kept_memory(load(X, r), r), a))).graph
    assert fresh in exchanged(row, {r: fresh}, [fresh], in_order=True).toposort()
    refused(lambda: exchanged(row, {r: 3 - fresh}, [fresh]), "have an order")


def test_loops_of_what_is_kept_are_collapsed_in_their_order() -> None:
    (a,), (r, s) = loops(6), inner_loops(2, 3)
    nest = nest_of_stores(store(a, kept_value(kept_memory(load(X, row_major(r, s)), r, s), a)))
    assert len(nodes(collapse(nest, (r, s), ROW), Ops.RANGE)) == 2
    refused(lambda: collapse(nest, (s, r), ROW), "have an order")


def window_kept(
    nest: LoopNest, first: UOp, place: UOp, size: int, stride: int = 1, apart: tuple[UOp, ...] = ()
) -> LoopNest:
    (value,) = nodes(nest, Ops.LOAD)
    return keep_window(nest, value, first, (Axis(place, size, stride, ROW),), apart)


def test_a_window_is_kept_if_places_lie_in_it_and_positions_are_theirs() -> None:
    (a,), (r,) = loops(3), inner_loops(2)
    nest = nest_of_stores(store(a, reduce(Ops.ADD, load(X, a * 2 + r), r)))
    kept = window_kept(nest, a * 2, r, 2)
    assert len(nodes(kept, Ops.LOCAL_BUFFER)) == 1
    refused(lambda: window_kept(nest, a * 2, r, 1), "places outside")
    refused(lambda: window_kept(nest, a * 2 + 1, r - 1, 2), "places outside")
    refused(lambda: window_kept(nest, a * 2 + 1, r, 2), "another position")
    refused(lambda: window_kept(nest, a * 2, r, 2, 2), "another position")
    foreign = UOp.range(3, 77)
    refused(lambda: window_kept(nest, foreign, a * 2 + r - foreign, 9), "does not change with")
    (value,) = nodes(nest, Ops.LOAD)
    refused(lambda: keep_window(nest, value, a * 2 + r, ()), "no axes")


def test_what_is_read_under_a_mask_is_kept_in_no_window() -> None:
    (a,), (r,) = loops(3), inner_loops(2)
    nest = nest_of_stores(store(a, reduce(Ops.ADD, load(X, a + r, mask=a + r < 3), r)))
    refused(lambda: window_kept(nest, a, r, 2), "without a mask")
    (value,) = nodes(nest, Ops.LOAD)
    refused(lambda: stage_window(nest, value, (Axis(a + r, 4, 1, ROW),)), "without a mask")


def test_memory_is_copied_along_axes_if_places_lie_in_them_and_positions_are_theirs() -> None:
    (a,), (r, s) = loops(3), inner_loops(2, 2)
    nest = nest_of_stores(store(a, reduce(Ops.ADD, load(X, s * 5 + a + r), r, s)))
    (value,) = nodes(nest, Ops.LOAD)

    def staged(place: UOp, size: int, stride: int = 5, number: int = 1) -> tuple[LoopNest, ...]:
        pixel, channel = Axis(place, size, 1, NewLoop(0)), Axis(s, 2, stride, NewLoop(number))
        return stage_window(nest, value, (pixel, channel))

    copied, read = staged(a + r, 4)
    assert [len(nodes(x, Ops.LOAD)) for x in (copied, read)] == [1, 1]
    assert staged(a + r, 9)
    refused(lambda: staged(a + r, 3), "places outside")
    refused(lambda: staged(a + r, 4, 6), "another position")
    refused(lambda: staged(a + r - 1, 4), "another position")
    refused(lambda: staged(a + r, 4, number=0), "numbers of loops")
    refused(lambda: staged(a + UOp.range(2, 77), 4), "does not change with")
    refused(lambda: stage_window(nest, value, ()), "no axes")
    refused(lambda: stage_window(nest, a, (Axis(a, 3, 1, ROW),)), "no load of the nest")


def test_places_are_told_apart_by_the_iterations_of_a_few_loops_alone() -> None:
    """Lines of 3 in lines of 5: of 4 numbers from 4 * a on the last is 5 places behind the first at most."""
    (a,), (r,) = loops(3), inner_loops(4)
    number, start = a * 4 + r, a * 4
    index = number // 3 * 5 + number % 3
    nest = nest_of_stores(store(a, reduce(Ops.ADD, load(X, index), r)))
    place = r + (number // 3 - start // 3) * 2
    first = start // 3 * 5 + start % 3
    assert nodes(window_kept(nest, first, place, 6, apart=(a,)), Ops.LOCAL_BUFFER)
    refused(lambda: window_kept(nest, first, place, 5, apart=(a,)), "places outside")
    refused(lambda: window_kept(nest, first, place, 6), "places outside")
    (many,) = loops(MOST_TOLD_APART + 1)
    number, start = many * 4 + r, many * 4
    long = nest_of_stores(store(many, reduce(Ops.ADD, load(X, number // 3 * 5 + number % 3), r)))
    place = r + (number // 3 - start // 3) * 2
    first = start // 3 * 5 + start % 3
    refused(lambda: window_kept(long, first, place, 6, apart=(many,)), "places outside")


def test_a_quotient_of_a_quotient_is_one_and_a_remainder_what_it_leaves() -> None:
    """Images of 2 lines of 3: line and image of a number are quotients of it, of which one is also a quotient of the other."""
    (a,), (r,) = loops(2), inner_loops(6)
    number = a * 6 + r
    index = number // 3 % 2 * 3 + number // 6 * 6 + number % 3
    nest = nest_of_stores(store(a, reduce(Ops.ADD, load(X, index), r)))
    assert nodes(window_kept(nest, a * 6, r, 6), Ops.LOCAL_BUFFER)


# -- limits -------------------------------------------------------------------------------------------


def of_loops(count: int, size: int = 1) -> tuple[LoopNest, list[UOp]]:
    """A copy of so many loops of one size."""
    own = loops(*[size] * count)
    return nest_of_stores(store(row_major(*own), load(X, row_major(*own)))), own


def made_and_refused(
    way: Callable[[int], object], limit: int, why: str = "more .* than|so many"
) -> None:
    """At the limit a step is made, beyond it is refused."""
    way(limit)
    refused(lambda: way(limit + 1), why)


def test_no_more_loops_are_counted_at_once_than_the_law_is_proved_for() -> None:
    def collapsed(count: int) -> object:
        nest, own = of_loops(count)
        return collapse(nest, tuple(own), NewLoop(77))

    def kept(count: int) -> object:
        nest, own = of_loops(count)
        made = tuple([NewLoop(50 + k, AxisRole.REDUCE) for k in range(count)])
        return local_buffer(nest, nodes(nest, Ops.LOAD)[0], tuple(own), made)

    made_and_refused(collapsed, MOST_LOOPS)
    made_and_refused(kept, MOST_LOOPS)


def test_no_more_digits_are_laid_out_than_the_law_is_proved_for() -> None:
    def staged(count: int) -> object:
        nest, own = of_loops(count)
        digits = tuple([Digit(x, 1, NewLoop(50 + k)) for k, x in enumerate(own)])
        return stage(nest, nodes(nest, Ops.LOAD)[0], digits)

    def parts(count: int) -> object:
        nest, (loop,) = of_loops(1, 2**count)
        digits = [Digit(loop, 2, NewLoop(50 + k), 2**k) for k in reversed(range(count))]
        return stage(nest, nodes(nest, Ops.LOAD)[0], tuple(digits))

    made_and_refused(staged, MOST_DIGITS)
    made_and_refused(parts, MOST_PARTS + 1)


def test_no_more_parts_are_split_than_the_law_is_proved_for() -> None:
    def parts(count: int) -> object:
        nest, (loop,) = of_loops(1, 16)
        made = tuple([NewLoop(50 + k) for k in range(count + 1)])
        return split(nest, loop, (2,) * count, made)

    made_and_refused(parts, MOST_PARTS, "parts of no size")


def test_no_more_copies_are_written_out_than_compile_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(vars(sys.modules[unroll.function.__module__]), "MOST_COPIES", 4)
    nest, own = of_loops(2, 2)
    assert len(unroll(nest, frozenset(own)).graph.src) == 4
    made_and_refused(lambda n: unroll(of_loops(1, n)[0], frozenset(of_loops(1, n)[1])), 4)


def test_no_table_has_more_elements_than_an_index_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(sys.modules[stage.function.__module__]), "LARGEST_TABLE", 6)

    def staged(length: int) -> object:
        nest, (loop,) = of_loops(1, length)
        return stage(nest, nodes(nest, Ops.LOAD)[0], (Digit(loop, length, NewLoop(31)),))

    made_and_refused(staged, 6, "a table of more elements")


def test_what_is_kept_fits_the_memory_of_an_item() -> None:
    """By whatever step it got there, beside what is kept already."""
    room = MACHINE.scratch_bytes // 4

    def kept(length: int) -> LoopNest:
        nest, (loop,) = of_loops(1, length)
        return local_buffer(nest, nodes(nest, Ops.LOAD)[0], (loop,), (ROW,))

    made_and_refused(kept, room, "more bytes than an item has")
    (row,) = [x for x in nodes(kept(room), Ops.RANGE) if x.arg[0] == ROW.number]
    parts = (NewLoop(31, AxisRole.REDUCE), NewLoop(32, AxisRole.REDUCE))
    assert split(kept(room), row, (room // 2,), parts)
    refused(lambda: split(kept(room), row, (room - 1,), parts), "more bytes than an item has")


def test_what_is_kept_fits_beside_what_is_kept_already() -> None:
    room = MACHINE.scratch_bytes // 4
    (a,) = loops(room // 2)

    def twice(more: int) -> LoopNest:
        b = UOp.range(room // 2 + more, 4)
        nest = nest_of_stores(store(a, load(X, a)), store(b + room // 2, load(Y, b)))
        for number, loop in enumerate((a, b)):
            value = next(n for n in nodes(nest, Ops.LOAD) if loop in n.src[0].src)
            nest = local_buffer(nest, value, (loop,), (NewLoop(31 + number, AxisRole.REDUCE),))
        return nest

    made_and_refused(twice, 0, "more bytes than an item has")


# -- roles --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", [AxisRole.THREAD, AxisRole.GLOBAL])
def test_a_loop_of_a_reduction_is_not_shared_out_by_any_step(role: AxisRole) -> None:
    """Each worker would have a part of the sum."""
    nest = rows(4, 4)
    r = next(x for x in nodes(nest, Ops.RANGE) if x.arg[1] is AxisRole.REDUCE)
    shared = NewLoop(21, role)
    for way in (
        lambda: run_as(nest, {r: role}),
        lambda: split(nest, r, (2,), (shared, NewLoop(22))),
        lambda: collapse(nest, (r,), shared),
        lambda: local_buffer(nest, nodes(nest, Ops.LOAD)[0], (r,), (shared,)),
    ):
        refused(way, "a loop of a reduction")


def test_two_loops_are_not_shared_out() -> None:
    """Of two loops a worker would take its part of both: the others of their pairs nobody would store."""
    a, b = loops(4, 4)
    nest = nest_of_stores(store(row_major(a, b), load(X, row_major(a, b))))
    both = {a: AxisRole.THREAD, b: AxisRole.THREAD}
    refused(lambda: run_as(nest, both), "two loops that are shared out")
    made = (NewLoop(21, AxisRole.THREAD), NewLoop(22, AxisRole.THREAD))
    refused(lambda: split(nest, a, (2,), made), "two loops that are shared out")


def test_a_loop_that_not_every_store_has_is_not_shared_out() -> None:
    """Each worker would do the other store: a race, and a sum twice where it combines."""
    a, b = loops(4, 2)
    nest = nest_of_stores(store(a, load(X, a)), store(b + 4, load(Y, b)))
    refused(lambda: run_as(nest, {a: AxisRole.THREAD}), "which not every store has")


def test_a_step_makes_no_lanes_of_two_loops_at_once() -> None:
    a, b = loops(4, 4)
    nest = nest_of_stores(store(row_major(a, b), load(X, row_major(a, b))))
    made = (NewLoop(21, AxisRole.VECTOR), NewLoop(22, AxisRole.VECTOR))
    refused(lambda: split(nest, a, (2,), made), "lanes of two loops")


def test_a_reduction_of_what_its_loop_does_not_change_has_no_lanes_of_two_loops() -> None:
    (a,), (r,) = loops(4), inner_loops(2)
    nest = nest_of_stores(store(a, reduce(Ops.ADD, load(X, a), r)))
    both = {a: AxisRole.VECTOR, r: AxisRole.VECTOR}
    refused(lambda: run_as(nest, both), "lanes of two loops at once")


@pytest.mark.parametrize("n", [0, 1])
def test_a_loop_that_does_not_run_twice_has_no_lanes(n: int) -> None:
    nest = rows(n, 2)
    loop = next(x for x in nodes(nest, Ops.RANGE) if x.arg[1] is AxisRole.LOOP)
    refused(lambda: run_as(nest, {loop: AxisRole.VECTOR}), "does not run twice")


def test_what_is_kept_for_each_lane_would_need_memory_for_each() -> None:
    (a, b), (r,) = loops(2, 3), inner_loops(3)
    row = kept_memory(load(X, row_major(a, r)), r)
    nest = nest_of_stores(store(row_major(a, b), kept_value(row, b)))
    refused(lambda: run_as(nest, {a: AxisRole.VECTOR}), "memory of their own")
    refused(lambda: run_as(nest, {r: AxisRole.UPCAST}), "what is kept")


# -- from Kernel to Program ---------------------------------------------------------------------------


def test_registers_and_lanes_wait_for_widths_and_registers() -> None:
    nest = rows(4, 4)
    loop = next(x for x in nodes(nest, Ops.RANGE) if x.arg[1] is AxisRole.LOOP)
    refused(lambda: accumulate(nest), "without a width")
    wide = narrow(run_as(nest, {loop: AxisRole.VECTOR}), dtypes.int64)
    (vector,) = [x for x in nodes(wide, Ops.RANGE) if x.arg[1] is AxisRole.VECTOR]
    refused(lambda: lanes(wide, vector), "no register yet")
    refused(lambda: lanes(accumulate(wide), loop), "no loop of lanes")
    gone = vector.replace(arg=(77, AxisRole.VECTOR))
    refused(lambda: lanes(accumulate(wide), gone), "no loop of this nest")


# -- several nests ------------------------------------------------------------------------------------


def test_the_nests_of_a_fission_are_given_back_whole_and_in_order() -> None:
    nest = rows(2, 4)
    fill, add = sum_in_memory(nest, 2, 21)
    check_whole(nest, (fill, add))
    for some in (
        (add,),
        (fill,),
        (add, fill),
        (fill, add, add),
        (fill, fill, add),
        (nest, add),
        (),
    ):
        refused(lambda: check_whole(nest, some), "fission|too many")


def test_halves_of_two_fissions_are_no_whole() -> None:
    nest = rows(2, 4)
    one, other = sum_in_memory(nest, 2, 21), sum_in_memory(nest, 1, 21)
    refused(lambda: check_whole(nest, (one[0], other[1])), "fission")


def test_a_nest_of_another_kernel_is_none_of_this_one() -> None:
    refused(lambda: check_whole(rows(2, 4), (rows(2, 4),)), "fission")


def test_fissions_of_what_fissions_made_stand_in_their_positions() -> None:
    """The table of the second is another memory, by what both nests had when they parted."""
    nest = rows(3, 4)
    (value,) = nodes(nest, Ops.LOAD)
    a, r = nodes(nest, Ops.RANGE)
    digits = (Digit(a, 3, NewLoop(31)), Digit(r, 4, NewLoop(32)))
    fill, read = stage(nest, value, digits)
    (again,) = nodes(fill, Ops.LOAD)
    inner = tuple(
        [Digit(x, x.src[0].arg, NewLoop(41 + k)) for k, x in enumerate(nodes(fill, Ops.RANGE))]
    )
    first, second = stage(fill, again, inner)
    check_whole(nest, (first, second, read))
    refused(lambda: check_whole(nest, (first, read, second)), "fission")
    refused(lambda: check_whole(nest, (fill, second, read)), "fission|too many")
    (loaded,) = nodes(read, Ops.LOAD)
    third, last = stage(read, loaded, digits)  # what became of the other since is unknown to it
    refused(lambda: check_whole(nest, (first, second, third, last)), "two tables are one")


def test_a_table_of_one_nest_is_no_memory_that_another_has() -> None:
    """What fills the results has no other memory; what adds to them reads slot 1."""
    nest = rows(2, 4)
    fill, add = sum_in_memory(nest, 2, 9)
    (zero,) = [n for n in nodes(fill, Ops.CONST) if n.dtype is not dtypes.index]
    table, read = stage(fill, zero, ())
    check_whole(nest, (table, read, add))
    (made,) = {n.arg[0] for n in nodes(table, Ops.PARAM)}
    assert made not in {n.arg[0] for n in nodes(add, Ops.PARAM)}


def test_values_are_placed_among_some_results_only() -> None:
    """Of no results the nearest position would be one before the first."""
    for n, expected in ((2, True), (0, False)):
        (a,), (j,) = loops(n), inner_loops(1)
        hit = position_of(INSIDE, j).eq(a)
        value = hit.where(load(X, j), UOp.const(dtypes.int32, 0))
        (kernel,) = small_kernels([("placed", UOp.sink(store(a, reduce(Ops.ADD, value, j))))])
        nest = nest_of(kernel.graph, MACHINE)
        if expected:
            assert len(scatter(nest)) == 2
        else:
            refused(lambda nest=nest: scatter(nest), "no results")


def test_a_sum_that_is_written_out_starts_from_zero() -> None:
    """So it is never -0.0, as no sum is; other reductions may be."""
    (a,), (r,) = loops(2), inner_loops(1)
    for op, zero in ((Ops.ADD, "0.0"), (Ops.MAX, "-0.0")):
        value = load(X, r, dtype=dtypes.float32) * 0.0  # of a number below 0
        (kernel,) = small_kernels([("zeros", UOp.sink(store(a, reduce(op, value, r))))])
        written_out = unroll(nest_of(kernel.graph, MACHINE), frozenset([r]))
        stored = run_kernel(written_out.graph, kernel.buffers)[OUT]
        assert [str(kernel.stored[0]), *map(str, stored)] == [zero] * 3


# -- what is told -------------------------------------------------------------------------------------


def test_steps_are_told_in_the_order_in_which_they_were_taken() -> None:
    nest = rows(2, 3)
    a, r = nodes(nest, Ops.RANGE)
    done = unroll(reorder(nest, a, 21), frozenset([r]))
    assert [str(one) for one in done.taken] == ["reorder(r2, 21)", "unroll((r6))"]


def test_steps_on_a_program_of_tensors_are_told_in_the_order_in_which_they_were_taken() -> None:
    first = traced(program(reduced(tensor(0, 8), Ops.ADD, (0,))))
    second = reduce_in_parts(first, {first.graph.src[0]: Ends(0, 4)})
    ends = [n for n in second.graph.toposort() if n.op is Ops.REDUCE_AXIS]
    third = reduce_in_parts(second, {end: Blocks(0, 2, ()) for end in ends})
    told = ["reduce_in_parts(1 node)", "reduce_in_parts(2 nodes)"]
    assert [str(one) for one in third.taken] == told


@pytest.mark.parametrize("lanes", [1, 2])
def test_a_register_and_what_it_becomes_are_of_one_type(lanes: int) -> None:
    """As if lanes were added to a register of one number, or the other way round."""
    nest = accumulate(narrow(rows(2, 40), dtypes.int64))
    (update,) = nodes(nest, Ops.UPDATE)
    check_form(Form.PROGRAM, nest.graph)
    wrong = update.replace(dtype=update.dtype.vec(lanes) if lanes > 1 else dtypes.float64)
    with pytest.raises(FormError, match="a register and what it becomes are of one type"):
        check_form(Form.PROGRAM, nest.graph.substitute({update: wrong}))
