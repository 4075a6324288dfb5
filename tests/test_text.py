"""Graphs printed and read back: core/ir/text.py."""

from __future__ import annotations

import math

import pytest

from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.text import GraphTextError, read_uop, show_uop
from proofgrad.core.ir.uop import AxisRole, UOp


def test_shared_constant_is_named_once() -> None:
    two = UOp(Ops.CONST, dtypes.int, arg=2)
    assert show_uop(two + two) == (
        "UOp(Ops.ADD, dtypes.int, arg=None, src=(\n"
        "  x0:=UOp(Ops.CONST, dtypes.int, arg=2, src=()),\n"
        "   x0,))"
    )


def test_nested_nodes_are_indented_by_two() -> None:
    unique = UOp(Ops.UNIQUE, dtypes.void, arg=0)
    memory = UOp(Ops.BUFFER, dtypes.int, (unique, UOp(Ops.DEVICE, arg="PYTHON")), 4)
    copy = UOp(Ops.COPY, dtypes.int, (memory, UOp(Ops.DEVICE, arg="CPU")))
    assert repr(copy) == (
        "UOp(Ops.COPY, dtypes.int, arg=None, src=(\n"
        "  UOp(Ops.BUFFER, dtypes.int, arg=4, src=(\n"
        "    UOp(Ops.UNIQUE, dtypes.void, arg=0, src=()),\n"
        "    UOp(Ops.DEVICE, dtypes.void, arg='PYTHON', src=()),)),\n"
        "  UOp(Ops.DEVICE, dtypes.void, arg='CPU', src=()),))"
    )


@pytest.mark.parametrize(
    "node",
    [
        UOp.range(7, 3, AxisRole.REDUCE) * 4 + 1,
        UOp.const(dtypes.float32, -0.0),
        UOp.const(dtypes.float64, -math.inf),
        UOp.const(dtypes.float16, 6e-5),
        UOp.const(dtypes.bool, True),
        UOp(Ops.CONST, dtypes.int8.vec(4), (), (1, -2, 3, 4)),
        UOp(Ops.DEVICE, dtypes.void, (), 'it\'s \\ "CPU"\n'),
        UOp(Ops.REDUCE_AXIS, dtypes.float, (UOp(Ops.IOTA, dtypes.float, (), 3),), (Ops.ADD, (0,))),
        UOp(Ops.BROADCAST, dtypes.bfloat16.vec(8), (UOp.const(dtypes.bfloat16, 1.5),)),
    ],
)
def test_reading_what_was_printed_gives_the_same_node(node: UOp) -> None:
    assert read_uop(show_uop(node)) is node


def test_nan_is_read_back_as_the_same_node() -> None:
    assert read_uop("UOp(Ops.CONST, dtypes.float, arg=nan, src=())") is UOp.const(
        dtypes.float32, math.nan
    )


def test_a_chain_of_20000_nodes_is_printed_and_read() -> None:
    node = UOp.range(9, 0)
    for k in range(20_000):
        node = node + (k % 7)
    assert read_uop(show_uop(node)) is node


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("__import__('os')", "line 1, column 16: a call of __import__"),
        ("UOp(Ops.NOPE, dtypes.int)", "line 1, column 5: the unknown name Ops.NOPE"),
        ("UOp(Ops.CONST, dtypes.imt, arg=1)", "unknown dtype 'imt'"),
        ("UOp(Ops.ADD, dtypes.int,\n src=(x0,))", "line 2, column 7: the unknown name x0"),
        ("UOp(Ops.ADD, dtypes.int, src=(1,))", "a source that is no UOp"),
        ("UOp(Ops.ADD, dtypes.int", "expected one value"),
        ("UOp(Ops.ADD, dtypes.int)", "line 1, column 24: no add of these"),
        ("UOp(Ops.DEVICE))", "a closing parenthesis too many"),
        ("UOp(Ops.ADD; dtypes.int)", "line 1, column 12: a character that does not belong here"),
        ("UOp(Ops.ADD, dtypes.int, size=3)", "a UOp has only op, dtype, src, arg"),
        ("3", "expected a UOp, found 3"),
        ("", "expected one value"),
    ],
)
def test_other_text_is_refused_with_its_position(text: str, message: str) -> None:
    with pytest.raises(GraphTextError) as error:
        read_uop(text)
    assert message in str(error.value)
