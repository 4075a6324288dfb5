"""What is stored along another loop than it is read, through memory of a group: exact for any size, proved, faults found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from devices import opened
from test_groups import EMITTED, Grouped

from proofgrad import Context, Device, ScheduleError, Tensor, schedule
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import Schedule, Transposed
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.tactics import axes
from proofgrad.core.compile.tactics.transposes import through_memory
from proofgrad.core.compile.tune.search_space import neighbours
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compile_only
from proofgrad.verify.kernels.waiting import what_races


@pytest.fixture(params=["GROUPED", "CL"])
def device(request: pytest.FixtureRequest) -> str:
    return opened(request.param)


def counted(*shape: int, dtype: str = "float32") -> np.ndarray:
    """Other values at each position, as far as the type has them."""
    return (np.arange(np.prod(shape)) % 251).reshape(shape).astype(dtype)


def on(device: str, array: np.ndarray) -> Tensor:
    return Tensor(array, device=device).realize()


@pytest.mark.parametrize("shape", [(2, 2), (4, 8), (5, 7), (13, 3), (17, 31), (2, 65)])
@pytest.mark.parametrize("tile", ["4x4", "3x5", "8x2"])
def test_a_matrix_of_any_size_is_transposed_exactly(
    shape: tuple[int, int], tile: str, device: str
) -> None:
    x = counted(*shape)
    with schedule(f"transposed={tile}"):
        np.testing.assert_array_equal(on(device, x).T.contiguous().numpy(), x.T)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "float16", "int64", "float64"])
def test_elements_of_any_type_are_transposed_exactly(dtype: str, device: str) -> None:
    x = counted(9, 10, dtype=dtype)
    with schedule("transposed=4x4"):
        np.testing.assert_array_equal(on(device, x).T.contiguous().numpy(), x.T)


@pytest.mark.parametrize("order", [(0, 2, 1), (2, 1, 0), (1, 2, 0), (2, 0, 1)])
def test_axes_in_any_order_are_exact(order: tuple[int, ...], device: str) -> None:
    x = counted(3, 5, 6)
    with schedule("transposed=4x2"):
        got = on(device, x).permute(*order).contiguous().numpy()
    np.testing.assert_array_equal(got, x.transpose(order))


WORK: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "with one that is not": lambda x, y: x.T * 2 + y,
    "two of them": lambda x, y: x.T - (y.T * x).T,
    "itself": lambda x, y: x.T + x,
    "a part": lambda x, y: x[1:, 2:].T + 1,
    "backwards": lambda x, y: x.flip(0).T + 1,
    "with room around": lambda x, y: x.T.pad(((1, 2), (0, 1))) + 1,
}


@pytest.mark.parametrize("name", WORK)
def test_work_on_what_is_transposed_is_exact(name: str, device: str) -> None:
    x, y = counted(9, 9), counted(9, 9) * 3
    with schedule("transposed=4x4"):
        got = WORK[name](on(device, x), on(device, y)).numpy()
    expected = WORK[name](Tensor(x, device="CPU"), Tensor(y, device="CPU")).numpy()
    np.testing.assert_array_equal(got, expected)


def test_the_solver_shows_all_of_a_transposed_matrix() -> None:
    x = counted(9, 12)
    with Context(PROVE=1, PLANS=0), schedule("transposed=4x4"):
        np.testing.assert_array_equal((on("GROUPED", x).T + 1).numpy(), x.T + 1)


def transposed_kernel() -> UOp:
    """Linear of a transposed matrix by tiles."""
    with schedule("transposed=4x4"), compile_only(), Context(PLANS=0):
        (on("GROUPED", counted(10, 11)).T * 5).realize()
    return EMITTED[-1]


def test_a_lost_wait_is_a_race() -> None:
    linear = transposed_kernel()
    filled = dict.fromkeys([n for n in linear.src if n.op is Ops.FILLED], 0)
    assert what_races(linear, filled) is None
    told = what_races(linear, {})
    assert told is not None and "is read before all wait" in told


def test_rows_of_a_tile_are_an_odd_number_of_elements_apart() -> None:
    (memory,) = [n for n in transposed_kernel().src if n.op is Ops.SCRATCH]
    assert memory.arg[1] == 4 * 5


class Stepping(Grouped):
    """More memory for each group."""

    name = "STEPPING"
    target = replace(Grouped.target, local_bytes=16384)


class Apart(Grouped):
    """Items that are cores."""

    name = "APART"
    target = replace(Stepping.target, lockstep=1)


Device.register("STEPPING", Stepping)
Device.register("APART", Apart)


@pytest.mark.heuristics
@pytest.mark.parametrize(
    "name, shape, elements",  # as many as 64 items fill in whole turns
    [
        ("STEPPING", (512, 512), [17 * 64]),
        ("STEPPING", (4096, 12), [18 * 64]),
        ("STEPPING", (12, 4096), [16 * 64]),
        ("STEPPING", (4096, 4), []),  # short stretches lose nothing
        ("STEPPING", (16, 16), []),
        ("APART", (512, 512), []),  # cores have caches
    ],
)
def test_only_long_stretches_of_machines_in_step_go_through_memory(
    name: str, shape: tuple[int, int], elements: list[int]
) -> None:
    with compile_only():
        (Tensor.ones(*shape, device=name).contiguous().realize().T * 2).realize()
    assert [n.arg[1] for n in EMITTED[-1].src if n.op is Ops.SCRATCH] == elements


def test_a_tile_that_no_group_has_room_for_is_refused() -> None:
    with pytest.raises(ScheduleError, match="transposed=64x64"), schedule("transposed=64x64"):
        (on("GROUPED", counted(70, 70)).T + 1).realize()


def test_a_tile_that_is_none_is_refused_with_what_may_stand_there() -> None:
    for text in ("transposed=1x4", "transposed=4", "transposed=500x2"):
        with pytest.raises(ValueError, match="ALONGxACROSS"), schedule(text):
            pass


def test_a_search_tries_other_tiles_and_none(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels: list[UOp] = []

    def told(nest: LoopNest, tile: Transposed, target: Target) -> LoopNest:
        kernels.append(nest.graph)
        return through_memory(nest, tile, target)

    monkeypatch.setattr(axes, "through_memory", told)
    with schedule("transposed=4x4"), compile_only(), Context(PLANS=0):
        (on("GROUPED", counted(21, 23)).T * 7).realize()
    found = neighbours(kernels[0], Stepping.target, Schedule(), Schedule())
    assert {one.transposed for one in found} >= {Transposed(64, 16), Transposed(32, 32)}
