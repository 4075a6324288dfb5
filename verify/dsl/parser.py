"""Rule files: text to `Rule` objects, all of a file or nothing of it.

Owns: limits on size and depth, syntax errors, doc strings, examples, the text of each rule. Does
not own: names and types (elaborate.py), whether a set of rules ends (termination.py), proof.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib import resources

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.rule import Rule
from proofgrad.verify.dsl.elaborate import Elaborator, FileHeader
from proofgrad.verify.dsl.errors import Position, RuleError, RuleSyntaxError, Source
from proofgrad.verify.dsl.examples import example_graphs
from proofgrad.verify.dsl.open_terms import OpenTerm, open_term
from proofgrad.verify.dsl.positions import position_of
from proofgrad.verify.dsl.scope import Syntax
from proofgrad.verify.dsl.termination import check_termination

MAX_FILE_BYTES = 1 << 18  # a hand-written file is some 10 KiB; larger is a mistake or an attack
MAX_PARTS = 2000  # of the syntax tree of one rule; the largest of the library has some 200
MAX_NAME = 100  # letters
MAX_DEPTH = 60  # levels of the syntax tree of one rule; keeps every later recursion shallow


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """A rule file: the name of its set, its default domains, and its rules in order."""

    ruleset: str
    domains: tuple[str, ...]
    rules: tuple[Rule, ...]


def parse_rules(text: str, filename: str = "<text>", check_order: bool = True) -> ParsedFile:
    """The rules of a file's text.

    check_order: refuse a rule that does not go down in the order that makes rewriting end. Without
    it the rules may be looked at and proven, but must not be run.

    Raises: RuleSyntaxError, RuleError (both ValueError), with the position; then nothing is returned.
    Example:
        >>> parse_rules("ruleset a over int rule add_zero: x + 0 => x").rules[0].full_name
        'a.add_zero'
    """
    source = Source(filename, text)
    header, *items = _parse(source, "start").children
    ruleset = _header(header, source)
    parsed = [_item(item, ruleset, source) for item in items]
    _check_names(parsed, source)
    rules = tuple([rule for rule, _ in parsed])
    upward = check_termination(rules) if check_order else None
    if upward is not None:
        position = next(position_of(token) for rule, token in parsed if rule is upward[0])
        raise RuleError(source, position, upward[1])
    return ParsedFile(ruleset.name, ruleset.domains, rules)


def _check_names(parsed: Sequence[tuple[Rule, Token]], source: Source) -> None:
    lines: dict[str, int] = {}
    for rule, token in parsed:
        if rule.name in lines:
            reason = f"the name {rule.name!r} is taken by the rule in line {lines[rule.name]}"
            raise RuleError(source, position_of(token), f"{reason}; choose another")
        lines[rule.name] = rule.line


def read_example(text: str) -> tuple[UOp, UOp]:
    """Both sides of an example of `Rule.examples` as graphs of index terms. Raises: RuleError.

    Example:
        >>> left, right = read_example("i + 0 => i with i in [0, 3]")
    """
    source = Source("<example>", text)
    return example_graphs(_parse(source, "example_text"), source)


def read_open_term(text: str) -> OpenTerm:
    """A term with names that a user wants to look at. Raises: RuleSyntaxError, RuleError.

    Example:
        >>> read_open_term("(x // 4) // 8 over index where 0 <= x < 100").bounds
        {'x': (0, 99)}
    """
    source = Source("<term>", text)
    return open_term(_parse(source, "open_term"), source)


@cache
def _grammar(start: str) -> Lark:
    text = resources.files("proofgrad.verify.dsl").joinpath("grammar.lark").read_text("utf-8")
    return Lark(text, start=start, parser="lalr", propagate_positions=True)


def _parse(source: Source, start: str) -> Syntax:
    size_bytes = len(source.text.encode("utf-8", "replace"))
    if size_bytes > MAX_FILE_BYTES:
        reason = f"the file has {size_bytes} bytes; at most {MAX_FILE_BYTES} are read"
        raise RuleSyntaxError(source, Position(1, 1), reason)
    try:
        tree = _grammar(start).parse(source.text)
    except UnexpectedInput as error:
        raise _syntax_error(error, source) from None
    _check_depth(tree, source)
    return tree


_ITEM = re.compile(r"(rule|cotangent|bounds|fact|example)\b|\"(?<=\n\")")  # how one begins
_UNREAD = re.compile(r"[A-Za-z_]{2,}|[^\n]")


def _syntax_error(error: UnexpectedInput, source: Source) -> RuleSyntaxError:
    accepted: set[str] = error.interactive_parser.accepts()  # type: ignore[no-untyped-call]
    hint = f"; expected {_expected_words(accepted)}" if accepted else ""
    is_item = _ITEM.match(source.text, error.pos_in_stream or 0) and "RULESET" not in accepted
    match error:
        case UnexpectedToken() if error.token.type == "$END":
            return RuleSyntaxError(source, _end_of_read(error), f"the file ends too early{hint}")
        case _ if is_item:
            return RuleSyntaxError(source, _end_of_read(error), f"the rule ends too early{hint}")
        case UnexpectedToken():
            position, token = position_of(error.token), str(error.token)
            hint = _slip(source, position, token) or _meant(error.token, accepted) or hint
            return RuleSyntaxError(source, position, f"unexpected {token!r}{hint}")
        case UnexpectedCharacters():
            position = Position(error.line, error.column)
            [found] = _UNREAD.findall(source.text, error.pos_in_stream or 0)[:1]
            hint = _slip(source, position, found) or hint
            what = f"character {found!r}" if len(found) == 1 else repr(found)
            return RuleSyntaxError(source, position, f"unexpected {what}{hint}")
        case _:
            return RuleSyntaxError(source, Position(1, 1), f"not a rule file{hint}")


def _end_of_read(error: UnexpectedInput) -> Position:
    """Where what the parser took of the text ends, comments after it left out."""
    taken = error.interactive_parser.parser_state.value_stack
    if not taken:
        return Position(1, 1)
    last = taken[-1].meta if isinstance(taken[-1], Tree) else taken[-1]
    return Position(last.end_line, last.end_column)


# What other languages write, and what is written here.
_SLIPS = {
    "->": "'=>' stands between the sides of a rule",
    "=": "'=>' stands between the sides of a rule, '==' compares",
    "&&": "'&' is the operation, ',' stands between conditions",
    "||": "'|' is the operation, 'or' stands between conditions",
    "**": "there are no powers; write a product",
    "if": "conditions follow 'where'; the choice of a value is where(p, x, y)",
    "is": "'==' compares",
    "in": "bounds are two conditions, as in 0 <= x, x < 8",
    "~": "write !x, or x ^ -1 for integers",
    "?": "the choice of a value is where(p, x, y)",
    ";": "a rule ends where the next one begins",
    "\xa0": "a no-break space; write a plain one",
    "\u2212": "a minus of typography; write '-'",
    "\u2264": "write '<='",
    "\u2265": "write '>='",
    "\u2260": "write '!='",
    "\u00d7": "write '*'",
    "\u21d2": "write '=>'",
    "\u2192": "write '=>'",
}


def _slip(source: Source, position: Position, found: str) -> str:
    """What to write instead, where something common elsewhere begins or ends at a position."""
    before = source.line(position.line)[: position.column - 1][-1:]
    told = _SLIPS.get(before + found) or _SLIPS.get(found)
    return f"; {told}" if told else ""


_WORDS = {
    "NAME": "a name", "NUMBER": "a number", "COMPARE": "a comparison", "LPAR": "'('", "RPAR": "')'",
    "LSQB": "'['", "RSQB": "']'", "LBRACE": "'{'", "RBRACE": "'}'", "COLON": "':'",
    "COMMA": "','", "RULESET": "'ruleset', as in: ruleset mine over int", "EQUAL": "'='", "MINUS": "'-'", "BANG": "'!'",
}  # fmt: skip
_OPERATORS = {
    "TIMES", "PLUS", "MINUS", "SHIFT", "PIPE", "CARET", "AMPERSAND", "COMPARE", "AND", "OR",
}  # fmt: skip
_OPERANDS = {"NAME", "NUMBER", "LPAR", "LBRACE", "BANG", "MINUS", "NOT"}
_AFTER_A_RULE = {
    "STRING", "RULE", "COTANGENT", "BOUNDS", "FACT", "EXAMPLE", "WHERE", "WHEN", "LET", "WITH", "$END",
}  # fmt: skip


def _meant(token: Token, accepted: set[str]) -> str:
    """What to write instead of a second comparison, or of a name that is near to a word."""
    if token.type == "COMPARE" and "PIPE" in accepted:
        return "; a comparison has two sides; write 0 <= x, x < 8, or (x < y) & (y < z)"
    words = [name.lower() for name in accepted & _AFTER_A_RULE if name.isalpha()]
    close = get_close_matches(str(token), words, n=1, cutoff=0.7) if token.type == "NAME" else []
    return f"; did you mean {close[0]!r}?" if close else ""


def _expected_words(accepted: set[str]) -> str:
    """What could stand at the position of an error, with groups of tokens under one word."""
    names = set(accepted)
    words: list[str] = []
    if {"NAME", "NUMBER"} <= names:
        words.append("a term")
        names -= _OPERANDS
    if "PIPE" in names:
        words.append("an operator")
        names -= _OPERATORS | {"LPAR", "LSQB"}
    if {"RULE", "BOUNDS"} <= names:
        words.append("the end of the rule" if "RULESET" not in names else "a rule")
        names -= _AFTER_A_RULE
    words += sorted([_WORDS.get(n, _keyword(n)) for n in names])
    return ", ".join(words[:-1]) + " or " + words[-1] if len(words) > 1 else "".join(words)


def _keyword(terminal: str) -> str:
    return "'=>'" if terminal.startswith("__") else f"'{terminal.lower()}'"


def _check_depth(tree: Syntax, source: Source) -> None:
    depth: dict[int, int] = {}
    for node in tree.iter_subtrees():  # children first, without recursion
        below = [depth[id(child)] for child in node.children if isinstance(child, Tree)]
        depth[id(node)] = 1 + max(below, default=0)
        if depth[id(node)] == MAX_DEPTH:
            raise RuleSyntaxError(
                source,
                position_of(node),
                f"nested more than {MAX_DEPTH} levels deep; split the rule",
            )


def _header(tree: Syntax, source: Source) -> FileHeader:
    name = str(tree.children[1])
    domains = tree.children[2]
    return FileHeader.checked(name, domains, source)


def _item(tree: Syntax, header: FileHeader, source: Source) -> tuple[Rule, Token]:
    doc = ""
    children = list(tree.children)
    if isinstance(children[0], Token):
        doc = str(children.pop(0))[1:-1]
    body, *examples = children
    _check_size(tree, source)
    text = source.text[body.meta.start_pos : body.meta.end_pos]
    shown = tuple([_example_text(e, source) for e in examples if isinstance(e, Tree)])
    rule = Elaborator(header, source).rule(body, text, doc, shown)
    name_token = body.children[1]
    return rule, name_token


def _check_size(tree: Syntax, source: Source) -> None:
    """Raises: RuleSyntaxError for more parts, or longer names, than anybody reads."""
    for count, node in enumerate(tree.iter_subtrees(), 1):
        if count > MAX_PARTS:
            raise RuleSyntaxError(
                source, position_of(node), f"a rule of more than {MAX_PARTS} parts; split the rule"
            )
    for token in tree.scan_values(lambda value: value.type == "NAME"):
        if len(token) > MAX_NAME:
            raise RuleSyntaxError(
                source, position_of(token), f"a name of more than {MAX_NAME} letters"
            )


def _example_text(tree: Syntax, source: Source) -> str:
    body = tree.children[1]
    example_graphs(body, source)
    return source.text[body.meta.start_pos : body.meta.end_pos]
