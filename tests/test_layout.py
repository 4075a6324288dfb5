"""The one layout of rule files: what it does, that it is stable, and that the library has it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proofgrad.__main__ import main
from proofgrad.rules.library import RULES, rule_file
from proofgrad.verify.commands.prove import REFUTED_RULES
from proofgrad.verify.dsl.errors import RuleError
from proofgrad.verify.dsl.layout import laid_out
from proofgrad.verify.dsl.parser import parse_rules
from proofgrad.verify.prove import ledger

FILES = [*sorted(RULES.glob("*.rules")), *sorted(REFUTED_RULES.glob("*.rules"))]

ROUGH = """\
# A comment   stays,  with its spaces.
ruleset   demo over int ,index


"A doc  string stays."
rule a:x+0=>x     # why
rule longer over index:   x%c =>x where 0<=x ,x<c   when c>2
  example (i*4)%8 => i % 2*4 with i in [0,9]
rule b over index: x//c => q+r//c
  let (q,r)=split( x,c )   where c>0 , not (c == 3)

rule far_too_long_to_move_the_others_along over signed: - x*-1 => x
rule conversion (A in int,B in any) over cast: cast(cast( x : A,B),A) => x where lossless(A,B)
rule d (T in int) over loop:
    sum[ R ](where(p,x,y)) => where(p,sum[R](x),sum[R](y))   where independent(p,R)
rule e over index: where(p, - 2,x - c) => {wrap:- c}+- x
"""

SMOOTH = """\
# A comment   stays,  with its spaces.
ruleset demo over int, index

"A doc  string stays."
rule a:                  x + 0 => x  # why
rule longer over index:  x % c => x   where 0 <= x, x < c   when c > 2
  example (i * 4) % 8 => i % 2 * 4   with i in [0, 9]
rule b over index:       x // c => q + r // c
                                      let (q, r) = split(x, c)   where c > 0, not (c == 3)

rule far_too_long_to_move_the_others_along over signed: -x * -1 => x
rule conversion (A in int, B in any) over cast: cast(cast(x: A, B), A) => x   where lossless(A, B)
rule d (T in int) over loop:
  sum[R](where(p, x, y)) => where(p, sum[R](x), sum[R](y))                    where independent(p, R)
rule e over index:       where(p, -2, x - c) => {wrap: -c} + -x
"""


def test_layout_of_a_rough_file() -> None:
    assert laid_out(ROUGH) == SMOOTH


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_files_of_rules_are_laid_out(path: Path) -> None:
    text = path.read_text()
    assert laid_out(text, path.name) == text, f"run `python -m proofgrad fmt {path}`"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_layout_keeps_words_and_meaning_of_any_spacing(path: Path) -> None:
    """Lines of one space between tokens, as far as that says the same, come back as they were."""
    text = path.read_text()
    squeezed = "\n".join([" ".join(line.split()) for line in text.splitlines() if "#" not in line])
    again = laid_out(squeezed)
    assert "".join(again.split()) == "".join(squeezed.split())
    assert parse_rules(again, check_order=False) == parse_rules(text, check_order=False)


TOKENS = st.lists(
    st.sampled_from([*"xyc1+-*%()[]{},:!=", "2.0", "//", "=>", "where", "let", "in", "not"]),
    max_size=30,
)


@settings(max_examples=100, deadline=None)
@given(TOKENS, st.sampled_from([" ", "", "\n", "  "]))
def test_layout_of_any_text_is_stable_or_refused(tokens: list[str], between: str) -> None:
    text = f"ruleset a over int\nrule b: x + 0 => {between.join(tokens)}"
    try:
        result = laid_out(text)
    except RuleError:
        return
    assert laid_out(result) == result


def test_command_lays_out_and_checks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rough.rules"
    file.write_text("ruleset a over int\nrule b:x+0=>x")
    assert main(["fmt", "--check", str(file)]) == 1
    assert "rule b:x+0=>x" in file.read_text()
    assert main(["fmt", str(file)]) == 0
    assert file.read_text() == "ruleset a over int\nrule b:  x + 0 => x\n"
    assert main(["fmt", "--check", str(file), str(rule_file("algebra"))]) == 0
    assert capsys.readouterr().out.count("rough.rules") == 2


def test_command_names_the_file_that_it_cannot_write_and_those_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first.rules", tmp_path / "second.rules"
    for file in (first, second):
        file.write_text("ruleset a over int\nrule b:x+0=>x")
    write = ledger.write_whole

    def write_first(path: Path, text: str) -> None:
        if path == second:
            raise PermissionError(errno.EACCES, "Permission denied", f"{path}.new")
        write(path, text)

    monkeypatch.setattr(ledger, "write_whole", write_first)
    assert main(["fmt", str(first), str(second)]) == 1
    told = capsys.readouterr()
    assert "first.rules: laid out" in told.out and "second" not in told.out
    assert "second.rules cannot be written: Permission denied" in told.err


def test_command_refuses_a_file_that_is_none_and_leaves_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.rules"
    file.write_text("ruleset a over int\nrule b: x + => x")
    assert main(["fmt", str(file)]) == 1
    assert "wrong.rules:2:13" in capsys.readouterr().err
    assert file.read_text() == "ruleset a over int\nrule b: x + => x"
