"""Which loads ask the cache ahead: those of tiles whose columns a cache does not hold, and no others."""

from __future__ import annotations

import numpy as np
import pytest
from test_tiles import AVX512, matmul

from proofgrad import Tensor
from proofgrad.backends.llvm import prefetch
from proofgrad.backends.llvm.dialect import Dialect
from proofgrad.backends.llvm.emit import emit
from proofgrad.backends.llvm.prefetch import Hint, prefetched
from proofgrad.backends.ptx.dialect import PTXDialect
from proofgrad.core.compile.linear_terms import coefficient
from proofgrad.core.compile.stages import parts_of, run_stages
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.op_names import RANGE
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.realize import compiler
from proofgrad.rules.pipeline import KERNEL_STAGES


def linears(*sizes: int) -> tuple[UOp, ...]:
    body = matmul(*sizes, dtype=dtypes.float32)
    return parts_of(run_stages(KERNEL_STAGES, body, compiler().library, AVX512))


@pytest.mark.parametrize("sizes", [(256, 512, 512), (48, 1024, 1024)], ids=["table", "slab"])
def test_the_columns_of_a_long_tile_are_asked_for_ahead(sizes: tuple[int, int, int]) -> None:
    *filling, tile = linears(*sizes)
    assert not any(prefetched(part) for part in filling)
    ahead = prefetched(tile)
    assert ahead and all(load.dtype.lanes > 1 for load in ahead)
    hints = emit(tile, "kernel", Dialect()).text.count("call void @llvm.prefetch.p0(")
    assert hints == sum(map(len, ahead.values()))
    assert "prefetch" not in emit(tile, "kernel", PTXDialect()).text


def next_pieces(linear: UOp) -> list[Hint]:
    return [hint for found in prefetched(linear).values() for hint in found if hint.cache == 2]


@pytest.mark.parametrize("choices", ["", "tile=8x3x16 blocks=4x11 depth=2", "tile=4x2x8 depth=1"])
def test_tiles_that_share_columns_ask_for_all_of_the_next_ones(
    choices: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever lies in the table behind the piece that they read, line by line, and little more."""
    monkeypatch.setenv("CHOICES", choices)
    *_, tile = linears(256, 384, 1024)
    (load, hints), *more = ((x, h) for x, h in prefetched(tile).items() if h[-1].cache == 2)
    assert not more and 1 <= len(next_pieces(tile)) <= 4
    index = load.src[0].src[1]
    loops = [node for node in tile.src if node.op is RANGE]
    shared, steps = [loop for loop, _ in hints[-1].along]
    pieces = loops[loops.index(shared) - 1]
    size = coefficient(index, pieces)
    asked = set()
    for tiles in range(shared.src[0].arg):
        for step in range(steps.src[0].arg):
            at = {shared: tiles, steps: step}
            for hint in next_pieces(tile):
                behind = hint.elements + sum(at[loop] * each for loop, each in hint.along)
                asked.add((coefficient(index, steps) * step + behind) // 16)
    first, last = size // 16, 2 * size // 16
    assert asked >= set(range(first, last))
    assert min(asked) == first and max(asked) < last + (last - first) // 8


def test_pieces_that_no_other_tile_reads_or_that_stay_in_the_cache_are_not_asked_for() -> None:
    for sizes in ((8, 384, 1024), (256, 64, 64), (256, 96, 512)):
        for part in linears(*sizes):
            assert not next_pieces(part)


def test_short_loops_and_other_kernels_have_no_hints() -> None:
    for part in linears(16, 16, 64):
        assert not prefetched(part)
    graph = compiler().kernel_graph(UOp.sink((Tensor.ones(1 << 20) * 2).uop).replace(arg="CPU"))
    for call in graph.src:
        assert not any(map(prefetched, compiler().linears(call.src[0], "CPU")))


def softmax_hints(*shape: int) -> list[int]:
    """How far ahead the kernels of a softmax ask, in elements."""
    x = Tensor.empty(*shape).realize()
    graph = compiler().kernel_graph(UOp.sink(x.softmax(-1).uop).replace(arg="CPU"))
    parts = [part for call in graph.src for part in compiler().linears(call.src[0], "CPU")]
    hints = [hint for part in parts for found in prefetched(part).values() for hint in found]
    assert all(hint.cache == 1 and not hint.along for hint in hints)
    return [hint.elements for hint in hints]


def test_the_second_loop_over_a_long_row_asks_for_the_next_row() -> None:
    assert set(softmax_hints(512, 4096)) == {4096}


@pytest.mark.parametrize("shape", [(64, 4096), (8, 1 << 17)], ids=["few rows", "rows too long"])
def test_rows_that_stay_in_the_cache_or_do_not_fit_have_no_hints(shape: tuple[int, ...]) -> None:
    assert softmax_hints(*shape) == []


def test_hints_change_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may name places behind the end of a buffer."""
    rng = np.random.default_rng(0)
    one, other = rng.random((40, 2000), np.float32), rng.random((2000, 700), np.float32)
    found = []
    for ahead in (prefetch.AHEAD, 1 << 40):
        monkeypatch.setattr(prefetch, "AHEAD", ahead)
        compiler().forget()
        found.append((Tensor(one) @ Tensor(other)).numpy())
    assert np.array_equal(*found)
    compiler().forget()
