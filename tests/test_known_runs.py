"""A small run that was done before is done again without planning: it gives what the first gave, in memory that nobody holds."""

from __future__ import annotations

import gc
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from proofgrad import Context, GlobalCounters, Tensor, TinyJit, dtypes, nn, profile
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime import canonical, changing, known_runs, runs_of_a_kind
from proofgrad.core.tensor.runtime import realize as running
from proofgrad.core.tensor.runtime.kept_run import KeptRun
from proofgrad.core.tensor.runtime.known_runs import RUNS, KnownRun, _Runs
from proofgrad.core.tensor.runtime.likeness import Likeness
from proofgrad.core.tensor.runtime.memory import buffer_of, is_view, memory_of
from proofgrad.core.tensor.runtime.reading import read
from proofgrad.core.tensor.runtime.runs_of_a_kind import RunsOfAKind

pytestmark = pytest.mark.usefixtures("checked_runs")


@pytest.fixture
def again(monkeypatch: pytest.MonkeyPatch) -> list[UOp]:
    """What was computed by runs that were known."""
    found: list[UOp] = []
    run = KnownRun.run

    def noted(self: KnownRun, *given: Any) -> list[UOp]:
        nodes = run(self, *given)
        found.append(nodes[0])
        return nodes

    monkeypatch.setattr(KnownRun, "run", noted)
    return found


def data(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Tensor:
    return Tensor(np.random.default_rng(seed).integers(-9, 9, shape).astype(dtype)).realize()


def test_a_run_that_is_known_is_used(again: list[UOp]) -> None:
    x = data(16, 16)
    for k in range(4):
        assert np.array_equal((x + 1).realize().numpy(), x.numpy() + 1)
        assert len(again) == k


def test_a_choice_between_memory_and_a_number_is_known(again: list[UOp]) -> None:
    x = data(16, 16)
    for k in range(4):
        assert np.array_equal(x.relu().realize().numpy(), np.maximum(x.numpy(), 0))
        assert len(again) == k


PROGRAMS: dict[str, Any] = {
    "a + b": lambda a, b: a + b,
    "a + a": lambda a, b: a + a,
    "b + a": lambda a, b: b + a,
    "a - b": lambda a, b: a - b,
    "a * 0.0": lambda a, b: a * 0.0,
    "a * -0.0": lambda a, b: a * -0.0,
    "a * 1": lambda a, b: a * 1,
    "cast": lambda a, b: (a * 2).cast(dtypes.int32),
    "a.T + b": lambda a, b: a.T + b,
    "a + b.T": lambda a, b: a + b.T,
    "a.T + a": lambda a, b: a.T + a,
    "sum 0": lambda a, b: a.sum(0),
    "sum 1": lambda a, b: a.sum(1),
    "softmax": lambda a, b: (a @ b).softmax(-1),
    "where": lambda a, b: (a < b).where(a, 1.0),
    "arange": lambda a, b: Tensor.arange(4) + 1,
    "slice": lambda a, b: a[1:3] + b[1:3],
    "row": lambda a, b: a[1] + b[2],
    "row of it": lambda a, b: a[1] + a[2] * b,
    "row again": lambda a, b: a[1] + a[1].reshape(2, 2).T.reshape(4) * a[1],
    "row of rows": lambda a, b: a[1:3][1] - b,
    "element": lambda a, b: a[2, 1:3] * b[0, 3],
    "column": lambda a, b: a[:, 1] + b[:, 1:3].sum(1),
    "rows in another shape": lambda a, b: a[2:].reshape(4, 2) @ b[0, :2],
    "contiguous": lambda a, b: (a + b).contiguous() * (a + b),
    "detach": lambda a, b: (a + b).detach() * (a + b),
    "pad": lambda a, b: a.pad(((1, 0), (0, 2))),
    "nothing": lambda a, b: a[:0] + b[:0],
    "one": lambda a, b: a.max(),
    "view": lambda a, b: a.reshape(-1),
    "parts of one memory": lambda a, b: a.roll(1, 0) * 1,
    "a value of its own": lambda a, b: Tensor.eye(4),
}


def test_known_runs_give_what_first_runs_give(again: list[UOp]) -> None:
    held: list[tuple[Tensor, Any]] = []
    for turn in range(5):
        a, b = data(4, 4, seed=turn), data(4, 4, seed=turn + 9)
        for name, program in PROGRAMS.items():
            with Context(PLANS=0):
                expected = program(Tensor(a.numpy()), Tensor(b.numpy())).numpy()
            found = program(a, b).realize()
            assert np.array_equal(found.numpy(), expected, equal_nan=True), name
            held.append((found, expected))
    assert len(again) > 60
    assert all(np.array_equal(one.numpy(), expected, equal_nan=True) for one, expected in held)


@pytest.mark.parametrize(
    "hold",
    [
        lambda r: r,
        lambda r: r * 2,
        lambda r: r[1:],
        lambda r: r.reshape(-1),
        lambda r: r.numpy(),
        lambda r: r.uop,
        lambda r: r.uop.src[0],
        lambda r: memoryview(np.asarray(r)),
    ],
)
def test_memory_of_a_result_that_somebody_holds_stays(hold: Any, again: list[UOp]) -> None:
    x = data(3, 2)
    held = []
    for k in range(6):
        x = data(3, 2, seed=k)
        held.append((hold((x + 5).realize()), x.numpy() + 5))
    assert len(again) >= 5
    for one, whole in held:
        if isinstance(one, UOp):
            assert bytes(read(one, "CPU")) == whole.tobytes()
        else:
            wanted = hold(Tensor(whole))
            assert np.array_equal(
                *[x.numpy() if isinstance(x, Tensor) else x for x in (one, wanted)]
            )


def test_a_loop_that_holds_the_last_result_uses_two_memories() -> None:
    y, addresses = data(4, 4), set()
    expected = y.numpy()
    for k in range(9):
        y, expected = (y + 1).realize(), expected + 1
        if k > 1:
            addresses.add(memory_of(buffer_of(y.uop)).address)
    assert len(addresses) <= 3
    assert np.array_equal(y.numpy(), expected)


def test_who_holds_the_graph_finds_its_value(again: list[UOp]) -> None:
    x = data(4, 4)
    (x + 1).realize()
    one = x + 1
    other, reader = Tensor(one.uop), one * 2
    before = GlobalCounters.kernel_count
    one.realize()
    other.realize()
    assert len(again) == 1
    assert GlobalCounters.kernel_count == before + 1
    assert np.array_equal(reader.numpy(), (x.numpy() + 1) * 2)


def test_what_was_computed_stands_for_its_graph(again: list[UOp]) -> None:
    for k in range(4):
        x = data(4, 4, seed=k)
        y = x + 1
        z, total = y * y, y + x
        y.realize()
        assert np.array_equal(z.realize().numpy(), (x.numpy() + 1) ** 2)
        assert np.array_equal(total.realize().numpy(), 2 * x.numpy() + 1)
    assert len(again) >= 9


def test_a_gradient_can_be_taken_after() -> None:
    w = Tensor([2.0, 3.0], requires_grad=True)
    for _ in range(3):
        y = (w * w).sum()
        y.realize()
        (grad,) = y.gradient(w)
        assert grad.tolist() == [4, 6]


@pytest.mark.parametrize("through", [lambda y: y, lambda y: (y * 2).realize(), Tensor.relu])
def test_a_known_run_keeps_the_graph_that_a_gradient_goes_through(
    again: list[UOp], through: Any
) -> None:
    x, w = data(4, 4), Tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    for k in range(4):
        (x + 1).realize()
        y = (x * w).realize()
        through(y).sum().backward()
        expected = x.numpy() if through(Tensor(1.0)).item() == 1 else 2 * x.numpy()
        if through is Tensor.relu:
            expected = expected * (y.numpy() > 0)
        assert w.grad is not None
        assert np.array_equal(w.grad.numpy(), expected.sum(0))
        w.grad = None
        assert len(again) >= 2 * k


def test_a_known_run_lets_go_of_a_graph_that_leads_to_no_parameter(again: list[UOp]) -> None:
    x, w = data(4, 4), Tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    for make in (lambda: x + 1, lambda: (x * w).detach() * 2):
        for _ in range(3):
            y = make().realize()
            assert is_view(y._uop)
    with Tensor.no_grad():
        for _ in range(3):
            assert is_view((x * w).realize()._uop)
    assert len(again) == 6


def test_what_a_known_run_made_of_constants_is_remembered_where_a_gradient_needs_its_graph(
    again: list[UOp],
) -> None:
    for _ in range(3):
        w = Tensor.ones(4, requires_grad=True)
        y = (w * 2).realize()
        before = GlobalCounters.kernel_count
        assert y.tolist() == [2] * 4
        assert GlobalCounters.kernel_count == before
        y.sum().backward()
        assert w.grad is not None
        assert w.grad.tolist() == [2] * 4
    assert len(again) == 2


def test_a_number_of_the_host_is_copied_by_a_known_run(again: list[UOp]) -> None:
    x, fixed = data(4, 4), Tensor(5.0)
    before = GlobalCounters.copy_count
    for k in range(5):
        assert np.array_equal((x * Tensor(float(k))).realize().numpy(), x.numpy() * k)
        assert np.array_equal((x - fixed).realize().numpy(), x.numpy() - 5)
        assert Tensor([k, 1, 2]).realize().tolist() == [k, 1, 2]
    assert len(again) == 12
    assert GlobalCounters.copy_count == before + 15


def test_what_is_to_be_drawn_keeps_no_other_run_from_being_known(again: list[UOp]) -> None:
    x = data(8, 8)
    for _ in range(3):
        (x + Tensor.rand(8, 8)).realize()
    drawn = Tensor.rand(8, 8)
    for _ in range(3):
        (x + 1).realize()
    assert len(again) >= 2
    held = [(x + drawn).realize().numpy() for _ in range(4)]
    before = GlobalCounters.kernel_count
    assert all(np.array_equal(one, x.numpy() + drawn.numpy()) for one in held)
    assert GlobalCounters.kernel_count == before  # it was drawn once


def test_settings_count_from_when_they_are_changed(
    again: list[UOp], capfd: pytest.CaptureFixture[str]
) -> None:
    x = data(4, 4)
    for _ in range(3):
        (x + 1).realize()
    assert len(again) == 2
    with Context(DEBUG=2):
        (x + 1).realize()
        assert "4,4" in capfd.readouterr().err.replace(" ", "")
    with Context(NOOPT=1):
        (x + 1).realize()
        assert len(again) == 2
        (x + 1).realize()
        assert len(again) == 3
    with Context(DEBUG_NANS=1), pytest.raises(FloatingPointError):
        (x * 0 / 0).realize()
    with profile() as report:
        (x + 1).realize()
    assert sum(row.count for row in report.rows) == 1
    assert len(again) == 3
    (x + 1).realize()
    assert len(again) == 4


def test_plans_that_were_dropped_are_made_anew(again: list[UOp]) -> None:
    x = data(4, 4)
    (x + 1).realize()
    running.compiler().forget()
    (x + 1).realize()
    assert not again
    (x + 1).realize()
    assert len(again) == 1


def test_nothing_runs_while_a_function_is_recorded() -> None:
    x = data(4, 4)
    for _ in range(3):
        (x * 3).realize()

    @TinyJit
    def f(x: Tensor) -> Tensor:
        return (x * 3).realize() + 1

    for k in range(4):
        x = data(4, 4, seed=k)
        assert np.array_equal(f(x).numpy(), x.numpy() * 3 + 1)


def test_threads_do_not_write_over_each_other(again: list[UOp]) -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        x = data(8, 8, seed=seed)
        expected = x.numpy() * 7 - 1
        for _ in range(150):
            if not np.array_equal((x * 7 - 1).realize().numpy(), expected):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(again) > 100  # of 600; beside other work the first runs of threads overlap for long


def test_memory_of_results_that_nobody_holds_does_not_count() -> None:
    x = data(8, 8)
    gc.collect()
    before = GlobalCounters.mem_used
    for _ in range(4):
        y = (x + 2).realize()
    assert GlobalCounters.mem_used == before + y.nbytes()
    del y
    assert GlobalCounters.mem_used == before


def test_results_are_let_go_when_they_are_too_many(
    monkeypatch: pytest.MonkeyPatch, checked_runs: _Runs
) -> None:
    monkeypatch.setattr(known_runs, "HELD_BYTES", 4096)
    tensors = [data(4, 4), data(5, 5), data(6, 6)]
    for k in range(60):
        for x in tensors:
            assert np.array_equal((x + 1).realize().numpy(), x.numpy() + 1), k
            held = [(x + 1).realize() for _ in range(3)]
            assert all(np.array_equal(one.numpy(), x.numpy() + 1) for one in held)
    assert checked_runs.unused_bytes().total() <= 4096


def test_large_results_are_not_kept(again: list[UOp]) -> None:
    x = data(known_runs.RESULT_BYTES // 4 + 1)
    for _ in range(3):
        (x + 1).realize()
    assert not again


@pytest.mark.parametrize("program", list(PROGRAMS), ids=str)
def test_a_graph_is_like_itself_and_no_other(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changing, "MOST_OWN", len(PROGRAMS))  # each keeps its numbers
    a, b = data(4, 4), data(4, 4, seed=1)
    values: dict[str, int] = {}
    root = PROGRAMS[program](a, b)._uop
    graph, inputs = canonical.numbered([root], "CPU", values, with_parts=True)
    if values or program in ("view", "nothing"):  # which is no run that is kept
        return
    parts = frozenset([k for k, buffer in enumerate(inputs) if buffer.op is Ops.SHRINK])
    likeness = Likeness(graph.src, parts)
    for name, other in PROGRAMS.items():
        root = other(a, b)._uop
        alike = likeness.found([root], {})
        found = None if alike is None else likeness.buffers_of(alike)
        if found is not None:
            known = canonical.numbered([root], "CPU", {}, with_parts=True)
            assert known == (graph, found), name
        else:
            assert name != program or program in ("contiguous", "detach")


def test_a_loop_over_rows_is_one_known_run(again: list[UOp]) -> None:
    x, y = data(6, 4), data(4, 4, seed=1)
    held, a, b = [], x.numpy(), y.numpy()
    for k in range(5):
        held.append(((x[k] * x[k + 1] - y[k % 4]).realize(), a[k] * a[k + 1] - b[k % 4]))
        held.append(((x[k : k + 2].sum(0) + x[k]).realize(), a[k : k + 2].sum(0) + a[k]))
    assert len(again) == 8
    held.append(((x[2] * x[2] - y[2]).realize(), a[2] * a[2] - b[2]))  # one row in place of two
    assert len(again) == 8
    z = (y * 2 + x[:4]).realize()
    held.append(((z[1] * z[2] - x[0]).realize(), (b * 2 + a[:4])[1] * (b * 2 + a[:4])[2] - a[0]))
    assert len(again) == 9
    assert all(np.array_equal(one.numpy(), expected) for one, expected in held)


def test_a_part_of_memory_is_read_without_a_kernel() -> None:
    x = data(3, 4, 5)
    whole, before = x.numpy(), GlobalCounters.kernel_count
    assert np.array_equal(x[1].numpy(), whole[1])
    assert np.array_equal(x[1:, :].numpy(), whole[1:])
    assert np.array_equal(x[2][1, 2:4].numpy(), whole[2][1, 2:4])
    assert np.array_equal(x[2].detach().reshape(2, 10)[1].numpy(), whole[2].reshape(2, 10)[1])
    assert x[2, 3, 4].item() == whole[2, 3, 4]
    assert x[:0].tolist() == []
    assert GlobalCounters.kernel_count == before
    assert np.array_equal(x[:, 1].numpy(), whole[:, 1])
    assert np.array_equal(x.flip(0)[1].numpy(), whole[::-1][1])
    assert GlobalCounters.kernel_count == before + 2
    x[1] = 7.0
    assert x[1, 1, 1].item() == 7
    assert x.half()[2, 0, 0].item() == whole[2, 0, 0]


def test_a_recorded_training_after_eager_steps_is_right() -> None:
    layer = nn.Linear(3, 3)
    x = data(2, 3)
    eager = [layer(x).realize().numpy() for _ in range(3)]
    recorded = TinyJit(lambda x: layer(x).realize())
    for _ in range(4):
        assert np.array_equal(recorded(x).numpy(), eager[0])
    assert np.array_equal(eager[1], eager[2])
    assert RUNS is not None


def test_a_known_run_that_fails_leaves_the_value(monkeypatch: pytest.MonkeyPatch) -> None:
    x = data(4, 4)
    (x + 1).realize()
    y = x + 1

    def fail(*_: Any) -> None:
        raise MemoryError("none left")

    with monkeypatch.context() as patch:
        patch.setattr(known_runs, "allocate", fail)
        with pytest.raises(MemoryError, match="none left"):
            y.realize()
    assert np.array_equal(y.numpy(), x.numpy() + 1)


def test_random_numbers_are_drawn_by_a_known_run_unless_another_tensor_keeps_them(
    again: list[UOp],
) -> None:
    waiting = Tensor.rand(10, 10)  # does not keep others from being known
    for k in range(3):
        assert 0 <= Tensor.rand(9, 9).realize().min().item() < 1
        assert len([node for node in again if node.shape == (9, 9)]) == k
    for _ in range(3):
        drawn = Tensor.rand(9, 9)
        twice = (drawn * 2).realize()  # which draws the numbers that `drawn` has from then on
        assert np.array_equal(twice.numpy(), drawn.numpy() * 2)
    assert np.array_equal((waiting * 2).numpy(), waiting.numpy() * 2)


def test_a_kernel_that_reads_parts_is_known(again: list[UOp]) -> None:
    x = data(16, 16)
    for k in range(3):
        assert np.array_equal(x.roll(1, 0).realize().numpy(), np.roll(x.numpy(), 1, 0))
        assert len(again) == k


def test_a_long_loop_over_slices_is_a_known_run(again: list[UOp]) -> None:
    """Of more than 1000 nodes, over memory that is written to and exchanged between the calls; earlier results stay."""
    x, weight, held = data(130, 2, 4), data(4, 4, seed=1), []
    for k in range(5):
        if k == 2:
            x.assign(x + 1)
        if k == 3:
            x = data(130, 2, 4, seed=2)
        state, expected = Tensor.zeros(2, 4), np.zeros((2, 4), np.float32)
        for t in range(130):
            state = (state @ weight + x[t])[:, :4].clip(-9, 9)
            expected = np.clip(expected @ weight.numpy() + x[t].numpy(), -9, 9)
        assert len(state.uop.toposort()) > 1000
        held.append((state.realize(), expected))
        assert (k == 0) is not (held[-1][0].uop in again)
    for found, wanted in held:
        np.testing.assert_array_equal(found.numpy(), wanted)


def test_results_together_again_are_right_where_one_reads_another_or_is_a_view() -> None:
    x = Tensor([1.0, 2.0, 3.0, 4.0]).realize()
    for k in range(4):
        a = x + 1
        b, same, part = a * 2, x + 1, x[1:3]
        Tensor.realize(a, b)  # b reads a
        Tensor.realize(same, x + 1)  # two of one node
        Tensor.realize(part, x * 3)  # a view of memory beside what is to be computed
        found = [t.tolist() for t in (a, b, same, part)]
        first = 1.0 + k
        assert found == [[first + 1, 3, 4, 5], [2 * first + 2, 6, 8, 10], found[0], [2, 3]]
        x[0] = first + 1
        assert part.realize().tolist() == [2, 3] and x.realize().tolist() == [first + 1, 2, 3, 4]


def test_what_was_assigned_together_is_known(again: list[UOp]) -> None:
    a, b = data(4, seed=1), data(4, seed=2)
    for k in range(4):
        before, reader = a.numpy(), a * 3
        expected = before + b.numpy(), b.numpy() * 2
        a.assign(a + b)
        b.assign(b * 2)
        Tensor.realize(a, b)
        assert (k == 0) is not (a.uop in again)
        np.testing.assert_array_equal(reader.numpy(), before * 3)
        np.testing.assert_array_equal([a.numpy(), b.numpy()], expected)


def test_a_view_that_was_written_through_is_computed_when_it_is_realized() -> None:
    x = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
    row = x[0].realize()
    row.assign(Tensor([5.0, 6.0]))
    assert row.realize().tolist() == [5, 6] and x.tolist() == [[5, 6], [3, 4]]


def test_a_constant_that_was_computed_stays_a_constant() -> None:
    """Its node is that of all such constants, on each device: a buffer in its place would be one that others write to, or far away."""
    x = Tensor([1.0, 2.0, 3.0]).realize()
    seven = (x * 7).uop.src[1]
    canonical.note_computed(seven, x.uop)
    assert seven not in canonical.COMPUTED
    for k in range(4):
        x[k % 3] = 7.0
        assert x.realize().tolist()[k % 3] == 7
    assert (Tensor([1.0, 2.0], device="REFERENCE") * 7).tolist() == [7, 14]


@pytest.mark.parametrize("order", [range(30), range(29, -1, -1), [*range(0, 30, 7)] * 3], ids=str)
def test_a_loop_over_many_lengths_is_known_in_its_second_round(
    order: Sequence[int], again: list[UOp]
) -> None:
    """All are runs of one kind: one element, of a graph that ends as the others do."""
    x = data(31, 4)
    for k in range(30):
        (x[: k + 1].contiguous() * 2).sum().realize()
    again.clear()
    for k in order:
        wanted = (x.numpy()[: k + 1] * 2).sum()
        np.testing.assert_allclose((x[: k + 1].contiguous() * 2).sum().realize().numpy(), wanted, rtol=1e-5)  # fmt: skip
    assert len(again) == len(order)


def test_the_oldest_runs_of_a_kind_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs_of_a_kind, "MANY", 3)
    runs = [KeptRun.__new__(KeptRun) for _ in range(4)]
    kind: RunsOfAKind[KeptRun] = RunsOfAKind()
    for run in runs:
        run.nodes = 1
        kind.add(run)
        kind.note(run)
    assert kind.runs == runs[:0:-1] and runs[0] not in list(kind.likely())
    for run in runs[1:] * 2:
        kind.note(run)
    assert next(iter(kind.likely())) is runs[1]  # as after the last of them before
    monkeypatch.setattr(runs_of_a_kind, "NODES", 2)
    monkeypatch.setattr(runs_of_a_kind, "FEW", 1)
    kind.add(runs[0])
    assert kind.runs == [runs[0], runs[3]]


def test_of_many_sources_each_is_looked_at() -> None:
    """Sums over the same five places, of which some are the same Tensor: each pattern is another graph."""
    parts = [Tensor(np.full(3, k, np.float32)).realize() for k in range(4)]
    rng = np.random.default_rng(5)
    for _ in range(60):
        chosen = rng.integers(0, 4, 5)
        factors = rng.integers(0, 2, 5)
        values = [parts[k] * 2 if double else parts[k] for k, double in zip(chosen, factors)]
        found = Tensor.cat(*values).sum(0) + Tensor.cat(*values)[::3]
        expected = np.repeat(chosen * (1 + factors), 3).astype(np.float32)
        assert (found.realize().numpy() == expected.sum() + expected[::3]).all()


def test_a_deep_network_steps_as_before_where_its_gradients_share_their_sources() -> None:
    rng = np.random.default_rng(6)
    numbers = [rng.normal(size=(6, 6)).astype(np.float32) / 3 for _ in range(9)]
    weights = [Tensor(n).realize() for n in numbers]
    x = Tensor(rng.normal(size=(4, 6)).astype(np.float32)).realize()
    steps = []
    for rows in (weights, [*weights[:4], weights[3], *weights[5:]], weights, weights[::-1]):
        y = x
        for w in rows:
            y = (y + (y @ w).tanh()) * 0.5
        gradients = (y * y).sum().gradient(*weights[:3])
        Tensor.realize(*gradients)
        steps.append([g.numpy() for g in gradients])
    assert all([(a == b).all() for a, b in zip(steps[0], steps[2])])
    for rows, found in ((1, steps[1]), (3, steps[3])):
        assert any([(a != b).any() for a, b in zip(steps[0], found)]), rows
