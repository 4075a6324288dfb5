"""Loops hold nothing of the steps before: live nodes, buffers and Tensors are counted exactly.

The long measurement, with the memory of the process, is benchmarks/leaks.py.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any
from weakref import ref

import numpy as np
import pytest

from proofgrad import Tensor, TinyJit, nn
from proofgrad.core.compile.plan.bounded_cache import LARGE_NODES, MOST_LARGE, Newest
from proofgrad.core.ir import uop
from proofgrad.core.tensor.methods.base import TensorBase
from proofgrad.core.tensor.runtime import memory
from proofgrad.core.tensor.runtime.canonical import COMPUTED
from proofgrad.core.tensor.runtime.realize import compiler
from proofgrad.nn.optim import SGD, Adam
from proofgrad.nn.state import get_parameters


def held() -> tuple[int, ...]:
    """Nodes, buffers, remembered results, Tensors that take a gradient, Tensors."""
    gc.collect()
    tensors = [found for found in gc.get_objects() if type(found) is Tensor]
    tables = (uop._NODES, memory.MEMORY, COMPUTED, TensorBase._leaves, tensors)
    return tuple([len(table) for table in tables])


def holds_nothing(step: Callable[[int], Any], before: int = 6, steps: int = 12) -> bool:
    for number in range(before):
        step(number)
    first = held()
    for number in range(before, before + steps):
        step(number)
    return held() == first


class Network:
    def __init__(self) -> None:
        self.first, self.norm = nn.Linear(6, 8), nn.BatchNorm(8)
        self.last = nn.Linear(8, 3)

    def __call__(self, x: Tensor) -> Tensor:
        return self.last(self.norm(self.first(x)).relu().dropout(0.2))


def training(optimizer_of: Callable[[list[Tensor]], Any], recorded: bool) -> Callable[[int], Any]:
    network = Network()
    optimizer = optimizer_of(get_parameters(network))

    def step(x: Tensor, y: Tensor) -> Tensor:
        with Tensor.train():
            optimizer.zero_grad()
            loss = network(x).sparse_categorical_crossentropy(y)
            loss.backward()
            return loss.realize(*optimizer.schedule_step())

    run: Any = TinyJit(step) if recorded else step
    random = np.random.default_rng(0)

    def one(_: int) -> float:
        x, y = random.random((5, 6), np.float32), random.integers(0, 3, 5)
        return float(run(Tensor(x).realize(), Tensor(y).realize()).item())

    return one


@pytest.mark.parametrize("recorded", [False, True], ids=["eager", "recorded"])
@pytest.mark.parametrize("optimizer_of", [SGD, Adam])
def test_training_holds_nothing_of_the_steps_before(
    optimizer_of: Callable[[list[Tensor]], Any], recorded: bool
) -> None:
    assert holds_nothing(training(optimizer_of, recorded))


X = Tensor(np.random.default_rng(1).random((9, 4), np.float32)).realize()


def write(number: int) -> None:
    X[0:2] = float(number % 2)
    X.realize()


def count_up(_: int) -> None:
    global X
    X += 1
    X.realize()


def fail(_: int) -> None:
    with pytest.raises(ValueError):
        X @ X


LOOPS: dict[str, Callable[[int], Any]] = {
    "reading": lambda _: (X * 2 + 1).sum().item(),
    "writing": write,
    "in place": count_up,
    "choosing by integers": lambda _: X[Tensor([1, 2])].tolist(),
    "choosing by a mask": lambda _: X[X > 0.5].tolist(),
    "random numbers": lambda _: Tensor.rand(5).dropout(0.5).tolist(),
    "arrays in and out": lambda _: (Tensor(np.ones(4)) + 1).numpy(),
    "shared arrays": lambda _: (np.asarray(X), np.from_dlpack(X)),
    "gradients": lambda _: (X * X).sum().gradient(X)[0].realize(),
    "errors": fail,
}


@pytest.mark.parametrize("name", LOOPS)
def test_loop_holds_nothing_of_the_steps_before(name: str) -> None:
    assert holds_nothing(LOOPS[name])


def test_kernels_of_numbers_that_do_not_come_back_are_let_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plans, kernels = compiler()._plans, compiler()._kernels.by_body
    for table in (plans, kernels, compiler()._kernels.by_terms):
        monkeypatch.setattr(table, "most", len(table) + 3)
    x = Tensor([1.0, 2.0]).realize()
    (x * 0.4711).realize()
    (launch,) = [k.launch for k in next(reversed(kernels.values()))]
    gone = ref(launch)
    del launch
    for number in range(len(kernels) + 3):
        (x * (number + 0.1234)).realize()
    assert len(plans) <= plans.most and len(kernels) <= kernels.most
    gc.collect()
    assert gone() is None


def test_newest_entries_stay() -> None:
    seen: Newest[str, int] = Newest(2)
    seen["a"], seen["b"], seen["a"], seen["c"] = 1, 2, 3, 4
    assert dict(seen) == {"a": 3, "c": 4}


def test_few_entries_of_large_graphs_stay_beside_all_of_small_ones() -> None:
    seen: Newest[int, int] = Newest(100, lambda _, nodes: nodes)
    for number in range(60):
        seen[number] = LARGE_NODES + number % 2
    assert [number for number in seen if number % 2] == list(range(59 - 2 * MOST_LARGE + 2, 60, 2))
    assert len(seen) == 30 + MOST_LARGE
