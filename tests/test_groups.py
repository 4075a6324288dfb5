"""Rows that the items of a group compute together: right on every machine, printed with what groups need, proved."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from devices import opened

from proofgrad import Device, ScheduleError, Tensor, schedule
from proofgrad.backends.opencl.emit import emit as emit_opencl
from proofgrad.backends.ptx.emit import emit as emit_ptx
from proofgrad.backends.reference import ReferenceBackend
from proofgrad.core.compile.lowering.program_facts import group_size
from proofgrad.core.compile.machine.target import Source, Target
from proofgrad.core.compile.passes.forms import Form, FormError, check_form
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp
from proofgrad.core.tensor.runtime.realize import compile_only

EMITTED: list[UOp] = []


class Grouped(ReferenceBackend):
    """Runs what is compiled for a GPU whose groups have 64 items, with every access checked."""

    name = "GROUPED"
    target = Target(
        "GROUPED",
        vector_bytes=16,
        vector_registers=24,
        work_items=True,
        group_items=64,
        local_bytes=4096,
        lockstep=4,
        index_dtype=dtypes.int32,
    )

    def emit(self, linear: UOp, name: str) -> Source:
        EMITTED.append(linear)
        return super().emit(linear, name)


Device.register("GROUPED", Grouped)


@pytest.fixture(autouse=True)
def nothing_emitted() -> Iterator[None]:
    EMITTED.clear()
    yield


@pytest.fixture(params=["GROUPED", "CL"])
def device(request: pytest.FixtureRequest) -> str:
    return opened(request.param)


def rows(count: int, length: int, dtype: str = "int32") -> np.ndarray:
    return np.random.default_rng(length).integers(-9, 9, (count, length)).astype(dtype)


@functools.cache
def row_sum() -> UOp:
    """Linear of the sums of 5 rows of 300, by groups of 64 items."""
    with schedule("group=64"), compile_only():
        Tensor(rows(5, 300, "float32"), device="GROUPED").sum(1).realize()
    return EMITTED[-1]


@pytest.mark.parametrize("length", [2, 3, 17, 64, 65, 127, 300, 1031])
@pytest.mark.parametrize("dtype", ["int32", "int64", "float32", "float64", "uint8", "float16"])
def test_rows_of_any_length_are_summed_exactly(length: int, dtype: str, device: str) -> None:
    x = np.abs(rows(3, length, dtype)) if dtype == "uint8" else rows(3, length, dtype)
    with schedule("group=16"):
        got = Tensor(x, device=device).sum(1).numpy()
    np.testing.assert_array_equal(got, x.sum(1, dtype=got.dtype))


@pytest.mark.parametrize("group", [2, 4, 32, 64])
def test_softmax_of_a_row_is_one_kernel_of_groups(group: int, device: str) -> None:
    x = rows(7, 129, "float32")
    with schedule(f"group={group}"):
        y = Tensor(x, device=device).realize().softmax()
        assert len(y.schedule()) == 1
        got = y.numpy()
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(got, e / e.sum(1, keepdims=True), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("count, length", [(1, 5), (2, 3), (9, 17), (13, 37), (16, 64), (33, 2)])
@pytest.mark.parametrize("group", ["2x2", "4x4", "8x2", "2x32"])
def test_several_short_rows_are_a_group_s(count: int, length: int, group: str, device: str) -> None:
    x = rows(count, length, "float32")
    with schedule(f"group={group}"):
        given = Tensor(x, device=device).realize()
        np.testing.assert_array_equal(given.sum(1).numpy(), x.sum(1))
        left = (given - given.max(1, keepdim=True)).numpy()
    np.testing.assert_array_equal(left, x - x.max(1, keepdims=True))


def test_a_norm_of_short_rows_reads_each_element_twice_and_not_the_row_for_each() -> None:
    given = Tensor(rows(40, 20, "float32"), device="GROUPED").realize()
    with compile_only():
        given.softmax().realize()
    (linear,) = EMITTED
    (item,) = {
        int(n.src[0].arg) for n in linear.src if n.op is Ops.RANGE and n.arg[1] is AxisRole.BLOCK
    }
    assert (item, group_size(linear)) == (10, 16)  # 4 rows of 4 items each


def test_a_short_row_of_many_results_is_each_item_s_own() -> None:
    """A group of as many items as it has elements would store a long row."""
    x, few = [Tensor(rows(5, n, "float32"), device="GROUPED").realize() for n in (300, 4)]
    EMITTED.clear()
    got = (x * few.sum(1, keepdim=True)).numpy()
    assert not [n for n in EMITTED[-1].src if n.op is Ops.FILLED]
    expected = rows(5, 300, "float32") * rows(5, 4, "float32").sum(1, keepdims=True)
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_short_rows_that_are_read_twice_are_each_item_s_own_beside_a_long_one() -> None:
    sizes = 300, 4, 40
    x, few, more = [Tensor(rows(5, n, "float32"), device="GROUPED").realize() for n in sizes]
    with schedule("group=1x8x64"):
        got = (
            (x - few.max(1, keepdim=True)) * few.min(1, keepdim=True) + more.max(1, keepdim=True)
        ).numpy()
    a, b, c = [rows(5, n, "float32") for n in sizes]
    most, least = b.max(1, keepdims=True), b.min(1, keepdims=True)
    np.testing.assert_allclose(got, (a - most) * least + c.max(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("group", ["1x4x16", "1x8x64", "1x16x8"])
@pytest.mark.parametrize("shape, few", [((3, 300), 17), ((2, 37), 40), ((2, 3, 128), 33)])
def test_groups_that_share_the_results_of_a_row_take_it_in_each(
    shape: tuple[int, ...], few: int, group: str, device: str
) -> None:
    size = shape[:1] + (1,) * (len(shape) - 2) + (few,)
    draw = np.random.default_rng(few)
    x, row = [draw.standard_normal(n).astype(np.float32) for n in (shape, size)]
    a, b = [Tensor(each, device=device).realize() for each in (x, row)]
    with schedule(f"group={group}"):
        got = ((a - b.max(-1, keepdim=True)) * b.sum(-1, keepdim=True)).numpy()
    expected = (x - row.max(-1, keepdims=True)) * row.sum(-1, keepdims=True)
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=1e-6)


def test_each_item_may_be_asked_to_work_by_itself() -> None:
    x = rows(3, 300)
    with schedule("group=0"):
        got = Tensor(x, device="GROUPED").sum(1).numpy()
    np.testing.assert_array_equal(got, x.sum(1))
    assert group_size(EMITTED[-1]) is None


@pytest.mark.parametrize(
    "text",
    ["group=3", "group=3x8", "group=64x64", "group=x8", "group=0x8", "group=2x8x16", "group=1x8x3"],
)
def test_a_group_that_is_none_is_refused_with_what_may_stand_there(text: str) -> None:
    with pytest.raises(ValueError, match="ITEMS or ROWSxITEMS"), schedule(text):
        pass


def test_maximum_of_everything_is_one_group(device: str) -> None:
    x = rows(1, 500, "float32")
    with schedule("group=32"):
        assert Tensor(x, device=device).max().item() == x.max()


def test_rows_of_bools_are_any_of_them(device: str) -> None:
    x = rows(4, 70) > 7
    with schedule("group=8"):
        np.testing.assert_array_equal(Tensor(x, device=device).any(1).numpy(), x.any(1))


def test_a_row_without_elements_is_zero(device: str) -> None:
    assert Tensor.zeros(3, 0, device=device).sum(1).tolist() == [0.0, 0.0, 0.0]


def test_opencl_waits_behind_each_memory_that_a_group_fills() -> None:
    source = emit_opencl(row_sum(), "row_sum")
    assert source.text.count("local float ") == source.text.count("barrier(") == 2
    assert "if (get_local_id(0) == 0) data0[" in source.text
    assert (source.global_size, source.group_size) == (5 * 64, 64)


def test_ptx_waits_behind_each_memory_that_a_block_fills() -> None:
    text = emit_ptx(row_sum(), "row_sum").text
    assert text.count("bar.sync") == text.count(".shared .align") == 2


def test_items_may_not_wait_inside_of_a_loop_that_they_do_not_run_alike() -> None:
    linear = row_sum()
    (block,) = [n for n in linear.src if n.op is Ops.RANGE and n.arg[1] is AxisRole.BLOCK]
    alone = block.replace(arg=(block.arg[0], AxisRole.GLOBAL))
    check_form(Form.LINEAR, linear)
    with pytest.raises(FormError, match="wait where not all may come"):
        check_form(Form.LINEAR, linear.substitute({block: alone}))


def test_a_group_on_a_machine_without_groups_is_refused() -> None:
    with pytest.raises(ScheduleError, match="group=64"), schedule("group=64"):
        Tensor(rows(3, 300), device="CPU").sum(1).realize()


@pytest.mark.parametrize("group", ["16", "4x4"])
def test_the_solver_shows_all_of_a_kernel_of_groups(group: str) -> None:
    program = (
        "from proofgrad import Tensor, schedule; import test_groups\n"
        f"with schedule('group={group}'): Tensor(test_groups.rows(3, 70, 'float32'), device='GROUPED').sum(1).realize()"
    )
    folder = os.path.dirname(__file__)
    environment = {**os.environ, "PROVE": "1", "DEBUG": "1", "PLANS": "0", "PYTHONPATH": folder}
    told = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    ).stderr
    assert "none unknown" in told
    assert "NOT COVERED" not in told
