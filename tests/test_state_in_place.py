"""Replays that write to state: it is looked for once, and asked at each replay only who else holds it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from proofgrad import Tensor, TinyJit, nn
from proofgrad.core.tensor.jit import replay
from proofgrad.core.tensor.runtime.memory import buffer_below, memory_of, twin


def count_searches(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What `memory_to_write` is asked for from now on."""
    asked: list[Any] = []
    find = replay.memory_to_write

    def noted(holder: Any, *rest: Any) -> tuple[Any, bool]:
        asked.append(holder)
        return find(holder, *rest)

    monkeypatch.setattr(replay, "memory_to_write", noted)
    return asked


def test_state_that_stays_where_it_is_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHECK", "0")  # checked runs are no known ones
    gradients = [Tensor.ones(size).contiguous().realize() for size in (1, 3, 7)]
    for _ in range(3):  # the first call of the second one is a known run, whose results are kept
        params = [Tensor.ones(size).contiguous().realize() for size in (1, 3, 7)]
        optimizer = nn.optim.Adam(params, lr=0.5)

        @TinyJit
        def step(params: Any = params, optimizer: Any = optimizer) -> None:
            with Tensor.train():
                for param, gradient in zip(params, gradients):
                    param.grad = gradient
                optimizer.step()

        for _ in range(3):
            step()
        places = [memory_of(buffer_below(param._uop)).address for param in params]
        with monkeypatch.context() as patch:
            asked = count_searches(patch)
            for _ in range(5):
                step()
        assert asked == []
        assert places == [memory_of(buffer_below(param._uop)).address for param in params]
        assert [round(p.tolist()[0], 3) for p in params] == [-3.0] * 3


@pytest.mark.parametrize("shape", [(2,), (2, 1)])
def test_whoever_takes_hold_of_state_between_replays_keeps_the_old_value(
    shape: tuple[int, ...],
) -> None:
    count = Tensor([1.0, 2.0]).reshape(shape).contiguous().realize()

    @TinyJit
    def double() -> None:
        count.assign(count + count)

    held = []
    for k in range(9):
        double()
        if k > 3:
            held.append([count.detach(), count.reshape(-1), count._uop, count._uop.src][k % 4])
    views = [found for found in held if isinstance(found, Tensor)]
    assert [view.reshape(-1).tolist() for view in views] == [
        [32.0, 64.0],
        [64.0, 128.0],
        [512.0, 1024.0],
    ]
    assert count.reshape(-1).tolist() == [512.0, 1024.0]


def test_state_in_other_memory_is_found_again() -> None:
    count, other = Tensor([1.0]).realize(), Tensor([100.0]).realize()

    @TinyJit
    def add() -> None:
        count.assign(count + 1)

    for _ in range(4):
        add()
    count.replace(other)
    add()
    assert (count.item(), other.item()) == (101.0, 100.0)
    add()
    assert (count.item(), other.item()) == (102.0, 100.0)


def test_two_that_share_memory_since_the_last_replay_get_one_each() -> None:
    one, two = Tensor([1.0]).realize(), Tensor([2.0]).realize()

    @TinyJit
    def add() -> None:
        one.assign(one + 1)
        two.assign(two + 10)

    for _ in range(4):
        add()
    two.replace(one)
    for _ in range(3):
        add()
    assert (one.item(), two.item()) == (8.0, 35.0)


def counted_four_times() -> tuple[Tensor, TinyJit[None]]:
    """State, and a recorded function that has added 1 to it at each of four calls."""
    count = Tensor([1.0, 5.0]).realize()

    @TinyJit
    def add() -> None:
        count.assign(count + 1)

    for _ in range(4):
        add()
    return count, add


def test_an_array_over_state_is_written_to_no_more() -> None:
    count, add = counted_four_times()
    array = np.from_dlpack(count)
    add()
    assert (array.tolist(), count.tolist()) == ([5.0, 9.0], [6.0, 10.0])


def test_another_buffer_over_the_memory_of_state_keeps_its_value() -> None:
    count, add = counted_four_times()
    other = count._with(twin(count._uop))
    add()
    assert (other.tolist(), count.tolist()) == ([5.0, 9.0], [6.0, 10.0])
