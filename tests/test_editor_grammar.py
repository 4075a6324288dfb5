"""The grammar for editors knows the words of the grammar that the parser reads."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from proofgrad.core.rewrite.functions import TYPE_CLASSES
from proofgrad.rules.library import RULES
from proofgrad.verify.dsl import names

ROOT = Path(__file__).parent.parent
EXTENSION = ROOT / "editors" / "vscode"
LARK = (ROOT / "verify" / "dsl" / "grammar.lark").read_text()


def load(name: str) -> Any:
    return json.loads((EXTENSION / name).read_text())


PATTERNS: list[dict[str, Any]] = load("syntaxes/rules.tmLanguage.json")["patterns"]


def scope_at(line: str, position: int) -> str:
    """The scope that the grammar gives to the character at `position`, as an editor would."""
    start = 0
    while start < len(line):
        found = [(p, m) for p in PATTERNS if (m := re.compile(p["match"]).search(line, start))]
        if not found:
            return ""
        pattern, match = min(found, key=lambda pair: pair[1].start())
        if match.start() <= position < match.end():
            groups = {int(k): v["name"] for k, v in pattern.get("captures", {}).items()}
            inside = [
                name for k, name in groups.items() if match.start(k) <= position < match.end(k)
            ]
            return str(inside[0] if inside else pattern.get("name", ""))
        start = match.end() if match.end() > match.start() else match.end() + 1
    return ""


def scope_of(line: str, word: str) -> str:
    return scope_at(line, line.index(word))


def keywords_of_the_parser() -> set[str]:
    """The words between quotes in grammar.lark, but those of terms that a name can be."""
    code = "\n".join([line.partition("//")[0] for line in LARK.splitlines() if '"//"' not in line])
    return set(re.findall(r'"([a-z]+)"', code))


def test_the_extension_names_files_that_exist() -> None:
    contributed = load("package.json")["contributes"]
    files = [contributed["grammars"][0]["path"], contributed["languages"][0]["configuration"]]
    assert all((EXTENSION / file).is_file() for file in files)
    assert contributed["languages"][0]["extensions"] == [".rules"]


def test_every_keyword_of_the_parser_is_coloured_as_one() -> None:
    keywords = keywords_of_the_parser()
    assert {"ruleset", "rule", "where", "wrap", "not"} <= keywords
    plain = {word for word in keywords if not scope_at(f"{word} x", 0).startswith("keyword.")}
    assert plain == set()


def test_every_keyword_of_the_editor_is_one_of_the_parser() -> None:
    words = {
        word
        for pattern in PATTERNS
        if "keyword" in json.dumps(pattern)
        for word in re.findall(r"[a-z]{2,}", re.sub(r"\\.|\[[^\]]*\]", " ", pattern["match"]))
    }
    assert words <= keywords_of_the_parser()


@pytest.mark.parametrize("name", sorted({*names.DOMAINS, *TYPE_CLASSES}))
def test_every_domain_and_type_is_coloured(name: str) -> None:
    assert scope_of(f"rule a over {name}: x", name) == "storage.type.rules"


@pytest.mark.parametrize("name", [*names.LITERALS, "none"])
def test_every_literal_is_coloured(name: str) -> None:
    assert scope_of(f"=> {name}", name) == "constant.language.rules"


@pytest.mark.parametrize(
    ("line", "word", "scope"),
    [
        ("rule add_zero: x + 0 => x", "add_zero", "entity.name.function.rules"),
        ("x => where(p, x, y)", "where", "support.function.rules"),
        ("x => x   where c > 0", "where", "keyword.control.rules"),
        ("x // c1 => x", "c1", "variable.other.constant.rules"),
        ("x => x # where", "where", "comment.line.number-sign.rules"),
        ('"a where b"', "where", "string.quoted.double.rules"),
        ("x + -0.5e-3 => x", "0.5e-3", "constant.numeric.rules"),
        ("sum[R](x)", "sum", "support.function.rules"),
        ("cast(x, int8)", "cast", "support.function.rules"),
        ("x => y", "=>", "keyword.operator.arrow.rules"),
    ],
)
def test_a_word_is_coloured_by_what_it_is(line: str, word: str, scope: str) -> None:
    assert scope_of(line, word) == scope


def test_every_operator_of_the_library_is_coloured() -> None:
    for path in RULES.glob("*.rules"):
        for line in path.read_text().splitlines():
            code = re.sub(r'#.*|"[^"]*"', lambda m: " " * len(m[0]), line)
            for found in re.finditer(r"=>|<<|>>|<=|>=|==|!=|//|[-+*/%&|^<>!]", code):
                assert scope_at(line, found.start()).startswith("keyword.operator"), line
