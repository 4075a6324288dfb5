"""Loops whose last iteration alone has a mask that is off: it is written behind the loop, and the others ask for none."""

from __future__ import annotations

import numpy as np
import pytest
from linear_kernels import linear
from test_cpu_target import cpu

from proofgrad import Context, Tensor, dtypes
from proofgrad.backends.cpu.absent import AbsentCpu
from proofgrad.backends.llvm.dialect import Dialect
from proofgrad.backends.llvm.emit import emit
from proofgrad.backends.llvm.peeling import peeled
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp

LANES = 8


def copied_row(
    size: int, *, step: int = LANES, turns: int | None = None, kind: DType = dtypes.int64
) -> UOp:
    """A row copied in vectors of 8 from each multiple of a step on, where its numbers are below the size."""
    turns = -(-size // step) if turns is None else turns
    count, limit, width = [UOp.const(kind, n) for n in (turns, size, step)]
    out, source = [UOp(Ops.PARAM, dtypes.float32, (), (slot, size)) for slot in (0, 1)]
    loop = UOp(Ops.RANGE, kind, (count,), (0, AxisRole.LOOP))
    line = UOp(Ops.CONST, kind.vec(LANES), (), tuple(range(LANES)))
    first = loop * width
    wide = [UOp(Ops.BROADCAST, line.dtype, (scalar,)) for scalar in (first, limit)]
    number = line + wide[0]
    mask = UOp(Ops.CMPLT, dtypes.bool.vec(LANES), (number, wide[1]))
    positions = [UOp(Ops.INDEX, dtypes.float32, (memory, first, mask)) for memory in (source, out)]
    value = UOp(Ops.LOAD, dtypes.float32.vec(LANES), (positions[0],))
    nodes = [count, limit, width, out, source, line, wide[1], loop, first, wide[0], number, mask]
    store = UOp(Ops.STORE, dtypes.void, (positions[1], value))
    end = UOp(Ops.END, dtypes.void, (loop,))
    return linear([*nodes, positions[0], value, positions[1], store, end])


def text_of(program: UOp) -> str:
    return emit(program, "kernel", Dialect()).text


def test_the_last_iteration_is_written_behind_the_loop_with_its_lanes_known() -> None:
    text = text_of(copied_row(21))
    inside, behind = text.split("\nloop0.end:\n")
    ones, off = ["i1 true"] * LANES, ["i1 true"] * 5 + ["i1 false"] * 3
    assert f"<{LANES} x i1> <{', '.join(off)}>" in behind and ", ".join(off) not in inside
    assert "icmp ult i64 %next0, 2" in inside  # of three iterations two are in the loop
    assert "splat (i1 true)" in inside and ", ".join(ones) not in behind
    assert "icmp slt <8 x i64>" not in text


@pytest.mark.parametrize(
    ("size", "options"),
    [
        (5, {}),  # one iteration
        (21, {"turns": 4}),  # the last two iterations have lanes that are off
        (21, {"step": 4}),  # so have neighbours that overlap
        (40, {"step": 0, "turns": 3}),  # every iteration is the same
        (120, {"turns": 20, "kind": dtypes.int8}),  # beyond 127 numbers begin anew
    ],
)
def test_other_masks_are_asked_in_every_iteration(size: int, options: dict[str, object]) -> None:
    program = copied_row(size, **options)  # type: ignore[arg-type]
    assert not peeled(program)
    assert "icmp slt <8 x" in text_of(program)


@pytest.mark.parametrize("name", ["", "haswell", "x86-64-v2"])
def test_rows_of_every_length_are_right(name: str) -> None:
    """Sums, extremes and results along rows, in one vector or several at once."""
    with cpu(name or "native") if name else Context() as machine:
        if isinstance(machine, AbsentCpu):
            pytest.skip(f"no kernels for it run here: {machine.target.name}")
        for size in (15, 33, 77, 174):
            x = np.random.default_rng(size).standard_normal((3, size)).astype(np.float32)
            powers = np.exp(x - x.max(1, keepdims=True))
            want = powers / powers.sum(1, keepdims=True)
            given = Tensor(x).realize()
            np.testing.assert_allclose(given.softmax(1).numpy(), want, rtol=1e-5)
            np.testing.assert_array_equal(given.max(1).numpy(), x.max(1))
            np.testing.assert_array_equal((-given).numpy(), -x)
