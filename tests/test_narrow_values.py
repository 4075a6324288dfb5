"""What is widened before it is multiplied is stored as it was, where a core multiplies such numbers; values are the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from test_tile_units import SMALL

from proofgrad import Context, Tensor, dtypes
from proofgrad.core.compile.fusion.kernels import nodes_that_need_a_buffer
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.ir.dtypes import DType
from proofgrad.core.ir.uop import UOp

VECTORS = Target("VECTORS", vector_bytes=16, vector_registers=24)
UNITS = replace(VECTORS, matrix_units=SMALL)
OF_NORMALS = replace(
    VECTORS, units_of_normals=tuple([unit for unit in SMALL if unit.total is dtypes.float32])
)
WORDS = replace(VECTORS, has_dot=True)
BRAIN = dtypes.bfloat16


def memory(dtype: DType, *shape: int) -> Tensor:
    return Tensor.empty(*shape, dtype=dtype).realize()


def types_stored(value: Tensor, target: Target) -> list[DType]:
    """Of all values but the last one."""
    root = UOp.sink(value.uop)
    stored = nodes_that_need_a_buffer(root, target)
    return [node.dtype for node in stored if node not in root.src and node.shape != value.shape]


def two_layers(dtype: DType, rows: int = 8) -> Tensor:
    return (memory(dtype, rows, 12) @ memory(dtype, 12, 20)).relu() @ memory(dtype, 20, 28)


@pytest.mark.heuristics
@pytest.mark.parametrize("target", [UNITS, OF_NORMALS], ids=["flushing", "of normals"])
def test_what_is_between_two_layers_of_bfloat16_is_stored_as_a_unit_takes_it(
    target: Target,
) -> None:
    assert types_stored(two_layers(BRAIN), target) == [BRAIN]


@pytest.mark.heuristics
def test_what_no_unit_takes_is_widened_once() -> None:
    assert types_stored(two_layers(BRAIN), VECTORS) == [dtypes.float32]
    assert types_stored(two_layers(dtypes.float16), UNITS) == [dtypes.float32]
    assert types_stored(two_layers(BRAIN, rows=2), UNITS) == [dtypes.float32]  # of half a matrix


@pytest.mark.heuristics
def test_what_several_products_read_is_stored_once_as_they_take_it() -> None:
    rows = memory(BRAIN, 8, 12).exp()
    value = (rows @ memory(BRAIN, 12, 20)) * (rows @ memory(BRAIN, 12, 20))
    assert types_stored(value, UNITS).count(BRAIN) == 1  # beside a sum of float32
    assert BRAIN not in types_stored(value, VECTORS)


@pytest.mark.heuristics
def test_weights_that_are_rounded_for_a_unit_are_stored_where_matrices_are_whole() -> None:
    def product(rows: int) -> Tensor:
        return memory(BRAIN, rows, 16) @ memory(dtypes.float32, 16, 24).cast(BRAIN)

    assert types_stored(product(8), UNITS) == [BRAIN]
    assert types_stored(product(8), VECTORS) == types_stored(product(2), UNITS) == []


def quantized(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    """A layer of int8 whose activations are quantized row by row, as users write it."""
    step = x.abs().max(-1, keepdim=True) / 127
    rows = (x / step).round().clamp(-127, 127).cast(dtypes.int8)
    return rows.matmul(w, dtype=dtypes.int32).float() * step * scale


@pytest.mark.heuristics
@pytest.mark.parametrize("target", [UNITS, WORDS], ids=["units", "words"])
def test_rows_that_are_rounded_to_bytes_are_stored_in_bytes(target: Target) -> None:
    x, scale = memory(dtypes.float32, 8, 16), memory(dtypes.float32, 24)
    value = quantized(x, memory(dtypes.int8, 16, 24), scale)
    assert dtypes.int8 in types_stored(value, target)
    assert dtypes.int32 not in types_stored(value, target)
    assert dtypes.int32 in types_stored(value, VECTORS)


@pytest.mark.parametrize("sizes", [(1, 5, 3), (7, 33, 17), (40, 128, 48), (33, 70, 65)], ids=str)
@pytest.mark.parametrize("is_turned", [False, True], ids=["w", "w.T"])
def test_a_quantized_layer_is_exact(sizes: tuple[int, int, int], is_turned: bool) -> None:
    rows, steps, columns = sizes
    draw = np.random.default_rng(sum(sizes))
    x = draw.integers(-127, 128, (rows, steps)).astype("float32")
    x[:, 0] = 127  # so that each step is 1
    w = draw.integers(-128, 128, (steps, columns)).astype("int8")
    scale = draw.integers(-4, 5, columns).astype("float32")
    weights = Tensor(np.ascontiguousarray(w.T)).T if is_turned else Tensor(w)
    found = quantized(Tensor(x), weights.realize(), Tensor(scale)).numpy()
    sums = x.astype("int32") @ w.astype("int32")
    np.testing.assert_array_equal(found, sums.astype("float32") * scale)


ACTIVATIONS: tuple[tuple[str, Callable[[Tensor], Tensor]], ...] = (
    ("relu", lambda x: x.relu()),
    ("negated", lambda x: -x),
    ("cut", lambda x: x.clamp(-2.0, 3.0)),
)


@pytest.mark.parametrize("name, call", ACTIVATIONS, ids=[name for name, _ in ACTIVATIONS])
@pytest.mark.parametrize("flushes", [0, 1])
def test_two_layers_of_bfloat16_are_those_of_numbers_rounded_between(
    name: str, call: Callable[[Tensor], Tensor], flushes: int
) -> None:
    """Of small whole numbers every sum is exact, and what is between the layers is rounded to 8 digits."""
    draw = np.random.default_rng(len(name))
    x, w, v = [
        Tensor(draw.integers(-3, 4, shape).astype("float32")).cast(BRAIN).realize()
        for shape in ((33, 40), (40, 50), (50, 35))
    ]
    between = call(Tensor(x.float().numpy() @ w.float().numpy()).cast(BRAIN)).float().numpy()
    wanted = Tensor(between @ v.float().numpy()).cast(BRAIN).float().numpy()
    with Context(FLUSH=flushes):
        found = (call(x @ w) @ v).float().numpy()
    np.testing.assert_array_equal(found, wanted)


def test_numbers_that_are_too_small_infinite_or_none_pass_between_layers() -> None:
    x = np.ones((32, 32), "float32")
    x[3, 3], x[4, 4], x[5, 5], x[6, :] = 2.0**-130, np.inf, np.nan, -0.0
    rows = Tensor(x).cast(BRAIN).realize()
    eye = Tensor(np.eye(32, dtype="float32")).cast(BRAIN).realize()
    with np.errstate(invalid="ignore"):
        wanted = np.abs(x) @ np.eye(32, dtype="float32")
    found = (rows.abs() @ eye).float().numpy()
    np.testing.assert_array_equal(found, wanted)
    assert found[3, 3] == 2.0**-130
