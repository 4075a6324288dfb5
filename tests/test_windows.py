"""Windows over images in kernels without a tile: strides, short rows, depthwise convolutions and pools."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from proven import fully_proved

from proofgrad import Context, Schedule, Tensor, dtypes, schedule
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.passes.forms import Form, check_form
from proofgrad.core.compile.passes.stages import parts_of, run_stages
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.runtime.realize import compiler, graph_to_run
from proofgrad.rules.pipeline import KERNEL_STAGES

AVX512 = Target("test", vector_bytes=64, vector_registers=32)
RNG = np.random.default_rng(0)


def body_of(tensor: Tensor) -> UOp:
    graph = compiler().kernel_graph(graph_to_run([tensor.uop], "CPU"))
    body: UOp = graph.src[-1].src[0]
    return body


def schedules(
    tensor: Tensor, target: Target = AVX512, override: Schedule | None = None
) -> list[Schedule]:
    decided: dict[UOp, Schedule] = {}
    library = compiler().library
    made = parts_of(
        run_stages(KERNEL_STAGES, body_of(tensor), library, target, None, override, decided)
    )
    for linear in made:
        check_form(Form.LINEAR, linear)
    return [decided[linear] for linear in made]


def depthwise(
    x: np.ndarray, weights: np.ndarray, stride: int, padding: int, dilation: int
) -> np.ndarray:
    """By definition, in float64."""
    wide = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    height, width = [
        (n - dilation * (k - 1) - 1) // stride + 1
        for n, k in zip(wide.shape[2:], weights.shape[2:])
    ]
    result = np.zeros((*x.shape[:2], height, width))
    for i, j in itertools.product(*map(range, weights.shape[2:])):
        rows, columns = i * dilation, j * dilation
        part = wide[:, :, rows : rows + stride * height : stride]
        part = part[:, :, :height, columns : columns + stride * width : stride]
        result += part[:, :, :, :width] * weights[:, 0, i, j, None, None]
    return result


CASES = [
    # channels, height, width, kernel, stride, padding, dilation
    (3, 9, 9, 3, 2, 1, 1),
    (5, 28, 29, 3, 2, 1, 1),
    (4, 31, 33, 5, 2, 2, 1),
    (2, 40, 41, 3, 3, 0, 1),
    (2, 40, 41, 5, 4, 1, 2),
    (7, 14, 14, 3, 1, 1, 1),
    (7, 7, 7, 3, 1, 1, 1),
    (3, 5, 13, 3, 1, 2, 2),
    (1, 3, 3, 3, 2, 1, 1),
    (1, 6, 66, 1, 2, 0, 1),
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_depthwise_convolutions_are_right(case: tuple[int, ...], dtype: str) -> None:
    channels, height, width, kernel, stride, padding, dilation = case
    x = RNG.integers(-9, 9, (2, channels, height, width)).astype(dtype)
    weights = RNG.integers(-4, 4, (channels, 1, kernel, kernel)).astype(dtype)
    expected = depthwise(x, weights, stride, padding, dilation)
    options = {"stride": stride, "padding": padding, "dilation": dilation}
    for environment in ({}, {"PROVE": 1}, {"CHOICES": "deinterleaved=off"}):
        with Context(**environment):
            got = Tensor(x).conv2d(Tensor(weights), groups=channels, **options)
            np.testing.assert_array_equal(got.numpy().astype(np.float64), expected)


@pytest.mark.heuristics
def test_windows_in_steps_are_read_from_a_copy_where_each_element_is_read_twice() -> None:
    x, weights = Tensor.empty(1, 8, 57, 57).realize(), Tensor.empty(8, 1, 3, 3).realize()
    _, last = schedules(x.conv2d(weights, groups=8, padding=1, stride=2))
    assert last.deinterleaved and last.vectors
    (one,) = schedules(x.conv2d(weights, groups=8, padding=1))
    assert one.deinterleaved is False
    (pool,) = schedules(Tensor.empty(1, 8, 64, 64).realize().max_pool2d(2))  # each element once
    assert pool.deinterleaved is False
    (_, pool) = schedules(x.max_pool2d(3, 2))
    assert pool.deinterleaved
    override = Schedule(deinterleaved=False)
    (off,) = schedules(x.conv2d(weights, groups=8, padding=1, stride=2), override=override)
    assert off.deinterleaved is False


@pytest.mark.heuristics
@pytest.mark.parametrize("width", range(4, 40))
def test_rows_of_any_length_run_as_vectors(width: int) -> None:
    x = Tensor.empty(3, 50, width).realize()
    for tensor in (x.sum(1), x * x[:, :1] + 1):
        (one,) = schedules(tensor)
        assert one.vectors, str(one)


@pytest.mark.heuristics
@pytest.mark.parametrize("width", [5, 7, 13, 14, 26, 51])
@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_convolutions_of_any_width_run_as_vectors(width: int, stride: int) -> None:
    x, weights = (
        Tensor.empty(2, 8, 24, stride * width).realize(),
        Tensor.empty(8, 1, 3, 3).realize(),
    )
    y = x.conv2d(weights, groups=8, padding=1, stride=stride)
    assert schedules(y)[-1].vectors
    (dw,) = y.gradient(weights, gradient=Tensor.empty(*y.shape).realize())
    assert schedules(dw)[-1].vectors


@pytest.mark.heuristics
def test_what_interleaves_reads_each_part_in_order() -> None:
    for step, width in ((2, 64), (2, 33), (3, 57), (4, 30)):
        parts = Tensor.empty(4, step, 20 * step).realize()
        turned = parts.permute(0, 2, 1).reshape(4, -1)[:, 1 : 1 + width].contiguous()
        (one,) = schedules(turned)
        assert one.copies is not None and one.copies.count == step, str(one)
        (vectors,) = one.vectors
        assert vectors.loop == one.copies.loop


@pytest.mark.parametrize("step, width", [(2, 64), (2, 33), (3, 57), (4, 30), (3, 5), (5, 23)])
def test_what_interleaves_is_right(step: int, width: int) -> None:
    a = RNG.standard_normal((4, step, 20 * step)).astype("float32")
    turned = Tensor(a).realize().permute(0, 2, 1).reshape(4, -1)[:, 1 : 1 + width]
    want = a.transpose(0, 2, 1).reshape(4, -1)[:, 1 : 1 + width]
    for environment in ({}, {"PROVE": 1}):
        with Context(**environment):
            np.testing.assert_array_equal((turned * 1).contiguous().numpy(), want)


@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 7, 9, 13, 15, 17, 31])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.int8, dtypes.float64, dtypes.bool])
def test_short_rows_are_right(width: int, dtype: object) -> None:
    a = RNG.integers(-3, 4, (5, 11, width)).astype(dtype.name)  # type: ignore[attr-defined]
    x = Tensor(a)
    np.testing.assert_array_equal(x.max(1).numpy(), a.max(1))
    np.testing.assert_array_equal((x & x[:, :1]).numpy() if a.dtype == bool else (x + x[:, :1]).numpy(),
                                  a & a[:, :1] if a.dtype == bool else a + a[:, :1])  # fmt: skip
    for override in ("vectors=*x8x2", "vectors=none"):
        with Context(CHOICES=override):
            np.testing.assert_array_equal(
                x.pad(((0, 0), (1, 0), (0, 2))).numpy(), np.pad(a, ((0, 0), (1, 0), (0, 2)))
            )


@pytest.mark.heuristics
def test_rows_with_padding_are_written_out_so_that_masks_are_known() -> None:
    """At the ends alone something is left out: a whole row of up to 8 vectors, or 4 of them, know where they are."""
    avx2 = Target("test", vector_bytes=32, vector_registers=16)
    for width, vectors in ((30, 4), (47, 7), (62, 8), (110, 4), (126, 4)):
        x = Tensor.empty(3, 50, width).realize()
        (one,) = schedules(x.pad(((0, 0), (1, 1), (1, 1))).contiguous(), avx2)
        assert f"x8x{vectors} " in str(one), str(one)


def test_a_schedule_by_hand_says_so_too() -> None:
    x, w = RNG.standard_normal((1, 4, 21, 23)), RNG.standard_normal((4, 1, 3, 3))
    expected = depthwise(x.astype(np.float32), w.astype(np.float32), 2, 1, 1)
    images, weights = Tensor(x.astype(np.float32)).realize(), Tensor(w.astype(np.float32)).realize()
    for text in ("deinterleaved=on", "deinterleaved=off", "deinterleaved=off vectors=none"):
        with schedule(text):
            got = images.conv2d(weights, groups=4, padding=1, stride=2).numpy()
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_a_short_row_of_results_is_one_pass_over_what_is_reduced() -> None:
    """As many vectors as the row has, the last under a mask; of a longer row as many as divide it."""
    for columns, vectors in ((92, "1x16x6"), (80, "1x16x5"), (128, "1x16x8"), (144, "1x16x9")):
        image = Tensor.zeros(3, 40, columns).contiguous().realize()
        (one,) = schedules(image.sum(1))
        assert f"vectors={vectors} " in str(one)
        data = RNG.integers(-9, 9, (3, 40, columns)).astype(np.float32)
        np.testing.assert_array_equal(Tensor(data).sum(1).numpy(), data.sum(1))


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int32, np.uint8])
def test_pools_of_long_windows_and_odd_rows(kind: type) -> None:
    image = RNG.integers(0, 99, (2, 3, 29, 57)).astype(kind)
    windows = np.lib.stride_tricks.sliding_window_view(image, (5, 7), (2, 3))
    for stride in (1, 2):
        expected = windows[:, :, ::stride, ::stride].max((-1, -2))
        found = Tensor(image).max_pool2d((5, 7), stride).numpy()
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("rows", "columns"), [(2, 2), (3, 5), (1, 7)])
def test_a_mask_that_reads_a_copy_of_its_own_is_proven(
    rows: int, columns: int, capfd: pytest.CaptureFixture[str]
) -> None:
    """Values and the positions that they go to are both copied: what the mask of a load reads is read through, too."""
    into = RNG.integers(-9, 9, (2 * rows, 1)).astype("int32")
    values = RNG.integers(-9, 9, (rows, columns)).astype("int32")
    at = Tensor(np.zeros((rows, columns), "int64"))
    with fully_proved(capfd), Context(CHOICES="deinterleaved=on"):
        got = Tensor(into).scatter_reduce(1, at, Tensor(values), reduce="sum").numpy()
    into[:rows, 0] += values.sum(1)
    np.testing.assert_array_equal(got, into)
