"""What several loops over one row compute alike is computed once, and kept."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import pytest
from hypothesis import assume, given
from kernel_interpreter import run_kernel
from oracle import evaluate_tensor
from programs import Program, over_buffers, programs
from tactics import (
    choose_axes,
    choose_index_width,
    cut_into_kernels,
    merge_loops,
    reductions_to_accumulators,
    rows_inside,
    unroll_upcasts,
    use_local_buffers,
    vectorize,
)
from test_procedures import CPU, EXACT, QUICK, _Wide, run_linear, same, sums_floats
from test_windows import schedules

from proofgrad import Tensor
from proofgrad.core.compile.lowering.linearize import linearize
from proofgrad.core.compile.lowering.lower import lower_movement
from proofgrad.core.compile.machine.target import Target
from proofgrad.core.compile.nests.kernel_schedule import NO_COPIES
from proofgrad.core.compile.passes.forms import Form, check_form
from proofgrad.core.compile.tactics import local_buffers as kept_rows
from proofgrad.core.ir.dtypes import dtypes
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.uop import UOp, toposort
from proofgrad.core.tensor.runtime.realize import compiler

ROOM = Target("test-cpu", vector_bytes=16, threads=2, scratch_bytes=1 << 12)


def memory(*shape: int) -> UOp:
    """Parameter 1, integers."""
    whole = UOp(Ops.PARAM, dtypes.int32, (), (1, prod(shape)))
    return UOp(Ops.RESHAPE, dtypes.int32, (whole,), shape)


def kernel_of(make: Callable[[Tensor], Tensor], *shape: int) -> UOp:
    """The one kernel of a function of a Tensor, after its loops are merged."""
    root = UOp.sink(make(Tensor(np.ones(shape, np.float32)).realize()).uop).replace(arg="CPU")
    (call,) = cut_into_kernels(root, ROOM).src
    return merge_loops(lower_movement(call.src[0]))


def count(graph: UOp, op: Ops) -> int:
    return sum(n.op is op for n in toposort((graph,)))


def softmax(x: Tensor) -> Tensor:
    return x.softmax(-1)


def test_a_softmax_takes_each_exponential_once() -> None:
    kernel = kernel_of(softmax, 6, 20)
    kept = use_local_buffers(kernel, ROOM)
    check_form(Form.KERNEL, kept)
    assert (count(kernel, Ops.EXP), count(kept, Ops.EXP), count(kept, Ops.LOCAL_BUFFER)) == (
        2,
        1,
        1,
    )


def scores_of_columns(x: Tensor) -> Tensor:
    return x.sigmoid().softmax(-2)


def range_of_rows(x: Tensor) -> Tensor:
    return x.sigmoid().max(-1) - x.sigmoid().min(-1)


def range_of_columns(x: Tensor) -> Tensor:
    return x.sigmoid().max(-2) - x.sigmoid().min(-2)


@pytest.mark.parametrize("width", [17, 20, 64, 70])
def test_rows_across_memory_take_each_exponential_once_for_some_columns_at_a_time(
    width: int,
) -> None:
    kernel = kernel_of(scores_of_columns, 3, 20, width)
    kept = rows_inside(kernel, ROOM)
    check_form(Form.KERNEL, kept)
    assert (count(kernel, Ops.EXP), count(kept, Ops.EXP)) == (5, 2)
    data = np.random.default_rng(0).standard_normal((3, 20, width)).astype(np.float32)
    powers = np.exp(1 / (1 + np.exp(-data.astype(np.float64))))
    found = scores_of_columns(Tensor(data)).numpy()
    assert np.allclose(found, powers / powers.sum(1, keepdims=True), rtol=1e-5)


def test_rows_across_memory_that_no_result_goes_over_are_kept_for_columns_alone() -> None:
    root = UOp.sink(range_of_columns(Tensor(np.ones((3, 20, 64), np.float32)).realize()).uop)
    (call,) = cut_into_kernels(root.replace(arg="CPU"), ROOM).src
    kernel = merge_loops(compiler().index_terms(call.src[0]))
    assert use_local_buffers(kernel, ROOM) is kernel
    assert count(rows_inside(kernel, ROOM), Ops.LOCAL_BUFFER) == 1


@pytest.mark.parametrize(
    "make, shape, target, why",
    [
        (softmax, (6, 20), CPU, "the target has no room"),
        (softmax, (6, 2000), ROOM, "the row is longer than the room"),
        (lambda x: x.layernorm(), (6, 20), ROOM, "nothing costly is computed twice"),
        (lambda x: x.exp().sum(-1), (6, 20), ROOM, "it is computed once"),
        (softmax, (6, 3), ROOM, "a vector of rows takes each element twice as fast"),
        (range_of_rows, (6, 12), ROOM, "rows that are written out have them at hand"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_nothing_is_kept_where(
    make: Callable[[Tensor], Tensor], shape: tuple[int, ...], target: Target, why: str
) -> None:
    kernel = kernel_of(make, *shape)
    assert use_local_buffers(kernel, target) is kernel, why


ROWS: dict[str, Callable[[UOp], UOp]] = {
    "sum": lambda x: row(x, Ops.ADD, x),
    "shifted": lambda x: row(shifted(x), Ops.ADD, shifted(x)),
    "two": lambda x: row(x * x, Ops.MAX, row(x, Ops.ADD, x) * x),
}


def row(value: UOp, op: Ops, beside: UOp) -> UOp:
    """(x * x reduced over the last axis) + beside * beside."""
    axis = len(value.shape) - 1
    square = UOp(Ops.MUL, value.dtype, (value, value))
    total = UOp(Ops.REDUCE_AXIS, value.dtype, (square,), (op, (axis,)))
    wide = UOp(Ops.EXPAND, value.dtype, (total,), value.shape)
    return UOp(Ops.ADD, value.dtype, (wide, UOp(Ops.MUL, value.dtype, (beside, beside))))


def shifted(value: UOp) -> UOp:
    largest = UOp(Ops.REDUCE_AXIS, value.dtype, (value,), (Ops.MAX, (len(value.shape) - 1,)))
    return UOp(Ops.ADD, value.dtype, (value, UOp(Ops.EXPAND, value.dtype, (largest,), value.shape)))


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("shape", [(3, 8), (2, 37), (5, 1), (1, 70), (2, 3, 16)])
def test_kept_rows_hold_the_values(
    name: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_rows, "COSTLY", frozenset({Ops.MUL}))
    value = ROWS[name](memory(*shape))
    data = np.random.default_rng(1).integers(-99, 99, shape).ravel().tolist()
    program = Program(value, {1: data})
    check_values(program)
    if shape[-1] > 1:
        kernel = merge_loops(lower_movement(UOp.sink(value)))
        assert count(use_local_buffers(kernel, ROOM), Ops.LOCAL_BUFFER)


def test_a_row_that_is_not_inside_of_the_other_loops_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept_rows, "COSTLY", frozenset({Ops.MUL}))
    turned = UOp(Ops.PERMUTE, dtypes.int32, (ROWS["sum"](memory(3, 8)),), (1, 0))
    kernel = lower_movement(UOp.sink(turned))
    assert use_local_buffers(kernel, ROOM) is kernel


@QUICK
@given(programs(dtypes_used=EXACT))
def test_keeping_rows_keeps_the_values_of_random_programs(program: Program) -> None:
    assume(not sums_floats(program))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_rows, "COSTLY", frozenset({Ops.ADD, Ops.MUL, Ops.MAX, Ops.WHERE}))
        check_values(program)


def check_values(program: Program) -> None:
    """The Kernel with kept rows by brute force, its Linear on the reference machine: the oracle's values."""
    value, elements = over_buffers(program)
    expected = evaluate_tensor(value, elements).ravel().tolist()
    kernel = use_local_buffers(merge_loops(lower_movement(UOp.sink(program.value))), ROOM)
    chosen = unroll_upcasts(choose_axes(kernel, ROOM))
    for changed in (kernel, chosen):
        check_form(Form.KERNEL, changed)
        assert same(run_kernel(changed, dict(program.data))[0], expected)
    scalar = reductions_to_accumulators(choose_index_width(chosen, ROOM, _Wide()))
    vector = vectorize(scalar, facts=compiler().library.facts())
    linear = linearize(vector)
    for form, graph in ((Form.PROGRAM, scalar), (Form.PROGRAM, vector), (Form.LINEAR, linear)):
        check_form(form, graph)
    assert same(run_linear(linear, program), expected)


def test_rows_that_share_no_load_inside_of_a_sum_are_not_written_out() -> None:
    """The weights of a layernorm are the same in all rows, but its sums do not read them."""
    weight, bias = (Tensor(np.ones(32, np.float32)).realize() for _ in range(2))
    x = Tensor(np.ones((16, 32), np.float32)).realize()
    (one,) = schedules(x.layernorm() * weight + bias, ROOM)
    assert one.copies == NO_COPIES


@pytest.mark.parametrize("width", [50, 33, 300])
def test_a_row_that_vectors_do_not_fill_is_not_mixed_with_the_next(width: int) -> None:
    data = np.random.default_rng(width).random((5, width), np.float32)
    data += np.array([[0], [1e30], [-1e30], [3e4], [-3e4]], np.float32)
    shifted = np.exp(data.astype(np.float64) - data.max(-1, keepdims=True))
    expected = shifted / shifted.sum(-1, keepdims=True)
    np.testing.assert_allclose(Tensor(data).softmax(-1).numpy(), expected, rtol=1e-5, atol=1e-7)


def test_long_rows_that_are_kept_do_not_lie_on_the_stack() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 20_000)).astype(np.float32)
    value = Tensor(x).realize().softmax(-1)
    (call,) = compiler().kernel_graph(UOp.sink(value.uop).replace(arg="CPU")).src
    (source,) = compiler().sources(call.src[0], "CPU")
    assert source.text.count("call ptr @malloc") == source.text.count("call void @free") == 1
    expected = np.exp(x - x.max(-1, keepdims=True))
    np.testing.assert_allclose(value.numpy(), expected / expected.sum(-1, keepdims=True), 1e-5)


def test_what_is_made_of_a_kept_value_is_not_kept_a_second_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The gradient of an entropy: keeping was refused, so that nothing of the kernel was kept, and SPEC=1 said so."""
    monkeypatch.setenv("SPEC", "1")
    values = np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32)
    scores = Tensor(values, requires_grad=True)
    (scores.softmax(-1) * scores.log_softmax(-1)).sum(-1).mean().backward()
    p = np.exp(values.astype(np.float64)) / np.exp(values.astype(np.float64)).sum(1, keepdims=True)
    slope = p * (np.log(p) - (p * np.log(p)).sum(1, keepdims=True)) / 8
    assert scores.grad is not None
    np.testing.assert_allclose(scores.grad.numpy(), slope, rtol=1e-5, atol=1e-7)


def test_a_value_that_more_loops_compute_than_what_is_made_of_it_is_kept_as_well() -> None:
    """As the scores of a softmax, which its largest one is of, too; then what is made of it."""

    def scores(x: Tensor) -> Tensor:
        return x.sigmoid().softmax(-1)

    kept = use_local_buffers(kernel_of(scores, 4, 40), ROOM)
    assert count(kept, Ops.LOCAL_BUFFER) == 2
    assert count(kept, Ops.EXP) == 2 < count(kernel_of(scores, 4, 40), Ops.EXP)
    short = use_local_buffers(kernel_of(scores, 4, 15), ROOM)
    assert count(short, Ops.LOCAL_BUFFER) == 2  # the loop of the results is not written out


@pytest.mark.parametrize("width", [1, 7, 17, 33, 64])
def test_kept_scores_have_their_values_and_gradients(width: int) -> None:
    x = np.random.default_rng(0).standard_normal((5, width)).astype(np.float32)
    leaf = Tensor(x).requires_grad_()
    found = leaf.sigmoid().softmax(-1)
    scores = 1 / (1 + np.exp(-x.astype(np.float64)))
    expected = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    assert np.allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)
    (gradient,) = (found * found).sum().gradient(leaf)
    inner = expected * (2 * expected - (2 * expected**2).sum(-1, keepdims=True))
    assert np.allclose(gradient.numpy(), inner * scores * (1 - scores), rtol=1e-3, atol=1e-6)
