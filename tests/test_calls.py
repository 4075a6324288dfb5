"""Bodies over parameters, functions with checked inputs, names of functions that have none."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from proofgrad import Tensor, TinyJit, UOp, custom_vjp, dtypes, function
from proofgrad.core.tensor.methods.calls import Call


def pair() -> tuple[Tensor, Tensor]:
    return Tensor([[1.0, 2.0]]).realize(), Tensor([3.0]).realize()


def test_call_puts_arguments_into_a_body() -> None:
    a, b = pair()
    body = a.as_param(0) * b.as_param(1) + 1
    assert a.call(b, fxn=body).tolist() == [[4.0, 7.0]]
    assert (a + 1).call(b * 2, fxn=body.uop).tolist() == [[13.0, 19.0]]
    grads = a.call(b, fxn=body).sum().gradient(a, b)
    assert [grad.tolist() for grad in grads] == [[[3.0, 3.0]], [3.0]]


def test_call_with_a_gradient_of_its_own() -> None:
    a, b = pair()

    def gradient(g: Tensor, call: Call) -> tuple[Tensor, None]:
        return g * 10 * call.src[1], None

    result = Tensor.call(a, b, fxn=a.as_param(0) * b.as_param(1), grad_fxn=gradient)
    grads = result.sum().gradient(a, b)
    assert [grad.tolist() for grad in grads] == [[[10.0, 20.0]], [0.0]]


def test_wrong_calls_say_what_is_missing() -> None:
    a, b = pair()
    with pytest.raises(ValueError, match="parameter 1, and the call 1 arguments"):
        a.call(fxn=a.as_param(0) * b.as_param(1))
    with pytest.raises(ValueError, match="parameter 0 of the body has 2 elements"):
        b.call(fxn=a.as_param(0))
    with pytest.raises(ValueError, match="parameter 0 of a body has no value"):
        (a.as_param(0) + 1).tolist()


def test_function_gives_what_it_gave_undecorated() -> None:
    a, b = pair()

    @function
    def both(x: Tensor, *, scale: Tensor) -> tuple[Tensor, Tensor]:
        return x * scale, x + scale

    @function(precompile=True)
    def one(parts: dict[str, list[Tensor]]) -> Tensor:
        return parts["a"][0] + Tensor([5.0])

    assert [t.tolist() for t in both(a, scale=b)] == [[[3.0, 6.0]], [[4.0, 5.0]]]
    assert both.__name__ == "both" and one({"a": [b]}).tolist() == [8.0]
    (grad,) = both(a, scale=b)[0].sum().gradient(b)
    assert grad.tolist() == [3.0]


def test_method_finds_the_tensors_of_its_object() -> None:
    class Layer:
        def __init__(self) -> None:
            self.weight = Tensor([2.0]).realize()

        @function
        def __call__(self, x: Tensor) -> Tensor:
            return x * self.weight

    assert Layer()(Tensor([4.0]).realize()).tolist() == [8.0]


def test_function_refuses_tensors_from_elsewhere_unless_it_is_told() -> None:
    a, b = pair()
    with pytest.raises(ValueError, match=r"outer reads Tensors .*one of 1 elements, dtypes.float"):

        @function
        def outer(x: Tensor) -> Tensor:
            return x * b

        outer(a)
    assert function(lambda x: x * b, allow_implicit=True)(a).tolist() == [[3.0, 6.0]]


def test_function_takes_a_gradient_for_one_result() -> None:
    a, _ = pair()
    steep = function(grad_fxn=lambda g, call: (g * call.src[1] * 100,))(lambda x: x * x)
    (grad,) = steep(a).sum().gradient(a)
    assert grad.tolist() == [[100.0, 200.0]]
    with pytest.raises(TypeError, match="must give a Tensor or a tuple"):
        function(lambda x: 3)(a)


def test_function_of_several_results_gives_their_gradients_together() -> None:
    a = Tensor([[1.0, 2.0]], requires_grad=True)

    def said(gradients: tuple[Tensor, Tensor, None], call: Call) -> tuple[UOp]:
        rows, count, most = gradients
        assert (rows.shape, rows.dtype, count, most.shape) == ((2,), dtypes.half, None, ())
        return ((rows.float().reshape(1, 2) * 10 + most * call.src[1]).uop,)

    @function(grad_fxn=said)
    def several(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x.reshape(2).half(), (x > 0).sum(), x.max()

    rows, count, most = several(a)
    assert (rows.tolist(), count.item(), most.item()) == ([1.0, 2.0], 2, 2.0)
    ((rows * Tensor([1.0, 3.0])).sum() + most * 5).backward()
    assert a.grad is not None and a.grad.tolist() == [[15.0, 40.0]]
    (grad,) = several(a)[2].gradient(a)  # of one result the others get zeros
    assert grad.tolist() == [[1.0, 2.0]]


class Twice:
    def __call__(self, x: Tensor) -> Tensor:
        return x * 2


@pytest.mark.parametrize("decorate", [TinyJit, custom_vjp, function])
def test_partial_functions_and_callable_objects_can_be_decorated(decorate: Any) -> None:
    x = Tensor([2.0]).realize()
    for made, expected in (
        (decorate(functools.partial(lambda factor, x: x * factor, 3)), 6.0),
        (decorate(Twice()), 4.0),
    ):
        assert [made(x).tolist() for _ in range(4)] == [[expected]] * 4


def test_messages_name_the_function_in_a_partial() -> None:
    def scale(factor: float, x: Tensor) -> Tensor:
        return x * factor

    recorded = TinyJit(functools.partial(scale, 3.0))
    for _ in range(2):
        recorded(Tensor([1.0]).realize())
    with pytest.raises(ValueError, match="scale was recorded with"):
        recorded(Tensor([1.0, 2.0]).realize())
