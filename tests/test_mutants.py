"""Rules with a mistake in them: which are made, that they are refuted, and what is told of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from proofgrad.core.rewrite.rule import Rule
from proofgrad.rules import library
from proofgrad.rules.library import rule_file
from proofgrad.verify.audit import judge_mutants
from proofgrad.verify.audit.judge_mutants import judge
from proofgrad.verify.audit.mutants import Mutant, mutants
from proofgrad.verify.audit.mutants_record import digest_of_mutants, read_record
from proofgrad.verify.cli import main
from proofgrad.verify.commands import mutants as commands_mutants
from proofgrad.verify.dsl.parser import parse_rules
from proofgrad.verify.encode.types import cases
from proofgrad.verify.sample.facts import refutes_fact


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
        ("x + c => {wrap: c // 2}", {"right: operands of FLOORDIV swapped"}),
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
    monkeypatch.setattr(judge_mutants, "STEPS_A_QUESTION", (1, 1))
    assert judge(mutant("(x & y) + (x | y) => y + x", "int")).verdict == "open"
    assert judge(mutant("x + x => x * 3")).verdict == "refuted"  # by samples


def test_a_mutant_that_claims_less_follows_from_its_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    proven = rule("x % c => x where 0 <= x, x < c")
    stricter = rule("x % c => x where 1 <= x, x < c")
    monkeypatch.setattr(judge_mutants, "decide", None)  # nothing else is asked
    assert judge(Mutant(proven, stricter, "")).verdict == "equal"


def test_a_law_that_uses_a_loop_outside_of_it_is_refuted() -> None:
    text = "rule r (T in int): sum[r, R](x) => sum[R](x * cast({count(r)}: index, T))"
    (law,) = parse_rules(f"ruleset t over loop\n{text}").rules
    assert judge(Mutant(law, law, "")).verdict == "refuted"


FACTS = ["bounds", "bits", "divisor", "finite", "not_nan"]


@pytest.mark.parametrize("name", FACTS)
def test_values_refute_no_line_of_facts_and_most_of_its_mutants(name: str) -> None:
    rules = parse_rules(rule_file(name).read_text()).rules[:12]
    wrong = [case for rule in rules for case in cases(rule) if refutes_fact(case, 20)]
    assert not wrong
    made = [one for rule in rules[:5] for one in mutants(rule)]
    refuted = [one for one in made if any(refutes_fact(c, 200) for c in cases(one.rule))]
    assert len(refuted) >= len(made) / 4


@pytest.fixture
def own_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two sets in a folder of their own."""
    monkeypatch.setattr(commands_mutants, "MUTANTS", tmp_path / "mutants.json")
    monkeypatch.setattr(library, "RULES", tmp_path)
    for name in ("one", "two"):
        (tmp_path / f"{name}.rules").write_text(f"ruleset {name} over int\nrule r: x + 0 => x\n")
    return tmp_path


def test_verdicts_are_kept_until_the_rule_changes(
    own_library: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def judged(*arguments: str) -> str:
        assert main(["--mutants", *arguments, "-j", "1"]) == 0
        return capsys.readouterr().out

    assert "1 of 1 rules judged" in judged("one")
    assert "1 of 2 rules judged" in judged()
    record = read_record(own_library / "mutants.json")
    assert list(record) == ["one.r", "two.r"]
    assert record["one.r"]["refuted"] >= 2
    file = own_library / "two.rules"
    file.write_text(file.read_text().replace("rule r", '"A word."\nrule r'))
    assert "0 of 2 rules judged" in judged()
    file.write_text(file.read_text().replace("x + 0", "x | 0"))
    assert "1 of 2 rules judged" in judged()
    assert "2 of 2 rules judged" in judged("--all")
    assert "100.0% decided" in judged()


def test_the_digest_is_about_the_rule_and_its_mutants(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = rule("x + 0 => x"), rule("x | 0 => x", "int")
    assert digest_of_mutants(first) != digest_of_mutants(second)
    assert digest_of_mutants(first) == digest_of_mutants(replace(first, doc="Prose.", line=7))


def test_no_write_writes_nothing(own_library: Path) -> None:
    before = sorted(own_library.iterdir())
    assert main(["--mutants", "one", "-j", "1", "--no-write"]) == 0
    assert sorted(own_library.iterdir()) == before
