"""Tiles of groups are chosen by what was timed on an H100: how many groups a unit has, which tile is the best of those that were timed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_tiles import moved, parameter

from proofgrad.backends.ptx.matrix_units import matrix_units
from proofgrad.backends.ptx.runtime import PTXBackend
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import (
    AUTOMATIC,
    Schedule,
    SharedTile,
    Tile,
    WarpTile,
    read_schedule,
)
from proofgrad.core.compile.passes.stages import run_stages
from proofgrad.core.compile.schedule import shared_tiles, warp_tiles
from proofgrad.core.compile.schedule.choose_schedule import choose_schedule
from proofgrad.core.compile.schedule.occupancy import GroupShape, groups_of_unit
from proofgrad.core.compile.schedule.row_products import Sizes
from proofgrad.core.compile.schedule.shared_tiles import copies_ahead, find_product
from proofgrad.core.compile.schedule.warp_rows import tile_of_warps, units_of
from proofgrad.core.ir.dtypes import DType, dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compiler
from proofgrad.rules.pipeline import KERNEL_STAGES

H100 = replace(
    PTXBackend(None, "nothing is run").target, matrix_units=matrix_units(90), copies_ahead=True
)
# Microseconds on an H100, of products of 4096 (float64: 2048) whose second factor lies along its columns.
TIMED_WARPS = {
    dtypes.bfloat16: {
        "2x2x4x8": 451, "4x1x4x8": 463, "2x2x4x4": 485, "2x4x4x4": 493, "4x2x4x4": 499, "2x2x8x4": 501, "2x4x4x8": 521,
        "4x2x4x8": 523, "1x4x4x8": 530, "2x4x8x4": 540, "1x4x4x4": 573, "4x1x2x8": 598, "2x4x2x4": 610, "2x2x2x8": 613,
        "4x1x4x4": 635, "2x4x2x8": 695,
    },
    dtypes.float64: {
        "4x2x8x2": 676, "4x2x4x4": 695, "2x4x8x2": 754, "2x2x8x2": 755, "4x2x8x4": 765, "1x4x8x2": 772, "2x2x4x4": 785,
        "2x2x8x4": 834, "2x4x4x4": 849, "4x2x4x8": 860, "2x2x4x8": 939, "2x4x8x4": 991, "4x2x1x8": 1122, "2x4x4x8": 1202,
        "2x4x1x8": 1643, "1x4x1x8": 3043,
    },
}  # fmt: skip
TIMED_SHARED = {
    "8x4x4 4x16x16": 3409, "8x4x4 8x8x16": 3450, "8x4x4 16x8x16": 3527, "8x1x4 8x8x16": 3572, "8x4x4 8x16x16": 3676,
    "8x2x4 8x16x16": 3793, "8x2x4 8x8x16": 3801, "8x2x4 16x8x16": 3835, "4x2x4 8x16x16": 3841, "4x2x4 16x16x16": 3976,
    "8x2x4 8x8x8": 4030, "4x4x4 16x16x8": 4124, "8x1x4 16x8x8": 4202,
}  # fmt: skip


TOTALS = {dtypes.bfloat16: dtypes.float32, dtypes.int8: dtypes.int32}


def kernel(rows: int, steps: int, columns: int, dtype: DType, turned: bool = False) -> UOp:
    """A product as its tile is chosen. `turned`: the second factor lies along the steps."""
    total, size = TOTALS.get(dtype, dtype), (rows, steps, columns)
    one = moved(Ops.RESHAPE, parameter(1, rows, steps, dtype=dtype), (rows, steps, 1))
    other = parameter(2, *((columns, steps) if turned else (steps, columns)), dtype=dtype)
    other = moved(Ops.PERMUTE, other, (1, 0)) if turned else other
    other = moved(Ops.RESHAPE, other, (1, steps, columns))
    factors = [moved(Ops.EXPAND, x, size) for x in (one, other)]
    if total is not dtype:
        factors = [UOp(Ops.CAST, total, (x,)) for x in factors]
    body = UOp.sink(
        UOp(Ops.REDUCE_AXIS, total, (UOp(Ops.MUL, total, tuple(factors)),), (Ops.ADD, (1,)))
    )
    stages = [stage.name for stage in KERNEL_STAGES].index("sum in blocks")
    return run_stages(KERNEL_STAGES[:stages], body, compiler().library, H100)


def chosen(body: UOp, override: Schedule = AUTOMATIC, target: Target = H100) -> Schedule:
    return choose_schedule(body, target, override)


@pytest.mark.parametrize(
    ("shape", "groups"),
    [
        (GroupShape(256, 64, 0), 2),  # registers: 4 parts of 16384, each for 4 warps of 32 * 128
        (GroupShape(64, 128, 0), 4),  # and for 2 of 32 * 192, of which none may have more
        (GroupShape(256, 128, 0), 1),
        (GroupShape(1024, 0, 0), 1),
        (GroupShape(256, 0, 0), 4),
        (GroupShape(64, 0, 50 << 10), 4),  # memory: 228 KB, and 1 KB lost to each
        (GroupShape(64, 0, 227 << 10), 1),
        (GroupShape(64, 0, 500 << 10), 1),  # at least one, whether it runs or not
    ],
)
def test_groups_of_a_unit_are_as_many_as_it_has_room_for(shape: GroupShape, groups: int) -> None:
    assert groups_of_unit(shape, H100) == groups


def test_a_unit_of_which_nothing_is_known_is_taken_to_have_two_groups() -> None:
    assert groups_of_unit(GroupShape(64, 64, 4096), Target("t", local_bytes=8192)) == 2


@pytest.mark.parametrize("dtype", list(TIMED_WARPS))
def test_the_cheapest_of_the_tiles_of_warps_that_were_timed_is_nearly_the_fastest(
    dtype: DType,
) -> None:
    size = 2048 if dtype is dtypes.float64 else 4096
    product = find_product(kernel(size, size, size, dtype))
    assert product is not None
    unit = warp_tiles.unit_of(product, H100)
    assert unit is not None
    unit = replace(
        unit, word=0
    )  # as it was timed: items read by themselves, and moved what they read
    ways = {text: WarpTile(*map(int, text.split("x"))) for text in TIMED_WARPS[dtype]}
    by_element = [x.is_by_element for x in warp_tiles.operands_of(product, unit, H100)]
    costs = {
        text: warp_tiles.cycles_of_tile(way, unit, product, by_element, H100)
        for text, way in ways.items()
    }
    timed = TIMED_WARPS[dtype]
    assert timed[min(costs, key=lambda text: costs[text])] <= 1.05 * min(timed.values())
    slow = [text for text, time in timed.items() if time > 1.5 * min(timed.values())]
    assert slow and all([costs[text] > 1.1 * min(costs.values()) for text in slow])


def test_the_cheapest_of_the_tiles_of_items_that_were_timed_is_nearly_the_fastest() -> None:
    product = find_product(kernel(4096, 4096, 4096, dtypes.float32))
    assert product is not None
    costs = {}
    for text in TIMED_SHARED:
        tile, shared = [tuple(map(int, part.split("x"))) for part in text.split()]
        costs[text] = shared_tiles._cost(Tile(*tile), SharedTile(*shared), product, H100)
    fastest = TIMED_SHARED[min(costs, key=lambda text: costs[text])]
    assert fastest <= 1.05 * min(TIMED_SHARED.values())


def test_a_warp_that_waits_once_in_a_block_takes_the_tile_that_asks_for_less_of_the_second_cache() -> (
    None
):
    """128 x 256: 41.8 multiply-adds for a byte of it, where 128 x 128 has 31.5. A group of 8 warps is alone on a unit."""
    for turned in (False, True):
        found = chosen(kernel(4096, 4096, 4096, dtypes.bfloat16, turned))
        assert (str(found.warps), found.ahead) == ("2x4x4x8", 3)
    waiting = chosen(
        kernel(4096, 4096, 4096, dtypes.bfloat16), target=replace(H100, copies_ahead=False)
    )
    assert str(waiting.warps) == "2x2x4x8"


SIZES = [(4096, 4096, 4096), (1024, 1024, 1024), (1000, 700, 900), (4001, 3001, 2003), (65, 33, 67)]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("dtype", [dtypes.bfloat16, dtypes.float64, dtypes.int8])
def test_tiles_of_warps_are_no_larger_than_products_and_give_units_work(
    sizes: tuple[int, int, int], dtype: DType
) -> None:
    for turned in (False, True):
        found = chosen(kernel(*sizes, dtype, turned)).warps
        assert found is not None and found.warps
        unit = next(one for one in H100.matrix_units if one.factor is dtype)
        high, wide = warp_tiles.tile_sizes(found, unit)  # type: ignore[arg-type]
        groups = -(-sizes[0] // high) * -(-sizes[2] // wide)
        small = sizes[0] * sizes[2] < 64 * 64 * H100.units
        assert groups >= (1 if small else H100.units // 2)
        assert high < 2 * sizes[0] + 32 and wide < 2 * sizes[2] + 32


@pytest.mark.parametrize("sizes", SIZES)
def test_tiles_of_items_give_units_work(sizes: tuple[int, int, int]) -> None:
    for turned in (False, True):
        found = chosen(kernel(*sizes, dtypes.float32, turned))
        assert found.tile is not None and found.shared is not None
        high, wide = found.tile.rows * found.shared.rows, found.tile.columns * found.shared.columns
        groups = -(-sizes[0] // high) * -(-sizes[2] // wide)
        assert groups >= (H100.units // 2 if sizes[0] * sizes[2] > 32 * 32 * H100.units else 1)


def test_copies_that_go_on_by_themselves_go_several_blocks_ahead() -> None:
    together = chosen(kernel(4096, 4096, 4096, dtypes.bfloat16, turned=True))
    across = chosen(kernel(4096, 4096, 4096, dtypes.bfloat16))  # ldmatrix.trans
    by_element = chosen(kernel(4096, 4096, 4096, dtypes.int8), read_schedule("staged=none"))
    assert (together.ahead, across.ahead, by_element.ahead) == (3, 3, 1)
    assert chosen(kernel(4096, 64, 4096, dtypes.bfloat16, turned=True)).ahead == 1  # of two blocks
    assert chosen(kernel(4096, 16, 4096, dtypes.bfloat16, turned=True)).ahead == 0


def test_no_group_is_lost_for_more_blocks_ahead() -> None:
    shape = GroupShape(256, 64, 40 << 10)  # two by registers: 113 KB each
    assert copies_ahead(shape, 100, 3, H100, AUTOMATIC) == 1
    assert copies_ahead(replace(shape, kept_bytes=28 << 10), 100, 3, H100, AUTOMATIC) == 3
    assert copies_ahead(replace(shape, kept_bytes=120 << 10), 100, 3, H100, AUTOMATIC) == 0
    assert copies_ahead(shape, 100, 1, H100, read_schedule("ahead=4")) == 4
    assert copies_ahead(shape, 100, 1, H100, read_schedule("ahead=5")) == 0
    assert copies_ahead(shape, 100, 1, replace(H100, copies_ahead=False), AUTOMATIC) is None


@pytest.mark.parametrize(
    ("wide", "dtype", "tiles"),
    [
        (128, dtypes.bfloat16, 8),
        (256, dtypes.bfloat16, 2),
        (192, dtypes.float32, 2),
        (256, dtypes.float32, None),
    ],
)
def test_attention_takes_as_many_keys_as_registers_hold_beside_queries(
    wide: int, dtype: DType, tiles: int | None
) -> None:
    """Queries of 256 columns are 64 or 128 registers of an item, its sums 128."""
    unit = units_of((dtype, dtypes.float32), dtype is dtypes.float32, H100)
    assert unit is not None
    made = tile_of_warps(Sizes(4096, 4096, wide, wide), unit, 2, H100)
    assert (None if made is None else made.column_tiles) == tiles
