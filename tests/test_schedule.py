"""How many kernels a program becomes, and that no buffer is read before it is written."""

from __future__ import annotations

import pytest

from proofgrad import GlobalCounters, Tensor
from proofgrad.core.compile.forms import Form, check_form
from proofgrad.core.compile.schedule import cut_into_kernels
from proofgrad.core.compile.target import Target
from proofgrad.core.ir.uop import UOp


@pytest.fixture
def x() -> Tensor:
    return Tensor([[float(i * 4 + j) for j in range(4)] for i in range(3)]).realize()


@pytest.fixture
def y() -> Tensor:
    return Tensor([[1.0] * 4] * 3).realize()


def kernels_of(*tensors: Tensor) -> int:
    GlobalCounters.reset()
    Tensor.realize(*tensors)
    return GlobalCounters.kernel_count


def test_elementwise_chain_is_one_kernel(x: Tensor) -> None:
    assert kernels_of(((x + 1) * 2 + 3).relu()) == 1


def test_add_relu_sum_is_one_kernel(x: Tensor, y: Tensor) -> None:
    assert kernels_of((x + y).relu().sum()) == 1


def test_add_relu_sum_realized_each_time_is_three_kernels(x: Tensor, y: Tensor) -> None:
    GlobalCounters.reset()
    (x + y).realize().relu().realize().sum().realize()
    assert GlobalCounters.kernel_count == 3


def test_movement_operations_are_no_kernel(x: Tensor) -> None:
    moved = [x.reshape(4, 3), x.permute(1, 0), x.reshape(3, 1, 4).expand(3, 5, 4), x[1:, ::2]]
    assert kernels_of(*moved) == 0


def test_matmul_with_bias_and_relu_is_one_kernel(x: Tensor, y: Tensor) -> None:
    assert kernels_of((x @ y.T + 1).relu()) == 1


def test_softmax_is_at_most_three_kernels(x: Tensor) -> None:
    assert kernels_of(x.softmax(-1)) <= 3


def test_second_realize_runs_nothing(x: Tensor) -> None:
    z = (x + 1).realize()
    assert kernels_of(z) == 0


def test_equal_expressions_share_one_computation(x: Tensor) -> None:
    a, b = x * 4, x * 4
    assert a.uop is b.uop
    a.realize()
    assert a.uop is b.uop
    assert kernels_of(b) == 0


def test_unused_branches_run_nothing(x: Tensor) -> None:
    _ = (x * 3).exp()
    assert kernels_of(x + 1) == 1


def test_random_numbers_and_arithmetic_are_one_kernel() -> None:
    assert kernels_of(Tensor.rand(4, 4) * 2 + 1) == 1


def test_cut_into_kernels_makes_a_legal_kernel_graph(x: Tensor, y: Tensor) -> None:
    value = ((x @ y.T).softmax(-1) + 1).sum(0)
    root = UOp.sink(value.uop).replace(arg="CPU")
    check_form(Form.KERNEL_GRAPH, cut_into_kernels(root, Target("test")))


def test_zero_sized_tensors_run_nothing() -> None:
    empty = Tensor([]).reshape(0, 3)
    assert kernels_of((empty + 1).realize()) == 0
    assert (empty + 1).tolist() == []
    assert empty.sum(0).tolist() == [0.0, 0.0, 0.0]
