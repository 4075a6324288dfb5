"""The gate: no rule without fresh evidence for exactly that rule (core/rewrite/ledger.py)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from ledgers import MEANINGS, SOLVERS, as_bytes, forged_entry, forged_ledger

from proofgrad.core.rewrite.ledger import (
    MOST_BYTES,
    EvidenceError,
    entry_key,
    find_problems,
    ledger_text,
    open_ledger,
    read_ledger,
    seal,
)
from proofgrad.rules import library
from proofgrad.verify.dsl.parser import parse_rules
from proofgrad.verify.prove.ledger import fresh_entries

TEXT = """\
# A comment.
ruleset little over int, index

"Adding zero changes nothing."
rule add_zero: x + 0 => x
rule nested over index:  # one division
  x // c // d => x // {c * d}   where c > 0, d > 0
rule mul_one: x * 1 => x
"""


def read(text: str, ledger: dict[str, Any], meanings: str = MEANINGS) -> tuple[Any, ...]:
    return read_ledger("little", text.encode(), as_bytes(ledger), meanings)


def refusal(text: str, ledger: dict[str, Any], meanings: str = MEANINGS) -> str:
    with pytest.raises(EvidenceError) as error:
        read(text, ledger, meanings)
    assert "run `verify-rules`" in str(error.value)
    return str(error.value)


def test_fresh_evidence_gives_the_rules_of_the_file_in_order() -> None:
    assert read(TEXT, forged_ledger(TEXT)) == parse_rules(TEXT).rules


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        ("x * 1 => x", "x * 1 => 1", "little.mul_one"),
        ("where c > 0, d > 0", "where c > 0", "little.nested"),
        ("nested over index", "nested over int", "little.nested"),
        ("x + 0 => x", "x + 1 => x", "little.add_zero"),
        ("x + 0 => x", "x + 0 => x + 0 + 0", "little.add_zero"),
    ],
)
def test_a_changed_rule_is_refused_by_name(before: str, after: str, name: str) -> None:
    message = refusal(TEXT.replace(before, after), forged_ledger(TEXT))
    assert f"rule {name} may not be used: its text has changed since it was proven" in message


def test_a_new_rule_is_refused_by_name() -> None:
    message = refusal(TEXT + "rule wrong: x * 2 => x\n", forged_ledger(TEXT))
    assert "rule little.wrong may not be used: it is not in the ledger" in message


def test_a_rule_taken_out_of_the_file_is_refused() -> None:
    message = refusal(TEXT.replace("rule mul_one: x * 1 => x\n", ""), forged_ledger(TEXT))
    assert "rule little.mul_one may not be used: it is in the ledger but not in the file" in message


def test_changed_default_domains_are_refused() -> None:
    message = refusal(TEXT.replace("over int, index", "over int, float"), forged_ledger(TEXT))
    assert "the file has changed since it was proven" in message


def test_changed_meanings_are_refused() -> None:
    message = refusal(TEXT, forged_ledger(TEXT), meanings="e" * 64)
    assert "rule little.add_zero may not be used: it was proven with other meanings" in message


def test_the_rules_of_the_ledger_run_so_another_rule_in_it_is_refused() -> None:
    other = parse_rules(TEXT.replace("x * 1 => x", "x * 2 => x")).rules
    ledger = forged_ledger(TEXT)
    ledger["rules"][2]["rule"] = forged_entry(other[2])["rule"]
    assert "rule little.mul_one may not be used" in refusal(TEXT, ledger)


def _edit_verdict(ledger: dict[str, Any]) -> None:
    entry = ledger["rules"][1]
    ledger["rules"][1] = {**entry, "verdict": "proved", "reason": "trust me"}


def _edit_text(ledger: dict[str, Any]) -> None:
    ledger["rules"][0]["rule"]["text"] += " "
    ledger["rules"][1]["rule"]["text"] = "rule nested over index: x => x"


def _edit_doc(ledger: dict[str, Any]) -> None:
    ledger["rules"][0]["rule"]["doc"] = "It is proven, honestly."


def _swap_operands(ledger: dict[str, Any]) -> None:
    ledger["rules"][1]["rule"]["right"] = ledger["rules"][1]["rule"]["right"][::-1] * 2


def _drop_condition(ledger: dict[str, Any]) -> None:
    del ledger["rules"][1]["rule"]["where"][0]


def _drop_condition_and_seal_again(ledger: dict[str, Any]) -> None:
    _drop_condition(ledger)
    ledger["rules"][1]["seal"] = seal(ledger["rules"][1])


def _other_solver(ledger: dict[str, Any]) -> None:
    ledger["solvers"] = {"z3": "6.0.0"}


def _exchange_entries(ledger: dict[str, Any]) -> None:
    first, second = ledger["rules"][0], ledger["rules"][1]
    first["rule"], second["rule"] = second["rule"], first["rule"]


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (_edit_verdict, "edited by hand (the seal is broken)"),
        (_edit_text, "its text has changed since it was proven"),
        (_edit_doc, "edited by hand (the seal is broken)"),
        (_swap_operands, "about another rule, other meanings or other solver"),
        (_drop_condition, "about another rule, other meanings or other solver"),
        (_drop_condition_and_seal_again, "about another rule, other meanings or other solver"),
        (_other_solver, "about another rule, other meanings or other solver versions"),
        (_exchange_entries, "its text has changed since it was proven"),
    ],
)
def test_an_edited_ledger_is_refused(edit: Callable[[dict[str, Any]], None], reason: str) -> None:
    ledger = forged_ledger(TEXT)
    edit(ledger)
    assert reason in refusal(TEXT, ledger)


@pytest.mark.parametrize("verdict", ["bounded", "refuted", "unknown"])
def test_only_a_proof_admits_a_rule(verdict: str) -> None:
    ledger = forged_ledger(TEXT)
    ledger["rules"][1] = forged_entry(parse_rules(TEXT).rules[1], verdict)
    message = refusal(TEXT, ledger)
    assert f"rule little.nested may not be used: its verdict is {verdict}" in message


def test_a_proof_without_an_instance_admits_nothing() -> None:
    ledger = forged_ledger(TEXT)
    entry = {**ledger["rules"][1], "instances": 0}
    ledger["rules"][1] = {**entry, "seal": seal(entry)}
    assert "the engine was seen to run it on no instance" in refusal(TEXT, ledger)


@pytest.mark.parametrize(
    ("part", "value", "reason"),
    [
        ("format", 3, "its ledger has format 3; this version reads 2"),
        ("format", None, "its ledger has format None"),
        ("ruleset", "algebra", "its ledger is about the set 'algebra'"),
        ("rules", 3, "an entry of its ledger does not have the parts"),
        ("rules", [{}], "an entry of its ledger does not have the parts"),
        ("solvers", [], "its ledger lacks"),
        ("fingerprint", 1, "its ledger lacks"),
    ],
)
def test_a_ledger_of_another_shape_is_refused(part: str, value: Any, reason: str) -> None:
    assert reason in refusal(TEXT, {**forged_ledger(TEXT), part: value})


@pytest.mark.parametrize(
    "content",
    [
        as_bytes(forged_ledger(TEXT))[:-40],
        b"",
        b"[]",
        b"\xff\xfe",
        b"[" * 200_000,
        b'{"format": 1, "x": ' * 50_000,
    ],
    ids=["truncated", "empty", "list", "no text", "deep list", "deep object"],
)
def test_what_is_no_ledger_is_refused(content: bytes) -> None:
    with pytest.raises(EvidenceError, match=r"rule little\.\* may not be used"):
        read_ledger("little", TEXT.encode(), content, MEANINGS)


def test_a_ledger_that_is_too_large_is_refused_unread() -> None:
    with pytest.raises(EvidenceError, match="more than 16777216"):
        read_ledger("little", TEXT.encode(), b" " * (MOST_BYTES + 1), MEANINGS)


def test_a_rule_of_hostile_parts_is_refused() -> None:
    ledger = forged_ledger(TEXT)
    for part in ({"System": ["rm"]}, {"Var": ["x"]}, 7):
        entry = {**ledger["rules"][0]}
        entry["rule"] = {**entry["rule"], "left": part}
        entry["key"] = entry_key(entry["rule"], MEANINGS, ledger["solvers"])
        entry["seal"] = seal(entry)
        message = refusal(TEXT, {**ledger, "rules": [entry, *ledger["rules"][1:]]})
        assert "rule little.add_zero may not be used" in message


def test_numbers_that_json_does_not_have_are_refused() -> None:
    content = as_bytes(forged_ledger(TEXT)).replace(b'"steps": 5', b'"steps": NaN')
    with pytest.raises(EvidenceError, match="rule little.add_zero may not be used"):
        read_ledger("little", TEXT.encode(), content, MEANINGS)


def written(text: str = TEXT) -> bytes:
    """The ledger as the writer makes it, with the digest that spares its entries a check."""
    ledger = forged_ledger(text)
    entries = ledger["rules"]
    return ledger_text("little", text.encode(), MEANINGS, ledger["solvers"], entries).encode()


def test_a_ledger_as_it_was_written_gives_the_rules_when_asked() -> None:
    rules = open_ledger("little", TEXT.encode(), written(), MEANINGS)
    assert tuple(rules) == parse_rules(TEXT).rules == read(TEXT, json.loads(written()))


def test_a_ledger_with_a_wrong_digest_is_checked_entry_by_entry() -> None:
    spaced = written().replace(b'"name":"nested"', b'"name": "nested"', 1)
    assert open_ledger("little", TEXT.encode(), spaced, MEANINGS) == parse_rules(TEXT).rules
    edited = written().replace(b'["x","T"]', b'["y","T"]', 1)
    with pytest.raises(EvidenceError, match="rule little.add_zero may not be used"):
        open_ledger("little", TEXT.encode(), edited, MEANINGS)


def test_a_written_ledger_with_another_verdict_is_refused_before_it_is_used() -> None:
    entries = [forged_entry(rule) for rule in parse_rules(TEXT).rules]
    entries[1] = forged_entry(parse_rules(TEXT).rules[1], "unknown")
    text = ledger_text("little", TEXT.encode(), MEANINGS, {"z3": "5.4.0"}, entries)
    with pytest.raises(
        EvidenceError, match="little.nested may not be used: its verdict is unknown"
    ):
        open_ledger("little", TEXT.encode(), text.encode(), MEANINGS)


def test_stale_meanings_and_sources_are_refused_with_a_right_digest_too() -> None:
    with pytest.raises(EvidenceError, match="other meanings"):
        open_ledger("little", TEXT.encode(), written(), "e" * 64)
    changed = TEXT.replace("x * 1", "x * 2")
    with pytest.raises(EvidenceError, match="little.mul_one may not be used: its text"):
        open_ledger("little", changed.encode(), written(), MEANINGS)


def test_no_changed_byte_of_a_ledger_changes_a_rule() -> None:
    random, good, rules = Random(5), written(), parse_rules(TEXT).rules
    for _ in range(600):
        at = random.randrange(len(good))
        bad = good[:at] + bytes([random.randrange(256)]) + good[at + 1 :]
        try:
            found = tuple(open_ledger("little", TEXT.encode(), bad, MEANINGS))
        except EvidenceError:
            continue
        assert found == rules


def test_the_library_loads_without_solver_and_parser() -> None:
    program = (
        "import sys; from proofgrad.rules.library import load_library\n"
        "assert all(s.proven and s.rules for s in load_library().values())\n"
        "print([m for m in ('z3', 'lark', 'proofgrad.verify') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_every_problem_is_listed() -> None:
    text = TEXT.replace("x * 1", "x * 2").replace("x + 0", "x + 3")
    found = find_problems("little", text.encode(), as_bytes(forged_ledger(TEXT)), MEANINGS)
    assert [problem.name for problem in found] == ["little.add_zero", "little.mul_one"]


def test_prose_is_not_part_of_what_was_proven() -> None:
    rule = parse_rules(TEXT).rules[0]
    moved = parse_rules("ruleset little over int, index\n\n\nrule add_zero: x+0 => x").rules[0]
    assert entry_key(rule, MEANINGS, {}) == entry_key(moved, MEANINGS, {})


def test_a_set_without_ledger_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(library, "PROOFS", tmp_path)
    with pytest.raises(EvidenceError, match=r"there is no ledger algebra.json"):
        library.load_library()
    (tmp_path / "algebra.json").mkdir()
    with pytest.raises(EvidenceError, match=r"there is a folder, and no ledger, algebra.json"):
        library.load_library()


def covered_files() -> list[Path]:
    return [*dict.fromkeys([*library.meaning_files(), *library.execution_files()])]


def test_every_file_that_executes_rules_is_in_the_fingerprint() -> None:
    covered = set(covered_files())
    for folder in ("core/rewrite", "core/ir"):
        assert covered >= set((library.ROOT / folder).glob("*.py"))


def test_a_ledger_is_stale_after_a_change_of_any_file_of_the_fingerprint(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for path in covered_files():
        copy = tmp_path / path.relative_to(library.ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    monkeypatch.setattr(library, "ROOT", tmp_path)
    seen = {library.fingerprint()}
    ledger = forged_ledger(TEXT, meanings=library.fingerprint())
    for path in covered_files():
        whole = path.read_bytes()
        path.write_bytes(whole + b"\n")
        changed = library.fingerprint()
        seen.add(changed)
        told = refusal(TEXT, ledger, changed)
        is_meaning = path in library.meaning_files()
        assert ("other meanings" if is_meaning else "what executes it has changed") in told
        path.write_bytes(whole)
        assert len(read(TEXT, ledger, library.fingerprint())) == 3
    assert len(seen) == len(covered_files()) + 1


def test_proofs_are_kept_where_only_what_executes_rules_changed(tmp_path: Path) -> None:
    rules, source = parse_rules(TEXT).rules, TEXT.encode()
    before, after = "a" * 64 + "/" + "b" * 64, "a" * 64 + "/" + "c" * 64
    entries = [forged_entry(rule, meanings=before) for rule in rules]
    file = tmp_path / "little.json"
    file.write_text(ledger_text("little", source, before, SOLVERS, entries))
    with pytest.raises(EvidenceError, match="what executes it has changed"):
        open_ledger("little", source, file.read_bytes(), after)
    kept = fresh_entries(file, rules, after, SOLVERS)
    assert set(kept) == {"add_zero", "nested", "mul_one"}
    assert fresh_entries(file, rules, "d" * 64 + "/" + "b" * 64, SOLVERS) == {}


def test_ledgers_are_json_that_python_reads_back() -> None:
    ledger = forged_ledger(TEXT)
    assert json.loads(as_bytes(ledger)) == ledger
