"""Where a part of the syntax tree stands in its file."""

from __future__ import annotations

from typing import Any

from lark import Token, Tree

from proofgrad.verify.dsl.errors import Position


def position_of(syntax: Tree[Token] | Token) -> Position:
    """Where a token or tree starts, and how wide it is on that line."""
    at: Any = syntax if isinstance(syntax, Token) else syntax.meta
    same_line = at.end_line == at.line
    return Position(at.line, at.column, at.end_column - at.column if same_line else 1)
