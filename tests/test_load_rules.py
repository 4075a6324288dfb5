"""A user's rule file: proven, then used; refused whole if one rule of it is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import proofgrad
from proofgrad import Tensor
from proofgrad.core.tensor.realize import compiler

RIGHT = "ruleset mine over uint8\nrule absorb: (x | y) & x => x\n"
WRONG = "ruleset mine over uint8\nrule wrong_shift: (x + c) << 1 => x << 1\n"


@pytest.fixture(autouse=True)
def library_as_before() -> Iterator[None]:
    yield
    compiler().library._added.clear()


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


def test_a_malformed_file_is_refused_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "mine.rules"
    file.write_text("ruleset mine over uint8\nrule broken: x + => x\n")
    with pytest.raises(ValueError, match=r"mine\.rules:2:\d+"):
        proofgrad.load_rules(file)


def test_a_set_of_the_library_cannot_be_replaced(tmp_path: Path) -> None:
    file = tmp_path / "mine.rules"
    file.write_text(RIGHT.replace("ruleset mine", "ruleset algebra"))
    with pytest.raises(ValueError, match="choose another name"):
        proofgrad.load_rules(file)
