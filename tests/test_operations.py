"""Every operation on elements has each of its parts, and what is missing is said at once, with the file to edit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from linear_kernels import ops_of

from proofgrad.backends.llvm import arithmetic as llvm
from proofgrad.backends.opencl.functions import Functions, expression
from proofgrad.core.compile.lowering.promote import SMALL_FLOATS
from proofgrad.core.compile.machine.target import CompileError
from proofgrad.core.ir import evaluate
from proofgrad.core.ir.dtypes import DType, Kind, dtypes
from proofgrad.core.ir.ops import ALU, ELEMENTS, Elementwise, Ops, Precision
from proofgrad.rules.library import rule_file
from proofgrad.verify.audit.operations import missing_from_all
from proofgrad.verify.commands.prove import Options, prove_library
from proofgrad.verify.dsl import names
from proofgrad.verify.dsl.parser import parse_rules
from proofgrad.verify.encode import derivative, semantics

RULES = {
    name: parse_rules(rule_file(name).read_text(), name).rules for name in ("cotangent", "bounds")
}


def test_every_operation_has_every_part() -> None:
    assert missing_from_all(RULES) == []


def without_rule(name: str) -> dict[str, Any]:
    return {s: [r for r in rules if r.name != name] for s, rules in RULES.items()}


def changed(op: Ops, **parts: Any) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setitem(ELEMENTS, op, replace(ELEMENTS[op], **parts))


def removed(table: dict[Any, Any], key: Any) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.delitem(table, key)


MISSING: list[tuple[Callable[[pytest.MonkeyPatch], None], str]] = [
    (changed(Ops.SQRT, meaning=""), "SQRT has no meaning in words: write it into its row in core/ir/ops.py"),
    (
        removed(names.CALL_OPS, "trunc"),
        "TRUNC cannot be written in rules: give its row in core/ir/ops.py a `name`, or name its sign in"
        " verify/dsl/names.py",
    ),
    (
        changed(Ops.TRUNC, numpy=""),
        "TRUNC is a step, which takes one operand and names its function of `numpy` in core/ir/ops.py",
    ),
    (
        removed(evaluate._FLOAT, Ops.SIN),
        "SIN has no value on a float32: write it into the tables of core/ir/evaluate.py",
    ),
    (
        removed(semantics._ON_BOOLS, Ops.XOR),
        "XOR has no SMT term on a bool: write it into the tables of verify/encode/semantics.py",
    ),
    (
        changed(Ops.FMOD, precision=Precision.ROUNDED),
        "FMOD is rounded once, and core/compile/lowering/promote.py does not say how it is computed of"
        " float16 and bfloat16",
    ),
    (
        removed(derivative.DERIVATIVES, Ops.COS),
        "COS has no derivative: write it into DERIVATIVES of verify/encode/derivative.py, or say"
        " is_step=True in its row in core/ir/ops.py",
    ),
    (
        changed(Ops.POW, no_bounds=""),
        "POW has no bounds: add a line to rules/bounds.rules, or say why there is none by `no_bounds` in"
        " its row in core/ir/ops.py",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("take_away", "told"), MISSING, ids=[told for _, told in MISSING])
def test_a_part_that_is_missing_is_named_with_its_file(
    take_away: Callable[[pytest.MonkeyPatch], None], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_away(monkeypatch)
    assert missing_from_all(RULES) == [told]


def test_a_rule_that_is_missing_is_written_out() -> None:
    assert missing_from_all(without_rule("trunc")) == [
        "TRUNC has no gradient: add to rules/cotangent.rules a line `cotangent trunc: trunc(x), g => none`",
        "TRUNC has no bounds: add a line to rules/bounds.rules, or say why there is none by `no_bounds` in"
        " its row in core/ir/ops.py",
    ]
    assert missing_from_all(without_rule("fma")) == [
        "FMA has no gradient: add to rules/cotangent.rules a line `cotangent fma: fma(x, y, z), g => ...`"
    ]


def test_nothing_is_proved_while_a_part_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    removed(derivative.DERIVATIVES, Ops.SIN)(monkeypatch)
    assert prove_library(Options(from_nothing=True, write=False)) == 1
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("SIN has no derivative: write it into DERIVATIVES")
    assert last == "nothing was proved: docs/add-an-op.md has the steps"


# -- printers ------------------------------------------------------------------------------------------


def told_by_opencl(op: Ops, dtype: DType) -> str:
    """What is wrong with OpenCL C, which C is made of, for an operation; empty if nothing is."""
    row = ELEMENTS[op]
    sources = (dtypes.bool if op is Ops.WHERE else dtype, *[dtype] * (row.arity - 1))
    try:
        expression(
            op, dtypes.bool if row.gives_bool else dtype, "xyz"[: row.arity], sources, Functions()
        )
    except CompileError as error:
        return f"{error}: give its row in core/ir/ops.py `c`, or write it into backends/opencl/functions.py"
    return ""


def told_by_llvm(op: Ops, dtype: DType) -> str:
    """What is wrong with LLVM, which PTX is made of, for an operation; empty if nothing is."""
    family = llvm._family(dtype)
    if op is Ops.WHERE or any(
        (op, family) in t for t in (llvm._SIMPLE, llvm._INTRINSICS, llvm._SPECIAL)
    ):
        return ""
    return (
        f"LLVM has no {op.name} on {dtype!r}: give its row in core/ir/ops.py `llvm`, or write it into"
        " backends/llvm/arithmetic.py"
    )


@pytest.mark.parametrize("told", [told_by_opencl, told_by_llvm])
def test_every_operation_of_a_machine_is_printed(told: Callable[[Ops, DType], str]) -> None:
    found = [
        told(op, dtype)
        for dtype in dtypes.all
        if dtype not in SMALL_FLOATS and not dtype.is_code
        for op in ops_of(dtype)
    ]
    assert [text for text in found if text] == []


def test_an_operation_that_is_not_printed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(llvm._INTRINSICS, (Ops.TRUNC, "float"))
    assert told_by_llvm(Ops.TRUNC, dtypes.float32) == (
        "LLVM has no TRUNC on dtypes.float: give its row in core/ir/ops.py `llvm`, or write it into"
        " backends/llvm/arithmetic.py"
    )
    assert told_by_opencl(Ops.EXP2, dtypes.float32).startswith(
        "EXP2 on dtypes.float has no OpenCL C"
    )


# -- the table -----------------------------------------------------------------------------------------


def test_rows_say_what_their_parts_can_read() -> None:
    numpy = pytest.importorskip("numpy")
    for op, row in ELEMENTS.items():
        assert isinstance(row, Elementwise) and 1 <= row.arity <= 3 and row.kinds, op
        assert not row.numpy or getattr(numpy, row.numpy).nin == row.arity, op
        assert not row.no_bounds or Kind.FLOAT in row.kinds, op

    assert len({row.name for row in ELEMENTS.values() if row.name}) == len(
        [row for row in ELEMENTS.values() if row.name]
    )
    assert ALU == ELEMENTS.keys()
