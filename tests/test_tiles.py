"""Contractions in tiles, with operands copied into tables: the same values, on shapes nobody tuned for."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_interpreter import run_kernel
from tactics import choose_axes, merge_loops, stage_operands, sum_in_blocks, unroll_upcasts
from tensors import assert_close, numbers

from proofgrad import Tensor, schedule
from proofgrad.core.compile.lowering.lower import lower_movement
from proofgrad.core.compile.machine.machine import FirstCache
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import Schedule, Tile
from proofgrad.core.compile.nests.loops import size_of
from proofgrad.core.compile.nests.strides import coefficient
from proofgrad.core.compile.passes.forms import Form, check_form
from proofgrad.core.compile.passes.stages import parts_of, run_stages
from proofgrad.core.compile.schedule import contraction, cost_model, row_cycles, tiles
from proofgrad.core.compile.schedule.contraction import Contraction, contractions, once_a_tile
from proofgrad.core.compile.schedule.operands import packs_columns, planned_staging
from proofgrad.core.compile.schedule.tiles import choose_blocks, find_contraction
from proofgrad.core.compile.steps import unroll
from proofgrad.core.compile.tactics import axes
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp
from proofgrad.core.tensor.runtime.realize import compiler
from proofgrad.rules.pipeline import KERNEL_STAGES

SMALL = Target("small", vector_bytes=16, threads=2, cache_bytes=256, scratch_bytes=1 << 12)
AVX512 = Target("avx512", vector_bytes=64, vector_registers=32, threads=2)
AVX2 = Target("avx2", vector_bytes=32, vector_registers=16, threads=8)
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


def parameter(slot: int, *shape: int, dtype=dtypes.int32) -> UOp:
    flat = UOp(Ops.PARAM, dtype, (), (slot, int(np.prod(shape))))
    return UOp(Ops.RESHAPE, dtype, (flat,), shape)


def moved(op: Ops, node: UOp, arg: object) -> UOp:
    return UOp(op, node.dtype, (node,), arg)


def matmul(
    rows: int, depth: int, columns: int, turned: tuple[bool, bool] = (False, False),
    batch: int = 1, dtype=dtypes.int32,
) -> UOp:  # fmt: skip
    """The body of `batch` products of matrices; `turned`: an operand lies transposed in memory."""
    one = parameter(1, *((batch, depth, rows) if turned[0] else (batch, rows, depth)), dtype=dtype)
    other = parameter(2, *((columns, depth) if turned[1] else (depth, columns)), dtype=dtype)
    one = moved(Ops.PERMUTE, one, (0, 2, 1)) if turned[0] else one
    other = moved(Ops.PERMUTE, other, (1, 0)) if turned[1] else other
    size = (batch, rows, depth, columns)
    one = moved(Ops.EXPAND, moved(Ops.RESHAPE, one, (batch, rows, depth, 1)), size)
    other = moved(Ops.EXPAND, moved(Ops.RESHAPE, other, (1, 1, depth, columns)), size)
    product_ = UOp(Ops.MUL, dtype, (one, other))
    return UOp.sink(UOp(Ops.REDUCE_AXIS, dtype, (product_,), (Ops.ADD, (2,))))


def stage_everything(patch: pytest.MonkeyPatch) -> None:
    """Tiles and tables also for what is too small to gain by them."""
    for module, name in ((row_cycles, "UNSTAGED_WAYS"), (cost_model, "UNSTAGED_PAGES"),
                         (contraction, "WORTH_A_KERNEL"), (contraction, "WORTH_MULTIPLICATIONS")):  # fmt: skip
        patch.setattr(module, name, 0)
    patch.setattr(tiles, "filling", lambda *_: 0.0)


def kernel_of(body: UOp) -> UOp:
    return merge_loops(lower_movement(body))


def convolution(batch: int, channels: int, filters: int, width: int, taps: int = 3) -> UOp:
    """The body of a convolution of rows without padding: (batch, filters, width)."""
    whole = width + taps - 1
    image = parameter(1, batch, 1, channels, whole, 1, dtype=dtypes.float32)
    image = moved(Ops.EXPAND, image, (batch, filters, channels, whole, taps))
    windows = moved(Ops.SKEW, image, (3, 4, 1, width))
    weights = parameter(2, 1, filters, channels, 1, taps, dtype=dtypes.float32)
    weights = moved(Ops.EXPAND, weights, windows.shape)
    return UOp.sink(UOp(Ops.REDUCE_AXIS, dtypes.float32, (UOp(Ops.MUL, dtypes.float32, (windows, weights)),),
                        (Ops.ADD, (2, 4))))  # fmt: skip


@QUICK
@given(
    sizes=st.tuples(*[st.integers(1, 9)] * 3, st.integers(1, 3)),
    turned=st.tuples(st.booleans(), st.booleans()),
    block=st.integers(0, 4),
)
def test_tiles_tables_and_blocks_keep_the_values_of_any_matmul(
    sizes: tuple[int, int, int, int], turned: tuple[bool, bool], block: int
) -> None:
    rows, depth, columns, batch = sizes
    kernel = kernel_of(matmul(rows, depth, columns, turned, batch))
    rng = np.random.default_rng(0)
    one = rng.integers(-9, 9, batch * rows * depth).tolist()
    other = rng.integers(-9, 9, depth * columns).tolist()
    expected = run_kernel(kernel, {1: one, 2: other})[0]
    with pytest.MonkeyPatch.context() as patch:
        stage_everything(patch)
        summed = parts_of(sum_in_blocks(kernel, SMALL, override=Schedule(reduction_block=block)))
        parts = [part for one in summed for part in parts_of(stage_operands(one, SMALL))]
        chosen = UOp.sink(*[unroll_upcasts(choose_axes(part, SMALL)) for part in parts])
    for part in (*parts, *chosen.src):
        check_form(Form.KERNEL, part)
    assert run_kernel(UOp.sink(*parts), {1: one, 2: other})[0] == expected
    assert run_kernel(chosen, {1: one, 2: other})[0] == expected


@pytest.mark.heuristics
def test_large_matmul_is_staged_and_small_one_is_not() -> None:
    large = stage_operands(kernel_of(matmul(256, 256, 256, dtype=dtypes.float32)), AVX512)
    small = stage_operands(kernel_of(matmul(16, 16, 16, dtype=dtypes.float32)), AVX512)
    assert large.src[0].op is Ops.SINK and len(large.src) >= 2
    assert small.src[0].op is Ops.STORE


@pytest.mark.heuristics
@pytest.mark.parametrize("sizes, tables", [((4096, 2048, 64), 1), ((2048, 4096, 2048), 2)])
def test_rows_that_few_tiles_read_get_no_table(sizes: tuple[int, int, int], tables: int) -> None:
    """To fill one and to read it takes longer than to read a large operand twice."""
    body, whole = matmul(*sizes, dtype=dtypes.float32), Schedule(reduction_block=0)
    stages = KERNEL_STAGES
    parts = parts_of(run_stages(stages, body, compiler().library, AVX512, override=whole))
    assert len(parts) == tables + 1


@pytest.mark.parametrize("target", [AVX512, AVX2], ids=lambda t: t.name)
def test_tile_of_a_large_matmul_fits_the_registers_and_hides_latency(target: Target) -> None:
    found = find_contraction(kernel_of(matmul(1000, 700, 900, dtype=dtypes.float32)), target)
    assert found is not None
    _, tile = found
    assert tile.rows * tile.vectors + tile.vectors < target.vector_registers
    assert tile.rows * tile.vectors >= 3 * target.vector_registers // 4


def test_columns_that_lie_apart_in_memory_are_put_side_by_side() -> None:
    """The product of an n x k and a k x m matrix, stored as m x n: vectors run along m or along n."""
    body = matmul(64, 64, 64)
    kernel = kernel_of(UOp.sink(moved(Ops.PERMUTE, body.src[0], (0, 1, 3, 2))))
    stored = {(c.is_apart, size_of(c.columns)) for c in contractions(kernel)}
    assert stored == {(True, 64), (False, 64)}
    found = find_contraction(kernel, AVX512)
    assert found is not None and not found[0].is_apart


@pytest.mark.heuristics
def test_images_of_a_batch_are_no_columns_of_windows() -> None:
    """Each vector of them would be gathered, in each step."""
    x, weights = Tensor.empty(32, 23, 55, 55).realize(), Tensor.empty(5, 23, 7, 7).realize()
    graph = compiler().kernel_graph(UOp.sink(x.conv2d(weights, stride=3).uop).replace(arg="CPU"))
    choosing = KERNEL_STAGES[: [stage.name for stage in KERNEL_STAGES].index("unroll")]
    *_, last = parts_of(run_stages(choosing, graph.src[-1].src[0], compiler().library, AVX512))
    lanes = [n for n in last.toposort() if n.op is Ops.RANGE and n.arg[1] is AxisRole.VECTOR]
    loads = [n.src[0].src[1] for n in last.toposort() if n.op is Ops.LOAD]
    assert lanes and all(coefficient(index, lane) in (0, 1) for index in loads for lane in lanes)


def test_few_columns_are_given_up_for_many_that_are_stored_apart() -> None:
    found = find_contraction(kernel_of(convolution(64, 64, 64, 8)), AVX512)
    assert found is not None and found[0].is_apart and size_of(found[0].columns) == 64


def test_rows_that_share_a_set_of_the_first_cache_are_read_anew() -> None:
    """Rows that lie 8192 bytes apart have 8 ways: with 12 of them in a tile each step reads every line again."""
    small = replace(AVX2, first_cache=FirstCache(32 << 10, 8))
    product = Tensor.empty(2048, 2048).realize() @ Tensor.empty(8, 2048).realize().transpose()
    graph = compiler().kernel_graph(UOp.sink(product.uop).replace(arg="CPU"))
    kernel = compiler().index_terms(graph.src[-1].src[0])
    (way,) = [c for c in contractions(kernel, Schedule(), small) if size_of(c.rows) == 2048]
    few, many = [cost_model.cycles_of_tiles(Tile(n, 1, 8), 4, way, small) for n in (8, 12)]
    assert 1.2 * few < many


def test_blocks_give_every_thread_several_items() -> None:
    contraction = contractions(kernel_of(matmul(1024, 1024, 1024, dtype=dtypes.float32)))[0]
    tile = Tile(8, 3, 16)
    blocks = choose_blocks(contraction, tile, AVX512)
    items = -(-128 // blocks.row_tiles) * -(-22 // blocks.column_tiles)
    assert items >= 8 * AVX512.threads
    assert blocks.row_tiles * tile.rows * 1024 * 4 <= AVX512.cache_bytes


def test_columns_that_every_image_reads_stay_in_the_cache() -> None:
    """Weights that fill it are gone through in blocks, and a thread goes on with its block."""
    kernel = kernel_of(convolution(8, 256, 512, 8))
    contraction, tile = find_contraction(kernel, AVX512) or (None, None)
    assert contraction is not None and tile is not None and contraction.other_tiles > 1
    assert contraction.shares_large_columns(AVX512.cache_bytes)
    blocks = choose_blocks(contraction, tile, AVX512)
    assert blocks.column_tiles * tile.columns * contraction.depth * 4 <= AVX512.cache_bytes // 2
    few = contractions(kernel_of(convolution(8, 16, 32, 8)))[0]
    assert not few.shares_large_columns(AVX512.cache_bytes)


@pytest.mark.parametrize("rows, depth, columns", [(1, 7, 300), (67, 129, 65), (300, 1, 33),
                                                  (130, 64, 257), (64, 2, 1000)])  # fmt: skip
def test_float_matmul_of_odd_sizes_is_right(rows: int, depth: int, columns: int) -> None:
    rng = np.random.default_rng(1)
    one = rng.standard_normal((rows, depth)).astype(np.float32)
    other = rng.standard_normal((depth, columns)).astype(np.float32)
    expected = one.astype(np.float64) @ other.astype(np.float64)
    for turned in product((False, True), repeat=2):
        left = Tensor(np.ascontiguousarray(one.T)).T if turned[0] else Tensor(one)
        right = Tensor(np.ascontiguousarray(other.T)).T if turned[1] else Tensor(other)
        np.testing.assert_allclose((left @ right).numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("depth", [1, 2, 8])
def test_a_sum_that_is_written_out_starts_from_zero(depth: int) -> None:
    one = Tensor(np.full((64, depth), -0.0, np.float32))
    other = Tensor(np.ones((depth, 64), np.float32))
    assert not np.signbit((one @ other).numpy()).any()


@pytest.mark.heuristics
def test_tables_are_filled_by_kernels_of_their_own() -> None:
    from proofgrad import GlobalCounters

    rng = np.random.default_rng(2)
    one, other = (Tensor(rng.standard_normal((256, 256))) for _ in range(2))
    Tensor.realize(one, other)
    before = GlobalCounters.kernel_count
    (one @ other.T).realize()  # columns of float64 that lie apart
    assert GlobalCounters.kernel_count - before >= 2


# -- planted errors: PROVE=1 finds them ---------------------------------------------------------


@pytest.mark.heuristics
@pytest.mark.parametrize("fault", ["position", "value", "short"])
def test_a_wrong_table_is_found(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    from test_kernel_proof import planted

    def wrong(kernel: UOp, target: Target, override: Schedule) -> UOp:
        made = stage_operands(kernel, target, override=override)
        if made.src[0].op is not Ops.SINK:
            return made
        first, *rest = made.src
        (store,) = first.src
        position, value = store.src
        if fault == "position":
            position = position.replace(src=(position.src[0], position.src[1] + 1))
        elif fault == "value":
            load = next(n for n in value.toposort() if n.op is Ops.LOAD)
            at = load.src[0]
            value = value.substitute({at: at.replace(src=(at.src[0], at.src[1] + 1, *at.src[2:]))})
        else:
            loop = max((n for n in position.toposort() if n.op is Ops.RANGE), key=axes.size_of)
            short = loop.replace(src=(UOp.index(size_of(loop) - 1),))
            position, value = (n.substitute({loop: short}) for n in (position, value))
        return UOp.sink(UOp.sink(store.replace(src=(position, value))), *rest)

    stage_everything(monkeypatch)
    body = matmul(16, 6, 40, dtype=dtypes.float32)
    assert planted([body], replace(SMALL, vector_registers=32), "stage operands", wrong)


@pytest.mark.heuristics
def test_a_mask_of_a_table_that_is_too_narrow_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from test_kernel_proof import planted

    def wrong(kernel: UOp, target: Target, override: Schedule) -> UOp:
        made = stage_operands(kernel, target, override=override)
        *tables, last = parts_of(made)
        filled = {store.src[0].src[0] for table in tables for store in table.src}
        loads = [n for n in last.toposort() if n.op is Ops.LOAD and n.src[0].src[0] in filled]
        loop = next(n for n in loads[0].toposort() if n.op is Ops.RANGE)
        position = loads[0].src[0]
        masked = position.replace(src=(*position.src, loop < size_of(loop) - 1))
        return UOp.sink(*tables, last.substitute({position: masked}))

    stage_everything(monkeypatch)
    body = matmul(16, 6, 40, dtype=dtypes.float32)
    assert planted([body], replace(SMALL, vector_registers=32), "stage operands", wrong)


def test_the_tables_of_a_matmul_are_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    from test_kernel_proof import prove

    stage_everything(monkeypatch)
    for sizes in ((16, 6, 40), (13, 5, 37)):
        body = matmul(*sizes, dtype=dtypes.float32)
        assert prove(body, replace(SMALL, vector_registers=32)).count.unknown == 0


@pytest.mark.heuristics
def test_an_unrolled_sum_that_takes_one_value_twice_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from test_kernel_proof import planted

    right = unroll._one_by_one
    monkeypatch.setattr(
        unroll, "_one_by_one", lambda products: right([*products[:-1], products[0]])
    )
    body = matmul(16, 8, 40, dtype=dtypes.float32)
    assert planted([body], replace(SMALL, vector_registers=32), "unroll")


@pytest.mark.heuristics
@pytest.mark.parametrize("rows", [2, 4, 8])
def test_few_rows_times_a_long_transposed_matrix_read_it_in_its_order(rows: int) -> None:
    """As tokens by the weights of a layer: no vector is gathered, and no sum is cut in blocks of each line."""
    body = matmul(rows, 1024, 4096, (False, True), dtype=dtypes.float32)
    *_, tile = parts_of(run_stages(KERNEL_STAGES, body, compiler().library, AVX512))
    weights = [n for n in tile.src if n.op is Ops.LOAD and n.src[0].src[0].arg[1] == 1024 * 4096]
    assert weights and all(load.src[0].src[1].dtype.lanes == 1 for load in weights)
    one, other = Tensor.ones(rows, 1024).realize(), Tensor.ones(4096, 1024).realize()
    graph = UOp.sink((one @ other.T).uop).replace(arg="CPU")
    assert len(compiler().kernel_graph(graph).src) == 1


@pytest.mark.heuristics
@pytest.mark.parametrize("rows, staged, packed", [(33, False, False), (300, False, True)])
def test_columns_of_few_rows_are_read_in_place_and_of_more_are_packed(
    rows: int, staged: bool, packed: bool
) -> None:
    target = replace(AVX512, threads=1, cache_bytes=2 << 20, scratch_bytes=1 << 20)
    found = find_contraction(
        compiler().index_terms(matmul(rows, 745, 2006, dtype=dtypes.float32)), target
    )
    assert found is not None and found[1].rows > 2
    assert found[0].columns.src[0].arg == 2006  # the result lies along them
    assert planned_staging(*found, target).columns is staged
    assert packs_columns(*found, target) is packed


@pytest.mark.heuristics
def test_columns_of_less_than_a_line_are_not_read_in_place() -> None:
    target = replace(AVX2, threads=1, cache_bytes=256 << 10, scratch_bytes=128 << 10)
    ways = [
        c
        for c in contractions(compiler().index_terms(matmul(33, 1000, 1083, dtype=dtypes.float32)))
        if c.columns.src[0].arg == 1083
    ]
    assert planned_staging(ways[0], Tile(11, 1, 8), target).columns
    assert not planned_staging(ways[0], Tile(5, 2, 8), target).columns


@pytest.mark.parametrize("check", ["CHECK", "PROVE"])
@pytest.mark.parametrize(
    ("rows", "steps", "asked", "done"),
    [
        (3, 37, "tile=3x2x1", "tile=3x2x1"),  # lanes that are added up
        (9, 14, "tiled=on packed=on staged=none", "packed=on"),  # columns that the item packs
    ],
)
def test_products_by_a_transposed_matrix_are_checked_and_proved(
    rows: int, steps: int, asked: str, done: str, check: str,
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv(check, "1")
    monkeypatch.setenv("DEBUG", "2")
    a, b = numbers(rows, steps), numbers(50, steps)
    with schedule(asked):
        assert_close((Tensor(a) @ Tensor(b).T).relu(), np.maximum(a @ b.T, 0))
    told = capfd.readouterr().err
    assert done in told
    assert "none unknown" in told if check == "PROVE" else "checked" in told


def test_answer_about_a_tile_is_found_once_for_a_contraction_and_a_target() -> None:
    asked: list[tuple[Tile, Target]] = []

    @once_a_tile
    def rows_of(contraction: Contraction, tile: Tile, target: Target) -> int:
        asked.append((tile, target))
        return tile.rows

    row, column, step = [UOp.range(8, k) for k in range(3)]
    factors = [UOp.const(dtypes.float32, value) for value in (1.0, 2.0)]
    total = UOp(Ops.REDUCE, dtypes.float32, (factors[0] * factors[1], step), Ops.ADD)
    one, other = [Contraction(total, row, column, *factors, ()) for _ in range(2)]
    (tile, higher), (target, another) = (Tile(2, 1, 4), Tile(3, 1, 4)), (Target("a"), Target("a"))
    answers = [rows_of(one, x, target) for x in (tile, tile, higher, tile)]
    assert answers == [2, 2, 3, 2]
    assert asked == [(tile, target), (higher, target)]
    rows_of(other, tile, target)
    rows_of(one, tile, another)
    assert len(asked) == 4
