"""Tasks shared out over copies of this process.

Owns: forking, who does which task, what comes back, that no copy outlives the block. Does not own: what the tasks are, and
whether they are worth it (compiler.py).

A copy has all that this process has, so nothing is sent to it; what it makes comes back as bytes in a file. Tasks wait as numbers in a
pipe, from which everybody takes the next few until it is empty. What a copy took and did not give back, because it failed, was
ended or hangs, is done here once more: so an error is raised where it always is, and the worst that a copy can do is nothing.
Locks that other threads hold would stay locked in a copy for ever; so a program that has other threads is not copied.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import IO, Any, Self

# How the names of threads begin that hold no lock of Python while they wait.
OUR_THREADS = "proofgrad-"
# What a copy has left to do once no task waits takes it less than all of them took this process, or a second.
LEAST_PATIENCE_SECONDS = 1.0
_RUNS = 128  # at least so many runs of tasks wait, so that all end at about the same time
_NUMBER_BYTES = 4
_LENGTH_BYTES = 8


def may_be_copied() -> bool:
    """Whether a copy of this process can go on: it has no threads but ours."""
    here = threading.current_thread()
    others = [thread for thread in threading.enumerate() if thread is not here]
    return sys.platform == "linux" and all(x.name.startswith(OUR_THREADS) for x in others)


class Copies:
    """`with Copies(tasks, count, make) as copies`: the numbers below `tasks` shared out over this process and `count` copies.

    Each number is given by `for number in copies.left()`, to be done here, or is in `copies.made` at the end of
    that loop with what `make(number)` gave in a copy.
    """

    def __init__(self, tasks: int, count: int, make: Callable[[int], object]) -> None:
        self.made: dict[int, Any] = {}
        self._tasks, self._count, self._make = tasks, count, make
        self._run = 1 + tasks // _RUNS
        self._queue = -1
        self._copies: list[_Copy] = []

    def __enter__(self) -> Self:
        self._queue, end = os.pipe()
        firsts = range(0, self._tasks, self._run)
        os.write(end, b"".join([first.to_bytes(_NUMBER_BYTES, "little") for first in firsts]))
        os.close(end)
        try:
            while len(self._copies) < self._count:
                self._copies.append(_Copy(self._serve))
        except OSError:  # no room for a copy, or none is allowed: those that there are do all
            return self
        except BaseException:
            self._end()
            raise
        return self

    def left(self) -> Iterator[int]:
        """The tasks that are to be done here, those last that no copy has done."""
        begun, here = time.monotonic(), set()
        for number in self._taken():
            here.add(number)
            yield number
        patience = max(LEAST_PATIENCE_SECONDS, time.monotonic() - begun)
        for copy in self._copies:
            self.made.update(copy.wait(patience))
        yield from [k for k in range(self._tasks) if k not in here and k not in self.made]

    def _taken(self) -> Iterator[int]:
        """Tasks from the queue. Who reads a few bytes of a pipe gets all of them, and alone."""
        while number := os.read(self._queue, _NUMBER_BYTES):
            first = int.from_bytes(number, "little")
            yield from range(first, min(first + self._run, self._tasks))

    def _serve(self, results: IO[bytes]) -> None:
        """What a copy does, until no task is left."""
        parent = os.getppid()
        for number in self._taken():
            if os.getppid() != parent:  # nobody waits any more
                return
            try:
                made = pickle.dumps((number, self._make(number)))
            except Exception:  # noqa: BLE001  (raised again by who asked, who does it once more)
                continue
            results.write(len(made).to_bytes(_LENGTH_BYTES, "little") + made)
            results.flush()

    def _end(self) -> None:
        for copy in self._copies:
            copy.end()
        os.close(self._queue)

    def __exit__(
        self, kind: type[BaseException] | None, _: object, __: TracebackType | None
    ) -> None:
        self._end()


class _Copy:
    """A copy of this process that serves and ends. Raises: OSError where there can be none."""

    def __init__(self, serve: Callable[[IO[bytes]], None]) -> None:
        with contextlib.ExitStack() as opened:
            self._results = opened.enter_context(tempfile.TemporaryFile())
            self._ended, held = os.pipe()  # the other end is closed when the copy ends
            opened.callback(os.close, self._ended)
            try:
                self._process = _forked(lambda: serve(self._results))
            finally:
                os.close(held)
            self._closing = opened.pop_all()

    def wait(self, seconds: float) -> dict[int, Any]:
        """What it made, once it has ended, or has not for so long."""
        select.select([self._ended], [], [], seconds)
        self._stop()
        self._results.seek(0)
        made: dict[int, Any] = {}
        while length := self._results.read(_LENGTH_BYTES):
            size = int.from_bytes(length, "little")
            data = self._results.read(size)
            if len(length) < _LENGTH_BYTES or len(data) < size:  # it was stopped while it wrote
                break
            # Of our own copy: the file has no name by which others write to it.
            number, value = pickle.loads(data)
            made[number] = value
        return made

    def end(self) -> None:
        """Nothing of it is left."""
        self._stop()
        self._closing.close()

    def _stop(self) -> None:
        with contextlib.suppress(ChildProcessError):  # it was waited for, here or by the program
            if os.waitpid(self._process, os.WNOHANG) == (0, 0):
                os.kill(self._process, signal.SIGKILL)
                os.waitpid(self._process, 0)


def _forked(work: Callable[[], None]) -> int:
    """The number of a copy of this process that does some work, says nothing and ends. It gets no signals: who waits for it ends it."""
    usual = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # of libraries whose threads a copy lacks; it calls none
            process = os.fork()
            if process == 0:
                try:
                    work()
                finally:
                    os._exit(0)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, usual)
    return process
