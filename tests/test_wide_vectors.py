"""Vectors of several registers: where a computation is long and lies in order, of as many lanes as waste least, also where it is reduced or kept; and their values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy
import pytest

from proofgrad import Tensor, dtypes
from proofgrad.core.compile.machine.machine import Core
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import Schedule, Vectors
from proofgrad.core.compile.passes.stages import run_stages
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compiler
from proofgrad.rules.pipeline import KERNEL_STAGES

AVX2 = Target("avx2", vector_bytes=32, vector_registers=16)
AVX512 = replace(AVX2, vector_bytes=64, vector_registers=32)
LONG = (Ops.EXP2, Ops.LOG2)  # 30 cycles, where a sixth of what a core looks ahead over is 8


def vectors_of(
    size: int,
    functions: tuple[Ops, ...] = LONG,
    target: Target = AVX2,
    dtype: DType = dtypes.float32,
) -> tuple[Vectors, ...] | None:
    """Which vectors functions of functions of so many elements run in."""
    value = UOp(Ops.PARAM, dtype, (), (1, size))
    for function in functions:
        value = UOp(function, dtype, (value,))
    return vectors_of_graph(value, target)


def vectors_of_graph(value: UOp, target: Target = AVX2) -> tuple[Vectors, ...] | None:
    """Which vectors the kernel of a graph runs in."""
    decided: dict[UOp, Schedule] = {}
    run_stages(
        KERNEL_STAGES,
        UOp.sink(value),
        compiler().library,
        target,
        override=Schedule(),
        decided=decided,
    )
    return next(schedule.vectors for schedule in decided.values() if schedule.vectors)


def test_a_long_computation_runs_in_vectors_of_four_registers() -> None:
    assert vectors_of(1001) == (Vectors(0, 32, 1),)
    assert vectors_of(1001, target=AVX512) == (Vectors(0, 64, 1),)
    assert vectors_of(1001, dtype=dtypes.float64) == (Vectors(0, 16, 1),)


def test_a_short_computation_runs_in_vectors_of_one() -> None:
    assert vectors_of(1001, (Ops.NEG,)) == (Vectors(0, 8, 1),)
    assert vectors_of(1001, (Ops.EXP2,)) == (Vectors(0, 32, 1),)


def test_how_far_a_core_looks_ahead_decides() -> None:
    far = replace(AVX2, core=Core(foreseen_instructions=400))
    assert vectors_of(1001, target=far) == (Vectors(0, 8, 1),)


def test_a_machine_says_how_many_lanes_a_vector_may_have() -> None:
    assert vectors_of(1001, target=replace(AVX2, most_lanes=16)) == (Vectors(0, 16, 1),)


def test_rows_that_are_reduced_run_in_vectors_of_four_registers() -> None:
    flat = UOp(Ops.PARAM, dtypes.float32, (), (1, 31 * 1001))
    x = UOp(Ops.RESHAPE, flat.dtype, (flat,), (31, 1001))
    long = UOp(Ops.LOG2, x.dtype, (UOp(Ops.EXP2, x.dtype, (x,)),))
    loops = vectors_of_graph(UOp(Ops.REDUCE_AXIS, x.dtype, (long,), (Ops.ADD, (1,))))
    assert loops is not None and [(v.lanes, v.at_once) for v in loops] == [(32, 1)]
    short = UOp(Ops.REDUCE_AXIS, x.dtype, (x,), (Ops.ADD, (1,)))
    loops = vectors_of_graph(short)
    assert loops is not None and loops[0].lanes == 8 and loops[0].at_once > 1


@pytest.mark.parametrize(
    ("terms", "apart", "lanes"), [(16, 4, 8), (16, 1, 32), (5, 1, 32), (8, 4, 16)]
)
def test_sums_of_many_loads_that_are_written_out_run_in_vectors_of_fewer_registers(
    terms: int, apart: int, lanes: int
) -> None:
    """Their terms wait for nothing, and LLVM takes a second for the 512 loads of two such sums in vectors of four registers."""
    flat = UOp(Ops.PARAM, dtypes.float32, (), (1, terms * 1024 * apart))
    x = UOp(Ops.RESHAPE, flat.dtype, (flat,), (terms, 1024, apart))
    x = UOp(Ops.SHRINK, flat.dtype, (x,), ((0, terms), (0, 1024), (apart - 1, apart)))
    total = UOp(Ops.REDUCE_AXIS, x.dtype, (x,), (Ops.ADD, (0,)))
    loops = vectors_of_graph(UOp(Ops.LOG2, x.dtype, (UOp(Ops.EXP2, x.dtype, (total,)),)))
    assert loops is not None and [(v.lanes, v.at_once) for v in loops] == [(lanes, 1)]


ROWS: dict[str, Callable[[Tensor], Tensor]] = {
    "a sum": lambda x: x.gelu().sum(-1),
    "the largest": lambda x: x.tanh().max(-1),
    "a norm before": lambda x: x.layernorm().gelu(),
    "kept": lambda x: x.softplus().logsumexp(-1),
    "kept and stored": lambda x: x.sigmoid().softmax(-1),
    "two reductions": lambda x: x.exp().sum(-1) * x.sin().mean(-1),
    "each second": lambda x: x[..., ::2].gelu(),
    "pooled": lambda x: x.repeat_interleave(4, -1).reshape(1, 1, 2, -1).max_pool2d((2, 2)).gelu(),
    "backwards": lambda x: x.flip(-1).gelu(),
    "along the rows": lambda x: x.gelu().sum(0) if x.ndim > 1 else x.gelu().sum(),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize(
    "shape", [(1,), (7,), (33,), (1001,), (3, 55), (5, 2, 61), (64, 3), (2, 4099)]
)
def test_values_of_rows_are_those_of_float64(name: str, shape: tuple[int, ...]) -> None:
    numbers = numpy.random.default_rng(5).normal(size=shape)
    x = Tensor(numbers.astype(numpy.float32)).realize()
    exact = ROWS[name](Tensor(x.numpy().astype(numpy.float64))).numpy()
    for _ in range(2):
        numpy.testing.assert_allclose(ROWS[name](x).numpy(), exact, rtol=3e-5, atol=3e-5)


def test_rows_with_infinities_and_without_numbers() -> None:
    numbers = numpy.linspace(-3, 3, 67, dtype=numpy.float32).reshape(1, 67).repeat(3, 0)
    numbers[0, 33], numbers[1, 66], numbers[2, 0] = numpy.inf, numpy.nan, -numpy.inf
    found = Tensor(numbers).realize().softplus().logsumexp(-1).numpy()
    assert found[0] == numpy.inf and numpy.isnan(found[1]) and numpy.isfinite(found[2])
    assert Tensor(numbers).realize().tanh().max(-1).numpy().tolist()[0] == 1.0


@pytest.mark.parametrize(("size", "lanes"), [(9, 16), (17, 8), (33, 8), (41, 16), (55, 32)])
def test_short_rows_take_the_registers_that_leave_fewest_lanes_empty(size: int, lanes: int) -> None:
    assert vectors_of(size) == (Vectors(0, lanes, 1),)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64])
@pytest.mark.parametrize(
    "shape", [(0,), (1,), (7,), (33,), (1001,), (3, 55), (5, 1, 61), (2, 3, 17), (64, 3)]
)
def test_values_are_those_of_numpy(shape: tuple[int, ...], dtype: DType) -> None:
    numbers = numpy.random.default_rng(3).normal(size=shape).astype(numpy.float32)
    x = Tensor(numbers).cast(dtype).realize()
    row = Tensor(numbers[..., :1] + 1).cast(dtype).realize()
    given, other = [t.cast(dtypes.float64).numpy() for t in (x, row)]
    expected = numpy.log1p(numpy.exp(given + other)) * numpy.tanh(given)
    for _ in range(2):
        found = ((x + row).softplus() * x.tanh()).cast(dtypes.float64).numpy()
        tolerance = {2: 3e-2, 4: 2e-6, 8: 1e-12}[dtype.itemsize]
        numpy.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def test_what_is_written_where_it_is_read_has_the_same_values() -> None:
    numbers = numpy.linspace(-3, 3, 101, dtype=numpy.float32)
    x = Tensor(numbers).realize()
    x.assign(x.tanh().sigmoid()).realize()
    numpy.testing.assert_allclose(x.numpy(), 1 / (1 + numpy.exp(-numpy.tanh(numbers))), rtol=1e-6)
