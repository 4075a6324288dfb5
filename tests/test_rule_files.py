"""Rule files as people write them: all mistakes are told at once, and nothing of such a file is used."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

import proofgrad
from proofgrad.__main__ import main as proofgrad_command
from proofgrad.verify.cli import main
from proofgrad.verify.dsl.errors import RuleError
from proofgrad.verify.dsl.files import MOST_MISTAKES, RuleFileError, parse_whole

SEVERAL = """\
ruleset several over int
"A right rule."
rule right:  x + 0 => x
rule unbound:  x & c => y  # a comment
"Of the next."
rule powers:
  x ** 2 => x
    where c > 0
rule right:  x * 1 => x
bounds no:  x + y in [lo(x)]
fact none over nowhere:  finite(-x)
rule last:  cast(x, int99) => x
"""
PLACES = [(4, 25), (7, 6), (9, 6), (10, 28), (11, 16), (12, 21)]


def places(text: str) -> list[tuple[int, int]]:
    with pytest.raises(RuleFileError) as caught:
        parse_whole(text)
    return [(mistake.line, mistake.column) for mistake in caught.value.mistakes]


def test_all_mistakes_are_told_in_the_order_of_the_file() -> None:
    assert places(SEVERAL) == PLACES
    assert places(SEVERAL.replace("\n", "\n\n"))[-1] == (23, 21)


def test_one_mistake_is_the_error_of_the_parser() -> None:
    with pytest.raises(RuleError, match="'y' is not bound"):
        parse_whole("ruleset a over int\nrule b: x + 0 => y\nrule c: x * 1 => x")


@pytest.mark.parametrize("missing", ["a:", "a: x", "a: x =>", "a: x + 0 => x where", "a: x => 1 +"])
def test_a_rule_that_ends_too_early_is_no_mistake_of_the_next(missing: str) -> None:
    """The first word of the next rule was read as a name, and each rule after it was told to be wrong."""
    text = (
        f'ruleset a over int\nrule {missing}\n# why\n"doc"\nrule b: x + 0 => x\nrule c: x * 1 => x'
    )
    with pytest.raises(RuleError) as caught:
        parse_whole(text)
    assert (caught.value.line, caught.value.column) == (2, 6 + len(missing))


def test_a_file_without_a_header_is_one_mistake() -> None:
    with pytest.raises(RuleError, match="^<text>:1:1: .* as in: ruleset mine over int"):
        parse_whole("rule a: x + 0 => x\nrule b: x * 1 => x")


def test_a_domain_that_is_none_is_told_beside_mistakes_of_rules() -> None:
    text = "ruleset a over nowhere\nrule b: x + => x\nrule c: x - => x"
    assert places(text) == [(1, 16), (2, 13), (3, 13)]


def test_rules_that_never_end_are_all_told() -> None:
    text = (
        "ruleset a over int\nrule b: x + x => x * 2\nrule c: x * 2 => x + x\nrule d: x => x * 1\n"
    )
    assert [line for line, _ in places(text)] == [3, 4]


def test_no_more_are_told_than_anybody_reads() -> None:
    rules = [f"rule r{k}: x + {k} => y" for k in range(MOST_MISTAKES + 5)]
    with pytest.raises(RuleFileError, match=f"no more than {MOST_MISTAKES} mistakes") as caught:
        parse_whole("\n".join(["ruleset a over int", *rules]))
    assert len(caught.value.mistakes) == MOST_MISTAKES


@pytest.mark.parametrize("end", ["\u2028", "\x85", "\x0b", "\r"])
def test_what_only_some_programs_take_for_the_end_of_a_line_moves_no_caret(end: str) -> None:
    text = f"ruleset a over int\n# one{end}two\nrule b: x + 0 => yy\n"
    with pytest.raises(RuleError) as caught:
        parse_whole(text)
    _, line, caret = str(caught.value).splitlines()
    assert line[caret.index("^") :] == "yy"


@pytest.mark.parametrize(
    "sign, told", [("\xa0", "a plain one"), ("\u2212", "'-'"), ("\u2264", "<=")]
)
def test_signs_of_typography_are_named(sign: str, told: str) -> None:
    with pytest.raises(RuleError, match=told):
        parse_whole(f"ruleset a over int\nrule b: x {sign} 0 => x")


def test_the_command_tells_all_and_proves_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "several.rules"
    file.write_text(SEVERAL)
    assert main([str(file)]) == 1
    shown = capsys.readouterr().out
    assert [f"{file}:{line}:{column}: " in shown for line, column in PLACES] == [True] * 6
    assert "proved" not in shown
    assert main(["--json", str(file)]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["line"], line["column"]) for line in lines] == PLACES


def test_loading_tells_all_and_loads_none(tmp_path: Path) -> None:
    file = tmp_path / "several.rules"
    file.write_text(SEVERAL)
    with pytest.raises(ValueError, match=r"(?s):4:25: .*:12:21: "):
        proofgrad.load_rules(file)


def test_layout_reads_files_as_the_prover_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mark of Windows was a mistake for the one and none for the other; other encodings had no file name."""
    file = tmp_path / "mine.rules"
    for end in ("\n", "\r\n"):
        text = f"ruleset mine over int{end}# \u2028 a{end}rule a:  x + 0 => x{end}"
        file.write_bytes(b"\xef\xbb\xbf" + text.encode())
        assert proofgrad_command(["fmt", "--check", str(file)]) == 0
    file.write_bytes(b"ruleset \xe9")
    assert proofgrad_command(["fmt", str(file)]) == 1
    assert f"{file}: no text in UTF-8, at byte 8" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["verify-rules", "fmt"])
def test_signs_that_the_output_lacks_are_written_as_numbers(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that prints ASCII ended in a UnicodeEncodeError instead of the mistake."""
    file = tmp_path / "mine.rules"
    file.write_text("ruleset mine over int\nrule \u03c0: x + 0 => x\n", "utf-8")
    written = io.BytesIO()
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(sys, stream, io.TextIOWrapper(written, "ascii", write_through=True))
    ended = (
        main([str(file)]) if command == "verify-rules" else proofgrad_command(["fmt", str(file)])
    )
    assert ended == 1 and b"2:6: unexpected character '\\u03c0'" in written.getvalue()
