"""Sums of masked sums of products, as gradients of convolutions are: the same values as one masked sum."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_interpreter import run_kernel
from tactics import join_sums
from test_kernel_proof import planted, prove
from test_tiles import SMALL, kernel_of, matmul, moved, parameter, stage_everything

from proofgrad import Tensor
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.passes.forms import Form, check_form
from proofgrad.core.compile.schedule.tiles import find_contraction
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.rewrite.facts import Facts
from proofgrad.core.tensor.runtime.realize import compiler

QUICK = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


def input_gradient(
    batch: int, channels: int, filters: int, width: int, taps: int, dtype=dtypes.int32
) -> UOp:
    """The gradient for the image of a convolution of rows; `width` is that of its results."""
    above = parameter(1, batch, 1, filters, width, 1, dtype=dtype)
    weights = parameter(2, 1, channels, filters, 1, taps, dtype=dtype)
    whole = (batch, channels, filters, width, taps)
    product = UOp(
        Ops.MUL, dtype, (moved(Ops.EXPAND, above, whole), moved(Ops.EXPAND, weights, whole))
    )
    total = UOp(Ops.REDUCE_AXIS, dtype, (product,), (Ops.ADD, (2,)))
    placed = moved(Ops.SKEW, total, (3, 4, -1, width + taps - 1))
    return UOp.sink(UOp(Ops.REDUCE_AXIS, dtype, (placed,), (Ops.ADD, (4,))))


def bounds() -> Facts:
    return compiler().library.facts()


def reductions(kernel: UOp) -> list[UOp]:
    return [n for n in kernel.toposort() if n.op is Ops.REDUCE]


@QUICK
@given(sizes=st.tuples(*[st.integers(1, 3)] * 3, st.integers(1, 6), st.integers(1, 4)))
def test_one_sum_has_the_values_of_the_nested_ones(sizes: tuple[int, int, int, int, int]) -> None:
    batch, channels, filters, width, taps = sizes
    kernel = kernel_of(input_gradient(*sizes))
    rng = np.random.default_rng(0)
    memory = {1: rng.integers(-9, 9, batch * filters * width).tolist(),
              2: rng.integers(-9, 9, channels * filters * taps).tolist()}  # fmt: skip
    joined = join_sums(kernel, SMALL, bounds())
    check_form(Form.KERNEL, joined)
    assert len(reductions(joined)) <= 1
    assert run_kernel(joined, memory)[0] == run_kernel(kernel, memory)[0]


def test_the_joined_sum_runs_in_tiles() -> None:
    kernel = compiler().index_terms(input_gradient(4, 16, 16, 12, 3, dtypes.float32))
    assert find_contraction(kernel, SMALL) is None
    assert find_contraction(join_sums(kernel, SMALL, bounds()), SMALL) is not None


def test_sums_without_a_mask_are_joined_too() -> None:
    """The gradient of a convolution that was padded as widely as its windows reach."""
    x, weights = Tensor.empty(2, 16, 12, 12).realize(), Tensor.empty(16, 16, 3, 3).realize()
    above = Tensor.empty(2, 16, 14, 14).realize()
    gradient = (x.conv2d(weights, padding=2) * above).sum().gradient(x)[0]
    graph = compiler().kernel_graph(UOp.sink(gradient.uop).replace(arg="CPU"))
    kernel = compiler().index_terms(graph.src[-1].src[0])
    assert len(reductions(kernel)) == 3
    joined = join_sums(kernel, SMALL, bounds())
    (total,) = reductions(joined)
    assert total.src[0].op is Ops.MUL and len(total.src) == 4
    assert find_contraction(joined, SMALL) is not None


def test_a_plain_sum_of_products_is_left_alone() -> None:
    kernel = compiler().index_terms(matmul(8, 8, 8, dtype=dtypes.float32))
    assert join_sums(kernel, SMALL, bounds()) is kernel


def test_machines_of_scalar_work_items_keep_their_kernels() -> None:
    kernel = kernel_of(input_gradient(2, 2, 2, 4, 3))
    scalar = replace(SMALL, work_items=True, vector_bytes=0)
    assert join_sums(kernel, scalar, bounds()) is kernel


@pytest.mark.parametrize("batch", [1, 16], ids=["columns along a row", "rows along the batch"])
def test_what_lies_outside_of_a_window_is_not_multiplied(batch: int) -> None:
    """A weight that is infinite or NaN must not meet the zeros around the image."""
    rng = np.random.default_rng(3)
    x = Tensor(rng.standard_normal((batch, 8, 9, 9)).astype(np.float32), requires_grad=True)
    weights = rng.standard_normal((8, 8, 3, 3)).astype(np.float32)
    weights[:, :, 0, 0], weights[:, :, 2, 2] = inf, nan
    x.conv2d(Tensor(weights)).sum().backward()
    got = x.grad.numpy()
    want = np.zeros((batch, 8, 9, 9), np.float32)
    for i in range(7):
        for j in range(7):
            want[:, :, i : i + 3, j : j + 3] += weights.sum(0)
    np.testing.assert_allclose(got, want, rtol=1e-4)
    assert np.isfinite(got[:, :, 8, 0]).all() and np.isnan(got[:, :, 4, 4]).all()


@pytest.mark.parametrize("fault", ["mask", "loop"])
def test_a_wrong_sum_is_found(fault: str) -> None:
    def wrong(kernel: UOp, target: Target, bounds: Facts) -> UOp:
        joined = join_sums(kernel, target, bounds)
        if joined is kernel:
            return kernel
        (total,) = reductions(joined)
        value, *loops = total.src
        mask, product, zero = value.src
        if fault == "mask":
            return joined.substitute(
                {total: total.replace(src=(mask.src[0].where(product, zero), *loops))}
            )
        return joined.substitute({total: total.replace(src=(value, *loops[:-1]))}).substitute(
            {loops[-1]: UOp.index(0)}
        )

    body = input_gradient(2, 4, 4, 5, 3, dtypes.float32)
    assert planted([body], replace(SMALL, vector_registers=32), "join sums", wrong)


def test_the_joined_sum_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    stage_everything(monkeypatch)
    for sizes in ((2, 4, 4, 5, 3), (1, 8, 3, 8, 2)):
        body = input_gradient(*sizes, dtypes.float32)
        assert prove(body, replace(SMALL, vector_registers=32)).count.unknown == 0
