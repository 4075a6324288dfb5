"""Steps, tactics and passes on graphs written as text: tests/passes/*.txt (pass_text.py says how to read them).

With UPDATE_PASSES=1 what is there now is written into the files: read the difference before it is committed.
"""

from __future__ import annotations

import os
from collections import Counter
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kernel_interpreter import run_kernel
from pass_text import PASSES, Case, read_cases, run_case, write_cases

from proofgrad.core.compile.passes.stages import RuleSets
from proofgrad.core.compile.steps.loop_nest import STEPS
from proofgrad.core.compile.text.reader import read_nest
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort

FILES = sorted((Path(__file__).parent / "passes").glob("*.txt"))
EVERY = [(path.stem, case) for path in FILES for case in read_cases(path)]
LEAST_OF_A_STEP, LEAST_OF_A_PASS = 3, 2


@pytest.mark.every_day
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


MOST_ELEMENTS = 600  # of memory: the interpreter takes a microsecond or more for each operation


def kernels(case: Case) -> tuple[UOp, UOp] | None:
    """The graphs before and after, where the interpreter of kernels runs both."""
    if not all([text.startswith("kernel") for text in (case.before, case.after)]):
        return None
    both = read_nest(case.before), read_nest(case.after)
    for node in toposort(both):
        is_variable = node.op is Ops.PARAM and len(node.arg) == 3  # one that a machine reads
        is_large = node.op is Ops.PARAM and node.arg[1] > MOST_ELEMENTS
        if is_variable or is_large or (node.op is Ops.LOAD and len(node.src) > 1):
            return None
    return both


COMPARED = [(stem, case) for stem, case in EVERY if kernels(case) is not None]


@pytest.mark.parametrize(("stem", "case"), COMPARED, ids=lambda x: getattr(x, "heading", x))
def test_the_graph_after_computes_what_the_graph_before_does(stem: str, case: Case) -> None:
    before, after = kernels(case) or (None, None)
    assert before is not None and after is not None
    random = Random(f"{stem} {case.heading}")
    memory = {n.arg[0]: n for n in before.toposort() if n.op is Ops.PARAM}
    # Whole numbers, so that sums are exact in any order; positions lie outside now and then, but where they may not.
    low, high = (
        (0, memory[0].arg[1] - 1) if "scatter" not in case.subject else (-3, memory[0].arg[1] + 3)
    )
    data: dict[int | str, list[Any]] = {}
    for slot, node in memory.items():
        draw = range(low, high + 1) if node.dtype.is_int else range(-4, 5)
        data[slot] = [type_of(node)(random.choice(draw)) for _ in range(node.arg[1])]
    variables = {n.arg[0]: n.arg[1:] for n in before.toposort() if n.op is Ops.VARIABLE}
    for values in product(*[range(least, most + 1) for least, most in variables.values()]):
        memory_of = data | {name: [value] for name, value in zip(variables, values)}
        made, expected = [run_kernel(graph, dict(memory_of))[0] for graph in (after, before)]
        is_of_reals = case.command.endswith(" of reals")  # floats round otherwise
        assert made == (pytest.approx(expected, rel=1e-5) if is_of_reals else expected)


def type_of(node: UOp) -> type:
    return int if node.dtype.is_int else float


def test_most_graphs_are_compared_by_their_values() -> None:
    graphs = [case for _, case in EVERY if case.after.startswith("kernel")]
    assert len(COMPARED) >= 40 and len(COMPARED) >= 0.85 * len(graphs)


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
