"""Products whose operands the items of a group copy into local memory: right for any size, proved, faults found."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from devices import opened
from emulated_kernels import launch
from test_kernel_proof import Recorder, compile_with, planted

from proofgrad import Device, ScheduleError, Tensor, schedule
from proofgrad.backends.opencl.emit import emit as emit_opencl
from proofgrad.backends.ptx.emit import emit as emit_ptx
from proofgrad.backends.reference import ReferenceBackend
from proofgrad.core.compile.lowering.linearize import linearize
from proofgrad.core.compile.lowering.waits import waits
from proofgrad.core.compile.machine.target import Source, Target
from proofgrad.core.compile.nests.kernel_schedule import NO_SHARED_TILE, Schedule
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.tactics import axes
from proofgrad.core.compile.tactics.shared_tiles import in_shared_tiles
from proofgrad.core.compile.tune.search_space import neighbours
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp
from proofgrad.core.tensor.runtime.realize import compile_only
from proofgrad.verify.kernels import proof
from proofgrad.verify.kernels.waiting import what_races

EMITTED: list[UOp] = []
SMALL = "tile=2x1x4 shared=2x4x8"


class Sharing(ReferenceBackend):
    """Runs what is compiled for a GPU whose groups have 16 items, with every access checked."""

    name = "SHARING"
    target = Target(
        "SHARING",
        vector_bytes=16,
        vector_registers=24,
        work_items=True,
        group_items=32,
        local_bytes=8192,
        lockstep=8,
        index_dtype=dtypes.int32,
    )

    def emit(self, linear: UOp, name: str) -> Source:
        EMITTED.append(linear)
        return super().emit(linear, name)


Device.register("SHARING", Sharing)


@pytest.fixture(autouse=True)
def nothing_emitted() -> Iterator[None]:
    EMITTED.clear()
    yield


@pytest.fixture(params=["SHARING", "CL"])
def device(request: pytest.FixtureRequest) -> str:
    return opened(request.param)


def whole(*shape: int, dtype: str = "float32") -> np.ndarray:
    """Whole numbers, whose products and sums are exact."""
    return np.random.default_rng(sum(shape)).integers(-3, 4, shape).astype(dtype)


def on(device: str, array: np.ndarray) -> Tensor:
    return Tensor(array, device=device).realize()


@functools.cache
def product(rows: int, steps: int, columns: int, wanted: str = SMALL) -> UOp:
    """Linear of a product by groups of 8 items."""
    with schedule(wanted), compile_only():
        (on("SHARING", whole(rows, steps)) @ on("SHARING", whole(steps, columns))).realize()
    return EMITTED[-1]


@pytest.mark.parametrize(
    "sizes", [(4, 16, 16), (10, 17, 18), (5, 11, 7), (1, 9, 3), (3, 31, 1), (13, 9, 33), (2, 40, 2)]
)
def test_a_product_of_any_size_is_exact(sizes: tuple[int, int, int], device: str) -> None:
    rows, steps, columns = sizes
    a, b = whole(rows, steps), whole(steps, columns)
    with schedule(SMALL) if min(rows, columns) > 1 else schedule(""):
        got = (on(device, a) @ on(device, b)).numpy()
    np.testing.assert_array_equal(got, a @ b)


@pytest.mark.parametrize("wanted", ["tile=4x2x4 shared=1x4x3", "tile=1x1x1 shared=3x5x2",
                                    "tile=3x1x2 shared=4x4x16", "tile=2x3x4 shared=4x2x7"])  # fmt: skip
def test_a_tile_of_any_shape_is_exact(wanted: str, device: str) -> None:
    a, b = whole(11, 19), whole(19, 23)
    with schedule(wanted):
        np.testing.assert_array_equal((on(device, a) @ on(device, b)).numpy(), a @ b)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64", "float16", "float64"])
def test_operands_of_any_type_are_exact(dtype: str, device: str) -> None:
    a, b = whole(7, 19, dtype=dtype), whole(19, 10, dtype=dtype)
    with schedule(SMALL.replace("x4 ", "x2 ")):
        got = (on(device, a) @ on(device, b)).numpy()
    np.testing.assert_array_equal(got, (a @ b).astype(got.dtype))


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("second", [False, True])
def test_transposed_operands_are_exact(first: bool, second: bool, device: str) -> None:
    a, b = whole(9, 18), whole(18, 13)
    x = on(device, a.T.copy()).T if first else on(device, a)
    y = on(device, b.T.copy()).T if second else on(device, b)
    with schedule(SMALL):
        np.testing.assert_array_equal((x @ y).numpy(), a @ b)


def test_batches_of_products_are_exact(device: str) -> None:
    a, b = whole(3, 2, 9, 17), whole(2, 17, 6)
    with schedule(SMALL):
        np.testing.assert_array_equal((on(device, a) @ on(device, b)).numpy(), a @ b)


def test_what_is_done_to_results_stays_in_the_kernel(device: str) -> None:
    a, b = whole(9, 19), whole(19, 13)
    x, y = on(device, a), on(device, b)
    with schedule(SMALL):
        result = (x @ y * 2 + 1).relu()
        assert len(result.schedule()) == 1
        got = result.numpy()
    np.testing.assert_array_equal(got, np.maximum(2 * (a @ b) + 1, 0))


@pytest.mark.parametrize("stride", [1, 2])
def test_a_convolution_gathers_its_operand(stride: int, device: str) -> None:
    x, w = whole(2, 3, 9, 7), whole(5, 3, 3, 2)
    with schedule(SMALL):
        got = on(device, x).conv2d(on(device, w), stride=stride).numpy()
    torch = pytest.importorskip("torch")
    wanted = torch.nn.functional.conv2d(torch.tensor(x), torch.tensor(w), stride=stride)
    np.testing.assert_array_equal(got, wanted.numpy())


def test_memory_beyond_the_edge_of_a_sum_is_not_read(device: str) -> None:
    """The last steps of a tile reach into the next row, which is infinite."""
    a, b = np.ones((4, 24), "float32"), np.ones((24, 8), "float32")
    a[:, 19:], b[19:] = np.inf, np.nan
    with schedule(SMALL):
        got = (on(device, a)[:, :19] @ on(device, b)[:19]).numpy()
    np.testing.assert_array_equal(got, np.full((4, 8), 19.0, "float32"))


# -- what is chosen -------------------------------------------------------------------------------


def chosen(rows: int, steps: int, columns: int, device: str) -> str:
    """The schedule that heuristics take for groups, as text."""
    found: list[str] = []

    def told(nest: LoopNest, schedule: Schedule, target: Target) -> LoopNest:
        found.append(str(schedule))
        return in_shared_tiles(nest, schedule, target)

    with pytest.MonkeyPatch.context() as patch, compile_only():
        patch.setattr(axes, "in_shared_tiles", told)
        (on(device, whole(rows, steps)) @ on(device, whole(steps, columns))).realize()
    return "".join(found)


def test_groups_share_the_operands_of_a_large_product() -> None:
    assert re.fullmatch(
        r"tiled=on tile=\dx\dx4 shared=\d+x\d+x\d+ reduction_block=0", chosen(65, 64, 66, "SHARING")
    )


@pytest.mark.parametrize("sizes", [(1, 400, 400), (400, 400, 1), (400, 7, 400), (8, 16, 8)])
def test_a_product_without_reuse_is_no_groups(sizes: tuple[int, int, int]) -> None:
    assert chosen(*sizes, "SHARING") == ""


def test_items_that_are_cores_have_caches_and_do_not_share() -> None:
    assert chosen(65, 64, 66, opened("CL")) == ""


def test_a_tile_that_needs_more_local_memory_than_there_is_is_refused() -> None:
    a, b = on("SHARING", whole(64, 300)), on("SHARING", whole(300, 64))
    with (
        pytest.raises(ScheduleError, match="shared=4x8x128"),
        schedule("tile=8x2x4 shared=4x8x128"),
    ):
        (a @ b).realize()


@pytest.mark.parametrize(
    "text", ["shared=16x16", "shared=1x1x8", "shared=64x64x8", "shared=4x4x500"]
)
def test_a_shared_tile_that_is_none_is_refused_with_what_may_stand_there(text: str) -> None:
    with pytest.raises(ValueError, match="ROWITEMSxCOLUMNITEMSxSTEPS"), schedule(text):
        pass


def test_a_search_tries_other_tiles_of_groups_and_none(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels: list[UOp] = []

    def told(nest: LoopNest, schedule: Schedule, target: Target) -> LoopNest:
        kernels.append(nest.graph)
        return in_shared_tiles(nest, schedule, target)

    monkeypatch.setattr(axes, "in_shared_tiles", told)
    with compile_only():
        (on("SHARING", whole(70, 64)) @ on("SHARING", whole(64, 66))).realize()
    found = neighbours(kernels[0], Sharing.target, Schedule(), Schedule())
    shared = [one.shared for one in found if one.shared is not None]
    assert NO_SHARED_TILE in shared
    assert len(set(shared)) > 3
    assert all([one.items <= Sharing.target.group_items for one in shared])


# -- waits ----------------------------------------------------------------------------------------


def test_opencl_waits_behind_both_copies_and_at_the_end_of_the_steps() -> None:
    source = emit_opencl(product(9, 17, 18), "product")
    assert source.text.count("local float ") == source.text.count("barrier(") == 2
    assert source.group_size == 8
    assert source.global_size == 8 * 3 * 2  # rows 9 / 4, columns 18 / 16


def test_ptx_waits_as_often_and_reads_shared_memory_in_wide_pieces() -> None:
    text = emit_ptx(product(8, 16, 16), "product", 90).text
    assert text.count("bar.sync") == text.count(".shared .align") == 2
    assert "ld.shared.v4" in text
    assert "ld.global.nc.v4" in text
    assert "st.global.v4" in text


def test_no_wait_may_be_lost() -> None:
    linear = product(9, 17, 18)
    found = waits(linear)
    assert what_races(linear, found) is None
    told = sorted(
        [
            what_races(linear, {k: v for k, v in found.items() if k is not one}) or ""
            for one in found
        ]
    )
    assert [text.partition(" of a group ")[2] for text in told] == [
        "is filled again while others may read it",
        "is read before all wait for what fills it",
    ]


def test_a_wait_that_not_all_items_come_to_is_found() -> None:
    linear = product(9, 17, 18)
    (shared,) = [n for n in linear.src if n.op is Ops.RANGE and n.arg[1] is AxisRole.BLOCK]
    uneven = linear.substitute({shared: shared.replace(arg=(shared.arg[0], AxisRole.GLOBAL))})
    assert "which not all run alike" in (what_races(uneven, waits(uneven)) or "")


@pytest.mark.parametrize("lost", [0, 1])
def test_a_lost_barrier_gives_wrong_values_on_the_emulator(lost: int) -> None:
    """Of groups of 64 items, two warps, which run in turns from the first to the last and back."""
    a, b = whole(32, 48), whole(48, 64)
    linear = product(32, 48, 64, "tile=2x1x4 shared=4x8x8")
    text = emit_ptx(linear, "product", 90).text
    parts = re.split(r"(\tbar\.sync.*\n)", text)
    del parts[1 + 2 * lost]
    right, wrong = [np.zeros((32, 64), "float32") for _ in range(2)]
    blocks = 4 * 2
    launch(text, blocks, 32, right, a, b)
    np.testing.assert_array_equal(right, a @ b)
    launch("".join(parts), blocks, 32, wrong, a, b, backwards=True)
    assert (wrong != a @ b).any()


# -- proofs ---------------------------------------------------------------------------------------


def proved(body: str) -> str:
    """What PROVE=1 tells of a program."""
    folder = os.path.dirname(__file__)
    environment = {**os.environ, "PROVE": "1", "DEBUG": "1", "PLANS": "0", "PYTHONPATH": folder}
    program = f"from proofgrad import Tensor, schedule; import test_shared_tiles as t\n{body}"
    command = [sys.executable, "-c", program]
    return subprocess.run(command, env=environment, capture_output=True, text=True).stderr


@pytest.mark.parametrize("sizes", [(8, 16, 16), (9, 17, 18)])
def test_the_solver_shows_all_of_a_shared_tile(sizes: tuple[int, int, int]) -> None:
    told = proved(f"with schedule(t.SMALL): t.product{sizes}")
    assert "none unknown; 2 waits of groups;" in told
    assert "NOT COVERED" not in told


@pytest.fixture(scope="module")
def bodies() -> list[UOp]:
    """A product that groups share, as a kernel before all stages."""
    recorder = Recorder()
    with pytest.MonkeyPatch.context() as patch:
        compile_with(recorder, Tensor(whole(40, 33)) @ Tensor(whole(33, 34)), patch)
    return recorder.bodies


def in_order(linear: UOp, position: UOp, other: UOp) -> UOp:
    """Linear with another position for one."""
    changes: dict[UOp, UOp] = {}
    made: list[UOp] = []
    for node in linear.src:
        if node is position:
            changes[node] = other.with_src(tuple([changes.get(s, s) for s in other.src]))
            made.append(other.src[1])
        else:
            changes[node] = node.with_src(tuple([changes.get(s, s) for s in node.src]))
        made.append(changes[node])
    return UOp(Ops.LINEAR, dtypes.void, tuple(made))


def moved(position: UOp) -> UOp:
    """The same element of each two positions."""
    memory, index, *mask = position.src
    two = UOp.const(index.dtype, 2)
    half = UOp(Ops.FLOORDIV, index.dtype, (index, two))
    return position.with_src((memory, half, *mask))


@pytest.mark.parametrize(("op", "told"), [(Ops.STORE, "not filled in the order of its loops"),
                                          (Ops.LOAD, "differs at")])  # fmt: skip
def test_another_position_in_memory_of_a_group_is_found(
    bodies: list[UOp], op: Ops, told: str
) -> None:
    def wrong(program: UOp) -> UOp:
        linear = linearize(program)
        positions = [n.src[0] for n in linear.src if n.op is op]
        kept = [n for n in positions if n.src[0].op in (Ops.SCRATCH, Ops.FILLED)]
        return in_order(linear, kept[-1], moved(kept[-1]))

    assert told in planted(bodies, Sharing.target, "linearize", wrong)


def test_an_element_that_is_copied_from_elsewhere_is_found(bodies: list[UOp]) -> None:
    def wrong(program: UOp) -> UOp:
        linear = linearize(program)
        (fill,) = [n for n in linear.src if n.op is Ops.FILLED][:1]
        load = next(n for n in fill.src[0].src[1].toposort() if n.op is Ops.LOAD)
        return in_order(linear, load.src[0], moved(load.src[0]))

    assert "differs at" in planted(bodies, Sharing.target, "linearize", wrong)


@pytest.mark.parametrize("lost", [Ops.FILLED, Ops.END])
def test_a_lost_wait_is_found_by_the_proof(
    bodies: list[UOp], lost: Ops, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fewer(linear: UOp) -> frozenset[UOp]:
        return {n: late for n, late in waits(linear).items() if n.op is not lost}

    monkeypatch.setattr(proof, "waits", fewer)
    told = "read before all wait" if lost is Ops.FILLED else "filled again while others may read it"
    assert told in planted(bodies, Sharing.target, "linearize", linearize)
