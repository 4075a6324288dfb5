"""A user's rule file: proven, then used; refused whole if one rule of it is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import proofgrad
from proofgrad import Context, Tensor, kept_proofs, user_rules
from proofgrad.core.rewrite.rule import LOOSE_CLASSES
from proofgrad.core.tensor.runtime.realize import compiler

RIGHT = "ruleset mine over uint8\nrule absorb: (x | y) & x => x\n"
WRONG = "ruleset mine over uint8\nrule wrong_shift: (x + c) << 1 => x << 1\n"


@pytest.fixture(autouse=True)
def library_as_before() -> Iterator[None]:
    yield
    compiler().library._added.clear()


@pytest.fixture
def proven_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of rules that was loaded once, with a cache of its own."""
    monkeypatch.setenv("PROOFGRAD_CACHE", str(tmp_path))
    file = tmp_path / "mine.rules"
    file.write_text(RIGHT)
    proofgrad.load_rules(file)
    return file


def test_a_proven_file_is_used(tmp_path: Path) -> None:
    file = tmp_path / "mine.rules"
    file.write_text(RIGHT)
    assert proofgrad.load_rules(file) == ("mine.absorb",)
    x, y = Tensor([1, 2, 255], dtype="uint8"), Tensor([4, 7, 1], dtype="uint8")
    assert ((x | y) & x).tolist() == [1, 2, 255]
    assert compiler().library.journal.applied["mine.absorb"] == 1
    assert compiler().library.journal.unproven == 0


def test_a_wrong_rule_is_refused_with_a_counterexample(tmp_path: Path) -> None:
    file = tmp_path / "mine.rules"
    file.write_text(RIGHT + WRONG.partition("\n")[2])
    with pytest.raises(ValueError, match="wrong_shift") as refused:
        proofgrad.load_rules(file)
    assert "nothing of" in str(refused.value)
    assert "x =" in str(refused.value)
    assert compiler().library._added == {}


def test_a_malformed_file_is_refused_with_its_position(tmp_path: Path) -> None:
    file = tmp_path / "mine.rules"
    file.write_text("ruleset mine over uint8\nrule broken: x + => x\n")
    with pytest.raises(ValueError, match=r"mine\.rules:2:\d+"):
        proofgrad.load_rules(file)


def test_a_file_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"mine\.rules"):
        proofgrad.load_rules(tmp_path / "mine.rules")


def no_solver(*given: Any) -> Any:
    raise AssertionError("the prover was asked")


def test_a_file_that_was_proven_is_used_without_the_solver(
    proven_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler().library._added.clear()
    monkeypatch.setattr(user_rules, "_proven", no_solver)
    assert proofgrad.load_rules(proven_file) == ("mine.absorb",)
    x, y = Tensor([1, 2, 255], dtype="uint8"), Tensor([4, 7, 1], dtype="uint8")
    assert ((x | y) & x).tolist() == [1, 2, 255]
    assert compiler().library.journal.applied["mine.absorb"] >= 1
    for changed in (RIGHT + "# more\n", WRONG):
        proven_file.write_text(changed)
        with pytest.raises(AssertionError, match="the prover was asked"):
            proofgrad.load_rules(proven_file)


PROGRAM = """
import sys, proofgrad
from proofgrad import Tensor
from proofgrad.core.tensor.runtime.realize import compiler
for name in sys.argv[1:]:
    proofgrad.load_rules(name)
x, y = Tensor([1, 2, 255], dtype="uint8"), Tensor([4, 7, 1], dtype="uint8")
print((((x | y) & x) + 3).tolist(), compiler().library.journal.applied["mine.absorb"], compiler().kernels_compiled)
"""


def test_plans_are_kept_for_the_rules_that_made_them(tmp_path: Path) -> None:
    file = tmp_path / "mine.rules"
    file.write_text(RIGHT)
    asked = {
        "PLANS": "1",
        "CHECK": "0",
        "PROVE": "0",
        "PROOFGRAD_CACHE": str(tmp_path),
        "DEV": "CPU",
    }
    environment = {**os.environ, **asked}

    def told(*files: Path) -> list[str]:
        command = [sys.executable, "-c", PROGRAM, *map(str, files)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.partition("]")[2].split()

    assert told() == ["0", "1"]  # a kernel by the rules that everybody has
    assert told(file) == ["1", "1"]  # another one
    assert told(file) == told() == ["0", "0"]  # both are kept
    file.write_text(RIGHT.replace("(x | y) & x", "x & (x | y)"))
    assert told(file)[1] == "1"


def test_proofs_that_do_not_hold_for_these_meanings_are_made_again(
    proven_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (kept,) = [path for path in (tmp_path / "proofs").rglob("*") if path.is_file()]
    ledger = kept_proofs._files().get(kept.name)
    assert ledger is not None
    other = ledger.replace(b'"absorb"', b'"absurd"')  # under a checksum that is right
    kept_proofs._files().put(kept.name, other)
    assert kept_proofs.kept_rules(RIGHT.encode()) is None
    kept_proofs._files().put(kept.name, b"[]")
    assert kept_proofs.kept_rules(RIGHT.encode()) is None
    kept_proofs._files().put(kept.name, ledger)
    assert kept_proofs.kept_rules(RIGHT.encode()) is not None
    monkeypatch.setattr(kept_proofs, "fingerprint", lambda: "other/meanings")
    assert kept_proofs.kept_rules(RIGHT.encode()) is None


def test_rules_that_another_file_of_the_same_name_drops_are_named(tmp_path: Path) -> None:
    one, other = tmp_path / "one.rules", tmp_path / "other.rules"
    one.write_text(RIGHT)
    other.write_text(RIGHT.replace("absorb: (x | y) & x", "absorb_and: (x & y) | x"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        proofgrad.load_rules(one)
        proofgrad.load_rules(one)
        with pytest.raises(UserWarning, match="'mine' was loaded before .* absorb is used no more"):
            proofgrad.load_rules(other)


def test_a_set_of_the_library_cannot_be_replaced(tmp_path: Path) -> None:
    file = tmp_path / "mine.rules"
    file.write_text(RIGHT.replace("ruleset mine", "ruleset algebra"))
    with pytest.raises(ValueError, match="choose another name"):
        proofgrad.load_rules(file)


LOOSE = "ruleset mine over real\nrule mul_zero: x * 0.0 => 0.0\n"
MIXED = LOOSE + "rule twice over float: x + x => x * 2.0\n"


@pytest.fixture
def loose_file(tmp_path: Path) -> Path:
    file = tmp_path / "mine.rules"
    file.write_text(MIXED)
    return file


def product() -> list[float]:
    return (Tensor([float("inf"), 1.0]).realize() * 0.0).tolist()


def is_exact(values: list[float]) -> bool:
    return values[0] != values[0]


@pytest.mark.parametrize("domain", LOOSE_CLASSES)
def test_loose_rules_are_refused_where_nobody_asks_for_their_class(
    tmp_path: Path, domain: str
) -> None:
    file = tmp_path / "mine.rules"
    file.write_text(f"ruleset mine over {domain}\nrule same: x * 1.0 => x\n")
    with pytest.raises(ValueError, match=rf"mine\.same \({domain}\) is not exact to the bit"):
        proofgrad.load_rules(file)
    others = [name for name in LOOSE_CLASSES if name != domain]
    with pytest.raises(ValueError, match="not exact to the bit"):
        proofgrad.load_rules(file, loose=others)
    with Context(FASTMATH=",".join(others)), pytest.raises(ValueError, match="not exact"):
        proofgrad.load_rules(file)
    assert compiler().library._added == {}
    assert proofgrad.load_rules(file, loose=[domain]) == ("mine.same",)


def test_one_loose_rule_keeps_a_file_from_being_loaded(loose_file: Path) -> None:
    with pytest.raises(ValueError, match=r"mine\.mul_zero \(real\) is not exact"):
        proofgrad.load_rules(loose_file)
    assert is_exact(product())


def test_loose_rules_asked_for_by_name_are_used_and_counted(
    loose_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHECK", "0")  # which finds that NaN * 0 is another value
    proofgrad.load_rules(loose_file, loose="real")
    assert product() == [0.0, 0.0]
    x = Tensor([3.0, 1.0]).realize()
    told = proofgrad.explain(x * 0.0, (x + 1.5) + (x + 1.5)).splitlines()
    assert told[0].endswith("0 unproven, 1 loose")
    assert "    LOOSE: mul_zero" in told


def test_loose_rules_asked_for_by_the_environment_are_used_while_it_asks(loose_file: Path) -> None:
    with Context(FASTMATH="real"):
        proofgrad.load_rules(loose_file)
        assert product() == [0.0, 0.0]
    assert is_exact(product())
    assert ((Tensor([3.0]) + 1.5) + (Tensor([3.0]) + 1.5)).tolist() == [9.0]


def test_a_class_that_there_is_not_is_refused(loose_file: Path) -> None:
    with pytest.raises(ValueError, match="names fast; there are nsz, finite, real"):
        proofgrad.load_rules(loose_file, loose=["fast"])


@pytest.mark.parametrize("name", ["algebra", "bounds", "fastmath_real"])
def test_every_set_of_the_library_keeps_its_name(tmp_path: Path, name: str) -> None:
    file = tmp_path / "mine.rules"
    file.write_text(RIGHT.replace("ruleset mine", f"ruleset {name}"))
    with pytest.raises(ValueError, match="choose another name"):
        proofgrad.load_rules(file)
