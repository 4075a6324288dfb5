"""Which loads ask the cache ahead: those of tiles whose columns a cache does not hold, and no others."""

from __future__ import annotations

import numpy as np
import pytest
from test_tiles import AVX512, matmul

from proofgrad import Tensor
from proofgrad.backends.llvm import prefetch
from proofgrad.backends.llvm.dialect import Dialect
from proofgrad.backends.llvm.emit import emit
from proofgrad.backends.llvm.prefetch import prefetched
from proofgrad.backends.ptx.dialect import PTXDialect
from proofgrad.core.compile.stages import parts_of, run_stages
from proofgrad.core.ir.dtypes import dtypes
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
    assert hints == len(ahead)
    assert "prefetch" not in emit(tile, "kernel", PTXDialect()).text


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
    return [ahead for part in parts for ahead in prefetched(part).values()]


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
