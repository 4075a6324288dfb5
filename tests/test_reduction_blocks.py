"""Products with few rows, and rows, summed in memory block by block: the same values, proven, and errors are found."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np
import pytest
from tactics import choose_axes, sum_in_blocks
from tensors import assert_close, numbers
from test_cpu_target import running
from test_kernel_proof import planted, prove
from test_tiles import AVX2, AVX512, SMALL, matmul, moved, parameter

from proofgrad import Device, Tensor, explain
from proofgrad.core.compile.machine.machine import Core, FirstCache
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import AUTOMATIC, Schedule, read_schedule
from proofgrad.core.compile.passes.stages import parts_of, run_stages
from proofgrad.core.compile.schedule import operands
from proofgrad.core.compile.schedule import reduction_blocks as long_rows
from proofgrad.core.compile.schedule.choose_schedule import choose_schedule
from proofgrad.core.compile.schedule.contraction import tiles_along
from proofgrad.core.compile.schedule.cost_model import cycles_across_lines
from proofgrad.core.compile.schedule.operands import packs_columns
from proofgrad.core.compile.schedule.tiles import choose_blocks, find_contraction
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import AxisRole, UOp
from proofgrad.core.tensor.runtime.realize import compiler
from proofgrad.rules.pipeline import KERNEL_STAGES

STAGE = "sum in blocks"
WIDE = replace(SMALL, vector_registers=32, cache_bytes=1 << 12)
NO_PAGES = replace(WIDE, page_bytes=0)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few steps, also for what is too small to gain by them."""
    pages = Core().foreseen_pages
    changes = (
        ("PAGES_OF_FEW", 3 / pages),
        ("LEAST_PAGES", 2 / pages),
        ("ENOUGH_STEPS", 3),
        ("ACROSS_LINES", 1),
    )
    for name, value in changes:
        monkeypatch.setattr(operands, name, value)
    monkeypatch.setattr(operands, "_is_long", lambda contraction, target: True)


def summed(body: UOp, target: Target, override: Schedule = AUTOMATIC) -> tuple[UOp, ...]:
    """The kernels after the stage."""
    last = next(k for k, stage in enumerate(KERNEL_STAGES) if stage.name == STAGE)
    stages, library = KERNEL_STAGES[: last + 1], compiler().library
    return parts_of(run_stages(stages, body, library, target, override=override))


def block_of(body: UOp, override: Schedule = AUTOMATIC, target: Target = AVX512) -> int:
    """Steps of a block of a body; 0: it is not summed so."""
    parts = summed(body, target, override)
    (store,) = parts[-1].src
    return store.src[1].src[1].src[0].arg if len(parts) > 1 else 0


def test_blocks_are_what_the_first_cache_holds_of_columns_that_tiles_ask_for_ahead() -> None:
    """With enough rows the next columns are there in time, as tiles ask for them; fewer wait for memory, which pages that are foreseen help."""
    small_cache = FirstCache(32 << 10, 8)
    few = replace(
        AVX512,
        vector_bytes=32,
        vector_registers=16,
        first_cache=small_cache,
        core=Core(foreseen_pages=16, memory_bytes_a_cycle=12.0),
    )
    many = replace(few, core=Core(foreseen_pages=32, memory_bytes_a_cycle=12.0))

    def of_rows(rows: int, target: Target, depth: int = 2048, columns: int = 2000) -> int:
        return block_of(matmul(rows, depth, columns, dtype=dtypes.float32), target=target)

    assert [of_rows(rows, few) for rows in (6, 8, 12, 32)] == [16, 16, 128, 128]
    assert [of_rows(rows, many) for rows in (6, 8, 12, 32)] == [32, 32, 128, 128]
    in_a_page = [of_rows(*sizes) for sizes in ((3, few, 8192, 60), (8, few, 4096, 1000))]
    assert in_a_page == [32, 16]  # of short rows several are in a page
    slow = replace(few, core=Core(foreseen_pages=16))
    assert of_rows(24, slow, 1531, 2049) == 128  # the last of twelve has a mask
    assert of_rows(18, few, 270, 66) != 128  # they stay in the second cache


def test_where_few_pages_are_foreseen_as_many_rows_are_added_at_once() -> None:
    few = replace(AVX512, core=Core(foreseen_pages=16))
    assert block_of(rows((256, 4096)), target=few) == block_of(rows((256, 4096))) == 8


def test_rows_that_wait_for_memory_all_side_by_side_read_a_matrix_in_order() -> None:
    """A few rows of it at a time, from end to end: not tile by tile. More rows multiply longer, or read it several times."""
    one = replace(AVX2, threads=1, core=Core(foreseen_pages=16))
    quick = replace(one, core=Core(foreseen_pages=16, memory_bytes_a_cycle=32.0))
    for dtype in (dtypes.float32, dtypes.float64, dtypes.int32):
        few = matmul(2, 3062, 527, dtype=dtype)
        assert block_of(few, target=one) == 8 != block_of(few, target=quick)
        nine = matmul(9, 3062, 527, dtype=dtype)
        assert block_of(nine, target=one) not in (0, 8)
    eight = matmul(8, 1001, 2003, dtype=dtypes.float64)
    (fill, add) = summed(eight, one)
    assert choose_schedule(add, one, Schedule(tiled=False)).copies.count == 8  # type: ignore[union-attr]
    assert block_of(eight, target=one) == 7  # which divides the steps
    for asked in ("tiled=on", "tile=2x3x4", "reduction_block=13"):
        assert block_of(eight, read_schedule(asked), one) == 13
    assert block_of(eight, Schedule(threads=False), one) == 7
    turned = matmul(4, 3062, 527, (False, True), dtype=dtypes.float64)  # it lies along the sum
    assert block_of(turned, target=one) != 8


@pytest.mark.parametrize("sizes", [(4, 2000, 8192), (3, 1001, 8003), (8, 640, 16384)])
def test_threads_read_a_part_of_a_matrix_each(sizes: tuple[int, int, int]) -> None:
    """Not all of it for some of the rows that multiply it."""
    two = replace(AVX2, threads=2, core=Core(foreseen_pages=16))
    add = summed(matmul(*sizes, dtype=dtypes.float32), two)[-1]
    add = choose_axes(add, two, override=Schedule(tiled=False))
    loops = [x for x in add.toposort() if x.op is Ops.RANGE]
    (part,) = [x for x in loops if x.arg[1] is AxisRole.THREAD]
    assert part.src[0].arg == 2
    loads = [n for n in add.toposort() if n.op is Ops.LOAD]
    (of_matrix,) = [n for n in loads if n.src[0].src[0].arg == (2, sizes[1] * sizes[2])]
    assert part in of_matrix.toposort()


def test_threads_share_a_matrix_in_order_where_their_parts_of_its_rows_are_long() -> None:
    """At the ends of short parts each thread is given lines that the other one writes."""
    two = replace(AVX2, threads=2, core=Core(foreseen_pages=16))
    one = replace(two, threads=1)

    for long in ((4, 4096, 8192), (8, 640, 16384)):
        body = matmul(*long, dtype=dtypes.float32)
        assert block_of(body, target=two) == block_of(body, target=one) == 8
    for short in ((4, 4096, 2200), (7, 1298, 1083), (4, 100, 8192)):  # the last all in all
        body = matmul(*short, dtype=dtypes.float32)
        assert block_of(body, target=two) > 8 >= block_of(body, target=one) > 0


def test_few_rows_of_a_long_matrix_are_summed_in_blocks_and_more_are_not() -> None:
    assert block_of(matmul(64, 1024, 1024, dtype=dtypes.float32)) == 64
    assert block_of(matmul(16, 1024, 1024, dtype=dtypes.float32)) == 32
    assert block_of(matmul(64, 1000, 1024, dtype=dtypes.float32)) == 50
    assert block_of(matmul(32, 1100, 1001, dtype=dtypes.float32)) == 25
    assert block_of(matmul(12, 512, 705, dtype=dtypes.float32)) == 32
    assert block_of(matmul(16, 1021, 1024, dtype=dtypes.float32)) == 32  # the last has a mask
    more = matmul(256, 1024, 1024, dtype=dtypes.float32)
    assert block_of(more) == 0 and block_of(more, Schedule(reduction_block=16)) == 16
    assert block_of(matmul(32, 1024, 1024, dtype=dtypes.float32), Schedule(reduction_block=0)) == 0
    for other in (
        matmul(32, 512, 64, dtype=dtypes.float32),  # lies in pages that are at hand
        matmul(8, 512, 256, dtype=dtypes.float32),  # one tile reads it, from the cache
        matmul(40, 1100, 1001, dtype=dtypes.float32),  # no longer few rows
        matmul(24, 512, 704, dtype=dtypes.float32),  # hardly longer than the second cache
        matmul(24, 512, 705, dtype=dtypes.float32),  # and vectors lie across lines
        matmul(32, 83, 16411, dtype=dtypes.float32),  # three blocks, one of which has a mask
        matmul(32, 1024, 1024, (False, True), dtype=dtypes.float32),  # columns lie apart
        matmul(32, 1024, 1024, dtype=dtypes.float16),  # memory would round the sums
    ):
        assert block_of(other) == 0


def test_columns_of_a_block_that_one_tile_reads_are_not_packed() -> None:
    large = replace(AVX512, cache_bytes=1 << 21, scratch_bytes=1 << 20, threads=1)
    body = matmul(2, 590, 1470, dtype=dtypes.float32)
    found = find_contraction(summed(body, large)[-1], large)
    assert found is not None and found[0].blocks and not packs_columns(*found, large)


def test_sums_that_lie_apart_are_taken_in_blocks_beside_which_storing_them_is_little() -> None:
    for sizes, steps in (
        ((4096, 5000, 40), 250),
        ((1000, 5000, 100), 250),
        ((2000, 2000, 20), 250),
        ((4096, 1000, 10), 25),  # memory takes longer than so few products
        ((4096, 256, 40), 0),  # too short for such blocks
    ):
        turned = matmul(*sizes, (True, False), dtype=dtypes.float32)
        assert block_of(turned, target=replace(AVX512, cache_bytes=1 << 21, threads=1)) == steps


def test_what_the_last_block_has_beyond_the_end_of_a_sum_is_no_window() -> None:
    """As such it would cost nothing that vectors lie across lines."""
    for depth in (1024, 1021):
        found = find_contraction(
            summed(matmul(9, depth, 1001, dtype=dtypes.float32), AVX512)[-1], AVX512
        )
        assert found is not None and found[0].blocks
        assert (
            found[0].growth_of_columns <= 1 and cycles_across_lines(found[1], found[0], AVX512) > 0
        )


@pytest.mark.heuristics
def test_long_sums_of_many_rows_are_summed_in_long_blocks_whose_columns_are_packed() -> None:
    for sizes, steps in (
        ((512, 8192, 1000), 512),
        ((512, 5000, 1000), 500),
        ((512, 1500, 1000), 0),
    ):
        assert block_of(matmul(*sizes, dtype=dtypes.float32)) == steps
    large = replace(AVX512, scratch_bytes=1 << 18)
    for transposed in ((False, False), (False, True)):
        body = matmul(512, 8192, 1000, transposed, dtype=dtypes.float32)
        found = find_contraction(summed(body, large)[-1], large)
        assert found is not None
        assert found[0].blocks and packs_columns(*found, large)


@pytest.mark.heuristics
def test_blocks_of_few_registers_are_longer_than_their_tiles_are_wide() -> None:
    """16 registers hold two vectors of columns, so that a block has twice as many steps as with four."""
    small = replace(AVX2, cache_bytes=1 << 18, threads=1)
    for depth, steps in ((1024, 0), (2000, 0), (4096, 512), (5000, 500)):
        assert block_of(matmul(1000, depth, 1000, dtype=dtypes.float32), target=small) == steps


@pytest.mark.heuristics
@pytest.mark.parametrize("columns", [4096, 4001, 1776, 5553])
def test_items_of_blocks_are_alike(columns: int) -> None:
    """Tiles beyond the last are computed, too: fewer than there are items."""
    body = summed(matmul(64, 4096, columns, dtype=dtypes.float32), AVX512)[-1]
    found = find_contraction(body, AVX512)
    assert found is not None
    contraction, tile = found
    tiles, width = tiles_along(contraction, tile)[1], choose_blocks(*found, AVX512).column_tiles
    items = -(-tiles // width)
    assert contraction.blocks and items > 1 and items * width - tiles < items


def test_columns_of_one_matrix_stay_in_the_cache_where_those_of_all_do_not() -> None:
    """As the parts of a long sum: each goes through its own columns."""
    size = (40, 64, 500, 64)
    one = moved(Ops.EXPAND, parameter(1, 40, 64, 500, 1, dtype=dtypes.float32), size)
    other = moved(Ops.EXPAND, parameter(2, 40, 1, 500, 64, dtype=dtypes.float32), size)
    products = UOp(Ops.MUL, dtypes.float32, (one, other))
    body = UOp.sink(UOp(Ops.REDUCE_AXIS, dtypes.float32, (products,), (Ops.ADD, (2,))))
    assert block_of(body) == 0


@pytest.mark.parametrize("processor", ["native", "haswell", "x86-64-v2"])
def test_a_prime_number_of_steps(processor: str) -> None:
    with running(processor):
        for rows, columns, steps in (
            (3, 4099, "(8|15|27)"),  # of one thread 8
            (9, 16411, "(15|27)"),
        ):  # 16 or 32 pages are foreseen
            one, other = numbers(rows, 131), numbers(131, columns)
            product = Tensor(one) @ Tensor(other)
            if processor != "native":  # whose second cache may hold all of it
                assert re.search(f"reduction_block={steps}", explain(product))
            assert_close(product, one @ other, atol=1e-4)
            assert_close(product.relu().sum(0), np.maximum(one @ other, 0).sum(0), atol=1e-4)


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int32, np.uint64])
@pytest.mark.parametrize(
    "last", [lambda x: x, lambda x: x * 2 + 1, lambda x: x.sum(0)], ids=["alone", "more", "summed"]
)
def test_values(
    kind: type, last: Callable[[Tensor], Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    monkeypatch.setenv("CHOICES", "reduction_block=8")
    for rows, depth, columns in ((2, 16, 20), (5, 24, 37), (16, 40, 64), (33, 64, 50)):
        one, other = [rng.integers(0, 9, s).astype(kind) for s in ((rows, depth), (depth, columns))]
        found = last(Tensor(one) @ Tensor(other)).numpy()
        assert np.array_equal(found, last(Tensor(one @ other)).numpy())


def test_nan_infinities_and_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = np.ones((4, 24), np.float32), np.ones((24, 40), np.float32)
    one[0, 20], one[1, 3], one[2], other[:, 5] = np.nan, np.inf, -0.0, -0.0
    monkeypatch.setenv("CHOICES", "reduction_block=8")
    with np.errstate(invalid="ignore"):
        expected = one @ other
    found = (Tensor(one) @ Tensor(other)).numpy()
    np.testing.assert_array_equal(found, expected)
    assert not np.signbit(found[2]).any()


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("sizes", [(4, 12, 40), (5, 9, 37), (3, 13, 40)])
@pytest.mark.parametrize("target", [WIDE, replace(WIDE, threads=1)], ids=["threads", "one"])
def test_they_are_proven(sizes: tuple[int, int, int], target: Target) -> None:
    body = matmul(*sizes, dtype=dtypes.float32)
    assert len(summed(body, target)) == 2
    count = prove(body, target).count
    assert count.unknown == 0 and count.by_solver + count.by_enumeration >= 10


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("sizes", [(4, 12, 40), (5, 37, 21), (2, 13, 40)])
@pytest.mark.parametrize("target", [NO_PAGES, replace(NO_PAGES, threads=1)], ids=["threads", "one"])
def test_rows_side_by_side_are_proven(
    sizes: tuple[int, int, int], target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WORTH_CACHES", "WORTH_A_MASK", "SHARE_OF_PAGES"):
        monkeypatch.setattr(long_rows, name, 0)
    monkeypatch.setattr(long_rows, "FEWEST_ROWS", 3)
    slow = replace(target, page_bytes=1, core=Core(memory_bytes_a_cycle=1.0))
    body = matmul(*sizes, dtype=dtypes.float32)
    assert block_of(body, target=slow) in (2, 3)
    assert prove(body, slow).count.unknown == 0


def wrong_store(change: Callable[[UOp], UOp]) -> Callable[..., UOp]:
    def procedure(kernel: UOp, target: Target, override: Schedule) -> UOp:
        fill, add = parts_of(sum_in_blocks(kernel, target, override=override))
        return UOp.sink(fill, UOp.sink(change(add.src[0])))

    return procedure


def one_block_less(store: UOp) -> UOp:
    (block,) = store.src[2:]
    return store.substitute({block: UOp.range(block.src[0].arg - 1, *block.arg)})


def overlapping(store: UOp) -> UOp:
    (block,) = store.src[2:]
    position, value, _ = store.src
    return store.with_src((position, value.substitute({block * 3: block * 2}), block))


def beside(store: UOp) -> UOp:
    position, value, block = store.src
    again = position.replace(src=(position.src[0], position.src[1] // 2 * 2))
    return store.with_src((again, value, block))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("change", [one_block_less, overlapping, beside])
def test_a_wrong_block_is_found(change: Callable[[UOp], UOp]) -> None:
    assert planted([matmul(4, 12, 40, dtype=dtypes.float32)], WIDE, STAGE, wrong_store(change))


@pytest.mark.usefixtures("small_blocks")
def test_memory_that_starts_from_another_number_is_found() -> None:
    def wrong(kernel: UOp, target: Target, override: Schedule) -> UOp:
        fill, add = parts_of(sum_in_blocks(kernel, target, override=override))
        position, zero = fill.src[0].src
        return UOp.sink(UOp.sink(fill.src[0].with_src((position, UOp.const(zero.dtype, 1)))), add)

    assert planted([matmul(4, 12, 40, dtype=dtypes.float32)], WIDE, STAGE, wrong)


@pytest.mark.usefixtures("small_blocks")
def test_a_tile_that_is_added_twice_in_a_block_is_found() -> None:
    """A later procedure that adds the last column of each tile again, in the same iteration."""

    def wrong(kernel: UOp, target: Target, bounds: object, override: Schedule) -> UOp:
        made = choose_axes(kernel, target, bounds, override)  # type: ignore[arg-type]
        store = made.src[0]
        if len(store.src) < 3:
            return made
        position = store.src[0]
        moved = {
            n: n % 3 for n in position.toposort() if n.op is Ops.RANGE and n.arg[1].name == "VECTOR"
        }
        return UOp.sink(store.with_src((position.substitute(moved), *store.src[1:])))

    assert planted([matmul(4, 12, 40, dtype=dtypes.float32)], WIDE, "choose axes", wrong)


def test_a_result_that_is_used_by_another_kernel_has_one_plan() -> None:
    rng = np.random.default_rng(1)
    one = rng.normal(size=(24, 1024)).astype(np.float32)
    other = rng.normal(size=(1024, 600)).astype(np.float32)
    found = (Tensor(one) @ Tensor(other)).relu().softmax(-1)
    expected = np.maximum(one.astype(np.float64) @ other, 0)
    expected = np.exp(expected - expected.max(-1, keepdims=True))
    np.testing.assert_allclose(
        found.numpy(), expected / expected.sum(-1, keepdims=True), 2e-4, 1e-6
    )
    compiler().forget()


# -- reductions of rows -------------------------------------------------------------------------


def rows(
    shape: tuple[int, ...],
    dtype: DType = dtypes.float32,
    op: Ops = Ops.ADD,
    function: Ops | None = None,
) -> UOp:
    """The body of a reduction over the first axis, of what is read or of a function of it."""
    memory = UOp(Ops.PARAM, dtype, (), (1, prod(shape)))
    value = UOp(Ops.RESHAPE, dtype, (memory,), shape)
    if function is not None:
        value = UOp(function, dtype, (value,))
    return UOp.sink(UOp(Ops.REDUCE_AXIS, dtype, (value,), (op, (0,))))


def test_few_rows_are_summed_in_blocks_where_a_step_computes_more_than_a_core_looks_ahead() -> None:
    prime = (37, 100_003)
    assert block_of(rows(prime)) == block_of(rows(prime, function=Ops.NEG)) == 0
    assert block_of(rows(prime, function=Ops.EXP2)) == 8
    assert block_of(rows((19, 200_003), function=Ops.EXP2)) == 4
    for other in (
        (13, 300_007),  # they are written out
        (29, 2003),  # half of the cache holds them
    ):
        assert block_of(rows(other, function=Ops.EXP2)) == 0
    far = replace(AVX512, core=Core(foreseen_instructions=1000))
    assert block_of(rows(prime, function=Ops.EXP2), target=far) == 0


def test_fewer_rows_are_worth_a_mask_where_fewer_pages_are_foreseen() -> None:
    few = replace(AVX512, core=Core(foreseen_pages=16))
    assert [block_of(rows((67, 100_003)), target=target) for target in (AVX512, few)] == [0, 8]


def test_rows_that_lie_in_other_pages_are_summed_side_by_side() -> None:
    assert block_of(rows((256, 4096))) == 8
    assert block_of(rows((100, 1 << 15))) == 5
    assert block_of(rows((1 << 14, 200))) == 8  # five in a page
    for with_rest in ((254, 4096), (257, 4099), (131, 50021)):
        assert block_of(rows(with_rest)) == 8
    assert block_of(rows((257, 4099)), Schedule(reduction_block=3)) == 3
    assert block_of(rows((256, 4096)), Schedule(reduction_block=16)) == 16
    assert block_of(rows((256, 4096)), Schedule(reduction_block=0)) == 0
    assert block_of(rows((64, 64)), Schedule(reduction_block=16)) == 16
    for other in (
        rows((1 << 14, 64)),  # many rows in a page
        rows((16, 1 << 16)),  # too few for the sums in memory
        rows((67, 100_003)),  # a prime number, but all pages are at hand
        rows((64, 1024)),  # they stay in the cache
        rows((256, 4096), dtypes.float16),  # memory would round the sums
    ):
        assert block_of(other) == 0


@pytest.mark.parametrize(
    "target", [AVX512, replace(AVX512, vector_bytes=32), replace(AVX512, threads=3)]
)
@pytest.mark.parametrize("columns", [50_000, 50_001, 50_021])
def test_threads_share_rows_of_any_length(columns: int, target: Target) -> None:
    add = summed(rows((199, columns)), target)[-1]
    shared = choose_axes(add, target)
    (part,) = [x for x in shared.toposort() if x.op is Ops.RANGE and x.arg[1] is AxisRole.THREAD]
    assert part.src[0].arg == target.threads


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int32, np.uint64])
@pytest.mark.parametrize("name", ["sum", "max", "prod", "mean"])
@pytest.mark.parametrize("threads", ["off", "on"])
def test_values_of_rows(
    kind: type, name: str, threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    monkeypatch.setenv("CHOICES", f"reduction_block=8 threads={threads}")
    monkeypatch.setattr(Device["CPU"], "parallel_instructions", 0)
    for shape in ((16, 20), (24, 37), (40, 3, 17), (256, 33), (13, 21), (47, 3, 17), (263, 33)):
        array = rng.integers(1, 3 if name == "prod" else 9, shape).astype(kind)
        array = (
            array[-16:] if name == "prod" else -array if kind in (np.float32, np.int32) else array
        )
        expected = getattr(array, name)(0)
        np.testing.assert_allclose(getattr(Tensor(array), name)(0).numpy(), expected, rtol=1e-6)


def test_nan_and_infinities_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHOICES", "reduction_block=8")
    array = np.ones((32, 40), np.float32)
    array[30, 1], array[3, 2], array[:, 3], array[5, 4], array[20, 4] = (
        np.nan,
        np.inf,
        -0.0,
        np.inf,
        -np.inf,
    )
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(Tensor(array).sum(0).numpy(), array.sum(0))
    np.testing.assert_array_equal(Tensor(array).max(0).numpy(), array.max(0))


@pytest.mark.parametrize("op", [Ops.ADD, Ops.MAX])
@pytest.mark.parametrize("target", [NO_PAGES, replace(NO_PAGES, threads=1)], ids=["threads", "one"])
def test_rows_are_proven(op: Ops, target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_rows, "WORTH_CACHES", 0)
    monkeypatch.setattr(long_rows, "WORTH_A_MASK", 0)
    for shape in ((32, 40), (20, 3, 7), (37, 21)):
        body = rows(shape, op=op)
        assert len(summed(body, target)) == 2
        assert prove(body, target).count.unknown == 0


@pytest.mark.parametrize("change", [one_block_less, beside])
def test_a_wrong_block_of_rows_is_found(
    change: Callable[[UOp], UOp], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_rows, "WORTH_CACHES", 0)
    assert planted([rows((32, 40))], NO_PAGES, STAGE, wrong_store(change))
