"""verify-rules as a job: what is passed over in silence would be green, so it is refused; files that cannot be read; `--json`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
import z3

from proofgrad.verify.cli import _parser, main
from proofgrad.verify.encode.answers import check
from proofgrad.verify.prove.workers import process_count

RIGHT = "ruleset right over int8\nrule double: x + x => x * 2\n"
WRONG = "ruleset wrong over int8\nrule half: x * 2 // 2 => x\n"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--check", "FILE"], "--check is about the library, and takes no FILE; `verify-rules"),
        (["--update", "FILE"], "--update is about the library"),
        (["--refuted", "FILE"], "--refuted is about the library"),
        (["--check-records", "FILE"], "--check-records is about the library"),
        (["--check", "--update"], "--check and --update: ask for one of them at a time"),
        (["--json"], "--json is for FILE and for --check"),
        (["--jobs", "0", "FILE"], "a number of processes is 1 or more, not 0"),
        (["--jobs", "x", "FILE"], "a number of processes is 1 or more, not x"),
        (["--seconds", "5"], "--seconds is for FILE"),
        (["--seconds", "nan", "FILE"], "a limit of time is 0 or more seconds, not nan"),
    ],
)
def test_what_would_be_passed_over_is_wrong_usage(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`verify-rules --check mine.rules` was green whatever the file said."""
    file = tmp_path / "wrong.rules"
    file.write_text(WRONG)
    with pytest.raises(SystemExit) as ended:
        main([str(file) if a == "FILE" else a for a in arguments])
    assert ended.value.code == 2 and message in capsys.readouterr().err


def test_no_more_processes_are_started_than_there_are_processors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As many as were asked for were started, all at once, and memory ran out."""
    file = tmp_path / "right.rules"
    file.write_text(RIGHT)
    assert _parser().parse_args(["--jobs", "9" * 5000]).jobs == process_count()
    assert main([str(file), "--jobs", "1000000"]) == 0
    assert "right" in capsys.readouterr().out


@pytest.mark.parametrize(
    "content, message",
    [
        (b"ruleset none over int\n# rule a: x + 0 => x\n", "the file has no rules"),
        (b"\xff\xfe\x00", "no text in UTF-8, at byte 0"),
        (None, "this is a folder; name the .rules files in it"),
    ],
)
def test_a_file_that_says_nothing_fails_by_its_name(
    content: bytes | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.rules"
    file.mkdir() if content is None else file.write_bytes(content)
    assert main([str(file)]) == 1
    assert capsys.readouterr().out == f"{file}: {message}\n"


def test_a_file_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "absent.rules")]) == 1
    assert f"{tmp_path / 'absent.rules'}: No such file" in capsys.readouterr().out


def test_a_file_of_an_editor_of_windows_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "right.rules"
    file.write_bytes(b"\xef\xbb\xbf" + RIGHT.replace("\n", "\r\n").encode())
    assert main([str(file), "-j", "1"]) == 0 and "proved" in capsys.readouterr().out


def test_json_has_a_line_for_each_rule_and_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right, wrong, broken = [tmp_path / f"{name}.rules" for name in ("right", "wrong", "broken")]
    right.write_text(RIGHT)
    wrong.write_text(WRONG)
    broken.write_text("ruleset broken over int\nrule half: x * => x\n")
    assert main(["--json", "-j", "1", *map(str, (right, wrong, broken))]) == 1
    first, second, third = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (first["rule"], first["verdict"], first["line"]) == ("right.double", "proved", 2)
    assert (second["rule"], second["verdict"], second["types"]) == (
        "wrong.half",
        "refuted",
        {"T": "int8"},
    )
    assert set(second["counterexample"]) == {"x"} and "x * 2" in second["explanation"]
    assert third == {
        "file": str(broken),
        "line": 2,
        "column": 16,
        "error": "unexpected '=>'; expected a term",
    }


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_rules_that_are_left_when_time_is_up_are_not_decided(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file of thousands of rules, or of one that a solver works on without end, took as long as it liked."""
    file = tmp_path / "right.rules"
    file.write_text(RIGHT + "rule half: x * 2 // 2 => x\n")
    assert main([str(file), "--seconds", "1e-9", *options]) == 1
    out = capsys.readouterr().out
    assert out.count("not decided: time was up") == 2 and "counterexample" not in out
    assert options or f"{file}: 2 rules are not decided, for the 1e-09 s of --seconds" in out
    assert main([str(file), "--seconds", "0", *options]) == 1
    assert "not decided" not in capsys.readouterr().out


def test_json_of_a_check_of_what_is_fresh_is_empty(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check", "--json"]) == 0 and capsys.readouterr().out == ""


def test_the_program_of_a_counterexample_shows_truncating_remainders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "remainders.rules"
    file.write_text("ruleset remainders over int8\nrule mask: truncmod(x, 8) => x & 7\n")
    assert main([str(file), "-j", "1"]) == 1
    shown = capsys.readouterr().out.partition("the same with Tensors:\n")[2]
    program = textwrap.dedent(shown[: shown.index("\n", shown.index("print("))])
    assert "left = x.fmod(" in program
    exec(program, {})
    assert capsys.readouterr().out == "[-1] [7]\n"


def test_ctrl_c_ends_a_call_of_the_solver() -> None:
    """With one process z3 took the interrupt for itself, and the command went on."""
    x = z3.BitVec("x", 64)
    solver = z3.Solver()
    solver.add(x * x * x + 1 == 0, x != -1)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        check(solver)


def test_without_a_solver_the_command_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "z3.py").write_text("raise ModuleNotFoundError('none', name='z3')")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from proofgrad.verify.cli import main; sys.exit(main(['--refuted']))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 1 and "`pip install z3-solver`" in ended.stderr


def test_facts_that_ask_for_themselves_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "endless.rules"
    file.write_text("ruleset endless over uint8\nbounds of_bits: x in [0, may(x)]\n")
    assert main([str(file), "-j", "1"]) == 1
    assert "is asked for by what it asks, without end" in capsys.readouterr().out


def test_args_of_other_operations_are_drawn_only_where_they_have_their_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A shape was drawn for pads: a TypeError in place of a verdict."""
    file = tmp_path / "pads.rules"
    rule = "pad(expand(x, s), a) => expand(x, s)   where is_zero_pad(a)"
    file.write_text(f"ruleset pads over tensor\nrule none (T in int32): {rule}\n")
    assert main([str(file), "-j", "1"]) == 0
    assert "proved" in capsys.readouterr().out
