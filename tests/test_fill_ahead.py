"""Products whose operands are copied for the next steps while these are multiplied: right for any size, proved, faults found."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import test_shared_tiles
import test_warp_tiles
from devices import opened
from emulated_kernels import launch
from proven import fully_proved
from test_kernel_proof import planted
from test_shared_tiles import on, whole

from proofgrad import ScheduleError, schedule
from proofgrad.backends.opencl.emit import emit as emit_opencl
from proofgrad.backends.ptx.emit import emit as emit_ptx
from proofgrad.core.compile.lowering.linearize import linearize
from proofgrad.core.compile.lowering.waits import waits
from proofgrad.core.compile.steps.bijection import NewLoop
from proofgrad.core.compile.steps.fill_ahead import fill_ahead
from proofgrad.core.compile.steps.loop_nest import LoopNest, StepRefused, lowered
from proofgrad.core.compile.steps.reorder import reorder
from proofgrad.core.compile.steps.run_as import run_as
from proofgrad.core.compile.steps.split import split
from proofgrad.core.compile.steps.unroll import unroll
from proofgrad.core.compile.text.reader import read_nest
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp
from proofgrad.core.tensor.runtime.realize import compile_only, compiler
from proofgrad.verify.kernels import proof
from proofgrad.verify.kernels.ahead import claims_of
from proofgrad.verify.kernels.questions import Questions, Verdict
from proofgrad.verify.kernels.readback import stores_of
from proofgrad.verify.kernels.waiting import what_races

AHEAD = "tile=2x1x4 shared=2x4x8 ahead=on"
COPY = r"cp\.async\.cg\.shared\.global \[%rd\d+(?:\+\d+)?\], \[%rd\d+(?:\+\d+)?\]"


@pytest.fixture(autouse=True)
def nothing_emitted() -> Iterator[None]:
    test_shared_tiles.EMITTED.clear()
    yield


@functools.cache
def product(rows: int, steps: int, columns: int, wanted: str = AHEAD) -> UOp:
    """Linear of a product by groups of items."""
    with schedule(wanted), compile_only():
        (on("SHARING", whole(rows, steps)) @ on("SHARING", whole(steps, columns))).realize()
    return test_shared_tiles.EMITTED[-1]


@pytest.mark.parametrize("device", ["SHARING", "CL"])
@pytest.mark.parametrize("sizes", [(4, 16, 8), (5, 17, 9), (3, 9, 7), (2, 31, 2)])
def test_a_product_of_any_size_is_exact(sizes: tuple[int, int, int], device: str) -> None:
    rows, steps, columns = sizes
    a, b = whole(rows, steps), whole(steps, columns)
    x, y = on(opened(device), a), on(opened(device), b)
    with schedule(AHEAD):
        np.testing.assert_array_equal((x @ y).numpy(), a @ b)
    with schedule("shared=2x4x8 tile=2x1x1 ahead=on"):
        np.testing.assert_array_equal(
            (on(device, a.T.copy()).T @ on(device, b.T.copy()).T).numpy(), a @ b
        )


def parts_of(linear: UOp) -> list[UOp]:
    return [n for n in linear.src if n.op is Ops.RANGE and n.arg[1] is AxisRole.AHEAD]


def test_copies_go_ahead_where_they_are_asked_for_and_there_is_a_next_one() -> None:
    ahead, waiting = product(8, 16, 16), product(8, 16, 16, AHEAD.replace("on", "off"))
    assert len(parts_of(ahead)) == 1 and not parts_of(waiting)
    kept = [[n.arg[1] for n in linear.src if n.op is Ops.SCRATCH] for linear in (ahead, waiting)]
    assert kept[0] == [2 * size for size in kept[1]]
    x, y = on("SHARING", whole(8, 9)), on("SHARING", whole(9, 64))
    for steps in (16, 100):  # one block; memory for one, but not for two
        with pytest.raises(ScheduleError), schedule(f"tile=4x2x4 shared=4x8x{steps} ahead=on"):
            (x @ y).realize()


# -- text -----------------------------------------------------------------------------------------


def test_items_wait_once_for_both_copies_which_go_on_by_themselves() -> None:
    text = emit_ptx(product(8, 16, 16), "product", 80).text
    assert text.count("bar.sync") == 1
    assert len(re.findall(COPY + ", 16;", text)) == 10  # four and one, before the loop and in it
    assert text.count("cp.async.wait_all") == 2  # at the wait, and at the end
    assert "st.shared" not in text and "ld.global" not in text
    before = emit_ptx(product(8, 16, 16), "product", 75).text
    assert "cp.async" not in before and before.count("bar.sync") == 1
    source = emit_opencl(product(8, 16, 16), "product").text
    assert source.count("barrier(") == 1


def test_a_copy_that_a_mask_turns_off_is_one_of_zeros() -> None:
    text = emit_ptx(product(9, 17, 18), "product", 80).text
    assert re.search(COPY.replace("cg", "ca") + r", 4, %r\d+;", text)


@pytest.mark.skipif(
    test_warp_tiles.PTXAS is None, reason="ptxas, of the CUDA toolkit, is not on the PATH"
)
@pytest.mark.parametrize("sizes", [(8, 16, 16), (9, 17, 18)])
def test_ptxas_takes_copies_ahead(sizes: tuple[int, int, int], tmp_path: Path) -> None:
    text = emit_ptx(product(*sizes), "product", 80).text
    assert test_warp_tiles.assemble(text, tmp_path) == ""


@pytest.mark.parametrize("lost", [None, r"\tcp\.async\.wait_all;\n", r"\tbar\.sync.*\n"])
def test_a_lost_wait_gives_wrong_values_on_the_emulator(lost: str | None) -> None:
    """Of groups of 64 items, two warps, which run in turns from the first to the last and back."""
    a, b = whole(32, 48), whole(48, 64)
    text = emit_ptx(product(32, 48, 64, "tile=2x1x4 shared=4x8x8 ahead=on"), "product", 90).text
    for backwards in (False, True):
        got = np.zeros((32, 64), "float32")
        launch(
            text if lost is None else re.sub(lost, "", text, count=1),
            8,
            32,
            got,
            a,
            b,
            backwards=backwards,
        )
        if (got != a @ b).any():
            break
    assert (got != a @ b).any() == (lost is not None)


# -- proofs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [(8, 16, 16), (9, 17, 18)])
def test_the_solver_shows_all_of_operands_copied_ahead(
    sizes: tuple[int, int, int], capfd: pytest.CaptureFixture[str]
) -> None:
    rows, steps, columns = sizes
    x, y = on("SHARING", whole(rows, steps)), on("SHARING", whole(steps, columns))
    with schedule(AHEAD), fully_proved(capfd, "none unknown; 1 waits of groups;"), compile_only():
        (x @ y).realize()


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.float64])
def test_the_solver_shows_all_of_a_product_by_units(
    dtype: DType, capfd: pytest.CaptureFixture[str]
) -> None:
    x, y = (
        test_warp_tiles.on("WARPS", whole(16, 70), dtype),
        test_warp_tiles.on("WARPS", whole(70, 8), dtype),
    )
    with (
        schedule("warps=1x1x1x1 ahead=on"),
        fully_proved(capfd, "none unknown; 1 waits of groups;"),
        compile_only(),
    ):
        (x @ y).realize()


def test_no_wait_may_be_lost() -> None:
    linear = product(9, 17, 18)
    (wait,) = waits(linear)
    assert wait.op is Ops.RANGE and what_races(linear, {wait: 0}) is None
    assert "read before all wait" in (what_races(linear, {}) or "")


@pytest.fixture(scope="module")
def bodies() -> list[UOp]:
    return test_shared_tiles.bodies.__wrapped__()


TARGET = replace(test_shared_tiles.Sharing.target, copies_ahead=True)


def test_a_lost_wait_is_found_by_the_proof(
    bodies: list[UOp], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof, "waits", lambda linear: {})
    assert "read before all wait" in planted(bodies, TARGET, "linearize", linearize)


def _loops_below(node: UOp) -> set[AxisRole]:
    return {n.arg[1] for n in node.toposort() if n.op is Ops.RANGE}


def _kept_iteration(program: UOp) -> UOp:
    """The iteration whose values a part has: min(s + ((s + p) & 1), n - 1)."""
    both = {AxisRole.REDUCE, AxisRole.AHEAD}
    return next(n for n in program.toposort() if n.op is Ops.MIN and _loops_below(n) == both)


def _part_read(program: UOp) -> UOp:
    """s & 1, where s is the loop that fills ahead."""
    (loop,) = [
        n
        for n in _kept_iteration(program).toposort()
        if n.op is Ops.RANGE and n.arg[1] is AxisRole.REDUCE
    ]
    return UOp(Ops.AND, loop.dtype, (loop, loop.const_like(1)))


def test_another_part_that_is_read_is_found(bodies: list[UOp]) -> None:
    def wrong(program: UOp) -> UOp:
        part = _part_read(program)
        return linearize(program.substitute({part: part ^ 1}))

    assert "differs at" in planted(bodies, TARGET, "linearize", wrong)


def test_what_the_iteration_before_has_not_filled_is_found(bodies: list[UOp]) -> None:
    """Each iteration would read its own values if it filled both parts, and the next one's part with others."""

    def wrong(program: UOp) -> UOp:
        kept, read = _kept_iteration(program), _part_read(program)
        (part,) = [n for n in kept.toposort() if n.op is Ops.RANGE and n.arg[1] is AxisRole.AHEAD]
        own = part.eq(read).where(kept, kept.const_like(0))
        return linearize(program.substitute({kept: own}))

    told = planted(bodies, TARGET, "linearize", wrong)
    assert "another value than the iteration before has put there" in told


def test_a_part_that_is_filled_meanwhile_is_not_read() -> None:
    linear = product(9, 17, 18)
    stores = [written.store for written in stores_of(linear)]
    read = _part_read(UOp.sink(*stores))
    for values, verdicts in (
        (stores, {Verdict.PROVED}),
        ([s.substitute({read: read ^ 1}) for s in stores], {Verdict.PROVED, Verdict.REFUTED}),
    ):
        questions = Questions()
        found = {
            what: questions.holds(claim, given) for what, claim, given in claims_of(linear, values)
        }
        assert {one.verdict for one in found.values()} == verdicts
        assert len(found) == 2


# -- steps ----------------------------------------------------------------------------------------

FILLED = """kernel
  out: f32[8] = param 0
  a: f32[24] = param 1
  b: f32[12] = param 2
  over r2 < 3, r4 < 4
  for r0 < 2
    for r1 < 4 as lane
      let t0 = local[r5 < 4 as lane](b[r2 * 4 + r5])
      out[r0 * 4 + r1] = sum[r2, r4](a[r0 * 12 + r2 * 4 + r4] * t0[r4])
"""


def _loop(nest: LoopNest, number: int) -> UOp:
    (loop,) = [n for n in nest.graph.toposort() if n.op is Ops.RANGE and n.arg[0] == number]
    return loop


@pytest.mark.parametrize(
    "change",
    [
        lambda nest: reorder(nest, _loop(nest, 0), 7),
        lambda nest: split(nest, _loop(nest, 2), (2,), (NewLoop(2, AxisRole.REDUCE), NewLoop(7, AxisRole.REDUCE))),
        lambda nest: unroll(nest, frozenset([_loop(nest, 2)])),
    ],
)  # fmt: skip
def test_no_step_changes_loops_of_what_is_filled_ahead(
    change: Callable[[LoopNest], LoopNest],
) -> None:
    nest = lowered(read_nest(FILLED), compiler().library.facts(), TARGET)
    ahead = fill_ahead(nest, _loop(nest, 2), NewLoop(9, AxisRole.AHEAD))
    assert change(nest) is not nest
    with pytest.raises(StepRefused, match="ahead"):
        change(ahead)


def test_no_other_step_makes_a_loop_of_parts() -> None:
    nest = lowered(read_nest(FILLED), compiler().library.facts(), TARGET)
    with pytest.raises(StepRefused):
        run_as(nest, {_loop(nest, 5): AxisRole.AHEAD})
