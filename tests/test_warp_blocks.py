"""Attention by matrix units in one pass, beside a running maximum: right for any size and mask, in registers, its waits proved."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from planted.gpu_faults import DEVICE
from test_row_products import attention
from test_tf32 import rounded
from test_warp_rows import BRAIN, HALF, assert_close, drawn, far, given, kernels_of  # noqa: F401
from test_warp_tiles import Warps, on, values

from proofgrad import Context, Device, Tensor, dtypes, schedule
from proofgrad.backends.ptx.emit import emit
from proofgrad.core.compile.lowering.held_by_items import held_by_items
from proofgrad.core.compile.lowering.waits import waits
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compile_only
from proofgrad.verify.kernels import proof
from proofgrad.verify.kernels.proof import ProofError
from proofgrad.verify.kernels.waiting import what_races


class Holding(Warps):
    """The same whose items hold scores in registers, as those of a GPU do."""

    name = "HOLDS_SCORES"
    target = replace(Warps.target, group_items=256, local_bytes=96 << 10, row_part_bytes=128)


Device.register("HOLDS_SCORES", Holding)


@pytest.fixture(autouse=True)
def real(far: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:  # noqa: F811
    """Laws of the reals are asked for, and a step that is refused is an error."""
    monkeypatch.setenv("FASTMATH", "real")
    monkeypatch.setenv("SPEC", "1")
    yield


def scores_of(kernel: UOp) -> set[UOp]:
    """What multiplies, each with its items: scores, and weights by values."""
    return {n.src[0] for n in kernel.src if n.op is Ops.MMA}


# -- values -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "sizes"),
    [
        (HALF, (2, 33, 70, 20, 24)),
        (BRAIN, (1, 47, 133, 32, 9)),
        (dtypes.float64, (1, 35, 70, 3, 17)),
    ],
)
def test_attention_of_any_size_goes_by_the_keys_once(
    dtype: DType, sizes: tuple[int, int, int, int, int]
) -> None:
    heads, rows, keys, depth, columns = sizes
    q, k, v = given(
        DEVICE, dtype, (heads, rows, depth), (heads, keys, depth), (heads, keys, columns)
    )
    result = q.scaled_dot_product_attention(k, v)
    assert len(result.schedule()) == 1
    result.realize()
    assert_close(result, attention(values(q), values(k), values(v)))


def test_heads_that_are_no_power_of_2_wide() -> None:
    depth = 72
    q, k, v = given(DEVICE, HALF, (1, 33, depth), (1, 67, depth), (1, 67, depth))
    result = q.scaled_dot_product_attention(k, v, is_causal=True)
    assert len(result.schedule()) == 1
    hidden = np.where(np.tri(33, 67, dtype=bool), 0.0, -np.inf)
    assert_close(result.realize(), attention(values(q), values(k), values(v), hidden))


@pytest.mark.parametrize(
    ("shared", "heads"), [("enable_gqa", 1), ("repeat_interleave", 2), ("expand", 2)]
)
def test_heads_that_share_keys_are_one_kernel_that_reads_them_where_they_are(
    shared: str, heads: int
) -> None:
    q, k, v = given(DEVICE, HALF, (2, 4, 33, 16), (2, heads, 70, 16), (2, heads, 70, 16))
    keys, groups = (k, v), 4 // heads
    if shared == "repeat_interleave":
        keys = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
    elif shared == "expand":
        keys = tuple(
            [x.unsqueeze(2).expand(2, heads, groups, 70, 16).reshape(2, 4, 70, 16) for x in (k, v)]
        )
    result = q.scaled_dot_product_attention(*keys, enable_gqa=shared == "enable_gqa")
    assert len(result.schedule()) == 1
    every = [np.repeat(values(x), groups, 1) for x in (k, v)]
    assert_close(result.realize(), attention(values(q), *every))


@pytest.mark.parametrize(
    ("tile", "ahead"), [("1x1x1x2", "off"), ("2x1x1x4", "on"), ("1x1x1x2", "2")]
)
def test_blocks_that_are_copied_ahead_are_those_that_are_multiplied(ahead: str, tile: str) -> None:
    q, k, v = given(DEVICE, HALF, (1, 40, 16), (1, 100, 16), (1, 100, 16))
    with schedule(f"warps={tile} ahead={ahead}"):
        result = q.scaled_dot_product_attention(k, v).realize()
    assert_close(result, attention(values(q), values(k), values(v)))


def test_factors_that_are_rounded_and_memory_that_is_transposed() -> None:
    q, k = given(DEVICE, dtypes.float32, (1, 33, 20), (1, 70, 20))
    v = given(DEVICE, dtypes.float32, (1, 24, 70))[0].transpose(-2, -1)
    with Context(ALLOW_TF32=1):
        result = q.scaled_dot_product_attention(k, v)
    assert len(result.schedule()) == 1
    exact = [rounded(values(x)).astype(np.float64) for x in (q, k, v)]
    np.testing.assert_allclose(values(result.realize()), attention(*exact), atol=1e-3, rtol=0)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_scores_that_grow_and_fall_stay_in_range(sign: float) -> None:
    """Of the first scores, or the last, no power beside the others is a number above 0."""
    q = np.abs(drawn(1, 33, 16)) + 1
    k = np.linspace(-sign, sign, 100, dtype=np.float32)[:, None] * 9 + np.zeros((1, 100, 16), "f4")
    given_, v = [on(DEVICE, x, HALF) for x in (q, k)], given(DEVICE, HALF, (1, 100, 16))[0]
    result = given_[0].scaled_dot_product_attention(given_[1], v).realize()
    assert_close(result, attention(*map(values, given_), values(v)))


@pytest.mark.parametrize("kind", ["numbers", "truths", "causal"])
def test_masks_hide_keys_blocks_and_rows(kind: str) -> None:
    """Of the truths, row 3 sees nothing and row 4 no key of the first block; of the causal mask most rows see no key of the last."""
    q, k, v = given(DEVICE, HALF, (1, 70, 16), (1, 70, 16), (1, 70, 16))
    seen = np.random.default_rng(1).random((70, 70)) < 0.7
    seen[3], seen[4, :64] = False, False
    arrays = values(q), values(k), values(v)
    if kind == "numbers":
        mask = on(DEVICE, drawn(70, 70), HALF)
        result, hidden = q.scaled_dot_product_attention(k, v, mask), values(mask)
    elif kind == "truths":
        result = q.scaled_dot_product_attention(k, v, Tensor(seen, device=DEVICE))
        hidden = np.where(seen, 0.0, -np.inf)
    else:
        result = q.scaled_dot_product_attention(k, v, is_causal=True)
        hidden = np.where(np.tri(70, dtype=bool), 0.0, -np.inf)
    wanted = attention(*arrays, hidden)
    np.testing.assert_allclose(values(result.realize()), wanted, atol=4e-3, equal_nan=True)
    assert np.isnan(wanted).any() == (kind == "truths")


# -- what is chosen -----------------------------------------------------------------------------------


def test_scores_are_multiplied_once_and_held_in_registers() -> None:
    q, k, v = given("HOLDS_SCORES", HALF, (1, 64, 64), (1, 200, 64), (1, 200, 64))
    (kernel,) = kernels_of(q.scaled_dot_product_attention(k, v))
    assert len(scores_of(kernel)) == 2
    text = emit(kernel, "blocks", 90).text
    assert ".local" not in text
    shared = sum([int(n) for n in re.findall(r"\.shared .*\[(\d+)\];", text)])
    found = (
        2 * 64 * 4 * 4
    )  # the largest score and the sum of powers, of each row and each item of it
    assert shared == 2 * 64 * 64 * 2 + found  # and keys and values of a block


def test_without_laws_of_the_reals_keys_go_by_for_each_reduction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FASTMATH", "finite")
    q, k, v = given("HOLDS_SCORES", HALF, (1, 64, 16), (1, 200, 16), (1, 200, 16))
    (kernel,) = kernels_of(q.scaled_dot_product_attention(k, v))
    assert len(scores_of(kernel)) == 3


def test_items_that_cannot_hold_scores_multiply_them_again() -> None:
    q, k, v = given("ROOMY", HALF, (1, 64, 16), (1, 200, 16), (1, 200, 16))
    (kernel,) = kernels_of(q.scaled_dot_product_attention(k, v))
    assert len(scores_of(kernel)) == 3


# -- proofs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("keys", "ahead"), [(32, "on"), (33, "off")])
def test_the_solver_shows_accesses_writes_and_waits(
    keys: int, ahead: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Values beside a running maximum are so by a law of the reals."""
    q, k, v = given("HOLDS_SCORES", HALF, (1, 32, 16), (1, keys, 16), (1, keys, 8))
    capfd.readouterr()
    asked = Context(PROVE=1, PLANS=0)
    with schedule(f"warps=1x1x1x2 ahead={ahead}"), asked, compile_only():
        q.scaled_dot_product_attention(k, v).realize()
    assert re.search(r"none unknown; .*\d+ waits of groups;", capfd.readouterr().err)


@pytest.mark.parametrize("ahead", ["on", "off"])
def test_each_wait_that_is_lost_is_found(ahead: str) -> None:
    """But for one at the end of the loop over blocks, whose next wait is enough. Nobody waits for scores and powers of his own."""
    q, k, v = given("HOLDS_SCORES", HALF, (1, 32, 16), (1, 32, 16), (1, 32, 8))
    with schedule(f"warps=1x1x1x2 ahead={ahead}"):
        (kernel,) = kernels_of(q.scaled_dot_product_attention(k, v))
    found, by_items = waits(kernel), held_by_items(kernel)
    assert len(found) == 6
    assert what_races(kernel, found) is None
    for lost in [node for node in found if node.op is not Ops.END]:
        rest = {node: later for node, later in found.items() if node is not lost}
        assert what_races(kernel, rest) is not None
    fewer = waits(kernel, by_items)
    assert (len(by_items), len(fewer)) == (2, 4)
    assert what_races(kernel, fewer, (), by_items) is None


def test_a_kernel_whose_waits_are_wrong_is_no_proved_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "waits", lambda *_: {})
    q, k, v = given("HOLDS_SCORES", HALF, (1, 32, 16), (1, 32, 16), (1, 32, 8))
    asked = Context(PROVE=1, PLANS=0)
    with schedule("warps=1x1x1x2"), asked, compile_only(), pytest.raises(ProofError, match="wait"):
        q.scaled_dot_product_attention(k, v).realize()
