"""Products of what is made of the rows of a product, as attention: one kernel that keeps a few rows of scores, and no matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from proofgrad import Context, Tensor
from proofgrad.core.compile.fusion import row_products
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.schedule.row_products import Sizes, pays, tile_of
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.tensor.runtime.device import Device
from proofgrad.core.tensor.runtime.realize import compiler

SERVER = Target("server", vector_bytes=64, vector_registers=32, cache_bytes=1 << 21, scratch_bytes=1 << 20)  # fmt: skip
LAPTOP = replace(SERVER, name="laptop", vector_bytes=32, vector_registers=16)
HEADS = Sizes(rows=1024, keys=1024, depth=64, columns=64)

pytestmark = pytest.mark.skipif(
    Tensor([0.0]).device != "CPU", reason="other machines compute a score at a time"
)


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Short matrices of scores count as ones that leave the cache."""
    monkeypatch.setenv("PLANS", "0")
    monkeypatch.setattr(row_products, "leave_the_cache", lambda scores, target: True)
    compiler().forget()
    yield
    compiler().forget()


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape) + sum(shape)).standard_normal(shape).astype(np.float32)


def attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None = None
) -> np.ndarray:
    """In float64; `mask` is added."""
    scores = q.astype(np.float64) @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    with np.errstate(invalid="ignore"):
        scores = scores if mask is None else scores + mask
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        return np.asarray(powers / powers.sum(-1, keepdims=True) @ v)


def kernels_of(value: Tensor) -> int:
    return len([item for item in value.schedule() if not item.is_copy])


def given(heads: int, rows: int, keys: int, size: int) -> tuple[np.ndarray, ...]:
    return drawn(heads, rows, size), drawn(heads, keys, size), drawn(heads + 1, keys, size)[1:]


# -- values -----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize(
    "sizes", [(2, 12, 32, 16), (1, 7, 33, 24), (3, 29, 17, 31), (1, 5, 64, 40)]
)
def test_attention_of_any_size_is_one_kernel(sizes: tuple[int, int, int, int]) -> None:
    arrays = given(*sizes)
    q, k, v = map(Tensor, arrays)
    found = q.scaled_dot_product_attention(k, v)
    assert kernels_of(found) == 1
    assert np.allclose(found.numpy(), attention(*arrays), atol=1e-5)


MASKS: dict[str, Callable[[int, int], np.ndarray]] = {
    "causal": lambda i, j: np.where(np.tri(i, j, dtype=bool), 0, -np.inf),
    "a window": lambda i, j: np.where(np.tri(i, j) - np.tri(i, j, -4) > 0, 0, -np.inf),
    "padding": lambda i, j: np.where(np.arange(j) < j - 5, 0, -np.inf) + np.zeros((i, 1)),
    "some rows see nothing": lambda i, j: np.where(np.arange(i) % 3 == 0, -np.inf, 0)[:, None] + np.zeros(j),
    "numbers, one infinite": lambda i, j: np.where(np.eye(i, j) * (np.arange(j) == 2) > 0, np.inf, drawn(i, j)),
}  # fmt: skip


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize("case", MASKS)
def test_masked_attention_is_that_of_the_whole_matrix(case: str) -> None:
    """Rows that see nothing are NaN, as before."""
    arrays, mask = given(2, 19, 37, 24), MASKS[case](19, 37)
    q, k, v = map(Tensor, arrays)
    found = q.scaled_dot_product_attention(k, v, Tensor(mask.astype(np.float32)))
    assert kernels_of(found) == 1
    assert np.allclose(found.numpy(), attention(*arrays, mask), atol=1e-5, equal_nan=True)


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize(("dtype", "error"), [("float16", 4e-3), ("bfloat16", 3e-2), ("float64", 1e-12)])  # fmt: skip
def test_attention_of_other_types(dtype: str, error: float) -> None:
    q, k, v = [Tensor(x).cast(dtype).realize() for x in given(2, 11, 35, 32)]
    found = q.scaled_dot_product_attention(k, v)
    exact = attention(*[x.cast("float64").numpy() for x in (q, k, v)])
    assert found.dtype == getattr(dtypes, dtype)
    assert np.allclose(found.cast("float64").numpy(), exact, atol=error)


@pytest.mark.usefixtures("far")
def test_query_heads_share_a_head_of_keys() -> None:
    q, k, v = drawn(2, 6, 13, 16), drawn(2, 2, 34, 16), drawn(2, 2, 34, 16)[::-1].copy()
    found = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), enable_gqa=True)
    assert np.allclose(found.numpy(), attention(q, k.repeat(3, 1), v.repeat(3, 1)), atol=1e-5)


LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "heads inside": lambda x: x.permute(1, 0, 2).reshape(20, 48) + 1,
    "rows last": lambda x: x.transpose(1, 2).contiguous(),
    "rows in two axes": lambda x: x.reshape(2, 10, 2, 24) * Tensor(drawn(2, 10, 2, 1)).realize(),
    "columns in two axes": lambda x: x.reshape(2, 20, 4, 6).permute(0, 2, 1, 3) * 2,
}


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize("case", LAYOUTS)
def test_results_may_lie_in_another_order(case: str) -> None:
    arrays = given(2, 20, 33, 24)
    q, k, v = map(Tensor, arrays)
    found = LAYOUTS[case](q.scaled_dot_product_attention(k, v))
    exact = LAYOUTS[case](Tensor(attention(*arrays).astype(np.float32)).realize())
    assert kernels_of(found) == 1
    assert np.allclose(found.numpy(), exact.numpy(), atol=1e-5)


@pytest.mark.usefixtures("far")
def test_rows_may_be_made_otherwise() -> None:
    """A norm of each row between two products."""
    x, w, u = drawn(9, 16), drawn(16, 40), drawn(40, 24)

    def norm(y: Tensor) -> Tensor:
        centered = y - y.mean(-1, keepdim=True)
        return centered / centered.square().mean(-1, keepdim=True).sqrt()

    found = norm(Tensor(x) @ Tensor(w)) @ Tensor(u)
    y = x.astype(np.float64) @ w
    centered = y - y.mean(-1, keepdims=True)
    exact = centered / np.sqrt((centered**2).mean(-1, keepdims=True)) @ u
    assert np.allclose(found.numpy(), exact, atol=1e-4)


@pytest.mark.usefixtures("far")
def test_checked_attention_is_found_right() -> None:
    """CHECK=1 reads the kernel back: a sum inside of what is kept, inside of other sums."""
    arrays = given(1, 6, 18, 16)
    with Context(CHECK=1):
        found = Tensor(arrays[0]).scaled_dot_product_attention(*map(Tensor, arrays[1:])).numpy()
    assert np.allclose(found, attention(*arrays), atol=1e-5)


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize("choice", ["tile=3x2x8", "tiled=off", "buffered=off", "tile=2x1x4"])
def test_forced_schedules_compute_the_same(choice: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHOICES", choice)
    arrays = given(1, 7, 20, 16)
    found = Tensor(arrays[0]).scaled_dot_product_attention(*map(Tensor, arrays[1:]))
    assert np.allclose(found.numpy(), attention(*arrays), atol=1e-5)


# -- which ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("far")
def test_weights_that_another_kernel_needs_are_stored() -> None:
    q, k, v = [Tensor(x) for x in given(1, 8, 32, 16)]
    weights = (q @ k.transpose(-1, -2)).softmax(-1)
    both = Tensor.cat(weights @ v, weights.sum(1, keepdim=True)[:, :, :16], dim=1)
    assert kernels_of(both) > 2
    assert np.allclose(both.numpy()[:, :8], attention(*[x.numpy() for x in (q / 4 * 16, k, v)])[:, :8], atol=1e-4)  # fmt: skip


@pytest.mark.usefixtures("far")
def test_keys_that_change_with_the_row_are_no_product_of_matrices() -> None:
    q, v, apart = drawn(2, 9, 16), drawn(2, 32, 16), drawn(9, 32, 16)
    scores = (Tensor(q).unsqueeze(2) * Tensor(apart)).sum(-1)
    exact = np.einsum("hik,ijk->hij", q.astype(np.float64), apart)
    powers = np.exp(exact - exact.max(-1, keepdims=True))
    found = scores.softmax(-1) @ Tensor(v)
    assert np.allclose(found.numpy(), powers / powers.sum(-1, keepdims=True) @ v, atol=1e-4)


def test_a_matrix_that_stays_in_the_cache_is_stored() -> None:
    q, k, v = [Tensor(x) for x in given(1, 16, 32, 16)]
    assert kernels_of(q.scaled_dot_product_attention(k, v)) == 3


def test_no_memory_for_scores_is_asked_for() -> None:
    """Of 4 heads of 640 x 640 scores, 6.5 MB: none."""
    q, k, v = [Tensor(x).realize() for x in given(4, 640, 640, 32)]
    found = q.scaled_dot_product_attention(k, v)
    target = Device["CPU"].target
    if 640 * 64 * 4 > target.room_bytes or 4 * 640 * 640 * 4 <= target.room_bytes:
        pytest.skip("a cache of another size")
    assert kernels_of(found) == 1


# -- tiles ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("target", "tile"), [(SERVER, "6x1x64"), (LAPTOP, "6x1x16")])
def test_a_tile_is_as_wide_as_registers_allow(target: Target, tile: str) -> None:
    assert str(tile_of(HEADS, dtypes.float32, target)) == tile


def test_lanes_fit_the_columns() -> None:
    """40 columns are three vectors of 16, not one of 64; 32 are one of 32."""
    assert tile_of(replace(HEADS, columns=40), dtypes.float32, SERVER).lanes == 16
    assert tile_of(replace(HEADS, columns=32), dtypes.float32, SERVER).lanes == 32


def test_long_rows_leave_room_for_few() -> None:
    small = replace(SERVER, scratch_bytes=1 << 16)
    assert tile_of(HEADS, dtypes.float32, small).rows == (1 << 16) // (3 * 4 * 1024)


@pytest.mark.parametrize(
    ("what", "pays_"),
    [({}, True), ({"rows": 1}, False), ({"keys": 4096}, False), ({"keys": 8}, False), ({"columns": 4}, False)],
)  # fmt: skip
def test_it_pays_where_keys_and_values_stay_in_the_cache(what: dict[str, int], pays_: bool) -> None:
    assert pays(replace(HEADS, **what), dtypes.float32, SERVER) is pays_


def test_it_does_not_pay_without_vectors_or_with_work_items() -> None:
    for target in (replace(SERVER, vector_bytes=0), replace(SERVER, work_items=True)):
        assert not pays(HEADS, dtypes.float32, target)
