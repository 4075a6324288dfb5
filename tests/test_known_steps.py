"""Runs of several results, and of writes to Tensors, that were done before: small ones are known, and give what first runs give."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from proofgrad import Context, Tensor, TinyJit, nn
from proofgrad.core.tensor.runtime.known_runs import KnownRun

pytestmark = pytest.mark.usefixtures("checked_runs")


@pytest.fixture
def again(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many results each run that was known gave."""
    found: list[int] = []
    run = KnownRun.run

    def noted(self: KnownRun, *given: Any) -> Any:
        nodes = run(self, *given)
        found.append(len(nodes))
        return nodes

    monkeypatch.setattr(KnownRun, "run", noted)
    return found


def data(*shape: int, seed: int = 0) -> Tensor:
    return Tensor(np.random.default_rng(seed).integers(-9, 9, shape).astype(np.float32)).realize()


PROGRAMS: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, ...]]] = {
    "two": lambda a, b: (a + b, a * b),
    "turned": lambda a, b: (a * b, a + b),
    "one in two shapes": lambda a, b: (a + b, (a + b).reshape(-1)),
    "one and itself": lambda a, b: (a + b, (a + b).detach()),
    "one of the other": lambda a, b: (a @ b, (a @ b).relu().sum(0)),
    "with an argument": lambda a, b: (a, a + b, b),
    "with a view": lambda a, b: (a.T, a + b, b * 2, a[1:]),
    "one buffer twice": lambda a, b: (a + a, b - a, a * b),
    "sorted": lambda a, b: a.sort(0),
    "factors": lambda a, b: (a + 30 * b * b).qr(),
    "of nothing": lambda a, b: (a[:0] + 1, a + 1),
    "constant": lambda a, b: (Tensor.eye(4), a + 1, a * b),
    "three kernels": lambda a, b: ((a @ b).softmax(-1), (b @ a).max(0), (a @ b @ a)),
}


def test_known_runs_of_several_results_give_what_first_runs_give(again: list[int]) -> None:
    held: list[tuple[Tensor, Any]] = []
    for turn in range(4):
        a, b = data(4, 4, seed=turn), data(4, 4, seed=turn + 9)
        for name, program in PROGRAMS.items():
            with Context(PLANS=0):
                expected = [
                    program(Tensor(a.numpy()), Tensor(b.numpy()))[k].numpy()
                    for k in range(len(program(a, b)))
                ]
            found = program(a, b)
            found[0].realize(*found[1:])
            for one, value in zip(found, expected):
                assert np.array_equal(one.numpy(), value, equal_nan=True), name
                held.append((one, value))
    assert sum([count > 1 for count in again]) >= 3 * 9
    assert all(np.array_equal(one.numpy(), value, equal_nan=True) for one, value in held)


def test_a_write_is_known(again: list[int]) -> None:
    x, step = data(4, 4), data(4, 4, seed=1)
    expected = x.numpy()
    for k in range(6):
        before = x * 1 if k % 2 else None  # a reader that was made before
        x.assign(x * 0.5 + step).realize()
        if before is not None:
            assert np.array_equal(before.numpy(), expected)
        expected = expected * np.float32(0.5) + step.numpy()
        assert np.array_equal(x.numpy(), expected)
    assert len(again) >= 4


def test_two_writes_that_read_each_other_are_known(again: list[int]) -> None:
    x, y = data(4), data(4, seed=1)
    first, second = x.numpy(), y.numpy()
    for _ in range(6):
        new_x, new_y = x + y.flip(0), y - x
        x.assign(new_x)
        y.assign(new_y)
        del new_x, new_y
        Tensor.realize(x, y)
        first, second = first + second[::-1], second - first
        assert np.array_equal(x.numpy(), first) and np.array_equal(y.numpy(), second)
    assert 2 in again


def test_tensors_of_one_buffer_are_written_apart(again: list[int]) -> None:
    for k in range(5):
        x = data(4, seed=k)
        whole, y, part = x.numpy(), x.reshape(2, 2).reshape(4), x[1:3]
        twin = Tensor(x)
        x.assign(x + 1)
        twin.assign(twin * 2)
        Tensor.realize(x, twin)
        assert np.array_equal(x.numpy(), whole + 1)
        assert twin.tolist() in ((whole * 2).tolist(), ((whole + 1) * 2).tolist())
        assert y.shape == (4,) and part.shape == (2,)


def test_values_that_are_held_stay_while_a_step_is_done_again(again: list[int]) -> None:
    x, held = data(4), []
    for _ in range(8):
        x.assign(x + 1)
        total = x.sum()
        Tensor.realize(x, total)
        held.append((x.numpy(), np.asarray(x), x.detach(), x.uop, total, x.numpy().sum()))
    assert len(again) >= 5
    for copied, shared, same, _, total, value in held:
        assert np.array_equal(copied, shared) and total.item() == value
        assert same.shape == (4,)
    assert [one[1][0] for one in held] == [held[0][1][0] + k for k in range(8)]


def test_threads_that_do_one_step_each_get_their_own_results() -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        x, w = data(6, 6, seed=seed), data(6, 6, seed=seed + 1)
        expected = x.numpy()
        for _ in range(25):
            x.assign((x + w).clip(-5, 5))
            total = (x @ w).sum(0)
            Tensor.realize(x, total)
            expected = np.clip(expected + w.numpy(), -5, 5)
            if not np.array_equal(x.numpy(), expected):
                wrong.append(seed)
            if not np.array_equal(total.numpy(), (expected @ w.numpy()).sum(0)):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_setting_that_changes_is_heeded(
    again: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = Tensor([1e-40, 1.0]).realize()
    for flush in ("0", "0", "1", "0"):
        monkeypatch.setenv("FLUSH", flush)
        y, z = x * 1.5, x + 1
        y.realize(z)
        assert z.tolist() == [1.0, 2.0] and (flush == "1" or y.tolist()[0] > 0)
    assert len(again) >= 1


def test_steps_of_a_model_are_known_and_can_be_recorded_after(again: list[int]) -> None:
    images, labels = data(24, 6), Tensor(np.arange(24) % 3).realize()

    def train(eager: int, recorded: int) -> list[Any]:
        Tensor.manual_seed(3)
        layers = [nn.Linear(6, 8), nn.Linear(8, 3)]
        optimizer = nn.optim.Adam(nn.state.get_parameters(layers), 0.01)

        def step(x: Tensor, y: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = layers[1](layers[0](x).relu()).cross_entropy(y).backward()
            return loss.realize(*optimizer.schedule_step())

        jitted, losses = TinyJit(step), []
        with Tensor.train():
            for k in range(eager + recorded):
                run = step if k < eager else jitted
                part = slice(8 * (k % 3), 8 * (k % 3) + 8)
                losses.append(run(images[part].contiguous(), labels[part].contiguous()).item())
        return [losses, *[p.numpy() for p in nn.state.get_parameters(layers)]]

    with Context(PLANS=0):
        expected = train(0, 8)
    for eager in (8, 4):
        for one, other in zip(train(eager, 8 - eager), expected):
            assert np.allclose(one, other, rtol=1e-5, atol=1e-6)
    assert max(again) > 10
