"""Processes that share work: cases to prove, mutants to judge, goals to ask other solvers about.

Owns: sharing, how long a task may take, what happens if a process dies or the user stops. Does not own: the work.

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
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

if TYPE_CHECKING:
    from multiprocessing.context import ForkContext, SpawnContext

PARENT_SECONDS = 1.0  # between two looks whether the parent lives
INTERRUPT_SECONDS = (
    0.5  # Python does not see Ctrl-C between its last look and the beginning of a wait
)
Task = TypeVar("Task")
Found = TypeVar("Found")


class WorkerDied(RuntimeError):
    """A process ended before it had an answer. The message says what it worked on."""


class TimeIsUp(RuntimeError):
    """What was to be found until a time is not."""


class Late(Enum):
    """What is found for a task that took longer than it might."""

    LATE = "late"


LATE = Late.LATE


class Workers:
    """Up to `count` processes, or this one alone, for use in a `with` statement.

    They start with the first work, and end with the statement, whatever they are doing.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._workers: list[_Worker] = []
        self._idle: list[_Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with _interrupts_later():  # a second one, too: it would leave processes that nobody ends
            while self._workers:
                self._end(self._workers[-1])

    def each(
        self, work: Callable[[Task], Found], tasks: Iterable[Task], told: Callable[[Task], str]
    ) -> Iterator[tuple[Task, Found]]:
        """Each task with what `work` finds for it, as it comes. `told`: a task in words, for errors.

        Tasks may be put into a deque while it is worked on. Raises: WorkerDied, and what `work` raises.
        """
        for task, found in self.each_in_time(work, tasks, told, None, lambda _: math.inf):
            assert not isinstance(found, Late)  # without a limit
            yield task, found

    def each_in_time(
        self,
        work: Callable[[Task], Found],
        tasks: Iterable[Task],
        told: Callable[[Task], str],
        until: float | None,
        most: Callable[[Task], float],
    ) -> Iterator[tuple[Task, Found | Late]]:
        """As `each`, until a time of `time.monotonic`, if there is one; then all work is done by processes, which can be ended.

        `most`: how many seconds a task may take there, asked when it begins; after them it is LATE.

        Raises: TimeIsUp, and as `each`.
        """
        waiting = tasks if isinstance(tasks, deque) else deque(tasks)
        running: list[_Running[Task]] = []
        while waiting or running:
            if not seconds_left(until):
                raise TimeIsUp
            if not running and until is None and (self._count == 1 or len(waiting) == 1):
                task = waiting.popleft()
                yield task, work(task)
                continue
            while waiting and len(running) < self._count:
                task = waiting.popleft()
                running.append(self._begun(work, task, told, time.monotonic() + most(task)))
            for one in _answered(running):
                running.remove(one)
                found = _answer(one, told)
                self._idle.append(one.worker)
                yield one.task, found
            for one in [one for one in running if not seconds_left(one.until)]:
                running.remove(one)
                self._end(one.worker)
                yield one.task, LATE

    def _begun(
        self, work: Callable[[Task], Found], task: Task, told: Callable[[Task], str], until: float
    ) -> _Running[Task]:
        """The task, given to a worker that does nothing, or to a new one."""
        worker = self._idle.pop() if self._idle else self._started()
        try:
            worker.connection.send((work, task))
        except OSError:  # nobody is there
            raise WorkerDied(_message(told(task))) from None
        return _Running(worker, task, until)

    def _started(self) -> _Worker:
        with _interrupts_later():
            here, there = process_context().Pipe()
            process = process_context().Process(target=_serve, args=(there, os.getpid()))
            process.start()
            self._workers.append(_Worker(process, here))
        there.close()  # so that what comes from the process ends when it does
        return self._workers[-1]

    def _end(self, worker: _Worker) -> None:
        worker.process.kill()
        worker.process.join()
        worker.connection.close()
        self._workers.remove(worker)


@dataclass(frozen=True, slots=True, eq=False)
class _Worker:
    """A process that does what comes through its connection."""

    process: BaseProcess
    connection: Connection


@dataclass(frozen=True, slots=True, eq=False)
class _Running(Generic[Task]):
    """What a worker is at, and until when, of `time.monotonic`, it may be."""

    worker: _Worker
    task: Task
    until: float


def _answered(running: Sequence[_Running[Task]]) -> list[_Running[Task]]:
    """Those that have an answer, or have ended, after a while at most."""
    soon = min([INTERRUPT_SECONDS, *[seconds_left(one.until) for one in running]])
    ready = wait([one.worker.connection for one in running], soon)
    return [one for one in running if one.worker.connection in ready]


def _answer(one: _Running[Task], told: Callable[[Task], str]) -> Any:
    try:
        is_found, answer = one.worker.connection.recv()
    except (EOFError, OSError):
        raise WorkerDied(_message(told(one.task))) from None
    if is_found:
        return answer
    raise answer


def _serve(connection: Connection, parent: int) -> None:
    """Do what comes, one task after another, as long as this process lives."""
    _begin(parent)
    while True:
        try:
            work, task = connection.recv()
        except EOFError:
            return
        try:
            answer = (True, work(task))
        except Exception as error:
            error.add_note(traceback.format_exc())  # of this process, which the other cannot see
            answer = (False, error)
        connection.send(answer)


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


def _message(lost: str) -> str:
    return (
        f"a process died while it worked on {lost}; systems end processes that take"
        " too much memory: try again, with fewer of them (`--jobs 1`)"
    )
