"""Steps, tactics and passes on graphs written as text: tests/passes/*.txt (pass_text.py says how to read them).

With UPDATE_PASSES=1 what is there now is written into the files: read the difference before it is committed.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from pass_text import PASSES, Case, read_cases, run_case, write_cases

from proofgrad.core.compile.stages import RuleSets
from proofgrad.core.compile.steps.loop_nest import STEPS

FILES = sorted((Path(__file__).parent / "passes").glob("*.txt"))
EVERY = [(path.stem, case) for path in FILES for case in read_cases(path)]
LEAST_OF_A_STEP, LEAST_OF_A_PASS = 3, 2


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_graphs_after_are_as_written(path: Path) -> None:
    cases = read_cases(path)
    made = [run_case(case) for case in cases]
    if os.environ.get("UPDATE_PASSES"):
        write_cases(path, made)
    for old, new in zip(read_cases(path), made, strict=True):
        assert old.after == new.after, f"{path}: {old.heading}\n{new}"
    assert path.read_text() == "\n".join([str(case) for case in made]), f"the layout of {path}"


def test_every_step_and_every_pass_has_its_cases() -> None:
    counts = Counter([case.subject for _, case in EVERY])
    steps = {name: counts[name] for name in STEPS if counts[name] < LEAST_OF_A_STEP}
    made_of_rules = {name for name, stage in PASSES.items() if isinstance(stage.step, RuleSets)}
    passes = {name: counts[name] for name in PASSES if counts[name] < LEAST_OF_A_PASS}
    assert not steps
    assert set(passes) <= made_of_rules | OF_VALUES, "more cases of these are missing"


# They compute values in another way, within bounds, and have tests of their values (test_numerics.py).
OF_VALUES = {"promote small floats", "transcendentals"}


# Every reduction may become a register.
NEVER_REFUSES = {"accumulate"}


@pytest.mark.parametrize("name", sorted(set(STEPS) - NEVER_REFUSES))
def test_every_step_has_a_case_that_it_refuses(name: str) -> None:
    own = [case for _, case in EVERY if case.subject == name]
    assert any([case.after.startswith("refused: ") for case in own])
    assert any([not case.after.startswith("refused: ") for case in own])


def test_headings_differ_and_sentences_end() -> None:
    headings = [(stem, case.heading) for stem, case in EVERY]
    assert len(set(headings)) == len(headings)
    assert all([case.sentence.endswith(".") for _, case in EVERY])


def test_a_wrong_graph_after_is_found() -> None:
    case = next(case for stem, case in EVERY if stem == "merge")
    assert run_case(Case("", "", case.before, case.command, "")).after == case.after
    assert run_case(case) == case
    changed = Case("", "", case.before.replace("+ r1", "- r1"), case.command, case.after)
    assert run_case(changed) != changed
