"""Kernels change by steps alone: who may open a nest, who may make one, and what happens when a step refuses."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest
from tactics import nest_of

from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.passes.context import Context
from proofgrad.core.compile.passes.forms import Form
from proofgrad.core.compile.passes.stages import Stage, Tactic, run_stages
from proofgrad.core.compile.steps import loop_nest
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.loop_nest import STEPS, LoopNest, StepRefused
from proofgrad.core.compile.steps.reorder import reorder
from proofgrad.core.compile.steps.run_as import run_as
from proofgrad.core.compile.steps.stage import Digit, stage
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp
from proofgrad.core.tensor.runtime.realize import compiler

ROOT = Path(__file__).parent.parent
FOLDERS = ("core", "rules", "backends", "proofgrad")
STEPS_FOLDER = ROOT / "core/compile/steps"


@functools.cache
def names_by_file() -> dict[str, set[str]]:
    """What the files outside of the steps name."""
    found: dict[str, set[str]] = {}
    for path in [p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py")]:
        if path.parent == STEPS_FOLDER:
            continue
        names = found[str(path.relative_to(ROOT))] = set()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Name):
                names.add(node.id)
            elif isinstance(node, ast.Attribute):
                names.add(node.attr)
            elif isinstance(node, ast.ImportFrom):
                names.update([alias.name for alias in node.names])
    return found


def uses(name: str) -> set[str]:
    """The files outside of the steps that name something."""
    return {file for file, names in names_by_file().items() if name in names}


def test_only_the_runner_of_stages_opens_nests() -> None:
    assert uses("lowered") == {"core/compile/passes/stages.py"}


def test_nobody_reaches_below_a_step() -> None:
    """The seal, and what changes graphs in the way of a step, are named by steps only."""
    for name in ("_SEAL", "_sealed", "exchanged", "reindex"):
        assert uses(name) == set(), name
    called = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "core/compile").rglob("*.py")
        if path.parent != STEPS_FOLDER and ".function(" in path.read_text("utf-8")
    }
    assert called == {"core/compile/passes/stages.py"}  # tactics and procedures


def test_a_nest_is_not_made_by_hand() -> None:
    nest = nest_of(copy_of(4))
    with pytest.raises(TypeError, match="made by steps"):
        LoopNest(nest.graph, nest.facts, nest.target, (), (), 0, object())


def test_every_file_of_steps_with_a_law_has_a_step() -> None:
    assert len(STEPS) >= 12
    assert all(step.law and step.name == name for name, step in STEPS.items())


def copy_of(size: int) -> UOp:
    loop = UOp.range(size, 0)
    there, here = [
        UOp(Ops.INDEX, dtypes.int32, (UOp(Ops.PARAM, dtypes.int32, (), (slot, size)), loop))
        for slot in (0, 1)
    ]
    value = UOp(Ops.LOAD, dtypes.int32, (here,))
    return UOp.sink(UOp(Ops.STORE, dtypes.void, (there, value)))


def refused(nest: LoopNest, context: Context) -> LoopNest:
    """Takes a step that is right, then one that is refused."""
    (loop,) = [n for n in nest.graph.toposort() if n.op is Ops.RANGE]
    nest = run_as(nest, {loop: AxisRole.THREAD})
    return reorder(nest, loop, 7)  # a loop that is no longer there


def test_where_a_step_refuses_the_kernel_stays_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Stage("refused", Form.KERNEL, Tactic(refused))
    required = Stage("required", Form.KERNEL, Tactic(refused, required=True))
    kernel, library, target = copy_of(5), compiler().library, Target("test", threads=2)
    monkeypatch.delenv("SPEC", raising=False)
    assert run_stages([first], kernel, library, target) is kernel
    with pytest.raises(StepRefused):
        run_stages([required], kernel, library, target)
    monkeypatch.setenv("SPEC", "1")
    with pytest.raises(StepRefused):
        run_stages([first], kernel, library, target)


def copied_first(nest: LoopNest, context: Context) -> tuple[LoopNest, ...]:
    """What the nest loads, in a table first."""
    nodes = nest.graph.toposort()
    (load,) = [n for n in nodes if n.op is Ops.LOAD]
    (loop,) = [n for n in nodes if n.op is Ops.RANGE]
    return stage(nest, load, (Digit(loop, 5, NewLoop(0, loop.arg[1])),))


def test_what_a_refusal_is_about_is_written_when_it_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[UOp] = []
    monkeypatch.setattr(loop_nest, "brief", lambda node: written.append(node) or "r7")
    with pytest.raises(StepRefused) as refusal:
        loop_nest.require(False, "no loop of known size", loop := UOp.range(3, 7))
    assert written == []
    assert str(refusal.value) == "no loop of known size: r7"
    assert written == [loop]


def test_tables_of_several_nests_are_all_different() -> None:
    stages = [Stage(str(k), Form.KERNEL, Tactic(copied_first)) for k in range(3)]
    nests = run_stages(stages, copy_of(5), compiler().library, Target("test")).src
    written = [nest.src[0].src[0].src[0].arg[0] for nest in nests]
    assert len(nests) == 8
    assert len(set(written)) == 8


def test_a_tactic_gives_back_what_steps_made() -> None:
    wrong = Stage("wrong", Form.KERNEL, Tactic(lambda nest, context: nest.graph))  # type: ignore[arg-type,return-value]
    with pytest.raises((TypeError, StepRefused)):
        run_stages([wrong], copy_of(5), compiler().library, Target("test"))
