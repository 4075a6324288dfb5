"""Work for one thread at a time, with nothing between its end and the end of the lock that an interrupt could come in.

Owns: that. Does not own: the work (replay.py, recordings in jit.py), whose last line would be where the lock is let go if it took the lock itself.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any


def alone(lock: AbstractContextManager[bool], work: Callable[..., Any], *arguments: Any) -> Any:
    """What `work(*arguments)` gives, while nobody else has the lock."""
    with lock:
        return work(*arguments)


def alone_with(
    lock: AbstractContextManager[bool], work: Callable[[Any], Any], argument: Any
) -> Any:
    """The same of one argument: a call of any number takes as long as some kernels."""
    with lock:
        return work(argument)
