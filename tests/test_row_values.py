"""What several loops over the same elements read is computed once where that takes less than each loop computing it, or gathering it, again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from test_fusion_views import ITEMS, WIDE, buffers, given

from proofgrad import Tensor
from proofgrad.core.compile.schedule.operation_cycles import COSTLY
from proofgrad.core.ir.shapes import elements

CPU = replace(WIDE, scratch_bytes=1 << 20)


def softmaxed(x: Tensor) -> Tensor:
    return x.softmax(0)


def normalized(x: Tensor) -> Tensor:
    return (x - x.mean(0)) / (x.var(0) + 1).sqrt()


@pytest.mark.parametrize("rows", [softmaxed, normalized])
def test_a_costly_value_of_rows_across_memory_is_stored_where_a_kernel_has_no_room(
    rows: Callable[[Tensor], Tensor],
) -> None:
    assert 6400 in buffers(rows(given(100, 64).gelu()), replace(CPU, scratch_bytes=64))
    is_stored = 6400 in buffers(rows(given(100, 64).gelu()), CPU)
    assert is_stored is (rows is normalized)  # two means of a column are kernels of their own
    assert 6400 not in buffers(rows(given(100, 64) * 2), CPU)


def test_a_kernel_keeps_a_row_along_memory_for_itself() -> None:
    assert buffers(given(20, 320).gelu().softmax(1), CPU) == []


def test_a_row_of_copies_beside_each_other_is_stored() -> None:
    x, pooled = given(32, 4, 28, 28), given(32, 4, 14, 1, 14, 1)
    windows = pooled.expand(32, 4, 14, 2, 14, 2).reshape(32, 4, 28, 28)
    channels = given(32, 4, 1, 1).expand(32, 4, 28, 28)
    assert elements(x.shape) in buffers((x * windows).sigmoid().reshape(32, -1).softmax(1), CPU)
    assert buffers((x * channels).sigmoid().reshape(32, -1).softmax(1), CPU) == []


def test_reductions_of_other_kernels_keep_nothing() -> None:
    assert 20_000 in buffers(
        given(20_000).gelu().softmax(0), replace(CPU, threads=64, scratch_bytes=64)
    )


def test_slices_that_kernels_read_count_as_much_as_they_show() -> None:
    y = given(20_001).gelu()
    first, last = y[:20_000].sum(), y[1:].max()
    assert 20_001 in buffers(Tensor.stack(first, last), CPU)
    assert 20_001 not in buffers(Tensor.stack(y[:10_000].sum(), y[10_000:].max()), CPU)


@pytest.mark.parametrize("axis", [0, 1])
def test_what_would_be_gathered_by_each_loop_is_gathered_once(axis: int) -> None:
    x = given(64, 64)
    assert buffers((x + x.T).softmax(axis), CPU) == [4096]
    assert buffers((x + x).softmax(axis), CPU) == []


@pytest.mark.parametrize(("axis", "shape"), [(1, (30, 40, 50)), (2, (300, 2, 100))])
def test_rows_whose_elements_lie_apart_are_copied(axis: int, shape: tuple[int, ...]) -> None:
    x = given(*shape)
    assert buffers(x.transpose(0, 2).softmax(axis), CPU) == [60_000]
    assert buffers(x.softmax(axis), CPU) == []


def test_a_transposed_matrix_is_turned_around_once_where_one_kernel_has_all_loops() -> None:
    x = given(300, 64)
    assert buffers(x.T.softmax(1), CPU) == [19_200]
    assert 19_200 not in buffers(x.T.sum(1), CPU)


def test_short_rows_that_lie_side_by_side_are_gathered_by_nobody() -> None:
    assert 27_300 not in buffers(given(100, 13, 21).log_softmax(1).layernorm(axis=1), CPU)
    assert 27_000 not in buffers((given(300, 10, 9) * 2).layernorm(axis=1), CPU)


def test_few_elements_are_computed_again() -> None:
    assert buffers(given(8, 16).gelu().softmax(0), CPU) == []


def test_work_items_keep_their_rows_themselves() -> None:
    assert buffers(given(100, 64).gelu().softmax(0), ITEMS) == buffers(
        given(100, 64).softmax(0), ITEMS
    )


@pytest.mark.parametrize("shape", [(1, 1), (3, 5, 7), (33, 65), (20, 40, 30)])
def test_rows_of_moved_values_have_their_values_and_gradients(shape: tuple[int, ...]) -> None:
    x = given(*shape).requires_grad_()
    for axis in range(len(shape)):
        y = x.transpose(0, -1).tanh().softmax(axis)
        e = np.exp(np.tanh(x.numpy().swapaxes(0, -1)))
        expected = e / e.sum(axis, keepdims=True)
        assert np.allclose(y.numpy(), expected, rtol=1e-5, atol=1e-6)
        (found,) = (y * y).sum().gradient(x)
        pulled = expected * (2 * expected - (2 * expected**2).sum(axis, keepdims=True))
        slope = 1 - np.tanh(x.numpy()) ** 2
        assert np.allclose(found.numpy(), pulled.swapaxes(0, -1) * slope, rtol=1e-4, atol=1e-6)


@pytest.mark.heuristics
def test_costly_work_behind_a_row_that_limits_cut_away_is_computed_once() -> None:
    """As in gradients of a norm of sums, which the elements of all rows read: 390 logarithms and quotients, not 70,980."""

    def loss(product: Tensor) -> Tensor:
        sums = (product.square() * product - product).sum((0, 2), keepdim=True)
        centered = sums - sums.mean(2, keepdim=True)
        normed = centered * (centered.square().mean(2, keepdim=True) + 1e-5).rsqrt()
        logs = ((normed * 2 + 1).abs() + 1).log()
        return (logs * logs.logsumexp(0, keepdim=True)).max(0).square().mean()

    images, weight = Tensor.ones(7, 3, 3, 130).contiguous(), Tensor.ones(26, 3).contiguous()
    weight.requires_grad_(True)
    Tensor.realize(images, weight)
    (gradient,) = loss(weight @ images).gradient(weight)
    costly = [
        item.ast for item in gradient.schedule() if COSTLY & {n.op for n in item.ast.toposort()}
    ]
    assert costly and max([elements(body.src[0].shape) for body in costly]) <= 390
