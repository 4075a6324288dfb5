"""Sources that go to positions in memory: the values of numpy's ufunc.at, bit by bit, and the procedure."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from devices import opened
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_interpreter import run_kernel
from tactics import lower_scatters
from test_plan_store import plan_of, run
from ways_of_positions import set_way

from proofgrad import Context, Device, GlobalCounters, Tensor, TinyJit, dtypes
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.passes.forms import Form, FormError, check_form
from proofgrad.core.compile.passes.stages import parts_of, run_stages
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp
from proofgrad.core.tensor.runtime.realize import compiler, graph_to_run
from proofgrad.rules.pipeline import KERNEL_STAGES

CPU = Target("test-cpu", vector_bytes=16, threads=2)
EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, 3.0e38, 1e-40, 1.0, -1.5]
FLOATS = ("float16", "bfloat16", "float32", "float64")
INTS = ("int8", "uint8", "int16", "int32", "uint32", "int64", "uint64")


@pytest.fixture(autouse=True)
def goes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    set_way(monkeypatch, goes=True)
    yield
    compiler().forget()


def same_bits(found: Tensor, expected: Any) -> None:
    """Equal bits, any NaN being any NaN."""
    got = found.cast("float32").numpy() if found.dtype is dtypes.bfloat16 else found.numpy()
    want = np.asarray(expected).astype(got.dtype)
    assert got.shape == want.shape
    numbers = ~np.isnan(want) if want.dtype.kind == "f" else np.ones(want.shape, bool)
    assert np.array_equal(np.isnan(got), ~numbers) if want.dtype.kind == "f" else True
    bits = f"u{got.dtype.itemsize}"
    assert np.array_equal(got.view(bits)[numbers], want.view(bits)[numbers])


def zeros(*shape: int, **how: Any) -> Tensor:
    """Zeros in memory, which a gradient can be asked of."""
    return Tensor.zeros(*shape, **how).contiguous().realize()


def values_of(dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> Tensor:
    if dtype in INTS:
        kind = np.dtype(dtype)
        info = np.iinfo(kind)
        line = rng.integers(info.min, info.max, prod(shape), kind, endpoint=True)
        return Tensor(line.reshape(shape), dtype=dtype)
    line = rng.normal(size=prod(shape)).astype(np.float32)
    where = rng.random(line.shape) < 0.2
    line[where] = rng.choice(np.array(EDGES, np.float32), where.sum())
    return Tensor(line.reshape(shape)).cast(dtype).realize()


def added(positions: Any, values: Tensor, size: int) -> Any:
    """np.add.at, rounded after each addition as the type of the values says."""
    if values.dtype is dtypes.bfloat16:
        total = Tensor.zeros(size, *values.shape[1:], dtype="bfloat16").tolist()
        whole = np.array(total, np.float32)
        for position, row in zip(positions, values.cast("float32").numpy()):
            if -size <= position < size:
                sums = Tensor(whole[position] + row).cast("bfloat16").cast("float32")
                whole[position] = sums.numpy()
        return whole
    source = values.numpy()
    whole = np.zeros((size, *source.shape[1:]), source.dtype)
    inside = (positions >= -size) & (positions < size)
    with np.errstate(all="ignore"):
        np.add.at(whole, positions[inside], source[inside])
    return whole


def gradient_of_choice(positions: Any, values: Tensor, size: int) -> Tensor:
    own = zeros(size, *values.shape[1:], dtype=values.dtype)
    (found,) = (own[Tensor(positions)] * values.detach()).sum().gradient(own)
    return found


@pytest.mark.parametrize("dtype", FLOATS)
def test_gradient_of_a_choice_adds_in_order(dtype: str) -> None:
    rng = np.random.default_rng(3)
    for size, count, rest in [(40, 60, (16,)), (7, 50, (3, 5)), (33, 20, ()), (3, 1, (2,))]:
        positions = rng.integers(-size - 3, size + 3, count).astype(np.int32)
        values = values_of(dtype, (count, *rest), rng)
        same_bits(gradient_of_choice(positions, values, size), added(positions, values, size))


@pytest.mark.parametrize("dtype", [*INTS, *FLOATS])
def test_scatter_reduce_sums_in_order(dtype: str) -> None:
    rng = np.random.default_rng(4)
    positions = rng.integers(0, 12, 50)
    values = values_of(dtype, (50,), rng)
    found = Tensor.zeros(12, dtype=dtype).scatter_reduce(0, Tensor(positions), values, "sum")
    if values.is_floating_point() and values.dtype.bits == 16:  # in float32, rounded once
        rounded = Tensor(added(positions, values.float(), 12)).cast(dtype)
        wanted = rounded.float().numpy() if dtype == "bfloat16" else rounded.numpy()
    else:
        wanted = added(positions, values, 12)
    same_bits(found, wanted)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int64", "float32", "float64"])
@pytest.mark.parametrize(
    "reduce, at, start",
    [("amax", np.maximum, "min"), ("amin", np.minimum, "max"), ("prod", np.multiply, "one")],
)
def test_other_reductions_go_to_positions_too(dtype: str, reduce: str, at: Any, start: str) -> None:
    rng = np.random.default_rng(5)
    positions = rng.integers(0, 12, 40)
    source = rng.integers(1, 4, 40).astype(dtype)
    if source.dtype.kind == "f":
        source[::7] = np.array(EDGES, dtype)[:6]
    own = np.ones(12, dtype)
    want = own.copy()
    with np.errstate(all="ignore"):
        at.at(want, positions, source)
    found = Tensor(own).scatter_reduce(0, Tensor(positions), Tensor(source), reduce)
    same_bits(found, want)


def test_counts_and_pairs_of_positions() -> None:
    rng = np.random.default_rng(6)
    rows, columns = rng.integers(0, 9, 100), rng.integers(0, 11, 100)
    hits = Tensor(rows).reshape(1, -1) == Tensor.arange(9).reshape(9, 1)
    assert np.array_equal(hits.sum(1).numpy(), np.bincount(rows, minlength=9))
    assert np.array_equal(hits.float().sum(1).numpy(), np.bincount(rows, minlength=9))
    both = hits.reshape(9, 1, -1) & (
        Tensor(columns).reshape(1, 1, -1) == Tensor.arange(11).reshape(1, 11, 1)
    )
    GlobalCounters.reset()
    found = both.sum(2).numpy()
    assert np.array_equal(found, np.histogram2d(rows, columns, (range(10), range(12)))[0])
    assert GlobalCounters.global_ops < 9 * 11 * 100


def test_along_an_axis_and_several_axes() -> None:
    rng = np.random.default_rng(7)
    values = rng.normal(size=(6, 8)).astype(np.float32)
    for axis in (0, 1):
        positions = rng.integers(0, 10, (6, 8))
        shape = (10, 8) if axis == 0 else (6, 10)
        own = zeros(*shape)
        taken = own.gather(axis, Tensor(positions)) * Tensor(values)
        want = np.zeros(shape, np.float32)
        others = np.indices((6, 8))
        at = (positions, others[1]) if axis == 0 else (others[0], positions)
        np.add.at(want, at, values)
        same_bits(taken.sum().gradient(own)[0], want)
    i, j = rng.integers(-4, 4, (3, 5)), rng.integers(0, 6, 5)
    own, weights = zeros(4, 6, 3), rng.normal(size=(3, 5, 3)).astype(np.float32)
    (found,) = (own[Tensor(i), Tensor(j)] * Tensor(weights)).sum().gradient(own)
    want = np.zeros((4, 6, 3), np.float32)
    np.add.at(want, (i, np.broadcast_to(j, i.shape)), weights)
    same_bits(found, want)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32", "uint64"])
def test_positions_count_from_where_the_axis_is_cut(dtype: str) -> None:
    positions = Tensor([1, 9, 3, 3], dtype=dtype).reshape(4, 1).expand(4, 2)
    values = Tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]])
    whole = zeros(12, 2).scatter_reduce(0, positions, values, "sum")
    assert whole[2:10].tolist() == [[0, 0], [12, 14], *[[0, 0]] * 5, [3, 4]]


def test_no_positions_and_no_sources() -> None:
    none = np.zeros(0, np.int32)
    same_bits(gradient_of_choice(none, Tensor.zeros(0, 3), 4), np.zeros((4, 3), np.float32))
    zero = Tensor.zeros(0, 3).scatter_reduce(
        0, Tensor.zeros(0, 3, dtype="int32"), Tensor.zeros(0, 3), "sum"
    )
    assert zero.numpy().shape == (0, 3)
    one = gradient_of_choice(np.array([0, 0, 1, -1]), Tensor([1.0, 2.0, 4.0, 8.0]), 1)
    same_bits(one, np.array([11], np.float32))


def test_what_reads_the_sum_in_its_own_kernel_reads_a_table() -> None:
    rng = np.random.default_rng(8)
    positions, own = rng.integers(0, 20, 64), rng.normal(size=(20, 16)).astype(np.float32)
    values = rng.normal(size=(64, 16)).astype(np.float32)
    weight = Tensor(own).realize()
    (slope,) = (weight[Tensor(positions)] * Tensor(values)).sum().gradient(weight)
    total = np.zeros_like(own)
    np.add.at(total, positions, values)
    same_bits(weight - slope * 0.5, own - total * np.float32(0.5))
    weight.assign(weight - slope * 0.5).realize()  # over the memory that it reads
    same_bits(weight, own - total * np.float32(0.5))


def test_a_table_does_not_take_the_memory_of_an_input_that_is_not_read() -> None:
    positions, values = Tensor([1, 1, 0]).realize(), Tensor([10, 20, 30]).realize()
    unread = Tensor([7, 8, 9, 10]).realize()
    hits = positions.reshape(1, 3) == Tensor.arange(4).reshape(4, 1)
    total = hits.where(values.reshape(1, 3), 0).sum(1)
    assert (total * 2 + unread * 0).tolist() == [60, 60, 0, 0]
    assert unread.tolist() == [7, 8, 9, 10]


def test_gradient_of_the_gradient_is_the_choice_again() -> None:
    rng = np.random.default_rng(9)
    positions = Tensor(rng.integers(0, 6, 10))
    x = Tensor(rng.normal(size=(6, 4))).realize()
    (slope,) = (x[positions] ** 3).sum().gradient(x)
    (second,) = (slope * x.detach()).sum().gradient(x)
    expected = np.zeros((6, 4))
    np.add.at(expected, positions.numpy(), (6 * x.numpy() ** 2)[positions.numpy()])
    assert np.allclose(second.numpy(), expected, rtol=1e-12)


def test_a_recorded_function_starts_from_nothing_each_time() -> None:
    @TinyJit
    def slope(x: Tensor, positions: Tensor) -> Tensor:
        return (x[positions] * 2).sum().gradient(x)[0].realize()

    rng = np.random.default_rng(10)
    x = Tensor.zeros(30, 8).contiguous().realize()
    for _ in range(4):
        positions = rng.integers(0, 30, 50)
        found = slope(x, Tensor(positions).realize()).numpy()
        assert np.array_equal(
            found, np.bincount(positions, minlength=30)[:, None] * 2.0 * np.ones(8)
        )


def test_a_recorded_update_reads_a_table_that_is_filled_each_time() -> None:
    rng = np.random.default_rng(14)
    values = rng.normal(size=(50, 8)).astype(np.float32)
    expected = rng.normal(size=(30, 8)).astype(np.float32)
    weight, source = Tensor(expected.copy()).realize(), Tensor(values).realize()

    @TinyJit
    def update(positions: Tensor) -> Tensor:
        (slope,) = (weight[positions] * source).sum().gradient(weight)
        return weight.assign(weight - slope * 0.5).realize()

    for _ in range(5):
        positions = rng.integers(0, 30, 50)
        total = np.zeros_like(expected)
        np.add.at(total, positions, values)
        expected = expected - total * np.float32(0.5)
        same_bits(update(Tensor(positions).realize()), expected)


def test_a_plan_from_the_disk_fills_before_it_combines(tmp_path: Path) -> None:
    positions, values = (
        np.array([3, 1, 3]),
        Tensor([[1.0, 2.0], [4.0, 8.0], [16.0, 32.0]]).realize(),
    )
    with Context(PROOFGRAD_CACHE=str(tmp_path)):
        slope = gradient_of_choice(positions, values, 5)
        _, made = plan_of(slope)
        second, read = plan_of(slope)
        assert second.kernels_compiled == 0 and len(read.steps) == len(made.steps) >= 2
        assert run(read, slope) == [0, 0, 4, 8, 0, 0, 17, 34, 0, 0]


def test_texts_of_graphics_cards_keep_the_order() -> None:
    own = zeros(40, 12)
    weights = values_of("float32", (4, 12), np.random.default_rng(15))
    body = _body((own[Tensor([1, 1, 3, 39]).realize()] * weights).sum().gradient(own)[0])
    _, combine = compiler().sources(body, "CUDA")
    assert combine.global_size == 3  # a work item for four of the other results, side by side
    assert "st.global" in Device["CUDA"].compile(combine).data.decode()


@pytest.mark.parametrize("device", ["CL", "REFERENCE"])
def test_machines_agree(device: str) -> None:
    opened(device)
    rng = np.random.default_rng(11)
    for dtype in ("float32", "int16", "float16"):
        positions = rng.integers(-9, 9, 30).astype(np.int32)
        values = values_of(dtype, (30, 6), rng)
        own = zeros(8, 6, dtype=dtype, device=device)
        there = Tensor(positions, device=device)
        chosen = own[there] * values.to(device).detach()
        total = chosen.sum() if dtype != "int16" else None
        found = (
            own.scatter_reduce(0, there.reshape(30, 1).expand(30, 6), values.to(device), "sum")
            if total is None
            else total.gradient(own)[0]
        )
        if total is None:
            positions = np.where(positions < 0, 99, positions)
        same_bits(found, added(positions, values, 8))


@pytest.mark.parametrize(
    "choice",
    ["vectors=none", "vectors=*x8", "threads=on", "threads=off", "vectors=*x4x2", "copies=*x2"],
)
def test_any_choice_gives_the_same(choice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHOICES", choice)
    rng = np.random.default_rng(12)
    positions = rng.integers(0, 40, 300).astype(np.int32)
    for rest in [(48,), (7,), (2, 24), ()]:
        values = values_of("float32", (300, *rest), rng)
        same_bits(gradient_of_choice(positions, values, 40), added(positions, values, 40))


def test_search_leaves_sources_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BEAM", "1")
    monkeypatch.setenv("BEAM_SECONDS", "1")
    positions = np.arange(1000, dtype=np.int32) % 300
    values = values_of("float32", (1000, 32), np.random.default_rng(13))
    same_bits(gradient_of_choice(positions, values, 300), added(positions, values, 300))


def test_it_is_done_where_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("PLANS", "0")
    compiler().forget()
    x, few, many = zeros(4, 8), Tensor([0, 3, 3]), Tensor.arange(50_000) % 7_000
    assert len(_linears(x[few].sum().gradient(x)[0])) == 1
    large = zeros(7_000, 8)
    assert len(_linears((large[many] * large[many]).sum().gradient(large)[0])) == 2
    few_positions = zeros(2, 8)
    assert len(_linears(few_positions[many].sum().gradient(few_positions)[0])) == 1


def _body(value: Tensor) -> UOp:
    graph = compiler().kernel_graph(graph_to_run([value.uop], value.device))
    return graph.src[-1].src[0]


def _linears(value: Tensor) -> tuple[UOp, ...]:
    return compiler().linears(_body(value), "CPU")


# -- the procedure --------------------------------------------------------------------------------


def kernel_before(body: UOp) -> UOp:
    position = next(k for k, s in enumerate(KERNEL_STAGES) if s.name == "lower scatters")
    return run_stages(KERNEL_STAGES[:position], body, compiler().library, CPU)


@st.composite
def bodies(draw: st.DrawFn) -> tuple[UOp, dict[int, list[Any]]]:
    """out = what is there, op over sources of where(positions == position, value, neutral)."""
    outer, size, count, rest = [draw(st.sampled_from([1, 2, 3, 5])) for _ in range(4)]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    positions = rng.integers(-3, size + 3, (outer, count) if draw(st.booleans()) else count)
    values = rng.integers(-100, 100, (outer, count, rest))
    own = rng.integers(-100, 100, (outer, size, rest))
    data = {k: [int(x) for x in a.ravel()] for k, a in enumerate((own, positions, values), 1)}

    def parameter(slot: int, shape: tuple[int, ...]) -> UOp:
        memory = UOp(Ops.PARAM, dtypes.int32, (), (slot, prod(shape)))
        return UOp(Ops.RESHAPE, dtypes.int32, (memory,), shape)

    def spread(node: UOp, shape: tuple[int, ...]) -> UOp:
        node = UOp(Ops.RESHAPE, node.dtype, (node,), shape)
        return UOp(Ops.EXPAND, node.dtype, (node,), (outer, size, count, rest))

    shape = (outer if positions.ndim == 2 else 1, 1, count, 1)
    wanted = spread(parameter(2, positions.shape), shape)
    line = UOp(Ops.IOTA, dtypes.int32, (), size)
    op, neutral = draw(
        st.sampled_from([(Ops.ADD, 0), (Ops.MAX, -(2**31)), (Ops.MIN, 2**31 - 1), (Ops.MUL, 1)])
    )
    hits = wanted.eq(spread(line, (1, size, 1, 1)))
    none = UOp(Ops.CONST, dtypes.int32, (), neutral)
    value = hits.where(
        spread(parameter(3, values.shape), (outer, 1, count, rest)), spread(none, (1, 1, 1, 1))
    )
    total = UOp(Ops.REDUCE_AXIS, dtypes.int32, (value,), (op, (2,)))
    total = UOp(Ops.RESHAPE, dtypes.int32, (total,), (outer, size, rest))
    if draw(st.booleans()):
        total = UOp(Ops.MAX, dtypes.int32, (total, parameter(1, own.shape)))
    return UOp.sink(total), data


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(bodies())
def test_reduce_by_position_keeps_the_values(drawn: tuple[UOp, dict[int, list[Any]]]) -> None:
    body, data = drawn
    kernel = kernel_before(body)
    changed = lower_scatters(kernel, CPU, compiler().library.facts())
    for part in parts_of(changed):
        check_form(Form.KERNEL, part)
    assert run_kernel(changed, dict(data))[0] == run_kernel(kernel, dict(data))[0]


def test_a_store_in_order_reads_only_where_it_writes() -> None:
    memory = UOp(Ops.PARAM, dtypes.int32, (), (0, 9))
    loop = UOp.range(4, 0, AxisRole.REDUCE)
    position = UOp(Ops.INDEX, dtypes.int32, (memory, loop))
    elsewhere = UOp(Ops.INDEX, dtypes.int32, (memory, loop + 1))
    one = UOp.const(dtypes.int32, 1)

    def store(value: UOp, *loops: UOp, op: Ops | None = None) -> UOp:
        return UOp.sink(UOp(Ops.STORE, dtypes.void, (position, value, *loops), op))

    check_form(Form.KERNEL, store(one, loop, op=Ops.ADD))
    load = UOp(Ops.LOAD, dtypes.int32, (elsewhere,))
    for wrong in (
        store(load, loop, op=Ops.ADD),
        store(one, op=Ops.ADD),
        store(one, UOp.range(4, 0, AxisRole.THREAD), op=Ops.ADD),
    ):
        with pytest.raises(FormError):
            check_form(Form.KERNEL, wrong)
    there = UOp(Ops.LOAD, dtypes.int32, (position, loop))
    program = store(there + one, loop)
    check_form(Form.KERNEL, program)
    with pytest.raises(FormError, match="combines"):
        check_form(Form.PROGRAM, store(one, loop, op=Ops.ADD))


@pytest.mark.parametrize("what", ["masked_select", "nonzero", "x[i] = y", "x[i, j] = y"])
def test_work_is_linear_in_the_elements(what: str) -> None:
    rng = np.random.default_rng(8)
    n, size = 5003, 3001
    x, mask = rng.normal(size=n).astype(np.float32), rng.integers(0, 2, n).astype(bool)
    GlobalCounters.reset()
    if what == "masked_select":
        found = Tensor(x).masked_select(Tensor(mask), size=size, fill_value=7)
        want = np.full(size, 7, np.float32)
        want[: mask.sum()] = x[mask]
    elif what == "nonzero":
        found = Tensor(mask).nonzero(size=size, fill_value=-1)
        want = np.full((size, 1), -1)
        want[: mask.sum()] = np.argwhere(mask)
    else:
        shape = (n,) if what == "x[i] = y" else (71, 47)
        index = tuple(rng.integers(-side, side, n) for side in shape)  # some twice: the last counts
        want = np.zeros(shape, np.float32)
        found = Tensor(want)
        want[index] = x
        found[tuple(map(Tensor, index))] = Tensor(x)
    assert np.array_equal(found.numpy(), want)
    assert GlobalCounters.global_ops < 200 * n


@pytest.mark.parametrize("times", [1, 2, 5])
@pytest.mark.parametrize("how", ["rows", "elements", "gather", "of two tables"])
def test_gradients_of_what_is_read_at_several_positions_are_linear_too(
    monkeypatch: pytest.MonkeyPatch, how: str, times: int
) -> None:
    """A sum of both sums would let each row look at all of the positions."""
    monkeypatch.undo()
    monkeypatch.setenv("PLANS", "0")
    compiler().forget()
    rng = np.random.default_rng(times)
    rows, columns, count = 1009, 31, 503
    values = rng.integers(-3, 4, (rows, columns)).astype(np.float32)
    places = rng.integers(0, rows, (times, count)).astype(np.int32)
    across = rng.integers(0, columns, count).astype(np.int32)
    x, want = Tensor(values).realize(), np.zeros((rows, columns), np.float32)
    x.requires_grad_(True)
    loss = Tensor(0.0)
    for k, place in enumerate(places):
        weight, i = k + 1.0, Tensor(place)
        if how == "gather":
            read = x.gather(0, i.reshape(-1, 1).expand(count, columns))
        elif how == "elements":
            read = x[i, Tensor(across)]
        else:
            read = (x * 2.0)[i] if how == "of two tables" and k % 2 else x[i]
        at = (place, across) if how == "elements" else place
        factor = 2.0 if how == "of two tables" and k % 2 else 1.0
        np.add.at(want, at, weight * factor * np.ones(read.shape, np.float32))
        loss = loss + (read * weight).sum()
    loss.backward()
    assert x.grad is not None
    GlobalCounters.reset()
    np.testing.assert_array_equal(x.grad.numpy(), want)
    assert GlobalCounters.global_ops < 40 * times * (rows + count) * columns
