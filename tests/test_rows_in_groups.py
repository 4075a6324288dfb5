"""Rows of which a group reads each element once: what several loops read alike is kept in memory of the group."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from devices import opened
from test_groups import EMITTED, rows
from test_parts_for_units import NAME as EMULATED
from test_parts_for_units import Listing

from proofgrad import Context, Device, Tensor, schedule
from proofgrad.core.compile.lowering.waits import waits
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp
from proofgrad.core.tensor.runtime.realize import compile_only
from proofgrad.verify.kernels.waiting import what_races

Work = Callable[[Tensor], Tensor]
WORK: dict[str, Work] = {
    "softmax": lambda x: x.softmax(),
    "log_softmax": lambda x: x.log_softmax(),
    "layernorm": lambda x: x.layernorm(),
    "rmsnorm": lambda x: x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt(),
    "distance": lambda x: x.max(-1, keepdim=True) - x,
    "logsumexp": lambda x: x.logsumexp(-1),
    "argmax": lambda x: x.argmax(-1),
    "deviation": lambda x: x.std(-1),
}
CLOSE = {"float16": 2e-2, "bfloat16": 5e-2, "float32": 2e-5, "float64": 1e-12}


def check(name: str, x: np.ndarray, dtype: str, device: str, wanted: str) -> None:
    """Compare work on rows, by a schedule, with what the CPU gives."""

    given = [Tensor(x, device=one).cast(dtype).realize() for one in (device, "CPU")]
    with schedule(wanted):
        got = WORK[name](given[0]).realize()
    found, expected = [one.cast("float64").numpy() for one in (got, WORK[name](given[1]))]
    np.testing.assert_allclose(found, expected, rtol=CLOSE[dtype], atol=CLOSE[dtype])


@pytest.mark.parametrize("name", WORK)
@pytest.mark.parametrize(
    "device, length", [("GROUPED", 2), ("GROUPED", 17), ("GROUPED", 64), ("CL", 35)]
)
def test_work_on_rows_of_any_length_is_right(name: str, length: int, device: str) -> None:
    check(name, rows(3, length, "float32"), "float32", opened(device), "group=8")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("name", ["softmax", "layernorm"])
def test_work_on_rows_of_any_type_is_right(name: str, dtype: str) -> None:
    check(name, rows(2, 35, "float32"), dtype, "GROUPED", "group=8")


@pytest.mark.parametrize(
    "name, length",
    [*[(name, 509) for name in WORK], ("softmax", 128), ("layernorm", 1000), ("softmax", 13001)],
)
def test_a_gpu_takes_the_same_from_rows(name: str, length: int) -> None:
    check(name, rows(3, length, "float32"), "float32", EMULATED, "")


def kernel(work: Work, count: int, length: int, dtype: str = "float32", group: str = "16") -> UOp:
    """Linear of work on rows by groups of 16 items, or others."""
    with schedule(f"group={group}"), compile_only(), Context(PLANS=0):
        work(Tensor(rows(count, length, dtype), device="GROUPED").realize()).realize()
    return EMITTED[-1]


def likelihood(x: Tensor) -> Tensor:
    """A gradient in whose kernel fills follow each other, and one reads what the first of them filled."""
    x = x.detach().requires_grad_()
    x.log_softmax().nll_loss(Tensor([0] * x.shape[0], device=x.device)).backward()
    assert x.grad is not None
    return x.grad


@pytest.mark.parametrize("group", ["4x4", "2x8", "8"])
@pytest.mark.parametrize("work", [*WORK.values(), likelihood], ids=[*WORK, "likelihood"])
def test_items_wait_before_they_read_what_others_filled(work: Work, group: str) -> None:
    linear = kernel(work, 2, 35, group=group)
    assert what_races(linear, waits(linear)) is None


def elements_read(linear: UOp, slot: int) -> int:
    """How many elements of a parameter all items ask for, masked ones, too."""
    total, times = 0, [1]
    for node in linear.src:
        if node.op is Ops.RANGE:
            times.append(times[-1] * int(node.src[0].arg))
        elif node.op is Ops.END:
            times.pop()
        elif node.op is Ops.LOAD and node.src[0].src[0].op is Ops.PARAM:
            total += times[-1] * node.dtype.lanes * (node.src[0].src[0].arg[0] == slot)
    return total


@pytest.mark.parametrize("name", WORK)
def test_each_element_of_a_row_is_read_once(name: str) -> None:
    assert elements_read(kernel(WORK[name], 5, 128), slot=1) == 5 * 128


def test_a_row_that_a_group_has_no_room_for_is_read_again() -> None:
    assert elements_read(kernel(WORK["distance"], 2, 1024), slot=1) == 2 * 2 * 1024


def test_what_was_read_is_not_kept_where_one_loop_reads_it() -> None:
    loops = [n for n in kernel(lambda x: x.sum(-1), 3, 256).src if n.op is Ops.FILLED]
    assert len(loops) == 1  # the sums of the items


def test_a_lost_wait_is_a_race() -> None:
    linear = kernel(WORK["distance"], 3, 40)
    filled = dict.fromkeys([n for n in linear.src if n.op is Ops.FILLED], 0)
    assert what_races(linear, filled) is None
    told = [what_races(linear, {one: 0 for one in filled if one is not lost}) for lost in filled]
    assert all(["is read before all wait" in (one or "") for one in told])


@pytest.mark.parametrize("group", ["4", "1x4x8"])
def test_the_solver_shows_a_row_that_is_read_once(group: str) -> None:
    x = rows(2, 19, "float32")
    with Context(PROVE=1, PLANS=0), schedule(f"group={group}"):
        got = (lambda t: t - t.max(1, keepdim=True))(Tensor(x, device="GROUPED")).numpy()
    np.testing.assert_array_equal(got, x - x.max(1, keepdims=True))
    shared = [n for n in EMITTED[-1].src if n.op is Ops.RANGE and n.arg[1] is AxisRole.LANE]
    assert len(shared) > 2


@pytest.mark.parametrize("first, second", [((3, 37), (3, 5, 300)), ((34, 33), (34, 2, 67))])
def test_rows_of_other_loops_are_a_group_s(
    first: tuple[int, int], second: tuple[int, int, int]
) -> None:
    """A maximum that several longer rows are made of: no item takes a row alone."""
    draw = np.random.default_rng(first[0])
    a, x = [draw.standard_normal(shape).astype(np.float32) for shape in (first, second)]
    given = [Tensor(each, device="GROUPED").realize() for each in (a, x)]
    EMITTED.clear()
    got = (given[1] - given[0].max(-1).reshape(-1, 1, 1)).exp().sum(-1).numpy()
    assert waits(EMITTED[-1])
    np.testing.assert_allclose(got, np.exp(x - a.max(-1).reshape(-1, 1, 1)).sum(-1), rtol=1e-5)


OF_SEVERAL_LOOPS: dict[str, Work] = {
    "sum": lambda x: x[:, :, 3:].sum((1, 2)),
    "maximum": lambda x: x[:, 1:, 1:].max((1, 2)),
    "powers": lambda x: (x[:, :, 2:] - x[:, :, 2:].max((1, 2), keepdim=True)).exp().sum((1, 2)),
    "norm": lambda x: x[:, :, 1:] / x[:, :, 1:].square().sum((1, 2), keepdim=True),
}


@pytest.mark.parametrize("name", OF_SEVERAL_LOOPS)
def test_rows_of_several_loops_are_a_group_s(name: str) -> None:
    """Items share the last loop; each had all of a reduction to itself."""
    x = np.random.default_rng(3).standard_normal((4, 7, 139)).astype(np.float32)
    given, machine = Tensor(x, device=EMULATED).realize(), Device[EMULATED]
    assert isinstance(machine, Listing)
    machine.printed.clear()
    got = OF_SEVERAL_LOOPS[name](given).numpy()
    assert any([source.group_size for source in machine.printed])
    np.testing.assert_allclose(got, OF_SEVERAL_LOOPS[name](Tensor(x)).numpy(), rtol=1e-5, atol=1e-6)


def test_the_solver_shows_rows_of_several_loops() -> None:
    x = rows(3, 2 * 41, "float32").reshape(3, 2, 41)
    with Context(PROVE=1, PLANS=0):
        got = Tensor(x, device=EMULATED).realize()[:, :, 1:].max((1, 2)).numpy()
    np.testing.assert_array_equal(got, x[:, :, 1:].max((1, 2)))
