"""Attention whose warps have several tiles of rows: right for any size, proved, keys read once for all of them; which tile is chosen."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from planted.gpu_faults import DEVICE
from test_held_by_items import changed
from test_occupancy import H100
from test_row_products import attention
from test_tf32 import rounded
from test_warp_blocks import Holding
from test_warp_rows import BRAIN, HALF, assert_close, far, given, kernels_of  # noqa: F401
from test_warp_tiles import values

from proofgrad import Context, dtypes, schedule
from proofgrad.backends.ptx.emit import emit
from proofgrad.backends.ptx.matrix_units import matrix_units, write_product
from proofgrad.core.compile.lowering.held_by_items import held_by_items
from proofgrad.core.compile.lowering.waits import waits
from proofgrad.core.compile.machine.target import CompileError
from proofgrad.core.compile.nests.kernel_schedule import WarpTile
from proofgrad.core.compile.schedule.occupancy import GroupShape, groups_of_unit
from proofgrad.core.compile.schedule.row_products import Sizes
from proofgrad.core.compile.schedule.warp_row_cycles import Pass, cycles_of_rows
from proofgrad.core.compile.schedule.warp_rows import (
    halves_of,
    has_registers,
    tile_of_warps,
    units_of,
)
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compile_only
from proofgrad.verify.kernels.waiting import what_races

WAYS = ("finite", "real")


@pytest.fixture(autouse=True)
def strict(far: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:  # noqa: F811
    """A step that is refused is an error."""
    monkeypatch.setenv("SPEC", "1")
    yield


# -- values -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("laws", WAYS)
@pytest.mark.parametrize(
    ("tile", "dtype", "sizes"),
    [
        ("1x1x2x2", HALF, (2, 33, 70, 20, 24)),
        ("2x1x2x4", HALF, (1, 130, 65, 64, 64)),
        ("1x1x2x2", BRAIN, (1, 47, 133, 32, 9)),
        ("1x1x2x2", dtypes.float64, (1, 35, 70, 3, 17)),
        ("1x1x4x2", HALF, (1, 65, 33, 16, 8)),
    ],
)
def test_attention_of_any_size_is_right(
    monkeypatch: pytest.MonkeyPatch,
    laws: str,
    tile: str,
    dtype: DType,
    sizes: tuple[int, int, int, int, int],
) -> None:
    monkeypatch.setenv("FASTMATH", laws)
    heads, rows, keys, depth, columns = sizes
    shapes = (heads, rows, depth), (heads, keys, depth), (heads, keys, columns)
    q, k, v = given(DEVICE, dtype, *shapes)
    with schedule(f"warps={tile}"):
        result = q.scaled_dot_product_attention(k, v)
        assert len(result.schedule()) == 1
        result.realize()
    assert_close(result, attention(values(q), values(k), values(v)))


@pytest.mark.parametrize("laws", WAYS)
def test_rounded_factors_and_a_causal_mask(monkeypatch: pytest.MonkeyPatch, laws: str) -> None:
    monkeypatch.setenv("FASTMATH", laws)
    q, k, v = given(DEVICE, dtypes.float32, (1, 70, 16), (1, 70, 16), (1, 70, 24))
    with schedule("warps=1x1x2x2"), Context(ALLOW_TF32=1):
        result = q.scaled_dot_product_attention(k, v, is_causal=True).realize()
    exact = [rounded(values(x)).astype(np.float64) for x in (q, k, v)]
    hidden = np.where(np.tri(70, dtype=bool), 0.0, -np.inf)
    np.testing.assert_allclose(values(result), attention(*exact, hidden), atol=1e-3, rtol=0)


# -- what is printed and held ------------------------------------------------------------------------


@pytest.mark.parametrize("laws", WAYS)
def test_tiles_of_rows_read_the_same_keys_and_values(
    monkeypatch: pytest.MonkeyPatch, laws: str
) -> None:
    """Of twice the rows twice the products, and as many loads of what a block has."""
    monkeypatch.setenv("FASTMATH", laws)
    q, k, v = given(Holding.name, HALF, (1, 64, 16), (1, 80, 16), (1, 80, 16))
    found = {}
    for tiles in (1, 2):
        with schedule(f"warps=1x1x{tiles}x2 ahead=off"):
            (kernel,) = kernels_of(q.scaled_dot_product_attention(k, v))
        text = emit(kernel, f"rows{tiles}", 90).text
        assert ".local" not in text
        found[tiles] = [
            len(re.findall(name, text)) for name in ("mma.sync", r"ldmatrix|ld\.shared\.v4")
        ]
    (products, loads), (products_of_two, loads_of_two) = found[1], found[2]
    assert products_of_two == 2 * products and loads_of_two == loads


def test_an_item_tells_the_others_of_a_row_one_number_for_its_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FASTMATH", "real")
    q, k, v = given(Holding.name, HALF, (1, 64, 16), (1, 80, 16), (1, 80, 16))
    with schedule("warps=1x1x1x2 ahead=off"):
        (kernel,) = kernels_of(q.scaled_dot_product_attention(k, v))
    told = [n.arg[1] for n in kernel.src if n.op is Ops.SCRATCH and n.dtype is dtypes.float32]
    held = [memory.arg[1] for memory in held_by_items(kernel)]
    assert sorted(held) == [16 * 16, 16 * 16]  # scores and powers of 16 rows and keys
    assert sorted(told) == [16 * 4, 16 * 4, *held]  # the largest and the sum, of 4 items of a row


def test_lanes_of_what_an_item_holds_are_its_own_and_others_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Four side by side: an element of these is the item's, the fifth is the next item's."""
    monkeypatch.setenv("FASTMATH", "real")
    q, k, v = given(Holding.name, HALF, (1, 32, 16), (1, 32, 16), (1, 32, 8))
    with schedule("warps=1x1x1x2 ahead=off"):
        (kernel,) = kernels_of(q.scaled_dot_product_attention(k, v))
    held = held_by_items(kernel)
    assert {x.lanes for x in held.values()} == {4}

    def memory_of(load: UOp) -> UOp | None:
        filled = load.src[0].src[0]
        return filled.src[0].src[0].src[0] if filled.op is Ops.FILLED else None

    loads = [n for n in kernel.src if n.op is Ops.LOAD and memory_of(n) in held]
    single = [n for n in loads if n.dtype.lanes == 1]
    found = waits(kernel, held)
    assert single and what_races(kernel, found, (), held) is None
    for apart in (4, -4, 5):
        load = single[0]
        there = load.src[0].with_src((load.src[0].src[0], load.src[0].src[1] + apart))
        moved = changed(kernel, {load: load.with_src((there,))})
        assert memory_of(load) not in held_by_items(moved)
        assert "another" in (what_races(moved, found, (), held) or "")


# -- proofs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("laws", WAYS)
@pytest.mark.parametrize(("keys", "ahead"), [(32, "on"), (33, "off")])
def test_the_solver_shows_attention_of_two_tiles_of_rows(
    monkeypatch: pytest.MonkeyPatch,
    laws: str,
    keys: int,
    ahead: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FASTMATH", laws)
    q, k, v = given(Holding.name, HALF, (1, 64, 16), (1, keys, 16), (1, keys, 8))
    capfd.readouterr()
    asked = Context(PROVE=1, PLANS=0)
    with schedule(f"warps=1x1x2x2 ahead={ahead}"), asked, compile_only():
        q.scaled_dot_product_attention(k, v).realize()
    assert re.search(r"none unknown; .*\d+ waits of groups;", capfd.readouterr().err)


def test_rows_that_are_no_whole_tiles_of_the_unit_are_printed_by_none() -> None:
    types = HALF, dtypes.float32
    with pytest.raises(CompileError, match="3 rows"):
        write_product(lambda text: text, types, "%c", "%b", ["%a", "%b", "%c"], 4)


# -- what is chosen -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("wide", "row_tiles"), [(64, 2), (128, 1)])
def test_warps_have_as_many_rows_as_registers_hold(wide: int, row_tiles: int) -> None:
    unit = units_of((BRAIN, dtypes.float32), False, H100)
    assert unit is not None
    tile = tile_of_warps(Sizes(4096, 4096, wide, wide), unit, 2, H100, matrices=8)
    assert tile is not None and tile.row_tiles == row_tiles


def test_few_rows_are_shared_by_all_units() -> None:
    """Of 1000 rows of 8 heads groups of 256 rows would be 32 for 132 units."""
    unit = units_of((HALF, dtypes.float32), False, H100)
    assert unit is not None
    tile = tile_of_warps(Sizes(1000, 1000, 64, 64), unit, 2, H100, matrices=8)
    assert tile is not None
    rows = tile.row_warps * halves_of(tile, unit) * 8
    assert 8 * -(-1000 // rows) >= 2 * 32


def test_queries_that_are_read_anew_share_the_registers_of_weights() -> None:
    (unit,) = [x for x in matrix_units(90) if x.rounds]
    tile, sizes = WarpTile(4, 1, 2, 8), Sizes(4096, 4096, 64, 64)
    assert has_registers(tile, sizes, unit, found=2) and not has_registers(tile, sizes, unit)


def test_more_rows_of_a_warp_read_local_memory_less_often() -> None:
    """With powers of one instruction that is what is waited for; of many instructions it is not."""
    unit = units_of((BRAIN, dtypes.float32), False, H100)
    assert unit is not None
    native = replace(H100, approximate=frozenset({Ops.EXP2}))
    computed = replace(H100, approximate=frozenset())
    shape, sizes = GroupShape(256, 128, 32 << 10), Sizes(4096, 4096, 64, 64)
    for target, saved in ((native, 0.3), (computed, 0.0)):
        one, two = [
            cycles_of_rows(WarpTile(8, 1, n, 8), shape, 32, sizes, unit, Pass(0, 1, True), target)
            for n in (1, 2)
        ]
        assert two < one * (1 - saved)


def test_an_item_has_no_more_registers_than_its_instructions_name() -> None:
    wide = GroupShape(128, 250, 1 << 10)
    assert groups_of_unit(wide, H100) == 65536 // (256 * 128)
