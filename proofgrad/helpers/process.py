"""The process and others: commands, the clock in microseconds, blocks without garbage collection.

Owns: how a failed command is told. Does not own: downloads (download.py).
"""

from __future__ import annotations

import decimal
import gc
import shlex
import subprocess
import time
from contextlib import ContextDecorator
from types import TracebackType
from typing import Any


def system(cmd: str, **kwargs: Any) -> str:
    """What a command prints, without white space around it; no shell reads it. Arguments are those of subprocess.run.

    Raises: RuntimeError with what it wrote to stderr, if it fails.
    """
    done = subprocess.run(shlex.split(cmd), capture_output=True, check=False, **kwargs)
    if done.returncode:
        told = done.stderr if isinstance(done.stderr, str) else done.stderr.decode(errors="replace")
        raise RuntimeError(f"{cmd!r} ended with {done.returncode}: {told.strip()}")
    out = done.stdout if isinstance(done.stdout, str) else done.stdout.decode(errors="replace")
    return out.strip()


def perf_counter_us() -> decimal.Decimal:
    """The clock for durations, in microseconds."""
    return decimal.Decimal(time.perf_counter_ns()) / 1000


class disable_gc(ContextDecorator):
    """A block, or a function, in which Python looks for no cycles."""

    def __init__(self) -> None:
        self._was_on: list[bool] = []

    def __enter__(self) -> None:
        self._was_on.append(gc.isenabled())
        gc.disable()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._was_on.pop():
            gc.enable()
