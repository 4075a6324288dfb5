"""Attention by matrix units: one kernel, right for any size and mask, with no matrix of scores in memory, and proved."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from planted.gpu_faults import DEVICE, emulated
from test_row_products import attention
from test_tf32 import rounded
from test_warp_tiles import EMITTED, Warps, on, values

from proofgrad import Context, Device, ScheduleError, Tensor, dtypes, schedule
from proofgrad.backends.ptx import runtime
from proofgrad.backends.ptx.emit import emit
from proofgrad.backends.ptx.matrix_units import matrix_units
from proofgrad.core.compile.fusion import row_products
from proofgrad.core.compile.machine.target import Source
from proofgrad.core.compile.schedule.row_products import Sizes
from proofgrad.core.compile.schedule.warp_rows import pays_in_warps, tile_of_warps
from proofgrad.core.compile.steps import keep_in_item
from proofgrad.core.compile.steps.collapse import digits_of
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp, is_of_group
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.tensor.runtime.realize import compile_only, compiler
from proofgrad.verify.kernels.proof import ProofError

HALF, BRAIN = dtypes.float16, dtypes.bfloat16
HEADS = Sizes(rows=1024, keys=1024, depth=64, columns=64)
# Weights are rounded to the type of values, and so are results.
CLOSE = {HALF: 4e-3, BRAIN: 3e-2, dtypes.float64: 1e-6}


class Roomy(Warps):
    """The same of as many items and as much memory of a group as GPUs have."""

    name = "ROOMY"
    target = replace(Warps.target, group_items=256, local_bytes=48 << 10)


Device.register("ROOMY", Roomy)


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Short matrices of scores count as ones that leave the cache; CUDA is an emulated GPU."""
    monkeypatch.setenv("PLANS", "0")
    monkeypatch.setattr(row_products, "leave_the_cache", lambda scores, target: True)
    with emulated(monkeypatch):
        yield
    compiler().forget()
    EMITTED.clear()


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def given(device: str, dtype: DType, *shapes: tuple[int, ...]) -> list[Tensor]:
    return [on(device, drawn(*shape), dtype) for shape in shapes]


def assert_close(got: Tensor, wanted: np.ndarray) -> None:
    """What is compared is stored already, before any operand was: else a converted copy that is there would be multiplied."""
    np.testing.assert_allclose(values(got), wanted, atol=CLOSE[got.dtype], rtol=0)


# -- values -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize(
    ("dtype", "sizes"),
    [
        (BRAIN, (1, 32, 32, 16, 16)),
        (HALF, (2, 40, 70, 64, 64)),
        (HALF, (1, 33, 65, 20, 24)),
        (BRAIN, (1, 47, 33, 72, 9)),
        (dtypes.float64, (1, 35, 41, 16, 17)),
        (HALF, (1, 2, 65, 16, 16)),
        (HALF, (1, 65, 1, 16, 16)),
    ],
)
def test_attention_of_any_size(dtype: DType, sizes: tuple[int, int, int, int, int]) -> None:
    heads, rows, keys, depth, columns = sizes
    q, k, v = given(
        DEVICE, dtype, (heads, rows, depth), (heads, keys, depth), (heads, keys, columns)
    )
    result = q.scaled_dot_product_attention(k, v)
    assert (len(result.schedule()) == 1) == (min(rows, keys) >= 32)
    result.realize()
    assert_close(result, attention(values(q), values(k), values(v)))


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize("lies", ["as it is", "transposed"])
@pytest.mark.parametrize(
    "sizes", [(1, 32, 32, 16, 16), (2, 40, 70, 64, 64), (1, 33, 65, 20, 24), (1, 47, 33, 72, 9)]
)
def test_attention_of_float32_is_one_kernel_where_its_factors_are_rounded(
    sizes: tuple[int, int, int, int, int], lies: str
) -> None:
    """Weights, too: by as much as 2 ** -12 of each."""
    heads, rows, keys, depth, columns = sizes
    shapes = (heads, rows, depth), (heads, keys, depth), (heads, keys, columns)
    q, k, v = given(DEVICE, dtypes.float32, *shapes)
    if lies == "transposed":
        v = given(DEVICE, dtypes.float32, (heads, columns, keys))[0].transpose(-2, -1)
    with Context(ALLOW_TF32=1):
        result = q.scaled_dot_product_attention(k, v)
    assert len(result.schedule()) == 1
    result.realize()
    exact = [rounded(values(x)).astype(np.float64) for x in (q, k, v)]
    np.testing.assert_allclose(values(result), attention(*exact), atol=1e-3, rtol=0)


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize("sizes", [(1, 40, 70, 64, 64), (1, 33, 65, 20, 24)])
def test_weights_are_divided_once_where_laws_of_the_reals_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, int, int, int, int]
) -> None:
    """One row sees nothing: it is NaN, as without."""
    monkeypatch.setenv("FASTMATH", "real")
    heads, rows, keys, depth, columns = sizes
    q, k, v = given(
        DEVICE, HALF, (heads, rows, depth), (heads, keys, depth), (heads, keys, columns)
    )
    seen = np.arange(rows)[:, None] * 3 % 7 + np.arange(keys) % 5 > 2
    mask = np.where(seen & (np.arange(rows) != 5)[:, None], 0, -np.inf)
    result = q.scaled_dot_product_attention(k, v, on(DEVICE, mask.astype(np.float32), HALF))
    assert len(result.schedule()) == 1
    result.realize()
    wanted = attention(values(q), values(k), values(v), mask)
    np.testing.assert_allclose(values(result), wanted, atol=CLOSE[HALF], equal_nan=True)
    assert np.isnan(wanted[0, 5]).all()


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize(
    ("sizes", "is_turned", "lies"),
    [
        ((1, 40, 70, 64, 64), True, "as it is"),
        ((1, 33, 150, 16, 80), True, "as it is"),
        ((1, 33, 65, 20, 23), True, "as it is"),
        ((1, 40, 70, 64, 64), False, "transposed"),
    ],
)
def test_an_emulated_gpu_reads_values_turned_around_and_copies_ahead(
    sizes: tuple[int, int, int, int, int],
    is_turned: bool,
    lies: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts: list[str] = []

    def kept(*arguments: Any) -> Source:
        source = emit(*arguments)
        texts.append(source.text)
        return source

    monkeypatch.setattr(runtime, "emit", kept)
    heads, rows, keys, depth, columns = sizes
    shapes = (heads, rows, depth), (heads, keys, depth), (heads, keys, columns)
    q, k, v = given(DEVICE, HALF, *shapes)
    if lies == "transposed":
        v = given(DEVICE, HALF, (heads, columns, keys))[0].transpose(-2, -1)
    texts.clear()
    result = q.scaled_dot_product_attention(k, v).realize()
    assert_close(result, attention(values(q), values(k), values(v)))
    (text,) = [x for x in texts if "mma.sync" in x]
    assert ("ldmatrix" in text) == is_turned
    assert ("cp.async.c" in text) == (depth % 8 == 0)  # others lie in no pieces of 16 bytes
    assert ".local" not in text


@pytest.mark.usefixtures("far")
def test_rows_that_see_nothing_are_no_numbers_and_others_are_right() -> None:
    q, k, v = given(DEVICE, HALF, (1, 34, 32), (1, 40, 32), (1, 40, 32))
    seen = np.random.default_rng(1).random((34, 40)) < 0.7
    seen[3] = False
    mask = np.where(seen, 0.0, -np.inf)
    result = q.scaled_dot_product_attention(k, v, attn_mask=Tensor(seen, device=DEVICE)).realize()
    assert_close(result, attention(values(q), values(k), values(v), mask))


@pytest.mark.usefixtures("far")
def test_a_mask_of_numbers_is_added_and_a_causal_one_hides() -> None:
    q, k, v = given(DEVICE, BRAIN, (2, 33, 32), (2, 33, 32), (2, 33, 32))
    mask = on(DEVICE, drawn(33, 33), BRAIN)
    masked = q.scaled_dot_product_attention(k, v, mask).realize()
    causal = q.scaled_dot_product_attention(k, v, is_causal=True).realize()
    arrays = values(q), values(k), values(v)
    assert_close(masked, attention(*arrays, values(mask)))
    hidden = np.where(np.tri(33, dtype=bool), 0.0, -np.inf)
    assert_close(causal, attention(*arrays, hidden))


@pytest.mark.usefixtures("far")
def test_heads_that_share_keys_and_transposed_memory() -> None:
    q, k, v = given(DEVICE, HALF, (4, 33, 16), (2, 16, 36), (2, 20, 36))
    k, v = k.transpose(-2, -1), v.transpose(-2, -1)
    result = q.scaled_dot_product_attention(k, v, enable_gqa=True)
    assert len(result.schedule()) == 1
    result.realize()
    many = [np.repeat(values(x), 2, 0) for x in (k, v)]
    assert_close(result, attention(values(q), *many))


# -- what is chosen -----------------------------------------------------------------------------------


def kernels_of(result: Tensor) -> list[UOp]:
    EMITTED.clear()
    with compile_only():
        result.realize()
    return list(EMITTED)


@pytest.mark.usefixtures("far")
def test_one_kernel_keeps_no_matrix_of_scores() -> None:
    q, k, v = given("WARPS", HALF, (1, 64, 16), (1, 64, 16), (1, 64, 16))
    (kernel,) = kernels_of(q.scaled_dot_product_attention(k, v))
    products = [n for n in kernel.src if n.op is Ops.MMA]
    assert len({n.src[0] for n in products}) == 3  # scores three times, the last beside the sum
    kept = sum([n.arg[1] * n.dtype.itemsize for n in kernel.src if n.op is Ops.SCRATCH])
    assert kept <= Warps.target.local_bytes


@pytest.mark.usefixtures("far")
def test_blocks_of_keys_and_values_are_copied_while_others_are_multiplied() -> None:
    q, k, v = given("ROOMY", HALF, (1, 64, 64), (1, 97, 64), (1, 97, 16))
    with schedule("warps=2x1x1x4 ahead=on"):
        (kernel,) = kernels_of(q.scaled_dot_product_attention(k, v))
    ahead = [n for n in kernel.src if n.op is Ops.FILLED and n.src[1].arg[1] is AxisRole.AHEAD]
    assert len(ahead) == 4  # keys three times, values once
    assert "cp.async" in emit(kernel, "rows", 90).text


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize("sizes", [(64, 64, 16, 16), (65, 97, 130, 24)])
def test_weights_are_in_registers_of_the_item_that_multiplies_by_them(
    sizes: tuple[int, int, int, int],
) -> None:
    rows, keys, depth, columns = sizes
    q, k, v = given("ROOMY", HALF, (1, rows, depth), (1, keys, depth), (1, keys, columns))
    (kernel,) = kernels_of(q.scaled_dot_product_attention(k, v))
    own = [n for n in kernel.src if n.op is Ops.FILLED and not is_of_group(n.src[1:])]
    assert [n.dtype for n in own] == [HALF]
    text = emit(kernel, "rows", 90).text
    assert "mma.sync" in text and ".local" not in text


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize("dtype", [dtypes.float32, HALF])
def test_what_no_unit_multiplies_as_memory_holds_it_is_several_kernels(dtype: DType) -> None:
    """float32 has more digits than a unit takes; what is computed would be computed for each score."""
    q, k, v = given("WARPS", dtype, (1, 64, 16), (1, 64, 16), (1, 64, 16))
    assert len(kernels_of((q * 2 if dtype is HALF else q).scaled_dot_product_attention(k, v))) > 1


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize("sizes", [(1000, 77, 40, 40), (33, 47, 2, 9), (100, 90, 200, 130)])
def test_a_kernel_that_is_fused_has_room_for_its_tile(sizes: tuple[int, int, int, int]) -> None:
    """Else it would compute each score by itself."""
    rows, keys, depth, columns = sizes
    q, k, v = given("ROOMY", HALF, (1, rows, depth), (1, keys, depth), (1, keys, columns))
    (kernel,) = kernels_of(q.scaled_dot_product_attention(k, v))
    assert any([n.op is Ops.MMA for n in kernel.src])


def test_scores_that_stay_in_the_cache_are_multiplied_by_units_before_and_after() -> None:
    """Weights are stored as the second product takes them, not as it adds."""
    compiler().forget()
    q, k, v = given("WARPS", HALF, (1, 64, 16), (1, 64, 16), (1, 64, 16))
    kernels = kernels_of(q.scaled_dot_product_attention(k, v))
    assert [any([n.op is Ops.MMA for n in one.src]) for one in kernels] == [True, False, True]
    assert {n.dtype for n in kernels[-1].src if n.op is Ops.PARAM} == {HALF}


def test_tiles_are_as_large_as_memory_of_a_group_and_items_allow() -> None:
    gpu = Warps.target
    (unit,) = [one for one in matrix_units(90) if one.factor is HALF]
    small = tile_of_warps(HEADS, unit, 2, gpu)
    assert small is not None and small.warps * 32 <= gpu.group_items
    floats = dtypes.float32, dtypes.float32
    assert not pays_in_warps(HEADS, floats, False, 2, gpu)
    assert pays_in_warps(HEADS, floats, True, 2, Roomy.target)
    wide = Sizes(rows=1024, keys=1024, depth=64, columns=2048)
    assert tile_of_warps(wide, unit, 2, gpu) is None  # results of an item would leave its registers


@pytest.mark.usefixtures("far")
def test_a_tile_that_has_no_room_is_refused() -> None:
    q, k, v = given("WARPS", HALF, (1, 64, 16), (1, 64, 16), (1, 64, 16))
    with pytest.raises(ScheduleError, match="warps=8x1x1x8"), schedule("warps=8x1x1x8"):
        q.scaled_dot_product_attention(k, v).realize()


# -- proofs -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize("keys", [32, 33])
@pytest.mark.parametrize("ahead", ["on", "off"])
def test_the_solver_shows_all_of_attention(
    keys: int, ahead: str, capfd: pytest.CaptureFixture[str]
) -> None:
    q, k, v = given("WARPS", HALF, (1, 32, 16), (1, keys, 16), (1, keys, 8))
    capfd.readouterr()
    with schedule(f"warps=1x1x1x2 ahead={ahead}"), Context(PROVE=1, PLANS=0), compile_only():
        q.scaled_dot_product_attention(k, v).realize()
    told = capfd.readouterr().err
    assert re.search(r"none unknown; .*\d+ waits of groups;", told), told
    assert "NOT COVERED" not in told


@pytest.mark.usefixtures("far")
def test_the_solver_shows_all_of_attention_of_rounded_factors(
    capfd: pytest.CaptureFixture[str],
) -> None:
    q, k, v = given("ROUNDS", dtypes.float32, (1, 32, 16), (1, 33, 16), (1, 33, 8))
    capfd.readouterr()
    asked = Context(PROVE=1, PLANS=0, ALLOW_TF32=1)
    with schedule("warps=1x1x1x2 ahead=off"), asked, compile_only():
        result = q.scaled_dot_product_attention(k, v)
        assert len(result.schedule()) == 1
        result.realize()
    told = capfd.readouterr().err
    assert re.search(r"none unknown; .*\d+ waits of groups;", told), told
    assert "NOT COVERED" not in told


def _exchanged(position: UOp, sizes: tuple[int, ...], facts: Facts) -> tuple[UOp, ...]:
    *others, last = digits_of(position, sizes)
    return (*others, sizes[-1] - 1 - last)


@pytest.mark.usefixtures("far")
def test_what_is_kept_in_another_order_than_it_is_read_in_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keep_in_item, "digits_at", _exchanged)
    q, k, v = given("WARPS", HALF, (1, 32, 16), (1, 32, 16), (1, 32, 8))
    with pytest.raises(ProofError), Context(PROVE=1, PLANS=0), compile_only():
        q.scaled_dot_product_attention(k, v).realize()
