"""Programs in a process of their own: one that dies takes nothing with it.

Owns: the process, its memory, what stands for an answer if there is none. A worker is replaced after
some programs, so that what one leaves behind cannot add up, and where a machine failed: a GPU that a kernel
lost is lost to all that follow.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import tempfile
from multiprocessing.connection import Connection
from typing import Any, Protocol

from proofgrad.testing.fuzz.program import Program
from proofgrad.testing.fuzz.run import SECONDS, Outcome, check

PROGRAMS = 600  # of one worker
MEMORY_BYTES = 6 << 30  # of addresses, of which LLVM and threads ask for more than they use
PATIENCE = 30  # how much longer than its processor time a program may take on a busy machine


class Checker(Protocol):
    """What runs programs; tests have one without a process."""

    def check(self, program: Program) -> Outcome:
        """Run the program and compare its results with what it means."""

    def close(self) -> None:
        """Give back processes and files."""


class Here:
    """Programs in this very process."""

    def check(self, program: Program) -> Outcome:
        """Run the program in this process; it has to end by itself."""
        return check(program)

    def close(self) -> None:
        """There is nothing to give back."""
        pass


def serve(connection: Connection, cache: str) -> None:
    """Answer programs with outcomes until there is none."""
    os.environ["PROOFGRAD_CACHE"] = cache
    os.environ.setdefault("NUM_THREADS", "1")
    resource.setrlimit(
        resource.RLIMIT_AS, (MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1])
    )
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while True:
        try:
            program = connection.recv()
        except (EOFError, KeyboardInterrupt):
            return
        connection.send(check(program))


class Worker:
    """A process for programs, started when one is asked for."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._process: Any = None
        self._connection: Any = None
        self._answered = 0
        self._folder = tempfile.TemporaryDirectory(prefix="proofgrad-fuzz-")

    def check(self, program: Program) -> Outcome:
        """Run the program in the worker; one that does not answer in time, or dies, is a find."""
        if self._process is None or self._answered >= PROGRAMS:
            self._start()
        self._answered += 1
        self._connection.send(program)
        if not self._connection.poll(self._seconds * PATIENCE):
            self._stop()
            return Outcome("slow", "it did not stop, nor let itself be stopped", "slow")
        try:
            found: Outcome = self._connection.recv()
        except EOFError:
            self._process.join(10)
            code = self._process.exitcode
            self._stop()
            return Outcome("died", f"the process ended with {code}", f"died {code}")
        if found.is_of_machine:
            self._stop()
        return found

    def _start(self) -> None:
        self._stop()
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, self._folder.name), daemon=True)
        self._process.start()
        theirs.close()
        self._answered = 0

    def _stop(self) -> None:
        if self._process is not None:
            self._connection.close()
            self._process.kill()
            self._process.join()
            self._process = None

    def close(self) -> None:
        """End the process and delete its folder."""
        self._stop()
        self._folder.cleanup()
