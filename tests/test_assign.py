"""Writes: what a Tensor, its views and its readers mean after one."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tensors import machine

from proofgrad import (
    Context,
    DtypeError,
    GlobalCounters,
    GradientError,
    ShapeError,
    Tensor,
    TinyJit,
    Variable,
    dtypes,
    nn,
)
from proofgrad.core.tensor.runtime import known_runs, realize
from proofgrad.core.tensor.runtime.memory import buffer_of, memory_of

__all__ = ["machine"]


# -- readers built before a write see the old value ----------------------------------------------


def test_reader_built_before_a_view_assign_keeps_the_old_value(machine: str) -> None:
    """tinygrad #17074 gives [19, 12]."""
    x = Tensor([1, 2])
    reader = x + 10
    x[:1].assign(9)
    Tensor.realize(reader, x)
    assert (reader.tolist(), x.tolist()) == ([11, 12], [9, 2])


def test_reader_of_realised_memory_keeps_the_old_value_in_every_order() -> None:
    for order in (0, 1):
        x = Tensor([1, 2, 3]).realize()
        reader = x * 10
        x[1:] = 0
        first, second = (reader, x) if order else (x, reader)
        first.realize()
        second.realize()
        assert (reader.tolist(), x.tolist()) == ([10, 20, 30], [1, 0, 0])


def test_realising_one_tensor_changes_no_other() -> None:
    """tinygrad #10640: a value that shares memory with one that is written to."""
    x = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()
    turned, alias = x.T, x.reshape(4)
    x += 1
    x.realize()
    assert turned.tolist() == [[1, 3], [2, 4]]
    assert alias.tolist() == [1, 2, 3, 4]
    assert x.tolist() == [[2, 3], [4, 5]]


def test_two_lazy_draws_differ_in_every_order_of_reading() -> None:
    """tinygrad #16520: two lazy rand with equal values."""
    a, b = Tensor.rand(4), Tensor.rand(4)
    assert b.tolist() != a.tolist()


def test_contiguous_copy_is_not_written_to() -> None:
    """tinygrad #4562."""
    x = Tensor([1, 2, 3]).realize()
    copy = x.contiguous().realize()
    x[0] = 9
    assert (x.tolist(), copy.tolist()) == ([9, 2, 3], [1, 2, 3])


def test_chain_of_writes_without_realize_equals_numpy(machine: str) -> None:
    """tinygrad #4999 and #12617: right only if realised early, wrong if realised often."""
    for often in (False, True):
        x, want = Tensor([0, 1, 2, 3]), np.arange(4)
        for k in range(4):
            x[k] = x[(k + 1) % 4] + 10
            want[k] = want[(k + 1) % 4] + 10
            if often:
                x.realize()
        assert x.tolist() == want.tolist()


def test_overlapping_parts_are_read_before_they_are_written(machine: str) -> None:
    x = Tensor([1, 2, 3, 4])
    x[1:] = x[:-1]
    assert x.tolist() == [1, 1, 2, 3]


# -- views ---------------------------------------------------------------------------------------


def test_a_view_of_a_view_writes_to_the_tensor_below() -> None:
    x = Tensor.arange(12).reshape(3, 4)
    row = x[1]
    row[2:].assign(Tensor([50, 60]))
    assert x.tolist() == [[0, 1, 2, 3], [4, 5, 50, 60], [8, 9, 10, 11]]
    assert row.tolist() == [4, 5, 50, 60]


def test_an_old_view_names_a_position_of_the_new_value() -> None:
    x = Tensor([1, 2, 3, 4])
    view = x[:2]
    x.assign(Tensor([5, 6, 7, 8]))
    assert view.tolist() == [1, 2]
    view += 1
    assert (view.tolist(), x.tolist()) == ([6, 7], [6, 7, 7, 8])


def test_replace_by_another_shape_is_refused_unless_it_is_meant() -> None:
    x = Tensor([1, 2, 3, 4])
    for other in (Tensor([1]), Tensor(1), Tensor([[1, 2, 3, 4]]), Tensor.zeros(0)):
        with pytest.raises(
            ShapeError, match=r"replace was given \(.* in place of \(4,\); say allow"
        ):
            x.replace(other)
    assert x.tolist() == [1, 2, 3, 4]
    x.replace(Tensor([[1.5]]), allow_shape_mismatch=True)
    assert (x.tolist(), x.dtype) == ([[1.5]], dtypes.float)


def test_writing_to_a_view_of_a_tensor_with_another_shape_now_is_refused() -> None:
    x = Tensor([1, 2, 3, 4])
    view = x[:2]
    x.replace(Tensor([1]), allow_shape_mismatch=True)
    with pytest.raises(ShapeError, match=r"had the shape \(4,\) and now has \(1,\)"):
        view.assign(0)


@pytest.mark.parametrize("kind", ["expand", "pad", "windows"])
def test_writing_to_a_view_that_is_no_position_in_memory_is_refused(kind: str) -> None:
    x = Tensor([[1.0], [2.0]])
    view = {
        "expand": lambda: x.expand(2, 3),
        "pad": lambda: x._pad_zeros([(0, 0), (1, 1)]),
        "windows": lambda: x.reshape(2)._windows(0, 2, 1, 1),
    }[kind]()
    with pytest.raises(ValueError, match="cannot write to this view"):
        view.assign(0.0)


def random_index(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Any, ...]:
    def part(n: int) -> Any:
        match rng.integers(0, 4):
            case 0:
                return slice(None)
            case 1:
                return int(rng.integers(-n, n))
            case 2:
                step = int(rng.choice([1, 2, 3, -1, -2]))
                return slice(int(rng.integers(0, n)), None, step)
            case _:
                return slice(None, int(rng.integers(0, n)))

    return tuple([part(n) for n in shape[: rng.integers(1, 4)]])


@pytest.mark.parametrize("seed", range(12))
def test_random_slices_are_written_as_numpy_writes_them(seed: int) -> None:
    rng = np.random.default_rng(seed)
    want = rng.integers(0, 50, (4, 5, 6)).astype(np.int32)
    x = Tensor(want)
    history = []
    for _ in range(3):
        index = random_index(rng, want.shape)
        value = rng.integers(0, 50, want[index].shape).astype(np.int32)
        history.append((x + 0, want.copy()))
        if rng.integers(2):
            want[index] = value
            x[index] = Tensor(value)
        else:
            want[index] += 3
            x[index] += 3
    np.testing.assert_array_equal(x.numpy(), want)
    for reader, old in history:
        np.testing.assert_array_equal(reader.numpy(), old)


# -- values --------------------------------------------------------------------------------------


def test_value_is_broadcast_and_cast_where_nothing_is_lost() -> None:
    x = Tensor.zeros(2, 3)
    x[:, 1:] = Tensor([1, 2])
    assert x.tolist() == [[0, 1, 2], [0, 1, 2]]
    x[1] = [7, 8, 9]
    assert x.tolist() == [[0, 1, 2], [7, 8, 9]]


def test_value_that_does_not_go_in_is_refused() -> None:
    x = Tensor([1, 2, 3])
    with pytest.raises(ShapeError, match=r"cannot assign \(2,\) to a Tensor of \(3,\)"):
        x[:] = Tensor([1, 2])
    with pytest.raises(DtypeError, match="cast it first"):
        x[0] = Tensor(1.5)
    with pytest.raises(OverflowError):
        x[0] = 2**40
    with pytest.raises(IndexError):
        x[3] = 0
    with pytest.raises(TypeError, match="cannot be deleted"):
        del x[0]
    assert x.tolist() == [1, 2, 3]


# -- chosen elements -----------------------------------------------------------------------------


def test_tensor_index_writes_as_numpy_does_and_the_last_one_counts(machine: str) -> None:
    want = np.zeros((3, 2), np.float32)
    x = Tensor(want)
    positions, values = [2, 0, 2], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    want[positions] = values
    x[Tensor(positions)] = Tensor(values)
    assert x.tolist() == want.tolist()
    want[1:, 1] = 9
    want[[0, 1], 0] = [7, 8]
    x[1:, 1] = 9
    x[[0, 1], 0] = Tensor([7.0, 8.0])
    assert x.tolist() == want.tolist()


def test_computed_index_outside_of_the_tensor_writes_nothing() -> None:
    x = Tensor([1, 2, 3])
    with Context(CHECK=0):
        x[Tensor([4, 0]) + 1] = Tensor([70, 80])
    assert x.tolist() == [1, 80, 3]


def test_mask_writes_a_number_a_row_or_one_value_for_each_true_position(machine: str) -> None:
    want = np.arange(6, dtype=np.float32).reshape(3, 2)
    x = Tensor(want)
    rows = np.array([True, False, True])
    want[rows] = [10, 20]
    x[Tensor(rows)] = Tensor([10.0, 20.0])
    assert x.tolist() == want.tolist()
    want[want > 9] = [1, 2, 3, 4]
    x[x > 9] = Tensor([1.0, 2.0, 3.0, 4.0])
    assert x.tolist() == want.tolist()
    x[x > 2] = 0
    assert x.tolist() == [[1, 2], [2, 0], [0, 0]]
    with pytest.raises(ShapeError, match="to the 2 positions where the mask is true"):
        x[x == 2] = Tensor([1.0, 2.0, 3.0])


def test_mask_of_several_axes_takes_values_with_an_axis_of_one_in_front_in_order() -> None:
    x = Tensor.zeros(2, 3).contiguous()
    x[Tensor([[True, False, True], [False, True, False]])] = Tensor([[1.0, 2.0, 3.0]])
    assert x.tolist() == [[1, 0, 2], [0, 3, 0]]


@pytest.mark.parametrize("count", [0, 2])
def test_mask_takes_values_that_broadcast_behind_its_axes(count: int) -> None:
    want = np.zeros((3, 2, 4), np.float32)
    x, rows = Tensor(want), np.arange(3) < count
    values = np.arange(count * 4, dtype=np.float32).reshape(count, 1, 4)
    want[rows] = values
    x[Tensor(rows)] = Tensor(values)
    assert x.tolist() == want.tolist()


# -- in place --------------------------------------------------------------------------------------


def test_in_place_operators_change_the_tensor_itself() -> None:
    x = Tensor([12, 7])
    alias = x
    x += 1
    x -= Tensor([1, 0])
    x *= 2
    x //= 3
    x **= 2
    x &= 127
    x |= 1
    x ^= 2
    x <<= 1
    x >>= 1
    x %= 50
    assert x is alias
    want = np.array([12, 7])
    want = ((((((want + 1 - [1, 0]) * 2 // 3) ** 2) & 127) | 1) ^ 2) % 50
    assert x.tolist() == want.tolist()
    y = Tensor([3.0, 6.0])
    y /= 2
    assert y.tolist() == [1.5, 3.0]
    z = Tensor([[1.0, 2.0], [3.0, 4.0]])
    z @= Tensor([[0.0, 1.0], [1.0, 0.0]])
    assert z.tolist() == [[2, 1], [4, 3]]


def test_in_place_operator_that_changes_shape_or_type_is_refused() -> None:
    x = Tensor([1, 2])
    with pytest.raises(ShapeError, match=r"from \(2,\) to \(3, 2\); write x = x \+ y"):
        x += Tensor.ones(3, 2, dtype=dtypes.int)
    with pytest.raises(DtypeError, match="write x = x / y"):
        x /= 2
    assert x.tolist() == [1, 2]


# -- gradients ------------------------------------------------------------------------------------


def test_gradient_passes_a_write_to_the_value_and_to_what_stays() -> None:
    x, v = Tensor([1.0, 2.0, 3.0]), Tensor([5.0])
    y = x * 2
    y[1:2] = v * 3
    loss = (y * y).sum()
    gx, gv = loss.gradient(x, v)
    assert gx.tolist() == [8.0, 0.0, 24.0]
    assert gv.tolist() == [90.0]


def test_gradient_passes_in_place_operators() -> None:
    x = Tensor([3.0])
    total = Tensor([0.0]) + 0
    for _ in range(3):
        total += x * x
    (grad,) = total.gradient(x)
    assert grad.tolist() == [18.0]


@pytest.mark.parametrize("index", [..., slice(None), (slice(None), slice(None)), slice(0, 2)])
def test_gradient_passes_in_place_operators_on_a_view_of_the_whole(index: Any) -> None:
    x, y = Tensor([[1.0, 2.0], [3.0, 4.0]]), Tensor([[5.0, 6.0], [7.0, 8.0]])
    z = x * x
    z[index] *= y
    view = z.reshape(2, 2)
    view += x
    assert [one.tolist() for one in z.sum().gradient(x, y)] == [
        [[11.0, 25.0], [43.0, 65.0]],
        [[1.0, 4.0], [9.0, 16.0]],
    ]


def test_assigned_value_passes_no_gradient() -> None:
    w, x = Tensor([2.0], requires_grad=True), Tensor([3.0])
    w.assign(w * x)
    (w * x).sum().backward()
    assert w.tolist() == [6.0]
    assert w.grad is not None and w.grad.tolist() == [3.0]
    assert x.grad is None


def test_writing_to_a_part_of_a_parameter_needs_no_grad() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    for write in (lambda: w.__setitem__(0, 5.0), lambda: w.__iadd__(1.0)):
        with pytest.raises(GradientError, match=r"write inside `with Tensor.no_grad\(\):`"):
            write()
    with Tensor.no_grad():
        w[0] = 5.0
        w -= 1.0
    (w * w).sum().backward()
    assert w.tolist() == [4.0, 1.0]
    assert w.grad is not None and w.grad.tolist() == [8.0, 2.0]


@pytest.mark.parametrize(
    ("asks", "make"),
    [
        (True, lambda v: Tensor.zeros(2)),
        *itertools.product([True, None], [lambda v: v * 3, lambda v: v]),
    ],
)
@pytest.mark.parametrize("is_realized", [True, False])
@pytest.mark.parametrize("write", [Tensor.assign, Tensor.replace])
def test_tensors_assigned_one_value_have_gradients_of_their_own(
    asks: bool | None,
    is_realized: bool,
    make: Callable[[Tensor], Tensor],
    write: Callable[[Tensor, Tensor], Tensor],
) -> None:
    """Of a value that nobody has computed yet it was 7 to each, as to all that is of this value."""
    value = make(Tensor([1.0, 2.0]).realize())
    a, b = [Tensor([5.0, 6.0], requires_grad=asks) for _ in range(2)]
    write(a, value)
    write(b, value)
    Tensor.realize(a, b) if is_realized else None
    loss = (a * 2 + b * 5 + value.detach() * 7).sum()
    assert [one.tolist() for one in loss.gradient(a, b)] == [[2.0, 2.0], [5.0, 5.0]]
    loss.backward()
    assert a.grad is not None and b.grad is not None
    assert (a.grad.tolist(), b.grad.tolist()) == ([2.0, 2.0], [5.0, 5.0])


def test_what_is_replaced_by_a_value_of_a_parameter_leads_to_it() -> None:
    p = Tensor([1.0, 2.0], requires_grad=True)
    a, b = [Tensor([5.0, 6.0]) for _ in range(2)]
    a.replace(p * 3)
    b.replace(p)  # a copy of the data, as of weights
    (a * 2 + b * 5).sum().backward()
    assert p.grad is not None and p.grad.tolist() == [6.0, 6.0]


@pytest.mark.parametrize("asks", [True, None, False])
@pytest.mark.parametrize("given", [lambda w: w, lambda w: w.T.T, lambda w: w.detach()])
def test_a_tensor_assigned_memory_of_another_has_a_gradient_of_its_own(
    asks: bool | None, given: Callable[[Tensor], Tensor]
) -> None:
    """As a network of targets, which becomes the one that learns: it was 6 where it is 2."""
    w = Tensor([[2.0, 3.0]], requires_grad=True).realize()
    copies = [Tensor([[0.0, 0.0]], requires_grad=asks).realize() for _ in range(2)]
    held = GlobalCounters.mem_used
    for copy in copies:
        copy.assign(given(w)).realize()
    assert GlobalCounters.mem_used <= held
    one, other = copies
    (w * 2 + one * 4 + other.realize() * 5).sum().backward()
    assert w.grad is not None and w.grad.tolist() == [[2.0, 2.0]]
    if asks:
        assert one.grad is not None and other.grad is not None
        assert (one.grad.tolist(), other.grad.tolist()) == ([[4.0, 4.0]], [[5.0, 5.0]])
    with Tensor.no_grad():
        w += 1.0
        one += 2.0
    assert (w.tolist(), one.tolist(), other.tolist()) == ([[3, 4]], [[4, 5]], [[2, 3]])


def test_memory_of_another_is_assigned_anew_by_each_replay() -> None:
    w, copy = Tensor([2.0], requires_grad=True).realize(), Tensor([0.0]).realize()

    @TinyJit
    def step() -> Tensor:
        copy.assign(w)
        (slope,) = (w * copy * copy).sum().gradient(w)
        w.assign(w + 1)
        return slope.realize()

    assert [step().item() for _ in range(5)] == [4.0, 9.0, 16.0, 25.0, 36.0]
    assert (copy.item(), w.item()) == (6.0, 7.0)


# -- memory ----------------------------------------------------------------------------------------


def address(tensor: Tensor) -> int:
    """Where the elements of a realised Tensor are."""
    return memory_of(buffer_of(tensor.uop)).address


def test_write_is_in_place_when_nobody_reads_the_old_value(no_known_runs: None) -> None:
    x = Tensor([1.0, 2.0, 3.0]).realize()
    before, held = address(x), GlobalCounters.mem_used
    x.assign(x * 2).realize()
    x += 1
    x.realize()
    x[1:] = 0
    x.realize()
    assert (address(x), GlobalCounters.mem_used) == (before, held)
    assert x.tolist() == [3.0, 0.0, 0.0]


def test_write_takes_new_memory_when_somebody_reads_the_old_value() -> None:
    x = Tensor([1.0, 2.0, 3.0]).realize()
    before = address(x)
    reader = x * 10
    x.assign(x * 2).realize()
    assert address(x) != before
    assert (reader.tolist(), x.tolist()) == ([10, 20, 30], [2, 4, 6])


def test_write_that_reads_other_positions_takes_new_memory() -> None:
    x = Tensor([1.0, 2.0, 3.0]).realize()
    before = address(x)
    x[1:] = x[:-1]
    x.realize()
    assert address(x) != before
    assert x.tolist() == [1, 1, 2]


def test_reader_in_the_same_run_runs_before_the_write(no_known_runs: None) -> None:
    x = Tensor([1.0, 2.0, 3.0]).realize()
    before = address(x)
    total = x.sum()
    x.assign(x + 1)
    Tensor.realize(x, total)
    assert address(x) == before
    assert (x.tolist(), total.item()) == ([2, 3, 4], 6)


def test_two_writes_that_read_each_other_are_not_both_in_place() -> None:
    x, y = Tensor([1.0, 2.0]).realize(), Tensor([10.0, 20.0]).realize()
    new_x, new_y = x + y.flip(0), y + x.flip(0)
    x.assign(new_x)
    y.assign(new_y)
    del new_x, new_y
    Tensor.realize(x, y)
    assert (x.tolist(), y.tolist()) == ([21, 12], [12, 21])


def test_failed_run_leaves_every_value_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    x = Tensor([1.0, 2.0]).realize()
    x.assign(x * 2)

    def fail(*_: object) -> None:
        raise MemoryError("none left")

    with monkeypatch.context() as patch:
        patch.setattr(realize, "execute", fail)
        patch.setattr(
            realize, "run_again", lambda *_: None
        )  # were it known, it would not get there
        with pytest.raises(MemoryError, match="none left"):
            x.realize()
    assert x.tolist() == [2.0, 4.0]


def test_interrupt_while_memory_is_let_go_of_loses_no_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = Tensor([1.0, 2.0]).realize() * 5

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(known_runs, "RESULT_BYTES", 0)
        patch.setattr(realize, "is_unshared", interrupt)
        patch.setattr(realize, "run_again", lambda *_: None)
        with pytest.raises(KeyboardInterrupt):
            x.realize()
    assert x.tolist() == [5.0, 10.0]


def test_optimizer_steps_hold_no_more_memory_than_parameters_and_state() -> None:
    w = Tensor.ones(8, 8, requires_grad=True)
    opt = nn.optim.Adam([w], lr=0.1)
    x = Tensor.ones(8).realize()
    held = []
    for _ in range(4):
        opt.zero_grad()
        (w @ x).square().sum().backward()
        opt.step()
        opt.zero_grad()
        held.append(GlobalCounters.mem_used)
    assert held[1] == held[2] == held[3]


def test_detached_value_does_not_hold_the_graph() -> None:
    x = Tensor.ones(1000).contiguous().realize()
    held = GlobalCounters.mem_used
    kept = [(x * k).contiguous().sum().detach().realize() for k in range(3)]
    assert GlobalCounters.mem_used - held <= 3 * 64
    assert [t.item() for t in kept] == [0, 1000, 2000]


def test_solver_agrees_with_kernels_that_write_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("z3")
    monkeypatch.setenv("PROVE", "1")
    x = Tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).realize()
    before = address(x)
    x[1:, ::2] = 9
    x.realize()
    assert address(x) == before
    assert x.tolist() == [[1, 2, 3], [9, 5, 9]]


def test_memory_that_an_array_shares_is_not_written_over() -> None:
    x = Tensor([1.0, 2.0, 3.0]).realize()
    array = np.from_dlpack(x)
    x = x * 2
    x.realize()
    assert (array.tolist(), x.tolist()) == ([1, 2, 3], [2, 4, 6])
    theirs = np.array([1.0, 2.0, 3.0], np.float32)
    y = Tensor.from_dlpack(theirs)
    y = y * 2
    y.realize()
    assert (theirs.tolist(), y.tolist()) == ([1, 2, 3], [2, 4, 6])


# -- a write is done where the view it went through is computed --------------------------------------


@pytest.mark.parametrize("bound", [False, True])
def test_computing_a_view_that_was_written_to_does_the_write(bound: bool) -> None:
    cache, position = Tensor.zeros(8, 2).contiguous().realize(), Variable("position", 0, 7)
    for k in range(1, 7):
        part = cache[position.bind(k) : position.bind(k) + 1] if bound else cache[k : k + 1]
        part.assign(Tensor.full((1, 2), float(k))).realize()
        assert len(cache._uop.toposort()) < 6
        assert part.tolist() == [[k, k]]
    assert cache.tolist() == [[k, k] for k in [0, 1, 2, 3, 4, 5, 6, 0]]


def test_computing_an_earlier_view_keeps_what_it_showed() -> None:
    x = Tensor([1.0, 2.0, 3.0]).realize()
    first, second = x[:2], x[1:]
    first.assign(first * 10)
    second.assign(second * 10)
    first.realize()
    assert (first.tolist(), second.tolist(), x.tolist()) == ([10, 20], [20, 30], [10, 20, 30])


def test_gradients_pass_a_write_whose_view_was_computed() -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    x = Tensor.zeros(3).contiguous().realize()
    x[1:] = w * 3
    x[1:].realize()
    x.sum().backward()
    assert w.grad is not None
    assert w.grad.tolist() == [3, 3]


def test_positions_on_several_axes_are_written_as_numpy_writes_them() -> None:
    rng = np.random.default_rng(3)
    for _ in range(30):
        shape = tuple(rng.integers(1, 5, rng.integers(2, 5)))
        lines = [(2,), (3, 1), (2, 2)][rng.integers(3)]
        index: list[Any] = []
        for n in shape:
            match rng.integers(0, 5):
                case 0:
                    index.append(slice(int(rng.integers(0, n)), None, int(rng.choice([1, 2, -1]))))
                case 1 | 2:
                    index.append(rng.integers(-n, n, lines))
                case 3:
                    index += [None, slice(None)]
                case _:
                    index.append(slice(None))
        expected = rng.standard_normal(shape).astype(np.float32)
        t = Tensor(expected)
        value = rng.standard_normal(expected[tuple(index)].shape).astype(np.float32)
        t[tuple(Tensor(p) if isinstance(p, np.ndarray) else p for p in index)] = Tensor(value)
        expected[tuple(index)] = value
        assert np.array_equal(t.numpy(), expected), (shape, index)


def test_positions_on_some_axes_cost_what_there_is_to_write() -> None:
    counts = []
    for size in (6, 24):
        x = Tensor.zeros(size, 4, size, 4, size).contiguous().realize()
        x[:, Tensor([0, 1]), :, Tensor([2, 3]), :] = Tensor.ones(2, size, size, size)
        before = GlobalCounters.global_ops
        x.realize()
        counts.append((GlobalCounters.global_ops - before) / x.numel())
        assert x.sum().item() == 2 * size**3
    # A choice among all positions would cost four times as much for each.
    assert counts[1] < 2 * counts[0]


@pytest.mark.parametrize("index", [Tensor([1]), Tensor([False, True]), [1], slice(1, 2)])
def test_chosen_elements_of_a_view_are_written_to_what_the_tensor_is_now(index: Any) -> None:
    """The view was taken before another write: what stays must not be what it showed then."""
    x = Tensor([[1, 2], [3, 4]])
    view = x.reshape(2, 1, 2)
    x[0] = -1
    view[index] = 0
    assert x.tolist() == [[-1, -1], [0, 0]]
    assert view.tolist() == [[[-1, -1]], [[0, 0]]]


def test_old_view_that_is_written_to_itself_writes_what_it_named() -> None:
    x = Tensor([0, 1]).realize()
    turned = x.flip(0)
    x.assign(Tensor([7, 8]))
    turned[()] = turned
    assert (x.tolist(), turned.tolist()) == ([0, 1], [1, 0])


def test_a_view_that_was_written_from_keeps_its_value_when_it_is_computed() -> None:
    """Its node is what another view of the same Tensor was given, which is no write to it."""
    base = Tensor([1.0, 2.0, 3.0, 4.0]).realize()
    first, second = base[0:2], base[1:3]
    first.assign(second)
    second.realize()
    assert second.tolist() == [2.0, 3.0] and first.tolist() == [2.0, 3.0]
    assert base.tolist() == [2.0, 3.0, 3.0, 4.0]
