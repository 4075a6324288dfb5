"""The laws of the steps: proved from nothing, refuted with numbers where they are wrong; no step without evidence."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.steps import evidence
from proofgrad.core.compile.steps.bijection import Bijection
from proofgrad.core.compile.steps.collapse import collapse_law
from proofgrad.core.compile.steps.evidence import EvidenceError, require_evidence
from proofgrad.core.compile.steps.loop_nest import LoopNest, Step, lowered
from proofgrad.core.compile.steps.reorder import RENUMBER
from proofgrad.core.compile.steps.split import MOST_PARTS, split, split_law
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.verify.cli import main
from proofgrad.verify.commands.steps_page import steps_report
from proofgrad.verify.steps import folds, prove
from proofgrad.verify.steps.all_steps import all_steps, problems
from proofgrad.verify.steps.bijections import claims_of, row_major
from proofgrad.verify.steps.claims import (
    PROVED,
    REFUTED,
    UNKNOWN,
    Asked,
    Whole,
    World,
    proved,
    tried,
)
from proofgrad.verify.steps.laws import LAWS, Law
from proofgrad.verify.steps.prove import Prover, decide_claim
from proofgrad.verify.steps.terms import Known, Refused, Term, lemmas

SMALL = (
    "split",
    "merge",
    "reorder",
    "run_as",
    "deinterleave",
    "pad_rows",
    "stage_window",
    "scatter",
    "overwrite",
    "join_sums",
    "read_inside",
    "unmask",
    "leave",
    "window",
    "split_index_set",
    "align",
    "pair",
    "offset_factor",
    "where_normal",
    "reduce_in_parts",
    "reduce_inside",
    "prefix_in_blocks",
    "mma",
)


# -- the laws -------------------------------------------------------------------------------------


def test_every_step_has_a_law_and_every_law_a_step() -> None:
    assert set(all_steps()) == set(LAWS)


@pytest.mark.parametrize("step", SMALL)
def test_a_law_is_proved_from_nothing(step: str) -> None:
    proof = Prover().prove(step, LAWS[step])
    assert proof.verdict == PROVED, proof.why
    assert all([decision.tried and decision.goals for decision in proof.decisions[len(lemmas()) :]])


def test_a_law_of_eight_digits_is_proved_in_linear_arithmetic() -> None:
    for name, claim in claims_of("8 loops", collapse_law(8)).items():
        decision = decide_claim(name, claim)
        assert (decision.verdict, decision.method) == (PROVED, "linear"), decision


@pytest.mark.parametrize("name", [name for name, _ in lemmas()])
def test_a_lemma_of_multiplication_is_proved(name: str) -> None:
    assert Asked().follows(dict(lemmas())[name])[0] == PROVED


def test_every_step_has_fresh_evidence() -> None:
    assert problems() == []


def test_the_page_is_what_the_evidence_says() -> None:
    page = Path(__file__).parent.parent / "docs" / "steps.md"
    assert page.read_text() == steps_report(), "run verify-rules --report steps > docs/steps.md"


def test_the_page_shows_every_step_and_its_loops() -> None:
    page, *sections = steps_report().split("\n## ")
    shown = {section.partition("\n")[0]: section for section in sections}
    assert "`windows.py`" in shown.pop("The tactics")
    assert shown.keys() == all_steps().keys()
    for name, step in all_steps().items():
        assert f"| `{step.law}` |" in page
        assert len(re.findall(r"^    .+$", shown[name], re.MULTILINE)) > 1, f"{name} has no picture"


# -- wrong laws -----------------------------------------------------------------------------------

TWO, SPLIT = collapse_law(2), split_law(1)
WRONG: dict[str, tuple[Bijection, str]] = {
    "floor for ceil in split": (
        dataclasses.replace(SPLIT, after=lambda n, k: (n // k, k)), "n = 1, k1 = 2, old1 = 0"
    ),
    "one part too many": (
        dataclasses.replace(SPLIT, after=lambda n, k: (n // k + 1, k), inside=None), "n = 1, k1 = 1, new1 = 1, new2 = 0"
    ),
    "a split without its mask": (dataclasses.replace(SPLIT, inside=None), "n = 1, k1 = 2, new1 = 0, new2 = 1"),
    "a mask that ends late": (
        dataclasses.replace(SPLIT, inside=lambda o, j, n, k: o * k + j < n + 1), "n = 1, k1 = 2, new1 = 0, new2 = 1"
    ),
    "a digit without its remainder": (
        dataclasses.replace(TWO, old=lambda i, m, n: (i // n, i)), "n1 = 2, n2 = 1, new1 = 1"
    ),
    "a digit without its quotient": (
        dataclasses.replace(TWO, old=lambda i, m, n: (i, i % n)), "n1 = 1, n2 = 2, new1 = 1"
    ),
    "digits by the other size": (
        dataclasses.replace(TWO, old=lambda i, m, n: (i // m, i % m)), "n1 = 1, n2 = 2, new1 = 1"
    ),
    "digits in the other order": (
        dataclasses.replace(
            TWO, old=lambda i, m, n: (i % m, i // m), new=lambda a, b, m, n: (b * m + a,)
        ),
        "n1 = 2, n2 = 2, new1 = 1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_law_is_refuted_with_numbers(name: str) -> None:
    law, numbers = WRONG[name]
    claims = claims_of(name, law)
    found = [goal for goal in map(tried, claims.values()) if goal.verdict == REFUTED]
    assert found
    assert any([goal.found.startswith(numbers) for goal in found]), found
    # and the solver by itself does not prove it, told little of products or much
    for is_exact in (False, True):
        goals = [goal for claim in claims.values() for goal in proved(claim, is_exact)]
        assert any([goal.verdict == UNKNOWN for goal in goals])


def test_digits_in_the_other_order_are_a_bijection_if_no_order_is_claimed() -> None:
    law, _ = WRONG["digits in the other order"]
    for claim in claims_of("digits", dataclasses.replace(law, in_order=False)).values():
        assert decide_claim("digits", claim).verdict == PROVED


def test_a_fault_at_large_numbers_is_not_proved() -> None:
    """Small numbers do not show it: the solver has to."""

    def old(i: Any, *sizes: Any) -> Any:
        a, b = TWO.old(i, *sizes)
        return (a, b) if i < 1_000_000 else (a, 0)

    claims = claims_of("digits", dataclasses.replace(TWO, old=old))
    assert [tried(claim).verdict for claim in claims.values()] == [PROVED, PROVED]
    assert UNKNOWN in [decide_claim(name, claim).verdict for name, claim in claims.items()]


def test_a_claim_of_nothing_is_not_proved() -> None:
    def nothing(world: World) -> None:
        n = world.number("n", 1)
        world.suppose(n < 1)
        world.claim("anything", n == 7)

    assert tried(nothing).verdict == UNKNOWN
    assert decide_claim("nothing", nothing).verdict == UNKNOWN


def test_a_copy_that_is_combined_twice_is_refuted() -> None:
    def twice(values: Any) -> UOp:
        return folds.tree([values[0], *values])

    assert tried(folds.written_out(twice, folds.element)).verdict == REFUTED


# -- terms ----------------------------------------------------------------------------------------


OPERATIONS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda x, y: x + y, lambda x, y: x - y, lambda x, y: -x, lambda x, y: x * y,
    lambda x, y: x // y, lambda x, y: x % y, lambda x, y: x // (y * y), lambda x, y: x % (y * y),
    lambda x, y: 3 + x, lambda x, y: 3 - x, lambda x, y: 3 * x, lambda x, y: x // 3, lambda x, y: x % 3,
    lambda x, y: x.minimum(y), lambda x, y: x.maximum(y),
)  # fmt: skip


@pytest.mark.parametrize("b", [1, 2, 3, 4])
def test_terms_and_numbers_agree_on_every_operation(b: int) -> None:
    for a in range(-6, 7):
        known = Known(lambda formula: True, is_exact=True)
        x, y, asked = known.number("x"), known.number("y"), Asked()
        asked.add((x == a).formula)
        asked.add((y == b).formula)
        for operation in OPERATIONS:
            claimed = operation(x, y) == int(operation(Whole(a), Whole(b)))
            for fact in known.facts:
                asked.add(fact)
            assert asked.follows(claimed.formula)[0] == PROVED, (a, b)


@pytest.mark.parametrize("other", [True, 1.0, "1", None])
def test_a_term_beside_what_is_no_number_is_refused(other: Any) -> None:
    x = Known(lambda formula: True).number("x")
    for operation in (Term.__add__, Term.__mul__, Term.__lt__, Term.__eq__, Term.__floordiv__):
        with pytest.raises(Refused):
            operation(x, other)


def test_a_branch_of_a_law_is_a_case_each_way() -> None:
    def claim(world: World) -> None:
        n = world.number("n", 0)
        m = n if n < 5 else 5
        world.claim("at most 5", m <= 5)

    assert len(proved(claim)) == 2
    assert decide_claim("branch", claim).verdict == PROVED


def test_row_major_counts_as_numpy_does() -> None:
    assert row_major((1, 2, 3), (2, 3, 4)) == 1 * 12 + 2 * 4 + 3


# -- evidence -------------------------------------------------------------------------------------


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The steps, what is claimed of them, and the evidence, to be changed."""
    shutil.copytree(evidence.STEPS_FOLDER, tmp_path / "steps")
    shutil.copytree(evidence.CLAIMS_FOLDER, tmp_path / "claims")
    shutil.copy(evidence.EVIDENCE, tmp_path / "steps.json")
    monkeypatch.setattr(evidence, "STEPS_FOLDER", tmp_path / "steps")
    monkeypatch.setattr(evidence, "CLAIMS_FOLDER", tmp_path / "claims")
    monkeypatch.setattr(evidence, "EVIDENCE", tmp_path / "steps.json")
    evidence.forget()
    yield tmp_path
    monkeypatch.undo()
    evidence.forget()


def refused() -> dict[str, str]:
    """The steps that may not be taken, and why."""
    evidence.forget()
    found = {}
    once = functools.cache(evidence.read_sources)  # else read again to say why, for each step
    with patch.object(evidence, "read_sources", once):
        for name, step in all_steps().items():
            try:
                require_evidence(name, step.law, step.function.__module__)
            except EvidenceError as error:
                assert "run `verify-rules`" in str(error)
                found[name] = str(error)
    return found


def test_steps_with_evidence_are_taken(copied: Path) -> None:
    assert refused() == {}


def test_a_change_of_any_file_makes_evidence_stale(copied: Path) -> None:
    own = {step.function.__module__.rpartition(".")[2]: name for name, step in all_steps().items()}
    files = [*(copied / "steps").glob("*.py"), *(copied / "claims").glob("*.py")]
    assert len(files) > 20
    for path in files:
        text = path.read_bytes()
        path.write_bytes(text + b"\n")
        found = refused()
        assert found, path.name
        assert all(["a file that decides its law has changed" in why for why in found.values()])
        if path.parent.name == "claims" or path.stem in ("bijection", "loop_nest", "evidence"):
            assert len(found) >= 10, path.name
        if path.stem in own and path.parent.name == "steps":
            assert own[path.stem] in found
        path.write_bytes(text)
    assert refused() == {}


def test_a_new_file_of_claims_makes_evidence_stale(copied: Path) -> None:
    (copied / "claims" / "more.py").write_text("")
    assert set(refused()) == set(all_steps())


def _entries(folder: Path) -> list[dict[str, Any]]:
    return list(json.loads((folder / "steps.json").read_bytes())["steps"])


def _write(folder: Path, entries: list[dict[str, Any]]) -> None:
    (folder / "steps.json").write_text(prove.text_of(entries))


EDITS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "another law": lambda e: {**e, "law": "f = g"},
    "another verdict": lambda e: {**e, "verdict": "unknown"},
    "another solver": lambda e: {**e, "solver": "z3 9"},
    "other files": lambda e: {**e, "files": "0" * 64},
    "a claim less": lambda e: {**e, "claims": e["claims"][1:]},
    "a part more": lambda e: {**e, "trust": "me"},
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_entry_is_refused(copied: Path, edit: str) -> None:
    _write(copied, [EDITS[edit](e) if e["name"] == "split" else e for e in _entries(copied)])
    found = refused()
    assert set(found) == {"split"}
    assert "edited by hand" in found["split"] or "its law has changed" in found["split"]


@pytest.mark.parametrize("verdict", ["unknown", "refuted"])
def test_a_law_that_is_not_proved_is_refused(copied: Path, verdict: str) -> None:
    changed = [{**e, "verdict": verdict} if e["name"] == "split" else e for e in _entries(copied)]
    _write(copied, [{**e, "seal": evidence.seal(e)} for e in changed])
    assert f"its verdict is {verdict}" in refused()["split"]


def test_an_entry_of_another_step_is_no_evidence(copied: Path) -> None:
    entries = {e["name"]: e for e in _entries(copied)}
    moved = {**entries["reorder"], "name": "split"}
    entries["split"] = {**moved, "seal": evidence.seal(moved)}
    _write(copied, list(entries.values()))
    assert "its law has changed" in refused()["split"]


def test_missing_evidence_is_refused_by_name(copied: Path) -> None:
    _write(copied, [e for e in _entries(copied) if e["name"] != "stage"])
    assert "the step stage may not be taken: there is no evidence" in refused()["stage"]


@pytest.mark.parametrize(
    "content", [None, b"", b"[]", b"{", b'{"format": 2, "steps": []}', b'{"format": 1}']
)
def test_a_file_that_is_none_is_refused(copied: Path, content: bytes | None) -> None:
    file = copied / "steps.json"
    file.unlink() if content is None else file.write_bytes(content)
    assert set(refused()) == set(all_steps())
    assert main(["--check"]) == 1


def _nest() -> tuple[LoopNest, UOp]:
    loop = UOp.range(6, 0)
    out, x = [UOp(Ops.PARAM, dtypes.float32, (), (k, 6)) for k in (0, 1)]
    there, here = [UOp(Ops.INDEX, dtypes.float32, (memory, loop)) for memory in (out, x)]
    store = UOp(Ops.STORE, dtypes.void, (there, UOp(Ops.LOAD, dtypes.float32, (here,))))
    from proofgrad.core.tensor.runtime.realize import compiler

    return lowered(UOp.sink(store), compiler().library.facts(), Target("none")), loop


def test_a_step_without_evidence_is_not_taken(copied: Path) -> None:
    from proofgrad.core.compile.steps.bijection import NewLoop

    nest, loop = _nest()
    made = (NewLoop(0), NewLoop(1))
    assert split(nest, loop, (2,), made).taken
    _write(copied, [])
    evidence.forget()
    with pytest.raises(EvidenceError, match="the step split may not be taken"):
        split(nest, loop, (2,), made)


def test_a_step_from_elsewhere_is_not_taken_by_the_name_of_one_with_evidence() -> None:
    nest, _ = _nest()

    def wrong(nest: LoopNest) -> UOp:
        return UOp.sink()

    with pytest.raises(EvidenceError, match="it is not the step of"):
        Step("split", split.law, wrong)(nest)
    with pytest.raises(EvidenceError, match="there is no evidence"):
        Step("mine", "f = f", wrong)(nest)


def test_a_step_is_taken_without_the_solver() -> None:
    plain = {**os.environ, "CHECK": "0"}
    program = (
        "import sys; from proofgrad import Tensor\n"
        "from proofgrad.core.compile.steps import evidence\n"
        "(Tensor.ones(64, 64).contiguous().realize() @ Tensor.ones(64, 64).contiguous().realize()).tolist()\n"
        "assert evidence._proved.cache_info().currsize == 1\n"
        "print([m for m in ('z3', 'lark', 'proofgrad.verify') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True, env=plain
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_law_that_is_lost_fails_the_command(
    copied: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(LAWS, "reorder")
    _write(copied, [e for e in _entries(copied) if e["name"] != "reorder"])
    assert main(["-j", "1"]) == 1
    assert "has no law for reorder" in capsys.readouterr().out
    assert "its verdict is unknown" in refused()["reorder"]


def test_what_is_stale_is_proved_again_and_nothing_else(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = copied / "steps" / "reorder.py"
    path.write_bytes(path.read_bytes() + b"\n")
    assert main(["--check"]) == 1
    before = len(refused())
    capsys.readouterr()
    assert main(["-j", "1"]) == 0
    assert (
        f"steps: {before} of {before} laws proved; {len(all_steps()) - before} fresh before"
        in capsys.readouterr().out
    )
    assert main(["--check"]) == 0


def test_where_a_loop_never_runs_a_new_one_does_not_either() -> None:
    """The claims are about positive sizes."""
    splits = map(split_law, range(1, MOST_PARTS + 1))
    for law in (RENUMBER, *splits, *map(collapse_law, (1, 2, 3))):
        for sizes in itertools.product((0, 1, 3), repeat=len(law.parameters)):
            if law.inside is not None and 0 in sizes[1:]:
                continue  # parts are never of no size
            is_empty = [0 in law.before(*sizes), 0 in law.after(*sizes)]
            assert is_empty[0] == is_empty[1], (law.parameters, sizes)


def test_small_worlds_try_every_choice_once() -> None:
    seen = []

    def claim(world: World) -> None:
        seen.append((int(world.number("a", 0, 3)), int(world.number("b", 1))))
        world.claim("true", True)

    assert tried(claim).steps == math.prod((3, 4))
    assert sorted(seen) == [(a, b) for a in range(3) for b in range(1, 5)]


def test_a_law_that_claims_nothing_is_not_proved() -> None:
    assert Prover().prove("nothing", Law({}, "")).verdict == UNKNOWN
