"""Transposed convolutions with strides, by phases: each element times each tap, added where it lands."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import numpy as np
import pytest

from proofgrad import Tensor
from proofgrad.core.ir.shapes import ShapeError

Array = np.ndarray[Any, Any]


def added_where_it_lands(
    x: Array, w: Array, steps: list[int], groups: int, holes: list[int] | None = None
) -> Array:
    """The definition, without padding: (n, out, *((size - 1) * step + hole * (kernel - 1) + 1))."""
    holes = [1] * len(steps) if holes is None else holes
    sizes = [
        (n - 1) * s + h * (k - 1) + 1 for n, s, h, k in zip(x.shape[2:], steps, holes, w.shape[2:])
    ]
    each_in, each_out = w.shape[0] // groups, w.shape[1]
    y = np.zeros((x.shape[0], groups * each_out, *sizes), x.dtype)
    for tap in product(*map(range, w.shape[2:])):
        positions = tuple(
            [
                slice(h * t, h * t + (n - 1) * s + 1, s)
                for t, n, s, h in zip(tap, x.shape[2:], steps, holes)
            ]
        )
        for g in range(groups):
            own = x[:, g * each_in : (g + 1) * each_in]
            term = np.einsum(
                "nc...,co->no...",
                own,
                w[(slice(g * each_in, (g + 1) * each_in), slice(None), *tap)],
            )
            y[(slice(None), slice(g * each_out, (g + 1) * each_out), *positions)] += term
    return y


def drawn(seed: int) -> tuple[Array, Array, list[int], list[int], list[int], int]:
    draw, numbers = random.Random(seed), np.random.default_rng(seed)
    axes, groups = draw.choice([1, 2, 2, 3]), draw.choice([1, 1, 2, 3])
    kernel = [draw.randint(1, 5) for _ in range(axes)]
    steps = [draw.randint(1, 4) for _ in range(axes)]
    sizes = [draw.randint(2, 5) for _ in range(axes)]
    padding = [draw.randint(0, min(2, (n - 1) * s // 2)) for n, s in zip(sizes, steps)]
    more = [draw.randint(0, s - 1) for s in steps]
    inner = groups * draw.randint(1, 3)
    x = numbers.integers(-3, 4, (2, inner, *sizes)).astype("float32")
    w = numbers.integers(-3, 4, (inner, draw.randint(1, 3), *kernel)).astype("float32")
    return x, w, steps, padding, more, groups


@pytest.mark.parametrize("seed", range(40))
def test_drawn_strides_agree_with_the_definition(seed: int) -> None:
    x, w, steps, padding, more, groups = drawn(seed)
    whole = added_where_it_lands(x, w, steps, groups)
    want = np.pad(whole, [(0, 0), (0, 0), *[(0, n) for n in more]])
    cuts = [slice(p, size - p) for p, size in zip(padding, want.shape[2:])]
    got = Tensor(x).conv_transpose2d(
        Tensor(w),
        groups=groups,
        stride=tuple(steps),
        padding=tuple(padding),
        output_padding=tuple(more),
    )
    np.testing.assert_array_equal(got.numpy(), want[(slice(None), slice(None), *cuts)])


@pytest.mark.parametrize("seed", range(12))
def test_drawn_gradients_are_those_of_the_definition(seed: int) -> None:
    x, w, steps, _, _, groups = drawn(seed)
    whole = added_where_it_lands(x, w, steps, groups)
    left, right = Tensor(x, requires_grad=True), Tensor(w, requires_grad=True)
    cotangent = np.random.default_rng(seed).integers(-2, 3, whole.shape).astype("float32")
    y = left.conv_transpose2d(right, groups=groups, stride=tuple(steps))
    y.backward(Tensor(cotangent))
    # Linear in each: the gradient of x in a direction d is the cotangent times the result at d.
    for position in np.ndindex(x.shape[1:]):
        one = np.zeros_like(x)
        one[(0, *position)] = 1
        want = (added_where_it_lands(one, w, steps, groups) * cotangent).sum()
        assert left.grad is not None and left.grad[(0, *position)].item() == want
        if position[1:] != (0,) * len(steps):
            break
    one = np.zeros_like(w)
    one.flat[-1] = 1
    want = (added_where_it_lands(x, one, steps, groups) * cotangent).sum()
    assert right.grad is not None and right.grad.numpy().flat[-1] == want


@pytest.mark.parametrize("steps, holes", [
    ([2], [2]), ([2], [3]), ([3], [2]), ([2], [4]), ([3, 2], [3, 1]), ([1, 2], [2, 3]), ([4, 2], [2, 2]),
])  # fmt: skip
@pytest.mark.parametrize("groups", [1, 3])
def test_taps_apart_and_strides_agree_with_the_definition(
    steps: list[int], holes: list[int], groups: int
) -> None:
    numbers, axes = np.random.default_rng(sum(steps)), len(steps)
    x = numbers.integers(-3, 4, (2, 3, *(4, 5)[:axes])).astype("float32")
    w = numbers.integers(-3, 4, (3, 2, *(3, 2)[:axes])).astype("float32")
    want = added_where_it_lands(x, w, steps, groups, holes)
    options = {"groups": groups, "stride": tuple(steps), "dilation": tuple(holes)}
    got = Tensor(x).conv_transpose2d(Tensor(w), **options)
    np.testing.assert_array_equal(got.numpy(), want)


def slices_of_neighbours(x: Tensor, w: Tensor, steps: list[int], **options: Any) -> Tensor:
    """A convolution with strides as every so manyth result of one without: derived by the laws of movement alone."""
    every = x.conv2d(w, **options)
    return every[(slice(None), slice(None), *[slice(None, None, step) for step in steps])]


def gradients_of_both_orders(y: Tensor, x: Tensor, w: Tensor, seed: int) -> list[Array]:
    """Of y for x and w, and of the first of these for w and of the second for x."""
    numbers = np.random.default_rng(seed)
    g = Tensor(numbers.integers(-2, 3, y.shape).astype("float32"))
    dx, dw = y.gradient(x, w, gradient=g)
    along_x = Tensor(numbers.integers(-2, 3, x.shape).astype("float32"))
    along_w = Tensor(numbers.integers(-2, 3, w.shape).astype("float32"))
    (mixed,) = (dx * along_x).sum().gradient(w)
    (other,) = (dw * along_w).sum().gradient(x)
    return [each.numpy() for each in (dx, dw, mixed, other)]


@pytest.mark.parametrize("seed", range(12))
def test_gradients_of_strides_are_those_of_slices(seed: int) -> None:
    draw, numbers = random.Random(seed), np.random.default_rng(seed)
    axes, groups = draw.choice([1, 2, 2, 3]), draw.choice([1, 1, 2, 3])
    kernel = [draw.randint(1, 4) for _ in range(axes)]
    steps = [draw.randint(1, 4) for _ in range(axes)]
    holes = [draw.choice([1, 1, 2, 3]) for _ in range(axes)]
    around = tuple([draw.randint(0, 2) for _ in range(axes)])
    sizes = [h * (k - 1) + draw.randint(1, 6) for h, k in zip(holes, kernel)]
    each = draw.randint(1, 3)
    x = Tensor(numbers.integers(-3, 4, (2, groups * each, *sizes)).astype("float32"))
    w = Tensor(numbers.integers(-3, 4, (2 * groups, each, *kernel)).astype("float32"))
    options = {"groups": groups, "dilation": tuple(holes), "padding": around}
    got = x.conv2d(w, stride=tuple(steps), **options)
    want = slices_of_neighbours(x, w, steps, **options)
    pairs = [gradients_of_both_orders(y, x, w, seed) for y in (got, want)]
    for one, other in zip(*pairs):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float64"])
def test_gradients_of_strides_have_the_type_of_their_input(kind: str) -> None:
    x, w = Tensor([[[1, 2, 3, 4, 5]]], dtype=kind), Tensor([[[1, 2, 1]]], dtype=kind)
    dx, dw = x.conv2d(w, stride=2).sum().gradient(x, w)
    assert (dx.dtype, dw.dtype) == (x.dtype, w.dtype)
    assert (dx.float().tolist(), dw.float().tolist()) == ([[[1, 2, 2, 2, 1]]], [[[4, 6, 8]]])


def test_columns_that_lie_apart_are_read_in_tables_once_blocks_are_chosen() -> None:
    x, w = Tensor.ones(4, 128, 4, 4).realize(), Tensor.ones(128, 256, 2, 2).realize()
    got = x.conv_transpose2d(w, stride=2, padding=1, output_padding=1)
    assert got.shape == (4, 256, 7, 7) and {128.0} == set(got.numpy().flat)


def test_no_zero_between_elements_is_multiplied() -> None:
    x = Tensor([[[np.inf, 1.0]]])
    assert x.conv_transpose2d(Tensor([[[2.0, 3.0, 0.0]]]), stride=3).tolist() == [
        [[np.inf, np.inf, pytest.approx(np.nan, nan_ok=True), 2.0, 3.0, 0.0]]
    ]


def test_no_zero_between_taps_is_multiplied() -> None:
    x, w = Tensor([[[np.inf]]]), Tensor([[[1.0, 2.0]]])
    got = x.conv_transpose2d(w, stride=2, dilation=3)
    assert got.tolist() == [[[np.inf, 0.0, 0.0, np.inf]]]


@pytest.mark.parametrize("seed", range(12))
def test_drawn_taps_apart_agree_with_the_definition(seed: int) -> None:
    x, w, steps, _, _, groups = drawn(seed)
    draw = random.Random(seed)
    holes = [draw.randint(2, 6) for _ in steps]
    want = added_where_it_lands(x, w, steps, groups, holes)
    options = {"groups": groups, "stride": tuple(steps), "dilation": tuple(holes)}
    np.testing.assert_array_equal(Tensor(x).conv_transpose2d(Tensor(w), **options).numpy(), want)


def test_a_kernel_shorter_than_its_stride_leaves_zeros_and_the_bias() -> None:
    x, w = Tensor([[[1.0, 2.0]]]), Tensor([[[3.0]]])
    assert x.conv_transpose2d(w, Tensor([0.5]), stride=3, output_padding=2).tolist() == [
        [[3.5, 0.5, 0.5, 6.5, 0.5, 0.5]]
    ]


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "float64", "int8", "int32"])
def test_types_accumulate_as_convolutions_do(kind: str) -> None:
    x, w = Tensor([[[1, 2, 3]]], dtype=kind), Tensor([[[1, 2, 1]]], dtype=kind)
    got = x.conv_transpose2d(w, stride=2)
    assert (str(got.dtype).removeprefix("dtypes."), got.float().tolist()) == (
        str(x.conv2d(w).dtype).removeprefix("dtypes."),
        [[[1, 2, 3, 4, 5, 6, 3]]],
    )


def test_a_bias_of_another_size_is_refused() -> None:
    with pytest.raises(ShapeError, match=r"bias \(3,\) must be \(2,\)"):
        Tensor.ones(1, 1, 2).conv_transpose2d(Tensor.ones(1, 2, 2), Tensor.ones(3), stride=2)
