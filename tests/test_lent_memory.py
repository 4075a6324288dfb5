"""Memory that others may write to: what is made of it after a write is computed from what was written."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from proofgrad import Tensor, TinyJit

Shared = tuple[np.ndarray[Any, Any], Tensor]


def _blob() -> Shared:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    return x, Tensor.from_blob(x.ctypes.data, (2, 3))


def _taken() -> Shared:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    return x, Tensor.from_dlpack(x)


def _given() -> Shared:
    t = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3)).realize()
    return np.from_dlpack(t), t


def _given_of_a_result() -> Shared:
    t = Tensor(np.arange(5, -1, -1, dtype=np.float32).reshape(2, 3)) * -1 + 5
    t.tolist()  # is computed, and still names what it was computed from
    return np.from_dlpack(t), t


_WAYS: list[Callable[[], Shared]] = [_blob, _taken, _given, _given_of_a_result]
each_way = pytest.mark.parametrize("shared", _WAYS)


@each_way
def test_what_is_made_after_a_write_sees_it_while_a_former_result_is_held(
    shared: Callable[[], Shared],
) -> None:
    x, t = shared()
    held = []
    for k in range(4):
        x[:] = k
        result = t + 1
        assert result.tolist() == [[k + 1] * 3] * 2
        held.append(result)
    assert [one.tolist() for one in held] == [[[k + 1] * 3] * 2 for k in range(4)]


@each_way
def test_a_view_of_shared_memory_sees_a_write(shared: Callable[[], Shared]) -> None:
    x, t = shared()
    row, turned = t[1], t.T
    held = []
    for k in range(4):
        x[:] = [[k, k + 1, k + 2], [10 * k, 11 * k, 12 * k]]
        sums = [(row * 2).sum(), (turned[2] * 3).sum(), (t[0, 1:] * 5).sum()]
        assert [one.item() for one in sums] == [66 * k, 3 * (13 * k + 2), 5 * (2 * k + 3)]
        held += sums


@each_way
def test_a_part_of_a_larger_graph_is_computed_again(shared: Callable[[], Shared]) -> None:
    x, t = shared()
    inner = t + 1
    assert inner.sum().item() == 21 and inner.tolist() == [[1, 2, 3], [4, 5, 6]]
    x[:] = 7
    assert ((t + 1) * 3).tolist() == [[24] * 3] * 2
    assert (inner * 3).tolist() == [[3, 6, 9], [12, 15, 18]]  # a value that was computed stays


@each_way
def test_values_computed_together_are_kept_and_the_next_see_a_write(
    shared: Callable[[], Shared],
) -> None:
    x, t = shared()
    a, b = t * 2, t * 3
    c = (a + b).realize(b)
    x[:] = 1
    assert ((t * 2).sum() + (t * 3).sum()).item() == 30
    assert b.tolist() == [[0, 3, 6], [9, 12, 15]] and c.tolist() == [[0, 5, 10], [15, 20, 25]]


def test_one_name_more_for_each_kept_value_and_one_input_for_all() -> None:
    x, t = _blob()
    parts = []
    for k in range(5):
        x[:] = k
        parts.append(t + 1)
        parts[-1].tolist()
    mixed = parts[0] * t + parts[4] * t + t
    assert mixed.tolist() == [[4 + 5 * 4 + 4] * 3] * 2


@pytest.mark.parametrize("shape", [(6,), (2, 3)])
def test_the_gradient_of_shared_memory_is_that_of_all_its_names(shape: tuple[int, ...]) -> None:
    x = np.arange(6, dtype=np.float32).reshape(shape)
    t = Tensor.from_blob(x.ctypes.data, shape).requires_grad_()
    first = (t * t).sum()
    assert first.item() == 55
    second = (t * t * t).sum()
    assert second.item() == 225
    third = first + second + (t * 4).sum()
    assert third.item() == 340
    third.backward()
    assert t.grad is not None
    np.testing.assert_array_equal(t.grad.numpy(), 2 * x + 3 * x * x + 4)
    (again,) = third.gradient(t)
    np.testing.assert_array_equal(again.numpy(), 2 * x + 3 * x * x + 4)


def test_the_gradient_of_a_view_of_shared_memory_is_found_after_a_value_was_kept() -> None:
    x = np.arange(6, dtype=np.float32)
    t = Tensor.from_blob(x.ctypes.data, (6,)).requires_grad_()
    part = t[2:5]
    loss = (part * part).sum()
    assert loss.item() == 29
    loss.backward()
    assert t.grad is not None and t.grad.tolist() == [0, 0, 4, 6, 8, 0]
    assert part.grad is not None and part.grad.tolist() == [4, 6, 8]


def test_the_gradient_of_a_result_of_shared_memory_is_found_after_a_value_was_kept() -> None:
    x = np.arange(3, dtype=np.float32)
    t = Tensor.from_blob(x.ctypes.data, (3,)).requires_grad_()
    doubled = t * 2
    losses = [(doubled * doubled).sum() for _ in range(2)]
    assert [loss.item() for loss in losses] == [20, 20]
    assert (t * 5).sum().item() == 15
    losses[0].backward()
    assert doubled.grad is not None and doubled.grad.tolist() == [0, 4, 8]
    assert t.grad is not None and t.grad.tolist() == [0, 8, 16]


def test_what_is_written_through_a_view_is_not_written_to_shared_memory() -> None:
    x, t = _blob()
    row, kept = t[1], t + 1
    assert kept.sum().item() == 21
    kept.tolist()
    row[0] = 100
    assert row.tolist() == [100, 4, 5] and t.tolist() == [[0, 1, 2], [100, 4, 5]]
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    x[:] = 9
    assert (t + 1).tolist() == [[1, 2, 3], [101, 5, 6]]


@each_way
def test_a_recorded_function_reads_shared_memory_in_each_call(shared: Callable[[], Shared]) -> None:
    x, t = shared()

    @TinyJit
    def of_argument(a: Tensor) -> Tensor:
        return (a + 1).realize()

    @TinyJit
    def of_closure(a: Tensor) -> Tensor:
        return (a + t).realize()

    one = Tensor.ones(2, 3).contiguous().realize()
    held = []
    for k in range(5):
        x[:] = k
        held.append(t + 1)
        assert held[-1].tolist() == [[k + 1] * 3] * 2
        assert of_argument(t).tolist() == of_closure(one).tolist() == [[k + 1] * 3] * 2


def test_a_result_of_a_parameter_is_lent_as_a_copy() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    y = w * 3
    lent = np.from_dlpack(y)
    lent[:] = 50
    assert y.tolist() == [3, 6]
    (y * y).sum().backward()
    assert w.grad is not None and w.grad.tolist() == [18, 36]
    with pytest.raises(BufferError, match="result of a parameter"):
        y.__dlpack__(copy=False)
