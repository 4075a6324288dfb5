"""The one layout of rule files: columns, spaces and blank lines.

Owns: where spaces stand. Comments, doc strings and the division into lines stay as they were written.
Does not own: what rules mean; a layout changes no token, which is checked.

    rule nested over index, int:  x // c // d => x // {c * d}   where c > 0, d > 0
    ^ head                        ^ body, one column a file     ^ clauses, one column a block
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from proofgrad.verify.dsl.files import parse_whole
from proofgrad.verify.dsl.parser import parse_rules

WIDEST_HEAD = 40  # a longer head is followed by one space, and moves no other line
WIDEST_BODY = 72  # from the column of bodies on; the same for clauses
GAP = "   "

_TOKEN = re.compile(
    r'"[^"\n]*"|\#.*'
    r"|[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|0x[0-9a-fA-F]+|[0-9]+"
    r"|[A-Za-z_]\w*|=>|:=|<=|>=|==|!=|<<|>>|//|\S"
)
_ITEMS = ("rule", "cotangent", "bounds", "fact")
_CLAUSES = ("where", "when", "let")
_WORDS = (*_CLAUSES, "and", "or", "in", "is", "over", "with")  # where an operand has ended
_OPERATORS = frozenset({"=>", ":=", "<=", ">=", "==", "!=", "<<", ">>", "//", *"+-*/%&|^<>="})


@dataclass(frozen=True, slots=True)
class _Token:
    """`is_word`: a keyword here, not a name; `is_prefix`: - or ! of what follows."""

    text: str
    is_word: bool
    is_prefix: bool


@dataclass(frozen=True, slots=True)
class _Line:
    """A line in parts. kind: blank, comment, example, item, clauses (of the item above) or other."""

    kind: str
    head: str = ""
    body: str = ""
    clauses: tuple[str, ...] = ()
    comment: str = ""


def laid_out(text: str, filename: str = "<text>") -> str:
    """The file in the one layout; laying out twice changes nothing more.

    Raises: RuleSyntaxError, RuleError, RuleFileError for text that is no rule file.
    """
    rules = parse_whole(text, filename, check_order=False).rules
    lines = _lines(text)
    heads = [len(line.head) for line in lines if line.kind == "item" and line.body]
    column = 2 + max([width for width in heads if width <= WIDEST_HEAD], default=0)
    shown: list[str] = []
    for _, block in groupby(lines, key=lambda line: line.kind == "blank"):
        shown += _block(list(block), column)
    result = "\n".join(shown).strip("\n") + "\n"
    if parse_rules(result, filename, check_order=False).rules != rules:
        raise AssertionError(f"the layout of {filename} would change a rule")
    return result


# -- reading -------------------------------------------------------------------------------------


def _lines(text: str) -> list[_Line]:
    lines: list[_Line] = []
    previous: _Token | None = None
    for written in text.split("\n"):  # only a newline ends a line, as for the parser
        tokens = []
        for found in _TOKEN.finditer(written):
            previous = _classified(found.group(), previous)
            tokens.append(previous)
        if tokens and tokens[-1].text.startswith("#"):
            previous = tokens[-2] if len(tokens) > 1 else previous
        lines.append(_line(written, tokens))
    return lines


def _classified(text: str, previous: _Token | None) -> _Token:
    after_operand = previous is not None and _ends_operand(previous)
    is_word = text == "not" or (after_operand and text in _WORDS)
    return _Token(text, is_word, text in "-!" and not after_operand)


def _ends_operand(token: _Token) -> bool:
    if token.is_word or token.text[0] in '"#':
        return False
    return token.text[0].isalnum() or token.text[0] in "_)]}"


def _line(written: str, tokens: list[_Token]) -> _Line:
    if not tokens:
        return _Line("blank")
    if tokens[0].text.startswith("#"):
        return _Line("comment", comment=written.rstrip())
    comment = tokens.pop().text.rstrip() if tokens[-1].text.startswith("#") else ""
    first = tokens[0]
    if first.text == "example" and not first.is_word:
        return _Line("example", body=f"example {_joined(tokens[1:])}", comment=comment)
    if first.text in _ITEMS:
        texts = [token.text for token in tokens]
        end = texts.index(":") + 1 if ":" in texts else len(texts)
        body, clauses = _split(tokens[end:])
        name, rest = _joined(tokens[:2]), _joined(tokens[2:end])
        head = f"{name}{rest}" if rest in ("", ":") else f"{name} {rest}"
        return _Line("item", head, body, clauses, comment)
    body, clauses = _split(tokens)
    return _Line("other" if body else "clauses", "", body, clauses, comment)


def _split(tokens: Sequence[_Token]) -> tuple[str, tuple[str, ...]]:
    """The tokens before the first clause, and each clause."""
    starts = [k for k, token in enumerate(tokens) if token.is_word and token.text in _CLAUSES]
    ends = [*starts, len(tokens)]
    return _joined(tokens[: ends[0]]), tuple([_joined(tokens[a:b]) for a, b in pairwise(ends)])


def _joined(tokens: Sequence[_Token]) -> str:
    text = tokens[0].text if tokens else ""
    for before, token in pairwise(tokens):
        text += (" " if _is_space_between(before, token) else "") + token.text
    return text


def _is_space_between(before: _Token, token: _Token) -> bool:
    if before.is_prefix or before.text in ("(", "[", "{"):
        return False
    if token.text in (",", ")", "]", "}", ":"):
        return False
    if token.text in ("(", "[") and not before.is_word:
        return before.text in _OPERATORS or before.text in (",", ":")
    return True


# -- writing -------------------------------------------------------------------------------------


def _block(lines: list[_Line], column: int) -> list[str]:
    """The lines between two blank ones; of blank lines, one."""
    if lines[0].kind == "blank":
        return [""]
    starts = [_upto_clauses(line, column) for line in lines]
    widths = [len(s) for s, line in zip(starts, lines) if line.clauses and line.kind == "item"]
    clauses_at = max([w for w in widths if w <= column + WIDEST_BODY], default=0) + len(GAP)
    return [_shown(line, start, clauses_at) for line, start in zip(lines, starts)]


def _upto_clauses(line: _Line, column: int) -> str:
    match line.kind:
        case "item" if line.body:
            return f"{line.head + ' ':{column}}{line.body}"
        case "item":
            return line.head
        case "example":
            return "  " + line.body.replace(" with ", f"{GAP}with ")
        case "other" if not line.body.startswith(("ruleset ", '"')):
            return "  " + line.body
        case _:
            return line.body


def _shown(line: _Line, start: str, clauses_at: int) -> str:
    if line.kind == "comment":
        return line.comment
    text = start
    if line.clauses:
        text = f"{start + GAP if start else '':{clauses_at}}" + GAP.join(line.clauses)
    return f"{text}  {line.comment}" if line.comment else text
