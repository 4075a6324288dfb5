"""Processes that share work: cases to prove, mutants to judge, goals to ask other solvers about.

Owns: sharing, what happens if a process dies or the user stops. Does not own: the work.

A worker whose parent is gone, killed or not, ends within some seconds, at once but for a call of a solver.
"""

from __future__ import annotations

import gc
import math
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from multiprocessing.context import ForkContext, SpawnContext

PARENT_SECONDS = 1.0  # between two looks whether the parent lives
INTERRUPT_SECONDS = (
    0.5  # Python does not see Ctrl-C between its last look and the beginning of a wait
)
Task = TypeVar("Task")
Found = TypeVar("Found")


class WorkerDied(RuntimeError):
    """A process ended before it had an answer. The message says what it may have worked on."""


class TimeIsUp(RuntimeError):
    """What was to be found until a time is not."""


class Workers:
    """Up to `count` processes, or this one alone, for use in a `with` statement.

    They start with the first work. An error in the statement ends them, whatever they are doing.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._pool: ProcessPoolExecutor | None = None
        self._processes: list[BaseProcess] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None:
            self._end()
            return
        with _interrupts_later():  # a second one, too: it would leave processes that nobody ends
            for process in self._processes:
                process.terminate()
            self._end()

    def _end(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def each(
        self,
        work: Callable[[Task], Found],
        tasks: Iterable[Task],
        told: Callable[[Task], str],
        until: float | None = None,
    ) -> Iterator[tuple[Task, Found]]:
        """Each task with what `work` finds for it, as it comes. `told`: a task in words, for errors.

        Tasks may be put into a deque while it is worked on.
        `until`: the time, of `time.monotonic`, after which nothing is found. Then all work is done by processes,
        which can be ended.

        Raises: WorkerDied, TimeIsUp, and what `work` raises.
        """
        waiting = tasks if isinstance(tasks, deque) else deque(tasks)
        running = dict[Future[Found], Task]()
        try:
            while waiting or running:
                if not seconds_left(until):
                    raise TimeIsUp
                if not running and until is None and (self._count == 1 or len(waiting) == 1):
                    task = waiting.popleft()
                    yield task, work(task)
                    continue
                while waiting and len(running) <= self._count:  # one waits, so that no process does
                    task = waiting.popleft()
                    running[self._submit(work, task)] = task
                for future in wait(running, INTERRUPT_SECONDS, FIRST_COMPLETED).done:
                    found = future.result()
                    yield running.pop(future), found
        except BrokenProcessPool:
            lost = [told(task) for future, task in running.items() if _is_lost(future)]
            raise WorkerDied(_message(lost)) from None

    def _submit(self, work: Callable[[Task], Found], task: Task) -> Future[Found]:
        if self._pool is not None:
            return self._pool.submit(work, task)
        with _interrupts_later():
            others = multiprocessing.active_children()
            self._pool = ProcessPoolExecutor(self._count, process_context(), _begin, (os.getpid(),))
            future = self._pool.submit(work, task)
            self._processes = [p for p in multiprocessing.active_children() if p not in others]
        return future


def seconds_left(until: float | None) -> float:
    """Until that time of `time.monotonic`: 0 when it has passed, without end if there is none."""
    return math.inf if until is None else max(0.0, until - time.monotonic())


def process_context() -> ForkContext | SpawnContext:
    """How processes are started: as copies of this one, which has read all rules, where the system can."""
    if os.name == "posix":
        return multiprocessing.get_context("fork")
    return multiprocessing.get_context("spawn")


def process_count() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Have Ctrl-C wait until the statement ends, where the system can; processes started in it never see one.

    Between the start of a process and the note of it, an interrupt would leave a process that nobody ends.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(parent: int) -> None:
    """Ctrl-C reaches every process of a terminal; the one that asked for the work ends the others.

    What lives now lives on: to look for garbage in it takes time, and copies memory that is shared.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.freeze()
    end_with(parent)


def end_with(parent: int) -> None:
    """Have this process end when its parent, which should end it, has ended without."""
    threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


def _is_lost(future: Future[Found]) -> bool:
    return not future.done() or isinstance(future.exception(), BrokenProcessPool)


def _message(lost: Sequence[str]) -> str:
    return (
        f"a process died while it worked on {' or on '.join(lost)}; systems end processes that take"
        " too much memory: try again, with fewer of them (`--jobs 1`)"
    )
