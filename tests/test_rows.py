"""Reductions that run row by row in the kernel that uses them, and long ones that are split."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle import evaluate_tensor
from programs import Program, over_buffers, programs
from tactics import cut_into_kernels, split_long_reductions

from proofgrad import GlobalCounters, Tensor, nn
from proofgrad.core.compile.fusion import split_reductions
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.passes.forms import Form, check_form
from proofgrad.core.compile.passes.stages import NO_MACHINE
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp

CPU = Target("test-cpu", vector_bytes=64, vector_registers=32, threads=2)
GPU = Target("test-gpu", work_items=True)
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))

ROWS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[np.ndarray], np.ndarray]]] = {
    "softmax": (
        lambda x: x.softmax(-1),
        lambda x: (
            np.exp(x - x.max(-1, keepdims=True))
            / np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True)
        ),
    ),
    "log_softmax": (
        lambda x: x.log_softmax(-1),
        lambda x: (
            x
            - x.max(-1, keepdims=True)
            - np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True))
        ),
    ),
    "layernorm": (
        lambda x: x.layernorm(),
        lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5),
    ),
    "distance from the largest": (
        lambda x: x.max(-1, keepdim=True) - x,
        lambda x: x.max(-1, keepdims=True) - x,
    ),
}


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("shape", [(8, 64), (5, 37), (3, 4, 50), (64, 300)])
def test_work_on_rows_is_one_kernel_and_right(name: str, shape: tuple[int, ...]) -> None:
    ours, reference = ROWS[name]
    data = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    x = Tensor(data).realize()
    GlobalCounters.reset()
    found = ours(x).realize()
    assert GlobalCounters.kernel_count == 1
    expected = reference(data.astype(np.float64))
    np.testing.assert_allclose(found.numpy(), expected, rtol=2e-5, atol=2e-6)


def calls(value: Tensor, target: Target) -> int:
    return len(cut_into_kernels(UOp.sink(value.uop).replace(arg="CPU"), target).src)


def test_rows_that_are_asked_for_by_contiguous_are_one_kernel() -> None:
    rows = Tensor.rand(64, 300).realize().softmax()
    assert len((rows.contiguous() + 1).sum(0).schedule()) == 2


def test_rows_that_are_not_outer_keep_their_buffer() -> None:
    x = Tensor(np.ones((64, 8), np.float32)).realize()
    assert calls(x - x.sum(0), CPU) == 2  # each column's sum would be taken once for each row


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("shape", [(37, 18), (5, 200), (64, 33), (1, 16), (300, 47)])
def test_work_on_columns_is_one_kernel_and_right(name: str, shape: tuple[int, ...]) -> None:
    """Columns side by side are lanes, whatever their number; also behind another axis."""
    _, reference = ROWS[name]
    along = {
        "softmax": lambda x, axis: x.softmax(axis),
        "log_softmax": lambda x, axis: x.log_softmax(axis),
        "layernorm": lambda x, axis: x.layernorm(axis),
        "distance from the largest": lambda x, axis: x.max(axis, keepdim=True) - x,
    }[name]
    data = np.random.default_rng(0).standard_normal((3, *shape)).astype(np.float32)
    expected = np.moveaxis(reference(np.moveaxis(data, 1, -1).astype(np.float64)), -1, 1)
    whole, first = Tensor(data).realize(), Tensor(data[0]).realize()
    for x, axis, wanted in ((whole, 1, expected), (first, 0, expected[0])):
        np.testing.assert_allclose(along(x, axis).numpy(), wanted, rtol=2e-5, atol=2e-6)
    assert calls(along(whole, 1), CPU) == 1


def test_columns_whose_lines_share_sets_of_the_cache_keep_their_buffer() -> None:
    """36 lines, 128 KB apart, are more than two sets of a second cache of 2 MB hold; 2,680 elements apart they stay."""
    large = replace(CPU, cache_bytes=2 << 20)
    for beside, kernels in ((1 << 15, 2), (2680, 1)):
        x = Tensor.empty(36, beside)
        assert calls(x - x.max(0), large) == kernels
        assert calls(x - x.max(0), replace(large, work_items=True, group_items=64)) == 2


def test_results_that_two_kernels_use_keep_their_buffer() -> None:
    x = Tensor(np.ones((64, 32), np.float32)).realize()
    total = x.sum(-1, keepdim=True)
    sink = UOp.sink((x - total).uop, (x * total).uop).replace(arg="CPU")
    assert len(cut_into_kernels(sink, CPU).src) == 3


def test_work_items_have_no_rows() -> None:
    x = Tensor(np.ones((64, 32), np.float32)).realize()
    assert calls(x.softmax(-1), GPU) == 3 > calls(x.softmax(-1), CPU)


def test_many_short_rows_whose_loops_wait_for_each_other_have_kernels_of_their_own() -> None:
    short, long, few = [Tensor.empty(*shape) for shape in ((3000, 20), (300, 200), (30, 20))]
    assert calls(short.softmax(-1), CPU) > 1 == calls(long.softmax(-1), CPU)
    assert calls(few.softmax(-1), CPU) == 1
    assert calls(Tensor.empty(30_000, 5).logsumexp(-1), CPU) == 1  # lanes are rows


def test_a_norm_of_many_short_rows_has_a_kernel_for_each_loop_that_waits_for_another() -> None:
    """From the first sum of a row to its root is longer than a core foresees; what is one loop over a row waits for nothing."""
    short, long, few = [Tensor.empty(*shape) for shape in ((3000, 20), (300, 2000), (30, 20))]
    assert calls(short.layernorm(), CPU) > 2 > calls(long.layernorm(), CPU)
    assert calls(few.layernorm(), CPU) == 1 == calls(few.var(-1), CPU)
    assert calls(short.var(-1), CPU) == 2 == calls(Tensor.empty(3000, 7).var(-1), CPU)
    assert calls(short - short.mean(-1, keepdim=True), CPU) == 1
    assert calls(Tensor.empty(20_000, 200).var(-1), CPU) == 1  # read again from memory


@pytest.mark.parametrize("length", [1, 2, 7, 8, 13, 20])
def test_norms_of_short_rows_are_right(length: int) -> None:
    rows = np.random.default_rng(length).standard_normal((3000, length)).astype(np.float32)
    x = Tensor(rows).realize()
    centered = rows - rows.mean(-1, keepdims=True)
    variance = np.square(centered).mean(-1, keepdims=True)
    found = x.layernorm().numpy(), x.var(-1, correction=0).numpy()
    np.testing.assert_allclose(found[0], centered / np.sqrt(variance + 1e-5), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found[1], variance[:, 0], rtol=1e-5, atol=1e-6)


def test_a_product_that_other_rows_read_runs_in_tiles() -> None:
    x, product = Tensor.empty(3, 9, 69, 8), Tensor.empty(3, 69, 127) @ Tensor.empty(127, 8)
    assert calls(x * product.reshape(3, 1, 69, 8), CPU) == 2


def test_columns_whose_reductions_change_along_other_axes_are_stored() -> None:
    x = Tensor.empty(71, 6, 115)
    assert calls(x + x.sum((0, 1)) + (x + x.sum((0, 1))).sum(1, keepdim=True), CPU) >= 2


def test_what_is_longer_than_the_columns_that_are_reduced_goes_along_memory() -> None:
    """As behind a long sum in parts: reading the lines once, across memory, is slower than along it."""
    parts = Tensor.empty(4, 515)
    assert calls(Tensor.empty(4, 515) - parts.max(0), CPU) == 1
    assert calls(Tensor.empty(2000, 515) - parts.max(0), CPU) == 2
    x = Tensor(np.random.default_rng(2).standard_normal((700, 33)).astype(np.float32)).realize()
    exact = np.exp(x.numpy().astype(np.float64))
    np.testing.assert_allclose(x.softmax(0).numpy(), exact / exact.sum(0), rtol=1e-5)


def test_columns_that_lie_backwards_are_no_lanes_of_one_kernel() -> None:
    x = Tensor.empty(97, 21, 32)
    assert calls(x.flip(0).softmax(0), CPU) == 1
    assert calls(x.flip(2).softmax(0), CPU) > 1


@pytest.mark.parametrize(("dtype", "length"), [(np.float32, 32), (np.float64, 16)])
def test_rows_too_long_for_half_of_the_cache_keep_their_buffer(dtype: type, length: int) -> None:
    """A row of 128 bytes."""
    x = Tensor(np.ones((64, length), dtype)).realize()
    assert calls(x.softmax(-1), replace(CPU, cache_bytes=2 * 128)) == 1
    assert calls(x.softmax(-1), replace(CPU, cache_bytes=2 * 127)) == 3


# -- long reductions ----------------------------------------------------------------------------


@QUICK
@given(programs(dtypes_used=(dtypes.int32, dtypes.uint8, dtypes.bool)), st.integers(1, 4))
def test_splitting_reductions_keeps_the_values(program: Program, side_by_side: int) -> None:
    value, elements = over_buffers(program)
    graph = UOp.sink(value)
    small = replace(NO_MACHINE, vector_bytes=4, cache_bytes=8 * side_by_side)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("MANY_ELEMENTS", 1), ("MANY_ROWS", 1), ("ROWS", side_by_side),
                            ("LEAST_ROWS", 1), ("PARTS", 0)):  # fmt: skip
            patch.setattr(split_reductions, name, value)
        split = split_long_reductions(graph, small)
    check_form(Form.TENSOR_GRAPH, split)
    (before,), (after,) = graph.src, split.src
    assert after.shape == before.shape
    found, expected = (evaluate_tensor(n, elements).tolist() for n in (after, before))
    assert str(found) == str(expected)  # any NaN equals any NaN


def test_a_weight_gradient_sums_a_few_images_at_once_and_a_square_product_does_not() -> None:
    def blocks(value: Tensor, small: int = 1 << 20) -> bool:
        target = replace(CPU, vector_bytes=32, vector_registers=16, cache_bytes=small)
        split = split_long_reductions(UOp.sink(value.uop), target)
        return any(n.op is Ops.CONTIGUOUS for n in split.toposort())

    image, above = (
        Tensor.zeros(64, 32, 24, 24).contiguous(),
        Tensor.zeros(64, 32, 20, 20).contiguous(),
    )
    weight = Tensor.zeros(32, 32, 5, 5).contiguous()
    weight.requires_grad = True
    Tensor.realize(image, above, weight)
    gradient = (image.conv2d(weight) * above).sum().gradient(weight)[0]
    assert blocks(gradient) and blocks(gradient, small=256 << 10)
    square = Tensor.zeros(512, 512).contiguous().realize()
    assert not blocks(square @ square)


@pytest.mark.parametrize(
    ("shape", "axes", "parts"),
    [
        ((3001, 503), (0,), (20, 1, 503)),  # 20 times 150 rows, and one row
        ((1031, 2, 67), (0, 1), (21, 1, 1, 67)),  # 21 times 49 * 2 rows, and 4 rows
        ((300, 53, 17), (0, 1), (75, 1, 1, 17)),
        ((3, 7, 1009, 19), (0, 1, 2), (4, 3, 7, 1, 19)),
        ((1000, 503), (0,), (20, 1, 503)),
    ],
)
def test_so_many_rows_that_nothing_divides_are_summed_in_parts_and_a_few_rows(
    shape: tuple[int, ...], axes: tuple[int, ...], parts: tuple[int, ...]
) -> None:
    data = np.random.default_rng(4).integers(-1000, 1000, shape).astype(np.int32)
    x = Tensor(data).realize()
    split = split_long_reductions(UOp.sink(x.sum(axes).uop))
    (stored,) = [n for n in split.toposort() if n.op is Ops.CONTIGUOUS]
    assert stored.shape == parts
    assert np.array_equal(x.sum(axes).numpy(), data.sum(axes, dtype=np.int32))
    assert np.array_equal(x.max(axes).numpy(), data.max(axes))


@pytest.mark.parametrize(
    "shape, axis", [((300, 301), None), ((4096, 65), 0), ((1, 70000), 1), ((70001,), 0)]
)
def test_long_sums_and_maxima_are_right(shape: tuple[int, ...], axis: int | None) -> None:
    data = np.random.default_rng(3).integers(-1000, 1000, shape).astype(np.int32)
    assert np.array_equal(Tensor(data).sum(axis).numpy(), data.sum(axis, dtype=np.int32))
    assert np.array_equal(Tensor(data).max(axis).numpy(), data.max(axis))


@pytest.mark.heuristics
def test_the_rows_of_a_norm_with_weights_are_written_out_a_few_times_only() -> None:
    norm, x = nn.LayerNorm(768), Tensor.ones(256, 768).contiguous().realize()
    Tensor.realize(norm.weight, norm.bias)
    (item,) = norm(x).schedule()
    assert item.source is not None and item.source.text.count(" = load ") < 200


@pytest.mark.heuristics
def test_the_windows_of_a_pool_have_no_loop() -> None:
    x = Tensor(np.arange(2 * 6 * 6, dtype=np.float32).reshape(1, 2, 6, 6)).realize()
    pooled = x.max_pool2d()
    (item,) = pooled.schedule()
    assert item.source is not None
    assert item.source.text.count(" = phi i64") <= 3  # images or channels, rows, columns
    np.testing.assert_array_equal(pooled.numpy(), x.numpy().reshape(1, 2, 3, 2, 3, 2).max((3, 5)))


def test_a_value_in_many_places_of_what_is_summed_is_looked_at_once() -> None:
    """Each line reads the one before twice: as many ways lead to the first as 2 to the power of their number."""
    x = np.linspace(0.9, 1.1, 512 * 256, dtype=np.float32).reshape(512, 256)
    value, wanted = Tensor(x).realize(), x
    for _ in range(40):
        value, wanted = value * 0.5 + value * 0.5, wanted * 0.5 + wanted * 0.5
    np.testing.assert_allclose(value.sum(0).numpy(), wanted.sum(0), rtol=1e-5)
