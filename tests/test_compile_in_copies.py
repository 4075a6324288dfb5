"""Kernels made by copies of this process beside it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proofgrad import Device, Tensor, wiring
from proofgrad.core.compile import compiler as driver
from proofgrad.core.compile.in_copies import LEAST_KERNELS_OF_A_COPY, MOST_COPIES, copies_worth_it
from proofgrad.core.compile.machine.target import Binary, CompileError, Source
from proofgrad.core.compile.plan import copies as made_by
from proofgrad.core.compile.plan.copies import Copies, may_be_copied
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime import realize as machine

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="copies are made on Linux alone")

OF_OTHERS = set[str]()
SIZES = range(3, 40)  # more kernels than two copies are worth


def shared_out(
    tasks: int, make: Callable[[int], Any], count: int = 2, pause: float = 0.3
) -> tuple[list[int], dict[int, Any]]:
    """What was left to this process, which begins late, and what copies made."""
    here = []
    with Copies(tasks, count, make) as copies:
        time.sleep(pause)
        for number in copies.left():
            here.append(number)
        return here, copies.made


@pytest.fixture(autouse=True)
def children_of_others() -> None:
    """Processes that earlier tests have left, as the one that Python tracks shared memory in, are no copies."""
    OF_OTHERS.clear()
    OF_OTHERS.update(children())


def children() -> set[str]:
    """The processes that this one began, also those that ended and were not waited for."""
    begun = set[str]()
    for thread in Path("/proc/self/task").iterdir():
        with suppress(OSError):  # a thread that ends meanwhile has none any more
            begun.update((thread / "children").read_text().split())
    return begun


def has_no_children() -> bool:
    return children() <= OF_OTHERS


@pytest.mark.parametrize("tasks", [0, 1, 2, 127, 128, 129, 500])
def test_each_task_is_done_by_one_process(tasks: int) -> None:
    here, made = shared_out(tasks, lambda number: number * number)
    assert sorted([*here, *made]) == list(range(tasks))
    assert made == {number: number * number for number in made}
    assert bool(made) == bool(tasks)
    assert has_no_children()


def test_this_process_and_its_copies_take_from_one_queue() -> None:
    def make(number: int) -> int:
        time.sleep(0.02)
        return number

    here = []
    with Copies(60, 2, make) as copies:
        for number in copies.left():
            here.append(make(number))
        assert sorted([*here, *copies.made]) == list(range(60))
        assert here
        assert copies.made


def test_a_task_that_fails_in_a_copy_is_done_here() -> None:
    def make(number: int) -> int:
        if number % 5 == 3:
            raise ValueError(number)
        return number

    here, made = shared_out(20, make)
    assert here == [3, 8, 13, 18]
    assert sorted(made) == [k for k in range(20) if k % 5 != 3]


def test_what_cannot_be_sent_is_done_here() -> None:
    here, made = shared_out(4, lambda number: threading.Lock() if number == 2 else number)
    assert (here, made) == ([2], {0: 0, 1: 1, 3: 3})


def test_a_copy_that_is_ended_leaves_what_it_made() -> None:
    def make(number: int) -> int:
        if number == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    here, made = shared_out(20, make, count=1)
    assert sorted(made) == list(range(7))
    assert sorted(here) == list(range(7, 20))
    assert has_no_children()


def test_a_copy_that_hangs_is_ended_and_its_task_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made_by, "LEAST_PATIENCE_SECONDS", 0.1)
    begun = time.monotonic()
    here, made = shared_out(4, lambda number: time.sleep(3600) if number == 2 else number, count=1)
    assert (here[-1], sorted(made)) == (2, [0, 1])
    assert sorted([*here, *made]) == [0, 1, 2, 3]
    assert time.monotonic() - begun < 60
    assert has_no_children()


def test_half_a_result_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made_by, "LEAST_PATIENCE_SECONDS", 0.1)

    def make(number: int) -> Any:
        if number == 1:  # the length of a result, and not all of it
            own = made_by._LENGTH_BYTES
            os.write(results[0], (100).to_bytes(own, "little") + b"begun")
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    results: list[int] = []
    usual = made_by._forked

    def forked(work: Callable[[], None]) -> int:
        (cell,) = [c for c in work.__closure__ or () if isinstance(c.cell_contents, made_by._Copy)]
        results.append(cell.cell_contents._results.fileno())
        return usual(work)

    monkeypatch.setattr(made_by, "_forked", forked)
    here, made = shared_out(3, make, count=1)
    assert made == {0: 0}
    assert sorted(here) == [1, 2]


@pytest.mark.parametrize("member", ["fork", "pipe"])
def test_where_there_is_no_room_for_copies_all_is_done_here(
    monkeypatch: pytest.MonkeyPatch, member: str
) -> None:
    usual, calls = getattr(os, member), []

    def refused() -> Any:
        calls.append(member)
        if member == "pipe" and len(calls) == 1:  # the queue
            return usual()
        raise BlockingIOError(11, "Resource temporarily unavailable")

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, member, refused)
    here, made = shared_out(10, lambda number: number, pause=0.0)
    assert (here, made) == (list(range(10)), {})
    assert calls
    assert len(os.listdir("/proc/self/fd")) == before
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()


def test_no_copy_outlives_the_block_that_an_interrupt_ends() -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(KeyboardInterrupt), Copies(9, 3, lambda number: time.sleep(3600)):
        raise KeyboardInterrupt
    assert has_no_children()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_copy_gets_no_signals_and_this_process_as_before() -> None:
    with Copies(1, 1, lambda _: signal.pthread_sigmask(signal.SIG_BLOCK, [])) as copies:
        time.sleep(0.3)
        assert list(copies.left()) == []
        assert {signal.SIGINT, signal.SIGTERM} <= copies.made[0]
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == set()


def test_a_program_with_threads_of_its_own_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    here, end = threading.current_thread(), threading.Event()
    ours = threading.Thread(target=end.wait, name="proofgrad-1")
    theirs = threading.Thread(target=end.wait, name="loader")
    monkeypatch.setattr(made_by.threading, "enumerate", lambda: [here, ours])
    assert may_be_copied()
    monkeypatch.setattr(made_by.threading, "enumerate", lambda: [here, ours, theirs])
    assert not may_be_copied()


def test_how_many_copies_are_worth_it() -> None:
    assert copies_worth_it(LEAST_KERNELS_OF_A_COPY - 1, 64) == 0
    assert copies_worth_it(LEAST_KERNELS_OF_A_COPY, 64) == 1
    assert copies_worth_it(1000, 1) == copies_worth_it(0, 8) == copies_worth_it(1000, 0) == 0
    assert copies_worth_it(1000, 2) == 1
    assert copies_worth_it(1000, 64) == MOST_COPIES


# -- kernels ---------------------------------------------------------------------------------------


def tensors(scale: float) -> list[Tensor]:
    """A kernel each, and other ones for each scale."""
    numbers = [Tensor(np.arange(n, dtype=np.float32)).realize() for n in SIZES]
    return [(x * scale + 1).sum() for x in numbers]


def values(scale: float) -> list[float]:
    return [float((np.arange(n, dtype=np.float32) * scale + 1).sum()) for n in SIZES]


def graph(scale: float) -> UOp:
    return machine.graph_to_run([x._uop for x in tensors(scale)], "CPU")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many tasks each pair of copies was made for; there are cores, and no threads in the way."""
    found: list[int] = []

    def two(tasks: int, cores: int) -> int:
        found.append(tasks)
        return 2

    monkeypatch.setenv("CHECK", "0")
    monkeypatch.setattr(driver, "may_be_copied", lambda: True)
    monkeypatch.setattr(driver, "copies_worth_it", two)
    return found


def test_kernels_of_copies_are_those_of_one_process(
    asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler, wanted = wiring._compiler(), graph(2.5)
    monkeypatch.setenv("PARALLEL", "0")
    alone = compiler.plan(wanted)
    assert asked == []
    compiler.forget()
    monkeypatch.setenv("PARALLEL", "1")
    rewrites = compiler.library.journal.total
    plan = compiler.plan(wanted)
    assert asked == [len(SIZES)]
    kernels = [[step.kernel for step in p.steps if step.kernel is not None] for p in (alone, plan)]
    assert len(kernels[0]) == len(SIZES)
    for one, other in zip(*kernels, strict=True):
        assert one.source == other.source
        assert (one.slots, one.size, one.variables) == (other.slots, other.size, other.variables)
        assert (one.binary.entry, one.binary.data) == (other.binary.entry, other.binary.data)
    by_copies = [k for k in kernels[1] if k.source.program is None]  # which stays where it is made
    assert by_copies
    assert compiler.library.journal.total > rewrites
    assert compiler.library.journal.unproven == 0


def test_values_of_kernels_that_copies_made(asked: list[int]) -> None:
    found = tensors(1.25)
    Tensor.realize(*found)
    assert asked == [len(SIZES)]
    assert [x.item() for x in found] == pytest.approx(values(1.25), rel=1e-6)
    again = tensors(1.25)
    Tensor.realize(*again)  # the same kernels
    assert asked == [len(SIZES)]


def test_an_error_of_a_kernel_is_raised_here_and_the_next_run_goes_on(
    asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    cpu = type(Device["CPU"])

    def refuse(self: Any, source: Source) -> Binary:
        raise CompileError(f"refused: {source.entry}")

    found = tensors(1.75)
    with monkeypatch.context() as patch:
        patch.setattr(cpu, "compile", refuse)
        with pytest.raises(CompileError, match="refused"):
            Tensor.realize(*found)
    assert has_no_children()
    Tensor.realize(*found)
    assert [x.item() for x in found] == pytest.approx(values(1.75), rel=1e-6)


@pytest.mark.parametrize(
    "setting", [("PARALLEL", "0"), ("DEBUG", "1"), ("SPEC", "1"), ("CHECK", "1")]
)
def test_who_looks_at_kernels_has_them_all_made_here(
    setting: tuple[str, str],
    asked: list[int],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(*setting)
    found = tensors(2.25)
    Tensor.realize(*found)
    assert asked == []
    assert [x.item() for x in found] == pytest.approx(values(2.25), rel=1e-6)
    capfd.readouterr()


PROGRAM = """
import atexit, os
import numpy as np
from proofgrad import Tensor
print("begun", end=" ")
atexit.register(print, "ended")
calls, usual = [], os.fork
os.fork = lambda: calls.append(1) or usual()
x = [Tensor(np.arange(n, dtype=np.float32)).realize() for n in range(3, 40)]
y = [(t * 3).sum() for t in x]
Tensor.realize(*y)
print(len(calls), sum([t.item() for t in y]), end=" ")
"""


@pytest.mark.parametrize(("threads", "copies"), [(1, 0), (2, 1), (3, 2)])
def test_a_copy_prints_nothing_and_ends_nothing(threads: int, copies: int, tmp_path: Path) -> None:
    environment = {**os.environ, "PROOFGRAD_CACHE": str(tmp_path), "CHECK": "0"}
    environment["NUM_THREADS"] = str(threads)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
    )
    expected = sum([3 * n * (n - 1) / 2 for n in range(3, 40)])
    assert (done.stderr, done.stdout) == ("", f"begun {copies} {expected} ended\n")
