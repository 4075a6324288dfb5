"""What is computed a second time is kept; a loop over large values that asks for what is made of them, and never for them, is told so once."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import pytest

from proofgrad import Tensor
from proofgrad.core.tensor.runtime import computed_again
from proofgrad.core.tensor.runtime import realize as machine
from proofgrad.core.tensor.runtime.canonical import computed, is_not_computed
from proofgrad.core.tensor.runtime.counters import GlobalCounters

TOLD = "computed again what the one before had computed"


@pytest.fixture(autouse=True)
def short_loops(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """8 nodes are a long run, and 3 such runs a loop."""
    monkeypatch.setattr(computed_again, "LEAST_NODES", 8)
    monkeypatch.setattr(computed_again, "MOST_RUNS", 3)
    monkeypatch.setattr(computed_again, "_LAST", computed_again._Runs())
    yield


def told(steps: int, keeps: bool) -> list[warnings.WarningMessage]:
    x = Tensor.ones(3).contiguous().realize()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for k in range(steps):
            x = (x * (2.5 + k)).sin() + 1.0
            if keeps:
                x.realize()
            assert x.sum().item() == x.sum().item()
    return [w for w in found if TOLD in str(w.message)]


def test_what_a_loop_carries_and_never_keeps_is_named_at_its_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(computed_again, "VALUE_BYTES", 11)  # of less than there are
    (warning,) = told(40, keeps=False)
    assert warning.filename == __file__ and ".realize()" in str(warning.message)


def test_what_is_kept_and_a_short_loop_are_no_matter() -> None:
    assert not told(40, keeps=True)
    assert not told(40, keeps=False)
    assert not told(3, keeps=False)


def test_other_runs_are_not_counted() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for k in range(6):
            x = Tensor.ones(2 + k).contiguous().realize()
            for _ in range(5):
                x = (x * 1.5).exp2() + 0.5
            x.realize()


# -- what is kept ---------------------------------------------------------------------------------


def operations(x: Tensor) -> int:
    """How many nodes a run of `x` would compute, and those it would read."""
    return len(x._uop.toposort(is_not_computed))


@pytest.mark.parametrize("shape", [(3,), (1,), (7, 5), ()], ids=str)
@pytest.mark.usefixtures("checked_runs")
def test_each_value_of_a_loop_is_computed_twice_at_most(shape: tuple[int, ...]) -> None:
    x, y = Tensor.ones(*shape).contiguous().realize(), np.ones(shape, "float32")
    counts = []
    for _ in range(12):
        x, y = (x * 0.25 + 0.5) * x, (y * np.float32(0.25) + np.float32(0.5)) * y
        counts.append(operations(x))
        np.testing.assert_allclose(x.sum().item(), y.sum(), rtol=1e-4)
    assert len(set(counts[2:])) == 1
    np.testing.assert_allclose(x.numpy(), y, rtol=1e-4)


@pytest.mark.usefixtures("fresh_runs")
def test_runs_of_a_loop_are_known_from_its_third_step_on(monkeypatch: pytest.MonkeyPatch) -> None:
    x, slow = Tensor([1.0, 2.0, 3.0]).realize(), []
    run = machine._run
    monkeypatch.setattr(machine, "_run", lambda *args: slow.append(1) or run(*args))
    for _ in range(12):
        x = x * 0.5 + 1.0
        x.sum().item()
    assert len(slow) <= 3


@pytest.mark.usefixtures("fresh_runs")
def test_several_values_are_kept_in_one_run() -> None:
    """As in conjugate gradients, which asks for the length of a residual alone."""
    a = np.diag(np.arange(1, 7)).astype("float32") + np.float32(0.1)
    matrix, b = Tensor(a).realize(), Tensor.ones(6).contiguous().realize()
    x, r, p = b * 0, b, b
    rs = (r * r).sum()
    counts = []
    for _ in range(5):
        q = matrix @ p
        step = rs / (p * q).sum()
        x, r = x + step * p, r - step * q
        new = (r * r).sum()
        counts.append(operations(new))
        new.item()
        p, rs = r + new / rs * p, new
    assert max(counts[3:]) <= counts[2]
    np.testing.assert_allclose(x.numpy(), np.linalg.solve(a, np.ones(6)), atol=1e-2)


@pytest.mark.usefixtures("fresh_runs")
def test_a_gradient_passes_through_what_was_kept() -> None:
    w = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    x = w * 1.0
    for _ in range(4):
        x = x * w
        x.sum().item()
    x.sum().backward()
    assert w.grad is not None
    np.testing.assert_allclose(w.grad.numpy(), 5 * np.array([1.0, 16, 81]), rtol=1e-5)


@pytest.mark.usefixtures("fresh_runs")
def test_a_write_leaves_what_was_kept_as_it_was() -> None:
    x = Tensor([1.0, 2.0]).realize()
    y = x * 2 + 1
    for _ in range(3):
        y.sum().item(), y.max().item()
    z = y + 1
    x.assign(Tensor([5.0, 6.0])).realize()
    y.assign(Tensor([7.0, 8.0])).realize()
    assert z.tolist() == [4.0, 6.0] and y.tolist() == [7.0, 8.0] and x.tolist() == [5.0, 6.0]


@pytest.mark.usefixtures("fresh_runs")
def test_data_and_values_beyond_the_limit_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = Tensor([1.0, 2.0, 3.0]).realize(), Tensor([2.0, 3.0, 4.0], requires_grad=True)
    monkeypatch.setattr(computed_again, "_KEPT", computed_again._Kept())
    monkeypatch.setattr(computed_again, "ALL_BYTES", 24)
    held = [x * w + k for k in range(4)]
    for y in held:
        y.sum().item(), y.prod().item()
    assert computed(w._uop) is w._uop
    assert [computed(y._uop) is not y._uop for y in held].count(True) <= 2
    del held, y
    z = x * w
    z.sum().item(), z.prod().item()
    assert computed(z._uop) is not z._uop  # those before are gone, and so is what they took


def test_what_is_kept_takes_no_kernel_of_its_own_again() -> None:
    x = Tensor([1.0, 2.0, 3.0]).realize()
    y = (x * 1.5).sin().sum() + x
    for function in (Tensor.sum, Tensor.max, Tensor.min):
        GlobalCounters.reset()
        function(y).item()
    assert GlobalCounters.kernel_count == 1


def test_what_is_kept_is_in_the_order_of_the_graph() -> None:
    x = Tensor.ones(3).contiguous().realize()
    values = [(x + float(k)).exp() for k in range(computed_again.MOST_VALUES)]
    computed_again.note_run([value.uop for value in values])
    order = [3, 0, 7, 5, 1, 6, 4, 2]
    of_all = sum([values[k].sin() for k in order[1:]], values[order[0]].sin())
    assert computed_again.values_to_keep([of_all.uop]) == [values[k].uop for k in order]


def test_the_second_step_of_a_loss_with_data_subtracted_is_planned_as_the_first() -> None:
    x, wanted = Tensor([[1.0, 2.0], [3.0, 5.0]]).realize(), Tensor([[0.5], [1.5]]).realize()
    weight = Tensor([[0.1], [0.2]], requires_grad=True).realize()
    plans, losses = [], []
    for _ in range(3):
        loss = ((x @ weight - wanted) ** 2).mean()
        loss.backward()
        assert weight.grad is not None
        weight.assign(weight.detach() - 0.01 * weight.grad).realize()
        weight.grad = None
        losses.append(loss.item())
        plans.append(len(machine.compiler()._plans))
    assert plans[0] == plans[1] == plans[2]
    assert losses[0] > losses[1] > losses[2]


def test_what_is_negated_again_and_again_is_kept_on_the_way() -> None:
    x = start = Tensor([1.0, -2.0, 3.0]).realize()
    for k in range(12):
        x = -x
        assert x.sum().item() == (2.0 if k % 2 else -2.0)
    nodes = [n for n in computed(x._uop).toposort(is_not_computed) if n is not start._uop]
    assert len([n for n in nodes if n.op.name == "NEG"]) <= 3
