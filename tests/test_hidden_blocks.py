"""Causal attention in one pass: one kernel, which ends its loop over keys where the mask hides all that is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
import pytest
from planted.gpu_faults import DEVICE
from test_row_products import attention
from test_warp_blocks import Holding
from test_warp_rows import HALF, assert_close, far, given, kernels_of  # noqa: F401
from test_warp_tiles import values

from proofgrad import Context, Tensor, schedule
from proofgrad.core.compile.nests.loops import is_fixed, size_of
from proofgrad.core.compile.nests.strides import at_start
from proofgrad.core.compile.schedule import row_products
from proofgrad.core.compile.schedule.row_products import tile_of_blocks
from proofgrad.core.compile.tactics import hidden_blocks as tactic
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp
from proofgrad.core.tensor.methods.nn import losses

HOLDS = Holding.name


@pytest.fixture(autouse=True)
def real(far: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:  # noqa: F811
    """Laws of the reals are asked for; a block of a processor has a vector of keys, an item two tiles of rows."""
    monkeypatch.setenv("FASTMATH", "real")
    monkeypatch.setenv("SPEC", "1")
    monkeypatch.setattr(row_products, "_keys_at_once", lambda sizes, dtype, target: tile_of_blocks(sizes, dtype, target).lanes)  # fmt: skip
    monkeypatch.setattr(row_products, "_tiles_of_rows", lambda *_: 2)
    yield


def ends(kernel: UOp) -> list[UOp]:
    """The loops that a loop around ends."""
    return [n for n in kernel.src if n.op is Ops.RANGE and not is_fixed(n)]


def hidden(rows: int, keys: int, diagonal: int = 0, window: int | None = None) -> np.ndarray:
    """What is added to scores; of a window, the keys up to the diagonal, so many of them."""
    seen = np.tri(rows, keys, diagonal, dtype=bool)
    if window is not None:
        seen &= ~np.tri(rows, keys, diagonal - window, dtype=bool)
    return np.where(seen, 0, -np.inf)


def window_of(rows: int, keys: int, diagonal: int, window: int, device: str) -> Tensor:
    """The same as truths."""
    seen = Tensor.ones(rows, keys, dtype="bool", device=device)
    return seen.tril(diagonal).triu(diagonal - window + 1)


@pytest.mark.parametrize(("rows", "keys", "diagonal"), [(150, 97, 0), (97, 201, 37), (70, 64, -40)])
def test_rows_see_the_keys_before_their_own(rows: int, keys: int, diagonal: int) -> None:
    """Where the diagonal is below 0 the first diagonal the first rows see nothing."""
    q, k, v = given(DEVICE, HALF, (2, rows, 16), (2, keys, 16), (2, keys, 16))
    seen = Tensor.ones(rows, keys, dtype="bool", device=DEVICE).tril(diagonal)
    result = q.scaled_dot_product_attention(k, v, seen)
    wanted = attention(values(q), values(k), values(v), hidden(rows, keys, diagonal))
    np.testing.assert_allclose(values(result.realize()), wanted, atol=4e-3, equal_nan=True)


@pytest.mark.skipif(Tensor([0.0]).device != "CPU", reason="other machines have groups")
def test_rows_of_a_processor_see_the_keys_before_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = list[UOp]()
    step = tactic.end_before_hidden
    monkeypatch.setattr(tactic, "end_before_hidden", lambda *args: taken.append(args[1]) or step(*args))  # fmt: skip
    q, k, v = given("CPU", dtypes.float64, (1, 90, 8), (1, 70, 8), (1, 70, 8))
    result = q.scaled_dot_product_attention(k, v, is_causal=True)
    wanted = attention(values(q), values(k), values(v), hidden(90, 70))
    np.testing.assert_allclose(result.numpy(), wanted, atol=1e-9)
    assert len(taken) == 1


@pytest.mark.skipif(Tensor([0.0]).device != "CPU", reason="other machines have groups")
@pytest.mark.parametrize("diagonal", [-30, -40])
def test_rows_that_see_nothing_in_any_tile_leave_the_loop_of_tiles(
    diagonal: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their largest score, and sums beside it, have a loop over keys of their own, before that of tiles."""
    monkeypatch.setattr(row_products, "_tiles_of_rows", lambda *_: 1)
    q, k, v = given("CPU", dtypes.float64, (1, 47, 8), (1, 70, 8), (1, 70, 8))
    seen = Tensor.ones(47, 70, dtype="bool").tril(diagonal)
    result = q.scaled_dot_product_attention(k, v, seen)
    wanted = attention(values(q), values(k), values(v), hidden(47, 70, diagonal))
    np.testing.assert_allclose(result.numpy(), wanted, atol=1e-9, equal_nan=True)


@pytest.mark.parametrize("ahead", ["on", "2"])
def test_blocks_that_are_copied_ahead_are_those_that_are_multiplied(ahead: str) -> None:
    q, k, v = given(DEVICE, HALF, (1, 70, 16), (1, 130, 16), (1, 130, 16))
    with schedule(f"warps=1x1x1x2 ahead={ahead}"):
        result = q.scaled_dot_product_attention(k, v, is_causal=True).realize()
    assert_close(result, attention(values(q), values(k), values(v), hidden(70, 130)))


def test_a_group_ends_where_its_last_row_sees_no_key() -> None:
    q, k, v = given(HOLDS, HALF, (2, 256, 8), (2, 256, 8), (2, 256, 8))
    (kernel,) = kernels_of(q.scaled_dot_product_attention(k, v, is_causal=True))
    (loop,) = ends(kernel)
    assert loop.arg[1] is AxisRole.REDUCE
    (groups,) = [n for n in kernel.src if n.op is Ops.RANGE and n.arg[1] is AxisRole.BLOCK]
    assert groups in loop.src[0].toposort()


def test_groups_whose_rows_see_most_keys_begin_first() -> None:
    """Of both heads; those of a window are as long as each other, and begin in order."""
    q, k, v = given(HOLDS, HALF, (2, 512, 8), (2, 512, 8), (2, 512, 8))
    for window, is_sorted in ((512, True), (64, False)):
        seen = window_of(512, 512, 0, window, HOLDS)
        (kernel,) = kernels_of(q.scaled_dot_product_attention(k, v, seen))
        (loop,) = ends(kernel)
        (groups,) = [n for n in kernel.src if n.op is Ops.RANGE and n.arg[1] is AxisRole.BLOCK]
        counts = [at_start(loop.src[0], {groups: n}) for n in range(size_of(groups))]
        assert (counts == sorted(counts, reverse=True)) == is_sorted
        assert len(set(counts)) > 1


def test_numbers_that_are_added_hide_nothing() -> None:
    q, k, v = given(HOLDS, HALF, (2, 64, 8), (2, 130, 8), (2, 130, 8))
    (mask,) = given(HOLDS, HALF, (64, 130))
    (kernel,) = kernels_of(q.scaled_dot_product_attention(k, v, mask))
    assert ends(kernel) == []


# -- windows ----------------------------------------------------------------------------------------


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[UOp]:
    """The loops that masks let begin later."""
    taken = list[UOp]()
    step = tactic.begin_after_hidden
    monkeypatch.setattr(tactic, "begin_after_hidden", lambda *args: taken.append(args[1]) or step(*args))  # fmt: skip
    return taken


@pytest.mark.parametrize(
    ("rows", "keys", "diagonal", "window"),
    [(150, 97, 0, 40), (97, 201, 37, 3), (70, 64, -40, 20), (33, 300, 267, 1)],
)
def test_rows_see_the_keys_of_a_window(
    rows: int, keys: int, diagonal: int, window: int, begun: list[UOp]
) -> None:
    q, k, v = given(DEVICE, HALF, (2, rows, 16), (2, keys, 16), (2, keys, 16))
    with schedule("warps=1x1x1x2 ahead=on"):
        seen = window_of(rows, keys, diagonal, window, DEVICE)
        result = q.scaled_dot_product_attention(k, v, seen).realize()
    wanted = attention(values(q), values(k), values(v), hidden(rows, keys, diagonal, window))
    np.testing.assert_allclose(values(result), wanted, atol=4e-3, equal_nan=True)
    assert len(begun) == 1


# Of 40 keys: those up to 5 behind the row's own, written from positions as programs write them.
WINDOWS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "truths": lambda row, key: window_of(147, 170, 5, 40, "CPU"),
    "positions": lambda row, key: (key <= row + 5) & (row + 5 - 40 < key),
    "distances": lambda row, key: (row - key < 35) & (row - key >= -5),
    "distances and a number": lambda row, key: (row + 5 - key < 40) & (key - row - 5 <= 0),
    "absolute distances": lambda row, key: ((row - key).abs() < 35) & (key - row < 6),
    "the larger": lambda row, key: ((row - key).maximum(key - row) < 35) & (key < row + 6),
    "the smaller": lambda row, key: ((row - key).minimum(key - row) > -35) & (row + 5 >= key),
}


@pytest.mark.skipif(Tensor([0.0]).device != "CPU", reason="other machines have groups")
@pytest.mark.parametrize(("counted", "dtype"), [*product(WINDOWS, ["int32"]), ("distances", "int16"), ("absolute distances", "int64")])  # fmt: skip
def test_rows_of_a_processor_see_the_keys_of_a_window(
    counted: str, dtype: str, begun: list[UOp]
) -> None:
    q, k, v = given("CPU", dtypes.float64, (1, 147, 8), (1, 170, 8), (1, 170, 8))
    row, key = Tensor.arange(147).reshape(-1, 1), Tensor.arange(170)
    seen = WINDOWS[counted](row.cast(dtype), key.cast(dtype))
    with schedule("tile=4x1x8 blocks=2x1"):
        result = q.scaled_dot_product_attention(k, v, seen).realize()
    wanted = attention(values(q), values(k), values(v), hidden(147, 170, 5, 40))
    np.testing.assert_allclose(result.numpy(), wanted, atol=1e-9)
    assert len(begun) == 1


@pytest.mark.skipif(Tensor([0.0]).device != "CPU", reason="other machines have groups")
@pytest.mark.parametrize("slope", [None, 0.25])
def test_masks_that_are_added_hide_what_they_make_minus_infinity(
    slope: float | None, begun: list[UOp]
) -> None:
    """Numbers that are added, of which some are -inf: one for each side of a window, beside what grows with the distance."""
    q, k, v = given("CPU", dtypes.float64, (1, 147, 8), (1, 170, 8), (1, 170, 8))
    row, key = Tensor.arange(147).reshape(-1, 1), Tensor.arange(170)
    added = (key <= row + 5).where(0.0, -np.inf) + (key <= row + 5 - 40).where(-np.inf, 0.0)
    wanted = hidden(147, 170, 5, 40)
    if slope is not None:
        added = added + (key - row) * slope
        wanted = wanted + (np.arange(170) - np.arange(147)[:, None]) * slope
    with schedule("tile=4x1x8 blocks=2x1"):
        result = q.scaled_dot_product_attention(k, v, added.cast("float64")).realize()
    np.testing.assert_allclose(
        result.numpy(), attention(values(q), values(k), values(v), wanted), atol=1e-9
    )
    assert len(begun) == 1


# -- parts of the rows ------------------------------------------------------------------------------


def test_rows_are_cut_where_no_kernel_ends_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no law of the reals is asked for, or where gradients need the weights."""
    monkeypatch.setattr(losses, "CAUSAL_ROWS", 32)
    q, k, v = [Tensor.empty(256, 64, 8, dtype="float16", device=HOLDS) for _ in range(3)]

    def parts() -> int:
        result = q.scaled_dot_product_attention(k, v, is_causal=True)
        return len([n for n in result.uop.toposort() if n.op is Ops.EXP])

    assert parts() == 1
    with Context(FASTMATH=""):
        assert parts() == 2
    monkeypatch.setattr(Tensor, "training", True)
    assert parts() == 2


# -- proofs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [96, 20])
def test_the_solver_shows_accesses_writes_and_waits(
    window: int, capfd: pytest.CaptureFixture[str]
) -> None:
    q, k, v = given(HOLDS, HALF, (1, 96, 16), (1, 96, 16), (1, 96, 8))
    mask = window_of(96, 96, 0, window, HOLDS)
    capfd.readouterr()
    with Context(PROVE=1, PLANS=0), schedule("warps=1x1x1x2 ahead=on"):
        kernels_of(q.scaled_dot_product_attention(k, v, mask))
    told = capfd.readouterr().err
    assert "none unknown" in told and "waits of groups" in told
