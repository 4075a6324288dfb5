"""Gradients that the user says, and modes in which there are none."""

from __future__ import annotations

from typing import Any

import pytest

from proofgrad import GradientError, Ops, Tensor, TinyJit, custom_vjp, dtypes


def test_custom_gradient_replaces_that_of_the_function_alone() -> None:
    @custom_vjp(backward=lambda gradient, x: gradient * 2)
    def twice_as_steep(x: Tensor) -> Tensor:
        return x

    x = Tensor([3.0])
    (grad,) = (twice_as_steep(x) * x).gradient(x)  # 2 * x + x; the plain use keeps its own
    assert grad.tolist() == [9.0]
    assert twice_as_steep(x).tolist() == [3.0]


def test_custom_gradient_of_several_inputs_and_of_none() -> None:
    @custom_vjp(backward=lambda gradient, a, b: (gradient * b, None))
    def product(a: Tensor, b: Tensor) -> Tensor:
        return a * b

    a, b = Tensor([2.0], requires_grad=True), Tensor([5.0], requires_grad=True)
    product(a, b).backward()
    assert a.grad is not None and a.grad.tolist() == [5.0]
    assert b.grad is None or b.grad.tolist() == [0.0]


def test_custom_gradient_reaches_an_input_that_the_value_does_not_read() -> None:
    @custom_vjp(backward=lambda gradient, x: gradient * x)
    def constant(x: Tensor) -> Tensor:
        return Tensor([1.0])

    x = Tensor([7.0])
    (grad,) = constant(x).gradient(x)
    assert grad.tolist() == [7.0]


@pytest.mark.parametrize("sizes", [(3, 2), (1, 1), (0, 2), (0, 0)])
def test_custom_gradient_of_several_results_is_given_all_of_theirs(sizes: tuple[int, int]) -> None:
    first, second = sizes

    @custom_vjp
    def apart(x: Tensor) -> tuple[Tensor, Tensor]:
        return x[:first].exp(), x[first:].double().reshape(1, second)

    @apart.backward
    def backward(gradients: tuple[Tensor, Tensor], x: Tensor) -> Tensor:
        rows, column = gradients
        assert rows.dtype is dtypes.float32 and column.dtype is dtypes.float64
        return (x[:first].exp() * rows).cat(column.reshape(second).float())

    x = Tensor([0.5 * k for k in range(first + second)], requires_grad=True)
    weights = Tensor([[2.0 + k for k in range(second)]]).double()

    def loss(of: Any) -> Tensor:
        a, b = of(x)
        return (a * a).sum() + (b * weights).sum().float() + (b * b * 0.5).sum().float()

    (found,) = loss(apart).gradient(x)
    (expected,) = loss(lambda x: (x[:first].exp(), x[first:].reshape(1, second))).gradient(x)
    assert found.numpy() == pytest.approx(expected.numpy(), rel=1e-6)
    (again,) = (found * found).sum().gradient(x)
    (twice,) = (expected * expected).sum().gradient(x)
    assert again.numpy() == pytest.approx(twice.numpy(), rel=1e-6)


def test_custom_gradient_of_several_results_under_tiny_jit() -> None:
    halves = custom_vjp(
        lambda x: (x[:2] * 2, x[2:] * 3), backward=lambda g, x: (g[0] * 10).cat(g[1] * 100)
    )

    @TinyJit
    def step(x: Tensor) -> Tensor:
        a, b = halves(x)
        return ((a * b).sum().gradient(x)[0]).realize()

    for k in range(4):
        x = Tensor([1.0 + k, 2.0, 3.0, 4.0 - k]).realize()
        assert step(x).tolist() == [90.0, 10.0 * (12 - 3 * k), 100.0 * (2 + 2 * k), 400.0]


def test_custom_gradient_can_be_derived_again() -> None:
    @custom_vjp(backward=lambda gradient, x: gradient * 3 * x * x)
    def cube(x: Tensor) -> Tensor:
        return (x * x * x).detach()

    x = Tensor([2.0])
    (first,) = cube(x).gradient(x)
    (second,) = first.gradient(x)
    assert (first.tolist(), second.tolist()) == ([12.0], [12.0])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda g, x: (g, g), "one gradient for each of 1 inputs"),
        (lambda g, x: 3.0, "must give Tensors or None, not float"),
        (lambda g, x: g.sum(), r"of shape \(\) for an input of shape \(2,\)"),
    ],
)
def test_custom_gradient_that_does_not_fit_is_refused(given: Any, message: str) -> None:
    same = custom_vjp(backward=given)(lambda x: x * 1)
    x = Tensor([1.0, 2.0])
    with pytest.raises(GradientError, match=message):
        same(x).sum().gradient(x)


def test_custom_gradient_takes_and_gives_tensors() -> None:
    same = custom_vjp(backward=lambda g, x: g)(lambda x: x)
    with pytest.raises(TypeError, match="takes Tensors only, not int"):
        same(3)
    with pytest.raises(TypeError, match="must give a Tensor or a tuple of them, not"):
        custom_vjp(backward=lambda g, x: g)(lambda x: 3)(Tensor([1.0]))


def test_no_grad_makes_results_that_pass_no_gradient() -> None:
    x = Tensor([3.0], requires_grad=True)
    with Tensor.no_grad():
        inside = x * x
        with Tensor.inference_mode(False):
            traced = x * 2
    (inside * x + traced).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [11.0]


def test_no_grad_and_train_decorate_functions() -> None:
    x = Tensor([3.0], requires_grad=True)

    @Tensor.train()
    @Tensor.no_grad()
    def step() -> tuple[bool, Tensor]:
        return Tensor.training, x * x

    for _ in range(2):
        training, square = step()
        assert training and not Tensor.training
        (square * x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [18.0]
    with Tensor.train(), Tensor.test():
        assert not Tensor.training


def test_backward_can_be_given_after_the_function() -> None:
    @custom_vjp
    def double(x: Tensor) -> Tensor:
        return x * 2

    x = Tensor([1.0])
    with pytest.raises(GradientError, match="double has no backward yet"):
        double(x).gradient(x)

    @double.backward
    def _(gradient: Tensor, x: Tensor) -> Tensor:
        return gradient * 5

    assert double(x).gradient(x)[0].tolist() == [5.0]


def test_contiguous_backward_gives_the_gradient_a_buffer() -> None:
    x = Tensor([1.0, 2.0, 3.0])
    (grad,) = (x.contiguous_backward() * 2).sum().gradient(x)
    assert grad.uop.op is Ops.CONTIGUOUS
    assert grad.tolist() == [2, 2, 2]
    assert x.contiguous_backward().tolist() == [1, 2, 3]


def test_gradient_passes_a_custom_function_that_was_computed_before() -> None:
    """The graph of what leads to a parameter is kept, and a custom gradient leads there."""
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = (x * 2).contiguous_backward().realize()
    assert (y * 3).sum().gradient(x)[0].tolist() == [6, 6]

    triple = custom_vjp(lambda x: x * 2, backward=lambda gradient, x: gradient * 3)
    z = triple(x).realize()
    assert (z * z).sum().gradient(x)[0].tolist() == [12, 24]
