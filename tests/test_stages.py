"""Products whose operands are copied several blocks of steps ahead: right for any size, proved, a wait that is one too few is found."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest
import test_fill_ahead
import test_shared_tiles
import test_warp_tiles
from devices import opened
from emulated_kernels import launch
from proven import fully_proved
from test_fill_ahead import TARGET, product
from test_kernel_proof import planted
from test_shared_tiles import on, whole

from proofgrad import ScheduleError, schedule
from proofgrad.backends.opencl.emit import emit as emit_opencl
from proofgrad.backends.ptx.driver import Driver
from proofgrad.backends.ptx.emit import emit as emit_ptx
from proofgrad.backends.ptx.emulator.driver import EmulatedDriver
from proofgrad.backends.ptx.runtime import PTXBackend
from proofgrad.core.compile.lowering.linearize import linearize
from proofgrad.core.compile.lowering.waits import waits
from proofgrad.core.compile.nests.kernel_schedule import read_schedule
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.device import Device
from proofgrad.core.tensor.runtime.realize import compile_only
from proofgrad.verify.kernels import proof
from proofgrad.verify.kernels.waiting import what_races

BLOCKS = (2, 3, 5)
ASKED = "tile=2x1x4 shared=2x4x4 ahead={}"
ON_GPU = "tile=2x1x4 shared=4x8x4 ahead={}"


@pytest.fixture(autouse=True)
def nothing_emitted() -> Iterator[None]:
    test_shared_tiles.EMITTED.clear()
    yield


@pytest.fixture(scope="module")
def gpu() -> Iterator[str]:
    """The name of an emulated GPU."""
    Device._devices["STAGES"] = PTXBackend(Driver(EmulatedDriver()))
    yield "STAGES"
    del Device._devices["STAGES"]


def test_a_schedule_says_how_many_blocks() -> None:
    for text, blocks in (("off", 0), ("on", 1), ("2", 2), ("5", 5)):
        assert read_schedule(f"ahead={text}").ahead == blocks
        assert str(read_schedule(f"ahead={text}")) == f"ahead={text}"
    for wrong in ("6", "-1", "many"):
        with pytest.raises(ValueError, match="on, off or a number of blocks up to 5"):
            read_schedule(f"ahead={wrong}")


@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("device", ["SHARING", "CL"])
@pytest.mark.parametrize("sizes", [(4, 24, 8), (5, 25, 9), (3, 23, 7)])
def test_a_product_of_any_size_is_exact(
    sizes: tuple[int, int, int], device: str, blocks: int
) -> None:
    rows, steps, columns = sizes
    a, b = whole(rows, steps), whole(steps, columns)
    x, y = on(opened(device), a), on(opened(device), b)
    with schedule(ASKED.format(blocks)):
        np.testing.assert_array_equal((x @ y).numpy(), a @ b)


def test_more_blocks_than_there_are_or_than_memory_holds_are_refused() -> None:
    x, y = on("SHARING", whole(8, 9)), on("SHARING", whole(9, 64))
    for asked in (ASKED.format(3), "tile=4x2x4 shared=4x8x4 ahead=5"):
        with pytest.raises(ScheduleError), schedule(asked):
            (x @ y).realize()


@pytest.mark.parametrize("blocks", BLOCKS)
def test_the_text_waits_for_all_copies_but_those_of_later_blocks(blocks: int) -> None:
    linear = product(8, 32, 16, ASKED.format(blocks))
    text = emit_ptx(linear, "product", 80).text
    assert text.count("bar.sync") == 1 and text.count(f"cp.async.wait_group \t{blocks - 1};") == 1
    assert text.count("cp.async.commit_group") == blocks + 1  # before the loop, and in it
    assert text.count("cp.async.wait_all") == 1  # at the end
    assert emit_opencl(linear, "product").text.count("barrier(") == 1


@pytest.mark.parametrize("blocks", [0, 1, 2])
def test_copies_are_written_out_in_the_loop_of_the_sum(blocks: int) -> None:
    asked = f"tile=2x1x4 shared=4x8x16 ahead={blocks}"
    text = emit_ptx(product(32, 128, 64, asked), "product", 80).text
    assert len(re.findall(r"\bbra\b", text)) == 2  # and one of the steps of a block


@pytest.mark.parametrize("blocks", (0, 1, *BLOCKS))
@pytest.mark.parametrize("sizes", [(32, 48, 64), (29, 45, 61), (33, 49, 65), (7, 29, 31)])
def test_values_on_the_emulator_are_right_for_any_size(
    gpu: str, sizes: tuple[int, int, int], blocks: int
) -> None:
    rows, steps, columns = sizes
    a, b = whole(rows, steps), whole(steps, columns)
    with schedule(ON_GPU.format(blocks)):
        np.testing.assert_array_equal((on(gpu, a) @ on(gpu, b)).numpy(), a @ b)
        turned = on(gpu, a.T.copy()).T @ on(gpu, b.T.copy()).T
    with schedule(ON_GPU.replace("2x1x4", "2x1x1").format(blocks)):
        np.testing.assert_array_equal(turned.numpy(), a @ b)


@pytest.mark.parametrize("blocks", BLOCKS)
def test_a_wait_that_is_one_too_few_gives_wrong_values_on_the_emulator(blocks: int) -> None:
    a, b = whole(32, 48), whole(48, 64)
    text = emit_ptx(product(32, 48, 64, ON_GPU.format(blocks)), "product", 90).text
    wait = f"cp.async.wait_group \t{blocks - 1};"
    assert text.count(wait) == 1
    for changed, is_right in (
        (text, True),
        (text.replace(wait, f"cp.async.wait_group \t{blocks};"), False),
        (text.replace("\tcp.async.commit_group;\n", ""), False),
        (re.sub(r"\tbar\.sync.*\n", "", text), False),
    ):
        results = []
        for backwards in (False, True):
            got = np.zeros((32, 64), "float32")
            launch(changed, 8, 32, got, a, b, backwards=backwards)
            results.append(bool((got == a @ b).all()))
        assert all(results) == is_right


@pytest.mark.parametrize("blocks", BLOCKS)
@pytest.mark.parametrize("sizes", [(8, 32, 16), (9, 29, 18)])
def test_the_solver_shows_all_of_operands_copied_blocks_ahead(
    sizes: tuple[int, int, int], blocks: int, capfd: pytest.CaptureFixture[str]
) -> None:
    rows, steps, columns = sizes
    x, y = on("SHARING", whole(rows, steps)), on("SHARING", whole(steps, columns))
    with (
        schedule(ASKED.format(blocks)),
        fully_proved(capfd, "none unknown; 1 waits of groups;"),
        compile_only(),
    ):
        (x @ y).realize()


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float64])
def test_the_solver_shows_all_of_a_product_by_units_some_blocks_ahead(
    dtype: DType, capfd: pytest.CaptureFixture[str]
) -> None:
    a, b = whole(16, 134), whole(134, 8)
    x, y = test_warp_tiles.on("WARPS", a, dtype), test_warp_tiles.on("WARPS", b, dtype)
    with (
        schedule("warps=1x1x1x1 ahead=3"),
        fully_proved(capfd, "none unknown; 1 waits of groups;"),
        compile_only(),
    ):
        (x @ y).realize()


@pytest.mark.parametrize("blocks", BLOCKS)
def test_no_wait_may_be_for_fewer_fills(blocks: int) -> None:
    linear = product(9, 29, 18, ASKED.format(blocks))
    found = waits(linear)
    assert list(found.values()) == [blocks - 1] and what_races(linear, found) is None
    for late in range(blocks, blocks + 3):
        told = what_races(linear, dict.fromkeys(found, late)) or ""
        assert "read before all wait" in told
    assert what_races(linear, dict.fromkeys(found, 0)) is None  # slower, and right
    assert "read before all wait" in (what_races(linear, {}) or "")


def test_a_wait_that_is_one_too_few_is_found_by_the_proof(
    bodies: list[UOp], monkeypatch: pytest.MonkeyPatch
) -> None:
    right = proof.waits
    monkeypatch.setattr(proof, "waits", lambda linear: {n: k + 1 for n, k in right(linear).items()})
    assert "read before all wait" in planted(bodies, TARGET, "linearize", linearize)


@pytest.fixture(scope="module")
def bodies() -> list[UOp]:
    return test_fill_ahead.bodies.__wrapped__()
