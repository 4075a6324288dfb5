"""Elements chosen by integers in memory: loads at their positions, and no loop over the axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from proofgrad import Tensor, nn
from proofgrad.core.ir.ops import Ops
from proofgrad.core.tensor.methods.indexing import bounds
from proofgrad.core.tensor.runtime.realize import compiler, graph_to_run

TABLE = np.random.default_rng(0).normal(size=(50, 7)).astype(np.float32)
POSITIONS = np.array([[3, -50, 49], [0, 0, -1]], np.int32)
SEVEN = np.random.default_rng(1).integers(0, 50, (4, 7)).astype(np.int32)
ROWS = np.array([3, 49, 0, 21], np.int32)
COLUMNS = np.array([6, 0, -7, 2], np.int32)


def table() -> Tensor:
    return Tensor(TABLE).realize()


def held(values: np.ndarray) -> Tensor:
    return Tensor(values).realize()


def embedded() -> Tensor:
    layer = nn.Embedding(50, 7)
    layer.weight = table()
    return layer(held(POSITIONS % 50))


def hits(rows: np.ndarray) -> Tensor:
    return Tensor.arange(50) == held(rows).reshape(4, 1)


CHOSEN: dict[str, tuple[Callable[[], Tensor], np.ndarray, int, int]] = {
    # what, the values, loops, loads for each store
    "rows": (lambda: table()[held(POSITIONS)], TABLE[POSITIONS], 3, 2),
    "columns": (lambda: table()[:, held(COLUMNS)], TABLE[:, COLUMNS], 2, 2),
    "single elements": (lambda: table()[held(ROWS), held(COLUMNS)], TABLE[ROWS, COLUMNS], 1, 3),
    "small integers": (lambda: table()[held(ROWS.astype(np.int8))], TABLE[ROWS], 2, 2),
    "long integers": (lambda: table()[held(ROWS.astype(np.int64))], TABLE[ROWS], 2, 2),
    "bools": (lambda: (held(TABLE > 0))[held(ROWS)], (TABLE > 0)[ROWS], 2, 2),
    "gather": (lambda: table().gather(0, held(SEVEN)), np.take_along_axis(TABLE, SEVEN, 0), 2, 2),
    "embedding": (embedded, TABLE[POSITIONS % 50], 3, 2),
    "with an epilogue": (lambda: table()[held(ROWS)] * 2 + 1, TABLE[ROWS] * 2 + 1, 2, 2),
    "count of hits": (lambda: hits(ROWS).cast("int32").sum(1), np.ones(4, np.int32), 1, 1),
    "one-hot times a table of ints": (
        lambda: hits(ROWS).cast("int32") @ held(np.arange(150).reshape(50, 3).astype(np.int32)),
        np.arange(150).reshape(50, 3)[ROWS],
        2,
        2,
    ),
}  # fmt: skip


def linears_of(tensor: Tensor) -> list[list[Ops]]:
    graph = compiler().kernel_graph(graph_to_run([tensor.uop], "CPU"))
    return [
        [node.op for node in linear.src]
        for call in graph.src
        if call.src[0].src[0].op is not Ops.COPY
        for linear in compiler().linears(call.src[0], "CPU")
    ]


@pytest.mark.parametrize("name", CHOSEN)
def test_one_kernel_reads_what_it_needs_and_no_more(name: str) -> None:
    make, values, loops, loads = CHOSEN[name]
    tensor = make()
    (ops,) = linears_of(tensor)
    assert Ops.ACCUMULATOR not in ops
    assert ops.count(Ops.RANGE) <= loops
    assert ops.count(Ops.LOAD) <= loads * ops.count(Ops.STORE)  # those written out may share some
    np.testing.assert_array_equal(tensor.numpy(), values)


def test_positions_outside_of_the_axis_give_zero_and_read_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "MOST", 0)  # as where they are still to be computed
    found = table()[held(np.array([50, -51, 2**31 - 1, -(2**31), 7], np.int32))].numpy()
    assert not found[:4].any()
    np.testing.assert_array_equal(found[4], TABLE[7])


def test_minus_zero_keeps_its_sign() -> None:
    found = held(np.array([-0.0, 1.0], np.float32))[held(np.array([0, 1], np.int32))].numpy()
    assert np.signbit(found).tolist() == [True, False]


def test_gradients_of_chosen_elements_add_up() -> None:
    x = Tensor(TABLE, requires_grad=True)
    (x[held(POSITIONS)] * 3).sum().backward()
    expected = np.zeros_like(TABLE)
    np.add.at(expected, POSITIONS, 3)
    assert x.grad is not None
    np.testing.assert_array_equal(x.grad.numpy(), expected)


@pytest.mark.parametrize("held", (True, False))
def test_a_single_bool_as_index_takes_all_or_nothing(held: bool) -> None:
    x, mask = Tensor([[1, 2], [3, 4]]), Tensor(held)
    expected = x.numpy()[np.bool_(held)]
    assert x[mask].shape == expected.shape and x[mask].tolist() == expected.tolist()
    single = Tensor(3.5)
    assert single[single > (3 if held else 4)].tolist() == [3.5] * held
    assert single.masked_select(mask).tolist() == [3.5] * held
    with pytest.raises(IndexError, match="a mask of all axes alone"):
        x[:, mask]


def test_sizes_below_0_of_selections_are_refused() -> None:
    for call in (lambda x: x.masked_select(x > 1, size=-2), lambda x: x.nonzero(size=-2)):
        with pytest.raises(ValueError, match="a size of 0 or more, not -2"):
            call(Tensor([1.0, 2.0]))


@pytest.mark.parametrize("size", (100, 5000))
def test_masks_of_nearly_as_many_rows_run_the_same_kernels(size: int) -> None:
    numbers = np.arange(size, dtype=np.float32)
    rows, line = held(np.resize(TABLE[:, :3], (size, 3))), held(numbers)
    compiled = []
    for beyond in (7, 5, 11, 9):
        chosen = np.random.default_rng(beyond).permutation(size) < size // 2 + beyond
        mask = held(chosen)
        found = [rows[mask].realize(), line.masked_select(mask).realize(), mask.nonzero().realize()]
        expected = [rows.numpy()[chosen], numbers[chosen], np.nonzero(chosen)[0][:, None]]
        for ours, theirs in zip(found, expected):
            np.testing.assert_array_equal(ours.numpy(), theirs)
        compiled.append(compiler().kernels_compiled)
    assert len(set(compiled[1:])) == 1


OF_ROWS: dict[str, Callable[[Any], Any]] = {
    "mean": lambda x: x.mean(),
    "means": lambda x: x.mean(axis=0),
    "deviation": lambda x: x.std(axis=0),
    "squares": lambda x: (x * x + 2).sum(),
    "transposed": lambda x: (x.T * 3).sum(),
    "flat": lambda x: x.reshape(-1, 3).max(axis=1).sum(),
    "computed": lambda x: x * 2 + 1,
    "centred": lambda x: (x - x.mean(axis=0)).T + 1,
    "two": lambda x: (x.sum(axis=1) * x.max(axis=1)).mean(),
}


@pytest.mark.parametrize("name", OF_ROWS)
def test_what_is_made_of_rows_of_a_mask_is_one_kernel_for_nearly_as_many(name: str) -> None:
    make, table, compiled = OF_ROWS[name], np.resize(TABLE[:, :3], (60, 3)), []
    for count in (51, 49, 55, 53, 60, 2):
        chosen = np.random.default_rng(count).permutation(60) < count
        rows = table[chosen]
        before = compiler().kernels_compiled
        found = make(held(table)[held(chosen)]).realize()
        compiled.append(compiler().kernels_compiled - before)
        expected = rows.std(axis=0, ddof=1) if name == "deviation" else make(rows)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose((found + 1).numpy(), expected + 1, rtol=1e-4, atol=1e-5)
    assert not any(compiled[1:4]), compiled


def test_the_gradient_of_rows_of_a_mask_is_one_kernel_for_nearly_as_many() -> None:
    compiled, table = [], np.resize(TABLE[:, :3], (60, 3))
    for count in (51, 49, 55, 53, 60, 2):
        chosen = np.random.default_rng(count).permutation(60) < count
        x, mask = held(table).requires_grad_(), held(chosen)
        before = compiler().kernels_compiled
        (x[mask].T * x[mask].T).mean().backward()
        assert x.grad is not None
        expected = np.where(chosen[:, None], 2 * table / (3 * count), 0)
        np.testing.assert_allclose(x.grad.numpy(), expected, rtol=1e-5)
        compiled.append(compiler().kernels_compiled - before)
    assert not any(compiled[1:4]), compiled


def test_two_counts_of_rows_and_numbers_of_their_size_in_one_graph() -> None:
    line = np.arange(60, dtype=np.float32)
    for first, second in ((51, 51), (51, 54), (54, 51)):
        one, two = line % 60 < first, line >= 60 - second
        a, b = held(line)[held(one)], held(line + 1)[held(two)]
        expected = line[one].mean() * (line + 1)[two].sum() + first
        assert (a.mean() * b.sum() + first).item() == pytest.approx(expected, rel=1e-5)
        other, twos = held(np.ones(first, np.float32)), Tensor.full((first,), 2.0)
        total = (a * twos).sum() + (other * twos).sum() + (a * other).sum()
        assert total.item() == pytest.approx(3 * line[one].sum() + 2 * first, rel=1e-5)


def test_rows_of_a_mask_pass_their_gradients_and_are_written_to_alone() -> None:
    chosen = np.arange(50) % 3 == 1
    x = held(TABLE).requires_grad_()
    rows = x[held(chosen)].realize()
    (rows * rows).sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), np.where(chosen[:, None], 2 * TABLE, 0), rtol=1e-6)
    table = held(TABLE)
    some = table[held(chosen)].realize()
    some[1] = 5.0
    some += 1
    expected = TABLE[chosen]
    expected[1] = 5.0
    np.testing.assert_array_equal(some.numpy(), expected + 1)
    np.testing.assert_array_equal(table.numpy(), TABLE)


def test_the_first_rows_of_what_gets_memory_are_a_view_of_it() -> None:
    x = held(TABLE)
    whole = (x + 1).contiguous()
    most, few = whole[:45].realize(), (x + 2).contiguous()[:5].realize()
    np.testing.assert_array_equal(most.numpy(), TABLE[:45] + 1)
    np.testing.assert_array_equal(few.numpy(), TABLE[:5] + 2)
    most[0] = 7.0
    assert whole[0].tolist() == [7.0] * 7
