"""A few of the faults of tests/planted/encoder_table.py, others each day; all: `python -m planted.encoder_faults`."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest
from planted.encoder_faults import ROOT, is_test, rule_named
from planted.encoder_table import FAULTS, WRONG

TESTS = Path(__file__).parent
A_DAY = 16
ENGINE = ("terms", "instances", "facts", "match", "patterns")
FILES = {
    *[f"verify/encode/{path.name}" for path in (ROOT / "verify/encode").glob("*.py")],
    *[f"core/rewrite/{name}.py" for name in ENGINE],
} - {f"verify/encode/{name}.py" for name in ("__init__", "answers", "fresh_terms", "strict_sorts")}


def test_each_fault_changes_its_file() -> None:
    for fault in FAULTS:
        assert fault.before in (ROOT / fault.file).read_text(), fault.name
        assert fault.before != fault.after
        assert fault.rules


def test_there_are_a_hundred_faults_in_all_the_files_that_decide_what_a_rule_means() -> None:
    assert len(FAULTS) >= 100
    assert len({fault.name + fault.file for fault in FAULTS}) == len(FAULTS)
    assert {fault.file for fault in FAULTS} == FILES
    assert WRONG.keys() <= {name for fault in FAULTS for name in fault.rules}


def run(*options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "planted.encoder_faults", *options]
    return subprocess.run(command, cwd=TESTS, check=False, capture_output=True, text=True)


@pytest.mark.long
def test_the_faults_of_the_day_are_found() -> None:
    done = run("--sample", str(A_DAY), "--seed", str(date.today().toordinal()))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{A_DAY} of {A_DAY} faults found" in done.stdout


@pytest.mark.long
def test_without_a_fault_proof_and_execution_agree() -> None:
    """On a part of the rules each day. That the tests which the table names pass, they tell themselves."""
    rules = sorted({n for fault in FAULTS for n in fault.rules if not is_test(n)})
    of_today = rules[date.today().toordinal() % 5 :: 5]
    done = run("--without", *[f.name for f in FAULTS if set(f.rules) & set(of_today)])
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 of " in f" {done.stdout}"


@pytest.mark.parametrize("name", ["no such rule", "algebra.no_such_rule"])
def test_a_rule_that_is_not_there_finds_nothing(name: str) -> None:
    with pytest.raises((LookupError, OSError, StopIteration)):
        rule_named(name)
