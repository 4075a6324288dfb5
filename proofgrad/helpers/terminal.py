"""What a script shows while it runs: colours, times, profiles, progress.

Owns: `colored`, `Timing`, `Profiling`. Does not own: progress bars, which are those of the package tqdm.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import ContextDecorator
from types import TracebackType
from typing import Any

from tqdm.auto import tqdm, trange

from proofgrad.core import settings

__all__ = ["Profiling", "Timing", "ansilen", "ansipad", "ansistrip", "colored", "tqdm", "trange"]

_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_ESCAPES = re.compile("\x1b\\[[0-9;]*[A-Za-z]")
PARTS = re.compile(f"{_ESCAPES.pattern}|.", re.DOTALL)  # a code, or one character
_FOREGROUND, _BACKGROUND, _BRIGHT = 30, 40, 60  # https://en.wikipedia.org/wiki/ANSI_escape_code


def colored(st: Any, color: str | None, background: bool = False) -> str:
    """Text in one of the eight colours of terminals, bright where the name is in capitals; as it is for None.

    Without colours if NO_COLOR is set. Raises: ValueError for another name.
    """
    if color is None:
        return str(st)
    if color.lower() not in _COLOURS:
        raise ValueError(f"{color!r} is no colour of terminals; there are {', '.join(_COLOURS)}")
    if not settings.wants_colours(is_terminal=True):
        return str(st)
    code = (_BACKGROUND if background else _FOREGROUND) + _COLOURS.index(color.lower())
    return f"\x1b[{code + _BRIGHT * color.isupper()}m{st}\x1b[0m"


def ansistrip(s: str) -> str:
    """Text without colours and other codes for terminals."""
    return _ESCAPES.sub("", s)


def ansipad(s: str, w: int) -> str:
    """With spaces behind, until a terminal shows `w` characters."""
    return s + " " * (w - ansilen(s))


def ansilen(s: str) -> int:
    """How many characters of a text a terminal shows."""
    return len(ansistrip(s))


class Timing(ContextDecorator):
    """Prints how long its block, or a call of the function it decorates, took.

    `on_exit` makes a text of the nanoseconds, printed behind. The same one may stand around several blocks,
    one after the other.

    Example:
        with Timing("forward: "):
            model(x).realize()
    """

    def __init__(
        self, prefix: str = "", on_exit: Callable[[int], str] | None = None, enabled: bool = True
    ) -> None:
        self.prefix, self.on_exit, self.enabled = prefix, on_exit, enabled
        self.st = self.et = 0

    def __enter__(self) -> Timing:
        self.st = time.perf_counter_ns()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.et = time.perf_counter_ns() - self.st
        if self.enabled:
            more = "" if self.on_exit is None else self.on_exit(self.et)
            print(f"{self.prefix}{self.et * 1e-6:6.2f} ms{more}")


class Profiling(ContextDecorator):
    """Prints where the time of Python went within its block, by `cProfile`; `proofgrad.profile` tells of kernels.

    `sort`: a key of `pstats`; `frac`: how much of the list; `fn`: a file for the whole of it; `ts`: how many times what is
    measured was done, by which times are divided.
    """

    def __init__(
        self,
        enabled: bool = True,
        sort: str = "cumtime",
        frac: float = 0.2,
        fn: str | None = None,
        ts: float = 1,
    ) -> None:
        self.enabled, self.sort, self.frac, self.fn, self.ts = enabled, sort, frac, fn, ts

    def __enter__(self) -> Profiling:
        import cProfile

        self.pr = cProfile.Profile()
        if self.enabled:
            self.pr.enable()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self.enabled:
            return
        import pstats

        self.pr.disable()
        if self.fn is not None:
            self.pr.dump_stats(self.fn)
        stats: Any = pstats.Stats(self.pr).strip_dirs().sort_stats(self.sort)
        if self.ts != 1:
            stats.total_tt /= self.ts
            stats.stats = {
                name: (calls, every, own / self.ts, whole / self.ts, callers)
                for name, (calls, every, own, whole, callers) in stats.stats.items()
            }
        stats.print_stats(self.frac)
