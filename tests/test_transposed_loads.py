"""Columns that lie along the sum: packed by each item, four steps at a time, which are transposed in registers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tensors import assert_close, numbers
from test_cpu_target import cpu, running
from test_tiles import AVX512, kernel_of, matmul

from proofgrad import Tensor, explain, schedule
from proofgrad.backends.llvm.dialect import Dialect
from proofgrad.backends.llvm.emit import emit
from proofgrad.backends.llvm.transposed_loads import transposed_loads
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import AUTOMATIC, Schedule, Tile
from proofgrad.core.compile.passes.stages import parts_of, run_stages
from proofgrad.core.compile.schedule.contraction import contractions, tiles_along
from proofgrad.core.compile.schedule.operands import (
    packs_columns,
    planned_staging,
    row_tiles_of_an_item,
)
from proofgrad.core.compile.schedule.tiles import find_contraction
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compiler
from proofgrad.rules.pipeline import KERNEL_STAGES

ROOMY = replace(AVX512, scratch_bytes=1 << 20)
# rows, steps of the sum, columns: whole and broken groups of four steps, of vectors, of tiles
SIZES = [(5, 4, 16), (7, 20, 33), (3, 5, 17), (16, 38, 53), (2, 7, 130), (33, 64, 64), (9, 6, 15)]


def linear_of(
    sizes: tuple[int, int, int],
    dtype: DType = dtypes.float32,
    target: Target = ROOMY,
    override: Schedule = AUTOMATIC,
) -> UOp:
    """The one kernel of x @ y.T."""
    body = matmul(*sizes, (False, True), dtype=dtype)
    made = run_stages(KERNEL_STAGES, body, compiler().library, target, override=override)
    (linear,) = parts_of(made)
    return linear


@pytest.mark.heuristics
def test_each_row_of_four_steps_is_one_load() -> None:
    linear = linear_of((64, 32, 64))
    loops, loads = transposed_loads(linear)
    assert len(loops) == len(loads) == 1
    (load,), text = loads, emit(linear, "kernel", Dialect()).text
    assert load.dtype.lanes == 16 and loads[load] == ((), (), 1)
    assert text.count("load <4 x float>") == 16
    assert "gather" not in text and f"_loop{len(linear.src)}" not in text


@pytest.mark.heuristics
def test_masks_are_asked_for_where_one_is_off_alone() -> None:
    linear = linear_of((64, 30, 61))
    loops, loads = transposed_loads(linear)
    ((same, ends, _),) = loads.values()
    assert len(loops) == len(same) == len(ends) == 1
    text = emit(linear, "kernel", Dialect()).text
    plain, masked = [text.count(c) for c in ("load <4 x float>", "@llvm.masked.load.v4f32")]
    assert plain == masked and plain in (16, 32)  # and the last columns behind the loop


def test_elements_longer_than_words_are_gathered() -> None:
    body = matmul(64, 512, 64, (False, True), dtype=dtypes.float64)
    for linear in parts_of(run_stages(KERNEL_STAGES, body, compiler().library, ROOMY)):
        assert not transposed_loads(linear)[0]


@pytest.mark.heuristics
def test_rows_of_parts_of_words_are_widened_narrowed_and_converted() -> None:
    linear = linear_of((64, 32, 64), dtypes.float16)
    ((load, masks),) = transposed_loads(linear)[1].items()
    assert load.dtype.lanes == 32 and load.dtype.scalar is dtypes.float16 and masks == ((), (), 1)
    text = emit(linear, "kernel", Dialect()).text
    assert text.count("load <4 x i16>") == 32 and text.count("zext <32 x i16>") == 4
    assert text.count("trunc <32 x i32>") == 4 and "gather" not in text


def test_memory_that_is_written_is_read_step_by_step() -> None:
    """What a step reads may be what the one before has stored."""
    linear = linear_of((64, 32, 64))
    (load,) = transposed_loads(linear)[1]
    read = load.src[0].src[0]
    stores = [n for n in linear.src if n.op is Ops.STORE and n.src[0].src[0].op is Ops.PARAM]
    out = stores[0].src[0].src[0]
    changed = linear.substitute({read: out.replace(arg=(out.arg[0], read.arg[1]))})
    written = {n.src[0].src[0] for n in changed.src if n.op is Ops.STORE}
    if out in written:
        changed = changed.substitute({out: out.replace(arg=(out.arg[0], read.arg[1]))})
    assert transposed_loads(linear)[0] and not transposed_loads(changed)[0]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize(
    "kind",
    ["float32", "int32", "uint32", "float64", "float16", "bfloat16", "int16", "int8", "fp8e5m2"],
)
def test_values(sizes: tuple[int, int, int], kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, steps, columns = sizes
    rng = np.random.default_rng(0)
    one = rng.integers(-2, 3, (rows, steps)).astype("int32")
    other = rng.integers(-2, 3, (columns, steps)).astype("int32")
    x, y = [Tensor(each).cast(kind).contiguous().realize() for each in (one, other)]
    total = {"int8": "int32", "int16": "int32", "uint32": "uint32", "float64": "float64"}
    for choice in ("", "packed=on staged=none", "packed=on tile=3x2x16", "packed=on tile=3x2x4"):
        monkeypatch.setenv("CHOICES", f"tiled=on {choice}")
        found = x.matmul(y.T, dtype=total.get(kind, "float32")).numpy()
        np.testing.assert_array_equal(found, (one @ other.T).astype(found.dtype))


@pytest.mark.parametrize("name", ["haswell", "x86-64-v2"])
def test_other_processors(name: str) -> None:
    with running(name):
        for rows, steps, columns in SIZES:
            a, b = numbers(rows, steps), numbers(columns, steps)
            with schedule("tiled=on packed=on staged=none"):
                assert_close(Tensor(a) @ Tensor(b).T, a @ b.T)


def test_what_lies_beyond_an_end_is_not_multiplied() -> None:
    """Beyond the steps of a row lies the next one, beyond the last row memory of others."""
    a, b = numbers(4, 18), numbers(37, 18)
    b[1:, 0] = np.nan
    with schedule("tiled=on packed=on staged=none"), np.errstate(invalid="ignore"):
        found = (Tensor(a) @ Tensor(b).T).numpy()
    assert np.isfinite(found[:, 0]).all() and np.isnan(found[:, 1:]).all()


def test_batches_and_what_is_computed() -> None:
    x, each, w = numbers(3, 5, 22), numbers(3, 33, 22), numbers(33, 22)
    with schedule("packed=on staged=none"):
        assert_close(Tensor(x) @ Tensor(each).transpose(1, 2), x @ each.transpose(0, 2, 1))
        assert_close((Tensor(x) @ Tensor(w).T + 1).relu(), np.maximum(x @ w.T + 1, 0))
    assert_close(
        Tensor(x) @ Tensor(w)[3:30, 2:].T.pad(((0, 2), (0, 0))), x[:, :, :20] @ w[3:30, 2:].T
    )


@pytest.mark.heuristics
def test_a_table_is_filled_where_items_would_pack_the_same_too_often() -> None:
    """Of matrices that lie transposed no loop is that of all rows."""
    first = [stage.name for stage in KERNEL_STAGES].index("sum in blocks")
    for batch, rows, turned, is_table in ((300, 9, True, True), (1, 65, False, False)):
        body = matmul(rows, 99, 241, (turned, True), batch, dtype=dtypes.float32)
        nest = run_stages(KERNEL_STAGES[:first], body, compiler().library, ROOMY)
        found = find_contraction(nest, ROOMY)
        assert found is not None
        assert planned_staging(*found, ROOMY).columns == is_table
        assert packs_columns(*found, ROOMY) != is_table


@pytest.mark.heuristics
@pytest.mark.parametrize("rows", [1000, 1024, 2048])
def test_an_item_has_no_tiles_beyond_the_last_row(rows: int) -> None:
    """The rows of an item are as many as stay in a cache, and items have as many each."""
    body = matmul(rows, 300, 2048, (False, True), dtype=dtypes.float32)
    found, *_ = contractions(kernel_of(body), target=ROOMY)
    tile = Tile(8, 3, 16)
    height = row_tiles_of_an_item(found, tile, ROOMY)
    row_tiles, _ = tiles_along(found, tile)
    items = -(-row_tiles // height)
    assert items > 1 and items * (height - 1) < row_tiles


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("kind", ["float32", "int32", "float64", "float16"])
def test_tables_are_filled_with_the_same(
    sizes: tuple[int, int, int], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, steps, columns = sizes
    rng = np.random.default_rng(0)
    one = rng.integers(0, 5, (rows, steps)).astype(kind)
    other = rng.integers(0, 5, (columns, steps)).astype(kind)
    image = rng.integers(0, 5, (2, columns % 7 + 1, 6, 5)).astype(kind)
    windows = rng.integers(0, 5, (columns, columns % 7 + 1, 3, 2)).astype(kind)
    by_numpy = sum(
        np.einsum("nchw,oc->nohw", image[:, :, i : i + 4, j : j + 4], windows[:, :, i, j])
        for i in range(3) for j in range(2)
    )  # fmt: skip
    for choice in ("staged=columns", "staged=rows+columns", "staged=columns tile=3x2x4"):
        monkeypatch.setenv("CHOICES", f"tiled=on {choice}")
        np.testing.assert_array_equal((Tensor(one) @ Tensor(other).T).numpy(), one @ other.T)
        np.testing.assert_array_equal(Tensor(image).conv2d(Tensor(windows)).numpy(), by_numpy)


def test_a_table_of_weights_is_read_along_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """All steps of the sum lie behind each other, those of windows, too."""
    monkeypatch.setenv("NUM_THREADS", "2")
    with cpu("znver4"):
        image, weights = Tensor.empty(64, 64, 7, 7).realize(), Tensor.empty(64, 64, 3, 3).realize()
        said = explain(image.conv2d(weights, padding=1))
    assert "stage operands: steps stage 1, merge 2, reorder 1, split 1" in said


def test_of_two_loops_of_four_in_each_other_one_alone_is_read_along_memory() -> None:
    """Each factor lies along another loop: what is read once of the inner loop is no row of the outer one."""
    one, other, third = numbers(4, 4, 8), numbers(4, 4, seed=1), numbers(4, seed=2)
    wanted = (one[:, :, 4:] * other[:, :, None] * third[:, None, None]).swapaxes(1, 2)
    x, y, z = [Tensor(each).realize() for each in (one, other, third)]
    product = x[:, :, 4:] * y.reshape(4, 4, 1) * z.reshape(4, 1, 1)
    with schedule("vectors=0x4x1"):
        np.testing.assert_allclose(product.transpose(1, 2).contiguous().numpy(), wanted, rtol=1e-6)


@pytest.mark.parametrize("batch", [1, 4, 7, 16])
@pytest.mark.parametrize("size", [3, 4, 5])
def test_a_determinant_times_a_transposed_inverse_is_right(batch: int, size: int) -> None:
    matrices = numbers(batch, size, size) + 3 * np.eye(size, dtype="float32")
    x = Tensor(matrices).realize()
    found = x.det().reshape(batch, 1, 1) * x.inverse().transpose(-2, -1)
    exact = matrices.astype("float64")
    wanted = np.linalg.det(exact)[:, None, None] * np.linalg.inv(exact).swapaxes(1, 2)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-3)
