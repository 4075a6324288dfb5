"""What a tile costs decides which one is taken, in which order tiles go by, and what is packed: products of any shape."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_tiles import AVX512, matmul

from proofgrad import Tensor
from proofgrad.backends.cpu.processors import KNOWN
from proofgrad.core.compile.machine.machine import Core, FirstCache
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import AUTOMATIC, Blocks, Schedule, Staged, Tile
from proofgrad.core.compile.nests.loops import size_of
from proofgrad.core.compile.passes.stages import run_stages
from proofgrad.core.compile.schedule import tiles
from proofgrad.core.compile.schedule.contraction import Contraction, contractions, table_elements
from proofgrad.core.compile.schedule.cost_model import (
    cycles_across_lines,
    cycles_in_place,
    cycles_of_tiles,
    goes_along_rows,
    least_cycles,
)
from proofgrad.core.compile.schedule.operands import (
    choose_reduction_block,
    filling,
    packs_columns,
    planned_staging,
    row_tiles_of_an_item,
)
from proofgrad.core.compile.schedule.row_cycles import readers_worth_a_table
from proofgrad.core.compile.schedule.table_cycles import (
    PACKING_CYCLES,
    cycles_of_tables,
    cycles_to_bring_apart,
)
from proofgrad.core.compile.schedule.tiles import choose_blocks, choose_depth, find_contraction
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compiler
from proofgrad.rules.pipeline import KERNEL_STAGES

ONE_THREAD = replace(AVX512, threads=1, cache_bytes=1 << 21, scratch_bytes=1 << 20)
_ZEN4 = KNOWN["znver4"].as_used(vector_bytes=64, vectors_that_mask=0)
ZEN4 = replace(ONE_THREAD, cache_bytes=_ZEN4.cache_bytes, core=_ZEN4.core)


def simplified(
    rows: int, depth: int, columns: int, turned: tuple[bool, bool] = (False, False)
) -> UOp:
    """The kernel of a product of matrices as its tile is chosen."""
    return simplified_body(matmul(rows, depth, columns, turned, dtype=dtypes.float32))


def simplified_body(body: UOp) -> UOp:
    stages = [stage.name for stage in KERNEL_STAGES].index("sum in blocks")
    return run_stages(KERNEL_STAGES[:stages], body, compiler().library, ONE_THREAD)


def calls(value: Tensor, target: Target = ONE_THREAD) -> tuple[UOp, ...]:
    """The kernels of a value as they are cut for a machine that need not be this one."""
    root = UOp.sink(value.uop).replace(arg="CPU")
    return run_stages(compiler().graph_stages, root, compiler().library, target).src


def product(
    rows: int, depth: int, columns: int, turned: tuple[bool, bool] = (False, False)
) -> Contraction:
    """The first way to lay tiles over a product of matrices: its rows are those of the result."""
    found = contractions(simplified(rows, depth, columns, turned))
    return next(way for way in found if size_of(way.rows) == rows)


def cost(way: Contraction, tile: Tile, target: Target) -> float:
    at_once = choose_depth(way, tile, target)
    return cycles_of_tiles(tile, at_once, way, target) + filling(way, tile, target)


@pytest.mark.parametrize("sizes", [(24, 1148, 111), (96, 96, 96), (101, 655, 94), (2, 77, 557)])
def test_no_tile_costs_less_than_the_one_that_is_taken(sizes: tuple[int, int, int]) -> None:
    kernel = simplified(*sizes)
    found = find_contraction(kernel, ONE_THREAD)
    assert found is not None
    every = [Tile(n, m, 16) for n in range(2, 17) for m in range(1, 9) if n * m + m + 1 <= 32]
    ways = contractions(kernel, AUTOMATIC, ONE_THREAD)
    costs = [cost(way, tile, ONE_THREAD) for way in ways for tile in every]
    assert cost(*found, ONE_THREAD) <= min(costs)


def test_what_tables_take_is_asked_of_no_tile_that_is_slower_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A long way over few rows, too: it is not searched for its own best tile."""
    asked: list[tuple[Contraction, Tile]] = []

    def filling_asked(way: Contraction, tile: Tile, target: Target, override: Schedule) -> float:
        asked.append((way, tile))
        return filling(way, tile, target, override)

    monkeypatch.setattr(tiles, "filling", filling_asked)
    found = find_contraction.__wrapped__(simplified(2, 77, 557), ONE_THREAD)
    assert found is not None
    least = cost(*found, ONE_THREAD)
    assert asked
    assert all(least_cycles(tile, way, ONE_THREAD) <= least for way, tile in asked)


def test_a_table_that_few_rows_read_is_not_filled() -> None:
    """A tile of few rows would be the fastest with a table, which takes longer to fill than all tiles take."""
    found = find_contraction(simplified(24, 1148, 111), ONE_THREAD)
    assert found is not None
    way, _ = found
    assert size_of(way.rows) == 24


def test_results_of_short_sums_are_written_from_end_to_end_of_their_rows() -> None:
    tile = Tile(8, 3, 16)
    assert goes_along_rows(tile, product(795, 13, 1601), ONE_THREAD)
    assert not goes_along_rows(
        tile, product(795, 1300, 1601), ONE_THREAD
    )  # columns would come anew
    assert not goes_along_rows(tile, product(16, 16, 16), ONE_THREAD)  # all stays near
    assert choose_blocks(product(795, 13, 1601), tile, ONE_THREAD).row_tiles == 1


@pytest.mark.parametrize("sizes", [(1057, 154, 1409), (1500, 300, 1501)])
@pytest.mark.parametrize("turned", [(False, False), (False, True)])
def test_results_that_leave_the_second_cache_are_written_from_end_to_end_with_a_table_of_all_columns(
    sizes: tuple[int, int, int], turned: tuple[bool, bool]
) -> None:
    """Each line of a tile of some columns alone would be waited for; of few results none is."""
    tile = Tile(8, 3, 16)
    way = product(*sizes, turned)
    assert planned_staging(way, tile, ONE_THREAD).columns
    assert choose_blocks(way, tile, ONE_THREAD).row_tiles == 1
    few = product(24, *sizes[1:], turned)
    assert not planned_staging(few, tile, ONE_THREAD).columns
    long_sum = product(1057, 1540, 1409, turned)  # the table would leave the cache
    assert choose_blocks(long_sum, tile, ONE_THREAD).row_tiles > 1


def test_results_of_a_batch_are_waited_for_as_those_of_one_long_product() -> None:
    a, b = Tensor.empty(7, 559, 213).realize(), Tensor.empty(7, 359, 213).realize()
    (call,) = calls(a @ b.transpose(1, 2))
    found = find_contraction(simplified_body(call.src[0]), ONE_THREAD)
    assert found is not None and planned_staging(*found, ONE_THREAD).columns
    assert choose_blocks(*found, ONE_THREAD).row_tiles == 1


@pytest.mark.parametrize(("rows", "is_in_blocks"), [(512, True), (768, True), (4096, False)])
def test_a_long_sum_is_taken_in_blocks_whose_rows_stay_near(rows: int, is_in_blocks: bool) -> None:
    """All columns of a block take all rows of it: those come from memory each time where two second caches do not hold them."""
    way = product(rows, 8192, 1024)
    assert bool(choose_reduction_block(way, ONE_THREAD)) is is_in_blocks


def test_rows_of_a_batch_in_more_pages_than_are_foreseen_are_waited_for() -> None:
    a, b = Tensor.empty(12, 256, 64).realize(), Tensor.empty(12, 256, 1024).realize()
    (call,) = calls(a.transpose(1, 2) @ b)
    found = find_contraction(simplified_body(call.src[0]), ONE_THREAD)
    assert found is not None and not found[0].is_apart  # which would read 256 pages a tile


def test_one_vector_a_row_leaves_no_port_for_lines_across_and_comes_slowly_from_memory() -> None:
    """Wide tiles load between multiplications, and read more of a row of the columns at a time."""
    tall, wide = Tile(15, 1, 16), Tile(8, 3, 16)
    odd, even = product(15, 153, 459), product(15, 153, 464)
    tall_more, wide_more = [
        (cost(odd, tile, ONE_THREAD) - cost(even, tile, ONE_THREAD)) / cost(even, tile, ONE_THREAD)
        for tile in (tall, wide)
    ]
    assert 0 < wide_more < tall_more
    far, near = product(15, 1153, 624), product(15, 400, 624)  # 2.9 MB, 1 MB
    per_step = [cost(way, tall, ONE_THREAD) / way.depth for way in (far, near)]
    assert per_step[0] > 1.2 * per_step[1]
    found = find_contraction(simplified(15, 1153, 624), ONE_THREAD)
    assert found is not None and found[1].vectors > 1


def test_sums_of_blocks_are_loaded_as_well_as_stored() -> None:
    kernel = simplified(25, 780, 1357)
    (way, *_) = contractions(kernel)
    loop = way.reduction.src[-1]
    in_blocks = replace(way, blocks=(UOp.range(26, 99),))
    assert loop is in_blocks.reduction.src[-1]
    tile = Tile(8, 3, 16)
    once = cycles_of_tiles(tile, 1, in_blocks, ONE_THREAD) / 26
    assert once > cycles_of_tiles(tile, 1, way, ONE_THREAD)


def test_one_thread_takes_all_tiles_as_one_item() -> None:
    way = product(64, 700, 160)
    assert choose_blocks(way, Tile(8, 2, 16), ONE_THREAD) == Blocks(8, 5)
    shared = choose_blocks(way, Tile(8, 2, 16), replace(ONE_THREAD, threads=4))
    assert -(-8 // shared.row_tiles) * -(-5 // shared.column_tiles) > 4


def test_columns_across_lines_are_packed_where_enough_tiles_read_them() -> None:
    tile = Tile(12, 2, 16)
    assert packs_columns(product(572, 148, 110), tile, ONE_THREAD)
    assert not packs_columns(product(572, 148, 112), tile, ONE_THREAD)  # whole lines
    assert not packs_columns(product(24, 148, 110), tile, ONE_THREAD)


AVX2 = replace(
    ONE_THREAD, vector_bytes=32, vector_registers=16, cache_bytes=1 << 20,
    first_cache=FirstCache(32 << 10, 8), core=Core(mask_registers=16),
)  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "tile", "is_in_memory"),
    [
        (43, Tile(4, 3, 8), True),  # 12 sums, 3 vectors of columns and an element: 16 registers
        (43, Tile(6, 2, 8), False),  # one register is left
        (40, Tile(4, 3, 8), False),  # whole vectors ask for no mask of lanes
    ],
)
def test_columns_are_packed_where_the_mask_of_the_last_takes_the_register_of_a_sum(
    columns: int, tile: Tile, is_in_memory: bool
) -> None:
    """Each step would add to it in memory: 422 x 68 by 68 x 43 in tiles of 4 x 3 took 56 us, packed 37."""
    way = product(422, 68, columns)
    more = cycles_in_place(tile, way, AVX2) - cycles_across_lines(tile, way, AVX2)
    assert (more > 0) == is_in_memory
    assert packs_columns(way, tile, AVX2) or not is_in_memory
    has_mask_registers = replace(AVX2, core=Core())
    assert cycles_in_place(tile, way, has_mask_registers) == cycles_across_lines(
        tile, way, has_mask_registers
    )


def table_cycles(
    way: Contraction, staged: Staged, tile: Tile = Tile(4, 3, 8), target: Target = AVX2
) -> float:
    """Of an element of the one operand that gets a table."""
    factor = way.row_factor if staged.rows else way.column_factor
    filling_it = cycles_of_tables(way, staged, tile, target) - target.core.launch_cycles
    return filling_it / table_elements(factor)


def test_a_table_takes_as_long_as_memory_where_it_leaves_the_second_cache() -> None:
    columns = Staged(rows=False, columns=True)
    near, far = table_cycles(product(128, 500, 500), columns), AVX2.core.copy_cycles
    assert near == PACKING_CYCLES / 8  # as long as items take to pack a vector
    assert table_cycles(product(128, 1500, 1000), columns) == far
    assert near < table_cycles(product(128, 500, 800), columns) < far


def test_memory_takes_twice_as_long_for_elements_twice_as_long() -> None:
    body = matmul(128, 1500, 1000, dtype=dtypes.float64)
    way = next(x for x in contractions(simplified_body(body)) if size_of(x.rows) == 128)
    cycles = table_cycles(way, Staged(rows=False, columns=True), Tile(4, 3, 4))
    assert cycles == 2 * AVX2.core.copy_cycles


def test_the_last_tile_of_a_table_of_rows_may_have_fewer() -> None:
    """Its end is written out: 500 and 501 rows by 500 steps took as long."""
    rows, turned = Staged(rows=True, columns=False), (True, False)
    tiles = [Tile(n, 2, 8) for n in (4, 6)]
    even, odd = [table_cycles(product(n, 500, 96, turned), rows) for n in (400, 401)]
    assert even == odd < AVX2.core.copy_apart_cycles
    four, six = [table_cycles(product(400, 500, 96, turned), rows, tile) for tile in tiles]
    assert [four, six] == pytest.approx(
        [PACKING_CYCLES / 4, PACKING_CYCLES / 3]
    )  # 6 are two shorter vectors


def test_each_table_is_a_kernel_more() -> None:
    way, tile = product(128, 500, 500, (True, False)), Tile(4, 3, 8)
    one = [cycles_of_tables(way, Staged(*x), tile, AVX2) for x in ((True, False), (False, True))]
    assert cycles_of_tables(way, Staged(True, True), tile, AVX2) == sum(one)
    assert cycles_of_tables(way, Staged(False, False), tile, AVX2) == 0


@pytest.mark.parametrize(
    ("columns", "lanes", "part"),
    [(110, 16, 7 / 8), (112, 16, 0), (111, 16, 15 / 16), (111, 8, 7 / 16)],
)
def test_vectors_reach_over_the_ends_of_lines_as_their_rows_lie(
    columns: int, lanes: int, part: float
) -> None:
    way = product(64, 10, columns)
    whole = cycles_across_lines(Tile(4, 1, 16), product(64, 10, 111), ONE_THREAD) / (15 / 16)
    assert cycles_across_lines(Tile(4, 1, lanes), way, ONE_THREAD) == pytest.approx(part * whole)


def test_rows_far_away_in_memory_get_a_table_for_two_readers() -> None:
    turned = (True, False)
    assert readers_worth_a_table(product(1481, 1565, 93, turned), ONE_THREAD) == 2
    assert readers_worth_a_table(product(148, 156, 93, turned), ONE_THREAD) == 4  # in the cache
    assert readers_worth_a_table(product(1481, 1565, 93), ONE_THREAD) == 4  # foreseen


def test_rows_that_are_read_in_place_sooner_than_a_table_is_filled_get_none() -> None:
    turned, tile = (True, False), Tile(4, 5, 16)
    for target in (ONE_THREAD, replace(ONE_THREAD, threads=2)):
        assert not planned_staging(product(1211, 35, 390, turned), tile, target).rows
        assert planned_staging(product(1024, 1024, 1000, turned), tile, target).rows  # far away


@pytest.mark.parametrize("threads", [1, 2])
def test_columns_are_packed_once_where_memory_brings_rows_as_soon_as_they_are_multiplied(
    threads: int,
) -> None:
    """Its 198 rows do not stay in the second cache; packed in three parts the columns would come from memory three times."""
    tile, target = Tile(6, 4, 16), replace(ONE_THREAD, threads=threads)
    way = product(197, 3072, 768, (False, True))
    assert row_tiles_of_an_item(way, tile, target) == 33
    slow = replace(target, core=Core(memory_bytes_a_cycle=0.5))
    near = product(197, 1536, 768, (False, True))  # its columns are 4.7 MB, its rows 1.2
    assert row_tiles_of_an_item(near, tile, slow) == 33


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(
    "sizes", [(71, 15, 199), (57, 148, 110), (148, 20, 147), (24, 111, 33), (331, 40, 1733)]
)
def test_products_of_odd_sizes_are_those_of_numpy(
    sizes: tuple[int, int, int], turned: tuple[bool, bool]
) -> None:
    rows, depth, columns = sizes
    rng = np.random.default_rng(3)
    one = rng.integers(-4, 5, (depth, rows) if turned[0] else (rows, depth)).astype(np.float32)
    other = rng.integers(-4, 5, (columns, depth) if turned[1] else (depth, columns)).astype(
        np.float32
    )
    a, b = [array.T if is_turned else array for array, is_turned in zip((one, other), turned)]
    x, y = [
        Tensor(array).T if is_turned else Tensor(array)
        for array, is_turned in zip((one, other), turned)
    ]
    assert ((x @ y).numpy() == a @ b).all()


def test_steps_that_share_nothing_are_not_written_out_beside_many_products() -> None:
    """More of them would only be more code; a short sum has no loop, and long rows are asked for ahead, some steps at once."""
    large, small, column = Tile(13, 2, 16), Tile(2, 2, 16), Tile(13, 1, 16)
    turned = product(96, 300, 80, turned=(True, False))
    assert [choose_depth(turned, tile, ONE_THREAD) for tile in (large, small, column)] == [1, 4, 4]
    assert [choose_depth(product(96, n, 80), large, ONE_THREAD) for n in (4, 16, 64, 300)] == [
        4,
        4,
        1,
        4,
    ]


def test_short_sums_are_written_out_whole_where_registers_are_left() -> None:
    """Tiles that fill 16 registers take 7 steps in a loop (0.54 ms became 0.39), as many of 9 as divide them, and 5 x 2 vectors all 9 at once."""
    haswell = replace(ONE_THREAD, vector_bytes=32, vector_registers=16)
    full, small = Tile(4, 3, 8), Tile(5, 2, 8)
    assert [choose_depth(product(96, n, 80), full, haswell) for n in (4, 7, 8, 9)] == [4, 1, 4, 3]
    assert [choose_depth(product(96, n, 80), small, haswell) for n in (7, 9)] == [7, 9]
    assert [choose_depth(product(96, n, 80), full, haswell) for n in (32, 33, 35)] == [2, 3, 1]


def test_tall_tiles_of_one_vector_take_step_by_step_where_sums_would_move() -> None:
    """Without products that load their element themselves: 594 x 2174 by (21 x 2174).T in tiles of 13 rows took 1.24 ms two steps at a time, 0.75 now."""
    haswell = replace(ONE_THREAD, vector_bytes=32, vector_registers=16)
    haswell = replace(haswell, core=replace(haswell.core, mask_registers=16))
    way = product(96, 300, 80)
    assert [choose_depth(way, Tile(rows, 1, 8), haswell) for rows in (13, 8, 7)] == [1, 1, 4]
    assert choose_depth(way, Tile(13, 1, 16), ONE_THREAD) == 4


@pytest.mark.heuristics
@pytest.mark.parametrize("sizes", [(82, 101, 69), (345, 85, 73), (46, 152, 72)])
def test_all_columns_that_stay_in_the_first_cache_are_one_tile(sizes: tuple[int, int, int]) -> None:
    """Only rows go by beside them: (82, 101, 69) in tiles of 14 x 1 vectors took 1.6 times as long as in such of 5 x 5."""
    found = find_contraction(simplified(*sizes), ONE_THREAD)
    assert found is not None
    assert found[1].vectors == 5


def depths_of_windows(
    width: int, stride: int, tile: Tile, dilation: int = 1, target: Target = ONE_THREAD
) -> dict[int, int]:
    """The steps at once of a convolution by so many columns, by how many steps later windows of rows share."""
    x, w = Tensor.empty(1, 8, 32, 64).realize(), Tensor.empty(8, 8, 1, width).realize()
    convolution = x.conv2d(w, stride=(1, stride), dilation=(1, dilation))
    (call,) = calls(convolution)
    ways = contractions(simplified_body(call.src[0]), AUTOMATIC, target)
    return {way.window.lag: choose_depth(way, tile, target) for way in ways}


def test_windows_share_what_steps_read_that_run_at_once() -> None:
    depths = depths_of_windows(20, 1, Tile(9, 2, 16))
    assert depths[1] == 4 and {depths[step] for step in depths if step != 1} == {2}


def test_windows_share_no_more_than_registers_hold() -> None:
    """What steps read again stays in registers beside the sums: else LLVM would keep it on the stack."""
    assert depths_of_windows(20, 1, Tile(13, 2, 16))[1] == 1
    assert depths_of_windows(3, 2, Tile(14, 1, 16))[2] == 3  # 13 elements, 14 sums, columns
    assert depths_of_windows(4, 2, Tile(14, 1, 16))[2] == 2
    assert depths_of_windows(7, 2, Tile(16, 1, 16))[2] == 1
    # Steps share nothing: elements of the next were loaded ahead, and sums went by way of the stack.
    assert depths_of_windows(2, 2, Tile(14, 2, 16))[0] == 1
    # 7 elements wait for the step after, 7 for the one behind it: one is loaded into the register of the one that is done with.
    assert depths_of_windows(7, 2, Tile(8, 2, 16))[2] == 7
    assert depths_of_windows(7, 2, Tile(9, 2, 16))[2] == 1
    # 4 elements wait for the step after, and one more is loaded: a sum was kept in memory, which took twice as long.
    haswell = replace(
        ONE_THREAD, vector_bytes=32, vector_registers=16, core=Core(mask_registers=16)
    )
    assert depths_of_windows(20, 1, Tile(5, 2, 8), target=haswell)[1] == 1
    assert depths_of_windows(20, 1, Tile(4, 2, 8), target=haswell)[1] == 4
    # 7 elements of stride 2 wait while 8 others go by, one at a time: a sum was kept in memory, which took three times as long.
    assert depths_of_windows(3, 2, Tile(8, 1, 8), target=haswell)[2] == 1
    assert depths_of_windows(3, 2, Tile(7, 1, 8), target=haswell)[2] == 3


def test_windows_with_holes_share_what_lies_in_rows_further_on() -> None:
    """3 x 3 with a dilation of 2 in tiles of 14 x 2: three steps at once took half as long again as one."""
    assert depths_of_windows(3, 1, Tile(14, 2, 16), dilation=2)[1] == 1
    assert depths_of_windows(3, 1, Tile(8, 2, 16), dilation=2)[1] == 3
    assert depths_of_windows(3, 2, Tile(14, 2, 16), dilation=2)[1] == 1
    assert (
        depths_of_windows(3, 1, Tile(14, 2, 16), dilation=20)[1] == 3
    )  # 20 rows further on is another tile


@pytest.mark.heuristics
@pytest.mark.parametrize("sizes", [(31, 908, 484), (46, 384, 998), (93, 2976, 171)])
def test_rows_of_a_tile_are_not_of_a_matrix_each_step_of_which_is_in_another_page(
    sizes: tuple[int, int, int],
) -> None:
    """The elements of a step begin anywhere in a line, which comes from the second cache."""
    found = find_contraction(simplified(*sizes), ONE_THREAD)
    assert found is not None and found[0].rows_lie_along_depth


@pytest.mark.parametrize("sizes", [(6160, 233, 3), (1000, 512, 5), (800, 700, 4)])
def test_rows_by_a_few_columns_are_read_where_they_lie(sizes: tuple[int, int, int]) -> None:
    """Rows that are transposed go to the second cache and back (measured: 1.3 to 1.7 times as long)."""
    found = find_contraction(simplified(*sizes), ONE_THREAD)
    assert found is not None
    way, tile = found
    assert size_of(way.rows) == sizes[0]
    assert not packs_columns(way, tile, ONE_THREAD)


@pytest.mark.parametrize("stride", [1, 2])
def test_windows_side_by_side_in_lines_are_no_line_each(stride: int) -> None:
    """Of stride 2 eight are in a line: to get it is no load for each, and tall tiles of one vector are as fast as of stride 1."""
    x, w = Tensor.empty(8, 64, 57, 14 * stride + 2).realize(), Tensor.empty(128, 64, 3, 3).realize()
    (call,) = calls(x.conv2d(w, stride=stride))
    found = find_contraction(simplified_body(call.src[0]), ONE_THREAD)
    assert found is not None
    way, tile = found
    assert way.rows_of_a_line(16) == 16 // stride
    assert tile.rows == 14


def test_windows_of_a_transposed_convolution_share_what_they_read() -> None:
    """They are those of an image that was padded once, and ask for no mask: with what two steps share 6 x 2 sums do not stay in 16 registers (2.6 ms became 2.1)."""
    x, w = Tensor.empty(2, 64, 28, 28).realize(), Tensor.empty(64, 32, 4, 4).realize()
    y = x.conv_transpose2d(w, stride=2, padding=1)
    kernels = calls(y)
    ways = [way for call in kernels for way in contractions(simplified_body(call.src[0]))]
    haswell = replace(ONE_THREAD, vector_bytes=32, vector_registers=16)
    way = next(way for way in ways if way.window.lag == 1)
    assert not any(way.has_masked_rows or way.has_masked_columns for way in ways)
    assert choose_depth(way, Tile(6, 2, 8), haswell) == 1
    assert choose_depth(way, Tile(5, 2, 8), haswell) == 2


@pytest.mark.heuristics
@pytest.mark.parametrize("images, channels, filters, size", [(2, 434, 291, 9), (8, 512, 512, 9)])
def test_weights_that_leave_the_second_cache_are_columns_of_tiles_along_a_line(
    images: int, channels: int, filters: int, size: int
) -> None:
    """As rows each line would fetch them anew; with images as rows their lines come from the second cache for each result."""
    x = Tensor.empty(images, channels, size, size).realize()
    w = Tensor.empty(filters, channels, 3, 3).realize()
    haswell = replace(
        ONE_THREAD, vector_bytes=32, vector_registers=16, cache_bytes=1 << 20,
        first_cache=FirstCache(32 << 10, 8), core=Core(mask_registers=16),
    )  # fmt: skip
    (call,) = calls(x.conv2d(w), haswell)
    found = find_contraction(simplified_body(call.src[0]), haswell)
    assert found is not None
    assert size_of(found[0].columns) == filters
    assert found[0].window.lag == 1


@pytest.mark.heuristics
def test_results_whose_lines_push_each_other_out_are_not_stored_across_rows() -> None:
    """`a.T @ b` of 256 x 64 by 256 x 1024: 32 rows of results, 4096 bytes apart, share a set of 12 lines (0.33 ms became 0.21)."""
    rows, inner, columns = 64, 256, 1024
    a, b = Tensor.empty(inner, rows).realize(), Tensor.empty(inner, columns).realize()
    (call,) = calls(a.T @ b)
    found = find_contraction(simplified_body(call.src[0]), ONE_THREAD)
    assert found is not None and not found[0].is_apart


@pytest.mark.heuristics
@pytest.mark.parametrize("sizes", [(113, 1570, 502), (26, 3960, 133)])
def test_columns_whose_lines_leave_the_second_cache_are_not_read_where_they_lie(
    sizes: tuple[int, int, int],
) -> None:
    """Vectors of them take less than half of it, and the lines that these reach over more: for each tile of rows they would come from memory."""
    target = replace(
        ONE_THREAD, vector_bytes=32, vector_registers=16, cache_bytes=512 << 10, scratch_bytes=256 << 10,
        first_cache=FirstCache(32 << 10, 8), core=Core(mask_registers=16),
    )  # fmt: skip
    found = find_contraction(simplified(*sizes), target)
    assert found is not None
    way, tile = found
    assert planned_staging(way, tile, target).columns or packs_columns(way, tile, target)


@pytest.mark.heuristics
@pytest.mark.parametrize("columns", [2, 3, 5, 9, 17, 36, 50])
def test_a_matrix_that_no_cache_holds_is_not_transposed_for_few_columns(columns: int) -> None:
    """Lanes of the last vector are empty then, but rows are read as they lie, while others multiply."""
    found = find_contraction(simplified(1898, 1844, columns), ZEN4)
    assert found is not None
    assert size_of(found[0].rows) == 1898 and not packs_columns(*found, ZEN4)


def test_columns_that_memory_brings_are_waited_for_where_more_are_read_than_are_foreseen() -> None:
    """Of a matrix that stays near none is."""
    for rows, are_waited_for in ((200, False), (2000, True)):
        turned = [c for c in contractions(simplified(9, 2000, rows, (False, True)), AUTOMATIC, ZEN4)
                  if size_of(c.columns) == rows]  # fmt: skip
        few, many = [cycles_to_bring_apart(Tile(9, n, 16), turned[0], ZEN4) for n in (1, 3)]
        assert (0 < few < many) if are_waited_for else few == many == 0


def test_vectors_of_a_units_length_are_multiplied_faster_where_whole_ones_run_in_halves() -> None:
    whole = replace(ZEN4, core=replace(ZEN4.core, unit_bytes=64))
    (contraction, *_) = contractions(simplified(96, 1000, 8), AUTOMATIC, ZEN4)
    tile = Tile(16, 1, 8)
    halved, unhalved = [cycles_of_tiles(tile, 1, contraction, t) for t in (ZEN4, whole)]
    assert halved < unhalved
    assert least_cycles(tile, contraction, ZEN4) <= halved
    assert ZEN4.of_a_whole_vector(64) == whole.of_a_whole_vector(32) == 1


@pytest.mark.parametrize("columns", [2, 3, 5, 8])
def test_few_columns_are_turned_so_that_vectors_run_along_the_sum(columns: int) -> None:
    """As a linear layer of few results: rows lie so, and what is turned is short."""
    way, tile = find_contraction(simplified(1000, 512, columns), ZEN4) or pytest.fail("no tile")
    assert (size_of(way.rows), tile.lanes) == (1000, 1) and not way.lies_along_sum
    assert planned_staging(way, tile, ZEN4) == Staged(False, True)
    rng = np.random.default_rng(columns)
    one = rng.standard_normal((1001, 517)).astype(np.float32)
    other = rng.standard_normal((517, columns)).astype(np.float32)
    assert np.allclose((Tensor(one) @ Tensor(other)).numpy(), one @ other, atol=1e-3)


def test_many_short_rows_at_once_are_waited_for_where_memory_brings_them() -> None:
    """Of sums whose vectors run along it: 4 rows of 100,000 go by sooner than 8."""
    for rows, lanes_of in ((100_000, {2, 3, 4}), (1000, {5, 6, 7, 8})):
        way, tile = find_contraction(simplified(rows, 64, 3), ZEN4) or pytest.fail("no tile")
        assert tile.lanes == 1 and tile.rows in lanes_of, (rows, tile)
