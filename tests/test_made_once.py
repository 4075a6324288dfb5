"""Functions whose graph is made once: one node at each call, whose value, gradient and plan are those of the graph."""

from __future__ import annotations

import numpy as np
import pytest

from proofgrad import Tensor, TinyJit, Variable
from proofgrad.core.ir.ops import Ops
from proofgrad.core.ir.text import read_uop, show_uop
from proofgrad.core.ir.uop import UOp
from proofgrad.core.tensor.data.bodies import value_of_body, without_bodies
from proofgrad.core.tensor.methods.made_once import made_once
from proofgrad.core.tensor.runtime import canonical
from proofgrad.verify.sampled.launch_memory import check_numbers
from proofgrad.verify.sampled.launch_plan import PlanError

CALLS: list[tuple[int, ...]] = []


@made_once
def waves(x: Tensor, power: int, scale: float = 1.0) -> Tensor:
    """A function that is of more than one use of its argument."""
    CALLS.append(x.shape)
    return (x.sin() * scale) ** power + x[..., ::-1] * x


def plain(x: Tensor, power: int, scale: float = 1.0) -> Tensor:
    return waves.__wrapped__(x, power, scale)  # type: ignore[attr-defined]


@made_once
def twice(x: Tensor) -> Tensor:
    return waves(waves(x, 2), 2, scale=0.5)


def numbers(*shape: int) -> Tensor:
    return Tensor(np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32))


def test_graph_is_made_once_for_each_type_shape_and_option() -> None:
    CALLS.clear()
    for x in (numbers(2, 9), numbers(2, 9) + 1, numbers(9), numbers(2, 9).cast("float64")):
        for _ in range(2):
            waves(x, 3)
    for scale in (0, 0.0, -0.0, False, 0.0):
        waves(numbers(2, 9), 3, scale=scale)
    assert CALLS == [(2, 9), (9,), *[(2, 9)] * 5]


@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (3, 5)], ids=str)
def test_value_is_that_of_the_graph(shape: tuple[int, ...]) -> None:
    x = numbers(*shape).reshape((*shape, 1)) + 1
    for function, same in (
        (waves, plain),
        (lambda t, _: twice(t), lambda t, _: plain(plain(t, 2), 2, 0.5)),
    ):
        np.testing.assert_array_equal(function(x, 2).numpy(), same(x, 2).numpy())
        assert without_bodies(function(x, 2)._uop) is not function(x, 2)._uop


def test_gradient_passes_through_as_through_the_graph() -> None:
    """To the argument, to what it is made of, to a result on the way; and once more."""
    for function in (waves, plain):
        x = numbers(3, 5)
        x.requires_grad = True
        middle = function(x * 2, 3)
        (first,) = (middle * middle).sum().gradient(x)
        (second,) = (first * first).sum().gradient(x)
        (middle * middle).sum().backward()
        found = [first.numpy(), second.numpy(), x.grad.numpy(), middle.grad.numpy()]  # type: ignore[union-attr]
        if function is waves:
            of_body = found
    for one, other in zip(of_body, found):
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=1e-5)


def test_second_call_walks_through_no_body(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: list[UOp] = []
    monkeypatch.setattr(
        canonical, "without_bodies", lambda graph: shapes.append(graph) or without_bodies(graph)
    )
    canonical._WITHOUT_BODIES.clear()
    for k in range(3):
        x = numbers(4, 11).contiguous().realize() if k else numbers(4, 11).realize()
        waves(x, 5)[1:3].realize()
    assert len(shapes) == 1


def test_variables_and_modes() -> None:
    size = Variable("size", 1, 9)
    x = numbers(9)
    for n in (3, 8):
        part = waves(x[: size.bind(n)], 2)
        assert part._uop.op is not Ops.APPLY
        np.testing.assert_array_equal(part.numpy(), plain(numbers(9)[:n], 2).numpy())
    with Tensor.no_grad():
        assert twice(x).numpy().tolist() == twice(numbers(9)).numpy().tolist()


def test_recorded_function_reads_its_argument_anew() -> None:
    jitted = TinyJit(lambda x: twice(x).realize())
    for k in range(5):
        x = (numbers(3, 4) + k).realize()
        np.testing.assert_array_equal(jitted(x).numpy(), plain(plain(x, 2), 2, 0.5).numpy())


def test_body_of_a_call_may_hold_one() -> None:
    x = numbers(6)
    body = waves(x.as_param(0) * 2, 2)
    np.testing.assert_array_equal(x.call(fxn=body).numpy(), plain(x * 2, 2).numpy())
    with pytest.raises(ValueError, match="parameter 0 of a body has no value"):
        body.numpy()


def test_check_tells_another_graph_apart() -> None:
    """CHECK=1 looks into bodies, and at what their parameters became."""
    x = numbers(2, 3).realize()
    root = twice(x)._uop
    graph, inputs = canonical.numbered([root], x.device)
    handles = [canonical_memory(buffer) for buffer in inputs]
    check_numbers([root], graph, inputs, handles, {})
    for wrong in (waves(x, 3), waves(x, 2), twice(x.T.contiguous()).T, waves(waves(x, 2), 2, 0.25)):
        with pytest.raises(PlanError):
            check_numbers([wrong._uop], graph, inputs, handles, {})


def canonical_memory(buffer: UOp) -> object:
    from proofgrad.core.tensor.runtime.realize import memory_of

    return memory_of(buffer)


def test_sort_is_few_nodes_and_the_same_graph_each_time() -> None:
    x = numbers(20, 700).realize()
    values, positions = x.sort()
    assert len(values._uop.toposort()) < 12 and len(positions._uop.toposort()) < 12
    applied = next(n for n in positions._uop.toposort() if n.op is Ops.APPLY)
    assert len(value_of_body(applied).toposort()) > 300
    other = numbers(20, 700).realize().sort()[1]
    assert next(n for n in other._uop.toposort() if n.op is Ops.APPLY).arg is applied.arg


def test_text_of_an_applied_body_is_read_again() -> None:
    body = twice(numbers(2, 3))._uop.arg  # which holds others
    assert read_uop(show_uop(body)) is body
