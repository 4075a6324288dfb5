"""Where the epilogue of a reduction ends: costly work runs in whole vectors, and nothing is computed again for it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from small_kernels import inner_loops, load, loops, reduce, store
from tactics import choose_axes
from tensors import numbers

from proofgrad import Tensor, nn
from proofgrad.core.compile.fusion import work
from proofgrad.core.compile.fusion.kernels import nodes_that_need_a_buffer
from proofgrad.core.compile.machine.machine import Core
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import AUTOMATIC
from proofgrad.core.compile.nests.loops import output_loops
from proofgrad.core.compile.schedule.choose_schedule import choose_schedule
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp

WIDE = Target("wide", vector_bytes=64, vector_registers=32)


def given(*shape: int) -> Tensor:
    return Tensor(np.zeros(shape, np.float32)).realize()


def stored(value: Tensor, target: Target = WIDE) -> list[tuple[Ops, int]]:
    """The op and the number of elements of what gets a buffer, in order of the graph."""
    root = UOp.sink(value.uop)
    found = nodes_that_need_a_buffer(root, target)
    nodes = [n for n in root.toposort() if n in found]
    return [(n.op, int(np.prod(n.shape))) for n in nodes]


def sums(value: Tensor, target: Target = WIDE) -> int:
    """How many reductions are stored by themselves."""
    return sum([op is Ops.REDUCE_AXIS for op, _ in stored(value, target)])


def convolved(width: int, images: int = 16) -> Tensor:
    return given(images, 16, width + 2, width + 2).conv2d(given(32, 16, 3, 3))


def test_a_costly_epilogue_of_short_rows_is_a_kernel_of_its_own() -> None:
    assert sums(convolved(9).gelu()) == 1
    assert sums(convolved(9).relu()) == 0  # as long as to store it, and to load it again
    assert sums(convolved(32).gelu()) == 0  # no lane is empty
    assert sums(convolved(9, images=1)[:, :, :2].gelu()) == 0  # too few to launch a kernel for


def test_what_follows_pools_of_short_rows_is_a_kernel_of_its_own() -> None:
    narrow = Target("narrow", vector_bytes=32, vector_registers=16)
    pooled = given(4, 19, 19, 11).avg_pool2d((1, 3), (1, 1))  # rows of 9 in vectors of 8
    assert sums(pooled.tanh().sigmoid(), narrow) == 1
    assert sums(pooled.relu(), narrow) == 0
    assert sums(pooled[:1, :2].tanh(), narrow) == 0  # too few to launch a kernel for
    lines = given(21, 20, 6, 37).avg_pool2d((2, 2))  # what is reduced lies between the rows
    assert sums(lines.sigmoid(), narrow) == 1
    assert sums(given(21, 20, 6, 36).avg_pool2d((1, 2)).sigmoid(), narrow) == 0  # one long row
    one = given(14, 43, 9, 24).avg_pool2d(
        (3, 3), 3, padding=1
    )  # rows of one whole vector, none beside it
    assert sums(one.tanh().relu(), narrow) == 1


def test_what_is_reduced_to_short_rows_is_computed_in_whole_vectors_where_that_is_costly() -> None:
    narrow = Target("narrow", vector_bytes=32, vector_registers=16)

    def of(value: Tensor) -> list[tuple[Ops, int]]:
        return [(op, n) for op, n in stored(value, narrow) if op is not Ops.REDUCE_AXIS]

    x = given(4, 16, 40, 10)
    assert of(x.exp().max_pool2d((2, 2))) == [(Ops.EXP, 25600)]
    assert not of((x + 1).max_pool2d((2, 2)))
    assert not of(given(4, 16, 40, 32).exp().max_pool2d((2, 2)))  # no lane is empty
    assert not of(given(20, 128, 10).exp().sum(2))  # a row is summed up, or its results are one
    assert of((given(7, 1) - given(7, 1)).square().mean()) == [(Ops.FDIV, 1)]  # of no axis
    far = given(4000, 8, 5)  # through memory, beside an exponential
    assert of(far.exp().sum(1)) == [(Ops.EXP, 160_000)]


def test_what_many_copies_share_is_computed_once_where_that_takes_fewer_cycles() -> None:
    a, b = given(1, 332), given(1, 332)
    value = a * b + (a - b) * (a + 1) - b * b
    assert stored(value.expand(626, 332).contiguous() + 1)[0][1] == 332
    copies = given(626, 332) * (a * b + (a - b) * (a + 1) - b * b + a * 3 - b)
    assert [n for _, n in stored(copies)] == [332, 626 * 332]
    few = given(2, 332) * (a * b + (a - b) * (a + 1) - b * b + a * 3 - b)
    assert [n for _, n in stored(few)] == [2 * 332]  # sooner than another kernel begins
    assert [n for _, n in stored(given(626, 332) + (a + b))] == [626 * 332]


def test_what_follows_running_sums_of_rows_is_not_computed_one_by_one() -> None:
    x = given(256, 128)
    assert sums(x.cumsum(1).gelu()) == 1
    assert sums(x.cumsum(1).relu()) == 0
    assert sums(given(8, 135, 5).cumsum(2).sqrt().relu() / 3) == 1  # more than an addition hides
    assert sums(given(8, 20).cumsum(1).gelu()) == 0  # too few to launch a kernel for
    assert sums(given(5000, 16).cumsum(1).gelu()) == 1
    columns = given(49, 4, 117).cumsum(0)
    assert sums(columns.gelu().transpose(1, 2) * 2) == 1  # lanes would lie apart
    assert sums(columns.transpose(1, 2) * 2) == 0 == sums(columns.gelu() * 2)
    (cotangent,) = (x.cumsum(1) * given(256, 128)).sum().gradient(x)  # from the end on
    assert sums(cotangent.gelu()) == 1


def test_what_follows_the_sums_of_rows_is_not_computed_one_by_one() -> None:
    x = given(4000, 100)
    assert sums(x.mean(1).gelu()) == 1
    assert sums(x.mean(0).gelu()) == 0
    assert sums(x.T.contiguous().realize().T.mean(1).gelu()) == 0  # vectors run along the results
    assert sums(x.mean(1) + 1) == 0
    assert sums(given(40, 100).mean(1).gelu()) == 0
    assert sums(x.mean(1).neg().exp()) == 1
    assert sums(x.mean(1)[1000:3000].gelu()) == 1  # nor for a slice of them


def test_what_follows_the_sums_of_short_rows_is_not_computed_one_by_one() -> None:
    """Rows of 16 are added up each; of rows of 5 and costly work lanes are gathered."""
    assert sums(given(9000, 16).max(1).gelu()) == 1 == sums(given(9000, 16).exp().sum(1).log())
    assert sums(given(9000, 5).max(1).gelu()) == 0 == sums(given(90, 16).max(1).gelu())
    assert sums(given(9000, 16).max(1) * 2) == 0


def test_a_product_whose_results_are_reduced_runs_in_tiles() -> None:
    assert len(stored((given(3, 40, 64) @ given(64, 30)).max(0))) == 2
    assert len(stored((given(3, 6, 8) @ given(8, 10)).max(0))) == 1  # as short as a launch


def test_what_needs_two_reductions_of_a_row_is_not_stored_between_them() -> None:
    assert sums(given(300, 320).logsumexp(1)) == 0


def test_without_vectors_or_with_work_items_epilogues_are_as_they_were() -> None:
    scalar = Target("scalar")
    items = Target("items", vector_bytes=64, vector_registers=32, work_items=True)
    assert sums(convolved(9).gelu(), scalar) == sums(convolved(9).gelu(), items) == 0


def test_a_costly_value_is_computed_before_it_is_padded() -> None:
    def sizes(x: Tensor) -> list[int]:
        return [size for _, size in stored(x)]

    x = given(64, 32, 8, 8)
    assert sizes(x.silu().pad((1, 1, 1, 1))) == [64 * 32 * 64, 64 * 32 * 100]
    assert sizes(x.relu().pad((1, 1, 1, 1))) == [64 * 32 * 100]
    wide = given(8, 32, 64, 62)
    assert sizes(wide.silu().pad((1, 1, 1, 1))) == [8 * 32 * 66 * 64]


def test_a_reduction_is_not_computed_for_all_that_is_padded_around_it() -> None:
    x = given(12, 1, 17, 50)
    around = ((0, 5), (0, 1), (1, 2), (2, 4))
    assert [size for _, size in stored(x.max((2, 3), keepdim=True).pad(around))] == [12, 17 * 56]
    assert [
        size for _, size in stored(x.max(3, keepdim=True).pad(around[:2] + ((1, 0), (0, 0))))
    ] == [612]
    rows = given(41, 5, 178)  # an axis of 5 that nothing is joined along is not written out
    assert [size for _, size in stored(rows.mean(0, keepdim=True).cat(rows, dim=0))][0] == 5 * 178


@pytest.mark.parametrize(
    "value, kernels",
    [
        (lambda: given(6, 194, 74).max(1).flip(1), 2),
        (lambda: given(6, 194, 74).max(1).flip(0), 1),
        (lambda: given(6, 2, 74).max(1).flip(1), 1),
        (lambda: given(3, 24, 285).mean(0).permute(1, 0), 2),
        (lambda: given(2, 8, 20).mean(0).permute(1, 0), 1),
        (lambda: given(25, 20, 44, 7).mean((0, 2)).pad((1, 2)), 2),
        (lambda: given(25, 20, 44, 7).mean((0, 2)).pad((0, 0, 1, 2)), 1),
        (lambda: given(2, 20, 7).mean(0).pad((1, 2)), 1),
    ],
)
def test_what_is_reduced_is_not_turned_or_masked_for_where_results_lie(
    value: Callable[[], Tensor], kernels: int
) -> None:
    assert len(stored(value())) == kernels


def test_a_reduction_of_one_element_each_is_no_other_of_the_same_row() -> None:
    mean = given(2600, 262).mean(1, keepdim=True)
    costly = [x.exp().log2().exp().log2() for x in (mean, mean.max(1, keepdim=True))]
    assert [len(stored(value)) for value in costly] == [2, 2]
    padded = given(450, 196).max(1, keepdim=True).pad((0, 0, 2, 1))
    assert len(stored(padded)) == 1
    assert len(stored(padded.exp().log2().exp().log2())) == 2


def test_what_is_joined_from_rows_that_were_joined_is_computed_before() -> None:
    x = given(78, 319)

    def kernels(value: Tensor) -> int:
        return len(stored(value.cat(value.silu(), dim=2)))

    joined = (x.cat(x + 1, dim=1) * 2).reshape(78, 319, 2)
    assert kernels(joined) == kernels((given(78, 638) * 2).reshape(78, 319, 2)) + 1


def test_a_counter_along_results_selects_no_term_of_a_sum() -> None:
    index, x, rows = Tensor(list(range(20))).realize(), given(20, 9), given(638, 9)
    hits = index.reshape(20, 1, 1) == Tensor.arange(638).reshape(1, 638, 1)
    scattered = hits.where(x.reshape(20, 1, 9), 0).sum(0)
    padded = scattered.reshape(638, 1, 9).pad((0, 0, 0, 1)).reshape(1276, 9)
    assert [size for _, size in stored(padded)] == [638 * 9, 1276 * 9]
    assert [size for _, size in stored(rows[index].pad((0, 0, 1, 0)))] == [21 * 9]


def test_a_costly_value_that_two_kernels_read_is_computed_once() -> None:
    def whole(x: Tensor, value: Tensor) -> int:
        found = stored((value - value.mean(0)).contiguous())
        return [size for _, size in found].count(int(np.prod(x.shape)))

    x = given(100, 400)
    assert whole(x, x.gelu()) == 2  # it, and the difference
    assert whole(x, x + 1) == 1
    large = given(3000, 4000)
    assert whole(large, large.exp()) == 1  # as long as to write it to memory, and to read it again


def test_a_long_reduction_is_neither_padded_nor_turned() -> None:
    x = given(8, 32, 28, 28)
    windows = x.avg_pool2d(3, stride=1)
    assert len(stored(windows.pad((1, 1, 1, 1)))) == 2
    assert len(stored(windows.permute(0, 2, 3, 1).relu().contiguous())) == 2
    assert len(stored(windows.permute(1, 0, 2, 3).relu().contiguous())) == 1
    few = given(1, 2, 7, 7).avg_pool2d(3, stride=1)
    assert len(stored(few.pad((1, 1, 1, 1)))) == 1


def test_cycles_are_those_of_the_table_for_what_has_no_buffer() -> None:
    x = given(8, 16)
    y = x.exp2() + 1
    total = y.uop
    assert work.cycles_of_work(total, set()) == pytest.approx(10.5)
    assert work.cycles_of_work((y * x.mean(1, keepdim=True).sqrt()).uop, {total}) < 5
    assert work.vectors_of_rows((3, 1, 17, 1), 16) == 6
    assert work.vectors_of_rows((), 16) == 1
    free = Core(launch_cycles=0)
    quick = Target("quick", vector_bytes=64, core=free)
    near, middle, far = [
        work.buffer_cycles(given(n).uop, 1, quick) / n for n in (1 << 10, 1 << 16, 1 << 22)
    ]
    assert (
        2 * near == middle < far / 5
    )  # of each element: it stays in the first cache, in the second, in none
    slow = Target("slow", vector_bytes=64, core=Core(memory_bytes_a_cycle=1.0))
    assert work.buffer_cycles(given(1 << 22).uop, 1, slow) > far * (1 << 22)
    beside = [work.buffer_cycles(given(1 << 22).uop, 1, quick, cycles) for cycles in (0, 1e3, 1e9)]
    assert beside[0] - beside[1] == pytest.approx(
        1e3
    )  # memory writes beside work on what is stored
    assert beside[2] == pytest.approx(beside[0] / 2)  # and reads it afterwards
    near_by = work.buffer_cycles(given(1 << 10).uop, 1, quick, 1e9)
    assert near_by == work.buffer_cycles(given(1 << 10).uop, 1, quick)
    started = [work.buffer_cycles(given(1).uop, 1, target) for target in (quick, WIDE)]
    assert started[1] - started[0] == work.CLEARLY * WIDE.core.launch_cycles


PROGRAMS: list[Callable[[Tensor], Tensor]] = [
    lambda y: y.gelu().mean((2, 3)).gelu(),
    lambda y: nn.GroupNorm(4, 8)(y).silu().pad((1, 2, 1, 1)),
    lambda y: nn.GroupNorm(2, 8)(y).pad((0, 1, 2, 0)).relu().max_pool2d(3, stride=2),
    lambda y: y.permute(0, 2, 3, 1).layernorm().permute(0, 3, 1, 2) - y.mean((2, 3), keepdim=True),
    lambda y: (
        (z := y.permute(0, 2, 3, 1).layernorm().permute(0, 3, 1, 2)) - z.mean((2, 3), keepdim=True)
    ),
    lambda y: y.cat(y.flip(1), dim=1).softmax(1).avg_pool2d(3, stride=1).pad((1, 1, 1, 1)),
    lambda y: y[:, :, 1:-1, 2:].silu().permute(0, 2, 3, 1),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
@pytest.mark.parametrize("width", [7, 10])
def test_values_and_gradients_are_those_of_the_graph_cut_at_the_convolution(
    program: Callable[[Tensor], Tensor], width: int
) -> None:
    a, b = numbers(3, 4, width + 2, width + 1), numbers(8, 4, 3, 3)
    found = []
    for cut in (False, True):
        x, w = Tensor(a, requires_grad=True), Tensor(b, requires_grad=True)
        y = x.conv2d(w)
        z = program(y.contiguous() if cut else y)
        found.append([z, *(z * z).sum().gradient(x, w)])
    for whole, parts in zip(*found):
        np.testing.assert_allclose(whole.numpy(), parts.numpy(), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("has_sum", [False, True])
def test_a_loop_that_a_sum_changes_with_does_not_go_inside_of_one_that_it_does_not(
    has_sum: bool,
) -> None:
    """Vectors along r1 gather from memory that lies along r0; the sum of a row would be taken for each of them."""
    (r0, r1), (r2,) = loops(24, 40), inner_loops(40)
    read = load(1, r0 + r1 * 24, dtype=dtypes.float32)
    if has_sum:
        read = read + reduce(Ops.ADD, load(1, r0 + r2 * 24, dtype=dtypes.float32), r2)
    found = choose_axes(UOp.sink(store(r1 + r0 * 40, read)), WIDE)
    order = [loop.arg[0] for loop in output_loops(found)]
    assert (order[0] == r0.arg[0]) == has_sum


def test_work_that_is_costly_fills_vectors_of_short_rows() -> None:
    """Rows of 10 that read every fifth element: one vector with a rest, or vectors along the rows where much is computed of each."""
    (r0, r1), chosen = loops(640, 10), []
    read = load(1, r1 * 5 + r0 * 50, dtype=dtypes.float32)
    costly = read
    for op in (Ops.EXP2, Ops.SIN, Ops.EXP2, Ops.SIN, Ops.EXP2):
        costly = UOp(op, dtypes.float32, (costly,))
    for value in (read + read, costly):
        kernel = UOp.sink(store(r1 + r0 * 10, value))
        chosen += choose_schedule(kernel, WIDE, AUTOMATIC).vectors or ()
    assert [v.lanes for v in chosen] == [16, 16]
    assert [v.loop for v in chosen] == [r1.arg[0], r0.arg[0]]


def test_rows_that_are_picked_are_stored_as_they_are_read() -> None:
    """What scatters them sees them turned: a row at once is picked, and goes to its place."""
    nodes, edges, features = 50, 120, 64
    numbers_of = np.random.default_rng(3)
    source, to = [Tensor(numbers_of.integers(0, nodes, edges)).realize() for _ in range(2)]
    x = given(nodes, features)
    picked = x[source]
    places = to.reshape(-1, 1).expand(edges, features)
    total = Tensor.zeros(nodes, features).scatter_reduce(0, places, picked, "sum")
    root = UOp.sink(total.uop)
    found = nodes_that_need_a_buffer(root, WIDE)
    shapes = [n.shape for n in root.toposort() if n in found and n.shape != total.shape]
    assert (edges, features) in [tuple(k for k in shape if k != 1) for shape in shapes]
