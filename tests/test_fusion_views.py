"""What one kernel reads through several views is in memory where that takes less than to compute it for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from proofgrad import Tensor
from proofgrad.core.compile.fusion.kernels import nodes_that_need_a_buffer
from proofgrad.core.compile.fusion.views import MOST_VIEWS
from proofgrad.core.compile.machine.machine import Core
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.ir.shapes import elements
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.methods.indexing.networks import sort_lines

WIDE = Target("wide", vector_bytes=64, vector_registers=32)
ITEMS = Target("items", work_items=True, lockstep=32)


def given(*shape: int) -> Tensor:
    return Tensor(np.random.default_rng(0).random(shape, np.float32)).realize()


def buffers(value: Tensor, target: Target = WIDE) -> list[int]:
    """The sizes of what gets a buffer, but for the result."""
    root = UOp.sink(value.uop)
    found = nodes_that_need_a_buffer(root, target) - set(root.src)
    return sorted([elements(node.shape) for node in found])


def difference(y: Tensor) -> Tensor:
    return y[1:] - y[:-1]


def laplacian(y: Tensor) -> Tensor:
    return y[1:-1, 2:] + y[1:-1, :-2] + y[2:, 1:-1] + y[:-2, 1:-1] - y[1:-1, 1:-1] * 4


def variation(y: Tensor) -> Tensor:
    return difference(y).abs().sum() + difference(y.T).abs().sum()


def halved(y: Tensor) -> Tensor:
    return y[::2, ::2] + y[1::2, ::2] + y[::2, 1::2] + y[1::2, 1::2]


STENCILS = [difference, laplacian, variation]


@pytest.mark.parametrize("stencil", STENCILS)
@pytest.mark.parametrize(
    "costly", [Tensor.sigmoid, Tensor.tanh, Tensor.sin], ids=["sigmoid", "tanh", "sin"]
)
def test_a_costly_value_is_computed_once_for_the_slices_of_a_stencil(
    stencil: Callable[[Tensor], Tensor], costly: Callable[[Tensor], Tensor]
) -> None:
    x = given(200, 100)
    assert buffers(stencil(costly(x))) == [20000]


@pytest.mark.parametrize("stencil", STENCILS)
def test_a_cheap_value_is_computed_for_each_slice(stencil: Callable[[Tensor], Tensor]) -> None:
    assert buffers(stencil(given(200, 100) * 2 + 1)) == []


@pytest.mark.parametrize("size", [20, 200])
def test_few_elements_are_computed_twice_rather_than_to_start_another_kernel(size: int) -> None:
    assert buffers(difference(given(size, size).exp())) == [size * size] * (size == 200)


def test_what_does_not_stay_in_the_cache_is_computed_twice_if_that_is_less_than_memory_takes() -> (
    None
):
    def stored(rows: int, memory_bytes_a_cycle: float) -> bool:
        core = replace(Core(), memory_bytes_a_cycle=memory_bytes_a_cycle)
        return bool(buffers(difference(given(rows, 100).exp()), replace(WIDE, core=core)))

    assert stored(500, 6.0)
    assert not stored(5000, 6.0)
    assert stored(5000, 60.0)


@pytest.mark.parametrize(
    "moved",
    [
        lambda y: y.detach(),
        lambda y: y.T,
        lambda y: y.flip(0),
        lambda y: y.reshape(100, 200),
        lambda y: y.reshape(50, 2, 10, 20).permute(0, 2, 1, 3).reshape(100, 200),
    ],
    ids=["detach", "transposed", "flip", "reshape", "tiles"],
)
def test_views_part_behind_a_movement(moved: Callable[[Tensor], Tensor]) -> None:
    """What it moves gets the buffer."""
    assert buffers(laplacian(moved(given(200, 100).sin()))) == [20000]


def test_of_a_part_whose_views_part_that_part_is_stored() -> None:
    assert buffers(laplacian(given(400, 300).sin()[:200, :100])) == [20000]


def test_views_that_share_no_element_compute_nothing_again() -> None:
    x = given(200, 100)
    assert buffers(halved(x.exp())) == []
    assert buffers(x.tanh()[:100] + x.tanh()[100:]) == []


def test_views_of_few_elements_are_no_reason_to_compute_all_of_them() -> None:
    y = given(2000).tanh()
    few = [y[k : k + 4] for k in range(5)]
    assert buffers(sum(few[1:], few[0])) == []


def test_one_kernel_computes_a_value_for_a_bounded_number_of_views() -> None:
    y = given(2 * MOST_VIEWS) * 2
    for views, is_stored in ((MOST_VIEWS, False), (MOST_VIEWS + 3, True)):
        parts = [y[k : k + 8] for k in range(views)]
        assert bool(buffers(sum(parts[1:], parts[0]))) == is_stored


@pytest.mark.parametrize("size, is_stored", [(267, True), (2, False)])
def test_a_long_reduction_is_computed_once_for_all_places_of_its_results(
    size: int, is_stored: bool
) -> None:
    y = given(267, size).max(1)
    assert (267 in buffers(Tensor.stack(y, y * y, y + 1))) == is_stored


def test_a_selected_element_is_no_long_reduction() -> None:
    y = given(1000, 64)[Tensor(np.arange(0, 1000, 3)).realize()]
    assert buffers(y[1:] - y[:-1]) == []


def test_sizes_decide_of_work_items_as_of_cores() -> None:
    x = given(200, 100)
    assert buffers(laplacian(x.tanh()), ITEMS) == [20000]
    assert buffers(laplacian(x * 2 + 1), ITEMS) == []


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (7, 5), (33, 65), (64, 64)])
@pytest.mark.parametrize("stencil", [difference, variation], ids=["difference", "variation"])
def test_stencils_have_their_values_and_gradients(
    stencil: Callable[[Tensor], Tensor], shape: tuple[int, int]
) -> None:
    x = given(*shape).requires_grad_()
    y, steps = x.tanh(), np.tanh(x.numpy())
    down, right = steps[1:] - steps[:-1], steps[:, 1:] - steps[:, :-1]
    expected = down if stencil is difference else np.abs(down).sum() + np.abs(right).sum()
    assert np.allclose(stencil(y).numpy(), expected, rtol=1e-5, atol=1e-6)
    gradient = np.zeros_like(steps)
    ones = np.ones_like(down) if stencil is difference else np.sign(down)
    gradient[1:] += ones
    gradient[:-1] -= ones
    if stencil is variation:
        gradient[:, 1:] += np.sign(right)
        gradient[:, :-1] -= np.sign(right)
    (found,) = stencil(y).sum().gradient(x)
    assert np.allclose(found.numpy(), gradient * (1 - steps**2), rtol=1e-4, atol=1e-5)


def test_partners_that_are_exchanged_are_written_out_beside_each_other() -> None:
    """As in a network that sorts: an axis of two is no more than two registers, in each of which a kernel has what both read."""
    x = given(8, 2, 2, 2, 2, 24, 16)
    for axis in (1, 2, 3, 4):
        flipped = x.flip(axis)
        x = x.minimum(flipped) + x.maximum(flipped) * 2
    assert buffers(x) == []
    rows = given(512, 1000).sigmoid()
    assert buffers(rows + rows.flip(1)) == [512_000]


def test_what_compares_a_counter_has_no_buffer_however_many_kernels_ask() -> None:
    """Who of two partners is the first is known where the loop is written out: read from memory, all choices would be computed."""
    lines = sort_lines(Tensor(np.zeros((4096, 512), np.int32)).realize())
    assert 2 not in buffers(lines)
