"""A rule that an earlier one of its file takes everything from never fires: verify-rules says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from proofgrad.rules.library import library_names, rule_file
from proofgrad.verify.cli import main
from proofgrad.verify.dsl.parser import parse_rules
from proofgrad.verify.explain.forestalled import forestalled

NEVER = {
    "the same twice": "rule a: x + 0 => x\nrule b: y + 0 => y",
    "a constant of any": "rule a: x & c & c => x & c\nrule b: x & 8 & 8 => x & 8",
    "a term of any": "rule a: !(!x) => x\nrule b: !(!(x & y)) => x & y",
    "fewer types": "rule a: x * 1 => x\nrule b over int8: x * 1 => x",
    "with a condition": "rule a: x * 0 => 0\nrule b: x * 0 => 0 when lo(x) < 5",
}
FIRES = {
    "another constant": "rule a: x + 0 => x\nrule b: x * 1 => x",
    "a condition of the first": "rule a: x % c => 0 where c == 1\nrule b: x % 1 => 0",
    "a choice of the first": "rule a: x * 0 => 0 when lo(x) < 5\nrule b: x * 0 => 0",
    "a constant that may not fit": "rule a: x << c << d => x << {c + d} where c >= 0, d >= 0\nrule b: x << 1 << 1 => x << 2",
    "more types": "rule a over int8: x * 1 => x\nrule b: x * 1 => x",
    "one name twice": "rule a: x & x => x\nrule b: x & (x | y) => x",
    "a term that is no constant": "rule a: max(max(x, c), c) => max(x, c)\nrule b: max(max(x, y), y) => max(x, y)",
    "the special one first": "rule a: x & 8 & 8 => x & 8\nrule b: x & c & c => x & c",
}  # fmt: skip


@pytest.mark.parametrize("name", [*NEVER, *FIRES])
def test_a_rule_is_forestalled_by_one_that_is_as_general_and_asks_for_nothing(name: str) -> None:
    text = {**NEVER, **FIRES}[name]
    found = list(
        forestalled(parse_rules(f"ruleset tried over int\n{text}\n", check_order=False).rules)
    )
    assert [(later.name, earlier.name) for later, earlier in found] == (
        [("b", "a")] if name in NEVER else []
    )


def test_the_command_names_both_lines_and_fails_for_neither(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.rules"
    file.write_text("ruleset mine over int8\nrule first: x + 0 => x\nrule again: y + 0 => y\n")
    assert main([str(file), "-j", "1"]) == 0
    told = f"{file}:3: rule 'again' never fires: rule 'first' of line 2 takes all that it matches"
    assert told in capsys.readouterr().out


@pytest.mark.parametrize("name", library_names())
def test_no_rule_of_the_library_is_forestalled_by_one_of_its_file(name: str) -> None:
    assert not list(forestalled(parse_rules(rule_file(name).read_text(), name).rules))


@pytest.mark.parametrize("asked", ["algebra", "algebra.mul_one"])
def test_the_name_of_a_rule_set_in_place_of_a_file_tells_the_file(
    asked: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([asked]) == 1
    assert f"{asked}: No such file or directory; the rule set algebra" in capsys.readouterr().out
