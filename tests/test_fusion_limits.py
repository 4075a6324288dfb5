"""What one kernel computes is bounded, however long the program that it comes from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from proofgrad import Tensor, Variable, nn
from proofgrad.core.compile.fusion.kernels import MOST_BESIDE, nodes_that_need_a_buffer
from proofgrad.core.compile.fusion.limits import (
    LONG_CHAIN_CYCLES,
    LONGEST_CHAIN,
    MOST_BUFFERS,
    MOST_REDUCTIONS,
    MOST_REPEATED,
)
from proofgrad.core.compile.fusion.views import MOST_VIEWS
from proofgrad.core.compile.machine.machine import Core
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.schedule.operation_cycles import SHORT_CYCLES
from proofgrad.core.compile.schedule.vectors import MOST_LOADS
from proofgrad.core.compile.steps.store import store
from proofgrad.core.compile.steps.tensor_program import traced
from proofgrad.core.ir.ops import ELEMENTWISE, Ops
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.bodies import without_bodies
from proofgrad.core.tensor.runtime.realize import compiler


def ones(*shape: int) -> Tensor:
    return Tensor(np.ones(shape, np.float32)).realize()


def bodies(value: Tensor) -> list[UOp]:
    """The kernels of a Tensor, as graphs over their parameters."""
    return [item.ast for item in value.schedule() if not item.is_copy]


def largest(value: Tensor, op: Ops) -> int:
    return max([sum([n.op is op for n in body.toposort()]) for body in bodies(value)])


def test_value_that_is_stacked_with_itself_is_not_computed_twice_as_often_each_time() -> None:
    value = Tensor(1.5).realize()
    for _ in range(40):
        value = Tensor.stack(value, value)[0]
    assert value.item() == 1.5


def test_views_that_meet_again_and_again_are_bounded() -> None:
    value, expected = ones(6), np.ones(6, np.float32)
    for _ in range(30):
        value = value + (value.reshape(2, 3).permute(1, 0) + 1).reshape(6) * 0.5
        expected = expected + (expected.reshape(2, 3).T + 1).reshape(6) * np.float32(0.5)
    assert np.allclose(value.numpy(), expected)


def test_up_to_the_limit_views_are_fused() -> None:
    value = ones(64) * 2
    shifted = [value[k : k + 8] for k in range(MOST_VIEWS - 8)]
    total = shifted[0]
    for part in shifted[1:]:
        total = total + part
    assert len(bodies(total)) == 1


def test_sums_that_are_added_run_in_kernels_of_few_reductions() -> None:
    x, total = ones(8, 8), Tensor(0.0)
    for k in range(100):
        total = total + (x + float(k)).sum()
    assert largest(total, Ops.REDUCE_AXIS) <= MOST_REDUCTIONS + 1
    assert len(bodies(total)) <= 100 // MOST_REDUCTIONS + 2
    assert total.item() == 64 * sum(range(1, 101))


def test_tensors_that_are_added_run_in_kernels_of_few_arguments() -> None:
    total = ones(3)
    for _ in range(500):
        total = total + ones(3)
    assert largest(total, Ops.PARAM) <= MOST_BUFFERS + 1
    assert total.tolist() == [501.0] * 3


def named_by_kernels(value: Tensor, most_buffers: int) -> list[int]:
    """Buffers and variables that each kernel of a Tensor would be given by a machine that takes so many."""
    target = Target("few", work_items=True, most_buffers=most_buffers)
    root = UOp.sink(without_bodies(value._uop))
    found = []
    for call in store(traced(root), nodes_that_need_a_buffer(root, target)).graph.src:
        body = call.src[0].src[0]
        ends = {end for n in body.toposort() for end in flattened([n.shape, n.arg])}
        names = {v for end in ends for v in end.toposort() if v.op is Ops.VARIABLE}
        found.append(len(call.src) - 1 + len(names))
    return found


def flattened(parts: Any) -> list[UOp]:
    if isinstance(parts, (tuple, list)):
        return [end for part in parts for end in flattened(part)]
    return [parts] if isinstance(parts, UOp) else []


@pytest.mark.parametrize("most", [3, 4, 8, 32])
def test_no_kernel_reads_more_buffers_than_the_machine_takes(most: int) -> None:
    line = [ones(3) * (k + 1.0) for k in range(60)]
    shared = list(line)
    while len(line) > 1:  # as a tree, whose halves read equally many, and what others read, too
        pairs = list(zip(line, line[1:]))[::2]
        line = [a + b.flip(0) * shared[k] for k, (a, b) in enumerate(pairs)]
    for value in (line[0], line[0].sum()):
        found = named_by_kernels(value, most)
        assert max(found) <= most
        assert len(found) > 1
    assert len(named_by_kernels(line[0], 128)) < len(named_by_kernels(line[0], 4))


def test_variables_are_among_what_a_kernel_is_given() -> None:
    size, whole = Variable("size", 1, 5).bind(4), ones(9)
    total = ones(9)[:size]
    for k in range(1, 5):
        begin = Variable(f"begin{k}", 0, 4).bind(k)
        total = total + whole[begin : begin + size] * ones(9)[:size]
    assert max(named_by_kernels(total, 128)) > 8
    assert max(named_by_kernels(total, 8)) <= 8


def test_long_chain_is_cut() -> None:
    value = ones(5)
    for _ in range(3 * LONGEST_CHAIN):
        value = value.flip(0) + 1
    assert len(bodies(value.sum())) == 3 * LONGEST_CHAIN * SHORT_CYCLES // LONG_CHAIN_CYCLES
    assert value.tolist() == [3 * LONGEST_CHAIN + 1.0] * 5


def test_state_of_a_recurrent_network_is_not_computed_from_its_beginning_in_each_step() -> None:
    def operations(steps: int) -> int:
        cell = nn.LSTMCell(2, 5)
        state, x = None, ones(3, 2)
        for _ in range(steps):
            state = cell(x, state)
        loss = state[0].sum()
        graphs = bodies(loss)
        return sum([n.op in ELEMENTWISE for body in graphs for n in body.toposort()])

    short, long = operations(16), operations(64)
    assert long < 5 * short


def test_value_that_two_kernels_use_is_computed_by_both_where_that_is_little() -> None:
    x = ones(4, 4)
    shared = (x * 2 + 1).relu()
    assert len(bodies(shared.sum(0) + shared.sum(1))) <= 3
    assert MOST_REPEATED > 100  # as long as the mask of a dropout


def test_a_mask_that_two_kernels_use_is_computed_by_both() -> None:
    """As in the gradient of a pool: which elements are the largest, how many, and the share of each."""
    images = Tensor(np.random.default_rng(0).random((2, 3, 8, 8), np.float32)).realize()
    pooled = images.max_pool2d(2).realize()
    is_largest = images.reshape(2, 3, 4, 2, 4, 2) == pooled.reshape(2, 3, 4, 1, 4, 1)
    share = pooled / is_largest.sum((3, 5))
    kernels = bodies(is_largest.where(share.reshape(2, 3, 4, 1, 4, 1), 0))
    assert len(kernels) == 2
    assert not any([n.op is Ops.PARAM and n.dtype.is_bool for k in kernels for n in k.toposort()])


@pytest.mark.parametrize("steps", [1, 7, 700])
@pytest.mark.parametrize(
    ("step", "by_numpy"),
    [
        (lambda r, i: r * 1.0001 + 0.5, lambda r, i: r * 1.0001 + 0.5),
        (lambda r, i: r.maximum(i % 7 - 5.0), lambda r, i: np.maximum(r, i % 7 - 5.0)),
        (lambda r, i: r.flip(0) + 1, lambda r, i: r[::-1] + 1),
        (lambda r, i: (r > i).where(r, r + 1), lambda r, i: np.where(r > i, r, r + 1)),
    ],
    ids=["multiply and add", "maximum", "flip", "where"],
)
def test_chain_of_any_length_has_its_values_and_gradient(
    step: Callable[[Tensor, int], Tensor],
    by_numpy: Callable[[np.ndarray, int], np.ndarray],
    steps: int,
) -> None:
    leaf = Tensor(np.linspace(-3, 3, 5), requires_grad=True)
    value, expected = leaf, leaf.numpy()
    for i in range(steps):
        value, expected = step(value, i), by_numpy(expected, i)
    (gradient,) = value.sum().gradient(leaf)
    assert np.allclose(value.numpy(), expected)
    assert np.isfinite(gradient.numpy()).all()


@pytest.mark.parametrize(("steps", "apart"), [(MOST_BESIDE + 1, 0), (MOST_BESIDE + 2, 1)])
def test_a_sum_of_many_products_is_no_epilogue_of_one_of_them(steps: int, apart: int) -> None:
    """As the gradient of a weight that each step of a recurrent network uses: of few, one kernel adds the others to its own."""
    pairs = [(ones(16, 32), ones(16, 24)) for _ in range(steps)]
    total = sum([a.transpose(0, 1) @ b for a, b in pairs], Tensor(0.0))
    found = bodies(total)
    assert len(found) == steps + apart
    are_sums = [any([n.op is Ops.REDUCE_AXIS for n in body.toposort()]) for body in found]
    assert are_sums.count(False) == apart
    assert np.array_equal(total.numpy(), np.full((32, 24), 16.0 * steps, np.float32))


def test_a_short_reduction_of_many_buffers_is_not_written_out() -> None:
    """As of the gradient of a bias that many steps use."""
    parts = [ones(16, 256) * k for k in range(MOST_LOADS // 8)]
    total = sum(parts[1:], parts[0])
    Tensor.realize(*parts)
    (body,) = bodies(total.sum(0))
    (linear,) = compiler().linears(body, "CPU")
    loads = [n for n in linear.src if n.op is Ops.LOAD]
    assert len(parts) <= len(loads) <= MOST_LOADS
    assert np.array_equal(total.sum(0).numpy(), np.full(256, 16 * sum(range(len(parts)))))


@pytest.mark.parametrize("size, vectors_mask, is_stored", [
    (3, True, False), (5, True, True), (5, False, False), (7, False, True),
])  # fmt: skip
def test_a_padded_image_is_stored_for_fewer_readings_where_masks_are_vectors(
    size: int, vectors_mask: bool, is_stored: bool
) -> None:
    """Masks that are vectors take the registers of sums: 16 readings of an element, else 32, are worth a kernel that pads."""
    core = Core(mask_registers=16 if vectors_mask else 7)
    target = Target("some", vector_bytes=32, vector_registers=16, core=core)
    y = ones(1, 8, 40, 40).conv2d(ones(8, 1, size, size), padding=size // 2, groups=8)
    program = without_bodies(UOp.sink(y.uop))
    stored = nodes_that_need_a_buffer(program, target)
    assert any(node.op is Ops.PAD for node in stored) == is_stored


@pytest.mark.parametrize("shape", [(0, 2, 2), (2, 0, 3), (2, 3, 0), (0, 300), (4, 0, 64, 64)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_values_without_elements_are_computed_beside_others(
    shape: tuple[int, ...], dtype: str
) -> None:
    x = Tensor(np.zeros(shape), dtype=dtype)
    rows = [x.normalize(dim=-1), x.layernorm(), x.softmax(-1), x - x.mean(-1, keepdim=True)]
    for value in [*rows, *[row.sum(0) for row in rows]]:
        other = Tensor([1.0, 2.0]) * 3
        Tensor.realize(other, value)
        assert other.tolist() == [3, 6]
        assert value.cast("float32").numpy().shape == value.shape
