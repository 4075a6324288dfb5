"""How many kernels a program becomes, and that no buffer is read before it is written."""

from __future__ import annotations

import gc
import random
import re

import pytest
from tactics import cut_into_kernels

from proofgrad import GlobalCounters, Ops, Tensor
from proofgrad.core.compile.fusion.kernels import _consumers
from proofgrad.core.compile.fusion.meeting_points import meeting_points
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.passes.forms import Form, check_form
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.core.tensor.runtime import canonical


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


@pytest.mark.parametrize("seed", range(40))
def test_uses_meet_in_the_nearest_node_that_all_of_them_pass(seed: int) -> None:
    draw = random.Random(seed)
    made = [UOp.const(dtypes.int32, 7)]
    for _ in range(draw.randrange(2, 60)):
        reach = draw.choice([2, 5, 60])
        made.append(draw.choice(made[-reach:]) + draw.choice(made[-reach:]))
    nodes = toposort(made[-draw.randrange(1, 3) :])
    consumers = _consumers(nodes)
    passed: dict[UOp, set[UOp]] = {}  # by every use of a node, and the node
    for node in reversed(nodes):
        users = [passed[user] for user in consumers[node]]
        passed[node] = {node} | (set.intersection(*users) if users else set())
    nearest = {
        node: max(passed[node] - {node}, key=lambda n: len(passed[n]), default=None)
        for node in nodes
    }
    assert meeting_points(nodes, consumers).nearest == nearest


def test_zero_sized_tensors_run_nothing() -> None:
    empty = Tensor([]).reshape(0, 3)
    assert kernels_of((empty + 1).realize()) == 0
    assert (empty + 1).tolist() == []
    assert empty.sum(0).tolist() == [0.0, 0.0, 0.0]


def test_chain_of_matmuls_is_a_kernel_each(x: Tensor) -> None:
    weights = [Tensor.ones(4, 4).contiguous().realize() for _ in range(3)]
    value = x
    for w in weights:
        value = (value @ w).relu()
    assert kernels_of(value) == 3


def test_product_that_is_padded_is_computed_without_masks(x: Tensor, y: Tensor) -> None:
    product = (x @ y.T).relu()  # (3, 3): its kernel must not run over positions outside of it
    assert [item.shape for item in product.pad(((1, 1), (0, 2))).schedule()] == [(3, 3), (5, 5)]
    assert [item.shape for item in product.cat(x, dim=1).schedule()] == [(3, 3), (3, 7)]
    image, weight = Tensor.rand(1, 2, 6, 6).realize(), Tensor.rand(2, 2, 3, 3).realize()
    first, *_ = image.conv2d(weight, padding=1).relu().conv2d(weight, padding=1).schedule()
    assert first.shape[-2:] == (6, 6)


def test_long_products_are_stored_once_before_they_are_joined() -> None:
    one, other = [Tensor.full((512, 512), 1.0).contiguous().realize() for _ in range(2)]
    products = (one @ other).cat(other @ one, dim=1)
    assert [item.shape for item in products.schedule()] == [(512, 512), (512, 512), (512, 1024)]


def test_product_that_is_used_in_parts_is_computed_as_a_whole(x: Tensor, y: Tensor) -> None:
    """One kernel for both would sum each part by itself, without tiles."""
    gate, value = (x @ y.T.cat(y.T, dim=1)).chunk(2, dim=1)
    shapes = [item.shape for item in (gate.sigmoid() * value).schedule()]
    assert shapes[-2:] == [(3, 6), (3, 3)]
    product = x @ y.T
    assert [item.shape for item in (product + product.T).schedule()] == [(3, 3), (3, 3)]


def test_schedule_lists_kernels_and_runs_nothing(x: Tensor) -> None:
    value = (x @ x.T).relu().contiguous().sum(0)
    GlobalCounters.reset()
    items = value.schedule()
    assert GlobalCounters.kernel_count == 0
    assert [item.shape for item in items] == [(3, 3), (1, 3)]
    assert all(item.ast.op is Ops.SINK and not item.is_copy for item in items)
    assert items[0].source is not None and items[0].name in items[0].source.text
    assert repr(items[0]) == f"ScheduleItem({items[0].name} on CPU, (3, 3))"
    value.realize()
    assert GlobalCounters.kernel_count == len(items)
    assert value.schedule() == []


def test_schedule_of_data_is_a_copy() -> None:
    (item,) = Tensor([1, 2]).schedule()
    assert (item.is_copy, item.name, item.source) == (True, "copy", None)


def test_kernelize_shows_kernels_and_runs_nothing() -> None:
    t = Tensor([1, 2, 3, 4]).realize() + 3 + 4
    GlobalCounters.reset()
    t.kernelize()
    assert GlobalCounters.kernel_count == 0
    assert t.uop.op is Ops.ASSIGN
    assert t.uop.src[0].op is Ops.BUFFER
    assert t.uop.src[1].arg.ast.op is Ops.SINK
    assert (Tensor(t.uop) * 2).tolist() == [16, 18, 20, 22]
    assert t.tolist() == [8, 9, 10, 11]
    assert t.realize().uop.op is Ops.BUFFER


def test_what_was_shown_as_kernels_is_let_go() -> None:
    gc.collect()
    before = len(canonical.SHOWN)
    t = (Tensor([1, 2, 3, 4]).realize() + 3).kernelize()
    held = t.uop
    assert len(canonical.SHOWN) == before + 1
    assert t.uop is held
    del t
    gc.collect()
    assert Tensor(held).tolist() == [4, 5, 6, 7]
    del held
    gc.collect()
    assert len(canonical.SHOWN) == before


def test_counters_count_operations_and_bytes(x: Tensor, y: Tensor) -> None:
    GlobalCounters.reset()
    held = GlobalCounters.mem_used
    z = (x + y).realize()
    assert GlobalCounters.global_mem == 3 * 12 * 4
    assert GlobalCounters.global_ops >= 12
    assert GlobalCounters.mem_used - held == 12 * 4
    assert z.shape == (3, 4)


def test_run_reports_kernels_copies_and_peak_memory(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEBUG", "1")
    a = Tensor.ones(1000).contiguous()
    b = (a + 1).contiguous()
    c = (b + 1).contiguous()
    (c + 1).realize()
    line = capsys.readouterr().err.strip()
    assert re.fullmatch(r"4 kernels, \d+\.\d ms, peak 8\.0 kB", line)  # two of four at a time


def test_nested_lists_are_one_copy_and_no_kernel() -> None:
    GlobalCounters.reset()
    t = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
    assert (GlobalCounters.copy_count, GlobalCounters.kernel_count) == (1, 0)
    assert t.tolist() == [[1, 2], [3, 4]]


def test_reshaped_result_is_no_kernel_of_its_own(x: Tensor) -> None:
    assert kernels_of((x + 1).reshape(2, 6)) == 1
    y = (x + 2).reshape(12)
    assert kernels_of(y, (x + 2)) == 1
    assert y.tolist() == (x + 2).reshape(12).tolist()


def test_what_a_root_alone_shows_as_it_is_has_no_buffer_of_its_own() -> None:
    x = Tensor([[0.0, 1.0], [2.0, 3.0]]).realize()
    copied = (x + 1).contiguous()
    assert len(copied.detach().schedule()) == len(copied.reshape(4).detach().schedule()) == 1
    shown = copied.detach()
    Tensor.realize(shown, copied)
    assert shown.tolist() == copied.tolist() == [[1.0, 2.0], [3.0, 4.0]]
