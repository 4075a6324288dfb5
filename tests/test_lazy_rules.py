"""Rules of a ledger are decoded when they are needed, and code made from them is kept on disk."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite import division_bounds, index_code, index_terms, kept_code
from proofgrad.core.rewrite.engine import Rewriter
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.rewrite.index_terms import index_program
from proofgrad.core.rewrite.ledger import LazyRules, open_ledger, read_ledger
from proofgrad.core.rewrite.match import RuleSet
from proofgrad.core.rewrite.rule import Var
from proofgrad.rules.library import (
    ROOT,
    fingerprint,
    ledger_file,
    library_names,
    load_library,
    rule_file,
)

SIMPLIFY = ("algebra", "compare", "where", "cast", "divmod", "ranges", "reduce")


def opened(name: str) -> LazyRules:
    source, ledger = rule_file(name).read_bytes(), ledger_file(name).read_bytes()
    rules = open_ledger(name, source, ledger, fingerprint())
    assert isinstance(rules, LazyRules)
    return rules


@pytest.mark.parametrize("name", library_names())
def test_rules_decoded_one_by_one_are_those_that_were_checked(name: str) -> None:
    source, ledger = rule_file(name).read_bytes(), ledger_file(name).read_bytes()
    checked = read_ledger(name, source, ledger, fingerprint())
    lazy = opened(name)
    assert tuple(lazy) == checked
    assert len(lazy) == len(checked)
    for op in {Ops.ADD, Ops.FLOORDIV, Ops.WHERE, Ops.REDUCE}:
        expected = [r for r in checked if isinstance(r.left, Var) or r.left.op == op.name]
        assert opened(name).of_ops({op.name}) == expected
        assert list(RuleSet(name, opened(name)).rules_of({op})) == expected
        assert list(RuleSet(name, checked).rules_of({op})) == expected


def test_only_rules_about_the_operations_in_hand_are_decoded() -> None:
    lazy = opened("algebra")
    assert lazy._decoded == {}
    rules = RuleSet("algebra", lazy, proven=True)
    rules.candidates(UOp.range(4, 0).maximum(UOp.range(5, 1)))
    assert {rule.left.op for rule in lazy._decoded.values()} == {"MAX"}  # type: ignore[union-attr]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("PROOFGRAD_CACHE", str(tmp_path))
    yield tmp_path / "rules"
    kept_code.generator_digest.cache_clear()


def kept_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_code_made_from_rules_is_kept_between_processes(folder: Path) -> None:
    term = (UOp.range(9, 0) * 12 + UOp.range(7, 1)) // 4 % 3
    results = []
    for times in range(2):
        library = load_library()
        sets = [library[name] for name in SIMPLIFY]
        made = index_program(sets)
        assert made is not None
        assert (
            len(kept_files(folder)) == 1 + times
        )  # the code of bounds is kept from the first time on
        decoded = sum([len(s._given._decoded) for s in sets if isinstance(s._given, LazyRules)])
        assert (decoded == 0) is (times == 1)
        results.append((made.code.co_code, made.tried, made.left_over, made.collector))
        assert Rewriter(sets, Facts(library["bounds"])).rewrite(term) is UOp.range(7, 1) // 4
    assert results[0] == results[1]


def imported_by(path: Path) -> set[Path]:
    """The files of the package that a file imports, and those that they import."""
    found, waiting = {path}, [path]
    while waiting:
        for node in ast.walk(ast.parse(waiting.pop().read_text())):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("proof"):
                continue
            assert node.module is not None
            base = ROOT.joinpath(*node.module.split(".")[1:])
            for file in [base.with_suffix(".py"), *[base / f"{n.name}.py" for n in node.names]]:
                if file.exists() and file not in found:
                    found.add(file)
                    waiting.append(file)
    return found


def test_all_that_makes_the_code_is_part_of_its_key() -> None:
    needed = imported_by(Path(index_code.__file__)) | {Path(index_terms.__file__)}
    needed |= imported_by(Path(division_bounds.__file__))
    assert {file.name for file in needed} >= {"sums.py", "extractors.py", "rule.py", "ops.py"}
    assert needed <= {Path(file) for file in kept_code.generator_files()}


def test_a_change_of_any_file_that_makes_the_code_makes_it_anew(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = tmp_path / "core"
    copies.mkdir()
    for file in ("sums.py", "extractors.py"):
        (copies / file).write_bytes(Path(index_terms.__file__).with_name(file).read_bytes())
    monkeypatch.setattr(kept_code, "GENERATOR", (copies,))
    sets = [load_library()[name] for name in SIMPLIFY]
    for count, file in enumerate(("", "sums.py", "extractors.py"), 1):
        if file:
            (copies / file).write_text((copies / file).read_text() + "\n")
        kept_code.generator_digest.cache_clear()
        index_program(sets)
        assert len(kept_files(folder)) == count


def test_damaged_code_is_made_again(folder: Path) -> None:
    sets = [load_library()[name] for name in SIMPLIFY]
    index_program(sets)
    (file,) = kept_files(folder)
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + b"!")
    with pytest.warns(UserWarning, match="damaged"):
        assert index_program(sets) is not None
    assert file.read_bytes() == whole


def test_rules_without_evidence_leave_nothing_on_disk(folder: Path) -> None:
    sets = [RuleSet(name, load_library()[name].rules) for name in SIMPLIFY]
    assert index_program(sets) is not None
    assert kept_files(folder) == []
