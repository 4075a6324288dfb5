"""The command verify-rules: what it writes, what it refuses, and that it cannot be cheated."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from proofgrad.core.rewrite.ledger import EvidenceError
from proofgrad.rules import library
from proofgrad.verify.cli import main
from proofgrad.verify.commands import prove as commands
from proofgrad.verify.commands import update
from proofgrad.verify.prove import ledger as writing
from proofgrad.verify.steps import prove as steps

SMALL = """\
ruleset small over int, index

rule add_zero: x + 0 => x
rule in_range: x % c => x  where 0 <= x, x < c
rule below: x < c => true  where hi(x) < c
"""

PARTS = ("layout", "proofs", "mutants", "other solvers", "pages", "records")
ROOT = Path(__file__).parent.parent


@pytest.fixture
def small_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library of one set in a folder of its own, not yet proven."""
    monkeypatch.setattr(library, "RULES", tmp_path)
    monkeypatch.setattr(library, "PROOFS", tmp_path)
    (tmp_path / "small.rules").write_text(SMALL)
    return tmp_path


def load() -> tuple[str, ...]:
    loaded = library.load_set("small", library.Meanings())
    return tuple([rule.name for rule in loaded.rules])


def test_proven_rules_load(small_library: Path) -> None:
    assert main(["--check"]) == 1
    assert main(["-j", "1"]) == 0
    assert main(["--check"]) == 0
    assert load() == ("add_zero", "in_range", "below")


def test_fresh_rules_are_not_proven_again(
    small_library: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-j", "1"]) == 0
    file = small_library / "small.rules"
    file.write_text(SMALL.replace("rule below", '"Less."\nrule below') + "rule sub: x + -x => 0\n")
    capsys.readouterr()
    assert main(["-j", "1"]) == 0
    assert "1 proved" in capsys.readouterr().out
    assert load() == ("add_zero", "in_range", "below", "sub")


@pytest.mark.long
def test_proving_everything_may_leave_the_ledgers_alone(
    small_library: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[bool, ...]] = []
    monkeypatch.setattr(steps, "prove_steps", lambda *how: asked.append(how) or [])
    assert main(["--all", "--no-write", "-j", "1"]) == 0
    assert not (small_library / "small.json").exists()
    assert "3 proved" in capsys.readouterr().out
    assert asked == [
        (True, False, False)
    ]  # laws of steps: from nothing, not written, told in short


CHEATS: dict[str, Callable[[Path], None]] = {
    "a changed constant": lambda f: edit(f / "small.rules", "x + 0", "x + 1"),
    "a dropped condition": lambda f: edit(f / "small.rules", "where 0 <= x, x < c", "where x < c"),
    "swapped operands": lambda f: edit(f / "small.rules", "x < c => true", "c < x => true"),
    "another domain": lambda f: edit(f / "small.rules", "over int, index", "over int, index, bool"),
    "an edited verdict": lambda f: edit(f / "small.json", '"domain":"int"', '"domain":"any"'),
    "an edited rule in the ledger": lambda f: edit(f / "small.json", '"MOD"', '"FLOORDIV"'),
    "an edited condition": lambda f: edit(f / "small.json", '"Apply":["<"', '"Apply":["<="'),
    "another solver": lambda f: edit(f / "small.json", '"z3": "', '"z3": "9'),
    "half a ledger": lambda f: (f / "small.json").write_bytes(
        (f / "small.json").read_bytes()[:999]
    ),
}


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text, old
    path.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize("cheat", CHEATS.values(), ids=CHEATS.keys())
def test_the_gate_refuses(small_library: Path, cheat: Callable[[Path], None]) -> None:
    assert main(["-j", "1"]) == 0
    cheat(small_library)
    with pytest.raises(EvidenceError, match=r"rule small\..* may not be used.*verify-rules"):
        load()
    assert main(["--check"]) == 1


def test_the_gate_refuses_other_meanings(
    small_library: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-j", "1"]) == 0
    changed = small_library / "ops.py"
    changed.write_text("SHL now means something else")
    files, executed = (*library.meaning_files(), changed), library.execution_files()
    monkeypatch.setattr(library, "ROOT", Path("/"))
    monkeypatch.setattr(library, "meaning_files", lambda: files)
    monkeypatch.setattr(library, "execution_files", lambda: executed)
    with pytest.raises(EvidenceError, match="other meanings"):
        load()


def test_a_refuted_rule_does_not_load(
    small_library: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(small_library / "small.rules", "x + 0 => x", "x + 1 => x")
    assert main(["-j", "1"]) == 1
    shown = capsys.readouterr().out
    assert "small.add_zero is refuted" in shown and "x = 0" in shown
    with pytest.raises(EvidenceError, match="verdict is refuted"):
        load()


def test_a_user_file_is_proved_or_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right, wrong, broken = [tmp_path / f"{name}.rules" for name in ("right", "wrong", "broken")]
    right.write_text("ruleset right over int\nrule double: x + x => x * 2\n")
    wrong.write_text("ruleset wrong over int\nrule half: x * 2 // 2 => x\n")
    broken.write_text("ruleset broken over int\nrule half: x * => x\n")
    assert main([str(right)]) == 0
    assert "proved" in capsys.readouterr().out
    assert main([str(wrong)]) == 1
    shown = capsys.readouterr().out
    assert "a counterexample over int (T = int8)" in shown and "x * 2" in shown
    assert main([str(broken)]) == 1
    assert "broken.rules:2:" in (shown := capsys.readouterr().out) and "^" in shown
    assert main([str(tmp_path / "absent.rules")]) == 1


def test_a_true_rule_that_may_run_forever_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "turn.rules"
    file.write_text("ruleset turn over int\nrule turn: x + y => y + x\n")
    assert main([str(file)]) == 1
    shown = capsys.readouterr().out
    assert "proved" in shown and "does not go down" in shown


def test_check_needs_neither_solver_nor_parser_and_a_million_calls() -> None:
    program = (
        f"import sys; sys.path.append({str(Path(__file__).parent)!r}); from counted_calls import calls;"
        "from proofgrad.verify.cli import main; print(calls(lambda: main(['--check'])));"
        "print({'z3', 'lark', 'numpy', 'rich'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1] == "set()"
    assert (
        int(done.stdout.splitlines()[-2]) < 3_000_000
    )  # for 777 rules 860,000, a third of a second
    assert "s)" in done.stdout


@pytest.mark.long
def test_update_of_what_is_up_to_date_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    files = [path for folder in ("rules", "proofs", "docs") for path in (ROOT / folder).glob("*.*")]
    before = [path.read_bytes() for path in files]
    assert main(["--update"]) == 0
    assert [path.read_bytes() for path in files] == before
    parts = [line for line in capsys.readouterr().out.splitlines() if line.startswith("-- ")]
    assert parts == [f"-- {name}" for name in PARTS]


@pytest.mark.parametrize("failing", range(len(PARTS)))
def test_update_stops_at_the_first_part_that_fails(
    failing: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("lay_out_library", "judge_new", "crosscheck_new", "write_pages", "check_records")
    codes = [int(number == failing) for number in range(len(PARTS))]
    for name, code in zip(names, [codes[0], *codes[2:]]):
        monkeypatch.setattr(update, name, lambda *_, code=code: code)
    assert update.update(lambda: codes[1], 1) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        *[f"-- {name}" for name in PARTS[: failing + 1]],
        f"stopped at: {PARTS[failing]}",
    ]


def test_a_folder_that_cannot_be_written_is_said_after_the_verdicts(
    small_library: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was a traceback, and what had been proved or refuted was not shown."""
    assert main(["-j", "1"]) == 0

    def refuse(path: Path, text: str) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(commands, "write_whole", refuse)
    assert main(["-j", "1"]) == 0  # nothing is new
    edit(small_library / "small.rules", "x + 0 => x", "x + 1 => x")
    assert main(["-j", "1"]) == 1
    shown = capsys.readouterr()
    assert "small.add_zero is refuted" in shown.out
    assert "not everything was written: [Errno 30] Read-only file system" in shown.err


def test_an_interrupted_write_leaves_the_old_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "small.json"
    file.write_text("old")

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", stop)
    with pytest.raises(KeyboardInterrupt):
        writing.write_whole(file, "new")
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_killed_run_leaves_every_ledger_whole(small_library: Path) -> None:
    assert main(["-j", "1"]) == 0
    before = (small_library / "small.json").read_bytes()
    program = (
        "import sys; from pathlib import Path; from proofgrad.rules import library;"
        f"library.RULES = library.PROOFS = Path({str(small_library)!r});"
        "from proofgrad.verify.cli import main; print('go', flush=True);"
        "[main(['--all', '-j', '1']) for _ in range(99)]"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as running:
        assert running.stdout is not None and running.stdout.readline() == b"go\n"
        time.sleep(1.0)
        running.send_signal(signal.SIGKILL)
    after = json.loads((small_library / "small.json").read_bytes())
    assert after["rules"] and len(after["rules"]) == len(json.loads(before)["rules"])
    assert load() == ("add_zero", "in_range", "below")


def test_a_process_ends_when_all_is_said() -> None:
    """What else would be done at its end, as by the solver, is not waited for."""
    program = (
        "import atexit, sys; atexit.register(lambda: print('late')); sys.argv = ['verify-rules', '--check'];"
        "from proofgrad.verify.cli import run; run()"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "fresh evidence" in ended.stdout and "late" not in ended.stdout
