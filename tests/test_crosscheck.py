"""Other solvers about the goals of rules: what they are asked, what follows from their answers."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest
import z3

from proofgrad.core.rewrite.rule import rule_from_json
from proofgrad.rules import library
from proofgrad.rules.library import library_names
from proofgrad.verify.audit import crosscheck, second_solver
from proofgrad.verify.audit.crosscheck import (
    Before,
    Outcome,
    goals_in,
    goals_of,
    read_outcomes,
    write_outcomes,
)
from proofgrad.verify.audit.obligations import evidence_digest
from proofgrad.verify.audit.second_solver import Second, ask_second
from proofgrad.verify.cli import main
from proofgrad.verify.commands import crosscheck as commands_crosscheck
from proofgrad.verify.commands import prove as commands
from proofgrad.verify.commands.crosscheck import CROSSCHECK, crosscheck_library, library_entries
from proofgrad.verify.commands.evidence import report
from proofgrad.verify.encode.text import stable, text_of
from proofgrad.verify.prove.rules import prove_rules
from proofgrad.verify.prove.solve import OPEN, PROVED, REFUTED, ask

PAGE = Path(__file__).parent.parent / "docs" / "evidence.md"
BITS = "(declare-fun x () (_ BitVec 8))(assert (= (bvadd x #x01) {}))(check-sat)"
FACTORS = """(declare-fun x () (_ BitVec 9))(declare-fun y () (_ BitVec 9))
(assert (= (bvmul (concat #b000000000 x) (concat #b000000000 y)) (_ bv65537 18)))(check-sat)"""
INTS = "(declare-fun x () Int)(assert (= (+ x 1) {}))(check-sat)"


def test_every_rule_has_an_outcome_about_its_present_evidence() -> None:
    told = read_outcomes(CROSSCHECK)["rules"]
    entries = dict(library_entries(library_names()))
    assert list(told) == list(entries)
    stale = [n for n, e in entries.items() if told[n]["evidence"] != evidence_digest(e)]
    assert not stale, "run verify-rules --crosscheck"


def test_no_goal_without_a_solver_or_a_reason() -> None:
    for name, told in read_outcomes(CROSSCHECK)["rules"].items():
        assert goals_in(told), name
        assert all(goal["reason"] for goal in told["not crosschecked"].values()), name


@pytest.mark.parametrize("ruleset", ["movement", "ranges", "reduce", "where"])
def test_the_goals_are_those_of_the_ledgers(ruleset: str) -> None:
    told = read_outcomes(CROSSCHECK)["rules"]
    for name, goals in goals_of(library_entries([ruleset]), processes=2).items():
        assert goals == goals_in(told[name]), name


def test_the_page_is_what_the_command_prints() -> None:
    assert PAGE.read_text(encoding="utf-8") == report()


@pytest.mark.parametrize("text, solver", [(BITS, "bitwuzla"), (INTS, "cvc5")])
def test_each_solver_says_yes_and_no(text: str, solver: str) -> None:
    pytest.importorskip(solver)
    assert ask_second(text.format("x")) == Second(PROVED, solver)
    assert ask_second(text.format(text.count("8") and "#x07" or "7")) == Second(REFUTED, solver)


def test_a_limit_of_bitwuzla_is_a_number_of_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("bitwuzla")
    steps = iter(range(10**9))
    monkeypatch.setattr(second_solver, "count", lambda _: steps)
    assert second_solver._ask_bitwuzla(FACTORS, 1) == OPEN
    taken = next(steps)
    monkeypatch.setattr(second_solver, "count", lambda first: itertools.count(first))
    assert second_solver._ask_bitwuzla(FACTORS, 1_000) == PROVED
    assert (
        1 <= taken - second_solver.BITWUZLA_STEPS_A_MS <= 4
    )  # it may ask once more on its way out


def test_what_no_solver_can_read_is_open_with_a_reason() -> None:
    pytest.importorskip("cvc5")
    answer = ask_second("(declare-fun x () Int)(assert (unheard of))(check-sat)")
    assert answer.verdict == OPEN
    assert "unsupported" in answer.reason


def test_numbers_of_names_do_not_matter() -> None:
    assert stable("(let ((?x7 a) ($x9 any!3)) ?x7)") == stable("(let ((?x1 a) ($x2 any!5)) ?x1)")
    assert stable("(f ?x1 ?x2)") != stable("(f ?x1 ?x1)")


def test_the_bits_of_a_float_are_asked_for_in_words_of_the_standard() -> None:
    x = z3.FP("x", z3.Float32())
    bits = z3.fpToIEEEBV(x)
    back = text_of([z3.fpBVToFP(bits, x.sort()) != x])
    assert "to_ieee_bv" not in back
    assert ask(back, 10**6).verdict == PROVED
    one = text_of([x == z3.FPVal(1.0, x.sort()), z3.fpToIEEEBV(-x) != z3.BitVecVal(0xBF800000, 32)])
    assert ask(one, 10**6).verdict == PROVED


def test_a_nan_may_have_any_bits_of_a_nan() -> None:
    x = z3.FP("x", z3.Float32())
    for nan in (0x7FC00000, 0x7F800001, 0xFFFFFFFF):
        assert ask(text_of([z3.fpToIEEEBV(x) == z3.BitVecVal(nan, 32)]), 10**6).verdict == REFUTED
    infinity = z3.BitVecVal(0x7F800000, 32)
    no_nan = text_of([z3.fpIsNaN(x), z3.fpToIEEEBV(x) == infinity])
    assert ask(no_nan, 10**6).verdict == PROVED


def test_a_disagreement_names_the_case_and_leaves_the_goal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    entries = library_entries(["ranges"])
    outcome = Outcome(entries[0][0], "", disagreed=[("ranges.r over int", "cvc5", "(the goal)")])
    path = tmp_path / "crosscheck.json"
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(commands_crosscheck, "CROSSCHECK", path)
    monkeypatch.setattr(commands_crosscheck, "crosscheck", lambda *_: [outcome])
    monkeypatch.setattr(commands_crosscheck, "second_versions", lambda: {"cvc5": "1"})
    assert crosscheck_library(["ranges"], jobs=1) == 1
    assert "ranges.r over int: z3 says that it holds, cvc5" in capsys.readouterr().out
    assert [file.read_text() for file in tmp_path.glob("*.smt2")] == ["(the goal)"]
    assert not path.exists()


def test_a_refuting_solver_is_a_disagreement_and_a_silent_one_is_not_agreement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name, entry = library_entries(["ranges"])[0]
    for verdict in (REFUTED, OPEN):
        answer = Second(verdict, "cvc5", "no answer")
        monkeypatch.setattr(crosscheck, "ask_second", lambda _, answer=answer: answer)
        outcome = crosscheck._crosscheck_rule((name, entry, {}))
        assert not outcome.agreed
        assert bool(outcome.disagreed) == (verdict == REFUTED)
        assert bool(outcome.not_checked) == (verdict == OPEN)


def test_a_witness_of_a_proof_finds_what_a_crosscheck_finds_afterwards() -> None:
    pytest.importorskip("cvc5")
    pytest.importorskip("bitwuzla")
    name, entry = library_entries(["ranges"])[0]
    law = rule_from_json(entry["rule"])
    (result,) = prove_rules([law], processes=1, witness=crosscheck.testify)
    told = crosscheck.outcome_of(result)
    assert told == crosscheck._crosscheck_rule((name, entry, {}))
    assert told.agreed and not told.disagreed


@pytest.mark.parametrize("verdict", [REFUTED, OPEN])
def test_what_a_witness_does_not_agree_to_is_told(
    monkeypatch: pytest.MonkeyPatch, verdict: str
) -> None:
    monkeypatch.setattr(crosscheck, "_ask_once", lambda _: Second(verdict, "cvc5", "no answer"))
    law = rule_from_json(library_entries(["ranges"])[0][1]["rule"])
    (result,) = prove_rules([law], processes=1, witness=crosscheck.testify)
    told = crosscheck.outcome_of(result)
    assert not told.agreed
    if verdict == REFUTED:
        case, solver, text = told.disagreed[0]
        assert (case, solver) == (str(result.obligations[0].case), "cvc5")
        assert text.rstrip().endswith("(check-sat)")
    else:
        assert set(told.not_checked.values()) >= {(str(result.obligations[0].case), "no answer")}


def test_all_with_crosscheck_proves_and_asks_in_one_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "crosscheck.json"
    monkeypatch.setattr(library, "RULES", tmp_path)
    monkeypatch.setattr(library, "PROOFS", tmp_path)
    monkeypatch.setattr(commands, "REFUTED_RULES", tmp_path / "refuted")
    monkeypatch.setattr(commands_crosscheck, "CROSSCHECK", path)
    monkeypatch.setattr(commands_crosscheck, "second_versions", lambda: {"cvc5": "1"})
    monkeypatch.setattr(crosscheck, "_ask_once", lambda _: Second(PROVED, "cvc5"))
    (tmp_path / "small.rules").write_text("ruleset small over index\nrule zero: x + 0 => x\n")
    everything = ["--all", "--crosscheck", "-j", "1"]
    assert main([*everything, "--no-write"]) == 0
    assert not path.exists()
    assert main(everything) == 0
    assert "1 rules: 1 goals agreed (cvc5 1), 0 disagreed" in capsys.readouterr().out
    ((name, told),) = read_outcomes(path)["rules"].items()
    ((_, entry),) = library_entries(["small"])
    assert (name, told["evidence"]) == ("small.zero", evidence_digest(entry))
    monkeypatch.setattr(crosscheck, "_ask_once", lambda _: Second(REFUTED, "cvc5"))
    before = path.read_bytes()
    assert main(everything) == 1
    assert path.read_bytes() == before
    assert "small.zero over index" in capsys.readouterr().out


def test_agreement_with_another_version_is_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "crosscheck.json"
    outcome = Outcome("a.b", "e", agreed={"1": "cvc5", "2": "bitwuzla"})
    write_outcomes(path, {"a.b": outcome.to_json()}, {"cvc5": "1", "bitwuzla": "1"})
    data = read_outcomes(path)
    now = {"cvc5": "2", "bitwuzla": "1"}
    assert crosscheck.agreed_before(data, now) == {"a.b": Before("", {"2": "bitwuzla"})}
    whole = {"a.b": Before("e", {"1": "cvc5", "2": "bitwuzla"})}
    assert crosscheck.agreed_before(data, data["solvers"]) == whole
    assert json.loads(path.read_bytes())["rules"]["a.b"]["agreed"]["cvc5"] == ["1"]


def test_the_same_evidence_is_not_asked_about_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(_: str) -> Second:
        raise AssertionError("asked")

    entries = library_entries(["ranges"])
    ((name, entry),) = entries
    monkeypatch.setattr(crosscheck, "ask_second", nobody)
    before = {name: Before(evidence_digest(entry), {"1": "cvc5"})}
    (outcome,) = crosscheck.crosscheck(entries, before, 1)
    assert outcome.agreed == {"1": "cvc5"}
    with pytest.raises(AssertionError, match="asked"):
        crosscheck.crosscheck(entries, {name: Before("other", {"1": "cvc5"})}, 1)


def test_a_record_that_was_edited_is_not_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "crosscheck.json"
    outcome = Outcome("a.b", "e", agreed={"1": "cvc5"})
    write_outcomes(path, {"a.b": outcome.to_json()}, {"cvc5": "1"})
    path.write_text(path.read_text().replace('"evidence": "e"', '"evidence": "f"'))
    assert crosscheck.agreed_before(read_outcomes(path), {"cvc5": "1"})["a.b"].evidence == ""


def test_a_solver_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(second_solver, "BITWUZLA", "no-such-solver")
    with pytest.raises(second_solver.NoSecondSolver, match="no-such-solver.*pip install"):
        second_solver.second_versions()
