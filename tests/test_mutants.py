"""Rules with a mistake in them: which are made, that they are refuted, and what is told of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from proofgrad.core.rewrite.rule import Rule
from proofgrad.rules import library
from proofgrad.rules.library import rule_file
from proofgrad.verify import commands, judge_mutants
from proofgrad.verify.cli import main
from proofgrad.verify.dsl.parser import parse_rules
from proofgrad.verify.judge_mutants import counts, judge, judge_rules
from proofgrad.verify.mutants import Mutant, mutants


def rule(text: str, domain: str = "int, index") -> Rule:
    return parse_rules(f"ruleset t over {domain}\nrule r: {text}\n", check_order=False).rules[0]


def changes(text: str, domain: str = "int, index") -> set[str]:
    return {mutant.change for mutant in mutants(rule(text, domain))}


def mutant(text: str, domain: str = "int, index") -> Mutant:
    """`text` itself in the place of a mutant."""
    return Mutant(rule("x + 0 => x", domain), rule(text, domain), "")


@pytest.mark.parametrize(
    "text, expected",
    [
        ("x + 0 => x", {"left: 0 becomes 1", "left: 0 becomes -1", "left: ADD becomes MUL"}),
        ("x // y * y => x", {"left: operands of FLOORDIV swapped", "left: y is not repeated"}),
        ("x // 3 => x", {"left: FLOORDIV becomes TRUNCDIV", "left: 3 becomes -3"}),
        ("max(x, -y) => x", {"left: MAX becomes MIN", "left: without NEG"}),
        ("x + c => x + {c - 1}", {"right: 1 becomes 0", "right: - becomes +"}),
        ("x % c => x where c > 0", {"where: without 0 < c", "where: < becomes <="}),
        ("x + y => y where x < y", {"where: hi becomes lo", "where: < becomes >"}),
        ("x + c => {wrap: c // 2}", {"right: operands of // swapped"}),
    ],
)
def test_the_usual_mistakes_are_made(text: str, expected: set[str]) -> None:
    assert expected <= changes(text)


def test_signs_of_float_zeros_are_changed() -> None:
    assert "left: 0.0 becomes -0.0" in changes("x * 0.0 => 0.0", "float")


def test_mutants_differ_from_the_rule_and_from_each_other() -> None:
    original = rule("x * 0 + x * 0 => 0")
    made = [one.rule for one in mutants(original)]
    assert len(made) == len(set(made))
    assert original not in made


@pytest.mark.parametrize(
    "text, domain, verdict",
    [
        ("x + 1 => x", "int, index", "refuted"),
        ("x + x => x * 2", "int, index", "equal"),
        ("x % c => x where c > 0, c < 0", "index", "idle"),
        ("x + y => y + x where lo(x) > hi(x)", "index", "idle"),
    ],
)
def test_verdicts(text: str, domain: str, verdict: str) -> None:
    assert judge(mutant(text, domain)).verdict == verdict


def test_types_without_the_literal_are_left_out() -> None:
    wider = replace(rule("x * -1 => -x", "signed"), domains=("int",))
    assert judge(Mutant(wider, wider, "")).verdict == "equal"


def test_a_mutant_without_any_type_is_no_mutant() -> None:
    bits = replace(rule("x & 1 => 1", "int"), domains=("index",))
    assert judge(Mutant(bits, bits, "")).verdict == ""


def test_what_is_not_decided_in_few_steps_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_mutants, "STEPS_A_QUESTION", 1)
    assert judge(mutant("(x & y) + (x | y) => y + x", "int")).verdict == "open"
    assert judge(mutant("x + x => x * 3")).verdict == "refuted"  # by samples


def test_mutants_of_a_set_are_decided() -> None:
    rules = parse_rules(rule_file("cast").read_text()).rules
    judged = judge_rules(rules, 1)
    found = counts(judged)
    assert found["open"] <= 0.05 * len(judged)
    assert found["refuted"] > found["equal"]


def test_a_report_keeps_the_other_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mutants.json"
    monkeypatch.setattr(commands, "MUTANTS", file)
    for name in ("one", "two"):
        (tmp_path / f"{name}.rules").write_text(f"ruleset {name} over int\nrule r: x + 0 => x\n")
    monkeypatch.setattr(library, "RULES", tmp_path)
    assert main(["--mutants", "one", "-j", "1"]) == 0
    assert main(["--mutants", "two", "-j", "1"]) == 0
    sets = json.loads(file.read_text())["sets"]
    assert sorted(sets) == ["one", "two"]
    assert sets["one"]["counts"]["refuted"] >= 2
    assert "100.0% decided" in capsys.readouterr().out


def test_no_write_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "MUTANTS", tmp_path / "mutants.json")
    assert main(["--mutants", "ranges", "-j", "1", "--no-write"]) == 0
    assert list(tmp_path.iterdir()) == []
