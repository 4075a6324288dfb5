"""Rows that the items of a group hold in registers: which memory that is, right whatever the row, no memory of the group left."""

from __future__ import annotations

import functools
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_groups import EMITTED, Grouped, rows
from test_parts_for_units import NAME as EMULATED
from test_parts_for_units import Listing
from test_ptx_backend import assemble
from test_rows_in_groups import CLOSE, WORK, Work, elements_read, likelihood

from proofgrad import Context, Device, Tensor, schedule
from proofgrad.backends.ptx.dialect import MOST_ITEMS, ROW_PART_BYTES
from proofgrad.core.compile.lowering.held_by_items import held_by_items
from proofgrad.core.compile.lowering.program_facts import group_size
from proofgrad.core.compile.lowering.waits import waits
from proofgrad.core.compile.machine.target import Source
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp
from proofgrad.core.tensor.runtime.realize import compile_only
from proofgrad.verify.kernels.waiting import what_races


class Holding(Grouped):
    """As GROUPED, and its items hold rows of up to 64 x 16 floats."""

    name = "HOLDING"
    target = replace(Grouped.target, local_bytes=16384, row_items=64, row_part_bytes=64)


Device.register("HOLDING", Holding)


def gradient(work: Work) -> Work:
    """That of a weighted sum of work on rows."""

    def made(x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        result = work(x)
        (result * Tensor.arange(result.shape[-1], device=x.device)).sum().backward()
        assert x.grad is not None
        return x.grad

    return made


ALL: dict[str, Work] = {
    **WORK,
    "weighted": lambda x: x.layernorm() * Tensor.arange(x.shape[-1], device=x.device) + 1,
    "masked": lambda x: (x > 0).where(x, -5).softmax(),
    "gradient of softmax": gradient(WORK["softmax"]),
    "gradient of layernorm": gradient(WORK["layernorm"]),
    "cross entropy": likelihood,
    "sum": lambda x: x.sum(-1),
}


def check(work: Work, x: np.ndarray, dtype: str, device: str) -> None:
    """Compare work on rows with what the CPU gives."""
    made = [work(Tensor(x, device=one).cast(dtype).realize()) for one in (device, "CPU")]
    got, expected = [one.cast("float64").numpy() for one in made]
    most = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(got, expected, rtol=CLOSE[dtype], atol=CLOSE[dtype] * most)


def linear_of(work: Work, length: int, dtype: str = "float32", wanted: str = "") -> UOp:
    with schedule(wanted), compile_only(), Context(PLANS=0):
        given = Tensor(rows(3, length, "float32"), device="HOLDING").cast(dtype).realize()
        EMITTED.clear()
        work(given).realize()
    return EMITTED[0]


@functools.cache  # a kernel that is known is not printed again
def printed(name: str, length: int) -> Source:
    """The first kernel of work on 300 rows, as an emulated GPU is given it."""
    machine = Device[EMULATED]
    assert isinstance(machine, Listing)
    with compile_only(), Context(PLANS=0):
        given = Tensor.ones(300, length, device=EMULATED).contiguous().realize()
        machine.printed.clear()
        ALL[name](given).realize()
    return machine.printed[0]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("length", [2, 17, 64, 255, 257, 509])
def test_work_on_rows_of_any_length_is_right(name: str, length: int) -> None:
    check(ALL[name], rows(3, length, "float32"), "float32", "HOLDING")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("name", ["softmax", "layernorm"])
@pytest.mark.parametrize("length", [131, 512])
def test_work_on_rows_of_any_type_is_right(name: str, dtype: str, length: int) -> None:
    check(ALL[name], rows(2, length, "float32"), dtype, "HOLDING")


@pytest.mark.parametrize("name", ALL)
def test_a_gpu_takes_the_same_from_rows_that_its_items_hold(name: str) -> None:
    for length in (1000, 1021):
        check(ALL[name], rows(3, length, "float32"), "float32", EMULATED)


@pytest.mark.parametrize(
    "name, length", [("softmax", 16384), ("layernorm", 8209), ("argmax", 16388)]
)
def test_a_gpu_holds_rows_of_more_items(name: str, length: int) -> None:
    check(ALL[name], rows(40, length, "float32"), "float32", EMULATED)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_a_gpu_holds_rows_of_any_type(dtype: str) -> None:
    check(ALL["softmax"], rows(2, 1536, "float32"), dtype, EMULATED)


@pytest.mark.parametrize("length", [64, 100, 255, 256, 509, 1000])
@pytest.mark.parametrize("name", ["softmax", "layernorm", "argmax", "weighted"])
def test_items_hold_what_was_read_and_no_sum_that_others_take_in(name: str, length: int) -> None:
    linear = linear_of(ALL[name], length)
    held, items = held_by_items(linear), group_size(linear)
    assert items is not None
    read = elements_read(linear, slot=1)
    assert 3 * length <= read <= 3 * -(-length // (4 * items)) * 4 * items  # once, to whole turns
    assert {x.items for x in held.values()} == {items}
    assert all([memory.arg[1] >= length for memory in held])  # the sums of items are fewer
    assert len(held) == (2 if name == "softmax" else 1)  # and what exp2 gave
    assert what_races(linear, waits(linear)) is None


def changed(linear: UOp, change: dict[UOp, UOp]) -> UOp:
    """A program with nodes in place of others."""
    done = dict(change)
    for node in linear.src:
        done.setdefault(node, node.with_src(tuple([done.get(s, s) for s in node.src])))
    return linear.with_src(tuple([done[n] for n in linear.src]))


def test_memory_of_which_an_item_reads_what_another_has_put_there_is_held_by_none() -> None:
    linear = linear_of(ALL["layernorm"], 512)
    (memory,) = held_by_items(linear)
    loads = [n for n in linear.src if n.op is Ops.LOAD and n.src[0].src[0].op is Ops.FILLED]
    own = [n for n in loads if n.src[0].src[0].src[0].src[0].src[0] is memory]
    for load in own:
        position, where = load.src[0], load.src[0].src[1]
        for apart in (1, -4, 4, 255, 1 << 20):
            there = position.with_src((position.src[0], where + apart))
            assert memory not in held_by_items(changed(linear, {load: load.with_src((there,))}))
    same = own[0].src[0]
    assert memory in held_by_items(changed(linear, {own[0]: own[0].with_src((same,))}))


def test_a_row_that_items_have_no_registers_for_lies_in_memory_of_the_group() -> None:
    linear = linear_of(ALL["distance"], 2048)
    assert all(
        [n.elements * 4 > Holding.target.row_part_bytes for n in held_by_items(linear).values()]
    )
    assert elements_read(linear, slot=1) == 3 * 2048


def test_a_row_has_as_many_items_as_hold_it_and_no_more() -> None:
    for length, items in ((1024, 256), (8192, 256), (8193, 512)):
        assert printed("distance", length).group_size == items


def test_a_sum_has_as_many_items_as_before() -> None:
    assert printed("sum", 30000).group_size == 256


@pytest.mark.parametrize("length", [1000, 1021, 4096, 8191])
@pytest.mark.parametrize("name", ["softmax", "layernorm", "argmax"])
def test_a_held_row_is_in_registers_and_nowhere_else(name: str, length: int) -> None:
    source = printed(name, length)
    text = source.text
    assert ".local" not in text
    shared = [int(n) for n in re.findall(r"\.shared .*\[(\d+)\];", text)]
    assert source.group_size is not None
    assert sum(shared) < 4 * length  # the sums of the items alone
    assert max(shared) <= 8 * source.group_size
    loads = re.findall(r"ld\.global\S*?\.(v4\.)?b32", text)
    width = 4 if length % 4 == 0 else 1
    turns = -(-length // (width * source.group_size))
    assert len(loads) == turns and set(loads) == {"v4." if width == 4 else ""}
    assert f".maxntid {source.group_size}" in text


def test_registers_are_limited_to_what_a_full_unit_leaves_an_item() -> None:
    text = printed("softmax", 4096).text
    assert ".minnctapersm 4" in text and ROW_PART_BYTES * MOST_ITEMS <= 4 * 65536 // 2


def test_a_large_group_that_holds_nothing_has_no_more_registers_than_there_are() -> None:
    machine = Device[EMULATED]
    assert isinstance(machine, Listing)
    given = Tensor.ones(300, 30001, device=EMULATED).contiguous().realize()
    machine.printed.clear()
    with schedule("group=1024"), compile_only(), Context(PLANS=0):
        given.sum(-1).realize()
    assert ".maxntid 1024" in machine.printed[-1].text


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="ptxas is not on the PATH")
@pytest.mark.parametrize("name", ALL)
def test_held_rows_assemble(name: str, tmp_path: Path) -> None:
    assert assemble(printed(name, 1021).text, tmp_path) == ""


def test_the_solver_shows_rows_that_items_hold() -> None:
    x = rows(2, 75, "float32")
    with Context(PROVE=1, CHECK=1, PLANS=0), schedule("group=8"):
        got = (lambda t: t - t.max(1, keepdim=True))(Tensor(x, device="HOLDING")).numpy()
    np.testing.assert_array_equal(got, x - x.max(1, keepdims=True))
    assert held_by_items(EMITTED[-1])
    turns = [n for n in EMITTED[-1].src if n.op is Ops.RANGE and n.arg[1] is AxisRole.LOOP]
    assert turns  # of results, that each item has


def test_nobody_waits_for_what_each_item_has_to_itself() -> None:
    linear = linear_of(ALL["softmax"], 768)
    held = held_by_items(linear)
    found, all_of_them = waits(linear, held), waits(linear)
    assert len(found) < len(all_of_them)
    assert what_races(linear, found, by_items=held) is None
    assert "is read before all wait" in (what_races(linear, found) or "")
    (sums, *_) = [n for n in linear.src if n.op is Ops.SCRATCH and n not in held]
    told = what_races(linear, found, by_items={*held, sums}) or ""
    assert "has elements of another" in told or "where nothing is known" in told


def test_an_item_that_reads_another_s_part_of_a_row_is_found() -> None:
    linear = linear_of(ALL["layernorm"], 768)
    held = held_by_items(linear)
    (memory,) = held
    loads = [n for n in linear.src if n.op is Ops.LOAD and n.src[0].src[0].op is Ops.FILLED]
    own = [n for n in loads if n.src[0].src[0].src[0].src[0].src[0] is memory]
    index = own[0].src[0]
    moved = UOp(Ops.XOR, index.src[1].dtype, (index.src[1], index.src[1].const_like(4)))
    wrong = changed(linear, {index: index.with_src((index.src[0], moved, *index.src[2:]))})
    told = what_races(wrong, waits(linear, held), by_items=held) or ""
    assert re.search(r"item \d+ has elements of another, in memory \d+", told), told
