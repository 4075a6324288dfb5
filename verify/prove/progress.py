"""Progress on stderr: a bar on a terminal, a line now and then elsewhere.

Owns: how progress looks. Does not own: what is counted.
"""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any, Self

SECONDS_BETWEEN_LINES = 15.0


class Progress:
    """A context manager; call `update(done, total)` as often as you like."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._bar: Any = None  # rich is imported only where there is a terminal
        self._task: Any = None
        self._last_line = time.monotonic()

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            console = Console(stderr=True)
            # What is printed meanwhile stands above the bar, if it goes to the same terminal.
            self._bar = Bar(
                *columns,
                TimeElapsedColumn(),
                console=console,
                transient=True,
                redirect_stdout=sys.stdout.isatty(),
            )
            self._bar.start()
            self._task = self._bar.add_task(self.title, total=None)
        return self

    def update(self, done: int, total: int) -> None:
        """Show that `done` of `total` cases are decided."""
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=total)
        elif time.monotonic() - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = time.monotonic()
            print(f"{self.title}: {done} of {total} cases", file=sys.stderr, flush=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
