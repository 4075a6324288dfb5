"""Faults planted in procedures are refused by CHECK=1 and by PROVE=1; a handful of them, others each day."""

from __future__ import annotations

import datetime
import os
import random

import pytest
from planted.mutations import mutation, mutations
from planted.plant import Fault
from planted.procedure_faults import PROGRAMS, WHERE, outcome, warm

# Faults that are always planted: those that were once missed, and what finds them.
MISSED: dict[str, tuple[Fault, str]] = {
    "operation of a reduction in parts": (
        Fault(
            "split operation", "core/compile/split_reductions.py",
            "whole = UOp(Ops.REDUCE_AXIS, dtype, (stored,), (op, (0,)))",
            "whole = UOp(Ops.REDUCE_AXIS, dtype, (stored,), (Ops.ADD, (0,)))",
        ), "largest of many",
    ),
    "body of a reduction in parts": (
        Fault(
            "split body", "core/compile/split_reductions.py",
            "(slabs,), (Ops.ADD, within))",
            "(UOp(Ops.NEG, node.dtype, (slabs,)),), (Ops.ADD, within))",
        ), "long sum",
    ),
    "arguments of a call": (
        Fault(
            "call arguments", "core/compile/schedule.py",
            "(UOp.sink(body), buffer, *inputs), info)",
            "(UOp.sink(body), buffer, *reversed(list(inputs))), info)",
        ), "two",
    ),
    "result over an input that is read elsewhere": (
        Fault(
            "reuse", "core/compile/reuse.py",
            "if not whole and node.op not in ELEMENTWISE:\n                return False",
            "if False:\n                return False",
        ), "assigned",
    ),
    "operation in a wider type": (
        Fault(
            "promote", "core/compile/promote.py",
            "    return UOp(node.op, _wide(node.dtype), wide, node.arg).cast(node.dtype)",
            "    return UOp(Ops.MIN if node.op is Ops.MAX else node.op, _wide(node.dtype), wide, node.arg).cast(node.dtype)",
        ), "half",
    ),
    "bounds of a loop in a value": (
        Fault(
            "bounds", "core/rewrite/facts.py",
            "intervals[node] = _interval_of_counter(node.src[0].arg, node.src[0].arg)", "intervals[node] = _interval_of_counter(node.src[0].arg, node.src[0].arg - 1)",
        ), "counted",
    ),
    "value under a condition": (
        Fault(
            "assumed", "core/rewrite/instances.py",
            "    done: dict[UOp, UOp] = {truth: value}", "    done: dict[UOp, UOp] = {truth: ~value}",
        ), "choices",
    ),
}  # fmt: skip
HANDFUL = 3


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    warm()


@pytest.mark.parametrize("name", MISSED)
def test_fault_that_was_missed_is_found(name: str) -> None:
    fault, program = MISSED[name]
    found = outcome(fault, [program])
    assert found.is_live, f"{found}: not live any more; plant another one"
    assert (found.checked, found.proved) == ("found", "found")


def test_handful_of_faults_is_found() -> None:
    """Others each day; PLANTED_SEED asks for those of a day again."""
    seed = os.environ.get("PLANTED_SEED") or datetime.date.today().isoformat()
    draw = random.Random(seed)
    live = 0
    for _ in range(60):
        file = draw.choice(list(WHERE))
        found = outcome(mutation(file, draw.randrange(mutations(file))), WHERE[file])
        if found.is_live:
            live += 1
            assert {found.checked, found.proved} <= {"found", "refused"}, (
                f"PLANTED_SEED={seed}: {found}"
            )
        if live == HANDFUL:
            return
    pytest.fail(f"PLANTED_SEED={seed}: {live} live faults of 60, {HANDFUL} expected")


def test_every_procedure_has_programs_that_may_show_its_faults() -> None:
    from proofgrad.rules.procedures import procedure_sizes

    listed = {f"core/compile/{size.modules[0].name}" for size in procedure_sizes()}
    assert listed <= WHERE.keys()
    assert {name for names in WHERE.values() for name in names} <= PROGRAMS.keys()
