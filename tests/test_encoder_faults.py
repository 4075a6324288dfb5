"""A few of the faults of tests/planted/encoder_table.py, others each day; all: `python -m planted.encoder_faults`."""

from __future__ import annotations

import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest
from planted.encoder_faults import ROOT, silent_rules
from planted.encoder_table import FAULTS, SEEN, WRONG

TESTS = Path(__file__).parent
A_DAY = 4


def test_each_fault_changes_its_file() -> None:
    for fault in FAULTS:
        assert fault.before in (ROOT / fault.file).read_text(), fault.name
        assert fault.before != fault.after
        assert fault.rules


def test_there_are_a_hundred_faults() -> None:
    assert len(FAULTS) >= 100
    assert len({fault.name + fault.file for fault in FAULTS}) == len(FAULTS)
    assert WRONG.keys() <= {name for fault in FAULTS for name in fault.rules}


@pytest.mark.parametrize("number", range(A_DAY))
def test_a_fault_of_the_day_is_found(number: int) -> None:
    seed = date.today().toordinal() * A_DAY + number
    command = [sys.executable, "-m", "planted.encoder_faults", "--sample", "1", "--seed", str(seed)]
    done = subprocess.run(command, cwd=TESTS, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 of 1 faults found" in done.stdout


def test_without_a_fault_proof_and_execution_agree() -> None:
    named = [fault for fault in SEEN if fault.rules[0] not in WRONG]
    assert silent_rules(named[date.today().toordinal() % 9 :: 9]) == []
