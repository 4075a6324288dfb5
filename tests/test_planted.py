"""Faults planted in procedures are refused by CHECK=1 and by PROVE=1; those that were once missed, and a few that are drawn."""

from __future__ import annotations

import os
import random
from itertools import islice

import pytest
from planted.draws import a_few_live, runs
from planted.plant import ROOT, Fault
from planted.procedure_faults import outcome, warm, where
from planted.procedure_programs import PROGRAMS

# Faults that are always planted: those that were once missed, and what finds them.
MISSED: dict[str, tuple[Fault, str]] = {
    "operation of a reduction in parts": (
        Fault(
            "split operation", "core/compile/steps/reduce_in_parts.py",
            "total = UOp(Ops.REDUCE_AXIS, dtype, (stored,), (op, across))",
            "total = UOp(Ops.REDUCE_AXIS, dtype, (stored,), (Ops.ADD, across))",
        ), "largest of many",
    ),
    "body of a reduction in parts": (
        Fault(
            "split body", "core/compile/steps/reduce_in_parts.py",
            "(blocks,), (op, within))",
            "(UOp(Ops.NEG, dtype, (blocks,)),), (op, within))",
        ), "long sum",
    ),
    "arguments of a call": (
        Fault(
            "call arguments", "core/compile/steps/store.py",
            "(UOp.sink(body), buffer, *inputs), info)",
            "(UOp.sink(body), buffer, *reversed(list(inputs))), info)",
        ), "two",
    ),
    "result over an input that is read elsewhere": (
        Fault(
            "reuse", "core/compile/plan/reuse.py",
            "if not whole and node.op not in ELEMENTWISE:\n                return False",
            "if False:\n                return False",
        ), "assigned",
    ),
    "operation in a wider type": (
        Fault(
            "promote", "core/compile/lowering/promote.py",
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
    "start of a register in lanes": (
        Fault(
            "wide", "core/compile/steps/lanes.py",
            "start = _spread(src[0], count)", "start = _spread(UOp.const(src[0].dtype, 1), count)",
        ), "window in the padding",
    ),
    "NaN taken for a large exponent": (
        Fault(
            "within", "core/compile/math/transcendental.py",
            "return (x > highest).where(x.const_like(highest), x)", "return (x < highest).where(x, x.const_like(highest))",
        ), "ends",
    ),
    "logarithm of a denormal number": (
        Fault(
            "denormal", "core/compile/math/transcendental.py",
            "is_tiny.where(x * 2.0**form.fraction_bits, x)", "is_tiny.where(x, x)",
        ), "ends",
    ),
    "remainder of a large quotient in one step": (
        Fault(
            "one step", "core/compile/math/remainder.py",
            "_STEP_OF_ITS_OWN = {dtypes.float32: 22,", "_STEP_OF_ITS_OWN = {dtypes.float32: 40,",
        ), "far remainder",
    ),
    "columns kept at another position": (
        Fault(
            "pack", "core/compile/steps/local_buffer.py",
            "collapse_law(len(own)).new(*own, *sizes)", "collapse_law(len(own)).new(*own, *sizes[::-1])",
        ), "packed",
    ),
    "scratch memory that is too small": (
        Fault(
            "fill", "core/compile/steps/accumulate.py",
            "position, size = UOp.const(loops[0].dtype, 0), 1", "position, size = UOp.const(loops[0].dtype, 1), 1",
        ), "packed",
    ),
    "positions that no small number names": (
        Fault(
            "expand", "core/compile/lowering/lower.py",
            "UOp.index(0) if n == 1 else i for i, n in zip(index, node.src[0].shape)",
            "UOp.index(1) if n == 1 else i for i, n in zip(index, node.src[0].shape)",
        ), "gradient by position",
    ),
    "first elements that nobody writes": (
        Fault("merge", "core/compile/steps/merge.py", "counted_by(UOp.index(0), both)", "counted_by(UOp.index(1), both)"),
        "large angles",
    ),
    "loops of nested sums": (  # beside exp, whose argument must not leave its range
        Fault("joined", "core/compile/steps/join.py", "loops += value.src[1:]", "loops += value.src[2:]"),
        "three kernels",
    ),
    "bits of an integer": (
        Fault("bits", "core/rewrite/facts.py", "ones, may = 0, -1 if", "ones, may = 1, -1 if"), "integers",
    ),
    "table of a replay": (
        Fault(
            "told", "core/tensor/runtime/launches.py",
            "_look_it_up if self._native is None else", "_look_it_up if self._native is not None else",
        ), "replayed",
    ),
    "launches of a replay": (
        Fault(
            "copies", "core/tensor/runtime/launches.py",
            "self.copies = [step for step in steps if step.kernel is None]",
            "self.copies = [step for step in steps if step.kernel is not None]",
        ), "replayed in place",
    ),
    "what a replay reads": (
        Fault(
            "reads", "core/tensor/jit/inputs.py",
            "elif buffer in numbers and buffer not in positions:", "elif buffer in numbers and buffer in positions:",
        ), "replayed in place",
    ),
}  # fmt: skip
HANDFUL, MOST = 3, 60  # live faults, and all that are planted
SOME = 9  # of the programs
# Files of which many faults are live; those that choose have few.
LIVELY = [
    *[f"core/compile/{name}.py" for name in (
        "lowering/lower", "math/power", "math/remainder", "math/sine", "math/transcendental", "nests/sums_of_products",
        "plan/reuse",
    )],
    *[f"core/compile/steps/{name}.py" for name in (
        "accumulate", "bijection", "clamp", "collapse", "deinterleave", "join", "local_buffer", "lanes", "merge", "pad_rows",
        "scatter", "split", "stage", "sum_in_memory", "tables", "unroll",
    )],
    "core/rewrite/facts.py", "core/rewrite/sums.py", "core/tensor/runtime/arena.py", "core/tensor/runtime/launches.py",
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    warm()


def test_every_file_that_faults_are_planted_in_is_there() -> None:
    """A file that is gone ended the drawing of all others."""
    assert not [file for file in where() if not (ROOT / file).is_file()]


@pytest.mark.parametrize("name", MISSED)
def test_fault_that_was_missed_is_found(name: str) -> None:
    fault, program = MISSED[name]
    found = outcome(fault, [program])
    assert found.is_live, f"{found}: not live any more; plant another one"
    assert (found.checked, found.proved) == ("found", "found")


def test_faults_that_are_drawn_are_found() -> None:
    """The same in each run, or those of PLANTED_SEED."""
    seed = os.environ.get("PLANTED_SEED", "0")
    live = 0
    for found in islice(a_few_live(LIVELY, SOME, MOST, random.Random(seed), outcome), HANDFUL):
        assert not found.is_missed, f"PLANTED_SEED={seed}: {found}"
        live += 1
    assert live, f"PLANTED_SEED={seed}: none of {MOST} faults is live"


def test_files_with_live_faults_are_among_those_that_are_planted_in() -> None:
    assert set(LIVELY) <= set(where())


def test_every_procedure_has_a_line_that_a_program_runs() -> None:
    from proofgrad.core.compile.passes.stages import GraphTactic, Procedure, Tactic
    from proofgrad.rules.procedures import procedure_sizes

    sizes = procedure_sizes(kinds=(Procedure, Tactic, GraphTactic))
    own = sorted({str(size.modules[0].relative_to(ROOT)) for size in sizes})
    known = runs(own, [name for name in PROGRAMS if name in SHORT])
    assert [file for file in own if not any(file in run.lines for run in known.values())] == []


# Programs that run every procedure, between them.
SHORT = (
    "packed",
    "blocks of a product",
    "gradient by position",
    "half",
    "softmax",
    "short sum",
    "waves",
    "rows in blocks",
    "long sum",
)
