"""How many vectors and copies run side by side in kernels without a tile: of rows of any length, of loops of any size."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from test_windows import AVX512, schedules

from proofgrad import Tensor, dtypes
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import Copies, Schedule, Vectors
from proofgrad.core.compile.schedule.copies import side_by_side
from proofgrad.core.compile.schedule.vector_loops import LEAST_LANES
from proofgrad.core.tensor.data.nodes import stacked_node

AVX2 = Target("test", vector_bytes=32, vector_registers=16)
RNG = np.random.default_rng(0)


def zeros(*shape: int, dtype: object = dtypes.float32) -> Tensor:
    return Tensor.zeros(*shape, dtype=dtype).contiguous().realize()


def of_last(tensor: Tensor, target: Target = AVX512) -> tuple[Vectors, Copies]:
    """The first vectors and the copies of the last kernel."""
    *_, one = schedules(tensor, target)
    assert one.vectors and one.copies is not None
    return one.vectors[0], one.copies


def depthwise(*shape: int, window: int, padding: int) -> Tensor:
    weights = zeros(shape[1], 1, window, window)
    return zeros(*shape).conv2d(weights, groups=shape[1], padding=padding)


@pytest.mark.parametrize(("columns", "at_once"), [(311, 10), (2651, 8), (30001, 8), (97, 7)])
def test_a_row_of_results_of_any_length_takes_as_many_vectors_at_once(
    columns: int, at_once: int
) -> None:
    vectors, _ = of_last(zeros(73, columns).max(0))
    assert (vectors.lanes, vectors.at_once) == (16, at_once)


def test_vectors_side_by_side_come_before_copies_that_read_other_rows() -> None:
    """As in a softmax over rows, whose blocks would share the maxima alone; few vectors leave registers to copies."""
    x, most = zeros(20, 47, 697), zeros(697)
    vectors, copies = of_last((x - most).sum(1))
    assert vectors.at_once == 8
    assert copies.count == 1
    vectors, copies = of_last((x - most).exp().sum(1))  # of four registers each
    assert (vectors.lanes, vectors.at_once, copies.count) == (64, 1, 1)
    vectors, copies = of_last((zeros(20, 47, 30) - zeros(30)).exp().sum(1))
    assert (vectors.at_once, copies.count) == (2, 5)


@pytest.mark.parametrize("target", [AVX512, AVX2])
@pytest.mark.parametrize("height", [31, 17, 53])
def test_copies_need_not_divide_a_loop(target: Target, height: int) -> None:
    """A depthwise convolution of images of odd height took its rows one by one."""
    _, copies = of_last(depthwise(2, 35, height, 30, window=3, padding=1), target)
    assert copies.count > 1
    assert height % copies.count


def test_copies_are_of_the_loop_whose_copies_share_most() -> None:
    """Images share masks and weights, rows of one image only weights; but few images share little of the loop itself."""
    _, of_images = of_last(depthwise(16, 9, 15, 14, window=5, padding=2))
    _, of_rows = of_last(depthwise(2, 9, 32, 14, window=5, padding=2))
    assert of_images == Copies(0, 16)
    assert of_rows == Copies(2, 8)


@pytest.mark.parametrize(
    ("size", "most", "at_once"), [(1, 8, 1), (9, 10, 9), (31, 8, 8), (30, 8, 6), (7, 1, 1)]
)
def test_side_by_side_loads_the_fewest(size: int, most: int, at_once: int) -> None:
    assert side_by_side(size, most) == at_once


def test_what_is_gathered_goes_before_what_is_scattered() -> None:
    """Along the rows of the result, whatever the lanes of the other loop."""
    vectors, _ = of_last(zeros(56, 1152, dtype=dtypes.int32).T.cast(dtypes.int64).contiguous())
    assert vectors == Vectors(1, 8, 7)


@pytest.mark.parametrize(
    ("rows", "at_once"), [(1027, 4), (333, 3), (1024, 4), (90, 3), (16 * 7, 7), (16 * 11, 1)]
)
def test_vectors_that_are_gathered_go_side_by_side_and_whole_ones_stay_whole(
    rows: int, at_once: int
) -> None:
    vectors, _ = of_last(zeros(rows, 56).T.contiguous())
    assert vectors == Vectors(1, 16, at_once)


def test_a_short_row_of_elements_is_one_pass() -> None:
    for columns, at_once in ((33, 3), (64, 4), (65, 1)):
        vectors, _ = of_last(zeros(200, columns) * zeros(columns))
        assert vectors.at_once == at_once
    flat, _ = of_last(zeros(50) + 1)
    assert flat.at_once == 1


@pytest.mark.parametrize("columns", [2, 3, 5])
def test_costly_work_of_short_rows_runs_along_the_rows(columns: int) -> None:
    """Rows of 2 ran one by one, those of 5 in vectors of 8: what is cheap is taken so as it lies."""
    x, rows = zeros(4000, columns), zeros(4000, 1)
    costly, _ = of_last((x - rows).exp().sin())
    cheap, _ = of_last(x - rows)
    assert (costly.loop, costly.lanes) == (0, 16)
    assert ((cheap.loop, cheap.lanes) == (0, 16)) == (columns < LEAST_LANES)
    summed, _ = of_last(x.exp().sum(1).log())
    assert (summed.loop, summed.lanes % 16) == (0, 0)  # each log takes as long as one of 16


def test_a_sum_over_rows_that_lie_apart_runs_in_vectors_of_each() -> None:
    """Its loop counted the elements of all rows, and each was found by dividing."""
    vectors, _ = of_last(zeros(141, 796)[:117:2].reshape(-1).mean())
    assert vectors.lanes == 16


def test_a_schedule_by_hand_is_taken_where_much_is_masked() -> None:
    override = Schedule(vectors=(Vectors(0, 16, 8),))
    (one,) = schedules(zeros(40, 130).sum(0), AVX512, override)
    assert one.vectors == (Vectors(0, 16, 8),)


@pytest.mark.parametrize("height", [1, 2, 13, 17, 31])
@pytest.mark.parametrize("window", [3, 5])
def test_results_beyond_the_end_are_left_out(height: int, window: int) -> None:
    x = RNG.integers(-9, 9, (3, 2, height, 19)).astype(np.float32)
    w = RNG.integers(-9, 9, (2, 1, window, window)).astype(np.float32)
    pad = window // 2
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad))), (window, window), (2, 3)
    )
    expected = np.einsum("bchwij,cij->bchw", windows, w[:, 0])
    both = Tensor(x).conv2d(Tensor(w), groups=2, padding=pad)
    np.testing.assert_array_equal(both.numpy(), expected)
    np.testing.assert_array_equal((both + 1).relu().numpy(), np.maximum(expected + 1, 0))


def test_of_values_that_are_stacked_each_is_computed_once_in_vectors() -> None:
    """Columns are gathered: no loop was taken for vectors, and so none for copies; all values were computed for each element."""
    x = zeros(64, 16)
    vectors, copies = of_last(Tensor.stack(*[(x[:, k] * 2).exp() for k in range(16)]))
    assert (vectors, copies) == (Vectors(1, 16, 1), Copies(0, 16))


def test_of_a_gradient_of_columns_each_is_computed_once() -> None:
    """Vectors along the columns would compute all of them for each."""
    x = zeros(64, 16)
    (found,) = sum([x[:, k].sin() for k in range(16)], Tensor(0.0)).sum().gradient(x)
    assert of_last(found) == (Vectors(0, 16, 1), Copies(1, 16))


def test_few_values_that_are_padded_keep_their_vectors() -> None:
    vectors, copies = of_last(zeros(8, 62).exp().pad(((0, 0), (1, 1))))
    assert (vectors.loop, copies.count) == (1, 1)


@pytest.mark.parametrize("target", [AVX512, AVX2])
def test_what_is_costly_behind_sums_of_short_rows_is_computed_of_as_many_rows_as_a_vector_has(
    target: Target,
) -> None:
    """Along a row of 8 its logarithm would be taken of one sum at a time; a root of one takes little."""
    logarithms, _ = of_last(zeros(11067, 8).exp().sum(1).log(), target)
    assert (logarithms.loop, logarithms.lanes) == (0, target.vector_bytes // 4)
    roots, _ = of_last(zeros(11067, 8).square().sum(1).sqrt(), target)
    assert roots.loop == 1


@pytest.mark.parametrize("target", [AVX512, AVX2])
@pytest.mark.parametrize("count", [7, 11, 15])
def test_lanes_behind_the_end_of_a_row_are_not_moved(target: Target, count: int) -> None:
    """The elements of one position of pairs lie two apart, those of many pairs a row apart: as many lanes are stored one by one of each."""
    x, most = zeros(54696, count, 2), zeros(54696, 1, 2)
    vectors, _ = of_last((x - most).exp(), target)
    assert vectors.loop == 1


def stacked(x: Tensor) -> Tensor:
    """Of rows of a matrix as many others, each made in its own way of two of them."""
    count = x.shape[1]
    lines = [x[:, k : k + 1] for k in range(count)]
    rows = [lines[k] * lines[k * 5 % count] + k for k in range(count)]
    return x._with(stacked_node([row._uop for row in rows], 1))


@pytest.mark.parametrize("sizes", [(2, 8), (4, 3), (3, 2, 2), (16,)])
def test_values_of_a_stack_that_is_two_axes_are_each_computed_once(sizes: tuple[int, ...]) -> None:
    """A condition asked the first axis alone, and all values were computed for each place of the other: transforms took 8 times their operations."""
    count = prod(sizes)
    _, copies = of_last(stacked(zeros(64, count, 64)).reshape(64, *sizes, 64).contiguous())
    assert copies.count == count


def test_a_choice_between_two_axes_is_no_number() -> None:
    """Which of a triangle's sides an element is on is not the order of one number of both."""
    x = zeros(64, 8, 8, 16)
    rows, columns = Tensor.arange(8).reshape(8, 1, 1), Tensor.arange(8).reshape(8, 1)
    _, copies = of_last((columns <= rows).where(x.exp(), x.sin()).contiguous())
    assert copies.count == 1


@pytest.mark.parametrize("sizes", [(12,), (2, 6), (4, 3), (3, 2, 2), (1, 12), (3, 1, 4)])
def test_values_of_a_stack_of_several_axes(sizes: tuple[int, ...]) -> None:
    x = RNG.integers(-9, 9, (3, 12, 5)).astype(np.float32)
    wanted = np.stack([x[:, k] * x[:, k * 5 % 12] + k for k in range(12)], 1).reshape(3, *sizes, 5)
    found = stacked(Tensor(x)).reshape(3, *sizes, 5)
    np.testing.assert_array_equal(found.transpose(1, -1).numpy(), wanted.swapaxes(1, -1))
    np.testing.assert_array_equal((found + 1).numpy(), wanted + 1)


@pytest.mark.parametrize("shape", [(64, 64, 48), (64, 2, 32, 48), (64, 4, 16, 48)])
def test_a_stack_that_is_joined_with_another_axis_is_written_out(shape: tuple[int, ...]) -> None:
    """One loop of 64 was too long for it: all 8 values were computed for each element."""
    _, copies = of_last(stacked(zeros(64, 8, 8, 48)).reshape(*shape).contiguous())
    assert copies.count == 8


@pytest.mark.parametrize("shape", [(2, 24, 5), (2, 2, 12, 5), (2, 3, 8, 5), (48, 5)])
def test_values_of_a_stack_that_is_joined_with_another_axis(shape: tuple[int, ...]) -> None:
    x = RNG.integers(-9, 9, (2, 6, 4, 5)).astype(np.float32)
    wanted = np.stack([x[:, k] * x[:, k * 5 % 6] + k for k in range(6)], 1).reshape(shape)
    np.testing.assert_array_equal(stacked(Tensor(x)).reshape(*shape).numpy(), wanted)
