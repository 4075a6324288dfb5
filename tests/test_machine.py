"""The description of a machine: each number is asked for and documented, and thresholds follow from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest
from small_kernels import inner_loops, load, loops, reduce, store
from test_tiles import AVX512, kernel_of, matmul

from proofgrad import Device, Tensor, TinyJit
from proofgrad.core.compile.machine.machine import Core, FirstCache
from proofgrad.core.compile.machine.target import Source, Target
from proofgrad.core.compile.nests.kernel_schedule import AUTOMATIC, Tile
from proofgrad.core.compile.schedule.choose_schedule import choose_schedule
from proofgrad.core.compile.schedule.contraction import contractions
from proofgrad.core.compile.schedule.cost_model import columns_are_large, cycles_of_tiles
from proofgrad.core.compile.schedule.operands import filling
from proofgrad.core.compile.schedule.operation_cycles import COSTLY
from proofgrad.core.compile.schedule.table_cycles import rows_worth_a_table
from proofgrad.core.compile.schedule.threads import (
    instructions_worth_sharing,
    operations_worth_sharing,
)
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp

ROOT = Path(__file__).parent.parent
NUMBERS = [field.name for field in fields(Core)]
DESCRIBING = {"machine.py", "processors.py", "calibration.py", "probe.py"}


@pytest.mark.parametrize("name", NUMBERS)
def test_each_number_of_a_core_is_asked_for_and_documented(name: str) -> None:
    files = [p for folder in ("core", "backends") for p in (ROOT / folder).rglob("*.py")]
    users = [p.name for p in files if p.name not in DESCRIBING and name in p.read_text()]
    if name in ("multiply_add_cycles", "multiply_adds_a_cycle"):
        users += ["sums_at_once"]
    assert users
    page = (ROOT / "docs" / "schedules.md").read_text()
    assert f"`core.{name}`" in page or f"`{name}`" in page


def test_threads_share_what_takes_longer_than_sharing() -> None:
    for vector_bytes, operations in ((64, 65_536), (32, 32_768)):
        target = replace(AVX512, vector_bytes=vector_bytes)
        assert operations_worth_sharing(target) == operations
        assert instructions_worth_sharing(target) == 25_000


@pytest.mark.parametrize("rows, is_shared", [(1, False), (64, True)])
def test_threads_do_not_share_a_loop_before_which_each_piece_would_reduce_everything(
    rows: int, is_shared: bool
) -> None:
    """Distances from the largest of a row of 65536: of one row threads would each take the maximum many times over."""
    (r0, r1), (r2,) = loops(rows, 65_536), inner_loops(65_536)
    read = [load(1, r + r0 * 65_536, dtype=dtypes.float32) for r in (r1, r2)]
    kernel = UOp.sink(store(r1 + r0 * 65_536, reduce(Ops.MAX, read[1], r2) - read[0]))
    assert choose_schedule(kernel, AVX512, AUTOMATIC).threads is is_shared


@pytest.mark.heuristics
def test_a_vector_is_an_instruction_and_each_value_of_a_loop_without_vectors_is_one() -> None:
    x = Tensor.zeros(128, 256).contiguous().realize()
    side_by_side, one_by_one = source_of(lambda x: x * 2, x), source_of(lambda x: x.cumsum(1), x)
    lanes = Device["CPU"].target.lanes(dtypes.float32)
    assert side_by_side.cost_instructions == 3 * x.numel() // lanes <= side_by_side.cost_flops
    assert one_by_one.cost_instructions >= 3 * x.numel()


def source_of(function: Callable[[Tensor], Tensor], x: Tensor) -> Source:
    """Of its one kernel."""
    recorded = TinyJit(function)
    for _ in range(2):
        recorded(x)
    assert recorded.captured is not None
    (step,) = recorded.captured.plan.steps
    return step.kernel.source


def test_columns_are_large_beyond_half_of_the_pages_at_hand() -> None:
    (small, *_), (large, *_) = [
        contractions(kernel_of(matmul(64, depth, 256, dtype=dtypes.float32)))
        for depth in (128, 129)
    ]
    assert not columns_are_large(small, AVX512) and columns_are_large(large, AVX512)
    assert columns_are_large(small, replace(AVX512, core=Core(translated_pages=62)))
    assert not columns_are_large(large, replace(AVX512, page_bytes=1 << 14))


def test_fewer_rows_are_worth_a_table_where_products_take_longer() -> None:
    assert [rows_worth_a_table(AVX512, size) for size in (4, 8)] == [133, 109]
    assert rows_worth_a_table(replace(AVX512, vector_bytes=32), 4) == 67
    assert rows_worth_a_table(Target("scalars"), 4) == 8


def test_operations_that_memory_is_faster_than_are_costly() -> None:
    assert {Ops.EXP2, Ops.FDIV, Ops.SQRT, Ops.SIN, Ops.FLOORDIV} <= COSTLY
    assert COSTLY.isdisjoint({Ops.ADD, Ops.MUL, Ops.MAX, Ops.WHERE, Ops.CAST})


@pytest.mark.parametrize(
    ("change", "depth", "slower"),
    [
        ({"multiply_adds_a_cycle": 1}, 64, True),
        ({"loads_a_cycle": 1}, 64, True),
        ({"multiply_add_cycles": 40}, 64, True),
        ({"cache_bytes_a_cycle": 1}, 8, False),  # both operands stay in the first cache
        ({"cache_bytes_a_cycle": 1}, 64, True),
        ({"cache_bytes_a_cycle": 1}, 1024, True),
        ({"memory_bytes_a_cycle": 1.0}, 1024, False),
        ({"memory_bytes_a_cycle": 1.0}, 16_384, True),
        ({"scatter_cycles": 9.0}, 64, False),  # nothing lies apart
    ],
)
def test_a_tile_takes_longer_on_a_core_that_is_slower_at_what_it_does(
    change: dict[str, float], depth: int, slower: bool
) -> None:
    (product, *_) = contractions(kernel_of(matmul(512, depth, 512, dtype=dtypes.float32)))
    tile, slow = Tile(8, 3, 16), replace(AVX512, core=replace(Core(), **change))  # type: ignore[arg-type]
    usual, slowly = [
        cycles_of_tiles(tile, 4, product, target) + filling(product, tile, target)
        for target in (AVX512, slow)
    ]
    assert (slowly > usual) is slower


def test_half_of_a_cache_may_be_counted_on() -> None:
    target = Target("any", first_cache=FirstCache(32 << 10, 8), cache_bytes=1 << 18)
    assert (target.near_bytes, target.room_bytes) == (16 << 10, 128 << 10)
    assert FirstCache().way_bytes == 4096
