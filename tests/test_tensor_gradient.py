"""Derivatives: by rules, against differences; and which Tensors get one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tensors import machine, numbers

from proofgrad import DtypeError, Ops, ShapeError, Tensor, TinyJit, gradcheck, nn
from proofgrad.core.compile.nests.sums_of_products import is_contraction
from proofgrad.core.tensor.data import errors
from proofgrad.core.tensor.data.bodies import without_bodies
from proofgrad.testing.gradients import GradientError

__all__ = ["machine"]
Function = Callable[..., Tensor]

OF_ONE: dict[str, Function] = {
    "neg": lambda x: -x,
    "exp": Tensor.exp,
    "exp2": Tensor.exp2,
    "sin": Tensor.sin,
    "cos": Tensor.cos,
    "tan": Tensor.tan,
    "tanh": Tensor.tanh,
    "sigmoid": Tensor.sigmoid,
    "relu": Tensor.relu,
    "gelu": Tensor.gelu,
    "silu": Tensor.silu,
    "softplus": Tensor.softplus,
    "elu": Tensor.elu,
    "leaky_relu": Tensor.leaky_relu,
    "abs": Tensor.abs,
    "erf": Tensor.erf,
    "square": Tensor.square,
    "cube": lambda x: x**3,
    "power": lambda x: 2.0**x,
    "clip": lambda x: x.clip(-0.7, 0.9),
    "rounding": lambda x: x * x.floor() + x.round() + x.trunc(),
    "sum": lambda x: x.sum(0),
    "mean": Tensor.mean,
    "prod": lambda x: x.prod(1) + x.prod(),
    "max": lambda x: x.max(1),
    "min": Tensor.min,
    "var": lambda x: x.var(0),
    "std": Tensor.std,
    "softmax": Tensor.softmax,
    "log_softmax": Tensor.log_softmax,
    "logsumexp": lambda x: x.logsumexp(1),
    "layernorm": Tensor.layernorm,
    "transposed": lambda x: x.T * Tensor(np.arange(12.0).reshape(4, 3)),
    "expanded": lambda x: x.expand(2, 3, 4) * Tensor(np.arange(24.0).reshape(2, 3, 4)),
    "reshaped": lambda x: x.reshape(2, 6).flip(1),
    "padded": lambda x: x.pad(((1, 2), (0, 1)), value=2.0),
    "sliced": lambda x: x[::-2, 1:3],
    "gathered": lambda x: x[Tensor([0, 2, 2])],
    "used twice": lambda x: x * x.sin() + x,
    "selected": lambda x: (x > 0.1).where(x * 2, x * x),
    "cat": lambda x: x.cat(x * 2, dim=1),
}


@pytest.mark.parametrize("name", OF_ONE)
def test_derivative_of_one_input_matches_differences(machine: str, name: str) -> None:
    assert gradcheck(OF_ONE[name], Tensor(numbers(3, 4)))


@pytest.mark.parametrize("name", ["log", "log2", "sqrt", "rsqrt", "reciprocal"])
def test_derivative_on_positive_inputs_matches_differences(machine: str, name: str) -> None:
    assert gradcheck(getattr(Tensor, name), Tensor(numbers(5, low=0.5, high=3.0)))


OF_MANY: dict[str, tuple[Function, list[tuple[int, ...]]]] = {
    "add": (lambda x, y: x + y, [(3, 4), (4,)]),
    "sub": (lambda x, y: x - y, [(3, 1), (4,)]),
    "mul": (lambda x, y: x * y, [(2, 3), (3,)]),
    "div": (lambda x, y: x / y, [(3,), (2, 3)]),
    "maximum": (lambda x, y: x.maximum(y), [(5,), (5,)]),
    "minimum": (lambda x, y: x.minimum(y), [(5,), (5,)]),
    "matmul": (lambda x, y: x @ y, [(2, 3), (3, 4)]),
    "batched matmul": (lambda x, y: x @ y, [(2, 2, 3), (3, 2)]),
    "linear": (lambda x, w, b: x.linear(w, b), [(2, 3), (3, 4), (4,)]),
    "conv2d": (
        lambda x, w, b: x.conv2d(w, b, stride=2, padding=1),
        [(1, 2, 5, 5), (3, 2, 3, 3), (3,)],
    ),
    "grouped conv2d": (
        lambda x, w: x.conv2d(w, groups=2, dilation=2),
        [(1, 2, 5, 5), (2, 1, 2, 2)],
    ),
    "max_pool2d": (lambda x: x.max_pool2d(), [(1, 1, 4, 4)]),
    "overlapping max_pool2d": (lambda x: x.max_pool2d(3, 1, padding=1), [(1, 1, 4, 4)]),
    "avg_pool2d": (lambda x: x.avg_pool2d(3, 2), [(1, 1, 5, 5)]),
    "cross entropy": (lambda x: x.sparse_categorical_crossentropy(Tensor([0, 2, 1])), [(3, 4)]),
    "attention": (
        lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True),
        [(3, 2), (3, 2), (3, 2)],
    ),
}


@pytest.mark.parametrize("name", OF_MANY)
def test_derivative_of_several_inputs_matches_differences(machine: str, name: str) -> None:
    function, shapes = OF_MANY[name]
    inputs = [Tensor(numbers(*shape, seed=k)) for k, shape in enumerate(shapes)]
    assert gradcheck(function, inputs)


def test_derivative_of_a_real_power_matches_differences(machine: str) -> None:
    inputs = [Tensor(numbers(4, low=0.5, high=2.0)), Tensor(numbers(4, seed=1))]
    assert gradcheck(lambda x, y: x**y, inputs)


def test_gradcheck_reports_a_wrong_derivative_with_both_values(machine: str) -> None:
    with pytest.raises(GradientError, match=r"input 0 at \(0,\): the derivative is"):
        gradcheck(lambda x: x.detach() * x, Tensor([1.5]))


def test_relu_at_zero_has_derivative_zero_and_keeps_nan(machine: str) -> None:
    x = Tensor([0.0, -0.0, 1.0, math.nan], requires_grad=True)
    (grad,) = x.relu().sum().gradient(x)
    assert grad.tolist()[:3] == [0.0, 0.0, 1.0]


def test_equal_maxima_share_the_derivative(machine: str) -> None:
    x = Tensor([1.0, 3.0, 3.0, 2.0], requires_grad=True)
    assert x.max().gradient(x)[0].tolist() == [0.0, 0.5, 0.5, 0.0]


def test_sigmoid_of_huge_values_has_a_finite_derivative(machine: str) -> None:
    x = Tensor([-200.0, 0.0, 200.0], requires_grad=True)
    assert x.sigmoid().sum().gradient(x)[0].tolist() == [0.0, 0.25, 0.0]


def test_derivative_can_be_derived_again(machine: str) -> None:
    x = Tensor([2.0], requires_grad=True)
    (first,) = (x**3).sum().gradient(x)
    (second,) = first.sum().gradient(x)
    (third,) = second.sum().gradient(x)
    assert (first.item(), second.item(), third.item()) == (12.0, 12.0, 6.0)


SECOND: dict[str, tuple[Function, tuple[int, ...]]] = {
    "exp": (Tensor.exp, (3,)),
    "sin": (Tensor.sin, (3,)),
    "tanh": (Tensor.tanh, (3,)),
    "sigmoid": (Tensor.sigmoid, (3,)),
    "square root": (lambda x: (x * x + 1).sqrt(), (3,)),
    "quotient": (lambda x: x / (x * x + 1), (3,)),
    "log_softmax": (Tensor.log_softmax, (2, 3)),
    "layernorm": (Tensor.layernorm, (2, 3)),
    "matmul": (lambda x: x @ x.T @ x, (2, 3)),
    "conv2d": (lambda x: x.conv2d(x[:, :, :2, :2] * 2, padding=1), (1, 1, 3, 3)),
    "max_pool2d": (lambda x: x.max_pool2d() ** 3, (1, 1, 4, 4)),
    "power": (lambda x: (x * x + 0.5) ** x, (3,)),
}


@pytest.mark.parametrize("name", SECOND)
def test_second_derivative_matches_differences_of_the_first(machine: str, name: str) -> None:
    function, shape = SECOND[name]

    def first(x: Tensor) -> Tensor:
        weights = Tensor(np.linspace(0.5, 1.5, function(x).numel())).reshape(function(x).shape)
        return (function(x) * weights).sum().gradient(x)[0]

    assert gradcheck(first, Tensor(numbers(*shape)), tolerance=1e-5)


def test_backward_accumulates_until_the_gradient_is_forgotten(machine: str) -> None:
    x = Tensor([3.0], requires_grad=True)
    (x * x).backward()
    (x * x).backward()
    assert x.grad is not None and x.grad.tolist() == [12.0]
    x.zero_grad()
    assert x.grad is None


def test_backward_reaches_leaves_that_did_not_ask(machine: str) -> None:
    x, y = Tensor([1.0, 2.0, 3.0]), Tensor([4.0, 5.0, 6.0])
    (x * y).sum().backward()
    assert x.grad is not None and y.grad is not None
    assert (x.grad.tolist(), y.grad.tolist()) == ([4.0, 5.0, 6.0], [1.0, 2.0, 3.0])


def test_backward_leaves_out_what_was_refused_or_not_asked(machine: str) -> None:
    w = Tensor([2.0], requires_grad=True)
    x, frozen = Tensor([3.0]), Tensor([4.0], requires_grad=False)
    (w * x * frozen).backward()
    assert w.grad is not None and w.grad.tolist() == [12.0]
    assert x.grad is None and frozen.grad is None


def test_equal_constants_that_take_gradients_are_kept_apart(machine: str) -> None:
    a, b = Tensor.ones(2, requires_grad=True), Tensor.ones(2, requires_grad=True)
    (a * b * b * 1.0).sum().backward()
    assert a.grad is not None and b.grad is not None
    assert (a.grad.tolist(), b.grad.tolist()) == ([1.0, 1.0], [2.0, 2.0])


def test_gradient_with_respect_to_a_plain_constant_is_refused() -> None:
    x = Tensor.ones(3)
    with pytest.raises(ValueError, match="requires_grad=True"):
        (x * 2).sum().gradient(x)


def test_no_gradient_passes_detach(machine: str) -> None:
    x = Tensor([3.0], requires_grad=True)
    (grad,) = (x * x.detach()).gradient(x)
    assert grad.tolist() == [3.0]


def test_gradient_of_an_unused_target_is_zero(machine: str) -> None:
    x, y = Tensor([1.0], requires_grad=True), Tensor([1.0, 2.0], requires_grad=True)
    assert (x * 2).gradient(y)[0].tolist() == [0.0, 0.0]


def a_view_of_a_value_that_is_there(x: Tensor) -> Tensor:
    return (x * 2).realize().reshape(2, 1)


def made_without_gradients(x: Tensor) -> Tensor:
    with Tensor.no_grad():
        return x * 2


def of_a_recorded_function(x: Tensor) -> Tensor:
    doubled = TinyJit(lambda x: (x * 2).realize())
    return [doubled(x) for _ in range(4)][-1]


def before_it_was_written_to(x: Tensor) -> Tensor:
    z = (x * 2).realize()
    x.assign(x + 1)
    return z


LOST: dict[str, Function] = {
    "realised": lambda x: (x * 2).realize(),
    "contiguous": lambda x: (x * 2).contiguous().realize(),
    "view": a_view_of_a_value_that_is_there,
    "detached": lambda x: (x * 2).detach(),
    "no_grad": made_without_gradients,
    "recorded": of_a_recorded_function,
    "written to": before_it_was_written_to,
}


@pytest.mark.parametrize("name", LOST)
def test_gradient_whose_way_to_the_target_is_lost_is_refused(name: str) -> None:
    x = Tensor([1.0, 2.0])
    loss = LOST[name](x).square().sum()
    with pytest.raises(errors.GradientError, match=r"no gradient passes .* requires_grad=True"):
        loss.gradient(x)
    assert loss.gradient(x, materialize_grads=True)[0].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("name", ["realised", "contiguous", "view"])
def test_gradient_through_a_realised_value_passes_to_a_parameter(name: str) -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    assert LOST[name](x).square().sum().gradient(x)[0].tolist() == [8.0, 16.0]


def test_gradient_of_an_unused_target_beside_one_of_use_is_zero() -> None:
    x, y, z = Tensor([1.0]).realize(), Tensor([2.0], requires_grad=True), Tensor([3.0]).realize()
    found = (x * y).sum().gradient(x, y, z)
    assert [one.tolist() for one in found] == [[2.0], [1.0], [0.0]]


def test_equal_parameters_that_are_realised_together_have_gradients_of_their_own() -> None:
    a, b = [Tensor.zeros(2, requires_grad=True) for _ in range(2)]
    Tensor.realize(a, b)
    (a * 2 + b * 5).sum().backward()
    assert a.grad is not None and b.grad is not None
    assert (a.grad.tolist(), b.grad.tolist()) == ([2.0, 2.0], [5.0, 5.0])
    a.assign(a + 1).realize()
    assert (a.tolist(), b.tolist()) == ([1.0, 1.0], [0.0, 0.0])


def test_backward_of_a_value_that_was_realised_is_refused() -> None:
    x = Tensor([1.0, 2.0])
    loss = x.square().sum().realize()
    with pytest.raises(errors.GradientError, match="was realised before"):
        loss.backward()
    leaf = Tensor([1.0]).realize()
    assert leaf.backward().grad is not None


def test_gradient_takes_a_cotangent_for_many_elements(machine: str) -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    (grad,) = (x * x).gradient(x, gradient=Tensor([1.0, 10.0]))
    assert grad.tolist() == [2.0, 40.0]
    with pytest.raises(ShapeError, match="start from one element"):
        (x * x).backward()


def test_gradient_of_integers_is_refused() -> None:
    with pytest.raises(DtypeError, match="only floats have gradients"):
        Tensor([1]).sum().backward()


def test_backward_works_after_the_loss_was_read_or_realised(machine: str) -> None:
    x = Tensor([2.0], requires_grad=True)
    loss = (x * x).sum()
    assert loss.item() == 4.0
    loss.realize()
    loss.backward()
    assert x.grad is not None and x.grad.tolist() == [4.0]


def test_backward_after_the_inputs_were_realised_still_finds_them(machine: str) -> None:
    x = Tensor([2.0])
    loss = (x * x * 3).sum()
    x.realize()
    loss.backward()
    assert x.grad is not None and x.grad.tolist() == [12.0]


def test_backward_of_realised_data_says_why_there_is_nothing_to_do() -> None:
    loss = (Tensor([2.0]) * 3).sum().realize()
    with pytest.raises(ValueError, match="realised before"):
        (loss.detach() * 2).backward()


def test_a_loop_of_realised_steps_keeps_no_history(machine: str) -> None:
    x = Tensor([1.0])
    for _ in range(5):
        x = (x * 0.5).realize()
    assert len(x._uop.toposort()) <= 4


def test_cast_passes_the_gradient_in_the_type_of_its_source(machine: str) -> None:
    x = Tensor([1.5], dtype="float16", requires_grad=True)
    (grad,) = (x.float() * 3).sum().gradient(x)
    assert (grad.dtype, grad.tolist()) == (x.dtype, [3.0])


def test_gradient_comes_back_from_another_device() -> None:
    x = Tensor([1.0, 2.0], device="CPU", requires_grad=True)
    there = x.to("REFERENCE")
    (grad,) = (there * there * 3).sum().gradient(x)
    assert (grad.device, grad.tolist()) == ("CPU", [6.0, 12.0])


def test_gradient_of_what_enters_several_products_is_a_product_for_each() -> None:
    """As where one input is projected three times: a sum of all terms could not run in tiles."""
    generator = np.random.default_rng(3)
    x, *weights = [generator.standard_normal((4, 4)).astype(np.float32) for _ in range(4)]
    given = Tensor(x).realize()
    total = sum([(given @ Tensor(w)).sum() for w in weights], (given * 2).sum())
    (slope,) = total.gradient(given)
    np.testing.assert_allclose(
        slope.numpy(), 2 + sum([w.sum(1) for w in weights]) * np.ones((4, 4)), 1e-5
    )
    joined = (given @ Tensor(weights[0])).cat(given @ Tensor(weights[1]), dim=1)
    (slope,) = (joined * Tensor(np.tile(x, 2))).sum().gradient(given)
    whole = without_bodies(slope._uop)
    sums = [n for n in whole.toposort() if n.op is Ops.REDUCE_AXIS]
    assert len([n for n in sums if is_contraction(n)]) == 2
    np.testing.assert_allclose(slope.numpy(), x @ (weights[0] + weights[1]).T, 1e-4)


LENGTHS: dict[str, Callable[[Tensor], Tensor]] = {
    "std": lambda x: x.std(-1),
    "std_mean": lambda x: x.std_mean(-1)[0],
    "normalize": lambda x: x.normalize(dim=-1) * 1e-12,
    "normalize by a sum": lambda x: x.normalize(1.0, dim=-1) * 1e-12,
    "normalize by a power": lambda x: x.normalize(3.0, dim=-1) * 1e-12,
    "normalize by a small power": lambda x: x.normalize(0.5, dim=-1) * 1e-12,
}


@pytest.mark.parametrize("name", LENGTHS)
def test_derivative_of_a_length_that_is_zero_is_a_number(machine: str, name: str) -> None:
    x = Tensor([[0.0, 0.0, 0.0], [0.0, 1.0, 3.0]])
    (found,) = LENGTHS[name](x).sum().gradient(x)
    (alone,) = LENGTHS[name](x[1:]).sum().gradient(x)
    at_zero = [0.0] * 3 if name.startswith("std") else [1.0] * 3
    np.testing.assert_allclose(found[0].numpy(), at_zero, rtol=1e-6)
    assert np.isfinite(found.numpy()).all() and found[1].tolist() == alone[1].tolist()


def test_weights_behind_a_row_of_zeros_keep_their_derivative(machine: str) -> None:
    weights, rows = Tensor([[1.0, 2.0]]), Tensor([[0.0], [1.0]])
    (found,) = (rows @ weights).normalize(dim=-1).sum().gradient(weights)
    np.testing.assert_allclose(
        found.numpy(), [[0.8 * 5**-0.5 - 0.4 * 5**-0.5, -0.2 * 5**-0.5]], rtol=1e-5
    )


# -- results of operations ------------------------------------------------------------------------


def test_results_on_the_way_have_gradients_too() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = x * 2
    z = y * y
    loss = z.sum()
    assert y.grad is None
    loss.backward()
    found = [t.grad.tolist() for t in (y, z, loss, x) if t.grad is not None]
    assert found == [[4.0, 8.0], [1.0, 1.0], 1.0, [8.0, 16.0]]
    loss.backward()
    assert y.grad is not None and y.grad.tolist() == [8.0, 16.0]
    y.grad = None
    assert y.grad is None


def test_computed_results_and_clones_are_leaves_where_nothing_else_is() -> None:
    w = (Tensor([1.0, 2.0]) * 2).realize()
    (w * w).sum().backward()
    assert w.grad is not None and w.grad.tolist() == [4.0, 8.0]
    copy = w.clone()
    (copy * 3).sum().backward()
    assert copy.grad is not None and copy.grad.tolist() == [3.0, 3.0]
    assert w.grad.tolist() == [7.0, 11.0]


def test_a_gradient_asked_for_after_a_step_is_that_of_before() -> None:
    """It is derived late, of the values that there were."""

    def gradients(ask_at_once: bool) -> list[object]:
        w = Tensor([2.0, 3.0], requires_grad=True)
        y = w * Tensor([1.0, 5.0])
        (y * y * w).sum().backward()
        found = [y.grad.tolist()] if ask_at_once and y.grad is not None else []
        w.assign(w.detach() * 0).realize()
        return found or [None if y.grad is None else y.grad.tolist()]

    assert gradients(True) == gradients(False) == [[8.0, 90.0]]


def test_what_rests_on_no_leaf_has_no_gradient() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    beside = Tensor([3.0, 4.0], requires_grad=False) * 2
    cut = (x * 2).detach()
    (x * beside * cut).sum().backward()
    assert beside.grad is None and cut.grad is None


def test_a_cotangent_is_broadcast() -> None:
    x = Tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x * x
    y.backward(Tensor(2.0))
    assert x.grad is not None and x.grad.tolist() == [4.0, 8.0, 12.0]
    assert y.gradient(x, gradient=Tensor([1.0]))[0].tolist() == [2.0, 4.0, 6.0]
    with pytest.raises(ShapeError, match=r"gradient \(2,\) of a Tensor of \(3,\)"):
        y.backward(Tensor([1.0, 1.0]))


def test_a_diagonal_of_ones_has_a_gradient_of_its_own() -> None:
    x, y = Tensor.eye(3), Tensor([[2.0, 0.0, -2.0]])
    dx, dy = y.matmul(x).sum().gradient(x, y)
    assert dx.tolist() == [[2.0] * 3, [0.0] * 3, [-2.0] * 3] and dy.tolist() == [[1.0, 1.0, 1.0]]
    other = Tensor.eye(3)
    (first,) = (x * other * 3).sum().gradient(x)
    assert first.tolist() == (np.eye(3) * 3).tolist()


def test_every_tensor_is_a_parameter_until_it_is_said_not_to_be() -> None:
    x = Tensor([1.0])
    assert x.is_param and (x * 2).is_param and nn.Linear(2, 2).weight.is_param
    norm = nn.BatchNorm(2)
    assert norm.weight.is_param and not norm.running_mean.is_param
    x.is_param = False
    assert x.requires_grad is False and not x.is_param
    y = Tensor([2.0])
    (x * y).sum().backward()
    assert x.grad is None and y.grad is not None


@pytest.mark.parametrize("same", [Tensor.float, lambda x: x.to(x.device)], ids=["float", "to"])
@pytest.mark.parametrize("requires_grad", [True, None])
def test_a_leaf_under_two_names_has_one_gradient_after_one_was_computed(
    same: Callable[[Tensor], Tensor], requires_grad: bool | None
) -> None:
    """A cast to the type that it has is the same leaf: `realize` took its own node from it."""
    x = Tensor([1.0, 2.0], requires_grad=requires_grad)
    y = same(x).realize()
    total = (y * 3 + x * 2).sum()
    assert total.gradient(x)[0].tolist() == [5.0, 5.0]
    total.backward()
    assert x.grad is not None and x.grad.tolist() == [5.0, 5.0]
    assert y.grad is not None and y.grad.tolist() == [5.0, 5.0]


def test_a_leaf_that_is_written_to_is_no_longer_another_one() -> None:
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = x.float().realize()
    with Tensor.no_grad():
        y += 1
    (y * 3 + x * 2).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 2.0]
    assert y.grad is not None and y.grad.tolist() == [3.0, 3.0]
    assert (x.tolist(), y.tolist()) == ([1.0, 2.0], [2.0, 3.0])


def _replayed(w: Tensor) -> None:
    step = TinyJit(lambda: w.assign(w + 1).realize())
    for _ in range(4):
        step()


@pytest.mark.parametrize(
    "write",
    [
        lambda w: w,
        lambda w: w.realize(),
        lambda w: w.assign(w * 2),
        lambda w: w.assign(w * 2).realize(),
        lambda w: w.replace(w * 2).realize(),
        lambda w: w[:1].assign(Tensor([3.0])),
        lambda w: Tensor.realize(w, w + 1),
        lambda w: w.requires_grad_(False).requires_grad_(True),
        _replayed,
    ],
)
def test_a_realised_value_keeps_its_way_to_what_a_parameter_is_now(
    write: Callable[[Tensor], object],
) -> None:
    w = Tensor([1.0, 2.0], requires_grad=True)
    for _ in range(3):
        with Tensor.no_grad():
            write(w)
        y = (w * 3).realize()
        assert [g.tolist() for g in (y * 2).sum().gradient(w)] == [[6.0, 6.0]]


ASSIGNED: dict[str, Callable[[Tensor, Tensor], object]] = {
    "a value": lambda b, p: b.assign(p * 2),
    "itself": lambda b, p: b.assign(p),
    "a part": lambda b, p: b[:1].assign(p[1:] * 2),
}


@pytest.mark.parametrize("name", ASSIGNED)
@pytest.mark.parametrize("is_data", [True, False])
def test_gradient_of_what_was_assigned_is_no_silent_part(name: str, is_data: bool) -> None:
    """torch and tinygrad would derive through it; here it is said, until the value is realised and so is data."""
    p = Tensor([2.0, 3.0], requires_grad=True)
    b = Tensor([1.0, 1.0]) if is_data else Tensor([1.0, 1.0]).realize() * 1
    ASSIGNED[name](b, p)
    loss = (b * p).sum()
    with pytest.raises(errors.GradientError, match="assigned"):
        loss.gradient(p)
    loss.backward()
    with pytest.raises(errors.GradientError, match="assigned"):
        _ = p.grad
    p.grad = None
    b.realize()
    assert (b * p).sum().gradient(p)[0].tolist() == b.tolist()


@pytest.mark.parametrize("way", ["detached", "no_grad", "refused"])
def test_what_is_assigned_without_a_way_is_data(way: str) -> None:
    p, b = Tensor([2.0, 3.0], requires_grad=True), Tensor([1.0, 1.0])
    if way == "no_grad":
        with Tensor.no_grad():
            b.assign(p * 2)
    else:
        b.requires_grad_(False if way == "refused" else None)
        b.assign((p.detach() if way == "detached" else p) * 2)
    assert (b * p).sum().gradient(p)[0].tolist() == [4.0, 6.0]


def test_clones_have_gradients_of_their_own() -> None:
    x = Tensor([1.0, 2.0])
    a, b = x.clone(), x.clone()
    (a * 2 + b * 3).sum().backward()
    assert a.grad.tolist() == [2.0, 2.0] and b.grad.tolist() == [3.0, 3.0]
    assert x.grad.tolist() == [5.0, 5.0]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Tensor.ones(2).clone(),
        lambda: Tensor(1.0).clone().reshape(1).expand(2).clone(),
        lambda: Tensor.ones(2).contiguous(),
        lambda: Tensor.full((1, 2), 1.0).reshape(2).contiguous(),
        lambda: Tensor([1.0, 1.0]).detach().clone(),
        lambda: (Tensor([1.0, 0.0]) + Tensor([0.0, 1.0])).detach().clone(),
    ],
)
def test_copies_of_constants_and_of_what_was_detached_have_gradients(
    make: Callable[[], Tensor],
) -> None:
    a, b = make(), make()
    (a * 2 + b * b * 3).sum().backward()
    assert a.grad.tolist() == [2.0, 2.0] and b.grad.tolist() == [6.0, 6.0]
    assert (a * b).sum().gradient(a)[0].tolist() == [1.0, 1.0]


def test_a_gradient_passes_through_a_result_that_takes_one() -> None:
    """It raised that CONTIGUOUS has no gradient."""
    x = Tensor([1.0, 2.0], requires_grad=True)
    y = (x * 2).requires_grad_()
    (y * y).sum().backward()
    assert y.grad.tolist() == [4.0, 8.0] and x.grad.tolist() == [8.0, 16.0]


@pytest.mark.parametrize("is_computed", [False, True])
def test_who_holds_a_gradient_sees_what_is_added_to_it(is_computed: bool) -> None:
    x = Tensor([3.0])
    y = x * x
    y.sum().backward()
    held, of_result = x.grad, y.grad
    if is_computed:
        Tensor.realize(held, of_result)
    (y * 2).sum().backward()
    assert x.grad is held and held.tolist() == [18.0]
    assert y.grad is of_result and of_result.tolist() == [3.0]


def test_a_copy_refuses_a_gradient_as_its_source_does() -> None:
    x = Tensor([1.0]).requires_grad_(False)
    assert x.clone().requires_grad is x.to("REFERENCE").requires_grad is False


def test_a_moved_tensor_has_its_gradient_beside_it() -> None:
    x = Tensor([1.0, 2.0])
    (x * x).sum().backward()
    x.to_("REFERENCE")
    assert x.grad.device == "REFERENCE" and (x - x.grad).tolist() == [-1.0, -2.0]


@pytest.mark.parametrize(
    "bounds, slopes",
    [
        ((-2.5, 1.5), [0.0, 1.0, 1.0, 1.0, 0.0]),
        ((None, 0), [1.0, 1.0, 1.0, 0.0, 0.0]),
        ((0.0, None), [0.0, 0.0, 1.0, 1.0, 1.0]),
        ((2, -2), [0.0] * 5),
    ],
)
def test_clip_has_slope_1_at_its_bounds(bounds: Any, slopes: list[float]) -> None:
    x = Tensor([-3.0, -2.5, 0.0, 1.5, 2.0])
    assert x.clip(*bounds).sum().gradient(x)[0].tolist() == slopes


def test_the_sign_that_copysign_takes_has_the_gradient_0() -> None:
    x, sign = Tensor([2.0, -3.0]), Tensor([-1.0, -1.0])
    of_size, of_sign = x.copysign(sign).sum().gradient(x, sign)
    assert of_size.tolist() == [-1.0, 1.0] and of_sign.tolist() == [0.0, 0.0]


NAN = math.nan
ROWS = [[1.0, NAN, 3.0], [1.0, 2.0, 2.0]]


@pytest.mark.parametrize("reduced", ["max", "min"])
def test_extremes_of_a_nan_have_gradients_of_nan(reduced: str) -> None:
    """As torch.amax; gradients of 0 would hide from a check for overflows what the loss shows."""
    x = Tensor(ROWS, requires_grad=True)
    (found,) = getattr(x, reduced)(1).sum().gradient(x)
    expected = [0.0, 0.5, 0.5] if reduced == "max" else [1.0, 0.0, 0.0]
    np.testing.assert_array_equal(found.numpy(), [[NAN] * 3, expected])
    x = Tensor([[-math.inf, math.inf], [math.inf, -math.inf]], requires_grad=True)
    (found,) = getattr(x, reduced)(1).sum().gradient(x)
    assert found.tolist() == ([[0, 1], [1, 0]] if reduced == "max" else [[1, 0], [0, 1]])


PRODUCTS = {  # by row: the product of the others, NaN where 0 meets an infinity or a NaN
    (0, 2, 3): (6, 0, 0),
    (0, 0, 3): (0, 0, 0),
    (0, 2, math.inf): (math.inf, NAN, NAN),
    (0, 2, NAN): (NAN, NAN, NAN),
    (0, 0, math.inf): (NAN, NAN, NAN),
    (2, 3, math.inf): (math.inf, math.inf, NAN),
}


def test_gradients_of_products_do_not_hide_infinities_behind_zeros() -> None:
    x = Tensor(list(PRODUCTS), dtype="float32", requires_grad=True)
    (found,) = x.prod(1).sum().gradient(x)
    np.testing.assert_array_equal(found.numpy(), list(PRODUCTS.values()))
    (found,) = (x.prod(1) * NAN)[0].gradient(x)
    np.testing.assert_array_equal(found[0].numpy(), [NAN] * 3)


CHOSEN: dict[str, tuple[Function, list[float]]] = {
    "relu": (Tensor.relu, [1, 1, 1]),
    "abs": (Tensor.abs, [1, 0, 1]),
    "maximum": (lambda x: x.maximum(2), [0, 1, 1]),
    "clip": (lambda x: x.clip(0, 2), [1, 0, 0]),
    "cummax": (lambda x: x.cummax(1)[0], [1, 2, 0]),
    "topk": (lambda x: x.topk(1, 1)[0], [0, 1, 0]),
    "sort": (lambda x: x.sort(1)[0], [1, 1, 1]),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_what_chooses_elements_passes_the_gradient_of_a_nan_as_torch_does(name: str) -> None:
    function, expected = CHOSEN[name]
    x = Tensor(ROWS[:1], requires_grad=True)
    assert function(x).sum().gradient(x)[0].tolist() == [expected]
