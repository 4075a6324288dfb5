"""Running reductions and order, against numpy."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from tensors import assert_close, assert_same, machine, numbers

from proofgrad import GlobalCounters, ShapeError, Tensor, Variable, dtypes
from proofgrad.core.tensor.methods.indexing import networks, sorting
from proofgrad.core.tensor.methods.made_once import BODIES

__all__ = ["machine"]


@pytest.fixture(autouse=True)
def networks_made_anew() -> None:
    """Tests change what networks are made by."""
    BODIES.clear()


SIZES = (1, 5, 32, 33, 1025)
ODD = np.array([2, np.nan, -np.inf, 0.0, -0.0, 2, np.inf, -1, np.nan, -1], np.float32)


@pytest.mark.parametrize("size", SIZES)
def test_running_sums_products_and_extremes_agree_with_numpy(size: int) -> None:
    x = numbers(2, size, low=0.9, high=1.1)
    t = Tensor(x)
    wide = x.astype(np.float64)
    assert_close(t.cumsum(1), wide.cumsum(1))
    assert_close(t.cumprod(1), wide.cumprod(1), rtol=1e-4)
    assert_same(t.cummax(1)[0], np.maximum.accumulate(x, 1))
    assert_same(t.cummin(-1)[0], np.minimum.accumulate(x, 1))
    assert_close(t.logcumsumexp(1), np.logaddexp.accumulate(wide * 1, 1))
    assert_same(Tensor(x.T).cummax(0)[0], np.maximum.accumulate(x.T, 0))


def test_running_functions_on_a_machine(machine: str) -> None:
    x = np.arange(40, dtype=np.int32).reshape(1, 40) % 7
    assert_same(Tensor(x).cumsum(1), x.cumsum(1, dtype=np.int32))
    values, positions = Tensor(x).cummax(1)
    assert positions.tolist() == [[*range(7), *[6] * 33]]
    assert values.tolist() == np.maximum.accumulate(x, 1).tolist()
    assert Tensor([-1000.0, 0.0, 1000.0, -1000.0]).logcumsumexp().tolist() == [-1000, 0, 1000, 1000]


def test_running_extremes_keep_nan_and_its_position() -> None:
    values, positions = Tensor(ODD).cummax(0)
    assert_same(values, np.maximum.accumulate(ODD))
    assert positions.tolist() == [0] + [1] * 9
    values, positions = Tensor([3, 1, 1, 2, 0]).cummin()
    assert values.tolist() == [3, 1, 1, 1, 0]
    assert positions.tolist() == [0, 1, 1, 1, 4]


def test_running_types_are_those_of_sum() -> None:
    assert Tensor([100, 100, 100], dtype="int8").cumsum().tolist() == [100, 200, 300]
    assert Tensor([True, True]).cumsum().dtype is dtypes.int32
    assert Tensor([1.0, 2.0], dtype="float16").cumsum().dtype is dtypes.float16
    assert Tensor([True, False]).cummax()[0].tolist() == [True, True]
    assert Tensor(3.0).cumsum().item() == 3.0
    assert Tensor.zeros(0, 3).cumsum(0).shape == (0, 3)


def test_running_sum_of_many_elements_takes_few_kernels_and_little_work() -> None:
    x = Tensor(np.ones(100_000, np.int32)).realize()
    GlobalCounters.reset()
    assert x.cumsum()[-1].item() == 100_000
    assert GlobalCounters.kernel_count <= 8
    assert GlobalCounters.global_ops < 100_000 * 200


@pytest.mark.parametrize(("shape", "axis"), [((400, 31), 0), ((31, 400), 1)])
@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_work_of_positions_of_running_extremes_grows_with_the_elements(
    name: str, shape: tuple[int, int], axis: int
) -> None:
    x = np.random.default_rng(0).integers(0, 99, shape).astype(np.float32)
    given = Tensor(x).realize()
    GlobalCounters.reset()
    found = getattr(given, name)(axis)[1].numpy()
    assert GlobalCounters.global_ops < 30 * x.size  # to look at all before each would take 400
    accumulated = (np.maximum if name == "cummax" else np.minimum).accumulate(x, axis)
    first = np.diff(accumulated, axis=axis, prepend=np.nan) != 0
    line = np.arange(400).reshape((-1, 1) if axis == 0 else (1, -1))
    np.testing.assert_array_equal(found, np.maximum.accumulate(np.where(first, line, 0), axis))


@pytest.mark.parametrize("zeros", [0.0, 0.02, 0.3])
@pytest.mark.parametrize(
    ("shape", "axis"), [((3, 70), 1), ((9, 4), 0), ((2, 1, 5), 1), ((0, 3), 0)]
)
def test_gradient_of_a_running_product_is_that_of_the_others(
    zeros: float, shape: tuple[int, ...], axis: int
) -> None:
    """Beside one 0 before, or two, there is none; a 0 itself gets the products of the others."""
    generator = np.random.default_rng(1)
    data = np.where(generator.random(shape) < zeros, 0, generator.uniform(-2, 2, shape))
    weights = generator.standard_normal(shape)
    x = Tensor(data, requires_grad=True)
    (x.cumprod(axis) * Tensor(weights)).sum().backward()
    expected, rows = np.zeros(shape), np.moveaxis(data, axis, -1)
    for k in range(shape[axis]):
        others = rows.copy()
        others[..., k] = 1
        parts = (others.cumprod(-1) * np.moveaxis(weights, axis, -1))[..., k:]
        np.moveaxis(expected, axis, -1)[..., k] = parts.sum(-1)
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-10, atol=1e-12)


def test_work_of_the_gradient_of_a_running_product_grows_with_the_elements() -> None:
    x = Tensor(numbers(10, 1000, low=0.9, high=1.1)).realize()
    x.requires_grad_()
    gradient = x.cumprod(1).square().sum().gradient(x)[0]
    GlobalCounters.reset()
    gradient.realize()
    assert GlobalCounters.global_ops < 90 * 10_000


def test_work_of_a_running_log_sum_exp_is_that_of_short_blocks() -> None:
    x = numbers(10, 1021)
    given = Tensor(x).realize()
    GlobalCounters.reset()
    found = given.logcumsumexp(1).realize()
    assert GlobalCounters.global_ops < 1500 * x.size  # 16 powers an element, and some for a block
    assert_close(found, np.logaddexp.accumulate(x.astype(np.float64), 1))


def test_gradient_of_a_running_sum_is_the_count_of_what_follows() -> None:
    x = Tensor(numbers(40), requires_grad=True)
    x.cumsum().sum().backward()
    assert x.grad is not None and x.grad.tolist() == list(range(40, 0, -1))


# -- order ----------------------------------------------------------------------------------------


def ordered(x: Any, descending: bool) -> Any:
    """Stable positions: NaN is the largest."""
    keys = np.where(np.isnan(x), np.inf, x).astype(np.float64)
    nan = np.isnan(x) if x.dtype.kind == "f" else np.zeros(x.shape, bool)
    return sorted(
        range(len(x)), key=lambda k: (nan[k] != descending, -keys[k] if descending else keys[k])
    )


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "int8", "uint8", "int64", "bool"]
)
def test_sort_is_stable_with_nan_last(machine: str, dtype: str, descending: bool) -> None:
    x = ODD.astype(dtype) if dtype.startswith("f") else (np.arange(20) * 7 % 5).astype(dtype)
    values, positions = Tensor(x).sort(descending=descending)
    expected = ordered(x if dtype != "bool" else x.astype(np.int8), descending)
    assert positions.tolist() == expected
    np.testing.assert_array_equal(values.numpy(), x[expected])


@pytest.mark.parametrize("shape", [(3, 70), (600,), (2, 1, 3), (1,), (2, 0)])
def test_sort_along_any_axis_agrees_with_numpy(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).integers(0, 50, shape).astype(np.int32)
    for axis in range(len(shape)):
        assert_same(Tensor(x).argsort(axis), x.argsort(axis, kind="stable").astype(np.int32))
        assert_same(Tensor(x).sort(axis)[0], np.sort(x, axis))


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [("float32", (1, 67)), ("uint8", (17, 5)), ("uint32", (2, 11)), ("int64", (2, 11))],
)
def test_network_of_comparators_sorts_as_ranks_do(
    dtype: str, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In columns, which are merged, and in lines side by side; lengths that are no power of two."""
    monkeypatch.setattr(sorting, "RANKED_COMPARISONS", 0)
    least, most = (-2.5, 2.5) if dtype == "float32" else (0, np.iinfo(dtype).max)
    x = np.random.default_rng(0).choice(np.array([least, 0, 1, most], dtype), shape)
    for descending in (False, True):
        expected = [ordered(row, descending) for row in x]
        assert Tensor(x).argsort(1, descending).tolist() == expected
    assert Tensor(x.T).argsort(0).tolist() == x.T.argsort(0, kind="stable").tolist()


@pytest.mark.parametrize(("rows", "apart"), [(1, 4), (4, 2), (5, 1), (11, 0), (17, 0)])
def test_rows_are_cut_into_columns_where_fewer_elements_are_sorted_then(
    rows: int, apart: int
) -> None:
    """Neighbours in memory are compared with those of other blocks beside them."""
    assert networks._blocks(rows, 300, 24).apart == apart
    x = np.random.default_rng(rows).standard_normal((rows, 300)).astype(np.float32)
    assert_same(Tensor(x).sort()[0], np.sort(x, 1))


def test_first_of_an_axis_of_variable_length() -> None:
    x = np.random.default_rng(0).integers(0, 9, (2, 50)).astype(np.float32)
    for size in (24, 37):
        wanted = Tensor(x)[:, : Variable("size", 24, 50).bind(size)].topk(3)[1]
        assert wanted.tolist() == [ordered(row[:size], True)[:3] for row in x]


@pytest.mark.parametrize(
    ("shape", "count"), [((3, 70), 2), ((18, 37), 5), ((1, 300), 3), ((2, 150), 60)], ids=str
)
def test_first_of_many_are_found_in_groups_and_by_halves(
    shape: tuple[int, int], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal elements keep their order, also where those of one group are looked at again."""
    for module in (sorting, networks):
        monkeypatch.setattr(module, "RANKED_COMPARISONS", 0)
    x = np.random.default_rng(0).integers(0, 9, shape).astype(np.float32)
    x[:, 1] = np.nan
    for largest in (True, False):
        expected = [ordered(row, largest)[:count] for row in x]
        values, positions = Tensor(x).topk(count, largest=largest)
        assert positions.tolist() == expected
        np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, np.array(expected), 1))


@pytest.mark.parametrize(
    ("dtype", "shape", "count", "is_ranked"),
    [("int64", (18, 333), 5, False), ("uint64", (3, 70), 1, True), ("float64", (2, 333), 4, True)],
)
def test_first_of_many_of_64_bits_are_selected(
    dtype: str, shape: tuple[int, int], count: int, is_ranked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equal elements keep their order; halves of numbers alone do not tell which comes first."""
    for module in (sorting, networks):
        monkeypatch.setattr(module, "RANKED_COMPARISONS", 1 << 17 if is_ranked else 0)
    odd = np.array([0, 1, 2, 1 << 32, 5 << 32, 1 + (1 << 32), (1 << 62) + 3]).astype(dtype)
    if dtype != "uint64":
        odd = np.concatenate([odd, -odd[1:], [np.iinfo(dtype).min if dtype == "int64" else np.nan]])
    x = np.random.default_rng(0).choice(odd.astype(dtype), shape)
    for largest in (True, False):
        expected = [ordered(row, largest)[:count] for row in x]
        values, positions = Tensor(x).topk(count, largest=largest)
        assert positions.tolist() == expected
        np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, np.array(expected), 1))


def test_work_of_the_first_of_64_bits_is_that_of_32_bits() -> None:
    x = np.random.default_rng(0).integers(0, 1 << 20, (16, 4000))
    work = []
    for dtype in (np.int32, np.int64):
        given = Tensor(x.astype(dtype)).realize()
        GlobalCounters.reset()
        given.topk(5)[1].realize()
        work.append(GlobalCounters.global_ops)
    assert (
        work[1] < 4 * work[0]
    )  # of keys and positions beside each other, which of 32 bits are one number


def test_topk_takes_the_largest_or_the_smallest(machine: str) -> None:
    x = Tensor([[3.0, 1.0, 2.0, 3.0], [0.0, 5.0, 4.0, 1.0]])
    values, positions = x.topk(2)
    assert values.tolist() == [[3, 3], [5, 4]]
    assert positions.tolist() == [[0, 3], [1, 2]]
    assert x.topk(1, dim=0, largest=False)[0].tolist() == [[0, 1, 2, 1]]
    with pytest.raises(ShapeError, match=r"topk of 5 elements along axis -1 of \(2, 4\)"):
        x.topk(5)


def kernels_of(x: Tensor) -> list[str]:
    """The texts of the kernels that compute a value."""
    return [item.source.text for item in x.schedule() if item.source is not None]


@pytest.mark.heuristics
def test_kernel_of_a_network_compares_each_pair_once_and_in_lanes() -> None:
    """63 comparators sort 16, four layers of 8 merge them, bitonic or not; what is written out asks no counter which of them an element is."""
    keys = Tensor(np.zeros((1, 16, 64), np.int32)).realize()
    exchanged, bitonic = [
        networks._compared_in_blocks(keys, 16, comparators)
        for comparators in (networks._merge_exchange(16), networks._bitonic_sorter(16))
    ]
    merged = networks._kernel(keys, 4, 1, networks._layers(4, True))
    for network, comparators in ((exchanged, 63), (bitonic, 32), (merged, 32)):
        (text,) = kernels_of(network)
        found = [len(re.findall(rf"= .*{name}", text)) for name in ("smin", "smax")]
        assert found in (
            [comparators, 0],
            [comparators, comparators],
        )  # the larger by a sum, or not
        assert "select" not in text and "load i32" not in text


@pytest.mark.parametrize("registers", [16, 32])
def test_layers_of_a_level_are_shared_by_as_few_kernels_as_can_be(registers: int) -> None:
    """The last kernel of a level is that of other levels, where more than one is needed."""
    for level in range(1, 40):
        counts = networks._layers_of_kernels(level, registers)
        assert sum(counts) == level and all([1 <= n <= networks.LAYERS for n in counts])
        assert len(counts) == -(-level // networks.LAYERS)
    assert networks._layers_of_kernels(9, registers) == ([1, 4, 4] if registers > 16 else [3, 3, 3])


@pytest.mark.parametrize("size", range(1, 12))
def test_merge_exchange_sorts_any_number_of_elements(size: int) -> None:
    """A network that sorts all sequences of 0 and 1 sorts all sequences (Knuth 5.3.4, theorem Z)."""
    x = (np.arange(1 << size) >> np.arange(size)[:, None] & 1).T.copy()
    expected = np.sort(x, 1)
    for one, other in networks._merge_exchange(size):
        pair = x[:, [one, other]]
        x[:, one], x[:, other] = pair.min(1), pair.max(1)
    np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("size", range(1, 25))
def test_bitonic_elements_are_sorted_in_any_turn_of_the_circle(size: int) -> None:
    """Of zeros and ones those are bitonic whose ones are neighbours on the circle."""
    places = np.arange(size)
    x = np.array([(places - first) % size < ones for first in places for ones in places])
    expected = np.sort(x, 1)
    for one, other in networks._bitonic_sorter(size):
        pair = x[:, [one, other]]
        x[:, one], x[:, other] = pair.min(1), pair.max(1)
    np.testing.assert_array_equal(x, expected)


def test_network_of_any_levels_sorts_zeros_and_ones() -> None:
    """Lengths of one to three levels, mirrored and turned; more ones in each row than in the one before."""
    for size in (25, 37, 50, 97, 110):
        blocks = networks._blocks(1 << 10, size, 24)
        x = (np.arange(size) >= np.arange(size + 1)[:, None]).astype(np.int32)
        shuffled = np.random.default_rng(size).permuted(x, axis=1)
        assert size <= blocks.length < size + 9 and blocks.short <= networks.SHORT
        np.testing.assert_array_equal(networks.sort_lines(Tensor(shuffled)).numpy(), x)


@pytest.mark.parametrize(
    ("dtype", "shape"),
    [("float32", (17, 40)), ("int64", (9, 33)), ("float16", (33, 7)), ("float32", (50, 19))],
)
def test_rows_that_fill_no_whole_vectors(
    dtype: str, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole vectors of rows by one network, a few others by another; short rows by one kernel."""
    monkeypatch.setattr(sorting, "RANKED_COMPARISONS", 0)
    monkeypatch.setattr(networks, "WORTH_A_NETWORK", 1)
    x = np.random.default_rng(0).integers(-30, 30, shape).astype(dtype)
    if dtype.startswith("f"):
        x[::3, ::5], x[1::4, 2::7], x[:, 3] = np.nan, -0.0, np.inf
    values, positions = Tensor(x).sort(1, descending=True)
    expected = [ordered(row, True) for row in x]
    assert positions.tolist() == expected
    np.testing.assert_array_equal(values.numpy(), np.take_along_axis(x, np.array(expected), 1))
    np.testing.assert_array_equal(Tensor(x).sort()[0].numpy(), np.sort(x, 1))


@pytest.mark.heuristics
def test_sum_of_rows_that_no_vectors_divide_takes_several_at_once() -> None:
    (text,) = kernels_of(Tensor(np.ones((40, 301), np.float32)).realize().sum(1))
    assert len(re.findall(r"load\d+ = \w+ <\d+ x float>", text)) >= 4


@pytest.mark.heuristics
def test_sum_over_rows_takes_as_many_vectors_at_once_as_divide_a_row() -> None:
    """15 vectors of any machine, which neither 8 nor 4 divide."""
    (text,) = kernels_of(Tensor(np.ones((70, 45 * 16), np.float32)).realize().sum(0))
    assert len(re.findall(r"fadd[^\n]*<\d+ x float>", text)) >= 3 and "masked" not in text


@pytest.mark.heuristics
@pytest.mark.parametrize("axis", [0, 1])
def test_running_sum_takes_one_addition_an_element(axis: int) -> None:
    """One loop over the axis with a register for each row beside, and no comparison of counters; NaN does not leak."""
    x = Tensor(np.tile(ODD[:8], (40, 8))).realize()
    (text,) = kernels_of(x.cumsum(axis))
    chosen = [line for line in text.splitlines() if "select" in line and ", ptr " not in line]
    assert "fadd" in text and not chosen and "gather" not in text
    assert_same(x.cumsum(1)[:, :2], np.cumsum(np.tile(ODD[:2], (40, 1)), 1))


@pytest.mark.heuristics
def test_running_sums_of_rows_side_by_side_run_as_lanes() -> None:
    (text,) = kernels_of(Tensor.rand(40, 64).realize().cumsum(0))
    assert " x float>" in text


@pytest.mark.heuristics
def test_gradient_of_a_running_sum_is_one_from_the_end() -> None:
    x = Tensor.rand(50, 70).realize()
    (text,) = kernels_of((x.cumsum(1) * 2.0).sum().gradient(x)[0])
    assert "select" not in text


@pytest.mark.parametrize("shape", [(1,), (2,), (17,), (1023,), (1025,), (40_009,), (3, 16_411)])
def test_running_sum_of_any_length_agrees_with_numpy(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    exact = np.cumsum(x.astype(np.float64), -1)
    reached = np.cumsum(np.abs(x).astype(np.float64), -1)
    assert (np.abs(Tensor(x).cumsum(-1).numpy() - exact) <= 2.0**-21 * reached).all()


@pytest.mark.parametrize("begin,end", [(0, 5), (5, 40), (39, 40), (3, 3)])
def test_part_of_a_running_sum_starts_from_what_is_before(begin: int, end: int) -> None:
    x = np.arange(6 * 40, dtype=np.float32).reshape(6, 40)
    whole = np.cumsum(x, 1)
    assert_same(Tensor(x).cumsum(1)[:, begin:end], whole[:, begin:end])
    assert_same(Tensor(x).cumsum(1).flip(1)[:, begin:end], whole[:, ::-1][:, begin:end])
    assert_same(Tensor(x).cumsum(1).pad((2, 3)), np.pad(whole, ((0, 0), (2, 3))))


def test_running_sum_joins_what_comes_before_and_after() -> None:
    x = np.arange(5 * 33, dtype=np.float32).reshape(5, 33)
    found = (Tensor(x) * 2.0).cumsum(1) + Tensor(x).cumsum(0) + Tensor(x).sum(1, keepdim=True)
    assert_same(found, np.cumsum(x * 2, 1) + np.cumsum(x, 0) + x.sum(1, keepdims=True))
    assert_same(Tensor(x).cumsum(1).reshape(3, 55), np.cumsum(x, 1).reshape(3, 55))
    assert_same(Tensor(x).cumsum(1).sum(1), np.cumsum(x, 1).sum(1))
    assert_same(Tensor(x).cumsum(1).cumsum(1), np.cumsum(np.cumsum(x, 1), 1))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gradients_of_running_sums_agree_with_sums_from_the_end(axis: int) -> None:
    weights = np.arange(3 * 37 * 18, dtype=np.float32).reshape(3, 37, 18) % 7
    x = Tensor(np.ones_like(weights))
    found = (x.cumsum(axis) * Tensor(weights)).sum().gradient(x)[0]
    assert_same(found, np.flip(np.cumsum(np.flip(weights, axis), axis), axis))


@pytest.mark.parametrize("name", ["float32", "float16", "int32", "uint32", "int8", "int64"])
@pytest.mark.parametrize("largest", [True, False])
def test_topk_of_many_is_the_start_of_argsort(name: str, largest: bool, machine: str) -> None:
    """Few of many are found one after the other: equal ones, extremes and NaN come as in a sort."""
    dtype, generator = np.dtype(name), np.random.default_rng(5)
    if dtype.kind == "f":
        x = generator.integers(-9, 9, (3, 40)).astype(dtype)
        x[0, :6] = [-0.0, 0.0, np.inf, -np.inf, np.nan, np.nan]
    else:
        limits = np.iinfo(dtype)
        x = generator.integers(limits.min, limits.max, (3, 40), dtype=dtype, endpoint=True)
        x[0, :3] = x[1, 7:9] = limits.min
        x[0, 5:8] = x[2, 0:3] = limits.max
    for axis, given in ((1, x), (0, x.T)):
        values, positions = Tensor(given.copy()).topk(5, axis, largest)
        order = Tensor(given.copy()).argsort(axis, descending=largest).numpy()
        expected = np.take(order, range(5), axis)
        assert (positions.numpy() == expected).all()
        np.testing.assert_array_equal(values.numpy(), np.take_along_axis(given, expected, axis))


def test_gradient_of_sort_goes_back_to_where_the_elements_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for ranked in (sorting.RANKED_COMPARISONS, 0):
        monkeypatch.setattr(sorting, "RANKED_COMPARISONS", ranked)
        for descending, expected in ((False, [100, 1, 10]), (True, [1, 100, 10])):
            x = Tensor([[3.0, 1.0, 2.0]] * 2, requires_grad=True)
            values = x.sort(descending=descending)[0]
            (values * Tensor([1.0, 10.0, 100.0])).sum().backward()
            assert x.grad is not None and x.grad.tolist() == [expected] * 2


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("float32", (40, 33)),
        ("float16", (17, 5)),
        ("float64", (1, 20)),
        ("int8", (3, 19)),
        ("uint16", (17, 9)),
    ],
)
def test_values_are_sorted_by_themselves_as_by_their_positions(
    name: str, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of floats -0.0 comes before 0.0, and NaN last."""
    monkeypatch.setattr(sorting, "RANKED_COMPARISONS", 0)
    dtype, generator = np.dtype(name), np.random.default_rng(3)
    if dtype.kind == "f":
        odd = [-0.0, 0.0, np.inf, -np.inf, np.nan, 2.5, -2.5, np.finfo(dtype).tiny]
        x = generator.choice(np.array(odd, dtype), shape)
    else:
        limits = np.iinfo(dtype)
        x = generator.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
        x[0, ::2] = limits.max
    for axis, given in ((1, x), (0, np.ascontiguousarray(x.T))):
        found = Tensor(given).sort(axis)[0].numpy()
        np.testing.assert_array_equal(found, np.sort(given, axis))
        down = Tensor(given).sort(axis, descending=True)[0].numpy()
        np.testing.assert_array_equal(down, np.flip(found, axis))
    if dtype.kind == "f":
        zeros = np.array([[0.0, -0.0, 1.0, -0.0]], dtype)
        sorted_ = Tensor(zeros).sort()[0].numpy()
        assert np.signbit(sorted_).tolist() == [[True, True, False, False]]


@pytest.mark.parametrize("name", ["cummax", "cummin"])
@pytest.mark.parametrize(("shape", "axis"), [((5, 40), 1), ((700, 3), 0), ((2, 3, 50), 1)])
def test_gradient_of_a_running_extreme_goes_to_where_it_is_found(
    name: str, shape: tuple[int, ...], axis: int
) -> None:
    generator = np.random.default_rng(0)
    data = generator.integers(-9, 9, shape).astype(np.float32)  # equal ones: the first counts
    weights = generator.integers(-9, 9, shape).astype(np.float32)
    x = Tensor(data, requires_grad=True)
    values, positions = getattr(x, name)(axis)
    (values * Tensor(weights)).sum().backward()
    expected = np.zeros(shape, np.float32)
    index = list(np.indices(shape))
    index[axis] = positions.numpy()
    np.add.at(expected, tuple(index), weights)
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), expected)


@pytest.mark.heuristics
def test_running_extreme_of_floats_is_one_kernel() -> None:
    (_,) = kernels_of(Tensor.rand(20, 1000).realize().cummax(1)[0])


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"])
def test_axis_of_a_number_is_the_one_of_a_line(name: str) -> None:
    scan = getattr(Tensor(2.0), name)
    for axis in (0, -1):
        found = scan(axis)
        assert (found[0] if isinstance(found, tuple) else found).item() == 2.0
    for axis in (1, -2, 5):
        with pytest.raises(ShapeError, match=f"no axis {axis}"):
            scan(axis)
