"""Rows that the items of a workgroup of WebGPU compute together: the text, the values, the proof."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from devices import opened
from proven import fully_proved
from test_groups import EMITTED, Grouped, rows
from test_held_by_warps import WORK

from proofgrad import Context, Device, Tensor, TinyJit, schedule
from proofgrad.backends.webgpu.emit import emit, loop_turns
from proofgrad.backends.webgpu.runtime import WebGPUBackend
from proofgrad.core.compile.machine.target import Source
from proofgrad.core.compile.schedule.groups import FEW_ROWS
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compile_only, compiler


class Scalars(Grouped):
    """Items that take one value at a time, as those of WebGPU do."""

    name = "SCALARS"
    target = replace(Grouped.target, vector_bytes=0)


class ScalarsOfProcessor(Scalars):
    """Such items on a processor, which does not run them in step."""

    name = "SCALARS_OF_PROCESSOR"
    target = replace(Scalars.target, lockstep=1)


Device.register("SCALARS", Scalars)
Device.register("SCALARS_OF_PROCESSOR", ScalarsOfProcessor)


def sums(count: int, length: int, group: str) -> UOp:
    """Linear of the sums of rows."""
    with schedule(f"group={group}"), compile_only(), Context(PLANS=0):
        Tensor(rows(count, length, "float32"), device="SCALARS").realize().sum(1).realize()
    return EMITTED[-1]


@pytest.fixture
def device() -> str:
    return opened("WEBGPU")


# -- the text -------------------------------------------------------------------------------------


def test_what_a_group_keeps_is_in_its_memory_behind_a_barrier() -> None:
    text = emit(sums(5, 300, "64"), "k").text
    assert "@compute @workgroup_size(64)\n" in text
    kept = re.findall(r"^var<workgroup> (kept\d+): array<f32, (\d+)>;$", text, re.M)
    assert kept and text.count("workgroupBarrier();") == len(kept)
    assert "= i32(group.x + group.y * 65535u);" in text and "= i32(lane);" in text
    assert re.search(r"if \(lane == 0u\) \{ data0\[u32\(\w+\)\] = \w+; \}", text)


def test_loop_with_other_items_than_the_group_goes_in_turns() -> None:
    text = emit(sums(5, 37, "2x16"), "k").text
    assert re.search(r"for \(var (i\d+) = i32\(lane\); \1 < \d+i?; \1 \+= 32\)", text)


def test_turns_of_a_group_are_those_of_one_item() -> None:
    nodes = sums(5, 300, "64").src
    assert loop_turns(nodes, 64) < loop_turns(nodes) < 300


# -- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "group"),
    [
        ("float32", "1x64"),
        ("int32", "1x256"),
        ("uint8", "4x16"),
        ("float16", "4x16"),
        ("bool", "8x2"),
    ],
)
def test_rows_are_what_one_item_gives(dtype: str, group: str, device: str) -> None:
    x = np.abs(rows(5, 67 if dtype == "uint8" else 299))
    given, here = [Tensor(x, device=one).cast(dtype).realize() for one in (device, "CPU")]
    for name in ("max", "min") if dtype == "bool" else ("sum", "max", "min"):
        with schedule(f"group={group}"):
            got = WORK[name](given).realize()
        expected = WORK[name](here).cast("float32").numpy()
        np.testing.assert_array_equal(got.cast("float32").numpy(), expected)


@pytest.mark.parametrize("count, length", [(1, 2), (1, 500), (9, 17), (33, 2), (2, 1031)])
def test_rows_of_any_length_are_summed_exactly(count: int, length: int, device: str) -> None:
    x = rows(count, length, "float32")
    with schedule("group=2x16"):
        given = Tensor(x, device=device).realize()
        np.testing.assert_array_equal(given.sum(1).numpy(), x.sum(1))
        left = (given - given.max(1, keepdim=True)).numpy
    np.testing.assert_array_equal(left(), x - x.max(1, keepdims=True))


def test_recorded_rows_are_right_again(device: str) -> None:
    x = rows(3, 130, "float32")
    with schedule("group=1x32"):
        step = TinyJit(lambda y: (y.sum(1) * 2).realize())
        for k in range(4):
            np.testing.assert_array_equal(
                step(Tensor(x + k, device=device).realize()).numpy(), 2 * (x + k).sum(1)
            )


def test_items_of_a_gpu_share_rows_by_themselves(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, made = Device[device], []
    assert isinstance(machine, WebGPUBackend)
    monkeypatch.setattr(machine, "target", replace(machine.target, lockstep=32))
    usual = machine.emit
    monkeypatch.setattr(machine, "emit", lambda *given: made.append(usual(*given)) or made[-1])
    x = rows(7, 1203, "float32")
    with Context(PLANS=0):
        got = Tensor(x, device=device).realize().softmax().numpy()
    assert any([source.group_size for source in made])
    here = Tensor(x, device="CPU").softmax().numpy()
    np.testing.assert_allclose(got, here, rtol=1e-5, atol=1e-6)


def test_items_of_a_processor_share_few_long_rows_by_themselves() -> None:
    for count, is_shared in ((1, True), (FEW_ROWS, True), (FEW_ROWS + 1, False)):
        given = Tensor(rows(count, 997, "float32"), device="SCALARS_OF_PROCESSOR").realize()
        with compile_only(), Context(PLANS=0):
            (given * 2).max(1).realize()
        text = emit(EMITTED[-1], "k").text
        assert ("var<workgroup>" in text) == is_shared, count


def test_all_elements_of_a_long_row_are_taken_where_loops_end_early(device: str) -> None:
    x = np.zeros(700_001, np.float32)
    x[[0, 350_000, -1]] = 3.0, 5.0, 7.0
    given = Tensor(x, device=device).realize()
    assert given.sum().item() == 15.0
    assert given.max().item() == 7.0
    assert given.argmax().item() == 700_000


def test_the_solver_shows_all_of_a_maximum_by_groups(
    device: str, capfd: pytest.CaptureFixture[str]
) -> None:
    given = Tensor(rows(3, 8, "float32"), device=device).realize()
    with schedule("group=8x4"), fully_proved(capfd, "waits of groups"):
        np.testing.assert_array_equal(given.max(1).numpy(), rows(3, 8, "float32").max(1))


# -- mistakes -------------------------------------------------------------------------------------

FAULTS = {
    "nobody waits": ("workgroupBarrier();", ""),
    "all items are the first": ("= i32(lane);", "= i32(lane * 0u);"),
    "groups begin one further on": ("= i32(group.x +", "= i32(group.x + 1u +"),
    "memory of a group is each item's": ("var<workgroup>", "var<private>"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_mistake_in_the_printer_gives_other_values(
    fault: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Device[device]
    before, after = FAULTS[fault]
    usual = machine.emit

    def emit_wrong(linear: UOp, name: str) -> Source:
        source = usual(linear, name)
        assert source.group_size is None or before in source.text
        return replace(source, text=source.text.replace(before, after))

    compiler().forget()
    monkeypatch.setattr(machine, "emit", emit_wrong)
    x = rows(6, 300, "float32")
    with schedule("group=1x64"), Context(PLANS=0):
        got = Tensor(x, device=device).realize().sum(1).numpy()
    compiler().forget()
    assert not (got == x.sum(1)).all()
