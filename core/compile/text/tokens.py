"""A line of the text of loop nests as tokens, and errors that say where.

Owns: tokens, their order, what was expected. Does not own: what they mean (term_reader.py, reader.py).
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from proofgrad.core.ir.text import GraphTextError

MOST_DIGITS = 400  # of a number

_TOKEN = re.compile(
    r"""[ ]*(?:
    (?P<comment>\#.*)
  | (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
  | (?P<name>[A-Za-z_][A-Za-z_0-9]*)
  | (?P<text>"(?:[^"\\]|\\.)*")
  | (?P<mark>//|<<|>>|==|\.\.|\+=|\*=|[\[\](){}<=+\-*/%&|^~,:])
  | (?P<end>$)
    )""",
    re.VERBOSE,
)


class Token(NamedTuple):
    """A piece of a line; `kind` is a group of the pattern above: "number", "name", "text", "mark" or "end"."""

    kind: str
    text: str
    at: int  # column, from 0


class Line:
    """One line as tokens."""

    def __init__(self, content: str, number: int) -> None:
        self.number = number
        self.indent = len(content) - len(content.lstrip(" "))
        self.tokens: list[Token] = []
        self.next = 0
        position = 0
        while True:
            found = _TOKEN.match(content, position)
            if found is None:
                position += len(content[position:]) - len(content[position:].lstrip(" "))
                raise self.error(f"{content[position]!r} does not belong here", position)
            kind = found.lastgroup or "end"
            if kind in ("end", "comment"):
                break
            position = found.end()
            self.tokens.append(Token(kind, found[kind], found.start(kind)))
        self.tokens.append(Token("end", "", len(content.rstrip())))

    @property
    def token(self) -> Token:
        """The next token; after the last one, the token "end"."""
        return self.tokens[self.next]

    def is_at_end(self) -> bool:
        """Whether all tokens are taken."""
        return self.token.kind == "end"

    def is_here(self, *texts: str) -> bool:
        """Whether the next token is a mark or a name among `texts`."""
        return self.token.kind in ("mark", "name") and self.token.text in texts

    def follows(self, *texts: str) -> bool:
        """Whether these tokens come next."""
        here = self.tokens[self.next : self.next + len(texts)]
        return [t.text for t in here] == list(texts)

    def take(self) -> Token:
        """The next token, which is then behind; at the end of the line, the token "end"."""
        token = self.token
        if token.kind != "end":
            self.next += 1
        return token

    def accept(self, text: str) -> bool:
        """Take the next token if it is `text`; whether it was."""
        if self.is_here(text):
            self.next += 1
            return True
        return False

    def expect(self, text: str) -> None:
        """Take the token `text`. Raises: GraphTextError where another one stands."""
        if not self.accept(text):
            raise self.expected(f"`{text}`")

    def name(self, what: str) -> Token:
        """Take a name; `what` says in an error what was expected. Raises: GraphTextError."""
        if self.token.kind != "name":
            raise self.expected(what)
        return self.take()

    def number_here(self, what: str) -> int:
        """Take a whole number with or without a minus sign. Raises: GraphTextError, with `what` was expected."""
        sign = -1 if self.accept("-") else 1
        if self.token.kind != "number" or not self.token.text.isdigit():
            raise self.expected(what)
        return sign * int(self.value(self.take()))

    def value(self, token: Token) -> int | float:
        """A number token as an int if it has digits only, else as a float. Raises: GraphTextError if it is too long."""
        if len(token.text) > MOST_DIGITS:
            raise self.error(f"a number of more than {MOST_DIGITS} digits", token.at)
        return int(token.text) if token.text.isdigit() else float(token.text)

    def string(self) -> str:
        """Take a quoted text and decode it as JSON. Raises: GraphTextError."""
        if self.token.kind != "text":
            raise self.expected('text in "..."')
        token = self.take()
        try:
            return str(json.loads(token.text))
        except ValueError:
            raise self.error("text with an escape that JSON has not", token.at) from None

    def end(self) -> None:
        """Check that nothing follows. Raises: GraphTextError."""
        if not self.is_at_end():
            raise self.expected("the end of the line")

    def expected(self, what: str) -> GraphTextError:
        """The error to raise where `what` should stand; it quotes the token that stands there."""
        found = f"`{self.token.text}`" if self.token.text else "the end of the line"
        return self.error(f"expected {what}, found {found}", self.token.at)

    def error(self, what: str, at: int) -> GraphTextError:
        """The error to raise for column `at` (from 0) of this line."""
        return GraphTextError(f"line {self.number}, column {at + 1}: {what}")
