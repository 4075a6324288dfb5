"""Rule files as people write them: bytes to text, and all mistakes of a file at once.

Owns: encodings and ends of lines, which lines are left out to look for further mistakes. Does not
own: what is a mistake (parser.py). A file is read whole or not at all.

The parser stops at the first mistake. So the item around it is left out, all others keep their
lines, and the rest is parsed again, until nothing is wrong with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from proofgrad.verify.dsl.errors import RuleError
from proofgrad.verify.dsl.parser import ParsedFile, parse_rules

MOST_MISTAKES = 20  # further ones are rarely read, and each costs a parse of the file
_ITEM = re.compile(r"\s*(\"[^\"]*\"\s*)?(rule|cotangent|bounds|fact)\b")
_HEADER = re.compile(r"\s*ruleset\b")
_DOC_STRING = re.compile(r"\s*\"[^\"]*\"?\s*(#.*)?$")


class RuleFileError(ValueError):
    """A rule file with mistakes: each is a RuleError, in the order of the file. Nothing of it is used."""

    def __init__(self, mistakes: tuple[RuleError, ...]) -> None:
        self.mistakes = mistakes
        shown = [str(mistake) for mistake in mistakes]
        if len(mistakes) == MOST_MISTAKES:
            shown.append(f"{mistakes[0].filename}: no more than {MOST_MISTAKES} mistakes are shown")
        super().__init__("\n".join(shown))


def read_source(path: Path) -> bytes:
    """What is in a rule file. Raises: ValueError with the name where it cannot be read."""
    try:
        return path.read_bytes()
    except IsADirectoryError:
        raise ValueError(f"{path}: this is a folder; name the .rules files in it") from None
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None


def decoded(source: bytes, filename: str) -> str:
    """The text of a file, as an editor of any system writes it. Raises: ValueError for other encodings."""
    try:
        text = source.decode("utf-8-sig")  # editors of Windows begin with a mark
    except UnicodeDecodeError as error:
        raise ValueError(f"{filename}: no text in UTF-8, at byte {error.start}") from None
    return text.replace("\r\n", "\n")


def parse_whole(text: str, filename: str = "<text>", check_order: bool = True) -> ParsedFile:
    """As `parse_rules`, but of a file with several mistakes all are told.

    Raises: RuleSyntaxError, RuleError for one mistake, RuleFileError for more; all are ValueError.
    """
    try:
        return parse_rules(text, filename, check_order)
    except RuleError as error:
        mistakes = [error, *_further(text, filename, check_order, error)]
        if len(mistakes) == 1:
            raise
        ordered = sorted(mistakes, key=lambda mistake: (mistake.line, mistake.column))
        raise RuleFileError(tuple(ordered)) from None


def _further(text: str, filename: str, check_order: bool, error: RuleError) -> Iterator[RuleError]:
    """The mistakes of what is left when the item of each is left out."""
    lines = text.split("\n")
    for _ in range(MOST_MISTAKES - 1):
        item = _item_around(lines, error.line - 1)
        if item is None:
            return
        lines[item.start : item.stop] = [""] * len(item)
        try:
            parse_rules("\n".join(lines), filename, check_order)
            return
        except RuleError as further:
            error = further
        yield error


def _item_around(lines: list[str], number: int) -> range | None:
    """The lines of the item that line `number`, counted from 0, is part of; None: of the header, or of nothing."""
    header = next((k for k, line in enumerate(lines) if _HEADER.match(line)), len(lines))
    starts = [
        _with_doc_string(lines, k)
        for k, line in enumerate(lines)
        if k > header and _ITEM.match(line)
    ]
    before = [start for start in starts if start <= number]
    if not before:
        return None
    return range(before[-1], min([s for s in starts if s > number], default=len(lines)))


def _with_doc_string(lines: list[str], number: int) -> int:
    is_below_one = number > 0 and _DOC_STRING.match(lines[number - 1])
    return number - 1 if is_below_one else number
