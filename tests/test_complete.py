"""The records beside the ledgers: they are about the present rules, and what they lack is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proofgrad.core.rewrite.rule import rule_from_json
from proofgrad.verify.audit.crosscheck import Outcome, write_outcomes
from proofgrad.verify.audit.mutants_record import digest_of_mutants, read_by_hand, write_record
from proofgrad.verify.audit.obligations import evidence_digest
from proofgrad.verify.cli import main
from proofgrad.verify.commands import complete, mutants_page
from proofgrad.verify.commands.crosscheck import library_entries
from proofgrad.verify.commands.mutants import SURVIVORS
from proofgrad.verify.commands.mutants_page import mutants_report

PAGE = Path(__file__).parent.parent / "docs" / "mutants.md"
(NAME, ENTRY), *_ = library_entries(["ranges"])


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Records of one rule that lack nothing, in a folder of their own."""
    for name in ("CROSSCHECK", "MUTANTS", "SURVIVORS"):
        monkeypatch.setattr(complete, name, tmp_path / f"{name.lower()}.json")
    agreed = Outcome(NAME, evidence_digest(ENTRY), agreed={"1": "cvc5"}).to_json()
    write_outcomes(tmp_path / "crosscheck.json", {NAME: agreed}, {"cvc5": "1"})
    digest = digest_of_mutants(rule_from_json(ENTRY["rule"]))
    told = {"digest": digest, "refuted": 99, "open": [], "idle": [], "equal": []}
    write_record(tmp_path / "mutants.json", {NAME: told})
    return tmp_path


def problems() -> list[str]:
    entries = [(NAME, ENTRY)]
    unjudged = complete.rules_without_verdict(entries)
    return [*complete.crosscheck_problems(entries), *complete.mutant_problems(len(unjudged), 1)]


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text, old
    path.write_text(text.replace(old, new, 1))


def test_nothing_is_lacking(records: Path) -> None:
    assert problems() == []


@pytest.mark.parametrize(
    "file, old, new, told",
    [
        ("crosscheck.json", f'"{NAME}"', '"ranges.other"', "no other solver was asked"),
        ("crosscheck.json", evidence_digest(ENTRY), "0", "no other solver was asked"),
        ("crosscheck.json", '["1"]', '["2"]', "edited by hand"),
        (
            "mutants.json",
            f'"{NAME}"',
            '"ranges.other"',
            "the mutants of 1 of 1 rules were not judged",
        ),
        (
            "mutants.json",
            '"digest": "',
            '"digest": "0',
            "the mutants of 1 of 1 rules were not judged",
        ),
        ("mutants.json", '"open": []', '"open": [{"change": "left: a"}]', "no verdict on it"),
        (
            "mutants.json",
            '"refuted": 99, "open": []',
            '"refuted": 1, "open": [{"change": "b"}]',
            "95%",
        ),
    ],
)
def test_what_is_lacking_is_named(records: Path, file: str, old: str, new: str, told: str) -> None:
    edit(records / file, old, new)
    assert any(told in problem for problem in problems()), problems()
    assert all(NAME in problem or "mutants" in problem for problem in problems())


@pytest.mark.parametrize("text", ["", "null", "[]", '{"a":', "{}"])
def test_a_record_that_is_none_is_a_problem(records: Path, text: str) -> None:
    (records / "crosscheck.json").write_text(text)
    (records / "mutants.json").write_text(text)
    assert any("no other solver was asked" in problem for problem in problems())


@pytest.mark.parametrize("text", ["", "null", "3", '{"rules": 3}'])
def test_verdicts_by_hand_that_are_none_are_a_problem(
    records: Path, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (records / "survivors.json").write_text(text)
    assert any("no list of verdicts by hand" in problem for problem in problems())
    monkeypatch.setattr(mutants_page, "SURVIVORS", records / "survivors.json")
    assert main(["--report", "mutants"]) == 1
    assert "survivors.json is no list of verdicts by hand" in capsys.readouterr().err


def test_a_verdict_by_hand_is_found_by_patterns(records: Path) -> None:
    edit(records / "mutants.json", '"open": []', '"open": [{"change": "left: a becomes b"}]')
    by_hand: list[Any] = [{"rule": "ranges.*", "change": "left: *", "verdict": "true: because"}]
    (records / "survivors.json").write_text(json.dumps(by_hand))
    assert problems() == []


def test_the_records_of_the_library_lack_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check-records"]) == 0, capsys.readouterr().out


def test_the_page_is_what_the_command_prints() -> None:
    assert PAGE.read_text(encoding="utf-8") == mutants_report()


def test_verdicts_by_hand_say_true_wrong_or_that_it_is_not_known() -> None:
    starts = ("true", "wrong", "not known")
    assert [one for one in read_by_hand(SURVIVORS) if not one.verdict.startswith(starts)] == []
