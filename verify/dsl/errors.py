"""Mistakes in rule files, shown with their position: file, line, column, the line and a caret.

Does not own: what is a mistake (parser.py, elaborate.py, termination.py).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

SHOWN_WIDTH = 120  # characters of a longer line that are shown
SHOWN_BEFORE = 60  # of them before the position


@dataclass(frozen=True, slots=True)
class Source:
    """The text of a rule file and the name to show for it."""

    filename: str
    text: str

    def line(self, number: int) -> str:
        """Line `number`, counted from 1, without its end; empty beyond the text. Only a newline ends one, as for the parser."""
        lines = self.text.split("\n")
        return lines[number - 1].removesuffix("\r") if 0 < number <= len(lines) else ""


@dataclass(frozen=True, slots=True)
class Position:
    """Where something stands: line and column from 1, and its width in characters."""

    line: int
    column: int
    width: int = 1


class RuleError(ValueError):
    """A rule that says something wrong. Nothing of its file is used.

    Fields: filename, line and column (from 1), reason.
    """

    def __init__(self, source: Source, position: Position, reason: str) -> None:
        self.filename = source.filename
        self.line = position.line
        self.column = position.column
        self.reason = reason
        super().__init__(_shown(source, position, reason))


class RuleSyntaxError(RuleError):
    """Text that is not a rule file: the grammar stops here."""


def near(name: str, known: Iterable[str]) -> str:
    """What to add to "unknown name": near names, or else all that are known."""
    choices = sorted(known)
    close = difflib.get_close_matches(name, choices, n=3)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"known: {', '.join(choices)}"


def _shown(source: Source, position: Position, reason: str) -> str:
    line = "".join([c if c.isprintable() else " " for c in source.line(position.line)])
    start = max(0, position.column - 1 - SHOWN_BEFORE) if len(line) > SHOWN_WIDTH else 0
    text = line[start : start + SHOWN_WIDTH]
    column = position.column - 1 - start
    width = max(1, min(position.width, len(text) - column))
    where = f"{source.filename}:{position.line}:{position.column}"
    return f"{where}: {reason}\n    {text}\n    {' ' * column}{'^' * width}"
