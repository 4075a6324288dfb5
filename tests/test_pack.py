"""Columns that each item packs for its tiles: the same values, proven, and errors are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from tactics import forged
from test_kernel_proof import planted, prove
from test_tiles import AVX512, SMALL, matmul

from proofgrad import Tensor
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import AUTOMATIC, Schedule
from proofgrad.core.compile.passes.stages import run_stages
from proofgrad.core.compile.schedule import contraction, cost_model
from proofgrad.core.compile.steps.loop_nest import LoopNest
from proofgrad.core.compile.tactics import axes
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compiler
from proofgrad.rules.pipeline import KERNEL_STAGES

STAGE = "choose axes"
WIDE = replace(SMALL, vector_registers=32, cache_bytes=1 << 14, scratch_bytes=1 << 14)
ROOMY = replace(AVX512, scratch_bytes=1 << 20)


def packs(body: UOp, target: Target = ROOMY, override: Schedule = AUTOMATIC) -> bool:
    """Whether a kernel of a body keeps what its tiles read."""
    last = next(k for k, stage in enumerate(KERNEL_STAGES) if stage.name == STAGE)
    stages, library = KERNEL_STAGES[: last + 1], compiler().library
    root = run_stages(stages, body, library, target, override=override)
    return any(n.op is Ops.LOCAL_BUFFER for n in root.toposort())


def test_columns_in_other_pages_that_many_tiles_read_are_packed() -> None:
    square = matmul(256, 256, 1024, dtype=dtypes.float32)
    assert packs(square)
    assert not packs(square, replace(ROOMY, scratch_bytes=1 << 12))  # there is no room
    assert not packs(square, override=Schedule(packed=False))
    for other in (
        matmul(32, 256, 1024, dtype=dtypes.float32),  # few rows
        matmul(1 << 13, 256, 1024, dtype=dtypes.float32),  # rows do not stay in the cache
        matmul(256, 64, 48, dtype=dtypes.float32),  # columns stay in the first cache
        matmul(96, 1024, 128, dtype=dtypes.float32),  # few steps are in one page
        matmul(256, 256, 1024, (False, True), dtype=dtypes.float64),  # columns lie apart
    ):
        assert not packs(other)
    assert packs(matmul(32, 64, 64, dtype=dtypes.float32), override=Schedule(packed=True))


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.int32, np.uint64])
def test_values(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    monkeypatch.setenv("CHOICES", "tiled=on packed=on staged=none")
    for batch, rows, depth, columns in (
        (1, 2, 16, 20),
        (3, 5, 24, 37),
        (2, 33, 40, 64),
        (1, 70, 9, 101),
    ):
        one = rng.integers(0, 9, (batch, rows, depth)).astype(kind)
        other = rng.integers(0, 9, (depth, columns)).astype(kind)
        np.testing.assert_array_equal((Tensor(one) @ Tensor(other)).numpy(), one @ other)


def test_nan_infinities_and_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = np.ones((4, 24), np.float32), np.ones((24, 41), np.float32)
    one[0, 20], one[1, 3], one[2], other[:, 5] = np.nan, np.inf, -0.0, -0.0
    monkeypatch.setenv("CHOICES", "tiled=on packed=on staged=none")
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal((Tensor(one) @ Tensor(other)).numpy(), one @ other)


@pytest.fixture
def small_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packs also for what is too small to gain by them."""
    parts = (
        (cost_model, "PACKING_CYCLES"),
        (contraction, "WORTH_A_KERNEL"),
        (cost_model, "UNSTAGED_PAGES"),
    )
    for module, name in parts:
        monkeypatch.setattr(module, name, 0)


@pytest.mark.usefixtures("small_packs")
@pytest.mark.parametrize("sizes", [(32, 6, 40), (31, 5, 37)])
@pytest.mark.parametrize("target", [WIDE, replace(WIDE, threads=1)], ids=["threads", "one"])
def test_they_are_proven(sizes: tuple[int, int, int], target: Target) -> None:
    body = matmul(*sizes, dtype=dtypes.float32)
    assert packs(body, target)
    count = prove(body, target).count
    assert count.unknown == 0 and count.by_solver + count.by_enumeration >= 10


def another_step(kept: UOp) -> UOp:
    loop = kept.src[1]
    return kept.with_src((kept.src[0].substitute({loop: loop * 0}), *kept.src[1:]))


def a_step_less(kept: UOp) -> UOp:
    loop = kept.src[1]
    return kept.substitute({loop: UOp.range(loop.src[0].arg - 1, *loop.arg)})


@pytest.mark.usefixtures("small_packs")
@pytest.mark.parametrize(
    ("change", "stage"), [(another_step, STAGE), (a_step_less, "linearize")], ids=["step", "room"]
)
def test_a_wrong_pack_is_found(
    change: Callable[[UOp], UOp], stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = axes.pack_columns

    def wrong(nest: LoopNest, vector: UOp, lane: UOp) -> LoopNest:
        packed = right(nest, vector, lane).graph
        (kept,) = [n for n in packed.toposort() if n.op is Ops.LOCAL_BUFFER]
        return forged(nest, packed.substitute({kept: change(kept)}))

    monkeypatch.setattr(axes, "pack_columns", wrong)
    assert planted([matmul(16, 6, 40, dtype=dtypes.float32)], replace(WIDE, threads=1), stage)
