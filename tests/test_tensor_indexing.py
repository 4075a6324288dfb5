"""Reading by integers and masks, scattering and selecting, against numpy and torch."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensors import assert_close, assert_same, machine, numbers
from ways_of_positions import set_way

from proofgrad import Context, DtypeError, GlobalCounters, ShapeError, Tensor, TinyJit, dtypes, nn
from proofgrad.core.ir.ops import Ops

__all__ = ["machine"]

X = np.arange(120, dtype=np.int32).reshape(2, 3, 4, 5)
I, J = np.array([[0, 2], [1, -1]]), np.array([3, -2])


@pytest.mark.parametrize(
    "index",
    [
        (slice(None), I, J),
        (I % 2, J % 3),
        (0, I, J),
        (slice(None), I, slice(None), [4, 0]),
        (I % 2, None, J % 3),
        (Ellipsis, J),
        (slice(None, None, -1), [2, 0], 1),
        (I % 2, I % 3, I, I),
        ([True, False], slice(1)),
        (slice(None), np.arange(12).reshape(3, 4) % 5 == 1),
        (X[..., 0] % 3 == 0, slice(1, 3)),
        (X > 100,),
        (Ellipsis, X[0, 0] % 3 == 1),
        (Ellipsis, None, X[0, 0, 0] > 2),
        (slice(1), Ellipsis, X[0, 0, :, 0] % 2 == 1, 1),
        (np.zeros((0,), np.int64),),
        (slice(None), np.zeros((3,), bool)),
    ],
    ids=lambda index: str(len(index)),
)
def test_index_of_tensors_lists_and_masks_reads_what_numpy_reads(machine: str, index: Any) -> None:
    assert_same(Tensor(X)[index if len(index) > 1 else index[0]], np.asarray(X[index]))
    ours = tuple(Tensor(part) if isinstance(part, np.ndarray) else part for part in index)
    assert_same(Tensor(X)[ours], np.asarray(X[index]))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.data())
def test_any_mix_of_slices_and_two_integer_arrays_reads_what_numpy_reads(
    data: st.DataObject,
) -> None:
    first, second = sorted(data.draw(st.sets(st.integers(0, 3), min_size=2, max_size=2)))
    index: list[Any] = [slice(None, None, data.draw(st.sampled_from([1, 2, -1])))] * 4
    for axis in (first, second):
        size = X.shape[axis]
        values = data.draw(st.lists(st.integers(-size, size - 1), min_size=3, max_size=3))
        index[axis] = np.array(values)
    assert_same(Tensor(X)[tuple(index)], X[tuple(index)])


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As users run: CHECK=1, which these tests set, computes indices to look at them."""
    monkeypatch.setenv("CHECK", "0")


@pytest.mark.usefixtures("unchecked")
def test_position_out_of_range_that_is_still_to_be_computed_gives_zero(machine: str) -> None:
    assert Tensor([1, 2, 3])[Tensor([5, -4, 1]) + 0].tolist() == [0, 0, 2]
    assert Tensor([[1, 2], [3, 4]])[Tensor([0, 1]), Tensor([2, 1]) + 0].tolist() == [0, 4]


TABLE = nn.Embedding(3, 2)
OUTSIDE: dict[str, Callable[[Tensor], Any]] = {
    "read": lambda positions: Tensor([1, 2, 3])[positions],
    "read beside a slice": lambda positions: Tensor.ones(2, 3)[:, positions],
    "read by two": lambda positions: Tensor.ones(3, 3)[Tensor([0]), positions],
    "write": lambda positions: Tensor([1, 2, 3]).__setitem__(positions, 7),
    "gather": lambda positions: Tensor([1, 2, 3]).gather(0, positions),
    "scatter": lambda positions: Tensor([1, 2, 3]).scatter(0, positions, 7),
    "scatter_reduce": lambda positions: Tensor([1, 2]).scatter_reduce(
        0, positions, Tensor([1]), "sum"
    ),
    "a row of a table": lambda positions: TABLE(positions),
}


@pytest.mark.parametrize("dtype", ["int32", "int8", "uint64"])
@pytest.mark.parametrize("name", OUTSIDE)
def test_position_out_of_range_in_a_tensor_that_is_there_is_an_error(name: str, dtype: str) -> None:
    for positions in (Tensor([5], dtype=dtype), (Tensor([4], dtype=dtype) + 1).realize()):
        with pytest.raises(
            IndexError, match=r"index 5 is out of range for axis \d of .* in a Tensor"
        ):
            OUTSIDE[name](positions)


@pytest.mark.parametrize("name", OUTSIDE)
def test_check_finds_a_position_out_of_range_that_is_still_to_be_computed(name: str) -> None:
    with Context(CHECK=0):
        OUTSIDE[name](Tensor([4]) + 1)
    with Context(CHECK=1), pytest.raises(IndexError, match="index 5 is out of range"):
        OUTSIDE[name](Tensor([4]) + 1)


def test_negative_positions_in_a_tensor_count_from_the_end_of_an_index_alone() -> None:
    x = Tensor([1, 2, 3])
    assert x[Tensor([-1, -3])].tolist() == [3, 1]
    for wrong in (lambda: x[Tensor([-4])], lambda: x.gather(0, Tensor([-1]))):
        with pytest.raises(IndexError, match="index -. is out of range"):
            wrong()


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "bfloat16", "float64"])
def test_any_type_is_read_by_any_integer_type(dtype: str) -> None:
    source = Tensor([0, 1, 5, 0], dtype=dtype)
    for kind in ("uint8", "int16", "uint32", "uint64"):
        found = source[Tensor([1, 2, 0], dtype=kind)]
        assert found.dtype is source.dtype
        assert found.tolist() == [source.tolist()[k] for k in (1, 2, 0)]


def test_gradient_of_a_repeated_index_adds_up() -> None:
    x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    (x[[0, 2, 2]] * Tensor([1.0, 10.0, 100.0])).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [1, 0, 110]
    y = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    y[y > 1.5].square().sum().backward()
    assert y.grad is not None and y.grad.tolist() == [0, 4, 6]


def test_reading_by_integers_does_not_look_at_the_whole_axis() -> None:
    x, positions = Tensor(np.arange(100_000)).realize(), Tensor(np.arange(100) * 7).realize()
    GlobalCounters.reset()
    assert x[positions].tolist() == [7 * k for k in range(100)]
    assert x.gather(0, positions).tolist() == [7 * k for k in range(100)]
    assert GlobalCounters.global_ops < 10_000


# -- scatter --------------------------------------------------------------------------------------

POSITIONS = np.array([[0, 2, 1, 1], [1, 1, 0, 2], [3, 3, 3, 0]])
SOURCE, TARGET = numbers(3, 4), numbers(4, 5, seed=1)


@pytest.fixture(params=["looking", "going"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each position looks at all sources, or each source goes to its position: only sizes choose."""
    set_way(monkeypatch, goes=request.param == "going")
    return str(request.param)


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
def test_scatter_reduce_agrees_with_torch(reduce: str, include_self: bool, way: str) -> None:
    torch = pytest.importorskip("torch")
    expected = torch.tensor(TARGET).scatter_reduce(
        0, torch.tensor(POSITIONS), torch.tensor(SOURCE), reduce, include_self=include_self
    )
    found = Tensor(TARGET).scatter_reduce(
        0, Tensor(POSITIONS), Tensor(SOURCE), reduce, include_self=include_self
    )
    assert_close(found, expected.numpy())


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", None])
def test_gradients_of_scatter_are_those_of_torch(reduce: str | None, way: str) -> None:
    torch = pytest.importorskip("torch")
    own, src = Tensor(TARGET), Tensor(SOURCE)
    theirs = [torch.tensor(a, requires_grad=True) for a in (TARGET, SOURCE)]
    positions = np.array(
        [[0, 2, 1, 1], [1, 1, 0, 2], [3, 3, 3, 0]]
    )  # no position of a column twice
    weights = numbers(4, 5, seed=2)
    if reduce is None:
        mine = own.scatter(0, Tensor(positions), src)
        other = theirs[0].scatter(0, torch.tensor(positions), theirs[1])
    else:
        mine = own.scatter_reduce(0, Tensor(positions), src, reduce)
        other = theirs[0].scatter_reduce(0, torch.tensor(positions), theirs[1], reduce)
    (other * torch.tensor(weights)).sum().backward()
    for found, expected in zip((mine * Tensor(weights)).sum().gradient(own, src), theirs):
        assert_close(found, expected.grad.numpy())


@pytest.mark.usefixtures("unchecked")
def test_computed_positions_beyond_int64_are_no_positions() -> None:
    positions = Tensor([1, 2**64 - 1, 2**63, 2**32 + 1, 0], dtype="uint64") + 0
    assert Tensor([5, 6, 7]).gather(0, positions).tolist() == [6, 0, 0, 0, 5]
    found = Tensor.zeros(3, dtype="int32").scatter_reduce(
        0, positions, Tensor([1, 2, 4, 8, 16]), "sum"
    )
    assert found.tolist() == [16, 1, 0]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("dtype", ["int32", "uint8", "uint32", "int64", "uint64"])
def test_scatter_ignores_computed_positions_that_are_not_there(dtype: str, way: str) -> None:
    positions = Tensor([[1, 200, 0, 1]], dtype=dtype) + 0
    ones = Tensor([[1, 1, 1, 1]])
    assert Tensor.zeros(2, 3, dtype="int32").scatter_reduce(1, positions, ones, "sum").tolist() == [
        [1, 2, 0],
        [0, 0, 0],
    ]
    assert Tensor([[5, 6, 7]]).scatter(1, positions, Tensor([[1, 2, 3, 4]])).tolist() == [[3, 4, 7]]
    none = Tensor.zeros(1, 0, dtype=dtype)
    assert Tensor([[5, 6]]).scatter(1, none, Tensor.zeros(1, 0, dtype="int32")).tolist() == [[5, 6]]


@pytest.mark.heuristics
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin", None])
def test_scatter_does_not_let_all_positions_look_at_all_sources(reduce: str | None) -> None:
    positions = Tensor(np.arange(16_384, dtype=np.int32) * 7 % 20_000)
    own, values = Tensor.zeros(20_000).contiguous(), Tensor(numbers(16_384))
    Tensor.realize(positions, own, values)
    GlobalCounters.reset()
    if reduce is None:
        own.scatter(0, positions, values).realize()
    else:
        own.scatter_reduce(0, positions, values, reduce).realize()
    assert GlobalCounters.global_ops < 1_000_000


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_positions_of_a_type_that_cannot_count_the_axis_name_one_element(dtype: str) -> None:
    positions, line = Tensor([1, 2], dtype=dtype), Tensor(np.arange(300))
    assert line.gather(0, positions).tolist() == [1, 2]
    hit = Tensor.zeros(300, dtype="int32").scatter_reduce(0, positions, Tensor([5, 6]), "sum")
    assert [k for k, value in enumerate(hit.tolist()) if value] == [1, 2]
    assert positions.one_hot(300).sum().item() == 2
    assert Tensor.zeros(2, 300).sparse_categorical_crossentropy(positions).item() == pytest.approx(
        np.log(300)
    )


@pytest.mark.usefixtures("unchecked")
def test_scatter_writes_the_last_source_and_leaves_the_rest(machine: str, way: str) -> None:
    expected = TARGET.copy()
    for row, column in np.ndindex(POSITIONS.shape):
        expected[POSITIONS[row, column], column] = SOURCE[row, column]
    assert_same(Tensor(TARGET).scatter(0, Tensor(POSITIONS), Tensor(SOURCE)), expected)
    rows = np.zeros((2, 4), np.int32)
    found = Tensor(rows).scatter(1, Tensor([[1, 1], [9, 0]]) + 0, 1, reduce="add")
    assert found.tolist() == [[0, 2, 0, 0], [1, 0, 0, 0]]
    found = (found + 1).scatter(1, Tensor([[1, 1], [9, 0]]) + 0, 3, reduce="multiply")
    assert found.tolist() == [[1, 27, 1, 1], [6, 1, 1, 1]]
    assert Tensor([1, 2]).scatter(0, Tensor([1]), 7).tolist() == [1, 7]


def test_wrong_scatters_are_refused() -> None:
    x, one = Tensor.zeros(3, 4), Tensor([[0]])
    with pytest.raises(ValueError, match="reduce is None, 'add' or 'multiply', not 'sum'"):
        x.scatter(0, one, 1.0, reduce="sum")
    with pytest.raises(ValueError, match="reduce is one of"):
        x.scatter_reduce(0, one, Tensor([[1.0]]), "max")
    with pytest.raises(DtypeError, match=r"cannot scatter dtypes.int into dtypes.float; cast"):
        x.scatter(0, one, Tensor([[1]]))
    with pytest.raises(DtypeError, match="integer indices"):
        x.scatter(0, Tensor([[0.0]]), 1.0)
    with pytest.raises(ShapeError, match=r"a source for each index"):
        x.scatter(0, Tensor([[0], [1]]), Tensor([[1.0]]))
    with pytest.raises(ShapeError, match="not larger on the other ones"):
        x.gather(0, Tensor.zeros(1, 9, dtype="int32"))


# -- selection ------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3, 7, 40])
@pytest.mark.parametrize("more", [0, 1, 5])
def test_nonzero_of_what_reads_no_memory_has_any_size(count: int, more: int) -> None:
    """How many there are is computed in the kernel, and is no border that is known when its loops are made."""
    x = Tensor.linspace(-1, 3, count).trunc()
    wanted = np.argwhere(x.numpy())
    found = x.nonzero(size=len(wanted) + more, fill_value=-1)
    assert found.tolist() == wanted.tolist() + [[-1]] * more


def test_masked_select_and_nonzero_at_once_and_lazily(machine: str) -> None:
    x = np.array([[3, 0, 5], [0, 0, 7]], np.int32)
    assert_same(Tensor(x).masked_select(Tensor(x) > 3), np.array([5, 7], np.int32))
    assert_same(Tensor(x).nonzero(), np.argwhere(x).astype(np.int32))
    assert Tensor(x).masked_select(Tensor(x) > 0, size=2).tolist() == [3, 5]
    assert Tensor(x).masked_select(Tensor(x) > 0, size=5, fill_value=-1).tolist() == [
        3,
        5,
        7,
        -1,
        -1,
    ]
    assert Tensor(x).nonzero(size=4, fill_value=-1).tolist() == [[0, 0], [0, 2], [1, 2], [-1, -1]]
    assert Tensor(x).masked_select(Tensor([False, True, False])).tolist() == [0, 0]


@pytest.mark.heuristics
@pytest.mark.parametrize("shape", [(70, 61), (5000,), (3, 5, 331), (1, 4500)])
def test_true_elements_of_many_are_found_by_kernels_that_look_at_each_once(
    shape: tuple[int, ...],
) -> None:
    generator, work = np.random.default_rng(0), set()
    for chance in (0, 0.01, 0.5, 1):
        x = np.where(generator.random(shape) < chance, generator.choice([1, np.nan], shape), 0)
        given = Tensor(x.astype(np.float32)).realize()
        GlobalCounters.reset()
        found = given.nonzero().realize()
        work.add(GlobalCounters.global_ops)
        assert_same(found, np.argwhere(x).astype(np.int32))
        assert_same(given[given.ne(0)], x[x != 0].astype(np.float32))
    assert max(work) < 120 * x.size


def test_true_elements_of_many_are_not_looked_for_in_a_recorded_function() -> None:
    run = TinyJit(lambda x: x.nonzero().realize())
    x = Tensor.ones(5000).contiguous().realize()
    with pytest.raises(RuntimeError, match="."):
        for _ in range(3):
            run(x)


def test_nonzero_of_nothing_and_of_a_number() -> None:
    assert Tensor([0, 0]).nonzero().shape == (0, 1)
    assert Tensor(5).nonzero().shape == (1, 0)
    assert Tensor(0).nonzero().shape == (0, 0)
    assert Tensor(5).nonzero(size=2).shape == (2, 0)
    assert Tensor([0, 0]).masked_select(Tensor([False, False])).shape == (0,)


def test_selection_by_what_is_no_mask_is_refused() -> None:
    with pytest.raises(DtypeError, match=f"a mask of bools, not {dtypes.int32}"):
        Tensor([1, 2]).masked_select(Tensor([1, 0]))


def test_missing_positions_and_elements_keep_the_type_and_its_digits() -> None:
    found = Tensor([1, 0]).nonzero(size=3, fill_value=-1.5)
    assert found.dtype is dtypes.int32 and found.tolist() == [[0], [-1], [-1]]
    large = Tensor([16777217, 3]).masked_select(Tensor([True, False]), size=2, fill_value=1.5)
    assert large.dtype is dtypes.int32 and large.tolist() == [16777217, 1]


@pytest.mark.parametrize(
    "numbers", [[5], [0, -4], np.array([[0, 1], [3, 0]]), np.array([1, 3]), (5,)]
)
def test_numbers_that_are_no_positions_are_refused(numbers: Any) -> None:
    t = Tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    with pytest.raises(IndexError, match="out of range for axis 0"):
        t[numbers if not isinstance(numbers, tuple) else [*numbers]]
    with pytest.raises(IndexError, match="out of range for axis 0"):
        t[numbers if not isinstance(numbers, tuple) else [*numbers]] = 1


@pytest.mark.parametrize(
    "dtype",
    [
        "fp8e4m3",
        "fp8e5m2",
        "fp8e4m3fnuz",
        "fp8e5m2fnuz",
        "float16",
        "bfloat16",
        "float32",
        "float64",
    ],
)
def test_elements_keep_every_bit(dtype: str) -> None:
    """A choice is a sum over zeros, and 0.0 + -0.0 is 0.0."""
    values = Tensor([1.0, -0.0, float("nan"), -float("inf"), 5e-8, 0.0]).cast(dtype).realize()
    order = [1, 5, 3, 2, 0, 4, 1]
    bits = f"uint{8 * values.dtype.itemsize}"
    expected = [values.bitcast(bits).tolist()[k] for k in order]
    positions = Tensor(order)
    for x in (
        values,
        values.reshape(6, 1).expand(6, 2)[:, 0],
        values.reshape(2, 3).contiguous().flatten(),
    ):
        for chosen in (
            x[order],
            x[positions],
            x.gather(0, positions),
            x[positions.reshape(7, 1)].flatten(),
        ):
            assert chosen.bitcast(bits).tolist() == expected


def test_gradients_of_chosen_elements_and_their_gradients() -> None:
    x = Tensor([1.0, -0.0, 3.0, 4.0], requires_grad=True)
    y = x[[1, 3, 3, 0]]
    (first,) = (y**3).sum().gradient(x)
    assert first.tolist() == [3.0, 0.0, 0.0, 96.0]
    (second,) = first.sum().gradient(x)
    assert second.tolist() == [6.0, 0.0, 0.0, 48.0]


ROWS = np.arange(12, dtype=np.int32).reshape(3, 4)


@pytest.mark.parametrize(
    ("index", "expected"),
    (
        ([0, 2], ROWS[[0, 2]]),
        ([[0, 2]], ROWS[[0, 2]]),
        ([[0, 1], [1, 2]], ROWS[[0, 1], [1, 2]]),
        ([[[0, 1], [1, 2]], [[0, 1], [1, 2]]], ROWS[[[0, 1], [1, 2]], [[0, 1], [1, 2]]]),
        ([slice(0, 2)], ROWS[0:2]),
        ([[0, 1], slice(None)], ROWS[[0, 1]]),
        ([Ellipsis, 1], ROWS[..., 1]),
        ([None, 0], ROWS[None, 0]),
        ([[True, False, True]], ROWS[[0, 2]]),
        ([Tensor([0, 2]), Tensor([1, 3])], ROWS[[0, 2], [1, 3]]),
        (range(1, 3), ROWS[1:3]),
        ((slice(None), range(0, 4, 3)), ROWS[:, [0, 3]]),
    ),
)
def test_a_list_of_lists_or_slices_is_a_tuple_as_in_torch(index: object, expected: object) -> None:
    np.testing.assert_array_equal(Tensor(ROWS)[index].numpy(), expected)


@pytest.mark.parametrize("what", ["x.nonzero()", "x[mask]", "x[mask] = y"])
def test_positions_of_a_mask_are_no_python_numbers(what: str) -> None:
    side = 256
    values = np.random.default_rng(3).normal(size=(side, side)).astype(np.float32)
    x, rows, mask = Tensor(values).realize(), values[values > 0], (Tensor(values) > 0).realize()
    new = Tensor(rows).realize()

    def run() -> Any:
        if what == "x.nonzero()":
            return mask.nonzero().numpy()
        if what == "x[mask]":
            return x[mask].numpy()
        written = x.clone()
        written[mask] = new + 1
        return written.numpy()

    run()  # compiles
    tracemalloc.start()
    found = run()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    changed = values.copy()
    changed[values > 0] += 1
    want = {"x.nonzero()": np.argwhere(values > 0), "x[mask]": rows, "x[mask] = y": changed}
    assert np.array_equal(found, want[what])
    assert most < 16 * side * side  # a list of int takes 40 bytes each


@pytest.mark.parametrize("reduce", ["prod", "amax", "amin"])
def test_work_of_a_gradient_of_scatter_reduce_is_linear(reduce: str) -> None:
    n = 3001
    rng = np.random.default_rng(5)
    index, values = rng.integers(0, n, n), rng.integers(-3, 4, n).astype(np.float32)
    source = Tensor(values, requires_grad=True)
    GlobalCounters.reset()
    Tensor.ones(n).scatter_reduce(0, Tensor(index), source, reduce).sum().backward()
    assert source.grad is not None
    source.grad.realize()
    assert GlobalCounters.global_ops < 1000 * n


def test_ints_and_slices_are_one_cut_and_one_reshape() -> None:
    x = Tensor(np.arange(120, dtype=np.float32).reshape(4, 5, 6)).realize()
    for index in ((1, slice(2, 4)), (1, 2, 3), (None, 1, slice(None), 2), (slice(1, 3), -1, None)):
        view = x[index]
        ops = [node.op for node in view._uop.toposort() if node not in x._uop.toposort()]
        assert ops in ([Ops.SHRINK, Ops.RESHAPE], [Ops.SHRINK])  # where it has the shape already
        np.testing.assert_array_equal(view.numpy(), x.numpy()[index])
        changed = x.numpy()
        changed[index] = 7
        y = x.clone().realize()
        y[index] = 7
        np.testing.assert_array_equal(y.numpy(), changed)


def test_steps_and_ints_of_one_index_are_those_of_numpy() -> None:
    data = np.arange(120, dtype=np.int32).reshape(4, 5, 6)
    x = Tensor(data).realize()
    for index in (
        (1, slice(None, None, -2)),
        (slice(None, None, 3), 2, slice(5, 0, -1)),
        (slice(3, 0, -1), None, -1, slice(1, None, 2)),
        (slice(2, 2), 0),
        (0, slice(9, 2), ..., None),
    ):
        np.testing.assert_array_equal(x[index].numpy(), data[index])
    with pytest.raises(IndexError, match=r"index 5 is out of range for axis 1 of \(4, 5, 6\)"):
        x[0, 5]


def test_an_index_is_looked_at_for_each_shape_and_each_kind_of_number() -> None:
    indices: list[Any] = [
        1,
        -1,
        (1, 1),
        (slice(1, 3), None, 0),
        (slice(None), 1),
        slice(None, None, -1),
    ]
    indices += [
        (..., 1),
        (None, slice(-2, None)),
        slice(1, 9, 2),
        slice(3, 1),
        np.int64(1),
        (),
        [1],
    ]
    for _ in range(2):
        for shape in ((4, 3), (2, 5), (3, 2, 2), (4, 3)):
            array = np.arange(np.prod(shape)).reshape(shape)
            for index in indices:
                found, expected = Tensor(array)[index], array[index]
                assert found.shape == expected.shape and found.tolist() == expected.tolist()
        for wrong in (4, -5, (0, 3), (0, 0, 0), (..., ...), True, 1.0, (0, slice(None, None, 0))):
            with pytest.raises((IndexError, TypeError)):
                Tensor.zeros(4, 3)[wrong]


@pytest.mark.parametrize("number", [np.int64, np.int32, np.uint8, int])
def test_number_of_numpy_is_an_int_among_indices(number: Callable[[int], Any]) -> None:
    x = Tensor(X).contiguous().realize()
    assert x[number(1), :, [0, 1]].tolist() == X[1][:, [0, 1]].tolist()
    row = x[number(1), ..., number(2)]
    row.assign(row * 0 - 1)
    want = X.copy()
    want[1, ..., 2] = -1
    assert x.tolist() == want.tolist()
    values = np.arange(30, dtype=np.int32).reshape(3, 2, 5)
    x[number(0), :, [0, 2]] = Tensor(values)
    want[0, :, [0, 2]] = values.swapaxes(0, 1)
    assert x.tolist() == want.tolist()
