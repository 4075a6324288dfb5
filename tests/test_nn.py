"""Layers, optimisers and state against the formulas of torch, in numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tensors import assert_close, machine, numbers

from proofgrad import GlobalCounters, ShapeError, Tensor, nn
from proofgrad.nn.optim import SGD, Adam, AdamW, Optimizer, OptimizerGroup
from proofgrad.nn.state import get_parameters, get_state_dict, load_state_dict

__all__ = ["machine"]
Array = np.ndarray[Any, Any]
STEPS = 4


def test_linear_multiplies_by_the_transposed_weight(machine: str) -> None:
    layer = nn.Linear(3, 4)
    x = numbers(2, 3)
    assert layer.bias is not None
    expected = x.astype(np.float64) @ layer.weight.numpy().T + layer.bias.numpy()
    assert_close(layer(Tensor(x)), expected)
    assert np.abs(layer.weight.numpy()).max() <= 3**-0.5
    assert nn.Linear(3, 4, bias=False).bias is None


def test_convolution_layer_has_the_shape_torch_gives(machine: str) -> None:
    x = Tensor(numbers(2, 4, 8, 8))
    assert nn.Conv2d(4, 6, 3)(x).shape == (2, 6, 6, 6)
    assert nn.Conv2d(4, 6, (3, 5), stride=2, padding=(1, 2), groups=2)(x).shape == (2, 6, 4, 4)
    assert nn.Conv2d(4, 6, 3, padding="same", dilation=2)(x).shape == (2, 6, 8, 8)
    assert nn.Conv1d(4, 5, 3)(Tensor(numbers(2, 4, 8))).shape == (2, 5, 6)


def test_batch_norm_uses_the_batch_in_training_and_what_it_saw_after(machine: str) -> None:
    layer = nn.BatchNorm(3, momentum=0.1)
    x = numbers(8, 3, 2, 2)
    wide = x.astype(np.float64)
    mean, var = wide.mean((0, 2, 3)), wide.var((0, 2, 3))

    def normal(mean: Array, var: Array) -> Array:
        return (wide - mean.reshape(1, 3, 1, 1)) / np.sqrt(var.reshape(1, 3, 1, 1) + 1e-5)

    with Tensor.train():
        assert_close(layer(Tensor(x)), normal(mean, var))
    seen_mean = 0.1 * mean
    seen_var = 0.9 + 0.1 * wide.var((0, 2, 3), ddof=1)
    assert_close(layer.running_mean, seen_mean)
    assert_close(layer.running_var, seen_var)
    assert layer.num_batches_tracked.item() == 1
    assert_close(layer(Tensor(x)), normal(seen_mean, seen_var))


def test_layer_norm_normalises_the_named_axes(machine: str) -> None:
    x = numbers(2, 3, 4)
    wide = x.astype(np.float64)
    mean, var = wide.mean((1, 2), keepdims=True), wide.var((1, 2), keepdims=True)
    assert_close(nn.LayerNorm((3, 4))(Tensor(x)), (wide - mean) / np.sqrt(var + 1e-5))
    with pytest.raises(ValueError, match="LayerNorm of"):
        nn.LayerNorm(5)(Tensor(x))


def test_rms_norm_and_embedding_follow_their_definitions(machine: str) -> None:
    x = numbers(2, 4)
    expected = x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-6)
    assert_close(nn.RMSNorm(4)(Tensor(x)), expected)
    table = nn.Embedding(5, 3)
    assert_close(table(Tensor([[4, 0]])), table.weight.numpy()[[[4, 0]]])


# -- optimisers ---------------------------------------------------------------------------------


def sgd(p: Array, grad: Callable[[Array], Array], lr: float, mu: float, wd: float, nag: bool):
    velocity = np.zeros_like(p)
    for _ in range(STEPS):
        g = grad(p) + wd * p
        velocity = mu * velocity + g
        p = p - lr * (g + mu * velocity if nag else velocity if mu else g)
    return p


def adam(p: Array, grad: Callable[[Array], Array], lr: float, wd: float, decoupled: bool):
    m, v = np.zeros_like(p), np.zeros_like(p)
    for t in range(1, STEPS + 1):
        g = grad(p)
        if decoupled:
            p = p - lr * wd * p
        else:
            g = g + wd * p
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        p = p - lr * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return p


CASES: dict[str, tuple[Callable[[list[Tensor]], Optimizer], Callable[..., Array]]] = {
    "sgd": (lambda p: SGD(p, 0.1), lambda p, g: sgd(p, g, 0.1, 0, 0, False)),
    "sgd with decay": (
        lambda p: SGD(p, 0.1, weight_decay=0.05),
        lambda p, g: sgd(p, g, 0.1, 0, 0.05, False),
    ),
    "momentum": (lambda p: SGD(p, 0.1, momentum=0.9), lambda p, g: sgd(p, g, 0.1, 0.9, 0, False)),
    "nesterov": (
        lambda p: SGD(p, 0.1, momentum=0.9, weight_decay=0.01, nesterov=True),
        lambda p, g: sgd(p, g, 0.1, 0.9, 0.01, True),
    ),
    "adam": (lambda p: Adam(p, 0.1), lambda p, g: adam(p, g, 0.1, 0, False)),
    "adam with decay": (
        lambda p: Adam(p, 0.1, weight_decay=0.1),
        lambda p, g: adam(p, g, 0.1, 0.1, False),
    ),
    "adamw": (lambda p: AdamW(p, 0.1, weight_decay=0.1), lambda p, g: adam(p, g, 0.1, 0.1, True)),
}


@pytest.mark.parametrize("name", CASES)
def test_optimizer_steps_follow_the_formula_of_torch(machine: str, name: str) -> None:
    make, formula = CASES[name]
    start, target = numbers(5), numbers(5, seed=1)
    w = Tensor(start)
    optimizer = make([w])
    for _ in range(STEPS):
        optimizer.zero_grad()
        (w - Tensor(target)).square().sum().backward()
        optimizer.step()
    expected = formula(start.astype(np.float64), lambda p: 2 * (p - target))
    assert_close(w, expected, rtol=1e-4, atol=1e-5)


def test_every_step_runs_the_same_number_of_kernels() -> None:
    layer = nn.Linear(4, 2)
    optimizer = Adam(get_parameters(layer))
    x = Tensor(numbers(3, 4), requires_grad=False)
    counts = []
    for _ in range(4):
        before = GlobalCounters.kernel_count
        optimizer.zero_grad()
        layer(x).square().mean().backward()
        optimizer.step()
        counts.append(GlobalCounters.kernel_count - before)
    assert len(set(counts)) == 1


def test_optimizer_asks_its_parameters_for_gradients_and_keeps_buffers_apart() -> None:
    layer = nn.BatchNorm(2)
    optimizer = SGD(get_parameters(layer))
    assert optimizer.params == [layer.weight, layer.bias] or len(optimizer.params) == 2
    assert len(optimizer.buffers) == 3
    assert layer.weight is not None and layer.weight.requires_grad is True
    with pytest.raises(ValueError, match="needs a parameter"):
        SGD([])


def test_parameter_without_a_gradient_stays(machine: str) -> None:
    used, unused = Tensor([1.0]), Tensor([2.0])
    optimizer = SGD([used, unused], 0.5)
    (used * 3).sum().backward()
    optimizer.step()
    assert (used.tolist(), unused.tolist()) == ([-0.5], [2.0])


def test_optimizer_group_steps_all(machine: str) -> None:
    a, b = Tensor([1.0]), Tensor([1.0])
    group = OptimizerGroup(SGD([a], 0.5), SGD([b], 0.25))
    group.zero_grad()
    (a + b).sum().backward()
    group.step()
    assert (a.tolist(), b.tolist()) == ([0.5], [0.75])


# -- state --------------------------------------------------------------------------------------


class Model:
    """Parts in attributes, a list and a dict."""

    def __init__(self) -> None:
        self.layers = [nn.Linear(2, 3), Tensor.relu, nn.Linear(3, 1, bias=False)]
        self.extra = {"scale": Tensor([1.0])}
        self.name = "model"
        self.itself = self


def test_state_dict_names_every_tensor_by_its_path() -> None:
    names = list(get_state_dict(Model()))
    assert names == ["layers.0.weight", "layers.0.bias", "layers.2.weight", "extra.scale"]
    assert next(iter(get_state_dict(Model(), "net."))) == "net.layers.0.weight"


def test_loaded_state_gives_the_same_results(machine: str) -> None:
    first, second = Model(), Model()
    load_state_dict(second, get_state_dict(first))
    x = Tensor(numbers(4, 2))
    for a, b in zip(get_parameters(first), get_parameters(second), strict=True):
        assert a.tolist() == b.tolist()
    assert first.layers[0](x).tolist() == second.layers[0](x).tolist()


def test_state_of_another_model_is_refused_with_names_and_shapes() -> None:
    state = get_state_dict(Model())
    del state["extra.scale"]
    with pytest.raises(KeyError, match=r"missing \['extra.scale'\]"):
        load_state_dict(Model(), state)
    state["extra.scale"] = Tensor([1.0, 2.0])
    with pytest.raises(
        ShapeError, match=r"cannot load extra.scale: the model has shape \(1,\), the state"
    ):
        load_state_dict(Model(), state)


def test_training_learns_a_function(machine: str) -> None:
    Tensor.manual_seed(3)
    layers = [nn.Linear(1, 16), Tensor.tanh, nn.Linear(16, 1)]
    optimizer = Adam(get_parameters(layers), lr=0.03)
    x = Tensor(np.linspace(-2, 2, 32, dtype="f").reshape(-1, 1), requires_grad=False)
    y = x.sin()
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = x.sequential(layers).mse_loss(y)
        loss.backward()
        loss.realize(*optimizer.schedule_step())
        losses.append(loss.item())
    assert losses[-1] < 0.02 < losses[0]
