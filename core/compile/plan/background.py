"""Kernels' texts compiled by another thread, while this one makes the next ones, where no copies of the process do (copies.py).

Owns: that thread, waiting for it, its errors. Does not own: what is compiled (compiler.py).

LLVM takes a third of the time of a first call and holds no lock of Python. But the thread takes that
lock for a moment after each of some ten calls a kernel, and would wait for it as long as Python lets the
other thread keep it: 5 ms, or a second in a hundred kernels. So Python is asked to hand it over sooner.
What waits when the thread is free is given to the machine's compiler together, of which some make one program.
The thread ends with the plan that it compiles for, so that no fork can find it at work.
"""

from __future__ import annotations

import itertools
import sys
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from proofgrad.core.compile.machine.target import Backend, Binary, Source

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor


# How long a thread keeps Python's lock while another one waits for it.
LOCK_SECONDS = 1e-4


class Background:
    """`with Background() as background`: what `background.compile` gives is compiled when the block ends.

    Raises: at the end, what the first text that cannot be compiled raises.
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._begun: list[Future[Binary]] = []
        self._waiting: deque[tuple[Backend, Source, Future[Binary]]] = deque()
        self._usual_seconds: float | None = None

    def __enter__(self) -> Self:
        # Else another thread compiles, and gives it back.
        if sys.getswitchinterval() > LOCK_SECONDS:
            self._usual_seconds = sys.getswitchinterval()
            sys.setswitchinterval(LOCK_SECONDS)
        return self

    def compile(self, backend: Backend, source: Source) -> Binary | Future[Binary]:
        """The binary of a text, later where the backend's compiler may run beside the rest."""
        if not backend.compiles_in_background:
            return backend.compile(source)
        from concurrent.futures import Future

        begun: Future[Binary] = Future()
        self._begun.append(begun)
        self._waiting.append((backend, source, begun))
        try:
            self._ask_thread()
        except RuntimeError:  # Python is ending, or no thread can be started
            self._compile_waiting()
        return begun

    def _ask_thread(self) -> None:
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(1, "proofgrad-compile")
        self._pool.submit(self._compile_waiting)

    def _compile_waiting(self) -> None:
        """What waits now, together; it is asked for once for each text, and may find nothing."""
        taken = [self._waiting.popleft() for _ in range(len(self._waiting))]
        for _, jobs in itertools.groupby(taken, lambda job: id(job[0])):
            _compile_together(list(jobs))

    def __exit__(
        self, kind: type[BaseException] | None, _: object, __: TracebackType | None
    ) -> None:
        if kind is not None:
            for _, _, later in self._waiting:
                later.cancel()
            self._waiting.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=kind is not None)
        if self._usual_seconds is not None:
            sys.setswitchinterval(self._usual_seconds)
        if kind is None:
            for future in self._begun:
                future.result()


def _compile_together(jobs: Sequence[tuple[Backend, Source, Future[Binary]]]) -> None:
    """The binaries of one machine's texts, each with an error of its own, or that of all of them: who waits for one is told."""
    try:
        made = jobs[0][0].compile_together([source for _, source, _ in jobs])
    except BaseException as error:
        for _, _, later in jobs:
            later.set_exception(error)
        return
    for _, _, later in jobs:
        try:
            later.set_result(next(made))
        except BaseException as error:
            later.set_exception(error)
