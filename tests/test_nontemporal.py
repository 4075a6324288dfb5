"""Results longer than the caches are stored past them: which, and that their values stay."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from linear_kernels import pack, run
from loop_kernels import end, in_order, load, loop, map_loop, number, param, position, store

from proofgrad import Device, Tensor
from proofgrad.backends.cpu import backend
from proofgrad.backends.cpu.backend import CpuBackend
from proofgrad.backends.llvm.dialect import Dialect
from proofgrad.backends.llvm.emit import emit
from proofgrad.backends.llvm.nontemporal import LINE_BYTES
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compiler

FLOAT = dtypes.float32
COUNT = 64


@pytest.fixture
def nontemporal() -> CpuBackend:
    """This host, as if its caches held nothing."""
    opened = backend()
    opened.dialect.target = replace(opened.dialect.target, past_caches_bytes=1)
    return opened


def text_of(program: UOp, least_bytes: int = 1) -> str:
    dialect = Dialect()
    dialect.target = replace(dialect.target, past_caches_bytes=least_bytes)
    return emit(program, "kernel", dialect).text


def doubled(lanes: int = 16, offset: int = 0, dtype: DType = FLOAT, mask: UOp | None = None) -> UOp:
    """out[16 i + offset ...] = in[16 i ...] + in[16 i ...], one vector an iteration."""
    step = loop(COUNT // lanes)
    first = step * number(lanes)
    value = load(position(param(1, dtype, COUNT), first), lanes)
    target = position(param(0, dtype, COUNT), first + number(offset) if offset else first)
    if mask is not None:
        target = UOp(Ops.INDEX, target.dtype, (*target.src, mask))
    result = value.alu(Ops.OR if dtype.is_bool else Ops.ADD, value)
    return in_order(store(target, result), end(step))


def test_whole_lines_of_a_long_result_are_stored_past_the_caches() -> None:
    text = text_of(doubled(), least_bytes=4 * COUNT)
    assert text.count(f"align {LINE_BYTES}, !nontemporal !0") == 1
    assert text.endswith("!0 = !{i32 1}\n")
    assert text.count("fence seq_cst\n  ret void") == 1


def test_a_line_that_a_mask_turns_off_as_a_whole_is_stored_past_the_caches() -> None:
    text = text_of(doubled(mask=UOp.const(dtypes.bool, True)))
    assert text.count("!nontemporal !0") == 1


@pytest.mark.parametrize(
    ("program", "least_bytes"),
    [
        (doubled(), 0),
        (doubled(), 4 * COUNT + 1),
        (doubled(lanes=8), 1),
        (doubled(offset=1), 1),
        (doubled(dtype=dtypes.bool, lanes=64), 1),
        (doubled(mask=UOp.const(dtypes.bool.vec(16), True)), 1),
    ],
    ids=["never", "short", "half a line", "between lines", "bools", "a mask in lanes"],
)
def test_other_stores_go_to_the_cache(program: UOp, least_bytes: int) -> None:
    text = text_of(program, least_bytes)
    assert "nontemporal" not in text and "fence" not in text


@pytest.mark.parametrize(("step", "is_past"), [(16, False), (48, True)])
def test_a_shorter_result_is_stored_past_the_caches_if_not_in_the_order_of_memory(
    step: int, is_past: bool
) -> None:
    dialect = Dialect()
    dialect.target = replace(
        dialect.target, past_caches_bytes=1 << 20, past_caches_crossed_bytes=1 << 8
    )
    text = emit(in_rows(64, (0,), lanes=16, step=step), "kernel", dialect).text
    assert ("nontemporal" in text) is is_past


def test_lines_before_the_end_of_a_result_are_stored_past_the_caches() -> None:
    step, length = loop(5), COUNT + 3
    first = step * number(16)
    along = UOp(Ops.CONST, first.dtype.vec(16), (), tuple(range(16)))
    starts, limit = [UOp(Ops.BROADCAST, along.dtype, (x,)) for x in (first, number(length))]
    is_inside = UOp(Ops.CMPLT, dtypes.bool.vec(16), (along + starts, limit))
    value = load(position(param(1, FLOAT, length), first, is_inside), 16)
    into = position(param(0, FLOAT, length), first, is_inside)
    text = text_of(in_order(store(into, value), end(step)))
    assert text.count("!nontemporal !0") == 1
    assert text.count("  store ") > 1  # the three of the last line


def test_what_the_kernel_reads_goes_to_the_cache() -> None:
    step = loop(COUNT // 16)
    here = position(param(0, FLOAT, COUNT), step * number(16))
    value = load(here, 16)
    assert "nontemporal" not in text_of(in_order(store(here, value + value), end(step)))


def in_rows(steps: int, starts: tuple[int, ...], lanes: int = 8, step: int | None = None) -> UOp:
    """out[step i + start ...] = in[step i + start ...] in vectors, for the starts of each iteration."""
    count = steps * (step or lanes * len(starts)) + 64
    each = loop(steps)
    first = each * number(step or lanes * len(starts))
    places = [first + number(start) if start else first for start in starts]
    into, read = param(0, FLOAT, count), param(1, FLOAT, count)
    stores = [store(position(into, x), load(position(read, x), lanes)) for x in places]
    return in_order(*stores, end(each))


@pytest.mark.parametrize("starts", [(0,), (0, 8), (0, 8, 16), (8, 0)])
def test_halves_of_lines_in_a_row_are_stored_past_the_caches(starts: tuple[int, ...]) -> None:
    text = text_of(in_rows(16, starts))
    assert text.count("align 32, !nontemporal !0") == len(starts)
    assert text.count("fence seq_cst") == 1


@pytest.mark.parametrize(
    "program",
    [
        in_rows(15, (0,)),
        in_rows(16, (8,)),
        in_rows(16, (0,), step=16),
        in_rows(16, (0, 16), step=32),
        in_rows(16, (0, 16)),
        in_rows(16, (0,), lanes=1),
        in_rows(16, (0,), lanes=4),
        in_rows(16, (0, 4), step=12),
    ],
    ids=["few", "one behind the start", "every other", "gaps", "over each other", "no vectors", "quarters", "unaligned"],
)  # fmt: skip
def test_other_parts_of_lines_go_to_the_cache(program: UOp) -> None:
    assert "nontemporal" not in text_of(program)


@pytest.mark.parametrize("dtype", [FLOAT, dtypes.float64, dtypes.int8], ids=lambda d: d.name)
def test_values_stored_past_the_caches_are_the_same(nontemporal: CpuBackend, dtype: DType) -> None:
    lanes = LINE_BYTES // dtype.itemsize
    program = map_loop([(Ops.ADD, dtype)], (dtype, dtype), 2 * lanes, lanes)
    assert "nontemporal" in nontemporal.emit(program, "kernel").text
    values = [float(k) if dtype.is_float else k for k in range(2 * lanes)]
    inputs = [pack(values, dtype)] * 2
    (found,) = run(nontemporal, program, inputs, [len(inputs[0])])
    assert found == run(backend(), program, inputs, [len(inputs[0])])[0]


@pytest.mark.parametrize("shape", [(33, 64), (7, 129), (256, 256), (4, 3, 80)])
def test_tensors_stored_past_the_caches_have_the_same_values(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...]
) -> None:
    x = np.random.default_rng(3).standard_normal(shape, np.float32)

    def results() -> list[np.ndarray]:
        t = Tensor(x)
        made = (t * 2 + 1, t.softmax(-1), t.transpose(0, 1) + 0.5, t.pad(((1, 0),) * t.ndim) * 3)
        return [each.numpy() for each in made]

    compiler().forget()
    expected = results()
    dialect = Device["CPU"].dialect
    monkeypatch.setattr(dialect, "target", replace(dialect.target, past_caches_bytes=1))
    compiler().forget()
    monkeypatch.setenv("PLANS", "0")
    for found, usual in zip(results(), expected):
        np.testing.assert_array_equal(found, usual)
    compiler().forget()
