"""Mistakes in rule files, shown with their place: file, line, column, the line and a caret.

Does not own: what is a mistake (parser.py, elaborate.py, termination.py).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

SHOWN_WIDTH = 120  # characters of a longer line that are shown
SHOWN_BEFORE = 60  # of them before the place


@dataclass(frozen=True, slots=True)
class Source:
    """The text of a rule file and the name to show for it."""

    filename: str
    text: str

    def line(self, number: int) -> str:
        """Line `number`, counted from 1, without its end; empty beyond the text."""
        lines = self.text.splitlines()
        return lines[number - 1] if 0 < number <= len(lines) else ""


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands: line and column from 1, and its width in characters."""

    line: int
    column: int
    width: int = 1


class RuleError(ValueError):
    """A rule that says something wrong. Nothing of its file is used.

    Fields: filename, line and column (from 1), reason.
    """

    def __init__(self, source: Source, place: Place, reason: str) -> None:
        self.filename = source.filename
        self.line = place.line
        self.column = place.column
        self.reason = reason
        super().__init__(_shown(source, place, reason))


class RuleSyntaxError(RuleError):
    """Text that is not a rule file: the grammar stops here."""


def near(name: str, known: Iterable[str]) -> str:
    """What to add to "unknown name": near names, or else all that are known."""
    choices = sorted(known)
    close = difflib.get_close_matches(name, choices, n=3)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"known: {', '.join(choices)}"


def _shown(source: Source, place: Place, reason: str) -> str:
    line = "".join([c if c.isprintable() else " " for c in source.line(place.line)])
    start = max(0, place.column - 1 - SHOWN_BEFORE) if len(line) > SHOWN_WIDTH else 0
    text = line[start : start + SHOWN_WIDTH]
    column = place.column - 1 - start
    width = max(1, min(place.width, len(text) - column))
    where = f"{source.filename}:{place.line}:{place.column}"
    return f"{where}: {reason}\n    {text}\n    {' ' * column}{'^' * width}"
