"""Loops whose last iteration alone has a mask that is off: it is written behind the loop, and the others ask for none."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from linear_kernels import linear
from test_cpu_target import cpu

from proofgrad import Context, Device, Tensor, dtypes
from proofgrad.backends.cpu.absent import AbsentCpu
from proofgrad.backends.llvm.dialect import Dialect
from proofgrad.backends.llvm.emit import emit
from proofgrad.backends.llvm.peeling import peeled
from proofgrad.core.compile.machine.machine import Core
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp

LANES = 8


def copied_row(
    size: int,
    *,
    step: int = LANES,
    turns: int | None = None,
    kind: DType = dtypes.int64,
    role: AxisRole = AxisRole.LOOP,
) -> UOp:
    """A row copied in vectors of 8 from each multiple of a step on, where its numbers are below the size."""
    turns = -(-size // step) if turns is None else turns
    count, limit, width = [UOp.const(kind, n) for n in (turns, size, step)]
    out, source = [UOp(Ops.PARAM, dtypes.float32, (), (slot, size)) for slot in (0, 1)]
    loop = UOp(Ops.RANGE, kind, (count,), (0, role))
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


def copied_columns(size: int, rows: int) -> UOp:
    """So many rows copied by vectors of 8 columns: a loop over the rows in each iteration of that over vectors."""
    kind = dtypes.int64
    turns, limit, width, count = [
        UOp.const(kind, n) for n in (-(-size // LANES), size, LANES, rows)
    ]
    out, source = [UOp(Ops.PARAM, dtypes.float32, (), (k, size * rows)) for k in (0, 1)]
    loop, row = [
        UOp(Ops.RANGE, kind, (n,), (k, AxisRole.LOOP)) for k, n in enumerate((turns, count))
    ]
    line = UOp(Ops.CONST, kind.vec(LANES), (), tuple(range(LANES)))
    first = loop * width
    wide = [UOp(Ops.BROADCAST, line.dtype, (scalar,)) for scalar in (first, limit)]
    number = line + wide[0]
    mask = UOp(Ops.CMPLT, dtypes.bool.vec(LANES), (number, wide[1]))
    before = row * limit
    at = before + first
    positions = [UOp(Ops.INDEX, dtypes.float32, (memory, at, mask)) for memory in (source, out)]
    value = UOp(Ops.LOAD, dtypes.float32.vec(LANES), (positions[0],))
    known = [turns, limit, width, count, out, source, line, wide[1]]
    of_vector = [loop, first, wide[0], number, mask]
    store = UOp(Ops.STORE, dtypes.void, (positions[1], value))
    of_row = [row, before, at, positions[0], value, positions[1], store]
    return linear(
        [*known, *of_vector, *of_row, *[UOp(Ops.END, dtypes.void, (x,)) for x in (row, loop)]]
    )


def text_of(program: UOp) -> str:
    return emit(program, "kernel", Dialect()).text


def test_the_last_iteration_is_written_behind_the_loop_with_its_lanes_known() -> None:
    text = emit(copied_row(21), "kernel", machine_whose_masked_stores_take(1.0)).text
    inside, behind = text.split("\nloop0.end:\n")
    off = ["i1 true"] * 5 + ["i1 false"] * 3
    assert f"<{LANES} x i1> <{', '.join(off)}>" in behind and "masked" not in inside
    assert "icmp ult i64 %next0, 2" in inside  # of three iterations two are in the loop
    assert "load <8 x float>" in inside and "store <8 x float>" in inside
    assert "icmp slt <8 x i64>" not in text


def test_the_last_iteration_of_a_loop_with_another_inside_is_written_behind_it() -> None:
    """Each row of whole vectors is stored without a mask, then the end of each row."""
    text = emit(copied_columns(21, 3), "kernel", machine_whose_masked_stores_take(1.0)).text
    inside, behind = text.split("\nloop0.end:\n")
    assert "masked" not in inside and "store <8 x float>" in inside
    assert "masked.store" in behind and "icmp slt <8 x" not in text


@pytest.mark.parametrize("name", ["", "haswell", "x86-64-v2"])
def test_columns_of_every_count_are_right_where_rows_are_a_loop(name: str) -> None:
    """What follows a logarithm is stored row by row, for a vector of columns at a time; sums of more rows are loops, too."""
    with cpu(name or "native") if name else Context() as machine:
        if isinstance(machine, AbsentCpu):
            pytest.skip(f"no kernels for it run here: {machine.target.name}")
        for rows, size in ((4, 15), (3, 155), (8, 33), (40, 21)):
            x = np.random.default_rng(size).standard_normal((5, rows, size)).astype(np.float32)
            apart = x - x.max(1, keepdims=True)
            want = apart - np.log(np.exp(apart).sum(1, keepdims=True))
            np.testing.assert_allclose(Tensor(x).log_softmax(1).numpy(), want, atol=1e-5)


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


def machine_whose_masked_stores_take(cycles: float, *, has_vector_masks: bool = True) -> Dialect:
    dialect = Dialect()
    dialect.has_vector_masks = has_vector_masks
    dialect.target = replace(dialect.target, core=Core(masked_store_cycles=cycles))
    return dialect


@pytest.mark.parametrize("first, last", [(0, 3), (0, 2), (2, 3), (1, 1), (3, 3), (4, 3)])
def test_a_loop_that_threads_share_runs_its_last_iteration_where_it_is_of_the_part(
    first: int, last: int
) -> None:
    """The native code of a part, of none, and of one that begins behind the end, as parts of several kernels may."""
    machine = Device["CPU"]
    program = copied_row(21, role=AxisRole.THREAD)
    text = machine.emit(program, "kernel").text
    assert "icmp slt <8 x" not in text
    code = machine.host.object_code(text)
    library = machine.host.link(code, "kernel")
    source, out = np.arange(1, 30, dtype=np.float32), np.zeros(29, np.float32)
    table = (ctypes.c_void_p * 2)(out.ctypes.data, source.ctypes.data)
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    kind(library["kernel"])(table, first, last)
    want = np.zeros(29, np.float32)
    own = slice(LANES * first, min(LANES * last, 21))
    want[own] = source[own]
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("cycles, is_plain", [(1.0, False), (12.0, True)])
def test_known_lanes_are_stored_without_a_mask_where_one_takes_longer(
    cycles: float, is_plain: bool
) -> None:
    text = emit(copied_row(21), "kernel", machine_whose_masked_stores_take(cycles)).text
    assert ("masked.store" not in text) is is_plain
    assert ("store <4 x float>" in text) is is_plain  # of five lanes the first four


@pytest.mark.parametrize("cycles, asks", [(1.0, False), (12.0, True)])
def test_other_masks_are_asked_before_a_store_where_one_takes_longer(
    cycles: float, asks: bool
) -> None:
    program = copied_row(21, step=4)
    text = emit(program, "kernel", machine_whose_masked_stores_take(cycles)).text
    assert ("i8" in text and "icmp eq i8" in text) is asks


@pytest.mark.parametrize("kind", ["bool", "uint8", "int16", "float16", "float32", "float64"])
@pytest.mark.parametrize("name", ["", "haswell", "x86-64-v2", "znver2"])
def test_ends_of_every_length_leave_what_lies_behind_them(name: str, kind: str) -> None:
    """Rows of a matrix that is wider, of 1 to 40 elements: gathered, computed, and added up along the columns."""
    with cpu(name or "native") if name else Context() as machine:
        if isinstance(machine, AbsentCpu):
            pytest.skip(f"no kernels for it run here: {machine.target.name}")
        for size in (1, 2, 3, 5, 6, 7, 11, 13, 23, 31, 39):
            rng = np.random.default_rng(size)
            x = (rng.integers(0, 2 if kind == "bool" else 9, (5, size))).astype(kind)
            index = rng.integers(0, 5, 6).astype(np.int32)
            there = Tensor(np.zeros((6, size + 3), kind)).realize()
            there[:, 1 : size + 1].assign(Tensor(x).realize()[Tensor(index)]).realize()
            want = np.zeros((6, size + 3), kind)
            want[:, 1 : size + 1] = x[index]
            np.testing.assert_array_equal(there.numpy(), want)
            np.testing.assert_array_equal(Tensor(x).realize().max(0).numpy(), x.max(0))
            if kind != "bool":
                np.testing.assert_array_equal(
                    (Tensor(x).realize() + 1).numpy(), x + np.ones((), kind)
                )


def test_no_mask_is_left_where_a_masked_access_is_no_instruction() -> None:
    text = text_of(copied_row(21))
    assert "masked" not in text and "load <4 x float>" in text and "store <4 x float>" in text
