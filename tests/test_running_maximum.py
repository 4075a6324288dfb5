"""Attention in blocks of keys, beside a running maximum: a law of the reals, used where FASTMATH names `real`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from test_row_products import LAYOUTS, MASKS, SERVER, attention, drawn, given, kernels_of

from proofgrad import ScheduleError, Tensor, schedule
from proofgrad.core.compile.fusion import row_products as fusion
from proofgrad.core.compile.schedule import row_products
from proofgrad.core.compile.schedule.row_products import Sizes, pays_in_blocks, tile_of_blocks
from proofgrad.core.compile.steps.carry_maximum import carry_maximum
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.tactics import to_program
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.tensor.runtime.realize import compiler

pytestmark = pytest.mark.skipif(
    Tensor([0.0]).device != "CPU", reason="other machines compute a score at a time"
)


@pytest.fixture
def carried(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[LoopNest]]:
    """Matrices of scores count as long ones, and a block has two vectors of keys; the kernels that carry a maximum."""
    found: list[LoopNest] = []

    def carrying(nest: LoopNest) -> LoopNest:
        found.append(carry_maximum(nest))
        return found[-1]

    monkeypatch.setenv("PLANS", "0")
    monkeypatch.setenv("FASTMATH", "real")
    monkeypatch.setattr(fusion, "leave_the_cache", lambda scores, target: True)
    monkeypatch.setattr(row_products, "_keys_at_once", lambda sizes, dtype, target: 2 * tile_of_blocks(sizes, dtype, target).lanes)  # fmt: skip
    monkeypatch.setattr(to_program, "carry_maximum", carrying)
    compiler().forget()
    yield found
    compiler().forget()


@pytest.mark.parametrize("sizes", [(1, 7, 97, 24), (2, 29, 131, 31), (1, 9, 260, 128), (1, 4, 33, 9)])  # fmt: skip
def test_attention_of_any_size_carries_a_maximum(
    carried: list[LoopNest], sizes: tuple[int, int, int, int]
) -> None:
    arrays = given(*sizes)
    q, k, v = map(Tensor, arrays)
    found = q.scaled_dot_product_attention(k, v)
    assert kernels_of(found) == 1
    assert np.allclose(found.numpy(), attention(*arrays), atol=1e-5)
    assert len(carried) == 1


@pytest.mark.parametrize("case", MASKS)
def test_masked_attention_is_that_of_the_whole_matrix(carried: list[LoopNest], case: str) -> None:
    """Blocks that nothing is seen of add 0, rows that see nothing are NaN."""
    arrays, mask = given(2, 13, 70, 24), MASKS[case](13, 70)
    q, k, v = map(Tensor, arrays)
    found = q.scaled_dot_product_attention(k, v, Tensor(mask.astype(np.float32)))
    assert np.allclose(found.numpy(), attention(*arrays, mask), atol=1e-5, equal_nan=True)
    assert len(carried) == 1


@pytest.mark.parametrize("keys", [70, 128])
def test_masks_of_truths_hide_where_blocks_divide_the_keys_and_where_not(
    carried: list[LoopNest], keys: int
) -> None:
    arrays, seen = given(2, 13, keys, 24), np.random.default_rng(2).random((13, keys)) < 0.6
    q, k, v = map(Tensor, arrays)
    found = q.scaled_dot_product_attention(k, v, Tensor(seen))
    exact = attention(*arrays, np.where(seen, 0, -np.inf))
    assert np.allclose(found.numpy(), exact, atol=1e-5)
    assert len(carried) == 1


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_scores_that_grow_and_fall_stay_in_range(carried: list[LoopNest], sign: float) -> None:
    """Of the first scores, or the last, no power beside the others is a number above 0."""
    q, k, v = given(1, 9, 128, 16)
    q, k = np.abs(q) + 1, np.linspace(-sign, sign, 128, dtype=np.float32)[:, None] * 99 + k * 0
    found = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v))
    assert np.allclose(found.numpy(), attention(q, k, v), atol=1e-4)
    assert len(carried) == 1


@pytest.mark.parametrize(("dtype", "error"), [("bfloat16", 3e-2), ("float64", 1e-12)])
def test_attention_of_other_types(carried: list[LoopNest], dtype: str, error: float) -> None:
    q, k, v = [Tensor(x).cast(dtype).realize() for x in given(2, 11, 135, 32)]
    found = q.scaled_dot_product_attention(k, v)
    exact = attention(*[x.cast("float64").numpy() for x in (q, k, v)])
    assert np.allclose(found.cast("float64").numpy(), exact, atol=error)
    assert len(carried) == 1


def test_query_heads_share_a_head_of_keys(carried: list[LoopNest]) -> None:
    q, k, v = drawn(2, 6, 13, 16), drawn(2, 2, 134, 16), drawn(2, 2, 134, 16)[::-1].copy()
    found = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), enable_gqa=True)
    assert np.allclose(found.numpy(), attention(q, k.repeat(3, 1), v.repeat(3, 1)), atol=1e-5)
    assert len(carried) == 1


@pytest.mark.usefixtures("carried")
@pytest.mark.parametrize("case", ["heads inside", "columns in two axes"])
def test_results_may_lie_in_another_order(case: str) -> None:
    arrays = given(2, 20, 133, 24)
    q, k, v = map(Tensor, arrays)
    found = LAYOUTS[case](q.scaled_dot_product_attention(k, v))
    exact = LAYOUTS[case](Tensor(attention(*arrays).astype(np.float32)).realize())
    assert np.allclose(found.numpy(), exact.numpy(), atol=1e-5)


@pytest.mark.usefixtures("carried")
def test_powers_of_two_are_taken_so_too(carried: list[LoopNest]) -> None:
    q, k, v = given(1, 9, 130, 16)
    scores = Tensor(q) @ Tensor(k).transpose(-1, -2)
    powers = (scores - scores.max(-1, keepdim=True)).exp2()
    found = (powers / powers.sum(-1, keepdim=True)) @ Tensor(v)
    exact = np.exp2((s := q.astype(np.float64) @ k.swapaxes(-1, -2)) - s.max(-1, keepdims=True))
    assert np.allclose(found.numpy(), exact / exact.sum(-1, keepdims=True) @ v, atol=1e-5)
    assert len(carried) == 1


@pytest.mark.usefixtures("carried")
def test_a_schedule_by_hand_says_which_tiles_take_a_block_of_keys() -> None:
    arrays = given(1, 13, 131, 16)
    q, k, v = map(Tensor, arrays)
    with schedule("tile=3x1x16 blocks=2x1"):
        found = q.scaled_dot_product_attention(k, v).numpy()
    assert np.allclose(found, attention(*arrays), atol=1e-5)
    with schedule("tile=3x1x8 blocks=2x1"), pytest.raises(ScheduleError, match="tile=3x1x8"):
        q.scaled_dot_product_attention(k, v).realize()  # half of the columns


def test_no_maximum_is_carried_unless_that_is_asked_for(
    carried: list[LoopNest], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASTMATH", "finite")
    arrays = given(1, 12, 128, 16)
    found = Tensor(arrays[0]).scaled_dot_product_attention(*map(Tensor, arrays[1:]))
    assert np.allclose(found.numpy(), attention(*arrays), atol=1e-5)
    assert not carried


def test_long_rows_are_one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTMATH", "real")
    far = Sizes(rows=4096, keys=16384, depth=64, columns=64)
    assert pays_in_blocks(far, dtypes.float32, SERVER)
    assert not pays_in_blocks(replace(far, columns=2048), dtypes.float32, SERVER)
    assert not pays_in_blocks(replace(far, keys=64), dtypes.float32, SERVER)
    monkeypatch.delenv("FASTMATH")
    assert not pays_in_blocks(far, dtypes.float32, SERVER)
