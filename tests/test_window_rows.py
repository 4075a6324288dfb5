"""Convolutions whose strides do not divide the rows of an image: each row is copied apart for itself, and results stay right."""

from __future__ import annotations

import numpy as np
import pytest
from proven import fully_proved
from test_windows import body_of

from proofgrad import Context, Tensor
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.passes.stages import parts_of, run_stages
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.core.tensor.runtime.realize import compiler
from proofgrad.rules.pipeline import KERNEL_STAGES

AVX2 = Target("test", vector_bytes=32, vector_registers=16)

CASES = [
    # image, weights, stride, padding, dilation, groups
    ((1, 6, 17, 21), (24, 6, 5, 3), 3, (0, 1), 1, 1),
    ((2, 5, 23, 23), (24, 5, 5, 1), 3, (0, 1), 1, 1),
    ((2, 8, 15, 17), (16, 8, 3, 3), 2, 0, 1, 1),
    ((2, 8, 15, 17), (16, 8, 3, 3), 2, 1, 2, 1),
    ((2, 6, 101), (24, 6, 5), 2, 2, 1, 1),
    ((1, 4, 7, 9, 11), (16, 4, 3, 3, 3), 2, 1, 1, 1),
    ((2, 8, 15, 13), (24, 4, 3, 3), 2, 0, 1, 2),
    ((2, 5, 15, 33), (5, 1, 3, 3), 2, 1, 1, 5),
    ((1, 3, 41, 1), (16, 3, 3, 1), 2, 0, 1, 1),
]


def results(case: tuple, dtype: str) -> list[np.ndarray]:  # type: ignore[type-arg]
    """A convolution and its gradients, of small whole numbers: sums of them are exact."""
    image, weights, stride, padding, dilation, groups = case
    rng = np.random.default_rng(sum(image))
    x = Tensor(rng.integers(-4, 5, image).astype(dtype), requires_grad=True)
    w = Tensor(rng.integers(-4, 5, weights).astype(dtype), requires_grad=True)
    y = x.conv2d(w, stride=stride, padding=padding, dilation=dilation, groups=groups)
    cotangent = Tensor(rng.integers(-4, 5, y.shape).astype(dtype)).realize()
    return [g.numpy() for g in (y, *y.gradient(x, w, gradient=cotangent))]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_strided_convolutions_of_odd_images_and_their_gradients_are_right(
    case: tuple,
    dtype: str,  # type: ignore[type-arg]
) -> None:
    with Context(NOOPT=1):
        expected = results(case, dtype)
    for environment in ({}, {"CHECK": 1}, {"NUM_THREADS": 2}):
        with Context(**environment):
            for got, wanted in zip(results(case, dtype), expected):
                np.testing.assert_array_equal(got, wanted)


@pytest.mark.long
def test_kernels_that_copy_rows_apart_are_proved(capfd: pytest.CaptureFixture[str]) -> None:
    with fully_proved(capfd):
        results(CASES[1], "float32")


@pytest.mark.heuristics
@pytest.mark.parametrize("width, stride", [(57, 2), (113, 3), (58, 2), (111, 3)])
def test_no_step_of_a_sum_asks_for_the_remainder_of_its_row(width: int, stride: int) -> None:
    """The remainder is that of the position inside of the window alone, which is written out."""
    x, w = Tensor.empty(2, 5, width, width).realize(), Tensor.empty(64, 5, 3, 3).realize()
    body = body_of(x.conv2d(w, stride=stride))
    *_, last = parts_of(run_stages(KERNEL_STAGES, body, compiler().library, AVX2))
    outer = _loops_of_rows(last, width)
    assert not outer, outer


def _loops_of_rows(kernel: UOp, width: int) -> list[UOp]:
    """Remainders and quotients of more than one loop."""
    return [
        n
        for n in toposort((kernel,))
        if n.op in (Ops.MOD, Ops.FLOORDIV)
        and len([x for x in toposort((n,)) if x.op is Ops.RANGE]) > 1
    ]
