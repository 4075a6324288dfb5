"""Ctrl-C while Tensors change hands: it waits until each has its value from before or the new one.

Owns: when SIGINT is held back and when it is let through. Does not own: what changes hands (realize.py,
tensor.py).

A run lets go of the graphs of its roots, so that it may write over the memory that only those read. From the first
such write on there is no way back, only forward. Until then an interrupt comes through, and who asked for the run gives the
graphs back. Python runs signal handlers in its main thread alone: the others have nothing to hold back.

The functions of `signal` turn numbers to enums and back, which takes them 8 us, as long as all else of a small run. Those
that they call are used here.
"""

from __future__ import annotations

import threading
from _signal import SIGINT, getsignal, signal  # type: ignore[import-not-found]
from types import FrameType, TracebackType
from typing import Any


class Interrupts:
    """A context that holds SIGINT back, but where it is let through. It comes at the end at the latest.

    Example:
        with Interrupts() as interrupts:
            interrupts.let_through()
    """

    __slots__ = ("_before", "_came", "_is_open")

    def __init__(self) -> None:
        self._before: Any = None  # the handler that was there; None: there is nothing to hold back
        self._came: tuple[int, FrameType | None] | None = None
        self._is_open = False

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            before = getsignal(SIGINT)
            if callable(before):
                self._before = before
                signal(SIGINT, self._handle)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._before is not None:
            signal(SIGINT, self._before)
            if self._came is not None and not isinstance(error, KeyboardInterrupt):
                self._before(*self._came)

    def hold(self) -> None:
        """From here on an interrupt waits."""
        self._is_open = False

    def let_through(self) -> None:
        """From here on an interrupt comes as ever, at once if it has waited."""
        self._is_open = True
        if self._came is not None:
            came, self._came, self._is_open = self._came, None, False
            self._before(*came)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._is_open:
            self._came = (number, frame)
            return
        self._is_open = False  # while what it raises is made good, the next one waits
        self._before(number, frame)
