"""What DEBUG prints: to stderr, or to the logger "proofgrad" where a program has set one up; how far a long first call is; warnings.

Owns: which of the two, the line of progress, signs that the output lacks, the line of a program that a warning is about. Does not own: the lines
(core/tensor/runtime/report.py, core/compile/shown.py), what is warned of.
"""

from __future__ import annotations

import io
import sys
import time
import warnings
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from logging import Logger

NAME = "proofgrad"
REFRESH_SECONDS = 0.1


def say(text: object) -> None:
    """Print for people who debug: to stderr, so that a program's own output stays clean; or log it, at the level INFO."""
    logger = _logger()
    if logger is None:
        print(text, file=sys.stderr)
    else:
        logger.info("%s", text)


def warn(text: str) -> None:
    """A warning at the line of the program that led here: the innermost one that is not of this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    if frame is None:  # a thread of ours
        warnings.warn(text, stacklevel=2)
        return
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    warnings.warn_explicit(
        text, UserWarning, frame.f_code.co_filename, frame.f_lineno, _module_of(frame), registry
    )


def print_any_text() -> None:
    """From now on a sign that the output has no code for is written as its number, as in \\u03c0, rather than an error.

    For commands: rule files and names of files may hold any sign, and a CI job prints ASCII.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def is_terminal() -> bool:
    """Whether what is said is seen on a terminal."""
    return _logger() is None and sys.stderr.isatty()


class Progress:
    """`with Progress("compiling", 80) as progress`: from the first second on, a line of a terminal says how far `progress.done(k)` is.

    The line is gone at the end. Where stderr is no terminal nothing is written.
    """

    def __init__(self, what: str, whole: int, patience_seconds: float = 1.0) -> None:
        self._what, self._whole = what, whole
        self._next = time.monotonic() + patience_seconds
        self._is_shown = False

    def __enter__(self) -> Self:
        return self

    def done(self, count: int) -> None:
        """So many are done."""
        now = time.monotonic()
        if now < self._next:
            return
        self._next = (
            now + REFRESH_SECONDS
        )  # to ask takes longer than to say, where it is a call of a sandbox
        if not is_terminal():
            return
        self._is_shown = True
        print(f"\r{self._what} {count} of {self._whole}", end="", file=sys.stderr, flush=True)

    def __exit__(
        self, kind: type[BaseException] | None, _: object, __: TracebackType | None
    ) -> None:
        if self._is_shown:
            print(f"\r{' ' * len(f'{self._what} {self._whole} of {self._whole}')}\r", end="", file=sys.stderr, flush=True)  # fmt: skip


def _is_ours(frame: FrameType) -> bool:
    """Whether a line is of this package, or of what calls a function for it that it decorates."""
    return _module_of(frame).partition(".")[0] in (
        NAME,
        "contextlib",
        "functools",
        "threading",
        "concurrent",
    )


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _logger() -> Logger | None:
    """The logger, if it would show lines of the level INFO: else they are not lost."""
    logging = sys.modules.get("logging")  # a program that logs has imported it
    if logging is None:
        return None
    logger: Logger = logging.getLogger(NAME)
    return logger if logger.hasHandlers() and logger.isEnabledFor(logging.INFO) else None
