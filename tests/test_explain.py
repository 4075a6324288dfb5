"""`explain`: every rule that fired, with its proof; for terms and for Tensors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import proofgrad
from proofgrad import Tensor
from proofgrad.__main__ import main
from proofgrad.core.tensor.runtime.realize import compiler
from proofgrad.rules.evidence import proofs_of_set, statistics
from proofgrad.rules.library import Meanings, library_names, load_set
from proofgrad.verify.explain.steps_of_terms import explain_term

MINE = "ruleset mine over uint8\nrule square_mod: x * x % 4 => x % 2\n"


@pytest.fixture(autouse=True)
def library_as_before() -> Iterator[None]:
    yield
    compiler().library._added.clear()


def test_a_term_is_explained_with_the_proof_of_each_step() -> None:
    lines = explain_term("x // 4 // 8 over index where 0 <= x < 100").splitlines()
    assert lines[0] == "x // 4 // 8"
    assert lines[1] == "  divmod.nested:  x // 4 // 8  =>  x // 32"
    assert lines[2].startswith("    proved over index, ")
    assert lines[-1] == "normal form: x // 32"


@pytest.mark.parametrize(
    ("term", "normal"),
    [
        ("i % 10 where 0 <= i < 10", "i"),
        ("i % 10 where 0 <= i < 11", "i % 10"),
        ("max(x, y) over int where -3 <= x < 3, y == 4", "4"),
        ("x + -0.0 over float16", "x"),
        ("x + 0.0 over float16", "x + 0.0"),
        ("!(p & true) over bool", "!p"),
        ("max(x, 3) where 3 < x", "x"),
        ("max(x, 3) where 2 < x", "x"),
        ("max(x, 3) where 1 < x", "max(x, 3)"),
    ],
)
def test_the_normal_form_follows_from_the_type_and_the_bounds(term: str, normal: str) -> None:
    assert explain_term(term).splitlines()[-1] == f"normal form: {normal}"


def test_the_proof_shown_is_that_of_the_type() -> None:
    assert "proved over int (uint8), " in explain_term("x ^ 0 over uint8")


@pytest.mark.parametrize(
    ("term", "reason"),
    [
        ("x + y over nothing", "no domain of single values is called 'nothing'"),
        ("x where 0 <= y", "the term has no name 'y'"),
        ("x where x < 1.5", "compare one name with integers"),
        ("x + * y", "unexpected '*'"),
    ],
)
def test_a_text_that_is_no_term_is_refused_with_its_position(term: str, reason: str) -> None:
    with pytest.raises(ValueError, match=r"<term>:1:\d+: ") as refused:
        explain_term(term)
    assert reason in str(refused.value)


@pytest.mark.long
def test_the_command_explains_with_rules_of_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.rules"
    file.write_text(MINE)
    assert main(["explain", "x * x % 4 over uint8", "--rules", str(file)]) == 0
    assert (
        "  mine.square_mod:  x * x % 4  =>  x % 2\n    proved over uint8, "
        in capsys.readouterr().out
    )


def test_the_command_uses_no_wrong_rules(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.rules"
    file.write_text(MINE.replace("% 2", "% 4"))
    assert main(["explain", "x * x % 4 over uint8", "--rules", str(file)]) == 1
    assert "mine.square_mod is refuted" in capsys.readouterr().err


def test_a_tensor_is_explained_by_stages_kernels_and_rules() -> None:
    text = proofgrad.explain((Tensor([[1, 2], [3, 4]]).permute(1, 0) * 1).sum(axis=0))
    lines = text.splitlines()
    assert lines[0].startswith("1 kernel, 1 copy, ")
    assert lines[0].endswith(" 0 unproven, 0 loose")
    stages = [line.strip().partition(":")[0] for line in lines]
    assert "cut into kernels" in stages and "linearize" in stages
    assert any(line.startswith("  algebra ") and "mul_one 1" in line for line in lines)


def test_rules_of_a_user_show_in_the_explanation_of_a_tensor(tmp_path: Path) -> None:
    file = tmp_path / "mine.rules"
    file.write_text(MINE)
    proofgrad.load_rules(file)
    x = Tensor([1, 2], dtype="uint8")
    before = compiler().library.journal.total
    assert "  mine 1: square_mod 1" in proofgrad.explain(x * x % 4).splitlines()
    assert compiler().library.journal.total == before  # only what runs is counted


def test_nothing_is_left_to_explain_of_a_computed_tensor() -> None:
    assert proofgrad.explain((Tensor([1, 2]) + 1).realize()).splitlines()[0] == (
        "0 kernels, 0 copies, 0 rewrites, 0 unproven, 0 loose"
    )


def test_statistics_count_what_the_ledgers_hold(capsys: pytest.CaptureFixture[str]) -> None:
    meanings = Meanings()
    for name in library_names():
        found = statistics(name)
        assert found.rules == len(load_set(name, meanings).rules)
        assert found.proofs == sum(found.methods.values()) >= found.rules
    assert main(["rules", "--stats"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows] == ["set", *library_names(), "all"]


def test_statistics_of_one_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "algebra", "--stats"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["rules", "nothing", "--stats"]) == 1


def test_each_rule_has_a_proof_with_a_method() -> None:
    proofs = proofs_of_set("divmod")["divmod.nested"]
    assert {"index", "int"} == {proof.domain for proof in proofs}
    assert all(proof.method and proof.steps >= 0 for proof in proofs)


@pytest.mark.parametrize(("asked", "printed"), [((), "def quotient"), (("bounds",), "def bounds")])
def test_the_code_made_from_rules_is_printed(
    asked: tuple[str, ...], printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rules", *asked, "--code"]) == 0
    assert printed in capsys.readouterr().out
