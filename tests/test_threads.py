"""Several threads of one process that make, differentiate and compute Tensors at the same time."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proofgrad import Device, Tensor
from proofgrad.backends.reference import ReferenceBackend


def test_a_thread_without_gradients_leaves_those_of_others() -> None:
    within, done = threading.Event(), threading.Event()

    def evaluates() -> None:
        with Tensor.no_grad():
            within.set()
            done.wait(30)

    thread = threading.Thread(target=evaluates)
    thread.start()
    try:
        assert within.wait(30)
        w = Tensor([3.0], requires_grad=True)
        assert (w * w).sum().gradient(w)[0].tolist() == [6.0]
        with Tensor.no_grad():  # ends after the other one has begun, and before it ends
            assert (w * 2).detach().tolist() == [6.0]
        done.set()
        thread.join()
        assert (w * w).sum().gradient(w)[0].tolist() == [6.0]
    finally:
        done.set()
        thread.join()


def test_threads_that_train_and_evaluate_each_keep_their_mode() -> None:
    trains, evaluates, seen = threading.Event(), threading.Event(), []

    def evaluation() -> None:
        seen.append(Tensor.training)  # that of the process
        with Tensor.test():
            evaluates.set()
            trains.wait(30)
            seen.append(Tensor.training)

    thread = threading.Thread(target=evaluation)
    with Tensor.train():
        thread.start()
        assert evaluates.wait(30) and Tensor.training
    trains.set()  # the first to enter is the first to leave
    thread.join()
    assert seen == [False, False] and not Tensor.training


def test_a_mode_that_is_set_is_that_of_all_threads_until_a_with_statement_ends() -> None:
    seen = []
    with Tensor.train():
        Tensor.training = False  # here, until the end of this block
        assert not Tensor.training
    Tensor.training = True
    thread = threading.Thread(target=lambda: seen.append(Tensor.training))
    thread.start()
    thread.join()
    assert seen == [True] and Tensor([1.0]).training
    del Tensor.training  # as monkeypatch does, to undo what it has set
    assert not Tensor.training


def test_asynchronous_tasks_of_one_thread_each_keep_their_mode() -> None:
    async def trains(begun: asyncio.Event, ended: asyncio.Event) -> None:
        with Tensor.train():
            begun.set()
            await ended.wait()

    async def both() -> bool:
        begun, ended = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(trains(begun, ended))
        await begun.wait()
        seen = Tensor.training
        ended.set()
        await task
        return seen

    assert asyncio.run(both()) is False


@contextmanager
def threads_beside(work: Callable[[int], None], count: int = 2) -> Iterator[list[BaseException]]:
    """`work(k)` again and again in other threads; gives the list of what they raise."""
    ended, raised = threading.Event(), []

    def loop(number: int) -> None:
        while not ended.is_set():
            try:
                work(number)
            except BaseException as error:  # noqa: BLE001  (told to who waits)
                raised.append(error)
                return

    threads = [threading.Thread(target=loop, args=(k,), daemon=True) for k in range(count)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        yield raised
    finally:
        ended.set()
        for thread in threads:
            thread.join(60)
        sys.setswitchinterval(before)


@pytest.mark.parametrize("kind", ["leaf", "random", "result"])
def test_gradients_are_found_while_other_threads_make_tensors(kind: str) -> None:
    make = {
        "leaf": lambda: Tensor([1.0], requires_grad=True),
        "random": lambda: Tensor.rand(100),
        "result": lambda: Tensor([1.0]) * 2,
    }[kind]
    many = [make() for _ in range(500)]

    def work(number: int) -> None:
        many[number::2] = [make() for _ in many[number::2]]

    with threads_beside(work) as raised:
        for _ in range(60):
            x = Tensor([2.0], requires_grad=True)
            (x * x).sum().backward()
            assert x.grad is not None
            x.grad.schedule()
    assert not raised
    assert x.grad.tolist() == [4.0]


FEW = """
import sys, threading
usual, begun = threading.Thread.start, []
def start(thread):
    if thread.name.startswith("proofgrad"):
        begun.append(thread)
        if len(begun) > int(sys.argv[1]):
            raise RuntimeError("can't start new thread")
    usual(thread)
threading.Thread.start = start
from proofgrad import Device, Tensor
Device["CPU"].parallel_instructions = 0
import numpy as np
for k in range(1, 6):
    a = (np.arange(300 * 20).reshape(300, 20) % 7 - 3).astype("float32") * k
    x = Tensor(a)
    print(((x @ x.T).numpy() == a @ a.T).all(), (x.sum(0).numpy() == a.sum(0)).all())
print(len(begun) > int(sys.argv[1]))
"""


@pytest.mark.parametrize("allowed", [0, 1, 2])
def test_a_process_that_may_have_few_threads_computes_with_those(
    allowed: int, tmp_path: Path
) -> None:
    environment = {
        **os.environ,
        "PROOFGRAD_CACHE": str(tmp_path),
        "NUM_THREADS": "4",
        "CHOICES": "threads=on",
    }
    done = subprocess.run(
        [sys.executable, "-c", FEW, str(allowed)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == {"True"}


def test_a_device_that_several_threads_use_first_is_opened_once() -> None:
    made: list[ReferenceBackend] = []

    class Slow(ReferenceBackend):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)
            time.sleep(0.05)  # as a driver takes to start

    Device.register("SLOWLY", Slow)
    found: list[object] = []

    def compute() -> None:
        found.append((Tensor([1.0, 2.0], "SLOWLY") + 1).tolist())

    threads = [threading.Thread(target=compute) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[2.0, 3.0]] * 4
    assert len(made) == 1


OPENS_IN_A_CHILD = """
import os, threading
from proofgrad import Device, Tensor
from proofgrad.backends.reference import ReferenceBackend

begun, ended = threading.Event(), threading.Event()

class Slow(ReferenceBackend):
    def __init__(self):
        super().__init__()
        begun.set()
        ended.wait()

Device.register("SLOWLY", Slow)
opening = threading.Thread(target=lambda: Device["SLOWLY"])
opening.start()
begun.wait()
child = os.fork()
if not child:
    assert (Tensor([1.0], "REFERENCE") + 1).tolist() == [2.0]
    os._exit(0)
_, status = os.waitpid(child, 0)
ended.set()
opening.join()
print(status)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked where there is os.fork")
def test_a_child_that_is_forked_while_a_device_is_opened_opens_its_own() -> None:
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", OPENS_IN_A_CHILD],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.stdout == "0\n", run.stderr
