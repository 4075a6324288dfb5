"""Running a program's source: what it gives, how long it takes, what it raises.

Owns: settings for one program, the limits, which errors are refusals. Does not own: processes (worker.py).
"""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf, nan
from pathlib import Path
from typing import Any

from proofgrad import Device, JitError, Tensor, TinyJit, Variable
from proofgrad.core.compile.machine.target import CompileError, DeviceError
from proofgrad.testing.fuzz.compare import Seen, difference
from proofgrad.testing.fuzz.oracle import Meaningless
from proofgrad.testing.fuzz.program import Program, source_of

SECONDS = 10.0  # of the processor, for one program
# What valid programs may be answered with, by kind: documented limits.
REFUSALS: dict[str, tuple[tuple[type[Exception], str], ...]] = {
    "recorded": ((JitError, ""),),
    "writes": ((ValueError, "cannot write to this view"),),
    "variable": ((ValueError, "variable"),),
}
# And of every kind, on a machine that lacks a type.
OF_MACHINES: tuple[tuple[type[Exception], str], ...] = ((CompileError, "has no values of"),)


class TooSlow(BaseException):
    """A program needs more than its time. Not an Exception, so that nobody catches it on the way."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """`status`: "right", "wrong", "error", "slow", "died", "refused", "meaningless".

    `fault` names the class of what was found: two programs with one `fault` show the same thing, mostly.
    `is_of_machine`: a machine failed, which this process perhaps cannot use again.
    """

    status: str
    detail: str = ""
    fault: str = ""
    seconds: float = 0.0
    is_of_machine: bool = False

    @property
    def is_find(self) -> bool:
        """Whether it shows a fault."""
        return self.status in ("wrong", "error", "slow", "died")


def check(program: Program, seconds: float = SECONDS) -> Outcome:
    """Run the program and compare what it gives."""
    begin = time.process_time()
    try:
        with settings(dict(program.settings)), limit(seconds):
            seen = run_source(source_of(program))
    except TooSlow:
        return Outcome("slow", f"more than {seconds:g} s of the processor", "slow", seconds)
    except Exception as error:
        return _of_error(program, error)
    spent = time.process_time() - begin
    try:
        found = difference(program, seen)
    except Meaningless as error:
        return Outcome("meaningless", str(error))
    if found is None:
        return Outcome("right", seconds=spent)
    return Outcome(
        "wrong", str(found), f"wrong {program.kind} {dict(program.settings) or ''}", spent
    )


def run_source(source: str) -> Seen:
    """Run statements; what each `see` was given."""
    seen: Seen = {}

    def see(name: str, tensor: Any) -> None:
        seen[name] = (tensor.dtype.name, tensor.numpy())

    names = {
        "Tensor": Tensor,
        "TinyJit": TinyJit,
        "Variable": Variable,
        "see": see,
        "inf": inf,
        "nan": nan,
    }
    exec(compile(source, "<program>", "exec"), names)  # noqa: S102
    return seen


def _of_error(program: Program, error: Exception) -> Outcome:
    for kind, words in (*REFUSALS.get(program.kind, ()), *OF_MACHINES):
        if isinstance(error, kind) and words in str(error):
            return Outcome("refused", str(error))
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if frame.filename != "<program>"]
    position = f"{Path(inside[-1].filename).name}:{inside[-1].name}" if inside else "<program>"
    is_of_machine = isinstance(error, DeviceError)  # whose words name kernels, and how many
    first = [] if is_of_machine else str(error).strip().splitlines()[:1]
    return Outcome(
        "error",
        f"{type(error).__name__}: {str(error)[:600]}",
        f"{type(error).__name__} in {position}: {''.join(first)[:60]}",
        is_of_machine=is_of_machine,
    )


@contextmanager
def settings(wanted: dict[str, str]) -> Iterator[None]:
    """The environment of one program; forced threads share however little there is."""
    cpu: Any = Device["CPU"]
    before = {name: os.environ.get(name) for name in wanted}
    least = cpu.parallel_instructions
    os.environ.update(wanted)
    if "threads=on" in wanted.get("CHOICES", ""):
        cpu.parallel_instructions = 0
    try:
        yield
    finally:
        cpu.parallel_instructions = least
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Raises TooSlow inside once this process has used so much of the processor."""

    def stop(number: int, frame: Any) -> None:
        raise TooSlow

    previous = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)
