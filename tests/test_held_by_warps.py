"""Sums that the items of a warp exchange: right on an emulated GPU, without memory and waits, proved; what is wrong with them is found."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from emulated_kernels import launch
from proven import fully_proved
from test_groups import Grouped, rows
from test_parts_for_units import NAME as EMULATED
from test_rows_in_groups import elements_read

from proofgrad import Context, Device, Tensor, schedule
from proofgrad.backends.ptx.emit import emit as emit_ptx
from proofgrad.backends.reference import ReferenceBackend
from proofgrad.core.compile.lowering.held_by_items import held_by_items
from proofgrad.core.compile.lowering.held_by_warps import held_by_warps
from proofgrad.core.compile.lowering.waits import waits
from proofgrad.core.compile.machine.target import Source
from proofgrad.core.compile.steps import all_reduce as rounds
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp
from proofgrad.core.tensor.runtime.realize import compile_only
from proofgrad.verify.kernels.proof import ProofError
from proofgrad.verify.kernels.waiting import what_races

EMITTED: list[UOp] = []


class Exchanging(Grouped):
    """Runs what is compiled for a GPU whose warps exchange what they hold, with every access checked."""

    name = "EXCHANGING"
    target = replace(
        Grouped.target, lockstep=32, warp_items=32, local_bytes=1 << 14, row_part_bytes=64
    )

    def emit(self, linear: UOp, name: str) -> Source:
        EMITTED.append(linear)
        return ReferenceBackend.emit(self, linear, name)


Device.register("EXCHANGING", Exchanging)
WORK: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x.sum(-1),
    "max": lambda x: x.max(-1),
    "min": lambda x: x.min(-1),
    "softmax": lambda x: x.softmax(),
    "layernorm": lambda x: x.layernorm(),
}


@pytest.fixture(autouse=True)
def nothing_emitted() -> Iterator[None]:
    EMITTED.clear()
    yield


@functools.cache
def kernel(name: str, count: int, length: int, group: str) -> UOp:
    """Linear of work on rows, by a schedule."""
    with schedule(f"group={group}"), compile_only(), Context(PLANS=0):
        WORK[name](Tensor(rows(count, length, "float32"), device="EXCHANGING").realize()).realize()
    return EMITTED[-1]


# -- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype",
    ["float16", "bfloat16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64"],
)
def test_rows_of_each_type_are_what_numpy_gives(dtype: str) -> None:
    count, length = (5, 67) if "8" in dtype else (3, 300)
    x = rows(count, length) if not dtype.startswith("u") else np.abs(rows(count, length))
    given, wide = (
        Tensor(x, device=EMULATED).cast(dtype).realize(),
        "float64" if "float" in dtype else "int64",
    )
    for name in ("sum", "max"):
        whole = Tensor(getattr(x, name)(1)).cast(WORK[name](given).dtype)
        np.testing.assert_array_equal(
            WORK[name](given).cast(wide).numpy(), whole.cast(wide).numpy()
        )


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", ["softmax", "layernorm"])
def test_short_rows_are_right_on_a_gpu(name: str, dtype: str) -> None:
    x = rows(9, 64, "float32")
    got, expected = [
        WORK[name](Tensor(x, device=one).cast(dtype).realize()).cast("float64").numpy()
        for one in (EMULATED, "CPU")
    ]
    close = 1e-3 if dtype == "float16" else 1e-5
    np.testing.assert_allclose(got, expected, rtol=close, atol=close)


@pytest.mark.parametrize("length", [64, 1000])
def test_numbers_that_are_none_and_infinities_are_where_numpy_has_them(length: int) -> None:
    x = rows(6, length, "float32")
    x[1, length // 2], x[2, -1], x[3, 0] = np.nan, np.inf, -np.inf
    x[4, 1], x[4, -1] = np.inf, -np.inf
    x[5] = -0.0
    given = Tensor(x, device=EMULATED).realize()
    with np.errstate(invalid="ignore"):
        for name in ("sum", "max", "min"):
            np.testing.assert_array_equal(WORK[name](given).numpy(), getattr(x, name)(1))
    assert (~np.signbit(given.sum(1).numpy()[5])).all()  # a sum starts from 0.0


def test_rows_of_bools_are_any_of_them() -> None:
    x = rows(4, 600) > 8
    x[2] = False
    np.testing.assert_array_equal(Tensor(x, device=EMULATED).any(1).numpy(), x.any(1))


@pytest.mark.parametrize("group", ["2x16", "1x64", "8x4"])
@pytest.mark.parametrize("name", ["min", "softmax"])
def test_rows_by_any_number_of_items_are_right(name: str, group: str) -> None:
    x = rows(3, 37, "float32")
    given, here = [Tensor(x, device=one).realize() for one in ("EXCHANGING", "CPU")]
    with schedule(f"group={group}"), Context(PLANS=0):
        got = WORK[name](given).numpy()
    np.testing.assert_allclose(got, WORK[name](here).numpy(), rtol=1e-5, atol=1e-7)


# -- the text -------------------------------------------------------------------------------------


def test_a_softmax_of_short_rows_needs_no_memory_and_no_wait() -> None:
    linear = kernel("softmax", 8, 64, "4x16")
    text = emit_ptx(linear, "softmax", 90).text
    assert ".shared" not in text and "bar.sync" not in text
    assert text.count("shfl.sync.bfly") == 2 * 4  # of the maximum and the sum, 16 items each
    assert text.count("shfl.sync.idx") == 2  # each for what takes it in
    assert elements_read(linear, slot=1) == 8 * 64
    assert len(held_by_items(linear)) == 2  # the rows, and what exp2 gave


def test_as_many_rows_as_elements_are_read_in_vectors() -> None:
    linear = kernel("sum", 16, 16, "8x4")
    loads = [n for n in linear.src if n.op is Ops.LOAD and n.src[0].src[0].op is Ops.PARAM]
    assert {n.dtype.lanes for n in loads} == {4}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_short_rows_of_any_type_are_read_in_one_wide_load_of_each_item(dtype: str) -> None:
    with compile_only(), Context(PLANS=0):
        given = Tensor(rows(80, 32, "float32"), device="EXCHANGING").cast(dtype).realize()
        given.softmax().realize()
    linear = EMITTED[-1]
    loads = [n for n in linear.src if n.op is Ops.LOAD and n.src[0].src[0].op is Ops.PARAM]
    assert [n.dtype.lanes * n.dtype.scalar.itemsize for n in loads] == [16]


def test_warps_of_a_row_wait_once() -> None:
    text = emit_ptx(kernel("sum", 3, 700, "1x64"), "rows", 90).text
    assert text.count("bar.sync") == text.count(".shared .align") == 1
    assert [int(n) for n in re.findall(r"shfl\.sync\.bfly\.b32.*, (\d+), 31, -1", text)] == [
        16,
        8,
        4,
        2,
        1,
    ]


@pytest.mark.parametrize(
    ("before", "after"), [("8, 31, -1", "4, 31, -1"), ("1, 31, -1", "0, 31, -1")]
)
def test_a_lane_that_is_left_out_gives_another_sum(before: str, after: str) -> None:
    x = rows(2, 700, "float32")
    text = emit_ptx(kernel("sum", 2, 700, "1x64"), "rows", 90).text
    for changed, is_right in ((text, True), (text.replace(f", {before}", f", {after}"), False)):
        got = np.zeros(2, "float32")
        launch(changed, 2, 64, got, x)
        assert bool((got == x.sum(1)).all()) == is_right


# -- proofs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "length", "group"),
    [("sum", 16, "8x4"), ("max", 10, "16x2"), ("softmax", 8, "16x2"), ("layernorm", 8, "16x2")],
)
def test_the_solver_shows_all_of_rows_held_by_warps(
    name: str, length: int, group: str, capfd: pytest.CaptureFixture[str]
) -> None:
    given = Tensor(rows(3, length, "float32"), device="EXCHANGING").realize()
    with schedule(f"group={group}"), fully_proved(capfd), compile_only():
        WORK[name](given).realize()


@pytest.mark.parametrize(("check", "length"), [("PROVE", 71), ("CHECK", 72)])
def test_a_round_that_leaves_a_lane_out_is_found(
    check: str, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "taken_from", lambda item, part, distance: item + part * 0)
    given = Tensor(rows(3, length, "float32"), device="EXCHANGING").realize()
    with (
        schedule("group=2x16"),
        Context(**{check: 1}, PLANS=0),
        pytest.raises(RuntimeError) as told,
    ):
        given.sum(1).realize()
    assert check == "CHECK" or isinstance(told.value, ProofError)


def test_items_exchange_what_their_warp_holds() -> None:
    linear = kernel("softmax", 8, 64, "4x16")
    held, own = held_by_warps(linear), held_by_items(linear)
    assert len(held) == 2 * 5
    assert waits(linear, {*held, *own}) == {}
    assert what_races(linear, {}, held, own) is None
    assert "read before all wait" in (what_races(linear, {}) or "")
    assert "read before all wait" in (what_races(linear, {}, list(held)[1:], own) or "")


def test_what_another_warp_holds_is_not_exchanged() -> None:
    linear = kernel("sum", 3, 700, "1x64")
    held = held_by_warps(linear)
    (last,) = [n for n in linear.src if n.op is Ops.SCRATCH and n not in held]
    assert len(held) == 5 and len(waits(linear, held)) == 1
    told = what_races(linear, {}, {*held, last}) or ""
    assert re.search(r"item \d+ reads what another warp holds|of which nothing is known", told)


def changed_loads(linear: UOp, change: Callable[[UOp], UOp]) -> UOp:
    """The Linear whose first load of what is kept has another position."""
    first = next(iter(held_by_warps(linear).values()))
    load = next(n for n in linear.src if n in first)
    position = load.src[0].src[1]
    return linear.substitute(
        {load.src[0]: load.src[0].with_src((load.src[0].src[0], change(position)))}
    )


def test_an_item_that_reads_what_another_warp_holds_is_found() -> None:
    linear = kernel("softmax", 8, 64, "4x16")
    held = held_by_warps(linear)
    own = held_by_items(linear)
    wrong = changed_loads(linear, lambda p: UOp(Ops.XOR, p.dtype, (p, p.const_like(32))))
    assert "item 0 reads what another warp holds" in (what_races(wrong, {}, held, own) or "")
    assert len(held_by_warps(wrong)) < len(held)
    near = changed_loads(linear, lambda p: UOp(Ops.XOR, p.dtype, (p, p.const_like(16))))
    assert what_races(near, {}, held_by_warps(near), own) is None


def test_items_that_do_not_all_come_do_not_exchange() -> None:
    linear = kernel("softmax", 8, 64, "4x16")
    held = held_by_warps(linear)
    (last,) = [n for n in linear.src if n.op is Ops.RANGE and n.arg[1] is AxisRole.LANE][-1:]
    longer = last.with_src((last.src[0].const_like(65),))
    told = what_races(linear.substitute({last: longer}), {}, held, held_by_items(linear)) or ""
    assert "items of a group exchange what they hold inside of loop" in told
    assert len(held_by_warps(linear.substitute({last: longer}))) < len(held)
