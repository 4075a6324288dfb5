"""What is lazy, what is shared, and what a realised Tensor is."""

from __future__ import annotations

import pytest
from tensors import machine

from proofgrad import DtypeError, GlobalCounters, Ops, ShapeError, Tensor, dtypes

__all__ = ["machine"]


def test_nothing_runs_until_values_are_asked_for() -> None:
    GlobalCounters.reset()
    t = (Tensor([1.0, 2.0]) + 1).relu().sum()
    assert repr(t) and t.shape == ()
    assert (GlobalCounters.kernel_count, GlobalCounters.copy_count) == (0, 0)
    assert t.item() == 5.0
    assert GlobalCounters.kernel_count == 1


def test_equal_specifications_are_one_node_and_computed_once() -> None:
    t = Tensor([1, 2, 3, 4])
    a, b = t * 4, t * 4
    assert a is not b
    assert a.uop is b.uop
    a.realize()
    assert a.uop is b.uop
    before = GlobalCounters.kernel_count
    assert b.tolist() == [4, 8, 12, 16]
    assert GlobalCounters.kernel_count == before


def test_realised_tensor_is_a_new_buffer() -> None:
    t = Tensor([1, 2, 3, 4])
    source = t.uop.src[0]
    assert (t.uop.op, source.op) == (Ops.COPY, Ops.BUFFER)
    assert t.realize() is t
    assert t.uop.op is Ops.BUFFER
    assert t.uop.src[0].arg != source.src[0].arg
    before = (GlobalCounters.kernel_count, GlobalCounters.copy_count)
    t.realize()
    assert (GlobalCounters.kernel_count, GlobalCounters.copy_count) == before


def test_tensor_graph_is_not_simplified_before_it_is_compiled() -> None:
    t = Tensor([1, 2, 3, 4]) + 3 + 4
    assert (t.uop.op, t.uop.src[0].op) == (Ops.ADD, Ops.ADD)


def test_broadcast_of_a_scalar_is_visible_as_reshape_and_expand() -> None:
    scalar = (Tensor([1, 2, 3, 4]) * 2).uop.src[1]
    assert (scalar.op, scalar.arg) == (Ops.EXPAND, (4,))
    assert (scalar.src[0].op, scalar.src[0].arg) == (Ops.RESHAPE, (1,))
    assert (scalar.src[0].src[0].op, scalar.src[0].src[0].arg) == (Ops.CONST, 2)


def test_readers_built_before_an_assign_keep_the_old_value(machine: str) -> None:
    x = Tensor([1, 2])
    reader = x + 10
    x.assign(Tensor([9, 9]))
    Tensor.realize(reader, x)
    assert (reader.tolist(), x.tolist()) == ([11, 12], [9, 9])


def test_assign_of_itself_plus_one_counts(machine: str) -> None:
    x = Tensor([1, 2]).realize()
    for _ in range(3):
        x.assign(x + 1).realize()
    assert x.tolist() == [4, 5]


def test_assign_of_another_shape_or_type_is_refused() -> None:
    x = Tensor([1, 2])
    with pytest.raises(ShapeError, match=r"cannot assign \(3,\)"):
        x.assign(Tensor([1, 2, 3]))
    with pytest.raises(DtypeError, match="cast it first"):
        x.assign(Tensor([1.0, 2.0]))


def test_elementwise_chain_is_one_kernel() -> None:
    x = Tensor([1.0, -2.0, 3.0]).realize()
    before = GlobalCounters.kernel_count
    ((x + 1) * 2 + 3).relu().realize()
    assert GlobalCounters.kernel_count - before == 1


def test_sum_of_an_elementwise_chain_is_one_kernel() -> None:
    a, b = Tensor([1.0, -2.0]).realize(), Tensor([3.0, 4.0]).realize()
    before = GlobalCounters.kernel_count
    assert (a + b).relu().sum().item() == 6.0
    assert GlobalCounters.kernel_count - before == 1


def test_training_flag_is_set_within_train_only() -> None:
    assert not Tensor.training
    with Tensor.train():
        assert Tensor.training
        with Tensor.train(False):
            assert not Tensor.training
        assert Tensor.training
    assert not Tensor.training


def test_default_types_are_those_of_the_data() -> None:
    assert (Tensor([1]).dtype, Tensor([1.0]).dtype) == (dtypes.int, dtypes.float)


def test_memory_of_a_constant_is_free_when_no_tensor_holds_it() -> None:
    held = GlobalCounters.mem_used
    x = Tensor.ones(1000).contiguous().realize()
    assert GlobalCounters.mem_used - held == 4000
    del x
    assert GlobalCounters.mem_used == held


def test_memory_is_counted_for_each_device() -> None:
    here, there = (GlobalCounters.mem_used_per_device[name] for name in ("CPU", "REFERENCE"))
    held = GlobalCounters.mem_used
    x = Tensor.ones(1000).contiguous().realize()
    y = Tensor.ones(10, device="REFERENCE").contiguous().realize()
    counted = GlobalCounters.mem_used_per_device
    assert (counted["CPU"] - here, counted["REFERENCE"] - there) == (4000, 40)
    assert GlobalCounters.mem_used - held == 4040
    assert counted["no device"] == 0
    del x, y
