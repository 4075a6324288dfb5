"""Running sums, products and extremes that the items of a group take in blocks: right whatever the row, read side by side, proved."""

from __future__ import annotations

import numpy as np
import pytest
from test_groups import EMITTED, rows
from test_parts_for_units import NAME as EMULATED
from test_parts_for_units import Listing
from test_rows_in_groups import CLOSE, Work, kernel

from proofgrad import Context, Device, Tensor, schedule
from proofgrad.core.compile.lowering.program_facts import group_size
from proofgrad.core.compile.lowering.waits import waits
from proofgrad.core.compile.machine.target import Source
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp
from proofgrad.core.tensor.runtime.realize import compile_only
from proofgrad.verify.kernels.waiting import what_races


def gradient(x: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    (x.cumsum(1) * Tensor.arange(x.shape[1], device=x.device)).sum().backward()
    assert x.grad is not None
    return x.grad


WORK: dict[str, Work] = {
    "cumsum": lambda x: x.cumsum(1),
    "cumprod": lambda x: (x * 0.01 + 1).cumprod(1),
    "cummax": lambda x: x.cummax(1)[0],
    "where the largest is": lambda x: x.cummax(1)[1],
    "cummin": lambda x: x.cummin(1)[0],
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "from the end": lambda x: x.flip(1).cumsum(1).flip(1),
    "those before": lambda x: x.cumsum(1) - x,
    "of a product, with more behind": lambda x: (x * x).cumsum(1).sqrt() + x,
    "two": lambda x: x.cumsum(1) * 2 + x.cummax(1)[0],
    "gradient": gradient,
    "of columns": lambda x: x.T.contiguous().cumsum(0),
}
FLOATS = ("float16", "bfloat16", "float32", "float64")


def check(work: Work, x: np.ndarray, dtype: str, device: str) -> None:
    """Compare running work on rows with what the CPU gives."""
    made = [work(Tensor(x, device=one).cast(dtype).realize()) for one in (device, "CPU")]
    got, expected = [one.cast("float64").numpy() for one in made]
    close = CLOSE[dtype] if dtype in FLOATS else 0.0
    most = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(got, expected, rtol=close, atol=close * most)


@pytest.mark.parametrize("name", WORK)
def test_work_along_rows_of_any_length_is_right(name: str) -> None:
    for length in (127, 128, 129, 251, 512, 1021, 4096):
        check(WORK[name], rows(3, length, "float32"), "float32", EMULATED)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32", "uint8", "int64"])
def test_sums_of_any_type_are_right(dtype: str) -> None:
    for length in (131, 1024):
        x = np.abs(rows(2, length, "float32")) * (0.125 if dtype in FLOATS else 1)
        for name in ("cumsum", "cummax"):
            check(WORK[name], x, dtype, EMULATED)


@pytest.mark.parametrize("name", ["cumsum", "where the largest is", "from the end"])
def test_the_reference_takes_the_same(name: str) -> None:
    check(WORK[name], rows(2, 129, "float32"), "float32", "GROUPED")


def test_what_is_behind_does_not_touch_a_sum() -> None:
    x = rows(2, 160, "float32")
    x[0, 90], x[1, 140] = np.inf, np.nan
    got = WORK["cumsum"](Tensor(x, device="GROUPED")).numpy()
    expected = np.cumsum(x.astype("float64"), 1)
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(expected))
    np.testing.assert_array_equal(got[0, :90], expected[0, :90])


def turns(linear: UOp) -> int:
    """How often the loops of an item run around what it loads from far memory, in all."""
    total, times = 0, [1]
    for node in linear.src:
        if node.op is Ops.RANGE:
            is_shared = node.arg[1] in (AxisRole.LANE, AxisRole.BLOCK)
            times.append(times[-1] * (1 if is_shared else int(node.src[0].arg)))
        elif node.op is Ops.END:
            times.pop()
        elif node.op is Ops.LOAD and node.src[0].src[0].op is Ops.PARAM:
            total += times[-1]
    return total


@pytest.mark.parametrize("name", ["cumsum", "cummax"])
@pytest.mark.parametrize("length", [256, 257])
def test_no_item_goes_through_a_row_alone(name: str, length: int) -> None:
    linear = kernel(WORK[name], 3, length, group="64")
    assert group_size(linear) == 64
    assert turns(linear) <= 6 * -(-length // 64)
    assert what_races(linear, waits(linear)) is None


def test_a_short_row_is_one_item_s() -> None:
    with Context(PLANS=0):
        Tensor(rows(3, 100, "float32"), device="GROUPED").realize().cumsum(1).realize()
    assert group_size(EMITTED[-1]) is None


def test_each_item_may_be_asked_to_take_a_row() -> None:
    given = Tensor(rows(3, 250, "float32"), device="GROUPED").realize()
    with schedule("group=0"), Context(PLANS=0):
        given.cumsum(1).realize()
    assert group_size(EMITTED[-1]) is None


@pytest.mark.parametrize("name", ["cumsum", "those before", "cummax"])
def test_a_running_sum_in_blocks_is_proved(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Blocks of 16, of as many items, and what is left of the last."""
    x = rows(2, 128)
    with Context(PROVE=1, CHECK=1, PLANS=0), schedule("group=8"):
        got = WORK[name](Tensor(x, device="GROUPED").realize()).numpy()
    np.testing.assert_array_equal(got, WORK[name](Tensor(x, device="CPU")).numpy())
    assert group_size(EMITTED[-1]) == 8
    told = capsys.readouterr().err
    assert "none unknown" in told and "NOT COVERED" not in told, told


def test_columns_that_are_few_are_an_item_s_each() -> None:
    """With 16 of them for each item, 4096 columns were 256 items, of which a few units had all."""
    source = printed_sums((64, 4096))
    assert source.global_size == 4096


def printed_sums(shape: tuple[int, int]) -> Source:
    machine = Device[EMULATED]
    assert isinstance(machine, Listing)
    with compile_only(), Context(PLANS=0):
        given = Tensor.ones(*shape, device=EMULATED).contiguous().realize()
        machine.printed.clear()
        given.cumsum(0).realize()
    return machine.printed[0]
