"""A recorded function that is called again with the arguments of the call before: it gives what any other call gives."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from proofgrad import Context, GlobalCounters, Tensor, TinyJit, profile
from proofgrad.core.tensor.jit.replay import Replay


@pytest.fixture(params=["0", "1"], ids=["unchecked", "checked"])
def looked_up(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[Replay]:
    """The replays that had to find out where things are."""
    monkeypatch.setenv("CHECK", request.param)
    found: list[Replay] = []
    run = Replay.run

    def noted(self: Replay, *given: Any) -> Any:
        found.append(self)
        return run(self, *given)

    monkeypatch.setattr(Replay, "run", noted)
    return found


def line(*values: float) -> Tensor:
    return Tensor([float(value) for value in values]).realize()


def recorded(function: Callable[..., Any], *args: Tensor) -> Any:
    jitted = TinyJit(function)
    for _ in range(4):  # it runs, is recorded, and makes its results
        jitted(*args)
    return jitted


def test_a_second_call_looks_nothing_up(looked_up: list[Replay]) -> None:
    x = line(1, 2)
    f = recorded(lambda x: ((x + 1) * 2).realize(), x)
    looked_up.clear()
    before = GlobalCounters.kernel_count
    assert [f(x).tolist() for _ in range(5)] == [[4, 6]] * 5
    assert not looked_up
    assert GlobalCounters.kernel_count == before + 5 * f.kernel_count


def test_results_keep_their_values(looked_up: list[Replay]) -> None:
    x = line(1, 2)
    f = recorded(lambda x: (x + 1, x.sum()), x)
    held = [f(x) for _ in range(6)]
    x.assign(line(5, 6)).realize()
    held += [f(x) for _ in range(6)]
    last = None
    for _ in range(5):
        last = f(x)  # while the one before is there
    assert [one.tolist() for one, _ in held] == [[2, 3]] * 6 + [[6, 7]] * 6
    assert [one.item() for _, one in held] == [3] * 6 + [11] * 6
    assert last is not None and last[0].tolist() == [6, 7]


def test_a_loop_that_holds_the_last_result_looks_nothing_up(looked_up: list[Replay]) -> None:
    x, seen = line(1, 2), []
    f = recorded(lambda x: x * 3, x)
    y = f(x)
    for _ in range(3):
        y = f(x)
    looked_up.clear()
    for _ in range(6):
        y = f(x)
        seen.append(y.tolist())
    assert seen == [[3, 6]] * 6
    assert not looked_up


def test_what_was_written_to_is_read_anew(looked_up: list[Replay]) -> None:
    x, w = line(1, 2), line(10, 20)
    f = recorded(lambda x: x + w, x)
    assert f(x).tolist() == [11, 22]
    w.assign(line(30, 40)).realize()
    assert f(x).tolist() == [31, 42]
    w += 1
    assert [f(x).tolist() for _ in range(3)] == [[32, 43]] * 3
    x[0] = 100
    assert [f(x).tolist() for _ in range(3)] == [[131, 43]] * 3


def test_other_arguments_come_between(looked_up: list[Replay]) -> None:
    a, b = line(1, 2), line(3, 4)
    f = recorded(lambda x, y: x - y, a, b)
    for _ in range(3):
        assert f(a, b).tolist() == [-2, -2]
        assert f(a, b).tolist() == [-2, -2]
        assert f(b, a).tolist() == [2, 2]
        assert f(a, a).tolist() == [0, 0]
        assert f(line(5, 5), a).tolist() == [4, 3]


def test_what_writes_is_no_such_call(looked_up: list[Replay]) -> None:
    x, total = line(1, 2), line(0, 0)

    def add(x: Tensor) -> Tensor:
        total.assign(total + x)
        return total * 2

    f = recorded(add, x)
    before = np.array(total.tolist())
    for k in range(1, 5):
        assert np.array_equal(f(x).numpy(), 2 * (before + k * np.array([1, 2])))
        assert np.array_equal(total.numpy(), before + k * np.array([1, 2]))


def test_settings_count(looked_up: list[Replay], capfd: pytest.CaptureFixture[str]) -> None:
    x = line(1, 2)
    f = recorded(lambda x: x + 1, x)
    looked_up.clear()
    with Context(DEBUG=2):
        assert f(x).tolist() == [2, 3]
        assert capfd.readouterr().err
    with profile() as report:
        f(x)
    assert [row.count for row in report.rows] == [1]
    assert len(looked_up) == 2
    with Context(JIT=0):
        assert f(x).tolist() == [2, 3]
    assert len(looked_up) == 2


def test_threads_have_results_of_their_own(looked_up: list[Replay]) -> None:
    x, wrong = line(1, 2), []
    f = recorded(lambda x: x * 2, x)

    def work(seed: int) -> None:
        own = line(seed, seed)
        for _ in range(60):
            if f(x).tolist() != [2, 4] or f(own).tolist() != [2 * seed] * 2:
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
